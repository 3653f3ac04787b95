//! Memory budget of all payload rings of a stack.
//!
//! ```text
//!   0 ────────────────────────────────────────── 7/8 ────────── limit
//!     rings grow                                  │ only empty rings grow │ no ring grows
//! ```
//!
//! A ring takes memory from the budget before it grows, and returns the memory when it shrinks or disappears. The last
//! eighth is reserved for rings without memory, so that connections with much data cannot keep requests of other
//! connections from arriving.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{ConnId, Stack};

/// Divisor of the memory limit of a stack: an eighth of the limit is reserved for connections without memory.
pub const RESERVED_SHARE: u64 = 8;

/// Memory in use by the rings of a stack, and its limit. Clones share these values.
#[derive(Clone, Debug)]
pub(super) struct Budget(Arc<Values>);

#[derive(Debug)]
struct Values {
    limit: AtomicU64,
    used: AtomicU64,
}

impl Default for Budget {
    /// Returns a budget without a limit.
    fn default() -> Self {
        Self(Arc::new(Values { limit: AtomicU64::new(u64::MAX), used: AtomicU64::new(0) }))
    }
}

impl Budget {
    /// Sets the limit in bytes. If more memory is in use, no ring grows until enough of it has been returned.
    pub(super) fn set_limit(&self, limit: u64) {
        self.0.limit.store(limit, Relaxed);
    }

    /// Returns the memory in use, in bytes.
    pub(super) fn used(&self) -> u64 {
        self.0.used.load(Relaxed)
    }

    /// Returns whether `bytes` more may be taken; `first` is true for a ring without memory.
    pub(super) fn affords(&self, bytes: u64, first: bool) -> bool {
        let limit = self.0.limit.load(Relaxed);
        let reserved = if first { 0 } else { limit / RESERVED_SHARE };
        self.used().saturating_add(bytes) <= limit - reserved
    }

    /// Replaces `before` bytes in use by `after` bytes.
    pub(super) fn change(&self, before: usize, after: usize) {
        // Addition and subtraction wrap around, so the sum is correct in either order.
        self.0.used.fetch_add((after as u64).wrapping_sub(before as u64), Relaxed);
    }
}

impl Stack {
    /// Limits the memory of the payload of all connections, in bytes. When the limit is reached, writes are cut short,
    /// and the payload of arriving segments is discarded, as in the kernel; the peer retransmits it. The last eighth of
    /// the memory is reserved for connections without payload.
    pub fn set_memory_limit(&mut self, limit: u64) {
        self.budget.set_limit(limit);
    }

    /// Returns the memory of the payload of all connections, in bytes.
    pub fn memory(&self) -> u64 {
        self.budget.used()
    }

    /// Returns the memory of a connection's payload, in bytes.
    pub fn memory_of(&self, id: ConnId) -> u64 {
        self.entry(id).map_or(0, |entry| (entry.sending.memory() + entry.receiving.memory()) as u64)
    }

    /// Returns whether the last write was cut short because the memory of all connections was used up.
    /// [`Event::Writable`](crate::Event::Writable) reports when half of the connection's own memory is free again.
    pub fn is_starved(&self, id: ConnId) -> bool {
        self.entry(id).is_some_and(|entry| entry.starved)
    }

    /// Frees the memory that the payload of a connection does not need at present.
    pub fn fit_memory(&mut self, id: ConnId) {
        if let Some(entry) = self.entry_mut(id) {
            entry.sending.fit();
            entry.receiving.fit();
        }
    }

    /// Frees memory that a connection needs only while data is outstanding. The next byte allocates the
    /// memory again, so call this function only for idle connections.
    pub fn free_idle_memory(&mut self, id: ConnId) {
        let Some(entry) = self.entry_mut(id) else { return };
        entry.connection.free_idle_memory();
        for ring in [&mut entry.sending, &mut entry.receiving] {
            if ring.is_empty() && ring.memory() > 0 {
                ring.release();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_eighth_is_for_rings_without_memory() {
        let budget = Budget::default();
        assert!(budget.affords(u64::MAX, true));
        budget.set_limit(800);
        assert!(budget.affords(700, false) && !budget.affords(701, false));
        assert!(budget.affords(800, true) && !budget.affords(801, true));
        budget.change(0, 600);
        budget.change(600, 500);
        assert_eq!(budget.used(), 500);
        assert!(budget.affords(200, false) && !budget.affords(201, false));
        budget.set_limit(100);
        assert!(!budget.affords(1, true));
    }
}
