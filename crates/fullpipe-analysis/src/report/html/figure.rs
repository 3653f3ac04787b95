//! Charts as Plotly figures: the data and layouts that the pages of this crate draw and that the Python package
//! returns.
//!
//! ```text
//!   Scene ─► time, phase ─┐             ┌─► page: a script replaces colours, and chooses the layout by the width
//!   [Scene] ─► rates ─────┼─► Figure ───┤
//!   [Rung] ─► ladder ─────┘             └─► document: colours of a theme, the wide layout
//! ```
//!
//! A colour is a token such as `@cwnd` or `@cwnd/44` (with an alpha value), which stands for the variable `--cwnd` of
//! the style sheet. A page follows the theme of the browser, so it has no colours before it is shown.

mod ladder;
mod phase;
mod rates;
mod time;

use fullpipe_lab::campaign::{JobWatch, RunPanicked};
use fullpipe_lab::experiment::Experiment;
use serde::Serialize;
use serde_json::{Map, Value, json};

pub use ladder::ladder;

use fullpipe_measurement::measurement::Measurement;

use super::Scene;
use super::curve::short;
use super::{diagnosis, experiment};
use crate::diagnosis::Diagnosis;
use crate::ladder::Rung;

/// Plotly figure with one layout for a window of 600 pixels or more, and one for a narrower window.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    data: Vec<Value>,
    wide: Value,
    narrow: Value,
}

/// Colours of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theme {
    /// Dark lines on white.
    Light,
    /// Light lines on a dark background.
    Dark,
}

impl Figure {
    /// Creates a figure; `layout` returns the layout for a wide window, or for a narrow one.
    fn new(data: Vec<Value>, layout: impl Fn(bool) -> Value) -> Self {
        Self { data, wide: layout(true), narrow: layout(false) }
    }

    /// Returns the figure in Plotly's JSON format: an object with `data` and `layout`.
    pub fn document(&self, theme: Theme) -> Value {
        let mut layout = self.wide.clone();
        layout["paper_bgcolor"] = "@paper".into();
        layout["plot_bgcolor"] = "@paper".into();
        let palette = palette(theme);
        coloured(&json!({ "data": self.data, "layout": layout }), &palette)
    }
}

/// Charts of some runs: those of a diagnosis, of a ladder or of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Charts(Vec<Scene>);

impl Charts {
    /// Creates the charts of a diagnosis, for the measurement and for each simulated rung. The simulated runs
    /// are repeated. Returns `None` if `watch` abandons the runs.
    ///
    /// # Errors
    /// Returns an error if a simulated run panicked, which is a defect of this library.
    pub fn of_diagnosis(
        measurement: &Measurement,
        diagnosis: &Diagnosis,
        watch: &dyn JobWatch,
    ) -> Result<Option<Self>, RunPanicked> {
        Ok(diagnosis::scenes(measurement, diagnosis, watch)?.map(Self))
    }

    /// Creates the charts of the simulated rungs of a ladder. The runs are repeated. Returns `None` if `watch` abandons
    /// the runs.
    ///
    /// # Errors
    /// Returns an error if a simulated run panicked, which is a defect of this library.
    pub fn of_ladder(ladder: &[Rung], watch: &dyn JobWatch) -> Result<Option<Self>, RunPanicked> {
        Ok(diagnosis::of_rungs(ladder, watch)?.map(Self))
    }

    /// Creates the charts of the first 24 points of an experiment with its first seed. The runs are repeated. Returns
    /// `None` if `watch` abandons the runs.
    ///
    /// # Errors
    /// Returns an error if a simulated run panicked, which is a defect of this library.
    pub fn of_experiment(experiment: &Experiment, watch: &dyn JobWatch) -> Result<Option<Self>, RunPanicked> {
        let seed = experiment.seeds().first().copied().unwrap_or_default();
        Ok(experiment::of_points(experiment, seed, watch)?.map(Self))
    }

    /// Returns the label of each run, in their order.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|scene| scene.label.as_str())
    }

    /// Returns the rates of all runs over time in one chart.
    pub fn rates(&self) -> Figure {
        rates::rates(&self.0)
    }

    /// Returns rate, window, RTT, queue and limit of a run over time, in panels; `None` if there is no such run.
    pub fn time(&self, run: usize) -> Option<Figure> {
        self.0.get(run).map(time::time)
    }

    /// Returns RTT and rate of a run against its data in flight; `None` if there is no such run, or if it has no
    /// RTT.
    pub fn phase(&self, run: usize) -> Option<Figure> {
        phase::phase(&self.0, run)
    }
}

/// Chart data of one run on a page.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct RunCharts<'a> {
    label: &'a str,
    note: &'a str,
    time: Figure,
    phase: Option<Figure>,
}

/// Charts of a page.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct PageCharts<'a> {
    rates: Option<Figure>,
    runs: Vec<RunCharts<'a>>,
}

impl<'a> PageCharts<'a> {
    pub(super) fn of(scenes: &'a [Scene]) -> Self {
        let run = |(number, scene): (usize, &'a Scene)| RunCharts {
            label: &scene.label,
            note: &scene.note,
            time: time::time(scene),
            phase: phase::phase(scenes, number),
        };
        Self {
            rates: (scenes.len() > 1).then(|| rates::rates(scenes)),
            runs: scenes.iter().enumerate().map(run).collect(),
        }
    }
}

/// Unit of an axis: values in base units are divided by `size`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Unit {
    size: f64,
    name: &'static str,
}

const RATES: [Unit; 4] = [
    Unit { size: 1e9, name: "Gbit/s" },
    Unit { size: 1e6, name: "Mbit/s" },
    Unit { size: 1e3, name: "kbit/s" },
    Unit { size: 1.0, name: "bit/s" },
];
const SIZES: [Unit; 4] = [
    Unit { size: 1_073_741_824.0, name: "GiB" },
    Unit { size: 1_048_576.0, name: "MiB" },
    Unit { size: 1024.0, name: "KiB" },
    Unit { size: 1.0, name: "B" },
];
/// Times are in milliseconds.
const TIMES: [Unit; 1] = [Unit { size: 1.0, name: "ms" }];

impl Unit {
    /// Returns the largest of the `units` that is not larger than `most`, or else the smallest unit.
    fn of(most: f64, units: &[Self]) -> Self {
        let fits = units.iter().find(|unit| most >= unit.size);
        *fits.unwrap_or(&units[units.len() - 1])
    }

    /// Converts values in base units. No screen shows more than five digits.
    fn all(self, values: &[f64]) -> Vec<f64> {
        values.iter().map(|value| short(value / self.size, 5)).collect()
    }

    fn one(self, value: f64) -> f64 {
        value / self.size
    }
}

fn largest<'v>(values: impl IntoIterator<Item = &'v f64>) -> f64 {
    values.into_iter().fold(0.0, |most, value| f64::max(most, *value))
}

/// Returns an object with the keys of `base` and of `more`; the values of `more` take precedence. Null values are left
/// out.
fn merged(base: Value, more: Value) -> Value {
    let (Value::Object(base), Value::Object(more)) = (base, more) else { return Value::Null };
    let all: Map<String, Value> =
        base.into_iter().chain(more).filter(|(_, value)| !value.is_null()).collect();
    Value::Object(all)
}

/// Returns the part of a layout that all charts have.
fn frame(wide: bool) -> Value {
    json!({
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": { "size": if wide { 13 } else { 11 }, "color": "@ink" },
        "hoverlabel": { "bgcolor": "@paper", "bordercolor": "@rule", "font": { "color": "@ink" } },
        "modebar": { "bgcolor": "rgba(0,0,0,0)", "color": "@soft", "activecolor": "@link", "orientation": "h" },
        "dragmode": if wide { json!("zoom") } else { json!(false) },
    })
}

fn axis(more: Value) -> Value {
    let base = json!({
        "gridcolor": "@grid", "linecolor": "@rule", "zerolinecolor": "@grid", "tickcolor": "@rule", "automargin": false,
    });
    merged(base, more)
}

fn title(text: impl Into<String>, standoff: u32) -> Value {
    json!({ "text": text.into(), "standoff": standoff })
}

/// Adds a horizontal line at a value that the path determines, with a label at its end.
fn rule(shapes: &mut Vec<Value>, annotations: &mut Vec<Value>, yref: &str, y: f64, text: &str, wide: bool) {
    shapes.push(json!({
        "type": "line", "xref": "paper", "x0": 0, "x1": 1, "yref": yref, "y0": y, "y1": y,
        "line": { "color": "@path", "dash": "dash", "width": 1.2 },
    }));
    let label = json!({
        "text": text, "xref": "paper", "x": 1, "yref": yref, "y": y, "xanchor": if wide { "left" } else { "right" },
        "yanchor": if wide { "middle" } else { "bottom" }, "xshift": if wide { 5 } else { 0 }, "showarrow": false,
        "borderpad": 0, "font": { "color": "@soft", "size": if wide { 12.0 } else { 10.5 } },
        "bgcolor": if wide { Value::Null } else { "@paper".into() },
    });
    annotations.push(merged(label, json!({})));
}

/// Returns the colours of a theme by name, from the style sheet of the pages.
fn palette(theme: Theme) -> Vec<(&'static str, &'static str)> {
    let sheet = include_str!("../../../templates/report.css");
    let block = |begin: &str| {
        let (_, rest) = sheet.split_once(begin).unwrap_or(("", ""));
        let (block, _) = rest.split_once('}').unwrap_or(("", ""));
        block.split(';').filter_map(|entry| entry.trim().strip_prefix("--")?.split_once(": "))
    };
    // If a name occurs more than once, the first entry counts.
    let dark = block(":root:not([data-print]) {").filter(|_| theme == Theme::Dark);
    dark.chain(block(":root {")).collect()
}

/// Returns `value` with the colours of `palette` for its tokens.
fn coloured(value: &Value, palette: &[(&str, &str)]) -> Value {
    match value {
        Value::String(text) => match text.strip_prefix('@') {
            Some(token) => {
                let (name, alpha) = token.split_once('/').unwrap_or((token, ""));
                let colour = palette.iter().find(|(known, _)| *known == name);
                colour.map_or(Value::Null, |(_, colour)| format!("{colour}{alpha}").into())
            }
            None => value.clone(),
        },
        Value::Array(values) => values.iter().map(|value| coloured(value, palette)).collect(),
        Value::Object(map) => {
            Value::Object(map.iter().map(|(key, value)| (key.clone(), coloured(value, palette))).collect())
        }
        _ => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_fits_the_largest_value() {
        assert_eq!(Unit::of(2e9, &RATES).name, "Gbit/s");
        assert_eq!(Unit::of(999_999.0, &RATES).name, "kbit/s");
        assert_eq!(Unit::of(0.0, &RATES).name, "bit/s");
        assert_eq!(Unit::of(1_048_576.0, &SIZES).all(&[524_288.0]), [0.5]);
    }

    /// Both themes have a colour for each name, and no colour is left as a token.
    #[test]
    fn tokens_become_colours_of_the_theme() {
        let (light, dark) = (palette(Theme::Light), palette(Theme::Dark));
        let of = |palette: &[(&str, &'static str)], name: &str| {
            palette.iter().find(|(known, _)| *known == name).map(|(_, colour)| *colour)
        };
        assert_eq!((of(&light, "cwnd"), of(&dark, "cwnd")), (Some("#d55e00"), Some("#f08a3c")));
        // The dark theme keeps the colours that it does not set.
        assert_eq!(of(&light, "l-rwnd"), of(&dark, "l-rwnd"));
        let value = json!({ "a": ["@ink", "@cwnd/44", 1], "b": { "c": "text" } });
        let expected = json!({ "a": ["#1b2126", "#d55e0044", 1], "b": { "c": "text" } });
        assert_eq!(coloured(&value, &light), expected);
    }
}
