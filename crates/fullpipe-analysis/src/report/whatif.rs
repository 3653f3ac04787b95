//! Result of the what-if calculator, as text.

use fullpipe_units::{Bytes, Duration, Probability};

use super::Look;
use super::page::{Page, RATE_WIDTH, percent};
use crate::whatif::WhatIf;

/// Renders the whole answer as text with the width of `look`, except for commands to copy. The first line
/// states the rate that the hosts would reach in their present state, and its limit. `look` is a [`Look`], or
/// the width of text without colour.
pub fn render_whatif(answer: &WhatIf, look: impl Into<Look>) -> String {
    let mut page = Page::new(look.into());
    page.headline(&headline(answer));
    page.paragraph(0, &question(answer));
    figures(&mut page, answer);
    page.ladder(&answer.ladder, Some(answer.path.link));
    page.offered(answer.offered.as_ref());
    page.remedies(&answer.ladder);
    plan(&mut page, answer);
    page.list("Assumed", &answer.assumptions);
    page.list("Notes", &answer.notes);
    page.into_text()
}

/// Returns a sentence with the rate that the hosts would reach in their present state, its limit, and the
/// next limit.
fn headline(answer: &WhatIf) -> String {
    let Some(present) = answer.ladder.first() else {
        return format!("{} must be in flight to fill {}", Bytes::new(answer.bdp_bytes), answer.path.link);
    };
    let rate = present.lasting();
    let share = percent(rate.as_bps() as f64 / answer.path.link.as_bps() as f64);
    let first = format!("{share} of the link, {rate}: {}", present.what);
    match answer.ladder.get(1).filter(|wall| wall.limit != present.limit) {
        Some(wall) => format!("{first}; then {}, {}", wall.what, wall.lasting()),
        None => first,
    }
}

fn question(answer: &WhatIf) -> String {
    let path = &answer.path;
    let flows = if path.flows == 1 { String::new() } else { format!(", {} flows", path.flows) };
    let cap = path.cap.map_or_else(String::new, |cap| format!(", {cap} per flow"));
    format!(
        "{}, RTT {}, loss {}{cap}{flows}; kernel {}, congestion control {}, {} to send and {} to receive.",
        path.link,
        Duration::from_secs_f64(path.rtt_ms / 1e3),
        Probability::from_f64(path.loss),
        path.kernel,
        path.congestion_control,
        Bytes::new(path.sndbuf_bytes),
        Bytes::new(path.rcvbuf_bytes)
    )
}

fn figures(page: &mut Page, answer: &WhatIf) {
    let (path, figures) = (&answer.path, &answer.figures);
    let bytes = Bytes::new;
    page.heading("Calculated: the rate that each limit alone allows");
    let mut figure = |value: String, text: String| page.hanging(&format!("  {value:>RATE_WIDTH$}  "), &text);
    figure(
        bytes(answer.bdp_bytes).to_string(),
        "must be in flight to fill the link (link rate x RTT)".into(),
    );
    if let Some(cap) = path.cap {
        let to_fill = cap * Duration::from_secs_f64(path.rtt_ms / 1e3);
        figure(to_fill.to_string(), "must be in flight on each flow to reach its cap (cap x RTT)".into());
    }
    figure(figures.line.to_string(), "the link, less headers".into());
    let each = |of_each: String| match path.flows {
        1 => format!("a {of_each}"),
        flows => format!("{flows} flows, each with a {of_each}"),
    };
    figure(
        figures.window.to_string(),
        format!(
            "{} per RTT: tcp_rmem[2] {}, {}",
            each(format!("{} receive window", bytes(figures.window_bytes))),
            bytes(path.rcvbuf_bytes),
            figures.window_rule
        ),
    );
    figure(
        figures.sndbuf.to_string(),
        format!("{} per RTT: tcp_wmem[2]", each(format!("{} send buffer", bytes(path.sndbuf_bytes)))),
    );
    let senders = match path.flows {
        1 => "a loss-based sender (CUBIC, Reno)".to_owned(),
        flows => format!("{flows} loss-based senders (CUBIC, Reno)"),
    };
    if let Some(rate) = figures.loss {
        let loss = Probability::from_f64(path.loss);
        figure(rate.to_string(), format!("{senders} at a loss of {loss}"));
    }
    let such = match (figures.loss, path.flows) {
        (Some(_), 1) => "such a sender".to_owned(),
        (Some(_), _) => "such senders".to_owned(),
        (None, _) => senders,
    };
    figure(
        Probability::from_f64(figures.loss_to_fill).to_string(),
        format!("is the highest loss rate at which {such} can fill the link"),
    );
}

/// Adds the buffer sizes that fill the link, unless a rung already contains them.
fn plan(page: &mut Page, answer: &WhatIf) {
    let first = answer.plan.commands.first();
    let shown = answer.ladder.iter().any(|rung| rung.remedies.commands().next() == first);
    if shown || answer.plan.commands.is_empty() {
        return;
    }
    page.heading("Buffers that fill the link");
    page.commands(&answer.plan.commands.iter().collect::<Vec<_>>());
}
