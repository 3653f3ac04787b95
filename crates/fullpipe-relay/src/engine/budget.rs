//! Memory budget of a copy: the maximum memory of this process and its sockets together.
//!
//! A socket holds unsent data and data in flight, which the process cannot take back. If the budget is exceeded, no
//! connection gets a block until acknowledgements have freed memory, and the copy uses one connection fewer from then
//! on.

use fullpipe_units::{Bytes, Duration, Instant};

use crate::frame::MOST_CONNECTIONS;

/// Memory in sockets that is always permitted, so that a copy whose process alone exceeds the budget still makes
/// progress.
const PERMITTED: Bytes = Bytes::from_mib(1);
/// Shortest time between two reductions of the number of connections. The memory of data in flight is freed within a
/// few round trips.
const SETTLING: Duration = Duration::from_secs(1);
/// Resident memory of the process without connections, most of which is the program itself, and memory that each
/// connection adds for TLS buffers and for blocks that are being read or written. In measurements, the process used 28,
/// 43 and 62 MiB with 1, 4 and 16 connections over loopback, and 64 MiB with 13 connections at an RTT of 200 ms.
const PROCESS: Bytes = Bytes::from_mib(28);
const CONNECTION: Bytes = Bytes::from_mib(3);
/// Smallest share of the budget for a socket. With a smaller share, a further connection is not worth its memory.
const LEAST_SHARE: Bytes = Bytes::from_kib(512);

/// Memory budget, and the memory that was needed so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Budget {
    /// Maximum memory of the process and its sockets together; `None` without a limit.
    most: Option<Bytes>,
    /// Largest process memory that counts towards the budget. Memory above this amount is not counted: the allocator
    /// keeps it after it has been freed, so closing connections would not reduce it.
    planned: Bytes,
    most_kernel: Bytes,
    is_exceeded: bool,
    /// Maximum number of connections; `None` without a limit.
    most_connections: Option<u32>,
    reduced: Option<Instant>,
}

impl Budget {
    /// Creates a budget, which also limits the number of connections. Without a limit, it only records the memory that
    /// was needed.
    pub(crate) fn new(most: Option<Bytes>) -> Self {
        let most_connections = most.map(Self::connections);
        let planned = Self::process(most_connections.unwrap_or(0).min(MOST_CONNECTIONS));
        Self { most, planned, most_connections, ..Self::default() }
    }

    /// Returns the planned memory of a process with this number of connections.
    fn process(connections: u32) -> Bytes {
        PROCESS + CONNECTION.mul_div(connections.into(), 1)
    }

    /// Returns the number of connections that a budget permits.
    fn connections(most: Bytes) -> u32 {
        let count = most.saturating_sub(PROCESS).get() / (CONNECTION + LEAST_SHARE).get();
        u32::try_from(count).unwrap_or(u32::MAX).max(1)
    }

    /// Returns the share of the budget that each socket may use for its buffers, for a copy over at most `connections`
    /// connections.
    pub(crate) fn share(most: Bytes, connections: u32) -> Bytes {
        let count = connections.min(Self::connections(most)).max(1);
        let ours = Self::process(count);
        most.saturating_sub(ours).mul_div(1, count.into()).max(LEAST_SHARE)
    }

    /// Returns the smallest budget with which a copy over one connection works.
    pub(crate) fn least() -> Bytes {
        Bytes::from_mib(32)
    }

    /// Records the memory of the process and of its sockets while `sending` connections send.
    pub(crate) fn sampled(&mut self, at: Instant, process: Bytes, kernel: Bytes, sending: u32) {
        self.most_kernel = self.most_kernel.max(kernel);
        let Some(most) = self.most else { return };
        self.is_exceeded = process.min(self.planned) + kernel > most && kernel > PERMITTED;
        let is_settled = self.reduced.is_none_or(|reduced| at.saturating_since(reduced) >= SETTLING);
        if self.is_exceeded && is_settled && sending > 1 {
            self.most_connections = Some(sending - 1);
            self.reduced = Some(at);
        }
    }

    /// Returns whether no connection may take a block at present.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.is_exceeded
    }

    /// Returns the maximum number of connections.
    pub(crate) fn most_connections(&self) -> Option<u32> {
        self.most_connections
    }

    /// Returns the largest memory of the sockets so far.
    pub(crate) fn most_kernel(&self) -> Bytes {
        self.most_kernel
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Model of sockets that grow to `per_connection` MiB each, as long as blocks are handed out.
    fn course(mib: u64, process: u64, per_connection: u64) -> (Vec<u64>, u32) {
        let mut budget = Budget::new(Some(Bytes::new(mib * MIB)));
        let mut sending = budget.most_connections().unwrap_or(16).min(16);
        let (mut kernel, mut course) = (0_u64, Vec::new());
        for step in 0..200 {
            let at = Instant::ZERO + Duration::from_millis(250) * step;
            budget.sampled(at, Bytes::new(process * MIB), Bytes::new(kernel * MIB), sending);
            sending = sending.min(budget.most_connections().unwrap_or(16));
            // A quarter of the memory is acknowledged in each interval.
            kernel -= kernel / 4;
            if !budget.is_exceeded() {
                kernel += per_connection * u64::from(sending) / 4;
            }
            course.push(kernel);
        }
        (course, sending)
    }

    #[test]
    fn fewer_connections_keep_the_memory_within_the_budget() {
        let (course, sending) = course(64, 20, 8);
        assert!((3..=6).contains(&sending), "{sending}: 44 MiB for 8 MiB each");
        assert!(course[100..].iter().all(|kernel| *kernel <= 48), "{course:?}");
        assert!(course[100..].iter().all(|kernel| *kernel >= 20), "{course:?}");
    }

    #[test]
    fn a_budget_that_is_kept_changes_nothing() {
        assert_eq!(course(256, 20, 8).1, 16);
    }

    #[test]
    fn a_process_that_exceeds_the_budget_alone_still_sends() {
        let mut budget = Budget::new(Some(Bytes::from_mib(36)));
        assert_eq!(budget.most_connections(), Some(2));
        budget.sampled(Instant::ZERO, Bytes::from_mib(40), Bytes::from_mib(9), 2);
        assert_eq!((budget.is_exceeded(), budget.most_connections()), (true, Some(1)));
        budget.sampled(Instant::ZERO, Bytes::from_mib(40), Bytes::from_kib(900), 1);
        assert!(!budget.is_exceeded());
        assert_eq!(budget.most_kernel(), Bytes::from_mib(9));
    }

    #[test]
    fn a_process_that_is_larger_than_planned_costs_no_connections() {
        let mut budget = Budget::new(Some(Bytes::from_mib(48)));
        for step in 0..100 {
            let at = Instant::ZERO + Duration::from_millis(250) * step;
            budget.sampled(at, Bytes::from_mib(47), Bytes::from_mib(4), 5);
        }
        assert_eq!((budget.is_exceeded(), budget.most_connections()), (false, Some(5)));
    }

    #[test]
    fn shares_add_up_to_the_budget() {
        for (mib, most, count) in [(32, 16, 1), (48, 16, 5), (64, 16, 10), (64, 4, 4), (256, 16, 16)] {
            let budget = Bytes::from_mib(mib);
            let share = Budget::share(budget, most);
            let sum = PROCESS + (CONNECTION + share).mul_div(count, 1);
            assert!(sum <= budget && sum + Bytes::from_kib(1) > budget, "{mib} MiB for {most}: {share}");
            assert!(share >= LEAST_SHARE);
        }
    }
}
