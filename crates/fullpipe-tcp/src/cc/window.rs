//! The window of a loss-based controller: everything that Reno and CUBIC do alike.
//!
//! Kernels count the window in whole segments, and their rounding is part of their behaviour: a cut
//! at 21 segments leaves 10, and an ACK of 40 segments at a window of 10 adds 4. So whole segments
//! are kept here and turned into bytes at the edge, in [`Window::control`].
//!
//! ```text
//!              acked                            every `count` acked
//!   slow start ─────► cwnd += acked   avoidance ─────────────────► cwnd += 1
//!        │  stops exactly at ssthresh     ▲
//!        └────────── the rest ────────────┘
//!   loss     ssthresh = cut(cwnd), cwnd = ssthresh    (PRR walks there during recovery)
//!   timeout  ssthresh = cut(cwnd), cwnd = 1
//! ```
//!
//! What differs between the algorithms is handed in: `count`, and the function `cut`.

use fullpipe_units::Duration;

use super::{AckSample, Context, Control, Hints, Pacing, Recovery, SendQuantum, Signal};

/// Initial window in segments (RFC 6928; kernels do not apply its byte limit).
pub const INITIAL_SEGMENTS: u64 = 10;

/// Least slow-start threshold in segments (RFC 5681 equation 4): one segment in flight could not
/// provoke the duplicate ACKs that repair its loss.
const MIN_SSTHRESH: u64 = 2;

/// Pacing in percent of `cwnd / srtt` while the window may still double: twice the present rate, or
/// pacing itself would be the limit of slow start.
const PACING_SLOW_START: u64 = 200;

/// Pacing in percent of `cwnd / srtt` otherwise: a margin to grow and to fill gaps.
const PACING_AVOIDANCE: u64 = 120;

/// While the window stays the same, the growth that BIC and CUBIC computed for it is good for this long.
pub(super) const RECOMPUTE: Duration = Duration::from_nanos(1_000_000_000 / 32);

/// What a cut by BIC or CUBIC leaves is in 1/1024.
pub(super) const KEEP_ONE: u64 = 1024;

/// "No reduction yet", in segments.
const NO_SSTHRESH: u64 = u64::MAX;

/// What a cut took away, for the case that it turns out to have been a mistake.
#[derive(Clone, Copy, Debug)]
struct Undo {
    cwnd: u64,
    ssthresh: u64,
}

/// Congestion window and slow-start threshold in whole segments.
#[derive(Debug)]
pub(super) struct Window {
    mss: u64,
    cwnd: u64,
    ssthresh: u64,
    /// Segments acknowledged towards the next increase during congestion avoidance.
    credit: u64,
    /// Initial window, to which idling decays.
    initial: u64,
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
            initial,
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

    /// In the slow start that a connection begins with: nothing has ended one yet.
    pub(super) fn in_first_slow_start(&self) -> bool {
        self.ssthresh == NO_SSTHRESH
    }

    /// Slow start is over although nothing was lost.
    pub(super) fn leave_slow_start(&mut self) {
        self.ssthresh = self.cwnd;
    }

    /// Percent of `cwnd / srtt` at which the window is paced, where the host paces.
    pub(super) fn pacing_percent(&self) -> u64 {
        if self.cwnd < self.ssthresh / 2 { PACING_SLOW_START } else { PACING_AVOIDANCE }
    }

    /// The first half of every ACK: notes the phase and, in slow start, grows the window. Returns the
    /// segments left for congestion avoidance.
    pub(super) fn on_ack(&mut self, cx: &Context, sample: &AckSample) -> u64 {
        self.on_watched_ack(cx, sample, sample.acked_segments)
    }

    /// The same, with slow start growing by no more than `grant` segments.
    pub(super) fn on_watched_ack(&mut self, cx: &Context, sample: &AckSample, grant: u64) -> u64 {
        if self.progresses(cx, sample) && self.is_used(cx) {
            self.slow_start(sample.acked_segments, grant)
        } else {
            0
        }
    }

    /// Notes the phase, and says whether this ACK may change the window: only cumulative progress does (a
    /// duplicate ACK may be the first sign of a loss), and never while fast recovery sets the window.
    pub(super) fn progresses(&mut self, cx: &Context, sample: &AckSample) -> bool {
        self.in_recovery = cx.in_recovery;
        !cx.in_recovery && sample.una_advanced
    }

    /// A window that was never filled says nothing about what the path can take (RFC 7661). Slow start
    /// is generous: with half the window outstanding, the next round could have filled it.
    pub(super) fn is_used(&self, cx: &Context) -> bool {
        cx.cwnd_limited || (self.in_slow_start() && self.cwnd < 2 * cx.max_inflight.div_ceil(cx.mss))
    }

    /// `grant` segments, which usually are those acknowledged, up to exactly `ssthresh`. Returns what is left beyond it.
    fn slow_start(&mut self, acked: u64, grant: u64) -> u64 {
        if !self.in_slow_start() {
            return acked;
        }
        let grown = grant.min(self.ssthresh - self.cwnd);
        self.cwnd += grown;
        if grown < grant { acked - grown } else { 0 }
    }

    /// One segment per `count` segments acknowledged.
    ///
    /// Credit that was collected under a larger `count` buys one segment, not several: it would be a
    /// burst that the present ACKs did not make room for.
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

    /// Sets the window although nothing was lost. The threshold follows it down, and on the way up remembers
    /// most of it.
    pub(super) fn set(&mut self, segments: u64) {
        self.cwnd = segments.max(MIN_SSTHRESH);
        self.ssthresh = self.ssthresh.min(self.cwnd);
        self.ssthresh = self.remembered_ssthresh();
    }

    /// Every signal. `cut` makes the new threshold of the window at hand, and is called if and only if
    /// the signal is a reason to reduce.
    pub(super) fn on_signal(&mut self, cx: &Context, signal: Signal, cut: impl FnOnce(u64) -> u64) {
        match signal {
            Signal::EnterRecovery => {
                self.in_recovery = true;
                self.undo = Some(self.before_cut());
                self.reduce(cut);
            }
            // Neither can be undone: a mark is never spurious, and a probe that filled a hole did so
            // because there was one.
            Signal::TlpRepaired | Signal::EcnEcho => {
                // The window of data that fast recovery or a timeout deals with was already paid for.
                if !cx.in_recovery && !cx.in_loss {
                    self.undo = None;
                    self.reduce(cut);
                }
            }
            Signal::Timeout { first } => {
                // A timeout in the middle of fast recovery is about the same window of data: one cut.
                if first && !self.in_recovery {
                    self.undo = Some(self.before_cut());
                    self.reduce(cut);
                }
                self.in_recovery = false;
                self.cwnd = 1;
                self.credit = 0;
            }
            Signal::SpuriousRecovery | Signal::SpuriousTimeout => {
                if let Some(Undo { cwnd, ssthresh }) = self.undo.take() {
                    self.cwnd = self.cwnd.max(cwnd);
                    self.ssthresh = self.ssthresh.max(ssthresh);
                    // Nothing is paid for any more.
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
    }

    fn before_cut(&self) -> Undo {
        Undo { cwnd: self.cwnd, ssthresh: self.remembered_ssthresh() }
    }

    /// The threshold that remembers the present window: a window of `cwnd` was fine a moment ago, so
    /// slow start may go most of the way back.
    fn remembered_ssthresh(&self) -> u64 {
        self.ssthresh.max(self.cwnd / 2 + self.cwnd / 4)
    }

    /// RFC 2861: the queue that the window was measured against has changed while nobody looked, so
    /// trust in it halves every RTO, down to the initial window.
    fn decay(&mut self, idle: u64, rto: u64) {
        if idle <= rto || rto == 0 {
            return;
        }
        self.ssthresh = self.remembered_ssthresh();
        let floor = self.initial.min(self.cwnd);
        // Pauses of up to one RTO are no idling, so the first halving comes just after it.
        let halvings = (idle - 1) / rto;
        self.cwnd =
            self.cwnd.checked_shr(u32::try_from(halvings).unwrap_or(u32::MAX)).unwrap_or(0).max(floor);
    }

    pub(super) fn control(&self) -> Control {
        let bytes = |segments: u64| segments.saturating_mul(self.mss);
        Control {
            cwnd: bytes(self.cwnd),
            ssthresh: bytes(self.ssthresh),
            pacing: Pacing::SrttRatio { slow_start: PACING_SLOW_START, avoidance: PACING_AVOIDANCE },
            send_quantum: SendQuantum::FromRate { min_segments: 2 },
            recovery: Recovery::Prr,
            mark_app_limited: false,
        }
    }

    /// The name of the phase, for traces.
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

/// The height at which growth slows down after a cut at `cwnd` that leaves `keep` 1024ths of it.
///
/// Where the window was cut, usually. Below the last such height somebody else is growing: then lower than
/// the window, to make room sooner (fast convergence).
pub(super) fn plateau(cwnd: u64, last: u64, keep: u64) -> u64 {
    if cwnd < last { cwnd * (KEEP_ONE + keep) / (2 * KEEP_ONE) } else { cwnd }
}
