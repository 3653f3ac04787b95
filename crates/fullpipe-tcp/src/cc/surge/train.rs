//! Trains of ACKs: how fast the bottleneck passes a flight.
//!
//! Segments that leave a sender faster than the bottleneck passes them arrive, and are acknowledged, at the
//! rate of the bottleneck. A sender can therefore measure this rate within one flight, long before the pipe
//! is full: the ACKs are further apart than the transmissions were.
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

/// Smallest number of segments in a train. The bottleneck delays single segments by the transmission times of
/// other flows' segments.
const LEAST_SEGMENTS: u64 = 16;

/// Shortest span of the ACKs of a train, as a share of the minimum RTT and as a time. Within a super-segment,
/// which takes 1 ms at the sender, the ACKs are always dispersed.
const SPAN_SHARE: u64 = 8;
const SPAN: Duration = Duration::from_millis(8);

/// Smallest ratio of the span of the ACKs to that of the transmissions that counts as dispersion: 5/4, as for
/// the growth of the bandwidth in BBR's Startup.
const DISPERSION: (u64, u64) = (5, 4);

/// Smallest ratio that counts as strong dispersion: 3/2.
const STRONG_DISPERSION: (u64, u64) = (3, 2);

/// Share of the span of the ACKs that a single gap may take: 1/2. The last segment of a flight may wait 40 ms
/// for a delayed ACK, which is no dispersion. Without this rule, 8 MB take 2 to 4 % longer with loss.
const GAP_SHARE: u64 = 2;

/// An ACK of a train.
#[derive(Clone, Copy, Debug, Default)]
struct Point {
    /// Departure of the newest segment that the ACK delivered.
    sent_at: Instant,
    acked_at: Instant,
    /// Total number of bytes delivered up to this ACK.
    delivered: u64,
}

/// Rate and dispersion of a train of ACKs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TrainRate {
    /// Delivered bytes per time between the ACKs.
    pub(super) rate: Rate,
    sent: Duration,
    acked: Duration,
}

impl TrainRate {
    /// Returns whether the ACKs are further apart than the transmissions were.
    pub(super) fn is_dispersed(&self) -> bool {
        self.exceeds(DISPERSION)
    }

    /// Returns whether the ACKs are much further apart than the transmissions were.
    pub(super) fn is_strongly_dispersed(&self) -> bool {
        self.exceeds(STRONG_DISPERSION)
    }

    fn exceeds(&self, (num, den): (u64, u64)) -> bool {
        self.acked * den > self.sent * num
    }
}

/// The latest ACKs of the start of a connection.
#[derive(Debug)]
pub(super) struct Train {
    points: [Point; POINTS],
    /// Number of ACKs recorded so far.
    count: usize,
    /// Ordinal of the ACK at which the current train begins.
    first: usize,
    /// Rate of the fastest train so far.
    fastest: Rate,
}

impl Default for Train {
    fn default() -> Self {
        Self { points: [Point::default(); POINTS], count: 0, first: 0, fastest: Rate::ZERO }
    }
}

impl Train {
    /// Returns the rate of the fastest train so far.
    pub(super) fn fastest(&self) -> Rate {
        self.fastest
    }

    /// Records an ACK. Returns the shortest train that ends with this ACK and is long enough.
    pub(super) fn on_ack(
        &mut self,
        cx: &Context,
        sample: &AckSample,
        min_rtt: Option<Duration>,
    ) -> Option<TrainRate> {
        // A retransmission was not sent in the order of the flight, and without SACK a duplicate ACK does not
        // tell which segment arrived.
        let usable =
            sample.acked_segments > 0 && sample.first_transmission && (cx.has_sack || sample.was_open);
        if !usable {
            return None;
        }
        let now = Point { sent_at: sample.newest_sent_at, acked_at: cx.now, delivered: cx.delivered };
        if let Some(last) = self.count.checked_sub(1).map(|last| self.points[last % POINTS]) {
            if now.sent_at < last.sent_at {
                return None;
            }
            // ACKs that arrive together are one ACK.
            self.count -= usize::from(now.acked_at == last.acked_at);
        }
        self.points[self.count % POINTS] = now;
        self.count += 1;
        let oldest = self.count.saturating_sub(POINTS);
        self.first = self.first.max(oldest).min(self.count - 1);

        let segments = LEAST_SEGMENTS * cx.mss;
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
