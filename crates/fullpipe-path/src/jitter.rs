//! Jitter: a delay that varies from packet to packet.
//!
//! ```text
//!   in order      exit = max(arrival + extra, exit of the previous packet)    as behind a hidden queue
//!   out of order  exit = arrival + extra                                      as over parallel paths: packets overtake
//! ```

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use fullpipe_units::{Duration, Instant, Probability};

use crate::chance::Streams;
use crate::packet::PacketInfo;

/// Distribution of the extra delay between zero and the maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Spread {
    /// Every packet gets the maximum extra delay.
    Fixed,
    /// The extra delay is uniformly distributed between zero and the maximum.
    Uniform,
    /// The extra delay is normally distributed, centred between zero and the maximum and truncated at three
    /// standard deviations.
    Normal,
}

/// The parameters of a [`Jitter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JitterConfig {
    /// Maximum extra delay of a packet.
    pub most: Duration,
    /// Distribution of the extra delay.
    pub spread: Spread,
    /// Probability that a packet gets an extra delay.
    pub share: Probability,
    /// Whether packets leave in the order in which they arrived.
    pub in_order: bool,
}

/// An element that delays packets by random times.
#[derive(Clone, Debug)]
pub struct Jitter<T> {
    config: JitterConfig,
    chance: Streams<()>,
    /// Random streams that select the packets to delay, separate from the streams of the delays.
    choice: Streams<()>,
    held: DelayLine<T>,
    /// Number of packets that have entered the element, and for each flow the entry number of its newest
    /// packet that has left.
    entered: u64,
    newest: Vec<u64>,
}

#[derive(Clone, Debug)]
enum DelayLine<T> {
    InOrder(VecDeque<DelayedPacket<T>>),
    /// Packets ordered by exit time, and by arrival if the exit times are equal.
    Overtaking(BinaryHeap<Reverse<DelayedPacket<T>>>),
}

#[derive(Clone, Debug)]
struct DelayedPacket<T> {
    exit: Instant,
    number: u64,
    packet: PacketInfo,
    payload: T,
}

impl<T> Jitter<T> {
    /// Creates a jitter element; `element` selects its random streams.
    pub fn new(config: JitterConfig, seed: u64, element: u64) -> Self {
        let held = if config.in_order {
            DelayLine::InOrder(VecDeque::new())
        } else {
            DelayLine::Overtaking(BinaryHeap::new())
        };
        Self {
            config,
            chance: Streams::new(seed, element),
            choice: Streams::new(seed, element | CHOICE),
            held,
            entered: 0,
            newest: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, now: Instant, packet: PacketInfo, payload: T) {
        let (draw, ()) = self.chance.next(packet);
        let (choice, ()) = self.choice.next(packet);
        let extra = if self.config.share.hits(choice) { self.extra(draw) } else { Duration::ZERO };
        let delayed = DelayedPacket { exit: now + extra, number: self.entered, packet, payload };
        self.entered += 1;
        match &mut self.held {
            DelayLine::InOrder(held) => {
                let exit = held.back().map_or(delayed.exit, |before| delayed.exit.max(before.exit));
                held.push_back(DelayedPacket { exit, ..delayed });
            }
            DelayLine::Overtaking(held) => held.push(Reverse(delayed)),
        }
    }

    fn extra(&self, draw: u64) -> Duration {
        let most = self.config.most;
        // The upper 32 bits of the draw, as a fraction of 2^32.
        let part = draw >> 32;
        let scaled =
            |part: u64| Duration::from_nanos(((u128::from(most.as_nanos()) * u128::from(part)) >> 32) as u64);
        match self.config.spread {
            Spread::Fixed => most,
            Spread::Uniform => scaled(part),
            Spread::Normal => scaled(normal(part)),
        }
    }

    /// Returns the time at which the next packet leaves the element, or [`Instant::FAR_FUTURE`] if the
    /// element is empty.
    pub fn next_exit(&self) -> Instant {
        let next = match &self.held {
            DelayLine::InOrder(held) => held.front(),
            DelayLine::Overtaking(held) => held.peek().map(|Reverse(delayed)| delayed),
        };
        next.map_or(Instant::FAR_FUTURE, |delayed| delayed.exit)
    }

    /// Returns the next packet that has left by `now`, its exit time, and whether it was reordered. A packet
    /// is reordered if a later packet of its flow left earlier.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<(Instant, PacketInfo, T, bool)> {
        if self.next_exit() > now {
            return None;
        }
        let delayed = match &mut self.held {
            DelayLine::InOrder(held) => held.pop_front()?,
            DelayLine::Overtaking(held) => held.pop()?.0,
        };
        let flow = delayed.packet.flow as usize;
        if self.newest.len() <= flow {
            self.newest.resize(flow + 1, 0);
        }
        let newest = &mut self.newest[flow];
        let reordered = delayed.number < *newest;
        *newest = delayed.number.max(*newest);
        Some((delayed.exit, delayed.packet, delayed.payload, reordered))
    }

    /// Returns the number of packets in the element.
    pub fn len(&self) -> usize {
        match &self.held {
            DelayLine::InOrder(held) => held.len(),
            DelayLine::Overtaking(held) => held.len(),
        }
    }

    /// Returns whether the element is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> DelayedPacket<T> {
    fn key(&self) -> (Instant, u64) {
        (self.exit, self.number)
    }
}

impl<T> PartialEq for DelayedPacket<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for DelayedPacket<T> {}

impl<T> PartialOrd for DelayedPacket<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for DelayedPacket<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// Offset between the random streams that select packets and the random streams of the delays; element
/// numbers are smaller than this offset.
const CHOICE: u64 = 1 << 20;

/// Lower half of the quantile function of the normal distribution, truncated at three standard deviations:
/// one entry per 1/64 of probability, in units of 2^-16 of the total width. The upper half is its mirror
/// image.
const BELL: [u64; 33] = [
    0, 9_594, 12_615, 14_597, 16_115, 17_367, 18_443, 19_396, 20_257, 21_046, 21_778, 22_465, 23_112, 23_728,
    24_315, 24_880, 25_424, 25_950, 26_461, 26_959, 27_445, 27_920, 28_387, 28_846, 29_297, 29_743, 30_184,
    30_621, 31_054, 31_485, 31_914, 32_341, 32_768,
];

/// Converts a uniformly distributed fraction of 2^32 into a normally distributed fraction, by linear
/// interpolation between the quantiles.
fn normal(uniform: u64) -> u64 {
    const WHOLE: u64 = 1 << 32;
    if uniform >= WHOLE / 2 {
        return WHOLE - normal(WHOLE - 1 - uniform);
    }
    let (index, rest) = ((uniform >> 26) as usize, uniform & ((1 << 26) - 1));
    let (from, to) = (BELL[index], BELL[index + 1]);
    (from << 16) + (((to - from) * rest) >> 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The standard deviation is one sixth of the width, and 68.3 % of the values lie within one standard
    /// deviation of the mean. Linear interpolation between the quantiles causes an error of up to 1 %.
    #[test]
    fn the_bell_is_a_bell() {
        let n = 1 << 16;
        let values: Vec<f64> =
            (0..n).map(|i| normal((i << 16) + (1 << 15)) as f64 / (1u64 << 32) as f64).collect();
        assert!(values.is_sorted() && values[0] >= 0.0 && values[n as usize - 1] <= 1.0);
        let mean = values.iter().sum::<f64>() / n as f64;
        let deviation = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64).sqrt();
        let within = values.iter().filter(|v| (*v - 0.5).abs() <= 1.0 / 6.0).count() as f64 / n as f64;
        assert!((mean - 0.5).abs() < 1e-4, "mean {mean}");
        assert!((deviation * 6.0 - 1.0).abs() < 0.01, "deviation {deviation}");
        assert!((within - 0.683).abs() < 0.01, "{within} within a deviation");
    }
}
