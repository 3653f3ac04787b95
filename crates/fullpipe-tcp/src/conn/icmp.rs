//! Effects of ICMP error messages on a connection (RFC 9293 section 3.9.2.2, RFC 5927).
//!
//! | message | in SYN-SENT | later |
//! |---|---|---|
//! | too big | ignored: a SYN is small | segments shrink (`sender/mtu.rs`) |
//! | unreachable, time exceeded, parameter problem | recorded and reported | recorded and reported |
//! | port or protocol unreachable | the connection is given up | recorded and reported |
//!
//! An ICMP message never ends an established connection, because the message may be forged and the condition
//! may be temporary (RFC 5927 section 5.2, RFC 5461). Linux behaves in the same way, with one exception: it
//! also gives up in SYN-SENT if the destination is unreachable, which RFC 9293 MUST-56 forbids.

use fullpipe_units::Instant;

use super::{Connection, Event, State};
use crate::wire::{IcmpError, SeqNum};

impl Connection {
    /// Handles an ICMP error about a segment of this connection that begins at `quoted`. Returns whether the
    /// connection accepts the error. `quoted` must be outstanding, because only a host on the path can know
    /// which sequence numbers are outstanding (RFC 5927 section 4.1). A "too big" error must also reduce the
    /// segment size.
    pub fn on_icmp(&mut self, now: Instant, error: IcmpError, quoted: SeqNum) -> bool {
        if !self.is_outstanding(quoted) {
            return false;
        }
        match error {
            IcmpError::TooBig(mtu) => self.limit_mtu(now, mtu),
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

    /// Limits the packets of the connection to `mtu` bytes, IP headers included, because the path or the
    /// device carries no larger ones. Returns whether segments become smaller. Larger segments that are
    /// outstanding are retransmitted in pieces.
    pub fn limit_mtu(&mut self, now: Instant, mtu: u64) -> bool {
        self.lifecycle.state.carries_data() && self.sender.narrow_path(now, mtu)
    }

    /// Returns the last ICMP error other than "too big". If the connection fails, this error is the likely
    /// cause. [`Event::SoftError`] reports its arrival.
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
