//! A chain of elements in one direction.

use fullpipe_units::{Bytes, Duration, Instant};

use crate::{BurstLoss, Hop, IidLoss, Policer, Shaper};

/// What verdicts may know of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketInfo {
    /// Length in bytes, as the link counts it (IP header included).
    pub len: u32,
    /// Number of its flow, from zero.
    pub flow: u32,
    /// Whether it carries payload.
    pub kind: PacketKind,
    /// It was cut from the same super-packet as the packet of its flow before it.
    pub continues: bool,
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
    /// A policer took it.
    Policed,
    /// A queue had no room.
    QueueFull,
}

/// One element.
#[derive(Clone, Debug)]
pub enum Element<T> {
    /// Verdict: independent loss.
    Loss(IidLoss),
    /// Verdict: loss in bursts.
    BurstLoss(BurstLoss),
    /// Verdict: drops what exceeds a rate and a burst.
    Policer(Policer),
    /// Holder: delays what exceeds a rate and a burst.
    Shaper(Shaper<(PacketInfo, T)>),
    /// Holder: queue, rate and delay.
    Hop(Hop<T>),
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
    /// Packets that a policer took.
    pub policed: u64,
    /// Packets that found a queue full.
    pub queue_drops: u64,
}

/// How long holders have been busy, over the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Busy {
    /// The link that sent longest.
    pub link: Duration,
    /// The shaper that made packets wait longest.
    pub shaper: Duration,
}

impl<T> Element<T> {
    /// It keeps packets for a time.
    fn is_holder(&self) -> bool {
        matches!(self, Self::Hop(_) | Self::Shaper(_))
    }

    /// When the next packet leaves; [`Instant::FAR_FUTURE`] for an empty holder and every verdict.
    fn next_exit(&self) -> Instant {
        match self {
            Self::Hop(hop) => hop.next_exit(),
            Self::Shaper(shaper) => shaper.next_exit(),
            Self::Loss(_) | Self::BurstLoss(_) | Self::Policer(_) => Instant::FAR_FUTURE,
        }
    }

    fn pop(&mut self, now: Instant) -> Option<(Instant, PacketInfo, T)> {
        match self {
            Self::Hop(hop) => hop.pop(now),
            Self::Shaper(shaper) => {
                let (exit, _, (packet, payload)) = shaper.pop(now)?;
                Some((exit, packet, payload))
            }
            Self::Loss(_) | Self::BurstLoss(_) | Self::Policer(_) => None,
        }
    }

    /// A verdict's answer; `None` lets the packet on, as holders do.
    fn verdict(&mut self, now: Instant, packet: PacketInfo) -> Option<Verdict> {
        match self {
            Self::Loss(loss) => loss.loses(packet).then_some(Verdict::Lost),
            Self::BurstLoss(loss) => loss.loses(packet).then_some(Verdict::Lost),
            Self::Policer(policer) => policer.drops(now, packet).then_some(Verdict::Policed),
            Self::Hop(_) | Self::Shaper(_) => None,
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Hop(hop) => hop.len(),
            Self::Shaper(shaper) => shaper.len(),
            Self::Loss(_) | Self::BurstLoss(_) | Self::Policer(_) => 0,
        }
    }
}

/// Elements in the order in which packets meet them.
#[derive(Clone, Debug)]
pub struct Path<T> {
    elements: Vec<Element<T>>,
    /// Index of the last holder, whose exits leave the path (verdicts behind it are asked on exit).
    last_holder: usize,
    /// All before the last element are verdicts, and it is a hop: nothing has to be moved inside.
    plain: bool,
    counters: Counters,
    /// The earliest exit from a holder: asked for before each event, and changed only by a packet.
    next_event: Instant,
}

impl<T> Path<T> {
    /// A path of `elements`.
    ///
    /// # Panics
    /// If no element holds packets: a path that takes no time has no departures to ask for.
    pub fn new(elements: Vec<Element<T>>) -> Self {
        let last_holder =
            elements.iter().rposition(Element::is_holder).expect("a path needs at least one hop or shaper");
        let plain = matches!(elements.last(), Some(Element::Hop(_)))
            && !elements[..last_holder].iter().any(Element::is_holder);
        let next_event = Instant::FAR_FUTURE;
        Self { elements, last_holder, plain, counters: Counters::default(), next_event }
    }

    /// Offers a packet at `now`.
    pub fn push(&mut self, now: Instant, packet: PacketInfo, payload: T) -> Verdict {
        self.push_with(now, packet, || payload)
    }

    /// Offers a packet at `now`. Its payload is made once the packet is accepted, where it will lie: in the
    /// packet loop a copy is most of what a queue costs.
    #[inline]
    pub fn push_with(&mut self, now: Instant, packet: PacketInfo, payload: impl FnOnce() -> T) -> Verdict {
        self.counters.offered += 1;
        if self.plain
            && let Some((Element::Hop(hop), verdicts)) = self.elements.split_last_mut()
        {
            if !verdicts.is_empty()
                && let Some(verdict) = ask(verdicts, now, packet)
            {
                self.counters.count(verdict);
                return verdict;
            }
            let Some(exit) = hop.push_with(now, packet, payload) else {
                self.counters.queue_drops += 1;
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

    /// The next packet to have left the path by `now`, with the time at which it left.
    pub fn pop(&mut self, now: Instant) -> Option<(Instant, T)> {
        self.pop_inner(now).map(|(exit, _, payload)| (exit, payload))
    }

    fn pop_inner(&mut self, now: Instant) -> Option<(Instant, PacketInfo, T)> {
        self.run_until(now);
        let popped = loop {
            let Some((exit, packet, payload)) = self.elements[self.last_holder].pop(now) else { break None };
            if self.last_holder + 1 < self.elements.len() && self.lost_behind(exit, packet) {
                continue;
            }
            self.counters.count_exit(packet.kind);
            break Some((exit, packet, payload));
        };
        self.look_ahead();
        popped
    }

    /// Hands the next packet to have left the path by `now` to `take`, where it lies, without a copy.
    #[inline]
    pub fn pop_with<R>(&mut self, now: Instant, take: impl FnOnce(PacketInfo, &T) -> R) -> Option<R> {
        if self.next_event > now {
            return None;
        }
        if self.plain
            && let Some(Element::Hop(hop)) = self.elements.last_mut()
        {
            let counters = &mut self.counters;
            let taken = hop.pop_with(now, |packet, payload| {
                counters.count_exit(packet.kind);
                take(packet, payload)
            });
            self.next_event = hop.next_exit();
            return taken;
        }
        self.pop_inner(now).map(|(_, packet, payload)| take(packet, &payload))
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

    /// Bytes waiting in all queues at `now`.
    pub fn backlog(&mut self, now: Instant) -> Bytes {
        self.run_until(now);
        self.look_ahead();
        let mut total = Bytes::ZERO;
        for element in &mut self.elements {
            match element {
                Element::Hop(hop) => total += hop.backlog(now),
                Element::Shaper(shaper) => total += shaper.backlog(now),
                Element::Loss(_) | Element::BurstLoss(_) | Element::Policer(_) => {}
            }
        }
        total
    }

    /// How long its links and shapers, as `flow` meets them, have been kept busy by `now`: one that is the
    /// bottleneck nearly always.
    pub fn busy(&mut self, now: Instant, flow: u32) -> Busy {
        self.run_until(now);
        self.look_ahead();
        let mut busy = Busy::default();
        for element in &self.elements {
            match element {
                Element::Hop(hop) => busy.link = busy.link.max(hop.busy(now)),
                Element::Shaper(shaper) => busy.shaper = busy.shaper.max(shaper.busy(now, flow)),
                Element::Loss(_) | Element::BurstLoss(_) | Element::Policer(_) => {}
            }
        }
        busy
    }

    /// Packets by fate so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Sends a packet through the elements from number `from` until one takes or holds it.
    fn enter(&mut self, from: usize, now: Instant, packet: PacketInfo, payload: T) -> Verdict {
        for element in &mut self.elements[from..] {
            let held = match element {
                Element::Hop(hop) => hop.push_with(now, packet, || payload).is_some(),
                Element::Shaper(shaper) => shaper.push(now, packet.flow, packet.len, (packet, payload)),
                verdict => match verdict.verdict(now, packet) {
                    None => continue,
                    Some(verdict) => {
                        self.counters.count(verdict);
                        return verdict;
                    }
                },
            };
            let verdict = if held { Verdict::Accepted } else { Verdict::QueueFull };
            self.counters.count(verdict);
            return verdict;
        }
        unreachable!("packets enter at or before the last holder")
    }

    fn lost_behind(&mut self, exit: Instant, packet: PacketInfo) -> bool {
        for element in &mut self.elements[self.last_holder + 1..] {
            if let Some(verdict) = element.verdict(exit, packet) {
                self.counters.count(verdict);
                return true;
            }
        }
        false
    }

    /// Moves packets from inner holders onwards, each at its own exit time, in order of time.
    fn run_until(&mut self, now: Instant) {
        loop {
            let inner = self.elements[..self.last_holder].iter().enumerate();
            let due = inner
                .map(|(i, element)| (element.next_exit(), i))
                .filter(|&(exit, _)| exit <= now && !exit.is_never())
                .min();
            let Some((_, i)) = due else { return };
            if let Some((exit, packet, payload)) = self.elements[i].pop(now) {
                self.enter(i + 1, exit, packet, payload);
            }
        }
    }

    /// Notes the next event, after packets have entered, moved or left.
    fn look_ahead(&mut self) {
        self.next_event = self.elements.iter().map(Element::next_exit).min().unwrap_or(Instant::FAR_FUTURE);
    }
}

/// What the first of `verdicts` to take a packet says; `None` if it passes them all. Apart from the way of a
/// packet that meets none.
#[inline(never)]
fn ask<T>(verdicts: &mut [Element<T>], now: Instant, packet: PacketInfo) -> Option<Verdict> {
    verdicts.iter_mut().find_map(|element| element.verdict(now, packet))
}

impl Counters {
    fn count_exit(&mut self, kind: PacketKind) {
        match kind {
            PacketKind::Data => self.delivered_data += 1,
            PacketKind::Control => self.delivered_control += 1,
        }
    }

    fn count(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Accepted => {}
            Verdict::Lost => self.random_drops += 1,
            Verdict::Policed => self.policed += 1,
            Verdict::QueueFull => self.queue_drops += 1,
        }
    }
}
