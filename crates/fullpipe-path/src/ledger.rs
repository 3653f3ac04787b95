//! Packet counters of a path, and notes of packet events for callers that store the packets' bytes.

use std::collections::VecDeque;

use crate::packet::{Note, PacketInfo, PacketKind, Verdict};

/// Packet counts by outcome, over the whole run.
///
/// `offered + duplicated` equals the number of packets that were delivered, were dropped for any reason, or
/// are still on the path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Number of packets that entered the path.
    pub offered: u64,
    /// Number of data packets that left the path.
    pub delivered_data: u64,
    /// Number of packets other than data packets that left the path.
    pub delivered_control: u64,
    /// Number of packets that a loss element dropped.
    pub random_drops: u64,
    /// Number of packets that a policer dropped.
    pub policed: u64,
    /// Number of packets dropped because a queue was full: arriving packets, or packets already in the queue.
    pub queue_drops: u64,
    /// Number of packets that the AQM dropped although the queue had room.
    pub aqm_drops: u64,
    /// Number of packets that the AQM marked (ECN `CE`) instead of dropping them.
    pub marked: u64,
    /// Number of packet copies made by duplication elements.
    pub duplicated: u64,
    /// Number of packets that left a jitter element after a later packet of their flow (RFC 4737 section 3).
    pub reordered: u64,
    /// Number of pure ACKs that ACK decimation dropped.
    pub acks_thinned: u64,
}

impl Counters {
    /// Returns the number of packets dropped, for any reason.
    pub const fn dropped(&self) -> u64 {
        self.random_drops + self.policed + self.queue_drops + self.aqm_drops + self.acks_thinned
    }

    pub(crate) fn count_exit(&mut self, kind: PacketKind) {
        match kind {
            PacketKind::Data => self.delivered_data += 1,
            PacketKind::Ack | PacketKind::Control => self.delivered_control += 1,
        }
    }

    pub(crate) fn count(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Accepted => {}
            Verdict::Lost => self.random_drops += 1,
            Verdict::Policed => self.policed += 1,
            Verdict::QueueFull => self.queue_drops += 1,
            Verdict::Managed => self.aqm_drops += 1,
            Verdict::Thinned => self.acks_thinned += 1,
        }
    }
}

/// The packet counters of a path, and notes of its packet events if the caller requested them.
#[derive(Clone, Debug)]
pub(crate) struct Ledger<T> {
    pub(crate) counters: Counters,
    notes: Option<VecDeque<Note<T>>>,
}

impl<T> Default for Ledger<T> {
    fn default() -> Self {
        Self { counters: Counters::default(), notes: None }
    }
}

impl<T> Ledger<T> {
    /// Starts recording notes of packet events.
    pub(crate) fn keep_notes(&mut self) {
        self.notes.get_or_insert_default();
    }

    pub(crate) fn keeps_notes(&self) -> bool {
        self.notes.is_some()
    }

    pub(crate) fn next_note(&mut self) -> Option<Note<T>> {
        self.notes.as_mut()?.pop_front()
    }

    /// Counts and records the drop of a packet that a queue had already accepted.
    pub(crate) fn dropped_inside(&mut self, packet: PacketInfo, payload: T, verdict: Verdict) {
        self.counters.count(verdict);
        self.note_drop(packet, payload, verdict);
    }

    /// Records a packet drop that has already been counted.
    pub(crate) fn note_drop(&mut self, packet: PacketInfo, payload: T, verdict: Verdict) {
        if let Some(notes) = &mut self.notes {
            notes.push_back(Note::Dropped { packet, payload, verdict });
        }
    }
}

impl<T: Clone> Ledger<T> {
    /// Counts and records the duplication of a packet.
    pub(crate) fn duplicated(&mut self, packet: PacketInfo, payload: &T) {
        self.counters.duplicated += 1;
        if let Some(notes) = &mut self.notes {
            notes.push_back(Note::Duplicated { packet, payload: payload.clone() });
        }
    }
}
