//! What a remedy is fitted to: a path with its hosts, and one of the hosts whose settings are known.

use fullpipe_lab::campaign::RunPanicked;
use fullpipe_tcp::buffers::{KernelVersion, WindowRule};
use fullpipe_units::{Bytes, Duration, Probability, Rate};

use super::{Change, Gain, Host, LocalHost, State, What};
use crate::input::sysctl::HostSettings;

/// A path, and what is known of its hosts.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// What has to be in flight to fill the path.
    pub bdp: Bytes,
    /// Round-trip time of the idle path.
    pub rtt: Duration,
    /// Share of the packets that is lost.
    pub loss: Probability,
    /// How receive memory becomes window.
    pub rule: WindowRule,
    /// The kernel of the hosts; it outranks the one in their settings.
    pub kernel: Option<KernelVersion>,
    /// The sender's settings, as far as its congestion control is concerned. Settings that are not known, or are of
    /// another time, are `None`: they are no ground for an undo.
    pub sender: Option<&'a HostSettings>,
    /// The sender's settings, as far as its buffers are concerned.
    pub sender_buffers: Option<&'a HostSettings>,
    /// The receiver's.
    pub receiver_buffers: Option<&'a HostSettings>,
}

impl<'a> Case<'a> {
    /// The settings of `host`, as far as its buffers are concerned.
    pub(crate) fn buffers_of(&self, host: Host) -> Option<&'a HostSettings> {
        match host {
            Host::Sender => self.sender_buffers,
            Host::Receiver => self.receiver_buffers,
        }
    }
}

/// A host whose settings are known, as one end or both ends of a case, and what the plan reaches.
pub(crate) struct HostCase<'a> {
    pub(crate) case: Case<'a>,
    pub(crate) local: &'a LocalHost,
    /// Whether the host is the sender, the receiver.
    pub(crate) ends: [bool; 2],
    /// Connections at a time, among which its memory is divided.
    pub(crate) flows: u64,
    pub(crate) kernel: KernelVersion,
    pub(crate) sender: End,
    pub(crate) receiver: End,
    /// The state of the hosts as they are.
    pub(crate) present: State,
    /// The state to reach.
    pub(crate) reached: State,
    /// What is to be applied of what is applied on request only.
    pub(crate) with: &'a [What],
    pub(crate) trials: &'a dyn Trials,
}

/// One end's buffer.
pub(crate) struct End {
    /// The largest buffer of this end.
    pub(crate) buffer: Bytes,
    /// The most that the host's memory admits; no bound where that is not known.
    pub(crate) room: Bytes,
}

/// What simulated runs on the path of the case say. A higher floor makes them.
pub(crate) trait Trials {
    /// The steady-state rate in a state, where it was simulated.
    fn rate(&self, state: State) -> Option<Rate>;

    /// Send and receive buffer of a state.
    fn buffers(&self, state: State) -> (Bytes, Bytes);

    /// The rates that the receive window and the send buffer of a state allow.
    fn ceilings(&self, state: State) -> (Rate, Rate);

    /// How long a connection takes for `bytes` on an idle path without loss; `None` if it does not end.
    fn short_transfer(&self, state: State, bytes: Bytes) -> Option<Duration>;

    /// How long a burst takes after a pause of an open connection; `None` if bursts of this size do not end.
    fn burst_after_pause(&self, state: State, burst: Bytes) -> Option<Duration>;

    /// Whether [`Trials::unsent`] takes too long at this rate for somebody who waits.
    fn takes_long(&self, rate: Rate) -> bool;

    /// What waits in the sockets in each state; `None` where nothing arrives.
    ///
    /// # Errors
    /// A defect of the simulator.
    fn unsent(&self, states: &[State]) -> Result<Vec<Option<Unsent>>, RunPanicked>;
}

/// What waits in the socket of an application that always has more to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unsent {
    /// How long a byte waits there before it is sent for the first time.
    pub(crate) wait: Duration,
    /// What the socket holds, unsent or not acknowledged yet.
    pub(crate) held: Bytes,
    /// The rate.
    pub(crate) rate: Rate,
}

impl HostCase<'_> {
    /// Whether the host is this end.
    pub(crate) fn here(&self, end: Host) -> bool {
        match end {
            Host::Sender => self.ends[0],
            Host::Receiver => self.ends[1],
        }
    }

    /// Whether a part that is applied on request only is asked for.
    pub(crate) fn asked_for(&self, what: What) -> bool {
        self.with.contains(&what)
    }

    /// Whether the plan makes `change`.
    pub(crate) fn makes(&self, change: Change) -> bool {
        !self.present.has(change) && self.reached.has(change)
    }

    /// What `change` brings to the state to reach, of which it is a part.
    pub(crate) fn gain(&self, change: Change) -> Gain {
        let without = self.reached.without(change, self.present);
        let rate = |state| self.trials.rate(state);
        let (Some(with), Some(less)) = (rate(self.reached), rate(without)) else {
            return Gain::words("not simulated on so fast a line");
        };
        // Where nothing else changes the difference is that already.
        let alone = (without != self.present).then(|| rate(self.present.with(change))).flatten();
        let alone = alone.map(|alone| format!("; without the rest it leads to {alone}"));
        let text = format!(
            "with the rest of the plan {with} instead of {less} (simulated){}",
            alone.unwrap_or_default()
        );
        Gain { text, without: Some(less), with: Some(with), ..Gain::default() }
    }
}
