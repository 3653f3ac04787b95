//! CUBIC (RFC 9438) with HyStart, in the fixed-point arithmetic of Linux.
//!
//! After a cut the window follows a cubic of *time*, not of round trips, so that a long path grows
//! back as fast as a short one:
//!
//! ```text
//!   W(t) = C (t - K)^3 + Wmax       K = cbrt((Wmax - cwnd) / C)
//!
//!   cwnd                          ╱  convex: probes for new capacity
//!   Wmax ─ ─ ─ ─ ─ ─ ─ ─ ────────╯
//!                   ╭────          concave: back to where it was lost, fast at first
//!   0.7 Wmax ──────╯
//!            t = 0              K
//! ```
//!
//! On short paths the cubic is slower than Reno would be; there the window follows an estimate of
//! Reno's instead (`w_est`). If the window is below the last `Wmax` at a loss, somebody else is
//! growing: `Wmax` is then set lower than the window, to make room sooner (fast convergence).
//!
//! As in Linux: time is in ticks of 1/1024 s and runs ahead by the least RTT; growth is the number
//! `count` of ACKed segments per segment; cuts are of the window, not of what is in flight, and alike
//! for loss and ECN; an undo restores the window but not the curve.

use fullpipe_units::{Duration, Instant};

use super::slow_start::Watch;
use super::window::{KEEP_ONE, RECOMPUTE, Window, plateau};
use super::{AckSample, CongestionControl, Context, Control, Hints, Sent, Signal, SlowStart, Status};

/// What a cut leaves of the window, in 1/1024: 0.70020 for RFC 9438's 0.7.
const BETA: u64 = 717;

/// The constant C in 1/1024 segments per second cubed: 0.40039 for RFC 9438's 0.4.
const C: u64 = 410;

/// Binary digits of `C`, and of the tick three times: the cube of ticks, scaled by `C`, shifted right
/// by this, is segments.
const CUBE_SHIFT: u32 = 10 + 3 * TICK_SHIFT;

/// A tick is 2^-10 s.
const TICK_SHIFT: u32 = 10;

/// Growth of the Reno estimate in 1/8 segments acknowledged per segment and window: its slope is
/// 8/15 = 0.5333 per round trip, for RFC 9438's `3 (1 - beta) / (1 + beta)` = 0.5294.
const RENO_SLOPE: u64 = 8 * (KEEP_ONE + BETA) / 3 / (KEEP_ONE - BETA);

/// ACKed segments per segment of growth: at least (the window grows by half per round trip at most),
/// and at most before the first loss (5 % per round trip: nothing says that the plateau is near).
const MIN_COUNT: u64 = 2;
const MAX_COUNT_WITHOUT_LOSS: u64 = 20;

/// At the plateau the window all but stops: one segment in so many windows.
const PLATEAU_WINDOWS: u64 = 100;

/// RTT samples so soon after a cut still contain the queue that caused it.
const RTT_HOLD_OFF: Duration = Duration::from_secs(1);

/// CUBIC on one connection.
#[derive(Debug)]
pub struct Cubic {
    window: Window,
    slow_start: Watch,
    curve: Curve,
}

impl Cubic {
    /// A controller for a new connection.
    pub fn new(cx: &Context, hints: &Hints) -> Self {
        Self {
            window: Window::new(cx, hints),
            slow_start: Watch::new(cx, hints.slow_start.unwrap_or(SlowStart::HyStart)),
            curve: Curve::default(),
        }
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
        window.on_signal(cx, signal, |cwnd| curve.cut(cwnd));
        if let Signal::Timeout { .. } = signal {
            // Whatever the curve knew is out of date: slow start up to ssthresh, then a new plateau there.
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
            let count = curve.count(cx.now, window.cwnd(), rest);
            window.avoid_congestion(count, rest);
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

/// The cubic of the present epoch, and Reno's estimate beside it. Windows are in segments.
#[derive(Debug, Default)]
struct Curve {
    /// The window at the last cut (less, by fast convergence); zero before the first.
    w_max: u64,
    /// When growth began after the last cut, moved on by what was idled away; `None` until then.
    epoch: Option<Instant>,
    /// Height of the plateau of this epoch.
    origin: u64,
    /// From the start of the epoch to the plateau, in ticks.
    k: u64,
    /// Reno's window, and the segments acknowledged that it has not yet been given.
    w_est: u64,
    w_est_credit: u64,
    /// Segments to be acknowledged per segment of growth, and what it was computed for.
    count: u64,
    count_cwnd: u64,
    count_time: Instant,
    /// Least RTT, but for samples right after a cut.
    min_rtt: Option<Duration>,
}

impl Curve {
    /// Takes an RTT sample in; `None` if it is not to be trusted, else the least RTT so far.
    fn note_rtt(&mut self, now: Instant, rtt: Duration) -> Option<Duration> {
        if self.epoch.is_some_and(|epoch| now.saturating_since(epoch) < RTT_HOLD_OFF) {
            return None;
        }
        let min_rtt = self.min_rtt.map_or(rtt, |min| min.min(rtt));
        self.min_rtt = Some(min_rtt);
        Some(min_rtt)
    }

    /// A reason to reduce: returns the new threshold. The next ACK that grows the window starts an epoch.
    fn cut(&mut self, cwnd: u64) -> u64 {
        self.epoch = None;
        self.w_max = plateau(cwnd, self.w_max, BETA);
        cwnd * BETA / KEEP_ONE
    }

    /// Nothing was sent for `idle`: time in which the window was not put to the test does not count,
    /// or it would jump by what the cubic has gained meanwhile.
    fn skip(&mut self, idle: Duration, now: Instant) {
        if let Some(epoch) = &mut self.epoch {
            *epoch = (*epoch + idle).min(now);
        }
    }

    /// Segments to be acknowledged per segment of growth, given that `acked` now were.
    fn count(&mut self, now: Instant, cwnd: u64, acked: u64) -> u64 {
        self.w_est_credit += acked;
        if self.count_cwnd == cwnd && now.saturating_since(self.count_time) <= RECOMPUTE {
            return self.count;
        }
        // At most once per tick: within one, the cubic stands still.
        if self.epoch.is_none() || ticks(now) != ticks(self.count_time) {
            self.count_cwnd = cwnd;
            self.count_time = now;
            self.count = self.cubic_count(now, cwnd, acked);
        }
        self.count = self.count.min(self.reno_count(cwnd)).max(MIN_COUNT);
        self.count
    }

    /// What makes the window reach the cubic's value of one round trip later within that round trip.
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

    /// `W(t)` in segments, `t` in ticks since the epoch began.
    fn w_cubic(&self, t: u64) -> u64 {
        // Beyond 2^24 ticks (4.5 hours) from the plateau every window is out of reach.
        let offset = u128::from(t.abs_diff(self.k).min(1 << 24));
        let height = ((u128::from(C) * offset * offset * offset) >> CUBE_SHIFT) as u64;
        if t < self.k { self.origin.saturating_sub(height) } else { self.origin + height }
    }

    /// Lets Reno's estimate grow by what was acknowledged, and returns what keeps pace with it:
    /// `u64::MAX` if the window is ahead.
    fn reno_count(&mut self, cwnd: u64) -> u64 {
        let per_segment = (cwnd * RENO_SLOPE) >> 3;
        // Strictly more than a step's worth must have been acknowledged, hence the one less.
        let steps = self.w_est_credit.saturating_sub(1) / per_segment.max(1);
        self.w_est_credit -= steps * per_segment;
        self.w_est += steps;
        if self.w_est > cwnd { cwnd / (self.w_est - cwnd) } else { u64::MAX }
    }
}

/// Whole ticks of 1/1024 s since the start of the run.
fn ticks(at: Instant) -> u64 {
    // 10^9 / 2^10 ns = 5^9 / 2 ns.
    at.as_nanos().saturating_mul(2) / 1_953_125
}

/// K in ticks for a plateau `height` segments above: `cbrt(height / C)`.
fn time_to_plateau(height: u64) -> u64 {
    const TICKS_CUBED_PER_SEGMENT: u64 = (1 << CUBE_SHIFT) / C;
    cube_root(height.saturating_mul(TICKS_CUBED_PER_SEGMENT))
}

/// The cube root, rounded to the nearest integer: one binary digit of the root at a time.
fn cube_root(n: u64) -> u64 {
    // What the cubes of `root + 1` and (four times) of `root + 1/2` have over that of `root`.
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
