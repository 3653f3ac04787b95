//! Minimum RTT of the path, and the schedule of ProbeRTT (draft sections 5.3.4.3 and 5.5.7).
//!
//! BBR takes the minimum over two windows. The shorter window schedules ProbeRTT. The longer window retains
//! the result of the previous ProbeRTT. The congestion window of the next ProbeRTT, half of the BDP, is
//! therefore computed from an RTT without queueing delay. BBR accepts a larger RTT only after a ProbeRTT has
//! emptied the queue.

use fullpipe_units::{Duration, Instant};

use super::constants::*;

/// Minimum RTT, both over the `min_rtt` window and over the ProbeRTT interval.
#[derive(Debug)]
pub(super) struct MinRtt {
    min_rtt: Option<Duration>,
    stamp: Instant,
    /// `BBR.probe_rtt_min_delay`: minimum over [`PROBE_RTT_INTERVAL`].
    recent: Option<Duration>,
    pub(super) recent_stamp: Instant,
    /// `BBR.probe_rtt_expired`: whether ProbeRTT is due.
    is_due: bool,
}

impl MinRtt {
    pub(super) fn new(now: Instant, rtt: Option<Duration>) -> Self {
        Self { min_rtt: rtt, stamp: now, recent: rtt, recent_stamp: now, is_due: false }
    }

    /// Returns `BBR.min_rtt`, or `None` before the first RTT sample.
    pub(super) fn get(&self) -> Option<Duration> {
        self.min_rtt
    }

    /// Returns whether ProbeRTT is due, that is, whether [`PROBE_RTT_INTERVAL`] has passed without a lower
    /// RTT.
    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    /// Implements `UpdateMinRTT()` of the BBR draft.
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

    /// Schedules the next ProbeRTT one interval after `now`, the end of the previous ProbeRTT.
    pub(super) fn schedule(&mut self, now: Instant) {
        self.recent_stamp = now;
    }
}

/// Progress of the current ProbeRTT phase.
#[derive(Debug, Default)]
pub(super) struct ProbeRtt {
    /// `BBR.probe_rtt_done_stamp`: earliest end of ProbeRTT; `None` until the pipe has drained.
    pub(super) done_at: Option<Instant>,
    /// `BBR.probe_rtt_round_done`: whether a full round trip has passed since the pipe drained.
    pub(super) round_done: bool,
}
