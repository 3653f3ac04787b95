//! Reports as self-contained HTML pages that need no network, server or other file.
//!
//! ```text
//!   Diagnosis ───────────────────► diagnosis ──► page ─┐
//!   log, the runs of its rungs ──► scene ──► figure ───┼─► String
//!   Experiment, Report ──────────► experiment ─► page ─┤   (style, script and plotly within)
//!   RaceReport ──────────────────► race ───────► page ─┘
//! ```
//!
//! The facts are part of the HTML itself, so that they can be read, searched and printed without scripts.
//! Scripts only draw the charts and copy commands. Templates escape text from logs and files, and the chart
//! data is JSON without `<` characters. A content security policy forbids all requests.

mod curve;
mod diagnosis;
mod experiment;
pub mod figure;
mod race;
mod scene;

use std::io::Read as _;

use flate2::read::GzDecoder;
use serde::Serialize;

pub use diagnosis::render_diagnosis;
pub use experiment::render_experiment;
use figure::PageCharts;
use race::RaceChart;
pub use race::render_race;
pub use scene::{LimitSpan, Scene};

/// Origin of a page, shown at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Provenance<'a> {
    /// Command line that created the page.
    pub command: &'a str,
    /// Version of the program that created the page.
    pub version: &'a str,
}

/// Data that every page needs besides its facts.
struct Frame<'a> {
    made: Provenance<'a>,
    scenes: Vec<Scene>,
    /// Charts of a race; empty on other pages.
    races: Vec<RaceChart>,
    style: &'static str,
    script: &'static str,
}

impl<'a> Frame<'a> {
    fn new(made: Provenance<'a>, scenes: Vec<Scene>) -> Self {
        Self {
            made,
            scenes,
            races: Vec::new(),
            style: include_str!("../../templates/report.css"),
            script: include_str!("../../templates/report.js"),
        }
    }

    /// Returns the chart data as JSON.
    fn data(&self) -> String {
        embedded(&PageCharts::of(&self.scenes))
    }

    /// Returns the chart data of a race as JSON.
    fn race_data(&self) -> String {
        embedded(&self.races)
    }

    fn has_charts(&self) -> bool {
        !self.scenes.is_empty() || !self.races.is_empty()
    }

    /// Returns the script of the chart library, Plotly.
    fn plotly(&self) -> String {
        let mut script = String::new();
        // This cannot fail, because the file is part of the program and a test decompresses all of it.
        let _ = GzDecoder::new(PLOTLY).read_to_string(&mut script);
        script
    }
}

/// The chart library, compressed with gzip: plotly.js with the few kinds of charts that the pages need. Its
/// origin and licence are in the same folder.
const PLOTLY: &[u8] = include_bytes!("../../assets/plotly/plotly-basic.min.js.gz");

/// Returns `value` as JSON that no browser interprets as markup, whatever text it contains.
fn embedded(value: &impl Serialize) -> String {
    // Scenes contain only numbers and text, which can always be serialised.
    serde_json::to_string(value).unwrap_or_else(|_| "[]".into()).replace('<', "\\u003c")
}
