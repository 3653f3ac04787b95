//! Rules for a measurement at the receiver only. A receiver knows its own window, how much of this window
//! arrives per round trip, whether its application keeps up, and which gaps the received data has.
//!
//! ```text
//!   unread data fills the buffer                     receiver_app
//!   rate x RTT / window > 0.8                        rwnd: the rule of `json_rules`
//!   RTT above that of the idle path                  link: the rule of `json_rules`
//!   gaps, and a sender that reacts to loss           cwnd
//!   else                                             unknown: the state of the sender is not observable
//! ```

use fullpipe_lab::stats::upper_median;
use fullpipe_lab::trace::ReceiverSample as Sample;
use fullpipe_measurement::measurement::Measurement;
use fullpipe_measurement::thresholds::reader;
use fullpipe_units::Bytes;

use super::{Confidence, Explainer, Finding, Limit};
use crate::sockets::{NOT_OBSERVABLE, reader_is_behind};

/// Minimum number of out-of-order segments that indicates losses: occasional reordering on the path also
/// produces a few.
const FEWEST_GAPS: u64 = 3;

/// Summary of receiving-socket samples during a test.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceiverView {
    /// Share of the samples in which the receiving application had fallen behind, from 0 to 1.
    behind: f64,
    /// Median amount of unread data (`Recv-Q`).
    pub(super) unread: Bytes,
    /// Largest receive buffer.
    rcvbuf: Bytes,
    /// Number of segments that arrived while an earlier one was missing.
    out_of_order: u64,
    /// Number of segments received, derived from the payload.
    segments: u64,
}

impl ReceiverView {
    /// Returns a summary of the receiver samples, or `None` if the measurement has none.
    pub(super) fn of(measurement: &Measurement) -> Option<Self> {
        let streams = measurement.receiver_samples();
        let all = || streams.iter().copied().flatten();
        all().next()?;
        let behind = all().filter(|sample| reader_is_behind(sample));
        let ends = || streams.iter().filter_map(|samples| Some((samples.first()?, samples.last()?)));
        let arrived = |(first, last): (&Sample, &Sample)| {
            last.receiver.received.saturating_sub(first.receiver.received)
        };
        let late = |(first, last): (&Sample, &Sample)| last.out_of_order.saturating_sub(first.out_of_order);
        let bytes = ends().map(arrived).fold(Bytes::ZERO, |sum, bytes| sum + bytes);
        let mss = all().map(|sample| sample.mss).max().filter(|mss| !mss.is_zero());
        let unread: Vec<Bytes> = all().map(|sample| sample.receiver.unread).collect();
        Some(Self {
            behind: behind.count() as f64 / all().count() as f64,
            unread: upper_median(unread, Ord::cmp).unwrap_or_default(),
            rcvbuf: all().map(|sample| sample.receiver.rcvbuf).max().unwrap_or_default(),
            out_of_order: ends().map(late).fold(0, u64::saturating_add),
            segments: bytes.get() / mss.map_or(1, Bytes::get),
        })
    }
}

impl Explainer<'_> {
    /// Returns whether the receiving application had fallen behind in most samples.
    pub(super) fn reader_is_behind(&self) -> bool {
        self.received.is_some_and(|received| received.behind >= reader::MOSTLY)
    }

    pub(super) fn slow_reader(&self) -> Finding {
        let told = self.received.map(|received| (received.behind, received.unread, received.rcvbuf));
        let (behind, unread, rcvbuf) = told.unwrap_or_default();
        Finding {
            limit: Limit::ReceiverApp,
            what: "the receiving application reads too slowly".into(),
            share: self.steady_share(),
            confidence: Confidence::Certain,
            ceiling: Some(self.measured.steady),
            evidence: vec![format!(
                "{unread} of unread data waits in a receive buffer of {rcvbuf} (Recv-Q), and unread data \
                 fills at least a quarter of the buffer in {:.0} % of the samples",
                100.0 * behind
            )],
            could_not_tell: Vec::new(),
            next_test: None,
        }
    }

    /// Adds an open question to each low-confidence finding: the receiver observes neither Cwnd nor the send
    /// buffer.
    pub(super) fn add_what_is_not_seen(&self, findings: &mut [Finding]) {
        const NOT_SEEN: &str = "the receiving end sees neither Cwnd nor the send buffer";
        let silent = |finding: &&mut Finding| {
            finding.confidence == Confidence::Low
                && !finding.could_not_tell.iter().any(|open| open == NOT_SEEN)
        };
        if self.received.is_some() {
            let guesses = findings.iter_mut().filter(silent);
            guesses.for_each(|finding| finding.could_not_tell.insert(0, NOT_SEEN.into()));
        }
    }

    /// If nothing is known about the sender, replaces the guesses about it with the finding that the
    /// receiver does not observe the limit.
    pub(super) fn admit_what_is_not_observable(&self, findings: &mut Vec<Finding>) {
        let Some(received) = self.received else { return };
        let guess = findings.first().is_none_or(|first| first.confidence == Confidence::Low);
        if !guess || self.facts.transfer.congestion_control.is_some() {
            return;
        }
        findings.retain(|finding| finding.confidence > Confidence::Low);
        let mut evidence = vec![format!(
            "the receiving application keeps up: typically, only {} of data is unread (Recv-Q)",
            received.unread
        )];
        if let Some((window, ratio)) = self.measured.snd_wnd.zip(self.measured.inflight_per_wnd) {
            evidence.push(format!(
                "the receive window of {window} has room: only {:.0} % of a window arrives per round trip",
                100.0 * ratio
            ));
        }
        let finding = Finding {
            limit: Limit::Unknown,
            what: NOT_OBSERVABLE.into(),
            share: self.steady_share(),
            confidence: Confidence::Low,
            ceiling: None,
            evidence,
            could_not_tell: vec![
                "whether the sending application, its send buffer, its pacing, its congestion window or a cap on the path \
                 limits the rate"
                    .into(),
            ],
            next_test: Some(
                "on the sender, run fullpipe diagnose --dst ADDRESS, or tcpdump -s 96 -w FILE and then \
                 fullpipe diagnose FILE".into(),
            ),
        };
        findings.insert(0, finding);
    }

    /// Returns a sentence about gaps in the received data, and the confidence in loss as the cause of a small
    /// congestion window.
    pub(super) fn gaps(&self) -> Option<(String, Confidence)> {
        let ReceiverView { out_of_order: late, segments, .. } = self.received?;
        let yields =
            self.facts.transfer.congestion_control.is_some() && !self.sender.algorithm().is_rate_based();
        // If a standing queue overflows, the losses are an effect of the full link.
        let by_loss = yields && self.window_has_room() && self.queue().is_none();
        let confidence = if by_loss { Confidence::High } else { Confidence::Low };
        (late >= FEWEST_GAPS).then(|| {
            (
                format!(
                    "{late} of {segments} segments arrived while an earlier one was missing, so the path \
                      loses or reorders packets"
                ),
                confidence,
            )
        })
    }
}
