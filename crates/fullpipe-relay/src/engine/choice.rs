//! Chooses the number of connections of a copy from the limit of each connection.
//!
//! ```text
//!            most of the rate has a limit per connection
//!   Watching ──────────────────────────────────────────────────► Raised (as many as fill the link, or four
//!     ▲   ▲                                                        │      times as many; later one more)
//!     │   │  the total rate rose by most of the prediction,        │ the newest has left slow start, or 12 RTT;
//!     │   │  or losses of the same amount of data did not become   │
//!     │   └─ more; and these limits still apply: kept ─────────────┤
//!     │                                                            │ otherwise
//!     │      the same rate as with more connections: kept          ▼
//!     └────────────────────────────────────────────────────────  Lowered (as many as the rate needs, then fewer)
//!     │                                                            ▲   │ a lower rate: half of the others are added
//!     │      for a whole span, no limit per connection             │   │
//!     └────────────────────────────────────────────────────────────┘◄──┘
//! ```
//!
//! If losses occur without a queue, a trial of more connections waits until their number says whether the path loses segments
//! at random (`losses.rs`), so that each connection has a rate of its own.
//!
//! If losses reduce the windows in front of a queue, the cycles between the losses decide instead: while they leave a part
//! of the link unused, half as many connections are added, and kept.
//!
//! If other flows share a link that is full, half of the connections are given up, and half of the others again
//! (`yielding.rs`).
//!
//! A connection that is limited by its send buffer, its receive window, its congestion window or a rate cap leaves room
//! for another one. If the link, an application or a processor is the limit, another connection does not increase the
//! total rate; it only takes bandwidth from other flows. Fewer connections are then tried.

mod cycles;
mod forecast;
mod losses;
mod watching;
mod yielding;

use std::collections::VecDeque;

use fullpipe_units::{Bytes, Duration, Instant, Rate};

use self::cycles::Cycles;
use self::forecast::PAYLOAD;
pub use self::forecast::{Buffers, Remembered};
use self::losses::{Change, Losses};

/// Shortest time over which the total rate of all connections is measured.
const SPAN: Duration = Duration::from_millis(750);
/// Shortest time over which the total rate is measured, in round trips.
const SPAN_ROUND_TRIPS: u64 = 4;
/// Shortest time between opening more connections and measuring the total rate: two samples, or two round trips.
const SETTLING: Duration = Duration::from_millis(500);
const SETTLING_ROUND_TRIPS: u64 = 2;
/// Shortest time between resting some connections and measuring the total rate. The remaining connections may have to
/// recover from the losses of the others, and their windows need time to grow.
const SETTLING_FEWER: Duration = Duration::from_millis(1500);
const SETTLING_FEWER_ROUND_TRIPS: u64 = 12;
/// Number of round trips after which a trial is judged even if the newest connection is still in slow start: one for
/// the handshake, ten for doublings of the initial window, and one until the last window is acknowledged.
const START_ROUND_TRIPS: u64 = 12;
/// Time between two searches, after which the path may have changed.
const PAUSE: Duration = Duration::from_secs(60);
/// Longest time between two searches; each search that changes nothing doubles the time.
const LONGEST_PAUSE: Duration = Duration::from_secs(960);
/// If connections that the link, an application or a processor limits carry at least this percentage of the total rate,
/// the total rate counts as limited by these.
const SHARED_PERCENT: u64 = 50;
/// Fewer connections must reach this percentage of the rate of more connections: 95 %, plus a measurement error.
const ENOUGH_PERCENT: u64 = 99;
/// If the connections before a trial of more connections reached this percentage of the rate in the trial, numbers
/// below the earlier one are tried, too.
const NEARLY_PERCENT: u64 = 95;
/// A trial of fewer connections ends at once below this percentage of the rate of more connections. Below the second
/// percentage, it ends when the rate has stopped rising.
const COLLAPSED_PERCENT: u64 = 50;
const TOO_LITTLE_PERCENT: u64 = 80;
/// If the total rate rises by this percentage of the predicted increase, the connections are kept. Below the second
/// percentage, the trial has failed; below the third, a short measurement is enough.
const MOST_RISEN_PERCENT: u64 = 66;
const HALF_RISEN_PERCENT: u64 = 50;
const BARELY_RISEN_PERCENT: u64 = 25;
/// Number of spans over which the total rate is measured if the result is not clear, in trials of more and of fewer
/// connections. Behind a policer or on a lossy path, the rate of a connection varies over several seconds.
const SPANS_MORE: u64 = 3;
const SPANS_FEWER: u64 = 2;
/// The total rate counts as rising by itself if the rate in the later half of a measurement exceeds this percentage of
/// the rate in the earlier half. The second percentage applies if nothing was lost, because rates then vary less.
const RISING_PERCENT: u64 = 110;
const RISING_WITHOUT_LOSS_PERCENT: u64 = 103;
/// Longest time for which a trial waits until the losses show whether the path loses segments at random.
const LONGEST_COMPARISON: Duration = Duration::from_secs(4);
/// Losses are counted from this time after the end of slow start on, in round trips and at least. The losses at the end of
/// slow start say nothing about the path.
const OVERSHOOT_ROUND_TRIPS: u64 = 4;
const OVERSHOOT: Duration = Duration::from_millis(500);
/// A queue has formed if the RTT stays above this percentage of its minimum.
const QUEUED_PERCENT: u64 = 101;
/// Less than one of this many losses may occur with a queue if losses are random: before a trial, after a slow start that has
/// filled the link, and in a trial, in which the queue of the new connections' slow start is still there.
const QUEUED_BEFORE: u32 = 4;
const QUEUED_IN_TRIAL: u32 = 2;
/// What limits a connection, as far as it matters for the number of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// A limit of this connection alone: its buffers, its windows, or a rate cap.
    PerConnection,
    /// The connection is in slow start, or its limit is not known yet.
    Starting,
    /// A limit that all connections share: the link, an application or a processor.
    Shared,
}

/// Measurements of a connection in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Payload that was acknowledged.
    pub acked: Bytes,
    /// Smoothed RTT.
    pub rtt: Duration,
    /// What limits the connection.
    pub room: Room,
    /// Whether the congestion window is the limit and grows, because nothing was lost.
    pub is_growing: bool,
    /// Whether the congestion window, a rate cap or the link is the limit, so that losses reduce the rate in cycles.
    pub is_window_limited: bool,
    /// Number of segments that were retransmitted.
    pub retransmits: u64,
    /// Whether the connection is resting: it gets no blocks, and only sends the data that is still in its socket.
    pub is_resting: bool,
}

/// Total over all connections at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sum {
    at: Instant,
    /// Payload that has been acknowledged, and segments that have been retransmitted, on all connections since the
    /// start of the copy.
    acked: Bytes,
    retransmits: u64,
    /// Percentages of the present rate on connections with [`Room::PerConnection`] and on those with [`Room::Shared`].
    capped_percent: u64,
    shared_percent: u64,
    /// Percentage of the present rate on connections that their windows limit.
    windows_percent: u64,
    /// Whether the newest connection is still in slow start.
    is_starting: bool,
    /// Whether the congestion window of a connection is the limit, and grows.
    is_growing: bool,
    /// Longest RTT of the connections.
    rtt: Duration,
    /// Whether the RTT of each connection is above its minimum, so that a queue has formed.
    is_queued: bool,
}

impl Sum {
    /// Returns the percentage of the rate on connections that have a limit of their own other than their windows: a buffer.
    fn buffered_percent(&self) -> u64 {
        self.capped_percent.saturating_sub(self.windows_percent)
    }

    /// Returns whether most of the rate has a limit per connection, or is that of connections whose limit is not known at
    /// present.
    fn is_capped(&self) -> bool {
        self.capped_percent >= watching::MOSTLY_CAPPED_PERCENT
            && self.shared_percent <= watching::FREE_PERCENT
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No trial is running, and none starts before `not_before`.
    Watching { not_before: Instant },
    /// A trial of more connections than `before`, which reached `rate`.
    Raised { before: u32, rate: Rate, begun: Instant, settled: Option<Instant> },
    /// A trial of fewer connections than `upper`, which reached `rate`; `floor` connections are too few.
    Lowered { floor: u32, upper: u32, rate: Rate, begun: Instant, settled: Option<Instant> },
    /// Fewer connections than `before`, which had `rate`, because other flows use the link, too.
    Yielding { before: u32, rate: Rate, begun: Instant, settled: Option<Instant> },
}

/// Chooses the number of connections from the limit of each connection.
///
/// The type has no clock and does no I/O: `fullpipe copy` passes samples of its sockets, and tests pass samples of
/// simulated connections.
#[derive(Debug)]
pub struct Choice {
    least: u32,
    most: u32,
    /// Payload rate of the link.
    link: Option<Rate>,
    /// Smallest number that is tried if the link is full.
    fewest: u32,
    count: u32,
    phase: Phase,
    /// Whether a trial has failed; from then on, one connection is added at a time.
    has_failed: bool,
    /// Number of connections after the last search, their rate, and time until the next search.
    last: Option<u32>,
    settled_rate: Option<Rate>,
    pause: Duration,
    /// Time of the last interval.
    sampled: Option<Instant>,
    acked: Bytes,
    retransmits: u64,
    /// Whether a segment was retransmitted since the last change of the number of connections.
    has_lost: bool,
    /// Times of the last two intervals with retransmissions, the earlier one first.
    lost: [Option<Instant>; 2],
    /// Number of intervals with retransmissions since the last change of the number of connections, and number of those in
    /// which a queue had formed.
    losing: u32,
    losing_with_queue: u32,
    /// Time when the present number of connections had left slow start, total from which on its losses count, and losses
    /// of the smaller numbers in this search.
    started: Option<Instant>,
    settled: Option<Sum>,
    losses: Losses,
    /// Whether the losses before the trial of more connections were those of a policer, or random.
    was_random: bool,
    /// Whether a congestion window grew throughout the span before the trial of more connections.
    was_growing: bool,
    /// Rate of a connection that its buffers or its receive window limit.
    each: Option<Rate>,
    /// Whether the total rate rose in the last trial of more connections in this search. If the search finds that all
    /// of these connections are needed, it continues with more.
    may_resume: bool,
    /// Largest number of connections that this search has found to be too few.
    too_few: u32,
    /// Shortest RTT so far, which is the RTT of the path without a queue.
    least_rtt: Option<Duration>,
    /// Rate of an earlier copy with the number of connections with which this copy has started.
    expected: Option<Rate>,
    /// Total from which on the present number of connections has been kept.
    kept: Option<Sum>,
    /// Highest rate over a span, which is at most that of the link, and whether connections have been given up because other
    /// flows share the link.
    highest: Option<Rate>,
    is_yielding: bool,
    /// Number of attempts to give connections up after which the former number returned, and time of the next attempt.
    yields_failed: u32,
    yield_after: Option<Instant>,
    /// Cycles of the congestion windows, and the mean rate before the last step because of them.
    cycles: Cycles,
    stepped: Option<Rate>,
    /// Totals of the last span, oldest first.
    sums: VecDeque<Sum>,
}

impl Choice {
    /// Starts with `least` connections, and never chooses more than `most`. If the rate of the `link` is known, the
    /// number of connections that fill the link is computed.
    pub fn new(least: u32, most: u32, link: Option<Rate>) -> Self {
        Self {
            least,
            most,
            link: link.map(|link| link.mul_div(PAYLOAD.0, PAYLOAD.1)),
            fewest: least,
            count: least,
            phase: Phase::Watching { not_before: Instant::ZERO },
            has_failed: false,
            last: None,
            settled_rate: None,
            pause: PAUSE,
            sampled: None,
            acked: Bytes::ZERO,
            retransmits: 0,
            has_lost: false,
            lost: [None; 2],
            losing: 0,
            losing_with_queue: 0,
            started: None,
            settled: None,
            losses: Losses::default(),
            was_random: false,
            was_growing: false,
            each: None,
            may_resume: false,
            too_few: least - 1,
            least_rtt: None,
            expected: None,
            kept: None,
            highest: None,
            is_yielding: false,
            yields_failed: 0,
            yield_after: None,
            cycles: Cycles::default(),
            stepped: None,
            sums: VecDeque::new(),
        }
    }

    /// Returns the number of connections that should send.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Adds the measurements of all open connections in an interval, in the order in which they were opened, and
    /// returns the number of connections if it changes. `is_opening` is true while another connection is being opened,
    /// or has carried no data yet.
    pub fn sampled(
        &mut self,
        at: Instant,
        intervals: impl IntoIterator<Item = Interval>,
        is_opening: bool,
    ) -> Option<u32> {
        let (mut all, mut capped, mut shared, mut windows) =
            (Bytes::ZERO, Bytes::ZERO, Bytes::ZERO, Bytes::ZERO);
        let (mut rtt, mut newest, mut is_growing) = (Duration::ZERO, None, false);
        let time = self.sampled.replace(at).map_or(Duration::ZERO, |last| at.saturating_since(last));
        let (mut retransmits, mut is_queued) = (0, None);
        for interval in intervals {
            all += interval.acked;
            if interval.is_resting {
                continue;
            }
            if let Some(queued) = self.is_queued(time, &interval) {
                is_queued = Some(is_queued.unwrap_or(true) && queued);
            }
            rtt = rtt.max(interval.rtt);
            retransmits += interval.retransmits;
            is_growing |= interval.is_growing;
            windows += if interval.is_window_limited { interval.acked } else { Bytes::ZERO };
            match interval.room {
                Room::PerConnection => capped += interval.acked,
                Room::Shared => shared += interval.acked,
                Room::Starting => {}
            }
            // Until data is acknowledged on a connection, nothing is known about its limit.
            newest = Some(if interval.acked.is_zero() { Room::Starting } else { interval.room });
        }
        self.acked += all;
        self.retransmits += retransmits;
        self.has_lost |= retransmits > 0;
        let is_queued = is_queued.unwrap_or(false);
        if retransmits > 0 {
            self.lost = [self.lost[1], Some(at)];
            // A loss empties a shallow queue, so the interval before it counts, too.
            let was_queued = self.sums.back().is_some_and(|last| last.is_queued);
            self.losing += 1;
            self.losing_with_queue += u32::from(is_queued || was_queued);
        }
        let percent = |part: Bytes| part.get().saturating_mul(100) / all.get().max(1);
        self.sample(Sum {
            at,
            acked: self.acked,
            retransmits: self.retransmits,
            capped_percent: percent(capped),
            shared_percent: percent(shared),
            windows_percent: percent(windows),
            is_growing,
            is_starting: is_opening || newest.is_none_or(|room| room == Room::Starting),
            rtt,
            is_queued,
        })
    }

    /// Adds a total, and returns the number of connections if it changes.
    fn sample(&mut self, sum: Sum) -> Option<u32> {
        if !sum.rtt.is_zero() {
            self.least_rtt = Some(self.least_rtt.map_or(sum.rtt, |least| least.min(sum.rtt)));
        }
        let span = self.span(sum.rtt);
        let has_lost = self.sums.back().is_some_and(|last| last.retransmits < sum.retransmits);
        self.cycles.sampled(sum.at, sum.acked, has_lost);
        self.sums.push_back(sum);
        if !sum.is_starting {
            let started = *self.started.get_or_insert(sum.at);
            let least = OVERSHOOT.max(sum.rtt * OVERSHOOT_ROUND_TRIPS);
            if self.settled.is_none() && sum.at.saturating_since(started) >= least {
                self.settled = Some(sum);
                // The slow start of further connections may have filled the link for some time.
                if matches!(self.phase, Phase::Raised { .. }) {
                    (self.losing, self.losing_with_queue) = (0, 0);
                }
            }
        }
        let kept = match self.phase {
            Phase::Watching { .. } => span,
            Phase::Raised { .. } => span * SPANS_MORE,
            Phase::Lowered { .. } | Phase::Yielding { .. } => span * SPANS_FEWER,
        };
        while self.sums.get(1).is_some_and(|second| sum.at.saturating_since(second.at) >= kept) {
            self.sums.pop_front();
        }
        self.highest = self.highest.max(self.rate());
        let before = self.count;
        match &mut self.phase {
            Phase::Watching { not_before } => {
                let not_before = *not_before;
                self.watch(sum, not_before);
            }
            Phase::Lowered { begun, settled: settled @ None, .. }
            | Phase::Yielding { begun, settled: settled @ None, .. } => {
                let least = SETTLING_FEWER.max(sum.rtt * SETTLING_FEWER_ROUND_TRIPS);
                if sum.at.saturating_since(*begun) >= least {
                    *settled = Some(sum.at);
                    self.sums.clear();
                    self.sums.push_back(sum);
                }
            }
            Phase::Raised { begun, settled: settled @ None, .. } => {
                let least = SETTLING.max(sum.rtt * SETTLING_ROUND_TRIPS);
                let waited = sum.at.saturating_since(*begun);
                // The first samples of a new connection do not show its limit yet.
                if waited >= least && (!sum.is_starting || waited >= sum.rtt * START_ROUND_TRIPS) {
                    *settled = Some(sum.at);
                    self.sums.clear();
                    self.sums.push_back(sum);
                }
            }
            Phase::Raised { before, rate, settled: Some(settled), .. } => {
                if sum.at.saturating_since(*settled) >= span {
                    let (before, rate, settled) = (*before, *rate, *settled);
                    self.judge_more(before, rate, settled, sum);
                }
            }
            Phase::Lowered { floor, upper, rate, settled: Some(settled), .. } => {
                if sum.at.saturating_since(*settled) >= span / 2 {
                    let bounds = (*floor, *upper);
                    let rate = *rate;
                    self.judge_fewer(bounds, rate, sum);
                }
            }
            Phase::Yielding { before, rate, settled: Some(_), .. } => {
                let (before, rate) = (*before, *rate);
                self.judge_yielding(before, rate, sum.at);
            }
        }
        (self.count != before).then_some(self.count)
    }

    fn begin(&mut self, phase: Phase, count: u32) {
        match (self.settled.take(), self.sums.back()) {
            _ if count < self.count => self.losses = Losses::default(),
            (Some(first), Some(last)) => self.losses += Losses::between(&first, last),
            _ => {}
        }
        self.started = None;
        (self.phase, self.count) = (phase, count);
        (self.has_lost, self.kept, self.expected) = (false, None, None);
        self.cycles.restart();
        (self.losing, self.losing_with_queue) = (0, 0);
        // The earlier totals were measured with another number of connections.
        self.sums.clear();
    }

    /// Keeps the connections of a trial if each connection is still limited on its own, and if the total rate rose by at
    /// least two thirds of the predicted increase, or the losses are random. Otherwise, keeps about as many connections as
    /// the measured rate needs.
    fn judge_more(&mut self, before: u32, rate: Rate, settled: Instant, sum: Sum) {
        let Some(now) = self.rate() else { return };
        let predicted = u128::from(rate.as_bps()) * u128::from(self.count - before) / u128::from(before);
        let risen = u128::from(now.as_bps().saturating_sub(rate.as_bps())) * 100;
        let is_capped = sum.shared_percent < SHARED_PERCENT;
        let has_risen_most = risen >= predicted * u128::from(MOST_RISEN_PERCENT);
        let has_failed = risen < predicted * u128::from(BARELY_RISEN_PERCENT);
        let is_random = is_capped && self.was_random && self.are_losses_without_queue(&sum, QUEUED_IN_TRIAL);
        let change = self.change_of_losses(before, &sum);
        let is_undecided = self.was_random && !has_risen_most && change == Change::Unknown;
        if is_undecided && sum.at.saturating_since(settled) < LONGEST_COMPARISON {
            return;
        }
        let is_each = is_random && change != Change::More;
        if is_capped && (has_risen_most || is_each) {
            self.phase = Phase::Watching { not_before: sum.at };
            (self.too_few, self.stepped) = (before, None);
            self.has_failed &= !is_random;
            // The next trial can start at once: each connection was at a limit of its own for a whole span before the
            // first trial, and throughout this one.
            let count = self.more(now);
            let is_clear = is_random || !self.is_rising();
            if count > self.count && is_clear && self.sums.iter().all(Sum::is_capped) {
                let before = self.count;
                self.begin(Phase::Raised { before, rate: now, begun: sum.at, settled: None }, count);
            }
            return;
        }
        let is_losing = is_capped && self.has_lost && self.sums.iter().any(|sum| sum.is_growing);
        // Fewer windows would have to grow for seconds to reach the same rate. The cycles decide about more.
        if self.stepped.is_some() || (is_losing && has_failed && self.each.is_none() && !is_undecided) {
            self.stepped = self.stepped.or(Some(rate));
            self.phase = Phase::Watching { not_before: sum.at };
            return;
        }
        let is_growing = sum.is_growing && !self.has_lost;
        // After losses, the windows of all connections recover for some time.
        let is_clear = has_failed && !self.has_lost;
        let is_doubtful = is_growing || !(is_clear || self.is_long(SPANS_MORE));
        if self.is_rising() || (is_capped && is_doubtful) {
            return;
        }
        let has_risen = risen >= predicted * u128::from(HALF_RISEN_PERCENT);
        self.has_failed |= !has_risen;
        self.may_resume = has_risen;
        let enough = now.mul_div(ENOUGH_PERCENT, 100);
        let upper = self.count;
        let count = needed(enough, rate, before).clamp(before, upper);
        // Without a queue, windows that losses limit add up, and fewer of them would have to grow for seconds first.
        let is_kept =
            is_capped && has_failed && self.has_lost && now >= rate.mul_div(RISING_WITHOUT_LOSS_PERCENT, 100);
        if count == upper || is_kept {
            self.settle(sum.at);
        } else {
            // If the number before the trial reached nearly the same rate, even fewer connections may be enough.
            // A window that grew before the trial has grown since.
            let is_nearly = rate >= now.mul_div(NEARLY_PERCENT, 100) || self.was_growing;
            let floor = if is_nearly { self.too_few } else { before };
            // A buffer or a receive window holds each connection to the rate that it had before the trials.
            let least = self.each.map_or(0, |each| needed(now.mul_div(NEARLY_PERCENT, 100), each, 1) - 1);
            let floor = floor.max(least.min(count - 1));
            // At least one more than before is needed. A settled copy may have one and a half times the connections that are
            // needed, and a trial of fewer would cost more than they do.
            let count = if is_nearly { count } else { count.max((before + 1) * 3 / 2).min(upper) };
            if count == upper {
                return self.settle(sum.at);
            }
            self.begin(Phase::Lowered { floor, upper, rate: now, begun: sum.at, settled: None }, count);
        }
    }

    /// If the fewer connections reach the rate of the larger number, keeps them, or tries still fewer unless that would
    /// be too few. Otherwise, goes back halfway to the larger number.
    fn judge_fewer(&mut self, (floor, upper): (u32, u32), rate: Rate, sum: Sum) {
        let Some(now) = self.mean() else { return };
        let is_below = |percent| now < rate.mul_div(percent, 100);
        let is_measured = self.is_long(1) && !self.is_rising();
        let is_too_little = is_below(COLLAPSED_PERCENT) || (is_below(TOO_LITTLE_PERCENT) && is_measured);
        if !is_too_little && !self.is_long(SPANS_FEWER) {
            return;
        }
        let at = sum.at;
        let lowered = |floor, upper| Phase::Lowered { floor, upper, rate, begun: at, settled: None };
        if !is_below(ENOUGH_PERCENT) {
            // The count is at most one and a half times the smallest number that may be enough.
            if self.count * 2 <= (floor + 1) * 3 {
                return self.settle(at);
            }
            return self.begin(lowered(floor, self.count), ((floor + self.count) / 2).max(self.least));
        }
        let is_growing = sum.is_growing && !self.has_lost && sum.shared_percent < SHARED_PERCENT;
        if is_growing && !is_too_little {
            return;
        }
        let count = (self.count + upper).div_ceil(2);
        if count < upper {
            return self.begin(lowered(self.count, upper), count);
        }
        let is_each_needed = now <= rate.mul_div(u64::from(self.count + upper), u64::from(2 * upper));
        (self.count, self.has_lost, self.kept) = (upper, false, None);
        self.cycles.restart();
        self.sums.clear();
        if is_each_needed && self.may_resume {
            // Each connection adds its part of the rate, so further connections may add more.
            self.phase = Phase::Watching { not_before: at };
        } else {
            self.settle(at);
        }
    }

    /// Ends a search.
    fn settle(&mut self, at: Instant) {
        (self.too_few, self.may_resume, self.stepped) = (self.least - 1, false, None);
        (self.losses, self.settled, self.settled_rate) = (Losses::default(), None, self.mean());
        self.cycles = Cycles::default();
        let is_same = self.last.replace(self.count) == Some(self.count);
        self.pause = if is_same { (self.pause * 2).min(LONGEST_PAUSE) } else { PAUSE };
        self.phase = Phase::Watching { not_before: at + self.pause };
    }

    /// Returns the time over which the rate is measured. A trial of fewer connections must detect a smaller difference,
    /// so it takes longer. Before a trial, the span must be longer than BBR's ProbeRTT phase and the effect of this
    /// phase on the classifier.
    fn span(&self, rtt: Duration) -> Duration {
        let span = |rtt: Duration| SPAN.max(rtt * SPAN_ROUND_TRIPS);
        match self.phase {
            Phase::Raised { .. } => span(rtt),
            // A send buffer that is sent in bursts increases the RTT of its own segments.
            Phase::Watching { .. } => span(self.least_rtt.unwrap_or(rtt)) * 2,
            Phase::Lowered { .. } | Phase::Yielding { .. } => span(rtt) * 2,
        }
    }

    /// Returns whether the totals cover `spans` spans.
    fn is_long(&self, spans: u64) -> bool {
        let (Some(first), Some(last)) = (self.sums.front(), self.sums.back()) else { return false };
        last.at.saturating_since(first.at) >= self.span(last.rtt) * spans
    }

    /// Compares the losses of the present connections with those of fewer connections in this search.
    fn change_of_losses(&self, before: u32, sum: &Sum) -> Change {
        let Some(settled) = self.settled else { return Change::Unknown };
        Losses::between(&settled, sum).change_since(self.losses, self.count, before)
    }

    /// Returns whether windows limit most of the rate, and the losses are those of a policer, or random.
    fn are_losses_without_queue(&self, sum: &Sum, in_every: u32) -> bool {
        sum.windows_percent >= watching::CAPPED_PERCENT && self.loses_without_queue(in_every)
    }

    /// Returns whether less than one of `in_every` losses occurs with a queue. The losses are then those of a policer, or
    /// random.
    fn loses_without_queue(&self, in_every: u32) -> bool {
        in_every * self.losing_with_queue < self.losing
    }

    /// Returns whether the RTT of a connection is so far above its minimum that a queue has formed; `None` if nothing was
    /// acknowledged. Delayed ACKs raise the RTT by up to two segments at the rate of the connection.
    fn is_queued(&self, time: Duration, interval: &Interval) -> Option<bool> {
        let least = self.least_rtt.filter(|_| !interval.acked.is_zero() && !time.is_zero())?;
        let delayed = Rate::mean(interval.acked, time).time_for(Bytes::new(2 * PAYLOAD.0));
        Some(interval.rtt > least.mul_div(QUEUED_PERCENT, 100) + delayed)
    }

    /// Returns whether the total rate rises without a change of the number of connections.
    fn is_rising(&self) -> bool {
        let lost = self.sums.front().zip(self.sums.back());
        let has_lost = lost.is_some_and(|(first, last)| first.retransmits < last.retransmits);
        self.rises(if has_lost { RISING_PERCENT } else { RISING_WITHOUT_LOSS_PERCENT })
    }

    /// Returns whether the rate of the later half of the totals exceeds `percent` of the rate of the earlier half.
    fn rises(&self, percent: u64) -> bool {
        let middle = self.sums.len() / 2;
        let (Some(first), Some(middle), Some(last)) =
            (self.sums.front(), self.sums.get(middle), self.sums.back())
        else {
            return false;
        };
        let rate = |from: &Sum, to: &Sum| {
            Rate::mean(to.acked.saturating_sub(from.acked), to.at.saturating_since(from.at))
        };
        rate(middle, last) > rate(first, middle).mul_div(percent, 100)
    }

    /// Returns the mean rate over all totals.
    fn mean(&self) -> Option<Rate> {
        let (first, last) = (self.sums.front()?, self.sums.back()?);
        let time = last.at.saturating_since(first.at);
        (!time.is_zero()).then(|| Rate::mean(last.acked.saturating_sub(first.acked), time))
    }

    /// Returns the mean rate over all totals, if they cover a span.
    fn rate(&self) -> Option<Rate> {
        self.mean().filter(|_| self.is_long(1))
    }
}

/// Returns how many connections reach the rate `wanted`, if `count` of them reach `rate`.
fn needed(wanted: Rate, rate: Rate, count: u32) -> u32 {
    let needed = u128::from(wanted.as_bps()) * u128::from(count);
    let needed = needed.div_ceil(u128::from(rate.as_bps().max(1)));
    u32::try_from(needed).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
