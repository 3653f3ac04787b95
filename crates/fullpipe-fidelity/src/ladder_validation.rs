//! Validates the ladder: compares the prediction for each rung with kernel runs of the same state.
//!
//! ```text
//!   known path ──► climb_known ──┐
//!   log ──► explain, climb ──────┴► rungs ──► each rung's state, on a kernel ──► goodput of the second half
//!                                     │                                                   │
//!                                     └── steady-state rate [low, high] ► RungComparison ◄┘
//! ```
//!
//! The criterion for a rung depends on the limit that the ladder predicts for it:
//!
//! | limit | criterion for the prediction |
//! |---|---|
//! | a window, a buffer, the link | within 10 % of the mean of the kernel's runs: no randomness is involved |
//! | loss, pacing, a rate cap on a flow | its range contains that mean, and spans at most a factor of two |
//!
//! A predicted range is never narrower than the simulator's tolerance in cells without loss.

use std::fmt::{self, Write};

use fullpipe::classify::Limit;
use fullpipe::lab::stats;
use fullpipe::ladder::Rung;

/// Permitted deviation of the prediction, as a fraction of the kernel's mean, if a window or the link is the
/// limit.
const WITHIN: f64 = 0.10;
/// Maximum ratio between the upper and the lower end of a predicted range; a prediction with a wider range
/// would be of little use.
const WIDEST: f64 = 2.0;
/// Minimum distance from the steady-state rate to each end of a predicted range, as a fraction of that rate;
/// equal to the tolerance of `fullpipe-fidelity` in cells without loss.
const NARROWEST: f64 = 0.05;
/// Required share of rungs that meet their criterion, among the rungs whose criterion is a range.
const MOST: f64 = 0.9;

/// Criterion by which a rung is compared with the kernel's runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Criterion {
    /// The prediction deviates from the kernel's mean by at most 10 %.
    Near,
    /// The kernel's mean lies within the predicted range.
    InRange,
}

impl Criterion {
    /// Returns the criterion for a rung with the limit `limit`.
    pub const fn of(limit: Limit) -> Self {
        match limit {
            Limit::Rwnd | Limit::Sndbuf | Limit::Link => Self::Near,
            _ => Self::InRange,
        }
    }
}

impl fmt::Display for Criterion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Near => write!(f, "{:.0} %", 100.0 * WITHIN),
            Self::InRange => f.write_str("in range"),
        }
    }
}

/// A rung of the ladder, and the kernel's results in the state of that rung.
#[derive(Clone, Debug, PartialEq)]
pub struct RungComparison<'l> {
    /// Label of the cell at the start of the ladder.
    pub cell: &'l str,
    /// Rung of the ladder, with its prediction.
    pub rung: &'l Rung,
    /// Total goodput of all flows in each kernel run of the rung, in bit/s, over the period to which the
    /// prediction applies; there is at least one run.
    pub kernel: Vec<f64>,
    /// Total goodput of all flows in each kernel run, in bit/s, over the full duration including slow start.
    pub whole: Vec<f64>,
    /// The simulator's goodput for the same runs, in the same order, with an identical loss pattern. If a
    /// rung misses its criterion, these values show whether the reason is an unusual loss pattern or a fault
    /// of the simulator.
    pub paired: Vec<f64>,
    /// Mean of the simulator's goodput over each of several further blocks of seeds, in the state and on the
    /// path of the kernel's runs; empty if nothing is random.
    pub blocks: Vec<f64>,
}

impl RungComparison<'_> {
    /// Returns the criterion for this rung.
    pub const fn asked(&self) -> Criterion {
        Criterion::of(self.rung.limit)
    }

    /// Returns the mean goodput of the kernel runs, in bit/s.
    pub fn mean(&self) -> f64 {
        mean(&self.kernel)
    }

    /// Returns the mean goodput of the kernel runs over their full duration, including slow start, in bit/s.
    pub fn mean_with_start(&self) -> f64 {
        mean(&self.whole)
    }

    /// Returns the minimum and maximum goodput that the rung predicts, in bit/s.
    pub fn range(&self) -> (f64, f64) {
        let bps = |rate: fullpipe::units::Rate| rate.as_bps() as f64;
        let lasting = self.rung.lasting();
        let (low, high) = (self.rung.low.unwrap_or(lasting), self.rung.high.unwrap_or(lasting));
        let at_least = |share: f64| bps(lasting) * share;
        (bps(low).min(at_least(1.0 - NARROWEST)), bps(high).max(at_least(1.0 + NARROWEST)))
    }

    /// Returns the ratio of the upper end of the predicted range to the lower end.
    pub fn width(&self) -> f64 {
        let (low, high) = self.range();
        high / low
    }

    /// Returns the predicted rate divided by the mean of the kernel runs.
    pub fn ratio(&self) -> f64 {
        self.rung.lasting().as_bps() as f64 / self.mean()
    }

    /// Returns whether the prediction is within 10 % of the mean of the kernel runs.
    pub fn is_near(&self) -> bool {
        is_within(self.rung.lasting().as_bps() as f64, self.mean())
    }

    /// Returns whether the predicted range contains the mean of the kernel runs.
    pub fn contains_mean(&self) -> bool {
        let (low, high) = self.range();
        (low..=high).contains(&self.mean())
    }

    /// Returns whether each simulated run is within 10 % of the kernel run that has the same losses.
    pub fn agrees_run_by_run(&self) -> bool {
        let mut pairs = self.paired.iter().zip(&self.kernel);
        self.paired.len() == self.kernel.len() && pairs.all(|(sim, kernel)| is_within(*sim, *kernel))
    }

    /// Returns whether the rung meets its criterion.
    pub fn holds(&self) -> bool {
        match self.asked() {
            Criterion::Near => self.is_near(),
            Criterion::InRange => self.width() <= WIDEST && self.contains_mean(),
        }
    }

    fn verdict(&self) -> String {
        match (self.asked(), self.holds()) {
            (criterion @ Criterion::Near, true) => format!("within {criterion}"),
            (criterion @ Criterion::InRange, true) => criterion.to_string(),
            (Criterion::InRange, false) if self.contains_mean() => "**range too wide**".into(),
            (_, false) => "**miss**".into(),
        }
    }
}

/// Returns whether the rate `predicted` is within 10 % of the rate `measured`, both in bit/s.
pub fn is_within(predicted: f64, measured: f64) -> bool {
    (predicted - measured).abs() <= WITHIN * measured
}

fn mean(values: &[f64]) -> f64 {
    stats::mean(values.iter().copied()).unwrap_or(0.0)
}

/// Counts of the rungs to which a criterion applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of rungs to which the criterion applies.
    pub all: usize,
    /// Number of these rungs that meet the criterion.
    pub holding: usize,
}

impl Tally {
    /// Counts the rungs to which the criterion `asked` applies.
    pub fn of(held: &[RungComparison<'_>], asked: Criterion) -> Self {
        let kind = || held.iter().filter(|held| held.asked() == asked);
        Self { all: kind().count(), holding: kind().filter(|held| held.holds()).count() }
    }

    /// Returns the share of rungs that meet the criterion; returns 1 if there are no rungs.
    pub fn share(self) -> f64 {
        if self.all == 0 { 1.0 } else { self.holding as f64 / self.all as f64 }
    }
}

/// Returns the rungs as a Markdown table, with the number of rungs that meet their criterion.
pub fn table(held: &[RungComparison<'_>]) -> String {
    let mut text = String::from(
        "| cell | limit | remedy | simulated (low-high) | kernel (low-high) | simulated / kernel | \
         same losses, simulated | other losses, simulated | kernel with the start | high / low | verdict |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut before = None;
    for rung in held {
        let first = before.replace(rung.cell) != Some(rung.cell);
        let (low, high) = rung.range();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {} | {}: {} | {} | {} ({}-{}) | {} | {:.2} | {} | {} | {} | {:.2} | {} |",
            if first { rung.cell } else { "" },
            rung.rung.limit,
            rung.rung.what,
            rung.rung.remedies.title().as_deref().unwrap_or("as it stands"),
            mbit(rung.rung.lasting().as_bps() as f64),
            mbit(low),
            mbit(high),
            measured(&rung.kernel),
            rung.ratio(),
            paired(rung),
            ends(&rung.blocks),
            mbit(rung.mean_with_start()),
            rung.width(),
            rung.verdict(),
        );
    }
    text + "\n" + &summary(held)
}

fn summary(held: &[RungComparison<'_>]) -> String {
    let (near, ranged) = (Tally::of(held, Criterion::Near), Tally::of(held, Criterion::InRange));
    let widths = held.iter().filter(|held| held.asked() == Criterion::InRange).map(RungComparison::width);
    let widest = widths.fold(1.0, f64::max);
    let of = |tally: Tally| format!("{} of {} ({:.0} %)", tally.holding, tally.all, 100.0 * tally.share());
    format!(
        "Rates are in Mbit/s. Where a window, a buffer or the link is the limit, {} are within {:.0} % of the kernel's mean (target: \
         all). Of the others, {} have a range that contains the kernel's mean and spans at most a factor of {WIDEST} (target: {:.0} %); \
         the widest range spans {widest:.2}. Targets met: {}.\n",
        of(near),
        100.0 * WITHIN,
        of(ranged),
        100.0 * MOST,
        if is_proven(held) { "yes" } else { "**no**" }
    )
}

/// Returns whether the kernel runs confirm the ladder: all rungs limited by a window or the link must meet
/// their criterion, and so must most of the other rungs.
pub fn is_proven(held: &[RungComparison<'_>]) -> bool {
    let (near, ranged) = (Tally::of(held, Criterion::Near), Tally::of(held, Criterion::InRange));
    near.holding == near.all && ranged.share() >= MOST
}

/// Returns the mean of the kernel runs with their minimum and maximum.
fn measured(runs: &[f64]) -> String {
    let mean = mbit(mean(runs));
    if runs.len() > 1 { format!("{mean} ({})", ends(runs)) } else { mean }
}

/// Returns the smallest and the largest of several goodputs.
fn ends(of: &[f64]) -> String {
    let (low, high) = of.iter().fold((f64::MAX, 0.0_f64), |(low, high), one| (low.min(*one), high.max(*one)));
    if of.is_empty() { "-".into() } else { format!("{}-{}", mbit(low), mbit(high)) }
}

/// Returns the paired simulation as text. If nothing is random, the paired simulation is omitted, because it
/// differs from the prediction at most in the path.
fn paired(held: &RungComparison<'_>) -> String {
    if held.kernel.len() > 1 || !held.blocks.is_empty() { mbit(mean(&held.paired)) } else { "-".into() }
}

fn mbit(bps: f64) -> String {
    let mbit = bps / 1e6;
    if mbit < 10.0 { format!("{mbit:.2}") } else { format!("{mbit:.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe::ladder::Source;
    use fullpipe::units::Rate;

    fn mbit(n: f64) -> Rate {
        Rate::from_bps((n * 1e6) as u64)
    }

    fn rung(limit: Limit, lasting: f64, low: f64, high: f64) -> Rung {
        Rung {
            steady: Some(mbit(lasting)),
            low: Some(mbit(low)),
            high: Some(mbit(high)),
            ..Rung::new(limit, "a limit", mbit(1.0), Source::Simulated)
        }
    }

    fn held<'l>(rung: &'l Rung, kernel: &[f64]) -> RungComparison<'l> {
        let kernel: Vec<f64> = kernel.iter().map(|mbit| mbit * 1e6).collect();
        let of = |share: f64| kernel.iter().map(|bps| share * bps).collect();
        let blocks = if kernel.len() > 1 { of(3.0) } else { Vec::new() };
        RungComparison { cell: "a cell", rung, whole: of(0.5), paired: of(2.0), blocks, kernel }
    }

    /// The limit determines the criterion. A rung limited by a window must be within 10 %, even if its range
    /// is wider; a rung limited by loss need not be.
    #[test]
    fn each_kind_of_limit_has_its_own_bound() {
        for limit in [Limit::Rwnd, Limit::Sndbuf, Limit::Link] {
            let rung = rung(limit, 100.0, 50.0, 150.0);
            assert!(held(&rung, &[91.0]).holds() && held(&rung, &[80.0, 141.0]).holds());
            assert!(!held(&rung, &[90.8]).holds() && !held(&rung, &[111.2]).holds());
        }
        for limit in [Limit::Cwnd, Limit::Pacing, Limit::Cap] {
            let rung = rung(limit, 100.0, 70.0, 130.0);
            assert!(held(&rung, &[71.0]).holds() && held(&rung, &[60.0, 199.0]).holds());
            assert!(!held(&rung, &[69.0]).holds() && !held(&rung, &[131.0]).holds());
        }
    }

    #[test]
    fn a_range_that_says_nothing_is_a_miss() {
        assert!(held(&rung(Limit::Cwnd, 100.0, 75.0, 150.0), &[100.0]).holds());
        let wide = rung(Limit::Cwnd, 100.0, 74.0, 150.0);
        let wide = held(&wide, &[100.0]);
        assert!(!wide.holds() && wide.verdict() == "**range too wide**", "{}", wide.width());
    }

    #[test]
    fn where_nothing_is_drawn_the_range_is_the_simulators_own_bound() {
        let capped = rung(Limit::Cap, 100.0, 100.0, 100.0);
        assert_eq!(held(&capped, &[1.0]).range(), (95e6, 105e6));
        assert!(held(&capped, &[95.5]).holds() && !held(&capped, &[94.5]).holds());
        let drawn = rung(Limit::Cwnd, 100.0, 90.0, 101.0);
        assert_eq!(held(&drawn, &[1.0]).range(), (90e6, 105e6), "each end by itself");
    }

    /// Two runs that deviate in opposite directions have the right mean, but do not agree run by run.
    #[test]
    fn runs_with_identical_losses_are_compared_one_by_one() {
        let rung = rung(Limit::Cwnd, 100.0, 70.0, 130.0);
        let pairs = |paired: &[f64]| {
            let paired = paired.iter().map(|mbit| mbit * 1e6).collect();
            RungComparison { paired, ..held(&rung, &[80.0, 120.0]) }
        };
        assert!(pairs(&[87.0, 109.0]).agrees_run_by_run());
        assert!(!pairs(&[120.0, 80.0]).agrees_run_by_run());
        assert!(!pairs(&[80.0]).agrees_run_by_run(), "a run is missing");
    }

    #[test]
    fn the_table_counts_what_holds() {
        let (window, cwnd) = (rung(Limit::Rwnd, 100.0, 100.0, 100.0), rung(Limit::Cwnd, 8.0, 6.0, 10.0));
        let rungs = |kernel: f64| vec![held(&window, &[99.0]), held(&cwnd, &[kernel, 9.0])];
        let (good, bad) = (rungs(7.0), rungs(1.0));
        assert_eq!(Tally::of(&good, Criterion::InRange), Tally { all: 1, holding: 1 });
        assert_eq!(Tally::of(&bad, Criterion::InRange), Tally { all: 1, holding: 0 });
        assert!(is_proven(&good) && !is_proven(&bad));
        let text = table(&bad);
        assert!(
            text.contains(
                "| a cell | rwnd: a limit | as it stands | 100.0 (95.0-105.0) | 99.0 | 1.01 | - | - | 49.5 | 1.11 | within 10 % |"
            ),
            "{text}"
        );
        assert!(
            text.contains(
                "|  | cwnd: a limit | as it stands | 8.00 (6.00-10.0) | 5.00 (1.00-9.00) | 1.60 | 10.0 | 3.00-27.0 | 2.50 | 1.67 | **miss** |"
            ),
            "{text}"
        );
        assert!(
            text.contains("1 of 1 (100 %) are within 10 %") && text.contains("0 of 1 (0 %) have a range"),
            "{text}"
        );
        assert!(text.contains("the widest range spans 1.67. Targets met: **no**."), "{text}");
    }

    /// Every rung limited by a window must meet its criterion; one in ten of the other rungs may miss it.
    #[test]
    fn all_windows_and_most_of_the_rest() {
        let (window, cwnd) = (rung(Limit::Rwnd, 100.0, 100.0, 100.0), rung(Limit::Cwnd, 8.0, 6.0, 10.0));
        let rungs = |windows: &[f64], others: &[f64]| {
            let windows = windows.iter().map(|mbit| held(&window, &[*mbit]));
            windows.chain(others.iter().map(|mbit| held(&cwnd, &[*mbit]))).collect::<Vec<_>>()
        };
        let one_misses = |all: usize| [vec![8.0; all - 1], vec![1.0]].concat();
        assert!(is_proven(&rungs(&[100.0; 2], &one_misses(10))));
        assert!(!is_proven(&rungs(&[100.0; 2], &one_misses(9))));
        assert!(!is_proven(&rungs(&[100.0, 80.0], &[8.0; 9])));
        assert!(is_proven(&[]));
    }
}
