//! Trains of ACKs, which show how fast the bottleneck passes a flight.
//!
//! If segments leave a sender faster than the bottleneck passes them, they arrive and are acknowledged at the
//! rate of the bottleneck. From the ACKs, which are then further apart than the transmissions were, a sender
//! can measure this rate within one flight, long before the pipe is full.
//!
//! ```text
//!   sent    | | | | | | | |                                      span of the transmissions
//!   ACKed                     |   |   |   |   |   |   |   |      span of the ACKs: longer, so dispersed
//! ```

use fullpipe_units::{Duration, Instant, Rate};

use crate::cc::gain::rate_of;
use crate::cc::{AckSample, Context};

/// Number of ACKs that are kept.
const POINTS: usize = 64;

/// Smallest number of segments in a train. In a shorter train, segments of other flows that the bottleneck
/// sends in between would distort the rate.
const LEAST_SEGMENTS: u64 = 16;

/// Minimum ACK span of a train: an eighth of the minimum RTT, but no more than 8 ms. A shorter span could lie
/// within one super-segment (1 ms of data at the sender). All its segments have the same departure time, so
/// their ACKs always look dispersed.
const SPAN_SHARE: u64 = 8;
const SPAN: Duration = Duration::from_millis(8);

/// Minimum ratio of the ACK span to the transmission span that indicates dispersion: 5/4, as for the growth
/// of the bandwidth in BBR's Startup.
const DISPERSION: (u64, u64) = (5, 4);

/// Minimum ratio that indicates strong dispersion: 3/2.
const STRONG_DISPERSION: (u64, u64) = (3, 2);

/// Divisor of the ACK span: a single gap may take at most half of the span. A delayed ACK may acknowledge the
/// last segment of a flight up to 40 ms late; such a gap is not dispersion. Without this rule, downloads of 8
/// MB with loss take 2 to 4 % longer.
const GAP_SHARE: u64 = 2;

/// Longest time between two ACKs of a batch, and longest duration of a batch. A sender that is late reads the ACKs that
/// have arrived in the meantime one right after the other, within microseconds.
const BATCH_GAP: Duration = Duration::from_micros(25);
const BATCH: Duration = Duration::from_millis(1);

/// The last ACK of a batch.
#[derive(Clone, Copy, Debug, Default)]
struct Point {
    /// Departure time of the newest segment that the ACK delivered.
    sent_at: Instant,
    acked_at: Instant,
    /// Total number of bytes delivered up to this ACK.
    delivered: u64,
}

/// Rate and dispersion of a train of ACKs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TrainRate {
    /// Number of bytes delivered, divided by the time between the first and the last ACK.
    pub(super) rate: Rate,
    sent: Duration,
    acked: Duration,
}

impl TrainRate {
    /// Returns whether the ACK span exceeds the transmission span by more than a quarter.
    pub(super) fn is_dispersed(&self) -> bool {
        self.exceeds(DISPERSION)
    }

    /// Returns whether the ACK span exceeds the transmission span by more than half.
    pub(super) fn is_strongly_dispersed(&self) -> bool {
        self.exceeds(STRONG_DISPERSION)
    }

    fn exceeds(&self, (num, den): (u64, u64)) -> bool {
        self.acked * den > self.sent * num
    }
}

/// Latest ACKs of a connection, and the current train among them.
#[derive(Debug)]
pub(super) struct Train {
    points: [Point; POINTS],
    /// Number of ACKs recorded so far.
    count: usize,
    /// Ordinal of the ACK at which the current train begins.
    first: usize,
    /// Rate of the fastest train so far.
    fastest: Rate,
    /// Train that ends with the latest ACK.
    latest: Option<TrainRate>,
    /// Time of the first ACK of the latest batch.
    batch: Instant,
}

impl Default for Train {
    fn default() -> Self {
        Self {
            points: [Point::default(); POINTS],
            count: 0,
            first: 0,
            fastest: Rate::ZERO,
            latest: None,
            batch: Instant::ZERO,
        }
    }
}

impl Train {
    /// Returns the rate of the fastest train so far.
    pub(super) fn fastest(&self) -> Rate {
        self.fastest
    }

    /// Records an ACK. If it begins a batch, returns the rate and dispersion of the shortest sufficiently long train
    /// that ends with the previous batch.
    ///
    /// If the sender is late, the first ACK of a batch has a large delay, which the last one does not have. Only the last
    /// one shows the path, and it is known to be the last when the next batch begins.
    pub(super) fn on_ack(
        &mut self,
        cx: &Context,
        sample: &AckSample,
        min_rtt: Option<Duration>,
    ) -> Option<TrainRate> {
        // A retransmission does not leave in the order of the flight, and without SACK a duplicate ACK does
        // not show which segment arrived.
        let usable =
            sample.acked_segments > 0 && sample.first_transmission && (cx.has_sack || sample.was_open);
        if !usable {
            return None;
        }
        let now = Point { sent_at: sample.newest_sent_at, acked_at: cx.now, delivered: cx.delivered };
        let last = self.count.checked_sub(1).map(|last| self.points[last % POINTS]);
        if last.is_some_and(|last| now.sent_at < last.sent_at) {
            return None;
        }
        let is_same_batch = last
            .is_some_and(|last| now.acked_at.saturating_since(last.acked_at) <= BATCH_GAP)
            && now.acked_at.saturating_since(self.batch) <= BATCH;
        let before = if is_same_batch {
            self.count -= 1;
            None
        } else {
            self.batch = now.acked_at;
            self.latest
        };
        self.points[self.count % POINTS] = now;
        self.count += 1;
        self.latest = self.measure(cx.mss, min_rtt);
        before
    }

    /// Returns the rate and dispersion of the shortest sufficiently long train that ends with the latest ACK.
    fn measure(&mut self, mss: u64, min_rtt: Option<Duration>) -> Option<TrainRate> {
        let now = self.points[(self.count - 1) % POINTS];
        let oldest = self.count.saturating_sub(POINTS);
        self.first = self.first.max(oldest).min(self.count - 1);

        let segments = LEAST_SEGMENTS * mss;
        let span = (min_rtt? / SPAN_SHARE).min(SPAN);
        let has_segments = |from: Point| now.delivered - from.delivered >= segments;
        let is_long =
            |from: Point| has_segments(from) && now.acked_at.saturating_since(from.acked_at) >= span;
        while self.first + 1 < self.count && is_long(self.points[(self.first + 1) % POINTS]) {
            self.first += 1;
        }
        let from = self.points[self.first % POINTS];
        let is_all = oldest > 0 && self.first == oldest && has_segments(from);
        let acked = now.acked_at.saturating_since(from.acked_at);
        if acked.is_zero() || !(is_long(from) || is_all) {
            return None;
        }
        let rate = rate_of(now.delivered - from.delivered, acked);
        self.fastest = self.fastest.max(rate);
        let sent = now.sent_at.saturating_since(from.sent_at);
        if self.longest_gap() * GAP_SHARE > acked {
            return None;
        }
        Some(TrainRate { rate, sent, acked })
    }

    /// Returns the longest time between two ACKs of the train.
    fn longest_gap(&self) -> Duration {
        let points = (self.first..self.count).map(|point| self.points[point % POINTS].acked_at);
        let gaps = points.clone().zip(points.skip(1)).map(|(from, to)| to.saturating_since(from));
        gaps.max().unwrap_or_default()
    }
}
