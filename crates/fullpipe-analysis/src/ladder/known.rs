//! The ladder of a completely known run: one point of an experiment.
//!
//! Nothing is fitted. The ladder uses the path, with all its elements, and the hosts of the run; only the
//! remedies change them. A kernel can therefore reproduce each rung.

use fullpipe_lab::algorithm::FlowAlgorithm;
use fullpipe_lab::campaign::JobWatch;
use fullpipe_lab::scenario::{DirectionSpec, HostSpec, LimiterSpec, Scenario};
use fullpipe_lab::workload::Workload;
use fullpipe_measurement::input::InputError;
use fullpipe_measurement::segment::HEADERS;
use fullpipe_path::Scope;
use fullpipe_tcp::buffers::Buffer;
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Bytes, Duration, Rate};

use super::budget::Budget;
use super::{
    DiagnoseError, Effort, Hosts, Ladder, Model, PathModel, Rung, climb_model, climb_within, complete,
};

/// Number of simulated runs per state if losses are random. A rung predicts a measurement, which is itself
/// the mean of several runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeats {
    /// Number of measurements. The range of a rung extends from the lowest to the highest measurement.
    pub measurements: u64,
    /// Number of runs per measurement.
    pub runs: u64,
}

/// Builds the ladder of `scenario`. The steady-state rate of a rung is the mean over the second half of the
/// runs, which have the duration of the scenario. Seeds count up from the scenario's seed. `watch` is
/// called from any thread as runs finish.
///
/// # Errors
/// Returns an error for a scenario whose flows differ, do not always have data to send, or have a limit or a
/// congestion control that the ladder does not support; for abandoned runs; and for a defect of the
/// simulator.
pub fn climb_known(
    scenario: &Scenario,
    repeats: Repeats,
    watch: impl JobWatch,
) -> Result<Ladder, DiagnoseError> {
    let model = model(scenario, repeats)?;
    complete(&watch, |watch| climb_model(&model.of_known(scenario), None, watch))
}

/// Returns the first rung of the ladder of `scenario`, that is, the prediction of [`climb_known`] for the run
/// without any remedy.
///
/// # Errors
/// Returns the errors of [`climb_known`].
pub fn present_known(
    scenario: &Scenario,
    repeats: Repeats,
    watch: impl JobWatch,
) -> Result<Option<Rung>, DiagnoseError> {
    let model = model(scenario, repeats)?.of_known(scenario);
    let present = model.jobs(model.present());
    // The walk ends after the present state, because the budget leaves no work for a remedy.
    let budget = Budget::of(&present);
    let ladder = complete(&watch, |watch| Ok(climb_within(&model, None, budget, watch)?.ladder))?;
    Ok(ladder.rungs.into_iter().next())
}

/// Returns the model of a known run.
fn model(scenario: &Scenario, repeats: Repeats) -> Result<Model<'static>, DiagnoseError> {
    let cc = sender(scenario).map_err(DiagnoseError::Input)?;
    let half = scenario.duration / 2;
    let effort = Effort {
        seeds: repeats.measurements * repeats.runs,
        together: repeats.runs,
        seeds_at_ends: 0,
        duration: half,
        duration_by_rate: half,
        present_by_rate: true,
        shortest: half,
        packets: u64::MAX,
        packets_if_more: u64::MAX,
        most: u64::MAX,
        budget: u64::MAX,
    };
    let flows = scenario.flows.len() as u64;
    Ok(Model::new(path(scenario, flows), hosts(&scenario.host, cc, flows), effort))
}

/// Returns the congestion control of the run, if the ladder has remedies for it.
fn sender(scenario: &Scenario) -> Result<Algorithm, InputError> {
    let refuse = |message: &str, hint: &str| Err(InputError::new(message, hint));
    let (first, host) = (&scenario.flows[0], &scenario.host);
    if scenario.flows.iter().any(|flow| flow != first) {
        return refuse("the ladder requires identical flows", "keep one [[flow]] with a count");
    }
    if first.bytes.is_some() || first.start > Duration::ZERO || first.workload != Workload::default() {
        return refuse(
            "the ladder requires flows that always have data to send",
            "remove bytes, start and app from [[flow]]",
        );
    }
    let fixed = |buffer: &Buffer| matches!(buffer, Buffer::Fixed(_));
    let pinned = host.window_clamp.is_some() || fixed(&host.sndbuf) || fixed(&host.rcvbuf);
    if pinned || first.max_pacing_rate.is_some() {
        return refuse(
            "the ladder cannot remove limits that the application sets",
            "remove window, max_pacing and fixed buffers",
        );
    }
    match first.cc {
        FlowAlgorithm::Fullpipe(cc) => Ok(cc),
        FlowAlgorithm::Linux(cc) => Err(InputError::new(
            format!(
                "the ladder is simulated, and the simulator does not have the congestion control '{}'",
                cc.name()
            ),
            Algorithm::KNOWN,
        )),
    }
}

/// Returns the path model for the rules of the ladder: link rate, rate cap per flow, and loss.
fn path(scenario: &Scenario, flows: u64) -> PathModel {
    let path = &scenario.path;
    let DirectionSpec { rate, loss, .. } = path.forward;
    let limiters = || path.forward.policer.iter().chain(&path.forward.shaper);
    let least = |scope: Scope| {
        let rates = limiters().filter(|limiter| limiter.scope == scope).map(|LimiterSpec { rate, .. }| *rate);
        rates.min().filter(|limit| *limit < rate)
    };
    let line = least(Scope::Aggregate).unwrap_or(rate);
    // Payload rate of all flows together.
    let cap = least(Scope::PerFlow).map(|rate| rate.mul_div(flows, 1)).filter(|cap| *cap < line);
    let payload = |rate: Rate| rate.mul_div(path.mtu - HEADERS, path.mtu);
    PathModel {
        link: Some(line),
        cap: cap.map(payload),
        cap_is_per_flow: true,
        mss: Bytes::new(path.mtu.saturating_sub(HEADERS).max(1)),
        // The known run contains the queue.
        queue: None,
        at_least: line,
        // All flows are identical.
        rtt: scenario.longest_rtt(),
        // Random loss of ACKs counts, too.
        loss: loss.max(path.backward.loss),
        loss_interval: None,
    }
}

fn hosts(host: &HostSpec, cc: Algorithm, flows: u64) -> Hosts<'static> {
    Hosts {
        cc,
        flows,
        kernel: Some(host.kernel),
        sndbuf: host.sndbuf.limit(),
        rcvbuf: host.rcvbuf.limit(),
        fixed: (None, None),
        limited: false,
        rate_option: None,
        this: None,
        rule: host.window_rule,
        sender: None,
        sender_buffers: None,
        receiver_buffers: None,
        room: (Bytes::MAX, Bytes::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_lab::experiment::Experiment;
    use fullpipe_measurement::classify::Limit;

    const ONCE: Repeats = Repeats { measurements: 1, runs: 1 };

    /// Returns the only point of an experiment with these lines in its tables; the seed is 7.
    fn scenario(path: &str, host: &str, flow: &str) -> Scenario {
        let text = format!(
            "name = 'x'\nduration = '4s'\n[path]\nrate = '20mbit'\nrtt = '40ms'\n{path}\n[host]\n{host}\n[[flow]]\n{flow}"
        );
        let experiment = Experiment::from_toml(&text).expect("valid");
        Scenario { seed: 7, ..experiment.points()[0].scenario.clone() }
    }

    fn climbed(scenario: &Scenario, repeats: Repeats) -> Ladder {
        climb_known(scenario, repeats, |_| ()).expect("a ladder")
    }

    #[test]
    fn nothing_but_the_remedy_changes() {
        let path =
            "queue = '3bdp'\nshaper = { rate = '15mbit', burst = '8KiB' }\n[path.backward]\nrate = '5mbit'";
        let start = scenario(path, "sndbuf = '64KiB'\nrcvbuf = '64KiB'", "cc = 'cubic'");
        let rungs = climbed(&start, ONCE).rungs;
        assert_eq!(
            rungs.iter().map(|rung| rung.limit).collect::<Vec<_>>(),
            [Limit::Rwnd, Limit::Link, Limit::Link]
        );
        assert_eq!(rungs[0].scenario.as_ref(), Some(&start), "the first rung is the run itself");
        let then = rungs[1].scenario.clone().expect("simulated");
        let large = |buffer: Buffer| buffer.limit() > start.host.sndbuf.limit();
        assert!(large(then.host.sndbuf) && large(then.host.rcvbuf), "{:?}", then.host);
        let host = HostSpec { sndbuf: start.host.sndbuf, rcvbuf: start.host.rcvbuf, ..then.host.clone() };
        assert_eq!(Scenario { host, ..then }, start);
        assert_eq!(rungs[2].scenario, None, "the line is nobody's run");
    }

    /// A limiter per flow is a rate cap, which several flows together can exceed; a limiter for all flows is
    /// the link.
    #[test]
    fn a_cap_is_a_flows_and_a_line_everybodys() {
        let limited = |path: &str, count: u64| {
            let start = scenario(path, "", &format!("cc = 'cubic'\ncount = {count}"));
            let rungs = climbed(&start, ONCE).rungs;
            let last = rungs.last().expect("a line");
            (rungs[0].limit, last.limit, last.rate)
        };
        let payload = |mbit: u64| Rate::from_bps(mbit * 1_000_000).mul_div(1448, 1500);
        let shaper = |per_flow| format!("shaper = {{ rate = '5mbit', per_flow = {per_flow} }}");
        // Several connections together exceed the cap.
        assert_eq!(limited(&shaper(true), 1), (Limit::Cap, Limit::Link, payload(20)));
        assert_eq!(limited(&shaper(true), 2), (Limit::Cap, Limit::Link, payload(20)));
        assert_eq!(limited(&shaper(true), 4), (Limit::Link, Limit::Link, payload(20)), "no cap any more");
        assert_eq!(limited(&shaper(false), 1), (Limit::Link, Limit::Link, payload(5)));
    }

    #[test]
    fn a_range_is_that_of_measurements() {
        let start = scenario("loss = '1%'", "", "cc = 'reno'");
        let first = |measurements, runs| climbed(&start, Repeats { measurements, runs }).rungs.remove(0);
        let one = first(1, 4);
        assert_eq!((one.low, one.high), (one.steady, one.steady), "one measurement has no range");
        let ends = |rung: &Rung| (rung.low.expect("low").as_bps(), rung.high.expect("high").as_bps());
        let (runs, means) = (first(16, 1), first(4, 4));
        assert_eq!(runs.steady, means.steady, "the same sixteen runs");
        let ((least, most), (low, high)) = (ends(&runs), ends(&means));
        assert!(least < low && low < high && high < most, "{runs:?} {means:?}");
        assert_eq!(one.scenario, Some(start), "the seeds count from its own");
    }

    /// If only the present state is simulated, its figures are the same as on the whole ladder.
    #[test]
    fn the_present_state_is_the_first_rung() {
        let start = scenario("loss = '1%'", "", "cc = 'reno'");
        let repeats = Repeats { measurements: 3, runs: 2 };
        let runs = std::sync::atomic::AtomicUsize::new(0);
        let count = |_| {
            runs.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        };
        let first = present_known(&start, repeats, count).expect("a run").expect("a rung");
        assert_eq!((Some(&first), runs.into_inner()), (climbed(&start, repeats).rungs.first(), 6));
    }

    #[test]
    fn what_no_remedy_lifts_is_refused() {
        let refused = |host: &str, flow: &str| {
            let error = climb_known(&scenario("", host, flow), ONCE, |_| ()).expect_err("refused");
            let DiagnoseError::Input(error) = error else { panic!("{error:?}") };
            assert!(!error.hint.is_empty());
            error.message
        };
        let cubic = "cc = 'cubic'";
        for host in ["sndbuf = { fixed = '64KiB' }", "rcvbuf = { fixed = '64KiB' }", "window = '64KiB'"] {
            assert!(refused(host, cubic).contains("that the application sets"), "{host}");
        }
        assert!(refused("", "cc = 'cubic'\nmax_pacing = '1mbit'").contains("that the application sets"));
        for ends in ["bytes = '1MiB'", "start = '1s'", "app = { write = '1mbit' }"] {
            assert!(refused("", &format!("{cubic}\n{ends}")).contains("always have data"), "{ends}");
        }
        assert!(refused("", "cc = 'cubic'\n[[flow]]\ncc = 'reno'").contains("identical"));
    }
}
