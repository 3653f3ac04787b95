//! A log as a series of numbers: where its ramp ends, and how rate and window move together.

use std::fmt;

use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Bytes, Duration, Rate};

use super::{Measured, Sender};
use crate::measurement::Transfer;
use crate::thresholds::window;

/// The rate has levelled off where it first reaches this share of the later median.
const LEVEL: f64 = 0.7;
/// Length of an interval over the usual one: a shorter one, as the last often is, has a rate that means nothing.
const WHOLE: f64 = 0.5;
/// Difference of the receiver's window from its median, over the median: within, the window is constant.
const CONSTANT_WINDOW: f64 = 0.125;
/// Cwnd at the end of an interval over that before: above, the interval bounds the RTT by the doublings that it may hold.
const RAMPS: f64 = 1.5;
/// Largest Cwnd over smallest: below, the window varies too little for the rate to follow it.
const VARIES: f64 = 1.3;
/// Slope of log rate over log Cwnd, least and most: within, the rate goes with the window.
const FOLLOWS: (f64, f64) = (0.6, 1.6);
/// Correlation of the two: above, that is no coincidence.
const CORRELATED: f64 = 0.7;
/// Range between the quartiles of the rate, over its median: within, the rate is flat.
const FLAT: f64 = 0.25;
/// Cwnd at the end over Cwnd in the middle of a log without a loss: above, the window still grows.
const WINDOW_GROWS: f64 = 1.5;
/// The same of the rate, which must grow too.
const RATE_GROWS: f64 = 1.3;
/// Of the largest Cwnd: above, the window is still that of BBR's start.
const START_WINDOW: f64 = 0.99;
/// Round trips for which BBR must have kept that window. Its start ends after three without growth.
/// Unit: round trips
const START_KEPT: f64 = 10.0;
/// Cwnd over in flight in BBR's start, least and most.
/// Source: its gain of 2.89 (`BBRHighGain`); the range is chosen.
const START_GAIN: (f64, f64) = (2.5, 3.4);
/// Cwnd after losses over that before: below, the window has collapsed.
const COLLAPSED: f64 = 0.9;
/// Cwnd in and after a loss over that before: above, the sender keeps its window, as BBR does.
const KEPT: f64 = 0.95;
/// In flight over Cwnd of BBR: above. Its window is 2 BDP when steady and 2.89 in its start.
const LEAST_OF_BBR: f64 = 0.25;
/// Initial window of a connection: ten segments.
/// Source: RFC 6928.
/// Unit: bytes
const INITIAL_WINDOW: f64 = 14_480.0;

/// The intervals of a log, in seconds, bits and bytes.
pub(super) struct Series {
    points: Vec<Point>,
    /// The first point after the ramp.
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
    /// The receiver's window; below zero where the log has none.
    wnd: f64,
    /// The log's own RTT in seconds.
    rtt: f64,
    retransmits: u64,
}

impl Series {
    /// `None` when nothing was transferred.
    pub(super) fn of(log: &Transfer) -> Option<Self> {
        let lengths = log.intervals.iter().map(|i| i.length().as_secs_f64()).collect();
        let usual = median(lengths);
        let has_cwnd = log.intervals.iter().all(|i| i.cwnd.is_some_and(|cwnd| !cwnd.is_zero()));
        // The last report often covers a few milliseconds, whose rate means nothing.
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
        // What one report lacks, the series lacks: a median of the rest would be of another time.
        // A window of zero is a closed one, but kernels that do not tell it print zeros throughout.
        let has_wnd =
            points[level..].iter().all(|p| p.wnd >= 0.0) && points[level..].iter().any(|p| p.wnd > 0.0);
        let has_rtt = points[level..].iter().all(|p| p.rtt > 0.0);
        moved.then_some(Self { points, level, has_cwnd, has_wnd, has_rtt, streams: log.streams as f64 })
    }

    fn after(&self) -> &[Point] {
        &self.points[self.level..]
    }

    /// Intervals after the ramp.
    pub(super) fn steady_len(&self) -> usize {
        self.after().len()
    }

    /// How long the ramp takes.
    pub(super) fn ramp(&self) -> Duration {
        Duration::from_secs_f64(self.points[..self.level].iter().map(|p| p.length).sum())
    }

    /// The mean after the ramp: single intervals jump by write blocks, their mean does not.
    pub(super) fn steady(&self) -> Rate {
        let bits: f64 = self.after().iter().map(|p| p.rate * p.length).sum();
        let time: f64 = self.after().iter().map(|p| p.length).sum();
        Rate::from_bps((bits / time) as u64)
    }

    pub(super) fn retransmits(&self) -> Option<u64> {
        self.has_cwnd.then(|| self.points.iter().fold(0u64, |sum, p| sum.saturating_add(p.retransmits)))
    }

    /// Rates after the ramp, each the mean with its neighbours.
    fn smooth_rates(&self) -> Vec<f64> {
        smoothed(self.after(), |p| p.rate)
    }

    /// Round-trip times after the ramp: the log's own, each the mean with its neighbours, or else `rtt`.
    fn rtts(&self, rtt: Duration) -> Vec<f64> {
        if self.has_rtt {
            smoothed(self.after(), |p| p.rtt)
        } else {
            vec![rtt.as_secs_f64(); self.after().len()]
        }
    }

    /// Rate x RTT after the ramp, in bytes.
    fn inflights(&self, rtt: Duration) -> Vec<f64> {
        self.smooth_rates().iter().zip(self.rtts(rtt)).map(|(rate, rtt)| rate * rtt / 8.0).collect()
    }

    /// Median of rate x RTT after the ramp.
    pub(super) fn inflight(&self, rtt: Duration) -> Bytes {
        Bytes::new(median(self.inflights(rtt)) as u64)
    }

    /// The mean of the log's own RTTs after the ramp, if it has them.
    pub(super) fn mean_rtt(&self) -> Option<Duration> {
        let after = self.after();
        let mean = after.iter().map(|p| p.rtt).sum::<f64>() / after.len().max(1) as f64;
        self.has_rtt.then(|| Duration::from_secs_f64(mean))
    }

    /// Median of the receiver's window after the ramp, if the log has it.
    pub(super) fn median_wnd(&self) -> Option<Bytes> {
        self.has_wnd.then(|| Bytes::new(median(self.after().iter().map(|p| p.wnd).collect()) as u64))
    }

    /// The largest window that the receiver offered.
    pub(super) fn largest_wnd(&self) -> Option<Bytes> {
        let largest = self.points.iter().map(|p| p.wnd).fold(0.0, f64::max);
        (largest > 0.0).then(|| Bytes::new(largest as u64))
    }

    /// Whether the receiver's window after the ramp stays within an eighth of its median: a buffer at its
    /// end. The window of a receiver that reads slowly comes and goes.
    pub(super) fn wnd_is_constant(&self) -> bool {
        let middle = median(self.after().iter().map(|p| p.wnd).collect());
        self.has_wnd && self.after().iter().all(|p| (p.wnd - middle).abs() <= CONSTANT_WINDOW * middle)
    }

    /// Median of in flight over the receiver's window after the ramp.
    pub(super) fn inflight_per_wnd(&self, rtt: Duration) -> Option<f64> {
        let wnd = smoothed(self.after(), |p| p.wnd);
        let ratios = self.inflights(rtt).iter().zip(&wnd).map(|(bytes, wnd)| bytes / wnd.max(1.0)).collect();
        self.has_wnd.then(|| median(ratios))
    }

    /// Median of the congestion window after the ramp; `None` without one.
    pub(super) fn median_cwnd(&self) -> Option<Bytes> {
        self.has_cwnd.then(|| Bytes::new(median(self.after().iter().map(|p| p.cwnd).collect()) as u64))
    }

    /// Median of in flight over Cwnd after the ramp.
    pub(super) fn inflight_per_cwnd(&self, rtt: Duration) -> Option<f64> {
        let cwnd = smoothed(self.after(), |p| p.cwnd);
        let ratios = self.inflights(rtt).iter().zip(&cwnd).map(|(inflight, cwnd)| inflight / cwnd).collect();
        self.has_cwnd.then(|| median(ratios))
    }

    /// Median of rate over Cwnd, in windows per second.
    fn bytes_per_cwnd_second(&self) -> Option<f64> {
        let cwnd = smoothed(self.after(), |p| p.cwnd);
        let ratios = self.smooth_rates().iter().zip(&cwnd).map(|(rate, cwnd)| rate / 8.0 / cwnd).collect();
        self.has_cwnd.then(|| median(ratios))
    }

    /// The RTT at which exactly Cwnd would be in flight: no more can be.
    pub(super) fn rtt_by_cwnd(&self) -> Option<Duration> {
        self.bytes_per_cwnd_second().filter(|r| *r > 0.0).map(|r| Duration::from_secs_f64(1.0 / r))
    }

    /// The tightest upper bound of the RTT: by what fits the window, and by the ramp, where a window at most
    /// doubles each round trip.
    pub(super) fn rtt_bound(&self) -> Option<Duration> {
        let by_cwnd = self.rtt_by_cwnd()?.as_secs_f64();
        let before = std::iter::once(INITIAL_WINDOW * self.streams).chain(self.points.iter().map(|p| p.cwnd));
        let by_growth = before
            .zip(&self.points)
            .map(|(before, p)| (p.cwnd / before, p.length))
            .filter(|(growth, _)| *growth > RAMPS)
            .map(|(growth, length)| length / growth.log2());
        Some(Duration::from_secs_f64(by_growth.fold(by_cwnd, f64::min)))
    }

    /// Whether rate and window move in proportion: then the window limits, whatever the RTT is.
    pub(super) fn follows_cwnd(&self) -> bool {
        let cwnd = smoothed(self.after(), |p| p.cwnd);
        let rates = self.smooth_rates();
        let extremes = cwnd.iter().fold((f64::MAX, 0f64), |(low, high), c| (low.min(*c), high.max(*c)));
        if !self.has_cwnd || extremes.1 < VARIES * extremes.0 || rates.iter().any(|rate| *rate <= 0.0) {
            return false;
        }
        let ln = |values: &[f64]| values.iter().map(|v| v.ln()).collect::<Vec<_>>();
        let (slope, correlation) = regression(&ln(&cwnd), &ln(&rates));
        (FOLLOWS.0..=FOLLOWS.1).contains(&slope) && correlation > CORRELATED
    }

    /// Whether the rate after the ramp varies by no more than a quarter, between its quartiles.
    pub(super) fn is_flat(&self) -> bool {
        let mut rates = self.smooth_rates();
        rates.sort_by(f64::total_cmp);
        let at = |share: f64| rates[((rates.len() - 1) as f64 * share).round() as usize];
        at(0.75) - at(0.25) <= FLAT * at(0.5)
    }

    /// Whether the window was still growing at the end, untouched by any loss.
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

    /// How long a BBR sender kept the window of its start, 2.89 times what is in flight, after the rate had
    /// levelled off. It leaves the start after three round trips without growth, unless it has nothing to send.
    pub(super) fn stays_in_startup(&self, rtt: Duration) -> Option<Duration> {
        let cwnd = self.after().iter().map(|p| p.cwnd).fold(0.0, f64::max);
        let inflight = self.inflight(rtt).get() as f64;
        let held: f64 = self.after().iter().filter(|p| p.cwnd > START_WINDOW * cwnd).map(|p| p.length).sum();
        let long = held > START_KEPT * rtt.as_secs_f64();
        (long && (START_GAIN.0..=START_GAIN.1).contains(&(cwnd / inflight)))
            .then(|| Duration::from_secs_f64(held))
    }

    /// The interval with the most retransmissions, and what the window did around it.
    pub(super) fn collapse(&self) -> Option<Collapse> {
        let lossy = |p: &Point| p.retransmits > 0;
        let worst = (0..self.points.len()).max_by_key(|i| self.points[*i].retransmits)?;
        let first = (0..=worst).rev().take_while(|i| lossy(&self.points[*i])).last()?;
        let last = (worst..self.points.len()).take_while(|i| lossy(&self.points[*i])).last()?;
        let before = self.points.get(first.checked_sub(1)?)?.cwnd;
        // Repair may end after the last retransmission was sent.
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

    /// What the congestion control seems to be.
    pub(super) fn sender(&self, log: &Transfer, measured: &Measured) -> Sender {
        let named = log.congestion_control.as_deref().and_then(|name| name.parse().ok());
        if let Some(named) = named {
            return Sender::Named(named);
        }
        // The window in the interval before a loss, in it and after it.
        let around: Vec<(f64, f64, f64)> = self
            .points
            .windows(3)
            .skip(self.level.saturating_sub(1))
            .filter(|w| w[1].retransmits > 0)
            .map(|w| (w[0].cwnd, w[1].cwnd, w[2].cwnd))
            .collect();
        let kept = |(before, during, after): &(f64, f64, f64)| during.min(*after) > KEPT * before;
        let ratio = measured.inflight_per_cwnd.unwrap_or(1.0);
        // A BBR window is 2 x BDP when steady and 2.89 x when the start never filled the path.
        if ratio < window::FREE_IN_LOG && ratio > LEAST_OF_BBR && around.iter().any(kept) {
            return Sender::Inferred(Algorithm::Bbr1);
        }
        if around.iter().any(|w| !kept(w)) && self.collapse().is_some() {
            return Sender::Inferred(Algorithm::Cubic);
        }
        Sender::Assumed(Algorithm::Cubic)
    }
}

/// How the window fell at the worst loss.
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

/// The middle value; 0 of nothing.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => 0.5 * (values[n / 2 - 1] + values[n / 2]),
    }
}

/// Each value as the mean with its neighbours.
fn smoothed(points: &[Point], value: impl Fn(&Point) -> f64) -> Vec<f64> {
    (0..points.len())
        .map(|i| {
            let near = &points[i.saturating_sub(1)..points.len().min(i + 2)];
            near.iter().map(&value).sum::<f64>() / near.len() as f64
        })
        .collect()
}

/// Slope of `y` over `x`, and their correlation; zeros where one of them does not vary.
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
