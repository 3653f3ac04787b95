//! Congestion window of the loss-based controllers: the code that Reno, BIC, CUBIC and Vegas share.
//!
//! Kernels count the window in whole segments, and the rounding is part of their behaviour. For example, a
//! reduction at 21 segments leaves 10, and an ACK of 40 segments at a window of 10 adds 4. This module
//! therefore counts whole segments, and converts them to bytes in [`Window::control`].
//!
//! ```text
//!              acked                            every `count` acked
//!   slow start ─────► cwnd += acked   avoidance ─────────────────► cwnd += 1
//!        │  stops exactly at ssthresh     ▲
//!        └────────── the rest ────────────┘
//!   loss     ssthresh = cut(cwnd), cwnd = ssthresh    (PRR gets there gradually)
//!   timeout  ssthresh = cut(cwnd), cwnd = 1   (or the loss window, see `Tunables::loss_window`)
//! ```
//!
//! Each algorithm passes its own parts: `count` and the function `cut`.

use fullpipe_units::{Bytes, Duration, Rate};

use super::{AckSample, Context, Control, Hints, Pacing, Recovery, Repair, SendQuantum, Signal};

/// Initial congestion window in segments (RFC 6928; kernels do not apply the byte limit of the RFC).
pub const INITIAL_SEGMENTS: u64 = 10;

/// Minimum slow-start threshold in segments (RFC 5681 equation 4). With a single segment in flight, a loss
/// could not cause the duplicate ACKs that its repair needs.
const MIN_SSTHRESH: u64 = 2;

/// Pacing rate in percent of `cwnd / srtt` while the window may still double. Slow start doubles the rate in
/// a round trip, so pacing at twice the current rate does not limit slow start.
const PACING_SLOW_START: u64 = 200;

/// Pacing rate in percent of `cwnd / srtt` outside slow start. This rate leaves a margin for growth and for
/// filling gaps.
const PACING_AVOIDANCE: u64 = 120;

/// Time for which BIC and CUBIC reuse the computed growth if the window has not changed.
pub(super) const RECOMPUTE: Duration = Duration::from_nanos(1_000_000_000 / 32);

/// Denominator of the multiplicative decrease factor of BIC and CUBIC: 1024.
pub(super) const KEEP_ONE: u64 = 1024;

/// Slow-start threshold before the first reduction: no limit.
const NO_SSTHRESH: u64 = u64::MAX;

/// Congestion window and slow-start threshold before a reduction, kept so that a spurious reduction can be
/// undone.
#[derive(Clone, Copy, Debug)]
struct Undo {
    cwnd: u64,
    ssthresh: u64,
}

/// Pacing of the first flight of a connection, for hosts that do not pace otherwise.
#[derive(Clone, Copy, Debug)]
struct FirstFlight {
    rate: Rate,
    /// Number of bytes after which the flight has been sent.
    bytes: u64,
}

/// Congestion window and slow-start threshold in whole segments.
#[derive(Debug)]
pub(super) struct Window {
    mss: u64,
    cwnd: u64,
    ssthresh: u64,
    /// ACKed segments credited towards the next increase in congestion avoidance.
    credit: u64,
    /// Smallest window to which an idle period can reduce the congestion window: the initial window, but at
    /// most ten segments if the connection began with a launch, because nothing paces the flight after an
    /// idle period.
    restart: u64,
    /// Congestion window, in segments, after the first timeout for the outstanding data.
    loss_window: u64,
    /// Pacing of the first flight, until the flight has left or a segment is lost.
    first_flight: Option<FirstFlight>,
    in_recovery: bool,
    undo: Option<Undo>,
}

impl Window {
    pub(super) fn new(cx: &Context, hints: &Hints) -> Self {
        let initial = hints.initial_cwnd.map_or(INITIAL_SEGMENTS, |bytes| cx.segments(bytes).max(1));
        Self {
            mss: cx.mss,
            cwnd: initial,
            ssthresh: NO_SSTHRESH,
            credit: 0,
            restart: hints.launch.map_or(initial, |_| initial.min(INITIAL_SEGMENTS)),
            loss_window: hints.loss_window.map_or(1, u64::from),
            first_flight: hints.launch_rate(cx).map(|rate| FirstFlight { rate, bytes: initial * cx.mss }),
            in_recovery: false,
            undo: None,
        }
    }

    pub(super) fn cwnd(&self) -> u64 {
        self.cwnd
    }

    pub(super) fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Returns whether the connection is in its first slow start.
    pub(super) fn in_first_slow_start(&self) -> bool {
        self.ssthresh == NO_SSTHRESH
    }

    /// Ends slow start without a loss.
    pub(super) fn leave_slow_start(&mut self) {
        self.ssthresh = self.cwnd;
    }

    /// Returns the pacing rate in percent of `cwnd / srtt`, for hosts that pace.
    pub(super) fn pacing_percent(&self) -> u64 {
        if self.cwnd < self.ssthresh / 2 { PACING_SLOW_START } else { PACING_AVOIDANCE }
    }

    /// Handles an ACK: records the phase, and grows the window in slow start. Returns the number of ACKed
    /// segments left for congestion avoidance.
    pub(super) fn on_ack(&mut self, cx: &Context, sample: &AckSample) -> u64 {
        self.on_watched_ack(cx, sample, sample.acked_segments)
    }

    /// Handles an ACK like [`Window::on_ack`], but limits slow-start growth to `grant` segments.
    pub(super) fn on_watched_ack(&mut self, cx: &Context, sample: &AckSample, grant: u64) -> u64 {
        if self.progresses(cx, sample) && self.is_used(cx) {
            self.slow_start(sample.acked_segments, grant)
        } else {
            0
        }
    }

    /// Records the phase, and returns whether this ACK may change the window. A duplicate ACK may be the
    /// first sign of a loss, so it may change the window only on a path that reorders by more than three
    /// segments. During fast recovery no ACK may change the window, because recovery sets it.
    pub(super) fn progresses(&mut self, cx: &Context, sample: &AckSample) -> bool {
        self.in_recovery = cx.in_recovery;
        if self.first_flight.is_some() {
            self.pace_first_flight(cx);
        }
        !cx.in_recovery && sample.may_grow
    }

    /// Adjusts the pacing of the first flight to an ACK. If the path is so short that ACKs arrive before the
    /// whole flight has left, these ACKs allow a higher rate, that of slow start.
    #[cold]
    fn pace_first_flight(&mut self, cx: &Context) {
        let window = Bytes::new(self.cwnd.saturating_mul(self.mss));
        let acked = cx.srtt.map(|srtt| Rate::of(window, srtt).mul_div(PACING_SLOW_START, 100));
        self.first_flight = self.first_flight.filter(|flight| cx.sent < flight.bytes).map(|flight| {
            FirstFlight { rate: acked.map_or(flight.rate, |acked| flight.rate.max(acked)), ..flight }
        });
    }

    /// Returns whether the sender fully uses the window. A window that was never filled does not show the
    /// capacity of the path (RFC 7661). In slow start, half a window in flight is sufficient, because the
    /// next round may fill the window.
    pub(super) fn is_used(&self, cx: &Context) -> bool {
        cx.cwnd_limited || (self.in_slow_start() && self.cwnd < 2 * cx.max_inflight.div_ceil(cx.mss))
    }

    /// Grows the window by `grant` segments, but not beyond `ssthresh`. Returns the number of ACKed segments
    /// left over.
    fn slow_start(&mut self, acked: u64, grant: u64) -> u64 {
        if !self.in_slow_start() {
            return acked;
        }
        let grown = grant.min(self.ssthresh - self.cwnd);
        self.cwnd += grown;
        if grown < grant { acked - grown } else { 0 }
    }

    /// Grows the window by one segment per `count` ACKed segments.
    ///
    /// Credit collected under a larger `count` adds only one segment. Otherwise several segments could leave
    /// in a burst for which the current ACKs have made no room.
    pub(super) fn avoid_congestion(&mut self, count: u64, acked: u64) {
        let count = count.max(1);
        if self.credit >= count {
            self.credit = 0;
            self.cwnd += 1;
        }
        self.credit += acked;
        if self.credit >= count {
            let steps = self.credit / count;
            self.credit -= steps * count;
            self.cwnd += steps;
        }
    }

    /// Sets the window without a loss. The threshold is then at most the new window, and at least three
    /// quarters of it.
    pub(super) fn set(&mut self, segments: u64) {
        self.cwnd = segments.max(MIN_SSTHRESH);
        self.ssthresh = self.ssthresh.min(self.cwnd);
        self.ssthresh = self.remembered_ssthresh();
    }

    /// Handles a signal. If the signal reduces the window, calls `cut`, which returns the new threshold for
    /// the current window.
    pub(super) fn on_signal(&mut self, cx: &Context, signal: Signal, cut: impl FnOnce(u64) -> u64) {
        match signal {
            Signal::EnterRecovery => {
                self.in_recovery = true;
                self.undo = Some(self.before_cut());
                self.reduce(cut);
            }
            // These reductions cannot be undone, because an ECN mark is never spurious, and a tail loss probe
            // that filled a hole proves that data was lost.
            Signal::TlpRepaired | Signal::EcnEcho => {
                // Fast recovery or a timeout has already reduced the window for this window of data.
                if !cx.in_recovery && !cx.in_loss {
                    self.undo = None;
                    self.reduce(cut);
                }
            }
            Signal::Timeout { first } => {
                // A timeout during fast recovery belongs to the same window of data, so the window is not
                // reduced again.
                if first && !self.in_recovery {
                    self.undo = Some(self.before_cut());
                    self.reduce(cut);
                }
                self.in_recovery = false;
                self.cwnd = if first { self.loss_window.min(self.cwnd) } else { 1 };
                self.credit = 0;
                self.first_flight = None;
            }
            Signal::SpuriousRecovery | Signal::SpuriousTimeout => {
                if let Some(Undo { cwnd, ssthresh }) = self.undo.take() {
                    self.cwnd = self.cwnd.max(cwnd);
                    self.ssthresh = self.ssthresh.max(ssthresh);
                    // The reduction is undone, so the next loss may reduce the window again.
                    self.in_recovery = false;
                }
            }
            Signal::ExitRecovery => self.in_recovery = false,
            Signal::Idle { idle, rto } => self.decay(idle.as_nanos(), rto.as_nanos()),
            Signal::MssChanged => self.mss = cx.mss,
            Signal::LossBatchEnd => {}
        }
    }

    fn reduce(&mut self, cut: impl FnOnce(u64) -> u64) {
        self.ssthresh = cut(self.cwnd).max(MIN_SSTHRESH);
        self.cwnd = self.ssthresh;
        self.credit = 0;
        self.first_flight = None;
    }

    fn before_cut(&self) -> Undo {
        Undo { cwnd: self.cwnd, ssthresh: self.remembered_ssthresh() }
    }

    /// Returns the threshold for the current window: at least three quarters of the window, because the
    /// window was in use without loss.
    fn remembered_ssthresh(&self) -> u64 {
        self.ssthresh.max(self.cwnd / 2 + self.cwnd / 4)
    }

    /// Decays the window after an idle period (RFC 2861). The path may have changed while nothing was sent,
    /// so the window is halved once per RTO, down to the initial window.
    fn decay(&mut self, idle: u64, rto: u64) {
        if idle <= rto || rto == 0 {
            return;
        }
        self.ssthresh = self.remembered_ssthresh();
        let floor = self.restart.min(self.cwnd);
        // Pauses of up to one RTO do not count as idle, so the first halving comes just after one RTO.
        let halvings = (idle - 1) / rto;
        self.cwnd =
            self.cwnd.checked_shr(u32::try_from(halvings).unwrap_or(u32::MAX)).unwrap_or(0).max(floor);
    }

    pub(super) fn control(&self) -> Control {
        let bytes = |segments: u64| segments.saturating_mul(self.mss);
        Control {
            cwnd: bytes(self.cwnd),
            ssthresh: bytes(self.ssthresh),
            pacing: match self.first_flight {
                Some(FirstFlight { rate, .. }) => Pacing::Rate(rate),
                None => Pacing::SrttRatio { slow_start: PACING_SLOW_START, avoidance: PACING_AVOIDANCE },
            },
            send_quantum: SendQuantum::FromRate { min_segments: 2 },
            recovery: Recovery::Prr,
            mark_app_limited: false,
            repair: Repair::NONE,
        }
    }

    /// Returns the name of the current phase, for traces.
    pub(super) fn phase(&self) -> &'static str {
        if self.in_recovery {
            "recovery"
        } else if self.in_slow_start() {
            "slow_start"
        } else {
            "congestion_avoidance"
        }
    }
}

/// Returns the plateau, the window at which growth slows down, after a reduction from `cwnd` to `keep`/1024
/// of it.
///
/// The plateau is usually the window at the reduction. A reduction below the last plateau means that another
/// flow is growing. The new plateau is then lower than the window, which releases capacity sooner (fast
/// convergence).
pub(super) fn plateau(cwnd: u64, last: u64, keep: u64) -> u64 {
    if cwnd < last { cwnd * (KEEP_ONE + keep) / (2 * KEEP_ONE) } else { cwnd }
}
