//! Payload storage, addressed by stream offset; connections handle only the offsets.
//!
//! ```text
//!   sending     base = snd_una                     receiving    base = next offset to read
//!               end  = write offset                                  end  = highest octet that arrived
//! ```
//!
//! The size of the ring is a power of two and doubles when the stored range needs more room. The connection's
//! buffer or window sets `limit`, and the range never exceeds it. The rings of a stack share a memory budget.

use super::budget::Budget;

/// Minimum size of a non-empty ring buffer, in bytes.
const LEAST: usize = 4 << 10;

/// Ring buffer of the bytes at stream offsets `base..end`. Some of these bytes may not have been written yet.
#[derive(Debug)]
pub struct Ring {
    bytes: Vec<u8>,
    base: u64,
    end: u64,
    limit: u64,
    budget: Budget,
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.budget.change(self.bytes.len(), 0);
    }
}

impl Ring {
    /// Returns a ring buffer for ranges of at most `limit` bytes, without a memory budget.
    pub fn new(limit: u64) -> Self {
        Self::sharing(limit, Budget::default())
    }

    /// Returns a ring buffer for ranges of at most `limit` bytes, which takes its memory from `budget`.
    pub(super) fn sharing(limit: u64, budget: Budget) -> Self {
        Self { bytes: Vec::new(), base: 0, end: 0, limit, budget }
    }

    /// Returns the lowest stream offset in the ring.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Returns the stream offset after the highest byte in the ring.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns the number of bytes that can still be appended to the ring.
    pub fn room(&self) -> u64 {
        self.limit - (self.end - self.base)
    }

    /// Returns the memory of the ring in bytes. The memory is at most twice the limit, or 4 KiB if that is
    /// larger.
    pub fn memory(&self) -> usize {
        self.bytes.len()
    }

    /// Returns whether the budget permits the ring to hold bytes up to the stream offset `end`.
    pub(super) fn affords(&self, end: u64) -> bool {
        let size = self.size_for(end);
        size <= self.bytes.len()
            || self.budget.affords((size - self.bytes.len()) as u64, self.bytes.is_empty())
    }

    /// Returns the number of bytes that can be appended without more memory.
    pub(super) fn spare(&self) -> u64 {
        (self.bytes.len() as u64).min(self.limit).saturating_sub(self.end - self.base)
    }

    /// Writes `data` at stream offset `offset`. Bytes below the base or beyond the limit are skipped.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let from = offset.max(self.base);
        let to = (offset + data.len() as u64).min(self.base + self.limit);
        if from >= to {
            return;
        }
        let data = &data[(from - offset) as usize..(to - offset) as usize];
        self.reserve(to);
        let at = self.index(from);
        let first = data.len().min(self.bytes.len() - at);
        self.bytes[at..at + first].copy_from_slice(&data[..first]);
        self.bytes[..data.len() - first].copy_from_slice(&data[first..]);
        self.end = self.end.max(to);
    }

    /// Returns at most `len` bytes starting at stream offset `offset`, in two parts as stored.
    pub fn read(&self, offset: u64, len: u64) -> [&[u8]; 2] {
        let from = offset.clamp(self.base, self.end);
        let len = (offset.saturating_add(len).min(self.end)).saturating_sub(from) as usize;
        if len == 0 {
            return [&[], &[]];
        }
        let at = self.index(from);
        let first = len.min(self.bytes.len() - at);
        [&self.bytes[at..at + first], &self.bytes[..len - first]]
    }

    /// Discards the bytes below stream offset `base`.
    pub fn advance(&mut self, base: u64) {
        self.base = self.base.max(base);
        self.end = self.end.max(self.base);
    }

    /// Returns whether the ring has no bytes.
    pub fn is_empty(&self) -> bool {
        self.base == self.end
    }

    /// Discards all bytes and frees the memory of the ring.
    pub fn release(&mut self) {
        self.budget.change(self.bytes.len(), 0);
        (self.bytes, self.base) = (Vec::new(), self.end);
    }

    /// Frees the memory that the stored bytes do not need.
    pub(super) fn fit(&mut self) {
        if self.is_empty() {
            self.release();
        } else if self.size_for(self.end) < self.bytes.len() {
            self.resize(self.size_for(self.end));
        }
    }

    /// Returns the size of a ring that holds bytes up to the stream offset `end`.
    fn size_for(&self, end: u64) -> usize {
        let needed = (end.min(self.base + self.limit).max(self.end) - self.base) as usize;
        if needed == 0 { 0 } else { needed.next_power_of_two().max(LEAST) }
    }

    fn reserve(&mut self, end: u64) {
        let size = self.size_for(end);
        if size > self.bytes.len() {
            self.resize(size);
        }
    }

    fn resize(&mut self, size: usize) {
        self.budget.change(self.bytes.len(), size);
        let mut larger = vec![0; size];
        let kept = self.read(self.base, self.end - self.base);
        let mask = larger.len() - 1;
        let mut at = self.base as usize & mask;
        for part in kept {
            let first = part.len().min(larger.len() - at);
            larger[at..at + first].copy_from_slice(&part[..first]);
            larger[..part.len() - first].copy_from_slice(&part[first..]);
            at = (at + part.len()) & mask;
        }
        self.bytes = larger;
    }

    /// Returns the ring index of stream offset `offset`. The ring must not be empty.
    fn index(&self, offset: u64) -> usize {
        // The mask keeps the lower bits, so the truncation to `usize` is harmless.
        offset as usize & (self.bytes.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use fullpipe_units::draw;

    use super::*;

    /// For writes at any offset, reads, growth and wrap-around, the ring behaves like a plain vector that is
    /// never truncated.
    #[test]
    fn a_ring_keeps_what_lies_in_its_range() {
        let limit = 20_000;
        let mut ring = Ring::new(limit);
        let mut model: Vec<Option<u8>> = Vec::new();
        for step in 0..20_000 {
            let random = |stream, below: u64| draw(step, stream, 0) % below;
            let offset = (ring.base() + random(1, 3_000)).saturating_sub(500);
            let data: Vec<u8> = (0..random(2, 3_000)).map(|i| (step + i) as u8).collect();
            ring.write(offset, &data);
            for (i, byte) in data.iter().enumerate() {
                let at = offset as usize + i;
                model.resize(model.len().max(at + 1), None);
                if (ring.base()..ring.base() + limit).contains(&(at as u64)) {
                    model[at] = Some(*byte);
                }
            }
            let (from, len) = (ring.base() + random(3, 4_000), random(4, 4_000));
            let read = ring.read(from, len).concat();
            for (i, byte) in read.iter().enumerate() {
                if let Some(expected) = model[from as usize + i] {
                    assert_eq!(*byte, expected, "step {step}, offset {}", from as usize + i);
                }
            }
            assert!(read.len() as u64 <= len && ring.end() - ring.base() <= limit);
            ring.advance(ring.base() + random(5, 1_000));
            assert!(ring.memory() <= (2 * limit) as usize, "{}", ring.memory());
        }
    }

    #[test]
    fn what_is_beyond_the_limit_is_left_out() {
        let mut ring = Ring::new(10);
        ring.write(5, &[1; 20]);
        assert_eq!((ring.end(), ring.room()), (10, 0));
        ring.write(11, &[2; 5]);
        assert_eq!(ring.end(), 10);
        ring.advance(8);
        ring.write(0, &[3; 9]);
        assert_eq!(ring.read(8, 10).concat(), [3, 1]);
        assert!(!ring.is_empty());
        ring.release();
        assert!(ring.is_empty());
        assert_eq!((ring.memory(), ring.base(), ring.end()), (0, 10, 10));
    }
}
