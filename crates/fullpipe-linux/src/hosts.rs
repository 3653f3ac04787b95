//! Measures whether the hosts at both ends of an emulated path kept up with the run. The link itself measures
//! the timing of the path, for each packet.
//!
//! ```text
//!   a thread of ordinary priority ─ sleeps until a set time ─► wakes late: as applications do
//!   data written to the receiver's device ──► next packet read from it: response time of its kernel
//! ```
//!
//! If permitted, the loops of the link run at a higher priority than ordinary threads. On a machine that is
//! busy with other work, these loops still write every packet on time, while the applications and kernels at
//! the ends wait for a CPU.

use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use fullpipe_lab::validity::{Lateness, Stalls};
use fullpipe_units::{Duration, Instant};
use rustix::thread::set_current_timer_slack;

use crate::clock::Clock;
use crate::error::Error;
use crate::poll::{Alarm, Poll, Stop};

/// Interval between wake-ups of the measuring thread. At this interval, the thread uses a few thousandths of
/// a CPU.
const WAKES_EVERY: Duration = Duration::from_millis(5);
/// Timer slack of 1 ns, so that timers fire on time. With the default slack, the kernel would coalesce timers
/// that expire within 50 us.
const TIMER_SLACK: NonZeroU64 = NonZeroU64::MIN;
/// Number of data packets after which an ACK is due immediately. A receiver may delay the ACK of a single
/// packet (RFC 9293 section 3.8.6.3).
const ANSWERED_AT_ONCE: u32 = 2;

/// Measures how late a thread of ordinary priority wakes up after a timer, until `stop` is set.
pub(crate) fn wakes(clock: Clock, stop: &Stop) -> Result<Lateness, Error> {
    let (mut poll, alarm) = (Poll::new()?, Alarm::new()?);
    let (awake, stopping) = (0, 1);
    poll.watch(alarm.as_fd(), awake)?;
    poll.watch(stop.as_fd(), stopping)?;
    // Setting the timer slack is best effort: if it fails, the measured value is 50 us larger.
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

/// Data packets that the receiving host has not answered yet. Both directions of the link share the list of
/// pending packets: one direction writes packets to the host, the other reads packets from it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers(Arc<Mutex<PendingPackets>>);

#[derive(Debug, Default)]
struct PendingPackets {
    packets: u32,
    /// Time at which an answer became due immediately, because enough data packets were pending.
    since: Instant,
    answered: Lateness,
}

impl Answers {
    /// Records that `packets` data packets are about to be written to the receiving host.
    pub(crate) fn asked(&self, now: Instant, packets: u32) {
        let mut waiting = self.waiting();
        let before = waiting.packets;
        waiting.packets = before.saturating_add(packets);
        if before < ANSWERED_AT_ONCE && waiting.packets >= ANSWERED_AT_ONCE {
            waiting.since = now;
        }
    }

    /// Records that a packet was read from the host. This packet answers all pending data packets.
    pub(crate) fn answered(&self, now: Instant) {
        let mut waiting = self.waiting();
        if std::mem::take(&mut waiting.packets) >= ANSWERED_AT_ONCE {
            let took = now.saturating_since(waiting.since);
            waiting.answered.add(took);
        }
    }

    /// Returns the measured response times of the host, together with the wake-up delays `woken`.
    pub(crate) fn stalls(&self, woken: &Lateness) -> Stalls {
        Stalls { woken: woken.quantiles(), answered: self.waiting().answered.quantiles() }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, PendingPackets> {
        // Code that holds the lock does not panic, and even after a panic the values would be valid.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(micros)
    }

    /// The answer to a single data packet may be delayed, so the measurement starts with the second packet.
    /// Later packets do not restart the measurement.
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
        // A second answer to the same data packets is not counted.
        answers.answered(at(60_000));
        let answered = answers.stalls(&Lateness::default()).answered;
        assert_eq!((answered.max, answered.p50), (Duration::from_millis(3), Duration::from_millis(3)));
        answers.asked(at(70_000), 4);
        answers.answered(at(70_010));
        assert_eq!(answers.stalls(&Lateness::default()).answered.max, Duration::from_millis(3));
    }
}
