//! Data rates in bit/s.

use core::fmt;
use core::ops::Mul;
use core::str::FromStr;

use crate::parse::{self, ParseUnitError};
use crate::{Bytes, Duration};

const NANOS_PER_SEC: u128 = 1_000_000_000;

/// Data rate in bit/s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    /// A rate of zero.
    pub const ZERO: Self = Self(0);
    /// The largest rate, above the rate of any link; it means "not limited".
    pub const MAX: Self = Self(u64::MAX);

    /// Returns a rate of `bits` bit/s.
    pub const fn from_bps(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns a rate of `bytes` byte/s; saturates at [`Rate::MAX`].
    pub const fn from_bytes_per_sec(bytes: u64) -> Self {
        Self(bytes.saturating_mul(8))
    }

    /// Returns the rate that transfers `amount` in `span`, or [`Rate::MAX`] if the span is zero.
    #[inline]
    pub const fn of(amount: Bytes, span: Duration) -> Self {
        if span.is_zero() {
            return Self::MAX;
        }
        // 64 bits are sufficient for the data in flight on any path. Whole transfers need 128 bits.
        if let Some(bits_ns) = amount.get().checked_mul(8 * NANOS_PER_SEC as u64) {
            return Self(bits_ns / span.as_nanos());
        }
        let bits = amount.get() as u128 * 8 * NANOS_PER_SEC / span.as_nanos() as u128;
        Self(if bits > u64::MAX as u128 { u64::MAX } else { bits as u64 })
    }

    /// Returns the mean rate of a transfer of `amount` in `span`. If the span is zero, returns
    /// [`Rate::ZERO`], because nothing can be measured.
    #[inline]
    pub const fn mean(amount: Bytes, span: Duration) -> Self {
        if span.is_zero() { Self::ZERO } else { Self::of(amount, span) }
    }

    /// Returns the rate in bit/s.
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// Returns the rate in byte/s, rounded down.
    pub const fn as_bytes_per_sec(self) -> u64 {
        self.0 / 8
    }

    /// Returns the rate in Mbit/s, for reports only.
    pub fn as_mbps_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Returns whether the rate is zero.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Returns the time that a transfer of `amount` takes at this rate, rounded down, or [`Duration::MAX`] at
    /// a rate of zero.
    #[inline]
    pub const fn time_for(self, amount: Bytes) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        // 64 bits are sufficient for every packet. Whole transfers need 128 bits.
        if let Some(bits_ns) = amount.get().checked_mul(8 * NANOS_PER_SEC as u64) {
            return Duration::from_nanos(bits_ns / self.0);
        }
        let nanos = amount.get() as u128 * 8 * NANOS_PER_SEC / self.0 as u128;
        Duration::from_nanos(if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 })
    }

    /// Returns this rate times `num / den`. The intermediate product is not rounded.
    #[inline]
    pub const fn mul_div(self, num: u64, den: u64) -> Self {
        let product = self.0 as u128 * num as u128 / den as u128;
        Self(if product > u64::MAX as u128 { u64::MAX } else { product as u64 })
    }
}

impl Mul<Duration> for Rate {
    type Output = Bytes;
    /// Returns the number of bytes transferred at this rate in `span`, rounded down.
    #[inline]
    fn mul(self, span: Duration) -> Bytes {
        let bytes = u128::from(self.0) * u128::from(span.as_nanos()) / (8 * NANOS_PER_SEC);
        Bytes::new(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            n if n >= 1_000_000_000 => (n as f64 / 1e9, " Gbit/s"),
            n if n >= 1_000_000 => (n as f64 / 1e6, " Mbit/s"),
            n if n >= 1_000 => (n as f64 / 1e3, " kbit/s"),
            n => (n as f64, " bit/s"),
        };
        parse::write_scaled(f, value, unit)
    }
}

impl FromStr for Rate {
    type Err = ParseUnitError;

    /// Parses a rate such as `"1gbit"`, `"1Gbit/s"`, `"94.4 Mbits/sec"`, `"1G"` or `"12.5MB/s"`. Prefixes are
    /// decimal, except for IEC prefixes (`"1MiB/s"`).
    ///
    /// # Errors
    /// Rejects `mbps` and similar units as ambiguous: half of their users mean bytes.
    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let (number, unit) = parse::split("rate", text)?;
        let bits = match unit {
            "" => return Err(ParseUnitError::no_unit("rate", text, "write 100mbit or 1gbit")),
            "K" | "k" => 1_000,
            "M" => 1_000_000,
            "G" | "g" => 1_000_000_000,
            "T" | "t" => 1_000_000_000_000,
            _ => match bits_of_unit(unit) {
                Some(bits) => bits,
                None if unit.to_ascii_lowercase().ends_with("bps") => {
                    let prefix = &unit[..unit.len() - 3];
                    return Err(ParseUnitError::ambiguous(
                        "rate",
                        text,
                        format!("write {prefix}bit/s for bits or {prefix}B/s for bytes"),
                    ));
                }
                None => {
                    return Err(ParseUnitError::unknown_unit(
                        "rate",
                        text,
                        "use bit, kbit, mbit, gbit or tbit (per second), or kB/s, MB/s",
                    ));
                }
            },
        };
        number.scaled(bits).map(Self).ok_or_else(|| ParseUnitError::out_of_range("rate", text, ""))
    }
}

/// Returns the number of bit/s in one `unit`, or `None` if the unit does not show whether it counts bits or
/// bytes.
fn bits_of_unit(unit: &str) -> Option<u64> {
    let (amount, per_second) = match unit.split_once('/') {
        Some((amount, "s" | "sec")) => (amount, true),
        Some(_) => return None,
        None => (unit, false),
    };
    let lower = amount.to_ascii_lowercase();
    if let Some(prefix) = lower.strip_suffix("bits").or_else(|| lower.strip_suffix("bit")) {
        return parse::decimal_prefix(prefix);
    }
    // A rate in bytes requires `/s`, because "MB" alone is a size.
    let prefix = amount.strip_suffix('B').filter(|_| per_second)?;
    parse::decimal_prefix(&prefix.to_ascii_lowercase())
        .or_else(|| parse::binary_prefix(prefix))
        .map(|bytes| bytes * 8)
}
