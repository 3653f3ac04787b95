//! Half-open connections: a SYN and the progress of its handshake, instead of a whole connection.
//!
//! ```text
//!   SYN ──► entry ── SYN-ACK sent ──► folded ── final ACK, another segment, a timer ──► entry
//!                                       ▲                                                │
//!                                       └────────────── still half-open ◄────────────────┘
//! ```
//!
//! Unauthenticated peers can create as many half-open connections as the backlog permits. A folded half-open
//! connection takes about an eighth of the memory of a connection.

use fullpipe_units::Instant;

use super::time_wait::Rest;
use super::{ConnId, Entry, FourTuple, Owner, Stack};
use crate::conn::{Connection, HandshakeProgress};
use crate::wire::{Segment, SeqNum};

/// State of a half-open connection that the stack keeps between two events.
#[derive(Debug)]
pub(super) struct HalfOpen {
    id: ConnId,
    tuple: FourTuple,
    /// The peer's SYN, and the time at which the handshake began.
    syn: (Instant, Segment),
    iss: SeqNum,
    /// Time at which the entry in the stack's timers expires.
    armed: Instant,
    /// Progress of the handshake if the connection is folded; `None` while the whole connection exists.
    progress: Option<HandshakeProgress>,
}

/// Content of a slot of the stack.
#[derive(Debug)]
pub(super) enum Place {
    Free,
    Open(Box<Entry>),
    Folded(Box<HalfOpen>),
    TimeWait(Box<Rest>),
}

impl Place {
    pub(super) fn entry(&self) -> Option<&Entry> {
        if let Self::Open(entry) = self { Some(entry) } else { None }
    }

    pub(super) fn entry_mut(&mut self) -> Option<&mut Entry> {
        if let Self::Open(entry) = self { Some(entry) } else { None }
    }
}

impl Stack {
    /// Creates a half-open connection for a SYN. The initial sequence number of the connection is at least
    /// `least`.
    pub(super) fn half_open(&mut self, now: Instant, tuple: FourTuple, syn: &Segment, least: Option<SeqNum>) {
        let Some(listener) = self.listeners.get_mut(&tuple.local) else { return };
        listener.half_open += 1;
        let config = listener.config_of(tuple.remote.ip());
        let seed = self.seed(&config, &tuple);
        let mut connection = Connection::server_with(config, seed);
        let isn = self.config.isn_clock.isn(now, &tuple, self.config.key);
        let iss = least.filter(|least| isn.distance_from(*least) < 0).unwrap_or(isn);
        connection.start_at(iss);
        if let Some(paths) = &self.paths {
            connection.expect(now, paths.as_ref(), tuple.remote.ip());
        }
        connection.handle_segment(now, syn);
        let Some(slot) = self.insert(tuple, connection, Owner::HalfOpen) else { return };
        let id = self.id(slot);
        if let Some(entry) = self.slots[slot as usize].1.entry_mut() {
            let syn = (now, syn.clone());
            let armed = Instant::FAR_FUTURE;
            entry.half_open = Some(Box::new(HalfOpen { id, tuple, syn, iss, armed, progress: None }));
        }
        self.touched(slot);
    }

    /// Reduces a half-open connection to the progress of its handshake, if the connection has nothing to
    /// send.
    pub(super) fn fold(&mut self, slot: u32) {
        let place = &mut self.slots[slot as usize].1;
        let Some(entry) = place.entry_mut() else { return };
        // A connection with held-back events is not folded, because the events could not be restored.
        if entry.owner != Owner::HalfOpen || !entry.kept.is_empty() {
            return;
        }
        let Some(progress) = entry.connection.progress() else { return };
        // A connection from a SYN cookie has no such record, and its handshake is complete at once.
        let Some(mut half_open) = entry.half_open.take() else { return };
        half_open.armed = entry.armed;
        half_open.progress = Some(progress);
        *place = Place::Folded(half_open);
    }

    /// Restores the whole connection in this slot if it is folded.
    pub(super) fn unfold(&mut self, slot: u32) {
        let place = &mut self.slots[slot as usize].1;
        let Place::Folded(half_open) = place else { return };
        let Some(progress) = half_open.progress.take() else { return };
        let tuple = half_open.tuple;
        let Some(listener) = self.listeners.get(&tuple.local) else { return };
        let config = listener.config_of(tuple.remote.ip());
        let Place::Folded(half_open) = std::mem::replace(place, Place::Free) else { return };
        let seed = self.seed(&config, &tuple);
        let (heard_at, syn) = &half_open.syn;
        let connection = Connection::half_open(config, seed, half_open.iss, (*heard_at, syn), progress);
        let mut entry = Entry::new(half_open.id, tuple, connection, Owner::HalfOpen, self.budget.clone());
        entry.armed = half_open.armed;
        entry.half_open = Some(half_open);
        self.slots[slot as usize].1 = Place::Open(Box::new(entry));
    }
}
