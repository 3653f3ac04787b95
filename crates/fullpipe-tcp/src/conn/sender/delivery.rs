//! What one ACK delivered.

use fullpipe_units::{Duration, Instant};

use crate::estimate::RateSnapshot;
use crate::recovery::rack::Rack;
use crate::recovery::rto::Rto;
use crate::recovery::scoreboard::{Run, SentRecord};

/// What one ACK delivered, gathered record by record.
pub(super) struct Delivery {
    pub(super) now: Instant,
    /// The smallest RTT before this ACK.
    min_rtt: Option<Duration>,
    pub(super) cum_acked: u64,
    pub(super) sacked: u64,
    pub(super) segments: u64,
    /// Snapshot of the newest delivered record, which dates the rate sample.
    pub(super) newest: Option<Newest>,
    /// Departures of the first and last record acknowledged cumulatively, if none was retransmitted.
    acked: Option<(Instant, Instant)>,
    /// Karn: what is acknowledged includes a retransmission, so the delay may be that of its original.
    pub(super) ambiguous: bool,
    /// The same of what was newly reported selectively and never retransmitted.
    reported: Option<(Instant, Instant)>,
    pub(super) spurious_timeout: bool,
    /// Segments that the peer has twice, because they were retransmitted in vain. They crossed the path too, and count as delivered
    /// (draft-ietf-ccwg-bbr section 2, `C.delivered`), though they bring nothing.
    pub(super) repeated: u64,
}

/// What an ACK's sums count from.
#[derive(Clone, Copy)]
pub(super) struct Before {
    /// Octets in the network.
    pub(super) prior_inflight: u64,
    /// Octets marked lost since the start.
    pub(super) lost: u64,
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
    /// Nothing so far.
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

    /// The one run of an ACK of what was sent once, which is all there is to it.
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

    /// A call: there is one run in most ACKs, and spread out in a loop this would cost more.
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

    /// RTT of the oldest record that gives one: what is acknowledged counts before what is reported.
    pub(super) fn oldest_rtt(&self) -> Option<Duration> {
        let acked = self.acked.filter(|_| !self.ambiguous);
        acked.or(self.reported).map(|(oldest, _)| self.now.saturating_since(oldest))
    }

    /// RTT of the newest record that gives one.
    pub(super) fn newest_rtt(&self) -> Option<Duration> {
        let acked = self.acked.filter(|_| !self.ambiguous);
        self.reported.or(acked).map(|(_, newest)| self.now.saturating_since(newest))
    }
}
