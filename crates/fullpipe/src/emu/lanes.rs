//! Runs jobs on several emulated paths at the same time.
//!
//! ```text
//!   missing runs ─► jobs: a cell and a few seeds
//!                      │
//!       lane ◄─────────┤  the links of all lanes together have a limited rate
//!       lane ◄─────────┘
//! ```

use std::panic::resume_unwind;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use fullpipe_linux::emu::EmuRun;
use fullpipe_units::Duration;

use crate::Error;

/// Maximum number of concurrent runs, each of which has about five threads.
const LANES: usize = 8;

/// Seeds of a cell that one lane runs, one after the other.
#[derive(Debug)]
pub(super) struct Job {
    /// Number of the cell in the plan.
    pub(super) cell: usize,
    pub(super) seeds: Vec<u64>,
    /// Rate of the link in bit/s.
    pub(super) rate: u64,
}

/// Calls `run` with each job, in several threads, and returns all results. The links of concurrent jobs have a total rate
/// of at most `together` bit/s. After an error, no further job starts.
pub(super) fn in_lanes<T: Send>(
    jobs: Vec<Job>,
    together: u64,
    run: impl Fn(&Job) -> Result<Vec<T>, Error> + Sync,
) -> Result<Vec<T>, Error> {
    let schedule = Schedule::new(jobs, together);
    let lane = || {
        let mut made = Vec::new();
        while let Some(job) = schedule.take() {
            let running = Running { schedule: &schedule, job };
            match run(&running.job) {
                Ok(results) => made.extend(results),
                Err(error) => {
                    // The other lanes finish their jobs, so that their results can be stored.
                    schedule.stop();
                    return Err(error);
                }
            }
        }
        Ok(made)
    };
    thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(lane)).collect();
        let made = lanes.into_iter().map(|lane| lane.join().unwrap_or_else(|panic| resume_unwind(panic)));
        let made: Result<Vec<Vec<T>>, Error> = made.collect();
        made.map(|made| made.into_iter().flatten().collect())
    })
}

/// Estimates the time that [`in_lanes`] takes for jobs, each given by its rate in bit/s and its duration, if all lanes are
/// busy or the total rate is used up until the end.
pub(super) fn expected_time(jobs: impl Iterator<Item = (u64, Duration)>, together: u64) -> Duration {
    let (mut time, mut data) = (0.0, 0.0);
    for (rate, duration) in jobs {
        time += duration.as_secs_f64();
        data += rate.min(together) as f64 * duration.as_secs_f64();
    }
    Duration::from_secs_f64((time / LANES as f64).max(data / together as f64))
}

/// A run, with the attempts that it took.
pub(super) struct Repeated {
    /// The last attempt.
    pub(super) run: EmuRun,
    /// Number of attempts before it.
    pub(super) repeated: u32,
    /// Whether the machine kept up with the last attempt.
    pub(super) kept_up: bool,
}

/// Makes a run, and repeats it at most `most` times if the machine did not keep up with the path.
pub(super) fn until_kept_up(
    most: u32,
    mut run: impl FnMut() -> Result<EmuRun, Error>,
) -> Result<Repeated, Error> {
    let mut repeated = 0;
    loop {
        let run = run()?;
        let kept_up = run.validity.kept_up();
        if kept_up || repeated == most {
            return Ok(Repeated { run, repeated, kept_up });
        }
        repeated += 1;
    }
}

/// A job that a lane is running. When this value is dropped, even because of a panic, the job's share of the rate
/// becomes free.
struct Running<'a> {
    schedule: &'a Schedule,
    job: Job,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.schedule.free(&self.job);
    }
}

/// Jobs that wait for a lane and for a share of the total rate.
struct Schedule {
    state: Mutex<ScheduleState>,
    /// Notified when a job ends.
    freed: Condvar,
    /// Maximum sum of the rates of running jobs in bit/s.
    most: u64,
}

struct ScheduleState {
    waiting: Vec<Job>,
    running: usize,
    /// Sum of the rates of the running jobs in bit/s.
    rate: u64,
}

impl Schedule {
    fn new(waiting: Vec<Job>, most: u64) -> Self {
        let state = Mutex::new(ScheduleState { waiting, running: 0, rate: 0 });
        Self { state, freed: Condvar::new(), most }
    }

    /// Returns the first job that fits into the remaining rate; waits until there is such a job. A job whose rate
    /// exceeds the maximum sum runs alone. Returns `None` if no job is waiting.
    fn take(&self) -> Option<Job> {
        let mut state = self.state();
        loop {
            if state.waiting.is_empty() {
                return None;
            }
            if let Some(job) = state.next_job(self.most) {
                return Some(job);
            }
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Records that `job` has ended.
    fn free(&self, job: &Job) {
        let mut state = self.state();
        state.running -= 1;
        state.rate -= job.rate;
        self.freed.notify_all();
    }

    /// Removes all waiting jobs.
    fn stop(&self) {
        self.state().waiting.clear();
        self.freed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, ScheduleState> {
        // No code panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ScheduleState {
    fn next_job(&mut self, most: u64) -> Option<Job> {
        let fits = |job: &Job| self.running == 0 || self.rate.saturating_add(job.rate) <= most;
        let job = self.waiting.remove(self.waiting.iter().position(fits)?);
        self.running += 1;
        self.rate += job.rate;
        Some(job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MBIT: u64 = 1_000_000;

    fn schedule(rates: &[u64]) -> Schedule {
        let job = |(cell, rate): (usize, &u64)| Job { cell, seeds: Vec::new(), rate: rate * MBIT };
        Schedule::new(rates.iter().enumerate().map(job).collect(), 400 * MBIT)
    }

    /// Returns the jobs that can start now.
    fn started(schedule: &Schedule) -> Vec<Job> {
        std::iter::from_fn(|| schedule.state().next_job(schedule.most)).collect()
    }

    fn cells(jobs: &[Job]) -> Vec<usize> {
        jobs.iter().map(|job| job.cell).collect()
    }

    #[test]
    fn concurrent_links_have_a_limited_rate() {
        let schedule = schedule(&[100, 300, 20, 100, 1_000, 20]);
        // The first two jobs use up the maximum rate.
        let first = started(&schedule);
        assert_eq!(cells(&first), [0, 1]);
        schedule.free(&first[1]);
        let second = started(&schedule);
        assert_eq!(cells(&second), [2, 3, 5]);
        // A job that is faster than the limit runs alone.
        first[..1].iter().chain(&second).for_each(|job| schedule.free(job));
        let third = started(&schedule);
        assert_eq!(cells(&third), [4]);
        schedule.free(&third[0]);
        assert!(schedule.take().is_none());
    }

    /// A lane that waits for a share of the rate continues when another lane frees its share, and ends when the race is
    /// stopped.
    #[test]
    fn a_waiting_lane_is_woken() {
        let schedule = schedule(&[400, 400, 400]);
        let first = schedule.take().expect("a job");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| schedule.take());
            schedule.free(&first);
            let second = waiting.join().expect("no panic").expect("a job");
            assert_eq!(second.cell, 1);
            let waiting = scope.spawn(|| schedule.take());
            schedule.stop();
            assert!(waiting.join().expect("no panic").is_none());
        });
    }
}
