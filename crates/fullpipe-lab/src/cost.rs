//! Expected work of the simulator for a run, computed before the run starts.
//!
//! The simulator's run time is proportional to the number of packets that cross the path, and the cost of
//! each packet rises with the number of flows. The number of packets is estimated from the limits that the
//! scenario defines: the rates on the path, the applications, the buffers, and random loss. The cost is only
//! an estimate, because only the run itself shows which limit applies at which time.

use fullpipe_path::Scope;
use fullpipe_tcp::buffers::sendable;
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Duration, Rate};

use crate::scenario::{FlowSpec, LimiterSpec, Scenario};
use crate::workload::{Reading, Writing};

/// Cost of a trace row that is only hashed, in data packets; measured with a row every 10 us.
const ROW: f64 = 1.5;
/// Cost of a trace row that is also stored as text, in data packets.
const KEPT_ROW: f64 = 25.0;
/// Cost of the handshake, the initial window, the buffers and the outcome of a flow, in data packets.
const FLOW: f64 = 50.0;
/// Number of additional flows at which the cost of each data packet has doubled. With ten flows, a packet
/// costs as much as with one flow (`BENCHMARKS.md`); with a thousand, the connections no longer fit into the
/// caches. The number is chosen, not measured. Beyond this number, more flows do not raise the cost further,
/// because every packet already misses the caches.
const MANY_FLOWS: f64 = 1_000.0;

/// Expected work of one run, as a number of data packets that cross the path. The work for a data packet
/// includes its delivery, its ACK and the timers of both ends.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct RunCost(f64);

impl RunCost {
    /// Estimates the cost of `scenario`; `traced` indicates whether the trace rows are stored as text.
    pub fn of(scenario: &Scenario, traced: bool) -> Self {
        let mtu = scenario.path.mtu.max(1) as f64;
        let bytes: f64 = scenario.flows.iter().map(|flow| transferred(scenario, flow)).sum();
        let together = limited(scenario.path.forward.rate, scenario, Scope::Aggregate);
        let most = bytes_in(together, scenario.duration);
        let rows = scenario.duration.as_secs_f64() / scenario.sample_every.as_secs_f64().max(1e-9);
        let flows = scenario.flows.len();
        let row = if traced { KEPT_ROW } else { ROW };
        let Self(transfer) = Self::of_packets(bytes.min(most) / mtu, flows);
        Self(transfer + flows as f64 * rows * row)
    }

    /// Estimates the cost of a run without trace rows, in which `flows` flows send a total of `packets` data
    /// packets.
    pub fn of_packets(packets: f64, flows: usize) -> Self {
        let flows = flows as f64;
        let among_others = 1.0 + ((flows - 1.0).max(0.0) / MANY_FLOWS).min(1.0);
        Self(packets * among_others + flows * FLOW)
    }

    /// Returns the cost of runs together, from the cost of each in data packets.
    pub fn sum(packets: impl Iterator<Item = f64>) -> Self {
        Self(packets.sum())
    }

    /// Returns the cost of the run in data packets.
    pub const fn packets(self) -> f64 {
        self.0
    }
}

fn bytes_in(rate: Rate, time: Duration) -> f64 {
    rate.as_bps() as f64 / 8.0 * time.as_secs_f64()
}

/// Returns `rate`, limited by those policers and shapers that have the scope `scope`.
fn limited(rate: Rate, scenario: &Scenario, scope: Scope) -> Rate {
    let forward = &scenario.path.forward;
    let of_scope = |limiter: &&LimiterSpec| limiter.scope == scope;
    let limiters = [&forward.policer, &forward.shaper].into_iter().flatten().filter(of_scope);
    limiters.map(|limiter| limiter.rate).fold(rate, Rate::min)
}

/// Returns the number of bytes that `flow` would send if no other flow shared the path.
fn transferred(scenario: &Scenario, flow: &FlowSpec) -> f64 {
    let mut rate = limited(scenario.path.forward.rate, scenario, Scope::PerFlow);
    rate = flow.max_pacing_rate.map_or(rate, |most| rate.min(most));
    if let Writing::Paced { rate: written, .. } = flow.workload.writing {
        rate = rate.min(written);
    }
    rate = match flow.workload.reading {
        Reading::Greedy | Reading::Granted => rate,
        Reading::Paced { rate: read, .. } | Reading::CurlLimit { rate: read } => rate.min(read),
        Reading::Loop { buffer, every } => rate.min(Rate::of(buffer, every)),
    };
    let lifetime = scenario.duration.saturating_sub(flow.start);
    let mtu = scenario.path.mtu.max(1) as f64;
    let mut bytes = bytes_in(rate, lifetime);
    let round_trips = lifetime.as_secs_f64() / scenario.rtt_of(flow).as_secs_f64().max(1e-9);
    let host = &scenario.host;
    let received = host.window_rule.window(host.rcvbuf.limit());
    let window = sendable(host.sndbuf.limit()).min(host.window_clamp.map_or(received, |w| w.min(received)));
    bytes = bytes.min(window.get() as f64 * round_trips);
    let loss = scenario.path.forward.loss.as_f64();
    if let Some(cc) = flow.cc.of_fullpipe().filter(|cc| loss > 0.0 && !cc.is_rate_based()) {
        // Before its first loss, a flow in slow start can reach any rate.
        let segments = mean_window(cc, scenario.rtt_of(flow), loss) * round_trips + 1.0 / loss;
        bytes = bytes.min(segments * mtu);
    }
    flow.bytes.map_or(bytes, |size| bytes.min(size.get() as f64))
}

/// Coefficient of Reno's mean window: at the loss probability p, the window is `RENO_WINDOW` / sqrt(p)
/// segments (Mathis et al., 1997).
pub const RENO_WINDOW: f64 = 1.22;
/// Coefficient of CUBIC's mean window: at the loss probability p, the window is `CUBIC_WINDOW` x (RTT /
/// p)^0.75 segments, with the RTT in seconds (RFC 9438 section 5.1).
pub const CUBIC_WINDOW: f64 = 1.054;

/// Returns the mean congestion window in segments of a loss-based sender at the loss probability `loss` (0 to
/// 1). For CUBIC, it is the larger of CUBIC's window and Reno's. BIC's window is close to CUBIC's.
pub fn mean_window(cc: Algorithm, rtt: Duration, loss: f64) -> f64 {
    let reno = RENO_WINDOW / loss.sqrt();
    match cc {
        Algorithm::Cubic | Algorithm::Bic => {
            // The power of 0.75 is computed with square roots, which every machine rounds identically.
            let ratio = rtt.as_secs_f64() / loss;
            (CUBIC_WINDOW * (ratio * ratio.sqrt()).sqrt()).max(reno)
        }
        _ => reno,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;
    use crate::sim;

    /// For each limit that it covers, the estimate is within a factor of two of the number of packets that
    /// the run sends.
    #[test]
    fn the_estimate_is_near_the_packets_of_the_run() {
        for (path, host, flow) in [
            ("rate = '50mbit'\nrtt = '20ms'", "", "cc = 'cubic'"),
            ("rate = '50mbit'\nrtt = '20ms'", "", "cc = 'bbr'\ncount = 5"),
            ("rate = '1gbit'\nrtt = '100ms'", "window = '64KiB'", "cc = 'cubic'"),
            ("rate = '1gbit'\nrtt = '100ms'", "sndbuf = { fixed = '500KiB' }", "cc = 'bbr'"),
            ("rate = '100mbit'\nrtt = '50ms'\nloss = '1%'", "", "cc = 'cubic'"),
            ("rate = '100mbit'\nrtt = '50ms'\nloss = '1%'", "", "cc = 'reno'"),
            ("rate = '100mbit'\nrtt = '50ms'\nloss = '1%'", "", "cc = 'bbr'"),
            ("rate = '100mbit'\nrtt = '50ms'", "", "cc = 'cubic'\nbytes = '3MB'"),
            ("rate = '100mbit'\nrtt = '50ms'", "", "cc = 'cubic'\napp = { write = '5mbit' }"),
            ("rate = '100mbit'\nrtt = '50ms'", "", "cc = 'cubic'\napp = { read = '8mbit' }"),
            ("rate = '100mbit'\nrtt = '50ms'\npolicer = { rate = '10mbit' }", "", "cc = 'bbr'"),
            ("rate = '100mbit'\nrtt = '50ms'", "", "cc = 'bbr'\nmax_pacing = '4mbit'\nstart = '5s'"),
        ] {
            let text = format!(
                "name = 'x'\nduration = '20s'\n[path]\n{path}\n[host]\n{host}\n[[flow]]\n{flow}\n[[sample]]\nevery = '20s'"
            );
            let experiment = Experiment::from_toml(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
            let scenario = &experiment.points()[0].scenario;
            let outcome = sim::run(scenario);
            let sent = outcome.path.sent() as f64;
            let expected = RunCost::of(scenario, false).packets();
            let ratio = expected / sent;
            assert!((0.5..2.0).contains(&ratio), "{path} {host} {flow}: {expected} of {sent}");
        }
    }

    /// A thousand flows cost twice as much as one flow that sends the same number of packets, and flows that
    /// send nothing have a cost, too.
    #[test]
    fn flows_count() {
        let [one, ten, thousand] = [1, 10, 1000].map(|flows| RunCost::of_packets(1e6, flows).packets());
        assert!(one < 1.01e6 && ten < 1.02 * one, "{one} {ten}");
        assert!((1.95..2.1).contains(&(thousand / one)), "{thousand}");
        let silent = RunCost::of_packets(0.0, 1000).packets();
        assert!((10_000.0..100_000.0).contains(&silent), "{silent}");
    }

    /// Stored trace rows cost more, and in a run of one day the rows cost more than the packets of a slow
    /// link.
    #[test]
    fn rows_count() {
        let text = "name = 'x'\nduration = '1000s'\n[path]\nrate = '100kbit'\nrtt = '20ms'\n[[flow]]\ncc = 'reno'\n\
                    [[sample]]\nevery = '1ms'";
        let experiment = Experiment::from_toml(text).expect("valid");
        let scenario = &experiment.points()[0].scenario;
        let [hashed, kept] = [false, true].map(|traced| RunCost::of(scenario, traced).packets());
        assert!(hashed > 1_000_000.0 && kept > 10.0 * hashed, "{hashed} {kept}");
    }
}
