//! The connection's timers: the delayed ACK, the pacer, and the single timer of the sending half
//! (`sender/timers.rs`).

use fullpipe_units::Instant;

use super::sender::RetransmitTimer;
use super::{Connection, Event, State};

impl Connection {
    /// Returns the time at which `handle_timeout` is due; [`Instant::FAR_FUTURE`] if no timer runs.
    #[inline]
    pub fn poll_timeout(&self) -> Instant {
        let mut due = self.receiver.acks.deadline();
        if let Some((_, at)) = self.sender.timer {
            due = due.min(at);
        }
        due.min(self.sender.pacing_deadline())
    }

    /// Handles all timers that are due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.receiver.acks.deadline() <= now {
            self.receiver.acks.on_timeout(now);
        }
        let Some(timer) = self.sender.take_due_timer(now) else { return };
        if matches!(self.lifecycle.state, State::SynSent | State::SynReceived) {
            self.on_syn_timeout(now);
            return;
        }
        self.sender.check_app_limited_without_write();
        let detached = self.lifecycle.detached;
        let gives_up = match timer {
            RetransmitTimer::Reordering => {
                self.sender.on_reordering_timeout(now);
                false
            }
            RetransmitTimer::TailProbe => {
                self.sender.probes.request_tail();
                false
            }
            RetransmitTimer::Timeout => self.sender.on_retransmission_timeout(now, detached),
            RetransmitTimer::Persist => self.sender.on_persist_timeout(now, detached),
            RetransmitTimer::KeepAlive => return self.on_keep_alive_timeout(now),
            RetransmitTimer::FinWait2 | RetransmitTimer::TimeWait => return self.end(now, Event::Closed),
        };
        if gives_up {
            self.end(now, Event::Aborted);
        }
    }
}
