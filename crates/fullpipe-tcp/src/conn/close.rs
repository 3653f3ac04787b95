//! How a connection ends (RFC 9293 sections 3.6 and 3.10.4 to 3.10.7; the states are drawn at [`State`]).
//!
//! ```text
//!   close     no more will be written; the FIN follows the last byte, what the peer sends is still taken
//!   detach    nobody reads any more either: data is answered with a reset, and waiting has an end
//!   abort     a reset; nothing is delivered any more
//! ```

use fullpipe_units::{Duration, Instant};

use super::reset::{bare, reset_for};
use super::time_wait::{TimeWait, TimeWaitVerdict};
use super::timers::RetransmitTimer;
use super::{Connection, Event, State};
use crate::SendLimit;
use crate::wire::Segment;

/// How long nobody's connection waits for the peer's FIN (`net.ipv4.tcp_fin_timeout`): a peer that has gone must not hold
/// memory for ever. Never less than three and a half timeouts, as in Linux.
const FIN_WAIT_2: Duration = Duration::from_secs(60);

impl Connection {
    /// Says that no more will be written: half a close, `shutdown(SHUT_WR)`. The FIN follows the last byte, as soon as there
    /// is a connection for it.
    pub fn close(&mut self) {
        self.queue.close();
        self.state = match self.state {
            State::Established => State::FinWait1,
            State::CloseWait => State::LastAck,
            other => other,
        };
    }

    /// Says that nothing will be written or read any more: `close(2)`. What was written is still sent, and then the FIN; but
    /// data that was not read, or that comes from now on, is answered with a reset, so that the peer learns of its loss
    /// (RFC 9293 SHLD-3). No peer keeps such a connection for ever: see [`Event::Closed`].
    pub fn detach(&mut self, now: Instant) {
        if self.detached || self.over {
            return;
        }
        self.detached = true;
        match self.state {
            // There is nobody to send it to.
            State::Closed | State::Listen | State::SynSent if self.queue.written() > 0 => {
                self.end(now, Event::Aborted);
            }
            State::Closed | State::Listen | State::SynSent => self.end(now, Event::Closed),
            State::SynReceived | State::TimeWait => self.queue.close(),
            _ if self.readable() > 0 => self.abort(now),
            _ => {
                self.close();
                if self.state == State::FinWait2 {
                    self.bound_fin_wait_2(now);
                }
            }
        }
    }

    /// Resets the connection: what is under way is lost, on both sides.
    pub fn abort(&mut self, now: Instant) {
        match self.state {
            State::Closed | State::TimeWait => return,
            State::Listen | State::SynSent => {}
            // The peer knows that all is over, or is about to.
            State::Closing | State::LastAck if self.fin_sent => {}
            _ => {
                // Beyond the peer's window a reset is not believed.
                let offset = self.snd_nxt.min(self.snd_una + self.snd_wnd);
                let ack = self.irs.plus(1).plus(self.reassembly.rcv_nxt());
                let timestamps = self.has_timestamps.then(|| self.timestamps(now));
                let reset = bare(self.iss.plus(1).plus(offset), Some(ack));
                self.reset_due = Some(Segment { timestamps, ..reset });
            }
        }
        self.end(now, Event::Aborted);
    }

    /// The connection is over. Nothing is sent any more but the reset that may be due.
    pub(super) fn end(&mut self, now: Instant, event: Event) {
        self.state = State::Closed;
        self.over = true;
        self.queue.close();
        self.retransmit_timer = None;
        self.acks.on_ack_sent();
        self.limits.set(now, SendLimit::App);
        self.events.add(event);
    }

    /// The peer has acknowledged our FIN.
    #[cold]
    pub(super) fn on_fin_acknowledged(&mut self, now: Instant) {
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                if self.detached {
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
        match self.state {
            State::Established => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.enter_time_wait(now),
            _ => {}
        }
    }

    fn bound_fin_wait_2(&mut self, now: Instant) {
        let least = self.rtt.rto() * 7 / 2;
        self.retransmit_timer = Some((RetransmitTimer::FinWait2, now + FIN_WAIT_2.max(least)));
    }

    fn enter_time_wait(&mut self, now: Instant) {
        let rcv_nxt = self.reassembly.rcv_nxt();
        let window = self.window.offer(rcv_nxt, self.reassembly.held_bytes(), self.readable(), self.rcv_mss);
        let wait = TimeWait::new(
            now,
            self.iss.plus(1).plus(self.snd_nxt),
            self.irs.plus(1).plus(rcv_nxt),
            window,
            self.has_timestamps.then_some(self.ts_recent),
        );
        self.state = State::TimeWait;
        // A loss that turned out to be none may have been waiting for the pacer.
        self.limits.set(now, SendLimit::App);
        self.retransmit_timer = Some((RetransmitTimer::TimeWait, wait.until()));
        self.time_wait = Some(wait);
    }

    /// What a host remembers of this connection in TIME-WAIT; `None` in every other state. Asked with a SYN
    /// ([`TimeWait::reopened_by`]), it says whether that may open the next connection in place of this one. Whoever does not
    /// ask stays: the SYN is acknowledged like any other segment.
    pub fn time_wait(&self) -> Option<&TimeWait> {
        self.time_wait.as_ref().filter(|_| self.state == State::TimeWait)
    }

    pub(super) fn on_segment_in_time_wait(&mut self, now: Instant, segment: &Segment) {
        let Some(wait) = &mut self.time_wait else { return };
        match wait.on_segment(now, segment) {
            TimeWaitVerdict::Ignored => {}
            TimeWaitVerdict::Acknowledged => self.acks.demand(),
            TimeWaitVerdict::Ended => return self.end(now, Event::Closed),
        }
        self.retransmit_timer = Some((RetransmitTimer::TimeWait, wait.until()));
    }

    /// Data for which there is no reader any more: true if the segment brings some, and the connection is reset.
    #[cold]
    pub(super) fn refuses_data(&mut self, now: Instant, segment: &Segment, start: u64) -> bool {
        let refused = segment.len > 0 && start + u64::from(segment.len) > self.reassembly.rcv_nxt();
        if refused {
            self.reset_due = reset_for(segment);
            self.end(now, Event::Aborted);
        }
        refused
    }

    /// A reset that is believed. Where only our FIN was still to be acknowledged nothing is lost with it.
    pub(super) fn on_valid_reset(&mut self, now: Instant) {
        let all_delivered = self.snd_una >= self.queue.written();
        let last = matches!(self.state, State::Closing | State::LastAck);
        self.end(now, if last && all_delivered { Event::Closed } else { Event::Aborted });
    }

    /// The peer has sent its FIN, and everything before it is here.
    pub(super) fn is_peer_closed(&self) -> bool {
        self.fin_at.is_some_and(|fin| self.reassembly.rcv_nxt() > fin)
    }
}
