//! Whether the last recovery was needed (RFC 2883 and 3708: undo by DSACK).
//!
//! If every retransmission of an episode is reported as a duplicate, nothing had been lost: the
//! reduction is taken back.

/// Counts the retransmissions of the present episode that no duplicate report has answered.
#[derive(Clone, Debug, Default)]
pub struct Undo {
    /// `snd_una` at the start of the episode; reports below it belong to earlier ones.
    marker: Option<u64>,
    unanswered: u64,
    sent: u64,
}

impl Undo {
    /// An episode begins.
    pub fn begin(&mut self, snd_una: u64) {
        *self = Self { marker: Some(snd_una), unanswered: 0, sent: 0 };
    }

    /// A segment was sent again.
    pub fn on_retransmission(&mut self) {
        if self.marker.is_some() {
            self.unanswered += 1;
            self.sent += 1;
        }
    }

    /// The peer reported octets from `start` as a duplicate. True when that was the last unanswered
    /// retransmission: the whole episode was spurious.
    pub fn on_duplicate(&mut self, start: u64) -> bool {
        if self.marker.is_none_or(|marker| start < marker) || self.unanswered == 0 {
            return false;
        }
        self.unanswered -= 1;
        let spurious = self.unanswered == 0 && self.sent > 0;
        if spurious {
            self.end();
        }
        spurious
    }

    /// The episode can no longer be undone.
    pub fn end(&mut self) {
        self.marker = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// UN-1 and UN-3: all retransmissions must be answered, one of two is not enough.
    #[test]
    fn every_retransmission_must_be_answered() {
        let mut undo = Undo::default();
        undo.begin(1000);
        undo.on_retransmission();
        undo.on_retransmission();
        assert!(!undo.on_duplicate(500), "a report from an earlier episode");
        assert!(!undo.on_duplicate(1000));
        assert!(undo.on_duplicate(1100));
        assert!(!undo.on_duplicate(1100));
    }
}
