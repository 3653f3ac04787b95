//! CUBIC (RFC 9438) with HyStart, in the fixed-point arithmetic of Linux.
//!
//! After a reduction, the window follows a cubic function of *time* rather than of round trips. On a long
//! path, the window therefore recovers as fast as on a short path:
//!
//! ```text
//!   W(t) = C (t - K)^3 + Wmax       K = cbrt((Wmax - cwnd) / C)
//!
//!   cwnd                          ╱  convex: probes for new capacity
//!   Wmax ─ ─ ─ ─ ─ ─ ─ ─ ────────╯
//!                   ╭────          concave: back to the window of the loss, fast at first
//!   0.7 Wmax ──────╯
//!            t = 0              K
//! ```
//!
//! On short paths the cubic function grows more slowly than Reno. There, the window follows an estimate of
//! Reno's window (`w_est`). A loss below the last `Wmax` means that another flow is growing. `Wmax` is then
//! set below the window, so that this flow releases capacity sooner (fast convergence).
//!
//! As in Linux, time is in ticks of 1/1024 s, and the cubic function is evaluated one minimum RTT ahead.
//! Growth is expressed as `count`, the number of ACKed segments per segment of growth. A reduction is
//! computed from the congestion window rather than from the bytes in flight, and is the same for a loss and
//! an ECN mark. An undo restores the window, but not the cubic function.

use fullpipe_units::{Duration, Instant};

use super::slow_start::Watch;
use super::window::{KEEP_ONE, RECOMPUTE, Window, plateau};
use super::{AckSample, CongestionControl, Context, Control, Hints, Sent, Signal, SlowStart, Status};

/// Multiplicative decrease factor, in units of 1/1024: 0.70020, which approximates RFC 9438's 0.7.
pub(super) const BETA: u64 = 717;

/// RFC 9438's constant C, in units of 1/1024 segments per second cubed: 0.40039, which approximates 0.4.
const C: u64 = 410;

/// Number of fractional bits in `C`, plus three times the number of fractional bits in a time in ticks. A
/// cube of ticks, multiplied by `C` and shifted right by this number, is in segments.
const CUBE_SHIFT: u32 = 10 + 3 * TICK_SHIFT;

/// Number of fractional bits in a time in ticks; a tick is 2^-10 s.
const TICK_SHIFT: u32 = 10;

/// Number of ACKed segments per segment of growth of the Reno estimate, in eighths of the window: 15. The
/// estimate grows by 8/15 = 0.5333 segments per round trip, compared with 0.5294 for RFC 9438's `3 (1 - beta)
/// / (1 + beta)`.
const RENO_SLOPE: u64 = 8 * (KEEP_ONE + BETA) / 3 / (KEEP_ONE - BETA);

/// Bounds of `count`, the number of ACKed segments per segment of growth. The lower bound limits growth to
/// half a window per round trip. The upper bound applies before the first loss, while the plateau is unknown:
/// the window then grows by at least 5 % per round trip.
const MIN_COUNT: u64 = 2;
const MAX_COUNT_WITHOUT_LOSS: u64 = 20;

/// Number of windows that must be ACKed at the plateau for one segment of growth; the window grows most
/// slowly there.
const PLATEAU_WINDOWS: u64 = 100;

/// Time after the start of an epoch during which RTT samples still include the queue that caused the window
/// reduction.
const RTT_HOLD_OFF: Duration = Duration::from_secs(1);

/// CUBIC state of one connection.
#[derive(Debug)]
pub struct Cubic {
    window: Window,
    slow_start: Watch,
    curve: Curve,
}

impl Cubic {
    /// Returns a CUBIC controller for a new connection.
    pub fn new(cx: &Context, hints: &Hints) -> Self {
        let kind = hints.slow_start.unwrap_or(SlowStart::HyStart);
        Self {
            window: Window::new(cx, hints),
            slow_start: Watch::new(cx, kind, hints.launch.is_some()),
            curve: Curve::default(),
        }
    }
}

/// Interface to the window for a controller that decides itself which losses reduce it (`cc/surge`).
impl Cubic {
    /// Returns a window of `segments` in congestion avoidance.
    pub(super) fn with_window(cx: &Context, segments: u64) -> Self {
        let mut cubic = Self::new(cx, &Hints::default());
        cubic.window.set(segments);
        cubic
    }

    /// Returns the window in segments.
    pub(super) fn cwnd(&self) -> u64 {
        self.window.cwnd()
    }

    /// Reduces the window to `keep`/1024 of it, but not below `least` segments.
    pub(super) fn reduce(&mut self, keep: u64, least: u64) {
        let cwnd = self.window.cwnd();
        let reduced = self.curve.cut(cwnd, keep);
        self.window.set(reduced.max(least.min(cwnd)));
    }

    /// Grows the window for an ACK of data that was sent while the window limited the sender.
    pub(super) fn grow(&mut self, cx: &Context, sample: &AckSample) {
        if let Some(rtt) = sample.rtt {
            self.curve.note_rtt(cx.now, rtt);
        }
        if sample.acked_segments > 0 {
            self.follow_curve(cx.now, sample.acked_segments);
        }
    }

    /// Excludes the idle time `idle` from the time of the cubic function.
    pub(super) fn skip(&mut self, idle: Duration, now: Instant) {
        self.curve.skip(idle, now);
    }

    /// Grows the window for `acked` ACKed segments in congestion avoidance.
    fn follow_curve(&mut self, now: Instant, acked: u64) {
        let count = self.curve.count(now, self.window.cwnd(), acked);
        self.window.avoid_congestion(count, acked);
    }
}

impl CongestionControl for Cubic {
    fn on_send(&mut self, cx: &Context, sent: &Sent) {
        if sent.first_after_idle {
            self.curve.skip(sent.idle, cx.now);
        }
    }

    fn on_signal(&mut self, cx: &Context, signal: Signal) {
        let Self { window, slow_start, curve } = self;
        window.on_signal(cx, signal, |cwnd| curve.cut(cwnd, BETA));
        if let Signal::Timeout { .. } = signal {
            // The cubic curve is out of date. Slow start now runs up to ssthresh, where a new plateau begins.
            *curve = Curve::default();
            slow_start.restart(cx);
        }
    }

    fn on_ack(&mut self, cx: &Context, sample: &AckSample) {
        let Self { window, slow_start, curve } = self;
        let min_rtt = sample.rtt.and_then(|rtt| curve.note_rtt(cx.now, rtt));
        let grant = slow_start.on_ack(cx, sample, min_rtt, window);
        let rest = window.on_watched_ack(cx, sample, grant);
        if rest > 0 {
            self.follow_curve(cx.now, rest);
        }
    }

    fn control(&self) -> Control {
        self.window.control()
    }

    fn status(&self) -> Status {
        Status {
            phase: self.slow_start.phase(&self.window),
            values: [
                ("w_max", self.curve.w_max as f64),
                ("k", self.curve.k as f64 / (1u64 << TICK_SHIFT) as f64),
                ("w_est", self.curve.w_est as f64),
                ("count", self.curve.count as f64),
            ],
        }
    }
}

/// State of the cubic function for the current epoch, and the Reno-friendly window estimate (W_est, RFC
/// 9438); windows are in segments.
#[derive(Debug, Default)]
struct Curve {
    /// Congestion window at the last reduction, or less with fast convergence; zero before the first
    /// reduction.
    w_max: u64,
    /// Time at which growth began after the last reduction, shifted by idle time; `None` until growth begins.
    epoch: Option<Instant>,
    /// Congestion window at the plateau of the current epoch, in segments.
    origin: u64,
    /// Time from the start of the epoch to the plateau, in ticks.
    k: u64,
    /// Estimate of Reno's congestion window, and the number of ACKed segments not yet included in the
    /// estimate.
    w_est: u64,
    w_est_credit: u64,
    /// Number of ACKed segments per segment of growth, and the congestion window and time for which it was
    /// computed.
    count: u64,
    count_cwnd: u64,
    count_time: Instant,
    /// Minimum RTT, excluding samples within [`RTT_HOLD_OFF`] after the start of an epoch.
    min_rtt: Option<Duration>,
}

impl Curve {
    /// Records an RTT sample and returns the minimum RTT, or `None` within [`RTT_HOLD_OFF`] after the start
    /// of an epoch.
    fn note_rtt(&mut self, now: Instant, rtt: Duration) -> Option<Duration> {
        if self.epoch.is_some_and(|epoch| now.saturating_since(epoch) < RTT_HOLD_OFF) {
            return None;
        }
        let min_rtt = self.min_rtt.map_or(rtt, |min| min.min(rtt));
        self.min_rtt = Some(min_rtt);
        Some(min_rtt)
    }

    /// Handles a congestion signal and returns the new ssthresh: `keep`/1024 of the window. The next ACK that
    /// grows the window starts a new epoch.
    fn cut(&mut self, cwnd: u64, keep: u64) -> u64 {
        self.epoch = None;
        self.w_max = plateau(cwnd, self.w_max, keep);
        cwnd * keep / KEEP_ONE
    }

    /// Excludes the idle time `idle` from the time of the cubic function. Nothing was sent during the idle
    /// time, so the window must not jump by the growth of the function in that time.
    fn skip(&mut self, idle: Duration, now: Instant) {
        if let Some(epoch) = &mut self.epoch {
            *epoch = (*epoch + idle).min(now);
        }
    }

    /// Returns the number of ACKed segments per segment of window growth, after `acked` more segments have
    /// been ACKed.
    fn count(&mut self, now: Instant, cwnd: u64, acked: u64) -> u64 {
        self.w_est_credit += acked;
        if self.count_cwnd == cwnd && now.saturating_since(self.count_time) <= RECOMPUTE {
            return self.count;
        }
        // The count is computed at most once per tick, because the cubic function does not change within a
        // tick.
        if self.epoch.is_none() || ticks(now) != ticks(self.count_time) {
            self.count_cwnd = cwnd;
            self.count_time = now;
            self.count = self.cubic_count(now, cwnd, acked);
        }
        self.count = self.count.min(self.reno_count(cwnd)).max(MIN_COUNT);
        self.count
    }

    /// Returns the `count` with which the window reaches the value of the cubic function one round trip
    /// ahead.
    fn cubic_count(&mut self, now: Instant, cwnd: u64, acked: u64) -> u64 {
        let epoch = *self.epoch.get_or_insert_with(|| {
            self.w_est_credit = acked;
            self.w_est = cwnd;
            (self.k, self.origin) =
                if cwnd < self.w_max { (time_to_plateau(self.w_max - cwnd), self.w_max) } else { (0, cwnd) };
            now
        });
        let ahead = now.saturating_since(epoch) + self.min_rtt.unwrap_or_default();
        let target = self.w_cubic(ticks(Instant::ZERO + ahead));
        let count = if target > cwnd { cwnd / (target - cwnd) } else { PLATEAU_WINDOWS * cwnd };
        if self.w_max == 0 { count.min(MAX_COUNT_WITHOUT_LOSS) } else { count }
    }

    /// Returns `W(t)` of RFC 9438 in segments; `t` is the number of ticks since the epoch began.
    fn w_cubic(&self, t: u64) -> u64 {
        // The distance from the plateau is limited to 2^24 ticks (4.5 hours), which exceeds any real window.
        let offset = u128::from(t.abs_diff(self.k).min(1 << 24));
        let height = ((u128::from(C) * offset * offset * offset) >> CUBE_SHIFT) as u64;
        if t < self.k { self.origin.saturating_sub(height) } else { self.origin + height }
    }

    /// Advances the Reno estimate. Returns the `count` with which the window follows the estimate, or
    /// `u64::MAX` if the window is already larger.
    fn reno_count(&mut self, cwnd: u64) -> u64 {
        let per_segment = (cwnd * RENO_SLOPE) >> 3;
        // Linux advances the estimate only if the credit exceeds one step, so one is subtracted.
        let steps = self.w_est_credit.saturating_sub(1) / per_segment.max(1);
        self.w_est_credit -= steps * per_segment;
        self.w_est += steps;
        if self.w_est > cwnd { cwnd / (self.w_est - cwnd) } else { u64::MAX }
    }
}

/// Returns the number of whole ticks of 1/1024 s since the start of the run.
fn ticks(at: Instant) -> u64 {
    // A tick is 10^9 / 2^10 ns = 5^9 / 2 ns.
    at.as_nanos().saturating_mul(2) / 1_953_125
}

/// Returns RFC 9438's K in ticks, for a plateau `height` segments above the current window: `cbrt(height /
/// C)`.
fn time_to_plateau(height: u64) -> u64 {
    const TICKS_CUBED_PER_SEGMENT: u64 = (1 << CUBE_SHIFT) / C;
    cube_root(height.saturating_mul(TICKS_CUBED_PER_SEGMENT))
}

/// Returns the cube root of `n`, rounded to the nearest integer and computed one binary digit at a time.
fn cube_root(n: u64) -> u64 {
    // `step` is `(root + 1)^3 - root^3`; `half_step` is four times `(root + 1/2)^3 - root^3`, rounded down.
    let step = |root: u64| 3 * root * (root + 1) + 1;
    let half_step = |root: u64| 6 * root * root + 3 * root;
    let mut rest = n;
    let mut root = 0;
    for shift in (0..64_u32).step_by(3).rev() {
        root *= 2;
        if rest >> shift >= step(root) {
            rest -= step(root) << shift;
            root += 1;
        }
    }
    if 4 * rest > half_step(root) { root + 1 } else { root }
}

#[cfg(test)]
mod tests;
