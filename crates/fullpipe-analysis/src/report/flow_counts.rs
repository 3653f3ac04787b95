//! Rates for different numbers of flows, as text.

use fullpipe_units::{Bytes, Duration, Probability};

use super::Look;
use super::page::{Page, RATE_WIDTH, percent};
use crate::flow_counts::{FlowCount, FlowCounts};

/// Width of a column with an amount of memory: `341.8 KiB`.
const MEMORY_WIDTH: usize = 11;
/// Width of a column with a round-trip time.
const RTT_WIDTH: usize = 9;

/// Renders the table as text with the width of `look`. `noun` is the plural noun for the flows, such as
/// `connections`. `look` is a [`Look`], or the width of text without colour.
pub fn render_flow_counts(counts: &FlowCounts, noun: &str, look: impl Into<Look>) -> String {
    let mut page = Page::new(look.into());
    page.headline(&headline(counts, noun));
    page.paragraph(0, &path(counts));
    if !counts.counts.is_empty() {
        page.heading(&format!("Simulated, for each number of {noun}"));
        let (flows, rate, share) = ("", "steady rate", "of the link");
        page.line(&format!(
            "  {flows:>3} {rate:>RATE_WIDTH$}  {share}  {:>RTT_WIDTH$}  {:>MEMORY_WIDTH$}  limit",
            "RTT", "memory each"
        ));
    }
    for count in &counts.counts {
        row(&mut page, counts, count);
    }
    page.list("Assumed", &counts.assumptions);
    page.list("Notes", &counts.notes);
    page.into_text()
}

fn headline(counts: &FlowCounts, noun: &str) -> String {
    let Some(enough) = counts.enough() else { return "nothing was simulated".into() };
    let most = counts.counts.last().map_or(enough.flows, |count| count.flows);
    let share = percent(enough.steady.as_bps() as f64 / counts.path.link.as_bps() as f64);
    let noun = if enough.flows == 1 { noun.trim_end_matches('s') } else { noun };
    let reach = if enough.flows == 1 { "reaches" } else { "reach" };
    let reached = format!("{} {noun} {reach} {}, {share} of the link", enough.flows, enough.steady);
    if enough.flows == most {
        format!("{reached}; the limit is {}", enough.what)
    } else {
        format!("{reached}; higher numbers gain less than 5 %; the limit is {}", enough.what)
    }
}

fn path(counts: &FlowCounts) -> String {
    let path = &counts.path;
    let cap = path.cap.map_or_else(String::new, |cap| format!(", {cap} per flow"));
    format!(
        "{}, RTT {}, loss {}{cap}; kernel {}, congestion control {}, {} to send and {} to receive.",
        path.link,
        Duration::from_secs_f64(path.rtt_ms / 1e3),
        Probability::from_f64(path.loss),
        path.kernel,
        path.congestion_control,
        Bytes::new(path.sndbuf_bytes),
        Bytes::new(path.rcvbuf_bytes)
    )
}

fn row(page: &mut Page, counts: &FlowCounts, count: &FlowCount) {
    let mark = if Some(count.flows) == counts.enough { ">" } else { " " };
    let share = percent(count.steady.as_bps() as f64 / counts.path.link.as_bps() as f64);
    let rtt = count.rtt().map_or_else(|| "-".to_owned(), |rtt| rtt.to_string());
    let lead = format!(
        "{mark} {:>3} {:>RATE_WIDTH$}  {share:>11}  {rtt:>RTT_WIDTH$}  {:>MEMORY_WIDTH$}  ",
        count.flows,
        count.steady.to_string(),
        count.memory().to_string()
    );
    page.hanging(&lead, &count.what);
}
