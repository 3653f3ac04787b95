//! Predicts, by simulation, the rate that a copy reaches with each number of connections.
//!
//! ```text
//!   link, loss (options) ─────────────────────┐
//!   RTT, congestion control (connection 0) ───┼──► flow_counts ──► table for --plan, forecast beside the result
//!   buffers of both hosts (kernel, welcome) ──┘
//! ```

use std::sync::mpsc;
use std::thread;

use fullpipe_analysis::{FlowCounts, FlowRange, HostSettings, PathFacts, Question};
use fullpipe_relay::{Connections, Reached};
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Bytes, Probability, Rate};

use crate::host::{LOCAL, settings};
use crate::{Error, Observer, flow_counts};

/// Bounds of the buffer sizes that the simulator accepts. The other host may report any size.
const LEAST_BUFFER: Bytes = Bytes::new(4096);
const LARGEST_BUFFER: Bytes = Bytes::new(i32::MAX as u64);

/// Facts about the path to the other host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathToPeer {
    /// Rate of the slowest link.
    pub link: Rate,
    /// Packet loss probability.
    pub loss: Probability,
    /// RTT, buffers and congestion control, as the first connection has shown them.
    pub reached: Reached,
}

impl PathToPeer {
    /// Returns the input of the simulation, and the assumptions that replace facts that are not known. `host` is this
    /// host, whose kernel release counts for both hosts.
    fn question(&self, host: &HostSettings) -> (Question, Vec<String>) {
        let Reached { rtt, buffers, cc } = &self.reached;
        let mut assumptions = Vec::new();
        for (size, role) in [(buffers.send, "sending"), (buffers.receive, "receiving")] {
            if size.is_none() {
                assumptions
                    .push(format!("the {role} host has the default buffers of the kernel on this host"));
            }
        }
        assumptions.push("the other host has the same kernel as this host".into());
        let name = cc.as_ref().or(host.congestion_control.as_ref());
        if cc.is_none() {
            assumptions.push("the sending host has the congestion control of this host".into());
        }
        let algorithm = name.and_then(|name| name.parse().ok());
        if algorithm.is_none() {
            assumptions.push("the congestion control of the sending host acts like CUBIC".into());
        }
        let size = |size: Option<Bytes>| size.map(|size| size.clamp(LEAST_BUFFER, LARGEST_BUFFER));
        let question = Question {
            path: PathFacts {
                link: Some(self.link),
                rtt: Some(*rtt),
                loss: Some(self.loss),
                ..PathFacts::default()
            },
            sndbuf: size(buffers.send),
            rcvbuf: size(buffers.receive),
            kernel: host.kernel,
            cc: algorithm.unwrap_or(Algorithm::Cubic),
        };
        (question, assumptions)
    }
}

/// Simulates a copy with each number of connections in the range `connections`.
///
/// # Errors
/// Returns an error if the path is not plausible, or if the simulator has a defect.
pub fn forecast(
    path: &PathToPeer,
    connections: Connections,
    observer: &impl Observer,
) -> Result<FlowCounts, Error> {
    let (least, most) = connections.range();
    let range = FlowRange::new(least.into(), most.into());
    let range =
        range.ok_or_else(|| Error::usage("the range of connections is empty or too large", "write 1..16"))?;
    let (question, assumptions) = path.question(&settings(LOCAL).unwrap_or_default());
    let mut counts = flow_counts(&question, &range, observer)?;
    // Remove the options of `whatif` from the assumptions, because `copy` does not have these options.
    for assumption in &mut counts.assumptions {
        if let Some(end) = assumption.find("; --") {
            assumption.truncate(end);
        }
    }
    counts.assumptions.extend(assumptions);
    Ok(counts)
}

/// A forecast that another thread computes by simulation while the copy runs.
#[derive(Debug)]
pub struct Forecasting {
    result: mpsc::Receiver<Option<FlowCounts>>,
}

impl Forecasting {
    /// Starts the simulation in another thread.
    pub fn begin(path: PathToPeer, connections: Connections) -> Self {
        let (send, result) = mpsc::channel();
        thread::spawn(move || {
            // If the copy has failed, nothing receives the result.
            let _ = send.send(forecast(&path, connections, &()).ok());
        });
        Self { result }
    }

    /// Returns the forecast; `None` if the simulation has not ended, or if the path is not plausible.
    pub fn end(self) -> Option<FlowCounts> {
        self.result.try_recv().ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use fullpipe_relay::Buffers;
    use fullpipe_units::Duration;

    use super::*;

    fn path(buffers: Buffers, cc: Option<&str>) -> PathToPeer {
        PathToPeer {
            link: Rate::from_bps(100_000_000),
            loss: Probability::ZERO,
            reached: Reached { rtt: Duration::from_millis(100), buffers, cc: cc.map(Into::into) },
        }
    }

    /// The receive buffer is that of the other host, not of this one: with 320 KiB, a connection reached 16.1 Mbit/s at
    /// an RTT of 100 ms.
    #[test]
    fn the_forecast_uses_the_buffers_of_both_hosts() {
        let buffers = Buffers { send: Some(Bytes::from_mib(4)), receive: Some(Bytes::from_kib(320)) };
        let one = Connections::new(1, 2).expect("a range");
        let counts = forecast(&path(buffers, Some("cubic")), one, &()).expect("simulated");
        let rate = counts.of(1).expect("one connection").steady.as_bps();
        assert!(rate.abs_diff(16_100_000) < 2_400_000, "15 % of the measured rate: {rate}");
        assert_eq!((counts.path.sndbuf_bytes, counts.path.rcvbuf_bytes), (4 << 20, 320 << 10));
        assert!(counts.assumptions.iter().all(|line| !line.contains("default buffers")), "{counts:?}");
        assert!(counts.assumptions.iter().all(|line| !line.contains("--")), "{counts:?}");
    }

    #[test]
    fn what_is_not_known_is_an_assumption() {
        let host = HostSettings { congestion_control: Some("bbr".into()), ..HostSettings::default() };
        let (question, assumptions) = path(Buffers::default(), None).question(&host);
        assert_eq!((question.sndbuf, question.rcvbuf, question.cc), (None, None, Algorithm::Bbr1));
        let text = assumptions.join("\n");
        assert!(text.contains("the sending host has the default buffers"), "{text}");
        assert!(text.contains("the receiving host has the default buffers"), "{text}");
        assert!(text.contains("the sending host has the congestion control of this host"), "{text}");
        // The other host may report sizes that no kernel has, and a congestion control that the simulator does not have.
        let buffers = Buffers { send: Some(Bytes::ZERO), receive: Some(Bytes::MAX) };
        let (question, assumptions) = path(buffers, Some("newer")).question(&host);
        assert_eq!((question.sndbuf, question.rcvbuf), (Some(LEAST_BUFFER), Some(LARGEST_BUFFER)));
        assert_eq!(question.cc, Algorithm::Cubic);
        assert!(assumptions.iter().any(|line| line.ends_with("acts like CUBIC")), "{assumptions:?}");
    }
}
