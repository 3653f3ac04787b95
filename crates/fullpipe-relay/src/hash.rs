//! BLAKE3 hash of a file whose blocks arrive in any order.
//!
//! Each block is a subtree of the file's BLAKE3 tree, because the block size is a power of two and blocks are
//! aligned to it (BLAKE3 paper, section 2.1). The chaining values of the blocks are merged when all of them
//! are known; the result equals the output of `b3sum`.

use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, left_subtree_len, merge_subtrees_non_root, merge_subtrees_root,
};

use crate::engine::{BLOCK, block_count};
use crate::hex::Hex;

/// Size that stands for the unknown size of a pipe.
pub(crate) const OPEN_END: u64 = u64::MAX;

/// Chaining value of a block in the BLAKE3 tree of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockValue {
    subtree: ChainingValue,
    /// Hash of a file that consists of this block alone, because BLAKE3 hashes the root of a tree
    /// differently. It is computed only for the first block of a file whose size is not known yet.
    alone: Option<ChainingValue>,
}

/// Returns the value of the block that begins at `offset` in a file of `size` bytes; `size` is [`OPEN_END`]
/// if it is not known.
pub(crate) fn block_value(size: u64, offset: u64, bytes: &[u8]) -> BlockValue {
    let alone = || *blake3::hash(bytes).as_bytes();
    if size <= BLOCK {
        return BlockValue { subtree: alone(), alone: None };
    }
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(offset);
    hasher.update(bytes);
    let alone = (size == OPEN_END && offset == 0).then(alone);
    BlockValue { subtree: hasher.finalize_non_root(), alone }
}

/// Values of the blocks of a file.
#[derive(Debug)]
pub(crate) struct BlockValues {
    size: u64,
    /// Chaining value of each block. An entry takes only 33 bytes, because a file of 200 GiB has 204 800
    /// blocks.
    values: Vec<Option<ChainingValue>>,
    /// Hash of the first block alone, if it is known.
    alone: Option<ChainingValue>,
    missing: u64,
}

impl BlockValues {
    /// Creates the values of a file of `size` bytes; `size` is [`OPEN_END`] if it is not known.
    pub(crate) fn new(size: u64) -> Self {
        let mut values = Self { size, values: Vec::new(), alone: None, missing: 0 };
        if size != OPEN_END {
            values.grow(block_count(size));
        }
        values
    }

    /// Grows to values of at least `count` blocks.
    fn grow(&mut self, count: u64) {
        // The caller has checked that the values of all blocks fit into memory.
        let count = usize::try_from(count).unwrap_or(usize::MAX).max(self.values.len());
        self.missing += (count - self.values.len()) as u64;
        self.values.resize(count, None);
    }

    /// Sets the size of a file whose size was not known; returns whether the known blocks fit into it.
    pub(crate) fn end(&mut self, size: u64) -> bool {
        self.size = size;
        self.grow(block_count(size));
        self.values.len() as u64 == block_count(size)
    }

    /// Sets the value of the block with the number `index`. Returns `false` if the file has no such block, or
    /// if the block already has a different value.
    pub(crate) fn set(&mut self, index: u64, value: BlockValue) -> bool {
        if self.size == OPEN_END {
            self.grow(index + 1);
        }
        let entry = usize::try_from(index).ok().and_then(|index| self.values.get_mut(index));
        match entry {
            None => false,
            Some(Some(earlier)) => *earlier == value.subtree,
            Some(entry) => {
                *entry = Some(value.subtree);
                self.alone = self.alone.or(value.alone);
                self.missing -= 1;
                true
            }
        }
    }

    /// Returns a hash of the values of the blocks with the number `from` and above, or `None` while one of
    /// them is unknown.
    pub(crate) fn suffix(&self, from: u64) -> Option<Hex<32>> {
        if self.size == OPEN_END {
            return None;
        }
        let mut hasher = blake3::Hasher::new();
        for value in self.values.get(usize::try_from(from).ok()?..)? {
            hasher.update(&(*value)?);
        }
        Some(Hex(*hasher.finalize().as_bytes()))
    }

    /// Returns the hash of the file, or `None` while the value of a block is unknown.
    pub(crate) fn root(&self) -> Option<Hex<32>> {
        if self.missing > 0 || self.size == OPEN_END {
            return None;
        }
        let hash = match self.values.as_slice() {
            [] => *blake3::hash(b"").as_bytes(),
            [only] => self.alone.or(*only)?,
            values => {
                let (left, right) = children(values, self.size)?;
                *merge_subtrees_root(&left, &right, Mode::Hash).as_bytes()
            }
        };
        Some(Hex(hash))
    }
}

/// Returns the values of the two children of the subtree that covers `values`, `length` bytes in total; `None` if a
/// value is unknown.
fn children(values: &[Option<ChainingValue>], length: u64) -> Option<(ChainingValue, ChainingValue)> {
    let left_length = left_subtree_len(length);
    // The number of blocks in the left subtree is a power of two, because `length` exceeds one block.
    let (left, right) = values.split_at((left_length / BLOCK) as usize);
    Some((subtree(left, left_length)?, subtree(right, length - left_length)?))
}

fn subtree(values: &[Option<ChainingValue>], length: u64) -> Option<ChainingValue> {
    if let [only] = values {
        return *only;
    }
    let (left, right) = children(values, length)?;
    Some(merge_subtrees_non_root(&left, &right, Mode::Hash))
}

#[cfg(test)]
mod tests {
    use fullpipe_units::draw;

    use super::*;
    use crate::engine::block_range;

    fn content(size: u64) -> Vec<u8> {
        (0..size).map(|n| (n.wrapping_mul(0x9e37_79b9) >> 11) as u8).collect()
    }

    /// The result is the hash of the whole file, for each size near a boundary of the tree, and for any order
    /// of arrival.
    #[test]
    fn blocks_in_any_order_give_the_hash_of_the_file() {
        let sizes = [0, 1, 1023, 1024, 1025, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 1]
            .into_iter()
            .chain([3 * BLOCK, 4 * BLOCK + 1024, 5 * BLOCK - 1, 7 * BLOCK + 77]);
        for size in sizes {
            let content = content(size);
            let mut order: Vec<u64> = (0..block_count(size)).collect();
            order.sort_by_key(|index| draw(size, 0, *index));
            let mut values = BlockValues::new(size);
            for index in order {
                assert_eq!(values.root(), None, "{size} bytes, before block {index}");
                let (offset, length) = block_range(size, index).expect("a block of the file");
                let bytes = &content[offset as usize..offset as usize + length];
                assert!(values.set(index, block_value(size, offset, bytes)));
                assert!(values.set(index, block_value(size, offset, bytes)), "the same value again");
            }
            assert_eq!(values.root(), Some(Hex(*blake3::hash(&content).as_bytes())), "{size} bytes");
        }
    }

    #[test]
    fn a_changed_byte_changes_the_hash() {
        let size = 2 * BLOCK + 5;
        let mut changed = content(size);
        let mut values = BlockValues::new(size);
        changed[BLOCK as usize + 9] ^= 1;
        for index in 0..3 {
            let (offset, length) = block_range(size, index).expect("a block of the file");
            let bytes = &changed[offset as usize..offset as usize + length];
            assert!(values.set(index, block_value(size, offset, bytes)));
        }
        assert_ne!(values.root(), Some(Hex(*blake3::hash(&content(size)).as_bytes())));
        let other = BlockValue { subtree: [0; 32], alone: None };
        assert!(!values.set(1, other) && !values.set(3, other), "another value, and no such block");
    }

    #[test]
    fn the_hash_does_not_depend_on_when_the_end_is_known() {
        for size in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 4 * BLOCK + 77] {
            let content = content(size);
            let mut values = BlockValues::new(OPEN_END);
            for index in (0..block_count(size)).rev() {
                let (offset, length) = block_range(size, index).expect("a block of the file");
                let bytes = &content[offset as usize..offset as usize + length];
                assert!(values.set(index, block_value(OPEN_END, offset, bytes)));
            }
            assert_eq!(values.root(), None, "the end is not known");
            assert!(values.end(size));
            assert_eq!(values.root(), Some(Hex(*blake3::hash(&content).as_bytes())), "{size} bytes");
        }
        let mut values = BlockValues::new(OPEN_END);
        values.set(2, block_value(OPEN_END, 2 * BLOCK, b"5"));
        assert!(!values.end(2 * BLOCK), "a block lies beyond the end");
    }

    /// A process that has not seen the first blocks computes the same hash of the later blocks as a process
    /// that has seen all.
    #[test]
    fn the_hash_of_the_later_blocks_needs_no_earlier_ones() {
        let size = 4 * BLOCK + 77;
        let content = content(size);
        let values = |from: u64| {
            let mut values = BlockValues::new(OPEN_END);
            for index in from..block_count(size) {
                let (offset, length) = block_range(size, index).expect("a block of the file");
                let bytes = &content[offset as usize..offset as usize + length];
                values.set(index, block_value(OPEN_END, offset, bytes));
            }
            assert_eq!(values.suffix(from), None, "the end is not known");
            assert!(values.end(size));
            values
        };
        let all = values(0);
        for from in 0..=5 {
            let suffix = values(from).suffix(from);
            assert!(suffix.is_some() && suffix == all.suffix(from), "from block {from}");
        }
        assert_eq!((values(3).suffix(2), values(3).root()), (None, None));
        assert_ne!(all.suffix(1), all.suffix(2));
        assert_eq!(all.suffix(6), None, "beyond the end");
    }
}
