//! Table of bounded size, in which new entries replace the least recently used entries.

use fullpipe_units::Instant;

/// Number of entries per set.
pub(super) const WAYS: usize = 8;

/// Entry of a [`Table`].
#[derive(Clone, Copy, Debug)]
struct Slot<T> {
    tag: u64,
    used_at: Instant,
    value: T,
}

/// Table of a fixed number of sets, each of which has room for [`WAYS`] entries.
#[derive(Debug)]
pub(super) struct Table<T> {
    sets: Vec<Vec<Slot<T>>>,
}

impl<T> Table<T> {
    /// Returns an empty table for about `entries` entries.
    pub(super) fn new(entries: usize) -> Self {
        Self { sets: (0..entries.div_ceil(WAYS).max(1)).map(|_| Vec::new()).collect() }
    }

    /// Returns the value with this tag in the set that `hash` selects. If there is no such value, creates it; in a
    /// full set, it replaces the least recently used value.
    pub(super) fn entry(
        &mut self,
        now: Instant,
        (hash, tag): (u64, u64),
        make: impl FnOnce() -> T,
    ) -> &mut T {
        let count = self.sets.len() as u64;
        let set = &mut self.sets[(hash % count) as usize];
        let new = || Slot { tag, used_at: now, value: make() };
        let index = match set.iter().position(|slot| slot.tag == tag) {
            Some(index) => index,
            None if set.len() < WAYS => {
                set.push(new());
                set.len() - 1
            }
            None => {
                let oldest = set.iter().enumerate().min_by_key(|(_, slot)| slot.used_at);
                let index = oldest.map_or(0, |(index, _)| index);
                set[index] = new();
                index
            }
        };
        let slot = &mut set[index];
        slot.used_at = now;
        &mut slot.value
    }

    /// Returns the value with this tag in the set that `hash` selects, if there is one.
    pub(super) fn get(&self, (hash, tag): (u64, u64)) -> Option<&T> {
        let set = &self.sets[(hash % self.sets.len() as u64) as usize];
        set.iter().find(|slot| slot.tag == tag).map(|slot| &slot.value)
    }

    /// Returns the number of entries.
    pub(super) fn len(&self) -> usize {
        self.sets.iter().map(Vec::len).sum()
    }
}
