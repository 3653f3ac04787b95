//! Overload of the worker by SYNs: packets that it has not read in time, most of which are SYNs.
//!
//! ```text
//!   packets dropped at the TUN device     ▁▁▁▇▇▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
//!   overload                              ____████████________
//! ```
//!
//! A worker that gets too little CPU time for its packets loses those of all connections, because they share one
//! queue. In a flood of SYNs, new connections are then left to the kernel, which answers them without the worker,
//! and the queue has room for the connections that exist. In an overload by data, new connections stay with the
//! worker, because connections of the kernel would take their share of the path from its own.

use fullpipe_units::{Duration, Instant};

/// Number of packets dropped between two observations from which the worker is overloaded. Fewer may be lost in
/// a burst.
const MANY: u64 = 64;
/// Time for which an overload lasts after its last observation.
const LASTING: Duration = Duration::from_secs(5);

/// Judgement from the counter of the TUN device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overload {
    unread: u64,
    /// Whether most packets of the last report interval were SYNs.
    flooded: bool,
    until: Instant,
}

impl Overload {
    /// Begins with the present value of the counter.
    pub(crate) fn new(unread: u64) -> Self {
        Self { unread, flooded: false, until: Instant::ZERO }
    }

    /// Records how many of the packets that the worker has read since its last report were SYNs.
    pub(crate) fn heard(&mut self, syns: u64, packets: u64) {
        // A worker that has read nothing leaves the judgement as it was.
        if packets > 0 {
            self.flooded = 2 * syns >= packets;
        }
    }

    /// Observes the number of packets that were dropped because nobody has read them.
    pub(crate) fn observe(&mut self, now: Instant, unread: u64) {
        // The counter of a device that was replaced begins anew.
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
        assert!(!overload.lasts(at(50)), "an overload by data");
        overload.heard(50, 100);
        overload.heard(0, 0);
        overload.observe(at(100), 1_000 + MANY - 1);
        assert!(!overload.lasts(at(100)), "a burst");
        overload.observe(at(200), 1_000 + 2 * MANY);
        overload.observe(at(300), 1_000 + 3 * MANY);
        assert!(overload.lasts(at(300)) && overload.lasts(at(5_299)) && !overload.lasts(at(5_300)));
        // A device that was replaced.
        overload.observe(at(6_000), 0);
        assert!(!overload.lasts(at(6_000)));
    }
}
