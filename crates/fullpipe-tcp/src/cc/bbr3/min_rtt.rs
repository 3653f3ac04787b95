//! The round trip with an empty queue, and when to look for it anew (5.3.4.3, 5.5.7).
//!
//! Two minima over two times. The shorter says when ProbeRTT is due; the longer remembers what the ProbeRTT before
//! found, so that half the BDP is half of the true one, and an RTT is believed to have grown only after ProbeRTT has
//! emptied the queue.

use fullpipe_units::{Duration, Instant};

use super::constants::*;

/// Both minima.
#[derive(Debug)]
pub(super) struct MinRtt {
    min_rtt: Option<Duration>,
    stamp: Instant,
    /// `BBR.probe_rtt_min_delay`: the least of [`PROBE_RTT_INTERVAL`].
    recent: Option<Duration>,
    pub(super) recent_stamp: Instant,
    /// `BBR.probe_rtt_expired`.
    is_due: bool,
}

impl MinRtt {
    pub(super) fn new(now: Instant, rtt: Option<Duration>) -> Self {
        Self { min_rtt: rtt, stamp: now, recent: rtt, recent_stamp: now, is_due: false }
    }

    /// `BBR.min_rtt`; `None` before the first sample.
    pub(super) fn get(&self) -> Option<Duration> {
        self.min_rtt
    }

    /// No lower RTT was seen for [`PROBE_RTT_INTERVAL`].
    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    /// `UpdateMinRTT()`.
    pub(super) fn update(&mut self, now: Instant, rtt: Option<Duration>) {
        self.is_due = now > self.recent_stamp + PROBE_RTT_INTERVAL;
        if let Some(rtt) = rtt
            && (self.is_due || self.recent.is_none_or(|least| rtt < least))
        {
            self.recent = Some(rtt);
            self.recent_stamp = now;
        }
        let expired = now > self.stamp + MIN_RTT_FILTER_LEN;
        let lower = self.recent.is_some_and(|recent| self.min_rtt.is_none_or(|least| recent < least));
        if lower || expired {
            self.min_rtt = self.recent;
            self.stamp = self.recent_stamp;
        }
    }

    /// ProbeRTT is over: the next is due an interval from now.
    pub(super) fn schedule(&mut self, now: Instant) {
        self.recent_stamp = now;
    }
}

/// How far ProbeRTT has come.
#[derive(Debug, Default)]
pub(super) struct ProbeRtt {
    /// `BBR.probe_rtt_done_stamp`: when it may end; `None` until the pipe has emptied.
    pub(super) done_at: Option<Instant>,
    /// `BBR.probe_rtt_round_done`: a whole round trip has passed since.
    pub(super) round_done: bool,
}
