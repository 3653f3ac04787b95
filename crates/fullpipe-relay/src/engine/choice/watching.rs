//! What the totals of a span say about the path while no trial is running (a `Finding`), and what follows.
//!
//! ```text
//!   at least a span of totals; the pause is over, or random losses have reduced the rate by a third
//!     ├─ the rate of an earlier copy with this number ──► settled
//!     ├─ losses reduce the windows in front of a queue
//!     │    ├─ the link is full between them, for 10 s ──► Full ─────► settled
//!     │    ├─ the link is full in part ─────────────────► Partial ──► half as many are added, or settled
//!     │    └─ too few cycles yet ───────────────────────► Unclear
//!     ├─ the rate, a queue or a window still grows ─────► Unclear
//!     ├─ most of the rate has a limit per connection ───► Capped ───► more are tried
//!     ├─ little of the rate has one ────────────────────► Shared ───► half as many are tried
//!     └─ otherwise ─────────────────────────────────────► Unclear ──► the next total decides
//! ```

use fullpipe_units::{Duration, Instant, Rate};

use super::cycles::Use;
use super::{Choice, Phase, QUEUED_BEFORE, Sum, needed};

/// Thresholds for the share of the total rate that connections with a limit of their own carry, in percent. More
/// connections are tried at or above the first one, and fewer connections at or below the second.
pub(super) const CAPPED_PERCENT: u64 = 75;
pub(super) const FREE_PERCENT: u64 = 25;
/// The limit of a connection is not known at times, so that a smaller share suffices if little of the rate has a shared
/// limit.
pub(super) const MOSTLY_CAPPED_PERCENT: u64 = 50;
/// If buffers limit connections that carry this percentage of the rate for a whole span, more connections are tried even if the
/// windows of the others grow.
const BUFFERED_PERCENT: u64 = 50;
/// If buffers limit the connections for a whole span, the rate counts as rising above this percentage. Data is then
/// acknowledged in one burst per round trip, and half a span of at least four round trips may contain one burst more. A
/// buffer that the kernel still enlarges doubles each round trip.
const RISING_WITH_BUFFERS_PERCENT: u64 = 125;
/// Time after a loss in which a growing congestion window is not a cap: CUBIC's window needs about this time to reach a
/// queue of a tenth of the BDP again, at 100 Mbit/s and 40 ms.
const GROWTH: Duration = Duration::from_secs(10);
/// Two losses within this time, or this number of losses without a queue, reduce a window again and again.
const RECURRING: Duration = Duration::from_secs(3);
const RECURRING_EVENTS: u32 = 3;
/// A queue is growing if the RTT at the end of a span exceeds this percentage of the RTT at its start.
const QUEUE_PERCENT: u64 = 103;
/// Factors by which the number of connections grows if the link rate is not known: in the first trial, and in later
/// trials. If the first factor is too large, the total rate still shows how many connections are needed, but the
/// remaining connections must recover from the losses that the trial caused.
pub(super) const FIRST_FACTOR: u32 = 4;
const FACTOR: u32 = 2;
/// Percentage of the mean rate before a step that the rate must reach after it.
const GAIN_PERCENT: u64 = 103;
/// A copy stays at the number of an earlier copy while it has this percentage of the earlier rate.
const AS_BEFORE_PERCENT: u64 = 90;
/// A search begins anew if random losses reduce the rate below this percentage.
const SLOWED_PERCENT: u64 = 67;

/// What the totals of a span say about the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finding {
    /// The connections use the link only in part between their losses, at this mean rate.
    Partial(Rate),
    /// The connections fill the link between their losses.
    Full,
    /// Most of the rate has a limit per connection. `by_losses` states whether the limit is a window that losses reduce
    /// in front of a queue.
    Capped { by_losses: bool },
    /// Little of the rate has a limit per connection.
    Shared,
    /// Nothing follows yet.
    Unclear,
}

impl Choice {
    /// Ends the search or starts a trial, according to what the totals of a span say.
    pub(super) fn watch(&mut self, sum: Sum, not_before: Instant) {
        let Some(rate) = self.rate() else { return };
        if self.kept.is_none() {
            self.kept = self.sums.front().copied();
        }
        if self.has_yielded(rate, sum.at) {
            return;
        }
        if sum.at < not_before {
            if !self.has_slowed(rate, &sum) {
                return;
            }
            self.has_failed = false;
        }
        if self.is_as_before(rate) {
            return self.settle(sum.at);
        }
        match self.finding(sum.at) {
            Finding::Partial(mean) => self.step(mean, sum),
            Finding::Full => self.settle(sum.at),
            Finding::Capped { by_losses } => self.raise(rate, sum.at, by_losses),
            Finding::Shared => self.lower(rate, sum.at),
            Finding::Unclear => {}
        }
    }

    /// Returns whether random losses have reduced the rate since the end of the last search. The windows of new connections
    /// exceed for some time what random losses permit, so that the search may have ended too early.
    fn has_slowed(&self, rate: Rate, sum: &Sum) -> bool {
        let is_lower = |before: Rate| rate < before.mul_div(SLOWED_PERCENT, 100);
        self.settled_rate.is_some_and(is_lower)
            && self.are_losses_without_queue(sum, QUEUED_BEFORE)
            && self.all(Sum::is_capped)
    }

    /// Returns whether the copy has the rate of the earlier copy whose number of connections it has taken over. This is
    /// decided once, when the rate has stopped rising.
    fn is_as_before(&mut self, rate: Rate) -> bool {
        if self.is_rising() {
            return false;
        }
        let expected = self.expected.take();
        expected.is_some_and(|expected| rate >= expected.mul_div(AS_BEFORE_PERCENT, 100))
    }

    /// Returns what the totals of a span say about the path.
    fn finding(&self, at: Instant) -> Finding {
        let are_capped = self.all(Sum::is_capped);
        // Losses without a queue are those of a policer, or random. If so, the first step has shown whether each connection
        // has a rate of its own.
        let is_random = self.stepped.is_none() && self.loses_without_queue(QUEUED_BEFORE);
        let have_cycles = self.link.is_none() && self.all(|sum| sum.windows_percent >= CAPPED_PERCENT);
        let by_cycles = if have_cycles && !is_random { self.finding_from_cycles(are_capped) } else { None };
        if let Some(finding) = by_cycles {
            return finding;
        }
        let are_buffered = self.all(|sum| sum.buffered_percent() >= BUFFERED_PERCENT);
        let is_rising = if are_buffered { self.rises(RISING_WITH_BUFFERS_PERCENT) } else { self.is_rising() };
        if is_rising || self.is_queueing() {
            return Finding::Unclear;
        }
        let has_lost = self.lost[1].is_some();
        let is_growing = self.sums.iter().any(|sum| sum.is_growing) || (have_cycles && has_lost);
        // A window that grows is not a cap unless random losses reduce it again and again.
        let is_recurring =
            is_random && (since(self.lost[0], at) < RECURRING || self.cycles.events() >= RECURRING_EVENTS);
        // Beside connections that their buffers limit, the growth of the others adds little.
        let by_growth = is_growing && !is_recurring && !are_buffered;
        if by_growth && self.may_grow(at) {
            return Finding::Unclear;
        }
        if are_capped {
            Finding::Capped { by_losses: by_growth && has_lost }
        } else if self.all(|sum| sum.capped_percent <= FREE_PERCENT && !sum.is_starting) {
            Finding::Shared
        } else {
            Finding::Unclear
        }
    }

    /// Returns what the cycles of the windows say, if they decide.
    fn finding_from_cycles(&self, are_capped: bool) -> Option<Finding> {
        let is_step = self.stepped.is_some();
        match self.cycles.usage(self.count) {
            Use::Unknown if is_step && !are_capped => Some(Finding::Unclear),
            Use::Unknown => None,
            _ if !are_capped && !is_step => None,
            Use::Full { is_certain: true } => Some(Finding::Full),
            Use::Full { is_certain: false } => Some(Finding::Unclear),
            Use::Partial(mean) => Some(Finding::Partial(mean)),
        }
    }

    /// Returns whether the windows may still fill the link by growing.
    fn may_grow(&self, at: Instant) -> bool {
        self.stepped.is_some()
            || self.cycles.is_nearly_full()
            || since(self.lost[1], at) < GROWTH
            || self.all(|sum| sum.is_queued)
    }

    /// Tries more connections, if there are more.
    fn raise(&mut self, rate: Rate, at: Instant, by_losses: bool) {
        let count = if by_losses { self.next_step() } else { self.more(rate) };
        if count <= self.count {
            return;
        }
        self.is_yielding = false;
        self.was_growing = self.all(|sum| sum.is_growing);
        self.was_random =
            self.sums.back().is_some_and(|sum| self.are_losses_without_queue(sum, QUEUED_BEFORE));
        self.stepped = by_losses.then_some(rate);
        let is_steady = |(first, last): (&Sum, &Sum)| first.retransmits == last.retransmits;
        if self.sums.front().zip(self.sums.back()).is_some_and(is_steady) && self.all(|sum| !sum.is_growing) {
            let each = rate.mul_div(1, self.count.into());
            self.each = Some(self.each.map_or(each, |most| most.max(each)));
        }
        self.begin(Phase::Raised { before: self.count, rate, begun: at, settled: None }, count);
    }

    /// Tries half as many connections, unless fewer cannot be enough.
    fn lower(&mut self, rate: Rate, at: Instant) {
        if self.count > self.fewest {
            let (floor, upper) = (self.fewest - 1, self.count);
            let count = (self.count / 2).max(self.fewest);
            self.begin(Phase::Lowered { floor, upper, rate, begun: at, settled: None }, count);
        }
    }

    /// Adds connections, because the windows use the link only in part, at a mean of `rate`. Ends the search if the last
    /// step has added nothing.
    fn step(&mut self, rate: Rate, sum: Sum) {
        let has_gained = self.stepped.is_none_or(|before| rate >= before.mul_div(GAIN_PERCENT, 100));
        let count = self.next_step();
        if count == self.count || (self.count >= FIRST_FACTOR && !has_gained) {
            return self.settle(sum.at);
        }
        self.stepped = Some(rate);
        (self.was_growing, self.was_random) = (false, false);
        self.begin(Phase::Raised { before: self.count, rate, begun: sum.at, settled: None }, count);
    }

    fn next_step(&self) -> u32 {
        (self.count + (self.count / 2).max(1)).min(self.most)
    }

    /// Returns the number of connections to try next, if the present ones reach `rate`.
    pub(super) fn more(&self, rate: Rate) -> u32 {
        let wanted = match self.link {
            Some(link) => needed(link, rate, self.count),
            None if self.has_failed => self.count + 1,
            None if self.count == 1 => FIRST_FACTOR,
            None => self.count.saturating_mul(FACTOR),
        };
        wanted.min(self.most)
    }

    /// Returns whether the windows and the RTT grow while the rate does not, which shows a growing queue.
    fn is_queueing(&self) -> bool {
        let (Some(first), Some(last)) = (self.sums.front(), self.sums.back()) else { return false };
        self.all(|sum| sum.is_growing)
            && last.rtt > first.rtt.mul_div(QUEUE_PERCENT, 100)
            && !self.rises(QUEUE_PERCENT)
    }

    /// Returns whether `is` holds for all totals of the span.
    pub(super) fn all(&self, is: impl Fn(&Sum) -> bool) -> bool {
        self.sums.iter().all(is)
    }
}

/// Returns the time since a loss; without a loss, windows have grown for long.
fn since(lost: Option<Instant>, at: Instant) -> Duration {
    lost.map_or(GROWTH, |lost| at.saturating_since(lost))
}
