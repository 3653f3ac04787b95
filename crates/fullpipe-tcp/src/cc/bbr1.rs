//! Placeholder until the algorithm lands.
use super::{AckSample, CongestionControl, Context, Control, Hints, Pacing, Recovery, SendQuantum, Status};

/// Fixed window.
#[derive(Debug)]
pub struct Bbr1 {
    cwnd: u64,
}

impl Bbr1 {
    /// A controller for a new connection.
    pub fn new(cx: &Context, hints: &Hints) -> Self {
        Self { cwnd: hints.initial_cwnd.unwrap_or(100_000 * cx.mss) }
    }
}

impl CongestionControl for Bbr1 {
    fn on_ack(&mut self, _: &Context, _: &AckSample) {}

    fn control(&self) -> Control {
        Control {
            cwnd: self.cwnd,
            ssthresh: u64::MAX,
            pacing: Pacing::Unpaced,
            send_quantum: SendQuantum::FromRate { min_segments: 2 },
            recovery: Recovery::Prr,
        }
    }

    fn status(&self) -> Status {
        Status::default()
    }
}
