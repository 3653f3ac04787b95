//! The one source of chance: a hash of what is being decided.
//!
//! A stateful generator would hand every decision the luck of those before it: adding a flow or
//! changing a congestion control would move everybody's losses, and two runs could not be compared
//! in pairs. A keyed draw depends on its key alone.

/// 64 uniform bits for decision number `ordinal` of `stream` under `seed`.
///
/// The mixer is the output function of SplitMix64 (Steele, Lea and Flood, "Fast splittable
/// pseudorandom number generators", OOPSLA 2014) with the constants of David Stafford's variant 13;
/// it is applied once per key part so that neighbouring keys share nothing.
pub const fn draw(seed: u64, stream: u64, ordinal: u64) -> u64 {
    Draws::new(seed, stream).at(ordinal)
}

/// All draws of one `(seed, stream)`: the two outer key parts mixed once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draws {
    key: u64,
}

impl Draws {
    /// The draws of `stream` under `seed`.
    pub const fn new(seed: u64, stream: u64) -> Self {
        Self { key: mix(mix(seed.wrapping_add(GOLDEN)) ^ stream.wrapping_add(GOLDEN)) }
    }

    /// Draw number `ordinal`.
    pub const fn at(self, ordinal: u64) -> u64 {
        mix(self.key.wrapping_add(ordinal.wrapping_mul(GOLDEN)))
    }
}

/// 2^64 divided by the golden ratio: the increment of SplitMix64.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
