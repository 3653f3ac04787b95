//! Limits of path memory, which a configuration may lower.

use fullpipe_units::{Bytes, Rate};

use crate::tunables::{TunableError, within};

/// Size of path memory, and limits on the octets that launches may send above ten segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Number of prefixes that path memory stores; also the number of clients whose budgets it stores.
    pub prefixes: usize,
    /// Octets above ten segments per round trip to one client, for all its connections together.
    pub client: Bytes,
    /// Octets above ten segments per round trip to one prefix, for all its clients together.
    pub prefix: Bytes,
    /// Share of the device's rate that launches above ten segments may use, in thousandths.
    pub device_permille: u32,
}

impl MemoryLimits {
    /// Default limits. These budgets are also the largest permitted budgets, because a larger budget would
    /// take capacity from others on the same path.
    pub const DEFAULT: Self = Self {
        prefixes: 65_536,
        client: Bytes::from_kib(64),
        prefix: Bytes::from_kib(256),
        device_permille: 50,
    };

    /// Returns the rate that launches above ten segments may use on a device with this rate.
    pub(super) fn device_rate(self, rate: Rate) -> Rate {
        rate.mul_div(self.device_permille.into(), 1_000).max(Rate::from_bps(1))
    }

    /// Checks that each limit is within its range.
    ///
    /// # Errors
    /// Returns an error that names the first limit out of its range, and the range.
    pub fn check(&self) -> Result<(), TunableError> {
        let kib = Bytes::from_kib;
        within("prefixes", self.prefixes, 1_024..=65_536, "1024 to 65536")?;
        within("client_budget", self.client, Bytes::ZERO..=kib(64), "0B to 64KiB")?;
        within("prefix_budget", self.prefix, Bytes::ZERO..=kib(256), "0B to 256KiB")?;
        let share = f64::from(self.device_permille) / 10.0;
        within("device_share", share, 0.1..=5.0, "0.1% to 5%")
    }
}

impl Default for MemoryLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}
