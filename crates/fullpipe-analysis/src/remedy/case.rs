//! Inputs of a remedy: a path with its hosts, and one host with known settings.

use fullpipe_lab::campaign::RunPanicked;
use fullpipe_measurement::input::sysctl::HostSettings;
use fullpipe_tcp::buffers::{KernelVersion, WindowRule};
use fullpipe_units::{Bytes, Duration, Probability, Rate};

use super::{Change, Gain, Host, LocalHost, State, What};
use crate::explain::RateOption;

/// A path and the known facts about its hosts.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// Bandwidth-delay product: the number of bytes in flight that fills the path.
    pub bdp: Bytes,
    /// Round-trip time of the idle path.
    pub rtt: Duration,
    /// Packet loss probability.
    pub loss: Probability,
    /// Rule that converts receive memory to a window.
    pub rule: WindowRule,
    /// Kernel release of the hosts; it takes precedence over the release in their settings.
    pub kernel: Option<KernelVersion>,
    /// Settings of the sender for its congestion control. `None` if they are unknown, or from another time
    /// and therefore unusable for an undo.
    pub sender: Option<&'a HostSettings>,
    /// Settings of the sender for its buffers.
    pub sender_buffers: Option<&'a HostSettings>,
    /// Settings of the receiver for its buffers.
    pub receiver_buffers: Option<&'a HostSettings>,
    /// Option by which the sending application limits its own rate.
    pub rate_option: Option<&'a RateOption>,
}

impl<'a> Case<'a> {
    /// Returns the settings of `host` for its buffers.
    pub(crate) fn buffers_of(&self, host: Host) -> Option<&'a HostSettings> {
        match host {
            Host::Sender => self.sender_buffers,
            Host::Receiver => self.receiver_buffers,
        }
    }
}

/// A host with known settings at one or both endpoints of a case, and the target state of the plan.
pub(crate) struct HostCase<'a> {
    pub(crate) case: Case<'a>,
    pub(crate) local: &'a LocalHost,
    /// Whether the host is the sender, and whether it is the receiver.
    pub(crate) ends: [bool; 2],
    /// Number of concurrent connections that share the host's memory.
    pub(crate) flows: u64,
    pub(crate) kernel: KernelVersion,
    pub(crate) sender: End,
    pub(crate) receiver: End,
    /// Present state of the hosts.
    pub(crate) present: State,
    /// Target state of the plan.
    pub(crate) reached: State,
    /// Optional parts requested by the user.
    pub(crate) with: &'a [What],
    pub(crate) trials: &'a dyn Trials,
}

/// Buffer at one endpoint of the transfer.
pub(crate) struct End {
    /// Maximum buffer at this endpoint.
    pub(crate) buffer: Bytes,
    /// Maximum size that the host's memory allows; unlimited if the memory is unknown.
    pub(crate) room: Bytes,
}

/// Results of simulated runs on the path of the case. A higher layer runs the simulations.
pub(crate) trait Trials {
    /// Returns the steady-state rate in `state`, if it was simulated.
    fn rate(&self, state: State) -> Option<Rate>;

    /// Returns the send and receive buffers in `state`.
    fn buffers(&self, state: State) -> (Bytes, Bytes);

    /// Returns the rates that the receive window and the send buffer allow in `state`.
    fn ceilings(&self, state: State) -> (Rate, Rate);

    /// Returns the time that a new connection needs to transfer `bytes` on an idle, loss-free path; `None` if
    /// the transfer does not finish.
    fn short_transfer(&self, state: State, bytes: Bytes) -> Option<Duration>;

    /// Returns the time that a burst needs on an open connection after a pause; `None` if bursts of this size
    /// do not finish.
    fn burst_after_pause(&self, state: State, burst: Bytes) -> Option<Duration>;

    /// Returns whether [`Trials::unsent`] is too slow at this rate for an interactive answer.
    fn takes_long(&self, rate: Rate) -> bool;

    /// Returns the data waiting in the sockets in each state; `None` if nothing arrives.
    ///
    /// # Errors
    /// Returns an error for a defect of the simulator.
    fn unsent(&self, states: &[State]) -> Result<Vec<Option<Unsent>>, RunPanicked>;
}

/// Data waiting in the socket of an application that always has more to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unsent {
    /// Time that a byte waits in the socket before its first transmission.
    pub(crate) wait: Duration,
    /// Bytes in one socket that are unsent or unacknowledged.
    pub(crate) held: Bytes,
    /// Total rate of all flows.
    pub(crate) rate: Rate,
}

impl HostCase<'_> {
    /// Returns whether this host is the endpoint `end`.
    pub(crate) fn here(&self, end: Host) -> bool {
        match end {
            Host::Sender => self.ends[0],
            Host::Receiver => self.ends[1],
        }
    }

    /// Returns whether the user requested an optional part.
    pub(crate) fn asked_for(&self, what: What) -> bool {
        self.with.contains(&what)
    }

    /// Returns whether `change` is part of the plan.
    pub(crate) fn makes(&self, change: Change) -> bool {
        !self.present.has(change) && self.reached.has(change)
    }

    /// Returns the gain of `change` as part of the target state.
    pub(crate) fn gain(&self, change: Change) -> Gain {
        let without = self.reached.without(change, self.present);
        let rate = |state| self.trials.rate(state);
        let (Some(with), Some(less)) = (rate(self.reached), rate(without)) else {
            return Gain::words("not simulated, because the link is too fast");
        };
        // If the plan changes nothing else, the change alone reaches the rate of the whole plan.
        let alone = (without != self.present).then(|| rate(self.present.with(change))).flatten();
        let alone = alone.map(|alone| format!("; alone, this change reaches {alone}"));
        let text = format!(
            "{with} with the whole plan, {less} without this change (simulated){}",
            alone.unwrap_or_default()
        );
        Gain { text, without: Some(less), with: Some(with), ..Gain::default() }
    }
}
