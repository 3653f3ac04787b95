//! Instants and durations, in whole nanoseconds.

use core::fmt;
use core::ops::{Add, AddAssign, Div, Mul, Sub};
use core::str::FromStr;

use crate::parse::{self, ParseUnitError};

/// Point in time, in nanoseconds since the start of the run.
///
/// Unlike an operating system's clock, the time starts at zero and can be serialised. The driver of the
/// engine defines time zero; the engine never reads a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The start of the run.
    pub const ZERO: Self = Self(0);
    /// The latest instant, after any event; it means "never".
    pub const FAR_FUTURE: Self = Self(u64::MAX);

    /// Returns the instant `nanos` nanoseconds after the start of the run.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the number of nanoseconds since the start of the run.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the number of seconds since the start of the run, for reports only.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Returns the time from `earlier` to this instant, or zero if `earlier` is later.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }

    /// Returns the instant `span` before this one, but not before the start of the run.
    pub const fn saturating_sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(span.0))
    }

    /// Returns whether this instant is [`Instant::FAR_FUTURE`].
    pub const fn is_never(self) -> bool {
        self.0 == u64::MAX
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    /// Returns the instant `span` after this one; saturates at [`Instant::FAR_FUTURE`].
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_never() { f.write_str("never") } else { write!(f, "{:.6}s", self.as_secs_f64()) }
    }
}

/// Span of time in nanoseconds; arithmetic saturates.
///
/// The type takes half the memory of [`std::time::Duration`]. It also does not split the time into seconds
/// and nanoseconds, which would cost a division at every use in the packet loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(u64);

impl Duration {
    /// A duration of zero.
    pub const ZERO: Self = Self(0);
    /// The longest duration, longer than any run.
    pub const MAX: Self = Self(u64::MAX);

    /// Returns a duration of `nanos` nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns a duration of `micros` microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// Returns a duration of `millis` milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Returns a duration of `secs` seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// Returns a duration of `secs` seconds, which may have a fraction; for values read from reports.
    /// Negative values and NaN become zero.
    pub fn from_secs_f64(secs: f64) -> Self {
        // `as` saturates and maps NaN to zero.
        Self((secs * 1e9).round() as u64)
    }

    /// Returns the duration in nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the duration in whole microseconds, rounded down.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// Returns the duration in whole milliseconds, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Returns the duration in fractional milliseconds, for reports only.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Returns the duration in fractional seconds, for reports only.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Returns whether the duration is zero.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Returns this duration minus `other`, or zero if `other` is longer.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Returns the absolute difference of two durations.
    pub const fn abs_diff(self, other: Self) -> Self {
        Self(self.0.abs_diff(other.0))
    }

    /// Returns this duration times `num / den`. The intermediate product is not rounded.
    #[inline]
    pub const fn mul_div(self, num: u64, den: u64) -> Self {
        // 64 bits are sufficient for every round trip. The longest durations need 128 bits.
        if let Some(product) = self.0.checked_mul(num) {
            return Self(product / den);
        }
        let product = self.0 as u128 * num as u128 / den as u128;
        Self(if product > u64::MAX as u128 { u64::MAX } else { product as u64 })
    }
}

impl Add for Duration {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Duration {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Duration {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.saturating_sub(other)
    }
}

impl Mul<u64> for Duration {
    type Output = Self;
    fn mul(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(factor))
    }
}

impl Div<u64> for Duration {
    type Output = Self;
    #[inline]
    fn div(self, divisor: u64) -> Self {
        Self(self.0 / divisor)
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            n if n >= 1_000_000_000 => (n as f64 / 1e9, "s"),
            n if n >= 1_000_000 => (n as f64 / 1e6, "ms"),
            n if n >= 1_000 => (n as f64 / 1e3, "us"),
            n => (n as f64, "ns"),
        };
        parse::write_scaled(f, value, unit)
    }
}

impl FromStr for Duration {
    type Err = ParseUnitError;

    /// Parses a time such as `"210ms"`, `"20s"`, `"1.5ms"`, `"40us"`, `"100ns"` or `"2min"`.
    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let (number, unit) = parse::split("time", text)?;
        let nanos = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" | "sec" => 1_000_000_000,
            "min" => 60_000_000_000,
            "" => return Err(ParseUnitError::no_unit("time", text, "write 210ms or 0.21s")),
            _ => return Err(ParseUnitError::unknown_unit("time", text, "use ns, us, ms, s or min")),
        };
        number.scaled(nanos).map(Self).ok_or_else(|| ParseUnitError::out_of_range("time", text, ""))
    }
}
