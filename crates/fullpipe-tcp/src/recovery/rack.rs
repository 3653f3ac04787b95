//! Time-based loss detection (RACK, RFC 8985).
//!
//! RACK marks a record lost if a record sent later has been delivered, and `RACK.rtt` plus the reordering
//! window has passed since the record was sent. RACK uses the order of transmission instead of the order of
//! offsets, so it detects lost retransmissions in the same way as lost first transmissions. Two FIFOs in
//! order of departure allow RACK to check only a few records per ACK:
//!
//! ```text
//!   first sends:    the ring itself, from `fresh_cursor` on
//!   retransmitted:  `resent`, (number, departure) pairs
//!   each is consumed from its oldest entry while   sent_at + RACK.rtt + reo_wnd <= now
//! ```
//!
//! RACK marks records lost and returns the time of the next check. RACK itself never sends anything.

use std::collections::VecDeque;

use fullpipe_units::{Duration, Instant};

use super::scoreboard::{RecordNo, RecordState, Run, Scoreboard, SentRecord};
use crate::{ReoWnd, Tunables};

/// Maximum multiple of the initial reordering window (RFC 8985 section 6.2 step 4).
const MAX_REO_WND_MULT: u64 = 255;
/// Number of recoveries without a D-SACK after which the reordering window shrinks again.
const REO_WND_PERSIST: u32 = 16;
/// Minimum number of SACKed segments with which the reordering window is 0 if no reordering has been seen
/// (`DupThresh` in RFC 8985).
pub(super) const DUP_THRESH: u64 = 3;

/// Variables of RACK, with the names of RFC 8985.
#[derive(Clone, Debug)]
pub struct Rack {
    rule: ReoWnd,
    xmit_ts: Instant,
    end_seq: u64,
    rtt: Duration,
    /// Highest stream offset delivered, used to detect reordering.
    fack: u64,
    reordering_seen: bool,
    /// Largest distance in octets between the start of a late segment and the end of the highest data
    /// delivered before it.
    reordering: u64,
    reo_wnd_mult: u64,
    reo_wnd_persist: u32,
    dsack_round: Option<u64>,
    fresh_cursor: RecordNo,
    resent: VecDeque<(RecordNo, Instant)>,
}

impl Default for Rack {
    fn default() -> Self {
        Self {
            rule: Tunables::LINUX.reo_wnd,
            xmit_ts: Instant::ZERO,
            end_seq: 0,
            rtt: Duration::ZERO,
            fack: 0,
            reordering_seen: false,
            reordering: 0,
            reo_wnd_mult: 1,
            reo_wnd_persist: 0,
            dsack_round: None,
            fresh_cursor: 0,
            resent: VecDeque::new(),
        }
    }
}

/// Inputs to the computation of the reordering window.
#[derive(Clone, Copy, Debug)]
pub struct ReoWndInputs {
    /// Minimum RTT of the connection.
    pub min_rtt: Duration,
    /// Smoothed RTT of the connection.
    pub srtt: Duration,
    /// Whether fast recovery or the recovery after a timeout is in progress.
    pub in_recovery: bool,
}

impl Rack {
    /// Frees the memory of an empty queue of retransmissions.
    pub fn free_empty(&mut self) {
        if self.resent.is_empty() {
            self.resent = VecDeque::new();
        }
    }

    /// Returns the state of RACK for a new connection whose reordering window follows `rule`.
    pub fn new(rule: ReoWnd) -> Self {
        Self { rule, ..Self::default() }
    }

    /// Records that record `number` was retransmitted at `sent_at`.
    pub fn on_resent(&mut self, number: RecordNo, sent_at: Instant) {
        self.resent.push_back((number, sent_at));
    }

    /// Handles the delivery of one record or several in a row (RFC 8985 section 6.2 steps 1 to 3). Returns
    /// whether the delivery gave an RTT. With `keeps_rtt`, RACK.rtt stays unchanged. Linux handles the SACK
    /// blocks of an ACK first, so that the cumulatively acknowledged part determines RACK.rtt.
    #[inline]
    pub fn on_delivered(
        &mut self,
        now: Instant,
        run: Run<'_>,
        min_rtt: Option<Duration>,
        keeps_rtt: bool,
    ) -> bool {
        let end = run.last.end();
        let rtt = now.saturating_since(run.last.sent_at);
        if run.last.transmissions > 1 {
            // If the RTT is below the minimum, the ACK was sent for the original transmission, so the RTT of
            // the retransmission is not known.
            if min_rtt.is_some_and(|min| rtt < min) {
                return false;
            }
        } else if run.first.end() < self.fack {
            self.note_reordering(run.first.offset);
        }
        self.fack = self.fack.max(end);
        // RACK.rtt is the RTT of the segment delivered last, even if a segment sent later was delivered
        // before it (section 6.2 step 2), because on a reordering path the RTT of the newest segment alone is
        // too short.
        if !keeps_rtt {
            self.rtt = rtt;
        }
        if (run.last.sent_at, end) > (self.xmit_ts, self.end_seq) {
            self.xmit_ts = run.last.sent_at;
            self.end_seq = end;
        }
        true
    }

    /// Widens the reordering window after a D-SACK, which shows that the window was too short (RFC 8985
    /// section 6.2 step 4). The window grows at most once per round trip.
    pub fn on_dsack(&mut self, snd_una: u64, snd_nxt: u64) {
        if self.dsack_round.is_some_and(|round_end| snd_una < round_end) {
            return;
        }
        self.dsack_round = Some(snd_nxt);
        self.reo_wnd_mult = (self.reo_wnd_mult + 1).min(MAX_REO_WND_MULT);
        self.reo_wnd_persist = REO_WND_PERSIST;
    }

    /// Records that a late segment, rather than its retransmission, filled the hole at `offset`.
    pub fn on_late_original(&mut self, offset: u64) {
        self.note_reordering(offset);
    }

    fn note_reordering(&mut self, offset: u64) {
        self.reordering_seen = true;
        self.reordering = self.reordering.max(self.fack.saturating_sub(offset));
    }

    /// Returns whether the path has delivered a segment of `mss` bytes more than three segments late (Linux:
    /// `tp->reordering` above `net.ipv4.tcp_reordering`).
    #[inline]
    pub fn reorders_far(&self, mss: u64) -> bool {
        self.reordering > DUP_THRESH * mss
    }

    /// Handles a retransmission timeout outside recovery, while the peer has SACKed `sacked_segments`. If
    /// these segments should have started fast recovery, RACK has overestimated the extent of reordering.
    pub fn on_timeout(&mut self, sacked_segments: u64) {
        if sacked_segments >= DUP_THRESH {
            self.reordering = 0;
        }
    }

    /// Records the end of a fast recovery.
    pub fn on_recovery_exit(&mut self) {
        if self.reo_wnd_persist > 0 {
            self.reo_wnd_persist -= 1;
            if self.reo_wnd_persist == 0 {
                self.reo_wnd_mult = 1;
            }
        }
    }

    /// Returns the reordering window (RFC 8985 section 6.2 step 4).
    fn reo_wnd(&self, inputs: ReoWndInputs, sacked_segments: u64) -> Duration {
        let waits = if self.rule.on_evidence {
            self.reordering_seen || self.reo_wnd_mult > 1
        } else {
            self.reordering_seen || !(inputs.in_recovery || sacked_segments >= DUP_THRESH)
        };
        if !waits {
            return Duration::ZERO;
        }
        let share = self.reo_wnd_mult * u64::from(self.rule.share);
        inputs.min_rtt.mul_div(share, u64::from(ReoWnd::UNIT)).min(inputs.srtt)
    }

    /// Returns whether a record may be lost. Without loss and reordering, everything is delivered in the
    /// order of transmission, so no outstanding record was sent before the newest delivered record.
    #[inline(always)]
    pub(super) fn suspects(&mut self, board: &mut Scoreboard) -> bool {
        self.fresh_cursor = self.fresh_cursor.max(board.base());
        let fresh = board.visit(self.fresh_cursor);
        !self.resent.is_empty() || fresh.is_some_and(|record| !record.is_fresh() || self.precedes(record))
    }

    /// Returns whether the record was sent before the newest delivered record.
    fn precedes(&self, record: &SentRecord) -> bool {
        (record.sent_at, record.end()) < (self.xmit_ts, self.end_seq)
    }

    /// Marks the records lost at `now` (RFC 8985 section 6.2 step 5), and calls `lost` for each of them in
    /// the order of marking. Returns the time of the next check if more records may prove lost.
    /// [`Self::suspects`] has already visited the record at the cursor.
    pub(super) fn mark_older(
        &mut self,
        now: Instant,
        board: &mut Scoreboard,
        inputs: ReoWndInputs,
        mut lost: impl FnMut(RecordNo, &SentRecord),
    ) -> Option<Instant> {
        let allowance = self.rtt + self.reo_wnd(inputs, board.sacked_segments());
        let mut look_again: Option<Instant> = None;
        let mut fresh = board.get(self.fresh_cursor);
        while let Some(record) = fresh {
            if record.is_fresh() {
                if !self.precedes(record) {
                    break;
                }
                let deadline = record.sent_at + allowance;
                if deadline > now {
                    look_again = Some(deadline);
                    break;
                }
                Self::mark(board, self.fresh_cursor, &mut lost);
            }
            self.fresh_cursor += 1;
            fresh = board.visit(self.fresh_cursor);
        }

        while let Some(&(number, sent_at)) = self.resent.front() {
            let current = board.visit(number).filter(|record| speaks_for(record, sent_at));
            if let Some(record) = current {
                if !self.precedes(record) {
                    break;
                }
                let deadline = sent_at + allowance;
                if deadline > now {
                    look_again = Some(look_again.map_or(deadline, |earlier| earlier.min(deadline)));
                    break;
                }
                Self::mark(board, number, &mut lost);
            }
            self.resent.pop_front();
        }
        look_again
    }

    /// Marks records lost after a retransmission timeout: the oldest record, and every record sent at least
    /// `RACK.rtt` plus the reordering window ago (RFC 8985 section 6.3). If the peer has `reneged`, marks all
    /// records.
    pub(super) fn mark_on_timeout(
        &mut self,
        now: Instant,
        board: &mut Scoreboard,
        inputs: ReoWndInputs,
        reneged: bool,
        mut lost: impl FnMut(RecordNo, &SentRecord),
    ) {
        let allowance = self.rtt + self.reo_wnd(inputs, board.sacked_segments());
        let oldest = board.base();
        for number in board.numbers() {
            let Some(record) = board.visit(number) else { continue };
            if number == oldest || reneged || record.sent_at + allowance <= now {
                Self::mark(board, number, &mut lost);
            }
        }
        // Drop obsolete entries; otherwise the list could grow with every timeout if a peer acknowledged one
        // octet per timeout.
        self.resent
            .retain(|&(number, sent_at)| board.get(number).is_some_and(|record| speaks_for(record, sent_at)));
    }

    /// Returns the number of retransmissions in RACK's list.
    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        self.resent.len()
    }

    fn mark(board: &mut Scoreboard, number: RecordNo, lost: &mut impl FnMut(RecordNo, &SentRecord)) {
        if board.mark_lost(number)
            && let Some(record) = board.get(number)
        {
            lost(number, record);
        }
    }
}

/// Returns whether the transmission at `sent_at` is the record's last transmission and is still in the
/// network. If not, the list entry is obsolete.
fn speaks_for(record: &SentRecord, sent_at: Instant) -> bool {
    record.sent_at == sent_at && matches!(record.state, RecordState::InFlight | RecordState::Resent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::RateSnapshot;

    const RTT: Duration = Duration::from_millis(100);
    const INPUTS: ReoWndInputs = ReoWndInputs { min_rtt: RTT, srtt: RTT, in_recovery: false };

    fn ms(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn board(n: u64) -> Scoreboard {
        let mut board = Scoreboard::default();
        for i in 0..n {
            board.push_new(i * 100, 100, false, ms(0), RateSnapshot::default());
        }
        board
    }

    fn sack(board: &mut Scoreboard, rack: &mut Rack, now: Instant, start: u64, end: u64) {
        board.sack(start, end, |run| _ = rack.on_delivered(now, run, Some(RTT), false));
    }

    fn detect(board: &mut Scoreboard, rack: &mut Rack, now: Instant) -> (Vec<RecordNo>, Option<Instant>) {
        let mut marked = Vec::new();
        let suspects = rack.suspects(board);
        let look_again = rack.mark_older(now, board, INPUTS, |number, _| marked.push(number));
        assert!(suspects || (marked.is_empty() && look_again.is_none()), "nothing was suspected");
        (marked, look_again)
    }

    /// If only the second of two segments arrives, RACK waits for the first segment for a quarter of the RTT
    /// (RFC 8985; RK-1).
    #[test]
    fn one_later_delivery_waits_the_reordering_window() {
        let (mut board, mut rack) = (board(2), Rack::default());
        sack(&mut board, &mut rack, ms(100), 100, 200);
        assert_eq!(detect(&mut board, &mut rack, ms(100)), (vec![], Some(ms(125))));
        assert_eq!(detect(&mut board, &mut rack, ms(125)), (vec![0], None));
    }

    /// If three later segments were delivered and no reordering has been seen, RACK marks the segment lost at
    /// once (RFC 8985; RK-2).
    #[test]
    fn three_later_deliveries_mark_at_once() {
        let (mut board, mut rack) = (board(4), Rack::default());
        sack(&mut board, &mut rack, ms(100), 100, 400);
        assert_eq!(detect(&mut board, &mut rack, ms(100)).0, [0]);
    }

    /// Once reordering has been seen, three later deliveries no longer prove a loss (RFC 8985; RK-3).
    #[test]
    fn seen_reordering_restores_patience() {
        let (mut board, mut rack) = (board(8), Rack::default());
        sack(&mut board, &mut rack, ms(100), 100, 200);
        sack(&mut board, &mut rack, ms(105), 0, 100);
        sack(&mut board, &mut rack, ms(106), 300, 700);
        assert_eq!(detect(&mut board, &mut rack, ms(106)), (vec![], Some(ms(131))));
    }

    /// The extent of reordering reaches from the start of the late segment to the highest delivered data. A
    /// timeout after three SACKed segments resets this extent.
    #[test]
    fn reordering_has_an_extent() {
        for (last, far) in [(300, false), (400, true)] {
            let (mut board, mut rack) = (board(8), Rack::default());
            sack(&mut board, &mut rack, ms(100), last - 100, last);
            assert!(!rack.reorders_far(100), "the first segment may also be lost");
            sack(&mut board, &mut rack, ms(105), 0, 100);
            assert_eq!(rack.reorders_far(100), far, "{last}");
            rack.on_timeout(2);
            assert_eq!(rack.reorders_far(100), far, "{last}");
            rack.on_timeout(3);
            assert!(!rack.reorders_far(100), "{last}");
        }
    }

    /// Each round with a D-SACK widens the reordering window by a quarter of `min_rtt`, up to SRTT (RFC 8985;
    /// RK-4).
    #[test]
    fn duplicates_widen_the_window() {
        let mut rack = Rack { reordering_seen: true, ..Rack::default() };
        for round in 1..=5 {
            rack.on_dsack(round * 1000, round * 1000 + 500);
            rack.on_dsack(round * 1000 + 100, round * 1000 + 700);
            let expected = (RTT * (round + 1) / 4).min(RTT);
            assert_eq!(rack.reo_wnd(INPUTS, 0), expected, "round {round}");
        }
        for _ in 0..REO_WND_PERSIST {
            rack.on_recovery_exit();
        }
        assert_eq!(rack.reo_wnd(INPUTS, 0), RTT / 4);
    }

    /// With `on_evidence`, the window is zero until RACK has seen reordering or a D-SACK. Then each round
    /// with a D-SACK adds a sixteenth of `min_rtt`.
    #[test]
    fn a_window_on_evidence_starts_at_zero() {
        let rule = ReoWnd { share: ReoWnd::UNIT / 16, on_evidence: true };
        let (mut board, mut rack) = (board(3), Rack::new(rule));
        sack(&mut board, &mut rack, ms(100), 200, 300);
        assert_eq!(detect(&mut board, &mut rack, ms(100)), (vec![0, 1], None));
        rack.on_dsack(300, 400);
        assert_eq!(rack.reo_wnd(INPUTS, 3), RTT / 8);
        let mut rack = Rack { reordering_seen: true, ..Rack::new(rule) };
        assert_eq!(rack.reo_wnd(INPUTS, 3), RTT / 16);
        for round in 1..=255 {
            rack.on_dsack(round * 1000, round * 1000 + 500);
        }
        assert_eq!(rack.reo_wnd(INPUTS, 3), RTT, "at most SRTT");
    }

    /// RFC 8985 section 6.2 step 2: every delivered segment updates RACK.rtt, not only the newest one.
    #[test]
    fn the_rtt_is_that_of_the_last_delivery() {
        let (mut board, mut rack) = (Scoreboard::default(), Rack::default());
        for i in 0..3 {
            board.push_new(i * 100, 100, false, ms(10 * i), RateSnapshot::default());
        }
        sack(&mut board, &mut rack, ms(130), 200, 300);
        assert_eq!(rack.rtt, Duration::from_millis(110));
        sack(&mut board, &mut rack, ms(135), 0, 100);
        assert_eq!((rack.rtt, rack.xmit_ts), (Duration::from_millis(135), ms(20)));
        // RACK marks the second segment lost after 10 ms + 135 ms + min_rtt / 4. With an RTT of 110 ms, RACK
        // would already have marked it.
        assert_eq!(detect(&mut board, &mut rack, ms(146)), (vec![], Some(ms(170))));
    }

    /// The delivery of a later transmission reveals that a retransmission was lost (RFC 8985; RK-5).
    #[test]
    fn a_lost_retransmission_is_found() {
        let (mut board, mut rack) = (board(4), Rack::default());
        sack(&mut board, &mut rack, ms(100), 100, 400);
        assert_eq!(detect(&mut board, &mut rack, ms(100)).0, [0]);
        board.on_resent(0, ms(100), RateSnapshot::default(), false);
        rack.on_resent(0, ms(100));
        board.push_new(400, 100, false, ms(101), RateSnapshot::default());
        sack(&mut board, &mut rack, ms(201), 400, 500);
        assert_eq!(detect(&mut board, &mut rack, ms(201)).0, [0]);
        assert_eq!(board.lost_pending(), 100);
    }
}
