//! Limits of receiving sockets, as far as the receiver observes them.
//!
//! ```text
//!   unread data fills the buffer      receiver_app
//!   rate x RTT fills the window       rwnd
//!   else                              at the sender or on the path, which a receiver does not observe
//! ```
//!
//! Whether the link is full depends on all sockets of the host ([`super::link`]).

use fullpipe_lab::trace::ReceiverSample;
use fullpipe_measurement::classify::{Confidence, Limit};
use fullpipe_measurement::thresholds::{reader, window};
use fullpipe_units::{Bytes, Duration, Rate};

use crate::live::CurrentLimit;

/// Advice if nothing at the receiver shows the limit.
pub(crate) const NOT_OBSERVABLE: &str = "not observable from the receiver: capture at the sender";

/// Summary of the samples of a receiving socket in an interval.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arrivals {
    samples: u64,
    /// Number of samples in which the reader had fallen behind.
    behind: u64,
    /// Sum of the windows, and the number of samples with a window; the next field is the same for the RTTs.
    window: (Bytes, u64),
    rtt: (Duration, u64),
    unread: Bytes,
    rcvbuf: Bytes,
    pub(super) mss: Bytes,
}

/// Returns whether the application of a receiving socket had fallen behind in a sample: unread data takes
/// up much of the buffer.
pub(crate) fn reader_is_behind(sample: &ReceiverSample) -> bool {
    let unread = sample.receiver.unread.get() as f64;
    unread > reader::BEHIND * (unread + sample.window.get() as f64)
}

impl Arrivals {
    pub(super) fn add(&mut self, sample: &ReceiverSample) {
        self.samples += 1;
        self.behind += u64::from(reader_is_behind(sample));
        if !sample.window.is_zero() {
            self.window = (self.window.0 + sample.window, self.window.1 + 1);
        }
        if let Some(rtt) = sample.rtt {
            self.rtt = (self.rtt.0 + rtt, self.rtt.1 + 1);
        }
        self.unread = self.unread.max(sample.receiver.unread);
        self.rcvbuf = self.rcvbuf.max(sample.receiver.rcvbuf);
        self.mss = self.mss.max(sample.mss);
    }

    /// Returns the limit of a socket that received at `rate`, if the receiver observes it.
    pub(super) fn limit(&self, rate: Rate) -> Option<CurrentLimit> {
        let behind = self.behind as f64 / self.samples.max(1) as f64;
        if self.samples > 0 && behind >= reader::MOSTLY {
            return Some(CurrentLimit {
                limit: Limit::ReceiverApp,
                confidence: Confidence::Certain,
                share: behind,
                what: "the receiving application reads too slowly".into(),
                evidence: format!(
                    "up to {} of unread data waits in a receive buffer of {} (Recv-Q), and the application \
                     is behind in {:.0} % of the samples",
                    self.unread,
                    self.rcvbuf,
                    100.0 * behind
                ),
            });
        }
        let window = (self.window.1 > 0).then(|| self.window.0.get() / self.window.1)?;
        let rtt = (self.rtt.1 > 0).then(|| self.rtt.0 / self.rtt.1)?;
        let in_flight = rate * rtt;
        (in_flight.get() as f64 > window::FULL_IN_LOG * window as f64).then(|| CurrentLimit {
            limit: Limit::Rwnd,
            confidence: Confidence::High,
            share: 1.0,
            what: "the receive window is full".into(),
            evidence: format!(
                "{in_flight} arrives per round trip of {rtt}, with a receive window of {} and a receive buffer of {}",
                Bytes::new(window),
                self.rcvbuf
            ),
        })
    }
}
