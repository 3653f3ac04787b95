//! Complete specification of one run: the input of the simulator.
//!
//! An experiment file is written for people: it has defaults, multiples of the BDP and lists. A scenario is
//! one point of the experiment, with every value resolved.

use fullpipe_path::{AggregatorConfig, DetourConfig, Discipline, JitterConfig, Opportunities, Scope};
use fullpipe_tcp::buffers::{Buffer, KernelVersion, WindowRule};
use fullpipe_tcp::cc::{Algorithm, SlowStart};
use fullpipe_units::{Bytes, Duration, Probability, Rate};

use crate::workload::Workload;

/// Complete set of inputs that determine a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The path between sender and receiver.
    pub path: PathSpec,
    /// Both end hosts.
    pub host: HostSpec,
    /// The flows, all from sender to receiver.
    pub flows: Vec<FlowSpec>,
    /// Duration of the run.
    pub duration: Duration,
    /// Seed of all randomness in the run.
    pub seed: u64,
    /// Interval between trace rows.
    pub sample_every: Duration,
}

/// Text forms of later-added fields at their defaults, which [`Scenario::identity`] removes.
const UNSET: [&str; 4] =
    [", sack: true", ", initcwnd: None", ", slow_start_after_idle: true", ", notsent_lowat: None"];

impl Scenario {
    /// Returns the scenario as text, which identifies a stored run. Fields that were added later appear only
    /// if they are set, so that older runs keep their identity.
    pub fn identity(&self) -> String {
        UNSET.iter().fold(format!("{self:?}"), |text, unset| text.replace(unset, ""))
    }
}

/// The two directions of a path. They share no state.
#[derive(Clone, Debug, PartialEq)]
pub struct PathSpec {
    /// Direction from sender to receiver, which carries data.
    pub forward: DirectionSpec,
    /// Direction from receiver to sender, which carries ACKs.
    pub backward: DirectionSpec,
    /// Maximum packet size in bytes, IP header included.
    pub mtu: u64,
}

impl PathSpec {
    /// Creates a path with `rate` in both directions and half of `rtt` in each; `loss` and `queue` apply to
    /// the data direction.
    pub fn symmetric(rate: Rate, rtt: Duration, loss: Probability, queue: Bytes) -> Self {
        Self {
            forward: DirectionSpec::plain(rate, rtt / 2, loss, queue),
            backward: DirectionSpec::plain(rate, rtt - rtt / 2, Probability::ZERO, Bytes::MAX),
            mtu: 1500,
        }
    }

    /// Returns the two-way propagation delay.
    pub fn rtt(&self) -> Duration {
        self.forward.delay + self.backward.delay
    }

    /// Returns the bandwidth-delay product of the data direction.
    pub fn bdp(&self) -> Bytes {
        self.forward.rate * self.rtt()
    }
}

/// One direction of a path.
///
/// Packets pass its parts in this order: loss, duplication, ACK decimation, a policer, a shaper, a hop of
/// queue, link and delay, a detour, aggregation, jitter.
#[derive(Clone, Debug, PartialEq)]
pub struct DirectionSpec {
    /// Rate of the link in IP bits; [`Rate::MAX`] for no limit. With a trace, its mean rate.
    pub rate: Rate,
    /// Transmission times of a link with a variable rate.
    pub trace: Option<Opportunities>,
    /// Propagation delay, one way.
    pub delay: Duration,
    /// Probability that a packet is lost before the queue.
    pub loss: Probability,
    /// Pattern of the losses.
    pub loss_pattern: LossPattern,
    /// Probability that a packet is duplicated.
    pub duplicate: Probability,
    /// ACK decimation: one of this number of pure ACKs passes; 1 passes all of them.
    pub ack_thinning: u32,
    /// Policer, which drops packets that exceed its rate.
    pub policer: Option<LimiterSpec>,
    /// Shaper, which delays packets that exceed its rate.
    pub shaper: Option<LimiterSpec>,
    /// Capacity of the queue in bytes, excluding the packet in service.
    pub queue: Bytes,
    /// Queue discipline.
    pub discipline: Discipline,
    /// Additional delay for a limited time.
    pub detour: Option<DetourConfig>,
    /// Aggregation of packets behind the link.
    pub aggregation: Option<AggregatorConfig>,
    /// Delay that varies from packet to packet.
    pub jitter: Option<JitterConfig>,
}

impl DirectionSpec {
    /// Creates a direction with a drop-tail hop and independent loss only.
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

    /// Returns whether the fate or the delay of packets depends on the seed, for this number of flows.
    pub fn is_random(&self, flows: usize) -> bool {
        let managed = match self.discipline {
            Discipline::Red(_) | Discipline::Pie(_) => true,
            // The seed decides which flows share a queue.
            Discipline::FqCodel(_) => flows > 1,
            Discipline::DropTail | Discipline::Step(_) | Discipline::Codel(_) => false,
        };
        managed || !self.loss.is_zero() || !self.duplicate.is_zero() || self.jitter.is_some()
    }
}

/// Pattern of losses at a given rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LossPattern {
    /// Independent loss of each packet.
    Independent,
    /// Bursts of this mean length in packets (Gilbert-Elliott).
    Bursts(f64),
    /// Loss of whole super-packets, before segmentation at the sending host.
    SuperPackets,
}

/// A policer or a shaper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimiterSpec {
    /// Rate in IP bits.
    pub rate: Rate,
    /// Number of bytes that may pass at once (burst size of the token bucket).
    pub burst: Bytes,
    /// Capacity of the shaper's queue in bytes; a policer does not queue.
    pub queue: Bytes,
    /// Whether the limit applies to each flow or to all flows together.
    pub scope: Scope,
}

/// The end hosts: all settings that limit a transfer.
#[derive(Clone, Debug, PartialEq)]
pub struct HostSpec {
    /// Kernel release whose behaviour is modelled.
    pub kernel: KernelVersion,
    /// Rule that converts receive-buffer memory into window.
    pub window_rule: WindowRule,
    /// Send buffer of the sender.
    pub sndbuf: Buffer,
    /// Receive buffer of the receiver.
    pub rcvbuf: Buffer,
    /// Upper bound of the advertised window, independent of the buffer (`TCP_WINDOW_CLAMP`).
    pub window_clamp: Option<Bytes>,
    /// Whether the sending host paces every flow (the `fq` queueing discipline); BBR always paces.
    pub fair_queue: bool,
    /// GRO interval: packets of a flow that arrive within this time of the first one are delivered as one
    /// segment.
    pub rx_merge: Duration,
    /// Whether senders request ECN (`net.ipv4.tcp_ecn = 1`); receivers always accept it.
    pub ecn: bool,
    /// Whether both ends use SACK (`net.ipv4.tcp_sack`).
    pub sack: bool,
    /// Initial window of senders in segments, set by route (`ip route ... initcwnd`); `None` for the kernel
    /// default of ten segments.
    pub initcwnd: Option<u32>,
    /// Whether an idle period shrinks the senders' windows (`net.ipv4.tcp_slow_start_after_idle`).
    pub slow_start_after_idle: bool,
    /// Amount of unsent data above which a sender's socket is not writable (`net.ipv4.tcp_notsent_lowat`).
    pub notsent_lowat: Option<Bytes>,
}

impl HostSpec {
    /// Creates hosts with these buffers and default settings otherwise.
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

/// Specification of one flow.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowSpec {
    /// Congestion control.
    pub cc: Algorithm,
    /// Slow-start variant; `None` for the default of the congestion control.
    pub slow_start: Option<SlowStart>,
    /// Time at which the flow connects.
    pub start: Duration,
    /// Bytes to send; `None` to send until the run ends.
    pub bytes: Option<Bytes>,
    /// Upper bound of the socket's pacing rate (`SO_MAX_PACING_RATE`).
    pub max_pacing_rate: Option<Rate>,
    /// Behaviour of the applications at both ends.
    pub workload: Workload,
    /// TCP implementation at both ends; `None` for the default of the world.
    pub stack: Option<Stack>,
}

impl FlowSpec {
    /// Creates a flow that lasts the whole run and is never limited by its applications.
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

/// TCP implementation at both ends of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// Fullpipe's TCP sends. In the simulator it also receives; in the emulator the kernel TCP stack
    /// receives.
    Fullpipe,
    /// The kernel TCP stack at both ends.
    Kernel,
    /// The kernel TCP stack sends and fullpipe's TCP receives.
    KernelToFullpipe,
}

impl Stack {
    /// Hint that lists all names.
    pub const KNOWN: &'static str = "known: fullpipe, kernel, kernel-to-fullpipe";

    /// Returns the name of this stack in an experiment.
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

    /// A stored run keeps its identity when a field is added; a run that sets the new field has another
    /// identity.
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
