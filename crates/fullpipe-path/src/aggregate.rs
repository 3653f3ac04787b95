//! An element that collects packets and releases them in batches.
//!
//! A cable modem aggregates packets between its transmission grants, and a Wi-Fi station between its
//! transmissions. ACKs therefore leave in bursts.
//!
//! ```text
//!   arrivals   |  |  |  |      |   |  |
//!   exits              ||||            |||        `within` after the first, or when the batch is full
//! ```

use fullpipe_units::{Duration, Instant};

use crate::packet::PacketInfo;
use crate::waiting::ExitQueue;

/// The parameters of an [`Aggregator`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AggregatorConfig {
    /// Maximum time for which the first packet of a batch waits for more packets.
    pub within: Duration,
    /// Maximum number of packets in a batch, at least one. A full batch is released immediately.
    pub packets: u32,
}

/// An element that releases packets in batches.
#[derive(Clone, Debug)]
pub struct Aggregator<T> {
    config: AggregatorConfig,
    held: ExitQueue<T>,
    /// Number of packets in the open batch (`open`), and the release time of the newest batch (`due`).
    open: usize,
    due: Instant,
}

impl<T> Aggregator<T> {
    /// Creates an empty aggregator.
    pub fn new(config: AggregatorConfig) -> Self {
        Self { config, held: ExitQueue::new(), open: 0, due: Instant::ZERO }
    }

    pub(crate) fn push(&mut self, now: Instant, packet: PacketInfo, payload: T) {
        // Once its release time has come, a batch accepts no more packets, even if it has not been popped
        // yet.
        if self.due <= now {
            self.open = 0;
        }
        if self.open == 0 {
            self.due = now + self.config.within;
        }
        self.held.push(self.due, packet, payload);
        self.open += 1;
        if self.open >= self.config.packets as usize {
            self.held.release_newest(self.open, now);
            self.open = 0;
        }
    }

    /// Returns the time at which the next packet leaves the element, or [`Instant::FAR_FUTURE`] if the
    /// element is empty.
    pub fn next_exit(&self) -> Instant {
        self.held.next_exit()
    }

    /// Returns the oldest packet in the element if its exit time is `now` or earlier.
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
