//! What a path counts, and what it keeps for those who hold the packets' bytes.

use std::collections::VecDeque;

use crate::packet::{Note, PacketInfo, PacketKind, Verdict};

/// Packets by fate, over the whole run.
///
/// `offered + duplicated` is what was delivered, dropped for one of the reasons, or is still inside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that entered the path.
    pub offered: u64,
    /// Data packets that left it.
    pub delivered_data: u64,
    /// Other packets that left it.
    pub delivered_control: u64,
    /// Packets that a loss element took.
    pub random_drops: u64,
    /// Packets that a policer took.
    pub policed: u64,
    /// Packets that found a queue full, or had to leave a full one.
    pub queue_drops: u64,
    /// Packets that the management of a queue dropped, although there was room.
    pub aqm_drops: u64,
    /// Packets that were marked instead (`CE`).
    pub marked: u64,
    /// Copies that were made.
    pub duplicated: u64,
    /// Packets that left jitter behind one of their flow that had entered it later (RFC 4737 section 3).
    pub reordered: u64,
    /// ACKs that were left out.
    pub acks_thinned: u64,
}

impl Counters {
    /// All packets that were dropped.
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

/// The counters of a path, and the notes of what happened inside if somebody wants them.
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
    /// Notes are kept from now on.
    pub(crate) fn keep_notes(&mut self) {
        self.notes.get_or_insert_default();
    }

    pub(crate) fn keeps_notes(&self) -> bool {
        self.notes.is_some()
    }

    pub(crate) fn next_note(&mut self) -> Option<Note<T>> {
        self.notes.as_mut()?.pop_front()
    }

    /// A packet that had been accepted is dropped.
    pub(crate) fn dropped_inside(&mut self, packet: PacketInfo, payload: T, verdict: Verdict) {
        self.counters.count(verdict);
        self.note_drop(packet, payload, verdict);
    }

    /// The note alone, for a drop that has been counted.
    pub(crate) fn note_drop(&mut self, packet: PacketInfo, payload: T, verdict: Verdict) {
        if let Some(notes) = &mut self.notes {
            notes.push_back(Note::Dropped { packet, payload, verdict });
        }
    }
}

impl<T: Clone> Ledger<T> {
    /// There is one more of a packet.
    pub(crate) fn duplicated(&mut self, packet: PacketInfo, payload: &T) {
        self.counters.duplicated += 1;
        if let Some(notes) = &mut self.notes {
            notes.push_back(Note::Duplicated { packet, payload: payload.clone() });
        }
    }
}
