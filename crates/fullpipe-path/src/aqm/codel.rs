//! CoDel (RFC 8289): drops packets from a standing queue, and tolerates a queue that drains within one
//! interval.
//!
//! ```text
//!                sojourn >= target for a whole interval
//!   watching ───────────────────────────────────────────► dropping: one packet at each drop time,
//!      ▲                                                     the next interval / sqrt(count) later
//!      └────────────── sojourn < target ◄────────────────────┘
//! ```
//!
//! CoDel makes its decision when a packet is dequeued, based on the packet's sojourn time. With ECN enabled,
//! CoDel marks ECN-capable packets instead of dropping them (RFC 8290 section 5.2.6).

use fullpipe_units::{Duration, Instant};

use super::Ecn;
use super::fifo::{Fifo, QueuedPacket};
use crate::ledger::Ledger;
use crate::packet::Verdict;

/// The parameters of CoDel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodelConfig {
    /// Acceptable standing queue delay (RFC 8289 section 4: 5 ms).
    pub target: Duration,
    /// Time for which the queue delay may exceed the target before the first drop; about the longest typical
    /// RTT (RFC 8289 section 4: 100 ms).
    pub interval: Duration,
    /// Whether CoDel marks ECN-capable packets instead of dropping them.
    pub ecn: bool,
}

impl CodelConfig {
    /// The default CoDel parameters of RFC 8289 section 4.
    pub const RFC8289: Self =
        Self { target: Duration::from_millis(5), interval: Duration::from_millis(100), ecn: false };
}

/// A dropping state that begins within this number of intervals after the previous one resumes the previous
/// drop frequency (RFC 8289 section 5.5).
const SOON: u64 = 16;

/// CoDel controller state of one queue; field names are those of RFC 8289 section 5.
#[derive(Clone, Debug)]
pub(super) struct Codel {
    config: CodelConfig,
    /// Time at which the queue delay will have exceeded the target for a full interval, or `None` while the
    /// delay is below the target or at most `maxpacket` bytes are queued.
    first_above_time: Option<Instant>,
    dropping: bool,
    drop_next: Instant,
    count: u64,
    lastcount: u64,
    /// Largest packet length seen so far, in bytes. CoDel drops the head of the queue only if more than this
    /// number of bytes would remain; with fewer, the link could go idle.
    maxpacket: u32,
}

impl Codel {
    pub(super) fn new(config: CodelConfig) -> Self {
        Self {
            config,
            first_above_time: None,
            dropping: false,
            drop_next: Instant::ZERO,
            count: 0,
            lastcount: 0,
            maxpacket: 0,
        }
    }

    /// Dequeues the packet to transmit at `now`.
    pub(super) fn dequeue<T>(
        &mut self,
        now: Instant,
        fifo: &mut Fifo<T>,
        ledger: &mut Ledger<T>,
    ) -> Option<QueuedPacket<T>> {
        let (mut head, mut ok_to_drop) = self.look(now, fifo);
        if self.dropping {
            self.dropping = ok_to_drop;
            while self.dropping && now >= self.drop_next {
                self.count += 1;
                let Some(marked) = self.drop_or_mark(head?, ledger) else {
                    (head, ok_to_drop) = self.look(now, fifo);
                    self.dropping = ok_to_drop;
                    if ok_to_drop {
                        self.drop_next = self.control_law(self.drop_next);
                    }
                    continue;
                };
                self.drop_next = self.control_law(self.drop_next);
                return Some(marked);
            }
            return head;
        }
        if !ok_to_drop {
            return head;
        }
        let marked = self.drop_or_mark(head?, ledger);
        let head = if marked.is_some() { marked } else { self.look(now, fifo).0 };
        self.dropping = true;
        // Resume the drop frequency that controlled the queue in the previous dropping state.
        let delta = self.count.saturating_sub(self.lastcount);
        let soon = now.saturating_since(self.drop_next) < self.config.interval * SOON;
        self.count = if delta > 1 && soon { delta } else { 1 };
        self.drop_next = self.control_law(now);
        self.lastcount = self.count;
        head
    }

    /// Removes and returns the packet at the head of the queue, and whether the queue delay has exceeded the
    /// target for a full interval (`dodequeue` in RFC 8289).
    fn look<T>(&mut self, now: Instant, fifo: &mut Fifo<T>) -> (Option<QueuedPacket<T>>, bool) {
        let Some(head) = fifo.pop() else {
            self.first_above_time = None;
            return (None, false);
        };
        self.maxpacket = self.maxpacket.max(head.packet.len);
        if head.sojourn(now) < self.config.target || fifo.bytes() <= u64::from(self.maxpacket) {
            self.first_above_time = None;
            return (Some(head), false);
        }
        let since = *self.first_above_time.get_or_insert(now + self.config.interval);
        (Some(head), now >= since)
    }

    /// Marks the packet and returns it if ECN is enabled and the packet is ECN-capable. Otherwise, drops the
    /// packet and returns `None`.
    fn drop_or_mark<T>(&self, mut head: QueuedPacket<T>, ledger: &mut Ledger<T>) -> Option<QueuedPacket<T>> {
        if self.config.ecn && head.packet.ecn.is_capable() {
            head.packet.ecn = Ecn::Ce;
            ledger.counters.marked += 1;
            return Some(head);
        }
        ledger.dropped_inside(head.packet, head.payload, Verdict::Managed);
        None
    }

    /// Returns the next drop time, `t + interval / sqrt(count)`, rounded down to a nanosecond. The integer
    /// square root of `interval^2 / count` causes no other rounding error.
    fn control_law(&self, t: Instant) -> Instant {
        let square = u128::from(self.config.interval.as_nanos()).pow(2) / u128::from(self.count.max(1));
        // The square root is at most `interval`, so it fits into 64 bits.
        t + Duration::from_nanos(square.isqrt() as u64)
    }
}

#[cfg(test)]
mod tests;
