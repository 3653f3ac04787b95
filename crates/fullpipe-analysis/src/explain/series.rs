//! A log as a time series, with the end of its ramp and the relation between rate and window.

use std::fmt;

use fullpipe_lab::stats;
use fullpipe_measurement::measurement::{Flow, Interval, Transfer};
use fullpipe_measurement::segment::DEFAULT_MSS;
use fullpipe_measurement::thresholds::{loss, queue, window};
use fullpipe_measurement::throughput_models::loss_based_rate;
use fullpipe_tcp::cc::{Algorithm, INITIAL_SEGMENTS};
use fullpipe_units::{Bytes, Duration, Rate};

use super::RttSource;
use super::{MeasuredFigures, Sender};

/// The rate has levelled off in the first interval that reaches this share of the median rate in the second
/// half of the log.
const LEVEL: f64 = 0.7;
/// An interval shorter than this share of the usual length is ignored, because its rate is not meaningful.
/// Usually this is the last interval.
const WHOLE: f64 = 0.5;
/// The receive window is constant if it stays within this share of its median.
const CONSTANT_WINDOW: f64 = 0.125;
/// Cwnd is constant if its maximum exceeds its minimum by at most this share.
const CONSTANT_CWND: f64 = 0.05;
/// An interval gives an upper bound of the RTT if Cwnd grows by more than this factor in it: the growth
/// bounds the number of doublings.
const RAMPS: f64 = 1.5;
/// The rate can follow Cwnd only if the maximum Cwnd is at least this multiple of the minimum.
const VARIES: f64 = 1.3;
/// The rate follows Cwnd if the slope of log(rate) over log(Cwnd) is in this range.
const FOLLOWS: (f64, f64) = (0.6, 1.6);
/// The relation between rate and Cwnd is not a coincidence if their correlation exceeds this value.
const CORRELATED: f64 = 0.7;
/// The rate is flat if its interquartile range is at most this share of its median.
const FLAT: f64 = 0.25;
/// Cwnd is still growing if its value at the end of a loss-free log exceeds this multiple of its value in the
/// middle.
const WINDOW_GROWS: f64 = 1.5;
/// The rate is growing, too, if its value at the end exceeds this multiple of its value in the middle.
const RATE_GROWS: f64 = 1.3;
/// Cwnd is still at its Startup value while it exceeds this share of the maximum Cwnd.
const START_WINDOW: f64 = 0.99;
/// BBR is stuck in Startup if it keeps its Startup window for more than this many round trips. Normally
/// Startup ends after three round trips without growth.
/// Unit: round trips
const START_KEPT: f64 = 10.0;
/// Range of the ratio of Cwnd to data in flight during BBR's Startup.
/// Source: its gain of 2.89 (`BBRHighGain`); the range is chosen.
const START_GAIN: (f64, f64) = (2.5, 3.4);
/// Cwnd has collapsed if losses reduce it to less than this share of its previous value.
const COLLAPSED: f64 = 0.9;
/// A sender keeps its window, as BBR does, if Cwnd during and after a loss exceeds this share of its value
/// before.
const KEPT: f64 = 0.95;
/// A sender does not slow down at losses if it delivers more than this multiple of the rate that the model of
/// a loss-based sender predicts.
/// Source: chosen; `tests/it/loss.rs` checks it with simulated logs: BBR at losses of 0.5 % and more exceeds
/// 2.5.
const OUTRUNS: f64 = 2.0;
/// Minimum share of Cwnd that is in flight under BBR, whose window is 2 BDP in the steady state and 2.89 BDP
/// in Startup.
const LEAST_OF_BBR: f64 = 0.25;
/// If there are more intervals than this after the ramp, the count of retransmissions leaves out
/// the first one.
const FEWEST_AFTER: usize = 4;
/// No interval behind a policer is faster than this multiple of the rate at which the policer drops packets.
/// An interval may exceed that rate, because the bucket has saved tokens.
const FASTER_THAN_A_POLICER: f64 = 1.1;

/// Intervals of a log, in units of seconds, bits and bytes.
pub(super) struct Series {
    points: Vec<Point>,
    /// Index of the first point after the ramp.
    level: usize,
    has_cwnd: bool,
    has_wnd: bool,
    has_rtt: bool,
    streams: f64,
}

#[derive(Clone, Copy)]
struct Point {
    start: f64,
    length: f64,
    rate: f64,
    cwnd: f64,
    /// Receive window in bytes; negative if the log has none.
    wnd: f64,
    /// RTT reported in the log, in seconds; zero if the log has none.
    rtt: f64,
    retransmits: u64,
}

impl Series {
    /// Returns the series of a log, or `None` if nothing was transferred.
    pub(super) fn of(log: &Transfer) -> Option<Self> {
        let lengths = log.intervals.iter().map(|i| i.length().as_secs_f64()).collect();
        let usual = median(lengths);
        let has_cwnd = log.intervals.iter().all(|i| i.cwnd.is_some_and(|cwnd| !cwnd.is_zero()));
        // The last report often covers only a few milliseconds, so its rate is not meaningful.
        let whole = log.intervals.iter().filter(|i| i.length().as_secs_f64() >= WHOLE * usual);
        let points: Vec<Point> = whole
            .map(|i| Point {
                start: i.start.as_secs_f64(),
                length: i.length().as_secs_f64(),
                rate: i.rate.as_bps() as f64,
                cwnd: i.cwnd.map_or(0.0, |cwnd| cwnd.get() as f64),
                wnd: i.snd_wnd.map_or(-1.0, |wnd| wnd.get() as f64),
                rtt: i.rtt.map_or(0.0, Duration::as_secs_f64),
                retransmits: i.retransmits.unwrap_or(0),
            })
            .collect();
        let later = median(points[points.len() / 2..].iter().map(|p| p.rate).collect());
        let moved = points.iter().any(|p| p.rate > 0.0) && !log.mean_rate().is_zero();
        let level = points.iter().position(|p| p.rate >= LEVEL * later)?;
        // If one report lacks a value, the whole series lacks it: the median of the other reports would cover
        // a different span of time. A window of zero means a closed window, but kernels that do not report
        // the window print zero in every report.
        let has_wnd =
            points[level..].iter().all(|p| p.wnd >= 0.0) && points[level..].iter().any(|p| p.wnd > 0.0);
        let has_rtt = points[level..].iter().all(|p| p.rtt > 0.0);
        moved.then_some(Self { points, level, has_cwnd, has_wnd, has_rtt, streams: log.streams as f64 })
    }

    fn after(&self) -> &[Point] {
        &self.points[self.level..]
    }

    /// Returns the number of intervals after the ramp.
    pub(super) fn steady_len(&self) -> usize {
        self.after().len()
    }

    /// Returns the length of the ramp.
    pub(super) fn ramp(&self) -> Duration {
        Duration::from_secs_f64(self.points[..self.level].iter().map(|p| p.length).sum())
    }

    /// Returns the mean rate after the ramp. Single intervals vary by whole write blocks, but the mean does
    /// not.
    pub(super) fn steady(&self) -> Rate {
        let bits: f64 = self.after().iter().map(|p| p.rate * p.length).sum();
        let time: f64 = self.after().iter().map(|p| p.length).sum();
        Rate::from_bps((bits / time) as u64)
    }

    pub(super) fn retransmits(&self) -> Option<u64> {
        self.has_cwnd.then(|| self.points.iter().fold(0u64, |sum, p| sum.saturating_add(p.retransmits)))
    }

    /// Returns the retransmissions after the ramp, and the number of segments sent in that time. The ramp
    /// overshoots, and the repair of its losses may take until the end of the next interval. This interval is
    /// therefore left out, too, if enough others remain.
    pub(super) fn steady_retransmits(&self, mss: Bytes) -> (u64, u64) {
        let after = self.after();
        let after = if self.level > 0 && after.len() > FEWEST_AFTER { &after[1..] } else { after };
        let again = after.iter().fold(0u64, |sum, p| sum.saturating_add(p.retransmits));
        let bytes: f64 = after.iter().map(|p| p.rate * p.length / 8.0).sum();
        (again, again.saturating_add((bytes / mss.get().max(1) as f64) as u64))
    }

    /// Returns the rates after the ramp, each averaged with its neighbours.
    fn smooth_rates(&self) -> Vec<f64> {
        smoothed(self.after(), |p| p.rate)
    }

    /// Returns the log's own RTTs after the ramp, each averaged with its neighbours, or `rtt` for every
    /// interval if the log has none.
    fn rtts(&self, rtt: Duration) -> Vec<f64> {
        if self.has_rtt {
            smoothed(self.after(), |p| p.rtt)
        } else {
            vec![rtt.as_secs_f64(); self.after().len()]
        }
    }

    /// Returns rate x RTT after the ramp, in bytes.
    fn inflights(&self, rtt: Duration) -> Vec<f64> {
        self.smooth_rates().iter().zip(self.rtts(rtt)).map(|(rate, rtt)| rate * rtt / 8.0).collect()
    }

    /// Returns the median of rate x RTT after the ramp.
    pub(super) fn inflight(&self, rtt: Duration) -> Bytes {
        Bytes::new(median(self.inflights(rtt)) as u64)
    }

    /// Returns the mean of the log's own RTTs after the ramp, if it has them.
    pub(super) fn mean_rtt(&self) -> Option<Duration> {
        let after = self.after();
        let mean = after.iter().map(|p| p.rtt).sum::<f64>() / after.len().max(1) as f64;
        self.has_rtt.then(|| Duration::from_secs_f64(mean))
    }

    /// Returns the median receive window after the ramp, if the log has it.
    pub(super) fn median_wnd(&self) -> Option<Bytes> {
        self.has_wnd.then(|| Bytes::new(median(self.after().iter().map(|p| p.wnd).collect()) as u64))
    }

    /// Returns the maximum receive window that the receiver advertised.
    pub(super) fn largest_wnd(&self) -> Option<Bytes> {
        let largest = self.points.iter().map(|p| p.wnd).fold(0.0, f64::max);
        (largest > 0.0).then(|| Bytes::new(largest as u64))
    }

    /// Returns whether the receive window stays within an eighth of its median after the ramp, as with a
    /// buffer at its limit. With a slow reader the window varies.
    pub(super) fn wnd_is_constant(&self) -> bool {
        let middle = median(self.after().iter().map(|p| p.wnd).collect());
        self.has_wnd && self.after().iter().all(|p| (p.wnd - middle).abs() <= CONSTANT_WINDOW * middle)
    }

    /// Returns the median ratio of data in flight to receive window after the ramp.
    pub(super) fn inflight_per_wnd(&self, rtt: Duration) -> Option<f64> {
        let wnd = smoothed(self.after(), |p| p.wnd);
        let ratios = self.inflights(rtt).iter().zip(&wnd).map(|(bytes, wnd)| bytes / wnd.max(1.0)).collect();
        self.has_wnd.then(|| median(ratios))
    }

    /// Returns the median congestion window after the ramp; `None` if the log has none.
    pub(super) fn median_cwnd(&self) -> Option<Bytes> {
        self.has_cwnd.then(|| Bytes::new(median(self.after().iter().map(|p| p.cwnd).collect()) as u64))
    }

    /// Returns whether Cwnd stays the same after the ramp.
    pub(super) fn cwnd_is_constant(&self) -> bool {
        let cwnd = || self.after().iter().map(|p| p.cwnd);
        let (least, most) = (cwnd().fold(f64::MAX, f64::min), cwnd().fold(0.0, f64::max));
        self.has_cwnd && most <= (1.0 + CONSTANT_CWND) * least
    }

    /// Returns the median ratio of data in flight to Cwnd after the ramp.
    pub(super) fn inflight_per_cwnd(&self, rtt: Duration) -> Option<f64> {
        let cwnd = smoothed(self.after(), |p| p.cwnd);
        let ratios = self.inflights(rtt).iter().zip(&cwnd).map(|(inflight, cwnd)| inflight / cwnd).collect();
        self.has_cwnd.then(|| median(ratios))
    }

    /// Returns the median ratio of rate to Cwnd, in windows per second.
    fn bytes_per_cwnd_second(&self) -> Option<f64> {
        let cwnd = smoothed(self.after(), |p| p.cwnd);
        let ratios = self.smooth_rates().iter().zip(&cwnd).map(|(rate, cwnd)| rate / 8.0 / cwnd).collect();
        self.has_cwnd.then(|| median(ratios))
    }

    /// Returns the RTT at which exactly one Cwnd would be in flight, an upper bound of the real RTT.
    pub(super) fn rtt_by_cwnd(&self) -> Option<Duration> {
        self.bytes_per_cwnd_second().filter(|r| *r > 0.0).map(|r| Duration::from_secs_f64(1.0 / r))
    }

    /// Returns the tightest upper bound of the RTT, based on two facts: data in flight never exceeds the
    /// window, and during the ramp the window at most doubles per round trip.
    pub(super) fn rtt_bound(&self) -> Option<Duration> {
        let by_cwnd = self.rtt_by_cwnd()?.as_secs_f64();
        let initial = (INITIAL_SEGMENTS * DEFAULT_MSS.get()) as f64;
        let before = std::iter::once(initial * self.streams).chain(self.points.iter().map(|p| p.cwnd));
        let by_growth = before
            .zip(&self.points)
            .map(|(before, p)| (p.cwnd / before, p.length))
            .filter(|(growth, _)| *growth > RAMPS)
            .map(|(growth, length)| length / growth.log2());
        Some(Duration::from_secs_f64(by_growth.fold(by_cwnd, f64::min)))
    }

    /// Returns whether rate and window vary in proportion; the window is then the limit, whatever the RTT.
    pub(super) fn follows_cwnd(&self) -> bool {
        let cwnd = smoothed(self.after(), |p| p.cwnd);
        let rates = self.smooth_rates();
        let extremes = cwnd.iter().fold((f64::MAX, 0f64), |(low, high), c| (low.min(*c), high.max(*c)));
        let varies = extremes.1 >= VARIES * extremes.0 && rates.iter().all(|rate| *rate > 0.0);
        if !self.has_cwnd || !varies || self.cwnd_follows_rate() {
            return false;
        }
        let ln = |values: &[f64]| values.iter().map(|v| v.ln()).collect::<Vec<_>>();
        let (slope, correlation) = regression(&ln(&cwnd), &ln(&rates));
        (FOLLOWS.0..=FOLLOWS.1).contains(&slope) && correlation > CORRELATED
    }

    /// Returns the median rate after the ramp. The median is used because single intervals count whole write
    /// blocks.
    pub(super) fn typical(&self) -> Rate {
        Rate::from_bps(median(self.after().iter().map(|p| p.rate).collect()) as u64)
    }

    /// Returns the smallest of the log's own RTTs in its second half, if it has them.
    pub(super) fn least_rtt_at_last(&self) -> Option<Duration> {
        let least = self.points[self.points.len() / 2..].iter().map(|p| p.rtt).fold(f64::MAX, f64::min);
        self.has_rtt.then(|| Duration::from_secs_f64(least))
    }

    /// Returns whether no report shows a smaller receive window than an earlier one. If the reader keeps up,
    /// the window only grows. If the reader is slow, the unread data in the buffer reduces the window.
    pub(super) fn wnd_never_shrinks(&self) -> bool {
        self.has_wnd && self.points.windows(2).all(|pair| pair[0].wnd <= pair[1].wnd)
    }

    /// Returns whether Cwnd fell although nothing was retransmitted. The sender then computes its window from
    /// the delivered rate, as BBR does, so the window follows the rate and does not determine it.
    fn cwnd_follows_rate(&self) -> bool {
        let lossless = |pair: &[Point]| pair.iter().all(|p| p.retransmits == 0);
        self.points.windows(2).any(|pair| lossless(pair) && pair[1].cwnd < COLLAPSED * pair[0].cwnd)
    }

    /// Returns the first interval with losses, and the losses after it; `None` without a loss or a window.
    pub(super) fn first_losses(&self, mss: Bytes) -> Option<(FirstLosses, LaterLosses)> {
        let mss = mss.get().max(1) as f64;
        let lossy = |p: &Point| p.retransmits > 0;
        let first = self.points.iter().position(lossy)?;
        let segments = |p: &Point| p.rate * p.length / 8.0 / mss;
        // The repair of a burst may take until the next interval.
        let after = self.points[first..].iter().take(2).map(|p| p.cwnd).fold(f64::MAX, f64::min);
        let end = first + self.points[first..].iter().take_while(|p| lossy(p)).take(2).count();
        let later = &self.points[end..];
        let begins = |i: &usize| lossy(&later[*i]) && (*i == 0 || !lossy(&later[*i - 1]));
        let begins: Vec<usize> = (0..later.len()).filter(begins).collect();
        self.has_cwnd.then(|| {
            let burst = FirstLosses {
                retransmits: self.points[first].retransmits,
                segments: segments(&self.points[first]),
                window_after: after / mss,
            };
            let later = LaterLosses {
                retransmits: later.iter().map(|p| p.retransmits).sum(),
                segments: later.iter().map(segments).sum(),
                episodes: begins.len(),
                rate: median(begins.iter().map(|i| later[*i].rate).collect()),
                fastest: self.points.iter().map(|p| p.rate).fold(0.0, f64::max),
            };
            (burst, later)
        })
    }

    /// Returns whether the interquartile range of the rate after the ramp is at most a quarter of its median.
    pub(super) fn is_flat(&self) -> bool {
        let mut rates = self.smooth_rates();
        rates.sort_by(f64::total_cmp);
        let at = |share| stats::nearest(&rates, share).unwrap_or(0.0);
        at(0.75) - at(0.25) <= FLAT * at(0.5)
    }

    /// Returns whether the window was still growing at the end of a loss-free log.
    pub(super) fn still_growing(&self) -> bool {
        let lossless = self.points.iter().all(|p| p.retransmits == 0);
        let (Some(last), Some(middle)) = (self.points.last(), self.points.get(self.points.len() / 2)) else {
            return false;
        };
        self.has_cwnd
            && lossless
            && last.cwnd > WINDOW_GROWS * middle.cwnd
            && last.rate > RATE_GROWS * middle.rate
    }

    /// Returns how long a BBR sender kept its Startup window, 2.89 times the data in flight, after the rate
    /// had levelled off. BBR leaves Startup after three round trips without growth, unless it is
    /// application-limited.
    pub(super) fn stays_in_startup(&self, rtt: Duration) -> Option<Duration> {
        let cwnd = self.after().iter().map(|p| p.cwnd).fold(0.0, f64::max);
        let inflight = self.inflight(rtt).get() as f64;
        let held: f64 = self.after().iter().filter(|p| p.cwnd > START_WINDOW * cwnd).map(|p| p.length).sum();
        let long = held > START_KEPT * rtt.as_secs_f64();
        (long && (START_GAIN.0..=START_GAIN.1).contains(&(cwnd / inflight)))
            .then(|| Duration::from_secs_f64(held))
    }

    /// Returns the interval with the most retransmissions, and the fall of the window around it.
    pub(super) fn collapse(&self) -> Option<Collapse> {
        let lossy = |p: &Point| p.retransmits > 0;
        let worst = (0..self.points.len()).max_by_key(|i| self.points[*i].retransmits)?;
        let first = (0..=worst).rev().take_while(|i| lossy(&self.points[*i])).last()?;
        let last = (worst..self.points.len()).take_while(|i| lossy(&self.points[*i])).last()?;
        let before = self.points.get(first.checked_sub(1)?)?.cwnd;
        // Recovery may end after the last retransmission.
        let after = self.points[last..].iter().take(2).map(|p| p.cwnd).fold(f64::MAX, f64::min);
        let episode = &self.points[first..=last];
        (self.has_cwnd && after < COLLAPSED * before).then(|| Collapse {
            before: Bytes::new(before as u64),
            after: Bytes::new(after as u64),
            retransmits: episode.iter().fold(0u64, |sum, p| sum.saturating_add(p.retransmits)),
            worst: self.points[worst].retransmits,
            worst_at: self.points[worst].start,
            worst_until: self.points[worst].start + self.points[worst].length,
        })
    }

    /// Returns the rate at which most losses occurred, with the number of these losses, if it may be the rate
    /// of a policer: there is no standing queue, and no interval is much faster. `idle` is the RTT of the
    /// idle path. Returns `None` if losses are so frequent that an interval contains several of them, or if
    /// the log has no RTT.
    pub(super) fn losses_at_one_rate(&self, idle: Duration) -> Option<(Rate, usize)> {
        let lossy = |i: usize| self.points[i].retransmits > 0;
        let all = 0..self.points.len();
        // Consecutive intervals with retransmissions are one episode.
        let begins: Vec<usize> = all.clone().filter(|i| lossy(*i) && (*i == 0 || !lossy(*i - 1))).collect();
        if !self.has_rtt || 2 * all.filter(|i| lossy(*i)).count() > self.points.len() {
            return None;
        }
        // The first loss ends slow start. The rate at that loss is random, because slow start overshoots.
        let later = begins.get(1..)?;
        // A loss may occur near the start or near the end of its interval.
        let around = |begin: &usize| {
            let around = &self.points[begin - 1..=*begin];
            let level = around.iter().all(|p| p.rtt < queue::NONE_IN_LOG * idle.as_secs_f64());
            (around.iter().map(|p| p.rate).fold(0.0, f64::max), level)
        };
        let around: Vec<(f64, bool)> = later.iter().map(around).collect();
        let rate = median(around.iter().map(|(rate, _)| *rate).collect());
        let alike = |(of, level): &&(f64, bool)| *level && (of - rate).abs() <= loss::ONE_RATE * rate;
        let alike = around.iter().filter(alike).count();
        let enough =
            alike >= loss::FEWEST_EPISODES && alike as f64 >= loss::MOST_EPISODES * around.len() as f64;
        let after_start = &self.points[later.first()? - 1..];
        let fastest = after_start.iter().map(|p| p.rate).fold(0.0, f64::max);
        (enough && fastest <= FASTER_THAN_A_POLICER * rate).then(|| (Rate::from_bps(rate as u64), alike))
    }

    /// Returns whether the flow is much faster than a loss-based sender could be if each interval with
    /// retransmissions contained one loss event. Such a flow does not slow down at losses, whatever its
    /// window shows.
    fn outruns_its_losses(&self, measured: &MeasuredFigures) -> bool {
        let after = self.after();
        let lossy = after.iter().filter(|p| p.retransmits > 0).count();
        if 2 * lossy < after.len() || measured.streams != 1 || measured.rtt_source == RttSource::Bound {
            return false;
        }
        let (_, segments) = self.steady_retransmits(measured.mss);
        let rate = loss_based_rate(measured.rtt, lossy as f64 / segments.max(1) as f64, measured.mss);
        measured.steady.as_bps() as f64 > OUTRUNS * rate.as_bps() as f64
    }

    /// Returns the congestion control that the log names or suggests.
    ///
    /// The windows of parallel streams are compared one by one: a loss of one stream hardly changes the sum
    /// of the windows.
    pub(super) fn sender<'f>(
        &self,
        log: &Transfer,
        measured: &MeasuredFigures,
        flows: impl Iterator<Item = &'f Flow>,
    ) -> Sender {
        let named = log.congestion_control.as_deref().and_then(|name| name.parse().ok());
        if let Some(named) = named {
            return Sender::Named(named);
        }
        // Windows in the interval before a loss, during it and after it.
        let around: Vec<(f64, f64, f64)> =
            flows.flat_map(|flow| around_losses(flow, self.level.saturating_sub(1))).collect();
        let kept = |(before, during, after): &(f64, f64, f64)| during.min(*after) > KEPT * before;
        let ratio = measured.inflight_per_cwnd.unwrap_or(1.0);
        // BBR's window is 2 BDP in the steady state, and 2.89 BDP if Startup never filled the path.
        let times_kept = around.iter().filter(|w| kept(w)).count();
        let mostly_kept = times_kept > 0 && 2 * times_kept >= around.len();
        let by_window = ratio < window::FREE_IN_LOG && ratio > LEAST_OF_BBR && mostly_kept;
        if by_window || self.outruns_its_losses(measured) {
            return Sender::Inferred(Algorithm::Bbr1);
        }
        if around.iter().any(|w| !kept(w)) && self.collapse().is_some() {
            return Sender::Inferred(Algorithm::Cubic);
        }
        Sender::Assumed(Algorithm::Cubic)
    }
}

/// Returns the windows of a stream in the interval before each loss, during it and after it, from interval
/// number `first` on.
fn around_losses(flow: &Flow, first: usize) -> Vec<(f64, f64, f64)> {
    let cwnd = |i: &Interval| i.cwnd.map(|cwnd| cwnd.get() as f64);
    let around = flow.intervals.windows(3).skip(first).filter(|w| w[1].retransmits.is_some_and(|n| n > 0));
    around.filter_map(|w| Some((cwnd(&w[0])?, cwnd(&w[1])?, cwnd(&w[2])?))).collect()
}

/// First interval of a log with losses.
pub(super) struct FirstLosses {
    pub(super) retransmits: u64,
    /// Segments carried in that interval.
    pub(super) segments: f64,
    /// Smallest reported window in that interval and the next one, in segments.
    pub(super) window_after: f64,
}

/// Losses after the first interval with losses and the repair of these losses.
pub(super) struct LaterLosses {
    pub(super) retransmits: u64,
    /// Number of segments carried after the first interval with losses and its repair.
    pub(super) segments: f64,
    /// Number of episodes; consecutive intervals with losses are one episode.
    pub(super) episodes: usize,
    /// Median of the rates at these episodes, in bit/s.
    pub(super) rate: f64,
    /// Rate of the fastest interval of the log, in bit/s.
    pub(super) fastest: f64,
}

/// Fall of the window at the most severe loss.
pub(super) struct Collapse {
    before: Bytes,
    after: Bytes,
    retransmits: u64,
    worst: u64,
    worst_at: f64,
    worst_until: f64,
}

impl fmt::Display for Collapse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cwnd collapses from {} to {} as ", self.before, self.after)?;
        if self.worst < self.retransmits {
            write!(f, "{} segments are retransmitted, {} of them at ", self.retransmits, self.worst)?;
        } else {
            write!(f, "{} segments are retransmitted at ", self.worst)?;
        }
        write!(f, "{:.0}-{:.0} s", self.worst_at, self.worst_until)
    }
}

/// Returns the median, or 0 for no values.
fn median(values: Vec<f64>) -> f64 {
    stats::median(values).unwrap_or(0.0)
}

/// Returns each value averaged with its neighbours.
fn smoothed(points: &[Point], value: impl Fn(&Point) -> f64) -> Vec<f64> {
    (0..points.len())
        .map(|i| {
            let near = &points[i.saturating_sub(1)..points.len().min(i + 2)];
            near.iter().map(&value).sum::<f64>() / near.len() as f64
        })
        .collect()
}

/// Returns the slope of `y` over `x` and their correlation; zeros if either of them is constant.
fn regression(x: &[f64], y: &[f64]) -> (f64, f64) {
    let n = x.len() as f64;
    let mean = |values: &[f64]| values.iter().sum::<f64>() / n;
    let (mx, my) = (mean(x), mean(y));
    let sum = |a: &[f64], ma: f64, b: &[f64], mb: f64| {
        a.iter().zip(b).map(|(a, b)| (a - ma) * (b - mb)).sum::<f64>()
    };
    let (xx, xy, yy) = (sum(x, mx, x, mx), sum(x, mx, y, my), sum(y, my, y, my));
    if xx > 0.0 && yy > 0.0 { (xy / xx, xy / (xx * yy).sqrt()) } else { (0.0, 0.0) }
}
