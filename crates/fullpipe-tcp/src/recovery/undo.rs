//! Detection of spurious recoveries by D-SACK (RFC 3708) and by timestamps (Eifel, RFC 3522).
//!
//! If D-SACKs report every retransmission of an episode as a duplicate, nothing was lost. An ACK that makes
//! progress and echoes a timestamp older than the first retransmission also shows that nothing was lost,
//! because the original arrived. In both cases, the sender undoes the window reduction.

/// State of undo detection: counts the retransmissions of the current episode that have not been reported as
/// duplicates.
#[derive(Clone, Debug, Default)]
pub struct Undo {
    /// `snd_una` at the start of the episode; duplicate reports below this offset belong to earlier episodes.
    marker: Option<u64>,
    unanswered: u64,
    sent: u64,
    /// Timestamp of the first retransmission in the episode.
    first_sent: Option<u32>,
    /// Number of segments retransmitted since the start of the connection. `reported_in_all` is the number of
    /// these segments that the peer has reported as duplicates.
    sent_in_all: u64,
    reported_in_all: u64,
}

impl Undo {
    /// Starts a recovery episode. `under_way` earlier retransmissions are in the network and may still be
    /// reported as duplicates. The timestamp of the first of these retransmissions is kept, because it is the
    /// oldest one.
    pub fn begin(&mut self, snd_una: u64, under_way: u64) {
        let first_sent = self.first_sent.filter(|_| under_way > 0);
        *self = Self { marker: Some(snd_una), unanswered: under_way, sent: 0, first_sent, ..*self };
    }

    /// Records that a segment was retransmitted with `timestamp`.
    pub fn on_retransmission(&mut self, timestamp: u32) {
        self.sent_in_all += 1;
        self.first_sent.get_or_insert(timestamp);
        if self.marker.is_some() {
            self.unanswered += 1;
            self.sent += 1;
        }
    }

    /// Returns whether `timestamp`, echoed in an ACK that advances `snd_una`, belongs to a segment sent
    /// before the first retransmission.
    pub fn is_late_original(&self, timestamp: u32) -> bool {
        self.marker.is_some()
            && self.first_sent.is_some_and(|first| (timestamp.wrapping_sub(first) as i32) < 0)
    }

    /// Returns the number of spuriously retransmitted segments of `mss` bytes in a D-SACK of `octets`. If the
    /// peer has reported more duplicates than there were retransmissions, the network has duplicated packets,
    /// and the result is 0.
    pub fn spurious_segments(&mut self, octets: u64, mss: u64) -> u64 {
        let segments = octets.div_ceil(mss.max(1));
        self.reported_in_all += segments;
        if self.reported_in_all > self.sent_in_all { 0 } else { segments }
    }

    /// Handles a D-SACK for octets from `start` on. Returns whether the D-SACK reports the last unreported
    /// retransmission of the episode, so that the whole episode was spurious.
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

    /// Ends the recovery episode. The window reduction of this episode can no longer be undone.
    pub fn end(&mut self) {
        self.marker = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An undo requires a D-SACK for every retransmission (RFC 3708; UN-1 and UN-3). A D-SACK for only one of
    /// two retransmissions is not enough.
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

    /// Only the echo of a timestamp older than the first retransmission shows that the original arrived
    /// (Eifel, RFC 3522; UN-1).
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
