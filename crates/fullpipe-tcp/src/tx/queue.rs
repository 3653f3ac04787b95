//! The send queue: what the application has written and the peer has not acknowledged.
//!
//! Unacknowledged data stays in the buffer, so a buffer of B bytes allows about B bytes per round trip whatever
//! the windows say. It is less or more, for the kernel looks at the buffer at two moments only:
//!
//! ```text
//!   wake a writer    when what is queued takes no more than two thirds of the buffer
//!   begin a packet   when what is queued takes less than the buffer; adding to one is always free
//! ```
//!
//! An skb takes up to 64 KiB. A full one at the front is sent while the application goes on writing, a
//! transmission at a time, and what is left of it can be added to: one write puts in whatever the windows let out,
//! and 64 KiB more. A rest shorter than a segment that waits for an ACK (Minshall) lets the next write begin
//! in the same way. So a buffer of a few packets holds back much less than its size says, unless
//! whole skbs leave at once (fast paths) or the pacer keeps them (`docs/decisions/0011`).
//!
//! `TCP_NOTSENT_LOWAT` bounds what is queued and not sent in the same two places: less than it to begin a packet, less
//! than half of it to wake a writer (`tcp_stream_memory_free`).

use fullpipe_units::Bytes;

use crate::buffers::{self, Buffer, PACKET_BUFFER_MEMORY};

/// Positions and limits of the send queue.
#[derive(Clone, Debug)]
pub(crate) struct SendQueue {
    buffer: Buffer,
    /// Memory the queue may take now.
    sndbuf: u64,
    /// Unsent data from which on no packet is begun; `u64::MAX` for no limit.
    lowat: u64,
    /// Offset behind the last byte written.
    written: u64,
    /// Offset of the first byte not acknowledged.
    una: u64,
    /// Offset at which the skb at the back begins.
    back: u64,
    /// Payload of an skb before it is sent, and of one that has been: a transmission.
    packet: [u64; 2],
    /// The application closed its side: nothing is written any more.
    closed: bool,
    /// A write found no room; cleared when the writer is woken.
    blocked: bool,
}

/// What the sender lets out while the application writes, all in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outlet {
    /// Offset of the next new byte to send.
    pub(crate) nxt: u64,
    /// What windows and pacer leave now.
    pub(crate) room: u64,
    /// A transmission.
    pub(crate) quantum: u64,
    /// What an skb is filled with: up to 64 KiB of whole segments.
    pub(crate) goal: u64,
    /// After so much in one write, everything that may leave is sent: half of the peer's window.
    pub(crate) push_after: u64,
    /// Payload of a full segment.
    pub(crate) mss: u64,
    /// A rest shorter than a segment waits for more.
    pub(crate) short_waits: bool,
}

impl Outlet {
    /// The next byte to send once everything between `sent` and `written` that may leave has left.
    fn push(&self, sent: u64, written: u64) -> u64 {
        let left = self.room.saturating_sub(sent - self.nxt);
        let unsent = written - sent;
        if unsent <= left && !self.short_waits { written } else { sent + self.whole(unsent.min(left)) }
    }

    /// The next byte to send once one transmission has left as well.
    fn push_one(&self, sent: u64, written: u64) -> u64 {
        let left = self.room.saturating_sub(sent - self.nxt);
        sent + self.whole(self.quantum.min(left).min(written - sent))
    }

    fn whole(&self, len: u64) -> u64 {
        len / self.mss * self.mss
    }
}

impl SendQueue {
    pub(crate) fn new(buffer: Buffer, lowat: Option<Bytes>, initial_cwnd: u64, mss: u64) -> Self {
        let sndbuf = match buffer {
            Buffer::Fixed(size) => size.get(),
            Buffer::Auto { max } => buffers::autotuned_sndbuf(initial_cwnd, mss, 2).get().min(max.get()),
        };
        let lowat = lowat.map_or(u64::MAX, Bytes::get);
        let packet = [mss; 2];
        Self { buffer, sndbuf, lowat, written: 0, una: 0, back: 0, packet, closed: false, blocked: false }
    }

    /// Takes up to `len` bytes from the application in one write; returns how many.
    pub(crate) fn write(&mut self, len: u64, outlet: Outlet) -> u64 {
        if self.closed {
            return 0;
        }
        self.packet = [outlet.goal, outlet.quantum.min(outlet.goal)];
        // Each write ends with sending all that may leave, and so does each ACK.
        let mut sent = outlet.push(outlet.nxt, self.written);
        let (mut accepted, mut pushed) = (0, 0);
        while accepted < len {
            let mut filled = self.written - sent.max(self.back).min(self.written);
            if filled == 0 || filled >= outlet.goal {
                if self.is_full(sent) {
                    break;
                }
                (self.back, filled) = (self.written, 0);
            }
            let copied = (outlet.goal - filled).min(len - accepted);
            self.written += copied;
            accepted += copied;
            if filled + copied < outlet.goal {
                continue;
            }
            if accepted - pushed > outlet.push_after {
                pushed = accepted;
                sent = outlet.push(sent, self.written);
            } else if sent >= self.back {
                sent = outlet.push_one(sent, self.written);
            }
        }
        self.blocked = accepted < len;
        accepted
    }

    /// Everything below `una` was acknowledged, everything below `nxt` sent. True when a blocked writer can go on.
    #[inline]
    pub(crate) fn on_acked(&mut self, una: u64, nxt: u64) -> bool {
        self.una = self.una.max(una.min(self.written));
        if !self.blocked {
            return false;
        }
        self.blocked = !self.has_room(nxt);
        !self.blocked
    }

    /// Whether the writer can go on; if not, it waits to be woken.
    pub(crate) fn wait_for_room(&mut self, nxt: u64) -> bool {
        self.blocked = !self.closed && !self.has_room(nxt);
        !self.closed && !self.blocked
    }

    /// Free space is at least half of what is queued, i.e. a third of the whole, and little enough is unsent.
    fn has_room(&self, nxt: u64) -> bool {
        let fits = |memory: u64| memory + memory / 2 <= self.sndbuf;
        // Asked with every ACK, and mostly answered by the payload alone.
        fits(self.written - self.una) && fits(self.memory(nxt)) && self.unsent(nxt) < self.lowat.div_ceil(2)
    }

    /// Queued, and not among what is below `nxt`.
    fn unsent(&self, nxt: u64) -> u64 {
        self.written.saturating_sub(nxt)
    }

    /// No skb can be begun: what is written now goes into one that has been begun, if at all.
    pub(crate) fn is_full(&self, nxt: u64) -> bool {
        self.memory(nxt) >= self.sndbuf || self.unsent(nxt) >= self.lowat
    }

    /// Memory that the queue takes when everything below `nxt` has been sent.
    pub(crate) fn memory(&self, nxt: u64) -> u64 {
        let (queued, unsent) = (self.written - self.una, self.written - nxt.min(self.written));
        let packets =
            unsent.div_ceil(self.packet[0]) + (queued - unsent.min(queued)).div_ceil(self.packet[1]);
        queued + packets * PACKET_BUFFER_MEMORY
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

    const MSS: u64 = 1_448;
    /// An skb of whole segments.
    const GOAL: u64 = 45 * MSS;
    /// More than there is room for.
    const PLENTY: u64 = 1 << 30;
    /// What one write of iperf3 hands over.
    const BLOCK: u64 = 128 << 10;

    fn queue(sndbuf: u64) -> SendQueue {
        SendQueue::new(Buffer::Fixed(Bytes::new(sndbuf)), None, 10 * MSS, MSS)
    }

    /// A sender whose windows leave `room`, and which sends `quantum` at a time.
    fn outlet(nxt: u64, room: u64, quantum: u64) -> Outlet {
        Outlet { nxt, room, quantum, goal: GOAL, push_after: PLENTY, mss: MSS, short_waits: false }
    }

    /// A full buffer wakes its writer at two thirds, not at the first free byte.
    #[test]
    fn a_blocked_writer_is_woken_at_two_thirds() {
        let mut queue = queue(600_000);
        let written = queue.write(PLENTY, outlet(0, 0, GOAL));
        assert_eq!(written, 10 * GOAL, "nine leave room for one more to begin");
        assert!(queue.is_blocked() && queue.is_full(0));
        // Six skbs and a part of a seventh: 394 176 bytes take 400 000.
        assert!(!queue.on_acked(written - 394_177, written));
        assert!(queue.on_acked(written - 394_176, written));
        assert!(!queue.is_blocked());
    }

    /// The limit is overshot by at most one skb while nothing leaves, or while whole ones do.
    #[test]
    fn the_smallest_buffer_sends_a_packet_buffer_at_a_time() {
        for room in [0, PLENTY] {
            let mut queue = queue(4_096);
            assert_eq!(queue.write(PLENTY, outlet(0, room, GOAL)), GOAL);
            assert_eq!(queue.write(PLENTY, outlet(GOAL * u64::from(room > 0), room, GOAL)), 0);
        }
    }

    /// What is left of an skb that is sent piece by piece takes on what leaves, whatever the buffer
    /// allows: all that the window lets out, and one skb.
    #[test]
    fn a_packet_that_is_being_sent_goes_on_taking_data() {
        let taken = queue(16_384).write(PLENTY, outlet(0, 100 * MSS, 2 * MSS));
        assert_eq!(taken, 100 * MSS + GOAL);
        // Where the pacer lets one piece go, that is all: so many bytes iperf3 writes into a paced socket.
        assert_eq!(queue(16_384).write(PLENTY, outlet(0, 2 * MSS, 2 * MSS)), 68_056);
        // After half of the peer's window everything goes, and with it the packet that could be added to.
        let small_window = Outlet { push_after: 65_535, ..outlet(0, 100 * MSS, 2 * MSS) };
        assert_eq!(queue(16_384).write(PLENTY, small_window), 68_056);
    }

    /// A rest that waits for more is a packet that has been begun: the next write goes into it unasked.
    #[test]
    fn a_short_rest_opens_a_full_buffer() {
        let sent = BLOCK / MSS * MSS;
        for (short_waits, taken) in [(true, BLOCK), (false, 0)] {
            let mut queue = queue(16_384);
            assert_eq!(queue.write(BLOCK, outlet(0, PLENTY, 2 * MSS)), BLOCK);
            assert!(queue.is_full(sent) && !queue.is_blocked());
            let outlet = Outlet { short_waits, ..outlet(sent, PLENTY, 2 * MSS) };
            assert_eq!(queue.write(BLOCK, outlet), taken, "{short_waits}");
        }
    }

    /// Who wrote less than fits is not blocked, and yet not writable again before a third is free.
    #[test]
    fn room_means_a_third_of_the_buffer() {
        let mut queue = queue(600_000);
        assert_eq!(queue.write(394_177, outlet(0, 0, GOAL)), 394_177);
        assert!(!queue.is_blocked() && !queue.is_full(0));
        assert!(!queue.wait_for_room(394_177) && queue.is_blocked());
        assert!(queue.on_acked(1, 394_177));
        assert!(queue.wait_for_room(394_177));
    }

    /// `TCP_NOTSENT_LOWAT` counts what is unsent alone: packets are begun below it, and half of it wakes a writer.
    #[test]
    fn little_waits_unsent_where_that_is_asked_for() {
        let buffer = Buffer::Fixed(Bytes::from_mib(64));
        let mut queue = SendQueue::new(buffer, Some(Bytes::new(2 * GOAL + 1)), 10 * MSS, MSS);
        assert_eq!(
            queue.write(PLENTY, outlet(0, 0, GOAL)),
            3 * GOAL,
            "two are below it, and a third is begun"
        );
        assert!(queue.is_blocked() && queue.is_full(0));
        assert!(!queue.is_full(GOAL), "whoever writes all the same can begin one more");
        assert!(!queue.on_acked(1, 2 * GOAL - 1), "an skb and a byte are more than half");
        assert!(queue.on_acked(2, 2 * GOAL), "half of it, rounded up, is not reached");
        assert!(!queue.wait_for_room(2 * GOAL - 1));
    }

    #[test]
    fn autotuning_follows_the_window_up_to_its_limit() {
        let mut queue = SendQueue::new(Buffer::Auto { max: Bytes::from_mib(4) }, None, 14_480, 1448);
        assert_eq!(queue.sndbuf, 87_040);
        queue.autotune(100 * 1448, 1448, 2);
        assert_eq!(queue.sndbuf, 870_400);
        queue.autotune(10_000 * 1448, 1448, 2);
        assert_eq!(queue.sndbuf, 4_194_304);
    }
}
