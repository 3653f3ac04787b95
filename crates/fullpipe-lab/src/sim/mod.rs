//! The loop with the virtual clock.
//!
//! ```text
//!   sender ──segments──► forward path ──packets──► receiver
//!      ▲                                              │
//!      └───────── backward path ◄──────ACKs───────────┘
//! ```
//!
//! Nothing is scheduled per packet. The next event is the earliest of: the head of each path, each
//! connection's own timer, the start of a flow, the next trace row. The loop jumps there, hands over
//! what is due, and asks whoever was touched what it wants to send. Events at the same time are taken
//! in a fixed order (forward, backward, timers by number, rows), so a run is a function of its scenario.

mod flow;
mod schedule;

use fullpipe_path::{
    BurstLoss, Element, Hop, HopConfig, IidLoss, LossUnit, PacketInfo, PacketKind, Path, Policer, Shaper,
    ShaperConfig,
};
use fullpipe_tcp::wire::{Flags, Segment};
use fullpipe_units::Instant;

use crate::capture::{NoTap, Tap};
use crate::outcome::{Outcome, PathOutcome, Work};
use crate::scenario::{DirectionSpec, LossPattern, Scenario};
use crate::trace::{Digest, NoTrace, PathState, Sink};
use flow::Flow;
use schedule::Schedule;

/// Runs a scenario to its end.
pub fn run(scenario: &Scenario) -> Outcome {
    run_traced(scenario, &mut NoTrace)
}

/// Runs a scenario to its end and hands every trace row to `sink`.
pub fn run_traced(scenario: &Scenario, sink: &mut impl Sink) -> Outcome {
    run_tapped(scenario, sink, &mut NoTap)
}

/// Runs a scenario to its end, hands every trace row to `sink` and shows `tap` what passes the senders' end of the path.
pub fn run_tapped(scenario: &Scenario, sink: &mut impl Sink, tap: &mut impl Tap) -> Outcome {
    World::new(scenario).run(sink, tap)
}

/// Which side of a flow something concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Sender,
    Receiver,
}

struct World<'s> {
    scenario: &'s Scenario,
    now: Instant,
    end: Instant,
    flows: Vec<Flow>,
    forward: Path<Segment>,
    backward: Path<Segment>,
    timers: Schedule,
    digest: Digest,
    events: u64,
}

impl<'s> World<'s> {
    fn new(scenario: &'s Scenario) -> Self {
        let flows: Vec<Flow> =
            scenario.flows.iter().enumerate().map(|(i, spec)| Flow::new(scenario, spec, i)).collect();
        let mut timers = Schedule::new(2 * flows.len());
        for (i, flow) in flows.iter().enumerate() {
            timers.set(2 * i, flow.starts_at());
        }
        Self {
            scenario,
            now: Instant::ZERO,
            end: Instant::ZERO + scenario.duration,
            flows,
            forward: direction(&scenario.path.forward, scenario.seed, 0),
            backward: direction(&scenario.path.backward, scenario.seed, 1),
            timers,
            digest: Digest::default(),
            events: 0,
        }
    }

    fn run(mut self, sink: &mut impl Sink, tap: &mut impl Tap) -> Outcome {
        let mut next_row = Instant::ZERO + self.scenario.sample_every;
        loop {
            let forward = self.forward.next_event();
            let backward = self.backward.next_event();
            let timer = self.timers.bound();
            let next = forward.min(backward).min(timer).min(next_row);
            if next > self.end {
                break;
            }
            self.now = next;
            if next == forward {
                self.deliver(Side::Receiver, tap);
            } else if next == backward {
                self.deliver(Side::Sender, tap);
            } else if next == timer {
                self.events += 1;
                if let Some(which) = self.timers.settle() {
                    self.fire_timer(which, tap);
                }
            } else {
                self.events += 1;
                self.sample(sink);
                next_row += self.scenario.sample_every;
            }
        }
        self.now = self.end;
        self.outcome()
    }

    /// Hands over what leaves a path now.
    fn deliver(&mut self, side: Side, tap: &mut impl Tap) {
        loop {
            let Self { now, flows, forward, backward, .. } = self;
            let path = if side == Side::Receiver { forward } else { backward };
            let number = path.pop_with(*now, |packet, segment| {
                let flow = &mut flows[packet.flow as usize];
                match side {
                    Side::Receiver => flow.receiver_takes(*now, segment),
                    Side::Sender => {
                        tap.arrives(*now, packet.flow, segment);
                        flow.sender_takes(*now, segment);
                    }
                }
                packet.flow as usize
            });
            let Some(number) = number else { return };
            self.events += 1;
            self.transmit(number, side, tap);
        }
    }

    fn fire_timer(&mut self, which: usize, tap: &mut impl Tap) {
        let (number, side) = (which / 2, if which.is_multiple_of(2) { Side::Sender } else { Side::Receiver });
        let flow = &mut self.flows[number];
        match side {
            Side::Sender => flow.sender_timeout(self.now),
            Side::Receiver => flow.receiver_timeout(self.now),
        }
        self.transmit(number, side, tap);
    }

    /// Puts on the path whatever one side of a flow wants to send, and notes its next timer.
    fn transmit(&mut self, number: usize, side: Side, tap: &mut impl Tap) {
        let flow = &mut self.flows[number];
        let (connection, path) = match side {
            Side::Sender => (&mut flow.sender, &mut self.forward),
            Side::Receiver => (&mut flow.receiver, &mut self.backward),
        };
        while let Some(transmit) = connection.poll_transmit(self.now) {
            let whole = &transmit.segment;
            let header_len = whole.header_len();
            let kind = if whole.len > 0 { PacketKind::Data } else { PacketKind::Control };
            let mut sent = 0;
            loop {
                let rest = whole.len - sent;
                let len = if transmit.gso_size == 0 { rest } else { rest.min(transmit.gso_size) };
                let info =
                    PacketInfo { len: header_len + len, flow: number as u32, kind, continues: sent > 0 };
                // Segmentation leaves it with the last one.
                let flags = if len == rest { whole.flags } else { whole.flags.without(Flags::PSH) };
                let segment = || Segment { seq: whole.seq.plus(sent.into()), len, flags, ..*whole };
                // The verdict is in the path's counters; the sender learns of it as senders do.
                let verdict = path.push_with(self.now, info, segment);
                if side == Side::Sender {
                    tap.leaves(self.now, info.flow, &segment(), verdict);
                }
                sent += len;
                if sent == whole.len {
                    break;
                }
            }
        }
        let index = 2 * number + usize::from(side == Side::Receiver);
        self.timers.set(index, flow.next_timeout(side == Side::Sender));
    }

    fn sample(&mut self, sink: &mut impl Sink) {
        for (number, flow) in self.flows.iter_mut().enumerate() {
            let path = PathState::of(&mut self.forward, self.now, number as u32);
            let row = flow.row(self.now, number as u32, path);
            flow.remember(&row);
            self.digest.row(&row);
            sink.row(&row);
        }
    }

    fn outcome(mut self) -> Outcome {
        let path = self.forward.counters();
        for value in [path.offered, path.delivered_data, path.random_drops, path.policed, path.queue_drops] {
            self.digest.add(value);
        }
        Outcome {
            flows: self.flows.iter().map(|flow| flow.outcome(self.now)).collect(),
            path: PathOutcome {
                delivered: path.delivered_data,
                queue_drops: path.queue_drops,
                random_drops: path.random_drops,
                policed: path.policed,
            },
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

/// Builds one direction of a path, as every world crosses it; `number` keeps its draws apart from the other's.
pub fn direction<T>(spec: &DirectionSpec, seed: u64, number: u64) -> Path<T> {
    let mut elements = Vec::new();
    let of = |unit| Element::Loss(IidLoss::new(spec.loss, unit, seed, number));
    match spec.loss_pattern {
        _ if spec.loss.is_zero() => {}
        LossPattern::Independent => elements.push(of(LossUnit::Packet)),
        LossPattern::SuperPackets => elements.push(of(LossUnit::SuperPacket)),
        LossPattern::Bursts(burst) => {
            elements.push(Element::BurstLoss(BurstLoss::new(spec.loss, burst, seed, number)));
        }
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
    elements.push(Element::Hop(Hop::new(HopConfig {
        rate: spec.rate,
        delay: spec.delay,
        queue: spec.queue,
    })));
    Path::new(elements)
}
