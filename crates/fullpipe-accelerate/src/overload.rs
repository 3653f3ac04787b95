//! Detects that SYNs overload the worker: it has not read packets in time, and at least half of the packets
//! that it has read are SYNs.
//!
//! ```text
//!   packets dropped at the TUN device     ▁▁▁▇▇▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
//!   overload                              ____████████________
//! ```
//!
//! A worker without enough CPU time loses packets of all connections, because they share one queue. In a
//! flood of SYNs, new connections are then left to the kernel, which answers them without the worker, so the
//! queue has room for existing connections. If data causes the overload, new connections stay with the
//! worker, because kernel connections would take a share of the path from the worker's connections.

use fullpipe_units::{Duration, Instant};

/// Minimum number of packets dropped between two observations for the worker to count as overloaded. A short
/// burst may cause fewer drops.
const MANY: u64 = 64;
/// Time for which an overload lasts after it was last observed.
const LASTING: Duration = Duration::from_secs(5);

/// Overload state, derived from the drop counter of the TUN device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overload {
    unread: u64,
    /// Whether at least half of the packets were SYNs in the last report interval in which the worker read
    /// any.
    flooded: bool,
    until: Instant,
}

impl Overload {
    /// Creates the state with the present value of the drop counter.
    pub(crate) fn new(unread: u64) -> Self {
        Self { unread, flooded: false, until: Instant::ZERO }
    }

    /// Records the number of SYNs among the packets that the worker has read since its last report.
    pub(crate) fn heard(&mut self, syns: u64, packets: u64) {
        // If the worker has read nothing, the previous result is kept.
        if packets > 0 {
            self.flooded = 2 * syns >= packets;
        }
    }

    /// Records the drop counter: the number of packets that were dropped because the worker did not read
    /// them.
    pub(crate) fn observe(&mut self, now: Instant, unread: u64) {
        // The counter of a replaced device starts at zero.
        if self.flooded && unread.saturating_sub(self.unread) >= MANY {
            self.until = now + LASTING;
        }
        self.unread = unread;
    }

    /// Returns whether new connections are left to the kernel at `now`.
    pub(crate) fn lasts(&self, now: Instant) -> bool {
        now < self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overload_lasts_after_its_last_drop() {
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        let mut overload = Overload::new(500);
        overload.heard(49, 100);
        overload.observe(at(50), 1_000);
        assert!(!overload.lasts(at(50)), "data causes the overload");
        overload.heard(50, 100);
        overload.heard(0, 0);
        overload.observe(at(100), 1_000 + MANY - 1);
        assert!(!overload.lasts(at(100)), "a burst");
        overload.observe(at(200), 1_000 + 2 * MANY);
        overload.observe(at(300), 1_000 + 3 * MANY);
        assert!(overload.lasts(at(300)) && overload.lasts(at(5_299)) && !overload.lasts(at(5_300)));
        // The device was replaced, so its counter starts at zero.
        overload.observe(at(6_000), 0);
        assert!(!overload.lasts(at(6_000)));
    }
}
