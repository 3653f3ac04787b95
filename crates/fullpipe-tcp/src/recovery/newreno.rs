//! Loss detection without SACK (RFC 5681 section 3.2, RFC 6582), in the kernel's form.
//!
//! A duplicate ACK says that one more segment has arrived above the hole, and not which. So it is counted as if it had been
//! reported selectively: what the peer holds has left the network, and PRR sizes the window as it does with SACK, in place of
//! the "three, and one more for each duplicate" of RFC 6582 that comes to the same.
//!
//! ```text
//!   open ──`dup_thresh` duplicates──► the oldest is lost ──ACK that advances, below `recover`──► so is the oldest then
//!    ▲                                                              │
//!    └───────────────────────────── ACK of `recover` ◄──────────────┘
//! ```
//! One hole a round trip is repaired; a retransmission that is lost is left to the timeout.

use super::rack::DUP_THRESH;
use super::scoreboard::{RecordNo, RecordState, Scoreboard, SentRecord};

/// The most that reordering may raise it to (`tcp_max_reordering`).
const MAX_REORDERING: u64 = 300;

/// What duplicate ACKs have said.
#[derive(Clone, Debug)]
pub struct NewReno {
    /// Segments that the peer holds above the oldest.
    held: u64,
    dup_thresh: u64,
    /// What was outstanding when the last episode began ends here: duplicates up to there are its echo (RFC 6582 section 3.2,
    /// step 1).
    recover: Option<u64>,
}

impl Default for NewReno {
    fn default() -> Self {
        Self { held: 0, dup_thresh: DUP_THRESH, recover: None }
    }
}

impl NewReno {
    /// A recovery, or the repair after a timeout, begins with `snd_nxt` outstanding.
    pub fn begin(&mut self, snd_nxt: u64) {
        self.recover = self.recover.max(Some(snd_nxt));
    }

    /// Duplicates of `snd_una` are news of the present flight.
    pub fn listens(&self, snd_una: u64) -> bool {
        self.recover.is_none_or(|recover| snd_una > recover)
    }

    /// A duplicate ACK came, `mss` bytes a segment. True if the peer holds one more for it: one must be missing, or the peer
    /// had no reason. More duplicates than that can be come of a path that reorders or duplicates, and make patient.
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

    /// An ACK covered `segments` more: the hole, and above it what had been held. Returns how many of them had been counted.
    /// What is held beyond remains known only while the `recovery` goes on.
    pub fn on_advance(&mut self, board: &mut Scoreboard, mss: u64, segments: u64, recovery: bool) -> u64 {
        let counted = self.held.min(segments.saturating_sub(1));
        self.held = if recovery { self.held - counted } else { 0 };
        board.presume_delivered(self.held * mss);
        counted
    }

    /// Forgets what is held: all of it is to be retransmitted.
    pub fn forget(&mut self, board: &mut Scoreboard) {
        self.held = 0;
        board.presume_delivered(0);
    }

    /// Marks the oldest, if the duplicates are enough, or if it was `uncovered` by a partial ACK in recovery (RFC 6582 section
    /// 3.2 step 3). What was retransmitted already waits for the timeout.
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

    /// Marks everything: nothing tells what has arrived.
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

    /// FR-1 and FR-2: each duplicate takes a segment out of the network, and the third marks the oldest, once.
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

    /// FR-3: a partial ACK uncovers the next hole; what was held beyond it stays held.
    #[test]
    fn a_partial_ack_uncovers_the_next_hole() {
        let (mut board, mut newreno) = (board(10), NewReno::default());
        // The peer lacks 0 and 5: eight duplicates.
        assert!((0..8).all(|_| newreno.on_duplicate(&mut board, 100)));
        assert_eq!(detect(&newreno, &mut board, true, false), [0]);
        board.on_resent(0, Instant::from_nanos(50), RateSnapshot::default(), false);
        assert_eq!(board.inflight(), 200);
        board.acknowledge(500, |_| {});
        assert_eq!(newreno.on_advance(&mut board, 100, 5, true), 4);
        assert_eq!(board.inflight(), 100, "the hole, as far as is known");
        assert_eq!(detect(&newreno, &mut board, false, true), [5]);
        assert_eq!(board.inflight(), 0);
        // Sent again, it is the timeout's.
        board.on_resent(5, Instant::from_nanos(60), RateSnapshot::default(), false);
        assert_eq!(detect(&newreno, &mut board, false, true), []);
        board.acknowledge(1_000, |_| {});
        assert_eq!(newreno.on_advance(&mut board, 100, 5, false), 4);
        assert_eq!(board.inflight(), 0);
    }

    /// More duplicates than there are segments above the hole tell of a path that makes them: patience grows, as the kernel's does.
    #[test]
    fn too_many_duplicates_make_patient() {
        let (mut board, mut newreno) = (board(6), NewReno::default());
        assert_eq!((0..9).filter(|_| newreno.on_duplicate(&mut board, 100)).count(), 5);
        assert_eq!(newreno.dup_thresh, 6);
        assert_eq!(detect(&newreno, &mut board, true, false), []);
    }

    /// FR-5: duplicates of what the last episode was about are its echo.
    #[test]
    fn an_episode_is_not_begun_twice() {
        let mut newreno = NewReno::default();
        assert!(newreno.listens(0));
        newreno.begin(1_000);
        newreno.begin(500);
        assert!(!newreno.listens(900) && !newreno.listens(1_000) && newreno.listens(1_001));
    }
}
