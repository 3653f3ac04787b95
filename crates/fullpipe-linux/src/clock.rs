//! The one clock: the kernel's monotonic clock, counted from a zero that all threads of a run share.

use fullpipe_units::{Duration, Instant};
use rustix::thread::{ClockId as SleepClock, clock_nanosleep_absolute};
use rustix::time::{ClockId, Timespec, clock_gettime};

const NANOS: u64 = 1_000_000_000;

/// Turns the machine's time into the engine's.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    zero: u64,
}

impl Clock {
    /// A clock whose zero is `delay` from now: whatever reads it before reads zero.
    pub fn starting_in(delay: Duration) -> Self {
        Self { zero: nanos(ClockId::Monotonic) + delay.as_nanos() }
    }

    /// The present.
    pub fn now(&self) -> Instant {
        Instant::from_nanos(nanos(ClockId::Monotonic).saturating_sub(self.zero))
    }

    /// `at` as the kernel's timers want it.
    pub(crate) fn absolute(&self, at: Instant) -> Timespec {
        timespec(Duration::from_nanos(self.zero.saturating_add(at.as_nanos())))
    }

    /// Returns at `at` or a little later.
    pub fn sleep_until(&self, at: Instant) {
        // A signal ends the sleep early.
        while self.now() < at {
            let _ = clock_nanosleep_absolute(SleepClock::Monotonic, &self.absolute(at));
        }
    }
}

/// A time as system calls take it.
pub(crate) fn timespec(span: Duration) -> Timespec {
    let nanos = span.as_nanos();
    Timespec { tv_sec: (nanos / NANOS) as i64, tv_nsec: (nanos % NANOS) as i64 }
}

/// Time since the machine was started, sleep included.
pub(crate) fn since_boot() -> Duration {
    Duration::from_nanos(nanos(ClockId::Boottime))
}

/// The time of day.
pub(crate) fn since_1970() -> Duration {
    Duration::from_nanos(nanos(ClockId::Realtime))
}

/// Processor time that the calling thread has taken.
pub(crate) fn thread_cpu() -> Duration {
    Duration::from_nanos(nanos(ClockId::ThreadCPUTime))
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * NANOS + time.tv_nsec as u64
}
