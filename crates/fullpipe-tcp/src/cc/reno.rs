//! Reno congestion control: additive increase, multiplicative decrease (RFC 5681, RFC 6582), with Linux's
//! rounding.
//!
//! The window grows by one segment per round trip without loss, and a loss halves it. The window follows a
//! sawtooth between `W/2` and `W`. With loss probability `p`, the mean window is `sqrt(1.5 / p)` segments,
//! regardless of the link rate. A long, fast path that loses one segment in ten thousand therefore stays
//! nearly empty. At 1 Gbit/s and an RTT of 210 ms, the window takes half an hour to recover from a single
//! halving.
//!
//! Linux halves the congestion window and rounds down, whereas RFC 5681 halves the amount in flight.

use super::slow_start::Watch;
use super::window::Window;
use super::{AckSample, CongestionControl, Context, Control, Hints, Signal, SlowStart, Status};

/// Reno state of one connection.
#[derive(Debug)]
pub struct Reno {
    window: Window,
    slow_start: Watch,
}

impl Reno {
    /// Returns a Reno controller for a new connection.
    pub fn new(cx: &Context, hints: &Hints) -> Self {
        let kind = hints.slow_start.unwrap_or(SlowStart::Standard);
        Self { window: Window::new(cx, hints), slow_start: Watch::new(cx, kind, hints.launch.is_some()) }
    }
}

impl CongestionControl for Reno {
    fn on_signal(&mut self, cx: &Context, signal: Signal) {
        self.window.on_signal(cx, signal, |cwnd| cwnd / 2);
        if let Signal::Timeout { .. } = signal {
            self.slow_start.restart(cx);
        }
    }

    fn on_ack(&mut self, cx: &Context, sample: &AckSample) {
        let grant = self.slow_start.on_ack(cx, sample, cx.min_rtt, &mut self.window);
        let rest = self.window.on_watched_ack(cx, sample, grant);
        if rest > 0 {
            // Growth by one segment per ACKed window is growth by one segment per round trip.
            self.window.avoid_congestion(self.window.cwnd(), rest);
        }
    }

    fn control(&self) -> Control {
        self.window.control()
    }

    fn status(&self) -> Status {
        Status { phase: self.slow_start.phase(&self.window), ..Status::default() }
    }
}

#[cfg(test)]
mod tests;
