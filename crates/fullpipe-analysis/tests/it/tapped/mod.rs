//! Captures from taps at both hosts of a simulated path, as files like those of tcpdump.

use fullpipe_analysis::Measurement;
use fullpipe_analysis::input::capture;
use fullpipe_analysis::measurement::packets::Packets;
use fullpipe_lab::capture::{FIRST_PORT, LISTEN_PORT, RECEIVER, SENDER, Tap, Verdict};
use fullpipe_tcp::wire::{Headers, Segment};
use fullpipe_units::Instant;
use std::net::SocketAddrV4;

/// Length of the pcap file header in bytes; the next constant is the length of the header of each packet.
const HEADER: usize = 24;
const RECORD: usize = 16;

/// Returns the packets of a capture.
pub(crate) fn packets(capture: &Measurement) -> &Packets {
    capture.packets().expect("a capture has packets")
}

/// Capture file under construction, in the format of tcpdump -s 96 on a TUN device.
#[derive(Clone)]
pub(crate) struct File(pub(crate) Vec<u8>);

impl Default for File {
    fn default() -> Self {
        let mut header = vec![0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0];
        header.extend([0; 8]);
        header.extend([96, 0, 0, 0, 101, 0, 0, 0]);
        Self(header)
    }
}

impl File {
    fn packet(&mut self, at: Instant, flow: u32, segment: &Segment, of_sender: bool) {
        let near = SocketAddrV4::new(SENDER, FIRST_PORT + flow as u16);
        let far = SocketAddrV4::new(RECEIVER, LISTEN_PORT);
        let (from, to) = if of_sender { (near, far) } else { (far, near) };
        let headers = Headers::of(segment, from, to);
        let bytes = headers.as_bytes();
        let nanos = at.as_nanos();
        let len = segment.header_len() + segment.len;
        for number in
            [(nanos / 1_000_000_000) as u32, (nanos % 1_000_000_000) as u32, bytes.len() as u32, len]
        {
            self.0.extend(number.to_le_bytes());
        }
        self.0.extend(bytes);
    }

    /// Returns the measurement read from the file.
    pub(crate) fn read(&self) -> Measurement {
        capture::read(&self.0[..], None).expect("a capture")
    }

    /// Returns the file without the packets for which `misses` is true; its arguments are the packet's
    /// number, its time, and whether the sender sent it.
    pub(crate) fn without(&self, mut misses: impl FnMut(u64, Instant, bool) -> bool) -> Self {
        let (header, mut rest) = self.0.split_at(HEADER);
        let mut kept = Self(header.to_vec());
        let mut number = 0;
        while !rest.is_empty() {
            let field = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().expect("four octets"));
            let at = Instant::from_nanos(u64::from(field(0)) * 1_000_000_000 + u64::from(field(4)));
            let (record, after) = rest.split_at(RECORD + field(8) as usize);
            // IPv4 source address.
            let of_sender = record[RECORD + 12..RECORD + 16] == SENDER.octets();
            if !misses(number, at, of_sender) {
                kept.0.extend(record);
            }
            (rest, number) = (after, number + 1);
        }
        kept
    }
}

/// Captures made by tcpdump on both hosts.
#[derive(Default)]
pub(crate) struct BothEnds {
    pub(crate) sender: File,
    pub(crate) receiver: File,
}

impl Tap for BothEnds {
    fn leaves(&mut self, at: Instant, flow: u32, segment: &Segment, _: Verdict) {
        self.sender.packet(at, flow, segment, true);
    }

    fn arrives(&mut self, at: Instant, flow: u32, segment: &Segment) {
        self.sender.packet(at, flow, segment, false);
    }

    fn reaches(&mut self, at: Instant, flow: u32, segment: &Segment) {
        self.receiver.packet(at, flow, segment, true);
    }

    fn answers(&mut self, at: Instant, flow: u32, segment: &Segment, _: Verdict) {
        self.receiver.packet(at, flow, segment, false);
    }
}
