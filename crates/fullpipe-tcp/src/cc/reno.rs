//! Reno: additive increase, multiplicative decrease (RFC 5681, RFC 6582), as Linux rounds it.
//!
//! One more segment per round trip while nothing is lost, half the window when something is. The
//! window is a sawtooth between `W/2` and `W`; with loss probability `p` its mean is `sqrt(1.5 / p)`
//! segments whatever the rate of the link, which is why a long fast path with one loss in ten
//! thousand stays empty: at 1 Gbit/s and 210 ms, one halving takes half an hour to grow back.
//!
//! Linux halves the window, not the amount in flight as RFC 5681 has it, and rounds down.

use super::slow_start::Watch;
use super::window::Window;
use super::{AckSample, CongestionControl, Context, Control, Hints, Signal, SlowStart, Status};

/// Reno on one connection.
#[derive(Debug)]
pub struct Reno {
    window: Window,
    slow_start: Watch,
}

impl Reno {
    /// A controller for a new connection.
    pub fn new(cx: &Context, hints: &Hints) -> Self {
        let kind = hints.slow_start.unwrap_or(SlowStart::Standard);
        Self { window: Window::new(cx, hints), slow_start: Watch::new(cx, kind) }
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
            // One segment per window acknowledged is one per round trip.
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
