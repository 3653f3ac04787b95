//! Estimate of the peer's segment size (Linux: `rcv_mss`, `tcp_measure_rcv_mss`).
//!
//! The peer's MSS option limits only the segments that the peer receives, so this side must measure the size
//! of the full-sized segments that the peer sends. The ACK policy counts in units of this size, and treats a
//! shorter segment as the end of a write:
//!
//! ```text
//!   at least the estimate              a full-sized segment; a longer one raises the estimate
//!   shorter, and as long as the last   the peer now sends smaller segments; the estimate falls
//!   shorter                            the end of a write
//! ```
//!
//! A segment that ends a write may have any length. Two equal segments therefore lower the estimate only if
//! they are as long as a full-sized segment of some path.

use crate::wire::{Flags, Segment};

/// Minimum length of payload and options, in bytes, with which a segment may be full-sized although it has
/// PSH: the default MSS of RFC 9293 (`TCP_MSS_DEFAULT`). This value also limits the first estimate.
const DEFAULT_MSS: u64 = 536;
/// Minimum length of payload and options, in bytes, with which a segment without PSH and FIN may be
/// full-sized (`TCP_MIN_MSS`).
const MIN_MSS: u64 = 88;
/// Length of the IPv4 and TCP headers without options, in bytes.
const HEADERS: u32 = 40;
/// Length of the timestamps option with its padding, in bytes.
const TIMESTAMPS: u64 = 12;

/// Estimate of the payload length of the peer's full-sized segments.
#[derive(Clone, Debug)]
pub(crate) struct RcvMss {
    mss: u64,
    /// Size of the last segment if it was short and may have been full-sized; otherwise zero.
    last: u64,
}

/// Sign that a segment is the last one of a write by the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndOfWrite {
    /// No sign: a full-sized segment without PSH, or a segment of a size that the peer now uses.
    No,
    /// PSH in a full-sized segment.
    Pushed,
    /// A short segment.
    Short,
}

impl RcvMss {
    /// Creates the estimate for a path on which a full-sized segment carries at most `mss` bytes. The first
    /// estimate is low, because an estimate that is too high delays ACKs.
    pub(crate) fn new(mss: u64) -> Self {
        Self { mss: mss.min(DEFAULT_MSS), last: 0 }
    }

    /// Returns the estimated payload length of a full-sized segment, in bytes.
    #[inline(always)]
    pub(crate) fn get(&self) -> u64 {
        self.mss
    }

    /// Adjusts the estimate to an arriving segment with payload. A segment with more than `most` bytes is
    /// treated as a segment of `most` bytes, because it consists of several segments that were merged on
    /// arrival. `timestamps` indicates whether both ends agreed on timestamps.
    #[inline(always)]
    pub(crate) fn measure(&mut self, segment: &Segment, most: u64, timestamps: bool) -> EndOfWrite {
        let last = std::mem::take(&mut self.last);
        let len = u64::from(segment.len).min(most);
        if len < self.mss {
            return self.measure_short(segment, len, last, timestamps);
        }
        self.mss = len;
        if segment.flags.has(Flags::PSH) { EndOfWrite::Pushed } else { EndOfWrite::No }
    }

    #[inline(never)]
    fn measure_short(&mut self, segment: &Segment, len: u64, last: u64, timestamps: bool) -> EndOfWrite {
        let with_options = len + u64::from(segment.header_len() - HEADERS);
        let ends_write = segment.flags.has(Flags::PSH) || segment.flags.has(Flags::FIN);
        if with_options >= DEFAULT_MSS || (with_options >= MIN_MSS && !ends_write) {
            // SACK blocks reduce the payload of a full-sized segment, so their length is included.
            self.last = with_options - if timestamps { TIMESTAMPS } else { 0 };
            if self.last == last {
                self.mss = last;
                return EndOfWrite::No;
            }
        }
        EndOfWrite::Short
    }
}

#[cfg(test)]
mod tests {
    use fullpipe_units::Ecn;

    use super::*;
    use crate::wire::{SackBlocks, SeqNum, Timestamps};

    const FULL: u64 = 1448;

    fn segment(len: u32, flags: Flags) -> Segment {
        Segment {
            seq: SeqNum::default(),
            ack: SeqNum::default(),
            len,
            window: 0,
            flags: flags.with(Flags::ACK),
            timestamps: Some(Timestamps { value: 1, echo: 1 }),
            syn: None,
            sack: SackBlocks::default(),
            ecn: Ecn::NotEct,
        }
    }

    /// Returns the estimate after a full-sized segment and `segments`.
    fn after(segments: &[Segment]) -> u64 {
        let mut mss = RcvMss::new(FULL);
        assert_eq!(mss.get(), 536);
        for segment in [&[segment(1448, Flags::ACK)][..], segments].concat() {
            mss.measure(&segment, FULL, true);
        }
        mss.get()
    }

    /// ACK-9: a longer segment raises the estimate at once. Segments that were merged on arrival count as one
    /// full-sized segment.
    #[test]
    fn a_longer_segment_raises_the_estimate() {
        let mut mss = RcvMss::new(FULL);
        for (len, expected) in [(100, 536), (600, 600), (536, 600), (1448, 1448), (4344, 1448)] {
            mss.measure(&segment(len, Flags::PSH), FULL, true);
            assert_eq!(mss.get(), expected, "{len}");
        }
    }

    /// ACK-9: two equal short segments in a row lower the estimate if they are long enough to be full-sized
    /// segments on some path. Segments with PSH must be longer, because they may end a write.
    #[test]
    fn two_equal_segments_lower_the_estimate() {
        let plain = |len| segment(len, Flags::ACK);
        let pushed = |len| segment(len, Flags::PSH);
        for (segments, expected) in [
            (vec![plain(1000)], 1448),
            (vec![plain(1000), plain(1000)], 1000),
            (vec![plain(1000), plain(1001)], 1448),
            (vec![plain(1000), plain(1448), plain(1000)], 1448),
            (vec![plain(1000), plain(1000), plain(1001)], 1001),
            (vec![plain(76), plain(76)], 76),
            (vec![plain(75), plain(75)], 1448),
            (vec![pushed(524), pushed(524)], 524),
            (vec![pushed(523), pushed(523)], 1448),
        ] {
            assert_eq!(after(&segments), expected, "{segments:?}");
        }
    }

    /// ACK-9: SACK blocks reduce the payload of a full-sized segment, but such a segment does not count as
    /// short.
    #[test]
    fn sack_blocks_count_as_payload() {
        let mut with_block = segment(988, Flags::ACK);
        assert!(with_block.sack.push(SeqNum(1), SeqNum(2)));
        assert_eq!(after(&[segment(1000, Flags::ACK), with_block]), 1000);
    }

    /// ACK-6: a short segment ends a write of the peer, and so does a full-sized segment with PSH. A segment
    /// that lowers the estimate is a full-sized segment of the new size.
    #[test]
    fn signs_that_a_write_ends() {
        let mut mss = RcvMss::new(FULL);
        let mut sign = |len, flags| mss.measure(&segment(len, flags), FULL, true);
        assert_eq!(sign(1448, Flags::ACK), EndOfWrite::No);
        assert_eq!(sign(1448, Flags::PSH), EndOfWrite::Pushed);
        assert_eq!(sign(1000, Flags::PSH), EndOfWrite::Short);
        assert_eq!(sign(1000, Flags::PSH), EndOfWrite::No);
        assert_eq!(sign(1000, Flags::PSH), EndOfWrite::Pushed);
        assert_eq!(sign(999, Flags::ACK), EndOfWrite::Short);
    }
}
