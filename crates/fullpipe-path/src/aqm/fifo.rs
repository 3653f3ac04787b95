//! FIFO queue of packets that wait for a link.

use std::collections::VecDeque;

use fullpipe_units::{Duration, Instant};

use crate::packet::PacketInfo;

/// A queued packet and its arrival time.
#[derive(Clone, Debug)]
pub(crate) struct QueuedPacket<T> {
    pub(crate) packet: PacketInfo,
    pub(crate) since: Instant,
    pub(crate) payload: T,
}

impl<T> QueuedPacket<T> {
    /// Returns the packet's sojourn time (RFC 8289), the time it has spent in the queue.
    pub(crate) fn sojourn(&self, now: Instant) -> Duration {
        now.saturating_since(self.since)
    }
}

/// A first-in, first-out queue that counts its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Fifo<T> {
    waiting: VecDeque<QueuedPacket<T>>,
    bytes: u64,
}

impl<T> Default for Fifo<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), bytes: 0 }
    }
}

impl<T> Fifo<T> {
    pub(crate) fn push(&mut self, waiting: QueuedPacket<T>) {
        self.bytes += u64::from(waiting.packet.len);
        self.waiting.push_back(waiting);
    }

    pub(crate) fn pop(&mut self) -> Option<QueuedPacket<T>> {
        let waiting = self.waiting.pop_front()?;
        self.bytes -= u64::from(waiting.packet.len);
        Some(waiting)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}
