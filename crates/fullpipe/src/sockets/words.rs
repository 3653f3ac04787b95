//! Sockets as lines of text.

use fullpipe_units::{Bytes, Duration, Rate};

use super::SocketReport;
use crate::offered::{Carries, Memory};
use crate::report::becomes;

/// Measured growth below this part of what is sent is the sawtooth of a queue, not a growing one.
const NOTABLE_GROWTH: f64 = 0.1;
/// Rows of a table of sockets.
const MOST_LINES: usize = 10;

/// The names of the columns of [`line()`].
pub fn heading() -> String {
    format!(
        "{:>8}  {:>3}  {:<44}  {:>11}  {:>8}  {:<12}  unsent\n",
        "seconds", "#", "connection", "sent", "rtt", "limit"
    )
}

/// A socket in an interval: a line with its end. `memory` is what the application's queue may take.
pub fn line(report: &SocketReport, memory: Memory) -> String {
    let rtt = report.rtt_ms.map_or("-".into(), rtt);
    let connection = format!("{} > {}", report.local, report.remote);
    let mut text = format!(
        "{:>8.1}  {:>3}  {connection:<44}  {:>11}  {rtt:>8}  {:<12}  {}",
        report.t_s,
        report.flow,
        report.achieved.to_string(),
        limit(report),
        Bytes::new(report.notsent_bytes)
    );
    if !report.received.is_zero() && report.received > report.achieved {
        text += &format!("; receives {}", report.received);
        if report.unread_bytes > 0 {
            text += &format!(", {} unread", Bytes::new(report.unread_bytes));
        }
    }
    if report.backlog.carries == Carries::Less && grows(report) {
        let whose = match memory {
            Memory::Available(_) => " that this host has left",
            Memory::Given(_) | Memory::Unknown => "",
        };
        text += &format!("; offered {}: {}", report.offered, becomes(&report.backlog, memory.bytes(), whose));
    }
    text.truncate(text.trim_end().len());
    text + "\n"
}

/// Whether the queue's growth is more than the moment's sawtooth.
fn grows(report: &SocketReport) -> bool {
    let growth = report.backlog.growth_bytes_per_s as f64 * 8.0;
    report.offered_source == "given" || growth > NOTABLE_GROWTH * report.achieved.as_bps() as f64
}

fn rtt(millis: f64) -> String {
    let digits = if millis < 10.0 { 1e5 } else { 1e4 };
    Duration::from_secs_f64((millis / 1e3 * digits).round() / digits).to_string()
}

fn limit(report: &SocketReport) -> String {
    use crate::explain::Confidence;
    let unsure = report.confidence == Some(Confidence::Low);
    report.limit.map_or("-".into(), |limit| format!("{limit}{}", if unsure { "?" } else { "" }))
}

/// The largest of the sockets as lines, for a report that explains one of them.
pub(crate) fn table(reports: &[SocketReport]) -> Vec<String> {
    let widest = reports.iter().take(MOST_LINES).map(|report| report.remote.to_string().len()).max();
    let width = widest.unwrap_or(0).max(4);
    let row =
        |number: &str, remote: &str, sent: &str, received: &str, rtt: &str, limit: &str, unsent: &str| {
            let line = format!(
                "  {number:>3}  {remote:<width$}  {sent:>11}  {received:>11}  {rtt:>7}  {limit:<12}  {unsent}"
            );
            line.trim_end().to_owned()
        };
    let amount = |rate: Rate| if rate.is_zero() { "-".to_owned() } else { rate.to_string() };
    let mut lines = vec![row("#", "peer", "sent", "received", "rtt", "limit", "unsent")];
    lines.extend(reports.iter().take(MOST_LINES).map(|report| {
        row(
            &report.flow.to_string(),
            &report.remote.to_string(),
            &amount(report.achieved),
            &amount(report.received),
            &report.rtt_ms.map_or("-".into(), rtt),
            &limit(report),
            &Bytes::new(report.notsent_bytes).to_string(),
        )
    }));
    if let Some(more) = reports.len().checked_sub(MOST_LINES).filter(|more| *more > 0) {
        lines.push(format!("  and {more} more that carried less"));
    }
    lines
}
