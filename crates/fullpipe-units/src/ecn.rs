//! ECN field of the IP header.

/// ECN field of an IP header (RFC 3168 section 5), with the codepoint values of the header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ecn {
    /// Not ECN-capable: a congested queue drops the packet.
    #[default]
    NotEct = 0,
    /// ECN-capable transport, ECT(1): the codepoint of L4S (RFC 9331).
    Ect1 = 1,
    /// ECN-capable transport, ECT(0): the codepoint that RFC 3168 senders set.
    Ect0 = 2,
    /// Congestion experienced (CE): a queue has marked the packet instead of dropping it.
    Ce = 3,
}

impl Ecn {
    /// Returns the ECN field: the two lowest bits of the IPv6 traffic class or the IPv4 type-of-service byte.
    pub const fn from_bits(traffic_class: u8) -> Self {
        match traffic_class & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// Returns the two bits of the ECN field as they appear in the IP header.
    pub const fn bits(self) -> u8 {
        self as u8
    }

    /// Returns whether the packet is ECN-capable: a queue may mark it instead of dropping it.
    pub const fn is_capable(self) -> bool {
        !matches!(self, Self::NotEct)
    }

    /// Returns whether the packet has a congestion mark (CE).
    pub const fn is_marked(self) -> bool {
        matches!(self, Self::Ce)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3168 section 5: 01 is ECT(1), 10 is ECT(0), and the adjacent DSCP bits are ignored.
    #[test]
    fn codepoints_are_those_of_the_header() {
        for (bits, ecn) in [(0, Ecn::NotEct), (1, Ecn::Ect1), (2, Ecn::Ect0), (3, Ecn::Ce)] {
            assert_eq!((Ecn::from_bits(bits | 0xb8), ecn.bits()), (ecn, bits));
            assert_eq!((ecn.is_capable(), ecn.is_marked()), (bits > 0, bits == 3));
        }
    }
}
