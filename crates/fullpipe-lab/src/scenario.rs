//! One run, fully specified: what the simulator takes.
//!
//! An experiment file is for people: it has defaults, multiples of the BDP and lists. A scenario is one
//! point of it with every value known.

use fullpipe_path::{AggregatorConfig, DetourConfig, Discipline, JitterConfig, Opportunities, Scope};
use fullpipe_tcp::buffers::{Buffer, KernelVersion, WindowRule};
use fullpipe_tcp::cc::{Algorithm, SlowStart};
use fullpipe_units::{Bytes, Duration, Probability, Rate};

use crate::workload::Workload;

/// Everything that determines a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The path between sender and receiver.
    pub path: PathSpec,
    /// Both end hosts.
    pub host: HostSpec,
    /// The flows, all from sender to receiver.
    pub flows: Vec<FlowSpec>,
    /// How long the run lasts.
    pub duration: Duration,
    /// What all chance in the run derives from.
    pub seed: u64,
    /// Distance between trace rows.
    pub sample_every: Duration,
}

/// Fields that came later, as a scenario without them says so.
const UNSET: [&str; 4] =
    [", sack: true", ", initcwnd: None", ", slow_start_after_idle: true", ", notsent_lowat: None"];

impl Scenario {
    /// The scenario as text, by which a kept run is known again. A field that came later stands in it only where it is set:
    /// runs from before there was one are the same runs.
    pub fn identity(&self) -> String {
        UNSET.iter().fold(format!("{self:?}"), |text, unset| text.replace(unset, ""))
    }
}

/// The two directions of a path. They share no state.
#[derive(Clone, Debug, PartialEq)]
pub struct PathSpec {
    /// From sender to receiver: data.
    pub forward: DirectionSpec,
    /// From receiver to sender: ACKs.
    pub backward: DirectionSpec,
    /// Largest packet, IP header included, in bytes.
    pub mtu: u64,
}

impl PathSpec {
    /// `rate` in both directions and half of `rtt` in each; `loss` and the bound of the queue in the data direction only.
    pub fn symmetric(rate: Rate, rtt: Duration, loss: Probability, queue: Bytes) -> Self {
        Self {
            forward: DirectionSpec::plain(rate, rtt / 2, loss, queue),
            backward: DirectionSpec::plain(rate, rtt - rtt / 2, Probability::ZERO, Bytes::MAX),
            mtu: 1500,
        }
    }

    /// The two-way propagation delay.
    pub fn rtt(&self) -> Duration {
        self.forward.delay + self.backward.delay
    }

    /// Bandwidth-delay product of the data direction.
    pub fn bdp(&self) -> Bytes {
        self.forward.rate * self.rtt()
    }
}

/// One direction, in the order in which packets meet it: loss, duplication, thinning of ACKs, a policer, a shaper, a hop of
/// queue, link and delay, a detour, aggregation, jitter.
#[derive(Clone, Debug, PartialEq)]
pub struct DirectionSpec {
    /// Bottleneck rate in IP bits; [`Rate::MAX`] for none. The mean, where there is a trace.
    pub rate: Rate,
    /// When the link sends, if not at a constant rate.
    pub trace: Option<Opportunities>,
    /// Propagation delay, one way.
    pub delay: Duration,
    /// Probability that a packet is lost before the queue.
    pub loss: Probability,
    /// How losses are spread.
    pub loss_pattern: LossPattern,
    /// Probability that a packet comes twice.
    pub duplicate: Probability,
    /// One pure ACK in so many passes; 1 for all.
    pub ack_thinning: u32,
    /// What drops the packets that exceed a rate.
    pub policer: Option<LimiterSpec>,
    /// What delays the packets that exceed a rate.
    pub shaper: Option<LimiterSpec>,
    /// Most bytes waiting, the packet in service not counted.
    pub queue: Bytes,
    /// Who manages them.
    pub discipline: Discipline,
    /// A longer way for a time.
    pub detour: Option<DetourConfig>,
    /// How packets are gathered behind the link.
    pub aggregation: Option<AggregatorConfig>,
    /// Delay that differs from packet to packet.
    pub jitter: Option<JitterConfig>,
}

impl DirectionSpec {
    /// A hop behind independent loss and nothing else.
    pub const fn plain(rate: Rate, delay: Duration, loss: Probability, queue: Bytes) -> Self {
        Self {
            rate,
            trace: None,
            delay,
            loss,
            loss_pattern: LossPattern::Independent,
            duplicate: Probability::ZERO,
            ack_thinning: 1,
            policer: None,
            shaper: None,
            queue,
            discipline: Discipline::DropTail,
            detour: None,
            aggregation: None,
            jitter: None,
        }
    }
}

/// How losses of a given rate are spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LossPattern {
    /// Each packet by itself.
    Independent,
    /// In bursts of so many packets on average (Gilbert-Elliott).
    Bursts(f64),
    /// Whole super-packets, as the sending host sees them before they are cut.
    SuperPackets,
}

/// A policer or a shaper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimiterSpec {
    /// Rate in IP bits.
    pub rate: Rate,
    /// What may pass at once.
    pub burst: Bytes,
    /// Most bytes that may wait; a policer does not queue.
    pub queue: Bytes,
    /// Whether flows are counted together.
    pub scope: Scope,
}

/// The end hosts, as far as they limit a transfer.
#[derive(Clone, Debug, PartialEq)]
pub struct HostSpec {
    /// Kernel whose behaviour is followed where releases differ.
    pub kernel: KernelVersion,
    /// How receive-buffer memory becomes window.
    pub window_rule: WindowRule,
    /// The sender's send buffer.
    pub sndbuf: Buffer,
    /// The receiver's receive buffer.
    pub rcvbuf: Buffer,
    /// Upper bound of the advertised window whatever the buffer allows (`TCP_WINDOW_CLAMP`).
    pub window_clamp: Option<Bytes>,
    /// The sending host paces every flow (the `fq` queueing discipline); BBR always paces.
    pub fair_queue: bool,
    /// Packets of a flow that arrive within this time of the first are handed up as one (GRO).
    pub rx_merge: Duration,
    /// Senders ask for ECN (`net.ipv4.tcp_ecn = 1`); receivers agree to it in any case.
    pub ecn: bool,
    /// Both ends report selectively what arrived (`net.ipv4.tcp_sack`).
    pub sack: bool,
    /// Initial window of senders in segments, set by route (`ip route ... initcwnd`); the kernel's ten if not.
    pub initcwnd: Option<u32>,
    /// A pause shrinks the senders' windows (`net.ipv4.tcp_slow_start_after_idle`).
    pub slow_start_after_idle: bool,
    /// Unsent data above which senders' sockets take no more (`net.ipv4.tcp_notsent_lowat`).
    pub notsent_lowat: Option<Bytes>,
}

impl HostSpec {
    /// Hosts with these buffers and nothing else set.
    pub const fn plain(
        kernel: KernelVersion,
        window_rule: WindowRule,
        sndbuf: Buffer,
        rcvbuf: Buffer,
    ) -> Self {
        Self {
            kernel,
            window_rule,
            sndbuf,
            rcvbuf,
            window_clamp: None,
            fair_queue: false,
            rx_merge: Duration::ZERO,
            ecn: false,
            sack: true,
            initcwnd: None,
            slow_start_after_idle: true,
            notsent_lowat: None,
        }
    }
}

/// One flow.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowSpec {
    /// Its congestion control.
    pub cc: Algorithm,
    /// What watches its slow start, if not its own.
    pub slow_start: Option<SlowStart>,
    /// When it connects.
    pub start: Duration,
    /// How much it sends; as much as it can until the run ends when `None`.
    pub bytes: Option<Bytes>,
    /// Most that its socket may be paced at (`SO_MAX_PACING_RATE`).
    pub max_pacing_rate: Option<Rate>,
    /// What the applications at its ends do.
    pub workload: Workload,
    /// Whose TCP is at its ends; the world's own when `None`.
    pub stack: Option<Stack>,
}

impl FlowSpec {
    /// A flow from the start of the run to its end whose applications are never what it waits for.
    pub fn plain(cc: Algorithm) -> Self {
        Self {
            cc,
            slow_start: None,
            start: Duration::ZERO,
            bytes: None,
            max_pacing_rate: None,
            workload: Workload::default(),
            stack: None,
        }
    }
}

/// Whose TCP is at the ends of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// Fullpipe's sends. In the simulator it also receives; in the emulator the receiver is a kernel's.
    Fullpipe,
    /// A kernel's at both ends.
    Kernel,
    /// A kernel's sends and fullpipe's receives.
    KernelToFullpipe,
}

impl Stack {
    /// All, in the words of an experiment.
    pub const KNOWN: &'static str = "known: fullpipe, kernel, kernel-to-fullpipe";

    /// The word for it in an experiment.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fullpipe => "fullpipe",
            Self::Kernel => "kernel",
            Self::KernelToFullpipe => "kernel-to-fullpipe",
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::experiment::Experiment;

    /// Runs that were kept before there was a field are found again, and one that sets it is another run.
    #[test]
    fn a_field_that_came_later_is_named_where_it_is_set() {
        let identity = |host: &str| {
            let text = format!(
                "name = 'x'\nduration = '1s'\n[path]\nrate = '1mbit'\nrtt = '1ms'\n[host]\n{host}\n[[flow]]\ncc = 'reno'"
            );
            Experiment::from_toml(&text).expect("valid").points()[0].scenario.identity()
        };
        let (unset, set) = (identity(""), identity("initcwnd = 30"));
        assert!(unset.contains("ecn: false }, flows: ["), "{unset}");
        assert_eq!(set, unset.replace("ecn: false", "ecn: false, initcwnd: Some(30)"));
    }
}
