//! Attempts at a copy: which errors are followed by another attempt, and after which pause.
//!
//! ```text
//!   attempt ──complete──► result
//!     ▲ │
//!     │ ├─ closed before connection 0 was accepted ──► short pause, at most three times
//!     │ ├─ the relay was lost, or is busy ───────────► pause that doubles, until --retry has passed without progress
//!     │ └─ other errors ─────────────────────────────► the copy ends
//!     └──────────────────────────────────────────────┘
//! ```

use tokio::time::{Duration, Instant};

use crate::error::{Error, Outlook};
use crate::send::CopyObserver;

/// Pause before a copy that has lost its relay tries again; it doubles with each attempt.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause between two attempts.
const MOST_PAUSE: Duration = Duration::from_secs(2);
/// Maximum number of further attempts after a relay has closed connection 0 before it accepted it.
const MOST_CLOSINGS: u32 = 3;

/// State of a copy before an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Earlier {
    /// Whether all connections may be opened at the same time. After a loss, the relay may still have the earlier
    /// attempt, which an early connection would join; and the handshakes of many connections displace one another.
    pub(crate) opens_early: bool,
    /// Number of times that the connection to a relay was lost.
    pub(crate) losses: u64,
}

/// Failure of an attempt at a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    /// Whether the attempt has opened a TCP connection to a relay.
    pub(crate) is_reached: bool,
}

impl From<Error> for Failure {
    /// Creates the failure of an attempt that has not reached a relay.
    fn from(error: Error) -> Self {
        Self { error, is_reached: false }
    }
}

/// A copy that may need several attempts.
pub(crate) trait Attempts {
    /// Result of a complete copy.
    type Done;

    /// Copies what the earlier attempts have not copied.
    async fn attempt(&mut self, earlier: Earlier) -> Result<Self::Done, Failure>;

    /// Returns whether a relay has accepted connection 0 in any attempt.
    fn was_accepted(&self) -> bool;

    /// Returns a value that changes if an attempt has made progress.
    fn progress(&self) -> (u64, u64);

    /// Returns the time of a clock that does not go back.
    fn now(&self) -> Instant {
        Instant::now()
    }

    /// Waits before the next attempt.
    async fn wait(&mut self, pause: Duration) {
        tokio::time::sleep(pause).await;
    }
}

/// Attempts a copy until it is complete. It gives up after a time of `total` without progress.
pub(crate) async fn until_complete<A: Attempts>(
    copy: &mut A,
    total: fullpipe_units::Duration,
    observer: &dyn CopyObserver,
) -> Result<A::Done, Error> {
    let mut retry = Retry::new(total);
    loop {
        let before = copy.progress();
        let opens_early = retry.losses == 0 && retry.closings == 0 && !copy.was_accepted();
        let failure = match copy.attempt(Earlier { opens_early, losses: retry.losses }).await {
            Ok(done) => return Ok(done),
            Err(failure) => failure,
        };
        let was_accepted = copy.was_accepted();
        let pause = match retry.closed(&failure, was_accepted) {
            Some(pause) => pause,
            None => {
                let has_progressed = copy.progress() != before;
                retry.pause(failure.error, (was_accepted, has_progressed), copy.now(), observer)?
            }
        };
        copy.wait(pause).await;
    }
}

/// Decides when a failed copy is attempted again.
struct Retry {
    total: fullpipe_units::Duration,
    since: Option<Instant>,
    pause: Duration,
    losses: u64,
    /// Number of times that a relay closed connection 0 before it accepted it.
    closings: u32,
}

impl Retry {
    fn new(total: fullpipe_units::Duration) -> Self {
        Self { total, since: None, pause: FIRST_PAUSE, losses: 0, closings: 0 }
    }

    /// Returns the time to wait before another attempt, if a relay that was reached has closed connection 0 before it
    /// accepted it. The handshakes of another copy from this address may have displaced it.
    fn closed(&mut self, failure: &Failure, was_accepted: bool) -> Option<Duration> {
        let is_silent = failure.error.outlook == Outlook::Silent;
        let is_closed = failure.is_reached && failure.error.is_loss() && !is_silent && !was_accepted;
        if !is_closed || self.closings >= MOST_CLOSINGS {
            return None;
        }
        self.closings += 1;
        Some(FIRST_PAUSE * 2 * self.closings)
    }

    /// Returns the time to wait before the next attempt after `error`, or an error if the copy gives up. An attempt is
    /// repeated only if a relay has accepted a connection before.
    fn pause(
        &mut self,
        error: Error,
        (was_accepted, has_progressed): (bool, bool),
        now: Instant,
        observer: &dyn CopyObserver,
    ) -> Result<Duration, Error> {
        if has_progressed {
            (self.since, self.pause) = (None, FIRST_PAUSE);
        }
        let is_lost = error.is_loss() && was_accepted;
        let is_new = self.since.is_none();
        let since = *self.since.get_or_insert(now);
        let pause = self.pause;
        let most = Duration::from_nanos(self.total.as_nanos());
        let is_temporary = error.outlook == Outlook::Temporary;
        if !(is_lost || is_temporary) || now - since + pause > most {
            return Err(error);
        }
        if is_new {
            observer.note(&format!("{error}; trying to reconnect for {}", self.total));
            self.losses += u64::from(is_lost);
        }
        self.pause = (pause * 2).min(MOST_PAUSE);
        Ok(pause)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Result of an attempt, whether it reached a relay, whether the relay accepted connection 0, and the progress
    /// from then on.
    type Attempt = (Result<&'static str, Error>, bool, bool, u64);

    /// A copy with these attempts, and a clock that only pauses move.
    struct Scripted {
        attempts: VecDeque<Attempt>,
        earlier: Vec<(bool, u64)>,
        state: (bool, u64),
        now: Instant,
    }

    impl Attempts for Scripted {
        type Done = &'static str;

        async fn attempt(&mut self, earlier: Earlier) -> Result<&'static str, Failure> {
            self.earlier.push((earlier.opens_early, earlier.losses));
            let (result, is_reached, is_accepted, progress) = self.attempts.pop_front().expect("an attempt");
            self.state = (self.state.0 || is_accepted, progress);
            result.map_err(|error| Failure { error, is_reached })
        }

        fn was_accepted(&self) -> bool {
            self.state.0
        }

        fn progress(&self) -> (u64, u64) {
            (self.state.1, 0)
        }

        fn now(&self) -> Instant {
            self.now
        }

        async fn wait(&mut self, pause: Duration) {
            self.now += pause;
        }
    }

    /// Returns the result, the time that passed in seconds, and the state before each attempt.
    fn run(
        attempts: impl IntoIterator<Item = Attempt>,
    ) -> (Result<&'static str, Error>, f64, Vec<(bool, u64)>) {
        let begun = Instant::now();
        let attempts = attempts.into_iter().collect();
        let mut copy = Scripted { attempts, earlier: Vec::new(), state: (false, 0), now: begun };
        let total = fullpipe_units::Duration::from_secs(60);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let result = runtime.block_on(until_complete(&mut copy, total, &()));
        (result, (copy.now - begun).as_secs_f64(), copy.earlier)
    }

    fn lost() -> Error {
        Error::network("lost the connection", "")
    }

    #[test]
    fn a_lost_relay_is_tried_until_the_time_without_progress_has_passed() {
        let (result, time, earlier) =
            run([(Err(lost()), true, true, 0), (Err(lost()), false, false, 0), (Ok("done"), true, true, 5)]);
        assert_eq!(result, Ok("done"));
        assert_eq!(earlier, [(true, 0), (false, 1), (false, 1)]);
        assert!((0.3..0.31).contains(&time), "{time}");
        let (result, time, _) = run((0..100).map(|_| (Err(lost()), false, true, 0)));
        assert_eq!(result, Err(lost()));
        assert!((58.0..60.0).contains(&time), "{time}");
        // Each attempt makes progress, so the pause stays short.
        let steady = (1..=100).map(|n| (Err(lost()), true, true, n));
        let (result, time, earlier) = run(steady.chain([(Ok("done"), true, true, 0)]));
        assert_eq!((result, earlier.last()), (Ok("done"), Some(&(false, 100))));
        assert!((10.0..10.2).contains(&time), "{time}");
    }

    #[test]
    fn a_relay_that_closes_the_first_connection_is_tried_three_times_more() {
        let (result, time, earlier) = run((0..4).map(|_| (Err(lost()), true, false, 0)));
        assert_eq!(result, Err(lost()));
        assert_eq!(earlier, [(true, 0), (false, 0), (false, 0), (false, 0)]);
        assert!((1.2..1.21).contains(&time), "{time}");
    }

    #[test]
    fn other_errors_end_the_copy() {
        for error in [Error::rights("wrong key", ""), Error::runtime("no space", ""), Error::usage("no", "")]
        {
            let (result, _, earlier) = run([(Err(error.clone()), true, true, 0)]);
            assert_eq!((result, earlier.len()), (Err(error), 1));
        }
        // A relay that was never reached is not tried again.
        assert_eq!(run([(Err(lost()), false, false, 0)]).2.len(), 1);
        // Neither is a port that accepts connections and says nothing.
        assert_eq!(run([(Err(lost().silence()), true, false, 0)]).2.len(), 1);
        // Neither is a relay that refuses the copy, before or after it has accepted an earlier attempt.
        let refused = lost().refusal();
        assert_eq!(run([(Err(refused.clone()), true, false, 0)]).2.len(), 1);
        assert_eq!(run([(Err(lost()), true, true, 0), (Err(refused), true, false, 0)]).2.len(), 2);
        // A temporary failure is.
        let busy = Error::runtime("busy", "").temporary();
        assert_eq!(run([(Err(busy), true, true, 0), (Ok("done"), true, true, 0)]).2, [(true, 0), (false, 0)]);
    }
}
