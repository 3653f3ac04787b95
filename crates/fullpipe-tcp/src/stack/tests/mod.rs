//! Tests in which two stacks exchange packets in virtual time.

mod admission;
mod flood;
mod late;
mod live;
mod memory;
mod paths;
mod time_wait;
mod transfer;

use std::collections::BTreeMap;

use fullpipe_units::{Bytes, Duration, draw};

use super::*;
use crate::buffers::Buffer;
use crate::wire::SeqNum;

pub(super) fn config() -> Config {
    Config {
        sndbuf: Buffer::Auto { max: Bytes::from_mib(1) },
        rcvbuf: Buffer::Auto { max: Bytes::from_mib(1) },
        ..Config::default()
    }
}

pub(super) fn stack(address: IpAddr, key: u8) -> Stack {
    let mut stack = Stack::new(StackConfig {
        key: Key::new([key; 16]),
        isn_clock: IsnClock::Linux,
        max_connections: 1_000,
        cut: Cut::Segments,
    });
    stack.add_address(address);
    stack
}

/// Returns the octets of the next packet that the stack sends.
pub(super) fn packet(stack: &mut Stack, now: Instant) -> Option<Vec<u8>> {
    let packet = stack.poll_packet(now)?;
    assert!(packet.gso_size.is_none() && !packet.is_empty());
    Some([packet.headers.as_bytes(), packet.payload[0], packet.payload[1]].concat())
}

/// Returns the byte of the test stream at `offset`.
pub(super) fn pattern(offset: u64) -> u8 {
    (offset ^ offset >> 8 ^ offset >> 16) as u8
}

/// Two stacks, the packets in flight between them, and the impairments of their path.
pub(super) struct Pair {
    pub(super) now: Instant,
    pub(super) ends: [Stack; 2],
    pub(super) addresses: [SocketAddr; 2],
    flying: BTreeMap<(Instant, u64), (usize, Vec<u8>)>,
    sent: u64,
    /// Probabilities of loss, duplication and delay, in this order. A value of `n` means one packet in `n`,
    /// and zero means never.
    pub(super) hostile: [u64; 3],
    /// Length of the longest packet sent so far, in bytes.
    pub(super) longest: usize,
}

const DELAY: Duration = Duration::from_millis(10);

impl Pair {
    pub(super) fn new(addresses: [SocketAddr; 2]) -> Self {
        let ends = [stack(addresses[0].ip(), 1), stack(addresses[1].ip(), 2)];
        Self {
            now: Instant::ZERO,
            ends,
            addresses,
            flying: BTreeMap::new(),
            sent: 0,
            hostile: [0; 3],
            longest: 0,
        }
    }

    pub(super) fn v4() -> Self {
        Self::new([SocketAddr::from(([198, 18, 0, 1], 40_000)), SocketAddr::from(([198, 18, 0, 2], 5_201))])
    }

    /// Sends all packets that either stack has ready.
    pub(super) fn send(&mut self) {
        for from in 0..2 {
            while let Some(packet) = packet(&mut self.ends[from], self.now) {
                self.longest = self.longest.max(packet.len());
                self.sent += 1;
                let strikes = |kind: usize| {
                    self.hostile[kind] > 0
                        && draw(self.sent, kind as u64, 7).is_multiple_of(self.hostile[kind])
                };
                if strikes(0) {
                    continue;
                }
                if strikes(1) {
                    self.flying.insert((self.now + DELAY * 2, 2 * self.sent + 1), (1 - from, packet.clone()));
                }
                let late = if strikes(2) { Duration::from_millis(5) } else { Duration::ZERO };
                self.flying.insert((self.now + DELAY + late, 2 * self.sent), (1 - from, packet));
            }
        }
    }

    /// Advances the simulation to the next event. Returns false if there is no event up to `until`.
    pub(super) fn step(&mut self, until: Instant) -> bool {
        self.send();
        let arrival = self.flying.keys().next().map_or(Instant::FAR_FUTURE, |&(at, _)| at);
        let next = arrival.min(self.ends[0].poll_timeout()).min(self.ends[1].poll_timeout());
        if next > until || next.is_never() {
            return false;
        }
        self.now = self.now.max(next);
        while let Some(entry) = self.flying.first_entry()
            && entry.key().0 <= self.now
        {
            let (to, bytes) = entry.remove();
            self.ends[to].handle_packet(self.now, &bytes, Checksums::Verify);
        }
        self.ends.iter_mut().for_each(|end| end.handle_timeout(self.now));
        self.send();
        true
    }

    /// Opens a connection, and returns its identifier on the client's side.
    pub(super) fn connect(&mut self) -> ConnId {
        let [near, far] = self.addresses;
        self.ends[0].connect(self.now, near, far, config()).expect("free")
    }

    pub(super) fn listen(&mut self, backlog: usize) {
        self.ends[1].listen(self.addresses[1], config(), backlog).expect("free");
    }
}

/// Transfers `len` bytes in each direction, checks every byte, and runs until both endpoints have closed.
pub(super) fn transfer(pair: &mut Pair, len: u64, until: Instant) {
    pair.listen(8);
    let client = pair.connect();
    let mut ids = [Some(client), None];
    let (mut written, mut read, mut closed) = ([0; 2], [0; 2], [false; 2]);
    let mut buffer = vec![0; 10_000];
    while !(closed[0] && closed[1]) {
        assert!(pair.step(until), "stalled at {}: written {written:?}, read {read:?}", pair.now);
        ids[1] = ids[1].or_else(|| pair.ends[1].accept(pair.addresses[1]));
        for end in 0..2 {
            while let Some((id, event)) = pair.ends[end].poll_event() {
                assert_eq!(Some(id), ids[end]);
                assert_ne!(event, Event::Aborted);
                closed[end] |= event == Event::PeerClosed;
            }
            let Some(id) = ids[end] else { continue };
            while written[end] < len {
                let piece: Vec<u8> =
                    (0..(len - written[end]).min(7_777)).map(|i| pattern(written[end] + i)).collect();
                let taken = pair.ends[end].write(id, &piece);
                written[end] += taken as u64;
                if taken < piece.len() {
                    break;
                }
            }
            if written[end] == len {
                pair.ends[end].shutdown(id);
            }
            loop {
                let got = pair.ends[end].read(pair.now, id, &mut buffer);
                for byte in &buffer[..got] {
                    assert_eq!(*byte, pattern(read[end]), "offset {}", read[end]);
                    read[end] += 1;
                }
                if got == 0 {
                    break;
                }
            }
        }
    }
    assert_eq!(read, [len; 2]);
    for (end, id) in ids.iter().enumerate() {
        pair.ends[end].release(pair.now, id.expect("accepted"));
    }
    // Once all timers have expired, no connection remains.
    while pair.step(until + Duration::from_secs(600)) {}
    assert_eq!([pair.ends[0].connections(), pair.ends[1].connections()], [0, 0]);
}

pub(super) fn syn(port: u16, seq: u32, timestamps: bool) -> (SocketAddr, Segment) {
    let segment = Segment {
        seq: SeqNum(seq),
        ack: SeqNum(0),
        len: 0,
        window: 64_240,
        flags: Flags::SYN,
        timestamps: timestamps.then_some(crate::wire::Timestamps { value: 1_000, echo: 0 }),
        syn: Some(crate::wire::SynOptions { mss: 1_460, window_scale: Some(7), sack_permitted: true }),
        sack: Default::default(),
        ecn: fullpipe_units::Ecn::NotEct,
    };
    (SocketAddr::from(([10, 0, (port >> 8) as u8, port as u8], port)), segment)
}

/// Encodes `segment` as a packet from address `from` to address `to`.
pub(super) fn bytes(segment: &Segment, from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    crate::wire::Headers::between(segment, from, to).expect("one version").as_bytes().to_vec()
}
