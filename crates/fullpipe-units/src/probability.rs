//! Probabilities, stored as integer thresholds.

use core::fmt;
use core::str::FromStr;

use crate::parse::{self, ParseUnitError};

/// Probability from 0 to 1 in steps of 2^-63.
///
/// A draw is compared with the threshold without floating-point arithmetic, so that the same packet is lost
/// on every machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Probability(u64);

impl Probability {
    /// Probability of an event that never happens.
    pub const ZERO: Self = Self(0);
    /// Probability of an event that always happens.
    pub const ONE: Self = Self(1 << 63);

    /// Returns the probability `numerator / denominator`, clamped to 1, or zero if the denominator is zero.
    pub const fn from_ratio(numerator: u64, denominator: u64) -> Self {
        if denominator == 0 {
            return Self::ZERO;
        }
        if numerator >= denominator {
            return Self::ONE;
        }
        Self((((numerator as u128) << 63) / denominator as u128) as u64)
    }

    /// Returns the probability of `ppm` parts per million.
    pub const fn from_ppm(ppm: u64) -> Self {
        Self::from_ratio(ppm, 1_000_000)
    }

    /// Converts a fraction given as a float into a probability, for values estimated from a log. The fraction
    /// is clamped to 0..=1, and NaN becomes 0.
    pub fn from_f64(fraction: f64) -> Self {
        Self(((fraction.clamp(0.0, 1.0) * Self::ONE.0 as f64) as u64).min(Self::ONE.0))
    }

    /// Returns the probability as a float, for reports only.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / Self::ONE.0 as f64
    }

    /// Returns the probability in steps of 2^-63, to pass it to another process exactly.
    pub const fn threshold(self) -> u64 {
        self.0
    }

    /// Creates a probability from its value in steps of 2^-63; returns `None` above 1.
    pub const fn from_threshold(threshold: u64) -> Option<Self> {
        if threshold <= Self::ONE.0 { Some(Self(threshold)) } else { None }
    }

    /// Returns whether an event of this probability occurs for `draw`, a random number that is uniform over
    /// all values of `u64`.
    pub const fn hits(self, draw: u64) -> bool {
        draw >> 1 < self.0
    }

    /// Returns whether the probability is zero.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fraction = self.as_f64();
        // The loss rate of a typical link is a few parts per million, and "0.002 %" is easy to misread.
        if fraction > 0.0 && fraction < 0.001 {
            parse::write_scaled(f, fraction * 1e6, " ppm")
        } else {
            parse::write_scaled(f, fraction * 100.0, " %")
        }
    }
}

/// Hint for a probability that is out of range.
const RANGE: &str = "write a share from 0% to 100%, for example 1.5%";

impl FromStr for Probability {
    type Err = ParseUnitError;

    /// Parses a probability such as `"1.5%"`, `"20ppm"` or `"0"`.
    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let (number, unit) = parse::split("probability", text)?;
        let per_unit = match unit {
            "%" => Self::ONE.0 as u128 / 100,
            "ppm" => Self::ONE.0 as u128 / 1_000_000,
            "" if number.is_zero() => return Ok(Self::ZERO),
            "" => return Err(ParseUnitError::no_unit("probability", text, "write 1.5% or 20ppm")),
            _ => return Err(ParseUnitError::unknown_unit("probability", text, "use % or ppm")),
        };
        let whole = if unit == "%" { 100 } else { 1_000_000 };
        if number.exceeds(whole) {
            return Err(ParseUnitError::out_of_range("probability", text, RANGE));
        }
        // This maps 100 % to exactly ONE. 100 * (ONE / 100) would be less, because the division rounds down.
        if number.equals(whole) {
            return Ok(Self::ONE);
        }
        let threshold = number.scaled_wide(per_unit).and_then(|n| u64::try_from(n).ok());
        threshold.map(Self).ok_or_else(|| ParseUnitError::out_of_range("probability", text, RANGE))
    }
}
