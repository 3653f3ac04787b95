//! STAND-IN for the simulator until it is here: the least of line and window, all the time.

use fullpipe_lab::outcome::{FlowOutcome, Outcome, PathOutcome, RttOutcome, SendLimit};
use fullpipe_lab::scenario::Scenario;

pub(crate) fn run(scenario: &Scenario) -> Outcome {
    let path = &scenario.path;
    let line = path.forward.rate.mul_div(path.mtu - 52, path.mtu).mul_div(1, scenario.flows.len() as u64);
    let window = scenario.host.window_clamp.map_or(line, |w| fullpipe_units::Rate::of(w, path.rtt()));
    let flow = |flow: &fullpipe_lab::scenario::FlowSpec| FlowOutcome {
        cc: flow.cc,
        bytes: line.min(window) * scenario.duration,
        goodput: line.min(window),
        goodput_second_half: line.min(window),
        retransmits: 0,
        rtt: Some(RttOutcome { min: path.rtt(), mean: path.rtt(), p95: path.rtt() }),
        send_limit: vec![(if window < line { SendLimit::Rwnd } else { SendLimit::Cwnd }, scenario.duration)],
        send_limit_second_half: Vec::new(),
        max_cwnd: path.bdp(),
        finished: None,
    };
    let flows = scenario.flows.iter().map(flow).collect();
    Outcome { flows, path: PathOutcome::default(), digest: scenario.seed }
}
