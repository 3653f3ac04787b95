//! A segment's header as a value. Payload is a length only: the engine never sees bytes.

use fullpipe_units::{Ecn, Instant};

use super::SeqNum;

/// Control bits, as far as the engine uses them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(u8);

impl Flags {
    /// Sender has finished.
    pub const FIN: Self = Self(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Reset.
    pub const RST: Self = Self(0x04);
    /// Push.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgement field is valid.
    pub const ACK: Self = Self(0x10);

    /// ECN-Echo: marked data has arrived (RFC 3168 section 6.1).
    pub const ECE: Self = Self(0x40);
    /// Congestion window reduced, in answer to it.
    pub const CWR: Self = Self(0x80);

    /// All bits of `other` are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Neither SYN, FIN nor RST: without payload it is a pure acknowledgement.
    pub const fn is_plain(self) -> bool {
        self.0 & (Self::SYN.0 | Self::FIN.0 | Self::RST.0) == 0
    }

    /// Has an ACK, or is a RST or SYN: in a synchronised state everything else is dropped (RFC 9293 section 3.10.7.4).
    pub(crate) const fn may_be_handled(self) -> bool {
        self.0 & (Self::ACK.0 | Self::RST.0 | Self::SYN.0) != 0
    }

    /// Eight bits of a header. One that has no name here (URG) is kept and means nothing.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// The bits as they stand in a header.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// This set less the bits of `other`.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Both sets together.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The timestamps option (RFC 7323), in ticks of a millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timestamps {
    /// The sender's clock.
    pub value: u32,
    /// The other side's clock, echoed.
    pub echo: u32,
}

impl Timestamps {
    /// This side's clock at `now`: milliseconds, starting above zero.
    pub(crate) fn clock(now: Instant) -> u32 {
        // Truncation is the option's own wrap.
        (now.as_nanos() / 1_000_000) as u32 + 1
    }
}

/// Options that only a SYN carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SynOptions {
    /// Largest segment the sender takes; TCP options are not deducted (RFC 9293 section 3.7.1). Zero: it does not say.
    pub mss: u16,
    /// Shift of the sender's later windows (RFC 7323 section 2.2).
    pub window_scale: Option<u8>,
    /// Selective acknowledgements are welcome (RFC 2018).
    pub sack_permitted: bool,
}

/// Up to four SACK blocks, the newest first (RFC 2018); the first may report a duplicate (RFC 2883).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlocks {
    blocks: [(SeqNum, SeqNum); 4],
    /// As wide as what stands beside it, so that a copy takes it in one piece.
    len: u32,
}

impl SackBlocks {
    /// Adds a block behind the others; false when there is no room.
    pub fn push(&mut self, start: SeqNum, end: SeqNum) -> bool {
        let Some(slot) = self.blocks.get_mut(self.len as usize) else { return false };
        *slot = (start, end);
        self.len += 1;
        true
    }

    /// The blocks, first as sent.
    pub fn iter(&self) -> impl Iterator<Item = (SeqNum, SeqNum)> + '_ {
        self.blocks[..self.len as usize].iter().copied()
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// There are none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// One segment, or a super-segment that will be cut into several on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Sequence number of its first octet.
    pub seq: SeqNum,
    /// Next octet expected from the other side.
    pub ack: SeqNum,
    /// Payload bytes.
    pub len: u32,
    /// Window as it stands in the header, before scaling.
    pub window: u16,
    /// Control bits.
    pub flags: Flags,
    /// Timestamps, once agreed.
    pub timestamps: Option<Timestamps>,
    /// Options of a SYN; no other segment has them.
    pub syn: Option<SynOptions>,
    /// Selective acknowledgements.
    pub sack: SackBlocks,
    /// ECN field of the packet: as it is sent, or as it arrived.
    pub ecn: Ecn,
}

impl Segment {
    /// Octets of sequence space: payload, and one each for SYN and FIN.
    pub fn seq_len(&self) -> u64 {
        u64::from(self.len) + u64::from(self.flags.has(Flags::SYN)) + u64::from(self.flags.has(Flags::FIN))
    }

    /// [`Self::syn`], read only where it can be. In a segment that has just been made its absence is one byte,
    /// and a copy of all its bytes would wait until that is in the cache.
    #[inline]
    pub fn syn_options(&self) -> Option<SynOptions> {
        if self.flags.has(Flags::SYN) { self.syn } else { None }
    }

    /// Bytes of IPv4 and TCP header, options padded to four.
    pub fn header_len(&self) -> u32 {
        let timestamps = if self.timestamps.is_some() { 12 } else { 0 };
        let syn = self.syn_options().map_or(0, |syn| {
            let mss = if syn.mss > 0 { 4 } else { 0 };
            let window_scale = if syn.window_scale.is_some() { 4 } else { 0 };
            // With timestamps the two bytes fit where their padding was.
            let sack_permitted = if syn.sack_permitted && self.timestamps.is_none() { 4 } else { 0 };
            mss + window_scale + sack_permitted
        });
        let sack = if self.sack.is_empty() { 0 } else { 4 + 8 * self.sack.len() as u32 };
        20 + 20 + timestamps + syn + sack
    }
}
