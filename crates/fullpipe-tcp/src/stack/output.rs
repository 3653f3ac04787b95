//! Packet output of a stack: first the replies that belong to no connection, then one transmission from each
//! connection in turn.

use super::{ConnId, FourTuple, MOST_REPLIES, Owner, Stack};
use crate::tx::Transmit;
use crate::wire::{Headers, Segment};
use fullpipe_units::Instant;

/// Packetization of transmissions, with or without segmentation offload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// One packet per segment with a complete checksum, as on the wire.
    Segments,
    /// Packets of several segments, for a device with segmentation offload that splits them and computes the
    /// checksums.
    SuperPackets,
}

/// Maximum payload length of a super-packet, in bytes. With its headers, such a packet is shorter than 64
/// KiB.
const MOST_PAYLOAD: u64 = 65_400;

/// Outgoing packet: headers, and payload in two parts as stored in the ring.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// IP and TCP headers. In a super-packet, the device that splits the packet computes the checksum.
    pub headers: Headers,
    /// Payload in stream order, in two consecutive parts.
    pub payload: [&'a [u8]; 2],
    /// Payload length of each segment except the last, in bytes; `None` if there is only one segment.
    pub gso_size: Option<u16>,
}

impl Outgoing<'_> {
    /// Returns the total length of the packet's headers and payload, in bytes.
    pub fn len(&self) -> usize {
        self.headers.as_bytes().len() + self.payload[0].len() + self.payload[1].len()
    }

    /// Returns false, because every packet has headers.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Partly sent transmission, some of whose packets have not left yet.
#[derive(Clone, Debug)]
pub(super) struct Cutting {
    id: ConnId,
    transmit: Transmit,
    /// Stream offset of the transmission's first payload byte.
    offset: u64,
}

/// Reply to a segment that belongs to no connection.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    tuple: FourTuple,
    segment: Segment,
}

impl Stack {
    /// Returns the next packet to send, or `None` if nothing may be sent at `now`.
    pub fn poll_packet(&mut self, now: Instant) -> Option<Outgoing<'_>> {
        if let Some(Reply { tuple, segment }) = self.replies.pop_front() {
            self.counters.packets_out += 1;
            let headers = Headers::between(&segment, tuple.local, tuple.remote)?;
            return Some(Outgoing { headers, payload: [&[], &[]], gso_size: None });
        }
        if self.cutting.is_none() {
            self.cutting = Some(self.next_transmission(now)?);
        }
        self.next_packet()
    }

    fn next_transmission(&mut self, now: Instant) -> Option<Cutting> {
        loop {
            let Self { slots, events, ready, .. } = self;
            let slot = ready.pop_front()?;
            let Some(entry) = slots[slot as usize].1.entry_mut() else { continue };
            let transmit = entry.connection.poll_transmit(now);
            entry.pass_events(events);
            if let Some(transmit) = transmit {
                ready.push_back(slot);
                let offset = entry.connection.offset_of(transmit.segment()).unwrap_or(0);
                let id = entry.id;
                self.keep_live(now, slot);
                return Some(Cutting { id, transmit, offset });
            }
            entry.ready = false;
            if entry.over && entry.owner == Owner::Nobody {
                self.remove(slot);
            } else {
                self.arm(slot);
                self.fold(slot);
                self.keep_time_wait(slot);
            }
        }
    }

    /// Takes the next packet from the current transmission.
    fn next_packet(&mut self) -> Option<Outgoing<'_>> {
        let Cutting { id, mut transmit, offset } = self.cutting.take()?;
        let cut = self.config.cut;
        let limit = match cut {
            Cut::Segments => 0,
            Cut::SuperPackets => MOST_PAYLOAD,
        };
        let piece = transmit.segments(limit).next()?;
        let (segment, start, len) = (piece.segment(), u64::from(piece.start()), u64::from(piece.payload()));
        let size = transmit.gso_size();
        if !transmit.is_cut_up() {
            self.cutting = Some(Cutting { id, transmit, offset });
        }
        self.counters.packets_out += 1;
        let entry = self.entry(id)?;
        let payload = entry.sending.read(offset + start, len);
        let headers = Headers::between(&segment, entry.tuple.local, entry.tuple.remote)?;
        let mut headers = headers.choosing(entry.connection.ip_choices());
        match cut {
            Cut::Segments => headers.cover(payload),
            Cut::SuperPackets => headers.leave_checksum(),
        }
        let gso_size = (len > u64::from(size)).then_some(size as u16);
        Some(Outgoing { headers, payload, gso_size })
    }

    pub(super) fn reply(&mut self, tuple: FourTuple, segment: Segment) {
        if self.replies.len() >= MOST_REPLIES {
            self.counters.replies_dropped += 1;
            return;
        }
        self.replies.push_back(Reply { tuple, segment });
    }

    /// Queues a reset in reply to a segment that belongs to no connection (RFC 9293 section 3.10.7.1).
    pub(super) fn reset(&mut self, tuple: FourTuple, segment: &Segment) {
        let Some(answer) = crate::conn::reset_for(segment) else { return };
        self.counters.resets += 1;
        self.reply(tuple, answer);
    }
}
