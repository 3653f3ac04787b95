//! Timers of the connections of a stack: a binary heap in which each slot knows its position.
//!
//! ```text
//!   heap       (time, slot)     the earliest first; children of i at 2i + 1 and 2i + 2
//!   positions  slot ─► i        to move or remove a timer without a search
//! ```
//!
//! Once both vectors have reached their size, setting and removing a timer allocates no memory. A balanced
//! tree would allocate a node about once per six insertions.

use fullpipe_units::Instant;

/// Position of a slot without a timer.
const NONE: u32 = u32::MAX;

/// Set of timers, at most one per slot, ordered by time and slot.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: Vec<(Instant, u32)>,
    positions: Vec<u32>,
}

impl Timers {
    /// Returns the earliest timer. Of several timers at the same time, returns that of the lowest slot.
    pub(super) fn first(&self) -> Option<(Instant, u32)> {
        self.heap.first().copied()
    }

    /// Sets the timer of `slot` to `at`, and replaces its previous time.
    pub(super) fn set(&mut self, slot: u32, at: Instant) {
        let index = slot as usize;
        if index >= self.positions.len() {
            self.positions.resize(index + 1, NONE);
        }
        let position = match self.positions[index] {
            NONE => {
                self.heap.push((at, slot));
                self.heap.len() - 1
            }
            position => {
                self.heap[position as usize].0 = at;
                position as usize
            }
        };
        let position = self.rise(position);
        self.sink(position);
    }

    /// Removes the timer of `slot`, if there is one.
    pub(super) fn remove(&mut self, slot: u32) {
        let Some(position) = self.positions.get_mut(slot as usize) else { return };
        let position = std::mem::replace(position, NONE);
        if position == NONE {
            return;
        }
        let position = position as usize;
        self.heap.swap_remove(position);
        if position < self.heap.len() {
            let position = self.rise(position);
            self.sink(position);
        }
    }

    /// Moves a timer up while it is earlier than its parent, and returns its position.
    fn rise(&mut self, mut position: usize) -> usize {
        let timer = self.heap[position];
        while position > 0 {
            let parent = (position - 1) / 2;
            if self.heap[parent] <= timer {
                break;
            }
            self.put(position, self.heap[parent]);
            position = parent;
        }
        self.put(position, timer);
        position
    }

    /// Moves a timer down while a child is earlier.
    fn sink(&mut self, mut position: usize) {
        let timer = self.heap[position];
        loop {
            let left = 2 * position + 1;
            let children = self.heap.get(left..self.heap.len().min(left + 2)).unwrap_or_default();
            let Some((nth, child)) = children.iter().copied().enumerate().min_by_key(|(_, child)| *child)
            else {
                break;
            };
            if timer <= child {
                break;
            }
            self.put(position, child);
            position = left + nth;
        }
        self.put(position, timer);
    }

    fn put(&mut self, position: usize, timer: (Instant, u32)) {
        self.heap[position] = timer;
        // There are at most as many positions as slots, and slot numbers have 32 bits.
        self.positions[timer.1 as usize] = position as u32;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use fullpipe_units::draw;

    use super::*;

    /// The heap behaves like a sorted set in which each slot has at most one time.
    #[test]
    fn timers_behave_like_a_sorted_set() {
        let (mut timers, mut model) = (Timers::default(), BTreeSet::new());
        let mut times = [None; 50];
        for step in 0..20_000 {
            let slot = (draw(step, 1, 0) % 50) as usize;
            if let Some(at) = times[slot].take() {
                model.remove(&(at, slot as u32));
            }
            if draw(step, 2, 0).is_multiple_of(3) {
                timers.remove(slot as u32);
            } else {
                let at = Instant::from_nanos(draw(step, 3, 0) % 1_000);
                times[slot] = Some(at);
                model.insert((at, slot as u32));
                timers.set(slot as u32, at);
            }
            assert_eq!(timers.first(), model.first().copied(), "step {step}");
        }
        while let Some((at, slot)) = timers.first() {
            assert_eq!(model.pop_first(), Some((at, slot)));
            timers.remove(slot);
        }
        assert!(model.is_empty());
    }
}
