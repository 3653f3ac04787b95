//! One connection: its two directions, its handshake, and on which side of the path it was captured.

use std::net::SocketAddr;

use fullpipe_tcp::wire::{Flags, SeqNum, SynOptions};
use fullpipe_units::{Bytes, Duration, Instant};
use serde::Serialize;

use super::course::Course;
use super::half::{Counts, Half, Sent};

/// Payload of a full segment while none is known: Ethernet's MTU with timestamps.
const USUAL_MSS: u64 = 1_448;
/// Octets that timestamps take in each header.
const TIMESTAMPS: u64 = 12;
/// Of the round trip, what lies on the near side of the tap at most.
const NEAR: u64 = 8;

/// Where a capture was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// On the host that sent the data, or close to it.
    Sender,
    /// On the host that received it, or close to it.
    Receiver,
    /// In between.
    Between,
    /// Nothing tells.
    Unknown,
}

/// The parts of one packet that matter here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) at: Instant,
    /// Which end sent it: 0 or 1.
    pub(super) from: usize,
    pub(super) seq: SeqNum,
    pub(super) ack: SeqNum,
    pub(super) len: u64,
    pub(super) window: u16,
    pub(super) flags: Flags,
    pub(super) timestamps: Option<(u32, u32)>,
    pub(super) syn: Option<SynOptions>,
}

/// What one end said at the handshake, and how long it takes to answer.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    syn: Option<SynOptions>,
    syn_at: Option<Instant>,
    /// The last timestamp of the other end whose echo is awaited here, and when it passed.
    awaits_echo: Option<(u32, Instant)>,
    last_timestamp: Option<u32>,
    /// Least time from the tap to this end and back.
    least_loop: Option<Duration>,
}

impl End {
    fn took(&mut self, time: Duration) {
        self.least_loop = Some(self.least_loop.map_or(time, |least| least.min(time)));
    }
}

/// A connection in the making.
#[derive(Clone, Debug)]
pub(super) struct Tracked {
    ends: [End; 2],
    /// Data of end 0, and of end 1.
    halves: [Half; 2],
    courses: [Course; 2],
    timestamps: bool,
    handshake_done: bool,
}

impl Tracked {
    pub(super) fn new(begin: Instant) -> Self {
        Self {
            ends: Default::default(),
            halves: Default::default(),
            courses: [Course::new(begin), Course::new(begin)],
            timestamps: false,
            handshake_done: false,
        }
    }

    pub(super) fn see(&mut self, seen: &Seen) {
        let (from, to) = (seen.from, 1 - seen.from);
        self.measure_loops(seen);
        if let Some(syn) = seen.syn {
            self.ends[from].syn = Some(syn);
            self.ends[from].syn_at.get_or_insert(seen.at);
            self.halves[from].on_syn(seen.seq);
        }
        let mss = self.mss();
        let rtt = self.least_rtt();
        if seen.flags.has(Flags::ACK) && !seen.flags.has(Flags::RST) {
            let scale = if seen.syn.is_some() { 0 } else { self.window_scale(from) };
            let window = u64::from(seen.window) << scale;
            let known = self.ends.iter().all(|end| end.syn.is_some());
            let bare = seen.len == 0 && !seen.flags.has(Flags::FIN) && seen.syn.is_none();
            let acked = self.halves[to].on_ack(seen.at, seen.ack, window, bare);
            let course = &mut self.courses[to];
            let span = course.at(seen.at);
            span.acked += acked.bytes;
            // Without the handshake nobody knows what it is to be multiplied by.
            span.window = known.then_some(window);
            if let Some(rtt) = acked.rtt {
                course.rtt_sample(seen.at, rtt);
                self.ends[from].took(rtt);
            }
        }
        if seen.len > 0 {
            let again = self.halves[from].counts.retransmits;
            let sent = self.halves[from].on_data(seen.at, seen.seq, seen.len, mss, rtt);
            self.halves[from].look_at_window(mss);
            let span = self.courses[from].at(seen.at);
            span.flight_size = span.flight_size.max(self.halves[from].flight_size());
            if sent == Some(Sent::Again) {
                span.retransmits += self.halves[from].counts.retransmits - again;
            }
        }
    }

    /// Times from the tap to an end and back: by the handshake, by timestamps, by data and its ACK.
    fn measure_loops(&mut self, seen: &Seen) {
        let (from, to) = (seen.from, 1 - seen.from);
        if !self.handshake_done && seen.flags.has(Flags::ACK) {
            if let Some(asked) = self.ends[to].syn_at {
                // The answer to a SYN, or to a SYN-ACK. A SYN that was sent twice tells nothing.
                self.ends[from].took(seen.at.saturating_since(asked));
            }
            self.handshake_done = seen.syn.is_none();
        }
        let Some((value, echo)) = seen.timestamps else { return };
        self.timestamps = true;
        if let Some((_, since)) = self.ends[from].awaits_echo.take_if(|(value, _)| *value == echo) {
            self.ends[from].took(seen.at.saturating_since(since));
        }
        // The first packet with a new timestamp is the one that is echoed.
        if self.ends[from].last_timestamp != Some(value) {
            self.ends[from].last_timestamp = Some(value);
            self.ends[to].awaits_echo = Some((value, seen.at));
        }
    }

    /// Both ends have to offer scaling, and in a SYN (RFC 7323 section 2.2); without the handshake nothing is known.
    fn window_scale(&self, end: usize) -> u8 {
        let scale = |end: usize| self.ends[end].syn.and_then(|syn| syn.window_scale);
        scale(1 - end).and(scale(end)).unwrap_or(0).min(14)
    }

    /// Payload of a full segment.
    fn mss(&self) -> u64 {
        let told = self
            .ends
            .iter()
            .filter_map(|end| end.syn)
            .map(|syn| u64::from(syn.mss))
            .filter(|&mss| mss > 0)
            .min();
        match told {
            Some(mss) => mss.saturating_sub(if self.timestamps { TIMESTAMPS } else { 0 }).max(1),
            None => USUAL_MSS,
        }
    }

    fn least_rtt(&self) -> Option<Duration> {
        let [near, far] = self.ends.map(|end| end.least_loop);
        Some(near? + far?)
    }

    /// The end that sent more.
    pub(super) fn sender(&self) -> usize {
        usize::from(self.halves[1].counts.data_bytes > self.halves[0].counts.data_bytes)
    }

    pub(super) fn course(&self, end: usize) -> &Course {
        &self.courses[end]
    }

    /// What is known once all was seen, of the data that `sender` sent.
    pub(super) fn summary(&self, ends: [SocketAddr; 2], sender: usize) -> Connection {
        let near = self.ends[sender].least_loop;
        let far = self.ends[1 - sender].least_loop;
        let side = match (near, far) {
            (Some(near), Some(far)) if near <= far / NEAR => Side::Sender,
            (Some(near), Some(far)) if far <= near / NEAR => Side::Receiver,
            (Some(_), Some(_)) => Side::Between,
            _ => Side::Unknown,
        };
        let half = &self.halves[sender];
        let handshake = self.ends.iter().all(|end| end.syn.is_some());
        Connection {
            from: ends[sender],
            to: ends[1 - sender],
            side,
            counts: half.counts,
            opposite_bytes: Bytes::new(self.halves[1 - sender].counts.data_bytes),
            handshake,
            scaled: self.window_scale(0) > 0 || self.window_scale(1) > 0,
            mss: Bytes::new(self.mss()),
            super_segments: half.largest() > self.mss(),
            least_rtt: self.least_rtt().or(half.least_loop),
            beyond: near.unwrap_or(Duration::ZERO),
            length: self.courses[sender].length(),
            most_in_flight: self.courses[sender].most_in_flight(),
            last_window: half.window().filter(|_| handshake),
        }
    }
}

/// A connection of a capture, seen as the transfer of the end that sent more.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Connection {
    /// The socket that sent the data.
    pub from: SocketAddr,
    /// The socket that received it.
    pub to: SocketAddr,
    /// Where it was captured.
    pub side: Side,
    /// What its segments were.
    pub counts: Counts,
    /// Payload of the other direction.
    #[serde(rename = "opposite_bytes", serialize_with = "bytes")]
    pub opposite_bytes: Bytes,
    /// Both SYNs were captured.
    pub handshake: bool,
    /// Window scaling was agreed.
    pub scaled: bool,
    /// Payload of a full segment.
    #[serde(rename = "mss_bytes", serialize_with = "bytes")]
    pub mss: Bytes,
    /// Some packets hold several segments, as they do on the host that sends or merges them.
    pub super_segments: bool,
    /// Least round trip.
    #[serde(rename = "least_rtt_ms", serialize_with = "millis")]
    pub least_rtt: Option<Duration>,
    /// Of it, what lies on the sender's side of the tap.
    #[serde(skip)]
    pub beyond: Duration,
    /// From its first packet to the last ACK that was new.
    #[serde(rename = "length_s", serialize_with = "seconds")]
    pub length: Duration,
    /// Most octets in flight at once.
    #[serde(rename = "most_in_flight_bytes", serialize_with = "bytes")]
    pub most_in_flight: Bytes,
    /// The window that the receiver offered last.
    #[serde(rename = "last_window_bytes", serialize_with = "some_bytes")]
    pub last_window: Option<Bytes>,
}

fn millis<S: serde::Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(Duration::as_millis_f64).serialize(serializer)
}

fn bytes<S: serde::Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(bytes.get())
}

fn some_bytes<S: serde::Serializer>(bytes: &Option<Bytes>, serializer: S) -> Result<S::Ok, S::Error> {
    bytes.map(Bytes::get).serialize(serializer)
}

fn seconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}
