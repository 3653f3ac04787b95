//! The diagnosis as plain text: no colour, no control characters, whole words within the width.

use std::collections::BTreeSet;
use std::fmt::Write;

use fullpipe_units::{Duration, Rate};

use super::{Diagnosis, Rung, Source};
use crate::advice::{Command, Host};
use crate::explain::{Confidence, Finding, Limit, RttSource};

/// A rate's column: `69.3 Mbit/s`, right-aligned.
const RATE_WIDTH: usize = 12;
/// Length of a full bar.
const BAR: usize = 20;

/// The whole diagnosis as text of at most `width` columns (40 at least), commands to copy excepted. The first
/// line says it in one breath: the share of the line, what holds the transfer, the next wall.
pub fn render_text(diagnosis: &Diagnosis, width: usize) -> String {
    let mut page = Page { text: String::new(), width: width.max(40) };
    page.line(&headline(diagnosis, page.width));
    page.paragraph(0, &measurement(diagnosis));
    page.findings(diagnosis);
    page.ladder(diagnosis);
    page.commands(&diagnosis.ladder);
    page.list("Assumed", &diagnosis.assumptions);
    page.list("Notes", &diagnosis.notes);
    page.text
}

/// One line, in the shortest of three wordings that fits.
fn headline(diagnosis: &Diagnosis, width: usize) -> String {
    let (mean, link) = (diagnosis.path.mean, diagnosis.path.link);
    let share = match link {
        Some(link) => format!("{} of the line", percent(mean.as_bps() as f64 / link.as_bps() as f64)),
        None => format!("{mean}, line unknown"),
    };
    let Some(first) = diagnosis.findings.first() else {
        return share;
    };
    // The first rung is the present; what stops the transfer there is not the next wall, and a cap that
    // holds it now is the end of the ladder. A UDP test meets no walls of TCP.
    let tcp = diagnosis.input.protocol == "tcp";
    let wall = diagnosis.ladder.get(1).filter(|wall| tcp && wall.limit != first.limit);
    let amounts = link.map(|link| format!(" ({mean} of {link})")).unwrap_or_default();
    let what = &first.what;
    let forms = match wall {
        Some(wall) => {
            let rate = wall.lasting();
            [
                format!("{share}{amounts}: {what}; lift that and {} stops you near {rate}.", wall.what),
                format!("{share}: {what}; then {}, {rate}", wall.what),
                format!("{share}: {} holds it; then {}, {rate}", first.limit, wall.limit),
            ]
        }
        None => [
            format!("{share}{amounts}: {what}."),
            format!("{share}: {what}"),
            format!("{share}: {} holds it", first.limit),
        ],
    };
    let [long, middle, short] = forms;
    [long, middle].into_iter().find(|form| form.chars().count() <= width).unwrap_or(short)
}

/// What was measured, in a sentence.
fn measurement(diagnosis: &Diagnosis) -> String {
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

/// `7 %`, `0.4 %`.
fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent > 0.0 && percent < 0.95 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

/// A long horizontal bar for a large share of `full`.
fn bar(rate: Rate, full: Rate) -> String {
    if full.is_zero() {
        return String::new();
    }
    let length = (BAR as f64 * rate.as_bps() as f64 / full.as_bps() as f64).round() as usize;
    "#".repeat(length.clamp(1, BAR))
}

struct Page {
    text: String,
    width: usize,
}

impl Page {
    fn line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    fn heading(&mut self, heading: &str) {
        self.line("");
        self.line(heading);
    }

    /// `text` in whole words, indented.
    fn paragraph(&mut self, indent: usize, text: &str) {
        self.hanging(&" ".repeat(indent), text);
    }

    /// `text` after `lead`; the lines that follow stand below its first word. A word wider than the page
    /// is cut rather than let out.
    fn hanging(&mut self, lead: &str, text: &str) {
        let indent = lead.chars().count();
        let room = self.width.saturating_sub(indent).max(8);
        let mut lead = lead.to_owned();
        let mut line = String::new();
        let mut used = 0;
        for word in text.split_whitespace() {
            let mut word: Vec<char> = word.chars().collect();
            loop {
                let gap = usize::from(used > 0);
                if used + gap + word.len() <= room {
                    line.extend(std::iter::repeat_n(' ', gap).chain(word.iter().copied()));
                    used += gap + word.len();
                    break;
                }
                if used == 0 {
                    line.extend(word.drain(..room));
                }
                self.line(&format!("{lead}{line}"));
                lead = " ".repeat(indent);
                line.clear();
                used = 0;
            }
        }
        self.line(&format!("{lead}{line}"));
    }

    fn list(&mut self, heading: &str, items: &[String]) {
        if items.is_empty() {
            return;
        }
        self.heading(heading);
        for item in items {
            self.hanging("  - ", item);
        }
    }

    fn findings(&mut self, diagnosis: &Diagnosis) {
        self.heading("Findings, the likeliest first");
        // Alternatives share evidence and open questions; each is said once.
        let mut said = BTreeSet::new();
        for (number, finding) in diagnosis.findings.iter().enumerate() {
            self.finding(number + 1, finding, &mut said);
        }
        let excluded: Vec<&str> = diagnosis
            .excluded
            .iter()
            .map(|excluded| excluded.evidence.as_str())
            .filter(|evidence| said.insert((*evidence).to_owned()))
            .collect();
        if !excluded.is_empty() {
            self.line("  Excluded");
            excluded.into_iter().for_each(|evidence| self.hanging("     - ", evidence));
        }
    }

    fn finding(&mut self, number: usize, finding: &Finding, said: &mut BTreeSet<String>) {
        let confidence = match finding.confidence {
            Confidence::Certain => "certain",
            Confidence::High => "high confidence",
            Confidence::Low => "low confidence",
        };
        let title = format!(
            "{} [{}, {} of the time, {confidence}]",
            finding.what,
            finding.limit,
            percent(finding.share)
        );
        self.hanging(&format!("  {number}. "), &title);
        for evidence in finding.evidence.iter().filter(|text| said.insert((*text).clone())) {
            self.hanging("     - ", evidence);
        }
        for open in finding.could_not_tell.iter().filter(|text| said.insert((*text).clone())) {
            self.hanging("     ? ", &format!("not told: {open}"));
        }
        for test in finding.next_test.iter().filter(|text| said.insert((*text).clone())) {
            self.hanging("     > ", &format!("next test: {test}"));
        }
    }

    fn ladder(&mut self, diagnosis: &Diagnosis) {
        if diagnosis.ladder.is_empty() {
            return;
        }
        self.heading("Ladder: the rate that lasts, and what holds it there");
        let rates = || diagnosis.ladder.iter().map(Rung::lasting);
        let full = diagnosis.path.link.into_iter().chain(rates()).max().unwrap_or_default();
        for rung in &diagnosis.ladder {
            let rate = rung.lasting();
            let lead = format!("  {:>RATE_WIDTH$}  {:<BAR$}  ", rate.to_string(), bar(rate, full));
            let mut text = match rung.limit {
                Limit::Link => rung.what.clone(),
                limit => format!("{limit}: {}", rung.what),
            };
            let source = match rung.source {
                Source::Measured => "measured",
                Source::Simulated => "simulated",
                Source::Given => "given",
            };
            let _ = match (rung.low, rung.high) {
                (Some(low), Some(high)) => write!(text, " ({source}, {low} to {high})"),
                _ => write!(text, " ({source})"),
            };
            self.hanging(&lead, &text);
            if let Some(remedy) = &rung.remedy {
                self.hanging(&" ".repeat(lead.chars().count()), &format!("after: {remedy}"));
            }
        }
    }

    fn commands(&mut self, ladder: &[Rung]) {
        for rung in ladder.iter().filter(|rung| !rung.commands.is_empty()) {
            let remedy = rung.remedy.as_deref().unwrap_or("the change");
            self.line("");
            self.hanging("", &format!("To reach {}: {remedy}", rung.lasting()));
            for host in [Host::Sender, Host::Receiver] {
                let of_host: Vec<&Command> = rung.commands.iter().filter(|c| c.host == host).collect();
                if of_host.is_empty() {
                    continue;
                }
                self.line(&format!("  On the {host}:"));
                for command in of_host {
                    self.line(&format!("    [{}] {}", command.scope, command.run));
                    self.line(&format!("      undo: {}", command.undo));
                    if let Some(requires) = &command.requires {
                        self.hanging("      needs: ", requires);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(width: usize, lead: &str, text: &str) -> String {
        let mut page = Page { text: String::new(), width };
        page.hanging(lead, text);
        page.text
    }

    #[test]
    fn lines_break_between_words_and_hang() {
        assert_eq!(wrapped(20, "  - ", "one two three four five"), "  - one two three\n    four five\n");
        assert_eq!(wrapped(20, "- ", ""), "-\n");
    }

    #[test]
    fn a_word_wider_than_the_page_is_cut() {
        let text = wrapped(20, "  ", &"é".repeat(50));
        assert_eq!(text.lines().map(|l| l.chars().count()).collect::<Vec<_>>(), [20, 20, 16]);
    }

    #[test]
    fn bars_and_percents_stay_in_bounds() {
        let gbit = Rate::from_bps(1_000_000_000);
        assert_eq!(bar(gbit, gbit).len(), BAR);
        assert_eq!(bar(Rate::MAX, gbit).len(), BAR);
        assert_eq!(bar(Rate::ZERO, gbit).len(), 1);
        assert_eq!(bar(gbit, Rate::ZERO), "");
        assert_eq!((percent(0.069), percent(0.004)), ("7 %".into(), "0.4 %".into()));
    }
}
