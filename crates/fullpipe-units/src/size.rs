//! Sizes in bytes.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use core::str::FromStr;

use crate::parse::{self, ParseUnitError};

/// Amount of data in bytes; arithmetic saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(u64);

impl Bytes {
    /// A size of zero.
    pub const ZERO: Self = Self(0);
    /// The largest size, above the size of any buffer; it means "not limited".
    pub const MAX: Self = Self(u64::MAX);

    /// Returns a size of `n` bytes.
    pub const fn new(n: u64) -> Self {
        Self(n)
    }

    /// Returns a size of `n` times 1024 bytes.
    pub const fn from_kib(n: u64) -> Self {
        Self(n << 10)
    }

    /// Returns a size of `n` times 1024 x 1024 bytes.
    pub const fn from_mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// Returns the number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns whether the size is zero.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Returns this size minus `other`, or zero if `other` is larger.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Returns this size times `num / den`. The intermediate product is not rounded.
    #[inline]
    pub const fn mul_div(self, num: u64, den: u64) -> Self {
        // 64 bits are sufficient for every buffer. The largest amounts need 128 bits.
        if let Some(product) = self.0.checked_mul(num) {
            return Self(product / den);
        }
        let product = self.0 as u128 * num as u128 / den as u128;
        Self(if product > u64::MAX as u128 { u64::MAX } else { product as u64 })
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Bytes {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.saturating_sub(other)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            n if n >= 1 << 30 => (n as f64 / (1u64 << 30) as f64, " GiB"),
            n if n >= 1 << 20 => (n as f64 / (1u64 << 20) as f64, " MiB"),
            n if n >= 1 << 10 => (n as f64 / (1u64 << 10) as f64, " KiB"),
            n => (n as f64, " B"),
        };
        parse::write_scaled(f, value, unit)
    }
}

impl FromStr for Bytes {
    type Err = ParseUnitError;

    /// Parses a size such as `"4MiB"`, `"64 KiB"`, `"250MB"` (decimal), `"1040"` or `"1040B"`.
    ///
    /// # Errors
    /// Rejects `4M` as ambiguous: tools disagree on whether it is 4 000 000 or 4 194 304.
    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let (number, unit) = parse::split("size", text)?;
        let bytes = match unit {
            "" | "B" => 1,
            "K" | "k" | "M" | "m" | "G" | "g" => {
                let prefix = unit.to_ascii_uppercase();
                let hint = format!("write {prefix}iB (powers of 1024) or {prefix}B (powers of 1000)");
                return Err(ParseUnitError::ambiguous("size", text, hint));
            }
            _ => {
                let prefix = unit.strip_suffix('B').unwrap_or(unit);
                let binary = parse::binary_prefix(prefix);
                let decimal = unit
                    .ends_with('B')
                    .then(|| parse::decimal_prefix(&prefix.to_ascii_lowercase()))
                    .flatten();
                binary.or(decimal).ok_or_else(|| {
                    ParseUnitError::unknown_unit("size", text, "use B, KiB, MiB, GiB, kB, MB or GB")
                })?
            }
        };
        number.scaled(bytes).map(Self).ok_or_else(|| ParseUnitError::out_of_range("size", text, ""))
    }
}
