//! Vegas congestion control (Brakmo and Peterson, 1995), as in Linux: keeps a few segments in the queue.
//!
//! A queue raises the RTT before anything is lost. If the smallest RTT ever measured is the RTT of the empty
//! path, the number of queued segments is
//!
//! ```text
//!   diff = cwnd (RTT - base_rtt) / base_rtt
//!
//!     0 ........ alpha = 2 ........ beta = 4 ........ diff, in segments
//!       cwnd + 1     │      hold      │    cwnd - 1          once per round trip
//!
//!   slow_start ── diff > gamma = 1 ──► congestion_avoidance   cwnd = capacity of the path
//!        ▲                                   │
//!        └───────────── timeout ─────────────┴── loss: cwnd / 2, as Reno
//! ```
//!
//! Two to four segments stay in the queue, regardless of the length of the path. Such a queue is long enough
//! to use capacity that becomes free, and too short to overflow. Vegas assumes that `base_rtt` is the RTT of
//! the empty path and that all flows use Vegas. A flow that joins others never measures the empty path. Such
//! a flow mistakes the others' queue for part of the path and gets more than its share. When Vegas competes
//! with Reno, which fills the queue, Vegas reduces its window until little is left. Both effects follow from
//! the use of delay as the congestion signal.
//!
//! As in Linux, slow start doubles the window every round trip (in the paper, every second round trip). Vegas
//! uses the minimum RTT of a round, which excludes delayed ACKs. In a round with fewer than three samples,
//! the window grows as in Reno. Because `diff` is relative to `base_rtt` instead of the RTT, it exceeds the
//! true queue by the factor RTT / base_rtt. Unlike in Linux, a window that the sender does not use does not
//! grow (INV-2).

use fullpipe_units::Duration;

use super::window::Window;
use super::{AckSample, CongestionControl, Context, Control, Hints, Sent, Signal, Status};

/// Lower bound of the number of queued segments; below it, the window grows by one segment (Linux `alpha`).
const ALPHA: u64 = 2;

/// Upper bound of the number of queued segments; above it, the window shrinks by one segment (Linux `beta`).
const BETA: u64 = 4;

/// Number of queued segments above which slow start ends (Linux `gamma`).
const GAMMA: u64 = 1;

/// Minimum number of RTT samples per round. Of three samples, at least one is probably unaffected by delayed
/// ACKs.
const MIN_SAMPLES: u64 = 3;

/// Vegas state of one connection.
#[derive(Debug)]
pub struct Vegas {
    window: Window,
    watch: Watch,
    /// Number of queued segments estimated at the last evaluation.
    diff: u64,
}

/// RTT measurements of the connection and of the current round.
#[derive(Debug)]
struct Watch {
    /// Minimum RTT since transmission last started with nothing in flight; taken as the RTT of the empty
    /// path.
    base: Option<Duration>,
    /// Minimum RTT of the current round.
    least: Option<Duration>,
    samples: u64,
    /// Offset beyond which an acknowledgement ends the round.
    round_end: u64,
    /// Whether RTT samples count. During loss recovery, RTT samples do not reflect the window, so they are
    /// ignored.
    on: bool,
}

impl Watch {
    fn new(round_end: u64) -> Self {
        Self { base: None, least: None, samples: 0, round_end, on: true }
    }

    fn add(&mut self, rtt: Duration) {
        // The minimum of 1 ns avoids a division by zero.
        let rtt = rtt.max(Duration::from_nanos(1));
        let less = |known: Option<Duration>| Some(known.map_or(rtt, |known| known.min(rtt)));
        self.base = less(self.base);
        self.least = less(self.least);
        self.samples += 1;
    }

    fn begin_round(&mut self, round_end: u64) {
        self.round_end = round_end;
        self.least = None;
        self.samples = 0;
    }

    /// Returns the RTT of the empty path and the minimum RTT of the round, or `None` if the round has too few
    /// samples.
    fn rtts(&self) -> Option<(Duration, Duration)> {
        Some((self.base?, self.least?)).filter(|_| self.samples >= MIN_SAMPLES)
    }
}

impl Vegas {
    /// Returns a Vegas controller for a new connection.
    pub fn new(cx: &Context, hints: &Hints) -> Self {
        Self { window: Window::new(cx, hints), watch: Watch::new(cx.snd_nxt), diff: 0 }
    }

    fn as_reno(&mut self, cx: &Context, sample: &AckSample) {
        let rest = self.window.on_ack(cx, sample);
        if rest > 0 {
            self.window.avoid_congestion(self.window.cwnd(), rest);
        }
    }

    /// Adjusts the window once per round trip, from the RTT of the empty path and the minimum RTT of the
    /// round.
    fn adjust(&mut self, cx: &Context, sample: &AckSample, base: Duration, rtt: Duration) {
        let cwnd = self.window.cwnd();
        let (base, rtt) = (base.as_nanos(), rtt.as_nanos());
        self.diff = cwnd.saturating_mul(rtt - base) / base;
        if self.window.in_slow_start() {
            if self.diff > GAMMA {
                // The round has measured the capacity of the path, so set the window to that capacity,
                // without a queue. The additional segment compensates for the rounding of the division.
                let target = cwnd.saturating_mul(base) / rtt;
                self.window.set(cwnd.min(target + 1));
            } else {
                // ACKed segments left over at ssthresh are not used, because congestion avoidance adjusts the
                // window once per round trip.
                let _ = self.window.on_ack(cx, sample);
            }
        } else if self.diff > BETA {
            self.window.set(cwnd - 1);
        } else if self.diff < ALPHA && self.window.is_used(cx) {
            self.window.set(cwnd + 1);
        }
    }
}

impl CongestionControl for Vegas {
    fn on_send(&mut self, _cx: &Context, sent: &Sent) {
        if sent.first_after_idle {
            // The path may have changed in the meantime, so measure it again.
            self.watch = Watch::new(sent.offset);
        }
    }

    fn on_signal(&mut self, cx: &Context, signal: Signal) {
        self.window.on_signal(cx, signal, |cwnd| cwnd / 2);
        match signal {
            Signal::EnterRecovery => self.watch.on = false,
            // Nothing is left in flight, so recovery starts on an empty path. Measure this path again.
            Signal::Timeout { .. } if cx.inflight == 0 => self.watch = Watch::new(cx.snd_nxt),
            Signal::Timeout { .. } => self.watch.on = false,
            Signal::ExitRecovery
            | Signal::SpuriousTimeout
            | Signal::SpuriousRecovery
            | Signal::TlpRepaired
            | Signal::EcnEcho => {
                if !cx.in_recovery && !cx.in_loss {
                    self.watch.on = true;
                    self.watch.begin_round(cx.snd_nxt);
                }
            }
            Signal::LossBatchEnd | Signal::MssChanged | Signal::Idle { .. } => {}
        }
    }

    fn on_ack(&mut self, cx: &Context, sample: &AckSample) {
        if let Some(rtt) = sample.rtt {
            self.watch.add(rtt);
        }
        if !self.window.progresses(cx, sample) {
            return;
        }
        if !self.watch.on {
            self.as_reno(cx, sample);
        } else if cx.snd_una > self.watch.round_end {
            match self.watch.rtts() {
                Some((base, rtt)) => self.adjust(cx, sample, base, rtt),
                None => self.as_reno(cx, sample),
            }
            self.watch.begin_round(cx.snd_nxt);
        } else if self.window.in_slow_start() {
            let _ = self.window.on_ack(cx, sample);
        }
    }

    fn control(&self) -> Control {
        self.window.control()
    }

    fn status(&self) -> Status {
        let ms = |rtt: Option<Duration>| rtt.unwrap_or_default().as_millis_f64();
        Status {
            phase: self.window.phase(),
            values: [
                ("base_rtt", ms(self.watch.base)),
                ("round_rtt", ms(self.watch.least)),
                ("diff", self.diff as f64),
                ("", 0.0),
            ],
        }
    }
}

#[cfg(test)]
mod tests;
