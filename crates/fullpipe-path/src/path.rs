//! A chain of elements in one direction.

use fullpipe_units::{Bytes, Duration, Instant};

use crate::element::Element;
use crate::ledger::{Counters, Ledger};
use crate::packet::{Exit, Note, PacketInfo, Verdict};

/// How long holders have been busy, over the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Busy {
    /// The link that sent longest.
    pub link: Duration,
    /// The shaper that made packets wait longest.
    pub shaper: Duration,
}

/// Elements in the order in which packets meet them.
#[derive(Clone, Debug)]
pub struct Path<T> {
    elements: Vec<Element<T>>,
    /// Index of the last holder, whose exits leave the path (verdicts behind it are asked on exit).
    last_holder: usize,
    /// Index of the first: between the two packets have to be moved on.
    first_holder: usize,
    /// All before the last element say yes or no, and it is a hop: nothing else can happen to a packet.
    plain: bool,
    ledger: Ledger<T>,
    /// When something happens next inside: asked for before each event, and changed only by a packet or by a look
    /// inside.
    next_event: Instant,
}

impl<T> Path<T> {
    /// A path of `elements`.
    ///
    /// # Panics
    /// If no element holds packets: a path that takes no time has no departures to ask for. And if packets are
    /// duplicated behind the last element that holds them: the copy would have nowhere to be.
    pub fn new(elements: Vec<Element<T>>) -> Self {
        let last_holder =
            elements.iter().rposition(Element::is_holder).expect("a path needs at least one hop or shaper");
        let behind = &elements[last_holder..];
        assert!(
            !behind.iter().any(|element| matches!(element, Element::Duplication(_))),
            "packets are duplicated in front of an element that holds them"
        );
        let first_holder = elements.iter().position(Element::is_holder).unwrap_or(last_holder);
        let plain = matches!(elements.last(), Some(Element::Hop(_)))
            && elements[..last_holder].iter().all(Element::only_judges);
        let (ledger, next_event) = (Ledger::default(), Instant::FAR_FUTURE);
        Self { elements, last_holder, first_holder, plain, ledger, next_event }
    }

    /// From now on what happens to packets inside is noted, for [`Path::next_note`]: for those who hold the packets'
    /// bytes and must know how many of each there are.
    pub fn keep_notes(&mut self) {
        self.ledger.keep_notes();
    }

    /// The oldest note that has not been taken.
    pub fn next_note(&mut self) -> Option<Note<T>> {
        self.ledger.next_note()
    }

    /// When something happens next inside; [`Instant::FAR_FUTURE`] when nothing will.
    #[inline]
    pub fn next_event(&self) -> Instant {
        self.next_event
    }

    /// Packets inside.
    pub fn in_flight(&self) -> usize {
        self.elements.iter().map(Element::len).sum()
    }

    /// Packets by fate so far.
    pub fn counters(&self) -> Counters {
        self.ledger.counters
    }

    /// Notes the next event, after packets have entered, moved or left.
    fn look_ahead(&mut self) {
        let holders = self.elements[self.first_holder..=self.last_holder].iter();
        self.next_event = holders.map(Element::next_event).min().unwrap_or(Instant::FAR_FUTURE);
    }
}

impl<T: Clone> Path<T> {
    /// Offers a packet at `now`.
    pub fn push(&mut self, now: Instant, packet: PacketInfo, payload: T) -> Verdict {
        self.push_with(now, packet, || payload)
    }

    /// Offers a packet at `now`. On a path of verdicts and a hop its payload is made once the packet is accepted,
    /// where it will lie: in the packet loop a copy is most of what a queue costs.
    #[inline]
    pub fn push_with(&mut self, now: Instant, packet: PacketInfo, payload: impl FnOnce() -> T) -> Verdict {
        self.ledger.counters.offered += 1;
        if self.plain
            && let Some((Element::Hop(hop), verdicts)) = self.elements.split_last_mut()
        {
            if !verdicts.is_empty()
                && let Some(verdict) = ask(verdicts, now, packet)
            {
                self.ledger.counters.count(verdict);
                return verdict;
            }
            let Some(exit) = hop.push_with(now, packet, payload) else {
                self.ledger.counters.queue_drops += 1;
                return Verdict::QueueFull;
            };
            self.next_event = self.next_event.min(exit);
            return Verdict::Accepted;
        }
        self.run_until(now);
        let verdict = self.enter(0, now, packet, payload());
        self.look_ahead();
        verdict
    }

    /// The next packet to have left the path by `now`.
    pub fn pop(&mut self, now: Instant) -> Option<Exit<T>> {
        self.run_until(now);
        let exit = self.pop_last(now);
        self.look_ahead();
        exit
    }

    fn pop_last(&mut self, now: Instant) -> Option<Exit<T>> {
        loop {
            let (at, packet, payload) = self.elements[self.last_holder].pop(now, &mut self.ledger)?;
            if let Some(verdict) = self.verdict_behind(at, packet) {
                self.ledger.dropped_inside(packet, payload, verdict);
                continue;
            }
            self.ledger.counters.count_exit(packet.kind);
            return Some(Exit { at, packet, payload });
        }
    }

    /// Hands the next packet to have left the path by `now` to `take`, on a path of verdicts and a hop where it lies,
    /// without a copy. Marks are in the [`PacketInfo`] alone: the path does not look at the payload.
    #[inline]
    pub fn pop_with<R>(&mut self, now: Instant, take: impl FnOnce(PacketInfo, &mut T) -> R) -> Option<R> {
        if self.next_event > now {
            return None;
        }
        if self.plain
            && let Some(Element::Hop(hop)) = self.elements.last_mut()
        {
            let counters = &mut self.ledger.counters;
            let taken = hop.pop_with(now, |packet, payload| {
                counters.count_exit(packet.kind);
                take(packet, payload)
            });
            self.next_event = hop.next_exit();
            return taken;
        }
        self.pop(now).map(|mut exit| take(exit.packet, &mut exit.payload))
    }

    /// Bytes waiting in all queues at `now`.
    pub fn backlog(&mut self, now: Instant) -> Bytes {
        self.run_until(now);
        let Self { elements, ledger, .. } = self;
        let total =
            elements.iter_mut().fold(Bytes::ZERO, |total, element| total + element.backlog(now, ledger));
        self.look_ahead();
        total
    }

    /// How long its links and shapers, as `flow` meets them, have been kept busy by `now`: one that is the
    /// bottleneck nearly always.
    pub fn busy(&mut self, now: Instant, flow: u32) -> Busy {
        self.run_until(now);
        let Self { elements, ledger, .. } = self;
        let mut busy = Busy::default();
        for element in elements {
            element.add_busy(now, flow, &mut busy, ledger);
        }
        self.look_ahead();
        busy
    }

    /// Sends a packet through the elements from number `from` until one takes or holds it.
    fn enter(&mut self, from: usize, now: Instant, packet: PacketInfo, payload: T) -> Verdict {
        for (i, element) in self.elements.iter_mut().enumerate().skip(from) {
            if element.is_holder() {
                let verdict = element.hold(now, packet, payload, &mut self.ledger);
                self.ledger.counters.count(verdict);
                return verdict;
            }
            if element.doubles(packet) {
                self.ledger.duplicated(packet, &payload);
                let verdict = self.enter(i + 1, now, packet, payload.clone());
                self.enter_noted(i + 1, now, packet, payload);
                return verdict;
            }
            if let Some(verdict) = element.verdict(now, packet) {
                self.ledger.counters.count(verdict);
                return verdict;
            }
        }
        unreachable!("packets enter at or before the last holder")
    }

    /// The same for a packet whose fate nobody is told.
    fn enter_noted(&mut self, from: usize, now: Instant, packet: PacketInfo, payload: T) {
        let spare = self.ledger.keeps_notes().then(|| payload.clone());
        let verdict = self.enter(from, now, packet, payload);
        if verdict != Verdict::Accepted
            && let Some(payload) = spare
        {
            self.ledger.note_drop(packet, payload, verdict);
        }
    }

    fn verdict_behind(&mut self, exit: Instant, packet: PacketInfo) -> Option<Verdict> {
        self.elements.iter_mut().skip(self.last_holder + 1).find_map(|element| element.verdict(exit, packet))
    }

    /// Runs what is due inside, each event at its own time, in order of time.
    fn run_until(&mut self, now: Instant) {
        loop {
            let inner = self.elements.iter().enumerate().take(self.last_holder).skip(self.first_holder);
            let due = inner
                .map(|(i, element)| (element.next_event(), i))
                .filter(|&(at, _)| at <= now && !at.is_never())
                .min();
            let Some((at, i)) = due else { return };
            // No further than that: what an element before it lets go in between has yet to enter it.
            if let Some((exit, packet, payload)) = self.elements[i].pop(at, &mut self.ledger) {
                self.enter_noted(i + 1, exit, packet, payload);
            }
        }
    }
}

/// What the first of `verdicts` to take a packet says; `None` if it passes them all. Apart from the way of a
/// packet that meets none.
#[inline(never)]
fn ask<T>(verdicts: &mut [Element<T>], now: Instant, packet: PacketInfo) -> Option<Verdict> {
    verdicts.iter_mut().find_map(|element| element.verdict(now, packet))
}
