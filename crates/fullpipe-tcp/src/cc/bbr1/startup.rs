//! Interface to BBRv1's model for a controller with its own rules for Startup, packet conservation, congestive
//! loss and an outdated bandwidth (`cc/surge`).
//!
//! BBRv1 itself calls none of these functions, so its behaviour does not depend on them.

use fullpipe_units::{Bytes, Duration, Rate};

use super::{BW_ROUNDS, Bbr1, Gain, HIGH_GAIN, MIN_CWND, Mode};
use crate::cc::Context;
use crate::cc::windowed::WindowedMax;

impl Bbr1 {
    /// Returns whether the controller is in Startup and the pipe is not known to be full.
    pub(in crate::cc) fn is_in_startup(&self) -> bool {
        matches!(self.mode, Mode::Startup) && !self.full_pipe.is_reached()
    }

    /// Returns whether packet conservation sets the window.
    pub(in crate::cc) fn is_conserving(&self) -> bool {
        self.conserving
    }

    /// Sets whether recovery begins with packet conservation. If `conserves` becomes true in a recovery that
    /// has begun without packet conservation, conservation begins at the next ACK.
    pub(in crate::cc) fn set_conserves(&mut self, conserves: bool) {
        self.conserves = conserves;
    }

    /// Returns the minimum RTT of the path model.
    pub(in crate::cc) fn path_rtt(&self) -> Option<Duration> {
        self.min_rtt
    }

    /// Returns the bandwidth estimate of the path model.
    pub(in crate::cc) fn path_rate(&self) -> Rate {
        self.bandwidth()
    }

    /// Returns the congestion window in segments.
    pub(in crate::cc) fn window(&self) -> u64 {
        self.cwnd
    }

    /// Returns the pacing rate.
    pub(in crate::cc) fn rate(&self) -> Rate {
        self.pacing_rate
    }

    /// Returns whether the pacing rate is below the bandwidth estimate, to drain a queue.
    pub(in crate::cc) fn paces_below_bandwidth(&self) -> bool {
        self.pacing_gain() < Gain::UNIT
    }

    /// Returns the pacing rate of Startup at the bandwidth of the path model.
    pub(in crate::cc) fn startup_rate(&self) -> Rate {
        HIGH_GAIN.pacing(self.bandwidth())
    }

    /// Returns `num / den` times the BDP at the bandwidth `bw`, plus the offload allowance, in segments.
    pub(in crate::cc) fn window_for(&self, bw: Rate, num: u64, den: u64) -> u64 {
        self.target_inflight(bw, Gain::of(num, den, 0))
    }

    /// Sets the congestion window, in segments, and the pacing rate. Both values apply until the next ACK.
    pub(in crate::cc) fn set_control(&mut self, window: u64, rate: Rate) {
        self.cwnd = window;
        self.pacing_rate = rate;
    }

    /// Bounds the congestion window, in segments. The minimum window remains.
    pub(in crate::cc) fn set_bound(&mut self, segments: u64) {
        self.bound = segments.max(MIN_CWND);
    }

    /// Returns the bandwidth-delay product in segments, without the offload allowance.
    pub(in crate::cc) fn path_bdp(&self) -> u64 {
        self.bdp(self.bandwidth(), Gain::UNIT)
    }

    /// Returns the queueing delay that the offload allowance may cause when the pacing rate is the bandwidth.
    pub(in crate::cc) fn allowance(&self) -> Duration {
        let allowance = self.target_inflight(self.bandwidth(), Gain::UNIT).saturating_sub(self.path_bdp());
        self.bandwidth().time_for(Bytes::new(allowance * self.mss))
    }

    /// Restarts the detection of a full pipe, because the path did not limit the rate.
    pub(in crate::cc) fn forget_growth(&mut self) {
        self.full_pipe.forget_growth();
    }

    /// Ends Startup at the next ACK, because the bandwidth has been measured by other means.
    pub(in crate::cc) fn end_startup(&mut self) {
        self.full_pipe.declare();
    }

    /// Replaces the bandwidth estimate, and everything measured with it, because the path has changed.
    pub(in crate::cc) fn restart_bandwidth(&mut self, cx: &Context, bw: Rate) {
        self.bw = WindowedMax::new(BW_ROUNDS);
        self.bw.update(self.round, bw);
        self.aggregation.restart(cx.now);
    }
}
