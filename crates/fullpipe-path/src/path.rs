//! A chain of elements in one direction.

use fullpipe_units::{Bytes, Instant};

use crate::{Hop, IidLoss};

/// What verdicts may know of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketInfo {
    /// Length in bytes, as the link counts it (IP header included).
    pub len: u32,
    /// Number of its flow, from zero.
    pub flow: u32,
    /// Whether it carries payload.
    pub kind: PacketKind,
}

/// Data or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketKind {
    /// Carries payload.
    Data,
    /// SYN, FIN or pure ACK.
    Control,
}

/// What became of a pushed packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is on its way.
    Accepted,
    /// A loss element took it.
    Lost,
    /// A queue had no room.
    QueueFull,
}

/// One element.
#[derive(Clone, Debug)]
pub enum Element<T> {
    /// Verdict: independent loss.
    Loss(IidLoss),
    /// Holder: queue, rate and delay.
    Hop(Hop<(PacketInfo, T)>),
}

/// Packets by fate, over the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that entered the path.
    pub offered: u64,
    /// Data packets that left it.
    pub delivered_data: u64,
    /// Other packets that left it.
    pub delivered_control: u64,
    /// Packets that a loss element took.
    pub random_drops: u64,
    /// Packets that found a queue full.
    pub queue_drops: u64,
}

/// Elements in the order in which packets meet them.
#[derive(Clone, Debug)]
pub struct Path<T> {
    elements: Vec<Element<T>>,
    /// Index of the last holder, whose exits leave the path (verdicts behind it are asked on exit).
    last_holder: usize,
    counters: Counters,
}

impl<T> Path<T> {
    /// A path of `elements`.
    ///
    /// # Panics
    /// If no element holds packets: a path that takes no time has no departures to ask for.
    pub fn new(elements: Vec<Element<T>>) -> Self {
        let last_holder = elements
            .iter()
            .rposition(|element| matches!(element, Element::Hop(_)))
            .expect("a path needs at least one hop");
        Self { elements, last_holder, counters: Counters::default() }
    }

    /// Offers a packet at `now`.
    pub fn push(&mut self, now: Instant, packet: PacketInfo, payload: T) -> Verdict {
        self.run_until(now);
        self.counters.offered += 1;
        self.enter(0, now, packet, payload)
    }

    /// The next packet to have left the path by `now`, with the time at which it left.
    pub fn pop(&mut self, now: Instant) -> Option<(Instant, T)> {
        self.run_until(now);
        loop {
            let Element::Hop(hop) = &mut self.elements[self.last_holder] else { return None };
            let (exit, _, (packet, payload)) = hop.pop(now)?;
            if self.lost_behind(packet) {
                continue;
            }
            match packet.kind {
                PacketKind::Data => self.counters.delivered_data += 1,
                PacketKind::Control => self.counters.delivered_control += 1,
            }
            return Some((exit, payload));
        }
    }

    /// When something happens next inside; [`Instant::FAR_FUTURE`] when nothing will.
    pub fn next_event(&self) -> Instant {
        if let [Element::Loss(_), Element::Hop(hop)] | [Element::Hop(hop)] = self.elements.as_slice() {
            return hop.next_exit();
        }
        self.holders().map(|(_, hop)| hop.next_exit()).min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Packets inside.
    pub fn in_flight(&self) -> usize {
        self.holders().map(|(_, hop)| hop.len()).sum()
    }

    /// Bytes waiting in all queues at `now`.
    pub fn backlog(&mut self, now: Instant) -> Bytes {
        self.run_until(now);
        let mut total = Bytes::ZERO;
        for element in &mut self.elements {
            if let Element::Hop(hop) = element {
                total += hop.backlog(now);
            }
        }
        total
    }

    /// Packets by fate so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn holders(&self) -> impl Iterator<Item = (usize, &Hop<(PacketInfo, T)>)> {
        self.elements.iter().enumerate().filter_map(|(i, element)| match element {
            Element::Hop(hop) => Some((i, hop)),
            Element::Loss(_) => None,
        })
    }

    /// Sends a packet through the elements from number `from` until one takes or holds it.
    fn enter(&mut self, from: usize, now: Instant, packet: PacketInfo, payload: T) -> Verdict {
        for element in &mut self.elements[from..] {
            match element {
                Element::Loss(loss) => {
                    if loss.loses(packet) {
                        self.counters.random_drops += 1;
                        return Verdict::Lost;
                    }
                }
                Element::Hop(hop) => {
                    if hop.push(now, packet.len, (packet, payload)) {
                        return Verdict::Accepted;
                    }
                    self.counters.queue_drops += 1;
                    return Verdict::QueueFull;
                }
            }
        }
        unreachable!("packets enter at or before the last holder")
    }

    fn lost_behind(&mut self, packet: PacketInfo) -> bool {
        for element in &mut self.elements[self.last_holder + 1..] {
            if let Element::Loss(loss) = element
                && loss.loses(packet)
            {
                self.counters.random_drops += 1;
                return true;
            }
        }
        false
    }

    /// Moves packets from inner holders onwards, each at its own exit time, in order of time.
    fn run_until(&mut self, now: Instant) {
        loop {
            let due = self
                .holders()
                .filter(|&(i, hop)| i != self.last_holder && hop.next_exit() <= now && !hop.is_empty())
                .min_by_key(|&(i, hop)| (hop.next_exit(), i))
                .map(|(i, _)| i);
            let Some(i) = due else { return };
            let Element::Hop(hop) = &mut self.elements[i] else { return };
            if let Some((exit, _, (packet, payload))) = hop.pop(now) {
                self.enter(i + 1, exit, packet, payload);
            }
        }
    }
}
