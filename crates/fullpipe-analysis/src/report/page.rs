//! Text layout for all text reports: wrapping, lists, ladders and commands.

use std::fmt::Write;

use fullpipe_measurement::classify::Limit;
use fullpipe_units::Rate;

use super::look::{Ink, Look};
use super::wrapping::{between_words, columns};
use crate::advice::{Command, Host};
use crate::ladder::{Rung, RungProof, Source};

/// Width of a rate column: `69.3 Mbit/s`, right-aligned.
pub(super) const RATE_WIDTH: usize = 12;
/// Length of a full bar, in columns.
const BAR: usize = 20;
/// Minimum number of columns for text, even after a lead that nearly fills the page.
const LEAST_ROOM: usize = 8;

/// Formats a share as `7 %` or `0.4 %`.
pub(super) fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent > 0.0 && percent < 0.95 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

/// Returns a horizontal bar whose length is `rate` as a share of `full`.
fn bar(rate: Rate, full: Rate) -> String {
    if full.is_zero() {
        return String::new();
    }
    let length = (BAR as f64 * rate.as_bps() as f64 / full.as_bps() as f64).round() as usize;
    "#".repeat(length.clamp(1, BAR))
}

/// Lines of text with a maximum width.
pub(super) struct Page {
    text: String,
    look: Look,
}

impl Page {
    pub(super) fn new(look: Look) -> Self {
        Self { text: String::new(), look: Look { width: look.width.max(40), ..look } }
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// Adds the headline, which summarises the report, wrapped between words.
    pub(super) fn headline(&mut self, headline: &str) {
        let mut wrapped = Self { text: String::new(), look: self.look };
        wrapped.paragraph(0, headline);
        for line in wrapped.text.lines() {
            self.line(&self.look.paint(Ink::Heading, line));
        }
    }

    pub(super) fn line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    pub(super) fn heading(&mut self, heading: &str) {
        self.line("");
        self.headline(heading);
    }

    /// Adds `text` with an indent, wrapped between words.
    pub(super) fn paragraph(&mut self, indent: usize, text: &str) {
        self.hanging(&" ".repeat(indent), text);
    }

    /// Adds `text` after `lead`, wrapped between words; continuation lines align with its first word. A word
    /// wider than the page is split.
    pub(super) fn hanging(&mut self, lead: &str, text: &str) {
        let indent = " ".repeat(columns(lead));
        let width = self.look.width.max(indent.len() + LEAST_ROOM);
        let options = between_words(width).initial_indent(lead).subsequent_indent(&indent);
        let words: Vec<&str> = text.split_whitespace().collect();
        for line in textwrap::wrap(&words.join(" "), options) {
            self.line(&line);
        }
    }

    pub(super) fn list(&mut self, heading: &str, items: &[String]) {
        if items.is_empty() {
            return;
        }
        self.heading(heading);
        for item in items {
            self.hanging("  - ", item);
        }
    }

    /// Adds the rungs as bars; a full bar is the link rate if it is known and no rung exceeds it.
    pub(super) fn ladder(&mut self, ladder: &[Rung], link: Option<Rate>) {
        if ladder.is_empty() {
            return;
        }
        self.heading("Ladder: the steady-state rate, and its limit");
        let full = link.into_iter().chain(ladder.iter().map(Rung::lasting)).max().unwrap_or_default();
        for rung in ladder {
            let rate = rung.lasting();
            let bar = bar(rate, full);
            let gap = " ".repeat(BAR - bar.len());
            let (source, ink) = match rung.source {
                Source::Measured => ("measured", Ink::Measured),
                Source::Simulated => ("simulated", Ink::Simulated),
                Source::Given => ("given", Ink::Given),
            };
            let bar = self.look.paint(ink, &bar);
            let lead = format!("  {:>RATE_WIDTH$}  {bar}{gap}  ", rate.to_string());
            let indent = " ".repeat(columns(&lead));
            let mut text = match rung.limit {
                _ if rung.undecided => rung.what.clone(),
                Limit::Link => rung.what.clone(),
                limit => format!("{limit}: {}", rung.what),
            };
            let _ = match (rung.low, rung.high) {
                (Some(low), Some(high)) => write!(text, " ({source}, {low} to {high}"),
                _ => write!(text, " ({source}"),
            };
            if let Some(limit) = rung.only_if {
                let _ = write!(text, "; only if {limit} is the present limit");
            }
            text.push(')');
            self.hanging(&lead, &text);
            if let Some(rtt) = &rung.rtt {
                self.hanging(&indent, &format!("RTT {rtt}"));
            }
            if let Some(remedy) = rung.remedies.title() {
                self.hanging(&indent, &format!("after: {remedy}"));
            }
            if let Some(RungProof { kernel, steady, simulated }) = &rung.proof {
                let text = format!("one run: {steady} with {kernel}; {simulated} in the simulator");
                self.hanging(&indent, &text);
            }
        }
    }

    /// Adds the commands that lead to each rung.
    pub(super) fn remedies(&mut self, ladder: &[Rung]) {
        for rung in ladder {
            let commands: Vec<&Command> = rung.remedies.commands().collect();
            if let (Some(remedy), false) = (rung.remedies.title(), commands.is_empty()) {
                self.line("");
                self.hanging("", &format!("To reach {}: {remedy}", rung.lasting()));
                self.commands(&commands);
            }
        }
    }

    /// Adds commands grouped by host. Each command is on a separate line, so that it is easy to copy.
    pub(super) fn commands(&mut self, commands: &[&Command]) {
        for host in [Host::Sender, Host::Receiver] {
            let of_host: Vec<&Command> = commands.iter().copied().filter(|c| c.host == host).collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(width: usize, lead: &str, text: &str) -> String {
        let mut page = Page { text: String::new(), look: width.into() };
        page.hanging(lead, text);
        page.text
    }

    #[test]
    fn lines_break_between_words_and_hang() {
        assert_eq!(wrapped(20, "  - ", "one two three four five"), "  - one two three\n    four five\n");
        assert_eq!(wrapped(20, "- ", ""), "-\n");
    }

    /// A wide character takes up two columns, but was once counted as one.
    #[test]
    fn wide_characters_take_up_two_columns() {
        assert_eq!(
            wrapped(20, "- ", "下载 很慢 因为 接收 窗口 已满"),
            "- 下载 很慢 因为\n  接收 窗口 已满\n"
        );
        assert_eq!(wrapped(18, "路径: ", "one two three"), "路径: one two\n      three\n");
        let text = wrapped(20, "  ", &"宽".repeat(20));
        assert_eq!(text.lines().map(columns).collect::<Vec<_>>(), [20, 20, 6]);
    }

    #[test]
    fn a_lead_in_colour_takes_up_the_columns_of_its_text() {
        let lead = Look { width: 24, colour: true }.paint(Ink::Measured, "####");
        assert_eq!(
            wrapped(16, &format!("{lead}  "), "one two three"),
            format!("{lead}  one two\n      three\n")
        );
    }

    #[test]
    fn words_with_hyphens_stay_whole() {
        let text = "use curl --limit-rate or wget --limit-rate";
        assert_eq!(wrapped(16, "", text), "use curl\n--limit-rate or\nwget\n--limit-rate\n");
    }

    #[test]
    fn a_word_wider_than_the_page_is_cut() {
        let text = wrapped(20, "  ", &"é".repeat(50));
        assert_eq!(text.lines().map(|l| l.chars().count()).collect::<Vec<_>>(), [20, 20, 16]);
    }

    /// A long headline was once shortened to identifiers such as `receiver_app holds it`.
    #[test]
    fn a_headline_wraps_and_each_line_has_its_colour() {
        let mut page = Page { text: String::new(), look: Look { width: 24, colour: true } };
        page.headline("the receiving application reads slowly");
        let bold = |text: &str| format!("\u{1b}[1m{text}\u{1b}[0m\n");
        assert_eq!(page.text, bold("the receiving") + &bold("application reads slowly"));
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
