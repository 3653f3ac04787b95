//! Memory budget: limits the total size of the buffers of all connections.
//!
//! ```text
//!   held bytes                       level: the largest amount per connection at which all fit into the budget
//!     ▒▒
//!     ▒▒ ▒▒                          the worker reads nothing from the server of a connection above the level
//!   ──██─██─────── level
//!     ██ ██ ██ ██
//! ```
//!
//! Under memory pressure, reading stops first for the connections with the largest buffers. A connection
//! below the level is not affected by other connections.

use fullpipe_units::Bytes;

/// Memory pressure at one time, computed from the buffer sizes of the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressure {
    /// Total size of the buffers of all connections.
    pub held: Bytes,
    /// Buffer size from which data is no longer read from a connection's server; `None` without memory
    /// pressure.
    pub level: Option<Bytes>,
}

impl Pressure {
    /// Memory pressure without any connections.
    pub const NONE: Self = Self { held: Bytes::new(0), level: None };

    /// Computes the level at which the buffer sizes in `held` fit into `budget`. The function sorts `held`.
    pub fn of(budget: Bytes, held: &mut [u64]) -> Self {
        let total: u64 = held.iter().sum();
        let level = (total > budget.get()).then(|| Bytes::new(level(budget.get(), held)));
        Self { held: Bytes::new(total), level }
    }

    /// Returns whether a connection whose buffers hold `held` bytes may read more from its server.
    pub fn admits(&self, held: u64) -> bool {
        self.level.is_none_or(|level| held < level.get())
    }
}

/// Returns the largest level for which the sum of all amounts, each reduced to at most the level, does not
/// exceed `budget`.
fn level(budget: u64, held: &mut [u64]) -> u64 {
    held.sort_unstable();
    let mut left = budget;
    let count = held.len();
    for (below, amount) in held.iter().enumerate() {
        let sharers = (count - below) as u64;
        if amount.saturating_mul(sharers) > left {
            return left / sharers;
        }
        left -= amount;
    }
    u64::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pressure(budget: u64, held: &[u64]) -> Pressure {
        Pressure::of(Bytes::new(budget), &mut held.to_vec())
    }

    #[test]
    fn without_pressure_everybody_reads() {
        let pressure = pressure(100, &[10, 90]);
        assert_eq!((pressure.held, pressure.level), (Bytes::new(100), None));
        assert!(pressure.admits(u64::MAX));
        assert!(Pressure::NONE.admits(u64::MAX));
    }

    /// The connection with the largest buffers stops reading first; connections with small buffers continue.
    #[test]
    fn the_largest_stop_first() {
        let one_large = pressure(100, &[5, 200, 10]);
        assert_eq!(one_large.level, Some(Bytes::new(85)));
        assert!(one_large.admits(10) && !one_large.admits(200));
        assert_eq!(pressure(100, &[200, 200]).level, Some(Bytes::new(50)));
        assert_eq!(pressure(0, &[1]).level, Some(Bytes::new(0)));
    }

    /// At the computed level, the amounts fit into the budget; at a level one byte higher, they would not
    /// fit.
    #[test]
    fn the_level_is_the_largest_that_fits() {
        for seed in 0..200u64 {
            let held: Vec<u64> =
                (0..1 + seed % 17).map(|i| fullpipe_units::draw(seed, 1, i) % 1_000).collect();
            let budget = fullpipe_units::draw(seed, 2, 0) % 5_000;
            let Some(level) = pressure(budget, &held).level else { continue };
            let cut = |level: u64| held.iter().map(|amount| (*amount).min(level)).sum::<u64>();
            assert!(cut(level.get()) <= budget && cut(level.get() + 1) > budget, "{held:?} {budget}");
        }
    }
}
