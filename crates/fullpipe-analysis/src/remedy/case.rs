//! Inputs of a remedy: a path with its hosts, and one host whose settings are known.

use fullpipe_lab::campaign::RunPanicked;
use fullpipe_tcp::buffers::{KernelVersion, WindowRule};
use fullpipe_units::{Bytes, Duration, Probability, Rate};

use super::{Change, Gain, Host, LocalHost, State, What};
use crate::input::sysctl::HostSettings;

/// A path and the known facts about its hosts.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// Bandwidth-delay product: the bytes in flight that fill the path.
    pub bdp: Bytes,
    /// Round-trip time of the idle path.
    pub rtt: Duration,
    /// Share of the packets that are lost.
    pub loss: Probability,
    /// Rule that converts receive memory to window.
    pub rule: WindowRule,
    /// Kernel release of the hosts; it takes precedence over the one in their settings.
    pub kernel: Option<KernelVersion>,
    /// Settings of the sender that concern its congestion control. Settings that are unknown or from another
    /// time are `None`, because they are no basis for an undo.
    pub sender: Option<&'a HostSettings>,
    /// Settings of the sender that concern its buffers.
    pub sender_buffers: Option<&'a HostSettings>,
    /// Settings of the receiver that concern its buffers.
    pub receiver_buffers: Option<&'a HostSettings>,
}

impl<'a> Case<'a> {
    /// Returns the settings of `host` that concern its buffers.
    pub(crate) fn buffers_of(&self, host: Host) -> Option<&'a HostSettings> {
        match host {
            Host::Sender => self.sender_buffers,
            Host::Receiver => self.receiver_buffers,
        }
    }
}

/// A host with known settings at one end or both ends of a case, and the state that the plan is to reach.
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
    /// State that the plan is to reach.
    pub(crate) reached: State,
    /// Optional parts that the user asked for.
    pub(crate) with: &'a [What],
    pub(crate) trials: &'a dyn Trials,
}

/// Buffer at one end of the transfer.
pub(crate) struct End {
    /// Largest buffer at this end.
    pub(crate) buffer: Bytes,
    /// Largest size that the host's memory allows; unbounded where the memory is not known.
    pub(crate) room: Bytes,
}

/// Results of simulated runs on the path of the case. A higher layer runs the simulations.
pub(crate) trait Trials {
    /// Returns the steady-state rate in a state, if it was simulated.
    fn rate(&self, state: State) -> Option<Rate>;

    /// Returns the send and receive buffer of a state.
    fn buffers(&self, state: State) -> (Bytes, Bytes);

    /// Returns the rates that the receive window and the send buffer of a state allow.
    fn ceilings(&self, state: State) -> (Rate, Rate);

    /// Returns the time that a new connection takes to transfer `bytes` on an idle path without loss; `None`
    /// if it does not end.
    fn short_transfer(&self, state: State, bytes: Bytes) -> Option<Duration>;

    /// Returns the time that a burst takes on an open connection after a pause; `None` if bursts of this size
    /// do not end.
    fn burst_after_pause(&self, state: State, burst: Bytes) -> Option<Duration>;

    /// Returns whether [`Trials::unsent`] takes too long at this rate for an interactive answer.
    fn takes_long(&self, rate: Rate) -> bool;

    /// Returns the data that waits in the sockets in each state; `None` where nothing arrives.
    ///
    /// # Errors
    /// A defect of the simulator.
    fn unsent(&self, states: &[State]) -> Result<Vec<Option<Unsent>>, RunPanicked>;
}

/// Data in the socket of an application that always has more to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unsent {
    /// Time that a byte waits in the socket before its first transmission.
    pub(crate) wait: Duration,
    /// Bytes in one socket that are unsent or not yet acknowledged.
    pub(crate) held: Bytes,
    /// Rate of all flows together.
    pub(crate) rate: Rate,
}

impl HostCase<'_> {
    /// Returns whether the host is this end.
    pub(crate) fn here(&self, end: Host) -> bool {
        match end {
            Host::Sender => self.ends[0],
            Host::Receiver => self.ends[1],
        }
    }

    /// Returns whether the user asked for an optional part.
    pub(crate) fn asked_for(&self, what: What) -> bool {
        self.with.contains(&what)
    }

    /// Returns whether `change` is part of the plan.
    pub(crate) fn makes(&self, change: Change) -> bool {
        !self.present.has(change) && self.reached.has(change)
    }

    /// Returns the gain of `change` as a part of the state to reach.
    pub(crate) fn gain(&self, change: Change) -> Gain {
        let without = self.reached.without(change, self.present);
        let rate = |state| self.trials.rate(state);
        let (Some(with), Some(less)) = (rate(self.reached), rate(without)) else {
            return Gain::words("not simulated on a link this fast");
        };
        // Where nothing else changes, this would be the same comparison.
        let alone = (without != self.present).then(|| rate(self.present.with(change))).flatten();
        let alone = alone.map(|alone| format!("; without the rest it leads to {alone}"));
        let text = format!(
            "with the rest of the plan {with} instead of {less} (simulated){}",
            alone.unwrap_or_default()
        );
        Gain { text, without: Some(less), with: Some(with), ..Gain::default() }
    }
}
