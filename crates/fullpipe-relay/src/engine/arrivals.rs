//! State of the blocks of one file at the receiver.
//!
//! ```text
//!   missing ──claim──► claimed ──written──► written ──begin_sync──► syncing ──synced──► durable
//! ```
//!
//! The first connection that delivers a block claims it. A second copy of the block that arrives on another
//! connection is dropped, so that nothing writes to a file that is being placed.

use super::{block_count, runs};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Missing,
    Claimed,
    Written,
    Syncing,
    Durable,
}

/// Blocks of a file that have arrived, and blocks that would survive a crash.
#[derive(Debug)]
pub(crate) struct Arrivals {
    blocks: Vec<State>,
    /// Number of blocks that are neither missing nor claimed.
    written: u64,
}

impl Arrivals {
    /// Creates the state of a file of `size` bytes, of which the blocks in the ranges `durable` are on disk.
    pub(crate) fn new(size: u64, durable: &[(u64, u64)]) -> Self {
        let mut blocks = vec![State::Missing; block_count(size) as usize];
        let count = blocks.len() as u64;
        for (start, end) in durable {
            for index in *start..(*end).min(count) {
                blocks[index as usize] = State::Durable;
            }
        }
        let written = blocks.iter().filter(|state| **state == State::Durable).count() as u64;
        Self { blocks, written }
    }

    /// Grows the state of a pipe, whose size is not known until its end, to at least `count` blocks.
    pub(crate) fn grow(&mut self, count: u64) {
        let count = usize::try_from(count).unwrap_or(usize::MAX).max(self.blocks.len());
        self.blocks.resize(count, State::Missing);
    }

    /// Claims a block for writing; returns whether it was missing.
    pub(crate) fn claim(&mut self, index: u64) -> bool {
        let state = usize::try_from(index).ok().and_then(|index| self.blocks.get_mut(index));
        match state {
            Some(state @ State::Missing) => {
                *state = State::Claimed;
                true
            }
            _ => false,
        }
    }

    /// Records that a claimed block has been written.
    pub(crate) fn written(&mut self, index: u64) {
        self.blocks[index as usize] = State::Written;
        self.written += 1;
    }

    /// Returns the blocks that the next `fdatasync` makes durable. Blocks that are written from now on belong
    /// to the next `fdatasync`.
    pub(crate) fn begin_sync(&mut self) -> Vec<(u64, u64)> {
        let written = self.numbers(State::Written);
        self.replace(State::Written, State::Syncing);
        written
    }

    /// Returns the ranges of the blocks that survive a crash once the latest sync has succeeded.
    pub(crate) fn after_sync(&self) -> Vec<(u64, u64)> {
        let survives = |state: &State| matches!(state, State::Syncing | State::Durable);
        runs((0..).zip(&self.blocks).filter(|(_, state)| survives(state)).map(|(index, _)| index))
    }

    /// Records that the latest sync has succeeded.
    pub(crate) fn synced(&mut self) {
        self.replace(State::Syncing, State::Durable);
    }

    /// Returns the number of the first block from `from` on that has not been written.
    pub(crate) fn first_missing(&self, from: u64) -> u64 {
        let later = self.blocks.iter().skip(usize::try_from(from).unwrap_or(usize::MAX));
        let is_written = |state: &&State| !matches!(state, State::Missing | State::Claimed);
        from + later.take_while(is_written).count() as u64
    }

    /// Returns whether every block has been written.
    pub(crate) fn is_complete(&self) -> bool {
        self.written == self.blocks.len() as u64
    }

    fn numbers(&self, wanted: State) -> Vec<(u64, u64)> {
        runs((0..).zip(&self.blocks).filter(|(_, state)| **state == wanted).map(|(index, _)| index))
    }

    fn replace(&mut self, from: State, to: State) {
        for state in self.blocks.iter_mut().filter(|state| **state == from) {
            *state = to;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::BLOCK;

    #[test]
    fn only_what_was_written_before_a_sync_becomes_durable() {
        let mut file = Arrivals::new(5 * BLOCK, &[(4, 5)]);
        for index in [0, 1] {
            assert!(file.claim(index));
            file.written(index);
        }
        assert!(file.claim(2), "claimed, and not yet written");
        assert_eq!(file.begin_sync(), [(0, 2)]);
        assert_eq!([0, 1, 2, 3, 4, 9].map(|from| file.first_missing(from)), [2, 2, 2, 3, 5, 9]);
        file.written(2);
        assert_eq!(file.first_missing(0), 3);
        assert_eq!(file.after_sync(), [(0, 2), (4, 5)], "block 2 belongs to the next sync");
        file.synced();
        assert_eq!(file.begin_sync(), [(2, 3)]);
        assert_eq!(file.after_sync(), [(0, 3), (4, 5)]);
    }

    #[test]
    fn a_second_copy_of_a_block_is_dropped() {
        let mut file = Arrivals::new(2 * BLOCK, &[(1, 2)]);
        assert!(file.claim(0) && !file.claim(0), "being written");
        file.written(0);
        assert!(!file.claim(0) && !file.claim(1) && !file.claim(2) && !file.claim(u64::MAX));
        assert!(file.is_complete());
    }

    #[test]
    fn a_file_is_complete_when_its_last_block_is_written() {
        assert!(Arrivals::new(0, &[]).is_complete());
        let mut file = Arrivals::new(BLOCK + 1, &[]);
        assert!(!file.is_complete() && file.claim(1) && file.claim(0));
        file.written(1);
        assert!(!file.is_complete());
        file.written(0);
        assert!(file.is_complete());
        file.grow(1);
        assert!(file.is_complete(), "it does not shrink");
        file.grow(4);
        assert!(!file.is_complete() && file.claim(3) && !file.claim(4));
    }
}
