//! Segment headers as values; the payload is only a length, as the engine does not handle its bytes.

use fullpipe_units::{Ecn, Instant};

use super::SeqNum;

/// Control bits of a TCP header that the engine uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(u8);

impl Flags {
    /// Sender has finished sending.
    pub const FIN: Self = Self(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Reset the connection.
    pub const RST: Self = Self(0x04);
    /// Push the data to the application.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgement field is valid.
    pub const ACK: Self = Self(0x10);

    /// ECN-Echo: data with a congestion mark has arrived (RFC 3168 section 6.1).
    pub const ECE: Self = Self(0x40);
    /// Congestion window reduced, in answer to ECN-Echo (RFC 3168 section 6.1).
    pub const CWR: Self = Self(0x80);

    /// Returns whether all bits of `other` are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether SYN, FIN and RST are all clear: then a segment without payload is a pure
    /// acknowledgement.
    pub const fn is_plain(self) -> bool {
        self.0 & (Self::SYN.0 | Self::FIN.0 | Self::RST.0) == 0
    }

    /// Returns whether ACK, RST or SYN is set; in a synchronised state other segments are dropped (RFC 9293
    /// section 3.10.7.4).
    pub(crate) const fn may_be_handled(self) -> bool {
        self.0 & (Self::ACK.0 | Self::RST.0 | Self::SYN.0) != 0
    }

    /// Returns the flags in the eight bits of a header. Bits without a name here (URG) are kept and ignored.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// Returns the bits as in a header.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns these flags without those of `other`.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the union of both.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Timestamps option (RFC 7323), in ticks of a millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timestamps {
    /// Clock of the sender.
    pub value: u32,
    /// Echo of the other side's clock.
    pub echo: u32,
}

impl Timestamps {
    /// Returns this side's clock at `now` in milliseconds; it starts above zero.
    pub(crate) fn clock(now: Instant) -> u32 {
        // Truncation makes the clock wrap, as RFC 7323 expects.
        (now.as_nanos() / 1_000_000) as u32 + 1
    }
}

/// Options that only a SYN carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SynOptions {
    /// Largest segment that the sender accepts, TCP options not deducted (RFC 9293 section 3.7.1); zero if
    /// the option is absent.
    pub mss: u16,
    /// Shift of the sender's later windows (RFC 7323 section 2.2).
    pub window_scale: Option<u8>,
    /// Whether the sender accepts selective acknowledgements (RFC 2018).
    pub sack_permitted: bool,
}

/// Up to four SACK blocks, the newest first (RFC 2018); the first may report a duplicate (RFC 2883).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlocks {
    blocks: [(SeqNum, SeqNum); 4],
    /// As wide as a sequence number, so that a copy of the struct moves it in one piece.
    len: u32,
}

impl SackBlocks {
    /// Appends a block; returns false when there is no room.
    pub fn push(&mut self, start: SeqNum, end: SeqNum) -> bool {
        let Some(slot) = self.blocks.get_mut(self.len as usize) else { return false };
        *slot = (start, end);
        self.len += 1;
        true
    }

    /// Returns the blocks in the order in which they are sent.
    pub fn iter(&self) -> impl Iterator<Item = (SeqNum, SeqNum)> + '_ {
        self.blocks[..self.len as usize].iter().copied()
    }

    /// Returns the number of blocks.
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns whether there is no block.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Segment, or a super-segment that is cut into several on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Sequence number of the first octet.
    pub seq: SeqNum,
    /// Next octet expected from the other side.
    pub ack: SeqNum,
    /// Payload bytes.
    pub len: u32,
    /// Window as in the header, before scaling.
    pub window: u16,
    /// Control bits.
    pub flags: Flags,
    /// Timestamps option, if negotiated.
    pub timestamps: Option<Timestamps>,
    /// Options of a SYN; `None` in other segments.
    pub syn: Option<SynOptions>,
    /// SACK blocks.
    pub sack: SackBlocks,
    /// ECN field of the packet, as sent or as received.
    pub ecn: Ecn,
}

impl Segment {
    /// Returns the octets of sequence space: the payload, and one each for SYN and FIN.
    pub fn seq_len(&self) -> u64 {
        u64::from(self.len) + u64::from(self.flags.has(Flags::SYN)) + u64::from(self.flags.has(Flags::FIN))
    }

    /// Returns [`Self::syn`], but reads it only in a SYN. In a segment just created, `None` was written as a
    /// single byte, and a copy of the whole field would wait until that byte is in the cache.
    #[inline]
    pub fn syn_options(&self) -> Option<SynOptions> {
        if self.flags.has(Flags::SYN) { self.syn } else { None }
    }

    /// Returns the bytes of IPv4 and TCP header, options padded to a multiple of four.
    pub fn header_len(&self) -> u32 {
        let timestamps = if self.timestamps.is_some() { 12 } else { 0 };
        let syn = self.syn_options().map_or(0, |syn| {
            let mss = if syn.mss > 0 { 4 } else { 0 };
            let window_scale = if syn.window_scale.is_some() { 4 } else { 0 };
            // With timestamps, SACK permitted fits into the two bytes of their padding.
            let sack_permitted = if syn.sack_permitted && self.timestamps.is_none() { 4 } else { 0 };
            mss + window_scale + sack_permitted
        });
        let sack = if self.sack.is_empty() { 0 } else { 4 + 8 * self.sack.len() as u32 };
        20 + 20 + timestamps + syn + sack
    }
}
