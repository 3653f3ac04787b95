//! Delivery-rate sampling (draft-ietf-ccwg-bbr section 4.1).
//!
//! Each transmission stores a snapshot of the delivered byte count at its departure. When that transmission
//! is itself delivered, the estimator divides the number of bytes delivered since then by the longer of two
//! intervals. The result is the delivery rate of the path:
//!
//! ```text
//!   send_elapsed = P.sent_at - P.first_send_time      time taken to send the delivered data
//!   ack_elapsed  = now - P.delivered_time             time taken to acknowledge it
//!   rate         = (delivered - P.delivered) / max(send_elapsed, ack_elapsed)
//! ```
//!
//! The longer interval is used because delayed ACKs that arrive together would otherwise show a rate above
//! that of the path.

use fullpipe_units::{Bytes, Duration, Instant, Rate};

/// Delivery state of the connection when a record was last sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateSnapshot {
    /// Total number of bytes delivered when the record was sent.
    pub delivered: u64,
    /// Time at which `delivered` last grew before the record was sent.
    pub delivered_time: Instant,
    /// Start of the send interval: departure time of the newest record delivered before this record was sent,
    /// or of the first record sent after nothing was in flight.
    pub first_send_time: Instant,
    /// Bytes in flight just after the record was sent, including the record.
    pub tx_in_flight: u64,
    /// Total number of bytes marked lost when the record was sent.
    pub lost: u64,
    /// Whether the flow was application-limited when the record was sent.
    pub app_limited: bool,
}

/// Delivery-rate sample: bytes delivered in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateSample {
    /// Number of bytes delivered in the interval.
    pub delivered: u64,
    /// Interval in which the bytes were delivered.
    pub interval: Duration,
    /// Whether the sample is application-limited, because the application left part of the window unused
    /// during the interval.
    pub app_limited: bool,
}

impl RateSample {
    /// Returns the delivery rate of the sample.
    pub fn rate(self) -> Rate {
        Rate::of(Bytes::new(self.delivered), self.interval)
    }

    fn is_at_least(self, other: Self) -> bool {
        let product = |bytes: u64, span: Duration| u128::from(bytes) * u128::from(span.as_nanos());
        product(self.delivered, other.interval) >= product(other.delivered, self.interval)
    }
}

/// Delivery-rate estimator of a connection.
#[derive(Clone, Debug, Default)]
pub struct DeliveryRate {
    /// Total number of bytes delivered since the start of the connection.
    pub delivered: u64,
    /// Time at which `delivered` last grew.
    pub delivered_time: Instant,
    first_send_time: Instant,
    /// Value of `delivered` up to which samples are marked application-limited; zero if samples are not being
    /// marked.
    app_limited_until: u64,
    next_round_delivered: u64,
    last: Option<RateSample>,
}

impl DeliveryRate {
    /// Returns the delivery snapshot for a transmission that leaves at `departure`.
    pub fn on_send(&mut self, departure: Instant, inflight: u64, len: u64, lost: u64) -> RateSnapshot {
        if inflight == 0 {
            // A new flight starts, and the idle time before it must not lower the delivery rate.
            self.first_send_time = departure;
            self.delivered_time = departure;
        }
        RateSnapshot {
            delivered: self.delivered,
            delivered_time: self.delivered_time,
            first_send_time: self.first_send_time,
            tx_in_flight: inflight + len,
            lost,
            app_limited: self.app_limited_until != 0,
        }
    }

    /// Records the delivery of `len` bytes.
    pub fn on_delivered(&mut self, now: Instant, len: u64) {
        self.delivered += len;
        self.delivered_time = now;
        if self.app_limited_until != 0 && self.delivered > self.app_limited_until {
            self.app_limited_until = 0;
        }
    }

    /// Returns the interval of the rate sample that ends with the delivery of a record sent at `sent_at` with
    /// `snapshot`. An interval shorter than `min_rtt` yields `None`, because no real delivery is that fast.
    /// The next send interval starts at `sent_at`.
    pub fn interval(
        &mut self,
        sent_at: Instant,
        snapshot: &RateSnapshot,
        min_rtt: Option<Duration>,
    ) -> Option<Duration> {
        self.first_send_time = sent_at;
        let send_elapsed = sent_at.saturating_since(snapshot.first_send_time);
        let ack_elapsed = self.delivered_time.saturating_since(snapshot.delivered_time);
        let interval = send_elapsed.max(ack_elapsed);
        (!interval.is_zero() && min_rtt.is_none_or(|min| interval >= min)).then_some(interval)
    }

    /// Stores a rate sample for reports, as the kernel stores `tcpi_delivery_rate`. An application-limited
    /// sample does not replace an earlier sample with a higher rate.
    pub fn keep(&mut self, sample: RateSample) {
        if !sample.app_limited || self.last.is_none_or(|last| sample.is_at_least(last)) {
            self.last = Some(sample);
        }
    }

    /// Returns the most recently stored rate sample.
    pub fn last(&self) -> Option<RateSample> {
        self.last
    }

    /// Returns whether the delivery of a record with this snapshot begins a new packet-timed round trip.
    pub fn starts_round(&mut self, snapshot: &RateSnapshot) -> bool {
        let starts = snapshot.delivered >= self.next_round_delivered;
        if starts {
            self.next_round_delivered = self.delivered;
        }
        starts
    }

    /// Marks samples application-limited until all data in flight has been delivered. Call this method if the
    /// application has nothing to send although the window has room.
    pub fn mark_app_limited(&mut self, inflight: u64) {
        self.app_limited_until = (self.delivered + inflight).max(1);
    }

    /// Returns whether samples are being marked application-limited.
    pub fn is_app_limited(&self) -> bool {
        self.app_limited_until != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// The rate sample uses the longer of the send and ACK intervals (DR-1 and DR-2). An interval below
    /// `min_rtt` is invalid.
    #[test]
    fn the_longer_interval_counts() {
        let snapshot = RateSnapshot {
            delivered: 20_000,
            delivered_time: at(100),
            first_send_time: at(90),
            ..RateSnapshot::default()
        };
        let mut rate = DeliveryRate { delivered: 40_000, ..DeliveryRate::default() };
        rate.on_delivered(at(115), 10_000);
        assert_eq!(rate.delivered - snapshot.delivered, 30_000);
        assert_eq!(rate.interval(at(110), &snapshot, None), Some(Duration::from_millis(20)));
        assert_eq!(rate.interval(at(110), &snapshot, Some(Duration::from_millis(25))), None);
    }

    /// Samples are marked application-limited until all data that was in flight has been delivered (DR-6).
    #[test]
    fn app_limited_lasts_until_the_flight_is_delivered() {
        let mut rate = DeliveryRate { delivered: 50_000, ..DeliveryRate::default() };
        rate.mark_app_limited(20_000);
        rate.on_delivered(at(1), 20_000);
        assert!(rate.on_send(at(2), 1, 1, 0).app_limited);
        rate.on_delivered(at(3), 1);
        assert!(!rate.on_send(at(4), 1, 1, 0).app_limited);
    }

    /// A pause of the application does not lower the reported delivery rate; only the next sample without a
    /// pause may lower it.
    #[test]
    fn a_pause_does_not_hide_the_path() {
        let sample = |delivered, app_limited| RateSample {
            delivered,
            interval: Duration::from_millis(10),
            app_limited,
        };
        let mut rate = DeliveryRate::default();
        rate.keep(sample(1_250, true));
        rate.keep(sample(12_500, false));
        rate.keep(sample(1_250, true));
        assert_eq!(rate.last().map(RateSample::rate), Some(Rate::from_bps(10_000_000)));
        rate.keep(sample(125, false));
        assert_eq!(rate.last().map(RateSample::rate), Some(Rate::from_bps(100_000)));
    }

    /// A round ends when a segment sent after the start of the round is delivered (DR-13).
    #[test]
    fn rounds_are_timed_by_packets() {
        let mut rate = DeliveryRate::default();
        let first = rate.on_send(at(0), 0, 10, 0);
        rate.on_delivered(at(10), 10);
        assert!(rate.starts_round(&first));
        let second = rate.on_send(at(10), 0, 10, 0);
        assert!(!rate.starts_round(&first));
        rate.on_delivered(at(20), 10);
        assert!(rate.starts_round(&second));
    }
}
