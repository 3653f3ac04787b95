//! The simulator's event loop and its virtual clock.
//!
//! ```text
//!   sender ──segments──► forward path ──packets──► receiver
//!      ▲                                              │
//!      └───────── backward path ◄──────ACKs───────────┘
//! ```
//!
//! No event is scheduled per packet. The next event is the earliest of: the departure of the next packet from
//! each path, each connection's own timer, the start of a flow, and the next trace row. The loop jumps to
//! that time, delivers the packets that are due, and polls each affected connection for segments to send.
//! Simultaneous events are processed in a fixed order (forward direction, backward direction, timers by
//! number, trace rows), so a run is a function of its scenario.

mod flow;
mod schedule;
mod team;

use fullpipe_path::{
    AccessLinks, AckDecimation, Aggregator, BurstLoss, Detour, Discipline, Duplication, Element, Hop,
    HopConfig, IidLoss, Jitter, LossUnit, ManagedHop, ManagedHopConfig, PacketInfo, PacketKind, Path,
    Policer, Service, Shaper, ShaperConfig, Verdict,
};
use fullpipe_tcp::Connection;
use fullpipe_tcp::memory::{Memory, PathMemory, SenderTotals};
use fullpipe_tcp::wire::Segment;
use fullpipe_units::{Duration, Instant, Rate, draw};

use crate::capture::{NoTap, Tap};
use crate::outcome::{Outcome, PathOutcome, Work};
use crate::scenario::{DirectionSpec, FlowSpec, LossPattern, Scenario};
use crate::trace::{Digest, PathState, Row, SenderTruth, Sink};
use flow::Flow;
pub use flow::connection;
use schedule::Schedule;
pub use team::{Team, TeamRates, run_team};

/// Runs a scenario to its end and returns the outcome.
pub fn run(scenario: &Scenario) -> Outcome {
    run_while(scenario, &|| true)
}

/// Runs a scenario like [`run`], but ends the run early once `goes_on` returns `false`. The event loop calls
/// `goes_on` every few milliseconds of real time. The outcome of a run that was ended early covers only the
/// time until then.
pub fn run_while(scenario: &Scenario, goes_on: &dyn Fn() -> bool) -> Outcome {
    run_traced(scenario, &mut UntracedWhile(goes_on))
}

/// Sink of a run without a trace that may be ended early.
struct UntracedWhile<'a>(&'a dyn Fn() -> bool);

impl Sink for UntracedWhile<'_> {
    fn row(&mut self, _: &Row) {}

    fn goes_on(&self) -> bool {
        self.0()
    }
}

/// Runs a scenario to its end, and passes every trace row to `sink`.
///
/// The sink is a trait object: a type parameter would compile the event loop once more in each crate that
/// runs a scenario, with the optimisation of that crate. The loop calls the sink only once per row.
pub fn run_traced(scenario: &Scenario, sink: &mut dyn Sink) -> Outcome {
    World::new(scenario).run(sink, &mut NoTap)
}

/// Runs a scenario to its end, passes every trace row to `sink`, and passes the segments at both ends of the
/// path to `tap`.
pub fn run_tapped(scenario: &Scenario, sink: &mut dyn Sink, tap: &mut dyn Tap) -> Outcome {
    World::new(scenario).run(sink, tap)
}

/// Number of event-loop iterations between two checks of whether the run should continue; this many
/// iterations take a few milliseconds.
const ASK_EVERY: u32 = 1 << 14;

/// Rate of the sending host's device, which is not the bottleneck.
const DEVICE_RATE: Rate = Rate::from_bps(10_000_000_000);
/// Interval at which the sending host reports the totals of its connections to the kill switch.
const OBSERVE_EVERY: Duration = Duration::from_secs(1);
/// Number of the random stream for the key of the path memory.
const MEMORY_STREAM: u64 = 0x7061_7468;

/// Path memory of the sending host of a pair.
struct HostMemory {
    memory: Memory,
    observed_at: Instant,
}

impl HostMemory {
    /// Creates the path memories of all sending hosts; returns an empty vector if hosts have no path memory.
    fn all(scenario: &Scenario, pairs: &[usize]) -> Vec<Self> {
        let hosts = pairs.iter().max().filter(|_| scenario.host.path_memory).map_or(0, |last| last + 1);
        let memory = |host| Memory::new(draw(scenario.seed, MEMORY_STREAM, host as u64), DEVICE_RATE);
        (0..hosts).map(|host| Self { memory: memory(host), observed_at: Instant::ZERO }).collect()
    }

    /// Lets the kill switch observe the connections of the host if the observation interval has passed.
    fn observe<'f>(&mut self, now: Instant, flows: impl Iterator<Item = &'f Flow>) {
        if now >= self.observed_at + OBSERVE_EVERY {
            self.observed_at = now;
            let totals = flows.map(|flow| flow.sender.sender_totals());
            self.memory.observe(now, totals.fold(SenderTotals::default(), SenderTotals::plus));
        }
    }
}

struct World<'s> {
    scenario: &'s Scenario,
    now: Instant,
    end: Instant,
    flows: Vec<Flow>,
    forward: Path<Segment>,
    backward: Path<Segment>,
    timers: Schedule,
    /// Number of the host pair of each flow.
    pairs: Vec<usize>,
    /// Path memories of the sending hosts; empty if hosts have none.
    memories: Vec<HostMemory>,
    digest: Digest,
    events: u64,
    /// Allocation of the last trace row's `truth`, to be reused for the next row.
    room: Option<Box<SenderTruth>>,
}

impl<'s> World<'s> {
    fn new(scenario: &'s Scenario) -> Self {
        let pairs = scenario.host_pairs();
        let flows: Vec<Flow> =
            scenario.flows.iter().enumerate().map(|(i, spec)| Flow::new(scenario, spec, i)).collect();
        let mut timers = Schedule::new(2 * flows.len());
        // One end of each flow has to be opened at the start time of the flow; the other end has no timer yet.
        for (i, flow) in flows.iter().enumerate() {
            timers.set(sender_timer(i), flow.sender_timer());
            timers.set(receiver_timer(i), flow.receiver_timer());
        }
        Self {
            scenario,
            now: Instant::ZERO,
            end: Instant::ZERO + scenario.duration,
            flows,
            forward: direction(&scenario.path.forward, &scenario.flows, scenario.seed, 0),
            backward: direction(&scenario.path.backward, &scenario.flows, scenario.seed, 1),
            timers,
            memories: HostMemory::all(scenario, &pairs),
            pairs,
            digest: Digest::default(),
            events: 0,
            room: None,
        }
    }

    fn run(mut self, sink: &mut dyn Sink, tap: &mut (impl Tap + ?Sized)) -> Outcome {
        let mut next_row = Instant::ZERO + self.scenario.sample_every;
        let mut iteration: u32 = 0;
        if let Some(grants) = sink.grants(self.now) {
            self.begin_team(grants, tap);
        }
        loop {
            iteration = iteration.wrapping_add(1);
            if iteration.is_multiple_of(ASK_EVERY) && !sink.goes_on() {
                break;
            }
            let forward = self.forward.next_event();
            let backward = self.backward.next_event();
            let timer = self.timers.bound();
            let next = forward.min(backward).min(timer).min(next_row);
            if next > self.end {
                break;
            }
            self.now = next;
            if next == forward {
                self.receivers_take(tap);
            } else if next == backward {
                self.senders_take(tap);
            } else if next == timer {
                self.events += 1;
                if let Some(which) = self.timers.settle() {
                    self.fire_timer(which, tap);
                }
            } else {
                self.events += 1;
                self.sample(sink);
                if let Some(grants) = sink.grants(self.now) {
                    self.grant(grants, tap);
                }
                next_row += self.scenario.sample_every;
            }
        }
        self.now = self.end;
        self.outcome()
    }

    /// Delivers the packets that leave the data direction now to their receivers.
    #[inline(always)] // runs once per packet; `release` does not optimise across crates by itself
    fn receivers_take(&mut self, tap: &mut (impl Tap + ?Sized)) {
        let now = self.now;
        while let Some(number) = self.forward.pop_with(now, |packet, segment| {
            segment.ecn = packet.ecn;
            tap.reaches(now, packet.flow, segment);
            self.flows[packet.flow as usize].receiver_takes(now, segment);
            packet.flow as usize
        }) {
            self.events += 1;
            self.receiver_sends(number, tap);
        }
    }

    /// Delivers the packets that leave the ACK direction now to their senders.
    #[inline(always)] // runs once per packet, like `receivers_take`
    fn senders_take(&mut self, tap: &mut (impl Tap + ?Sized)) {
        let now = self.now;
        while let Some(number) = self.backward.pop_with(now, |packet, segment| {
            segment.ecn = packet.ecn;
            tap.arrives(now, packet.flow, segment);
            let number = packet.flow as usize;
            let memory = self.memories.get(self.pairs[number]).map(|host| &host.memory);
            self.flows[number].sender_takes(now, segment, memory);
            number
        }) {
            self.events += 1;
            self.sender_sends(number, tap);
            self.sender_writes(number, tap);
        }
    }

    /// Lets the sending application of a flow write if it was woken. A kernel sends queued data before it
    /// wakes the writer (Linux: `tcp_data_snd_check`), so this function is called after
    /// [`Self::sender_sends`].
    #[inline]
    fn sender_writes(&mut self, number: usize, tap: &mut (impl Tap + ?Sized)) {
        let pair = self.pairs[number];
        if let Some(host) = self.memories.get_mut(pair) {
            let of_host = |flow: &usize| self.pairs[*flow] == pair;
            let flows = (0..self.flows.len()).filter(of_host).map(|flow| &self.flows[flow]);
            host.observe(self.now, flows);
        }
        // Sending may make the socket writable again.
        loop {
            let memory = self.memories.get_mut(pair).map(|host| &mut host.memory as &mut dyn PathMemory);
            if !self.flows[number].sender_writes(self.now, memory) {
                return;
            }
            self.sender_sends(number, tap);
        }
    }

    fn fire_timer(&mut self, which: usize, tap: &mut (impl Tap + ?Sized)) {
        let number = which / 2;
        let flow = &mut self.flows[number];
        if which == sender_timer(number) {
            flow.sender_timeout(self.now);
            self.sender_sends(number, tap);
            self.sender_writes(number, tap);
        } else {
            flow.receiver_timeout(self.now);
            self.receiver_sends(number, tap);
        }
    }

    /// Sends all pending segments of a flow's sender into the path, and sets the sender's next timer.
    fn sender_sends(&mut self, number: usize, tap: &mut (impl Tap + ?Sized)) {
        let Self { now, flows, forward, timers, .. } = self;
        let flow = &mut flows[number];
        send(&mut flow.sender, forward, *now, number as u32, |segment, verdict| {
            tap.leaves(*now, number as u32, segment, verdict);
        });
        timers.set(sender_timer(number), flow.sender_timer());
    }

    /// Sends all pending segments of a flow's receiver into the path, and sets the receiver's next timer.
    fn receiver_sends(&mut self, number: usize, tap: &mut (impl Tap + ?Sized)) {
        let Self { now, flows, backward, timers, .. } = self;
        let flow = &mut flows[number];
        if !flow.receiver.is_quiet() {
            send(&mut flow.receiver, backward, *now, number as u32, |segment, verdict| {
                tap.answers(*now, number as u32, segment, verdict);
            });
        }
        timers.set(receiver_timer(number), flow.receiver_timer());
    }

    fn sample(&mut self, sink: &mut dyn Sink) {
        for (number, flow) in self.flows.iter_mut().enumerate() {
            let path = PathState::of(&mut self.forward, self.now, number as u32);
            let row = flow.row(self.now, number as u32, path, self.room.take());
            flow.remember(&row);
            self.digest.row(&row);
            sink.row(&row);
            self.room = row.truth;
        }
    }

    fn outcome(mut self) -> Outcome {
        let path = self.forward.counters();
        for value in [path.offered, path.delivered_data, path.random_drops, path.policed, path.queue_drops] {
            self.digest.add(value);
        }
        Outcome {
            flows: self.flows.iter().map(|flow| flow.outcome(self.now)).collect(),
            path: PathOutcome::of(&path, &self.backward.counters()),
            work: self.work(),
            digest: self.digest.value(),
        }
    }

    fn work(&self) -> Work {
        let none = Work { events: self.events, ..Work::default() };
        self.flows.iter().map(|flow| flow.sender.stats()).fold(none, |work, stats| Work {
            acks: work.acks + stats.acks,
            records_visited: work.records_visited + stats.records_visited,
            ..work
        })
    }
}

/// Returns the timer number of a flow's sender; simultaneous timers fire in the order of their numbers.
const fn sender_timer(flow: usize) -> usize {
    2 * flow
}

/// Returns the timer number of a flow's receiver.
const fn receiver_timer(flow: usize) -> usize {
    2 * flow + 1
}

/// Sends the pending segments of `connection` into `path` at `now`. Super-segments are cut into wire
/// segments, and each wire segment is passed to `seen` together with the path's verdict. The function is not
/// inlined: most callers have nothing to send and need not save registers for it.
#[inline(never)]
fn send(
    connection: &mut Connection,
    path: &mut Path<Segment>,
    now: Instant,
    flow: u32,
    mut seen: impl FnMut(&Segment, Verdict),
) {
    // The super-packet is borrowed and segmented in place, without a copy.
    while let Some(transmit) = &mut connection.poll_transmit(now) {
        let whole = transmit.segment();
        let (header_len, ecn) = (whole.header_len(), whole.ecn);
        let kind = match whole.len {
            0 if whole.flags.is_plain() => PacketKind::Ack,
            0 => PacketKind::Control,
            _ => PacketKind::Data,
        };
        for piece in transmit.segments(0) {
            let (len, continues) = (header_len + piece.payload(), piece.start() > 0);
            // The path has counted the verdict. The sender is not informed of a loss; it has to detect the
            // loss.
            let packet = PacketInfo { len, flow, kind, continues, ecn };
            let verdict = path.push_with(now, packet, || piece.segment());
            seen(&piece.segment(), verdict);
        }
    }
}

/// Builds one direction of the path of `flows`, in the same way for the simulator, the emulator and guests.
/// `number` is 0 for the data direction and 1 for the ACK direction; it also selects the random streams, so
/// that the two directions have different random numbers.
pub fn direction<T: Clone>(spec: &DirectionSpec, flows: &[FlowSpec], seed: u64, number: u64) -> Path<T> {
    let mut elements = Vec::new();
    // Random streams are numbered 2 x element + direction. The number of the loss element is 0, so its
    // streams are 0 and 1.
    let draws = |element: u64| 2 * element + number;
    let of = |unit| Element::Loss(IidLoss::new(spec.loss, unit, seed, number));
    match spec.loss_pattern {
        _ if spec.loss.is_zero() => {}
        LossPattern::Independent => elements.push(of(LossUnit::Packet)),
        LossPattern::SuperPackets => elements.push(of(LossUnit::SuperPacket)),
        LossPattern::Bursts(burst) => {
            elements.push(Element::BurstLoss(BurstLoss::new(spec.loss, burst, seed, number)));
        }
    }
    if !spec.duplicate.is_zero() {
        elements.push(Element::Duplication(Duplication::new(spec.duplicate, seed, draws(1))));
    }
    if spec.ack_thinning > 1 {
        elements.push(Element::AckDecimation(AckDecimation::new(spec.ack_thinning)));
    }
    if let Some(policer) = &spec.policer {
        elements.push(Element::Policer(Policer::new(policer.rate, policer.burst, policer.scope)));
    }
    if let Some(shaper) = &spec.shaper {
        elements.push(Element::Shaper(Shaper::new(ShaperConfig {
            rate: shaper.rate,
            burst: shaper.burst,
            queue: shaper.queue,
            scope: shaper.scope,
        })));
    }
    elements.push(hop(spec, seed, draws(2)));
    if let Some(detour) = spec.detour {
        elements.push(Element::Detour(Detour::new(detour)));
    }
    if let Some(aggregation) = spec.aggregation {
        elements.push(Element::Aggregator(Aggregator::new(aggregation)));
    }
    if let Some(jitter) = spec.jitter {
        elements.push(Element::Jitter(Box::new(Jitter::new(jitter, seed, draws(3)))));
    }
    // In both directions, the access links are behind the shared part. A constant delay causes no queue, so
    // only the sum of both delays of a flow matters. If the access links were in front of the shared part,
    // the verdict on entry would not show its drops.
    let delays: Vec<_> = flows.iter().map(|flow| flow.access_delay(number)).collect();
    if delays.iter().any(|delay| !delay.is_zero()) {
        elements.push(Element::Access(AccessLinks::new(&delays)));
    }
    Path::new(elements)
}

/// If the parameters allow it, returns the faster kind of hop, which computes the departure of a packet as
/// soon as the packet enters.
fn hop<T>(spec: &DirectionSpec, seed: u64, element: u64) -> Element<T> {
    let DirectionSpec { rate, delay, queue, discipline, .. } = *spec;
    let service = match &spec.trace {
        None if discipline == Discipline::DropTail => {
            return Element::Hop(Hop::new(HopConfig { rate, delay, queue }));
        }
        None => Service::Rate(rate),
        Some(opportunities) => Service::Trace(opportunities.clone()),
    };
    let config = ManagedHopConfig { service, delay, queue, discipline };
    Element::ManagedHop(Box::new(ManagedHop::new(config, seed, element)))
}
