//! One run over time: panels with a common time axis, with the band of limits at the bottom.

use serde_json::{Value, json};

use super::{Figure, RATES, SIZES, TIMES, Unit, axis, frame, largest, merged, rule, title};
use crate::report::html::curve::Curve;
use crate::report::html::scene::{LimitSpan, Scene};

/// Order of the limits in the band; other limits follow.
const LIMITS: [&str; 10] =
    ["slow_start", "cwnd", "recovery", "rwnd", "sndbuf", "pacing", "app", "receiver_app", "policer", "link"];
/// Number of invisible points in the band, which show the limit at the pointer.
const BAND_POINTS: f64 = 250.0;
/// Space above the largest value of a panel, as a factor.
const ROOM: f64 = 1.12;
/// Heights of the panels, and of a row of the band, in pixels.
const HIGH: f64 = 150.0;
const LOW: f64 = 105.0;
const ROW: f64 = 21.0;

/// Curve of a panel.
struct Line<'s> {
    curve: &'s Curve,
    name: &'static str,
    colour: &'static str,
    style: Value,
}

impl<'s> Line<'s> {
    fn of(curve: &'s Option<Curve>, name: &'static str, colour: &'static str, style: Value) -> Option<Self> {
        curve.as_ref().map(|curve| Self { curve, name, colour, style })
    }
}

/// Panel with the range of its axis.
struct Panel<'s> {
    title: &'static str,
    short: &'static str,
    height: f64,
    has_legend: bool,
    lines: Vec<Line<'s>>,
    /// Constant value that the path determines, drawn as a line.
    rule: Option<(f64, &'static str)>,
    unit: Unit,
    /// Ends of the axis in base units.
    range: (f64, f64),
    retransmits: Option<&'s Curve>,
}

impl<'s> Panel<'s> {
    /// Creates a panel; returns `None` if there is no curve.
    fn of(
        (title, short): (&'static str, &'static str),
        units: &[Unit],
        lines: impl IntoIterator<Item = Option<Line<'s>>>,
        rule: Option<(f64, &'static str)>,
    ) -> Option<Self> {
        let lines: Vec<Line<'s>> = lines.into_iter().flatten().collect();
        if lines.is_empty() {
            return None;
        }
        let is_time = units.len() == 1;
        // A window or a pacing rate far above all other values would flatten their curves.
        let is_bound = |line: &&Line<'_>| matches!(line.name, "rwnd" | "pacing");
        let most = largest(lines.iter().filter(|line| !is_bound(line)).flat_map(|line| &line.curve.v));
        let rule = rule.filter(|(value, _)| *value > 0.0 && *value < 3.0 * most);
        let window = lines.iter().find(|line| line.name == "rwnd");
        let window = window.map_or(0.0, |line| largest(&line.curve.v).min(2.0 * most));
        let reach = most.max(rule.map_or(0.0, |(value, _)| value)).max(window);
        let least = lines.iter().flat_map(|line| &line.curve.v).copied().chain(rule.map(|(value, _)| value));
        Some(Self {
            title,
            short,
            height: if is_time || title.starts_with("Queue") { LOW } else { HIGH },
            has_legend: lines.len() > 1 || title == "Rate",
            rule,
            unit: Unit::of(reach, units),
            range: (if is_time { 0.9 * least.fold(f64::INFINITY, f64::min) } else { 0.0 }, ROOM * reach),
            lines,
            retransmits: None,
        })
    }
}

/// Returns rate, window, RTT, queue and limit of a run.
pub(super) fn time(scene: &Scene) -> Figure {
    let (panels, band) = (panels(scene), Band::of(&scene.band));
    let mut data: Vec<Value> = panels.iter().enumerate().flat_map(|(i, panel)| traces(panel, i)).collect();
    data.extend(band.iter().flat_map(|band| band.traces(panels.len())));
    Figure::new(data, |wide| layout(scene, &panels, band.as_ref(), wide))
}

fn panels(scene: &Scene) -> Vec<Panel<'_>> {
    let (path, plain) = (&scene.path, || json!({}));
    let rates = [
        Line::of(&scene.pacing_bps, "pacing", "pacing", json!({ "dash": "dot", "width": 1.2 })),
        Line::of(&scene.rate_bps, "rate", "rate", plain()),
    ];
    let windows = [
        Line::of(&scene.rwnd_bytes, "rwnd", "rwnd", json!({ "dash": "dash" })),
        Line::of(&scene.cwnd_bytes, "cwnd", "cwnd", plain()),
        Line::of(&scene.inflight_bytes, "in flight", "inflight", plain()),
    ];
    let rtt = [Line::of(&scene.rtt_ms, "RTT", "rtt", plain())];
    let queue = [Line::of(&scene.queue_bytes, "queue", "queue", plain())];
    let rule = |value: Option<f64>, text| value.map(|value| (value, text));
    let rates = Panel::of(("Rate", "Rate"), &RATES, rates, rule(path.line_bps, "link"));
    let panels = [
        rates.map(|panel| Panel { retransmits: scene.retransmits.as_ref(), ..panel }),
        Panel::of(("Window and data in flight", "In flight"), &SIZES, windows, rule(path.bdp_bytes, "BDP")),
        Panel::of(("RTT", "RTT"), &TIMES, rtt, rule(path.rtt_ms, "idle")),
        Panel::of(("Queue at the bottleneck", "Queue"), &SIZES, queue, None),
    ];
    panels.into_iter().flatten().collect()
}

/// Returns the name of an axis in the data: `y`, `y2`, `y3`.
fn axis_name(panel: usize) -> String {
    if panel == 0 { "y".into() } else { format!("y{}", panel + 1) }
}

/// Returns the key of an object of a panel in the layout: `yaxis`, `yaxis2`, `legend`, `legend2`.
fn key(object: &str, panel: usize) -> String {
    if panel == 0 { object.into() } else { format!("{object}{}", panel + 1) }
}

fn traces(panel: &Panel<'_>, number: usize) -> Vec<Value> {
    let Panel { unit, .. } = panel;
    let (yaxis, legend) = (axis_name(number), key("legend", number));
    let line = |Line { curve, name, colour, style }: &Line<'_>| {
        let is_filled = *name == "queue";
        let trace = json!({
            "x": curve.t, "y": unit.all(&curve.v), "name": name, "type": "scatter", "mode": "lines",
            "fill": is_filled.then_some("tozeroy"), "fillcolor": is_filled.then(|| format!("@{colour}/44")),
            "line": merged(json!({ "width": 1.7, "color": format!("@{colour}") }), style.clone()),
            "hovertemplate": format!("%{{y:.4g}} {}", unit.name), "xaxis": "x", "yaxis": yaxis, "legend": legend,
            "showlegend": panel.has_legend,
        });
        merged(trace, json!({}))
    };
    let mut traces: Vec<Value> = panel.lines.iter().map(line).collect();
    if let Some(curve) = panel.retransmits {
        traces.push(json!({
            "x": curve.t, "y": vec![unit.one(0.03 * panel.range.1); curve.t.len()], "customdata": curve.v,
            "name": "retransmitted", "type": "scatter", "mode": "markers",
            "marker": { "symbol": "x", "size": 6, "color": "@bad" }, "hovertemplate": "%{customdata} segments",
            "xaxis": "x", "yaxis": yaxis, "legend": legend,
        }));
    }
    traces
}

/// Band of limits: a row for each limit.
struct Band<'s> {
    spans: &'s [LimitSpan],
    limits: Vec<&'static str>,
}

impl<'s> Band<'s> {
    fn of(spans: &'s [LimitSpan]) -> Option<Self> {
        let occurs = |limit: &&'static str| spans.iter().any(|span| span.limit == *limit);
        let mut limits: Vec<&'static str> = LIMITS.into_iter().filter(occurs).collect();
        for span in spans {
            if !limits.contains(&span.limit) {
                limits.push(span.limit);
            }
        }
        (!limits.is_empty()).then_some(Self { spans, limits })
    }

    fn of_limit(&self, limit: &str) -> impl Iterator<Item = &LimitSpan> {
        self.spans.iter().filter(move |span| span.limit == limit)
    }

    fn length<'a>(spans: impl Iterator<Item = &'a LimitSpan>) -> f64 {
        spans.map(|span| span.to_s - span.from_s).sum()
    }

    fn traces(&self, panel: usize) -> Vec<Value> {
        let yaxis = axis_name(panel);
        let row = |(at, limit): (usize, &&'static str)| {
            // Each span is a closed rectangle, and a gap separates it from the next one.
            let (mut x, mut y) = (Vec::new(), Vec::new());
            for LimitSpan { from_s, to_s, .. } in self.of_limit(limit) {
                x.extend(
                    [*from_s, *to_s, *to_s, *from_s, *from_s]
                        .map(Value::from)
                        .into_iter()
                        .chain([Value::Null]),
                );
                let (low, high) = (at as f64 - 0.36, at as f64 + 0.36);
                y.extend([low, low, high, high, low].map(Value::from).into_iter().chain([Value::Null]));
            }
            let colour = if LIMITS.contains(limit) { format!("@l-{limit}") } else { "@soft".into() };
            json!({
                "x": x, "y": y, "type": "scatter", "mode": "lines", "fill": "toself", "fillcolor": colour,
                "line": { "width": 0.6, "color": colour }, "hoverinfo": "skip", "showlegend": false, "xaxis": "x",
                "yaxis": yaxis,
            })
        };
        let mut traces: Vec<Value> = self.limits.iter().enumerate().map(row).collect();
        // Invisible points, so dense that the pointer is always near one, show the limit at that
        // time.
        let step = Self::length(self.spans.iter()) / BAND_POINTS;
        let (mut x, mut y, mut names) = (Vec::new(), Vec::new(), Vec::new());
        for LimitSpan { from_s, to_s, limit } in self.spans {
            let count = ((to_s - from_s) / step).round().max(1.0) as u32;
            let row = self.limits.iter().position(|known| known == limit);
            for k in 0..count {
                let t = from_s + (f64::from(k) + 0.5) * (to_s - from_s) / f64::from(count);
                x.push(crate::report::html::curve::short(t, 6));
                y.push(row);
                names.push(*limit);
            }
        }
        traces.push(json!({
            "x": x, "y": y, "customdata": names, "type": "scatter", "mode": "markers", "marker": { "opacity": 0 },
            "hovertemplate": "%{customdata}", "name": "limit", "showlegend": false, "xaxis": "x", "yaxis": yaxis,
        }));
        traces
    }

    /// Returns the labels of the rows: each limit and its share of the time.
    fn labels(&self) -> Vec<String> {
        let all = Self::length(self.spans.iter());
        let label = |limit: &&'static str| {
            format!("{limit} {:.0} %", 100.0 * Self::length(self.of_limit(limit)) / all)
        };
        self.limits.iter().map(label).collect()
    }
}

fn layout(scene: &Scene, panels: &[Panel<'_>], band: Option<&Band<'_>>, wide: bool) -> Value {
    // Each panel has its title above it and, in a narrow window, its legend below the title.
    let (gap, top, bottom) = (if wide { 44.0 } else { 66.0 }, if wide { 62.0 } else { 76.0 }, 46.0);
    let mut heights: Vec<f64> = panels.iter().map(|panel| panel.height).collect();
    heights.extend(band.map(|band| ROW * band.limits.len() as f64 + 8.0));
    let inner = heights.iter().map(|height| height + gap).sum::<f64>() - gap;
    let (mut shapes, mut annotations) = (Vec::new(), Vec::new());
    let mut layout = merged(
        frame(wide),
        json!({
            "height": inner + top + bottom,
            "margin": { "l": if wide { 118 } else { 96 }, "r": if wide { 48 } else { 12 }, "t": top, "b": bottom },
            "showlegend": true, "hovermode": "x unified", "hoversubplots": "axis",
        }),
    );
    let mut y = 1.0;
    for (i, height) in heights.iter().enumerate() {
        let domain = [f64::max(0.0, y - height / inner), y];
        y = domain[0] - gap / inner;
        let yref = axis_name(i);
        let mut label = |text: String, shift: u32| {
            annotations.push(json!({
                "text": text, "showarrow": false, "xref": "paper", "yref": "paper", "xanchor": "left",
                "yanchor": "bottom", "font": { "color": "@ink" }, "x": 0, "y": domain[1], "yshift": shift,
            }));
        };
        let Some(panel) = panels.get(i) else {
            let Some(band) = band else { break };
            label("<b>Limit</b>, and share of the time".into(), 4);
            let rows = band.limits.len();
            layout[key("yaxis", i)] = axis(json!({
                "domain": domain, "range": [rows as f64 - 0.4, -0.6], "tickvals": (0..rows).collect::<Vec<_>>(),
                "ticktext": band.labels(), "fixedrange": true, "ticks": "", "showgrid": false, "zeroline": false,
            }));
            for at in 0..rows {
                shapes.push(json!({
                    "type": "line", "xref": "paper", "x0": 0, "x1": 1, "yref": yref, "y0": at, "y1": at,
                    "layer": "below", "line": { "color": "@grid", "width": 1 },
                }));
            }
            continue;
        };
        let Panel { unit, range: (low, high), .. } = panel;
        let lift = if wide || !panel.has_legend { 4 } else { 22 };
        label(format!("<b>{}</b>, {}", if wide { panel.title } else { panel.short }, unit.name), lift);
        let range = if *high > 0.0 { [unit.one(*low), unit.one(*high)] } else { [0.0, 1.0] };
        layout[key("yaxis", i)] = axis(json!({
            "domain": domain, "range": range, "title": wide.then(|| title(unit.name, 6)), "nticks": 5,
        }));
        layout[key("legend", i)] = json!({
            "orientation": "h", "x": u8::from(wide), "xanchor": if wide { "right" } else { "left" }, "y": domain[1],
            "yanchor": "bottom", "font": { "size": 11.5 }, "itemwidth": 30, "bgcolor": "rgba(0,0,0,0)",
        });
        if let Some((value, text)) = panel.rule {
            rule(&mut shapes, &mut annotations, &yref, unit.one(value), text, wide);
        }
    }
    let end = [&scene.rate_bps, &scene.cwnd_bytes].into_iter().flatten();
    layout["xaxis"] = axis(json!({
        "title": title("time, s", 8), "anchor": axis_name(heights.len().saturating_sub(1)),
        "range": [0.0, largest(end.flat_map(|curve| &curve.t))], "showspikes": true, "spikemode": "across",
        "spikethickness": 1, "spikedash": "solid", "spikecolor": "@soft", "hoverformat": ".2f",
    }));
    layout["shapes"] = shapes.into();
    layout["annotations"] = annotations.into();
    layout
}
