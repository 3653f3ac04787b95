//! Decides when the receiver makes received data durable: in groups of 64 MiB, or after one second. The
//! groups of a pipe are smaller, because the sender keeps data in memory until it is durable.
//!
//! After a crash, the sender retransmits the data in flight plus at most two groups: one that is being synced, and one that
//! arrives meanwhile. Smaller groups would need more calls of `fdatasync` and more journal commits.

use fullpipe_units::{Bytes, Duration, Instant};

/// Size of a group of data that becomes durable together.
const SIZE: Bytes = Bytes::from_mib(64);
/// Amount of written data that is not durable above which the receiver writes no more. Without this bound, a disk that is
/// slower than the network would have any amount of such data: on a busy disk, copies of 0.2 s each left 200 MB.
const MOST: Bytes = Bytes::from_mib(128);
/// Longest time for which a written block may wait for its group.
const AGE: Duration = Duration::from_secs(1);
/// Longest time for which a written block of a pipe may wait for its group.
const PIPE_AGE: Duration = Duration::from_millis(250);

/// Size and age of the group of written data that is not durable yet.
#[derive(Debug)]
pub(crate) struct Groups {
    size: Bytes,
    age: Duration,
    waiting: Bytes,
    /// Size of the group that is being synced.
    syncing: Bytes,
    since: Option<Instant>,
}

impl Default for Groups {
    fn default() -> Self {
        Self { size: SIZE, age: AGE, waiting: Bytes::ZERO, syncing: Bytes::ZERO, since: None }
    }
}

impl Groups {
    /// Sets the group size of a pipe, at most the default size.
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

    /// Begins a new group; the present one is being synced from now on.
    pub(crate) fn take(&mut self) {
        (self.syncing, self.waiting, self.since) = (self.waiting, Bytes::ZERO, None);
    }

    /// Records that the group that was being synced is durable.
    pub(crate) fn synced(&mut self) {
        self.syncing = Bytes::ZERO;
    }

    /// Returns whether another block may be written.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting + self.syncing < MOST
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

    /// While the disk syncs a group, another group may arrive, but no more.
    #[test]
    fn a_slow_disk_has_at_most_two_groups() {
        let mut groups = Groups::default();
        groups.written(Instant::ZERO, SIZE);
        groups.take();
        assert!(groups.has_room());
        groups.written(Instant::ZERO, SIZE);
        assert!(!groups.has_room());
        groups.synced();
        assert!(groups.has_room());
        groups.take();
        groups.written(Instant::ZERO, SIZE);
        assert!(!groups.has_room(), "the second group is being synced, and the third has arrived");
    }
}
