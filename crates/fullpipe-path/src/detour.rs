//! A detour: an additional delay for a limited time, as after a route change.
//!
//! ```text
//!   delay                ┌─────── by ───────┐
//!          ──────────────┘                  └──────────────      by the packet's entry time
//!                      from               until
//! ```
//!
//! Packets keep their order: a packet that enters just after the end of the detour leaves together with the
//! last packet that took the detour.

use fullpipe_units::{Duration, Instant};

use crate::packet::PacketInfo;
use crate::waiting::ExitQueue;

/// The parameters of a [`Detour`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DetourConfig {
    /// Additional delay of each packet that enters during the detour.
    pub by: Duration,
    /// Start of the detour, relative to the start of the run.
    pub from: Duration,
    /// End of the detour, relative to the start of the run; [`Duration::MAX`] means the end of the run.
    pub until: Duration,
}

/// An element that adds a delay for a limited time, as a route change does.
#[derive(Clone, Debug)]
pub struct Detour<T> {
    by: Duration,
    from: Instant,
    until: Instant,
    held: ExitQueue<T>,
}

impl<T> Detour<T> {
    /// Creates an empty detour.
    pub fn new(config: DetourConfig) -> Self {
        let at = |time: Duration| Instant::from_nanos(time.as_nanos());
        Self { by: config.by, from: at(config.from), until: at(config.until), held: ExitQueue::new() }
    }

    pub(crate) fn push(&mut self, now: Instant, packet: PacketInfo, payload: T) {
        let longer = if (self.from..self.until).contains(&now) { self.by } else { Duration::ZERO };
        self.held.push((now + longer).max(self.held.last_exit()), packet, payload);
    }

    /// Returns the time at which the next packet leaves the element, or [`Instant::FAR_FUTURE`] if the
    /// element is empty.
    pub fn next_exit(&self) -> Instant {
        self.held.next_exit()
    }

    pub(crate) fn pop(&mut self, now: Instant) -> Option<(Instant, PacketInfo, T)> {
        self.held.pop(now)
    }

    /// Returns the number of packets in the element.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Returns whether the element is empty.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PacketKind;

    #[test]
    fn the_longer_way_is_for_those_who_enter_in_its_time() {
        let ms = Duration::from_millis;
        let mut detour = Detour::new(DetourConfig { by: ms(40), from: ms(100), until: ms(200) });
        let at = |time| Instant::ZERO + ms(time);
        let packet = PacketInfo {
            flow: 0,
            len: 1_500,
            kind: PacketKind::Data,
            continues: false,
            ecn: crate::Ecn::NotEct,
        };
        for time in [99, 100, 199, 200, 240] {
            detour.push(at(time), packet, time);
        }
        let exits: Vec<_> = std::iter::from_fn(|| detour.pop(at(1_000))).map(|(exit, ..)| exit).collect();
        assert_eq!(exits, [at(99), at(140), at(239), at(239), at(240)]);
    }
}
