//! Sorted set of disjoint ranges of offsets.
//!
//! The receiver uses the set for data that arrived out of order, and the sender uses it for data that the
//! peer has SACKed. Most inserts extend the highest range; this case is the fast path. Other inserts cost a
//! binary search and a short move. The number of ranges grows with the number of holes, not with the number
//! of packets.

use std::collections::VecDeque;

/// Set of half-open ranges in ascending order that neither overlap nor adjoin.
#[derive(Clone, Debug, Default)]
pub struct RangeSet {
    ranges: VecDeque<(u64, u64)>,
    covered: u64,
}

impl RangeSet {
    /// Returns the total number of bytes in all ranges.
    pub fn covered(&self) -> u64 {
        self.covered
    }

    /// Returns the number of ranges in the set.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Returns whether a range of the set overlaps or adjoins `start..end`. In that case, inserting
    /// `start..end` does not add a range.
    pub fn touches(&self, start: u64, end: u64) -> bool {
        let next = self.ranges.partition_point(|&(_, range_end)| range_end < start);
        self.ranges.get(next).is_some_and(|&(range_start, _)| range_start <= end)
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the lowest range in the set.
    pub fn first(&self) -> Option<(u64, u64)> {
        self.ranges.front().copied()
    }

    /// Returns the highest range in the set.
    pub fn last(&self) -> Option<(u64, u64)> {
        self.ranges.back().copied()
    }

    /// Returns the range of the set that contains `offset`.
    #[inline]
    pub fn containing(&self, offset: u64) -> Option<(u64, u64)> {
        // Most calls concern the newest range, because it is the range that grows.
        let newest = self.last()?;
        if offset >= newest.0 {
            return (offset < newest.1).then_some(newest);
        }
        let i = self.ranges.partition_point(|&(_, end)| end <= offset);
        self.ranges.get(i).copied().filter(|&(start, _)| start <= offset)
    }

    /// Adds `start..end` to the set, and calls `newly` in ascending order for each part that was not in the
    /// set.
    pub fn insert(&mut self, start: u64, end: u64, mut newly: impl FnMut(u64, u64)) {
        if start >= end {
            return;
        }
        if let Some(last) = self.ranges.back_mut()
            && start >= last.0
        {
            if start <= last.1 {
                if end > last.1 {
                    newly(last.1, end);
                    self.covered += end - last.1;
                    last.1 = end;
                }
                return;
            }
            newly(start, end);
            self.covered += end - start;
            self.ranges.push_back((start, end));
            return;
        }
        // Index of the first range that contains, adjoins or follows `start`.
        let first = self.ranges.partition_point(|&(_, range_end)| range_end < start);
        let (mut merged_start, mut merged_end, mut position) = (start, end, start);
        let mut next = first;
        while let Some(&(range_start, range_end)) = self.ranges.get(next) {
            if range_start > end {
                break;
            }
            if position < range_start {
                newly(position, range_start);
                self.covered += range_start - position;
            }
            position = position.max(range_end);
            merged_start = merged_start.min(range_start);
            merged_end = merged_end.max(range_end);
            next += 1;
        }
        if position < end {
            newly(position, end);
            self.covered += end - position;
        }
        if next == first {
            self.ranges.insert(first, (merged_start, merged_end));
        } else {
            self.ranges[first] = (merged_start, merged_end);
            if next > first + 1 {
                self.ranges.drain(first + 1..next);
            }
        }
    }

    /// Removes the part of the set below `offset`.
    pub fn remove_below(&mut self, offset: u64) {
        while let Some(front) = self.ranges.front_mut() {
            if front.1 <= offset {
                self.covered -= front.1 - front.0;
                self.ranges.pop_front();
            } else {
                if front.0 < offset {
                    self.covered -= offset - front.0;
                    front.0 = offset;
                }
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::draw;

    /// The set behaves like a plain bitmap: it has the same contents, and reports each newly covered byte
    /// exactly once.
    #[test]
    fn behaves_as_a_bitmap() {
        for seed in 0..200 {
            let (mut set, mut bitmap) = (RangeSet::default(), [false; 128]);
            let mut floor = 0;
            for i in 0..60 {
                let start = draw(seed, 0, i) % 120;
                let end = start + draw(seed, 1, i) % 8;
                let mut expected: Vec<u64> = (start..end).filter(|&b| !bitmap[b as usize]).collect();
                let mut got = Vec::new();
                set.insert(start, end, |s, e| got.extend(s..e));
                assert_eq!(got, expected, "seed {seed} step {i}");
                for byte in expected.drain(..) {
                    bitmap[byte as usize] = true;
                }
                if draw(seed, 2, i).is_multiple_of(10) {
                    floor = draw(seed, 3, i) % 128;
                    set.remove_below(floor);
                    bitmap[..floor as usize].fill(false);
                }
                let count = bitmap.iter().filter(|&&set| set).count() as u64;
                assert_eq!(set.covered(), count);
                let holes = set.ranges.iter().zip(set.ranges.iter().skip(1)).all(|(a, b)| a.1 < b.0);
                assert!(holes, "ranges touch: {:?}", set.ranges);
                for byte in 0..128u64 {
                    assert_eq!(
                        set.containing(byte).is_some(),
                        bitmap[byte as usize],
                        "byte {byte} floor {floor}"
                    );
                }
            }
        }
    }
}
