//! Access links: a constant delay for each flow, behind the part of the path that all flows share.
//!
//! ```text
//!   shared hop ──► flow 0 ────────────────► its host
//!             ├──► flow 1 ──────────────────────────► its host
//!             └──► flow 2 ────────────────► its host
//! ```
//!
//! An access link has no rate and no queue, so packets of a flow keep their order and their spacing. Packets
//! of other flows may overtake them.

use fullpipe_units::{Duration, Instant};

use crate::packet::PacketInfo;
use crate::waiting::ExitQueue;

/// An element that delays the packets of each flow by a constant time.
#[derive(Clone, Debug)]
pub struct AccessLinks<T> {
    /// Links with different delays; the first one has no delay.
    links: Vec<AccessLink<T>>,
    /// Index of the link of each flow. Further flows use the first link.
    link_of: Vec<usize>,
    /// Number of packets that have entered.
    entered: u64,
}

/// The packets of all flows with the same delay. They leave in the order in which they enter, so no packets have
/// to be sorted.
#[derive(Clone, Debug)]
struct AccessLink<T> {
    delay: Duration,
    held: ExitQueue<Numbered<T>>,
}

/// A payload and the number of its packet among all packets that have entered.
#[derive(Clone, Debug)]
struct Numbered<T> {
    number: u64,
    payload: T,
}

impl<T> AccessLink<T> {
    const fn new(delay: Duration) -> Self {
        Self { delay, held: ExitQueue::new() }
    }

    /// Returns the time at which the next packet leaves, and the number of the packet.
    fn next(&self) -> (Instant, u64) {
        (self.held.next_exit(), self.held.first().map_or(u64::MAX, |first| first.number))
    }
}

impl<T> AccessLinks<T> {
    /// Creates empty access links. `delays` contains the delay of each flow, in the order of flow numbers.
    pub fn new(delays: &[Duration]) -> Self {
        let mut links = vec![AccessLink::new(Duration::ZERO)];
        let link_of = delays.iter().map(|&delay| {
            links.iter().position(|link| link.delay == delay).unwrap_or_else(|| {
                links.push(AccessLink::new(delay));
                links.len() - 1
            })
        });
        let link_of = link_of.collect();
        Self { links, link_of, entered: 0 }
    }

    pub(crate) fn push(&mut self, now: Instant, packet: PacketInfo, payload: T) {
        let link = self.link_of.get(packet.flow as usize).copied().unwrap_or(0);
        let AccessLink { delay, held } = &mut self.links[link];
        held.push(now + *delay, packet, Numbered { number: self.entered, payload });
        self.entered += 1;
    }

    /// Returns the time at which the next packet leaves the element, or [`Instant::FAR_FUTURE`] if the
    /// element is empty.
    pub fn next_exit(&self) -> Instant {
        self.links.iter().map(|link| link.held.next_exit()).min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Returns the next packet that has left by `now`. Packets that leave at the same time leave in the order in which
    /// they entered, so the order does not depend on when the element is queried.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<(Instant, PacketInfo, T)> {
        let first = self.links.iter_mut().min_by_key(|link| link.next())?;
        first.held.pop(now).map(|(exit, packet, Numbered { payload, .. })| (exit, packet, payload))
    }

    /// Returns the number of packets in the element.
    pub fn len(&self) -> usize {
        self.links.iter().map(|link| link.held.len()).sum()
    }

    /// Returns whether the element is empty.
    pub fn is_empty(&self) -> bool {
        self.links.iter().all(|link| link.held.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ecn, PacketKind};

    #[test]
    fn each_flow_has_its_own_delay_and_keeps_its_order() {
        let ms = Duration::from_millis;
        let mut links = AccessLinks::new(&[ms(30), Duration::ZERO, ms(30), ms(10)]);
        let at = |time| Instant::ZERO + ms(time);
        // Flow 4 is not in the list.
        for (number, (time, flow)) in
            [(0, 0), (0, 1), (5, 2), (20, 3), (29, 1), (29, 4), (30, 1), (31, 0)].into_iter().enumerate()
        {
            let packet =
                PacketInfo { flow, len: 1_500, kind: PacketKind::Data, continues: false, ecn: Ecn::NotEct };
            links.push(at(time), packet, number);
        }
        assert_eq!((links.len(), links.next_exit()), (8, at(0)));
        assert!(links.pop(Instant::ZERO).is_some_and(|(exit, packet, _)| (exit, packet.flow) == (at(0), 1)));
        let exits: Vec<_> =
            std::iter::from_fn(|| links.pop(at(1_000))).map(|(exit, _, n)| (exit, n)).collect();
        // Packets 0, 3 and 6 leave together, in the order in which they have entered.
        let expected =
            [(29, 4), (29, 5), (30, 0), (30, 3), (30, 6), (35, 2), (61, 7)].map(|(time, n)| (at(time), n));
        assert_eq!(exits, expected);
        assert!(links.is_empty() && links.next_exit().is_never());
    }
}
