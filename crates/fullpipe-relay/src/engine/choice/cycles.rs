//! Cycles of a congestion window between losses, from which follows how much of the link the connections use.
//!
//! ```text
//!   rate      .--x        .--x        .--x   x: loss
//!          .-'   |     .-'   |     .-'   |   peak: rate at a loss, which is at most the rate of the link
//!        .'      | .-''      | .-''      |   mean over whole cycles, as a share of the peak: how full the link is
//! ```
//!
//! In front of a shallow queue, CUBIC reduces its window below the BDP at each loss. The mean rate then says
//! whether further connections can add anything; the rate at a single time does not. The first cycle begins with the
//! losses of slow start, after which the window is smaller than after other losses.

use fullpipe_units::{Bytes, Duration, Instant, Rate};

/// Share of the highest rate, in thousandths, from which the link counts as full; and the same for the first cycle alone.
const FULL_PERMILLE: u64 = 943;
const FIRST_FULL_PERMILLE: u64 = 850;
/// Share of the highest rate that the first cycle must reach.
const NEARLY_FULL_PERMILLE: u64 = 950;
/// Losses without a pause belong to the same event for this time; on a path with random loss, there is no pause.
const EVENT: Duration = Duration::from_secs(2);
/// Shortest time over which the mean rate of several cycles is measured.
const MEASURED: Duration = Duration::from_secs(3);
/// Time after which the mean rate is certain. The cycles of several connections may coincide for some time, which lowers the
/// rate.
const CERTAIN: Duration = Duration::from_secs(10);

/// Amount of data that had been acknowledged at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    at: Instant,
    acked: Bytes,
}

impl Mark {
    fn mean_to(self, later: Self) -> Rate {
        Rate::mean(later.acked.saturating_sub(self.acked), later.at.saturating_since(self.at))
    }
}

/// How much of the link the connections use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Too few losses have occurred.
    Unknown,
    /// The connections fill the link, for at least [`CERTAIN`] if `is_certain`.
    Full { is_certain: bool },
    /// At this mean rate, the link is not full between the losses.
    Partial(Rate),
}

/// Cycles with the present number of connections.
#[derive(Debug, Default)]
pub(super) struct Cycles {
    last: Option<Mark>,
    /// Highest rate in an interval, since the search began.
    peak: Option<Rate>,
    was_losing: bool,
    /// Number of loss events; the first event, the second one and the latest one.
    events: u32,
    first: Option<Mark>,
    second: Option<Mark>,
    latest: Option<Mark>,
}

impl Cycles {
    /// Starts anew with another number of connections. The highest rate remains: it is at most that of the link.
    pub(super) fn restart(&mut self) {
        *self = Self { peak: self.peak, ..Self::default() };
    }

    /// Adds the total of an interval.
    pub(super) fn sampled(&mut self, at: Instant, acked: Bytes, has_lost: bool) {
        let mark = Mark { at, acked };
        if let Some(last) = self.last.replace(mark)
            && at > last.at
        {
            self.peak = self.peak.max(Some(last.mean_to(mark)));
        }
        let is_new = self.latest.is_none_or(|latest| at.saturating_since(latest.at) >= EVENT);
        if has_lost && (!self.was_losing || is_new) {
            self.events += 1;
            match self.events {
                1 => self.first = Some(mark),
                2 => self.second = Some(mark),
                _ => {}
            }
            self.latest = Some(mark);
        }
        self.was_losing = has_lost;
    }

    /// Returns the number of loss events with the present number of connections.
    pub(super) fn events(&self) -> u32 {
        self.events
    }

    /// Returns whether the first cycle has ended and used most of the link, so that a long second cycle is no reason for
    /// more connections.
    pub(super) fn is_nearly_full(&self) -> bool {
        let (Some(peak), Some(first), Some(second)) = (self.peak, self.first, self.second) else {
            return false;
        };
        first.mean_to(second) >= peak.mul_div(NEARLY_FULL_PERMILLE, 1000)
    }

    /// Returns how much of the link `count` connections use.
    pub(super) fn usage(&self, count: u32) -> Use {
        let (Some(peak), Some(first), Some(second), Some(latest)) =
            (self.peak, self.first, self.second, self.latest)
        else {
            return Use::Unknown;
        };
        let is_below = |mean: Rate, permille| mean < peak.mul_div(permille, 1000);
        // The losses of several connections are further apart than those of one.
        let time = latest.at.saturating_since(second.at);
        if self.events >= 3 + count && time >= MEASURED {
            let mean = second.mean_to(latest);
            return match is_below(mean, FULL_PERMILLE) {
                true => Use::Partial(mean),
                false => Use::Full { is_certain: time >= CERTAIN },
            };
        }
        let mean = first.mean_to(second);
        match is_below(mean, FIRST_FULL_PERMILLE) {
            true => Use::Partial(mean),
            false => Use::Unknown,
        }
    }
}
