//! Errors in an experiment file; each error message is one line.

use std::fmt;

use super::swept::HINT;
use crate::metric::MetricError;
use crate::profile::ProfileError;

/// Error message and hint that explain why an experiment cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExperimentError {
    /// Error message: what is wrong in the experiment file, with line and column if they are known; one line
    /// without a final period.
    pub message: String,
    /// Hint for the user: what to write instead; one line, empty if there is no suggestion.
    pub hint: String,
}

impl ExperimentError {
    /// Creates an error from a message and a hint.
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }
}

impl From<MetricError> for ExperimentError {
    fn from(MetricError { message, hint }: MetricError) -> Self {
        Self { message, hint }
    }
}

impl From<ProfileError> for ExperimentError {
    fn from(ProfileError { message, hint }: ProfileError) -> Self {
        Self { message, hint }
    }
}

impl fmt::Display for ExperimentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ExperimentError {}

/// The text of an experiment file, for converting byte offsets to lines and columns.
pub(super) struct Source<'t>(pub(super) &'t str);

impl Source<'_> {
    /// Prefixes the message of `error` with the line and the column of byte `offset`.
    pub(super) fn at(&self, offset: usize, error: ExperimentError) -> ExperimentError {
        let before = self.0.get(..offset).unwrap_or(self.0);
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        ExperimentError { message: format!("line {line}, column {column}: {}", error.message), ..error }
    }

    /// Converts the error of the TOML parser into an error message and a hint for users.
    pub(super) fn explain(&self, error: &toml::de::Error) -> ExperimentError {
        let text = error.message();
        let error_here = match text.split_once(HINT) {
            Some((message, hint)) => ExperimentError::new(message, hint),
            None => translated(text),
        };
        match error.span() {
            Some(span) => self.at(span.start, error_here),
            None => error_here,
        }
    }
}

/// Rewords an error message of `serde` or `toml` without Rust terms.
fn translated(text: &str) -> ExperimentError {
    let unquoted = |quoted: &str| quoted.replace('`', "'");
    if let Some(rest) = text.strip_prefix("unknown field ") {
        let (key, allowed) = rest.split_once(", expected ").unwrap_or((rest, ""));
        let allowed = allowed.trim_start_matches("one of ").replace('`', "");
        return ExperimentError::new(
            format!("unknown key {}", unquoted(key)),
            format!("allowed here: {allowed}"),
        );
    }
    if let Some(key) = text.strip_prefix("missing field ") {
        let key = key.trim_matches('`');
        let table = match key {
            "path" => "add a [path] with rate and rtt",
            "flow" => "add a [[flow]] with cc = \"cubic\"",
            "name" => "add name = \"weak-network\"",
            "duration" => "add duration = \"20s\"",
            "metric" => "add metric = \"goodput_bps\"",
            "every" => "add every = \"100ms\"",
            "arm" => "add arm = \"bbr1+iw\"",
            "against" => "add against = \"bbr1\"",
            "min" => "add min = 1.1",
            _ => "add it",
        };
        return ExperimentError::new(format!("missing key '{key}'"), table);
    }
    let line = unquoted(&text.lines().map(str::trim).collect::<Vec<_>>().join("; "));
    if line.starts_with("invalid ") {
        let (found, wanted) = line.split_once("expected ").unwrap_or((&line, ""));
        let wanted = match wanted {
            "u64" => "a whole number",
            "a sequence" => "a list or an array of tables ([[...]])",
            wanted if wanted.starts_with("struct ") => "a table",
            wanted => wanted,
        };
        let line = format!("{found}expected {wanted}");
        return ExperimentError::new(line, "see the files in experiments/ for the form of every key");
    }
    ExperimentError::new(
        line,
        "put text values in quotes, as in rate = \"340mbit\"; write each key only once",
    )
}
