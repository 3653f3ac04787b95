//! The model that the ladder simulates: a path, its hosts, and the changes made by the remedies. The model
//! hardly depends on whether its numbers come from a log, a question or a scenario.

use fullpipe_lab::campaign::Job;
use fullpipe_lab::scenario::{DirectionSpec, FlowSpec, HostSpec, PathSpec, Scenario};
use fullpipe_tcp::buffers::{self, Buffer, KernelVersion, WindowRule};
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Bytes, Duration, Probability, Rate};

use super::given::MOST_LOSS;
use crate::input::InputError;
use crate::input::sysctl::HostSettings;
use crate::path_facts::PathFacts;
use crate::remedy::{Case, Change, State, catalogue, rcvbuf_for, sndbuf_for};
use crate::segment::{HEADERS, MTU};

/// Kernel release of the simulated hosts if it is unknown.
const RECENT: KernelVersion = KernelVersion::new(6, 18);
/// Minimum rate of the simulated path if the link is unknown: far above what any window on the ladder allows.
const AMPLE: Rate = Rate::from_bps(10_000_000_000);

/// Plausible range of an RTT. A value outside it, or outside the range of rates below, is probably in the
/// wrong unit.
const RTTS: (Duration, Duration) = (Duration::from_micros(10), Duration::from_secs(10));
const RATES: (Rate, Rate) = (Rate::from_bps(10_000), Rate::from_bps(1_000_000_000_000));

/// Rate above which one connection usually keeps a processor busy, so that its host limits it.
/// Source: chosen; one processor copies about 20 to 40 Gbit/s through a socket.
const HOSTS_KEEP_UP: Rate = Rate::from_bps(20_000_000_000);

/// First seed of a state, unless a known run supplies the seed.
const FIRST_SEED: u64 = 1;

/// Path of a simulated run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PathModel {
    /// Rate of the link, if known.
    pub(crate) link: Option<Rate>,
    /// Payload rate of a cap below the link rate, if there is one.
    pub(crate) cap: Option<Rate>,
    /// Rate that the link is known to carry at least.
    pub(crate) at_least: Rate,
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
            return refuse(format!("an RTT of {rtt} is not plausible"), rtt_hint);
        }
        if !(RATES.0..=RATES.1).contains(&link) {
            return refuse(format!("a link rate of {link} is out of range"), link_hint);
        }
        let loss = path.loss.unwrap_or(Probability::ZERO);
        if loss > MOST_LOSS {
            let hint = "give the loss rate, for example --loss 20ppm or --loss 1.5%";
            return refuse(format!("TCP makes no progress at a loss rate of {loss}"), hint);
        }
        Ok(Self { link: Some(link), cap: None, at_least: link, rtt, loss, loss_interval: None })
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
    /// Rule that converts receive memory to a window.
    pub(crate) rule: WindowRule,
    /// Settings of the sender for its congestion control.
    pub(crate) sender: Option<&'a HostSettings>,
    /// Settings of the sender for its send buffer, if they are facts. Values from another time cannot be the
    /// basis of an undo.
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
    /// Value of `duration` for a rate-based congestion control, which is in the steady state once its start
    /// is over.
    pub(crate) duration_by_rate: Duration,
    /// Minimum of `duration`: a shorter run would be all ramp.
    pub(crate) shortest: Duration,
    /// Total number of packets above which the runs are made fewer and shorter.
    pub(crate) packets: u64,
    /// Total number of packets to which runs above `packets` are shortened.
    pub(crate) packets_if_more: u64,
    /// Total number of packets above which even the shortened runs take too long, so that nothing is
    /// simulated.
    pub(crate) most: u64,
}

impl Effort {
    fn duration(&self, cc: Algorithm) -> Duration {
        if cc.is_rate_based() { self.duration_by_rate } else { self.duration }
    }
}

/// Path and hosts of a simulation, and its budget.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Model<'a> {
    pub(crate) path: PathModel,
    pub(crate) hosts: Hosts<'a>,
    effort: Effort,
    /// Rate of the simulated bottleneck in bits of IP packets per second.
    bottleneck: Rate,
    /// The known run that this model represents, if all of it is known. Simulated runs then differ from it
    /// only by the changes of the remedies, and its seed is the first seed.
    known: Option<&'a Scenario>,
}

impl<'a> Model<'a> {
    pub(crate) fn new(path: PathModel, hosts: Hosts<'a>, effort: Effort) -> Self {
        // The cap is a payload rate; the rate of the path includes headers.
        let cap = path.cap.map(|cap| cap.mul_div(MTU, MTU - HEADERS));
        let line = path.link.unwrap_or(AMPLE.max(path.at_least.mul_div(2, 1)));
        let bottleneck = cap.map_or(line, |cap| cap.min(line));
        let mut model = Self { path, hosts, effort, bottleneck, known: None };
        if model.is_lossless() {
            model.effort = Effort { seeds: 1, together: 1, seeds_at_ends: 0, ..effort };
        }
        if model.most_packets() > effort.packets {
            // With this many packets in each run, fewer runs are enough.
            let Effort { seeds, seeds_at_ends, .. } = &mut model.effort;
            (*seeds, *seeds_at_ends) = ((*seeds).min(3), (*seeds_at_ends).min(1));
            let (wanted, packets) = (effort.packets_if_more, model.most_packets().max(1));
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
                "hosts are not modelled: above about {HOSTS_KEEP_UP} the processor, its memory and the network card limit a \
                 connection, not the path"
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

    /// Returns the duration over which the mean rate of a rung with this congestion control is taken.
    pub(crate) fn duration(&self, cc: Algorithm) -> Duration {
        self.effort.duration(cc)
    }

    /// Returns an upper bound of the total number of packets in all runs.
    pub(crate) fn most_packets(&self) -> u64 {
        let of_state = |state: State| {
            let (window, sndbuf) = self.ceilings(state);
            let rate = self.bottleneck.min(window).min(sndbuf);
            (rate * (self.duration(state.cc) * 2)).get() / MTU
        };
        self.states()
            .into_iter()
            .map(|state| of_state(state).saturating_mul(self.runs_per_state() as u64))
            .fold(0, u64::saturating_add)
    }

    /// Returns the reason not to simulate, if the simulation is too slow for an interactive answer.
    pub(crate) fn too_fast(&self) -> Option<String> {
        let why = "not simulated: on a link this fast the simulation takes too long; use fullpipe run";
        (self.most_packets() > self.effort.most).then(|| why.into())
    }

    /// Returns the payload rate of the bottleneck, which is the link or the rate cap.
    pub(crate) fn ceiling(&self) -> Rate {
        self.bottleneck.mul_div(MTU - HEADERS, MTU)
    }

    pub(crate) fn bdp(&self) -> Bytes {
        self.bottleneck * self.path.rtt
    }

    /// Returns the present state of the hosts.
    pub(crate) fn present(&self) -> State {
        State::present(self.hosts.cc)
    }

    /// Returns the case for which remedies are fitted.
    pub(crate) fn case(&self) -> Case<'a> {
        let Hosts { rule, kernel, sender, sender_buffers, receiver_buffers, .. } = self.hosts;
        let PathModel { rtt, loss, .. } = self.path;
        Case { bdp: self.bdp(), rtt, loss, rule, kernel, sender, sender_buffers, receiver_buffers }
    }

    /// Returns the states worth simulating: every distinct combination of the ladder's remedies, with the
    /// present state first. If the link rate is unknown, buffers are not raised, because the BDP is unknown
    /// too.
    pub(crate) fn states(&self) -> Vec<State> {
        let mut states = vec![self.present()];
        // Doubles the list for each remedy, from the last to the first, so that the last remedy varies
        // fastest.
        for remedy in catalogue::of_ladder().rev() {
            let possible = self.can_make(remedy.change);
            let more: Vec<State> = states.iter().map(|state| state.with(remedy.change)).collect();
            states.extend(more.into_iter().filter(|_| possible));
        }
        let mut distinct = Vec::new();
        for state in states {
            if !distinct.contains(&state) {
                distinct.push(state);
            }
        }
        distinct
    }

    /// Returns the state with all remedies of the ladder, even if it is not worth simulating.
    pub(crate) fn all_changed(&self) -> State {
        catalogue::of_ladder().fold(self.present(), |state, remedy| state.with(remedy.change))
    }

    /// Returns whether `change` has an effect on this path. Buffers for a multiple of the BDP may be smaller
    /// than the present ones.
    pub(crate) fn can_make(&self, change: Change) -> bool {
        let known = self.path.link.is_some() || self.path.cap.is_some();
        let present = self.present();
        match change {
            Change::Buffers { .. } => known && self.buffers(present.with(change)) != self.buffers(present),
            _ => true,
        }
    }

    /// Returns the send and receive buffers of a state. Buffers are never lowered.
    pub(crate) fn buffers(&self, state: State) -> (Bytes, Bytes) {
        let Hosts { sndbuf, rcvbuf, rule, room, .. } = self.hosts;
        let Some(bdps) = state.buffers else { return (sndbuf, rcvbuf) };
        let bdp = self.bdp();
        let (send, receive) = (sndbuf_for(bdp, bdps), rcvbuf_for(bdp, bdps, rule));
        (sndbuf.max(send.min(room.0)), rcvbuf.max(receive.min(room.1)))
    }

    /// Returns the maximum window that the receiver advertises in a state.
    pub(crate) fn window(&self, state: State) -> Bytes {
        self.hosts.rule.window(self.buffers(state).1)
    }

    /// Returns the rates that the receive window and the send buffer allow in a state: bytes per round trip,
    /// times the number of flows.
    pub(crate) fn ceilings(&self, state: State) -> (Rate, Rate) {
        let flows = self.hosts.flows.max(1).max(state.connections.unwrap_or(1));
        let per_round_trip = |bytes| Rate::of(bytes, self.path.rtt).mul_div(flows, 1);
        let sendable = buffers::sendable(self.buffers(state).0);
        (per_round_trip(self.window(state)), per_round_trip(sendable))
    }

    /// Returns all runs, state by state: first those at the estimated loss, then those at its lower and upper
    /// bounds.
    pub(crate) fn jobs(&self, states: &[State]) -> Vec<Job> {
        let mut losses = vec![(self.path.loss, self.effort.seeds)];
        if let Some((low, high)) = self.path.loss_interval {
            losses.extend([low, high].map(|loss| (loss, self.effort.seeds_at_ends)));
        }
        let mut jobs = Vec::new();
        for &state in states {
            let size = if state.buffers.is_some() { "large" } else { "present" };
            for &(loss, seeds) in &losses {
                jobs.extend((0..seeds).map(|nth| Job {
                    label: format!("{} with {size} buffers", state.cc),
                    scenario: self.scenario(state, loss, self.first_seed().wrapping_add(nth)),
                }));
            }
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
            None => self.fitted(self.duration(state.cc), loss, seed),
        };
        state.set_in(&mut scenario, self.buffers(state));
        scenario
    }

    /// Returns a run on the path that the figures describe, with the hosts in their present state.
    fn fitted(&self, duration: Duration, loss: Probability, seed: u64) -> Scenario {
        let one_way = self.path.rtt / 2;
        let direction = |loss, queue| DirectionSpec::plain(self.bottleneck, one_way, loss, queue);
        let Hosts { cc, flows, kernel, sndbuf, rcvbuf, rule, .. } = self.hosts;
        let auto = |max| Buffer::Auto { max };
        Scenario {
            path: PathSpec {
                forward: direction(loss, self.bdp()),
                backward: direction(Probability::ZERO, Bytes::MAX),
                mtu: MTU,
            },
            host: HostSpec::plain(kernel.unwrap_or(RECENT), rule, auto(sndbuf), auto(rcvbuf)),
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
    use crate::remedy::NotSimulated;

    /// 1 Gbit/s at 210 ms and a loss of 20 ppm, between hosts with buffers of 4 MiB.
    pub(in crate::ladder) fn model() -> Model<'static> {
        let link = Rate::from_bps(1_000_000_000);
        let path = PathModel {
            link: Some(link),
            cap: None,
            at_least: link,
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
                shortest: second,
                packets: u64::MAX,
                packets_if_more: u64::MAX,
                most: u64::MAX,
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
                    change => model.can_make(change),
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

    /// An unknown link rate, and buffers that are already large, add no states.
    #[test]
    fn states_that_change_nothing_are_not_simulated() {
        let model = model();
        let sizes = |model: &Model<'_>| model.states().iter().map(|state| state.buffers).collect::<Vec<_>>();
        assert_eq!(sizes(&model), [None, Some(2), None, Some(2)]);
        let ample = Bytes::from_mib(64);
        let large = Model { hosts: Hosts { sndbuf: ample, rcvbuf: ample, ..model.hosts }, ..model };
        assert_eq!(sizes(&large), [None, None]);
        let unknown = Model { path: PathModel { link: None, ..model.path }, ..model };
        assert_eq!(sizes(&unknown), [None, None]);
        let paced = Model { hosts: Hosts { cc: Algorithm::Bbr1, ..model.hosts }, ..model };
        assert_eq!(sizes(&paced), [None, Some(2)]);
    }
}
