//! Detection of needless recoveries (undo by D-SACK, RFC 3708, and by timestamps, RFC 3522).
//!
//! If every retransmission of an episode is reported as a duplicate, nothing had been lost. The same holds if
//! an ACK that makes progress echoes a timestamp older than the first retransmission: the original arrived.
//! In both cases the reduction is undone.

/// Retransmissions of the present episode that no duplicate report has answered.
#[derive(Clone, Debug, Default)]
pub struct Undo {
    /// `snd_una` at the start of the episode; reports below it belong to earlier episodes.
    marker: Option<u64>,
    unanswered: u64,
    sent: u64,
    /// Timestamp of the first retransmission.
    first_sent: Option<u32>,
    /// Retransmitted segments since the start of the connection, and how many of them were reported as
    /// duplicates.
    sent_in_all: u64,
    reported_in_all: u64,
}

impl Undo {
    /// Starts an episode with `under_way` earlier retransmissions in the network. They may still be reported
    /// as duplicates, and their timestamps are no older than the first of them.
    pub fn begin(&mut self, snd_una: u64, under_way: u64) {
        let first_sent = self.first_sent.filter(|_| under_way > 0);
        *self = Self { marker: Some(snd_una), unanswered: under_way, sent: 0, first_sent, ..*self };
    }

    /// Records a segment retransmitted with `timestamp`.
    pub fn on_retransmission(&mut self, timestamp: u32) {
        self.sent_in_all += 1;
        self.first_sent.get_or_insert(timestamp);
        if self.marker.is_some() {
            self.unanswered += 1;
            self.sent += 1;
        }
    }

    /// Returns true if an ACK that advanced and echoes `timestamp` answers a segment sent before the first
    /// retransmission.
    pub fn is_late_original(&self, timestamp: u32) -> bool {
        self.marker.is_some()
            && self.first_sent.is_some_and(|first| (timestamp.wrapping_sub(first) as i32) < 0)
    }

    /// Returns the number of needlessly retransmitted segments of `mss` bytes in a duplicate report of
    /// `octets`. Returns 0 if there are more reports than retransmissions: then the network duplicated
    /// packets.
    pub fn spurious_segments(&mut self, octets: u64, mss: u64) -> u64 {
        let segments = octets.div_ceil(mss.max(1));
        self.reported_in_all += segments;
        if self.reported_in_all > self.sent_in_all { 0 } else { segments }
    }

    /// Handles a report that octets from `start` on arrived twice. Returns true if it answers the last
    /// retransmission of the episode, which was therefore spurious.
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

    /// Ends the episode; it can no longer be undone.
    pub fn end(&mut self) {
        self.marker = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// UN-1 and UN-3: every retransmission must be answered; one of two is not enough.
    #[test]
    fn every_retransmission_must_be_answered() {
        let mut undo = Undo::default();
        undo.begin(1000, 0);
        undo.on_retransmission(10);
        undo.on_retransmission(12);
        assert!(!undo.on_duplicate(500), "a report from an earlier episode");
        assert!(!undo.on_duplicate(1000));
        assert!(undo.on_duplicate(1100));
        assert!(!undo.on_duplicate(1100));
    }

    /// Packets duplicated by the network do not count as spurious retransmissions.
    #[test]
    fn copies_of_the_network_are_excluded() {
        let mut undo = Undo::default();
        assert_eq!(undo.spurious_segments(100, 100), 0);
        (0..3).for_each(|_| undo.on_retransmission(1));
        undo.begin(0, 0);
        assert_eq!((undo.spurious_segments(150, 100), undo.spurious_segments(100, 100)), (2, 0));
    }

    /// UN-1, Eifel: only an echo from before the first retransmission shows that the original arrived.
    #[test]
    fn an_old_echo_speaks_for_the_original() {
        let mut undo = Undo::default();
        assert!(!undo.is_late_original(5));
        undo.begin(0, 0);
        assert!(!undo.is_late_original(5), "nothing was retransmitted");
        undo.on_retransmission(10);
        undo.on_retransmission(20);
        assert!(undo.is_late_original(9) && !undo.is_late_original(10));
        undo.begin(100, 1);
        assert!(!undo.is_late_original(15), "an earlier episode's retransmission");
        undo.end();
        assert!(!undo.is_late_original(9));
    }
}
