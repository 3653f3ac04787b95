//! Durable blocks of a pipe at the receiver: all blocks below a number, and some beyond it.
//!
//! Blocks arrive on several connections, so a later block may become durable before an earlier one. A
//! producer that starts again continues from a single offset: the end of the durable blocks before the first
//! gap.

use std::collections::BTreeSet;

/// Durable blocks of a pipe.
#[derive(Debug, Default)]
pub(crate) struct Prefix {
    below: u64,
    beyond: BTreeSet<u64>,
}

impl Prefix {
    /// Creates the state in which all blocks below `end` are durable.
    pub(crate) fn begin(end: u64) -> Self {
        Self { below: end, beyond: BTreeSet::new() }
    }

    /// Adds a block; returns whether it is new.
    pub(crate) fn insert(&mut self, index: u64) -> bool {
        if index < self.below || !self.beyond.insert(index) {
            return false;
        }
        while self.beyond.remove(&self.below) {
            self.below += 1;
        }
        true
    }

    /// Returns the number of durable blocks before the first gap.
    pub(crate) fn end(&self) -> u64 {
        self.below
    }

    /// Returns whether `ranges` contains all of these blocks.
    pub(crate) fn is_within(&self, ranges: &[(u64, u64)]) -> bool {
        let has = |index: u64| ranges.iter().any(|(start, end)| (*start..*end).contains(&index));
        let prefix = ranges.iter().find(|(start, _)| *start == 0).map_or(0, |(_, end)| *end);
        self.below <= prefix && self.beyond.iter().all(|index| has(*index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_ends_at_the_first_gap() {
        let mut prefix = Prefix::begin(2);
        assert!(!prefix.insert(1) && prefix.insert(4) && !prefix.insert(4) && prefix.insert(3));
        assert_eq!(prefix.end(), 2, "block 2 is missing");
        assert!(prefix.insert(2) && !prefix.insert(3));
        assert_eq!(prefix.end(), 5);
    }

    #[test]
    fn every_durable_block_has_to_be_known() {
        let mut prefix = Prefix::begin(2);
        prefix.insert(4);
        assert!(prefix.is_within(&[(0, 2), (4, 5)]) && prefix.is_within(&[(0, 9)]));
        for missing in [&[(0, 2)][..], &[(0, 1), (4, 5)], &[(1, 5)], &[]] {
            assert!(!prefix.is_within(missing), "{missing:?}");
        }
        assert!(Prefix::begin(0).is_within(&[]));
    }
}
