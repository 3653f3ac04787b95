//! Fits the path to a log, so that the simulated present state has the rate of the log.
//!
//! Only the loss rate is fitted, within the interval of its estimate, because the input does not state it.
//! Buffers, kernel, congestion control, link and RTT stay as they are known. All loss rates that meet the log
//! determine the range of the later rungs.
//!
//! ```text
//!   loss:   low ├────x────x────o────o────o────x────┤ high      o  the simulated rate is the log's
//!                              └ range of ┘
//!                              later rungs
//! ```

use std::fmt;

use fullpipe_lab::campaign::{Job, JobWatch, Progress};
use fullpipe_lab::cost::RunCost;
use fullpipe_lab::outcome::{FlowOutcome, Outcome};
use fullpipe_lab::scenario::Scenario;
use fullpipe_lab::stats::{mean, quantile};
use fullpipe_measurement::classify::Limit;
use fullpipe_measurement::loss_estimate::{LossBasis, LossEstimate};
use fullpipe_measurement::measurement::Interval;
use fullpipe_units::{Bytes, Duration, Instant, Probability, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::budget::{Budget, Stop};
use super::model::{Model, PathModel};
use super::rung::Rung;
use super::runs::simulated;
use crate::explain::{Facts, Findings};

/// Number of loss rates that are tried, the estimate and both bounds included.
const TRIED: usize = 7;
/// Number of seeds for each loss rate that is tried. With two seeds, a range that contains the log's rate is
/// often missed.
const SEEDS: u64 = 5;
/// Number of seeds for the comparison with the log.
const SEEDS_SHOWN: u64 = 8;
/// Smallest loss rate that is tried besides the lower bound, as a share of the estimate, if the lower bound
/// is far below the estimate. At this loss rate, a loss-based sender is about ten times as fast as at the
/// estimate.
const LEAST: f64 = 0.03;
/// Quantiles of the simulated rates between which the log's rate must lie.
const MIDDLE: (f64, f64) = (0.1, 0.9);
/// The mean of the simulated rates meets the log if it differs by at most this share.
/// Source: the project's bound for simulated goodput against a kernel's.
const NEAR: f64 = 0.1;
/// Share by which the rate of a log may be outside the quantiles. Behind a window, all seeds have nearly the same rate,
/// and the rate of a log is rounded.
const ROUNDED: f64 = 0.01;
/// Minimum number of loss events for which the mean must meet the log. With fewer events, the log itself is only one
/// random sample.
const MANY_EVENTS: u64 = 20;
/// A range is wide if its upper end exceeds its lower end by more than this factor.
const WIDE: u64 = 2;
/// Maximum length of the test that is recommended if a log has few loss events. A flow that rarely loses a packet would
/// need an even longer test, which is impractical.
const LONGEST_TEST: Duration = Duration::from_secs(600);
/// Lengths of recommended tests are multiples of this.
const STEP_OF_TESTS: Duration = Duration::from_secs(30);
/// A log counts as long as a run if their durations differ by at most this factor. Tools end a test a little
/// late: iperf3's `-t 30` takes 30.00 to 30.05 s.
const AS_LONG: (u64, u64) = (51, 50);
/// Maximum work of all runs of a fit in data packets, a few seconds on two cores. A log that would need more work is
/// compared without a fit, or not at all.
const PACKETS: u64 = 60_000_000;
/// Number of steps in which a loss rate is searched for between two that were tried. Neighbours typically differ by a
/// factor of two, and the rates of a loss-based sender by a factor of 1.7. Three steps reduce the latter to 1.07, which
/// is within [`NEAR`].
const BISECTIONS: usize = 3;

/// Comparison of a log with the simulation of its present state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Fit {
    /// Whether the simulation meets the log: the log's rate lies between the 10th and the 90th percentile of
    /// the simulated rates, and their mean is within 10 % of it. With 1 to 19 loss events the percentiles
    /// alone decide, and without any loss the mean alone.
    pub met: bool,
    /// Rate of the log: key `log_bps`.
    #[serde(rename = "log_bps", with = "fullpipe_measurement::json::Bps")]
    pub log: Rate,
    /// Mean of the simulated rates: key `mean_bps`.
    #[serde(rename = "mean_bps", with = "fullpipe_measurement::json::Bps")]
    pub mean: Rate,
    /// 10th percentile of the simulated rates: key `low_bps`.
    #[serde(rename = "low_bps", with = "fullpipe_measurement::json::Bps")]
    pub low: Rate,
    /// 90th percentile of the simulated rates: key `high_bps`.
    #[serde(rename = "high_bps", with = "fullpipe_measurement::json::Bps")]
    pub high: Rate,
    /// Number of simulated seeds.
    pub seeds: u64,
    /// Loss rate of the simulation.
    pub loss: f64,
    /// Smallest loss rate that meets the log.
    pub loss_low: f64,
    /// Largest loss rate that meets the log.
    pub loss_high: f64,
    /// Lowest rate that is expected of further measurements on this path: the lowest mean with a loss rate that meets
    /// the log, or `low` if that is lower. Key `range_low_bps`.
    #[serde(default, rename = "range_low_bps", with = "fullpipe_measurement::json::OptionalBps")]
    pub range_low: Option<Rate>,
    /// Highest rate that is expected of further measurements on this path: key `range_high_bps`.
    #[serde(default, rename = "range_high_bps", with = "fullpipe_measurement::json::OptionalBps")]
    pub range_high: Option<Rate>,
    /// Length of a test with enough loss events for narrower ranges: key `longer_test_s`. Null if all ranges of
    /// the ladder are narrow, or if the log has enough loss events.
    #[serde(default, rename = "longer_test_s", with = "fullpipe_measurement::json::OptionalSeconds")]
    pub longer_test: Option<Duration>,
}

impl Fit {
    /// Returns the range in which further measurements on this path are expected. It covers the seeds, and the
    /// loss rates that meet the log.
    pub fn range(&self) -> (Rate, Rate) {
        (self.range_low.unwrap_or(self.low), self.range_high.unwrap_or(self.high))
    }
}

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { log, mean, low, high, seeds, .. } = self;
        let loss = Probability::from_f64(self.loss);
        write!(
            f,
            "the simulation of the fitted path without changes, with a loss of {loss}, gives {mean} \
             ({seeds} seeds, 10th to 90th percentile {low} to {high}); the log has {log}: "
        )?;
        f.write_str(if self.met {
            "met"
        } else {
            "not met: the model lacks some property of this path, so the other rungs are less certain than \
             their ranges suggest"
        })
    }
}

/// Returns the comparison with the log, and the path with the loss rates that meet it; `None` if the path
/// cannot be fitted to the limit of the log, if the log does not count losses, or if the simulation takes too
/// long.
pub(super) fn fitted(
    model: &Model<'_>,
    facts: &Facts<'_>,
    findings: &Findings,
    budget: &mut Budget,
    watch: &dyn JobWatch,
) -> Result<Option<(Fit, PathModel)>, Stop> {
    let first = findings.findings.first().map(|first| first.limit);
    let by_host = matches!(
        first,
        None | Some(
            Limit::App | Limit::ReceiverApp | Limit::Pacing | Limit::SlowStart | Limit::Cpu | Limit::Unknown
        )
    );
    // A receiver's log does not count losses, so the loss rate is unknown.
    let Some(loss) = findings.loss.filter(|_| !by_host) else { return Ok(None) };
    let log = Log::of(&facts.transfer.intervals, findings, model.duration(model.present()));
    let seeds = if model.path.loss_interval.is_none_or(|(_, high)| high.is_zero()) { 1 } else { SEEDS_SHOWN };
    let mut runs = PresentRuns { model, log: &log, budget, watch, rates: Vec::new() };
    let work = |runs: &PresentRuns<'_, '_>, loss| RunCost::of(&runs.scenario(loss, 1), false).packets();
    let of_comparison = work(&runs, model.path.loss) * seeds as f64;
    if of_comparison > PACKETS as f64 {
        return Ok(None);
    }
    let estimate = runs.compared(model.path, seeds, &loss)?;
    let Some(interval) = model.path.loss_interval.filter(|_| seeds > 1) else {
        return Ok(Some((estimate, model.path)));
    };
    let tried = losses(model.path.loss, interval);
    // Three searches follow, and the comparison is repeated at two other loss rates.
    let trials = SEEDS as f64 * (TRIED + 3 * BISECTIONS) as f64 / TRIED as f64;
    let of_trials = tried.iter().map(|loss| work(&runs, *loss)).sum::<f64>() * trials;
    if of_trials + 3.0 * of_comparison > PACKETS as f64 {
        return Ok(Some((estimate, model.path)));
    }
    let met = within_budget(runs.meeting(&tried))?;
    let Some(mut met) = met.filter(|met| !met.is_empty()) else {
        return Ok(Some((estimate, model.path)));
    };
    // A few seeds hardly distinguish two rates, so the estimate is kept if it reproduces the log, unless the flow may
    // have caused all of its losses. Behind a window or a buffer, the rate hardly depends on the loss, so the
    // loss rate follows only from the count of losses.
    let by_window = matches!(first, Some(Limit::Rwnd | Limit::Sndbuf));
    let counted = by_window && met.contains(&model.path.loss);
    let by_itself = loss.low.is_zero() && loss.events > 0;
    if (estimate.met && !by_itself) || counted {
        return Ok(Some(runs.spanning(estimate, model.path.loss, &met)));
    }
    let Some(mut at) = runs.nearest(&met) else { return Ok(Some((estimate, model.path))) };
    let compared = runs.compared(PathModel { loss: at, ..model.path }, seeds, &loss);
    let Some(mut fit) = within_budget(compared)? else { return Ok(Some((estimate, model.path))) };
    if !fit.met {
        // The loss rates that were tried are too far apart.
        let between = within_budget(runs.around_the_log(&tried))?.unwrap_or_default();
        met.extend(between.into_iter().filter(|loss| runs.is_met(*loss)));
        let closer = runs.nearest(&met).unwrap_or(at);
        let compared = runs.compared(PathModel { loss: closer, ..model.path }, seeds, &loss);
        if let Some(compared) = within_budget(compared)?.filter(|compared| compared.met) {
            (at, fit) = (closer, compared);
        }
    }
    Ok(Some(runs.spanning(fit, at, &met)))
}

/// Returns the length of a test that is expected to have enough loss events for narrow ranges; `None` if the ranges
/// of `rungs` and `fit` are narrow already, or if the log of this `length` has enough events.
pub(super) fn longer_test(
    fit: &Fit,
    rungs: &[Rung],
    loss: &LossEstimate,
    length: Duration,
) -> Option<Duration> {
    let of_rungs = rungs.iter().filter_map(|rung| rung.low.zip(rung.high));
    let is_wide = of_rungs.chain([fit.range()]).any(|(low, high)| high > low.mul_div(WIDE, 1));
    if !is_wide || loss.basis != LossBasis::Events || !(1..MANY_EVENTS).contains(&loss.events) {
        return None;
    }
    let steps = length.mul_div(MANY_EVENTS, loss.events).as_nanos().div_ceil(STEP_OF_TESTS.as_nanos());
    let longer = (STEP_OF_TESTS * steps).min(LONGEST_TEST);
    (longer > length).then_some(longer)
}

/// Returns the value, or `None` if it was not simulated because of the budget.
fn within_budget<T>(made: Result<T, Stop>) -> Result<Option<T>, Stop> {
    match made {
        Err(Stop::OverBudget) => Ok(None),
        made => made.map(Some),
    }
}

/// Rate of a log, and the part of a simulated run that corresponds to it.
struct Log {
    rate: Rate,
    /// Whether the whole log is compared; otherwise the second halves of a run and of the log are compared.
    whole: bool,
}

impl Log {
    /// Returns the rate of a log with these intervals, for comparison with runs of `duration`. The rate of a loss-based
    /// sender falls for half a minute after the peak of its start, so a rate that includes the start is compared only
    /// with a run of the same length.
    fn of(intervals: &[Interval], findings: &Findings, duration: Duration) -> Self {
        let measured = &findings.measured;
        if is_as_long(measured.length, duration) {
            return Self { rate: measured.mean, whole: true };
        }
        let middle = Instant::ZERO + measured.length / 2;
        let later = || intervals.iter().filter(|interval| interval.start >= middle);
        let bytes = later().fold(Bytes::ZERO, |sum, interval| sum + interval.bytes);
        let length = later().fold(Duration::ZERO, |sum, interval| sum + interval.length());
        let rate = if length.is_zero() { measured.steady } else { Rate::mean(bytes, length) };
        Self { rate, whole: false }
    }

    /// Returns whether the rate of the log is between the lowest and the highest simulated rate, or close to
    /// one of them.
    fn is_among(&self, rates: &[f64]) -> bool {
        let (least, most) = rates.iter().fold((f64::MAX, 0.0_f64), |(a, b), r| (a.min(*r), b.max(*r)));
        let rate = self.rate.as_bps() as f64;
        (1.0 - NEAR) * least <= rate && rate <= (1.0 + NEAR) * most
    }

    /// Returns the rate of a run, in bit/s, with which the rate of the log is compared.
    fn rate(&self, run: &Outcome) -> f64 {
        let of = |flow: &FlowOutcome| if self.whole { flow.goodput } else { flow.goodput_second_half };
        run.flows.iter().map(|flow| of(flow).as_bps() as f64).sum()
    }
}

/// Returns whether a run of `duration` is as long as a log of this length.
pub(super) fn is_as_long(length: Duration, duration: Duration) -> bool {
    let (more, less) = AS_LONG;
    (duration.mul_div(less, more)..=duration.mul_div(more, less)).contains(&length)
}

/// Returns the loss rates to try, in ascending order without duplicates: the estimate, its bounds, and rates
/// between them at equal ratios.
fn losses(estimate: Probability, (low, high): (Probability, Probability)) -> Vec<Probability> {
    let of = Probability::from_f64;
    let top = high.as_f64().max(estimate.as_f64());
    let reference = if estimate.is_zero() { top } else { estimate.as_f64() };
    let bottom = low.as_f64().max(LEAST * reference);
    let steps = TRIED - 3;
    let between = (0..=steps).map(|n| of(bottom * (top / bottom.max(1e-12)).powf(n as f64 / steps as f64)));
    let mut tried: Vec<Probability> = between.chain([estimate, low]).collect();
    tried.sort_unstable();
    tried.dedup();
    tried
}

/// Observer that hides the progress, because the number of runs of a fit is not known when the fit begins.
struct Unreported<'w>(&'w dyn JobWatch);

impl JobWatch for Unreported<'_> {
    fn finished(&self, _: Progress) {}

    fn abandons(&self) -> bool {
        self.0.abandons()
    }
}

/// Simulated rates of the present state. Each combination of a loss rate and a seed is simulated only once.
struct PresentRuns<'r, 'm> {
    model: &'r Model<'m>,
    log: &'r Log,
    budget: &'r mut Budget,
    watch: &'r dyn JobWatch,
    rates: Vec<((Probability, u64), f64)>,
}

impl PresentRuns<'_, '_> {
    /// Returns a run of the present state. Runs of the model last twice as long as their log, for the steady
    /// state; the first half is enough for a log that is compared as a whole.
    fn scenario(&self, loss: Probability, seed: u64) -> Scenario {
        let run = self.model.scenario(self.model.present(), loss, seed);
        let duration = if self.log.whole { run.duration / 2 } else { run.duration };
        Scenario { duration, ..run }
    }

    /// Simulates the present state with each of the `losses`, for seeds 1 to `seeds`.
    fn make(&mut self, losses: &[Probability], seeds: u64) -> Result<(), Stop> {
        let wanted = losses.iter().flat_map(|loss| (1..=seeds).map(|seed| (*loss, seed)));
        let new: Vec<(Probability, u64)> =
            wanted.filter(|wanted| self.rates.iter().all(|(made, _)| made != wanted)).collect();
        let job = |&(loss, seed): &(Probability, u64)| Job {
            label: "fit of the present state".into(),
            scenario: self.scenario(loss, seed),
        };
        let jobs: Vec<Job> = new.iter().map(job).collect();
        self.budget.spend(&jobs)?;
        let outcomes = simulated(&jobs, &Unreported(self.watch))?;
        let rates = outcomes.iter().map(|run| self.log.rate(run));
        self.rates.extend(new.into_iter().zip(rates));
        Ok(())
    }

    /// Returns the rates of the first `seeds` runs made with `loss`, in bit/s, in the order of the seeds.
    fn rates(&self, loss: Probability, seeds: u64) -> Vec<f64> {
        let of = |seed: u64| self.rates.iter().find(|(made, _)| *made == (loss, seed)).map(|(_, rate)| *rate);
        (1..=seeds).filter_map(of).collect()
    }

    /// Simulates the loss rates `tried`, which are in ascending order, and others between them to find the smallest and
    /// the largest loss rate that meets the log. Returns the loss rates that meet the log.
    fn meeting(&mut self, tried: &[Probability]) -> Result<Vec<Probability>, Stop> {
        self.make(tried, SEEDS)?;
        let mut all = tried.to_vec();
        let met = |runs: &Self, loss: &&Probability| runs.is_met(**loss);
        let ends = (tried.iter().find(|loss| met(self, loss)), tried.iter().rfind(|loss| met(self, loss)));
        if let (Some(least), Some(most)) = ends {
            if let Some(below) = tried.iter().rfind(|loss| *loss < least) {
                all.extend(self.bisected((*least, *below), Self::is_met)?);
            }
            if let Some(above) = tried.iter().find(|loss| *loss > most) {
                all.extend(self.bisected((*most, *above), Self::is_met)?);
            }
        }
        all.retain(|loss| self.is_met(*loss));
        Ok(all)
    }

    /// If the log's rate lies between the mean rates at two neighbouring loss rates in `tried`, which are in
    /// ascending order, simulates loss rates between these two and returns them.
    fn around_the_log(&mut self, tried: &[Probability]) -> Result<Vec<Probability>, Stop> {
        let rate = self.log.rate.as_bps() as f64;
        let is_faster = |runs: &Self, loss: Probability| runs.mean(loss) >= rate;
        // The rate falls as the loss rises.
        match tried.iter().position(|loss| !is_faster(self, *loss)) {
            Some(nth) if nth > 0 => self.bisected((tried[nth - 1], tried[nth]), is_faster),
            _ => Ok(Vec::new()),
        }
    }

    /// Returns the loss rate at which the mean rate is closest to the log's.
    fn nearest(&self, losses: &[Probability]) -> Option<Probability> {
        let rate = self.log.rate.as_bps().max(1) as f64;
        let distance = |loss: &Probability| (self.mean(*loss) / rate).ln().abs();
        losses.iter().copied().min_by(|a, b| distance(a).total_cmp(&distance(b)))
    }

    /// Returns the fit at the loss rate `at`, with the range of loss rates that meet the log, and the path with the
    /// same loss rate and range.
    fn spanning(&self, fit: Fit, at: Probability, met: &[Probability]) -> (Fit, PathModel) {
        let bps = |loss: &Probability| Rate::from_bps(self.mean(*loss) as u64);
        let (low, high) = met.iter().fold((at, at), |(low, high), one| (low.min(*one), high.max(*one)));
        let fit = Fit {
            loss_low: low.as_f64(),
            loss_high: high.as_f64(),
            range_low: Some(met.iter().map(bps).fold(fit.low, Rate::min)),
            range_high: Some(met.iter().map(bps).fold(fit.high, Rate::max)),
            ..fit
        };
        (fit, PathModel { loss: at, loss_interval: Some((low, high)), ..self.model.path })
    }

    /// Narrows the range between two loss rates by bisection, and returns the loss rates that it simulates.
    /// `holds` is true for the first of the two loss rates and false for the second.
    fn bisected(
        &mut self,
        (mut on, mut off): (Probability, Probability),
        holds: impl Fn(&Self, Probability) -> bool,
    ) -> Result<Vec<Probability>, Stop> {
        let mut made = Vec::new();
        for _ in 0..BISECTIONS {
            let middle = Probability::from_f64((on.as_f64() * off.as_f64()).sqrt());
            if middle.is_zero() {
                break;
            }
            self.make(&[middle], SEEDS)?;
            *(if holds(self, middle) { &mut on } else { &mut off }) = middle;
            made.push(middle);
        }
        Ok(made)
    }

    fn mean(&self, loss: Probability) -> f64 {
        average(&self.rates(loss, SEEDS))
    }

    fn is_met(&self, loss: Probability) -> bool {
        self.log.is_among(&self.rates(loss, SEEDS))
    }

    /// Compares the log with `seeds` runs on `path`; `loss` is the log's own estimate.
    fn compared(&mut self, path: PathModel, seeds: u64, loss: &LossEstimate) -> Result<Fit, Stop> {
        self.make(&[path.loss], seeds)?;
        let mut rates = self.rates(path.loss, seeds);
        rates.sort_by(f64::total_cmp);
        let at = |share| quantile(&rates, share).unwrap_or(0.0);
        let (low, high) = (at(MIDDLE.0), at(MIDDLE.1));
        let (rate, mean) = (self.log.rate.as_bps() as f64, average(&rates));
        let near = (mean - rate).abs() <= NEAR * rate;
        let among = (low * (1.0 - ROUNDED)..=high * (1.0 + ROUNDED)).contains(&rate);
        let lossless = seeds == 1 || loss.events == 0 || path.loss.is_zero();
        let few = loss.basis == LossBasis::Events && (1..MANY_EVENTS).contains(&loss.events);
        let bps = |of: f64| Rate::from_bps(of.max(0.0) as u64);
        let (loss_low, loss_high) = path.loss_interval.unwrap_or((path.loss, path.loss));
        Ok(Fit {
            met: (among || lossless) && (near || few),
            log: self.log.rate,
            mean: bps(mean),
            low: bps(low),
            high: bps(high),
            seeds,
            loss: path.loss.as_f64(),
            loss_low: loss_low.as_f64(),
            loss_high: loss_high.as_f64(),
            range_low: None,
            range_high: None,
            longer_test: None,
        })
    }
}

/// Returns the mean, or 0 for no values.
fn average(values: &[f64]) -> f64 {
    mean(values.iter().copied()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::super::rung::Source;
    use super::*;

    /// A test of 30 s that ends 50 us late is as long as a run of 30 s; otherwise its rate, which includes the peak of
    /// the start, would be compared with the rate of a run without that peak.
    #[test]
    fn a_log_that_ends_a_little_late_is_as_long_as_a_run() {
        let (micros, seconds) = (Duration::from_micros, Duration::from_secs);
        let of_thirty = |length| is_as_long(length, seconds(30));
        assert!(of_thirty(seconds(30) + micros(50)) && of_thirty(micros(30_040_000)));
        assert!(of_thirty(micros(29_999_950)) && is_as_long(micros(17_000_010), seconds(17)));
        assert!(!of_thirty(seconds(31)) && !of_thirty(seconds(60)) && !of_thirty(seconds(20)));
    }

    /// A loss rate meets a log only if its runs come close to the log's rate from both sides.
    #[test]
    fn a_rate_beyond_all_runs_is_not_among_them() {
        let among = |mbit: u64| {
            let log = Log { rate: Rate::from_bps(mbit * 1_000_000), whole: true };
            log.is_among(&[90e6, 110e6, 100e6])
        };
        assert!(among(100) && among(82) && among(120));
        assert!(!among(80) && !among(122));
    }

    /// Only wide ranges that come from few loss events are a reason for a longer test.
    #[test]
    fn few_loss_events_and_a_wide_range_call_for_a_longer_test() {
        let mbit = |n: u64| Rate::from_bps(n * 1_000_000);
        let (mean, seconds) = (mbit(50), Duration::from_secs);
        let fit = |low, high| Fit { mean, low: mbit(low), high: mbit(high), ..Fit::default() };
        let of = |(low, high), events| {
            longer_test(&fit(low, high), &[], &LossEstimate::new(events, 1_000_000), seconds(30))
        };
        assert_eq!(of((30, 70), 4), Some(seconds(150)));
        assert_eq!(of((30, 70), 11), Some(seconds(60)), "54.5 s, rounded up");
        assert_eq!(of((30, 70), 1), Some(seconds(600)));
        assert_eq!([of((40, 70), 4), of((30, 70), 0), of((30, 70), 20)], [None; 3]);
        let wide = Rung {
            low: Some(mbit(100)),
            high: Some(mbit(300)),
            ..Rung::new(Limit::Cwnd, "loss", mbit(200), Source::Simulated)
        };
        let loss = LossEstimate::new(4, 1_000_000);
        assert_eq!(longer_test(&fit(45, 55), &[wide], &loss, seconds(30)), Some(seconds(150)));
    }

    #[test]
    fn losses_to_try_cover_the_interval() {
        let ppm = Probability::from_ppm;
        let tried = losses(ppm(17), (ppm(3), ppm(49)));
        assert!(tried.is_sorted() && tried.contains(&ppm(17)) && tried.contains(&ppm(3)), "{tried:?}");
        assert!((48.0..50.0).contains(&(1e6 * tried.last().unwrap().as_f64())) && tried.len() <= TRIED);
        let none = losses(Probability::ZERO, (Probability::ZERO, ppm(20)));
        assert_eq!(none[0], Probability::ZERO);
        assert!(none.len() > 3, "{none:?}");
        assert_eq!(losses(Probability::ZERO, (Probability::ZERO, Probability::ZERO)), [Probability::ZERO]);
    }
}
