//! Transmission: data that the connection passes to the driver in one unit, and its division into packets.
//!
//! ```text
//!   Transmit   one header, up to 64 KiB of payload in segments of `gso_size`
//!      │ segments(limit): pieces of whole segments, each of at most `limit` bytes
//!      ▼
//!   Piece, Piece, …     pieces not taken stay in the transmission for the next call
//! ```

use fullpipe_units::{Ecn, Instant};

use crate::wire::{Flags, SackBlocks, Segment, SeqNum, Timestamps};

/// Departure time of a transmission, and the values needed to build its headers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Departure {
    pub(crate) at: Instant,
    /// Sequence number of stream offset 0, the octet after the SYN.
    pub(crate) origin: SeqNum,
    /// Payload length of a full-sized segment, in bytes.
    pub(crate) mss: u64,
}

impl Departure {
    /// Builds the header of a segment at stream offset `offset`, containing only the fields of the sending
    /// half.
    #[inline(always)]
    pub(crate) fn header(&self, offset: u64, flags: Flags, ecn: Ecn) -> Segment {
        Segment {
            seq: self.origin.plus(offset),
            ack: SeqNum::default(),
            len: 0,
            window: 0,
            flags,
            timestamps: None,
            syn: None,
            sack: SackBlocks::default(),
            ecn,
        }
    }
}

/// Transmission: one segment, or several segments of [`gso_size`](Self::gso_size) bytes that leave together.
///
/// Only `tx/`, which chooses new data and retransmissions, can create a transmission with data:
///
/// ```compile_fail,E0451
/// # fn forge(segment: fullpipe_tcp::wire::Segment, depart_at: fullpipe_units::Instant) {
/// let transmit = fullpipe_tcp::Transmit { segment, gso_size: 1448, depart_at, cut: Some(0) };
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Transmit {
    segment: Segment,
    gso_size: u32,
    depart_at: Instant,
    /// Number of payload bytes already returned as pieces; `None` after the last piece.
    cut: Option<u32>,
}

impl Transmit {
    /// Creates a transmission of `len` payload bytes whose first segment has the header `header`.
    #[inline(always)]
    pub(in crate::tx) fn of_data(departure: Departure, header: Segment, len: u64) -> Self {
        // Transmissions and segments are at most 64 KiB long, so both lengths fit in 32 bits.
        let (len, gso_size) = (len as u32, departure.mss as u32);
        Self { segment: Segment { len, ..header }, gso_size, depart_at: departure.at, cut: Some(0) }
    }

    /// Creates a transmission without payload: an ACK, a SYN, a reset, or a probe whose sequence number is
    /// already acknowledged.
    #[inline(always)]
    pub(crate) fn without_data(segment: Segment, depart_at: Instant) -> Self {
        Self { segment: Segment { len: 0, ..segment }, gso_size: 0, depart_at, cut: Some(0) }
    }

    /// Adds the header fields of the receiving half to a transmission.
    #[inline(always)]
    pub(crate) fn acknowledge(
        &mut self,
        ack: SeqNum,
        window: u16,
        echo: Flags,
        timestamps: Option<Timestamps>,
    ) {
        self.segment.ack = ack;
        self.segment.window = window;
        self.segment.flags = self.segment.flags.with(echo);
        self.segment.timestamps = timestamps;
    }

    /// Adds the SACK blocks to a transmission: ranges received above a hole, and possibly a duplicate
    /// (D-SACK).
    #[inline(always)]
    pub(crate) fn report(&mut self, sack: SackBlocks) {
        self.segment.sack = sack;
    }

    /// Returns the header of the first segment. The header's `len` is the payload length of the whole
    /// transmission.
    #[inline]
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Returns the payload length of every segment except the last, in bytes, or 0 for a transmission without
    /// payload.
    #[inline]
    pub fn gso_size(&self) -> u32 {
        self.gso_size
    }

    /// Returns the scheduled departure time of the transmission.
    #[inline]
    pub fn depart_at(&self) -> Instant {
        self.depart_at
    }

    /// Returns whether the iterators have returned all pieces of the transmission.
    #[inline]
    pub fn is_cut_up(&self) -> bool {
        self.cut.is_none()
    }

    /// Returns an iterator that splits the transmission into pieces of whole segments. A piece has at most
    /// `limit` bytes of payload, but at least one segment; with a `limit` of 0, each piece is one segment.
    /// The iterator may be dropped at any time, and the next call continues where the previous iterator
    /// stopped. A transmission without payload is one piece.
    #[inline]
    pub fn segments(&mut self, limit: u64) -> Segments<'_> {
        let size = u64::from(self.gso_size.max(1));
        let most = (limit / size).max(1) * size;
        Segments { whole: &self.segment, cut: &mut self.cut, most: u32::try_from(most).unwrap_or(u32::MAX) }
    }
}

/// Iterator over the pieces of a transmission ([`Transmit::segments`]).
#[derive(Debug)]
pub struct Segments<'a> {
    whole: &'a Segment,
    cut: &'a mut Option<u32>,
    most: u32,
}

impl<'a> Iterator for Segments<'a> {
    type Item = Piece<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<Piece<'a>> {
        let start = (*self.cut)?;
        let rest = self.whole.len - start;
        let len = rest.min(self.most);
        *self.cut = (len < rest).then_some(start + len);
        Some(Piece { whole: self.whole, start, len })
    }
}

/// Packet of a transmission: one segment, or several segments for a device with segmentation offload.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    whole: &'a Segment,
    start: u32,
    len: u32,
}

impl Piece<'_> {
    /// Returns the offset of the piece within the payload of the transmission.
    #[inline]
    pub fn start(&self) -> u32 {
        self.start
    }

    /// Returns the payload length of the piece, in bytes.
    #[inline]
    pub fn payload(&self) -> u32 {
        self.len
    }

    /// Returns the header of the piece. As in Linux's GSO, CWR is set only in the first piece, and FIN and
    /// PSH are set only in the last.
    #[inline(always)]
    pub fn segment(&self) -> Segment {
        let Self { whole, start, len } = *self;
        let flags = if start == 0 { whole.flags } else { whole.flags.without(Flags::CWR) };
        let last = start + len == whole.len;
        let flags = if last { flags } else { flags.without(Flags::FIN.with(Flags::PSH)) };
        Segment { seq: whole.seq.plus(start.into()), len, flags, syn: whole.syn_options(), ..*whole }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transmit(len: u32, flags: Flags) -> Transmit {
        let departure = Departure { at: Instant::ZERO, origin: SeqNum(u32::MAX - 99), mss: 100 };
        Transmit::of_data(departure, departure.header(0, flags, Ecn::NotEct), len.into())
    }

    /// Returns the sequence number, length and flags of each piece.
    fn pieces(transmit: &mut Transmit, limit: u64, most: usize) -> Vec<(u32, u32, Flags)> {
        let told = |piece: Piece<'_>| {
            let segment = piece.segment();
            assert_eq!(piece.payload(), segment.len);
            (segment.seq.0, segment.len, segment.flags)
        };
        transmit.segments(limit).take(most).map(told).collect()
    }

    /// Pieces consist of whole segments up to the limit, and the last piece is the remainder. Sequence
    /// numbers wrap around.
    #[test]
    fn pieces_are_of_whole_segments() {
        let ack = Flags::ACK;
        let first = u32::MAX - 99;
        assert_eq!(pieces(&mut transmit(250, ack), 0, 9), [(first, 100, ack), (0, 100, ack), (100, 50, ack)]);
        assert_eq!(pieces(&mut transmit(250, ack), 299, 9), [(first, 200, ack), (100, 50, ack)]);
        assert_eq!(pieces(&mut transmit(250, ack), 10_000, 9), [(first, 250, ack)]);
        assert_eq!(pieces(&mut transmit(0, ack), 0, 9), [(first, 0, ack)], "without payload one");
    }

    /// CWR is set in the first piece; FIN and PSH are set in the last piece.
    #[test]
    fn flags_go_with_the_piece_they_belong_to() {
        let all = Flags::ACK.with(Flags::CWR).with(Flags::PSH).with(Flags::FIN);
        let flags: Vec<Flags> = pieces(&mut transmit(300, all), 0, 9).iter().map(|piece| piece.2).collect();
        assert_eq!(
            flags,
            [Flags::ACK.with(Flags::CWR), Flags::ACK, Flags::ACK.with(Flags::PSH).with(Flags::FIN)]
        );
    }

    /// The next call returns the pieces that were not taken, within the limit of that call.
    #[test]
    fn cutting_can_be_resumed() {
        let (mut transmit, ack, first) = (transmit(450, Flags::ACK), Flags::ACK, u32::MAX - 99);
        assert_eq!(pieces(&mut transmit, 0, 1), [(first, 100, ack)]);
        assert!(!transmit.is_cut_up());
        assert_eq!(pieces(&mut transmit, 200, 1), [(0, 200, ack)]);
        assert_eq!(pieces(&mut transmit, 0, 9), [(200, 100, ack), (300, 50, ack)]);
        assert!(transmit.is_cut_up());
        assert_eq!(pieces(&mut transmit, 0, 9), []);
    }
}
