//! Internet checksum (RFC 1071).

/// Returns the sum of the 16-bit words of `bytes`; a zero octet pads an odd last octet. The sums of parts
/// that begin at even offsets can be added up.
pub fn sum(bytes: &[u8]) -> u64 {
    bytes.chunks(2).map(|pair| u64::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]))).sum()
}

/// Folds `sum` into a 16-bit one's complement sum, whose complement is the checksum.
pub fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
