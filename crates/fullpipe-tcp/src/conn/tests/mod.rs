//! Tests of connections in virtual time, driven by a script or by another connection.
//!
//! Each test is named after the check in `docs/evidence/conformance.md` that it covers, and reads like a
//! segment diagram:
//!
//! ```text
//!   script.write(5 * MSS);
//!   script.ack(100, 0, &[(1448, 2896)]);      at 100 ms the peer acknowledges 0 and SACKs 1448..2896
//!   script.run(130);                          the clock advances to 130 ms
//!   script.sent(&["125 ms data 0..1448"]);    the segments sent meanwhile, with their times
//! ```
//!
//! Offsets count from the first octet after the SYN, and times from the end of the handshake.

mod ack_delay;
mod close;
mod copies;
#[path = "../../../tests/it/driver.rs"]
mod driver;
mod ecn;
mod flow;
mod forged;
mod handshake;
mod limits;
mod loss;
mod pair;
mod paths;
mod prediction;
mod rate;
mod receiver;
mod spurious;
mod timers;
mod without_sack;

use fullpipe_units::{Bytes, Duration, Ecn, Instant};

use super::{Config, Connection, Event, State};
use crate::Tunables;
use crate::buffers::{Buffer, WindowRule};
use crate::cc::Algorithm;
use crate::wire::{Flags, SackBlocks, Segment, SeqNum, SynOptions, Timestamps};

/// Payload length of a full-sized segment with timestamps at an MTU of 1500, in bytes.
const MSS: u64 = 1448;
/// Time zero of a script: the end of the handshake.
const START: Instant = Instant::from_nanos(1_000_000_000);
/// RTT of the path in a script, in ms.
const RTT: u64 = 100;
/// Window scale shift that the simulated peer sends in its SYN-ACK, in force for the whole connection.
const SHIFT: u8 = 10;
const PEER_ISS: SeqNum = SeqNum(7_000);

/// Returns the value of the TCP timestamp clock at `now`.
fn clock(now: Instant) -> u32 {
    Timestamps::clock(now)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn config(cc: Algorithm) -> Config {
    Config {
        cc,
        sndbuf: Buffer::Fixed(Bytes::from_mib(256)),
        rcvbuf: Buffer::Fixed(Bytes::from_mib(256)),
        window_rule: WindowRule::ScalingRatio(160),
        ..Config::default()
    }
}

/// A connection under test whose peer is simulated by the test script.
struct Script {
    conn: Connection,
    now: Instant,
    lines: Vec<String>,
    segments: Vec<(u64, Segment)>,
    /// Number of octets that the simulated peer has sent.
    peer_sent: u64,
    /// Window field of the simulated peer's segments, in units of 2^[`SHIFT`] bytes.
    window: u16,
}

impl Script {
    fn new(conn: Connection) -> Self {
        let now = Instant::ZERO + ms(1000 - RTT);
        Self { conn, now, lines: Vec::new(), segments: Vec::new(), peer_sent: 0, window: 65_535 }
    }

    /// Creates a client whose handshake ends at time zero of the script.
    fn client(config: Config) -> Self {
        let mut script = Self::new(Connection::client(config));
        script.conn.open();
        script.flush();
        script.now = START;
        let answer = script.syn_ack(Some(SHIFT), Some(1460), true, true);
        script.inject(&answer);
        assert_eq!(script.conn.poll_event(), Some(Event::Connected));
        script.lines.clear();
        script.segments.clear();
        script
    }

    /// Creates a client with controller `cc` whose congestion window has grown in slow start from ten to
    /// `window` segments. The clock is then at the time of the last ACK.
    fn warm(cc: Algorithm, window: u64) -> Self {
        Self::warm_with(config(cc), window)
    }

    /// Like [`Script::warm`], with any configuration.
    fn warm_with(config: Config, window: u64) -> Self {
        let mut script = Self::client(config);
        let (mut at, mut acked, mut flight) = (0, 0, 10);
        while flight < window {
            script.write(flight * MSS);
            at += RTT;
            let step = flight.min(window - flight);
            // The simulated peer sends one ACK per segment.
            for i in 1..=step {
                script.ack(at, acked + i * MSS, &[]);
            }
            assert_eq!(step, flight, "the window doubles");
            acked += flight * MSS;
            flight *= 2;
        }
        script.clear();
        script
    }

    fn syn_ack(&self, scale: Option<u8>, mss: Option<u16>, sack: bool, timestamps: bool) -> Segment {
        Segment {
            seq: PEER_ISS,
            ack: self.conn.sender.iss.plus(1),
            len: 0,
            window: 65_160,
            flags: Flags::SYN.with(Flags::ACK),
            timestamps: timestamps
                .then(|| Timestamps { value: clock(self.now), echo: clock(self.now) - RTT as u32 }),
            syn: Some(SynOptions { mss: mss.unwrap_or(0), window_scale: scale, sack_permitted: sack }),
            sack: SackBlocks::default(),
            ecn: Ecn::NotEct,
        }
    }

    /// Returns an ordinary segment of the peer: `len` octets at offset `seq` of its stream, acknowledging
    /// `ack`.
    ///
    /// A data segment echoes the timestamp of a segment sent one round trip ago. A pure ACK echoes the
    /// timestamp of a segment that has just arrived.
    fn segment(&self, seq: u64, len: u32, ack: u64) -> Segment {
        let age = if len > 0 { RTT as u32 } else { 0 };
        Segment {
            seq: PEER_ISS.plus(1).plus(seq),
            ack: self.conn.sender.iss.plus(1).plus(ack),
            len,
            window: self.window,
            flags: Flags::ACK,
            timestamps: self
                .conn
                .sender
                .agreed
                .timestamps
                .then(|| Timestamps { value: clock(self.now), echo: clock(self.now) - age }),
            syn: None,
            sack: SackBlocks::default(),
            ecn: Ecn::NotEct,
        }
    }

    fn inject(&mut self, segment: &Segment) {
        self.conn.handle_segment(self.now, segment);
        self.flush();
    }

    /// Injects an ACK of all data below `ack` at time `at` in ms, with SACK blocks in the order newest first.
    fn ack(&mut self, at: u64, ack: u64, sack: &[(u64, u64)]) {
        self.run(at);
        let mut segment = self.segment(self.peer_sent, 0, ack);
        for &(start, end) in sack {
            let origin = self.conn.sender.iss.plus(1);
            assert!(segment.sack.push(origin.plus(start), origin.plus(end)));
        }
        self.inject(&segment);
    }

    /// Injects `len` octets of the peer's stream, starting at offset `seq`, at time `at` in ms.
    fn data(&mut self, at: u64, seq: u64, len: u64) {
        self.run(at);
        let segment = self.segment(seq, len as u32, self.conn.sender.snd_una);
        self.inject(&segment);
    }

    fn write(&mut self, len: u64) {
        assert_eq!(self.conn.write(len), len, "the buffer takes it all");
        self.flush();
    }

    fn elapsed(&self) -> Duration {
        self.now.saturating_since(START)
    }

    /// Advances the clock to time `until` in ms and runs the timers.
    fn run(&mut self, until: u64) {
        self.run_to(START + ms(until));
    }

    fn run_to(&mut self, until: Instant) {
        assert!(until >= self.now, "the clock runs forwards");
        let mut steps = 0;
        while driver::run_timer(&mut self.conn, &mut self.now, until) {
            self.flush();
            steps += 1;
            assert!(steps < 100_000, "timers fire for ever at {}", self.elapsed());
        }
    }

    fn flush(&mut self) {
        for segment in driver::segments(&mut self.conn, self.now) {
            let at = self.elapsed();
            self.lines.push(format!("{} {}", at_text(at), describe(&self.conn, &segment)));
            self.segments.push((at.as_millis(), segment));
        }
    }

    fn clear(&mut self) {
        self.lines.clear();
        self.segments.clear();
    }

    /// Asserts that exactly the segments described by these lines were sent since the last check.
    #[track_caller]
    fn sent(&mut self, expected: &[&str]) {
        let lines = std::mem::take(&mut self.lines);
        self.segments.clear();
        assert_eq!(lines, expected);
    }

    /// Returns the number of data segments sent since the last check.
    fn data_segments(&mut self) -> u64 {
        let count = self.segments.iter().filter(|(_, segment)| segment.len > 0).count();
        self.clear();
        count as u64
    }

    /// Returns the congestion window and `ssthresh`, in segments.
    fn windows(&self) -> (u64, u64) {
        (
            self.conn.sender.effective_cwnd() / self.conn.sender.mss,
            self.conn.sender.decision.control.ssthresh / self.conn.sender.mss,
        )
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.conn.poll_event()).collect()
    }
}

fn at_text(at: Duration) -> String {
    let micros = at.as_micros();
    if micros.is_multiple_of(1000) { format!("{} ms", micros / 1000) } else { format!("{micros} us") }
}

/// Returns a description of one segment of `conn`.
fn describe(conn: &Connection, segment: &Segment) -> String {
    let offset = |seq: SeqNum, origin: SeqNum| i64::from(seq.distance_from(origin.plus(1)));
    let at = offset(segment.seq, conn.sender.iss);
    if segment.flags.has(Flags::RST) {
        return format!("rst {at}");
    }
    if segment.flags.has(Flags::SYN) {
        return if segment.flags.has(Flags::ACK) { "syn-ack".into() } else { "syn".into() };
    }
    let fin = segment.flags.has(Flags::FIN);
    if segment.len > 0 {
        let end = at + i64::from(segment.len);
        return format!("data {at}..{end}{}", if fin { " fin" } else { "" });
    }
    if fin {
        return format!("fin {at}");
    }
    if at < conn.sender.snd_nxt() as i64 {
        return format!("window probe {at}");
    }
    let mut text = format!("ack {}", offset(segment.ack, conn.receiver.irs));
    for (start, end) in segment.sack.iter() {
        text += &format!(" sack {}..{}", offset(start, conn.receiver.irs), offset(end, conn.receiver.irs));
    }
    text
}
