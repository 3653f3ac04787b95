//! Texts of the ladder: its limits, assumptions and notes.

use fullpipe_measurement::classify::Limit;
use fullpipe_measurement::loss_estimate::LossEstimate;
use fullpipe_units::Duration;

use super::model::Model;
use super::rung::{Rung, Source};
use crate::remedy::State;

/// Returns the rung at the top: the rate of the bottleneck in the state that the ladder reaches.
pub(super) fn last_rung(model: &Model<'_>, reached: State) -> Rung {
    let ceiling = model.ceiling_of(reached);
    let (limit, what, rate) = match (model.path.cap.filter(|_| model.is_capped(reached)), model.path.link) {
        (Some(cap), _) => (
            Limit::Cap,
            format!("the cap of one flow near {cap} (find what enforces it, or use several flows)"),
            ceiling,
        ),
        (None, Some(_)) => (Limit::Link, "the link, less headers".into(), ceiling),
        (None, None) => {
            let seen = model.path.at_least;
            (Limit::Link, format!("the link, of unknown rate, at least {seen}"), seen)
        }
    };
    Rung::new(limit, what, rate, Source::Given)
}

/// Returns the assumptions that apply to every simulation of a path that is not completely known.
/// `queue_option` is the option of the command that replaces an assumed queue, if it has one.
pub(crate) fn assumptions(model: &Model<'_>, queue_option: Option<&str>) -> Vec<String> {
    let queue = match model.path.queue {
        Some(queue) => queue.to_string(),
        None if model.is_capped(model.present()) => format!("1 BDP of the cap ({})", model.bdp()),
        None => format!("1 BDP ({})", model.bdp()),
    };
    let option = queue_option.filter(|_| model.path.queue.is_none());
    let option = option.map_or(String::new(), |option| format!("; {option} overrides this"));
    vec![
        format!("one bottleneck with a drop-tail queue of {queue}, and no other traffic on it{option}"),
        match model.flows(model.present()) {
            1 => "losses are independent of each other and of the rate of this flow".into(),
            _ => "losses are independent of each other and of the rates of these flows".into(),
        },
    ]
}

/// Returns the note on ranges that are wide because the measurement has few loss events. A measurement of the
/// length `longer` is expected to have enough.
pub(super) fn few_losses(loss: &LossEstimate, longer: Duration) -> String {
    let events = match loss.events {
        1 => "one loss event".into(),
        events => format!("{events} loss events"),
    };
    format!(
        "the ranges are wide, because the measurement has only {events}; measure for {longer} to narrow them: \
         iperf3 -t {}",
        longer.as_millis() / 1_000
    )
}

/// Returns the limit of a state as a noun phrase.
pub(super) fn noun(model: &Model<'_>, limit: Limit, state: State) -> String {
    match limit {
        Limit::Rwnd => format!("a {} receive window", model.window(state)),
        Limit::Sndbuf => format!("a {} send buffer", model.buffers(state).0),
        Limit::Cwnd if model.path.loss.is_zero() => "the congestion window, which grows too slowly".into(),
        Limit::Cwnd => "loss, which holds cwnd down".into(),
        Limit::Pacing => "BBR's pacing, which leaves room for its probes".into(),
        Limit::Cap | Limit::Policer => "the cap on one flow".into(),
        _ => "the link".into(),
    }
}
