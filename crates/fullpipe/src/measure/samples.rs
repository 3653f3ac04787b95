//! Bounded storage for the socket samples of a test; all streams are sampled at the same times.
//!
//! When the storage is full, every other sample is dropped, and from then on only every other new sample is
//! kept. The samples of a long test are therefore further apart, but they cover the whole test.

use std::collections::BTreeMap;

/// Samples of several streams, limited in number.
#[derive(Clone, Debug)]
pub struct Samples<T> {
    most: usize,
    /// Decimation factor n: one of every n consecutive samples of a stream is kept.
    every: u64,
    streams: BTreeMap<i32, Stream<T>>,
    len: usize,
}

#[derive(Clone, Debug)]
struct Stream<T> {
    seen: u64,
    samples: Vec<T>,
}

impl<T: Clone> Samples<T> {
    /// Creates storage for a total of at most `most` samples of all streams.
    pub const fn new(most: usize) -> Self {
        Self { most, every: 1, streams: BTreeMap::new(), len: 0 }
    }

    /// Adds the next sample of the stream `stream`.
    pub fn push(&mut self, stream: i32, sample: &T) {
        if self.most == 0 {
            return;
        }
        let of = self.streams.entry(stream).or_insert_with(|| Stream { seen: 0, samples: Vec::new() });
        if of.seen.is_multiple_of(self.every) {
            of.samples.push(sample.clone());
            self.len += 1;
        }
        of.seen += 1;
        // At least one sample of each stream remains.
        if self.len > self.most.max(self.streams.len()) {
            self.every *= 2;
            for Stream { samples, .. } in self.streams.values_mut() {
                let mut nth = 0;
                samples.retain(|_| {
                    nth += 1;
                    nth % 2 == 1
                });
            }
            self.len = self.streams.values().map(|of| of.samples.len()).sum();
        }
    }

    /// Returns the samples of each stream, sorted by stream number.
    pub fn streams(&self) -> Vec<Vec<T>> {
        self.streams.values().map(|of| of.samples.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For any number of streams and samples, the storage is bounded, all streams have samples at the same
    /// times, and the samples cover the whole test.
    #[test]
    fn a_long_test_is_kept_coarsely_and_whole() {
        for streams in [1, 3, 7] {
            let mut kept = Samples::new(100);
            for at in 0..1_000 {
                (0..streams).for_each(|stream| kept.push(stream, &at));
            }
            let of_each = kept.streams();
            assert_eq!(of_each.len(), streams as usize);
            assert!(of_each.iter().map(Vec::len).sum::<usize>() <= 100);
            assert!(of_each.iter().all(|samples| samples == &of_each[0]), "{streams}: {of_each:?}");
            let apart = of_each[0][1] - of_each[0][0];
            assert!(of_each[0].windows(2).all(|pair| pair[1] - pair[0] == apart), "{:?}", of_each[0]);
            assert!(of_each[0][0] == 0 && 1_000 - of_each[0][of_each[0].len() - 1] <= apart);
        }
        let mut nothing = Samples::new(0);
        nothing.push(1, &1);
        assert!(nothing.streams().is_empty());
    }
}
