//! Tests that compare two connections over a hostile path with a model of TCP's guarantees: every byte
//! arrives once and in order, the sender stays within both windows, and the connection never stalls.
//!
//! Each seed selects a path (loss, duplication, reordering, jitter, copies that arrive weeks later, damage),
//! buffers, and the times at which both applications act. The applications may pause for weeks. For about
//! half of the seeds, the path carries segments as octets with their payload, and the test checks every byte
//! when the application reads it. A failure reports its seed.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use fullpipe_tcp::buffers::{Buffer, WindowRule};
use fullpipe_tcp::cc::{Algorithm, Launch};
use fullpipe_tcp::wire::{Checksums, Flags, Headers, Packet, Segment};
use fullpipe_tcp::{Config, Connection, Event, State, Tunables};
use fullpipe_units::{Bytes, Duration, Ecn, Instant, Rate, draw};

use crate::driver::{self, InFlight, Transmission};
use crate::settings::{any_launch, any_tunables};

const SEEDS: u64 = 4000;
/// Maximum virtual duration of a run; in the slowest runs, connections back off for minutes.
const LIMIT: Duration = Duration::from_secs(200_000);
/// Maximum virtual duration of a run in which the applications pause.
const LIMIT_WITH_PAUSES: Duration = Duration::from_secs(900 * DAY);
/// Virtual duration of a run with undetected header damage, whose outcome the test cannot predict.
const BLIND: Duration = Duration::from_secs(600);
const DAY: u64 = 86_400;
/// Maximum delay of a late copy of a packet, in seconds. With a 32-bit millisecond clock, a receiver can
/// distinguish old and new timestamps for 24.8 days.
const OLDEST_COPY: u64 = 21 * DAY;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

/// Path and application behaviour selected by a seed.
#[derive(Debug)]
struct Weather {
    seed: u64,
    loss_percent: u64,
    duplicate_percent: u64,
    reorder_percent: u64,
    jitter_us: u64,
    delay_us: u64,
    bytes: u64,
    reply: u64,
    /// Maximum number of bytes per read; `read_every` is the time between two reads.
    read: u64,
    read_every: Duration,
    write: u64,
    /// Encoding of segments as octets; `None` passes segments as values.
    wire: Option<Wire>,
    /// Whether the path clears the ECN bits of every packet (ECN-6).
    bleached: bool,
    /// Percentage of packets of which the path delivers a copy up to three weeks later.
    straggler_percent: u64,
    /// Pause of the writing application after each fifth of its data.
    pause: Duration,
    /// Settings of both connections; `None` selects one of the two predefined sets.
    tunables: Option<Tunables>,
    launch: Option<Launch>,
}

#[derive(Debug)]
struct Wire {
    v6: bool,
    /// Percentage of packets with one wrong bit; `checksums` indicates whether the hosts verify checksums.
    damage_percent: u64,
    checksums: Checksums,
}

impl Weather {
    fn of(seed: u64) -> Self {
        let pick = |what: u64, from: &[u64]| from[(draw(seed, 1, what) % from.len() as u64) as usize];
        Self {
            seed,
            loss_percent: pick(0, &[0, 0, 1, 5, 15, 30]),
            duplicate_percent: pick(1, &[0, 0, 2, 20]),
            reorder_percent: pick(2, &[0, 0, 2, 25]),
            jitter_us: pick(3, &[0, 0, 500, 20_000]),
            delay_us: pick(4, &[10, 1_000, 20_000, 150_000]),
            bytes: pick(5, &[0, 1, 1_448, 10_000, 200_000, 600_000]),
            reply: pick(6, &[0, 0, 5_000, 100_000]),
            read: pick(7, &[u64::MAX, u64::MAX, 100_000, 4_000]),
            read_every: Duration::from_micros(pick(8, &[0, 0, 1_000, 200_000])),
            write: pick(9, &[u64::MAX, u64::MAX, 700, 20_000]),
            wire: (pick(10, &[0, 1]) == 1).then(|| Wire {
                v6: pick(11, &[0, 1]) == 1,
                damage_percent: pick(12, &[0, 1, 10]),
                checksums: if pick(13, &[0, 0, 0, 1]) == 1 { Checksums::Skip } else { Checksums::Verify },
            }),
            bleached: pick(16, &[0, 0, 1]) == 1,
            straggler_percent: pick(14, &[0, 0, 0, 2]),
            pause: Duration::from_secs(pick(15, &[0, 0, 0, 0, 0, 3, 20 * DAY, 30 * DAY, 70 * DAY])),
            tunables: None,
            launch: None,
        }
    }

    /// Returns the path of `seed`, with random settings for both connections.
    fn with_any_settings(seed: u64) -> Self {
        Self { tunables: Some(any_tunables(seed)), launch: any_launch(seed), ..Self::of(seed) }
    }

    /// Returns whether damaged packets remain undetected.
    fn is_blind(&self) -> bool {
        self.wire.as_ref().is_some_and(|wire| wire.damage_percent > 0 && wire.checksums == Checksums::Skip)
    }

    /// Returns the percentage of packets that are lost or damaged.
    fn lost_percent(&self) -> u64 {
        self.loss_percent + self.wire.as_ref().map_or(0, |wire| wire.damage_percent)
    }

    fn limit(&self) -> Duration {
        match (self.is_blind(), self.pause.is_zero()) {
            (true, _) => BLIND,
            (_, true) => LIMIT,
            (_, false) => LIMIT_WITH_PAUSES,
        }
    }

    fn config(&self, side: u64) -> Config {
        let pick = |what: u64, n: u64| draw(self.seed, 2 + side, what) % n;
        let buffer = |what| match pick(what, 4) {
            0 => Buffer::Fixed(Bytes::new(4_608)),
            1 => Buffer::Fixed(Bytes::new(20_000)),
            2 => Buffer::Auto { max: Bytes::new(300_000) },
            _ => Buffer::Auto { max: Bytes::from_mib(6) },
        };
        Config {
            mtu: [1500, 1500, 576, 9000][pick(0, 4) as usize],
            cc: Algorithm::ALL[pick(1, Algorithm::ALL.len() as u64) as usize],
            sndbuf: buffer(2),
            rcvbuf: buffer(3),
            window_rule: if pick(4, 2) == 0 {
                WindowRule::ScalingRatio(160)
            } else {
                WindowRule::AdvWinScale(1)
            },
            window_clamp: (pick(5, 4) == 0).then(|| Bytes::new(1 + pick(6, 30_000))),
            fair_queue: pick(7, 2) == 0,
            max_pacing_rate: (pick(8, 4) == 0).then(|| Rate::from_bps(100_000 + pick(9, 50_000_000))),
            ecn: pick(10, 2) == 0,
            sack: pick(11, 4) != 0,
            tunables: match self.tunables {
                Some(tunables) => tunables,
                None if pick(12, 4) == 0 => Tunables::RFC,
                None => Tunables::LINUX,
            },
            launch: self.launch,
            seed: self.seed,
            ..Config::default()
        }
    }
}

/// Returns the octet at `offset` of the stream that `side` sends.
fn octet(side: Side, offset: u64) -> u8 {
    (draw(side as u64, 5, offset >> 3) >> (offset & 7)) as u8
}

/// Packet in flight, either encoded or as a value.
enum Load {
    Segment(Segment),
    Octets(Vec<u8>),
}

struct Host {
    conn: Connection,
    to_write: u64,
    next_write: Instant,
    /// Number of bytes to write before the next pause.
    chunk: u64,
    read: u64,
    next_read: Instant,
    /// Octets of the peer's stream that have arrived, in any order; empty if segments are passed as values.
    arrived: Vec<Option<u8>>,
    closed: bool,
    finished: bool,
    peer_closed: bool,
    aborted: bool,
    /// Highest octet of the sequence space sent so far; `edge` is the highest right edge that the peer has
    /// advertised.
    sent_to: u64,
    edge: u64,
}

struct World {
    weather: Weather,
    now: Instant,
    hosts: [Host; 2],
    path: InFlight<(Side, Load)>,
    ordinal: u64,
    scale: [Option<u8>; 2],
    isn: [u32; 2],
}

impl World {
    fn new(weather: Weather) -> Self {
        let host = |conn, to_write, expected: u64| Host {
            conn,
            to_write,
            next_write: Instant::ZERO,
            chunk: to_write.div_ceil(5),
            read: 0,
            next_read: Instant::ZERO,
            arrived: vec![None; if weather.wire.is_some() { expected as usize } else { 0 }],
            closed: false,
            finished: false,
            peer_closed: false,
            aborted: false,
            sent_to: 0,
            edge: 0,
        };
        let hosts = [
            host(Connection::client(weather.config(0)), weather.bytes, weather.reply),
            host(Connection::server(weather.config(1)), weather.reply, weather.bytes),
        ];
        let mut world = Self {
            weather,
            now: Instant::ZERO,
            hosts,
            path: InFlight::new(),
            ordinal: 0,
            scale: [None; 2],
            isn: [0; 2],
        };
        world.hosts[0].conn.open();
        world
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.ordinal += 1;
        draw(self.weather.seed, 9, self.ordinal) % 100 < percent
    }

    fn applications(&mut self) {
        for (host, peer) in self.hosts.iter_mut().zip([Side::Server, Side::Client]) {
            while let Some(event) = host.conn.poll_event() {
                match event {
                    Event::Finished => {
                        assert!(!host.finished, "finished twice");
                        host.finished = true;
                    }
                    Event::PeerClosed => {
                        assert!(!host.peer_closed, "closed twice");
                        host.peer_closed = true;
                    }
                    Event::Aborted => host.aborted = true,
                    Event::Connected | Event::Readable | Event::Writable => {}
                    Event::SoftError | Event::Closed => {}
                }
            }
            if host.conn.readable() > 0 && self.now >= host.next_read {
                let taken = host.conn.read(self.now, self.weather.read);
                if self.weather.wire.is_some() && !self.weather.is_blind() {
                    for offset in host.read..host.read + taken {
                        assert_eq!(
                            host.arrived[offset as usize],
                            Some(octet(peer, offset)),
                            "octet {offset}"
                        );
                    }
                }
                host.read += taken;
                host.next_read = self.now + self.weather.read_every;
            }
            if matches!(host.conn.state(), State::Established | State::CloseWait) && !host.closed {
                while host.to_write > 0 && self.now >= host.next_write {
                    let piece = host.to_write.min(self.weather.write);
                    let piece = if self.weather.pause.is_zero() { piece } else { piece.min(host.chunk) };
                    let taken = host.conn.write(piece);
                    host.to_write -= taken;
                    if taken == 0 {
                        break;
                    }
                    host.chunk -= taken.min(host.chunk);
                    if host.chunk == 0 {
                        host.chunk =
                            host.to_write.min(self.weather.bytes.max(self.weather.reply).div_ceil(5)).max(1);
                        host.next_write = self.now + self.weather.pause;
                    }
                }
                if host.to_write == 0 {
                    host.conn.close();
                    host.closed = true;
                }
            }
        }
    }

    fn transmit(&mut self, side: Side) {
        let conn = &mut self.hosts[side as usize].conn;
        for Transmission { whole: segment, pieces, .. } in driver::transmissions(conn, self.now) {
            if segment.flags.has(Flags::SYN) {
                self.isn[side as usize] = segment.seq.0;
                self.scale[side as usize] = segment.syn.and_then(|syn| syn.window_scale);
            } else {
                self.check_new_data(side, &segment);
            }
            for piece in pieces {
                self.send(side, piece);
            }
        }
    }

    /// Checks that new data does not exceed the peer's window (INV-5). The driver checks it against the
    /// congestion window.
    fn check_new_data(&mut self, side: Side, segment: &Segment) {
        let host = &mut self.hosts[side as usize];
        let offset = u64::from(segment.seq.0.wrapping_sub(self.isn[side as usize]).wrapping_sub(1));
        let end = offset + u64::from(segment.len);
        if segment.len == 0 || end <= host.sent_to {
            return;
        }
        assert!(offset <= host.sent_to, "new data leaves a gap");
        let last = offset + segment.seq_len();
        assert!(last <= host.edge, "beyond the peer's window: {last} of {}", host.edge);
        host.sent_to = end;
    }

    fn send(&mut self, side: Side, mut piece: Segment) {
        if self.weather.bleached || !piece.ecn.is_capable() {
            piece.ecn = Ecn::NotEct;
        } else if self.percent(self.weather.loss_percent) {
            piece.ecn = Ecn::Ce;
        }
        if self.percent(self.weather.loss_percent) {
            return;
        }
        let copies = 1 + u64::from(self.percent(self.weather.duplicate_percent));
        for _ in 0..copies {
            let mut delay = self.weather.delay_us;
            if self.percent(self.weather.reorder_percent) {
                delay += delay / 2 + 300;
            }
            self.ordinal += 1;
            delay += draw(self.weather.seed, 10, self.ordinal) % (self.weather.jitter_us + 1);
            self.put(side, &piece, Duration::from_micros(delay));
        }
        if self.percent(self.weather.straggler_percent) {
            let weeks = Duration::from_secs(draw(self.weather.seed, 11, self.ordinal) % OLDEST_COPY);
            self.put(side, &piece, weeks);
        }
    }

    fn put(&mut self, side: Side, segment: &Segment, delay: Duration) {
        let load = match &self.weather.wire {
            Some(wire) => {
                let (v6, damage) = (wire.v6, wire.damage_percent);
                Load::Octets(self.octets(side, segment, v6, damage))
            }
            None => Load::Segment(segment.clone()),
        };
        self.ordinal += 1;
        self.path.put(self.now + delay, (side, load));
    }

    /// Returns the packet of `segment` as octets, possibly with one wrong bit.
    fn octets(&mut self, side: Side, segment: &Segment, v6: bool, damage: u64) -> Vec<u8> {
        let (from, to) = sockets(side, v6);
        let headers = match (from, to) {
            (SocketAddr::V4(from), SocketAddr::V4(to)) => Headers::of(segment, from, to),
            (SocketAddr::V6(from), SocketAddr::V6(to)) => Headers::of_v6(segment, from, to),
            _ => unreachable!("both of one version"),
        };
        let mut octets = headers.as_bytes().to_vec();
        let first = u64::from(segment.seq.0.wrapping_sub(self.isn[side as usize]).wrapping_sub(1));
        octets.extend((first..first + u64::from(segment.len)).map(|offset| octet(side, offset)));
        // The checksum in the headers covers a payload of zeros, so subtract the sum of the real payload.
        let tcp = if v6 { 40 } else { 20 };
        let sum = octets[headers.as_bytes().len()..].chunks(2).fold(0u64, |sum, pair| {
            sum + u64::from(pair[0]) * 256 + pair.get(1).map_or(0, |low| u64::from(*low))
        });
        let checksum = &mut octets[tcp + 16..tcp + 18];
        let mut folded = u64::from(!u16::from_be_bytes([checksum[0], checksum[1]])) + sum;
        while folded > 0xffff {
            folded = (folded & 0xffff) + (folded >> 16);
        }
        checksum.copy_from_slice(&(!(folded as u16)).to_be_bytes());
        if self.percent(damage) {
            self.ordinal += 1;
            let chance = draw(self.weather.seed, 12, self.ordinal);
            // In half of the cases, the wrong bit is in a header, where it has the largest effect.
            let span = if chance & 1 == 0 { headers.as_bytes().len() } else { octets.len() };
            octets[(chance >> 16) as usize % span] ^= 1 << ((chance >> 8) & 7);
        }
        octets
    }

    /// Receives a packet at a host. The host drops damaged packets and packets for other sockets.
    fn receive(&mut self, from: Side, load: Load) {
        let (octets, wire) = match (load, &self.weather.wire) {
            (Load::Segment(segment), _) => return self.arrive(from, &segment),
            (Load::Octets(octets), Some(wire)) => (octets, wire),
            (Load::Octets(_), None) => unreachable!("octets need a wire"),
        };
        let Ok(packet) = Packet::parse(&octets, wire.checksums) else { return };
        if (packet.from, packet.to) != sockets(from, wire.v6) {
            return;
        }
        let seq = packet.segment.seq.0.wrapping_sub(self.isn[from as usize]).wrapping_sub(1);
        let host = &mut self.hosts[1 - from as usize];
        for (i, octet) in octets[packet.payload.clone()].iter().enumerate() {
            if let Some(slot) = host.arrived.get_mut(seq as usize + i) {
                *slot = Some(*octet);
            }
        }
        self.arrive(from, &packet.segment);
    }

    fn arrive(&mut self, from: Side, segment: &Segment) {
        let to = if from == Side::Client { Side::Server } else { Side::Client };
        let (sender, receiver) = (from as usize, to as usize);
        // This segment advances the right edge of the window in which the host that receives it may send.
        if segment.flags.has(Flags::ACK) {
            let ack = u64::from(segment.ack.0.wrapping_sub(self.isn[receiver]).wrapping_sub(1));
            let both = self.scale[0].is_some() && self.scale[1].is_some();
            let shift =
                if segment.flags.has(Flags::SYN) || !both { 0 } else { self.scale[sender].unwrap_or(0) };
            let host = &mut self.hosts[receiver];
            host.edge = host.edge.max(ack + (u64::from(segment.window) << shift));
        }
        self.hosts[receiver].conn.handle_segment(self.now, segment);
    }

    fn done(&self) -> bool {
        self.hosts.iter().all(|host| host.conn.state() == State::Closed && host.conn.readable() == 0)
            || self.hosts.iter().any(|host| host.aborted)
    }

    fn run(mut self) -> Self {
        let mut steps = 0;
        while !self.done() {
            self.applications();
            for side in [Side::Client, Side::Server] {
                self.transmit(side);
            }
            let mut next = self.path.next();
            for host in &self.hosts {
                next = next.min(host.conn.poll_timeout());
                if host.conn.readable() > 0 {
                    next = next.min(host.next_read.max(self.now));
                }
                if host.to_write > 0 && host.next_write > self.now {
                    next = next.min(host.next_write);
                }
            }
            if self.done() {
                break;
            }
            if next.is_never() && self.weather.is_blind() {
                break;
            }
            driver::jump(&mut self.now, next);
            if self.now.saturating_since(Instant::ZERO) >= self.weather.limit() {
                assert!(self.weather.is_blind(), "takes for ever");
                break;
            }
            if let Some((from, load)) = self.path.take(self.now) {
                self.receive(from, load);
            }
            for host in &mut self.hosts {
                driver::fire(&mut host.conn, self.now);
                driver::recount(&host.conn, steps);
            }
            steps += 1;
            assert!(steps < 3_000_000, "a busy loop");
        }
        // Handle the last events of connections that have already ended.
        self.applications();
        self
    }
}

fn sockets(from: Side, v6: bool) -> (SocketAddr, SocketAddr) {
    let socket = |side: Side| {
        let last = 1 + side as u16;
        match v6 {
            false => SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, last as u8), 7_000 + last)),
            true => SocketAddr::V6(SocketAddrV6::new(
                Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last),
                7_000 + last,
                0,
                0,
            )),
        }
    };
    let to = if from == Side::Client { Side::Server } else { Side::Client };
    (socket(from), socket(to))
}

#[test]
fn every_byte_arrives_once_and_in_order() {
    let mut given_up = 0;
    for seed in 0..SEEDS {
        let result = std::panic::catch_unwind(|| World::new(Weather::of(seed)).run());
        let Ok(world) = result else { panic!("seed {seed}: {:?}", Weather::of(seed)) };
        if world.weather.is_blind() {
            continue;
        }
        let [client, server] = &world.hosts;
        if client.aborted || server.aborted {
            // At such loss rates, a connection may give up. A handshake may exhaust its retries. If the last
            // ACKs are also lost, the other end may have left TIME-WAIT when the FIN is retransmitted.
            given_up += 1;
            assert!(world.weather.lost_percent() >= 15, "seed {seed} gave up: {:?}", world.weather);
            continue;
        }
        assert_eq!((server.read, client.read), (world.weather.bytes, world.weather.reply), "seed {seed}");
        assert_eq!(server.conn.received(), world.weather.bytes);
        assert_eq!(client.conn.acknowledged(), world.weather.bytes);
    }
    assert!(given_up <= SEEDS / 50, "{given_up} gave up");
}

/// The guarantees hold for any combination of settings within their ranges. With fewer retransmissions than
/// Linux, a connection gives up sooner, but only on a path that loses packets.
#[test]
fn any_settings_keep_the_guarantees() {
    let (mut complete, mut given_up) = (0, 0);
    for seed in 0..SEEDS / 4 {
        let result = std::panic::catch_unwind(|| World::new(Weather::with_any_settings(seed)).run());
        let Ok(world) = result else { panic!("seed {seed}: {:?}", Weather::with_any_settings(seed)) };
        if world.weather.is_blind() {
            continue;
        }
        let [client, server] = &world.hosts;
        if client.aborted || server.aborted {
            assert!(world.weather.lost_percent() > 0, "seed {seed} gave up: {:?}", world.weather);
            given_up += 1;
            continue;
        }
        assert_eq!((server.read, client.read), (world.weather.bytes, world.weather.reply), "seed {seed}");
        assert_eq!(server.conn.received(), world.weather.bytes);
        assert_eq!(client.conn.acknowledged(), world.weather.bytes);
        complete += 1;
    }
    assert!(complete > 2 * given_up, "{given_up} gave up, {complete} did not");
}
