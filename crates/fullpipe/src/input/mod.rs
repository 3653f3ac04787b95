//! Reading what other tools wrote.
//!
//! Inputs come from terminals, chats and bug reports: cut off, with prompts around them, with the
//! line ends of another system. Every reader here takes any text without a panic and answers with
//! values or with one [`InputError`] that says what to do instead.

pub mod iperf3_text;
pub mod sysctl;

use std::fmt;

/// Why an input cannot be used, in one line, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputError {
    /// What is wrong: one line, no final period.
    pub message: String,
    /// What to do instead: one line; empty where there is nothing to suggest.
    pub hint: String,
}

impl InputError {
    /// An error and its hint. Control characters in quoted input are replaced, so that both stay one line.
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: one_line(&message.into()), hint: one_line(&hint.into()) }
    }
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for InputError {}

/// At most this much of a foreign line is quoted.
const LONGEST_QUOTE: usize = 200;

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// `text` shortened to what fits a message.
pub(crate) fn quote(text: &str) -> String {
    let text = text.trim();
    if text.chars().count() <= LONGEST_QUOTE {
        return text.into();
    }
    text.chars().take(LONGEST_QUOTE).chain("...".chars()).collect()
}

/// What a text is, judged by its content; names of files say nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing but white space.
    Empty,
    /// Text output of iperf3, of a run that may have failed.
    Iperf3Text,
    /// A JSON document, as `iperf3 -J` writes.
    Json,
    /// Text output of iperf 2, a different tool.
    Iperf2Text,
    /// `key = value` lines of kernel settings.
    Sysctl,
    /// None of these.
    Unknown,
}

impl Kind {
    /// Judges `text`.
    pub fn of(text: &str) -> Self {
        let text = text.trim_start_matches('\u{feff}').trim();
        if text.is_empty() {
            return Self::Empty;
        }
        if text.starts_with('{') {
            return Self::Json;
        }
        let any = |test: fn(&str) -> bool| text.lines().any(|line| test(line.trim()));
        // Both tools print interval lines and the same header; only iperf 2 introduces itself this way.
        if any(|line| line.starts_with("Client connecting to") || line.starts_with("TCP window size")) {
            return Self::Iperf2Text;
        }
        if any(iperf3_text::is_typical_line) {
            return Self::Iperf3Text;
        }
        if any(|line| sysctl::key_value(line).is_some_and(|(key, _)| key.contains('.'))) {
            return Self::Sysctl;
        }
        Self::Unknown
    }
}
