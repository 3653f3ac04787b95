//! What leaves: answers without a connection first, then each connection in turn, a transmission at a time.

use super::{ConnId, FourTuple, MOST_REPLIES, Owner, Stack};
use crate::tx::Transmit;
use crate::wire::{Headers, Segment};
use fullpipe_units::Instant;

/// In what packets transmissions leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Each segment is a packet with its checksum: what a wire takes.
    Segments,
    /// A packet has several segments, which somebody else cuts and gives checksums to: a device with segmentation
    /// offload.
    SuperPackets,
}

/// Most payload of a super-packet: with its headers it is shorter than 64 KiB.
const MOST_PAYLOAD: u64 = 65_400;

/// A packet to be sent: headers, and the payload in the two parts in which it lies.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// Headers. In a super-packet's the checksum is left to whoever cuts it.
    pub headers: Headers,
    /// Payload.
    pub payload: [&'a [u8]; 2],
    /// Payload bytes of each segment but the last, if there is more than one.
    pub gso_size: Option<u16>,
}

impl Outgoing<'_> {
    /// Bytes of headers and payload.
    pub fn len(&self) -> usize {
        self.headers.as_bytes().len() + self.payload[0].len() + self.payload[1].len()
    }

    /// Never: there is a header.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A transmission of which the rest is still to be sent.
#[derive(Clone, Debug)]
pub(super) struct Cutting {
    id: ConnId,
    transmit: Transmit,
    /// Of its first byte of payload.
    offset: u64,
}

/// An answer without a connection.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    tuple: FourTuple,
    segment: Segment,
}

impl Stack {
    /// The next packet, or `None` when nothing may be sent now.
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
            let slot = self.ready.pop_front()?;
            let Some(entry) = self.slots[slot as usize].1.as_mut() else { continue };
            if let Some(transmit) = entry.connection.poll_transmit(now) {
                self.ready.push_back(slot);
                let offset = entry.connection.offset_of(transmit.segment()).unwrap_or(0);
                return Some(Cutting { id: entry.id, transmit, offset });
            }
            entry.ready = false;
            if entry.over && entry.owner == Owner::Nobody {
                self.remove(slot);
            } else {
                self.arm(slot);
            }
        }
    }

    /// Cuts the next packet off the transmission in hand.
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

    /// Answers what belongs to no connection (RFC 9293 section 3.10.7.1).
    pub(super) fn reset(&mut self, tuple: FourTuple, segment: &Segment) {
        let Some(answer) = crate::conn::reset_for(segment) else { return };
        self.counters.resets += 1;
        self.reply(tuple, answer);
    }
}
