//! The element types, behind a common interface.

use fullpipe_units::{Bytes, Instant};

use crate::ledger::Ledger;
use crate::packet::{PacketInfo, Verdict};
use crate::path::Busy;
use crate::{
    AccessLinks, AckDecimation, Aggregator, BurstLoss, Detour, Duplication, Hop, IidLoss, Jitter, ManagedHop,
    Policer, Shaper,
};

/// One element of a path.
#[derive(Clone, Debug)]
pub enum Element<T> {
    /// Verdict element: drops packets at random, independently of each other.
    Loss(IidLoss),
    /// Verdict element: drops packets in random bursts.
    BurstLoss(BurstLoss),
    /// Verdict element: duplicates packets at random.
    Duplication(Duplication),
    /// Verdict element: drops pure ACKs (ACK decimation).
    AckDecimation(AckDecimation),
    /// Verdict element: drops packets that exceed a rate and a burst size.
    Policer(Policer),
    /// Holder: delays packets that exceed a rate and a burst size.
    Shaper(Shaper<(PacketInfo, T)>),
    /// Holder: a drop-tail queue, a link of constant rate and a propagation delay.
    Hop(Hop<T>),
    /// Holder: a queue with an AQM, a link with a constant rate or a trace, and a propagation delay.
    ManagedHop(Box<ManagedHop<T>>),
    /// Holder: releases packets in batches (ACK aggregation).
    Aggregator(Aggregator<T>),
    /// Holder: adds a delay for a limited time (route change).
    Detour(Detour<T>),
    /// Holder: adds a random delay (jitter).
    Jitter(Box<Jitter<T>>),
    /// Holder: adds a constant delay to each flow (different distances of the hosts).
    Access(AccessLinks<T>),
}

impl<T> Element<T> {
    /// Returns whether the element is a holder, which keeps packets and releases them later.
    pub(crate) fn is_holder(&self) -> bool {
        !matches!(
            self,
            Self::Loss(_)
                | Self::BurstLoss(_)
                | Self::Duplication(_)
                | Self::AckDecimation(_)
                | Self::Policer(_)
        )
    }

    /// Returns whether the element only accepts or drops packets.
    pub(crate) fn only_judges(&self) -> bool {
        !self.is_holder() && !matches!(self, Self::Duplication(_))
    }

    /// Returns the time of the element's next event, or [`Instant::FAR_FUTURE`] for empty holders and for
    /// verdict elements.
    pub(crate) fn next_event(&self) -> Instant {
        match self {
            Self::Hop(hop) => hop.next_exit(),
            Self::ManagedHop(hop) => hop.next_event(),
            Self::Shaper(shaper) => shaper.next_exit(),
            Self::Aggregator(aggregator) => aggregator.next_exit(),
            Self::Detour(detour) => detour.next_exit(),
            Self::Jitter(jitter) => jitter.next_exit(),
            Self::Access(links) => links.next_exit(),
            _ => Instant::FAR_FUTURE,
        }
    }

    /// Returns the next packet whose exit time is `now` or earlier.
    pub(crate) fn pop(&mut self, now: Instant, ledger: &mut Ledger<T>) -> Option<(Instant, PacketInfo, T)> {
        match self {
            Self::Hop(hop) => hop.pop(now),
            Self::Shaper(shaper) => {
                shaper.pop(now).map(|(exit, _, (packet, payload))| (exit, packet, payload))
            }
            Self::ManagedHop(hop) => hop.pop(now, ledger),
            Self::Aggregator(aggregator) => aggregator.pop(now),
            Self::Detour(detour) => detour.pop(now),
            Self::Jitter(jitter) => {
                let (exit, packet, payload, reordered) = jitter.pop(now)?;
                ledger.counters.reordered += u64::from(reordered);
                Some((exit, packet, payload))
            }
            Self::Access(links) => links.pop(now),
            _ => None,
        }
    }

    /// Passes a packet to a holder and returns its verdict; [`Verdict::QueueFull`] for a verdict element,
    /// which cannot hold packets.
    pub(crate) fn hold(
        &mut self,
        now: Instant,
        packet: PacketInfo,
        payload: T,
        ledger: &mut Ledger<T>,
    ) -> Verdict {
        let full = |held| if held { Verdict::Accepted } else { Verdict::QueueFull };
        match self {
            Self::Hop(hop) => full(hop.push_with(now, packet, || payload).is_some()),
            Self::Shaper(shaper) => full(shaper.push(now, packet.flow, packet.len, (packet, payload))),
            Self::ManagedHop(hop) => hop.push(now, packet, payload, ledger),
            Self::Aggregator(aggregator) => {
                aggregator.push(now, packet, payload);
                Verdict::Accepted
            }
            Self::Detour(detour) => {
                detour.push(now, packet, payload);
                Verdict::Accepted
            }
            Self::Jitter(jitter) => {
                jitter.push(now, packet, payload);
                Verdict::Accepted
            }
            Self::Access(links) => {
                links.push(now, packet, payload);
                Verdict::Accepted
            }
            _ => Verdict::QueueFull,
        }
    }

    /// Returns the decision of a verdict element on the packet, or `None` if the packet passes. A holder
    /// always returns `None`.
    pub(crate) fn verdict(&mut self, now: Instant, packet: PacketInfo) -> Option<Verdict> {
        match self {
            Self::Loss(loss) => loss.loses(packet).then_some(Verdict::Lost),
            Self::BurstLoss(loss) => loss.loses(packet).then_some(Verdict::Lost),
            Self::AckDecimation(thinning) => thinning.leaves_out(packet).then_some(Verdict::Thinned),
            Self::Policer(policer) => policer.drops(now, packet).then_some(Verdict::Policed),
            _ => None,
        }
    }

    /// Returns whether this packet is to be duplicated.
    pub(crate) fn doubles(&mut self, packet: PacketInfo) -> bool {
        match self {
            Self::Duplication(duplication) => duplication.doubles(packet),
            _ => false,
        }
    }

    /// Returns the number of packets in the element.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Hop(hop) => hop.len(),
            Self::ManagedHop(hop) => hop.len(),
            Self::Shaper(shaper) => shaper.len(),
            Self::Aggregator(aggregator) => aggregator.len(),
            Self::Detour(detour) => detour.len(),
            Self::Jitter(jitter) => jitter.len(),
            Self::Access(links) => links.len(),
            _ => 0,
        }
    }

    /// Returns the number of bytes waiting for a link or for tokens at `now`; bytes that are only delayed are
    /// not counted.
    pub(crate) fn backlog(&mut self, now: Instant, ledger: &mut Ledger<T>) -> Bytes {
        match self {
            Self::Hop(hop) => hop.backlog(now),
            Self::ManagedHop(hop) => hop.backlog(now, ledger),
            Self::Shaper(shaper) => shaper.backlog(now),
            _ => Bytes::ZERO,
        }
    }

    /// Updates `busy` with the busy time of this element up to `now`.
    pub(crate) fn add_busy(&mut self, now: Instant, flow: u32, busy: &mut Busy, ledger: &mut Ledger<T>) {
        match self {
            Self::Hop(hop) => busy.link = busy.link.max(hop.busy(now)),
            Self::ManagedHop(hop) => busy.link = busy.link.max(hop.busy(now, ledger)),
            Self::Shaper(shaper) => busy.shaper = busy.shaper.max(shaper.busy(now, flow)),
            _ => {}
        }
    }
}
