//! Health of the server, which decides how new connections are treated.
//!
//! ```text
//!            success                     1 s without a success
//!   any ──────────────► up ──────────────────────────────────────► unknown
//!            refusal                                                  │ SYN: probe at once, at most 1 s
//!   any ──────────────► down ── probe every 500 ms ──► success: up    ▼
//!                                                          no answer: unknown, and the SYNs are dropped
//! ```
//!
//! A success is an accepted connection to the server, or a successful probe. While the server is up, SYNs are
//! answered at once. While the state is unknown, SYNs wait for the result of a probe. While the server is
//! down, SYNs are answered with a reset, as the kernel would answer them.
//!
//! A server with a full accept queue does not answer. The kernel drops SYNs to such a server, so that clients
//! retransmit them. The service does the same, and starts another probe when a client retransmits its SYN.

use fullpipe_tcp::stack::Admission;
use fullpipe_units::{Duration, Instant};

/// Time without a success after which the state is unknown.
pub const FRESH: Duration = Duration::from_secs(1);
/// Time after which an unanswered probe ends.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval between the starts of two probes while the server is down, or does not answer.
pub const PROBE_INTERVAL: Duration = Duration::from_millis(500);

/// State of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The server has accepted a connection within the last second.
    Up,
    /// The server has neither accepted nor refused a connection recently.
    Unknown,
    /// The server has refused the last connection.
    Down,
}

/// Result of a connection attempt to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// The server has accepted the connection.
    Accepted,
    /// Nothing listens at the address of the server, or the address cannot be reached.
    Refused,
    /// It is unknown whether the server runs: it did not answer, or this host lacked a resource.
    NoAnswer,
}

impl State {
    /// Returns the name of the state in status reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Unknown => "unknown",
            Self::Down => "down",
        }
    }

    /// Returns how new connections are treated in this state.
    pub const fn admission(self) -> Admission {
        match self {
            Self::Up => Admission::Open,
            Self::Unknown => Admission::Held,
            Self::Down => Admission::Refused,
        }
    }
}

/// Outcomes of the latest connections and probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    last_success: Option<Instant>,
    down: bool,
    /// Whether the last probe ended without an answer.
    unanswered: bool,
    /// Start time of the running probe.
    probe: Option<Instant>,
    last_probe: Option<Instant>,
}

impl Health {
    /// Returns the state at `now`.
    pub fn state(&self, now: Instant) -> State {
        match self.last_success {
            _ if self.down => State::Down,
            Some(at) if now.saturating_since(at) <= FRESH => State::Up,
            _ => State::Unknown,
        }
    }

    /// Records that the server has accepted a connection.
    pub fn succeeded(&mut self, now: Instant) {
        (self.last_success, self.down, self.unanswered) = (Some(now), false, false);
    }

    /// Records that the server has refused a connection that was begun at `begun`. The refusal is ignored if
    /// the server has accepted another connection since `begun`, because the server must have been restarted
    /// in the meantime.
    pub fn failed(&mut self, begun: Instant) {
        self.down |= self.last_success.is_none_or(|at| at <= begun);
    }

    /// Returns whether to start a probe now. `syns_wait` is true if SYNs are waiting for the decision.
    pub fn wants_probe(&self, now: Instant, syns_wait: bool) -> bool {
        let rested = self.last_probe.is_none_or(|at| now.saturating_since(at) >= PROBE_INTERVAL);
        self.probe.is_none()
            && match self.state(now) {
                State::Up => false,
                // The kernel refuses a connection to a full Unix socket at once, so each SYN would start a probe.
                State::Unknown => syns_wait && (rested || !self.unanswered),
                State::Down => rested,
            }
    }

    /// Records that a probe was started.
    pub fn probe_started(&mut self, now: Instant) {
        (self.probe, self.last_probe) = (Some(now), Some(now));
    }

    /// Records the outcome of the running probe.
    pub fn probe_ended(&mut self, now: Instant, outcome: Attempt) {
        let Some(begun) = self.probe.take() else { return };
        match outcome {
            Attempt::Accepted => self.succeeded(now),
            Attempt::Refused => self.failed(begun),
            // A server that was down may run again.
            Attempt::NoAnswer => (self.down, self.unanswered) = (false, true),
        }
    }

    /// Returns whether the running probe has exceeded its timeout.
    pub fn probe_is_late(&self, now: Instant) -> bool {
        self.probe.is_some_and(|at| now.saturating_since(at) >= PROBE_TIMEOUT)
    }

    /// Returns the time at which the state or a probe must be checked again if no event occurs before then.
    pub fn next(&self, now: Instant) -> Instant {
        if let Some(at) = self.probe {
            return at + PROBE_TIMEOUT;
        }
        match (self.state(now), self.last_success, self.last_probe) {
            (State::Up, Some(at), _) => at + FRESH + Duration::from_millis(1),
            (State::Down, _, Some(at)) => at + PROBE_INTERVAL,
            (State::Down, _, None) => now,
            (State::Unknown, _, Some(at)) if self.unanswered && at + PROBE_INTERVAL > now => {
                at + PROBE_INTERVAL
            }
            _ => Instant::FAR_FUTURE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn a_success_lasts_a_second() {
        let mut health = Health::default();
        assert_eq!(health.state(at(0)), State::Unknown);
        health.succeeded(at(100));
        assert_eq!((health.state(at(1_100)), health.state(at(1_101))), (State::Up, State::Unknown));
        assert_eq!(health.next(at(200)), at(1_101));
    }

    /// While the state is unknown, only a SYN starts a probe, so an idle service causes no load on its
    /// server.
    #[test]
    fn a_syn_starts_one_probe() {
        let mut health = Health::default();
        assert!(!health.wants_probe(at(0), false) && health.wants_probe(at(0), true));
        health.probe_started(at(0));
        assert!(!health.wants_probe(at(10), true));
        health.probe_ended(at(20), Attempt::Accepted);
        assert_eq!(health.state(at(20)), State::Up);
        assert!(!health.wants_probe(at(20), true));
    }

    #[test]
    fn a_server_that_is_down_is_probed_until_it_returns() {
        let mut health = Health::default();
        health.succeeded(at(0));
        health.failed(at(0));
        assert_eq!(health.state(at(10)), State::Down);
        assert!(health.wants_probe(at(10), false));
        health.probe_started(at(10));
        health.probe_ended(at(11), Attempt::Refused);
        assert!(!health.wants_probe(at(509), false) && health.wants_probe(at(510), false));
        assert_eq!(health.next(at(100)), at(510));
        health.probe_started(at(510));
        health.probe_ended(at(511), Attempt::Accepted);
        assert_eq!(health.state(at(511)), State::Up);
    }

    /// The failure of a connection to a server that was restarted in the meantime may be noticed late.
    #[test]
    fn a_failure_before_a_success_does_not_count() {
        let mut health = Health::default();
        health.succeeded(at(100));
        health.failed(at(99));
        assert_eq!(health.state(at(101)), State::Up);
        health.failed(at(100));
        assert_eq!(health.state(at(101)), State::Down);
    }

    /// A server that is too busy to accept is neither up nor down. The next SYN starts another probe.
    #[test]
    fn a_probe_without_an_answer_decides_nothing() {
        let mut health = Health::default();
        health.probe_started(at(0));
        assert!(!health.probe_is_late(at(999)) && health.probe_is_late(at(1_000)));
        assert_eq!(health.next(at(0)), at(1_000));
        health.probe_ended(at(1_000), Attempt::NoAnswer);
        assert_eq!(health.state(at(1_000)), State::Unknown);
        assert!(health.wants_probe(at(1_010), true) && !health.wants_probe(at(1_010), false));
        // A late outcome of a probe that has timed out does not count.
        health.probe_ended(at(1_001), Attempt::Accepted);
        assert_eq!(health.state(at(1_001)), State::Unknown);
    }

    /// A full Unix socket ends a probe at once. SYNs then wait for the next probe.
    #[test]
    fn probes_without_an_answer_have_an_interval() {
        let mut health = Health::default();
        health.probe_started(at(0));
        health.probe_ended(at(0), Attempt::NoAnswer);
        assert!(!health.wants_probe(at(499), true) && health.wants_probe(at(500), true));
        assert_eq!((health.next(at(10)), health.next(at(500))), (at(500), Instant::FAR_FUTURE));
    }

    /// If a server that was down has a full accept queue, it runs.
    #[test]
    fn a_server_that_does_not_answer_is_no_longer_down() {
        let mut health = Health::default();
        health.failed(at(0));
        health.probe_started(at(500));
        health.probe_ended(at(1_500), Attempt::NoAnswer);
        assert_eq!(health.state(at(1_500)), State::Unknown);
    }

    #[test]
    fn each_state_has_an_admission() {
        assert_eq!(State::Up.admission(), Admission::Open);
        assert_eq!(State::Unknown.admission(), Admission::Held);
        assert_eq!(State::Down.admission(), Admission::Refused);
    }
}
