//! Readers for the output of other tools.
//!
//! Inputs come from terminals, chats and bug reports: truncated, surrounded by prompts, or with the line
//! endings of another system. Every reader accepts any text without a panic, and returns values or one
//! [`InputError`] with a hint.

pub mod capture;
mod foreign;
pub mod iperf3;
mod iperf3_json;
pub mod iperf3_text;
pub mod received;
mod spans;
pub mod ss;
pub mod sysctl;
pub mod trace;

use std::borrow::Cow;
use std::fmt;

pub use foreign::ForeignTool;

/// Reason why an input cannot be used, with a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputError {
    /// Description of the problem: one line, no final period.
    pub message: String,
    /// Hint that tells how to solve the problem: one line; empty if there is nothing to suggest.
    pub hint: String,
}

impl InputError {
    /// Creates an error with a hint. Control characters in quoted input are replaced, so that both texts stay
    /// on one line.
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

/// Maximum number of characters of an input line that are quoted in a message.
const LONGEST_QUOTE: usize = 200;

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Returns `text` shortened to fit a message.
pub(crate) fn quote(text: &str) -> String {
    let text = text.trim();
    if text.chars().count() <= LONGEST_QUOTE {
        return text.into();
    }
    text.chars().take(LONGEST_QUOTE).chain("...".chars()).collect()
}

/// Decodes `bytes` as text. Some shells write redirected output as UTF-16. Other bytes that are not UTF-8 are
/// replaced, because stray terminal bytes should not make a log unreadable. Valid UTF-8 in a `Vec` is not
/// copied.
pub fn decode(bytes: impl Into<Vec<u8>>) -> String {
    let bytes = bytes.into();
    let units = |of: fn([u8; 2]) -> u16| {
        let pairs = bytes[2..].chunks_exact(2).map(|pair| of([pair[0], pair[1]]));
        String::from_utf16_lossy(&pairs.collect::<Vec<_>>())
    };
    match bytes.as_slice() {
        [0xff, 0xfe, ..] => units(u16::from_le_bytes),
        [0xfe, 0xff, ..] => units(u16::from_be_bytes),
        _ => String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()),
    }
}

/// Returns `text` without a byte-order mark and terminal escape sequences (such as `ESC [ 31 m`).
fn clean(text: &str) -> Cow<'_, str> {
    let text = text.trim_start_matches('\u{feff}');
    if !text.contains('\u{1b}') {
        return Cow::Borrowed(text);
    }
    let mut pieces = text.split('\u{1b}');
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        plain.push_str(match piece.strip_prefix('[') {
            // ECMA-48: parameter bytes, then one final byte.
            Some(sequence) => sequence
                .find(|c: char| !matches!(c, ' '..='?'))
                .and_then(|end| sequence.get(end + 1..))
                .unwrap_or_default(),
            None => piece,
        });
    }
    Cow::Owned(plain)
}

/// Number of lines that are searched for the column names of a trace.
const TRACE_WITHIN: usize = 20;

/// Kind of an input, detected from its content; file names are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only whitespace.
    Empty,
    /// iperf3 text output, possibly of a failed run.
    Iperf3Text,
    /// Document written by `iperf3 -J`, possibly of a failed run.
    Iperf3Json,
    /// Events written by `iperf3 --json-stream`, one per line.
    Iperf3JsonStream,
    /// JSON of another tool.
    Json,
    /// Text output of iperf 2, which is a different tool.
    Iperf2Text,
    /// Rows of a trace.
    Trace,
    /// Dumps of `ss -ti`.
    Ss,
    /// `key = value` lines of kernel settings.
    Sysctl,
    /// Text of a tool that measures something else.
    Foreign(ForeignTool),
    /// Unknown text.
    Unknown,
}

impl Kind {
    /// Detects the kind of `text`.
    pub fn of(text: &str) -> Self {
        let text = &*clean(text);
        if text.trim().is_empty() {
            return Self::Empty;
        }
        // Lines before the header may be a shell prompt or a command.
        if text.lines().take(TRACE_WITHIN).any(fullpipe_lab::trace::is_header) {
            return Self::Trace;
        }
        let typical = |line: &str| iperf3_text::is_typical_line(line.trim());
        if text.lines().any(|line| ss::is_typical_line(line.trim())) {
            return Self::Ss;
        }
        // A document may quote text from the peer, so the first conclusive line decides.
        match text.lines().find(|line| iperf3_json::begins_document(line) || typical(line)) {
            Some(line) if iperf3_json::begins_document(line) => return iperf3_json::kind(text),
            _ => {}
        }
        let any = |test: fn(&str) -> bool| text.lines().any(|line| test(line.trim()));
        // iperf 2 and iperf3 print the same header and interval lines; only iperf 2 prints these first lines.
        if any(|line| line.starts_with("Client connecting to") || line.starts_with("TCP window size")) {
            return Self::Iperf2Text;
        }
        if any(iperf3_text::is_typical_line) {
            return Self::Iperf3Text;
        }
        if any(|line| sysctl::key_value(line).is_some_and(|(key, _)| key.contains('.'))) {
            return Self::Sysctl;
        }
        ForeignTool::of(text).map_or(Self::Unknown, Self::Foreign)
    }
}

#[cfg(test)]
mod tests;
