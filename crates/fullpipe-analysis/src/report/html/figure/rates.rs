//! The rates of all runs on one axis.

use serde_json::{Value, json};

use super::{Figure, RATES, Unit, axis, frame, largest, merged, rule, title};
use crate::report::html::Scene;
use crate::report::html::curve::Curve;

/// Number of colours for runs; the next constant has the dashes that distinguish further runs with
/// the same colour.
const COLOURS: usize = 8;
const DASHES: [&str; 3] = ["solid", "dot", "dash"];
/// The link is drawn as one line if the link rates of all runs differ by less than this share.
const SAME_LINK: f64 = 0.05;

/// Returns the mean rates of all runs over time.
pub(super) fn rates(scenes: &[Scene]) -> Figure {
    let shown: Vec<(&str, &Curve)> =
        scenes.iter().filter_map(|scene| Some((scene.label.as_str(), scene.mean_bps.as_ref()?))).collect();
    let links: Vec<f64> = scenes
        .iter()
        .filter(|scene| scene.mean_bps.is_some())
        .filter_map(|scene| scene.path.line_bps)
        .collect();
    let same = links.iter().all(|rate| (rate / links[0] - 1.0).abs() < SAME_LINK);
    let link = (same && !links.is_empty()).then(|| largest(&links));
    let most = largest(shown.iter().flat_map(|(_, curve)| &curve.v).chain(&link));
    let unit = Unit::of(most, &RATES);
    let curve = |(i, (label, curve)): (usize, &(&str, &Curve))| {
        json!({
            "x": curve.t, "y": unit.all(&curve.v), "name": label, "type": "scatter", "mode": "lines",
            "line": {
                "width": if i == 0 { 2.4 } else { 1.7 }, "color": format!("@s{}", i % COLOURS),
                "dash": DASHES[i / COLOURS % DASHES.len()],
            },
            "hovertemplate": format!("%{{y:.4g}} {}<extra>%{{fullData.name}}</extra>", unit.name),
        })
    };
    let data: Vec<Value> = shown.iter().enumerate().map(curve).collect();
    let end = largest(shown.iter().flat_map(|(_, curve)| &curve.t));
    Figure::new(data, |wide| {
        let rows = if wide && shown.len() > 3 { shown.len().div_ceil(2) } else { shown.len() };
        let below = 20 * rows.min(12) + 56;
        let (mut shapes, mut annotations) = (Vec::new(), Vec::new());
        if let Some(link) = link {
            rule(&mut shapes, &mut annotations, "y", unit.one(link), "link", wide);
        }
        let layout = json!({
            "height": (if wide { 330 } else { 280 }) + below, "hovermode": if wide { "x" } else { "closest" },
            "margin": { "l": 64, "r": if wide { 48 } else { 12 }, "t": 30, "b": below },
            "xaxis": axis(json!({ "title": title("time, s", 8), "range": [0.0, end] })),
            "yaxis": axis(json!({ "title": title(format!("rate, {}", unit.name), 8), "rangemode": "tozero" })),
            "legend": {
                "orientation": "h", "x": 0, "y": -56.0 / if wide { 300.0 } else { 250.0 }, "yanchor": "top",
                "font": { "size": if wide { 12.0 } else { 10.5 } }, "itemwidth": 30,
            },
            "shapes": shapes, "annotations": annotations,
        });
        merged(frame(wide), layout)
    })
}
