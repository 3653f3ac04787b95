//! How a connection ends (RFC 9293 sections 3.6 and 3.10.4 to 3.10.7; the states are drawn at [`State`]).
//!
//! ```text
//!   close     no more will be written; the FIN follows the last byte, what the peer sends is still taken
//!   detach    nobody reads any more either: data is answered with a reset, and waiting has an end
//!   abort     a reset; nothing is delivered any more
//! ```

use fullpipe_units::{Duration, Instant};

use super::reset::{bare, reset_for};
use super::sender::RetransmitTimer;
use super::time_wait::{TimeWait, TimeWaitVerdict};
use super::{Connection, Event, State};
use crate::SendLimit;
use crate::wire::Segment;

/// How long nobody's connection waits for the peer's FIN (`net.ipv4.tcp_fin_timeout`): a peer that has gone must not hold
/// memory for ever. Never less than three and a half timeouts, as in Linux.
const FIN_WAIT_2: Duration = Duration::from_secs(60);

/// Where a connection stands between its two ends, and what is left of it.
#[derive(Debug)]
pub(super) struct Lifecycle {
    pub(super) state: State,
    /// Nobody reads any more.
    pub(super) detached: bool,
    /// It was there and has ended.
    pub(super) over: bool,
    /// The peer has acknowledged our FIN, and the application knows.
    pub(super) finished: bool,
    /// A reset to be sent.
    pub(super) reset_due: Option<Segment>,
    pub(super) time_wait: Option<TimeWait>,
}

impl Lifecycle {
    pub(super) fn new(state: State) -> Self {
        Self { state, detached: false, over: false, finished: false, reset_due: None, time_wait: None }
    }
}

impl Connection {
    /// Says that no more will be written: half a close, `shutdown(SHUT_WR)`. The FIN follows the last byte, as soon as there
    /// is a connection for it.
    pub fn close(&mut self) {
        self.sender.queue.close();
        self.lifecycle.state = match self.lifecycle.state {
            State::Established => State::FinWait1,
            State::CloseWait => State::LastAck,
            other => other,
        };
    }

    /// Says that nothing will be written or read any more: `close(2)`. What was written is still sent, and then the FIN; but
    /// data that was not read, or that comes from now on, is answered with a reset, so that the peer learns of its loss
    /// (RFC 9293 SHLD-3). No peer keeps such a connection for ever: see [`Event::Closed`].
    pub fn detach(&mut self, now: Instant) {
        if self.lifecycle.detached || self.lifecycle.over {
            return;
        }
        self.lifecycle.detached = true;
        match self.lifecycle.state {
            // There is nobody to send it to.
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

    /// Resets the connection: what is under way is lost, on both sides.
    pub fn abort(&mut self, now: Instant) {
        match self.lifecycle.state {
            State::Closed | State::TimeWait => return,
            State::Listen | State::SynSent => {}
            // The peer knows that all is over, or is about to.
            State::Closing | State::LastAck if self.sender.fresh.fin_sent() => {}
            _ => {
                // Beyond the peer's window a reset is not believed.
                let offset = self.sender.snd_nxt().min(self.sender.snd_una + self.sender.peer.wnd);
                let ack = self.receiver.rcv_nxt_on_wire();
                let timestamps = self.receiver.timestamps(now);
                let reset = bare(self.sender.iss.plus(1).plus(offset), Some(ack));
                self.lifecycle.reset_due = Some(Segment { timestamps, ..reset });
            }
        }
        self.end(now, Event::Aborted);
    }

    /// The connection is over. Nothing is sent any more but the reset that may be due.
    pub(super) fn end(&mut self, now: Instant, event: Event) {
        self.lifecycle.state = State::Closed;
        self.lifecycle.over = true;
        self.sender.end(now);
        self.receiver.acks.on_ack_sent();
        self.events.add(event);
    }

    /// The peer has acknowledged our FIN.
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

    /// All that the peer sent has been received, its FIN included.
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
        // A loss that turned out to be none may have been waiting for the pacer.
        self.sender.limits.set(now, SendLimit::App);
        self.sender.timer = Some((RetransmitTimer::TimeWait, wait.until()));
        self.lifecycle.time_wait = Some(wait);
    }

    /// What a host remembers of this connection in TIME-WAIT; `None` in every other state. Asked with a SYN
    /// ([`TimeWait::reopened_by`]), it says whether that may open the next connection in place of this one. Whoever does not
    /// ask stays: the SYN is acknowledged like any other segment.
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

    /// Data for which there is no reader any more: true if the segment brings some, and the connection is reset.
    #[cold]
    pub(super) fn refuses_data(&mut self, now: Instant, segment: &Segment, start: u64) -> bool {
        let refused = segment.len > 0 && start + u64::from(segment.len) > self.receiver.rcv_nxt();
        if refused {
            self.lifecycle.reset_due = reset_for(segment);
            self.end(now, Event::Aborted);
        }
        refused
    }

    /// A reset that is believed. Where only our FIN was still to be acknowledged nothing is lost with it.
    pub(super) fn on_valid_reset(&mut self, now: Instant) {
        let all_delivered = self.sender.snd_una >= self.sender.queue.written();
        let last = matches!(self.lifecycle.state, State::Closing | State::LastAck);
        self.end(now, if last && all_delivered { Event::Closed } else { Event::Aborted });
    }

    /// Emits `Finished` once, when the FIN has been acknowledged.
    #[inline]
    pub(super) fn finish_if_done(&mut self, now: Instant) {
        if self.sender.is_fin_acknowledged() && !self.lifecycle.finished {
            self.lifecycle.finished = true;
            self.events.add(Event::Finished);
            self.on_fin_acknowledged(now);
        }
    }
}
