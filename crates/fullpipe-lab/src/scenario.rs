//! Complete specification of one run: the input of the simulator.
//!
//! An experiment file is written for people: it has defaults, multiples of the BDP and lists. A scenario is
//! one point of such an experiment, with every value resolved.

use fullpipe_path::{AggregatorConfig, DetourConfig, Discipline, JitterConfig, Opportunities, Scope};
use fullpipe_tcp::Tunables;
use fullpipe_tcp::buffers::{Buffer, DrsRule, KernelVersion, WindowRule};
use fullpipe_tcp::cc::SlowStart;
use fullpipe_units::{Bytes, Duration, Probability, Rate};

use crate::algorithm::FlowAlgorithm;
use crate::profile::Profile;
use crate::workload::Workload;

/// Complete set of inputs that determines a simulated run.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Path between the sending hosts and the receiving hosts.
    pub path: PathSpec,
    /// TCP settings of the sending and the receiving hosts.
    pub host: HostSpec,
    /// Flows of the run; all of them send in the same direction.
    pub flows: Vec<FlowSpec>,
    /// Duration of the run.
    pub duration: Duration,
    /// Seed of all random numbers in the run.
    pub seed: u64,
    /// Interval between trace rows.
    pub sample_every: Duration,
}

/// Debug output of the newer fields if they have their default values; [`Scenario::identity`] removes it.
const UNSET: [&str; 11] = [
    ", sack: true",
    ", initcwnd: None",
    ", slow_start_after_idle: true",
    ", notsent_lowat: None",
    ", request: None",
    ", profile: None",
    ", drs_rule: Since616",
    ", path_memory: false",
    ", access_rtt: Duration(0)",
    ", rto_prompt: None",
    ", copies: Repair { second_copy: true, tail_copies: 0 }",
];

impl Scenario {
    /// Returns a string that contains the whole scenario and identifies a stored run. A newer field appears
    /// only if it is set, so that runs stored by earlier versions keep their identity.
    pub fn identity(&self) -> String {
        let linux = format!(", tunables: {:?}", Tunables::LINUX);
        let text = format!("{self:?}").replace(&linux, "");
        UNSET.iter().fold(text, |text, unset| text.replace(unset, ""))
    }

    /// Returns the two-way propagation delay of `flow`: the sum of the path's delay and the delay between the
    /// path and the hosts of the flow.
    pub fn rtt_of(&self, flow: &FlowSpec) -> Duration {
        self.path.rtt() + flow.access_rtt
    }

    /// Returns the longest two-way propagation delay of any flow.
    pub fn longest_rtt(&self) -> Duration {
        self.flows.iter().map(|flow| self.rtt_of(flow)).fold(self.path.rtt(), Duration::max)
    }

    /// Returns the number of the pair of hosts of each flow. Flows with the same [`FlowSpec::access_rtt`] share a
    /// pair; pairs are numbered from zero, in the order of their first flows.
    pub fn host_pairs(&self) -> Vec<usize> {
        let mut distances = Vec::new();
        let pair = |flow: &FlowSpec| {
            distances.iter().position(|distance| *distance == flow.access_rtt).unwrap_or_else(|| {
                distances.push(flow.access_rtt);
                distances.len() - 1
            })
        };
        self.flows.iter().map(pair).collect()
    }
}

/// The two directions of a path. They share no state.
#[derive(Clone, Debug, PartialEq)]
pub struct PathSpec {
    /// Data direction: from the sending host to the receiving host.
    pub forward: DirectionSpec,
    /// ACK direction: from the receiving host to the sending host.
    pub backward: DirectionSpec,
    /// MTU of the path: maximum packet size in bytes, including the IP header.
    pub mtu: u64,
}

impl PathSpec {
    /// Creates a path with the given rate in both directions and half of the RTT in each. Loss and queue
    /// apply to the data direction.
    pub fn symmetric(rate: Rate, rtt: Duration, loss: Probability, queue: Bytes) -> Self {
        Self {
            forward: DirectionSpec::plain(rate, rtt / 2, loss, queue),
            backward: DirectionSpec::plain(rate, rtt - rtt / 2, Probability::ZERO, Bytes::MAX),
            mtu: 1500,
        }
    }

    /// Returns the two-way propagation delay of the path.
    pub fn rtt(&self) -> Duration {
        self.forward.delay + self.backward.delay
    }

    /// Returns the bandwidth-delay product of the data direction of the path.
    pub fn bdp(&self) -> Bytes {
        self.forward.rate * self.rtt()
    }
}

/// Specification of one direction of a path.
///
/// Packets pass the parts of a direction in this order: loss, duplication, ACK decimation, policer, shaper,
/// hop (queue, link and delay), detour, aggregation, jitter, and the access link of the flow
/// ([`FlowSpec::access_rtt`]).
#[derive(Clone, Debug, PartialEq)]
pub struct DirectionSpec {
    /// Rate of the link, counted in bits of IP packets; [`Rate::MAX`] for no limit, and the mean rate for a
    /// link with a trace.
    pub rate: Rate,
    /// Delivery opportunities of a link with a variable rate; `None` for a constant rate.
    pub trace: Option<Opportunities>,
    /// One-way propagation delay.
    pub delay: Duration,
    /// Probability that a packet is lost before it reaches the queue.
    pub loss: Probability,
    /// Pattern of the random losses.
    pub loss_pattern: LossPattern,
    /// Probability that a packet is duplicated.
    pub duplicate: Probability,
    /// ACK decimation factor n: one of every n pure ACKs is forwarded; 1 forwards all of them.
    pub ack_thinning: u32,
    /// Policer, which drops packets that exceed its rate; `None` for no policer.
    pub policer: Option<LimiterSpec>,
    /// Shaper, which delays packets that exceed its rate; `None` for no shaper.
    pub shaper: Option<LimiterSpec>,
    /// Capacity of the queue in bytes, excluding the packet in transmission.
    pub queue: Bytes,
    /// Queue discipline of the link's queue.
    pub discipline: Discipline,
    /// Additional delay during a limited time, such as after a route change.
    pub detour: Option<DetourConfig>,
    /// Aggregation of packets behind the link into batches.
    pub aggregation: Option<AggregatorConfig>,
    /// Additional delay that varies from packet to packet.
    pub jitter: Option<JitterConfig>,
}

impl DirectionSpec {
    /// Creates a direction that consists only of independent loss and a hop with a drop-tail queue.
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

    /// Returns whether the fate or the delay of packets depends on the seed, if the path carries `flows`
    /// flows.
    pub fn is_random(&self, flows: usize) -> bool {
        let managed = match self.discipline {
            Discipline::Red(_) | Discipline::Pie(_) => true,
            // In FQ-CoDel, the seed decides which flows share a queue.
            Discipline::FqCodel(_) => flows > 1,
            Discipline::DropTail | Discipline::Step(_) | Discipline::Codel(_) => false,
        };
        managed || !self.loss.is_zero() || !self.duplicate.is_zero() || self.jitter.is_some()
    }
}

/// Pattern of the random losses at a given loss rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LossPattern {
    /// Each packet is lost independently.
    Independent,
    /// Losses occur in bursts with this mean length in packets (Gilbert-Elliott model).
    Bursts(f64),
    /// Whole super-packets are lost, before the sending host segments them.
    SuperPackets,
}

/// Parameters of a policer or shaper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimiterSpec {
    /// Rate of the limiter, counted in bits of IP packets.
    pub rate: Rate,
    /// Burst size of the token bucket: the number of bytes that may pass at once.
    pub burst: Bytes,
    /// Capacity of the shaper's queue in bytes; a policer does not queue.
    pub queue: Bytes,
    /// Whether the limiter applies to each flow separately or to all flows together.
    pub scope: Scope,
}

/// TCP settings of both end hosts, including all settings that limit a transfer.
#[derive(Clone, Debug, PartialEq)]
pub struct HostSpec {
    /// Linux release whose TCP behaviour is modelled.
    pub kernel: KernelVersion,
    /// Rule by which the receiver converts receive-buffer memory into an advertised window.
    pub window_rule: WindowRule,
    /// Rule by which the receiver grows its buffer. This setting is independent of `kernel`: an older
    /// kernel's rule is used only in runs that are compared with that kernel.
    pub drs_rule: DrsRule,
    /// Send buffer of the sending socket.
    pub sndbuf: Buffer,
    /// Receive buffer of the receiving socket.
    pub rcvbuf: Buffer,
    /// Upper bound on the advertised window, independent of the buffer size (`TCP_WINDOW_CLAMP`).
    pub window_clamp: Option<Bytes>,
    /// Whether the sending host paces every flow with the `fq` queueing discipline; BBR flows are always
    /// paced.
    pub fair_queue: bool,
    /// GRO interval: packets of a flow that arrive within this time after the first one are delivered as one
    /// segment.
    pub rx_merge: Duration,
    /// Whether senders request ECN (`net.ipv4.tcp_ecn = 1`); receivers always accept a request.
    pub ecn: bool,
    /// Whether both hosts use SACK (`net.ipv4.tcp_sack`).
    pub sack: bool,
    /// Initial congestion window in segments, set on the route (`ip route ... initcwnd`); `None` for the
    /// kernel default of ten segments.
    pub initcwnd: Option<u32>,
    /// Whether an idle period reduces the sender's congestion window (`net.ipv4.tcp_slow_start_after_idle`).
    pub slow_start_after_idle: bool,
    /// Amount of unsent data above which a sending socket is not writable (`net.ipv4.tcp_notsent_lowat`).
    pub notsent_lowat: Option<Bytes>,
    /// Timers, loss detection and retries of both hosts.
    pub tunables: Tunables,
    /// Whether each sending host remembers paths from one connection to the next, in the simulator
    /// ([`fullpipe_tcp::memory`]). All flows of a host go to the same client.
    pub path_memory: bool,
}

impl HostSpec {
    /// Creates hosts with the given buffers; all other settings have their defaults.
    pub const fn plain(
        kernel: KernelVersion,
        window_rule: WindowRule,
        sndbuf: Buffer,
        rcvbuf: Buffer,
    ) -> Self {
        Self {
            kernel,
            window_rule,
            drs_rule: DrsRule::Since616,
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
            tunables: Tunables::LINUX,
            path_memory: false,
        }
    }
}

/// Specification of one flow of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowSpec {
    /// Congestion control of the flow.
    pub cc: FlowAlgorithm,
    /// Slow-start variant of the flow; `None` for the default of the congestion control.
    pub slow_start: Option<SlowStart>,
    /// Propagation delay between the path and the hosts of the flow, both directions together. In each direction,
    /// half of it is added behind the link.
    pub access_rtt: Duration,
    /// Time at which the flow opens its connection.
    pub start: Duration,
    /// Number of bytes to send; `None` to send until the run ends.
    pub bytes: Option<Bytes>,
    /// Upper bound on the socket's pacing rate (`SO_MAX_PACING_RATE`).
    pub max_pacing_rate: Option<Rate>,
    /// Behaviour of the applications at both ends of the flow.
    pub workload: Workload,
    /// TCP implementation at both ends of the flow; `None` for the default of the simulator or emulator.
    pub stack: Option<Stack>,
    /// Settings of the sending connection, which replace those of the host; `None` for the host's settings.
    pub profile: Option<Profile>,
    /// Initial congestion window of this flow in segments, in the simulator; `None` for that of the host.
    pub initcwnd: Option<u32>,
}

impl FlowSpec {
    /// Creates a flow that lasts for the whole run and is never limited by its applications.
    pub fn plain(cc: impl Into<FlowAlgorithm>) -> Self {
        Self {
            cc: cc.into(),
            slow_start: None,
            access_rtt: Duration::ZERO,
            start: Duration::ZERO,
            bytes: None,
            max_pacing_rate: None,
            workload: Workload::default(),
            stack: None,
            profile: None,
            initcwnd: None,
        }
    }

    /// Returns the delay of the flow's access link in direction `number`: 0 is forward, 1 is backward.
    pub fn access_delay(&self, number: u64) -> Duration {
        let forward = self.access_rtt / 2;
        if number == 0 { forward } else { self.access_rtt - forward }
    }
}

/// TCP implementation at both ends of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// Fullpipe's TCP sends. In the simulator, fullpipe's TCP also receives; in the emulator, the kernel TCP
    /// stack receives.
    Fullpipe,
    /// The kernel TCP stack is used at both ends.
    Kernel,
    /// The kernel TCP stack sends, and fullpipe's TCP receives.
    KernelToFullpipe,
}

impl Stack {
    /// Hint that lists the names of all stacks.
    pub const KNOWN: &'static str = "known: fullpipe, kernel, kernel-to-fullpipe";

    /// Returns the name of this stack as used in an experiment file.
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

    /// A new field of the scenario does not change the identity of stored runs. A run that sets the new field
    /// has a different identity.
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
        assert!(unset.contains("workload: Workload { writing: Greedy, reading: Greedy }"), "{unset}");
        assert!(identity("tunables = { retries = 3 }").contains("data: 3"));
        assert_eq!(identity("tunables = { retries = 15 }"), unset, "the default");
    }
}
