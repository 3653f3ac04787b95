//! Closing of a connection (RFC 9293 sections 3.6 and 3.10.4 to 3.10.7; [`State`] has the state diagram).
//!
//! ```text
//!   close     ends writing; the FIN follows the last byte, and data from the peer is still accepted
//!   detach    ends reading too: new data is answered with a reset, and waiting for the peer is bounded
//!   abort     sends a reset; nothing more is delivered
//! ```

use fullpipe_units::{Duration, Instant};

use super::reset::{bare, reset_for};
use super::sender::RetransmitTimer;
use super::time_wait::{TimeWait, TimeWaitVerdict};
use super::{Connection, Event, State};
use crate::SendLimit;
use crate::wire::Segment;

/// Timeout of a detached connection in FIN-WAIT-2 (`net.ipv4.tcp_fin_timeout`), so that a connection whose
/// peer has vanished does not occupy memory forever. As in Linux, the timeout is at least 3.5 RTO.
const FIN_WAIT_2: Duration = Duration::from_secs(60);

/// RFC 9293 state of the connection, and the progress of its closing.
#[derive(Debug)]
pub(super) struct Lifecycle {
    pub(super) state: State,
    /// Whether the application has closed the socket, so that arriving data is no longer read.
    pub(super) detached: bool,
    /// Whether the connection has ended.
    pub(super) over: bool,
    /// Whether the peer has acknowledged our FIN and [`Event::Finished`] was emitted.
    pub(super) finished: bool,
    /// Reset to be sent, if any. Few connections send a reset, so it is allocated separately.
    pub(super) reset_due: Option<Box<Segment>>,
    pub(super) time_wait: Option<TimeWait>,
}

impl Lifecycle {
    pub(super) fn new(state: State) -> Self {
        Self { state, detached: false, over: false, finished: false, reset_due: None, time_wait: None }
    }
}

impl Connection {
    /// Closes the connection for writing (half close, `shutdown(SHUT_WR)`). The FIN follows the last byte
    /// once the connection is established.
    pub fn close(&mut self) {
        self.sender.queue.close();
        self.lifecycle.state = match self.lifecycle.state {
            State::Established => State::FinWait1,
            State::CloseWait => State::LastAck,
            other => other,
        };
    }

    /// Closes the connection for writing and reading (`close(2)`). Data already written is still sent,
    /// followed by the FIN. The connection answers unread data and data that arrives later with a reset, so
    /// that the peer learns of the loss (RFC 9293 SHLD-3). The connection waits for the peer only for a
    /// limited time: see [`Event::Closed`].
    pub fn detach(&mut self, now: Instant) {
        if self.lifecycle.detached || self.lifecycle.over {
            return;
        }
        self.lifecycle.detached = true;
        match self.lifecycle.state {
            // There is no peer yet that could receive the data.
            State::Closed | State::Listen | State::SynSent if self.sender.queue.written() > 0 => {
                self.end(now, Event::Aborted);
            }
            State::Closed | State::Listen | State::SynSent => self.end(now, Event::Closed),
            State::SynReceived | State::TimeWait => self.sender.queue.close(),
            _ if self.readable() > 0 => self.abort(now),
            _ => {
                self.close();
                if self.lifecycle.state == State::FinWait2 {
                    self.bound_fin_wait_2(now);
                }
            }
        }
    }

    /// Resets the connection; data in flight is lost in both directions.
    pub fn abort(&mut self, now: Instant) {
        match self.lifecycle.state {
            State::Closed | State::TimeWait => return,
            State::Listen | State::SynSent => {}
            // No reset is needed: the peer has sent its FIN, and our FIN informs it that the connection has
            // ended.
            State::Closing | State::LastAck if self.sender.fresh.fin_sent() => {}
            _ => {
                // The peer ignores a reset beyond its window, so the reset uses an offset within the window.
                let offset = self.sender.snd_nxt().min(self.sender.snd_una + self.sender.peer.wnd);
                let ack = self.receiver.rcv_nxt_on_wire();
                let timestamps = self.receiver.timestamps(now);
                let reset = bare(self.sender.iss.plus(1).plus(offset), Some(ack));
                self.lifecycle.reset_due = Some(Box::new(Segment { timestamps, ..reset }));
            }
        }
        self.end(now, Event::Aborted);
    }

    /// Ends the connection and emits `event`. Only a pending reset is still sent.
    pub(super) fn end(&mut self, now: Instant, event: Event) {
        self.lifecycle.state = State::Closed;
        self.lifecycle.over = true;
        self.sender.end(now);
        self.receiver.acks.on_ack_sent();
        self.events.add(event);
    }

    /// Handles the acknowledgement of our FIN.
    #[cold]
    fn on_fin_acknowledged(&mut self, now: Instant) {
        match self.lifecycle.state {
            State::FinWait1 => {
                self.lifecycle.state = State::FinWait2;
                if self.lifecycle.detached {
                    self.bound_fin_wait_2(now);
                }
            }
            State::Closing => self.enter_time_wait(now),
            State::LastAck => self.end(now, Event::Closed),
            _ => {}
        }
    }

    /// Handles the peer's FIN after all preceding data has been received.
    #[cold]
    pub(super) fn on_peer_closed(&mut self, now: Instant) {
        self.events.add(Event::PeerClosed);
        match self.lifecycle.state {
            State::Established => self.lifecycle.state = State::CloseWait,
            State::FinWait1 => self.lifecycle.state = State::Closing,
            State::FinWait2 => self.enter_time_wait(now),
            _ => {}
        }
    }

    fn bound_fin_wait_2(&mut self, now: Instant) {
        let least = self.sender.rtt.rto() * 7 / 2;
        self.sender.timer = Some((RetransmitTimer::FinWait2, now + FIN_WAIT_2.max(least)));
    }

    fn enter_time_wait(&mut self, now: Instant) {
        let wait = TimeWait::new(
            now,
            self.sender.iss.plus(1).plus(self.sender.snd_nxt()),
            self.receiver.rcv_nxt_on_wire(),
            self.receiver.offer_window(),
            self.receiver.timestamps(now).map(|timestamps| timestamps.echo),
        );
        self.lifecycle.state = State::TimeWait;
        // Pacing may still be recorded as the limit if the sender was about to retransmit data whose loss
        // proved spurious.
        self.sender.limits.set(now, SendLimit::App);
        self.sender.timer = Some((RetransmitTimer::TimeWait, wait.until()));
        self.lifecycle.time_wait = Some(wait);
    }

    /// Returns the state to keep in TIME-WAIT, or `None` in every other state. [`TimeWait::reopened_by`]
    /// decides whether a SYN may open a new connection in place of this one. If that method is not called,
    /// the SYN is acknowledged like any other segment.
    pub fn time_wait(&self) -> Option<&TimeWait> {
        self.lifecycle.time_wait.as_ref().filter(|_| self.lifecycle.state == State::TimeWait)
    }

    pub(super) fn on_segment_in_time_wait(&mut self, now: Instant, segment: &Segment) {
        let Some(wait) = &mut self.lifecycle.time_wait else { return };
        match wait.on_segment(now, segment) {
            TimeWaitVerdict::Ignored => {}
            TimeWaitVerdict::Acknowledged => self.receiver.acks.demand(),
            TimeWaitVerdict::Ended => return self.end(now, Event::Closed),
        }
        self.sender.timer = Some((RetransmitTimer::TimeWait, wait.until()));
    }

    /// Resets the connection and returns true if the segment carries new data that the application will not
    /// read.
    #[cold]
    pub(super) fn refuses_data(&mut self, now: Instant, segment: &Segment, start: u64) -> bool {
        let refused = segment.len > 0 && start + u64::from(segment.len) > self.receiver.rcv_nxt();
        if refused {
            self.lifecycle.reset_due = reset_for(segment).map(Box::new);
            self.end(now, Event::Aborted);
        }
        refused
    }

    /// Handles a valid reset. If only our FIN was still unacknowledged, no data is lost.
    pub(super) fn on_valid_reset(&mut self, now: Instant) {
        let all_delivered = self.sender.snd_una >= self.sender.queue.written();
        let last = matches!(self.lifecycle.state, State::Closing | State::LastAck);
        self.end(now, if last && all_delivered { Event::Closed } else { Event::Aborted });
    }

    /// Emits [`Event::Finished`] once, after the FIN has been acknowledged.
    #[inline]
    pub(super) fn finish_if_done(&mut self, now: Instant) {
        if self.sender.is_fin_acknowledged() && !self.lifecycle.finished {
            self.lifecycle.finished = true;
            self.events.add(Event::Finished);
            self.on_fin_acknowledged(now);
        }
    }
}
