//! When the receiver makes what has arrived durable: in groups of 64 MiB, or after one second. For a pipe, the
//! sender keeps in memory what is not durable, so its groups are smaller.
//!
//! After a crash, at most one group and what was in flight is retransmitted. A smaller group would cost an
//! `fdatasync` and a commit of the journal more often.

use fullpipe_units::{Bytes, Duration, Instant};

/// Size of a group.
const SIZE: Bytes = Bytes::from_mib(64);
/// Longest time for which a written block may wait for its group.
const AGE: Duration = Duration::from_secs(1);
/// The same for a pipe.
const PIPE_AGE: Duration = Duration::from_millis(250);

/// Amount of data that has been written since the last group began, and its age.
#[derive(Debug)]
pub(crate) struct Groups {
    size: Bytes,
    age: Duration,
    waiting: Bytes,
    since: Option<Instant>,
}

impl Default for Groups {
    fn default() -> Self {
        Self { size: SIZE, age: AGE, waiting: Bytes::ZERO, since: None }
    }
}

impl Groups {
    /// Sets the size of the groups of a pipe, at most that of other groups.
    pub(crate) fn set_pipe(&mut self, size: Bytes) {
        (self.size, self.age) = (size.min(SIZE), PIPE_AGE);
    }

    /// Adds a written block to the present group.
    pub(crate) fn written(&mut self, now: Instant, amount: Bytes) {
        self.waiting += amount;
        self.since.get_or_insert(now);
    }

    /// Returns the time at which the present group is due; `None` if it is empty.
    pub(crate) fn due(&self) -> Option<Instant> {
        let since = self.since?;
        Some(if self.waiting >= self.size { since } else { since + self.age })
    }

    /// Begins a new group.
    pub(crate) fn take(&mut self) {
        (self.waiting, self.since) = (Bytes::ZERO, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_due_when_it_is_full_or_old() {
        let mut groups = Groups::default();
        assert_eq!(groups.due(), None);
        let (first, later) = (Instant::from_nanos(5), Instant::from_nanos(7_000));
        groups.written(first, Bytes::from_mib(1));
        groups.written(later, Bytes::from_mib(62));
        assert_eq!(groups.due(), Some(first + Duration::from_secs(1)), "the age is that of the first block");
        groups.written(later, Bytes::from_mib(1));
        assert_eq!(groups.due(), Some(first), "full: due at once");
        groups.take();
        assert_eq!(groups.due(), None);
        groups.set_pipe(Bytes::from_mib(16));
        groups.written(first, Bytes::from_mib(1));
        assert_eq!(groups.due(), Some(first + Duration::from_millis(250)));
        groups.written(later, Bytes::from_mib(15));
        assert_eq!(groups.due(), Some(first));
    }
}
