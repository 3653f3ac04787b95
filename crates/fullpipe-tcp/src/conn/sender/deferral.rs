//! TSO deferral: a small transmission waits for the next ACK, so that more data leaves at once.
//!
//! Each transmission costs the host about the same, regardless of its length. Linux therefore leaves a part
//! of the windows unused while an ACK is about to make room for more (`tcp_tso_should_defer`):
//!
//! ```text
//!   wait if  the windows allow less than a send quantum, and less than a third of a window
//!       and  the last transmission left less than 1 ms ago
//!       and  the ACK of the oldest outstanding segment is due within 1 ms, and within half a round trip
//! ```
//!
//! A deferral has no timer. It ends when the expected ACK arrives, or when a timer that runs while data is
//! outstanding expires.
//!
//! Linux decides for the first skb of the queue; this engine treats all unsent data as one skb.

use fullpipe_units::{Duration, Instant};

use super::{Phase, Sender};
use crate::SendLimit;

/// Data waits only if the last transmission left less than this time ago and the next ACK is due within this
/// time.
const SOON: Duration = Duration::from_millis(1);
/// Divisor of the smaller window: new data leaves at once if the room is at least a third of that window
/// (`net.ipv4.tcp_tso_win_divisor`).
const WINDOW_DIVISOR: u64 = 3;

/// Reason why the next transmission would be small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::conn) enum Deferral {
    /// The congestion window has room for a part of the unsent data.
    Cwnd,
    /// The peer's window has room for a part of the unsent data.
    Rwnd,
    /// The windows have room for more data than the application has written.
    App,
}

impl Sender {
    /// Returns the reason why new data waits for the next ACK, or `None` if the data may leave at `now`.
    /// `cwnd_left` and `rwnd_left` are the free parts of the congestion window `cwnd` and of the peer's
    /// window, in bytes.
    #[inline]
    pub(in crate::conn) fn deferral(
        &self,
        now: Instant,
        cwnd: u64,
        cwnd_left: u64,
        rwnd_left: u64,
    ) -> Option<Deferral> {
        let (unsent, room) = (self.unsent(), cwnd_left.min(rwnd_left));
        // The send quantum comes last, because computing it may need a division.
        let defers = unsent > self.mss
            && room < cwnd.min(self.peer.wnd) / WINDOW_DIVISOR
            && self.recovery.phase == Phase::Open
            && self.config.tunables.tso_deferral
            && now.saturating_since(self.pacer.next_departure()) < SOON
            && self.expects_ack_soon(now)
            && room < self.release().quantum;
        if !defers {
            None
        } else if room > unsent {
            // The application can no longer add data to a closed stream.
            (!self.queue.is_closed()).then_some(Deferral::App)
        } else if cwnd_left < rwnd_left {
            Some(Deferral::Cwnd)
        } else {
            Some(Deferral::Rwnd)
        }
    }

    /// Returns whether the ACK of the oldest outstanding segment is due within [`SOON`] and within half of
    /// the SRTT. Without an outstanding segment, no ACK would end a deferral.
    fn expects_ack_soon(&self, now: Instant) -> bool {
        let srtt = self.rtt.srtt().unwrap_or(Duration::ZERO);
        let oldest = self.recovery.board.oldest();
        oldest.is_some_and(|oldest| oldest.sent_at + srtt <= now + SOON.min(srtt / 2))
    }

    /// Records a deferral and returns the limit to report.
    pub(in crate::conn) fn on_deferral(&mut self, deferral: Deferral) -> SendLimit {
        match deferral {
            Deferral::Cwnd => {
                // Count the congestion window as full although it has room; otherwise it would not grow.
                self.usage.on_send(self.snd_una, self.fresh.snd_nxt(), self.flight_size(), true);
                self.window_limit()
            }
            Deferral::Rwnd => SendLimit::Rwnd,
            Deferral::App if self.queue.is_blocked() => SendLimit::Sndbuf,
            Deferral::App => SendLimit::App,
        }
    }
}
