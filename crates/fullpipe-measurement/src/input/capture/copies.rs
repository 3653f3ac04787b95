//! Detects packets that were captured more than once: on a mirror port that copies ingress and egress, or
//! with `-i any` on a bridge, where each packet passes several devices.
//!
//! ```text
//!   packet ──► same headers within the last millisecond? ── no ──► counted
//!                   │ yes
//!                   ├─ IPv4 identification, and the sender changes it ───────────────────► copy
//!                   └─ none (IPv6, or always the same one)
//!                        ├─ sooner than a retransmission can follow, or no gap reported ──► copy
//!                        └─ else ── each packet is captured k times: every k-th counts
//! ```
//!
//! A retransmission has a new IP identification and usually a new timestamp, and follows the original by a
//! round trip or more, once ACKs have reported a gap. A copy repeats all headers. Addresses, TTL and VLAN
//! tags may be rewritten between two capture points, so only the fields that the endpoints set are compared.

use std::collections::VecDeque;

use fullpipe_tcp::wire::SeqNum;
use fullpipe_units::{Duration, Instant};

use super::connection::PacketView;

/// Maximum time between two captures of one packet. Devices of one host pass a packet within microseconds; a
/// mirror port delays the copy by its queue.
pub(super) const APART: Duration = Duration::from_millis(1);
/// Number of buckets of remembered packets, and packets per bucket. At ten gigabits per second a thousand
/// packets pass in [`APART`], one per bucket on average, and eight rarely fall into one bucket. With four
/// packets per bucket, one original in a million was forgotten before its copy arrived, even at one gigabit
/// per second. All buckets stay in the processor cache.
const BUCKETS: usize = 1_024;
const WAYS: usize = 8;
/// Number of super-segments that each direction remembers, in case their segments follow.
const SUPER_SEGMENTS: usize = 16;
/// Smallest payload of a segment that a host cuts from a super-segment. It bounds how far the IP
/// identification may have advanced within the super-segment.
const LEAST_CUT: u64 = 500;

/// Recent packets of all connections, by a hash of their headers.
pub(super) struct RecentPackets {
    buckets: Vec<[Entry; WAYS]>,
}

/// Remembered packet. Its fields are small, so that a bucket takes three cache lines.
#[derive(Clone, Copy, Default)]
struct Entry {
    /// Time of the last packet with these headers.
    at: Instant,
    /// Upper half of the hash.
    tag: u32,
    /// Nanoseconds from the first to the last packet with these headers.
    age: u32,
    /// Number of packets with these headers after the first.
    nth: u32,
}

/// Earlier packets with the same headers, each within [`APART`] of the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Repetition {
    /// Time since the first packet with these headers.
    pub(super) age: Duration,
    /// Number of earlier packets with these headers, at least 1.
    pub(super) nth: u32,
}

impl Default for RecentPackets {
    fn default() -> Self {
        Self { buckets: vec![[Entry::default(); WAYS]; BUCKETS] }
    }
}

impl RecentPackets {
    /// Remembers a packet of connection `number`, and returns the earlier packets with the same headers, if
    /// there were any.
    #[inline]
    pub(super) fn repetition(&mut self, number: usize, packet: &PacketView<'_>) -> Option<Repetition> {
        let hash = hash(number, packet);
        let (tag, at) = ((hash >> 32) as u32, packet.captured);
        let bucket = &mut self.buckets[hash as usize % BUCKETS];
        if let Some(same) = bucket.iter_mut().find(|entry| entry.tag == tag) {
            // Packets may be written slightly out of order.
            let apart = at.saturating_since(same.at).max(same.at.saturating_since(at));
            same.at = at;
            if apart > APART {
                (same.age, same.nth) = (0, 0);
                return None;
            }
            same.age = same.age.saturating_add(apart.as_nanos() as u32);
            same.nth = same.nth.saturating_add(1);
            return Some(Repetition { age: Duration::from_nanos(same.age.into()), nth: same.nth });
        }
        let mut oldest = 0;
        for (nth, entry) in bucket.iter().enumerate().skip(1) {
            if entry.at < bucket[oldest].at {
                oldest = nth;
            }
        }
        bucket[oldest] = Entry { at, tag, age: 0, nth: 0 };
        None
    }
}

/// Returns a hash of the headers that the sending endpoint set. Its upper half is never zero, because zero
/// marks an empty entry.
#[inline]
fn hash(number: usize, packet: &PacketView<'_>) -> u64 {
    /// Odd numbers whose multiples are spread evenly: the fractional parts of the golden ratio and of the
    /// square roots of 2, 3 and 5.
    const SPREAD: [u64; 4] =
        [0x9e37_79b9_7f4a_7c15, 0x6a09_e667_f3bc_c909, 0xbb67_ae85_84ca_a73b, 0x3c6e_f372_fe94_f82b];
    let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
    let flags = u64::from(packet.flags.bits());
    let (value, echo) = packet.timestamps.unwrap_or_default();
    let words = [
        flags << 40 | u64::from(packet.id) << 24 | u64::from(packet.window) << 1 | packet.from as u64,
        pair(packet.seq.0, packet.ack.0),
        pair(value, echo),
        packet.len << 32 | number as u64,
    ];
    // The products do not depend on each other, so the processor can compute them in parallel.
    let mut hash = words
        .iter()
        .zip(SPREAD)
        .zip([0, 17, 31, 47])
        .fold(0, |hash, ((word, spread), turn)| hash ^ word.wrapping_mul(spread).rotate_left(turn));
    for (start, end) in packet.sack.iter() {
        hash = (hash ^ pair(start.0, end.0)).wrapping_mul(SPREAD[0]).rotate_left(29);
    }
    hash = (hash ^ hash >> 29).wrapping_mul(SPREAD[1]);
    (hash ^ hash >> 32) | 1 << 63
}

/// Super-segment that passed a device before another device cut it into segments.
#[derive(Clone, Copy, Debug)]
struct SuperSegment {
    at: Instant,
    seq: SeqNum,
    len: u64,
    ack: SeqNum,
    id: u16,
    timestamps: Option<(u32, u32)>,
}

/// Evidence about copies in the packets of one endpoint.
#[derive(Clone, Debug, Default)]
pub(super) struct CopyRules {
    /// IP identification of the last packet; zero for none.
    last_id: u16,
    /// Whether the endpoint gives its packets different identifications.
    has_ids: bool,
    super_segments: VecDeque<SuperSegment>,
    /// Time of the last ACK that reported a gap in this endpoint's data.
    pub(super) gap_reported: Option<Instant>,
}

impl CopyRules {
    /// Records a packet of this endpoint that is not a copy.
    #[inline]
    pub(super) fn see(&mut self, packet: &PacketView<'_>, is_super: bool) {
        if packet.id != 0 {
            self.has_ids |= self.last_id != 0 && self.last_id != packet.id;
            self.last_id = packet.id;
        }
        if is_super {
            if self.super_segments.len() >= SUPER_SEGMENTS {
                self.super_segments.pop_front();
            }
            let &PacketView { captured: at, seq, len, ack, id, timestamps, .. } = packet;
            self.super_segments.push_back(SuperSegment { at, seq, len, ack, id, timestamps });
        }
    }

    /// Returns whether a packet that repeats the headers of another one is a copy of it. `rtt` is the
    /// smallest round trip, and `times` is the number of times that each packet of the connection is
    /// captured, which is 1 if packets usually have no copies.
    pub(super) fn is_copy(
        &self,
        packet: &PacketView<'_>,
        repetition: Repetition,
        rtt: Option<Duration>,
        times: u64,
    ) -> bool {
        if self.has_ids && packet.id != 0 {
            return true;
        }
        let Repetition { age, nth } = repetition;
        // A receiver without SACK repeats an ACK for each segment that arrives after a gap, so only the
        // number of repetitions distinguishes its ACKs from copies. A retransmission follows ACKs that report
        // the gap, or a timeout, which is longer than a millisecond.
        let may_be_data = || {
            let before = packet.captured.saturating_sub(age);
            rtt.is_none_or(|rtt| age >= rtt / 2)
                && self.gap_reported.is_some_and(|reported| reported >= before)
        };
        let is_ack = packet.len == 0 && packet.syn.is_none();
        !(is_ack || may_be_data()) || u64::from(nth) % times != 0
    }

    /// Returns whether a data packet is one of the segments of a super-segment that passed before.
    #[inline]
    pub(super) fn is_cut(&self, packet: &PacketView<'_>) -> bool {
        self.super_segments.iter().any(|whole| {
            let from = packet.seq.distance_from(whole.seq);
            let within = from >= 0 && from as u64 + packet.len <= whole.len && packet.len < whole.len;
            let advanced = u64::from(packet.id.wrapping_sub(whole.id));
            within
                && packet.captured.saturating_since(whole.at) <= APART
                && packet.ack == whole.ack
                && packet.timestamps == whole.timestamps
                && (whole.id != 0) == (packet.id != 0)
                && advanced <= from as u64 / LEAST_CUT
                && (advanced > 0 || from == 0 || !self.has_ids)
                && self.gap_reported.is_none_or(|reported| reported < whole.at)
        })
    }
}
