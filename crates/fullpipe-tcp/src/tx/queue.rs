//! The send queue: what the application has written and the peer has not acknowledged.
//!
//! Unacknowledged data stays in the buffer, so a buffer of B bytes allows at most B bytes per round trip
//! whatever the windows say. It is less in practice: a writer that found the buffer full is woken only
//! when a third of it is free, so the flight swings between two thirds of B and B.

use fullpipe_units::Bytes;

use crate::buffers::{self, Buffer};

/// Positions and limits of the send queue.
#[derive(Clone, Debug)]
pub(crate) struct SendQueue {
    buffer: Buffer,
    /// Memory the queue may take now.
    sndbuf: u64,
    /// Offset behind the last byte written.
    written: u64,
    /// Offset of the first byte not acknowledged.
    una: u64,
    /// The application closed its side: nothing is written any more.
    closed: bool,
    /// A write found no room; cleared when the writer is woken.
    blocked: bool,
}

impl SendQueue {
    pub(crate) fn new(buffer: Buffer, initial_cwnd: u64, mss: u64) -> Self {
        let sndbuf = match buffer {
            Buffer::Fixed(size) => size.get(),
            Buffer::Auto { max } => buffers::autotuned_sndbuf(initial_cwnd, mss, 2).get().min(max.get()),
        };
        Self { buffer, sndbuf, written: 0, una: 0, closed: false, blocked: false }
    }

    /// Takes up to `len` bytes from the application; returns how many.
    ///
    /// The kernel asks for room once per packet buffer, which then takes up to `goal` bytes: the limit is
    /// overshot by less than one. That keeps even the smallest buffer sending, and a full one turning
    /// over in thirds: what a woken writer adds is never less than what was freed to wake it.
    pub(crate) fn write(&mut self, len: u64, goal: u64) -> u64 {
        if self.closed {
            return 0;
        }
        let queued = self.written - self.una;
        let room = buffers::sendable(Bytes::new(self.sndbuf)).get().saturating_sub(queued);
        let accepted = len.min(room.div_ceil(goal).saturating_mul(goal));
        self.written += accepted;
        self.blocked = accepted < len;
        accepted
    }

    /// Everything below `una` was acknowledged. True when a blocked writer can go on.
    pub(crate) fn on_acked(&mut self, una: u64) -> bool {
        self.una = self.una.max(una.min(self.written));
        if !self.blocked {
            return false;
        }
        self.blocked = !self.has_room();
        !self.blocked
    }

    /// Whether the writer can go on; if not, it waits to be woken.
    pub(crate) fn wait_for_room(&mut self) -> bool {
        self.blocked = !self.closed && !self.has_room();
        !self.closed && !self.blocked
    }

    /// Free space is at least half of what is queued, i.e. a third of the whole.
    fn has_room(&self) -> bool {
        let queued = self.written - self.una;
        queued + queued / 2 <= buffers::sendable(Bytes::new(self.sndbuf)).get()
    }

    /// Lets an autotuned buffer follow the congestion window: `factor` windows' worth of memory.
    pub(crate) fn autotune(&mut self, cwnd: u64, mss: u64, factor: u64) {
        if let Buffer::Auto { max } = self.buffer {
            let wanted = buffers::autotuned_sndbuf(cwnd, mss, factor).get().min(max.get());
            self.sndbuf = self.sndbuf.max(wanted);
        }
    }

    /// No more will be written.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    /// No more will be written.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Offset behind the last byte written.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Memory the queue may take now.
    pub(crate) fn sndbuf(&self) -> u64 {
        self.sndbuf
    }

    /// A write found no room and waits.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A full buffer wakes its writer at two thirds, not at the first free byte.
    #[test]
    fn a_blocked_writer_is_woken_at_two_thirds() {
        let mut queue = SendQueue::new(Buffer::Fixed(Bytes::new(609_375)), 14_480, 1448);
        let accepted = queue.write(1 << 30, 10_000);
        assert_eq!(accepted, 600_000);
        assert!(queue.is_blocked());
        assert!(!queue.on_acked(199_999));
        assert!(queue.on_acked(200_000));
        assert!(!queue.is_blocked());
        assert_eq!(queue.write(1 << 30, 10_000), 200_000);
    }

    /// The limit is overshot by at most one packet buffer.
    #[test]
    fn the_smallest_buffer_sends_a_packet_buffer_at_a_time() {
        let mut queue = SendQueue::new(Buffer::Fixed(Bytes::new(4_096)), 14_480, 1448);
        assert_eq!(queue.write(1 << 30, 65_160), 65_160);
        assert_eq!(queue.write(1 << 30, 65_160), 0);
        assert!(queue.on_acked(65_160));
    }

    /// Who wrote less than fits is not blocked, and yet not writable again before a third is free.
    #[test]
    fn room_means_a_third_of_the_buffer() {
        let mut queue = SendQueue::new(Buffer::Fixed(Bytes::new(609_375)), 14_480, 1448);
        assert_eq!(queue.write(400_001, 10_000), 400_001);
        assert!(!queue.is_blocked());
        assert!(!queue.wait_for_room() && queue.is_blocked());
        assert!(queue.on_acked(1));
        assert!(queue.wait_for_room());
    }

    #[test]
    fn autotuning_follows_the_window_up_to_its_limit() {
        let mut queue = SendQueue::new(Buffer::Auto { max: Bytes::from_mib(4) }, 14_480, 1448);
        assert_eq!(queue.sndbuf, 87_040);
        queue.autotune(100 * 1448, 1448, 2);
        assert_eq!(queue.sndbuf, 870_400);
        queue.autotune(10_000 * 1448, 1448, 2);
        assert_eq!(queue.sndbuf, 4_194_304);
    }
}
