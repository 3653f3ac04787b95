//! Capture point at the sending host's end of the path.
//!
//! A bounded queue passes the packets to the thread that writes the capture. If the thread that writes the
//! capture cannot keep up, the loop of the link waits for it. A capture therefore has no gaps, and the
//! waiting time counts as lateness.

use std::sync::mpsc::SyncSender;

use fullpipe_lab::capture::{CapturedPacket, SNAPLEN};
use fullpipe_path::Verdict;
use fullpipe_units::Instant;

use crate::packet::{ParsedPacket, Segments, wire_headers};

/// Capacity of the capture queue, in packets. A full queue takes about 16 MB of memory, because only headers
/// are kept. A full queue holds the full-size packets of more than one second at 1 Gbit/s.
pub(crate) const WAITING: usize = 100_000;

/// A packet in the capture queue.
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

/// Passes the packets of one direction of the link to the capture.
#[derive(Clone, Debug)]
pub(crate) struct Tap {
    pub(crate) to: SyncSender<PacketNote>,
    /// Whether packets in this direction come from the sending host.
    pub(crate) outbound: bool,
}

impl Tap {
    /// Queues wire segment number `index` of a packet for the capture. In the buffer, a `virtio_net_hdr`
    /// precedes the packet.
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
        // The channel is closed only after the run has failed, and that failure is reported elsewhere.
        let _ = self.to.send(PacketNote { at, outbound: self.outbound, headers, kept, len, verdict });
    }
}
