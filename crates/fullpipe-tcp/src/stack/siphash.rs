//! SipHash-2-4, a keyed hash that is unpredictable without the key (Aumasson, Bernstein: "SipHash: a fast
//! short-input PRF", 2012).
//!
//! ```text
//!   v = key ^ "somepseudorandomlygeneratedbytes"
//!   each 8 octets m:  v3 ^= m, 2 rounds, v0 ^= m      the last word has the length in its top octet
//!   v2 ^= 0xff, 4 rounds, v0 ^ v1 ^ v2 ^ v3
//! ```

/// Secret 128-bit key of SipHash.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key([u64; 2]);

impl core::fmt::Debug for Key {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        // The key is secret, so it is not printed.
        f.write_str("Key(..)")
    }
}

impl Key {
    /// Returns the key for 16 octets in little-endian order, as in the SipHash paper.
    pub const fn new(octets: [u8; 16]) -> Self {
        let all = u128::from_le_bytes(octets);
        // The truncation splits the 128 bits into two halves.
        Self([all as u64, (all >> 64) as u64])
    }

    /// Returns the SipHash of `message`.
    pub fn hash(self, message: &[u8]) -> u64 {
        let [k0, k1] = self.0;
        let mut v = [
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ];
        let (words, rest) = message.as_chunks::<8>();
        for word in words {
            compress(&mut v, u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        // SipHash appends the message length modulo 256.
        last[7] = message.len() as u8;
        compress(&mut v, u64::from_le_bytes(last));
        v[2] ^= 0xff;
        for _ in 0..4 {
            round(&mut v);
        }
        v[0] ^ v[1] ^ v[2] ^ v[3]
    }
}

fn compress(v: &mut [u64; 4], word: u64) {
    v[3] ^= word;
    round(v);
    round(v);
    v[0] ^= word;
}

fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hashes match the example in appendix A of the SipHash paper and the first vectors of its reference
    /// code. The key is 00 01 .. 0f, and the message is 00 01 .. of the given length.
    #[test]
    fn published_vectors() {
        let key = Key::new(core::array::from_fn(|i| i as u8));
        let message: [u8; 15] = core::array::from_fn(|i| i as u8);
        assert_eq!(key.hash(&message), 0xa129_ca61_49be_45e5);
        for (len, octets) in [
            (0, [0x31, 0x0e, 0x0e, 0xdd, 0x47, 0xdb, 0x6f, 0x72]),
            (1, [0xfd, 0x67, 0xdc, 0x93, 0xc5, 0x39, 0xf8, 0x74]),
            (2, [0x5a, 0x4f, 0xa9, 0xd9, 0x09, 0x80, 0x6c, 0x0d]),
            (3, [0x2d, 0x7e, 0xfb, 0xd7, 0x96, 0x66, 0x67, 0x85]),
            (7, [0x37, 0xd1, 0x01, 0x8b, 0xf5, 0x00, 0x02, 0xab]),
            (8, [0x62, 0x24, 0x93, 0x9a, 0x79, 0xf5, 0xf5, 0x93]),
        ] {
            assert_eq!(key.hash(&message[..len]), u64::from_le_bytes(octets), "{len} octets");
        }
    }
}
