//! The report as one HTML page that needs nothing beside it: no network, no server, no other file.
//!
//! ```text
//!   Diagnosis ───────────────────► diagnosis ──► page ─┐
//!   log, the runs of its rungs ──► scene ──► JSON ─────┼─► String
//!   Experiment, Report ──────────► experiment ─► page ─┘   (style, script and plotly within)
//! ```
//!
//! Facts are in the page itself, so that they can be read, searched and printed without scripts; scripts draw
//! the charts and copy commands. What a log or a file says is escaped by the templates, and the data of the
//! charts is JSON without a `<`. A content security policy forbids every request.

mod curve;
mod diagnosis;
mod experiment;
mod scene;

use plotly::Plot;
use serde::Serialize;

pub use diagnosis::render_diagnosis;
pub use experiment::render_experiment;
pub use scene::{LimitSpan, Scene};

/// How a page came to be: its last lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Provenance<'a> {
    /// The command line that made it.
    pub command: &'a str,
    /// The version of what made it.
    pub version: &'a str,
}

/// What every page is given besides its facts.
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

    /// The data of the charts.
    fn data(&self) -> String {
        embedded(&self.scenes)
    }

    /// The library that draws.
    fn plotly(&self) -> String {
        // Beside plotly the crate embeds MathJax, two megabytes that no chart here needs.
        let scripts = Plot::offline_js_sources();
        let first = scripts.split("</script>").next().unwrap_or_default();
        first.split_once('>').map_or(String::new(), |(_, code)| code.to_owned())
    }
}

/// `value` as JSON that no browser takes for markup, whatever its texts hold.
fn embedded(value: &impl Serialize) -> String {
    // Scenes hold numbers and texts only, which always serialise.
    serde_json::to_string(value).unwrap_or_else(|_| "[]".into()).replace('<', "\\u003c")
}
