//! Both directions of the path between the devices of a guest, in virtual time.
//!
//! ```text
//!   vec0 of the sending host ──frame──► forward path ──► vec1 of the receiving host
//!                     vec0 ◄── backward path ◄──frame── vec1
//! ```
//!
//! Each pair of hosts has two devices, with an even number at the sending host and the next number at the receiving
//! host. The devices of all pairs share the path; a frame that one device of a pair has sent leaves the path at the
//! other device of the pair.
//!
//! The simulator and the emulator use the same paths, with the same flow numbers and random draws, so a packet
//! with the same number is lost in all three.

use fullpipe_lab::capture::FIRST_PORT;
use fullpipe_lab::pair::{PacketLog, PacketRecord};
use fullpipe_lab::scenario::Scenario;
use fullpipe_lab::sim::direction;
use fullpipe_lab::trace::PathState;
use fullpipe_path::{Note, PacketInfo, Path, Verdict};
use fullpipe_units::{Duration, Instant};

use super::capture::CaptureWriter;
use super::exchange::PathReport;
use crate::arena::{Arena, Slot};
use crate::link::{FlowNumbers, PathSample};
use crate::packet::{parse, set_ecn};

/// Length of an Ethernet header in bytes.
pub(super) const ETHERNET: usize = 14;
/// Maximum length of a frame in bytes.
pub(super) const MOST_FRAME: usize = ETHERNET + 65_535;

/// The path between the devices.
pub(super) struct VirtualLink {
    /// Data direction, from devices with even numbers, and ACK direction.
    ways: [Way; 2],
    flows: FlowNumbers,
    flow_count: u32,
    sample_every: Duration,
    next_sample: Instant,
    end: Instant,
    samples: Vec<PathSample>,
    log: Option<PacketLog>,
    capture: Option<CaptureWriter>,
}

/// A frame on the path.
#[derive(Clone, Copy, Debug)]
struct Frame {
    slot: Slot,
    /// Number of the pair of hosts between which the frame travels.
    pair: usize,
}

struct Way {
    path: Path<Frame>,
    arena: Arena,
}

impl VirtualLink {
    pub(super) fn new(scenario: &Scenario, logged: bool) -> Self {
        let way = |spec, number| {
            let mut path = direction(spec, &scenario.flows, scenario.seed, number);
            path.keep_notes();
            Way { path, arena: Arena::default() }
        };
        Self {
            ways: [way(&scenario.path.forward, 0), way(&scenario.path.backward, 1)],
            flows: FlowNumbers::ByPort { first: FIRST_PORT },
            flow_count: scenario.flows.len() as u32,
            sample_every: scenario.sample_every,
            next_sample: Instant::ZERO + scenario.sample_every.min(scenario.duration),
            end: Instant::ZERO + scenario.duration,
            samples: Vec::new(),
            log: logged.then(PacketLog::default),
            capture: None,
        }
    }

    /// Writes all packets at the sending host to `capture`.
    pub(super) fn capture(&mut self, capture: CaptureWriter) {
        self.capture = Some(capture);
    }

    /// Passes a frame from device `from` to the path. Everything except IPv4 is discarded.
    pub(super) fn push(&mut self, now: Instant, from: usize, frame: &[u8]) {
        let Some(packet) = ipv4(frame) else { return };
        let parsed = parse(packet);
        let flow = self.flows.number(&parsed.flow);
        let info = PacketInfo {
            len: packet.len() as u32,
            flow,
            kind: parsed.kind,
            continues: false,
            ecn: parsed.ecn,
        };
        let (pair, side) = (from / 2, from % 2);
        let way = &mut self.ways[side];
        way.arena.room(frame.len())[..frame.len()].copy_from_slice(frame);
        let slot = way.arena.keep(frame.len(), 1);
        let verdict = way.path.push(now, info, Frame { slot, pair });
        if verdict != Verdict::Accepted {
            way.arena.release(slot);
        }
        way.take_notes();
        if let Some(capture) = self.capture.as_mut().filter(|_| side == 0) {
            capture.add(now, true, packet, verdict);
        }
        if let Some(log) = &mut self.log
            && flow < self.flow_count
        {
            record(log, now, side, flow, packet, (parsed.ip_header, parsed.headers), verdict);
        }
    }

    /// Returns the time at which the next packet leaves the path, or at which the next sample is due.
    pub(super) fn next_event(&self) -> Instant {
        let [forward, backward] = &self.ways;
        forward.path.next_event().min(backward.path.next_event()).min(self.next_sample)
    }

    /// Copies to `to` the next frame that has left the path by `now`. Returns the number of the receiving
    /// device and the length of the frame. Packets of the data direction come first.
    pub(super) fn pop(&mut self, now: Instant, to: &mut [u8; MOST_FRAME]) -> Option<(usize, usize)> {
        self.sample(now);
        let (device, len) = (0..2).find_map(|side| {
            let (pair, len) = self.ways[side].pop(now, to)?;
            Some((2 * pair + 1 - side, len))
        })?;
        if let Some(capture) = self.capture.as_mut().filter(|_| device % 2 == 0) {
            capture.add(now, false, &to[ETHERNET..len], Verdict::Accepted);
        }
        Some((device, len))
    }

    /// Records the state of the data direction for every sampling time up to `now`. The last sample is taken at
    /// the end of the run, even if the end is not a sampling time.
    fn sample(&mut self, now: Instant) {
        while self.next_sample <= now {
            let path = &mut self.ways[0].path;
            let states =
                (0..self.flow_count).map(|flow| PathState::of(path, self.next_sample, flow)).collect();
            self.samples.push(PathSample { states, counters: path.counters() });
            self.next_sample = match self.next_sample {
                at if at >= self.end => Instant::FAR_FUTURE,
                at => (at + self.sample_every).min(self.end),
            };
        }
    }

    /// Returns the report on the path.
    pub(super) fn report(&mut self, now: Instant) -> PathReport {
        self.sample(now);
        if let Some(capture) = self.capture.take() {
            capture.finish();
        }
        let [forward, backward] = self.ways.each_ref().map(|way| way.path.counters());
        let samples = std::mem::take(&mut self.samples);
        // The outcome covers the duration of the run, and the last sample contains the counters at
        // the end of this time.
        let forward = samples.last().map_or(forward, |sample| sample.counters);
        let packets = self.log.take().map(PacketLog::into_records).unwrap_or_default();
        PathReport { samples, forward, backward, packets }
    }
}

impl Way {
    /// Copies to `to` the next frame that has left the path by `now`. Returns the number of the frame's pair of hosts
    /// and the length of the frame.
    fn pop(&mut self, now: Instant, to: &mut [u8; MOST_FRAME]) -> Option<(usize, usize)> {
        let exit = self.path.pop(now);
        self.take_notes();
        let exit = exit?;
        let Frame { slot, pair } = exit.payload;
        let frame = self.arena.bytes(slot);
        let len = frame.len();
        to[..len].copy_from_slice(frame);
        self.arena.release(slot);
        let packet = &mut to[ETHERNET..len];
        if parse(packet).ecn != exit.packet.ecn {
            set_ecn(packet, exit.packet.ecn);
        }
        Some((pair, len))
    }

    /// Updates the references to packets that the path has duplicated or dropped after their arrival.
    fn take_notes(&mut self) {
        while let Some(note) = self.path.next_note() {
            match note {
                Note::Duplicated { payload, .. } => self.arena.retain(payload.slot),
                Note::Dropped { payload, .. } => self.arena.release(payload.slot),
            }
        }
    }
}

/// Adds a TCP packet to the log. `side` is 0 for a packet of a sending host; `ip_header` and `headers` are the
/// lengths of its IP header and of all headers.
fn record(
    log: &mut PacketLog,
    at: Instant,
    side: usize,
    flow: u32,
    packet: &[u8],
    (ip_header, headers): (usize, usize),
    verdict: Verdict,
) {
    let Some(tcp) = packet.get(ip_header..).filter(|tcp| tcp.len() >= 20) else { return };
    let be32 = |at: usize| u32::from_be_bytes([tcp[at], tcp[at + 1], tcp[at + 2], tcp[at + 3]]);
    log.add(PacketRecord {
        at,
        outbound: side == 0,
        flow,
        seq: be32(4),
        ack: be32(8),
        len: (packet.len() - headers) as u32,
        flags: tcp[13],
        verdict,
    });
}

/// Returns the IPv4 packet in an Ethernet frame, without padding.
pub(super) fn ipv4(frame: &[u8]) -> Option<&[u8]> {
    const IPV4: [u8; 2] = [8, 0];
    let packet = frame.get(ETHERNET..).filter(|packet| packet.len() >= 20 && frame[12..14] == IPV4)?;
    let len = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
    packet.get(..len)
}
