//! The model that the ladder simulates: a path, its hosts, and the changes made by the remedies. The model
//! hardly depends on whether its numbers come from a log, a question or a scenario.

use std::ops::RangeInclusive;

use fullpipe_lab::campaign::Job;
use fullpipe_lab::cost::RunCost;
use fullpipe_lab::scenario::{DirectionSpec, FlowSpec, HostSpec, LimiterSpec, PathSpec, Scenario};
use fullpipe_measurement::PathFacts;
use fullpipe_measurement::input::InputError;
use fullpipe_measurement::input::sysctl::HostSettings;
use fullpipe_measurement::segment::{self, DEFAULT_MSS, HEADERS};
use fullpipe_path::Scope;
use fullpipe_tcp::buffers::{self, Buffer, KernelVersion, WindowRule};
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Bytes, Duration, Probability, Rate};

use super::budget;
use super::given::MOST_LOSS;
use crate::explain::RateOption;
use crate::remedy::{Case, Change, Host, Order, State, Step, rcvbuf_for, sndbuf_for};

/// Kernel release of the simulated hosts if it is unknown.
const RECENT: KernelVersion = KernelVersion::new(6, 18);
/// Minimum rate of the simulated path if the link is unknown: far above the rate that any window on the
/// ladder allows.
pub(super) const AMPLE: Rate = Rate::from_bps(10_000_000_000);

/// Plausible range of an RTT. A value outside it, or outside the range of rates below, is probably in the
/// wrong unit.
const RTTS: (Duration, Duration) = (Duration::from_micros(10), Duration::from_secs(10));
const RATES: (Rate, Rate) = (Rate::from_bps(10_000), Rate::from_bps(1_000_000_000_000));

/// Rate above which one connection usually keeps a processor busy, so that the host limits the connection.
/// Source: chosen; one processor copies about 20 to 40 Gbit/s through a socket.
const HOSTS_KEEP_UP: Rate = Rate::from_bps(20_000_000_000);

/// Plausible numbers of flows.
const FLOWS: RangeInclusive<u64> = 1..=1_000;
/// Time that the longest plausible queue takes to drain.
const LONGEST_QUEUE: Duration = Duration::from_secs(10);

/// Number of states that a walk is assumed to try with one run each. The next constant is the number of
/// states that are assumed to fill the link and to need all of their runs.
const TRIED: u64 = 5;
const SHOWN: u64 = 2;
/// Burst of a shaper that caps each flow, in packets.
const CAP_BURST: u64 = 10;

/// First seed of a state, unless a known run supplies the seed.
const FIRST_SEED: u64 = 1;

/// Path of a simulated run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PathModel {
    /// Rate of the link, if known.
    pub(crate) link: Option<Rate>,
    /// Payload rate of a cap below the link rate, for all flows together, if there is one.
    pub(crate) cap: Option<Rate>,
    /// Whether the cap applies to each flow separately, so that more connections raise the total.
    pub(crate) cap_is_per_flow: bool,
    /// Minimum rate that the link is known to carry.
    pub(crate) at_least: Rate,
    /// Payload length of a full-sized segment, in bytes.
    pub(crate) mss: Bytes,
    /// Capacity of the queue at the bottleneck; `None` for one BDP.
    pub(crate) queue: Option<Bytes>,
    /// Round-trip time without a queue.
    pub(crate) rtt: Duration,
    /// Packet loss probability.
    pub(crate) loss: Probability,
    /// Confidence interval of the loss, if the loss is an estimate.
    pub(crate) loss_interval: Option<(Probability, Probability)>,
}

impl PathModel {
    /// Builds the path from the given figures. A missing loss counts as zero.
    ///
    /// # Errors
    /// Returns an error if the link rate or the RTT is missing, or if a figure is so far out of range that
    /// its unit is probably wrong.
    pub(crate) fn of_figures(path: &PathFacts) -> Result<Self, InputError> {
        let refuse = |message: String, hint: &str| Err(InputError::new(message, hint));
        let (rtt_hint, link_hint) = (
            "give the RTT that ping reports, for example --rtt 210ms",
            "give the link rate, for example --link 1gbit",
        );
        let Some(rtt) = path.rtt else { return refuse("the RTT is missing".into(), rtt_hint) };
        let Some(link) = path.link else {
            return refuse("the link rate is missing".into(), link_hint);
        };
        if !(RTTS.0..=RTTS.1).contains(&rtt) {
            return refuse(format!("an RTT of {rtt} is out of range: {} to {}", RTTS.0, RTTS.1), rtt_hint);
        }
        if !(RATES.0..=RATES.1).contains(&link) {
            return refuse(
                format!("a link rate of {link} is out of range: {} to {}", RATES.0, RATES.1),
                link_hint,
            );
        }
        let loss = path.loss.unwrap_or(Probability::ZERO);
        if loss > MOST_LOSS {
            let hint = "give the loss rate, for example --loss 20ppm or --loss 1.5%";
            return refuse(format!("a loss rate of {loss} is too high for TCP: at most {MOST_LOSS}"), hint);
        }
        let flows = path.flows.unwrap_or(1);
        if !FLOWS.contains(&flows) {
            let hint = format!("give the number of parallel flows, {} to {}", FLOWS.start(), FLOWS.end());
            return refuse(format!("{flows} flows are out of range"), &hint);
        }
        let mss = path.mss.unwrap_or(DEFAULT_MSS);
        if !segment::POSSIBLE.contains(&mss.get()) {
            let hint = "give the payload of a full segment, for example --mss 1448B or --mss 8948B";
            let (least, most) =
                (Bytes::new(*segment::POSSIBLE.start()), Bytes::new(*segment::POSSIBLE.end()));
            return refuse(format!("segments of {mss} are out of range: {least} to {most}"), hint);
        }
        let packet = Bytes::new(mss.get() + HEADERS);
        if path.queue.is_some_and(|queue| queue < packet || queue > link * LONGEST_QUEUE) {
            let hint = "give the capacity of the bottleneck's queue, for example --queue 1MiB";
            let queue = path.queue.unwrap_or_default();
            let most = link * LONGEST_QUEUE;
            return refuse(format!("a queue of {queue} is out of range: {packet} to {most} here"), hint);
        }
        if path.cap.is_some_and(|cap| cap < RATES.0 || cap > link) {
            let hint =
                "give the rate cap of one flow, which is at most the link rate, for example --cap 100mbit";
            let cap = path.cap.unwrap_or_default();
            return refuse(format!("a cap of {cap} is out of range: {} to the link's {link}", RATES.0), hint);
        }
        // The cap applies to each flow. The flows together cannot exceed the link.
        let cap = path.cap.map(|cap| cap.mul_div(flows, 1));
        Ok(Self {
            link: Some(link),
            cap: cap.filter(|cap| *cap < link.mul_div(mss.get(), packet.get())),
            cap_is_per_flow: true,
            at_least: link,
            mss,
            queue: path.queue,
            rtt,
            loss,
            loss_interval: None,
        })
    }

    /// Size of a full IP packet in bytes.
    fn mtu(&self) -> u64 {
        self.mss.get() + HEADERS
    }
}

/// Both hosts in their present state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Hosts<'a> {
    /// The sender's congestion control.
    pub(crate) cc: Algorithm,
    /// Number of parallel flows.
    pub(crate) flows: u64,
    /// Kernel release of both hosts, if known.
    pub(crate) kernel: Option<KernelVersion>,
    /// `tcp_wmem[2]` of the sender.
    pub(crate) sndbuf: Bytes,
    /// `tcp_rmem[2]` of the receiver.
    pub(crate) rcvbuf: Bytes,
    /// Send and receive buffers that the application fixes; `None` where the kernel autotunes the buffer.
    pub(crate) fixed: (Option<Bytes>, Option<Bytes>),
    /// Whether the application limits its own rate (`-b`, `SO_MAX_PACING_RATE`). The limit is not part of the
    /// simulated runs, which show the rate without this limit.
    pub(crate) limited: bool,
    /// Option by which the sending application limits its own rate.
    pub(crate) rate_option: Option<&'a RateOption>,
    /// Host that made the measurement, or for which the plan is made; `None` if there is no such
    /// host.
    pub(crate) this: Option<Host>,
    /// Rule that converts receive memory to a window.
    pub(crate) rule: WindowRule,
    /// Settings of the sender for its congestion control.
    pub(crate) sender: Option<&'a HostSettings>,
    /// Settings of the sender for its send buffer, if they are facts. Values from another time cannot be used
    /// for an undo.
    pub(crate) sender_buffers: Option<&'a HostSettings>,
    /// Settings of the receiver for its receive buffer, if they are facts.
    pub(crate) receiver_buffers: Option<&'a HostSettings>,
    /// Maximum send and receive buffers that the memory of the hosts allows.
    pub(crate) room: (Bytes, Bytes),
}

/// Budget of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Effort {
    /// Number of seeds at the estimated loss; rates are means over them.
    pub(crate) seeds: u64,
    /// Number of seeds that form one measurement. If the loss is not an estimate, the range of a rate spans
    /// the means of these groups.
    pub(crate) together: u64,
    /// Number of seeds at each bound of the loss interval.
    pub(crate) seeds_at_ends: u64,
    /// Duration over which the mean rate of a rung is taken. The run lasts twice as long, and its second half
    /// gives the steady-state rate.
    pub(crate) duration: Duration,
    /// Value of `duration` for a rate-based congestion control, which reaches the steady state right after
    /// its start.
    pub(crate) duration_by_rate: Duration,
    /// Whether `duration_by_rate` also applies to the present state; true if there is no log whose
    /// duration the simulation must match.
    pub(crate) present_by_rate: bool,
    /// Minimum of `duration`: a shorter run would consist of the ramp only.
    pub(crate) shortest: Duration,
    /// Total work, in data packets, above which fewer and shorter runs are made. This and the next two
    /// bounds apply to [`Model::most_work`], which assumes a full link.
    pub(crate) packets: u64,
    /// Total work to which runs above `packets` are shortened.
    pub(crate) packets_if_more: u64,
    /// Total work above which even the shortened runs take too long, so that nothing is simulated.
    pub(crate) most: u64,
    /// Total estimated work of all runs, in data packets, at which the simulation ends.
    pub(crate) budget: u64,
}

/// Path and hosts of a simulation, and its budget.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Model<'a> {
    pub(crate) path: PathModel,
    pub(crate) hosts: Hosts<'a>,
    effort: Effort,
    /// Rate of the simulated link in bits of IP packets per second.
    line: Rate,
    /// Rate of the simulated bottleneck, the link or the cap, in bits of IP packets per second.
    bottleneck: Rate,
    /// The run that this model represents, if the run is completely known. Simulated runs then differ from it
    /// only by the changes of the remedies, and its seed is the first seed.
    known: Option<&'a Scenario>,
}

impl<'a> Model<'a> {
    pub(crate) fn new(path: PathModel, hosts: Hosts<'a>, effort: Effort) -> Self {
        // The cap is a payload rate; the rate of the path includes headers.
        let cap = path.cap.map(|cap| cap.mul_div(path.mtu(), path.mss.get()));
        let line = path.link.unwrap_or(AMPLE.max(path.at_least.mul_div(2, 1)));
        let bottleneck = cap.map_or(line, |cap| cap.min(line));
        let mut model = Self { path, hosts, effort, line, bottleneck, known: None };
        if model.is_lossless() {
            model.effort = Effort { seeds: 1, together: 1, seeds_at_ends: 0, ..effort };
        }
        if model.most_work() > effort.packets {
            // With this many packets in each run, fewer runs are enough.
            let Effort { seeds, seeds_at_ends, .. } = &mut model.effort;
            (*seeds, *seeds_at_ends) = ((*seeds).min(3), (*seeds_at_ends).min(1));
            let (wanted, packets) = (effort.packets_if_more, model.most_work().max(1));
            let shortened =
                |duration: Duration| duration.mul_div(wanted, packets).max(effort.shortest).min(duration);
            model.effort.duration = shortened(effort.duration);
            model.effort.duration_by_rate = shortened(effort.duration_by_rate);
        }
        model
    }

    /// Returns a note for a rate that the processor of a host may not reach.
    pub(crate) fn hosts_are_not_modelled(&self) -> Option<String> {
        let fast = self.path.link.is_some_and(|link| link > HOSTS_KEEP_UP);
        fast.then(|| {
            format!(
                "the simulation does not model the hosts: above about {HOSTS_KEEP_UP}, the processor, the \
                 memory or the network card limits a connection, not the path"
            )
        })
    }

    /// Returns this model on a path that differs at most in its loss.
    pub(super) fn on(self, path: PathModel) -> Self {
        Self { path, ..self }
    }

    /// Returns this model based on a completely known run.
    pub(crate) fn of_known(self, scenario: &'a Scenario) -> Self {
        Self { known: Some(scenario), ..self }
    }

    /// Returns whether no packet is lost at random. Runs with different seeds then differ at most in the
    /// phase at which BBR starts its gain cycle.
    fn is_lossless(&self) -> bool {
        self.path.loss.is_zero() && self.path.loss_interval.is_none_or(|(_, high)| high.is_zero())
    }

    /// Returns whether all runs of a state are alike. A known run may have other sources of
    /// randomness than loss.
    pub(super) fn repeats_itself(&self) -> bool {
        self.known.is_none() && self.is_lossless()
    }

    /// Returns the duration over which the mean rate of a rung in this state is taken.
    pub(crate) fn duration(&self, state: State) -> Duration {
        let short = state.cc.is_rate_based() && (state != self.present() || self.effort.present_by_rate);
        if short { self.effort.duration_by_rate } else { self.effort.duration }
    }

    /// Returns an estimate of the total work of all runs, in data packets: a walk tries some states with one
    /// run each, and makes all runs of about two states that fill the link.
    pub(crate) fn most_work(&self) -> u64 {
        // Under loss only a rate-based sender fills the link.
        let duration = match self.is_lossless() {
            true => self.duration(self.present()),
            false => self.effort.duration_by_rate,
        };
        let full = (self.highest_rate() * (duration * 2)).get() / self.path.mtu();
        let flows = usize::try_from(self.flows(self.present())).unwrap_or(usize::MAX);
        let work = RunCost::of_packets(full as f64, flows).packets() as u64;
        let runs = TRIED + SHOWN * (self.runs_per_state() as u64).saturating_sub(1);
        work.saturating_mul(runs)
    }

    /// Returns the rate that no run exceeds. Buffers are raised only if the link rate is known; otherwise the
    /// present windows bound the rate of every run.
    fn highest_rate(&self) -> Rate {
        let (window, sndbuf) = self.ceilings(self.present());
        if self.path.link.is_some() { self.line } else { self.line.min(window).min(sndbuf) }
    }

    /// Returns the reason not to simulate, if the simulation is too slow for an interactive answer.
    pub(crate) fn too_fast(&self) -> Option<String> {
        let work = self.most_work();
        (work > self.effort.most).then(|| {
            let seconds = budget::seconds(work);
            format!(
                "not simulated, because {} take about {seconds} s on two cores; use fullpipe run",
                self.all_runs()
            )
        })
    }

    /// Returns the budget of all runs, in data packets.
    pub(super) fn budget(&self) -> u64 {
        self.effort.budget
    }

    /// Returns a note that the simulation ended at its budget.
    pub(super) fn over_budget(&self) -> String {
        let seconds = budget::seconds(self.effort.budget);
        format!(
            "some remedies were not simulated, because {} take more than about {seconds} s on two cores; \
             use fullpipe run",
            self.all_runs()
        )
    }

    /// Returns a noun phrase for the runs of this ladder.
    fn all_runs(&self) -> String {
        let rate = self.highest_rate();
        match self.flows(self.present()) {
            1 => format!("runs of one connection at {rate}"),
            flows => format!("runs of {flows} connections at {rate}"),
        }
    }

    /// Returns the payload rate of the bottleneck, which is the link or the rate cap, for the present flows.
    pub(crate) fn ceiling(&self) -> Rate {
        self.payload(self.bottleneck)
    }

    /// Returns the payload rate of the bottleneck in a state: more connections raise the total of a cap that
    /// applies to each flow.
    pub(crate) fn ceiling_of(&self, state: State) -> Rate {
        let Some(cap) = self.path.cap.filter(|_| self.path.cap_is_per_flow) else { return self.ceiling() };
        let (caps, line) = (cap.mul_div(self.flows(state), self.hosts.flows.max(1)), self.payload(self.line));
        // The sum of the caps of several flows may differ from the link rate by a rounding error.
        if caps.mul_div(101, 100) < line { caps } else { line }
    }

    /// Returns whether the bottleneck in a state is a cap below the link rate.
    pub(crate) fn is_capped(&self, state: State) -> bool {
        self.path.cap.is_some() && self.ceiling_of(state) < self.payload(self.line)
    }

    /// Returns the payload rate of the link, regardless of rate caps.
    pub(crate) fn link_payload(&self) -> Rate {
        self.payload(self.line)
    }

    /// Returns the BDP of the link, regardless of rate caps.
    pub(crate) fn link_bdp(&self) -> Bytes {
        self.line * self.path.rtt
    }

    fn payload(&self, rate: Rate) -> Rate {
        rate.mul_div(self.path.mss.get(), self.path.mtu())
    }

    /// Returns the number of parallel flows in a state.
    pub(crate) fn flows(&self, state: State) -> u64 {
        self.hosts.flows.max(1).max(state.connections.unwrap_or(1))
    }

    /// Returns the BDP of the bottleneck, which is the link or the rate cap.
    pub(crate) fn bdp(&self) -> Bytes {
        self.bottleneck * self.path.rtt
    }

    /// Returns the present state of the hosts.
    pub(crate) fn present(&self) -> State {
        State::present(self.hosts.cc)
    }

    /// Returns the case for which the remedies choose their values.
    pub(crate) fn case(&self) -> Case<'a> {
        let Hosts { rule, kernel, sender, sender_buffers, receiver_buffers, rate_option, .. } = self.hosts;
        let PathModel { rtt, loss, .. } = self.path;
        let bdp = self.bdp();
        Case { bdp, rtt, loss, rule, kernel, sender, sender_buffers, receiver_buffers, rate_option }
    }

    /// Returns whether `change` has an effect on this path. Buffers for a multiple of the BDP may be smaller
    /// than the present ones, and without a link rate their size is unknown. The limit of autotuning has no
    /// effect on a buffer that the application fixes.
    pub(crate) fn can_make(&self, state: State, change: Change) -> bool {
        let known = self.path.link.is_some() || self.path.cap.is_some();
        let next = state.with(change);
        let fixed = self.hosts.fixed != (None, None);
        next != state
            && match change {
                Change::Buffers { .. } => known && self.buffers(next) != self.buffers(state),
                Change::AutotunedBuffers => fixed,
                // Without a link rate, it is unknown how many windows the link can carry.
                Change::Connections(many) => known && many > self.flows(state),
                Change::UnlimitedRate => self.hosts.limited || self.hosts.rate_option.is_some(),
                _ => true,
            }
    }

    /// Returns the state after `change`. A buffer that is large enough already counts as unchanged.
    pub(crate) fn after(&self, state: State, change: Change) -> State {
        let mut next = state.with(change);
        let ((send, receive), (sends, receives)) = (self.buffers(state), self.buffers(next));
        if sends == send {
            next.sndbuf = state.sndbuf;
        }
        if receives == receive {
            next.rcvbuf = state.rcvbuf;
        }
        next
    }

    /// Returns whether a step of the ladder can be taken. A step for this host can be taken only if this host
    /// is the endpoint to which the setting applies.
    pub(crate) fn offers(&self, step: &Step) -> bool {
        !matches!(step.order, Order::ThisHost(host) if self.hosts.this != Some(host))
    }

    /// Returns the maximum send and receive buffers of a state. Buffers are never lowered.
    pub(crate) fn buffers(&self, state: State) -> (Bytes, Bytes) {
        let (send, receive) = self.host_buffers(state);
        (send.limit(), receive.limit())
    }

    /// Returns the send and receive buffers of a state.
    fn host_buffers(&self, state: State) -> (Buffer, Buffer) {
        let Hosts { sndbuf, rcvbuf, fixed, rule, room, .. } = self.hosts;
        let bdp = self.bdp();
        let send = state.sndbuf.map_or(sndbuf, |bdps| sndbuf.max(sndbuf_for(bdp, bdps).min(room.0)));
        let receive = state.rcvbuf.map_or(rcvbuf, |bdps| rcvbuf.max(rcvbuf_for(bdp, bdps, rule).min(room.1)));
        let buffer = |fixed: Option<Bytes>, max| match fixed.filter(|_| !state.autotuned) {
            Some(size) => Buffer::Fixed(size),
            None => Buffer::Auto { max },
        };
        (buffer(fixed.0, send), buffer(fixed.1, receive))
    }

    /// Returns the maximum window that the receiver advertises in a state.
    pub(crate) fn window(&self, state: State) -> Bytes {
        self.hosts.rule.window(self.buffers(state).1)
    }

    /// Returns the rates that the receive window and the send buffer allow in a state: bytes per round trip,
    /// times the number of flows.
    pub(crate) fn ceilings(&self, state: State) -> (Rate, Rate) {
        let flows = self.flows(state);
        let per_round_trip = |bytes| Rate::of(bytes, self.path.rtt).mul_div(flows, 1);
        let sendable = buffers::sendable(self.buffers(state).0);
        (per_round_trip(self.window(state)), per_round_trip(sendable))
    }

    /// Returns all runs of a state: first those at the estimated loss, then those at its lower and upper
    /// bounds.
    pub(crate) fn jobs(&self, state: State) -> Vec<Job> {
        let mut losses = vec![(self.path.loss, self.effort.seeds)];
        if let Some((low, high)) = self.path.loss_interval {
            losses.extend([low, high].map(|loss| (loss, self.effort.seeds_at_ends)));
        }
        let (send, receive) = self.buffers(state);
        let mut jobs = Vec::new();
        for (loss, seeds) in losses {
            jobs.extend((0..seeds).map(|nth| Job {
                label: format!("{} with buffers of {send} and {receive}", state.cc),
                scenario: self.scenario(state, loss, self.first_seed().wrapping_add(nth)),
            }));
        }
        jobs
    }

    /// Returns the number of runs per state at the estimated loss, and at each bound of its interval.
    pub(crate) fn seeds(&self) -> (usize, usize) {
        let at_ends = if self.path.loss_interval.is_some() { self.effort.seeds_at_ends } else { 0 };
        (self.effort.seeds as usize, at_ends as usize)
    }

    pub(crate) fn runs_per_state(&self) -> usize {
        let (seeds, at_ends) = self.seeds();
        seeds + 2 * at_ends
    }

    /// Returns the number of runs at the estimated loss that form one measurement.
    pub(crate) fn together(&self) -> usize {
        self.effort.together.max(1) as usize
    }

    /// Returns the seed of the first run of each state.
    pub(crate) fn first_seed(&self) -> u64 {
        self.known.map_or(FIRST_SEED, |scenario| scenario.seed)
    }

    /// Returns one run of a state, with the given loss and seed.
    pub(crate) fn scenario(&self, state: State, loss: Probability, seed: u64) -> Scenario {
        let mut scenario = match self.known {
            Some(known) => Scenario { seed, ..known.clone() },
            None => self.fitted(self.duration(state), loss, seed),
        };
        // Buffers that the application does not fix are autotuned, in a known run as well as in a fitted one.
        state.set_in(&mut scenario, self.host_buffers(state));
        scenario
    }

    /// Returns a run on the path that the figures describe, with the hosts in their present state.
    fn fitted(&self, duration: Duration, loss: Probability, seed: u64) -> Scenario {
        let one_way = self.path.rtt / 2;
        let Hosts { cc, flows, kernel, rule, .. } = self.hosts;
        let each = self.path.cap.filter(|_| self.path.cap_is_per_flow && self.bottleneck < self.line);
        let line = if each.is_some() { self.line } else { self.bottleneck };
        let direction = |loss, queue| DirectionSpec::plain(line, one_way, loss, queue);
        let queue = self.path.queue.unwrap_or(self.bdp());
        let shaper = each.map(|_| LimiterSpec {
            rate: self.bottleneck.mul_div(1, flows.max(1)),
            burst: Bytes::new(CAP_BURST * self.path.mtu()),
            queue,
            scope: Scope::PerFlow,
        });
        let (send, receive) = self.host_buffers(self.present());
        Scenario {
            path: PathSpec {
                forward: DirectionSpec { shaper, ..direction(loss, queue) },
                backward: direction(Probability::ZERO, Bytes::MAX),
                mtu: self.path.mtu(),
            },
            host: HostSpec::plain(kernel.unwrap_or(RECENT), rule, send, receive),
            flows: vec![FlowSpec::plain(cc); usize::try_from(flows).unwrap_or(1).max(1)],
            duration: duration * 2,
            seed,
            sample_every: Duration::from_millis(500),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::remedy::{BufferHosts, NotSimulated, catalogue};

    /// 1 Gbit/s at 210 ms and a loss of 20 ppm, between hosts with buffers of 4 MiB.
    pub(in crate::ladder) fn model() -> Model<'static> {
        let link = Rate::from_bps(1_000_000_000);
        let path = PathModel {
            link: Some(link),
            cap: None,
            cap_is_per_flow: false,
            at_least: link,
            mss: DEFAULT_MSS,
            queue: None,
            rtt: Duration::from_millis(210),
            loss: Probability::from_ppm(20),
            loss_interval: None,
        };
        let hosts = Hosts {
            cc: Algorithm::Cubic,
            flows: 1,
            kernel: None,
            sndbuf: Bytes::from_mib(4),
            rcvbuf: Bytes::from_mib(4),
            fixed: (None, None),
            limited: false,
            rate_option: None,
            this: None,
            rule: WindowRule::ScalingRatio(160),
            sender: None,
            sender_buffers: None,
            receiver_buffers: None,
            room: (Bytes::MAX, Bytes::MAX),
        };
        let second = Duration::from_secs(1);
        Model::new(
            path,
            hosts,
            Effort {
                seeds: 1,
                together: 1,
                seeds_at_ends: 0,
                duration: second,
                duration_by_rate: second,
                present_by_rate: true,
                shortest: second,
                packets: u64::MAX,
                packets_if_more: u64::MAX,
                most: u64::MAX,
                budget: u64::MAX,
            },
        )
    }

    /// A remedy changes the simulated run if and only if its change can be simulated, on a fitted path as
    /// well as on a known one.
    #[test]
    fn every_remedy_changes_the_model_it_is_applied_to() {
        let model = model();
        let known = model.scenario(model.present(), model.path.loss, 7);
        for model in [model, model.of_known(&known)] {
            let run = |state| model.scenario(state, model.path.loss, 7);
            assert_eq!(run(model.present()), known);
            for remedy in catalogue::ALL {
                let changed = run(model.present().with(remedy.change));
                let simulated = match remedy.change {
                    Change::NotSimulated(NotSimulated::Application) => false,
                    change => model.can_make(model.present(), change),
                };
                assert_eq!(changed != known, simulated, "{}", remedy.name);
            }
        }
    }

    #[test]
    fn several_connections_have_several_windows() {
        let model = model();
        let ten = model.present().with(Change::Connections(10));
        assert_eq!(model.scenario(ten, Probability::ZERO, 1).flows.len(), 10);
        let (one, (window, _)) = (model.ceilings(model.present()).0, model.ceilings(ten));
        assert_eq!(window, one.mul_div(10, 1));
    }

    const LARGER: Change = Change::Buffers { bdps: 2, hosts: BufferHosts::Both };

    /// No buffer is raised if the link rate is unknown, or if the buffers are already large enough.
    #[test]
    fn buffers_are_raised_only_where_that_changes_something() {
        let model = model();
        let raises = |model: &Model<'_>| model.can_make(model.present(), LARGER);
        assert!(raises(&model));
        let ample = Bytes::from_mib(128);
        let large = Model { hosts: Hosts { sndbuf: ample, rcvbuf: ample, ..model.hosts }, ..model };
        assert!(!raises(&large));
        let unknown = Model { path: PathModel { link: None, ..model.path }, ..model };
        assert!(!raises(&unknown));
    }

    /// The limits of autotuning have no effect on a buffer that the application fixes: a sysctl does not
    /// raise it, and only the application can remove the fixed size.
    #[test]
    fn a_fixed_buffer_stays_fixed_until_the_application_leaves_it_out() {
        let model = model();
        let small = Bytes::from_kib(256);
        let hosts = Hosts { fixed: (Some(small), Some(small)), ..model.hosts };
        let fixed = Model { hosts, ..model };
        let buffers = |state| {
            let host = fixed.scenario(state, Probability::ZERO, 1).host;
            (host.sndbuf, host.rcvbuf)
        };
        let present = fixed.present();
        assert_eq!(buffers(present), (Buffer::Fixed(small), Buffer::Fixed(small)));
        assert!(!fixed.can_make(present, LARGER), "sysctl does not reach it");
        assert!(fixed.can_make(present, Change::AutotunedBuffers));
        assert!(!model.can_make(present, Change::AutotunedBuffers), "nothing is fixed here");
        let autotuned = present.with(Change::AutotunedBuffers);
        let max = Bytes::from_mib(4);
        assert_eq!(buffers(autotuned), (Buffer::Auto { max }, Buffer::Auto { max }));
        assert!(fixed.can_make(autotuned, LARGER));
        // If only one buffer is fixed, sysctl still raises the other one.
        let sender = Model { hosts: Hosts { fixed: (Some(small), None), ..model.hosts }, ..model };
        assert_eq!(sender.buffers(present.with(LARGER)).0, small);
    }

    /// If a cap applies to each flow, several connections raise the total up to the link rate.
    #[test]
    fn a_cap_of_each_flow_is_passed_by_several() {
        let model = model();
        let rate = Rate::from_bps(100_000_000);
        let path = |cap_is_per_flow| PathModel { cap: Some(rate), cap_is_per_flow, ..model.path };
        let (each, all) = (path(true), path(false));
        let of = |path| Model::new(path, model.hosts, model.effort);
        let (each, all) = (of(each), of(all));
        let connections = |many| model.present().with(Change::Connections(many));
        assert_eq!(
            (each.ceiling_of(connections(4)), all.ceiling_of(connections(4))),
            (rate.mul_div(4, 1), all.ceiling())
        );
        assert!(each.is_capped(connections(4)) && !each.is_capped(connections(10)));
        let shaper =
            |model: &Model<'_>| model.scenario(model.present(), Probability::ZERO, 1).path.forward.shaper;
        assert_eq!(shaper(&each).map(|shaper| shaper.scope), Some(Scope::PerFlow));
        assert_eq!(shaper(&all), None, "the cap is the link of all flows");
    }
}
