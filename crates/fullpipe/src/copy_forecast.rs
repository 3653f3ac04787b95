//! Predicts, by simulation, the rate that a copy reaches with each number of connections.
//!
//! ```text
//!   RTT of the handshake, link ──┐
//!   buffers and congestion       ├──► flow_counts ──► table for --plan, forecast beside the result
//!   control of this kernel ──────┘
//! ```

use std::sync::mpsc;
use std::thread;

use fullpipe_analysis::{FlowCounts, FlowRange, PathFacts, Question};
use fullpipe_relay::Connections;
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Duration, Probability, Rate};

use crate::host::{LOCAL, settings};
use crate::{Error, Observer, flow_counts};

/// Facts about the path to the other host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathToPeer {
    /// Rate of the slowest link.
    pub link: Rate,
    /// Round-trip time, for example measured by a handshake.
    pub rtt: Duration,
    /// Packet loss probability.
    pub loss: Probability,
}

impl PathToPeer {
    /// Returns the input of the simulation for a copy from this host: buffers, congestion control and kernel
    /// are this host's, as far as it reports them, and the receive buffer is the default of the same kernel.
    fn question(self) -> Question {
        let host = settings(LOCAL).unwrap_or_default();
        let cc = host.congestion_control.as_deref().and_then(|name| name.parse().ok());
        Question {
            path: PathFacts {
                link: Some(self.link),
                rtt: Some(self.rtt),
                loss: Some(self.loss),
                ..PathFacts::default()
            },
            sndbuf: host.tcp_wmem.map(|[_, _, most]| most),
            rcvbuf: None,
            kernel: host.kernel,
            cc: cc.unwrap_or(Algorithm::Cubic),
        }
    }
}

/// Simulates a copy with each number of connections in the range `connections`.
///
/// # Errors
/// Returns an error if the path is not plausible, or if the simulator has a defect.
pub fn forecast(
    path: PathToPeer,
    connections: Connections,
    observer: &impl Observer,
) -> Result<FlowCounts, Error> {
    let (least, most) = connections.range();
    let range = FlowRange::new(least.into(), most.into());
    let range =
        range.ok_or_else(|| Error::usage("the range of connections is empty or too large", "write 1..16"))?;
    let mut counts = flow_counts(&path.question(), &range, observer)?;
    // Remove the options of `whatif` from the assumptions, because `copy` does not have these options.
    for assumption in &mut counts.assumptions {
        if let Some(end) = assumption.find("; --") {
            assumption.truncate(end);
        }
    }
    counts.assumptions.push("the receiving host has the default buffers of the kernel on this host".into());
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
            let _ = send.send(forecast(path, connections, &()).ok());
        });
        Self { result }
    }

    /// Returns the forecast; `None` if the simulation has not ended, or if the path is not plausible.
    pub fn end(self) -> Option<FlowCounts> {
        self.result.try_recv().ok().flatten()
    }
}
