//! Vegas (Brakmo and Peterson, 1995), as Linux computes it: a window that keeps a few segments queued.
//!
//! A queue shows in the RTT before anything is lost. With the least RTT ever seen for the empty path, what a
//! window has in the queue is
//!
//! ```text
//!   diff = cwnd (RTT - base_rtt) / base_rtt
//!
//!     0 ........ alpha = 2 ........ beta = 4 ........ diff, in segments
//!       cwnd + 1     │      hold      │    cwnd - 1          once per round trip
//!
//!   slow_start ── diff > gamma = 1 ──► congestion_avoidance   cwnd = what the path holds
//!        ▲                                   │
//!        └───────────── timeout ─────────────┴── loss: half of it, as Reno
//! ```
//!
//! Two to four segments wait on the path, whatever its length: enough to use what becomes free, too few to
//! overflow. It believes that `base_rtt` is the empty path's and that everybody does the same. A flow that
//! joins others never sees the path empty, takes their queue for path and more than its share; beside
//! Reno, which fills the queue, it gives way until little is left. Both are in the nature of the measure.
//!
//! As in Linux: growth doubles every round trip in slow start (the paper: every other); the least RTT of a
//! round counts, so that delayed ACKs do not; with fewer than three samples in it the window grows as
//! Reno's; `diff` is over `base_rtt` and not over the RTT, which makes it larger than the true queue by
//! RTT / base_rtt. Unlike in Linux a window that is not used does not grow (INV-2).

use fullpipe_units::Duration;

use super::window::Window;
use super::{AckSample, CongestionControl, Context, Control, Hints, Sent, Signal, Status};

/// Fewer segments in the queue than this: one more (Linux `alpha`).
const ALPHA: u64 = 2;

/// More segments in the queue than this: one fewer (`beta`).
const BETA: u64 = 4;

/// More segments in the queue than this end slow start (`gamma`).
const GAMMA: u64 = 1;

/// RTT samples of a round that make it likely that one is not of a delayed ACK.
const MIN_SAMPLES: u64 = 3;

/// Vegas on one connection.
#[derive(Debug)]
pub struct Vegas {
    window: Window,
    watch: Watch,
    /// What was in the queue at the last look, in segments.
    diff: u64,
}

/// The RTTs of the connection and of the present round.
#[derive(Debug)]
struct Watch {
    /// The least RTT since transmission last began with nothing in flight: the empty path's, it is hoped.
    base: Option<Duration>,
    /// The least of the round.
    least: Option<Duration>,
    samples: u64,
    /// The round ends when more than this offset is acknowledged.
    round_end: u64,
    /// Nothing is being repaired: RTTs say something of the window.
    on: bool,
}

impl Watch {
    fn new(round_end: u64) -> Self {
        Self { base: None, least: None, samples: 0, round_end, on: true }
    }

    fn add(&mut self, rtt: Duration) {
        // The least resolution of a clock stands for "none".
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

    /// The empty path's RTT and the round's, if the round had enough samples to tell.
    fn rtts(&self) -> Option<(Duration, Duration)> {
        Some((self.base?, self.least?)).filter(|_| self.samples >= MIN_SAMPLES)
    }
}

impl Vegas {
    /// A controller for a new connection.
    pub fn new(cx: &Context, hints: &Hints) -> Self {
        Self { window: Window::new(cx, hints), watch: Watch::new(cx.snd_nxt), diff: 0 }
    }

    fn as_reno(&mut self, cx: &Context, sample: &AckSample) {
        let rest = self.window.on_ack(cx, sample);
        if rest > 0 {
            self.window.avoid_congestion(self.window.cwnd(), rest);
        }
    }

    /// Once per round trip, knowing the empty path's RTT and the round's.
    fn adjust(&mut self, cx: &Context, sample: &AckSample, base: Duration, rtt: Duration) {
        let cwnd = self.window.cwnd();
        let (base, rtt) = (base.as_nanos(), rtt.as_nanos());
        self.diff = cwnd.saturating_mul(rtt - base) / base;
        if self.window.in_slow_start() {
            if self.diff > GAMMA {
                // The round has shown what the path carries: as much as that, without a queue. One more for
                // the division's rounding.
                let target = cwnd.saturating_mul(base) / rtt;
                self.window.set(cwnd.min(target + 1));
            } else {
                // What slow start leaves over at its threshold is for the next round to use.
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
            // The path may have changed meanwhile: it is measured anew.
            self.watch = Watch::new(sent.offset);
        }
    }

    fn on_signal(&mut self, cx: &Context, signal: Signal) {
        self.window.on_signal(cx, signal, |cwnd| cwnd / 2);
        match signal {
            Signal::EnterRecovery => self.watch.on = false,
            // With nothing left in flight the repair begins on a path that is measured anew.
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
