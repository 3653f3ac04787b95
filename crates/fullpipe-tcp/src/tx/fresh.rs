//! New-data sending: which new range is sent next, within windows and send buffer, and how it is sent.
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

/// How far new data has been sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewData {
    /// Offset of the next octet to be sent for the first time.
    snd_nxt: u64,
    /// End of the last short segment sent.
    short_until: u64,
    fin_sent: bool,
}

/// What new data may take, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    /// What the congestion window leaves.
    pub(crate) cwnd: u64,
    /// Of that, what one transmission may take.
    pub(crate) at_once: u64,
    /// What the peer's window leaves.
    pub(crate) rwnd: u64,
    /// Most to release at once.
    pub(crate) quantum: u64,
    /// First octet that is not acknowledged.
    pub(crate) snd_una: u64,
    /// Payload bytes of a full segment.
    pub(crate) mss: u64,
}

/// Why no new data is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// By the congestion window.
    Cwnd,
    /// By something that does not depend on congestion.
    Limit(SendLimit),
}

impl NewData {
    /// Offset of the next octet to be sent for the first time.
    #[inline(always)]
    pub(crate) fn snd_nxt(&self) -> u64 {
        self.snd_nxt
    }

    /// The FIN has been sent.
    #[inline(always)]
    pub(crate) fn fin_sent(&self) -> bool {
        self.fin_sent
    }

    /// A short segment is outstanding.
    #[inline(always)]
    pub(crate) fn short_outstanding(&self, snd_una: u64) -> bool {
        self.short_until > snd_una
    }

    /// Bytes that were written and have not been sent.
    #[inline(always)]
    pub(crate) fn unsent(&self, queue: &SendQueue) -> u64 {
        queue.written().saturating_sub(self.snd_nxt)
    }

    /// The FIN is next.
    #[inline(always)]
    pub(crate) fn fin_pending(&self, queue: &SendQueue) -> bool {
        queue.is_closed() && !self.fin_sent && self.unsent(queue) == 0
    }

    /// Length of the next new range, or what holds it back.
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
            // A short rest that waits for more: the writer is the limit, or the buffer it waits for.
            0 if queue.is_blocked() => Err(StopReason::Limit(SendLimit::Sndbuf)),
            0 => Err(StopReason::Limit(SendLimit::App)),
            len => Ok(len),
        }
    }

    /// Sends the next `len` bytes. Returns the transmission, and how many segments it is.
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
        let (mut at, end, mut segments) = (offset, offset + len, 0);
        while at < end {
            // At most one MSS, which fits.
            let piece = departure.mss.min(end - at) as u32;
            at += u64::from(piece);
            segments += 1;
            // Within a transmission each segment adds to what is in flight.
            let snapshot = RateSnapshot { tx_in_flight: inflight + (at - offset), ..snapshot };
            board.push_new(at - u64::from(piece), piece, false, departure.at, snapshot);
        }
        self.snd_nxt = end;
        if len < segments * departure.mss && !nodelay {
            self.short_until = end;
        }
        let header = departure.header(offset, Flags::ACK.with(Flags::PSH).with(flags), ecn);
        (Transmit::of_data(departure, header, len), segments)
    }

    /// Sends the FIN, which takes an octet of sequence space and has no payload.
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
