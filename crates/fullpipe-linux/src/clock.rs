//! The kernel's monotonic clock, relative to a zero point that all threads of a run
//! share.

use fullpipe_units::{Duration, Instant};
use rustix::thread::{ClockId as SleepClock, clock_nanosleep_absolute};
use rustix::time::{ClockId, Timespec, clock_gettime};

const NANOS: u64 = 1_000_000_000;

/// Clock that converts the kernel's monotonic time to the engine's [`Instant`].
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    zero: u64,
}

impl Clock {
    /// Creates a clock that starts after `delay`; until then it returns time zero.
    pub fn starting_in(delay: Duration) -> Self {
        Self { zero: nanos(ClockId::Monotonic) + delay.as_nanos() }
    }

    /// Returns the current time of this clock.
    pub fn now(&self) -> Instant {
        Instant::from_nanos(nanos(ClockId::Monotonic).saturating_sub(self.zero))
    }

    /// Converts an instant of this clock to the absolute time that kernel timers use.
    pub(crate) fn absolute(&self, at: Instant) -> Timespec {
        timespec(Duration::from_nanos(self.zero.saturating_add(at.as_nanos())))
    }

    /// Blocks the calling thread until `at`, or slightly longer.
    pub fn sleep_until(&self, at: Instant) {
        // A signal may end the sleep early, so the loop sleeps again.
        while self.now() < at {
            let _ = clock_nanosleep_absolute(SleepClock::Monotonic, &self.absolute(at));
        }
    }
}

/// Converts a duration to a `timespec` for system calls.
pub(crate) fn timespec(span: Duration) -> Timespec {
    let nanos = span.as_nanos();
    Timespec { tv_sec: (nanos / NANOS) as i64, tv_nsec: (nanos % NANOS) as i64 }
}

/// Returns the time since boot, including time in suspend (`CLOCK_BOOTTIME`).
pub(crate) fn since_boot() -> Duration {
    Duration::from_nanos(nanos(ClockId::Boottime))
}

/// Returns the time since 1970 (`CLOCK_REALTIME`).
pub(crate) fn since_1970() -> Duration {
    Duration::from_nanos(nanos(ClockId::Realtime))
}

/// Returns the CPU time that the calling thread has used.
pub(crate) fn thread_cpu() -> Duration {
    Duration::from_nanos(nanos(ClockId::ThreadCPUTime))
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * NANOS + time.tv_nsec as u64
}
