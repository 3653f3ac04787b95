//! Integer arithmetic for both versions of BBR: gains, and products of rates and times.
//!
//! Results are accurate to one byte for all rates from 8 kbit/s to 1 Tbit/s and all times from 10 us to 10 s.
//! Nearly all products fit into 64 bits, where a division is ten times cheaper than in 128 bits. All other
//! products use 128 bits.

use fullpipe_units::{Bytes, Duration, Rate};

/// Percentage by which the pacing rate stays below the bandwidth estimate, so that a queue drains slowly
/// (`BBR.PacingMarginPercent`).
const PACING_MARGIN_PERCENT: u64 = 1;

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// Gain factor in units of 1/`ONE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Gain<const ONE: u64>(u64);

impl<const ONE: u64> Gain<ONE> {
    pub(super) const UNIT: Self = Self(ONE);

    /// Returns a gain of `num / den`, rounded down to whole units, plus `extra` units.
    pub(super) const fn of(num: u64, den: u64, extra: u64) -> Self {
        Self(ONE * num / den + extra)
    }

    /// Returns this gain times `bytes`.
    pub(super) fn times(self, bytes: u64) -> u64 {
        bytes.saturating_mul(self.0) / ONE
    }

    /// Returns this gain times `rate`, less the pacing margin.
    pub(super) fn pacing(self, rate: Rate) -> Rate {
        let denominator = ONE * 100;
        let numerator = self.0 * (100 - PACING_MARGIN_PERCENT);
        match rate.as_bps().checked_mul(numerator) {
            Some(product) => Rate::from_bps(product / denominator),
            None => rate.mul_div(numerator, denominator),
        }
    }

    /// Returns this gain times `rate`.
    pub(super) fn of_rate(self, rate: Rate) -> Rate {
        match rate.as_bps().checked_mul(self.0) {
            Some(product) => Rate::from_bps(product / ONE),
            None => rate.mul_div(self.0, ONE),
        }
    }

    /// Returns the gain as a floating-point number, for traces.
    pub(super) fn as_f64(self) -> f64 {
        self.0 as f64 / ONE as f64
    }
}

/// Returns the number of bytes sent at `rate` in `span`.
pub(super) fn amount(rate: Rate, span: Duration) -> u64 {
    match rate.as_bps().checked_mul(span.as_nanos()) {
        Some(bit_nanos) => bit_nanos / (8 * NANOS_PER_SEC),
        None => (rate * span).get(),
    }
}

/// Returns the rate at which `bytes` are sent in `span`, which must not be zero.
pub(super) fn rate_of(bytes: u64, span: Duration) -> Rate {
    match bytes.checked_mul(8 * NANOS_PER_SEC) {
        Some(bit_nanos) => Rate::from_bps(bit_nanos / span.as_nanos()),
        None => Rate::of(Bytes::new(bytes), span),
    }
}
