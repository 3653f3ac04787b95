//! Sequence numbers modulo 2^32 (RFC 9293 section 3.4).

/// Sequence number on the wire.
///
/// Inside the engine, positions are 64-bit offsets that never wrap. At the interface, the engine converts a
/// sequence number to an offset by its distance from a known sequence number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SeqNum(pub u32);

impl SeqNum {
    /// Returns the sequence number `distance` octets after this one.
    pub const fn plus(self, distance: u64) -> Self {
        // The truncation to 32 bits reduces the distance modulo 2^32.
        Self(self.0.wrapping_add(distance as u32))
    }

    /// Returns the signed distance from `origin` to this sequence number, at least -2^31 and below 2^31.
    pub const fn distance_from(self, origin: Self) -> i32 {
        self.0.wrapping_sub(origin.0) as i32
    }

    /// Returns the stream offset of this sequence number if a nearby sequence number `origin` has stream
    /// offset `offset`. Returns `None` if the result would be negative.
    pub const fn offset_near(self, origin: Self, offset: u64) -> Option<u64> {
        offset.checked_add_signed(self.distance_from(origin) as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_survive_the_wrap() {
        let origin = SeqNum(u32::MAX - 4);
        assert_eq!(origin.plus(10), SeqNum(5));
        assert_eq!(SeqNum(5).offset_near(origin, 1 << 40), Some((1 << 40) + 10));
        assert_eq!(origin.offset_near(SeqNum(5), 10), Some(0));
        assert_eq!(origin.offset_near(SeqNum(5), 9), None);
    }
}
