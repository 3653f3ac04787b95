//! Retransmission: selects and sends the next lost range, and sends copies of segments that are not marked lost. Only
//! `recovery/` marks data lost.
//!
//! A copy leaves the record of the segment unchanged. RACK, the undo of reductions and the measurement of reordering
//! therefore see only the transmission before the copy. If a copy causes the ACK, the measured RTT is too long by the
//! delay of the copy, at most [`LATEST_TAIL`].

use std::collections::VecDeque;

use fullpipe_units::{Duration, Ecn, Instant};

use super::{Departure, Transmit};
use crate::cc::{Repair, SentKind};
use crate::estimate::DeliveryRate;
use crate::recovery::LossRecovery;
use crate::recovery::scoreboard::{RecordNo, RecordState, Scoreboard, SentRecord};
use crate::wire::Flags;

/// Minimum time between a transmission and its copy. Within this time, a burst of losses in a full queue or on a radio
/// link usually ends.
const COPY_DELAY: Duration = Duration::from_millis(5);
/// Maximum time between a transmission at the end of the data and its copy.
const LATEST_TAIL: Duration = Duration::from_millis(20);
/// Maximum amount of copies, in percent of the octets sent.
const COPY_PERCENT: u64 = 3;
/// Number of segments that may be copied in addition to that share, so that even a short response has copies of its
/// last segments.
const FIRST_COPIES: u64 = 2;
/// Maximum unused budget of copies, in segments. The limit prevents a burst of copies late in a long transfer.
const SAVED_COPIES: u64 = 64;
/// Largest number of retransmissions that wait for their copy, and of copies whose D-SACK is still expected.
const REMEMBERED: usize = 256;

/// State of copies: which are due, how many may be sent, and which of them a D-SACK may report.
#[derive(Clone, Debug, Default)]
pub(crate) struct Copies {
    /// Retransmissions that may get a copy, in the order of their departure.
    waiting: VecDeque<(RecordNo, Instant)>,
    /// Copies that no D-SACK has reported yet: first stream offset, end offset, and departure time.
    sent: VecDeque<(u64, u64, Instant)>,
    /// Stream offset below which the segments at the end of the data have already been copied.
    tail_done: u64,
    /// Number of octets sent when the budget was last increased; `budget` is the number of octets that may be copied.
    filled_at: u64,
    budget: u64,
    /// Number of octets sent as copies since the start of the connection.
    octets: u64,
    /// Time at which the next copy is due; `None` if no copy waits for a time.
    pub(crate) due: Option<Instant>,
}

/// Limits on the next copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyLimits {
    pub(crate) repair: Repair,
    /// Number of octets by which the data in flight may grow within the congestion window.
    pub(crate) cwnd_left: u64,
    /// Stream offset at which the peer's window ends.
    pub(crate) window_end: u64,
    /// Whether everything that the application has written has been sent.
    pub(crate) at_end: bool,
    /// Number of octets sent since the start of the connection.
    pub(crate) sent: u64,
    pub(crate) srtt: Duration,
    pub(crate) mss: u64,
}

impl Copies {
    /// Records the retransmission of record `number` at `now`.
    fn on_retransmission(&mut self, number: RecordNo, now: Instant) {
        if self.waiting.len() == REMEMBERED {
            self.waiting.pop_front();
        }
        self.waiting.push_back((number, now));
    }

    /// Returns the record whose copy may be sent now. If a copy is allowed only later, sets [`Self::due`].
    pub(crate) fn next(&mut self, now: Instant, board: &Scoreboard, limits: CopyLimits) -> Option<RecordNo> {
        let CopyLimits { repair, cwnd_left, window_end, sent, srtt, mss, .. } = limits;
        self.due = None;
        let earned = sent.saturating_sub(self.filled_at) * COPY_PERCENT / 100;
        if earned >= mss {
            (self.filled_at, self.budget) = (sent, (self.budget + earned).min(SAVED_COPIES * mss));
        }
        if self.octets == 0 {
            self.budget = self.budget.max(FIRST_COPIES * mss);
        }
        // The data in flight excludes copies, so add the copies of the last round trip.
        let in_network = self.sent.iter().rev().take_while(|(_, _, at)| *at + srtt > now);
        let in_network: u64 = in_network.map(|(start, end, _)| end - start).sum();
        let (number, from) =
            self.waiting(now, board, repair, srtt).or_else(|| self.tail(now, board, limits))?;
        let record = board.get(number)?;
        let len = u64::from(record.len);
        if len > self.budget || in_network + len > cwnd_left || record.end() > window_end {
            return None;
        }
        if from > now {
            self.due = Some(from);
            return None;
        }
        Some(number)
    }

    /// Returns the oldest retransmission that is still in the network and has no copy, and the time from which its copy
    /// may be sent. A retransmission gets no copy after half a round trip, because such a copy would save less than
    /// half a round trip.
    fn waiting(
        &mut self,
        now: Instant,
        board: &Scoreboard,
        repair: Repair,
        srtt: Duration,
    ) -> Option<(RecordNo, Instant)> {
        while let Some(&(number, sent_at)) = self.waiting.front() {
            let current =
                |record: &SentRecord| record.state == RecordState::Resent && record.sent_at == sent_at;
            if repair.second_copy && now < sent_at + srtt / 2 && board.get(number).is_some_and(current) {
                return Some((number, sent_at + COPY_DELAY));
            }
            self.waiting.pop_front();
        }
        None
    }

    /// Returns the next segment at the end of the data that has no copy, and the time from which its copy may be
    /// sent.
    fn tail(&self, now: Instant, board: &Scoreboard, limits: CopyLimits) -> Option<(RecordNo, Instant)> {
        let copies = u64::from(limits.repair.tail_copies);
        if !limits.at_end || copies == 0 {
            return None;
        }
        let first = board.end().saturating_sub(copies).max(board.base());
        let wanted = |record: &SentRecord| {
            record.is_fresh() && record.offset >= self.tail_done && now < record.sent_at + LATEST_TAIL
        };
        (first..board.end()).find_map(|number| {
            let record = board.get(number).filter(|record| wanted(record))?;
            Some((number, record.sent_at + COPY_DELAY))
        })
    }

    fn on_copy(&mut self, now: Instant, number: RecordNo, record: &SentRecord) {
        if self.waiting.front().is_some_and(|(waiting, _)| *waiting == number) {
            self.waiting.pop_front();
        } else {
            self.tail_done = record.end();
        }
        if self.sent.len() == REMEMBERED {
            self.sent.pop_front();
        }
        self.sent.push_back((record.offset, record.end(), now));
        self.octets += u64::from(record.len);
        self.budget -= u64::from(record.len).min(self.budget);
    }

    /// Returns whether a copy explains the duplicate `from..to` that the peer has reported. Each copy explains one
    /// report.
    fn explains(&mut self, from: u64, to: u64) -> bool {
        let copied = self.sent.iter().position(|&(start, end, _)| start < to && from < end);
        copied.is_some_and(|index| self.sent.remove(index).is_some())
    }
}

/// State of the retransmission logic, apart from the records marked lost.
#[derive(Clone, Debug, Default)]
pub(crate) struct Retransmission {
    /// State of copies; `None` until the controller first allows copies, which it never does on most connections.
    copies: Option<Box<Copies>>,
    /// Whether the next retransmission ignores the windows because the retransmission timer has expired.
    forced: bool,
}

/// Retransmission that is ready to be sent, and the range that it covers.
pub(crate) struct Retransmitted {
    pub(crate) transmit: Transmit,
    /// Stream offset of the first retransmitted octet.
    pub(crate) offset: u64,
    /// Length of the retransmission in octets of sequence space.
    pub(crate) len: u64,
    /// Number of segments, which is more than one if segments have become smaller since the first transmission.
    pub(crate) segments: u64,
}

impl Retransmission {
    /// Permits the next retransmission to ignore the windows.
    pub(crate) fn force(&mut self) {
        self.forced = true;
    }

    /// Withdraws the permission of [`Self::force`] after a spurious timeout.
    pub(crate) fn unforce(&mut self) {
        self.forced = false;
    }

    /// Returns the next lost record, and whether its retransmission may ignore the windows. The permission applies to
    /// one call.
    #[inline]
    pub(crate) fn next(&mut self, board: &mut Scoreboard) -> (Option<RecordNo>, bool) {
        (board.next_lost(), std::mem::take(&mut self.forced))
    }

    /// Records the retransmission of record `number` at `now`; a copy of it may follow.
    #[cold]
    pub(crate) fn await_copy(&mut self, number: RecordNo, now: Instant) {
        self.copies().on_retransmission(number, now);
    }

    /// Returns the state of copies, which is created at the first call.
    #[cold]
    pub(crate) fn copies(&mut self) -> &mut Copies {
        self.copies.get_or_insert_default()
    }

    /// Returns the number of octets sent as copies since the start of the connection.
    pub(crate) fn copied(&self) -> u64 {
        self.copies.as_ref().map_or(0, |copies| copies.octets)
    }

    /// Returns the time at which the next copy is due; `None` if no copy waits for a time.
    pub(crate) fn copy_due(&self) -> Option<Instant> {
        self.copies.as_ref().and_then(|copies| copies.due)
    }

    /// Returns whether a copy explains the duplicate `from..to` that the peer has reported
    /// ([`Copies::explains`]).
    pub(crate) fn copy_explains(&mut self, from: u64, to: u64) -> bool {
        self.copies.as_mut().is_some_and(|copies| copies.explains(from, to))
    }

    /// Cancels the next copy when the connection ends.
    pub(crate) fn end(&mut self) {
        if let Some(copies) = &mut self.copies {
            copies.due = None;
        }
    }

    /// Returns the newest record if it is in the network. A tail loss probe retransmits this record.
    pub(crate) fn newest_in_network(board: &Scoreboard) -> Option<RecordNo> {
        let number = board.end().checked_sub(1)?;
        let record = board.get(number)?;
        matches!(record.state, RecordState::InFlight | RecordState::Resent).then_some(number)
    }
}

/// Retransmits record `number`. Returns `None` if the record is already acknowledged.
pub(crate) fn retransmit(
    departure: Departure,
    recovery: &mut LossRecovery,
    rate: &mut DeliveryRate,
    number: RecordNo,
    kind: SentKind,
) -> Option<Retransmitted> {
    let board = &recovery.board;
    let record = board.get(number)?;
    let (offset, len, payload) = (record.offset, u64::from(record.len), record.payload());
    let flags = flags_of(record);
    let snapshot = rate.on_send(departure.at, board.inflight(), len, board.lost_total());
    recovery.on_retransmission(departure.at, number, snapshot, kind);
    // A retransmission is not ECN-capable (RFC 3168 section 6.1.5).
    let transmit = Transmit::of_data(departure, departure.header(offset, flags, Ecn::NotEct), payload);
    let segments = payload.div_ceil(departure.mss).max(1);
    Some(Retransmitted { transmit, offset, len, segments })
}

/// Sends a copy of record `number` and leaves the record unchanged. Returns `None` if the record is already
/// acknowledged.
#[cold]
pub(crate) fn copy(
    departure: Departure,
    board: &Scoreboard,
    copies: &mut Copies,
    number: RecordNo,
) -> Option<Retransmitted> {
    let record = board.get(number)?;
    copies.on_copy(departure.at, number, record);
    let (offset, len, payload) = (record.offset, u64::from(record.len), record.payload());
    let transmit =
        Transmit::of_data(departure, departure.header(offset, flags_of(record), Ecn::NotEct), payload);
    Some(Retransmitted { transmit, offset, len, segments: payload.div_ceil(departure.mss).max(1) })
}

/// Returns the flags of a retransmission or copy of `record`.
fn flags_of(record: &SentRecord) -> Flags {
    let flags = if record.psh { Flags::ACK.with(Flags::PSH) } else { Flags::ACK };
    if record.fin { flags.with(Flags::FIN) } else { flags }
}
