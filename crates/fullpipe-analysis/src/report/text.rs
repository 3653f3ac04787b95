//! Diagnosis as text: wrapped between words, without control characters except for the requested colours.

use std::collections::BTreeSet;
use std::fmt::Write;

use fullpipe_measurement::classify::{Finding, Limit};
use fullpipe_units::Duration;

use super::Look;
use super::page::{Page, percent};
use super::sockets::table;
use crate::diagnosis::{Diagnosis, UdpSummary};
use crate::explain::RttSource;
use crate::ladder::Rung;

/// Renders the whole diagnosis as text with the width of `look` (at least 40 columns), except for commands to
/// copy: [`render_findings`], then [`render_ladder`].
///
/// `look` is a [`Look`], or the width of text without colour.
pub fn render_text(diagnosis: &Diagnosis, look: impl Into<Look>) -> String {
    let look = look.into();
    render_findings(diagnosis, look) + &render_ladder(diagnosis, look)
}

/// Renders the facts that are known before the simulation: the headline with the share of the link rate and
/// the limit of the transfer, the measurement, and the findings.
pub fn render_findings(diagnosis: &Diagnosis, look: impl Into<Look>) -> String {
    let mut page = Page::new(look.into());
    page.headline(&present(diagnosis));
    if let Some(undecided) = &diagnosis.undecided {
        page.hanging("To decide: ", &undecided.test);
    }
    page.paragraph(0, &measurement(diagnosis));
    if let Some(sockets) = &diagnosis.sockets {
        page.heading(
            "Connections, the largest first; this diagnosis is for the largest sender, or for the \
                      connection that --flow selects",
        );
        table(sockets).iter().for_each(|line| page.line(line));
    }
    findings(&mut page, diagnosis);
    page.into_text()
}

/// Renders the results of the simulation: the next limit, the ladder with its commands, assumptions and
/// notes.
pub fn render_ladder(diagnosis: &Diagnosis, look: impl Into<Look>) -> String {
    let mut page = Page::new(look.into());
    if let Some(next) = next(diagnosis) {
        page.heading(&next);
    }
    if let Some(fit) = diagnosis.fit.as_ref().filter(|fit| !fit.met) {
        page.hanging("Model: ", &fit.to_string());
    }
    page.ladder(&diagnosis.ladder, diagnosis.path.link);
    page.offered(diagnosis.offered.as_ref());
    page.remedies(&diagnosis.ladder);
    page.list("Assumed", &diagnosis.assumptions);
    page.list("Notes", &diagnosis.notes);
    page.into_text()
}

/// Renders a short form: the headline, the ladder without commands, and the next test.
pub fn render_brief(diagnosis: &Diagnosis, look: impl Into<Look>) -> String {
    let mut page = Page::new(look.into());
    page.headline(&headline(diagnosis));
    page.ladder(&diagnosis.ladder, diagnosis.path.link);
    let deciding = diagnosis.undecided.as_ref().map(|undecided| undecided.test.as_str());
    let next_test = || diagnosis.findings.iter().find_map(|finding| finding.next_test.as_deref());
    if let Some(test) = deciding.or_else(next_test) {
        page.line("");
        page.hanging("Next test: ", test);
    }
    page.into_text()
}

/// Returns the headline: the share of the link rate, the limit of the transfer, and the next limit.
pub(super) fn headline(diagnosis: &Diagnosis) -> String {
    match next(diagnosis) {
        Some(next) => format!("{} {next}", present(diagnosis)),
        None => present(diagnosis),
    }
}

/// Returns the first sentence of the headline, which needs no simulation.
pub(super) fn present(diagnosis: &Diagnosis) -> String {
    let (mean, link) = (diagnosis.path.mean, diagnosis.path.link);
    let share = match link {
        Some(link) => {
            format!("{} of the link", percent(mean.as_bps() as f64 / link.as_bps() as f64))
        }
        None => format!("{mean}, on a link of unknown rate"),
    };
    match (&diagnosis.undecided, diagnosis.findings.first()) {
        (Some(undecided), _) => format!("{share}: {undecided}."),
        (None, Some(first)) => format!("{share}: {}.", first.what),
        (None, None) => format!("{share}."),
    }
}

/// Returns the second sentence of the headline: the next limit, or the predicted rate of TCP after a UDP
/// test; `None` if that is unknown. The sentence also states whether the model fails to reproduce the log.
fn next(diagnosis: &Diagnosis) -> Option<String> {
    let first = diagnosis.findings.first()?;
    if let Some(udp) = &diagnosis.udp {
        let tcp = udp.tcp.as_ref()?;
        let name = tcp.congestion_control.to_ascii_uppercase();
        return Some(format!("TCP would reach {} with {name} at this loss rate.", tcp.steady));
    }
    // If the model does not reproduce the log, the later rungs belong to a path on which the measured run would
    // have had a different rate.
    let unmet = diagnosis.fit.as_ref().is_some_and(|fit| !fit.met);
    let unmet = unmet.then_some("the model does not reproduce the measured rate");
    let alone = |unmet: &str| format!("Note that {unmet}.");
    // The first rung is the present state, so its limit is not the next one. If a rate cap is the present
    // limit, the ladder ends there. If the link rate is unknown, the last rung is the measured rate, which is
    // not a limit.
    let is_found = |wall: &&Rung| diagnosis.path.link.is_some() || wall.limit != Limit::Link;
    let wall = diagnosis.ladder.get(1).filter(|wall| wall.limit != first.limit).filter(is_found);
    // If the present limit is only a guess, the headline does not predict the next limit.
    let Some(wall) = wall.filter(|_| diagnosis.undecided.is_none()) else { return unmet.map(alone) };
    let mark = unmet.map(|unmet| format!(" ({unmet})")).unwrap_or_default();
    Some(format!("Lift that, and {} stops you near {}{mark}.", wall.what, wall.lasting()))
}

/// Returns a sentence that describes a UDP test.
fn measurement_of_udp(diagnosis: &Diagnosis, udp: &UdpSummary) -> String {
    let (input, path) = (&diagnosis.input, &diagnosis.path);
    let mut text = format!("UDP: sent {}", udp.sent);
    if let Some(arrived) = udp.arrived {
        let _ = write!(text, ", arrived {arrived}");
    }
    if let Some(link) = path.link {
        let _ = write!(text, " of {link}");
    }
    let _ = write!(text, " over {}", Duration::from_secs_f64(input.duration_s));
    if path.rtt_source != RttSource::Unknown {
        let _ = write!(text, ", RTT {}", Duration::from_secs_f64(path.rtt_ms / 1e3));
    }
    text += if input.streams == 1 { ", one stream" } else { ", " };
    if input.streams != 1 {
        let _ = write!(text, "{} streams", input.streams);
    }
    if let Some(lost) = udp.lost {
        let share = percent(lost as f64 / udp.datagrams.max(1) as f64);
        let _ = write!(text, "; {lost} of {} datagrams lost ({share})", udp.datagrams);
    }
    if let Some(jitter) = udp.jitter_ms {
        let _ = write!(text, ", jitter {}", Duration::from_secs_f64(jitter / 1e3));
    }
    if let Some(late) = udp.out_of_order {
        let _ = write!(text, ", {late} out of order");
    }
    text + "."
}

/// Returns a sentence that describes the measurement.
pub(super) fn measurement(diagnosis: &Diagnosis) -> String {
    if let Some(udp) = &diagnosis.udp {
        return measurement_of_udp(diagnosis, udp);
    }
    let (input, path) = (&diagnosis.input, &diagnosis.path);
    let mut text = path.link.map_or_else(|| path.mean.to_string(), |link| format!("{} of {link}", path.mean));
    let _ = write!(text, " over {}", Duration::from_secs_f64(input.duration_s));
    if path.rtt_source != RttSource::Unknown {
        let _ = write!(text, ", RTT {}", Duration::from_secs_f64(path.rtt_ms / 1e3));
    }
    if path.rtt_source == RttSource::Bound {
        text += " at most";
    }
    let _ = match input.streams {
        1 => write!(text, ", one stream"),
        n => write!(text, ", {n} streams"),
    };
    let _ = write!(
        text,
        ", congestion control {} ({}).",
        path.congestion_control, path.congestion_control_source
    );
    text
}

fn findings(page: &mut Page, diagnosis: &Diagnosis) {
    page.heading("Findings, the most likely first");
    // Evidence and open questions that several alternatives share appear only once.
    let mut said = BTreeSet::new();
    for (number, finding) in diagnosis.findings.iter().enumerate() {
        finding_lines(page, number + 1, finding, &mut said);
    }
    if let Some(queue) = &diagnosis.queue {
        page.hanging("  Latency: ", &queue.to_string());
    }
    let excluded: Vec<&str> = diagnosis
        .excluded
        .iter()
        .map(|excluded| excluded.evidence.as_str())
        .filter(|evidence| said.insert((*evidence).to_owned()))
        .collect();
    if !excluded.is_empty() {
        page.line("  Excluded");
        excluded.into_iter().for_each(|evidence| page.hanging("     - ", evidence));
    }
}

fn finding_lines(page: &mut Page, number: usize, finding: &Finding, said: &mut BTreeSet<String>) {
    let confidence = finding.confidence.words();
    let title =
        format!("{} [{}, {} of the time, {confidence}]", finding.what, finding.limit, percent(finding.share));
    page.hanging(&format!("  {number}. "), &title);
    for evidence in finding.evidence.iter().filter(|text| said.insert((*text).clone())) {
        page.hanging("     - ", evidence);
    }
    for open in finding.could_not_tell.iter().filter(|text| said.insert((*text).clone())) {
        page.hanging("     ? ", &format!("not observable: {open}"));
    }
    for test in finding.next_test.iter().filter(|text| said.insert((*text).clone())) {
        page.hanging("     > ", &format!("next test: {test}"));
    }
}

#[cfg(test)]
mod tests {
    use fullpipe_units::Rate;

    use super::*;
    use crate::explain::made::log_of;
    use crate::explain::{Facts, HostFacts, explain};
    use fullpipe_measurement::PathFacts;

    #[test]
    fn extreme_values_do_not_panic() {
        // The rows contain the largest values that a log may have: a petabit per second, and 2^59 segments.
        let rows = [(0.0, 0, 0), (1e9, 1 << 59, 1), (1e-9, 1, u64::MAX >> 11), (61.0, 0, 700)];
        for first in rows {
            for second in rows {
                for third in rows {
                    let log =
                        log_of((0..9).map(|i| [first, second, third][if i == 0 { 0 } else { 1 + i % 2 }]));
                    for rtt in [None, Some(Duration::from_nanos(1)), Some(Duration::from_secs(10))] {
                        for link in [None, Some(Rate::from_bps(1)), Some(Rate::MAX)] {
                            let path = PathFacts { rtt, link, ..PathFacts::default() };
                            let hosts = &HostFacts { control: link, ..HostFacts::default() };
                            let transfer = &log.transfer();
                            let facts = Facts { measurement: &log, transfer, path, hosts };
                            if let Ok(found) = explain(&facts) {
                                let text = render_text(&Diagnosis::new(&facts, found, Vec::new()), 80);
                                assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
                            }
                        }
                    }
                }
            }
        }
    }
}
