//! Memory budget: limits the total memory of the buffers of all connections.
//!
//! ```text
//!   held bytes                       level: the largest amount per connection at which all fit into three quarters
//!     ▒▒
//!     ▒▒ ▒▒                          the worker reads nothing from the server of a connection above the level
//!   ──██─██─────── level
//!     ██ ██ ██ ██
//! ```
//!
//! If the buffers take more than three quarters of the budget, reading stops for the connections with the largest
//! buffers. A connection below the level is not affected by other connections. The last quarter of the budget absorbs
//! the growth of buffers between two computations of the level. When seven eighths of the budget are in use, the stack
//! stops the growth of buffers; the last eighth is reserved for connections that do not have buffers yet. The total
//! never exceeds the budget.

use fullpipe_units::Bytes;

/// Share of the budget that buffers may take without memory pressure: three quarters.
const WITHOUT_PRESSURE: (u64, u64) = (3, 4);

/// Memory pressure at one time, computed from the buffer sizes of the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressure {
    /// Total size of the buffers of all connections.
    pub held: Bytes,
    /// Buffer size at which the worker stops reading from the server of a connection; `None` without memory pressure.
    pub level: Option<Bytes>,
}

impl Pressure {
    /// Memory pressure without any connections.
    pub const NONE: Self = Self { held: Bytes::new(0), level: None };

    /// Computes the level at which the buffers of the sizes in `held`, together with `other` bytes, fit into three
    /// quarters of `budget`. `other` is the memory of connections that no longer read from their servers. The function
    /// sorts `held`.
    pub fn of(budget: Bytes, other: Bytes, held: &mut [u64]) -> Self {
        let total = held.iter().sum::<u64>() + other.get();
        let (part, whole) = WITHOUT_PRESSURE;
        let most = budget.get() / whole * part;
        let level = (total > most).then(|| Bytes::new(level(most.saturating_sub(other.get()), held)));
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

    /// Returns the pressure for a budget of which `most` bytes are available without pressure.
    fn pressure(most: u64, held: &[u64]) -> Pressure {
        Pressure::of(Bytes::new(most.div_ceil(3) * 4), Bytes::ZERO, &mut held.to_vec())
    }

    #[test]
    fn without_pressure_everybody_reads() {
        let pressure = pressure(99, &[9, 90]);
        assert_eq!((pressure.held, pressure.level), (Bytes::new(99), None));
        assert!(pressure.admits(u64::MAX));
        assert!(Pressure::NONE.admits(u64::MAX));
    }

    /// The connection with the largest buffers stops reading first; connections with small buffers continue.
    #[test]
    fn the_largest_stop_first() {
        let one_large = pressure(99, &[5, 200, 10]);
        assert_eq!(one_large.level, Some(Bytes::new(84)));
        assert!(one_large.admits(10) && !one_large.admits(200));
        assert_eq!(pressure(99, &[200, 200]).level, Some(Bytes::new(49)));
        assert_eq!(pressure(0, &[1]).level, Some(Bytes::new(0)));
    }

    /// The memory of connections that no longer read reduces the share of the others.
    #[test]
    fn memory_of_ended_connections_counts() {
        let pressure = Pressure::of(Bytes::new(132), Bytes::new(60), &mut [30, 30]);
        assert_eq!((pressure.held, pressure.level), (Bytes::new(120), Some(Bytes::new(19))));
    }

    /// At the computed level, the amounts fit into the budget; at a level one byte higher, they would not
    /// fit.
    #[test]
    fn the_level_is_the_largest_that_fits() {
        for seed in 0..200u64 {
            let held: Vec<u64> =
                (0..1 + seed % 17).map(|i| fullpipe_units::draw(seed, 1, i) % 1_000).collect();
            let budget = fullpipe_units::draw(seed, 2, 0) % 1_000 * 3;
            let Some(level) = pressure(budget, &held).level else { continue };
            let cut = |level: u64| held.iter().map(|amount| (*amount).min(level)).sum::<u64>();
            assert!(cut(level.get()) <= budget && cut(level.get() + 1) > budget, "{held:?} {budget}");
        }
    }
}
