//! Packets with known exit times, in exit order.

use std::collections::VecDeque;

use fullpipe_units::Instant;

use crate::packet::PacketInfo;

/// A FIFO of packets with their exit times, which never decrease.
#[derive(Clone, Debug)]
pub(crate) struct ExitQueue<T>(VecDeque<(Instant, PacketInfo, T)>);

impl<T> ExitQueue<T> {
    pub(crate) const fn new() -> Self {
        Self(VecDeque::new())
    }

    pub(crate) fn push(&mut self, exit: Instant, packet: PacketInfo, payload: T) {
        self.0.push_back((exit, packet, payload));
    }

    /// Sets the exit time of the newest `count` packets to `exit`. All earlier packets must leave no later
    /// than `exit`.
    pub(crate) fn release_newest(&mut self, count: usize, exit: Instant) {
        for waiting in self.0.iter_mut().rev().take(count) {
            waiting.0 = exit;
        }
    }

    /// Returns the time at which the next packet leaves the queue, or [`Instant::FAR_FUTURE`] if the queue is
    /// empty.
    pub(crate) fn next_exit(&self) -> Instant {
        self.0.front().map_or(Instant::FAR_FUTURE, |&(exit, ..)| exit)
    }

    /// Returns the payload of the next packet that leaves the queue.
    pub(crate) fn first(&self) -> Option<&T> {
        self.0.front().map(|(_, _, payload)| payload)
    }

    /// Returns the time at which the newest packet leaves the queue, or [`Instant::ZERO`] if the queue is
    /// empty.
    pub(crate) fn last_exit(&self) -> Instant {
        self.0.back().map_or(Instant::ZERO, |&(exit, ..)| exit)
    }

    /// Returns the oldest packet in the queue if its exit time is `now` or earlier.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<(Instant, PacketInfo, T)> {
        if self.next_exit() > now {
            return None;
        }
        self.0.pop_front()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
