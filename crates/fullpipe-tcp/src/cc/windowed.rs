//! Maximum over a sliding window, from three samples (Kathleen Nichols' filter).
//!
//! A full history would need memory for each sample, whereas a plain maximum would never expire. Three
//! samples are enough: the best one, the best since the first, and the best since the second. When the first
//! sample expires, the second replaces it, because it is the best of the remaining samples.
//!
//! ```text
//!   value   best
//!            ●        second
//!            │          ●      third
//!            │          │        ●
//!     ───────┴──────────┴────────┴──────► time      all three within `window`
//! ```
//!
//! To spread the three samples over the window, the second must be taken after the first quarter of the
//! window, and the third after the first half. The result may be too low but never too high: when the first
//! sample expires, a sample that was larger than the second may already have been discarded.

/// Sampled value and the time of the sample.
#[derive(Clone, Copy, Debug, Default)]
struct TimedValue<V> {
    at: u64,
    value: V,
}

/// Maximum filter over the last `window` units of time, which are rounds in most uses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WindowedMax<V> {
    window: u64,
    /// The largest sample, the largest one after it, and the largest one after the second, oldest first.
    best: [TimedValue<V>; 3],
}

impl<V: Copy + Default + Ord> WindowedMax<V> {
    pub(super) fn new(window: u64) -> Self {
        Self { window, best: [TimedValue::default(); 3] }
    }

    /// Sets the length of the filter window, starting with the next sample.
    pub(super) fn set_window(&mut self, window: u64) {
        self.window = window;
    }

    /// Returns the largest sample in the filter window.
    pub(super) fn get(&self) -> V {
        self.best[0].value
    }

    /// Adds a sample to the maximum filter. `at` must not decrease from call to call.
    pub(super) fn update(&mut self, at: u64, value: V) {
        let new = TimedValue { at, value };
        let [first, second, third] = &mut self.best;
        if value >= first.value || at - third.at > self.window {
            self.best = [new; 3];
            return;
        }
        if value >= second.value {
            (*second, *third) = (new, new);
        } else if value >= third.value {
            *third = new;
        }

        let age = at - first.at;
        if age > self.window {
            (*first, *second, *third) = (*second, *third, new);
            if at - first.at > self.window {
                (*first, *second) = (*second, *third);
            }
        } else if second.at == first.at && age > self.window / 4 {
            (*second, *third) = (new, new);
        } else if third.at == second.at && age > self.window / 2 {
            *third = new;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_value_counts_at_once_and_expires_after_the_window() {
        let mut max = WindowedMax::new(10);
        max.update(0, 100_u64);
        for round in 1..=10 {
            max.update(round, 10);
            assert_eq!(max.get(), 100, "round {round}");
        }
        max.update(11, 10);
        assert_eq!(max.get(), 10);
    }

    #[test]
    fn the_runners_up_take_over_in_turn() {
        let mut max = WindowedMax::new(10);
        for (round, value) in [(0, 100_u64), (4, 80), (8, 60)] {
            max.update(round, value);
        }
        let later: Vec<_> = (9..=20)
            .map(|round| {
                max.update(round, 1);
                max.get()
            })
            .collect();
        assert_eq!(later, [100, 100, 80, 80, 80, 80, 60, 60, 60, 60, 1, 1]);
    }

    #[test]
    fn silence_longer_than_the_window_forgets_everything() {
        let mut max = WindowedMax::new(10);
        max.update(0, 100_u64);
        max.update(100, 1);
        assert_eq!(max.get(), 1);
    }
}
