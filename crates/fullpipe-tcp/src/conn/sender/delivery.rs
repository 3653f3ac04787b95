//! The delivery reported by one ACK.

use fullpipe_units::{Duration, Instant};

use crate::estimate::RateSnapshot;
use crate::recovery::rack::Rack;
use crate::recovery::rto::Rto;
use crate::recovery::scoreboard::{Run, SentRecord};

/// Data delivered by one ACK, collected record by record.
pub(super) struct Delivery {
    pub(super) now: Instant,
    /// Smallest RTT before this ACK.
    min_rtt: Option<Duration>,
    pub(super) cum_acked: u64,
    pub(super) sacked: u64,
    pub(super) segments: u64,
    /// Snapshot of the newest delivered record, which starts the rate sample.
    pub(super) newest: Option<Newest>,
    /// Departures of the first and last record acknowledged cumulatively, without retransmissions.
    acked: Option<(Instant, Instant)>,
    /// Whether the acknowledged data includes a retransmission, so the RTT may be that of the original
    /// (Karn).
    pub(super) ambiguous: bool,
    /// Departures of the first and last record newly SACKed and never retransmitted.
    reported: Option<(Instant, Instant)>,
    pub(super) spurious_timeout: bool,
    /// Segments that the peer received twice because of a needless retransmission. They crossed the path too
    /// and count as delivered (draft-ietf-ccwg-bbr section 2, `C.delivered`), although they bring no new
    /// data.
    pub(super) repeated: u64,
}

/// Counters before an ACK is applied.
#[derive(Clone, Copy)]
pub(super) struct Before {
    /// Octets in the network.
    pub(super) prior_inflight: u64,
    /// Octets marked lost since the start.
    pub(super) lost: u64,
    /// Whether nothing was known to be missing.
    pub(super) open: bool,
}

#[derive(Clone, Copy)]
pub(super) struct Newest {
    pub(super) sent_at: Instant,
    end: u64,
    pub(super) snapshot: RateSnapshot,
    pub(super) first_transmission: bool,
}

impl Newest {
    fn of(record: &SentRecord) -> Self {
        Self {
            sent_at: record.sent_at,
            end: record.end(),
            snapshot: record.snapshot,
            first_transmission: record.transmissions == 1,
        }
    }
}

impl Delivery {
    /// Creates an empty delivery.
    #[inline]
    pub(super) fn new(now: Instant, min_rtt: Option<Duration>) -> Self {
        Self {
            now,
            min_rtt,
            cum_acked: 0,
            sacked: 0,
            segments: 0,
            newest: None,
            acked: None,
            ambiguous: false,
            reported: None,
            spurious_timeout: false,
            repeated: 0,
        }
    }

    /// Creates the delivery of an ACK that consists of a single run of records sent once.
    #[inline]
    pub(super) fn of_run(now: Instant, min_rtt: Option<Duration>, run: Run<'_>) -> Self {
        let Run { first, last, segments, octets } = run;
        Self {
            cum_acked: octets,
            segments,
            newest: Some(Newest::of(last)),
            acked: Some((first.sent_at, last.sent_at)),
            ..Self::new(now, min_rtt)
        }
    }

    /// Adds a run. It stays a call: most ACKs have one run, and inlining it into a loop would cost more.
    #[inline(never)]
    pub(super) fn take(&mut self, run: Run<'_>, selectively: bool, rack: &mut Rack, rto: &Rto) {
        self.spurious_timeout |= rto.proves_spurious(run.first.sent_at, run.first.transmissions);
        rack.on_delivered(self.now, run, self.min_rtt);
        let Run { first, last, segments, octets } = run;
        if selectively {
            self.sacked += octets;
        } else {
            self.cum_acked += octets;
        }
        self.segments += segments;
        let first_transmission = last.transmissions == 1;
        if self.newest.is_none_or(|newest| (last.sent_at, last.end()) > (newest.sent_at, newest.end)) {
            self.newest = Some(Newest::of(last));
        }
        let span = if selectively { &mut self.reported } else { &mut self.acked };
        if first_transmission {
            span.get_or_insert((first.sent_at, last.sent_at)).1 = last.sent_at;
        } else {
            self.ambiguous |= !selectively;
        }
    }

    pub(super) fn delivered(&self) -> u64 {
        self.cum_acked + self.sacked
    }

    /// Returns the RTT of the oldest record that yields one, preferring cumulatively acknowledged records to
    /// SACKed ones.
    pub(super) fn oldest_rtt(&self) -> Option<Duration> {
        let acked = self.acked.filter(|_| !self.ambiguous);
        acked.or(self.reported).map(|(oldest, _)| self.now.saturating_since(oldest))
    }

    /// Returns the RTT of the newest record that yields one, preferring SACKed records to cumulatively
    /// acknowledged ones.
    pub(super) fn newest_rtt(&self) -> Option<Duration> {
        let acked = self.acked.filter(|_| !self.ambiguous);
        self.reported.or(acked).map(|(_, newest)| self.now.saturating_since(newest))
    }
}
