//! One direction of a path: a chain of elements.

use fullpipe_units::{Bytes, Duration, Instant};

use crate::element::Element;
use crate::ledger::{Counters, Ledger};
use crate::packet::{Exit, Note, PacketInfo, Verdict};

/// Busy times of a path's links and shapers, over the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Busy {
    /// Total transmission time of the busiest link.
    pub link: Duration,
    /// Total time during which packets waited at the busiest shaper.
    pub shaper: Duration,
}

/// One direction of a path: elements in the order in which packets pass them.
#[derive(Clone, Debug)]
pub struct Path<T> {
    elements: Vec<Element<T>>,
    /// Index of the last holder: packets leave the path when they leave this element. Verdict elements behind
    /// the last holder are evaluated when a packet leaves.
    last_holder: usize,
    /// Index of the first holder. Packets are moved from element to element between the first and the last
    /// holder.
    first_holder: usize,
    /// Whether the path consists of one hop, preceded only by elements that accept or drop packets. A path of
    /// this kind uses faster code.
    plain: bool,
    ledger: Ledger<T>,
    /// Time of the next event on the path, cached because the event loop reads it before each event. It
    /// changes only when packets move or the state is queried.
    next_event: Instant,
}

impl<T> Path<T> {
    /// Creates a path of `elements`.
    ///
    /// # Panics
    /// Panics if no element is a holder, because such a path takes no time and has no departures. Panics if
    /// packets are duplicated behind the last holder, because no element could hold the copy.
    pub fn new(elements: Vec<Element<T>>) -> Self {
        let last_holder =
            elements.iter().rposition(Element::is_holder).expect("a path needs at least one hop or shaper");
        let behind = &elements[last_holder..];
        assert!(
            !behind.iter().any(|element| matches!(element, Element::Duplication(_))),
            "packets are duplicated behind the last element that can hold them"
        );
        let first_holder = elements.iter().position(Element::is_holder).unwrap_or(last_holder);
        let plain = matches!(elements.last(), Some(Element::Hop(_)))
            && elements[..last_holder].iter().all(Element::only_judges);
        let (ledger, next_event) = (Ledger::default(), Instant::FAR_FUTURE);
        Self { elements, last_holder, first_holder, plain, ledger, next_event }
    }

    /// Starts recording events inside the path for [`Path::next_note`]. Callers that store the packets' bytes
    /// need these notes to know the number of copies of each packet.
    pub fn keep_notes(&mut self) {
        self.ledger.keep_notes();
    }

    /// Removes and returns the oldest note.
    pub fn next_note(&mut self) -> Option<Note<T>> {
        self.ledger.next_note()
    }

    /// Returns the time of the next event on the path; [`Instant::FAR_FUTURE`] if no event is pending.
    #[inline]
    pub fn next_event(&self) -> Instant {
        self.next_event
    }

    /// Returns the number of packets on the path.
    pub fn in_flight(&self) -> usize {
        self.elements.iter().map(Element::len).sum()
    }

    /// Returns the number of packets for each outcome so far.
    pub fn counters(&self) -> Counters {
        self.ledger.counters
    }

    /// Updates the cached time of the next event after packets have entered, moved or left.
    fn look_ahead(&mut self) {
        let holders = self.elements[self.first_holder..=self.last_holder].iter();
        self.next_event = holders.map(Element::next_event).min().unwrap_or(Instant::FAR_FUTURE);
    }
}

impl<T: Clone> Path<T> {
    /// Offers a packet to the path at `now`.
    pub fn push(&mut self, now: Instant, packet: PacketInfo, payload: T) -> Verdict {
        self.push_with(now, packet, || payload)
    }

    /// Offers a packet to the path at `now`; `payload` constructs the packet's payload. If the path consists
    /// of verdict elements and one hop, the payload is constructed in place once the packet is accepted: a
    /// copy would account for most of the cost of the queue.
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

    /// Returns the next packet that has left the path by `now`.
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

    /// Passes the next packet that has left the path by `now` to `take`. If the path consists of verdict
    /// elements and one hop, the packet is not copied. ECN marks are only in the [`PacketInfo`], because the
    /// path does not read the payload.
    #[inline(always)] // part of a loop over all packets, in another crate
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

    /// Returns the number of bytes waiting in all queues at `now`.
    pub fn backlog(&mut self, now: Instant) -> Bytes {
        self.run_until(now);
        let Self { elements, ledger, .. } = self;
        let total =
            elements.iter_mut().fold(Bytes::ZERO, |total, element| total + element.backlog(now, ledger));
        self.look_ahead();
        total
    }

    /// Returns the busy times of links and shapers up to `now`. For a shaper with one bucket per flow, the
    /// busy time is that of the bucket of `flow`. An element that is busy nearly all the time is the
    /// bottleneck.
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

    /// Passes a packet through the elements, starting at index `from`, until one of them drops or holds it.
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

    /// Passes a packet through the elements like [`Path::enter`], and records a note if it is dropped.
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

    /// Runs the events on the path that are due by `now`, each at its own due time, in chronological order.
    fn run_until(&mut self, now: Instant) {
        loop {
            let inner = self.elements.iter().enumerate().take(self.last_holder).skip(self.first_holder);
            let due = inner
                .map(|(i, element)| (element.next_event(), i))
                .filter(|&(at, _)| at <= now && !at.is_never())
                .min();
            let Some((at, i)) = due else { return };
            // Advance this element only to `at`, because earlier elements may still release packets into it
            // before `now`.
            if let Some((exit, packet, payload)) = self.elements[i].pop(at, &mut self.ledger) {
                self.enter_noted(i + 1, exit, packet, payload);
            }
        }
    }
}

/// Returns the decision of the first of `verdicts` that drops the packet; `None` if all of them let it pass.
/// The function is not inlined, to keep the code for a path without verdict elements short.
#[inline(never)]
fn ask<T>(verdicts: &mut [Element<T>], now: Instant, packet: PacketInfo) -> Option<Verdict> {
    verdicts.iter_mut().find_map(|element| element.verdict(now, packet))
}
