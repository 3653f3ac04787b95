//! Counts the allocations of a TCP stack that carries many packets, as in `fullpipe accelerate`: super-packets, BBR,
//! bursts as of the real-time loop, and a limit on unsent data.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fullpipe_tcp::buffers::Buffer;
use fullpipe_tcp::cc::Algorithm;
use fullpipe_tcp::stack::siphash::Key;
use fullpipe_tcp::stack::{ConnId, Cut, IsnClock, Stack, StackConfig};
use fullpipe_tcp::wire::Checksums;
use fullpipe_tcp::{Bursts, Config, Event, KeepAlive, Tunables};
use fullpipe_units::{Bytes, Duration, Instant, Rate, draw};

use crate::counting::count_in;

/// Number of bytes that an end writes and reads at once.
const PIECE: usize = 64 << 10;
/// Limit of the worker on unsent data.
const UNSENT: Bytes = Bytes::from_kib(128);

/// Properties of a path. The capacity of its queue is one bandwidth-delay product.
#[derive(Clone, Copy, Debug)]
struct Path {
    rate: Rate,
    one_way: Duration,
    /// One packet in this number is lost; zero for none.
    lost: u64,
}

/// One direction of a path: a link with a queue, and a delay. The buffers of packets that have arrived are reused.
struct Direction {
    path: Path,
    flying: VecDeque<(Instant, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    free_at: Instant,
    packets: u64,
}

impl Direction {
    fn new(path: Path) -> Self {
        // There are never more packets in flight than this. Each buffer has room for the longest packet.
        let spare = (0..2_000).map(|_| Vec::with_capacity(1 << 16)).collect();
        Self { flying: VecDeque::with_capacity(2_000), spare, free_at: Instant::ZERO, packets: 0, path }
    }

    /// Sends all packets that the stack has ready.
    fn send(&mut self, now: Instant, stack: &mut Stack) {
        while let Some(packet) = stack.poll_packet(now) {
            self.packets += 1;
            let Path { rate, one_way, lost } = self.path;
            let is_lost = lost > 0 && draw(self.packets, 9, 0).is_multiple_of(lost);
            if is_lost || self.free_at.saturating_since(now) > one_way * 2 {
                continue;
            }
            let mut bytes = self.spare.pop().expect("enough buffers");
            bytes.clear();
            for part in [packet.headers.as_bytes(), packet.payload[0], packet.payload[1]] {
                bytes.extend_from_slice(part);
            }
            self.free_at = self.free_at.max(now) + rate.time_for(Bytes::new(bytes.len() as u64));
            self.flying.push_back((self.free_at + one_way, bytes));
        }
    }

    fn next(&self) -> Instant {
        self.flying.front().map_or(Instant::FAR_FUTURE, |(at, _)| *at)
    }

    /// Delivers all packets that have arrived.
    fn deliver(&mut self, now: Instant, stack: &mut Stack) {
        while self.next() <= now {
            let (_, bytes) = self.flying.pop_front().expect("a packet");
            stack.handle_packet(now, &bytes, Checksums::Skip);
            self.spare.push(bytes);
        }
    }
}

fn config(unsent: Option<Bytes>) -> Config {
    let bursts = Bursts::Limited { length: Duration::from_micros(250), missed: Duration::from_millis(1) };
    Config {
        cc: Algorithm::Bbr1,
        mtu_probing: true,
        notsent_lowat: unsent,
        sndbuf: Buffer::Auto { max: Bytes::from_mib(16) },
        rcvbuf: Buffer::Auto { max: Bytes::from_mib(6) },
        nodelay: true,
        keep_alive: Some(KeepAlive::default()),
        tunables: Tunables { bursts, ..Tunables::LINUX },
        ..Config::default()
    }
}

/// Two hosts, and the path between them.
struct Hosts {
    now: Instant,
    stacks: [Stack; 2],
    /// Directions of the path from each of the stacks.
    paths: [Direction; 2],
    piece: Vec<u8>,
}

const ADDRESSES: [([u8; 4], u16); 2] = [([198, 18, 0, 1], 40_000), ([198, 18, 0, 2], 443)];

impl Hosts {
    fn new(path: Path, unsent: Option<Bytes>) -> Self {
        let stacks = ADDRESSES.map(|(address, _)| {
            let mut stack = Stack::new(StackConfig {
                key: Key::new([1; 16]),
                isn_clock: IsnClock::Linux,
                max_connections: 1_000,
                cut: Cut::SuperPackets,
            });
            stack.add_address(address.into());
            stack
        });
        let paths = [Direction::new(path), Direction::new(path)];
        let mut hosts = Self { now: Instant::ZERO, stacks, paths, piece: vec![7; PIECE] };
        hosts.stacks[1].listen(ADDRESSES[1].into(), config(unsent), 8).expect("a free port");
        hosts
    }

    /// Opens a connection from a port of the first host; returns its identifiers at both ends.
    fn connect(&mut self, port: u16) -> [ConnId; 2] {
        let near = SocketAddr::from((ADDRESSES[0].0, port));
        let id =
            self.stacks[0].connect(self.now, near, ADDRESSES[1].into(), config(None)).expect("a free port");
        loop {
            self.step();
            if let Some(accepted) = self.stacks[1].accept(ADDRESSES[1].into()) {
                return [id, accepted];
            }
        }
    }

    /// Advances to the next event.
    fn step(&mut self) {
        let Self { now, stacks, paths, .. } = self;
        for (stack, path) in stacks.iter_mut().zip(paths.iter_mut()) {
            path.send(*now, stack);
        }
        let timers = stacks.iter().map(Stack::poll_timeout);
        let next = paths.iter().map(Direction::next).chain(timers).min().expect("two ends");
        assert!(!next.is_never(), "stalled at {now}");
        *now = (*now).max(next);
        let [near, far] = stacks;
        paths[0].deliver(*now, far);
        paths[1].deliver(*now, near);
        for stack in stacks {
            stack.handle_timeout(*now);
        }
    }

    /// Transfers data over a connection in the directions from `senders` until `until`. Like the worker, an end writes
    /// when it has room, and reads when data has arrived. Returns the number of bytes that were read.
    fn transfer(&mut self, ids: [ConnId; 2], senders: &[usize], until: Instant) -> u64 {
        let mut read = 0;
        for from in senders.iter().copied() {
            while self.stacks[from].write(ids[from], &self.piece) == PIECE {}
        }
        while self.now < until {
            self.step();
            for end in 0..2 {
                while let Some((id, event)) = self.stacks[end].poll_event() {
                    match event {
                        Event::Writable => while self.stacks[end].write(id, &self.piece) == PIECE {},
                        Event::Readable => loop {
                            match self.stacks[end].discard(self.now, id, PIECE as u64) {
                                0 => break,
                                got => read += got,
                            }
                        },
                        _ => {}
                    }
                }
            }
        }
        read
    }
}

/// Once the rings and queues of a connection have reached their sizes, no packet causes an allocation, whether data flows
/// in one direction or in both, and whether packets are lost or not.
#[test]
fn a_stack_allocates_nothing_per_packet() {
    /// A few queues may reach a new peak after the warm-up.
    const PEAKS: u64 = 4;
    static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
    count_in(&ALLOCATIONS);
    let allocations = || ALLOCATIONS.load(Relaxed);
    let path = Path { rate: Rate::from_bps(200_000_000), one_way: Duration::from_millis(5), lost: 0 };
    for (name, senders, lost) in
        [("download", &[1][..], 0), ("upload", &[0], 0), ("both", &[0, 1], 0), ("both, lossy", &[0, 1], 100)]
    {
        let mut hosts = Hosts::new(Path { lost, ..path }, Some(UNSENT));
        let ids = hosts.connect(40_000);
        let second = |count| Instant::ZERO + Duration::from_secs(count);
        hosts.transfer(ids, senders, second(2));
        let packets = |hosts: &Hosts| hosts.paths[0].packets + hosts.paths[1].packets;
        let before = (allocations(), packets(&hosts));
        hosts.transfer(ids, senders, second(4));
        let (more, sent) = (allocations() - before.0, packets(&hosts) - before.1);
        println!("{name}: {more} allocations for {sent} packets");
        assert!(before.0 > 10, "the allocator counts");
        assert!(sent > 5_000 && more <= PEAKS, "{name}: {more} allocations for {sent} packets");
    }
}

/// With a writer that is woken in the same round, as the worker is, a limit of 128 KiB on unsent data costs no rate.
#[test]
fn a_limit_on_unsent_data_costs_no_rate() {
    for (gigabits, one_way) in
        [(12, Duration::from_micros(25)), (12, Duration::from_millis(1)), (1, Duration::from_millis(10))]
    {
        let path = Path { rate: Rate::from_bps(gigabits * 1_000_000_000), one_way, lost: 0 };
        let [limited, unlimited] = [Some(UNSENT), None].map(|unsent| {
            let mut hosts = Hosts::new(path, unsent);
            let ids = hosts.connect(40_000);
            hosts.transfer(ids, &[1], hosts.now + Duration::from_millis(600 / gigabits));
            hosts.transfer(ids, &[1], hosts.now + Duration::from_millis(600 / gigabits))
        });
        println!("{gigabits} Gbit/s, {one_way} one way: {limited} bytes, {unlimited} without a limit");
        assert!(limited as f64 >= 0.99 * unlimited as f64, "{limited} of {unlimited} bytes at {path:?}");
    }
}
