//! Changes that remedies make to the simulated model, and the resulting state of the model.

use fullpipe_lab::scenario::{FlowSpec, Scenario};
use fullpipe_path::Discipline;
use fullpipe_tcp::buffers::Buffer;
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::Bytes;

use super::Host;

/// Change that a remedy makes to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Replace a congestion control that is not rate-based with this one.
    CongestionControl(Algorithm),
    /// Raise the autotuning limits until this many BDPs can be in flight.
    Buffers {
        /// Usable window, in BDPs.
        bdps: u64,
        /// Hosts whose limit is raised.
        hosts: BufferHosts,
    },
    /// Let the kernel autotune the buffers that the application fixes.
    AutotunedBuffers,
    /// Remove the application's own limit on its rate.
    UnlimitedRate,
    /// Split the transfer into at least this many parallel connections.
    Connections(u64),
    /// Pace every flow on the sending host.
    Pacing,
    /// Request ECN at the senders.
    Ecn,
    /// Use this queueing discipline at the bottleneck.
    Queue(Discipline),
    /// Set the initial window of connections, in segments.
    InitialWindow(u32),
    /// Block writes while a socket holds more unsent data than this.
    NotsentLowat(Bytes),
    /// Keep the congestion window during an idle period.
    NoSlowStartAfterIdle,
    /// Change nothing in the model, for this reason.
    NotSimulated(NotSimulated),
}

/// Hosts whose buffer limit is raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferHosts {
    /// The send buffer of the sender.
    Sender,
    /// The receive buffer of the receiver.
    Receiver,
    /// Both.
    Both,
}

impl BufferHosts {
    /// Returns whether the buffer of `host` is raised.
    pub const fn contains(self, host: Host) -> bool {
        matches!(
            (self, host),
            (Self::Both, _) | (Self::Sender, Host::Sender) | (Self::Receiver, Host::Receiver)
        )
    }
}

/// Reason why a remedy changes nothing in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSimulated {
    /// The application in the model always has more to send and reads immediately.
    Application,
}

/// State of the model. `None` and `false` mean the present configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The sender's congestion control.
    pub cc: Algorithm,
    /// Usable window of the sender's buffer limit, as a multiple of the BDP.
    pub sndbuf: Option<u64>,
    /// Usable window of the receiver's buffer limit, as a multiple of the BDP.
    pub rcvbuf: Option<u64>,
    /// Whether buffers that the application fixes are autotuned instead.
    pub autotuned: bool,
    /// Whether the application's own limit on its rate is removed.
    pub unlimited: bool,
    /// Number of parallel connections.
    pub connections: Option<u64>,
    /// Whether the sending host paces every flow.
    pub pacing: bool,
    /// Whether senders request ECN.
    pub ecn: bool,
    /// Queueing discipline at the bottleneck.
    pub queue: Option<Discipline>,
    /// Initial window in segments.
    pub initial_window: Option<u32>,
    /// Maximum unsent data in a socket.
    pub notsent_lowat: Option<Bytes>,
    /// Whether the congestion window is kept during an idle period.
    pub no_slow_start_after_idle: bool,
}

impl State {
    /// Returns the present state of the hosts and the path.
    pub const fn present(cc: Algorithm) -> Self {
        Self {
            cc,
            sndbuf: None,
            rcvbuf: None,
            autotuned: false,
            unlimited: false,
            connections: None,
            pacing: false,
            ecn: false,
            queue: None,
            initial_window: None,
            notsent_lowat: None,
            no_slow_start_after_idle: false,
        }
    }

    /// Returns this state after `change`. A rate-based congestion control is kept, and values are never
    /// lowered.
    #[must_use]
    pub fn with(self, change: Change) -> Self {
        match change {
            Change::CongestionControl(_) if self.cc.is_rate_based() => self,
            Change::CongestionControl(cc) => Self { cc, ..self },
            Change::Buffers { bdps, hosts } => {
                let raised =
                    |host, size: Option<u64>| if hosts.contains(host) { size.max(Some(bdps)) } else { size };
                let (sndbuf, rcvbuf) =
                    (raised(Host::Sender, self.sndbuf), raised(Host::Receiver, self.rcvbuf));
                Self { sndbuf, rcvbuf, ..self }
            }
            Change::AutotunedBuffers => Self { autotuned: true, ..self },
            Change::UnlimitedRate => Self { unlimited: true, ..self },
            Change::Connections(many) => Self { connections: self.connections.max(Some(many)), ..self },
            Change::Pacing => Self { pacing: true, ..self },
            Change::Ecn => Self { ecn: true, ..self },
            Change::Queue(discipline) => Self { queue: Some(discipline), ..self },
            Change::InitialWindow(segments) => Self { initial_window: Some(segments), ..self },
            Change::NotsentLowat(bytes) => Self { notsent_lowat: Some(bytes), ..self },
            Change::NoSlowStartAfterIdle => Self { no_slow_start_after_idle: true, ..self },
            Change::NotSimulated(_) => self,
        }
    }

    /// Returns this state, except that the value set by `change` is taken from `other`.
    #[must_use]
    pub fn without(self, change: Change, other: Self) -> Self {
        match change {
            Change::CongestionControl(_) => Self { cc: other.cc, ..self },
            Change::Buffers { hosts, .. } => {
                let of = |host, own, others| if hosts.contains(host) { others } else { own };
                let sndbuf = of(Host::Sender, self.sndbuf, other.sndbuf);
                Self { sndbuf, rcvbuf: of(Host::Receiver, self.rcvbuf, other.rcvbuf), ..self }
            }
            Change::AutotunedBuffers => Self { autotuned: other.autotuned, ..self },
            Change::UnlimitedRate => Self { unlimited: other.unlimited, ..self },
            Change::Connections(_) => Self { connections: other.connections, ..self },
            Change::Pacing => Self { pacing: other.pacing, ..self },
            Change::Ecn => Self { ecn: other.ecn, ..self },
            Change::Queue(_) => Self { queue: other.queue, ..self },
            Change::InitialWindow(_) => Self { initial_window: other.initial_window, ..self },
            Change::NotsentLowat(_) => Self { notsent_lowat: other.notsent_lowat, ..self },
            Change::NoSlowStartAfterIdle => {
                Self { no_slow_start_after_idle: other.no_slow_start_after_idle, ..self }
            }
            Change::NotSimulated(_) => self,
        }
    }

    /// Returns whether `change` would have no effect.
    pub fn has(self, change: Change) -> bool {
        self.with(change) == self
    }

    /// Applies this state to a scenario of the present state, with the given send and receive buffers.
    pub(crate) fn set_in(self, scenario: &mut Scenario, (sndbuf, rcvbuf): (Buffer, Buffer)) {
        let host = &mut scenario.host;
        (host.sndbuf, host.rcvbuf) = (sndbuf, rcvbuf);
        host.fair_queue |= self.pacing;
        host.ecn |= self.ecn;
        host.initcwnd = self.initial_window.or(host.initcwnd);
        host.notsent_lowat = self.notsent_lowat.or(host.notsent_lowat);
        host.slow_start_after_idle &= !self.no_slow_start_after_idle;
        let forward = &mut scenario.path.forward;
        forward.discipline = self.queue.unwrap_or(forward.discipline);
        let flows = &mut scenario.flows;
        let many = self.connections.and_then(|many| usize::try_from(many).ok()).unwrap_or(0);
        if let Some(first) = flows.first().cloned() {
            flows.resize(flows.len().max(many), first);
        }
        flows.iter_mut().for_each(|FlowSpec { cc, .. }| *cc = self.cc.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remedy::catalogue;

    /// Each change can be applied and undone, independently of the others.
    #[test]
    fn a_change_is_made_and_taken_back() {
        let present = State::present(Algorithm::Cubic);
        let all = catalogue::ALL.iter().fold(present, |state, remedy| state.with(remedy.change));
        for remedy in catalogue::ALL {
            let change = remedy.change;
            assert!(present.with(change).has(change) && all.has(change), "{}", remedy.name);
            assert_eq!(present.with(change).without(change, present), present, "{}", remedy.name);
            let simulated = !matches!(change, Change::NotSimulated(_));
            assert_eq!(all.without(change, present) != all, simulated, "{}", remedy.name);
        }
    }

    #[test]
    fn a_rate_based_sender_stays_and_nothing_is_lowered() {
        let bbr3 = State::present(Algorithm::Bbr3);
        assert_eq!(bbr3.with(Change::CongestionControl(Algorithm::Bbr1)), bbr3);
        let buffers = |bdps, hosts| Change::Buffers { bdps, hosts };
        let larger = bbr3.with(buffers(8, BufferHosts::Both));
        assert_eq!(larger.with(buffers(2, BufferHosts::Both)), larger);
        let sender = bbr3.with(buffers(4, BufferHosts::Sender));
        assert_eq!((sender.sndbuf, sender.rcvbuf), (Some(4), None));
        assert_eq!(larger.without(buffers(1, BufferHosts::Receiver), sender).rcvbuf, None);
    }
}
