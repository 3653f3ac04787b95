//! RTT and rate against data in flight, with the limits of the path.

use serde_json::{Value, json};

use super::{Figure, RATES, SIZES, Unit, axis, frame, largest, merged, title};
use crate::report::html::curve::short;
use crate::report::html::scene::{Phase, Scene};

/// Mean values of the second half of a run. The runs of a sweep together form the curve of the path.
struct Rest<'s> {
    label: &'s str,
    inflight: f64,
    rtt: f64,
    rate: f64,
}

impl<'s> Rest<'s> {
    fn of(label: &'s str, phase: &Phase) -> Self {
        let end = phase.t.last().copied().unwrap_or_default();
        let late = phase.t.iter().position(|t| *t >= end / 2.0).unwrap_or(0);
        let mean = |values: &[f64]| {
            let values = &values[late..];
            values.iter().sum::<f64>() / values.len().max(1) as f64
        };
        let (inflight, rtt, rate) = (mean(&phase.inflight_bytes), mean(&phase.rtt_ms), mean(&phase.rate_bps));
        Self { label, inflight, rtt, rate }
    }
}

/// Returns the phase plot of the run with this number, with one mark for each other run on the same path; `None` if
/// the run has no RTT.
pub(super) fn phase(scenes: &[Scene], number: usize) -> Option<Figure> {
    let scene = scenes.get(number)?;
    let (phase, path) = (scene.phase.as_ref()?, &scene.path);
    let full = path.bdp_bytes.map(|bdp| bdp + path.buffer_bytes.unwrap_or(0.0));
    let others: Vec<Rest<'_>> = scenes
        .iter()
        .enumerate()
        .filter(|(other, of)| *other != number && of.path == *path)
        .filter_map(|(_, of)| Some(Rest::of(&of.label, of.phase.as_ref()?)))
        .collect();
    let inflight: Vec<f64> = others.iter().map(|other| other.inflight).collect();
    let far = 1.06 * largest(phase.inflight_bytes.iter().chain(&full).chain(&inflight));
    let bytes = Unit::of(far, &SIZES);
    let bits = Unit::of(largest(phase.rate_bps.iter().chain(&path.line_bps)), &RATES);
    let mut data = Vec::new();
    if let (Some(rtt), Some(link)) = (path.rtt_ms, path.line_bps) {
        let knee = link * rtt / 8e3;
        let mut ideal = |y: [f64; 3], yaxis: &str| {
            let x = [0.0, knee, far].map(|x| short(bytes.one(x), 6));
            data.push(json!({
                "x": x, "y": y.map(|y| short(y, 6)), "yaxis": yaxis,
                "type": "scatter", "mode": "lines", "line": { "color": "@path", "width": 1.4, "dash": "dot" },
                "hoverinfo": "skip", "showlegend": false,
            }));
        };
        ideal([0.0, bits.one(link), bits.one(link)], "y2");
        ideal([rtt, rtt, rtt * f64::max(1.0, far / knee)], "y");
    }
    let mut dots = |y: Vec<f64>, yaxis: &str, value: &str| {
        data.push(json!({
            "x": bytes.all(&phase.inflight_bytes), "y": y, "type": "scatter",
            "mode": "markers", "yaxis": yaxis, "showlegend": false,
            "marker": {
                "size": 5.5, "color": phase.t, "coloraxis": "coloraxis",
                "line": { "width": 0.5, "color": "@paper" },
            },
            "hovertemplate": format!("{value}, in flight %{{x:.4g}} {}, at %{{marker.color:.4g}} s<extra></extra>", bytes.name),
        }));
    };
    dots(phase.rtt_ms.clone(), "y", "RTT %{y:.4g} ms");
    dots(bits.all(&phase.rate_bps), "y2", &format!("rate %{{y:.4g}} {}", bits.name));
    let mut rests = |y: Vec<f64>, yaxis: &str| {
        data.push(json!({
            "x": bytes.all(&inflight), "y": y, "customdata": others.iter().map(|other| other.label).collect::<Vec<_>>(),
            "type": "scatter", "mode": "markers", "yaxis": yaxis, "showlegend": false,
            "marker": { "size": 9, "symbol": "diamond-open", "color": "@ink", "line": { "width": 1.4 } },
            "hovertemplate": "%{customdata}<extra></extra>",
        }));
    };
    let rtts: Vec<f64> = others.iter().map(|other| other.rtt).collect();
    rests(rtts.iter().map(|rtt| short(*rtt, 5)).collect(), "y");
    rests(bits.all(&others.iter().map(|other| other.rate).collect::<Vec<_>>()), "y2");

    let least = phase.rtt_ms.iter().chain(&path.rtt_ms).copied().fold(f64::INFINITY, f64::min);
    let most = largest(phase.rtt_ms.iter().chain(&path.rtt_ms).chain(&rtts));
    let room = f64::max(0.08 * least, 0.12 * (most - least));
    let reach = match (path.rtt_ms, path.bdp_bytes) {
        (Some(rtt), Some(bdp)) if far > bdp => most.max(rtt * f64::min(far / bdp, 2.2)),
        _ => most,
    };
    Some(Figure::new(data, |wide| {
        let (mut shapes, mut annotations) = (Vec::new(), Vec::new());
        let mut mark = |value: f64, text: &str, anchor: &str| {
            let x = bytes.one(value);
            shapes.push(json!({
                "type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1,
                "line": { "color": "@ink", "width": 1.2, "dash": "dash" },
            }));
            annotations.push(json!({
                "text": text, "x": x, "yref": "paper", "y": 1, "yanchor": "bottom", "xanchor": anchor,
                "showarrow": false, "font": { "size": 12, "color": "@ink" },
            }));
        };
        if let Some(bdp) = path.bdp_bytes {
            mark(bdp, "BDP", "center");
        }
        if let Some(full) = full.filter(|full| Some(*full) != path.bdp_bytes) {
            mark(full, "BDP + buffer", "right");
        }
        let bar = if wide {
            json!({ "title": { "text": "time, s", "side": "right" }, "thickness": 11, "len": 1, "outlinewidth": 0, "x": 1.01 })
        } else {
            json!({
                "title": { "text": "time, s", "side": "top" }, "thickness": 9, "orientation": "h", "outlinewidth": 0,
                "y": -0.16, "yanchor": "top",
            })
        };
        let scale: [Value; 2] = [json!([0, "@early"]), json!([1, "@late"])];
        let layout = json!({
            "height": if wide { 560 } else { 520 }, "hovermode": "closest",
            "margin": { "l": 68, "r": if wide { 84 } else { 12 }, "t": 46, "b": if wide { 52 } else { 104 } },
            "xaxis": axis(json!({
                "title": title(format!("data in flight, {}", bytes.name), 8), "anchor": "y2",
                "range": [0.0, bytes.one(far)],
            })),
            "yaxis": axis(json!({
                "title": title("RTT, ms", 8), "domain": [0.54, 1.0], "nticks": 6, "range": [least - room, reach + room],
            })),
            "yaxis2": axis(json!({
                "title": title(format!("rate, {}", bits.name), 8), "domain": [0.0, 0.46], "rangemode": "tozero",
                "nticks": 6,
            })),
            "coloraxis": { "colorscale": scale, "colorbar": bar },
            "shapes": shapes, "annotations": annotations,
        });
        merged(frame(wide), layout)
    }))
}
