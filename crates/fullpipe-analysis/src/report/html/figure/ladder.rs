//! The ladder as bars: a rate, its range and its limit for each rung.

use fullpipe_measurement::classify::Limit;
use fullpipe_units::Rate;
use serde_json::{Value, json};

use super::{Figure, RATES, Unit, axis, frame, largest, merged, title};
use crate::ladder::{Rung, Source};
use crate::report::wrapping::between_words;

/// Height of a bar with the space around it, in pixels.
const ROW: usize = 76;
/// Number of characters in a line of a label, in a wide and in a narrow window.
const WIDE: usize = 44;
const NARROW: usize = 24;

/// Returns a chart of the rungs of a ladder from top to bottom, with the rate of the `link` if it is known.
pub fn ladder(ladder: &[Rung], link: Option<Rate>) -> Figure {
    let bps = |rate: Rate| rate.as_bps() as f64;
    let rates: Vec<f64> = ladder.iter().map(|rung| bps(rung.lasting())).collect();
    let ends: Vec<(f64, f64)> = ladder
        .iter()
        .zip(&rates)
        .map(|(rung, rate)| (rung.low.map_or(*rate, bps), rung.high.map_or(*rate, bps)))
        .collect();
    let highs: Vec<f64> = ends.iter().map(|(_, high)| *high).collect();
    let most = largest(rates.iter().chain(&highs).chain(&link.map(bps)));
    let unit = Unit::of(most, &RATES);
    let colour = |rung: &Rung| match rung.source {
        Source::Measured => "@measured",
        Source::Simulated => "@simulated",
        Source::Given => "@given",
    };
    let above = ends.iter().zip(&rates).map(|((_, high), rate)| unit.one((high - rate).max(0.0)));
    let below = ends.iter().zip(&rates).map(|((low, _), rate)| unit.one((rate - low).max(0.0)));
    let data = vec![json!({
        "x": unit.all(&rates), "y": (0..ladder.len()).collect::<Vec<_>>(), "type": "bar", "orientation": "h", "width": 0.5,
        "marker": { "color": ladder.iter().map(colour).collect::<Vec<_>>() }, "showlegend": false,
        "error_x": {
            "type": "data", "symmetric": false, "array": above.collect::<Vec<_>>(),
            "arrayminus": below.collect::<Vec<_>>(), "color": "@range", "thickness": 2, "width": 5,
        },
        "text": ladder.iter().map(|rung| rung.lasting().to_string()).collect::<Vec<_>>(), "textposition": "auto",
        "insidetextanchor": "start", "customdata": ladder.iter().map(hover).collect::<Vec<_>>(),
        "hovertemplate": "%{customdata}<extra></extra>",
    })];
    let end = 1.04 * unit.one(most);
    Figure::new(data, |wide| {
        let labels: Vec<String> =
            ladder.iter().map(|rung| label(rung, if wide { WIDE } else { NARROW })).collect();
        let mut shapes: Vec<Value> = Vec::new();
        if let Some(link) = link {
            let x = unit.one(bps(link));
            shapes.push(json!({
                "type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1,
                "line": { "color": "@path", "dash": "dash", "width": 1.2 },
            }));
        }
        let layout = json!({
            "height": ROW * ladder.len() + 76, "hovermode": "closest",
            "margin": { "l": if wide { 310 } else { 170 }, "r": if wide { 48 } else { 12 }, "t": 20, "b": 52 },
            "xaxis": axis(json!({ "title": title(format!("steady-state rate, {}", unit.name), 8), "range": [0.0, end] })),
            "yaxis": axis(json!({
                "tickvals": (0..ladder.len()).collect::<Vec<_>>(), "ticktext": labels, "ticks": "", "showgrid": false,
                "zeroline": false, "range": [ladder.len() as f64 - 0.5, -0.5], "fixedrange": true,
            })),
            "shapes": shapes,
        });
        merged(frame(wide), layout)
    })
}

/// Returns the limit of a rung, and the remedy that leads to it, in lines of at most `width` characters.
fn label(rung: &Rung, width: usize) -> String {
    let what = match rung.limit {
        _ if rung.undecided => rung.what.clone(),
        Limit::Link => rung.what.clone(),
        limit => format!("{limit}: {}", rung.what),
    };
    let remedy = rung.remedies.title().map(|remedy| format!("after {remedy}"));
    let lines = |text: &str| -> Vec<String> {
        textwrap::wrap(text, between_words(width)).into_iter().map(|line| escaped(&line)).collect()
    };
    let mut label = format!("<b>{}</b>", lines(&what).join("<br>"));
    if let Some(remedy) = remedy {
        label.push_str(&format!("<br>{}", lines(&remedy).join("<br>")));
    }
    label
}

fn hover(rung: &Rung) -> String {
    let source = match rung.source {
        Source::Measured => "measured",
        Source::Simulated => "simulated",
        Source::Given => "given",
    };
    let range = rung.low.zip(rung.high).filter(|(low, high)| low < high);
    let range = range.map_or(String::new(), |(low, high)| format!(", {low} to {high}"));
    let rtt = rung.rtt.as_ref().map_or(String::new(), |rtt| format!("<br>RTT {}", escaped(&rtt.to_string())));
    format!("{} ({source}{range}){rtt}", rung.lasting())
}

/// Escapes a text, so that Plotly finds no markup in it.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
