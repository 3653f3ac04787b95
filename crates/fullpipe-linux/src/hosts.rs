//! Whether the hosts themselves kept up: not the path, which is measured packet by packet, but what runs on both sides of it.
//!
//! ```text
//!   a thread of ordinary priority ─ sleeps until a moment ─► woke so much later: as applications do
//!   data written to the receiver's device ──► the next packet read from it: its kernel has answered after so long
//! ```
//!
//! The loops run before ordinary threads where they may. A machine that is busy with something else then writes every packet
//! on time, while the applications and the kernels at the ends wait for a processor.

use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use fullpipe_lab::validity::{Lateness, Stalls};
use fullpipe_units::{Duration, Instant};
use rustix::thread::set_current_timer_slack;

use crate::clock::Clock;
use crate::error::Error;
use crate::poll::{Alarm, Poll, Stop};

/// How often the thread wakes: some thousandths of a processor.
const WAKES_EVERY: Duration = Duration::from_millis(5);
/// The kernel would gather timers within 50 us otherwise.
const TIMER_SLACK: NonZeroU64 = NonZeroU64::MIN;
/// A receiver may wait with the answer to a single packet (RFC 9293 section 3.8.6.3).
const ANSWERED_AT_ONCE: u32 = 2;

/// How late a thread of ordinary priority woke, until `stop`.
pub(crate) fn wakes(clock: Clock, stop: &Stop) -> Result<Lateness, Error> {
    let (mut poll, alarm) = (Poll::new()?, Alarm::new()?);
    let (awake, stopping) = (0, 1);
    poll.watch(alarm.as_fd(), awake)?;
    poll.watch(stop.as_fd(), stopping)?;
    // A favour: without it the figure is 50 us larger.
    let _ = set_current_timer_slack(Some(TIMER_SLACK));
    let (mut happened, mut late) = (Vec::new(), Lateness::default());
    let mut due = clock.now() + WAKES_EVERY;
    loop {
        alarm.set(&clock, due)?;
        poll.wait(&mut happened)?;
        if happened.contains(&stopping) {
            return Ok(late);
        }
        let now = clock.now();
        if now >= due {
            late.add(now.saturating_since(due));
            due = now + WAKES_EVERY;
        }
    }
}

/// What the receiving host has not answered yet. Shared by the two directions: one writes to the host, the other reads from it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers(Arc<Mutex<PendingPackets>>);

#[derive(Debug, Default)]
struct PendingPackets {
    packets: u32,
    /// When there were enough of them that an answer was due at once.
    since: Instant,
    answered: Lateness,
}

impl Answers {
    /// So many data packets are about to be written.
    pub(crate) fn asked(&self, now: Instant, packets: u32) {
        let mut waiting = self.waiting();
        let before = waiting.packets;
        waiting.packets = before.saturating_add(packets);
        if before < ANSWERED_AT_ONCE && waiting.packets >= ANSWERED_AT_ONCE {
            waiting.since = now;
        }
    }

    /// A packet was read.
    pub(crate) fn answered(&self, now: Instant) {
        let mut waiting = self.waiting();
        if std::mem::take(&mut waiting.packets) >= ANSWERED_AT_ONCE {
            let took = now.saturating_since(waiting.since);
            waiting.answered.add(took);
        }
    }

    /// What was measured; `woken` beside it.
    pub(crate) fn stalls(&self, woken: &Lateness) -> Stalls {
        Stalls { woken: woken.quantiles(), answered: self.waiting().answered.quantiles() }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, PendingPackets> {
        // Nobody panics while he holds it; if so, the figures are as good as they were.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(micros)
    }

    /// One packet may wait for its answer, and what comes behind the second does not begin the time anew.
    #[test]
    fn an_answer_is_due_from_the_second_packet_on() {
        let answers = Answers::default();
        answers.asked(at(0), 1);
        answers.answered(at(40_000));
        assert_eq!(answers.stalls(&Lateness::default()), Stalls::default());
        for micros in [50_000, 50_100, 51_000] {
            answers.asked(at(micros), 1);
        }
        answers.answered(at(53_100));
        // A second answer to the same packets is none.
        answers.answered(at(60_000));
        let answered = answers.stalls(&Lateness::default()).answered;
        assert_eq!((answered.max, answered.p50), (Duration::from_millis(3), Duration::from_millis(3)));
        answers.asked(at(70_000), 4);
        answers.answered(at(70_010));
        assert_eq!(answers.stalls(&Lateness::default()).answered.max, Duration::from_millis(3));
    }
}
