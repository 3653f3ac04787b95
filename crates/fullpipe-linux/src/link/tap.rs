//! The sending host's end of the path, as a capture there shows it.
//!
//! What is noted crosses to the thread that writes it over a bounded queue. When that thread cannot keep up the loop waits
//! for it, and the lateness that comes of it is measured as all lateness is: a capture has no gaps.

use std::sync::mpsc::SyncSender;

use fullpipe_lab::capture::{CapturedPacket, SNAPLEN};
use fullpipe_path::Verdict;
use fullpipe_units::Instant;

use crate::packet::{ParsedPacket, Segments, wire_headers};

/// Packets that may wait to be written: about 16 MB, and more than a second of a gigabit.
pub(crate) const WAITING: usize = 100_000;

/// A packet on its way to the capture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketNote {
    at: Instant,
    outbound: bool,
    headers: [u8; SNAPLEN],
    kept: usize,
    len: u32,
    verdict: Verdict,
}

impl PacketNote {
    pub(crate) fn captured(&self) -> CapturedPacket<'_> {
        let Self { at, outbound, len, verdict, .. } = *self;
        CapturedPacket { at, outbound, headers: &self.headers[..self.kept], len, verdict }
    }
}

/// Notes packets of one direction.
#[derive(Clone, Debug)]
pub(crate) struct Tap {
    pub(crate) to: SyncSender<PacketNote>,
    /// The direction leads away from the sending host.
    pub(crate) outbound: bool,
}

impl Tap {
    /// Notes wire segment `index` of the packet that was `read`, its `virtio_net_hdr` included.
    pub(crate) fn note(
        &self,
        at: Instant,
        (virtio, packet): (&[u8], &[u8]),
        parsed: &ParsedPacket,
        segments: &Segments,
        index: u32,
        verdict: Verdict,
    ) {
        let mut headers = [0; SNAPLEN];
        let kept = wire_headers((virtio, packet), parsed, segments, index, &mut headers);
        let len = (parsed.headers + segments.payload(index).1) as u32;
        // Nobody receives any more when the run has failed, which is told elsewhere.
        let _ = self.to.send(PacketNote { at, outbound: self.outbound, headers, kept, len, verdict });
    }
}
