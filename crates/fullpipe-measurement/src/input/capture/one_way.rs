//! One direction of a connection: its data segments and their ACKs.
//!
//! ```text
//!   data segment ── above all data seen ──────────────────────► new (a gap before it is recorded)
//!         │
//!         └──────── below ── in a gap ── younger than an RTT ──► out of order
//!                     │         └─────── older ───────────────► retransmission, the original lost before the tap
//!                     ├───── one byte before snd_una ──────────► window probe or keep-alive
//!                     └───── seen before ─────────────────────► retransmission
//! ```
//!
//! Each segment is counted once and has exactly one kind. A retransmission arrives at least one round trip
//! after the data that revealed the gap, because the receiver has to report the gap first. A segment that
//! fills a gap sooner was reordered.

use std::collections::VecDeque;

use fullpipe_tcp::ranges::RangeSet;
use fullpipe_tcp::wire::{SackBlocks, SeqNum, reported_duplicate};
use fullpipe_units::{Bytes, Duration, Instant};

use crate::measurement::packets::Counts;

/// Minimum age of a gap, as a fraction of the RTT, at which the segment that fills the gap counts as
/// retransmitted.
const A_TRIP: (u64, u64) = (4, 5);
/// Minimum age of a gap at which the segment that fills the gap counts as retransmitted while the RTT is
/// unknown. tshark uses the same value.
const UNKNOWN_TRIP: Duration = Duration::from_millis(3);

/// Payload length, in bytes, of a packet that fills an Ethernet MTU and has no TCP options.
pub(super) const ETHERNET_SEGMENT: u64 = 1_460;

/// Missing range of bytes below the highest offset seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    from: u64,
    to: u64,
    since: Instant,
    /// Timestamp value of the segment that revealed the gap.
    stamp: Option<u32>,
}

impl Gap {
    /// Returns whether the segment that fills the gap at age `after` was reordered, not retransmitted. Its
    /// timestamp value `stamp` decides (RFC 7323): a retransmission has a later one than the segment that
    /// revealed the gap. If the timestamps are equal or missing, the age decides: a retransmission takes at
    /// least most of a round trip, `trip`.
    fn was_overtaken(&self, stamp: Option<u32>, after: Duration, trip: Duration) -> bool {
        match (stamp, self.stamp) {
            (Some(own), Some(instead)) if own != instead => own.wrapping_sub(instead).cast_signed() < 0,
            _ => after < trip,
        }
    }
}

/// End offset of a segment, and the time at which the segment passed.
pub(super) type TimedOffset = (u64, Instant);

/// One direction of a connection. Positions are 64-bit offsets that never wrap, with the first byte seen at
/// 2^32: data sent before the capture started has lower offsets.
#[derive(Clone, Debug, Default)]
pub(super) struct OneWay {
    pub(super) counts: Counts,
    /// Offset and sequence number after the highest byte sent; `None` before any data.
    top: Option<(u64, SeqNum)>,
    una: u64,
    /// Whether the SYN was captured. If so, every gap after it is data that was sent but not captured.
    from_the_start: bool,
    /// Whether any of the data was acknowledged.
    acknowledged: bool,
    gaps: Vec<Gap>,
    /// End offsets of new segments, with the times at which they passed.
    timed: VecDeque<TimedOffset>,
    /// Highest end offset of a retransmitted segment: for ACKs up to here, the acknowledged transmission is
    /// ambiguous.
    ambiguous: u64,
    /// Shortest time between a segment and its ACK.
    pub(super) least_loop: Option<Duration>,
    window: Option<u64>,
    /// Offset of the FIN, which takes a sequence number but is not data.
    fin: Option<u64>,
    /// Data above `una` that SACK blocks reported as received.
    sacked: RangeSet,
    full: bool,
    /// Largest payload of any packet; `largest_segment` is the largest payload of a packet that fits into an
    /// Ethernet MTU.
    largest: u64,
    largest_segment: u64,
    /// Number of gaps that were dropped because too many were open.
    pub(super) forgotten: u64,
    /// Number of SACK blocks that were ignored because too many ranges were reported as received.
    pub(super) forgotten_blocks: u64,
}

/// Maximum number of entries of each kind that are recorded per direction: gaps, unacknowledged segments, and
/// ACKs on their way. All entries belong to one round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory(pub(super) usize);

/// Data segment that passes the tap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Data {
    pub(super) at: Instant,
    pub(super) seq: SeqNum,
    pub(super) len: u64,
    /// Payload length of a full-sized segment, in bytes.
    pub(super) mss: u64,
    /// Value of the timestamp option.
    pub(super) stamp: Option<u32>,
    /// Smallest RTT.
    pub(super) rtt: Option<Duration>,
}

/// ACK that passes the tap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ack<'a> {
    pub(super) at: Instant,
    pub(super) ack: SeqNum,
    pub(super) sack: &'a SackBlocks,
    /// Advertised window.
    pub(super) window: u64,
    /// Whether the packet carries no data, SYN or FIN.
    pub(super) bare: bool,
}

const ORIGIN: u64 = 1 << 32;

/// Returns the number of segments of `mss` bytes that an ACK reports as duplicates (D-SACK).
pub(super) fn duplicate_segments(sack: &SackBlocks, ack: SeqNum, mss: u64) -> u64 {
    let mut blocks = [(0, 0); 2];
    for (block, (from, to)) in blocks.iter_mut().zip(sack.iter()) {
        *block = (i64::from(from.distance_from(ack)), i64::from(to.distance_from(ack)));
    }
    let duplicate = reported_duplicate(&blocks[..sack.len().min(blocks.len())], 0);
    let bytes = duplicate.map_or(0, |(from, to)| u64::try_from(to - from).unwrap_or(0));
    bytes.div_ceil(mss.max(1))
}

/// Kind of a data segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SegmentKind {
    New,
    Again,
    Overtaken,
    Probe,
}

/// Result of processing an ACK.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AckEffect {
    /// Bytes acknowledged for the first time.
    pub(super) bytes: u64,
    /// Time since the newest of these bytes passed the tap.
    pub(super) rtt: Option<Duration>,
    /// Number of these bytes that are missing from the capture.
    pub(super) missed: u64,
}

impl OneWay {
    /// Processes a SYN, which consumes a sequence number.
    pub(super) fn on_syn(&mut self, seq: SeqNum) {
        self.begin(seq.plus(1));
        self.from_the_start = true;
    }

    /// Processes a FIN, which also consumes a sequence number.
    pub(super) fn on_fin(&mut self, seq: SeqNum) {
        self.fin = self.offset(seq);
    }

    /// Returns the offset and the sequence number after the highest byte sent, starting at `seq` if there are
    /// none yet.
    fn begin(&mut self, seq: SeqNum) -> (u64, SeqNum) {
        *self.top.get_or_insert_with(|| {
            self.una = ORIGIN;
            (ORIGIN, seq)
        })
    }

    fn offset(&mut self, seq: SeqNum) -> Option<u64> {
        let (top, number) = self.begin(seq);
        seq.offset_near(number, top)
    }

    /// Processes a data segment.
    pub(super) fn on_data(&mut self, data: Data, memory: Memory) -> Option<SegmentKind> {
        let Data { at: now, seq, len, mss, stamp, rtt } = data;
        let from = self.offset(seq)?;
        let (to, (top, number)) = (from + len, self.top?);
        let segments = len.div_ceil(mss.max(1)).max(1);
        // Data that was in flight when the capture started was sent before the capture, and is not a gap in
        // it.
        let begins = !self.from_the_start && self.counts.data_segments == 0;
        self.counts.data_segments += segments;
        self.counts.data_bytes += len;
        self.largest = self.largest.max(len);
        if len <= ETHERNET_SEGMENT {
            self.largest_segment = self.largest_segment.max(len);
        }
        if from >= top {
            if from > top && !begins {
                self.gaps.push(Gap { from: top, to: from, since: now, stamp });
                if self.gaps.len() > memory.0 {
                    self.gaps.remove(0);
                    self.forgotten += 1;
                }
            }
            self.rise(to, number, top);
            if self.timed.len() < memory.0 {
                self.timed.push_back((to, now));
            }
            return Some(SegmentKind::New);
        }
        if len <= 1 && to <= self.una {
            self.counts.probes += segments;
            return Some(SegmentKind::Probe);
        }
        let opened = self.fill(from, to.min(top));
        self.rise(to, number, top);
        let trip = rtt.map_or(UNKNOWN_TRIP, |rtt| rtt.mul_div(A_TRIP.0, A_TRIP.1));
        if opened.is_some_and(|gap| gap.was_overtaken(stamp, now.saturating_since(gap.since), trip)) {
            self.counts.out_of_order += segments;
            return Some(SegmentKind::Overtaken);
        }
        self.counts.retransmits += segments;
        if opened.is_none() && to <= self.una {
            self.counts.needless += segments;
        }
        self.ambiguous = self.ambiguous.max(to);
        Some(SegmentKind::Again)
    }

    fn rise(&mut self, to: u64, number: SeqNum, top: u64) {
        if to > top {
            self.top = Some((to, number.plus(to - top)));
        }
    }

    /// Removes a range from the gaps and returns the oldest gap that it overlaps.
    fn fill(&mut self, from: u64, to: u64) -> Option<Gap> {
        let first = self.gaps.partition_point(|gap| gap.to <= from);
        let behind = self.gaps.partition_point(|gap| gap.from < to);
        if first >= behind {
            return None;
        }
        let oldest = self.gaps[first..behind].iter().min_by_key(|gap| gap.since).copied();
        let (head, tail) = (self.gaps[first], self.gaps[behind - 1]);
        let rest = [Gap { to: from, ..head }, Gap { from: to, ..tail }];
        self.gaps.splice(first..behind, rest.into_iter().filter(|gap| gap.from < gap.to));
        oldest
    }

    /// Processes an ACK for data of this direction.
    pub(super) fn on_ack(&mut self, seen: &Ack<'_>, memory: Memory) -> AckEffect {
        let Ack { at: now, ack, sack, window, bare } = *seen;
        let before = self.window.replace(window);
        if window == 0 && before != Some(0) {
            self.counts.zero_windows += 1;
        }
        if !sack.is_empty() {
            self.take_blocks(sack, memory);
        }
        let Some(to) = self.offset(ack) else { return AckEffect::default() };
        let to = self.fin.map_or(to, |fin| to.min(fin));
        let Some((top, number)) = self.top else { return AckEffect::default() };
        if to <= self.una {
            if bare && to == self.una && before == Some(window) && top > self.una {
                self.counts.duplicate_acks += 1;
            }
            return AckEffect::default();
        }
        let bytes = to - self.una;
        self.una = to;
        self.acknowledged = true;
        let missed = self.counts.missed_bytes;
        if !self.sacked.is_empty() {
            self.sacked.remove_below(to);
        }
        self.full = false;
        // Acknowledged data in a gap has arrived at the receiver, but was not captured.
        let gone = self.gaps.partition_point(|gap| gap.to <= to);
        self.counts.missed_bytes += self.gaps.drain(..gone).map(|gap| gap.to - gap.from).sum::<u64>();
        if to > top {
            if self.from_the_start || self.counts.data_segments > 0 {
                self.counts.missed_bytes += to - top;
            }
            self.rise(to, number, top);
        }
        let mut newest = None;
        while let Some(&(end, at)) = self.timed.front().filter(|(end, _)| *end <= to) {
            newest = (end > self.ambiguous).then_some(at);
            self.timed.pop_front();
        }
        let rtt = newest.map(|at| now.saturating_since(at));
        if let Some(rtt) = rtt {
            self.least_loop = Some(self.least_loop.map_or(rtt, |least| least.min(rtt)));
        }
        AckEffect { bytes, rtt, missed: self.counts.missed_bytes - missed }
    }

    /// Returns whether the sender has filled the receive window; `edge` is the right window edge known to the
    /// sender, and `mss` is the payload length of a full-sized segment, in bytes.
    pub(super) fn look_at_window(&mut self, edge: Option<u64>, mss: u64) -> bool {
        let full = edge.is_some_and(|edge| self.top() + mss > edge);
        self.counts.window_full += u64::from(full && !self.full);
        self.full = full;
        full
    }

    fn take_blocks(&mut self, sack: &SackBlocks, memory: Memory) {
        let Some((top, number)) = self.top else { return };
        for (start, end) in sack.iter() {
            let offset = |seq: SeqNum| seq.offset_near(number, top);
            // A SACK block below the cumulative ACK reports a duplicate (DSACK, RFC 2883).
            if let (Some(start), Some(end)) = (offset(start), offset(end))
                && start > self.una
                && start < end
                && end <= top
            {
                if self.sacked.len() < memory.0 || self.sacked.touches(start, end) {
                    self.sacked.insert(start, end, |_, _| {});
                } else {
                    self.forgotten_blocks += 1;
                }
            }
        }
    }

    /// Returns the first unacknowledged byte.
    pub(super) fn una(&self) -> u64 {
        self.una
    }

    /// Returns the number of bytes above `una` that SACK blocks reported as received.
    pub(super) fn sacked(&self) -> u64 {
        self.sacked.covered()
    }

    /// Returns the number of bytes known to have arrived since the first byte seen.
    pub(super) fn delivered(&self) -> u64 {
        self.una.saturating_sub(ORIGIN) + self.sacked.covered()
    }

    /// Returns the offset after the highest byte sent.
    pub(super) fn top(&self) -> u64 {
        self.top.map_or(0, |(top, _)| top)
    }

    /// Returns whether data at `seq` was sent before.
    #[inline]
    pub(super) fn has_sent(&self, seq: SeqNum) -> bool {
        self.top.is_some_and(|(_, number)| seq.distance_from(number) < 0)
    }

    /// Forgets the times of segments whose ACKs are yet to come.
    pub(super) fn forget_times(&mut self) {
        self.timed.clear();
    }

    /// Returns whether captured data is not yet acknowledged.
    pub(super) fn waits_for_ack(&self) -> bool {
        self.counts.data_segments > 0 && self.flight_size() > 0
    }

    /// Returns whether `ack` acknowledges captured data for the first time.
    pub(super) fn is_acknowledged_by(&self, ack: SeqNum) -> bool {
        let offset = self.top.and_then(|(top, number)| ack.offset_near(number, top));
        self.waits_for_ack() && offset.is_some_and(|to| to > self.una && to <= self.top())
    }

    /// Returns the number of bytes sent but not acknowledged.
    pub(super) fn flight_size(&self) -> u64 {
        self.top.map_or(0, |(top, _)| top.saturating_sub(self.una))
    }

    /// Returns the last window that the receiver advertised.
    pub(super) fn window(&self) -> Option<Bytes> {
        self.window.map(Bytes::new)
    }

    /// Returns the largest payload of a packet.
    pub(super) fn largest(&self) -> u64 {
        self.largest
    }

    /// Returns the largest payload of a packet that fits into an Ethernet MTU.
    pub(super) fn largest_segment(&self) -> u64 {
        self.largest_segment
    }

    /// Returns whether any of the data was acknowledged.
    pub(super) fn acknowledged(&self) -> bool {
        self.acknowledged
    }

    /// Returns the number of bytes sent since the first byte seen, which is the only known progress without
    /// ACKs.
    pub(super) fn sent(&self) -> u64 {
        self.top().saturating_sub(ORIGIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1_000;
    const RTT: Option<Duration> = Some(Duration::from_millis(100));
    const ROOM: Memory = Memory(1_024);

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn send(one_way: &mut OneWay, millis: u64, segment: u32) -> Option<SegmentKind> {
        data(one_way, millis, SeqNum(u32::MAX - 1_499).plus(u64::from(segment) * MSS), MSS)
    }

    fn data(one_way: &mut OneWay, millis: u64, seq: SeqNum, len: u64) -> Option<SegmentKind> {
        one_way.on_data(Data { at: at(millis), seq, len, mss: MSS, stamp: None, rtt: RTT }, ROOM)
    }

    fn ack(one_way: &mut OneWay, millis: u64, segments: u64) -> AckEffect {
        offers(one_way, millis, segments, 10_000)
    }

    fn offers(one_way: &mut OneWay, millis: u64, segments: u64, window: u64) -> AckEffect {
        let ack = SeqNum(u32::MAX - 1_499).plus(segments * MSS);
        one_way.on_ack(&Ack { at: at(millis), ack, sack: &SackBlocks::default(), window, bare: true }, ROOM)
    }

    /// At the receiver, a segment lost before the tap arrives a round trip later, and a reordered one sooner.
    /// The sequence numbers wrap.
    #[test]
    fn gaps_are_filled_late_or_soon() {
        let mut one_way = OneWay::default();
        for (millis, segment) in [(0, 0), (1, 1), (3, 3), (4, 5), (5, 6)] {
            assert_eq!(send(&mut one_way, millis, segment), Some(SegmentKind::New));
        }
        assert_eq!(send(&mut one_way, 6, 4), Some(SegmentKind::Overtaken));
        assert_eq!(send(&mut one_way, 104, 2), Some(SegmentKind::Again));
        assert_eq!(one_way.gaps, []);
        assert_eq!(
            (one_way.counts.retransmits, one_way.counts.out_of_order, one_way.counts.needless),
            (1, 1, 0)
        );
        assert_eq!(one_way.counts.data_segments, 7);
    }

    /// On a busy receiver a retransmission may be captured shortly after the gap, and a reordered segment may
    /// take longer than a round trip. Timestamps decide, including wrapped ones, unless the timestamp clock
    /// has not ticked.
    #[test]
    fn timestamps_tell_what_left_first() {
        let mut one_way = OneWay::default();
        let mut stamped = |millis, segment: u64, stamp| {
            let seq = SeqNum(u32::MAX - 1_499).plus(segment * MSS);
            let data = Data { at: at(millis), seq, len: MSS, mss: MSS, stamp: Some(stamp), rtt: RTT };
            one_way.on_data(data, ROOM)
        };
        for segment in [0, 2, 4, 6] {
            assert_eq!(stamped(segment, segment, u32::MAX), Some(SegmentKind::New));
        }
        assert_eq!(stamped(7, 1, 0), Some(SegmentKind::Again));
        assert_eq!(stamped(200, 3, u32::MAX - 1), Some(SegmentKind::Overtaken));
        assert_eq!(stamped(12, 5, u32::MAX), Some(SegmentKind::Overtaken));
    }

    /// At the sender every original segment was captured: a repeated segment is a retransmission, and a
    /// needless one if it was already acknowledged.
    #[test]
    fn what_was_seen_before_is_sent_again() {
        let mut one_way = OneWay::default();
        for segment in 0..4 {
            send(&mut one_way, segment.into(), segment);
        }
        assert_eq!(
            ack(&mut one_way, 50, 1),
            AckEffect { bytes: MSS, rtt: Some(Duration::from_millis(50)), missed: 0 }
        );
        assert_eq!(ack(&mut one_way, 51, 1), AckEffect::default());
        assert_eq!(send(&mut one_way, 60, 1), Some(SegmentKind::Again));
        // The acknowledged transmission is ambiguous.
        assert_eq!(ack(&mut one_way, 110, 2), AckEffect { bytes: MSS, rtt: None, missed: 0 });
        assert_eq!(send(&mut one_way, 111, 1), Some(SegmentKind::Again));
        let counts = one_way.counts;
        assert_eq!((counts.retransmits, counts.needless, counts.duplicate_acks), (2, 1, 1));
    }

    /// The ACK of a FIN acknowledges one more sequence number than there are bytes of data.
    #[test]
    fn a_fin_is_no_octet() {
        let mut one_way = OneWay::default();
        send(&mut one_way, 0, 0);
        one_way.on_fin(SeqNum(u32::MAX - 1_499).plus(MSS));
        let end = SeqNum(u32::MAX - 1_499).plus(MSS + 1);
        let last = Ack { at: at(50), ack: end, sack: &SackBlocks::default(), window: 10_000, bare: true };
        assert_eq!(one_way.on_ack(&last, ROOM).bytes, MSS);
        assert_eq!((one_way.counts.missed_bytes, one_way.delivered()), (0, MSS));
    }

    #[test]
    fn what_was_never_seen_and_is_acknowledged_was_not_captured() {
        let mut one_way = OneWay::default();
        send(&mut one_way, 0, 0);
        send(&mut one_way, 1, 2);
        assert_eq!(ack(&mut one_way, 50, 4).bytes, 4 * MSS);
        assert_eq!(one_way.counts.missed_bytes, 2 * MSS);
        assert_eq!(one_way.flight_size(), 0);
    }

    /// SACKed data counts as delivered once, and not again when it is cumulatively acknowledged.
    #[test]
    fn blocks_are_delivered_once() {
        let mut one_way = OneWay::default();
        for segment in 0..5 {
            send(&mut one_way, segment.into(), segment);
        }
        let seq = |segments: u64| SeqNum(u32::MAX - 1_499).plus(segments * MSS);
        let mut sack = SackBlocks::default();
        sack.push(seq(2), seq(4));
        for millis in [50, 51] {
            one_way
                .on_ack(&Ack { at: at(millis), ack: seq(1), sack: &sack, window: 10_000, bare: true }, ROOM);
            assert_eq!((one_way.delivered(), one_way.sacked()), (3 * MSS, 2 * MSS));
        }
        ack(&mut one_way, 60, 5);
        assert_eq!((one_way.delivered(), one_way.sacked()), (5 * MSS, 0));
    }

    /// A first block below the ACK or inside the second block reports a duplicate; any other block reports
    /// data that arrived for the first time.
    #[test]
    fn duplicates_are_told_from_news() {
        // The sequence numbers wrap.
        let seq = |segments: u64| SeqNum(u32::MAX - 1_499).plus(segments * MSS);
        let reported = |ack: u64, blocks: &[(u64, u64)]| {
            let mut sack = SackBlocks::default();
            for (from, to) in blocks {
                sack.push(seq(*from), seq(*to));
            }
            duplicate_segments(&sack, seq(ack), MSS)
        };
        assert_eq!(reported(5, &[]), 0);
        assert_eq!((reported(5, &[(2, 4)]), reported(5, &[(4, 5), (7, 9)])), (2, 1));
        assert_eq!(reported(1, &[(7, 8), (6, 9)]), 1);
        assert_eq!((reported(1, &[(2, 4)]), reported(1, &[(2, 4), (6, 9)])), (0, 0));
    }

    /// Blocks that exceed the memory are counted; a block that extends a known range needs no memory.
    #[test]
    fn blocks_beyond_the_memory_are_counted() {
        let mut one_way = OneWay::default();
        for segment in 0..10 {
            send(&mut one_way, segment.into(), segment);
        }
        let seq = |segments: u64| SeqNum(u32::MAX - 1_499).plus(segments * MSS);
        for (from, to) in [(2, 3), (4, 5), (6, 7), (4, 6), (8, 9)] {
            let mut sack = SackBlocks::default();
            sack.push(seq(from), seq(to));
            let ack = Ack { at: at(50), ack: seq(1), sack: &sack, window: 10_000, bare: true };
            one_way.on_ack(&ack, Memory(2));
        }
        assert_eq!((one_way.sacked(), one_way.forgotten_blocks), (3 * MSS, 2));
    }

    #[test]
    fn windows_are_counted_when_they_fill_and_when_they_close() {
        let mut one_way = OneWay::default();
        send(&mut one_way, 0, 0);
        offers(&mut one_way, 1, 1, 2 * MSS);
        let edge = Some(one_way.una() + 2 * MSS);
        for (segment, full) in [(1, false), (2, true), (2, true)] {
            send(&mut one_way, 2, segment);
            assert_eq!(one_way.look_at_window(edge, MSS), full);
        }
        for millis in [3, 4] {
            offers(&mut one_way, millis, 3, 0);
        }
        assert_eq!((one_way.counts.window_full, one_way.counts.zero_windows), (1, 1));
        // A segment with one byte below the acknowledged data probes whether the window is still closed.
        let before = SeqNum(u32::MAX - 1_499).plus(3 * MSS - 1);
        assert_eq!(data(&mut one_way, 500, before, 1), Some(SegmentKind::Probe));
    }
}
