//! A receive window full of data that arrived after a lost segment.
//!
//! A receiver keeps such data in its buffer until the retransmission fills the hole. Meanwhile the window
//! does not advance:
//!
//! ```text
//!   sent, not acknowledged   │ hole │▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒│ end of the window: the sender waits
//!                                     received out of order
//! ```
//!
//! A hole lasts two round trips, because the sender notices the loss after one round trip, and the repair
//! takes another one. A sender that does not slow down at losses keeps sending until the window is full, so
//! at most half a window arrives per round trip, and less if retransmissions are lost, too. Larger buffers
//! lift this limit.

use fullpipe_measurement::thresholds::window::FREE_IN_LOG as FREE;
use fullpipe_units::Bytes;

use super::{Confidence, Explainer, Finding, Limit, Sender};

/// A window nearly always has a hole (with probability 1 - exp(-2)) if this many segments of a window are
/// lost on average.
/// Unit: segments
const LOST_PER_WINDOW: f64 = 2.0;
/// Range of the share of a window that arrives per round trip between holes.
/// Source: a hole lasts two round trips or three; the lower bound leaves room for retransmissions that are
/// lost twice.
const CARRIED: (f64, f64) = (0.25, FREE);

/// Receive window with holes.
#[derive(Clone, Copy)]
pub(super) struct Holes {
    /// Size of the window.
    window: Bytes,
    /// Whether the log reports the window; otherwise its size follows from the assumed buffer.
    reported: bool,
    /// Data that arrives per round trip, as a share of the window.
    carried: f64,
    /// Average number of segments of a window that are lost.
    lost: f64,
}

impl Explainer<'_> {
    /// Returns the window, if holes in it explain the rate.
    pub(super) fn holes(&self) -> Option<Holes> {
        let tolerant = !matches!(self.sender, Sender::Assumed(_)) && self.sender.algorithm().is_rate_based();
        let loss = self.loss.filter(|_| tolerant)?;
        let (window, reported) = match self.measured.snd_wnd {
            Some(window) => (window, true),
            None => (self.buffers.window().mul_div(self.measured.streams.max(1), 1), false),
        };
        let inflight = self.measured.inflight.get() as f64;
        let carried = inflight / window.get().max(1) as f64;
        let segments = inflight / self.measured.mss.get().max(1) as f64;
        let lost = loss.rate.as_f64() * segments;
        ((CARRIED.0..=CARRIED.1).contains(&carried) && lost >= LOST_PER_WINDOW).then_some(Holes {
            window,
            reported,
            carried,
            lost,
        })
    }

    pub(super) fn holes_in_the_window(&self, holes: Holes) -> Finding {
        let Holes { window, reported, carried, lost } = holes;
        let mut could_not_tell = vec![
            "whether the send buffer is full too, because data behind a hole also stays in the send \
                  buffer"
                .to_owned(),
        ];
        if !reported {
            could_not_tell.push("how large the window is, because the log does not print it".into());
        }
        Finding {
            limit: Limit::Rwnd,
            what: format!("data behind lost segments fills the receive window of {window}"),
            share: self.steady_share(),
            confidence: if reported { Confidence::High } else { Confidence::Low },
            ceiling: Some(self.measured.steady),
            evidence: vec![
                format!(
                    "rate x RTT is {}, or {carried:.2} of the window of {window}, and on average {lost:.0} \
                     segments per window are retransmitted",
                    self.measured.inflight
                ),
                "a lost segment leaves a hole for at least two round trips, so at most about half a window \
                 arrives per round trip"
                    .into(),
            ],
            could_not_tell,
            next_test: Some(
                "repeat with receive and send buffers of twice the size: a higher rate at the same loss \
                 shows that data behind holes filled the buffers"
                    .into(),
            ),
        }
    }
}
