//! Transmission of new data: selects the next range, limited by the windows and the send buffer, and sends
//! it.
//!
//! ```text
//!   0 ........ snd_una ........ snd_nxt ........ written
//!     acknowledged     outstanding      unsent            then the FIN, which takes one octet
//! ```

use fullpipe_units::Ecn;

use super::build::{self, Room};
use super::queue::SendQueue;
use super::{Departure, Transmit};
use crate::SendLimit;
use crate::estimate::{DeliveryRate, RateSnapshot};
use crate::recovery::scoreboard::Scoreboard;
use crate::wire::Flags;

/// Sender's position in the stream of new data.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewData {
    /// Stream offset of the next octet to be sent for the first time (SND.NXT).
    snd_nxt: u64,
    /// Stream offset after the last short segment sent.
    short_until: u64,
    /// Stream offset after the last segment sent with PSH.
    pushed_until: u64,
    fin_sent: bool,
}

/// Limits on sending new data; all amounts are in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    /// Free part of the congestion window.
    pub(crate) cwnd: u64,
    /// Part of the congestion window that a single transmission may use.
    pub(crate) at_once: u64,
    /// Free part of the peer's receive window.
    pub(crate) rwnd: u64,
    /// Maximum amount of data to release at once.
    pub(crate) quantum: u64,
    /// Stream offset of the first unacknowledged octet.
    pub(crate) snd_una: u64,
    /// Payload length of a full-sized segment, in bytes.
    pub(crate) mss: u64,
}

/// Reason why no new data can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// The congestion window is full.
    Cwnd,
    /// A limit other than the congestion window prevents sending.
    Limit(SendLimit),
}

impl NewData {
    /// Returns the offset of the next octet to be sent for the first time (SND.NXT).
    #[inline(always)]
    pub(crate) fn snd_nxt(&self) -> u64 {
        self.snd_nxt
    }

    /// Returns whether the FIN has been sent.
    #[inline(always)]
    pub(crate) fn fin_sent(&self) -> bool {
        self.fin_sent
    }

    /// Returns whether a short segment is outstanding.
    #[inline(always)]
    pub(crate) fn short_outstanding(&self, snd_una: u64) -> bool {
        self.short_until > snd_una
    }

    /// Returns the number of bytes that the application has written and that have not been sent yet.
    #[inline(always)]
    pub(crate) fn unsent(&self, queue: &SendQueue) -> u64 {
        queue.written().saturating_sub(self.snd_nxt)
    }

    /// Returns whether the next `len` bytes are the last of a stream that the application has closed. Their
    /// last segment may then carry the FIN.
    #[inline(always)]
    pub(crate) fn ends_stream(&self, queue: &SendQueue, len: u64) -> bool {
        queue.is_closed() && self.snd_nxt + len == queue.written()
    }

    /// Returns whether the FIN is the next octet to send. This is the case if all data had left before the
    /// application closed its side, or if the peer's window had room for the data but not for the FIN.
    #[inline(always)]
    pub(crate) fn fin_pending(&self, queue: &SendQueue) -> bool {
        queue.is_closed() && !self.fin_sent && self.unsent(queue) == 0
    }

    /// Returns the length of the next range of new data, or the reason why no new data can be sent.
    #[inline(always)]
    pub(crate) fn next(&self, queue: &SendQueue, allowance: Allowance) -> Result<u64, StopReason> {
        let Allowance { cwnd, at_once, rwnd, quantum, snd_una, mss } = allowance;
        let unsent = self.unsent(queue);
        let short_outstanding = self.short_outstanding(snd_una);
        let last = queue.is_closed();
        let room = Room { unsent, cwnd: at_once, rwnd, quantum, short_outstanding, last };
        match build::next_length(room, mss) {
            0 if rwnd < mss.min(unsent) => Err(StopReason::Limit(SendLimit::Rwnd)),
            0 if cwnd < mss.min(unsent) => Err(StopReason::Cwnd),
            // A short remainder waits for more data. If the writer is blocked, the send buffer is the limit
            // to report; otherwise it is the application.
            0 if queue.is_blocked() => Err(StopReason::Limit(SendLimit::Sndbuf)),
            0 => Err(StopReason::Limit(SendLimit::App)),
            len => Ok(len),
        }
    }

    /// Returns whether the next `len` bytes must carry PSH. PSH is required if they are the last bytes
    /// written (RFC 9293 section 3.9.1.2, MUST-61), or if half of the largest window has been sent since the
    /// last PSH (Linux: `forced_push`).
    #[inline(always)]
    pub(crate) fn pushes(&self, queue: &SendQueue, len: u64, largest_window: u64) -> bool {
        let end = self.snd_nxt + len;
        end >= queue.written() || end > self.pushed_until + largest_window / 2
    }

    /// Sends the next `len` bytes. PSH and FIN, if `flags` contains them, are set in the last segment.
    /// Returns the transmission and its number of segments.
    #[inline(always)]
    pub(crate) fn send(
        &mut self,
        departure: Departure,
        board: &mut Scoreboard,
        rate: &mut DeliveryRate,
        len: u64,
        (ecn, flags): (Ecn, Flags),
        nodelay: bool,
    ) -> (Transmit, u64) {
        let inflight = board.inflight();
        let snapshot = rate.on_send(departure.at, inflight, len, board.lost_total());
        let offset = self.snd_nxt;
        let fin = flags.has(Flags::FIN);
        let (mut at, end, mut segments) = (offset, offset + len, 0);
        while at < end {
            // A piece is at most one MSS long, so its length fits into 32 bits.
            let piece = departure.mss.min(end - at) as u32;
            at += u64::from(piece);
            segments += 1;
            // The FIN occupies the octet after the last byte.
            let last = fin && at == end;
            // Each segment of a transmission increases the amount of data in flight.
            let tx_in_flight = inflight + (at - offset) + u64::from(last);
            let snapshot = RateSnapshot { tx_in_flight, ..snapshot };
            board.push_new(at - u64::from(piece), piece + u32::from(last), last, departure.at, snapshot);
        }
        self.snd_nxt = end + u64::from(fin);
        self.fin_sent |= fin;
        if flags.has(Flags::PSH) {
            board.set_push();
            self.pushed_until = end;
        }
        if len < segments * departure.mss && !nodelay {
            self.short_until = end;
        }
        let header = departure.header(offset, Flags::ACK.with(flags), ecn);
        (Transmit::of_data(departure, header, len), segments)
    }

    /// Sends the FIN in a segment without payload. The FIN occupies one octet of sequence space.
    pub(crate) fn send_fin(
        &mut self,
        departure: Departure,
        board: &mut Scoreboard,
        rate: &mut DeliveryRate,
    ) -> Transmit {
        let offset = self.snd_nxt;
        let snapshot = rate.on_send(departure.at, board.inflight(), 1, board.lost_total());
        board.push_new(offset, 1, true, departure.at, snapshot);
        self.snd_nxt += 1;
        self.fin_sent = true;
        let header = departure.header(offset, Flags::ACK.with(Flags::FIN), Ecn::NotEct);
        Transmit::of_data(departure, header, 0)
    }
}
