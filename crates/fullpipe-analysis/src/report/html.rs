//! Reports as self-contained HTML pages: no network, no server, no other file.
//!
//! ```text
//!   Diagnosis ───────────────────► diagnosis ──► page ─┐
//!   log, the runs of its rungs ──► scene ──► JSON ─────┼─► String
//!   Experiment, Report ──────────► experiment ─► page ─┘   (style, script and plotly within)
//! ```
//!
//! Facts are in the page itself, so that they can be read, searched and printed without scripts; scripts draw
//! the charts and copy commands. Templates escape the text of logs and files, and the chart data is JSON
//! without a `<`. A content security policy forbids every request.

mod curve;
mod diagnosis;
mod experiment;
mod scene;

use plotly::Plot;
use serde::Serialize;

pub use diagnosis::render_diagnosis;
pub use experiment::render_experiment;
pub use scene::{LimitSpan, Scene};

/// Origin of a page, shown in its last lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Provenance<'a> {
    /// Command line that created the page.
    pub command: &'a str,
    /// Version of the program that created the page.
    pub version: &'a str,
}

/// Input of every page besides its facts.
struct Frame<'a> {
    made: Provenance<'a>,
    scenes: Vec<Scene>,
    style: &'static str,
    script: &'static str,
}

impl<'a> Frame<'a> {
    fn new(made: Provenance<'a>, scenes: Vec<Scene>) -> Self {
        Self {
            made,
            scenes,
            style: include_str!("../../templates/report.css"),
            script: include_str!("../../templates/report.js"),
        }
    }

    /// Returns the data of the charts as JSON.
    fn data(&self) -> String {
        embedded(&self.scenes)
    }

    /// Returns the script of plotly, the chart library.
    fn plotly(&self) -> String {
        // The crate also embeds MathJax, two megabytes that no chart here needs.
        let scripts = Plot::offline_js_sources();
        let first = scripts.split("</script>").next().unwrap_or_default();
        first.split_once('>').map_or(String::new(), |(_, code)| code.to_owned())
    }
}

/// Returns `value` as JSON that no browser takes for markup, whatever its texts contain.
fn embedded(value: &impl Serialize) -> String {
    // Scenes contain only numbers and texts, which always serialise.
    serde_json::to_string(value).unwrap_or_else(|_| "[]".into()).replace('<', "\\u003c")
}
