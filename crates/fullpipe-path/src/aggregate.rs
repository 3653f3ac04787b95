//! Aggregation: packets are collected and released together.
//!
//! A cable modem does this between its grants, and Wi-Fi between two transmissions. A stream of ACKs leaves
//! it in bursts.
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
    /// Maximum time that the first packet of a batch waits for others.
    pub within: Duration,
    /// Batch size that is released without further waiting; at least one.
    pub packets: u32,
}

/// An element that releases packets in batches.
#[derive(Clone, Debug)]
pub struct Aggregator<T> {
    config: AggregatorConfig,
    held: ExitQueue<T>,
    /// Number of packets in the batch that is still open, and the time of its release.
    open: usize,
    due: Instant,
}

impl<T> Aggregator<T> {
    /// Creates an empty aggregator.
    pub fn new(config: AggregatorConfig) -> Self {
        Self { config, held: ExitQueue::new(), open: 0, due: Instant::ZERO }
    }

    pub(crate) fn push(&mut self, now: Instant, packet: PacketInfo, payload: T) {
        // A batch that was due has left, whether it was popped or not. A batch that is due now accepts no
        // more.
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

    /// Returns the time at which the next packet leaves; [`Instant::FAR_FUTURE`] when empty.
    pub fn next_exit(&self) -> Instant {
        self.held.next_exit()
    }

    /// Returns the oldest packet if it has left by `now`.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<(Instant, PacketInfo, T)> {
        self.held.pop(now)
    }

    /// Returns the number of packets inside.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Returns whether no packet is inside.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}
