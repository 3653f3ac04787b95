//! Compares the packets of two runs of one scenario, and finds the first packet that differs.
//!
//! Both runs have the same path and the same losses, so their packets are equal until the two TCP stacks
//! behave differently. The first packet that differs shows where their behaviour diverges:
//!
//! ```text
//!   flow, direction:  left   1 2 3 4 5 6 …
//!                     right  1 2 3 4 6 …      packet 5 differs: other bytes, or another time
//! ```
//!
//! In each flow and direction, packets with the same number are compared: data packets by sequence number and
//! length, and acknowledgements without data by acknowledgement number. Packets that differ only in their
//! flags or windows are considered equal.

use std::collections::BTreeMap;

use fullpipe_path::Verdict;
use fullpipe_tcp::wire::{Flags, Segment};
use fullpipe_units::{Duration, Instant};

use crate::capture::Tap;

/// Maximum number of packets of a run that are recorded.
pub const MOST_RECORDS: usize = 1 << 20;

/// A TCP packet that entered the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketRecord {
    /// Time at which the packet entered the path.
    pub at: Instant,
    /// Whether the sending host sent the packet (`true`) or the receiving host (`false`).
    pub outbound: bool,
    /// Number of the packet's flow.
    pub flow: u32,
    /// Sequence number, relative to the sequence number of the SYN in the same direction.
    pub seq: u32,
    /// Acknowledgement number, relative to the sequence number of the SYN of the other direction.
    pub ack: u32,
    /// Payload in bytes.
    pub len: u32,
    /// Control bits: the fourteenth byte of the TCP header.
    pub flags: u8,
    /// Verdict of the path when the packet entered it.
    pub verdict: Verdict,
}

/// The packets of a run in the order in which they entered the path, at most [`MOST_RECORDS`].
///
/// As a [`Tap`], the log records a simulated run.
#[derive(Clone, Debug, Default)]
pub struct PacketLog {
    records: Vec<PacketRecord>,
    /// Sequence numbers of the SYNs of each flow: from the sending host, and from the receiving host.
    isn: BTreeMap<u32, [u32; 2]>,
}

impl PacketLog {
    /// Adds a packet; its sequence and acknowledgement numbers are those of its header.
    pub fn add(&mut self, packet: PacketRecord) {
        if self.records.len() >= MOST_RECORDS {
            return;
        }
        let isn = self.isn.entry(packet.flow).or_default();
        let side = usize::from(!packet.outbound);
        if packet.flags & Flags::SYN.bits() != 0 {
            isn[side] = packet.seq;
        }
        let (seq, ack) = (packet.seq.wrapping_sub(isn[side]), packet.ack.wrapping_sub(isn[1 - side]));
        self.records.push(PacketRecord { seq, ack, ..packet });
    }

    /// Returns the packets.
    pub fn into_records(self) -> Vec<PacketRecord> {
        self.records
    }

    fn segment(&mut self, at: Instant, outbound: bool, flow: u32, segment: &Segment, verdict: Verdict) {
        let (seq, ack, len) = (segment.seq.0, segment.ack.0, segment.len);
        self.add(PacketRecord { at, outbound, flow, seq, ack, len, flags: segment.flags.bits(), verdict });
    }
}

impl Tap for PacketLog {
    fn leaves(&mut self, at: Instant, flow: u32, segment: &Segment, verdict: Verdict) {
        self.segment(at, true, flow, segment, verdict);
    }

    fn arrives(&mut self, _: Instant, _: u32, _: &Segment) {}

    fn answers(&mut self, at: Instant, flow: u32, segment: &Segment, verdict: Verdict) {
        self.segment(at, false, flow, segment, verdict);
    }
}

/// The first packet that differs between two runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parting {
    /// Number of the packet among the packets of its kind, flow and direction, starting from one.
    pub number: usize,
    /// The packet in the first run; `None` if the run sent no further packet.
    pub left: Option<PacketRecord>,
    /// The packet in the second run; `None` if the run sent no further packet.
    pub right: Option<PacketRecord>,
}

impl Parting {
    /// Returns the time from which the runs differ: the time of the earlier of the two packets.
    pub fn at(&self) -> Instant {
        self.either().at
    }

    /// Returns the earlier of the two packets.
    pub fn either(&self) -> PacketRecord {
        let packets = [self.left, self.right].into_iter().flatten();
        packets
            .min_by_key(|packet| packet.at)
            .unwrap_or_else(|| unreachable!("one of the runs has the packet"))
    }

    /// Returns whether both runs sent the same data or the same acknowledgement, but at different times.
    pub fn is_timing(&self) -> bool {
        matches!((self.left, self.right), (Some(left), Some(right)) if content(&left) == content(&right))
    }
}

/// Returns the part of a packet that is compared: sequence number and length of its data or, without data,
/// its acknowledgement number.
fn content(packet: &PacketRecord) -> (u32, u32) {
    if packet.len > 0 { (packet.seq, packet.len) } else { (packet.ack, 0) }
}

/// Returns the earliest packet that differs between two runs. Times are considered equal if they differ by at
/// most `tolerance`.
///
/// Packets without data from the sending host are not compared, because they only acknowledge requests and
/// the end of a connection. A packet that occurs in only one run is considered different if the record of the
/// other run extends beyond the time of the packet.
pub fn parting(left: &[PacketRecord], right: &[PacketRecord], tolerance: Duration) -> Option<Parting> {
    type Sequences<'r> = BTreeMap<(u32, bool, bool), [Vec<&'r PacketRecord>; 2]>;
    let mut sequences: Sequences<'_> = BTreeMap::new();
    for (side, records) in [left, right].into_iter().enumerate() {
        for packet in records.iter().filter(|packet| !packet.outbound || packet.len > 0) {
            let key = (packet.flow, packet.outbound, packet.len > 0);
            sequences.entry(key).or_default()[side].push(packet);
        }
    }
    let ends = [left, right].map(|records| records.last().map_or(Instant::ZERO, |packet| packet.at));
    let known_until = ends[0].min(ends[1]);
    let firsts = sequences.into_values().filter_map(|[left, right]| {
        let differs = |number: &usize| match (left.get(*number), right.get(*number)) {
            (Some(one), Some(other)) => {
                content(one) != content(other)
                    || one.at.saturating_since(other.at).max(other.at.saturating_since(one.at)) > tolerance
            }
            _ => true,
        };
        let number = (0..left.len().max(right.len())).find(differs)?;
        let packet = |records: &[&PacketRecord]| records.get(number).map(|&packet| *packet);
        Some(Parting { number: number + 1, left: packet(&left), right: packet(&right) })
    });
    firsts.filter(|parting| parting.at() + tolerance <= known_until).min_by_key(Parting::at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn data(ms: u64, seq: u32) -> PacketRecord {
        PacketRecord {
            at: Instant::from_nanos(ms * MS),
            outbound: true,
            flow: 0,
            seq,
            ack: 1,
            len: 1_448,
            flags: 16,
            verdict: Verdict::Accepted,
        }
    }

    fn ack(ms: u64, ack: u32) -> PacketRecord {
        PacketRecord { outbound: false, len: 0, ack, ..data(ms, 1) }
    }

    fn found(left: &[PacketRecord], right: &[PacketRecord]) -> Option<(usize, u64, bool)> {
        let parting = parting(left, right, Duration::from_millis(1))?;
        Some((parting.number, parting.at().as_nanos() / MS, parting.is_timing()))
    }

    #[test]
    fn the_earliest_difference_counts() {
        let left = [data(0, 1), ack(10, 1_449), data(10, 1_449), ack(20, 2_897), data(90, 1)];
        let mut right = left;
        assert_eq!(found(&left, &right), None);
        right[2].seq = 1;
        assert_eq!(found(&left, &right), Some((2, 10, false)), "other bytes");
        right[1].ack = 5;
        right[1].at = Instant::from_nanos(9 * MS);
        assert_eq!(found(&left, &right), Some((1, 9, false)), "an earlier acknowledgement");
    }

    #[test]
    fn a_late_packet_differs_beyond_the_tolerance() {
        let left = [data(0, 1), data(10, 1_449), data(99, 2_897)];
        let moved = |ms: u64| [left[0], data(ms, 1_449), left[2]];
        assert_eq!(found(&left, &moved(11)), None);
        assert_eq!(found(&left, &moved(12)), Some((2, 10, true)));
    }

    /// If one run lacks a packet at the very end of the shorter record, the record may just have ended.
    #[test]
    fn a_missing_packet_counts_only_within_both_records() {
        let left = [data(0, 1), ack(10, 1_449), data(20, 1_449), ack(60, 2_897)];
        let without = [left[0], left[1], left[3]];
        assert_eq!(found(&left, &without), Some((2, 20, false)));
        assert_eq!(found(&left, &left[..2]), None);
    }

    #[test]
    fn numbers_are_relative_to_the_syn() {
        let mut log = PacketLog::default();
        let syn = PacketRecord { seq: 7_000, ack: 0, len: 0, flags: Flags::SYN.bits(), ..data(0, 0) };
        let answer = PacketRecord { outbound: false, seq: 90, ack: 7_001, flags: 0x12, ..syn };
        for packet in [syn, answer, PacketRecord { ack: 91, ..data(1, 7_001) }] {
            log.add(packet);
        }
        let numbers: Vec<_> = log.into_records().iter().map(|packet| (packet.seq, packet.ack)).collect();
        assert_eq!(numbers[1..], [(0, 1), (1, 1)]);
    }
}
