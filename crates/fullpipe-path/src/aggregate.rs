//! Aggregation: packets are gathered and let go together, as a cable modem does between its grants and Wi-Fi between
//! two turns on the air. A stream of ACKs comes out of it in bursts.
//!
//! ```text
//!   arrivals   |  |  |  |      |   |  |
//!   exits              ||||            |||        `within` behind the first, or as soon as there are so many
//! ```

use fullpipe_units::{Duration, Instant};

use crate::packet::PacketInfo;
use crate::waiting::ExitQueue;

/// The parameters of an [`Aggregator`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AggregatorConfig {
    /// How long the first of a batch waits for others.
    pub within: Duration,
    /// So many packets do not wait longer; at least one.
    pub packets: u32,
}

/// Lets packets go in batches.
#[derive(Clone, Debug)]
pub struct Aggregator<T> {
    config: AggregatorConfig,
    held: ExitQueue<T>,
    /// The newest of those held that are still being joined by others, and when they all go.
    open: usize,
    due: Instant,
}

impl<T> Aggregator<T> {
    /// Nothing gathered yet.
    pub fn new(config: AggregatorConfig) -> Self {
        Self { config, held: ExitQueue::new(), open: 0, due: Instant::ZERO }
    }

    pub(crate) fn push(&mut self, now: Instant, packet: PacketInfo, payload: T) {
        // What was due has gone, whether or not anybody took it out. A batch that is due now takes no more.
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

    /// When the next packet leaves; [`Instant::FAR_FUTURE`] when empty.
    pub fn next_exit(&self) -> Instant {
        self.held.next_exit()
    }

    /// The oldest packet if it has left by `now`.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<(Instant, PacketInfo, T)> {
        self.held.pop(now)
    }

    /// Packets inside.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Nothing is inside.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}
