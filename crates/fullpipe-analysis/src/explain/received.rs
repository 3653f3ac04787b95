//! The rules for what a receiving end alone knows: its own window, how much of it arrives in a round trip, whether its application
//! keeps up, and gaps in what arrives.
//!
//! ```text
//!   unread data fills the buffer                     receiver_app
//!   rate x RTT / window > 0.8                        rwnd: the rule of `told`
//!   round trips longer than the idle path's          link: the rule of `told`
//!   gaps, and a sender that yields to loss           cwnd
//!   else                                             the sender, of which nothing is seen
//! ```

use super::{Confidence, Explainer, Finding, Limit};

/// Of the samples, those in which the reader must have been behind for that to be what holds the transfer.
const MOSTLY: f64 = 0.5;
/// Fewer segments out of order than this may be a path that reorders now and then.
const FEWEST_GAPS: u64 = 3;

impl Explainer<'_> {
    /// Whether the receiving application, which is on this host, leaves the buffer full.
    pub(super) fn reader_is_behind(&self) -> bool {
        self.facts.received.is_some_and(|received| received.behind() >= MOSTLY)
    }

    pub(super) fn slow_reader(&self) -> Finding {
        let told =
            self.facts.received.map(|received| (received.behind(), received.unread(), received.rcvbuf()));
        let (behind, unread, rcvbuf) = told.unwrap_or_default();
        Finding {
            limit: Limit::ReceiverApp,
            what: "the receiving application reads no faster".into(),
            share: self.steady_share(),
            confidence: Confidence::Certain,
            ceiling: Some(self.measured.steady),
            evidence: vec![format!(
                "{unread} wait to be read here (Recv-Q) in a buffer of {rcvbuf}, and in {:.0} % of the samples they take a quarter of \
                 it and more",
                100.0 * behind
            )],
            could_not_tell: Vec::new(),
            next_test: None,
        }
    }

    /// What is a guess is one because of what this end cannot see.
    pub(super) fn add_what_is_not_seen(&self, findings: &mut [Finding]) {
        const NOT_SEEN: &str = "the receiving end sees neither Cwnd nor the send buffer";
        let silent = |finding: &&mut Finding| {
            finding.confidence == Confidence::Low
                && !finding.could_not_tell.iter().any(|open| open == NOT_SEEN)
        };
        if self.facts.received.is_some() {
            let guesses = findings.iter_mut().filter(silent);
            guesses.for_each(|finding| finding.could_not_tell.insert(0, NOT_SEEN.into()));
        }
    }

    /// What the gaps in what arrives say of the congestion window, in a sentence, and how sure that is.
    pub(super) fn gaps(&self) -> Option<(String, Confidence)> {
        let (late, segments) = self.facts.received?.out_of_order();
        let yields = self.facts.log.congestion_control.is_some() && !self.sender.algorithm().goes_by_rate();
        // A standing queue overflows, and that is the line's doing.
        let by_loss = yields && self.window_has_room() && self.queue().is_none();
        let confidence = if by_loss { Confidence::High } else { Confidence::Low };
        (late >= FEWEST_GAPS).then(|| {
            (format!("{late} of {segments} segments came while an earlier one was missing: the path loses or reorders"), confidence)
        })
    }
}
