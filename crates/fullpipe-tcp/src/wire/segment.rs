//! Segment headers as values. Only a length represents the payload, because the engine does not handle
//! payload bytes.

use fullpipe_units::{Ecn, Instant};

use super::SeqNum;

/// TCP header control bits that the engine uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(u8);

impl Flags {
    /// FIN: the sender has finished sending.
    pub const FIN: Self = Self(0x01);
    /// SYN: synchronise sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// RST: reset the connection.
    pub const RST: Self = Self(0x04);
    /// PSH: push the data to the application.
    pub const PSH: Self = Self(0x08);
    /// ACK: the acknowledgement field is valid.
    pub const ACK: Self = Self(0x10);

    /// ECE (ECN-Echo): data with a congestion mark has arrived (RFC 3168 section 6.1).
    pub const ECE: Self = Self(0x40);
    /// CWR: the congestion window was reduced in response to ECN-Echo (RFC 3168 section 6.1).
    pub const CWR: Self = Self(0x80);

    /// Returns whether all flags of `other` are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether SYN, FIN and RST are all clear. A segment without payload is then a pure ACK.
    pub const fn is_plain(self) -> bool {
        self.0 & (Self::SYN.0 | Self::FIN.0 | Self::RST.0) == 0
    }

    /// Returns whether ACK, RST or SYN is set. In a synchronised state, the connection drops other segments
    /// (RFC 9293 section 3.10.7.4).
    pub(crate) const fn may_be_handled(self) -> bool {
        self.0 & (Self::ACK.0 | Self::RST.0 | Self::SYN.0) != 0
    }

    /// Returns the flags for the eight control bits of a TCP header. Bits that have no name in this type
    /// (URG) are kept but ignored.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// Returns the eight control bits as they appear in a TCP header.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns the flags that are set in `self` but not in `other`.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the flags that are set in `self` or in `other`.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Timestamps option (RFC 7323), in ticks of one millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timestamps {
    /// Timestamp clock of the sender (TSval).
    pub value: u32,
    /// Echo of the peer's timestamp (TSecr).
    pub echo: u32,
}

impl Timestamps {
    /// Returns this side's timestamp clock at `now`, in milliseconds. The clock starts at 1.
    pub(crate) fn clock(now: Instant) -> u32 {
        // The truncation to 32 bits makes the clock wrap around, as RFC 7323 expects.
        (now.as_nanos() / 1_000_000) as u32 + 1
    }
}

/// TCP options that only a SYN carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SynOptions {
    /// Maximum segment size that the sender of the SYN accepts, without a deduction for TCP options (RFC 9293
    /// section 3.7.1); zero if the option is absent.
    pub mss: u16,
    /// Window scale shift that the sender of the SYN uses in later segments (RFC 7323 section 2.2).
    pub window_scale: Option<u8>,
    /// Whether the sender of the SYN accepts selective acknowledgements (RFC 2018).
    pub sack_permitted: bool,
}

/// Up to four SACK blocks, newest first (RFC 2018). The first block may report a duplicate (RFC 2883).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlocks {
    blocks: [(SeqNum, SeqNum); 4],
    /// Number of blocks. The field is as wide as a sequence number, so that the struct has no padding and can
    /// be copied in one piece.
    len: u32,
}

impl SackBlocks {
    /// Appends a SACK block. Returns false if there is no room for the block.
    pub fn push(&mut self, start: SeqNum, end: SeqNum) -> bool {
        let Some(slot) = self.blocks.get_mut(self.len as usize) else { return false };
        *slot = (start, end);
        self.len += 1;
        true
    }

    /// Returns the SACK blocks in the order in which they are sent.
    pub fn iter(&self) -> impl Iterator<Item = (SeqNum, SeqNum)> + '_ {
        self.blocks[..self.len as usize].iter().copied()
    }

    /// Returns the number of SACK blocks.
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns whether there are no SACK blocks.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Returns the first of the SACK `blocks` if it reports a duplicate, that is, if it lies below the cumulative
/// acknowledgement `ack` or inside the second block (D-SACK, RFC 2883 section 4).
#[inline]
pub fn reported_duplicate<T: Copy + Ord>(blocks: &[(T, T)], ack: T) -> Option<(T, T)> {
    match *blocks {
        [first, ..] if first.1 <= ack => Some(first),
        [first, outer, ..] if outer.0 <= first.0 && first.1 <= outer.1 => Some(first),
        _ => None,
    }
}

/// Segment, or super-segment that is split into several segments on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Sequence number of the segment's first octet.
    pub seq: SeqNum,
    /// Acknowledgement number: the next octet expected from the peer.
    pub ack: SeqNum,
    /// Payload length in bytes.
    pub len: u32,
    /// Window field as it appears in the header, before scaling.
    pub window: u16,
    /// Control bits of the segment.
    pub flags: Flags,
    /// Timestamps option, if negotiated.
    pub timestamps: Option<Timestamps>,
    /// Options of a SYN; `None` in all other segments.
    pub syn: Option<SynOptions>,
    /// SACK blocks of the segment.
    pub sack: SackBlocks,
    /// ECN field of the packet that carries the segment, as sent or as received.
    pub ecn: Ecn,
}

impl Segment {
    /// Returns the length of the segment in sequence space: its payload, plus one octet each for SYN and FIN.
    pub fn seq_len(&self) -> u64 {
        u64::from(self.len) + u64::from(self.flags.has(Flags::SYN)) + u64::from(self.flags.has(Flags::FIN))
    }

    /// Returns [`Self::syn`], but reads the field only if the segment is a SYN. A newly created segment
    /// stores `None` as a single byte, and a copy of the whole field would stall until that store completes.
    #[inline]
    pub fn syn_options(&self) -> Option<SynOptions> {
        if self.flags.has(Flags::SYN) { self.syn } else { None }
    }

    /// Returns the length of the IPv4 and TCP headers in bytes. TCP options are padded to a multiple of four
    /// bytes.
    #[inline]
    pub fn header_len(&self) -> u32 {
        let timestamps = if self.timestamps.is_some() { 12 } else { 0 };
        let syn = self.syn_options().map_or(0, |syn| {
            let mss = if syn.mss > 0 { 4 } else { 0 };
            let window_scale = if syn.window_scale.is_some() { 4 } else { 0 };
            // If timestamps are present, the SACK-permitted option takes the place of their two padding
            // bytes.
            let sack_permitted = if syn.sack_permitted && self.timestamps.is_none() { 4 } else { 0 };
            mss + window_scale + sack_permitted
        });
        let sack = if self.sack.is_empty() { 0 } else { 4 + 8 * self.sack.len() as u32 };
        20 + 20 + timestamps + syn + sack
    }
}
