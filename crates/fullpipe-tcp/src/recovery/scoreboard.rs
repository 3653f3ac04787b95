//! Scoreboard: records of the sent segments, with their delivered or lost state.
//!
//! Each segment has one record, in a ring addressed by record number. Numbers and offsets increase in the
//! same order, so the oldest record is the one with the lowest offset. Counters hold every value that an ACK
//! needs, and an ACK visits only the records that it newly covers:
//!
//! ```text
//!   number   base ............................................... end
//!   ring     [ una | sacked | lost | lost+resent | fresh | fresh ]
//!   order    first transmissions are in number order, so their send-time FIFO is the ring itself
//!            with a cursor; retransmissions have a separate FIFO (`rack.rs`)
//!   lost     a min-heap of numbers: its top is the next retransmission, without a scan
//! ```
//!
//! A super-segment is a single transmission, but each of its segments has a record, so a partial SACK never
//! splits a record (decision record 0001). The records of a super-segment share the departure time and the
//! delivered count of the transmission.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use fullpipe_units::Instant;

use crate::estimate::RateSnapshot;
use crate::ranges::RangeSet;

/// Number of a sent record. Each segment that is sent for the first time gets the next number.
pub type RecordNo = u64;

/// Record of a segment that has been sent and not yet cumulatively acknowledged.
#[derive(Clone, Debug)]
pub struct SentRecord {
    /// Stream offset of the segment's first octet.
    pub offset: u64,
    /// Length of the segment in octets of sequence space (a FIN counts as one octet).
    pub len: u32,
    /// Number of transmissions of the segment; saturates at 255.
    pub transmissions: u8,
    /// Estimated state of the segment.
    pub state: RecordState,
    /// Whether the last transmission was a copy or a tail loss probe, which are sent without an indication of
    /// loss.
    pub was_copy: bool,
    /// Whether the segment carries the FIN.
    pub fin: bool,
    /// Whether the segment carries PSH; if so, its retransmissions carry PSH, too.
    pub psh: bool,
    /// Departure time of the last transmission of the segment.
    pub sent_at: Instant,
    /// Delivery-rate snapshot taken at the last transmission of the segment.
    pub snapshot: RateSnapshot,
}

/// Run of newly delivered records: a single record, or several consecutive records that were in the network
/// and had been sent only once. Consecutive records of this kind were sent in offset order, so the handling
/// of an ACK needs only the first and the last of them.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Record of the run with the lowest offset.
    pub first: &'a SentRecord,
    /// Record of the run with the highest offset.
    pub last: &'a SentRecord,
    /// Number of records in the run.
    pub segments: u64,
    /// Number of octets in the run.
    pub octets: u64,
}

/// Estimated state of a record: where the sender believes the segment to be.
///
/// ```text
///   InFlight ──lost──► Lost ──retransmitted──► Resent ──lost──► Lost …
///      └────────────────── delivered ──────────┴──► Sacked or gone
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordState {
    /// In the network after one transmission, or after an additional copy.
    InFlight,
    /// Marked lost and not yet retransmitted.
    Lost,
    /// In the network again after a retransmission.
    Resent,
    /// Received out of order, as reported by the peer in a SACK block.
    Sacked,
}

/// Records of all outstanding segments, and their counters.
#[derive(Clone, Debug, Default)]
pub struct Scoreboard {
    records: VecDeque<SentRecord>,
    base: RecordNo,
    sacked: RangeSet,
    sacked_segments: u64,
    /// Number of octets in the network, in state [`RecordState::InFlight`] or [`RecordState::Resent`].
    inflight: u64,
    /// Number of octets in `inflight` that are presumed delivered, because duplicate ACKs do not identify the
    /// delivered segments (`newreno.rs`).
    presumed: u64,
    lost_pending: u64,
    lost_queue: BinaryHeap<Reverse<RecordNo>>,
    /// Number of octets marked lost since the start of the connection.
    lost_total: u64,
    /// Number of records in the network that were retransmitted.
    resent_in_network: u64,
    visited: u64,
}

impl SentRecord {
    fn is_in_network(&self) -> bool {
        matches!(self.state, RecordState::InFlight | RecordState::Resent)
    }

    /// Returns the offset after the last octet of the segment.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.len)
    }

    /// Returns the payload length of the segment, in bytes. A FIN is not payload.
    pub fn payload(&self) -> u64 {
        u64::from(self.len) - u64::from(self.fin)
    }

    /// Returns whether the segment is in the network and was sent once.
    pub fn is_fresh(&self) -> bool {
        self.state == RecordState::InFlight && self.transmissions == 1
    }

    /// Returns 1 if the segment is in the network and was sent more than once, otherwise 0.
    fn resent(&self) -> u64 {
        u64::from(self.transmissions > 1 && self.is_in_network())
    }
}

impl Scoreboard {
    /// Frees the memory of queues that are empty.
    pub fn free_empty(&mut self) {
        if self.records.is_empty() {
            self.records = VecDeque::new();
        }
        if self.lost_queue.is_empty() {
            self.lost_queue = BinaryHeap::new();
        }
    }

    /// Returns the number of octets estimated to be in the network (`pipe` in RFC 6675).
    pub fn inflight(&self) -> u64 {
        self.inflight.saturating_sub(self.presumed)
    }

    /// Sets the number of octets presumed delivered because of duplicate ACKs without SACK.
    pub fn presume_delivered(&mut self, octets: u64) {
        self.presumed = octets;
    }

    /// Returns the number of octets marked lost and not yet retransmitted.
    pub fn lost_pending(&self) -> u64 {
        self.lost_pending
    }

    /// Returns the number of octets marked lost since the start of the connection.
    pub fn lost_total(&self) -> u64 {
        self.lost_total
    }

    /// Returns the number of records that the peer has SACKed.
    pub fn sacked_segments(&self) -> u64 {
        self.sacked_segments
    }

    /// Returns the number of outstanding records in any state.
    pub fn outstanding(&self) -> usize {
        self.records.len()
    }

    /// Returns whether no segment is outstanding.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns the number that the next new record will get.
    pub fn end(&self) -> RecordNo {
        self.base + self.records.len() as u64
    }

    /// Returns the number of the oldest outstanding record.
    pub fn base(&self) -> RecordNo {
        self.base
    }

    /// Returns record `number`, or `None` if its segment is already acknowledged or not yet sent.
    pub fn get(&self, number: RecordNo) -> Option<&SentRecord> {
        self.records.get(usize::try_from(number.checked_sub(self.base)?).ok()?)
    }

    fn get_mut(&mut self, number: RecordNo) -> Option<&mut SentRecord> {
        self.records.get_mut(usize::try_from(number.checked_sub(self.base)?).ok()?)
    }

    /// Returns the newest outstanding record.
    pub fn newest(&self) -> Option<&SentRecord> {
        self.records.back()
    }

    /// Returns the oldest outstanding record.
    pub fn oldest(&self) -> Option<&SentRecord> {
        self.records.front()
    }

    /// Adds the record of a segment sent for the first time.
    pub fn push_new(&mut self, offset: u64, len: u32, fin: bool, sent_at: Instant, snapshot: RateSnapshot) {
        debug_assert!(self.records.back().is_none_or(|last| last.offset + u64::from(last.len) == offset));
        self.inflight += u64::from(len);
        self.records.push_back(SentRecord {
            offset,
            len,
            transmissions: 1,
            state: RecordState::InFlight,
            was_copy: false,
            fin,
            psh: false,
            sent_at,
            snapshot,
        });
    }

    /// Sets PSH in the newest record.
    pub fn set_push(&mut self) {
        if let Some(newest) = self.records.back_mut() {
            newest.psh = true;
        }
    }

    /// Returns the number of the lowest record that is marked lost and not yet retransmitted.
    #[inline]
    pub fn next_lost(&mut self) -> Option<RecordNo> {
        if self.lost_queue.is_empty() { None } else { self.first_still_lost() }
    }

    #[inline(never)]
    fn first_still_lost(&mut self) -> Option<RecordNo> {
        while let Some(&Reverse(number)) = self.lost_queue.peek() {
            if self.get(number).is_some_and(|record| record.state == RecordState::Lost) {
                return Some(number);
            }
            // In the meantime, the segment has been delivered, or retransmitted after a timeout.
            self.visited += 1;
            self.lost_queue.pop();
        }
        None
    }

    /// Records that record `number` was retransmitted at `sent_at`.
    pub fn on_resent(&mut self, number: RecordNo, sent_at: Instant, snapshot: RateSnapshot, is_copy: bool) {
        let Some(record) = self.get_mut(number) else { return };
        let before = record.resent();
        record.transmissions = record.transmissions.saturating_add(1);
        record.sent_at = sent_at;
        record.snapshot = snapshot;
        record.was_copy = is_copy;
        let (was_lost, len) = (record.state == RecordState::Lost, u64::from(record.len));
        if was_lost {
            record.state = RecordState::Resent;
        }
        let more = record.resent() - before;
        self.resent_in_network += more;
        if was_lost {
            self.lost_pending -= len;
            self.inflight += len;
        }
    }

    /// Marks record `number` lost. Returns false if the record was not in the network. Only the modules in
    /// `recovery/` can call this method.
    pub(in crate::recovery) fn mark_lost(&mut self, number: RecordNo) -> bool {
        let Some(record) = self.get_mut(number) else { return false };
        if !record.is_in_network() {
            return false;
        }
        let (resent, len) = (record.resent(), u64::from(record.len));
        record.state = RecordState::Lost;
        self.resent_in_network -= resent;
        self.inflight -= len;
        self.lost_pending += len;
        self.lost_total += len;
        self.lost_queue.push(Reverse(number));
        true
    }

    /// Marks lost every record in the network with more than `len` bytes of payload, because the path cannot
    /// carry it. Scans all records.
    #[cold]
    pub fn mark_larger_than(&mut self, len: u64) {
        for number in self.numbers() {
            if self.get(number).is_some_and(|record| record.payload() > len) {
                self.mark_lost(number);
            }
        }
    }

    /// Removes the loss marks of all records that still wait for retransmission, after a spurious timeout or
    /// recovery.
    pub fn unmark_all_lost(&mut self) {
        while let Some(number) = self.next_lost() {
            self.lost_queue.pop();
            if let Some(record) = self.get_mut(number) {
                let len = u64::from(record.len);
                // The record's last transmission is in flight again, whether it was the first transmission or
                // a retransmission.
                record.state =
                    if record.transmissions > 1 { RecordState::Resent } else { RecordState::InFlight };
                let resent = record.resent();
                self.resent_in_network += resent;
                self.lost_pending -= len;
                self.inflight += len;
                self.lost_total -= len;
            }
        }
    }

    /// Returns whether the peer has reneged, that is, whether the oldest outstanding record is SACKed. A peer
    /// that still held the data of this record would have acknowledged it cumulatively.
    pub fn is_reneged(&self) -> bool {
        self.oldest().is_some_and(|record| record.state == RecordState::Sacked)
    }

    /// Discards all SACK information. SACKed records are in flight again (RFC 2018 section 8).
    pub fn forget_sacks(&mut self) {
        let Self { records, inflight, resent_in_network, .. } = self;
        for record in records.iter_mut().filter(|record| record.state == RecordState::Sacked) {
            record.state = if record.transmissions > 1 { RecordState::Resent } else { RecordState::InFlight };
            *inflight += u64::from(record.len);
            *resent_in_network += record.resent();
        }
        self.visited += self.records.len() as u64;
        self.sacked_segments = 0;
        self.sacked = RangeSet::default();
    }

    /// Handles a cumulative acknowledgement of all data below `offset`. Calls `newly` for the newly delivered
    /// records, in offset order. If an undelivered record is acknowledged only in part, returns the number of
    /// octets in that part.
    pub fn acknowledge(&mut self, offset: u64, mut newly: impl FnMut(Run<'_>)) -> u64 {
        let outstanding = self.records.len();
        while let Some(first) = self.records.front().filter(|record| record.end() <= offset) {
            let (mut segments, mut octets) = (1, u64::from(first.len));
            if first.is_fresh() {
                while let Some(next) =
                    self.records.get(segments).filter(|next| next.is_fresh() && next.end() <= offset)
                {
                    segments += 1;
                    octets += u64::from(next.len);
                }
                self.inflight -= octets;
            } else {
                match first.state {
                    RecordState::Sacked => self.sacked_segments -= 1,
                    RecordState::Lost => self.lost_pending -= octets,
                    RecordState::InFlight | RecordState::Resent => self.inflight -= octets,
                }
                self.resent_in_network -= first.resent();
            }
            if first.state != RecordState::Sacked
                && let Some(last) = self.records.get(segments - 1)
            {
                newly(Run { first, last, segments: segments as u64, octets });
            }
            for _ in 0..segments {
                self.records.pop_front();
            }
        }
        let gone = (outstanding - self.records.len()) as u64;
        self.visited += gone;
        self.base += gone;
        let part = self.trim_front(offset);
        if !self.sacked.is_empty() {
            self.sacked.remove_below(offset);
        }
        part
    }

    /// Returns whether every outstanding record is in the network and was sent once, and no record is SACKed.
    #[inline]
    pub fn is_fresh(&self) -> bool {
        self.sacked.is_empty() && self.lost_pending == 0 && self.resent_in_network == 0
    }

    /// Acknowledges all records below `offset` as one run. [`Scoreboard::is_fresh`] must be true. If `offset`
    /// lies within a record, returns false and changes nothing.
    #[inline]
    pub fn acknowledge_fresh(&mut self, offset: u64, newly: impl FnOnce(Run<'_>)) -> bool {
        let mut segments = 1;
        let last = loop {
            match self.records.get(segments - 1) {
                Some(record) if record.end() < offset => segments += 1,
                Some(record) if record.end() == offset => break record,
                _ => return false,
            }
        };
        let Some(first) = self.records.front() else { return false };
        let octets = offset - first.offset;
        newly(Run { first, last, segments: segments as u64, octets });
        for _ in 0..segments {
            self.records.pop_front();
        }
        self.inflight -= octets;
        self.visited += segments as u64;
        self.base += segments as u64;
        true
    }

    /// Shortens the oldest record if the peer has acknowledged only part of it, for example after the peer
    /// has shrunk its window.
    fn trim_front(&mut self, offset: u64) -> u64 {
        let Some(record) = self.records.front_mut().filter(|record| record.offset < offset) else { return 0 };
        let part = offset - record.offset;
        record.offset = offset;
        // The acknowledged part is shorter than the record, because `acknowledge` has already removed the
        // records that are acknowledged as a whole.
        record.len -= part as u32;
        match record.state {
            RecordState::Sacked => return 0,
            RecordState::Lost => self.lost_pending -= part,
            RecordState::InFlight | RecordState::Resent => self.inflight -= part,
        }
        part
    }

    /// Handles one SACK block. Calls `newly` for the records that are newly SACKed, in offset order.
    pub fn sack(&mut self, start: u64, end: u64, mut newly: impl FnMut(Run<'_>)) {
        // A well-behaved peer reports at most as many ranges as there are segments. The limit bounds the
        // memory that a hostile peer can make the sender use.
        if self.sacked.len() > self.records.len() {
            return;
        }
        let Self { records, sacked, sacked_segments, inflight, lost_pending, .. } = self;
        let (resent_in_network, visited) = (&mut self.resent_in_network, &mut self.visited);
        sacked.insert(start, end, |gap_start, gap_end| {
            let mut index = index_of(records, gap_start);
            while let Some(record) = records.get_mut(index).filter(|record| record.end() <= gap_end) {
                let (first, mut octets) = (index, u64::from(record.len));
                index += 1;
                if record.is_fresh() {
                    record.state = RecordState::Sacked;
                    while let Some(next) =
                        records.get_mut(index).filter(|next| next.is_fresh() && next.end() <= gap_end)
                    {
                        octets += u64::from(next.len);
                        next.state = RecordState::Sacked;
                        index += 1;
                    }
                    *inflight -= octets;
                } else {
                    *resent_in_network -= record.resent();
                    match std::mem::replace(&mut record.state, RecordState::Sacked) {
                        RecordState::Sacked => {
                            *visited += 1;
                            continue;
                        }
                        RecordState::Lost => *lost_pending -= octets,
                        RecordState::InFlight | RecordState::Resent => *inflight -= octets,
                    }
                }
                let segments = (index - first) as u64;
                *visited += segments;
                *sacked_segments += segments;
                if let (Some(first), Some(last)) = (records.get(first), records.get(index - 1)) {
                    newly(Run { first, last, segments, octets });
                }
            }
        });
    }

    /// Recounts the records and checks the counters, for tests.
    ///
    /// # Panics
    ///
    /// Panics if a counter is wrong.
    #[doc(hidden)]
    pub fn check(&self) {
        let sum = |wanted: fn(RecordState) -> bool| -> u64 {
            self.records
                .iter()
                .filter(|record| wanted(record.state))
                .map(|record| u64::from(record.len))
                .sum()
        };
        let in_network = sum(|state| matches!(state, RecordState::InFlight | RecordState::Resent));
        assert_eq!(self.inflight, in_network, "inflight");
        assert_eq!(self.lost_pending, sum(|state| state == RecordState::Lost), "lost");
        let sacked = self.records.iter().filter(|record| record.state == RecordState::Sacked).count();
        assert_eq!(self.sacked_segments, sacked as u64, "sacked");
        assert!(self.sacked.len() <= self.records.len() + 1, "more ranges than records");
        let resent: u64 = self.records.iter().map(SentRecord::resent).sum();
        assert_eq!(self.resent_in_network, resent, "resent");
        let contiguous = |(a, b): (&SentRecord, &SentRecord)| a.offset + u64::from(a.len) == b.offset;
        assert!(self.records.iter().zip(self.records.iter().skip(1)).all(contiguous), "a gap");
    }

    /// Returns the number of records in the network that were retransmitted.
    pub fn resent_in_network(&self) -> u64 {
        self.resent_in_network
    }

    /// Returns the number of record accesses since the start of the connection. Tests check that the number
    /// of accesses per ACK does not grow with the window.
    pub fn visited(&self) -> u64 {
        self.visited
    }

    /// Returns record `number` and counts the access.
    pub(super) fn visit(&mut self, number: RecordNo) -> Option<&SentRecord> {
        self.visited += 1;
        self.get(number)
    }

    /// Returns the end offset of the highest range that the peer has SACKed.
    pub fn highest_sacked(&self) -> Option<u64> {
        self.sacked.last().map(|(_, end)| end)
    }

    /// Returns the range of the numbers of all outstanding records.
    pub fn numbers(&self) -> std::ops::Range<RecordNo> {
        self.base..self.end()
    }
}

/// Returns the index of the first record that starts at or after `offset`.
///
/// Nearly all segments have the same length, so the index follows from the distance in octets. If the lengths
/// vary, a binary search finds the record.
fn index_of(records: &VecDeque<SentRecord>, offset: u64) -> usize {
    let Some(first) = records.front() else { return 0 };
    let distance = offset.saturating_sub(first.offset);
    let typical = u64::from(first.len.max(1));
    let guess = usize::try_from(distance.div_ceil(typical)).unwrap_or(usize::MAX).min(records.len());
    let fits = |i: usize| {
        records.get(i).is_none_or(|record| record.offset >= offset)
            && (i == 0 || records[i - 1].offset < offset)
    };
    if fits(guess) { guess } else { records.partition_point(|record| record.offset < offset) }
}

/// Returns a scoreboard with `n` segments of 100 octets in flight, for tests.
#[cfg(test)]
pub(super) fn board(n: u64) -> Scoreboard {
    let mut board = Scoreboard::default();
    for i in 0..n {
        board.push_new(i * 100, 100, false, Instant::from_nanos(i), RateSnapshot::default());
    }
    board
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivered(board: &mut Scoreboard, blocks: &[(u64, u64)]) -> Vec<RecordNo> {
        let mut numbers = Vec::new();
        for &(start, end) in blocks {
            let offsets: Vec<u64> = board.records.iter().map(|record| record.offset).collect();
            let base = board.base();
            board.sack(start, end, |run| {
                let first = base + offsets.partition_point(|&offset| offset < run.first.offset) as u64;
                numbers.extend(first..first + run.segments);
            });
        }
        numbers
    }

    /// Records that were sent once are reported in runs, and all other records one by one. Records already
    /// delivered are not reported again.
    #[test]
    fn runs_are_of_what_was_sent_once() {
        let mut board = board(10);
        board.sack(300, 400, |_| {});
        assert!(board.mark_lost(5) && board.mark_lost(6));
        board.on_resent(6, Instant::from_nanos(99), RateSnapshot::default(), false);
        let told = |run: Run<'_>| {
            assert_eq!(run.octets, run.last.end() - run.first.offset);
            (run.first.offset, run.segments)
        };
        let mut again = board.clone();
        let (mut by_ack, mut by_sack) = (Vec::new(), Vec::new());
        board.acknowledge(1_000, |run| by_ack.push(told(run)));
        again.sack(0, 1_000, |run| by_sack.push(told(run)));
        assert_eq!(by_ack, [(0, 3), (400, 1), (500, 1), (600, 1), (700, 3)]);
        assert_eq!(by_sack, by_ack);
        board.check();
        again.check();
        assert_eq!((board.inflight(), board.resent_in_network(), again.inflight()), (0, 0, 0));
    }

    /// A SACK block that repeats known ranges visits no record, so that only new information costs time.
    #[test]
    fn a_repeated_block_visits_nothing() {
        let mut board = board(10);
        assert_eq!(delivered(&mut board, &[(300, 500)]), [3, 4]);
        assert_eq!(delivered(&mut board, &[(300, 600), (300, 500)]), [5]);
        assert_eq!(delivered(&mut board, &[(800, 900), (200, 900)]), [8, 2, 6, 7]);
        assert_eq!(board.sacked_segments(), 7);
        assert_eq!(board.inflight(), 300);
        assert_eq!(board.highest_sacked(), Some(900));
    }

    /// `pipe` is the data sent, minus the delivered data, minus the lost data, plus the retransmitted data
    /// (RFC 6675; SK-3).
    #[test]
    fn counters_follow_every_transition() {
        let mut board = board(10);
        assert!(board.mark_lost(0) && board.mark_lost(2) && !board.mark_lost(2));
        assert_eq!((board.inflight(), board.lost_pending()), (800, 200));
        assert_eq!(board.next_lost(), Some(0));
        board.on_resent(0, Instant::from_nanos(50), RateSnapshot::default(), false);
        assert_eq!((board.inflight(), board.lost_pending()), (900, 100));
        assert_eq!(board.next_lost(), Some(2));
        assert_eq!(delivered(&mut board, &[(200, 300)]), [2]);
        assert_eq!((board.inflight(), board.lost_pending(), board.next_lost()), (900, 0, None));
        let mut acked = Vec::new();
        board.acknowledge(450, |run| acked.extend(run.first.offset / 100..run.last.end() / 100));
        assert_eq!(acked, [0, 1, 3]);
        assert_eq!((board.inflight(), board.base(), board.sacked_segments()), (550, 4, 0));
        assert_eq!(board.lost_total(), 200);
    }

    /// When the loss marks are removed, the counters return to the values that they had before the records
    /// were marked lost (UN-4).
    #[test]
    fn unmarking_restores_the_pipe() {
        let mut board = board(5);
        for number in 0..5 {
            board.mark_lost(number);
        }
        board.on_resent(0, Instant::from_nanos(50), RateSnapshot::default(), false);
        board.unmark_all_lost();
        assert_eq!((board.inflight(), board.lost_pending(), board.lost_total()), (500, 0, 100));
    }

    /// A FIN adds an octet to the record of a full-sized segment, but not to the packet. A path whose MTU
    /// fits the payload carries the segment.
    #[test]
    fn a_fin_makes_no_segment_too_large() {
        let mut board = board(1);
        board.push_new(100, 101, true, Instant::ZERO, RateSnapshot::default());
        board.mark_larger_than(100);
        assert_eq!(board.lost_pending(), 0);
        board.mark_larger_than(99);
        assert_eq!(board.lost_pending(), 201);
        board.check();
    }

    #[test]
    fn records_of_uneven_length_are_found() {
        let mut board = Scoreboard::default();
        let mut offset = 0;
        for len in [100, 100, 40, 100, 7, 100] {
            board.push_new(offset, len, false, Instant::ZERO, RateSnapshot::default());
            offset += u64::from(len);
        }
        assert_eq!(delivered(&mut board, &[(240, 347)]), [3, 4]);
    }

    /// The amount of data sent bounds the memory for a peer's SACK blocks. The scoreboard stores at most as
    /// many one-octet blocks as there are records, and queues a record that is lost repeatedly at most twice.
    #[test]
    fn memory_is_bounded_by_what_was_sent() {
        let mut board = board(50);
        for octet in (1..5_000).step_by(2) {
            board.sack(octet, octet + 1, |_| {});
            board.check();
        }
        assert_eq!(board.sacked.len(), 51);
        board.acknowledge(4_900, |_| {});
        assert_eq!((board.records.len(), board.sacked.len()), (1, 0));

        let mut board = self::board(50);
        for round in 0..100 {
            for number in 0..50 {
                board.mark_lost(number);
            }
            while let Some(number) = board.next_lost() {
                board.on_resent(number, Instant::from_nanos(round), RateSnapshot::default(), false);
                assert!(board.lost_queue.len() <= 100);
            }
        }
        assert!(board.lost_queue.is_empty());
    }
}
