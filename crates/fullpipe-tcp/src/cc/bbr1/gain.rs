//! Gains, and products of rates and times, in integers.
//!
//! Exact to a byte over the whole range, 8 kbit/s to 1 Tbit/s and 10 us to 10 s. Nearly all products
//! fit 64 bits, where a division is ten times cheaper than in 128; the few others take the long way.

use fullpipe_units::{Bytes, Duration, Rate};

/// Pacing stays this many percent below the bandwidth, so that a queue that exists drains, slowly.
const PACING_MARGIN_PERCENT: u64 = 1;

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// A factor in 1/256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Gain(u64);

impl Gain {
    const ONE: u64 = 256;

    pub(super) const UNIT: Self = Self(Self::ONE);

    /// `num / den` rounded down to 1/256, plus `extra` of these.
    pub(super) const fn of(num: u64, den: u64, extra: u64) -> Self {
        Self(Self::ONE * num / den + extra)
    }

    /// This times `bytes`.
    pub(super) fn times(self, bytes: u64) -> u64 {
        bytes.saturating_mul(self.0) / Self::ONE
    }

    /// This times `rate`, less the margin.
    pub(super) fn pacing(self, rate: Rate) -> Rate {
        const DENOMINATOR: u64 = Gain::ONE * 100;
        let numerator = self.0 * (100 - PACING_MARGIN_PERCENT);
        match rate.as_bps().checked_mul(numerator) {
            Some(product) => Rate::from_bps(product / DENOMINATOR),
            None => rate.mul_div(numerator, DENOMINATOR),
        }
    }

    /// For traces.
    pub(super) fn as_f64(self) -> f64 {
        self.0 as f64 / Self::ONE as f64
    }
}

/// The bytes that flow at `rate` in `span`.
pub(super) fn amount(rate: Rate, span: Duration) -> u64 {
    match rate.as_bps().checked_mul(span.as_nanos()) {
        Some(bit_nanos) => bit_nanos / (8 * NANOS_PER_SEC),
        None => (rate * span).get(),
    }
}

/// The rate at which `bytes` flow in `span`, which is not empty.
pub(super) fn rate_of(bytes: u64, span: Duration) -> Rate {
    match bytes.checked_mul(8 * NANOS_PER_SEC) {
        Some(bit_nanos) => Rate::from_bps(bit_nanos / span.as_nanos()),
        None => Rate::of(Bytes::new(bytes), span),
    }
}
