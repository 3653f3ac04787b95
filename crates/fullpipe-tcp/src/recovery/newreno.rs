//! Loss detection without SACK (RFC 5681 section 3.2, RFC 6582), as implemented in Linux.
//!
//! A duplicate ACK reports that one more segment has arrived above the hole, but not which one. The sender
//! handles a duplicate ACK like a SACK of one segment: it no longer counts one segment as in flight, and PRR
//! sets the window as it does with SACK. Window inflation as in RFC 6582 (three segments, and one more for
//! each duplicate ACK) gives the same result.
//!
//! ```text
//!   open ──`dup_thresh` duplicates──► oldest is lost ──ACK advances, below `recover`──► new oldest is lost
//!    ▲                                                         │
//!    └───────────────────────── ACK of `recover` ◄─────────────┘
//! ```
//! The sender repairs one hole per round trip. Only the retransmission timeout repairs a lost retransmission.

use super::rack::DUP_THRESH;
use super::scoreboard::{RecordNo, RecordState, Scoreboard, SentRecord};

/// Maximum value to which reordering can raise `dup_thresh` (Linux: `tcp_max_reordering`).
const MAX_REORDERING: u64 = 300;

/// State of loss detection from duplicate ACKs (RFC 6582).
#[derive(Clone, Debug)]
pub struct NewReno {
    /// Number of segments that the peer holds above the oldest outstanding segment.
    held: u64,
    dup_thresh: u64,
    /// End of the data that was outstanding when the last recovery began. Duplicate ACKs below this offset
    /// belong to that recovery (RFC 6582 section 3.2, step 1).
    recover: Option<u64>,
}

impl Default for NewReno {
    fn default() -> Self {
        Self { held: 0, dup_thresh: DUP_THRESH, recover: None }
    }
}

impl NewReno {
    /// Starts fast recovery or recovery after a timeout. Data up to `snd_nxt` is outstanding.
    pub fn begin(&mut self, snd_nxt: u64) {
        self.recover = self.recover.max(Some(snd_nxt));
    }

    /// Returns whether duplicate ACKs of `snd_una` belong to the current flight.
    pub fn listens(&self, snd_una: u64) -> bool {
        self.recover.is_none_or(|recover| snd_una > recover)
    }

    /// Counts a duplicate ACK as the delivery of one segment of `mss` bytes. Returns false, and counts
    /// nothing, if duplicate ACKs already account for all outstanding segments but one: at least one segment
    /// must be missing, because otherwise the ACK would have advanced. Such an additional duplicate ACK comes
    /// from a path that reorders or duplicates packets, and raises `dup_thresh`.
    pub fn on_duplicate(&mut self, board: &mut Scoreboard, mss: u64) -> bool {
        let outstanding = board.outstanding() as u64;
        if self.held + 1 >= outstanding {
            self.dup_thresh = self.dup_thresh.max(outstanding.min(MAX_REORDERING));
            return false;
        }
        self.held += 1;
        board.presume_delivered(self.held * mss);
        true
    }

    /// Handles an ACK that covers `segments` more segments: the hole, and segments that the peer held above
    /// it. Returns the number of these segments that duplicate ACKs had already counted. The count of
    /// segments held beyond the ACK is kept only while `recovery` continues.
    pub fn on_advance(&mut self, board: &mut Scoreboard, mss: u64, segments: u64, recovery: bool) -> u64 {
        let counted = self.held.min(segments.saturating_sub(1));
        self.held = if recovery { self.held - counted } else { 0 };
        board.presume_delivered(self.held * mss);
        counted
    }

    /// Discards the count of held segments, because all of them will be retransmitted.
    pub fn forget(&mut self, board: &mut Scoreboard) {
        self.held = 0;
        board.presume_delivered(0);
    }

    /// Marks the oldest record lost after enough duplicate ACKs, or if a partial ACK in recovery `uncovered`
    /// it (RFC 6582 section 3.2, step 3). A record that has already been retransmitted is marked lost only by
    /// a retransmission timeout.
    pub(super) fn detect(
        &self,
        board: &mut Scoreboard,
        open: bool,
        uncovered: bool,
        mut lost: impl FnMut(RecordNo, &SentRecord),
    ) {
        if uncovered || (open && self.held >= self.dup_thresh) {
            let oldest = board.base();
            let waits = board.get(oldest).is_some_and(|record| record.state == RecordState::InFlight);
            if waits
                && board.mark_lost(oldest)
                && let Some(record) = board.get(oldest)
            {
                lost(oldest, record);
            }
        }
    }

    /// Marks all records lost, because without SACK the sender does not know which segments have arrived.
    pub(super) fn mark_on_timeout(board: &mut Scoreboard, mut lost: impl FnMut(RecordNo, &SentRecord)) {
        for number in board.numbers() {
            if board.mark_lost(number)
                && let Some(record) = board.get(number)
            {
                lost(number, record);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use fullpipe_units::Instant;

    use super::*;
    use crate::estimate::RateSnapshot;
    use crate::recovery::scoreboard::board;

    fn detect(newreno: &NewReno, board: &mut Scoreboard, open: bool, uncovered: bool) -> Vec<RecordNo> {
        let mut marked = Vec::new();
        newreno.detect(board, open, uncovered, |number, _| marked.push(number));
        marked
    }

    /// Each duplicate ACK means that one segment has left the network (RFC 5681 section 3.2; FR-1 and FR-2).
    /// The third duplicate ACK marks the oldest record lost, once.
    #[test]
    fn the_third_duplicate_marks_the_oldest() {
        let (mut board, mut newreno) = (board(10), NewReno::default());
        for n in 1..=3 {
            assert_eq!(detect(&newreno, &mut board, true, false), []);
            assert!(newreno.on_duplicate(&mut board, 100));
            assert_eq!(board.inflight(), 1_000 - 100 * n);
        }
        assert_eq!(detect(&newreno, &mut board, true, false), [0]);
        assert_eq!(board.inflight(), 600);
        assert_eq!(detect(&newreno, &mut board, true, false), []);
        board.check();
    }

    /// A partial ACK uncovers the next hole (RFC 6582; FR-3). The peer still holds the segments beyond that
    /// hole.
    #[test]
    fn a_partial_ack_uncovers_the_next_hole() {
        let (mut board, mut newreno) = (board(10), NewReno::default());
        // The peer lacks segments 0 and 5, so it sends eight duplicate ACKs.
        assert!((0..8).all(|_| newreno.on_duplicate(&mut board, 100)));
        assert_eq!(detect(&newreno, &mut board, true, false), [0]);
        board.on_resent(0, Instant::from_nanos(50), RateSnapshot::default(), false);
        assert_eq!(board.inflight(), 200);
        board.acknowledge(500, |_| {});
        assert_eq!(newreno.on_advance(&mut board, 100, 5, true), 4);
        assert_eq!(board.inflight(), 100, "the hole, as far as is known");
        assert_eq!(detect(&newreno, &mut board, false, true), [5]);
        assert_eq!(board.inflight(), 0);
        // After the retransmission of the record, only a retransmission timeout can mark it lost again.
        board.on_resent(5, Instant::from_nanos(60), RateSnapshot::default(), false);
        assert_eq!(detect(&newreno, &mut board, false, true), []);
        board.acknowledge(1_000, |_| {});
        assert_eq!(newreno.on_advance(&mut board, 100, 5, false), 4);
        assert_eq!(board.inflight(), 0);
    }

    /// If there are more duplicate ACKs than segments above the hole, the path duplicates packets. As in
    /// Linux, `dup_thresh` rises.
    #[test]
    fn too_many_duplicates_make_patient() {
        let (mut board, mut newreno) = (board(6), NewReno::default());
        assert_eq!((0..9).filter(|_| newreno.on_duplicate(&mut board, 100)).count(), 5);
        assert_eq!(newreno.dup_thresh, 6);
        assert_eq!(detect(&newreno, &mut board, true, false), []);
    }

    /// Duplicate ACKs for data of the last recovery do not start another recovery (RFC 6582; FR-5).
    #[test]
    fn an_episode_is_not_begun_twice() {
        let mut newreno = NewReno::default();
        assert!(newreno.listens(0));
        newreno.begin(1_000);
        newreno.begin(500);
        assert!(!newreno.listens(900) && !newreno.listens(1_000) && newreno.listens(1_001));
    }
}
