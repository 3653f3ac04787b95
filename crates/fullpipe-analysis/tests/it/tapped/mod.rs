//! Captures from taps at both hosts of a simulated path, as files like those of tcpdump.

use fullpipe_analysis::Measurement;
use fullpipe_analysis::input::capture;
use fullpipe_analysis::measurement::packets::Packets;
use fullpipe_lab::capture::{FIRST_PORT, LISTEN_PORT, RECEIVER, SENDER, Tap, Verdict};
use fullpipe_tcp::wire::{Headers, Segment};
use fullpipe_units::{Duration, Instant};
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
        // Slices are copied at once. Without optimisation, iterators of bytes take most of the time of a capture.
        self.0.extend_from_slice(&((nanos / 1_000_000_000) as u32).to_le_bytes());
        self.0.extend_from_slice(&((nanos % 1_000_000_000) as u32).to_le_bytes());
        self.0.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        self.0.extend_from_slice(&len.to_le_bytes());
        self.0.extend_from_slice(bytes);
    }

    /// Returns the measurement read from the file.
    pub(crate) fn read(&self) -> Measurement {
        capture::read(&self.0[..], None).expect("a capture")
    }

    /// Returns the file without the packets for which `misses` is true; its arguments are the packet's
    /// number, its time, and whether the sender sent it.
    pub(crate) fn without(&self, mut misses: impl FnMut(u64, Instant, bool) -> bool) -> Self {
        let mut kept = Self(self.0[..HEADER].to_vec());
        for (number, (at, record)) in (0..).zip(self.records()) {
            if !misses(number, at, of_sender(record)) {
                kept.0.extend_from_slice(record);
            }
        }
        kept
    }

    /// Returns the records of the file, each with the time of its packet.
    fn records(&self) -> impl Iterator<Item = (Instant, &[u8])> {
        let mut rest = &self.0[HEADER..];
        std::iter::from_fn(move || {
            let field =
                |at: usize| Some(u32::from_le_bytes(rest.get(at..at + 4)?.try_into().expect("four octets")));
            let at = Instant::from_nanos(u64::from(field(0)?) * 1_000_000_000 + u64::from(field(4)?));
            let (record, after) = rest.split_at(RECORD + field(8)? as usize);
            rest = after;
            Some((at, record))
        })
    }

    /// Returns the file with other times for its packets.
    pub(crate) fn at_times(&self, time: impl Fn(Instant) -> Instant) -> Self {
        let mut file = Self(self.0[..HEADER].to_vec());
        self.records().for_each(|(at, record)| file.push(time(at), record));
        file
    }

    /// Returns the file with `times` copies of each packet, spaced by `apart`, as captured on several
    /// devices.
    pub(crate) fn repeated(&self, times: u64, apart: Duration) -> Self {
        let copies = |(at, record)| (0..times).map(move |nth| (at + apart * nth, record));
        let mut records: Vec<(Instant, &[u8])> = self.records().flat_map(copies).collect();
        records.sort_by_key(|(at, _)| *at);
        let mut file = Self(self.0[..HEADER].to_vec());
        records.into_iter().for_each(|(at, record)| file.push(at, record));
        file
    }

    /// Returns the file with an IP identification in each packet. Like Linux, it counts them separately for
    /// each end of each connection. The simulator's packets have none.
    pub(crate) fn identified(&self) -> Self {
        let mut file = Self(self.0[..HEADER].to_vec());
        let mut ids = [65_000u16, 30_000];
        for (at, record) in self.records() {
            let id = &mut ids[usize::from(of_sender(record))];
            *id = id.wrapping_add(1).max(1);
            let mut record = record.to_vec();
            record[RECORD + 4..RECORD + 6].copy_from_slice(&id.to_be_bytes());
            file.push(at, &record);
        }
        file
    }

    fn push(&mut self, at: Instant, record: &[u8]) {
        let nanos = at.as_nanos();
        self.0.extend_from_slice(&((nanos / 1_000_000_000) as u32).to_le_bytes());
        self.0.extend_from_slice(&((nanos % 1_000_000_000) as u32).to_le_bytes());
        self.0.extend_from_slice(&record[8..]);
    }
}

/// Returns whether the sender of the data sent the packet, by its IPv4 source address.
fn of_sender(record: &[u8]) -> bool {
    record[RECORD + 12..RECORD + 16] == SENDER.octets()
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
