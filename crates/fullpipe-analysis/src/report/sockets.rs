//! Sockets as lines of text.

use std::borrow::Cow;
use std::fmt::{self, Write};

use fullpipe_measurement::classify::Confidence;
use fullpipe_units::{Bytes, Duration, Rate};

use super::offered_load::becomes;
use super::wrapping::between_words;
use crate::demand::{Carries, Memory};
use crate::sockets::{OfferedSource, SocketReport};

/// A queue is growing if its measured growth exceeds this share of the data sent. Smaller growth is the
/// normal sawtooth of a queue.
const NOTABLE_GROWTH: f64 = 0.1;
/// Maximum number of rows in a table of sockets.
const MOST_LINES: usize = 10;

/// Typical length of a line, used to allocate memory.
const USUAL_LINE: usize = 128;

/// Widths of the columns of a line, without the connection column and the text after the unsent bytes.
const OTHER_COLUMNS: usize = 64;
/// Range of the width of the connection column: an IPv4 address with a port, and two with an arrow.
const CONNECTION: std::ops::RangeInclusive<usize> = 21..=44;
/// Indent of a continued line, which begins below the connection column.
const CONTINUED: &str = "               ";

/// Returns the width of the connection column on a page of `width` columns.
fn connection_column(width: usize) -> usize {
    width.saturating_sub(OTHER_COLUMNS).clamp(*CONNECTION.start(), *CONNECTION.end())
}

/// Returns the column names for [`lines()`].
pub fn heading(width: usize) -> String {
    let column = connection_column(width);
    let names = format!(
        "{:>8}  {:>3}  {:<column$}  {:>11}  {:>8}  {:<12}  unsent\n",
        "seconds", "#", "connection", "sent", "rtt", "limit"
    );
    let mut text = String::new();
    push_wrapped(&mut text, &names, width);
    text
}

/// Returns one line per socket for an interval. `memory` is the memory available to the application's queue.
/// A line that is wider than `width` columns is continued below.
pub fn lines(reports: &[SocketReport], memory: Memory, width: usize) -> String {
    let mut text = String::with_capacity(USUAL_LINE * reports.len());
    // Sockets that were sampled together have the same time.
    let (mut seconds, mut begin) = (f64::NAN, String::new());
    let mut one = String::with_capacity(2 * USUAL_LINE);
    for report in reports {
        if report.t_s != seconds {
            (seconds, begin) = (report.t_s, format!("{:>8.1}", report.t_s));
        }
        one.clear();
        // Writing to a string does not fail.
        let _ = line(&mut one, &begin, report, memory, connection_column(width));
        push_wrapped(&mut text, &one, width);
    }
    text
}

/// Appends `line`, which ends with a line feed, wrapped between words.
fn push_wrapped(text: &mut String, line: &str, width: usize) {
    let options = between_words(width).subsequent_indent(CONTINUED).break_words(false);
    for part in textwrap::wrap(line.trim_end(), options) {
        text.push_str(&part);
        text.push('\n');
    }
}

/// Formats the endpoints of a connection to fit into `column`: both endpoints if they fit, otherwise only the
/// peer, and if necessary only the end of the peer's address with the port.
fn endpoints(report: &SocketReport, column: usize) -> Cow<'_, str> {
    if report.connection.len() <= column {
        return Cow::Borrowed(&report.connection);
    }
    let remote = report.remote.to_string();
    match remote.len().checked_sub(column) {
        None | Some(0) => remote.into(),
        Some(more) => format!("...{}", remote.get(more + 3..).unwrap_or_default()).into(),
    }
}

fn line(text: &mut String, begin: &str, report: &SocketReport, memory: Memory, column: usize) -> fmt::Result {
    text.push_str(begin);
    let connection = endpoints(report, column);
    write!(text, "  {:>3}  {connection:<column$}  {:>11}  ", report.flow, report.achieved)?;
    match report.rtt_ms.map(rtt) {
        Some(rtt) => write!(text, "{rtt:>8}  ")?,
        None => write!(text, "{:>8}  ", "-")?,
    }
    write!(text, "{:<12}  {}", limit(report), Bytes::new(report.notsent_bytes))?;
    if !report.received.is_zero() && report.received > report.achieved {
        write!(text, "; receives {}", report.received)?;
        if report.unread_bytes > 0 {
            write!(text, ", {} unread", Bytes::new(report.unread_bytes))?;
        }
    }
    if report.backlog.carries == Carries::Less && grows(report) {
        let whose = match memory {
            Memory::Available(_) => " that this host has left",
            Memory::Given(_) | Memory::Unknown => "",
        };
        let becomes = becomes(&report.backlog, memory.bytes(), whose);
        write!(text, "; offered {}: {becomes}", report.offered)?;
    }
    text.push('\n');
    Ok(())
}

/// Returns whether the queue grows by more than its normal sawtooth.
fn grows(report: &SocketReport) -> bool {
    let growth = report.backlog.growth_bytes_per_s as f64 * 8.0;
    report.offered_source == OfferedSource::Given || growth > NOTABLE_GROWTH * report.achieved.as_bps() as f64
}

fn rtt(millis: f64) -> Duration {
    let digits = if millis < 10.0 { 1e5 } else { 1e4 };
    Duration::from_secs_f64((millis / 1e3 * digits).round() / digits)
}

fn limit(report: &SocketReport) -> Cow<'static, str> {
    match report.limit {
        // A receiver does not observe a limit at the sender or on the path.
        None if report.received > report.achieved => "not here".into(),
        None => "-".into(),
        Some(limit) if report.confidence == Some(Confidence::Low) => format!("{limit}?").into(),
        Some(limit) => limit.name().into(),
    }
}

/// Returns lines for the largest sockets, for a report that diagnoses one of them.
pub(super) fn table(reports: &[SocketReport]) -> Vec<String> {
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
            &report.rtt_ms.map_or("-".into(), |millis| rtt(millis).to_string()),
            &limit(report),
            &Bytes::new(report.notsent_bytes).to_string(),
        )
    }));
    if let Some(more) = reports.len().checked_sub(MOST_LINES).filter(|more| *more > 0) {
        lines.push(format!("  and {more} more connections that carried less"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use fullpipe_units::Instant;

    use super::*;
    use crate::sockets::Sockets;
    use crate::sockets::made::{MEMORY, run, sample};
    use fullpipe_measurement::classify::SocketFacts;

    /// Width of output that is not a terminal.
    const WIDE: usize = usize::MAX;

    /// A growing queue is reported with the time until the memory is full; a steady queue is not reported.
    #[test]
    fn a_growing_queue_is_told_with_its_end() {
        let mut growing = Sockets::new(SocketFacts::default());
        run(&mut growing, 1, 1, 11, 69);
        let line = lines(&growing.interval(None, MEMORY), MEMORY, WIDE);
        assert!(
            line.contains("8 Mbit/s") && line.contains("cwnd") && line.contains("after 16.7 min"),
            "{line}"
        );
        let mut steady = Sockets::new(SocketFacts::default());
        run(&mut steady, 1, 1, 11, 0);
        assert!(!lines(&steady.interval(None, MEMORY), MEMORY, WIDE).contains("offered"));
    }

    /// On a terminal with 80 columns, lines of 130 columns and more once wrapped in the middle of a word.
    #[test]
    fn lines_stay_within_the_terminal() {
        let mut sockets = Sockets::new(SocketFacts::default());
        run(&mut sockets, 1, 1, 11, 69);
        run(&mut sockets, 2, 1, 21, 0);
        let reports = sockets.interval(None, MEMORY);
        let wide = lines(&reports, MEMORY, WIDE);
        assert!(wide.lines().any(|line| line.len() > 130), "{wide}");
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for width in 40..200 {
            let text = heading(width) + &lines(&reports, MEMORY, width);
            assert!(text.lines().all(|line| line.len() <= width), "{width}:\n{text}");
            let all = words(&text).join(" ");
            assert!(all.contains("192.0.2.1:443 ") && all.contains("16.7 min"), "{width}:\n{text}");
            if width >= OTHER_COLUMNS + CONNECTION.end() {
                assert_eq!(words(&text), words(&(heading(WIDE) + &wide)), "{width}");
            }
        }
        assert_eq!(heading(110), heading(WIDE));
    }

    #[test]
    fn words_after_one_that_is_too_wide_are_wrapped() {
        let mut text = String::new();
        let peer = "2001:db8:85a3:1234:5678:8a2e:370:7334";
        push_wrapped(&mut text, &format!("  1.1  {peer}  8 Mbit/s  cwnd\n"), 40);
        assert_eq!(text, format!("  1.1\n{CONTINUED}{peer}\n{CONTINUED}8 Mbit/s  cwnd\n"));
    }

    #[test]
    fn a_table_has_the_largest() {
        let mut sockets = Sockets::new(SocketFacts::default());
        for id in 1..=12 {
            for tenth in 1..=20 {
                let at = Instant::ZERO + Duration::from_millis(100 * tenth);
                sockets.take(at, &sample(id, id * 10_000 * tenth, 50));
            }
        }
        let table = table(&sockets.whole(None, MEMORY));
        assert_eq!(table.len(), 12);
        assert!(table[11].contains("2 more"), "{table:#?}");
    }

    /// Lines contain no evidence, so reports without words give the same lines as full reports.
    #[test]
    fn reports_without_words_make_the_same_lines() {
        let (mut whole, mut brief) =
            (Sockets::new(SocketFacts::default()), Sockets::new(SocketFacts::default()).without_words());
        for sockets in [&mut whole, &mut brief] {
            run(sockets, 1, 1, 11, 0);
            // The second socket delivers nothing, but has queued data.
            run(sockets, 2, 0, 2, 0);
        }
        let whole = lines(&whole.interval(None, MEMORY), MEMORY, WIDE);
        assert_eq!(whole, lines(&brief.interval(None, MEMORY), MEMORY, WIDE));
        assert_eq!(whole.lines().count(), 2);
    }

    /// Number, endpoints, rate, RTT, limit and unsent data align with their column names, and each socket has
    /// its own time.
    #[test]
    fn a_line_has_its_columns() {
        let mut sockets = Sockets::new(SocketFacts::default());
        run(&mut sockets, 1, 1, 11, 0);
        run(&mut sockets, 2, 1, 21, 0);
        assert_eq!(
            heading(WIDE) + &lines(&sockets.interval(None, MEMORY), MEMORY, WIDE),
            " seconds    #  connection                                           sent       rtt  limit         unsent\n     \
             1.1    1  192.0.2.1:1001 > 192.0.2.1:443                   8 Mbit/s      50ms  cwnd          70.7 KiB\n     \
             2.1    2  192.0.2.1:1002 > 192.0.2.1:443                   8 Mbit/s      50ms  cwnd          70.7 KiB\n"
        );
    }
}
