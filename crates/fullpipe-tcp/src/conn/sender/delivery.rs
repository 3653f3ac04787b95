//! Data delivered by one ACK.

use fullpipe_units::{Duration, Instant};

use crate::estimate::RateSnapshot;
use crate::recovery::rack::Rack;
use crate::recovery::rto::Rto;
use crate::recovery::scoreboard::{Run, SentRecord};

/// Data delivered by one ACK, collected record by record.
pub(super) struct Delivery {
    pub(super) now: Instant,
    /// Minimum RTT before this ACK.
    min_rtt: Option<Duration>,
    pub(super) cum_acked: u64,
    /// Whether the data acknowledged cumulatively gave RACK an RTT.
    cum_timed: bool,
    pub(super) sacked: u64,
    pub(super) segments: u64,
    /// Newest delivered record; the rate sample starts at the snapshot of this record.
    pub(super) newest: Option<Newest>,
    /// Departure times of the first and last cumulatively acknowledged records that were never retransmitted.
    acked: Option<(Instant, Instant)>,
    /// Whether the acknowledged data includes a retransmission. In that case the RTT may be that of the
    /// original transmission (Karn's rule).
    pub(super) ambiguous: bool,
    /// Departure times of the first and last newly SACKed records that were never retransmitted.
    reported: Option<(Instant, Instant)>,
    pub(super) spurious_timeout: bool,
    /// Number of segments that the peer received twice because of a spurious retransmission. These segments
    /// also crossed the path and are counted as delivered (draft-ietf-ccwg-bbr section 2, `C.delivered`),
    /// although they contain no new data.
    pub(super) repeated: u64,
}

/// Counters of the sending half before an ACK is applied.
#[derive(Clone, Copy)]
pub(super) struct Before {
    /// Octets in flight before the ACK is applied.
    pub(super) prior_inflight: u64,
    /// Octets marked lost since the start of the connection.
    pub(super) lost: u64,
    /// Whether no data was known to be missing.
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
    /// Creates an empty delivery record for an ACK that arrives at `now`.
    #[inline]
    pub(super) fn new(now: Instant, min_rtt: Option<Duration>) -> Self {
        Self {
            now,
            min_rtt,
            cum_acked: 0,
            cum_timed: false,
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

    /// Creates the delivery record of an ACK that delivers a single run of records, each sent once.
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

    /// Adds a run of delivered records. The function is not inlined, because most ACKs deliver only one run,
    /// and an inlined copy in a loop would cost more.
    #[inline(never)]
    pub(super) fn take(&mut self, run: Run<'_>, selectively: bool, rack: &mut Rack, rto: &Rto) {
        self.spurious_timeout |= rto.proves_spurious(run.first.sent_at, run.first.transmissions);
        let timed = rack.on_delivered(self.now, run, self.min_rtt, selectively && self.cum_timed);
        self.cum_timed |= timed && !selectively;
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

    /// Returns whether the ACK cumulatively acknowledged exactly one segment, which was sent once.
    pub(super) fn is_single(&self) -> bool {
        self.segments == 1 && self.acked.is_some() && !self.ambiguous
    }

    /// Returns the RTT of the oldest delivered record with an RTT sample, preferring cumulatively
    /// acknowledged records to SACKed ones.
    pub(super) fn oldest_rtt(&self) -> Option<Duration> {
        let acked = self.acked.filter(|_| !self.ambiguous);
        acked.or(self.reported).map(|(oldest, _)| self.now.saturating_since(oldest))
    }

    /// Returns the RTT of the newest delivered record with an RTT sample, preferring SACKed records to
    /// cumulatively acknowledged ones.
    pub(super) fn newest_rtt(&self) -> Option<Duration> {
        let acked = self.acked.filter(|_| !self.ambiguous);
        self.reported.or(acked).map(|(_, newest)| self.now.saturating_since(newest))
    }
}
