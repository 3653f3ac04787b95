//! Decisions of a transfer, without I/O and without a clock: which block goes to which connection, how many
//! connections send, how they share a rate limit, which data has arrived, and when it is made durable.
//!
//! A file consists of blocks of 1 MiB, the last of which may be shorter. Both ends number the blocks from
//! zero.

mod allowance;
mod arrivals;
mod budget;
mod choice;
mod dispatch;
mod groups;
mod laggards;
mod limit;
mod prefix;

pub(crate) use allowance::Allowance;
pub(crate) use arrivals::Arrivals;
pub(crate) use budget::Budget;
pub use choice::{Buffers, Choice, Interval, Remembered, Room};
pub(crate) use dispatch::{Block, Dispatcher, Next};
pub(crate) use groups::Groups;
pub(crate) use laggards::Laggards;
pub(crate) use limit::{Demand, Limiter, Role};
pub(crate) use prefix::Prefix;

/// Size of a block in bytes: an aligned power of two, so that each block is a subtree of the file's hash.
pub(crate) const BLOCK: u64 = 1 << 20;

/// Maximum number of further connections of a copy that are in their handshakes at the same time. The relay drops the oldest
/// handshake if an address has more than eight, and another copy may use the same address.
pub(crate) const HANDSHAKES: u32 = 6;

/// Maximum size in bytes of a file, and of all open files of a transfer together. The state of a block takes
/// about 50 bytes at each end, so the blocks of a transfer need at most 210 MB.
pub(crate) const MOST_SIZE: u64 = 4 << 40;

/// Returns the number of blocks of a file of `size` bytes.
pub(crate) fn block_count(size: u64) -> u64 {
    size.div_ceil(BLOCK)
}

/// Returns the offset and the length of a block, or `None` if the file has no block with this number.
pub(crate) fn block_range(size: u64, index: u64) -> Option<(u64, usize)> {
    let offset = index.checked_mul(BLOCK).filter(|offset| *offset < size)?;
    // The length is at most `BLOCK`, which fits into every integer type.
    Some((offset, (size - offset).min(BLOCK) as usize))
}

/// Returns runs of consecutive numbers as half-open ranges.
pub(crate) fn runs(numbers: impl IntoIterator<Item = u64>) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, end)) if *end == number => *end += 1,
            _ => runs.push((number, number + 1)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_a_file() {
        for size in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK, 5 * BLOCK + 9] {
            let mut end = 0;
            for index in 0..block_count(size) {
                let (offset, length) = block_range(size, index).expect("a block of the file");
                assert_eq!(offset, end);
                end += length as u64;
            }
            assert_eq!(end, size);
            assert_eq!(block_range(size, block_count(size)), None);
            assert_eq!(block_range(size, u64::MAX), None);
        }
    }

    #[test]
    fn runs_join_neighbours() {
        assert!(runs([]).is_empty());
        assert_eq!(runs([0, 1, 2, 5, 7, 8]), [(0, 3), (5, 6), (7, 9)]);
    }
}
