//! Keyed random numbers: a draw is a hash of its key.
//!
//! With a stateful generator, every draw would depend on the draws before it: adding a flow or changing the
//! congestion control would shift the losses of all flows, so runs could not be compared in pairs. A keyed
//! draw depends only on its key.

/// Returns 64 uniform random bits for decision number `ordinal` of `stream` under `seed`.
///
/// The mixer is the output function of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom
/// number generators", OOPSLA 2014) with the constants of David Stafford's variant 13. The mixer is applied
/// once per part of the key, so that draws of neighbouring keys are unrelated.
pub const fn draw(seed: u64, stream: u64, ordinal: u64) -> u64 {
    Draws::new(seed, stream).at(ordinal)
}

/// Random draws of one stream under one seed. Both parts of the key are mixed in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draws {
    key: u64,
}

impl Draws {
    /// Returns the random draws of `stream` under `seed`.
    pub const fn new(seed: u64, stream: u64) -> Self {
        Self { key: mix(mix(seed.wrapping_add(GOLDEN)) ^ stream.wrapping_add(GOLDEN)) }
    }

    /// Returns random draw number `ordinal`: 64 uniformly distributed bits.
    pub const fn at(self, ordinal: u64) -> u64 {
        mix(self.key.wrapping_add(ordinal.wrapping_mul(GOLDEN)))
    }
}

/// Increment of the SplitMix64 generator: 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
