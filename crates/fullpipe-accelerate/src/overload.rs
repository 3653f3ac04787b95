//! Overload of the worker: packets that it has not read in time.
//!
//! ```text
//!   packets dropped at the TUN device     ▁▁▁▇▇▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
//!   overload                              ____████████________
//! ```
//!
//! A worker that gets too little CPU time for its packets loses those of all connections, because they share one
//! queue. In a flood of SYNs, most of the packets are SYNs. New connections are then left to the kernel, which
//! answers them without the worker, and the queue has room for the connections that exist.

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
    until: Instant,
}

impl Overload {
    /// Begins with the present value of the counter.
    pub(crate) fn new(unread: u64) -> Self {
        Self { unread, until: Instant::ZERO }
    }

    /// Observes the number of packets that were dropped because nobody has read them.
    pub(crate) fn observe(&mut self, now: Instant, unread: u64) {
        // The counter of a device that was replaced begins anew.
        if unread.saturating_sub(self.unread) >= MANY {
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
        let mut overload = Overload::new(1_000);
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
