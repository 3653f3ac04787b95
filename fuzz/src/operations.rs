//! Fuzz target for sequences of operations on two connections, and for the fate of the packets that they
//! send.
//!
//! The first octets choose whether segments may be forged and both configurations; each further octet chooses
//! an operation. Applications write, read and close; time passes; packets arrive, are lost, duplicated or
//! overtaken. Half of the inputs may also forge segments. At the end, the path delivers every packet until
//! the connections have ended. For every input:
//!
//! - counters agree with recounts (`Connection::check`), transmission ends, and no timer is in the past;
//! - only written data arrives, and only data that arrived is acknowledged (unless it was forged);
//! - both streams arrive completely and both connections end, or one has given up.

use std::collections::VecDeque;

use fullpipe_tcp::buffers::{Buffer, WindowRule};
use fullpipe_tcp::cc::Algorithm;
use fullpipe_tcp::wire::{Flags, IcmpError, SackBlocks, Segment, SeqNum, Timestamps};
use fullpipe_tcp::{Config, Connection, Event, IpVersion, KeepAlive, State, Tunables};
use fullpipe_units::{Bytes, Duration, Instant, Rate};

/// Limit of operations; more of them show nothing new.
const MOST_OPERATIONS: usize = 2_000;
/// Limit of packets in flight per direction; further packets are lost.
const MOST_PACKETS: usize = 400;
/// Limit of steps on the faultless path; no correct run needs as many.
const MOST_STEPS: usize = 200_000;
const DELAY: Duration = Duration::from_millis(10);

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    /// Returns the next octet; zero after the last.
    fn next(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or(0)
    }

    fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.next(), self.next()])
    }
}

#[derive(Default)]
struct Application {
    written: u64,
    read: u64,
    closed: bool,
    finished: bool,
    peer_closed: bool,
    aborted: bool,
}

struct World {
    conns: [Connection; 2],
    applications: [Application; 2],
    /// Packets that each side has sent and that have not arrived.
    paths: [VecDeque<Segment>; 2],
    /// Last segment that each side sent; forged segments are near it.
    last: [Option<Segment>; 2],
    now: Instant,
    forged: bool,
}

/// Runs the operations in `data`.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let may_forge = input.next() & 1 == 1;
    let configs = [config(&mut input), config(&mut input)];
    let [client, server] = configs;
    let mut world = World {
        conns: [Connection::client(client), Connection::server(server)],
        applications: Default::default(),
        paths: Default::default(),
        last: [None, None],
        now: Instant::ZERO,
        forged: false,
    };
    world.conns[0].open();
    world.settle();
    let mut operations = 0;
    while !input.0.is_empty() && operations < MOST_OPERATIONS {
        world.operate(&mut input, may_forge);
        world.settle();
        operations += 1;
    }
    world.finish();
}

fn config(input: &mut Input<'_>) -> Config {
    let (a, b, seed) = (input.next(), input.next(), input.next());
    let buffer = |bits: u8| match bits & 3 {
        0 => Buffer::Fixed(Bytes::new(4_608)),
        1 => Buffer::Fixed(Bytes::new(20_000)),
        2 => Buffer::Auto { max: Bytes::new(300_000) },
        _ => Buffer::Auto { max: Bytes::from_mib(6) },
    };
    Config {
        mtu: [1500, 576, 9000, 128][usize::from(a & 3)],
        cc: Algorithm::ALL[usize::from(a >> 2) % Algorithm::ALL.len()],
        sndbuf: buffer(a >> 6),
        rcvbuf: buffer(b),
        window_rule: if b & 4 == 0 { WindowRule::ScalingRatio(160) } else { WindowRule::AdvWinScale(1) },
        window_clamp: (b & 24 == 24).then_some(Bytes::new(200 + 100 * u64::from(seed))),
        fair_queue: b & 32 != 0,
        max_pacing_rate: (b & 192 == 192).then_some(Rate::from_bps(100_000 + 100_000 * u64::from(seed))),
        ecn: a & 32 != 0,
        sack: seed & 7 != 7,
        tunables: if seed & 8 == 0 { Tunables::LINUX } else { Tunables::RFC },
        mtu_probing: seed & 16 != 0,
        nodelay: seed & 32 != 0,
        ip: if seed & 64 == 0 { IpVersion::V4 } else { IpVersion::V6 },
        keep_alive: (seed & 128 != 0).then(KeepAlive::default),
        user_timeout: (seed & 0x31 == 0x31).then_some(Duration::from_secs(20)),
        seed: seed.into(),
        ..Config::default()
    }
}

impl World {
    fn operate(&mut self, input: &mut Input<'_>, may_forge: bool) {
        let operation = input.next();
        let side = usize::from(operation >> 7);
        // Operations that end a connection are rare, so that the input reaches other states too.
        match operation & 127 {
            0x71 => return self.conns[side].detach(self.now),
            0x72 => return self.conns[side].abort(self.now),
            0x73 => return self.complain(side, input),
            _ => {}
        }
        match operation & 15 {
            0 => self.write(side, input.next().into()),
            1 => self.write(side, u64::from(input.next()) * 4_096),
            2 => self.read(side, input.next().into()),
            3 => self.read(side, u64::MAX),
            4 => self.close(side),
            5 => self.pass(Duration::from_millis(input.next().into())),
            6 => self.pass(Duration::from_micros(input.word().into())),
            7 => self.run_to_next_timer(),
            8 => self.arrive(side, usize::MAX),
            9 => self.arrive(side, 1),
            10 => self.arrive(side, input.next().into()),
            11 => drop(self.paths[side].pop_front()),
            12 => self.paths[side].clear(),
            13 => {
                let copy = self.paths[side].front().cloned();
                self.paths[side].extend(copy);
            }
            14 => {
                let at = usize::from(input.next());
                if at < self.paths[side].len() {
                    self.paths[side].rotate_left(at);
                }
            }
            _ if may_forge => self.forge(side, input),
            _ => self.arrive(side, 2),
        }
    }

    /// Reports an ICMP error about the packet that `side` sent last, or about one near it.
    fn complain(&mut self, side: usize, input: &mut Input<'_>) {
        let Some(last) = &self.last[side] else { return };
        let quoted = last.seq.plus(u64::from(input.next()));
        let error = match input.word() {
            0 => IcmpError::Unreachable,
            1 => IcmpError::Refused,
            mtu => IcmpError::TooBig(mtu.into()),
        };
        self.conns[side].on_icmp(self.now, error, quoted);
        self.conns[side].check();
    }

    fn write(&mut self, side: usize, len: u64) {
        let taken = self.conns[side].write(len);
        assert!(taken <= len && (taken == 0 || !self.applications[side].closed));
        self.applications[side].written += taken;
    }

    fn read(&mut self, side: usize, len: u64) {
        let readable = self.conns[side].readable();
        let taken = self.conns[side].read(self.now, len);
        assert_eq!(taken, len.min(readable));
        self.applications[side].read += taken;
    }

    fn close(&mut self, side: usize) {
        self.conns[side].close();
        self.applications[side].closed = true;
    }

    /// Lets time pass, with every timer handled when it is due.
    fn pass(&mut self, span: Duration) {
        let until = self.now + span;
        let mut steps = 0;
        loop {
            let due = self.conns[0].poll_timeout().min(self.conns[1].poll_timeout());
            if due > until {
                break;
            }
            self.now = due.max(self.now);
            self.fire();
            steps += 1;
            assert!(steps < MOST_STEPS, "timers fire for ever");
        }
        self.now = until;
    }

    fn run_to_next_timer(&mut self) {
        let due = self.conns[0].poll_timeout().min(self.conns[1].poll_timeout());
        if !due.is_never() {
            self.now = due.max(self.now);
            self.fire();
        }
    }

    fn fire(&mut self) {
        for conn in &mut self.conns {
            if conn.poll_timeout() <= self.now {
                conn.handle_timeout(self.now);
            }
        }
        self.settle();
    }

    /// Delivers up to `count` packets of `side` to the other.
    fn arrive(&mut self, side: usize, count: usize) {
        for _ in 0..count.min(self.paths[side].len()) {
            let Some(segment) = self.paths[side].pop_front() else { return };
            self.conns[1 - side].handle_segment(self.now, &segment);
            self.conns[1 - side].check();
            self.settle();
        }
    }

    /// Delivers a forged segment, near the last one that `side` sent, to the other.
    fn forge(&mut self, side: usize, input: &mut Input<'_>) {
        let Some(last) = self.last[side].clone() else { return };
        self.forged = true;
        let near = |seq: SeqNum, input: &mut Input<'_>| {
            let distance = i64::from(input.word() as i16);
            let unit = if input.next() & 1 == 0 { 1 } else { 1_448 };
            seq.plus((distance * unit) as u64)
        };
        let mut segment = Segment { seq: near(last.seq, input), ack: near(last.ack, input), ..last };
        segment.flags = Flags::from_bits(input.next());
        segment.len = u32::from(input.word()) % 10_000;
        segment.window = input.word();
        if let Some(timestamps) = segment.timestamps {
            let (value, echo) = (input.next() as i8, input.next() as i8);
            segment.timestamps = Some(Timestamps {
                value: timestamps.value.wrapping_add_signed(value.into()),
                echo: timestamps.echo.wrapping_add_signed(echo.into()),
            });
        }
        segment.sack = SackBlocks::default();
        for _ in 0..input.next() % 5 {
            segment.sack.push(near(segment.ack, input), near(segment.ack, input));
        }
        self.conns[1 - side].handle_segment(self.now, &segment);
        self.conns[1 - side].check();
    }

    /// Sends everything that is ready, and reports the events to the applications.
    fn settle(&mut self) {
        for side in 0..2 {
            let mut count = 0;
            while let Some(mut transmit) = self.conns[side].poll_transmit(self.now) {
                count += 1;
                assert!(count < 10_000, "transmits for ever");
                for piece in transmit.segments(0) {
                    self.send(side, piece.segment());
                }
            }
            self.conns[side].check();
            assert!(
                self.conns[side].poll_timeout() > self.now,
                "a timer is due after everything was handled"
            );
            while let Some(event) = self.conns[side].poll_event() {
                let application = &mut self.applications[side];
                match event {
                    Event::Finished => {
                        assert!(!std::mem::replace(&mut application.finished, true), "finished twice");
                    }
                    Event::PeerClosed => {
                        assert!(
                            !std::mem::replace(&mut application.peer_closed, true),
                            "the peer closed twice"
                        );
                    }
                    Event::Aborted => application.aborted = true,
                    Event::Closed => {
                        assert_eq!(self.conns[side].state(), State::Closed);
                        assert!(!application.aborted, "both over and aborted");
                    }
                    Event::Connected | Event::Readable | Event::Writable | Event::SoftError => {}
                }
            }
        }
        if !self.forged {
            for side in 0..2 {
                let (here, there) = (&self.conns[side], &self.conns[1 - side]);
                assert!(there.received() <= self.applications[side].written, "more than was written");
                assert!(here.acknowledged() <= there.received(), "acknowledged and not received");
            }
        }
    }

    fn send(&mut self, side: usize, piece: Segment) {
        self.last[side] = Some(piece.clone());
        if self.paths[side].len() < MOST_PACKETS {
            self.paths[side].push_back(piece);
        }
    }

    fn done(&self) -> bool {
        self.is_aborted()
            || self.conns.iter().all(|conn| matches!(conn.state(), State::Closed | State::Listen))
    }

    fn is_aborted(&self) -> bool {
        self.applications.iter().any(|application| application.aborted)
    }

    /// Runs both connections to their end: the applications read everything and write no more, and no packet
    /// is lost.
    fn finish(&mut self) {
        self.close(0);
        self.close(1);
        self.read(0, u64::MAX);
        self.read(1, u64::MAX);
        self.settle();
        let mut steps = 0;
        while !self.done() {
            // A forged acknowledgement may leave the two ends in states that never agree.
            if self.forged && steps > 2_000 {
                return;
            }
            if self.paths.iter().all(VecDeque::is_empty) {
                let due = self.conns[0].poll_timeout().min(self.conns[1].poll_timeout());
                assert!(self.forged || !due.is_never(), "stalled: nothing will ever happen");
                self.run_to_next_timer();
            } else {
                // Packets in flight arrive together; packets that they cause arrive one delay later.
                let counts = [self.paths[0].len(), self.paths[1].len()];
                self.pass(DELAY);
                self.arrive(0, counts[0]);
                self.arrive(1, counts[1]);
            }
            self.read(0, u64::MAX);
            self.read(1, u64::MAX);
            self.settle();
            steps += 1;
            assert!(steps < MOST_STEPS, "takes for ever");
        }
        // A client that closed or aborted before the connection was established leaves the server in LISTEN.
        let unopened = self.conns.iter().any(|conn| conn.state() == State::Listen);
        if self.forged || unopened || self.is_aborted() {
            return;
        }
        for side in 0..2 {
            assert_eq!(
                self.applications[1 - side].read,
                self.applications[side].written,
                "a stream is incomplete"
            );
            assert_eq!(self.conns[side].acknowledged(), self.applications[side].written);
        }
    }
}
