//! Send queue: data that the application has written and the peer has not yet acknowledged.
//!
//! Unacknowledged data stays in the buffer. A buffer of B bytes therefore limits the sender to about B bytes
//! per round trip, even if the windows are larger. The actual amount may differ, because Linux checks the
//! buffer only on two occasions:
//!
//! ```text
//!   wake a writer    when the queued data takes at most two thirds of the buffer
//!   begin an skb     when the queued data takes less than the buffer; adding to an skb is always allowed
//! ```
//!
//! An skb takes up to 64 KiB. While the application continues to write, a full skb at the front is sent one
//! transmission at a time, and the remaining skb accepts more data. A single write therefore queues all data
//! that the windows release, plus 64 KiB. The same is true if a remainder shorter than a segment waits for an
//! ACK (Minshall). A buffer of a few skbs therefore limits the sender much less than its size suggests,
//! unless whole skbs leave at once (fast paths) or the pacer holds them (`docs/decisions/0011`).
//!
//! `TCP_NOTSENT_LOWAT` limits the unsent data on the same two occasions: Linux starts a new skb only below
//! the limit, and wakes a writer only below half of the limit (`tcp_stream_memory_free`). Transmissions wake
//! such a writer, because they reduce the unsent data. Without the limit, only ACKs make room.

use fullpipe_units::Bytes;

use crate::buffers::{self, Buffer, PACKET_BUFFER_MEMORY};

/// Positions and limits of the send queue.
#[derive(Clone, Debug)]
pub(crate) struct SendQueue {
    buffer: Buffer,
    /// Memory limit of the send queue, in bytes.
    sndbuf: u64,
    /// Amount of unsent data at which the queue starts no new skb (`TCP_NOTSENT_LOWAT`), in bytes; `u64::MAX`
    /// means no limit.
    lowat: u64,
    /// Stream offset after the last byte written.
    written: u64,
    /// Stream offset of the first unacknowledged byte.
    una: u64,
    /// Stream offset at which the last skb starts.
    back: u64,
    /// Payload length of an unsent skb and of a sent skb (one transmission), in bytes, in this order.
    packet: [u64; 2],
    /// Whether the application has closed its side of the connection.
    closed: bool,
    /// Whether a write has found no room. The flag is cleared when the writer is woken.
    blocked: bool,
}

/// Limits on the data that may leave while the application writes; all amounts are in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outlet {
    /// Stream offset of the next new byte to send.
    pub(crate) nxt: u64,
    /// Amount of data that the windows and the pacer currently allow.
    pub(crate) room: u64,
    /// Amount of data in one transmission.
    pub(crate) quantum: u64,
    /// Payload length of a full skb: up to 64 KiB of whole segments.
    pub(crate) goal: u64,
    /// Amount of data written in one call after which the sender sends all releasable data: half of the
    /// peer's window.
    pub(crate) push_after: u64,
    /// Payload length of a full-sized segment, in bytes.
    pub(crate) mss: u64,
    /// Whether the sender holds back a remainder shorter than a segment until more data is written.
    pub(crate) short_waits: bool,
}

impl Outlet {
    /// Returns the stream offset of the next byte to send after all releasable data between `sent` and
    /// `written` has left.
    fn push(&self, sent: u64, written: u64) -> u64 {
        let left = self.room.saturating_sub(sent - self.nxt);
        let unsent = written - sent;
        if unsent <= left && !self.short_waits { written } else { sent + self.whole(unsent.min(left)) }
    }

    /// Returns the stream offset of the next byte to send after one more transmission has left.
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

    /// Accepts up to `len` bytes from the application in one write, and returns the number of bytes accepted.
    pub(crate) fn write(&mut self, len: u64, outlet: Outlet) -> u64 {
        if self.closed {
            return 0;
        }
        self.packet = [outlet.goal, outlet.quantum.min(outlet.goal)];
        // At the end of each write and of each ACK, the sender sends all releasable data.
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

    /// Records that all data below `una` is acknowledged and all data below `nxt` is sent. Returns whether a
    /// blocked writer can continue. With a limit on unsent data, [`Self::on_sent`] decides instead whether
    /// the writer continues.
    #[inline]
    pub(crate) fn on_acked(&mut self, una: u64, nxt: u64) -> bool {
        self.una = self.una.max(una.min(self.written));
        self.lowat == u64::MAX && self.unblock(nxt)
    }

    /// Returns whether a blocked writer can continue, on a socket that limits unsent data. The caller must
    /// have sent all data that may leave, up to `nxt`. Linux wakes the writer after each transmission of new
    /// data (`tcp_event_new_data_sent`), but after an ACK only once it has sent the data that the ACK
    /// releases (`tcp_data_snd_check`).
    #[inline]
    pub(crate) fn on_sent(&mut self, nxt: u64) -> bool {
        self.lowat != u64::MAX && self.unblock(nxt)
    }

    /// Unblocks a blocked writer if there is room. Returns whether the writer was unblocked.
    #[inline]
    fn unblock(&mut self, nxt: u64) -> bool {
        if !self.blocked {
            return false;
        }
        self.blocked = !self.has_room(nxt);
        !self.blocked
    }

    /// Returns whether the writer can continue. If not, marks the writer as blocked.
    pub(crate) fn wait_for_room(&mut self, nxt: u64) -> bool {
        self.blocked = !self.closed && !self.has_room(nxt);
        !self.closed && !self.blocked
    }

    /// Returns whether at least a third of the buffer is free (half as much as is in use), and the unsent
    /// data is below half of its limit.
    fn has_room(&self, nxt: u64) -> bool {
        let fits = |memory: u64| memory + memory / 2 <= self.sndbuf;
        // This function runs for every ACK, and the payload alone usually determines the result.
        fits(self.written - self.una) && fits(self.memory(nxt)) && self.unsent(nxt) < self.lowat.div_ceil(2)
    }

    /// Returns the number of queued bytes at or above stream offset `nxt`.
    fn unsent(&self, nxt: u64) -> u64 {
        self.written.saturating_sub(nxt)
    }

    /// Returns whether no new skb can be started. Data can then only extend an existing skb.
    pub(crate) fn is_full(&self, nxt: u64) -> bool {
        self.memory(nxt) >= self.sndbuf || self.unsent(nxt) >= self.lowat
    }

    /// Returns the memory of the send queue in bytes if all data below `nxt` has been sent.
    pub(crate) fn memory(&self, nxt: u64) -> u64 {
        let (queued, unsent) = (self.written - self.una, self.written - nxt.min(self.written));
        let packets =
            unsent.div_ceil(self.packet[0]) + (queued - unsent.min(queued)).div_ceil(self.packet[1]);
        queued + packets * PACKET_BUFFER_MEMORY
    }

    /// Grows an autotuned send buffer with the congestion window, to the memory that `factor` windows occupy.
    pub(crate) fn autotune(&mut self, cwnd: u64, mss: u64, factor: u64) {
        if let Buffer::Auto { max } = self.buffer {
            let wanted = buffers::autotuned_sndbuf(cwnd, mss, factor).get().min(max.get());
            self.sndbuf = self.sndbuf.max(wanted);
        }
    }

    /// Closes the send queue for writing.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    /// Returns whether the send queue is closed for writing.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns the stream offset after the last byte written.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Returns the memory limit of the send queue, in bytes.
    pub(crate) fn sndbuf(&self) -> u64 {
        self.sndbuf
    }

    /// Returns whether the writer is blocked because the send queue has no room.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1_448;
    /// Payload length of an skb that consists of whole segments, in bytes.
    const GOAL: u64 = 45 * MSS;
    /// A write length that exceeds any free space, in bytes.
    const PLENTY: u64 = 1 << 30;
    /// Length of one iperf3 write, in bytes.
    const BLOCK: u64 = 128 << 10;

    fn queue(sndbuf: u64) -> SendQueue {
        SendQueue::new(Buffer::Fixed(Bytes::new(sndbuf)), None, 10 * MSS, MSS)
    }

    /// Returns the limits of a sender whose windows allow `room` bytes and that sends `quantum` bytes at a
    /// time.
    fn outlet(nxt: u64, room: u64, quantum: u64) -> Outlet {
        Outlet { nxt, room, quantum, goal: GOAL, push_after: PLENTY, mss: MSS, short_waits: false }
    }

    /// A writer on a full buffer is woken when at most two thirds of the buffer are in use, rather than at
    /// the first free byte.
    #[test]
    fn a_blocked_writer_is_woken_at_two_thirds() {
        let mut queue = queue(600_000);
        let written = queue.write(PLENTY, outlet(0, 0, GOAL));
        assert_eq!(written, 10 * GOAL, "nine leave room for one more to begin");
        assert!(queue.is_blocked() && queue.is_full(0));
        // Six skbs and part of a seventh are in use: 394 176 bytes of payload occupy 400 000 bytes of memory.
        assert!(!queue.on_acked(written - 394_177, written));
        assert!(queue.on_acked(written - 394_176, written));
        assert!(!queue.is_blocked());
    }

    /// Memory use exceeds the buffer limit by at most one skb, whether no skb leaves or whole skbs leave.
    #[test]
    fn the_smallest_buffer_sends_a_packet_buffer_at_a_time() {
        for room in [0, PLENTY] {
            let mut queue = queue(4_096);
            assert_eq!(queue.write(PLENTY, outlet(0, room, GOAL)), GOAL);
            assert_eq!(queue.write(PLENTY, outlet(GOAL * u64::from(room > 0), room, GOAL)), 0);
        }
    }

    /// An skb that leaves piece by piece accepts new data regardless of the buffer limit. The write accepts
    /// as much as the windows release, plus one skb.
    #[test]
    fn a_packet_that_is_being_sent_goes_on_taking_data() {
        let taken = queue(16_384).write(PLENTY, outlet(0, 100 * MSS, 2 * MSS));
        assert_eq!(taken, 100 * MSS + GOAL);
        // If the pacer has released one piece, the write accepts exactly this number of bytes, as measured
        // for iperf3 on a paced socket.
        assert_eq!(queue(16_384).write(PLENTY, outlet(0, 2 * MSS, 2 * MSS)), 68_056);
        // After a write of half of the peer's window, all data is sent, including an skb with room for more
        // data.
        let small_window = Outlet { push_after: 65_535, ..outlet(0, 100 * MSS, 2 * MSS) };
        assert_eq!(queue(16_384).write(PLENTY, small_window), 68_056);
    }

    /// A remainder that waits for more data is a partly filled skb. The next write therefore fills this skb,
    /// without a check of the buffer limit.
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

    /// A write that fits into the free space does not block the writer. The socket becomes writable again
    /// only when a third of the buffer is free.
    #[test]
    fn room_means_a_third_of_the_buffer() {
        let mut queue = queue(600_000);
        assert_eq!(queue.write(394_177, outlet(0, 0, GOAL)), 394_177);
        assert!(!queue.is_blocked() && !queue.is_full(0));
        assert!(!queue.wait_for_room(394_177) && queue.is_blocked());
        assert!(queue.on_acked(1, 394_177));
        assert!(queue.wait_for_room(394_177));
    }

    /// `TCP_NOTSENT_LOWAT` counts only unsent data. The queue starts new skbs below the limit, and wakes a
    /// writer below half of the limit.
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
        assert!(!queue.on_acked(1, 2 * GOAL), "the data that the ACK releases leaves first");
        assert!(!queue.on_sent(2 * GOAL - 1), "an skb and a byte are more than half");
        assert!(queue.on_sent(2 * GOAL), "half of it, rounded up, is not reached");
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
