//! Runs every point of an experiment with every seed, on all cores.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::experiment::Point;
use crate::outcome::Outcome;
use crate::scenario::Scenario;
use crate::sim;

/// Result of one run of an experiment point with one seed.
#[derive(Clone, Debug, PartialEq)]
pub struct RunResult<T> {
    /// Index of the experiment point that was run.
    pub point: usize,
    /// Random seed with which the point was run.
    pub seed: u64,
    /// Value that the caller's run function returned.
    pub value: T,
}

/// Progress of a campaign: the number of finished runs and the total number of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Number of runs that have finished.
    pub done: usize,
    /// Total number of runs in the campaign.
    pub total: usize,
}

/// Error for a run that panicked. A panic is a bug in fullpipe, not a mistake in the experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunPanicked {
    /// Label of the experiment point whose run panicked.
    pub point: String,
    /// Random seed of the run that panicked.
    pub seed: u64,
    /// Message of the panic.
    pub message: String,
}

impl fmt::Display for RunPanicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = self.message.lines().collect::<Vec<_>>().join("; ");
        write!(f, "run '{}' with seed {} panicked: {message}", self.point, self.seed)
    }
}

impl std::error::Error for RunPanicked {}

/// Observer of a campaign that is called before and after each run and can end the campaign early.
///
/// The worker threads call the methods of the observer.
pub trait Watch<T>: Sync {
    /// Called before each run. If the observer returns `false`, no further run starts, but the runs in
    /// progress finish.
    fn goes_on(&self) -> bool {
        true
    }

    /// Called after each run that has finished without a panic. If it returns `true`, the run was cut short:
    /// its result is discarded, and no further run starts.
    fn abandons(&self) -> bool {
        false
    }

    /// Called after each run that has finished without a panic and is kept.
    fn finished(&self, progress: Progress, run: &RunResult<T>);
}

/// A closure that receives the progress serves as an observer that never ends the campaign early.
impl<T, F: Fn(Progress) + Sync> Watch<T> for F {
    fn finished(&self, progress: Progress, _: &RunResult<T>) {
        self(progress);
    }
}

/// Runs all `points` with all `seeds`, on one thread per core.
///
/// The results are ordered by point, then by seed, regardless of the order in which the threads finish. If
/// `watch` ends the campaign early, some runs are missing. The caller's run function may return more than the
/// outcome; for example, a caller with access to a clock can time each run.
///
/// # Errors
/// Returns an error if a run panicked; all other runs still complete. If several runs panicked, the error is
/// for the first one in the order of the results.
pub fn run<T: Send>(
    points: &[Point],
    seeds: &[u64],
    runner: impl Fn(&Scenario) -> T + Sync,
    watch: impl Watch<T>,
) -> Result<Vec<RunResult<T>>, RunPanicked> {
    let threads = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    run_on(threads, points, seeds, runner, watch)
}

/// Runs all `points` with all `seeds`, like [`run`], but on the given number of threads.
///
/// # Errors
/// Returns the same errors as [`run`].
pub fn run_on<T: Send>(
    threads: NonZeroUsize,
    points: &[Point],
    seeds: &[u64],
    runner: impl Fn(&Scenario) -> T + Sync,
    watch: impl Watch<T>,
) -> Result<Vec<RunResult<T>>, RunPanicked> {
    let grid = Grid { points, seeds };
    let ends = Ends { goes_on: || watch.goes_on(), abandons: || watch.abandons() };
    let run = |index| grid.run(index, &runner);
    let (name, finished) = (|index| grid.name(index), |at, run: &_| watch.finished(at, run));
    collected(|keep| execute(threads, grid.runs(), name, run, ends, finished, keep))
}

/// Runs all `points` with all `seeds`, like [`run`], and passes each result to `take` instead of keeping it. `take`
/// gets the results ordered by point, then by seed; a result waits in memory until all earlier runs have finished.
/// If `take` returns [`ControlFlow::Break`], no further run starts. Returns the number of runs that have finished.
///
/// # Errors
/// Returns the same errors as [`run`].
pub fn run_in_order<T: Send>(
    points: &[Point],
    seeds: &[u64],
    runner: impl Fn(&Scenario) -> T + Sync,
    watch: impl Watch<T>,
    take: impl FnMut(RunResult<T>) -> ControlFlow<()> + Send,
) -> Result<usize, RunPanicked> {
    let threads = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let grid = Grid { points, seeds };
    let refused = AtomicBool::new(false);
    let ends = Ends {
        goes_on: || !refused.load(Ordering::Relaxed) && watch.goes_on(),
        abandons: || watch.abandons(),
    };
    let queue =
        Mutex::new(InOrder { next: 0, waiting: BTreeMap::new(), take, panicked: None, refused: &refused });
    let keep = |index, result| {
        let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.waiting.insert(index, result);
        queue.pass_on(false);
    };
    let run = |index| grid.run(index, &runner);
    let name = |index| grid.name(index);
    let finished = |at, run: &_| watch.finished(at, run);
    let runs = execute(threads, grid.runs(), name, run, ends, finished, keep);
    let mut queue = queue.into_inner().unwrap_or_else(PoisonError::into_inner);
    // An abandoned run leaves a gap in the order.
    queue.pass_on(true);
    queue.panicked.map_or(Ok(runs), Err)
}

/// Results that are passed on in the order of the runs.
struct InOrder<'a, T, F> {
    /// Number of the run whose result is passed on next.
    next: usize,
    /// Results of later runs.
    waiting: BTreeMap<usize, Result<RunResult<T>, RunPanicked>>,
    take: F,
    /// Error of the first run that panicked. No results of later runs are passed on.
    panicked: Option<RunPanicked>,
    refused: &'a AtomicBool,
}

impl<T, F: FnMut(RunResult<T>) -> ControlFlow<()>> InOrder<'_, T, F> {
    /// Passes on the results that are next in order. With `skips`, missing runs are skipped.
    fn pass_on(&mut self, skips: bool) {
        while let Some((&index, _)) = self.waiting.first_key_value()
            && (skips || index == self.next)
        {
            self.next = index + 1;
            let Some(result) = self.waiting.remove(&index) else { return };
            if self.panicked.is_some() || self.refused.load(Ordering::Relaxed) {
                continue;
            }
            match result.map(|run| (self.take)(run)) {
                Ok(flow) => self.refused.store(flow.is_break(), Ordering::Relaxed),
                Err(panicked) => self.panicked = Some(panicked),
            }
        }
    }
}

/// All points with all seeds.
struct Grid<'a> {
    points: &'a [Point],
    seeds: &'a [u64],
}

impl Grid<'_> {
    fn runs(&self) -> usize {
        self.points.len().saturating_mul(self.seeds.len())
    }

    fn place(&self, index: usize) -> (usize, u64) {
        (index / self.seeds.len(), self.seeds[index % self.seeds.len()])
    }

    fn name(&self, index: usize) -> (String, u64) {
        let (point, seed) = self.place(index);
        (self.points[point].label.clone(), seed)
    }

    fn run<T>(&self, index: usize, runner: impl Fn(&Scenario) -> T) -> RunResult<T> {
        let (point, seed) = self.place(index);
        // A scenario is built only when its run starts, because a sweep may have a hundred thousand points.
        let scenario = Scenario { seed, ..self.points[point].scenario.clone() };
        RunResult { point, seed, value: runner(&scenario) }
    }
}

/// A run that a campaign executes: its label and its scenario.
#[derive(Clone, Debug)]
pub struct Job {
    /// Label of the run, for error messages.
    pub label: String,
    /// Scenario of the run, with the random seed.
    pub scenario: Scenario,
}

/// Executes all `jobs` on the given number of threads and returns the results in the order of the jobs.
///
/// # Errors
/// Returns the same errors as [`run`].
pub fn run_jobs<T: Send>(
    threads: NonZeroUsize,
    jobs: &[Job],
    runner: impl Fn(&Scenario) -> T + Sync,
    progress: impl Fn(Progress) + Sync,
) -> Result<Vec<T>, RunPanicked> {
    let name = |index: usize| (jobs[index].label.clone(), jobs[index].scenario.seed);
    let run = |index: usize| runner(&jobs[index].scenario);
    collected(|keep| execute(threads, jobs.len(), name, run, NEVER, |at, _| progress(at), keep))
}

/// Observer that receives the progress of jobs and can abandon them. The worker threads call its methods.
///
/// A closure that receives the progress serves as an observer that never abandons the jobs.
pub trait JobWatch: Sync {
    /// Called after each job that has finished without a panic.
    fn finished(&self, progress: Progress);

    /// Returns whether to abandon the jobs in progress; called every few milliseconds. Once an observer has
    /// returned `true`, it must not return `false` again.
    fn abandons(&self) -> bool {
        false
    }
}

impl<F: Fn(Progress) + Sync> JobWatch for F {
    fn finished(&self, progress: Progress) {
        self(progress);
    }
}

impl JobWatch for &dyn JobWatch {
    fn finished(&self, progress: Progress) {
        (**self).finished(progress);
    }

    fn abandons(&self) -> bool {
        (**self).abandons()
    }
}

/// Simulates all `jobs` on the given number of threads, like [`run_jobs`], unless `watch` abandons them.
/// Returns `None` for abandoned jobs.
///
/// # Errors
/// Returns the same errors as [`run`].
pub fn simulate_jobs(
    threads: NonZeroUsize,
    jobs: &[Job],
    watch: &dyn JobWatch,
) -> Result<Option<Vec<Outcome>>, RunPanicked> {
    run_watched_jobs(threads, jobs, |scenario| sim::run_while(scenario, &|| !watch.abandons()), watch)
}

/// Executes all `jobs` on the given number of threads, like [`run_jobs`], unless `watch` abandons them.
/// After `watch` has abandoned the jobs, `runner` must return within milliseconds. Returns `None` for
/// abandoned jobs.
///
/// # Errors
/// Returns the same errors as [`run`].
pub fn run_watched_jobs<T: Send>(
    threads: NonZeroUsize,
    jobs: &[Job],
    runner: impl Fn(&Scenario) -> T + Sync,
    watch: &dyn JobWatch,
) -> Result<Option<Vec<T>>, RunPanicked> {
    let name = |index: usize| (jobs[index].label.clone(), jobs[index].scenario.seed);
    let run = |index: usize| runner(&jobs[index].scenario);
    let ends = Ends { goes_on: || !watch.abandons(), abandons: || watch.abandons() };
    let made =
        collected(|keep| execute(threads, jobs.len(), name, run, ends, |at, _| watch.finished(at), keep))?;
    Ok((made.len() == jobs.len()).then_some(made))
}

/// Conditions that end a campaign early or abandon a run.
struct Ends<G, A> {
    goes_on: G,
    abandons: A,
}

/// Conditions that never end a campaign early.
const NEVER: Ends<Ask, Ask> = Ends { goes_on: || true, abandons: || false };
type Ask = fn() -> bool;

/// Returns the results of a call to [`execute`], ordered by run number. The closure makes this call and must pass the
/// function that it receives as `keep`.
fn collected<T: Send>(
    execute: impl FnOnce(&(dyn Fn(usize, Result<T, RunPanicked>) + Sync)) -> usize,
) -> Result<Vec<T>, RunPanicked> {
    let made = Mutex::new(Vec::new());
    execute(&|index, result| {
        made.lock().unwrap_or_else(PoisonError::into_inner).push((index, result));
    });
    let mut made = made.into_inner().unwrap_or_else(PoisonError::into_inner);
    made.sort_by_key(|(index, _)| *index);
    made.into_iter().map(|(_, result)| result).collect()
}

/// Executes the runs with the numbers `0..total`, and passes each result to `keep`. `name` returns the label and the
/// seed of a run, for error messages. Returns the number of results.
fn execute<T>(
    threads: NonZeroUsize,
    total: usize,
    name: impl Fn(usize) -> (String, u64) + Sync,
    run: impl Fn(usize) -> T + Sync,
    ends: Ends<impl Fn() -> bool + Sync, impl Fn() -> bool + Sync>,
    finished: impl Fn(Progress, &T) + Sync,
    keep: impl Fn(usize, Result<T, RunPanicked>) + Sync,
) -> usize {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    // The durations of runs differ by up to a factor of 100, so each thread takes the next run as soon as it is
    // free.
    let work = || {
        while (ends.goes_on)() {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= total {
                break;
            }
            // Runs share no state, so a panic cannot leave another run in a broken state.
            let result = catch_unwind(AssertUnwindSafe(|| run(index))).map_err(|panic| {
                let (point, seed) = name(index);
                RunPanicked { point, seed, message: panic_message(panic.as_ref()) }
            });
            if (ends.abandons)() {
                break;
            }
            let progress = Progress { done: done.fetch_add(1, Ordering::Relaxed) + 1, total };
            if let Ok(result) = &result {
                finished(progress, result);
            }
            keep(index, result);
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.get().min(total)).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            // Only the observer can have panicked here, so its panic is passed on to the caller.
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
    done.into_inner()
}

/// Returns the message of a panic that [`catch_unwind`] caught.
pub fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;
    use std::sync::Mutex;

    fn points() -> Vec<Point> {
        let text = "name = 'x'\nduration = '1s'\n[path]\nrate = ['1mbit', '2mbit', '3mbit']\nrtt = '1ms'\n\
                    [[flow]]\ncc = ['reno', 'cubic']";
        Experiment::from_toml(text).expect("valid").points().to_vec()
    }

    fn threads(n: usize) -> NonZeroUsize {
        NonZeroUsize::new(n).expect("not zero")
    }

    #[test]
    fn order_does_not_depend_on_threads() {
        let points = points();
        let seeds = [7, 8, 9];
        let run = |n| {
            let runner = |scenario: &Scenario| {
                // The first points take longest, so with several threads they finish last.
                let spins = 4_000_000_000 / scenario.path.forward.rate.as_bps() * 100;
                (0..spins).fold(scenario.seed, |a, b| std::hint::black_box(a ^ b));
                (scenario.path.forward.rate, scenario.flows[0].cc, scenario.seed)
            };
            run_on(threads(n), &points, &seeds, runner, |_| {}).expect("no panic")
        };
        let single = run(1);
        assert_eq!(single, run(2));
        assert_eq!(single, run(8));
        let order: Vec<_> = single.iter().map(|r| (r.point, r.seed)).collect();
        let expected: Vec<_> = (0..6).flat_map(|point| seeds.map(|seed| (point, seed))).collect();
        assert_eq!(order, expected);
        for r in &single {
            assert_eq!(r.value.2, r.seed);
            assert_eq!(r.value.0, points[r.point].scenario.path.forward.rate);
        }
    }

    /// Results that are not kept arrive in the same order, even after an abandoned run. After `take` has refused one,
    /// no more results arrive.
    #[test]
    fn results_that_are_not_kept_come_in_order() {
        let (points, seeds) = (points(), [7, 8, 9]);
        let runner = |scenario: &Scenario| {
            // The first points take longest, so with several threads they finish last.
            let spins = 4_000_000_000 / scenario.path.forward.rate.as_bps() * 100;
            (0..spins).fold(scenario.seed, |a, b| std::hint::black_box(a ^ b));
            (scenario.path.forward.rate, scenario.seed)
        };
        let kept = run(&points, &seeds, runner, |_| {}).expect("no panic");
        let mut taken = Vec::new();
        let take = |run| {
            taken.push(run);
            ControlFlow::Continue(())
        };
        assert_eq!(run_in_order(&points, &seeds, runner, |_| {}, take), Ok(18));
        assert_eq!(taken, kept);

        let mut taken = 0;
        let take = |_| {
            taken += 1;
            if taken < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let runs = run_in_order(&points, &seeds, runner, |_| {}, take).expect("no panic");
        assert_eq!(taken, 3);
        assert!(runs < 18, "{runs} of 18 runs");

        let panics = |scenario: &Scenario| assert!(scenario.seed != 8, "eight");
        let mut taken = 0;
        let take = |_| {
            taken += 1;
            ControlFlow::Continue(())
        };
        let error = run_in_order(&points, &seeds, panics, |_| {}, take).expect_err("panics");
        assert_eq!(
            (error.to_string().as_str(), taken),
            ("run 'rate=1mbit cc=reno' with seed 8 panicked: eight", 1)
        );
    }

    #[test]
    fn a_panic_names_point_and_seed() {
        let points = points();
        let runner = |scenario: &Scenario| assert!(scenario.seed != 2, "two\nlines");
        let error = run_on(threads(4), &points, &[1, 2], runner, |_| {}).expect_err("panics");
        assert_eq!(error.to_string(), "run 'rate=1mbit cc=reno' with seed 2 panicked: two; lines");
    }

    #[test]
    fn progress_counts_every_run_and_nothing_is_fine() {
        let seen = Mutex::new(Vec::new());
        let note = |p: Progress| seen.lock().expect("not poisoned").push((p.done, p.total));
        run_on(threads(3), &points(), &[1], |_| (), note).expect("no panic");
        let mut seen = seen.into_inner().expect("not poisoned");
        seen.sort_unstable();
        assert_eq!(seen, (1..=6).map(|n| (n, 6)).collect::<Vec<_>>());
        assert_eq!(run_on(threads(3), &[], &[1], |_| (), |_| {}), Ok(Vec::new()));
    }

    /// Scenarios of runs that have not started take no memory: this test starts only two of a hundred million
    /// runs.
    #[test]
    fn a_run_is_built_when_it_starts() {
        struct Two(AtomicUsize);
        impl Watch<()> for Two {
            fn goes_on(&self) -> bool {
                self.0.load(Ordering::SeqCst) < 2
            }
            fn finished(&self, progress: Progress, _: &RunResult<()>) {
                assert_eq!(progress.total, 100_000_002);
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let seeds: Vec<u64> = (0..16_666_667).collect();
        let made = run_on(threads(1), &points(), &seeds, |_| (), Two(AtomicUsize::new(0))).expect("no panic");
        assert_eq!(made.iter().map(|run| (run.point, run.seed)).collect::<Vec<_>>(), [(0, 0), (0, 1)]);
    }

    /// When a campaign is ended early, the runs in progress finish and are kept, and no further run starts.
    #[test]
    fn a_campaign_that_is_ended_early_keeps_what_is_finished() {
        struct Two(AtomicUsize);
        impl Watch<u64> for Two {
            fn goes_on(&self) -> bool {
                self.0.load(Ordering::SeqCst) < 2
            }
            fn finished(&self, _: Progress, run: &RunResult<u64>) {
                assert_eq!(run.value, run.seed);
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let two = Two(AtomicUsize::new(0));
        let made =
            run_on(threads(1), &points(), &[5, 6, 7], |scenario| scenario.seed, two).expect("no panic");
        let order: Vec<_> = made.iter().map(|run| (run.point, run.seed)).collect();
        assert_eq!(order, [(0, 5), (0, 6)]);
    }

    /// Abandoned jobs have no results: the jobs in progress end within milliseconds, and no further job starts.
    #[test]
    fn abandoned_jobs_end_at_once() {
        struct Abandoning {
            finished: AtomicUsize,
            after: usize,
        }
        impl JobWatch for Abandoning {
            fn finished(&self, _: Progress) {
                self.finished.fetch_add(1, Ordering::SeqCst);
            }
            fn abandons(&self) -> bool {
                self.finished.load(Ordering::SeqCst) >= self.after
            }
        }
        let text = "name = 'x'\nduration = '1s'\n[path]\nrate = '1mbit'\nrtt = '1ms'\n[[flow]]\ncc = 'reno'";
        let short = Experiment::from_toml(text).expect("valid").points()[0].scenario.clone();
        // The simulation of this run would take hours.
        let long = text.replace("'1s'", "'60min'").replace("1mbit", "100gbit");
        let long = Experiment::from_toml(&long).expect("valid").points()[0].scenario.clone();
        let job = |scenario: &Scenario| Job { label: "a job".into(), scenario: scenario.clone() };
        let jobs = [job(&short), job(&short), job(&long), job(&long)];
        let watch = |after| Abandoning { finished: AtomicUsize::new(0), after };
        let abandoning = watch(2);
        assert_eq!(simulate_jobs(threads(2), &jobs, &abandoning), Ok(None));
        assert_eq!(abandoning.finished.load(Ordering::SeqCst), 2);
        let made = simulate_jobs(threads(2), &jobs[..2], &watch(3)).expect("no panic").expect("complete");
        let expected = run_jobs(threads(1), &jobs[..2], sim::run, |_| {}).expect("no panic");
        assert_eq!(made, expected);
    }
}
