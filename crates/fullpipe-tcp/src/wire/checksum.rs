//! The Internet checksum (RFC 1071).

/// Sum of the 16-bit words of `bytes`, a last odd one padded with zero. Sums of parts that begin at even offsets may be
/// added up.
pub fn sum(bytes: &[u8]) -> u64 {
    bytes.chunks(2).map(|pair| u64::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]))).sum()
}

/// The sum as a one's complement number of 16 bits; its complement is the checksum.
pub fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
