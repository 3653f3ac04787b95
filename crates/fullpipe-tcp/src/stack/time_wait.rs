//! Connections in TIME-WAIT: the state that RFC 9293 requires, instead of a whole connection.
//!
//! ```text
//!   last ACK sent, released by the application ──► rest ──► two segment lifetimes, a reset, a new SYN ──► free
//! ```
//!
//! On a server that closes first, each connection of the last minute is in this state. At 2000 short
//! connections per second, 120 000 connections are in this state.

use fullpipe_units::Instant;

use super::{FourTuple, Listener, Owner, Place, Stack};
use crate::conn::{State, TimeWait, TimeWaitVerdict};
use crate::wire::Segment;

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
    }

    /// Handles a segment for a connection in TIME-WAIT.
    pub(super) fn deliver_in_time_wait(&mut self, now: Instant, slot: u32, segment: &Segment) {
        let Place::TimeWait(rest) = &mut self.slots[slot as usize].1 else { return };
        let tuple = rest.tuple;
        // RFC 6191; TW-3.
        if let Some(least) = rest.wait.reopened_by(segment)
            && self.listeners.get(&tuple.local).is_some_and(Listener::opens_at_once)
        {
            self.remove(slot);
            self.half_open(now, tuple, segment, Some(least));
            return;
        }
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
