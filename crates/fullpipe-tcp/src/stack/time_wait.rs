//! Connections in TIME-WAIT: the state that RFC 9293 requires, instead of a whole connection.
//!
//! ```text
//!   last ACK sent, released by the application ──► rest ──► two segment lifetimes, a reset, a new SYN ──► free
//! ```
//!
//! On a server that closes first, each connection of the last minute is in this state. At 2000 short
//! connections per second, 120 000 connections are in this state.

use fullpipe_units::Instant;

use super::{Admission, FourTuple, Owner, Place, Stack};
use crate::conn::{State, TimeWait, TimeWaitVerdict};
use crate::wire::{Segment, SeqNum};

/// State that the stack keeps of a released connection in TIME-WAIT.
#[derive(Debug)]
pub(super) struct Rest {
    pub(super) tuple: FourTuple,
    wait: TimeWait,
}

impl Stack {
    /// Reduces a released connection to its TIME-WAIT state, if the connection has nothing to send. If there
    /// are too many such states, the connection ends instead, as in Linux (`tcp_max_tw_buckets`).
    pub(super) fn keep_time_wait(&mut self, slot: u32) {
        let place = &mut self.slots[slot as usize].1;
        let Some(entry) = place.entry_mut() else { return };
        if entry.owner != Owner::Nobody || !entry.recorded || entry.connection.state() != State::TimeWait {
            return;
        }
        let Some(wait) = entry.connection.time_wait().cloned() else { return };
        if self.in_time_wait >= self.config.max_connections {
            self.remove(slot);
            return;
        }
        self.in_time_wait += 1;
        *place = Place::TimeWait(Box::new(Rest { tuple: entry.tuple, wait }));
        self.clear_live(slot);
    }

    /// Returns the sockets of the released connection in `slot` and the lowest initial sequence number of the
    /// new connection, if the connection is in TIME-WAIT and `segment` certainly is the SYN of a new one (RFC
    /// 6191; TW-3).
    pub(super) fn reopened_by(&self, slot: u32, segment: &Segment) -> Option<(FourTuple, SeqNum)> {
        match &self.slots[slot as usize].1 {
            Place::TimeWait(rest) => Some((rest.tuple, rest.wait.reopened_by(segment)?)),
            Place::Open(entry) if entry.owner == Owner::Nobody => {
                Some((entry.tuple, entry.connection.time_wait()?.reopened_by(segment)?))
            }
            _ => None,
        }
    }

    /// Handles the SYN of a new connection between the sockets of a connection in TIME-WAIT, as if these
    /// sockets were unused. Only an accepted SYN ends TIME-WAIT. Returns false if the SYN must be handled like
    /// any other segment in TIME-WAIT, because the listener has no room.
    pub(super) fn reopen(
        &mut self,
        now: Instant,
        slot: u32,
        tuple: FourTuple,
        syn: &Segment,
        least: SeqNum,
    ) -> bool {
        let is_full = self.is_full();
        let Some(listener) = self.listeners.get_mut(&tuple.local) else { return false };
        match listener.admission {
            Admission::Open if is_full || !listener.opens_at_once() => return false,
            Admission::Open => {
                self.remove(slot);
                self.half_open(now, tuple, syn, Some(least));
            }
            Admission::Held => listener.hold(tuple, syn),
            Admission::Refused => self.reset(tuple, syn),
        }
        self.counters.syns_in += 1;
        true
    }

    /// Handles a segment for a connection in TIME-WAIT that does not open a new connection.
    pub(super) fn deliver_in_time_wait(&mut self, now: Instant, slot: u32, segment: &Segment) {
        let Place::TimeWait(rest) = &mut self.slots[slot as usize].1 else { return };
        let tuple = rest.tuple;
        match rest.wait.on_segment(now, segment) {
            TimeWaitVerdict::Ignored => {}
            TimeWaitVerdict::Acknowledged => {
                let acknowledgement = rest.wait.acknowledgement(now);
                self.reply(tuple, acknowledgement);
            }
            TimeWaitVerdict::Ended => self.remove(slot),
        }
    }

    /// Handles the timer of a connection in TIME-WAIT. A segment may have restarted TIME-WAIT since the timer
    /// was set.
    pub(super) fn time_wait_expires(&mut self, now: Instant, slot: u32) {
        let Place::TimeWait(rest) = &mut self.slots[slot as usize].1 else { return };
        if rest.wait.until() <= now {
            self.remove(slot);
        } else {
            self.timers.set(slot, rest.wait.until());
        }
    }
}
