//! What an ICMP error message does to a connection (RFC 9293 section 3.9.2.2, RFC 5927).
//!
//! | message | before the peer has answered | later |
//! |---|---|---|
//! | too big | nothing: a SYN is small | smaller segments (`sender/mtu.rs`) |
//! | unreachable, time exceeded, parameter problem | remembered, and told | the same |
//! | nobody takes it: port or protocol unreachable | the connection is given up | remembered, and told |
//!
//! A connection that has once been answered is not given up for a message: it may be forged, and what is wrong may pass (RFC 5927
//! section 5.2, RFC 5461). Linux does so too; it also gives up opening for what is only unreachable, which MUST-56 forbids.

use fullpipe_units::Instant;

use super::{Connection, Event, State};
use crate::wire::{IcmpError, SeqNum};

impl Connection {
    /// Somebody on the way complains about the segment of this connection that begins at `quoted`. True if that is believed: only
    /// whoever sees our packets knows what is outstanding (RFC 5927 section 4.1).
    pub fn on_icmp(&mut self, now: Instant, error: IcmpError, quoted: SeqNum) -> bool {
        if !self.is_outstanding(quoted) {
            return false;
        }
        match error {
            IcmpError::TooBig(mtu) => {
                self.lifecycle.state.carries_data() && self.sender.narrow_path(now, mtu)
            }
            IcmpError::Refused if self.lifecycle.state == State::SynSent => {
                self.soft_error = Some(error);
                self.end(now, Event::Aborted);
                true
            }
            IcmpError::Unreachable | IcmpError::Refused => {
                self.soft_error = Some(error);
                self.events.add(Event::SoftError);
                true
            }
        }
    }

    /// The last error about a segment of this connection that made it no smaller: likely why it fails, if it does. Told by
    /// [`Event::SoftError`].
    pub fn soft_error(&self) -> Option<IcmpError> {
        self.soft_error
    }

    fn is_outstanding(&self, quoted: SeqNum) -> bool {
        if matches!(self.lifecycle.state, State::SynSent | State::SynReceived) {
            return quoted == self.sender.iss;
        }
        let offset =
            quoted.offset_near(self.sender.iss.plus(1).plus(self.sender.snd_una), self.sender.snd_una);
        offset.is_some_and(|offset| (self.sender.snd_una..self.sender.snd_nxt()).contains(&offset))
    }
}
