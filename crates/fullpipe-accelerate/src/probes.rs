//! Probes that tell the clients of a dead worker that their connections are lost.
//!
//! ```text
//!   worker ─► shared table: the numbers of each connection ─► keeper, once the worker is dead ─► client
//!   client ─► answer ─► the kernel, which knows no such connection ─► reset
//! ```
//!
//! If a firewall keeps the answer from the kernel, the keeper resets the client itself
//! ([`answers`](crate::answers)).
//!
//! Without a probe, a client that only receives data would wait until its own timeout. The packet has the
//! sequence numbers of the connection, because address translation and connection tracking on the path
//! discard packets with other numbers.
//!
//! The table is a file that the worker writes through memory, so it is complete whenever the worker dies. The
//! file belongs to the worker's user, so the keeper does not trust its content: whatever it contains, the keeper
//! sends only bare ACKs from the address and port of the service.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Relaxed, Release};

use fullpipe_linux::Error;
use fullpipe_linux::namespace::this_namespace;
use fullpipe_linux::shared::SharedFile;
use fullpipe_tcp::Probe;
use fullpipe_tcp::stack::LiveTable;
use fullpipe_tcp::wire::{Headers, SeqNum, Timestamps};
use fullpipe_units::{Duration, Instant};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::answers::Answers;
use crate::system;
use crate::worker::BEAT;

/// Number of words of a slot: two for the client's address (IPv4 addresses are mapped to IPv6), and one each
/// for its port with the flags below, the sequence and ACK number, and the timestamps of the probe.
const WORDS: usize = 5;
/// Size of a slot in bytes.
pub(crate) const SLOT: usize = WORDS * size_of::<u64>();
/// Flags in the word of the port: the slot contains a connection, and the connection has timestamps.
const LIVE: u64 = 1 << 16;
const STAMPED: u64 = 1 << 17;
/// Protocol number of raw sockets that send whole packets (`IPPROTO_RAW`).
const WHOLE_PACKETS: i32 = 255;
/// Maximum number of probes per tick of 100 ms.
pub(crate) const AT_ONCE: usize = 2_000;
/// Maximum number of probes to a client that does not answer; a single probe or its answer may be lost.
const ROUNDS: u32 = 3;
/// Pause between two probes of a client: several round trips.
const ROUND: Duration = Duration::from_millis(300);
/// Maximum number of bytes that the keeper reads, enough for 1 600 000 slots.
const MOST_BYTES: u64 = 64 << 20;

/// The shared table as written by the worker's stack.
#[derive(Debug)]
pub(crate) struct SharedTable(SharedFile);

impl SharedTable {
    /// Opens the table that the keeper has created.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let file = OpenOptions::new().read(true).write(true).open(path);
        let table = file.and_then(SharedFile::map).map(Self);
        table.map_err(|error| system(format_args!("open {}", path.display()), error))
    }
}

impl LiveTable for SharedTable {
    #[inline]
    fn set(&mut self, slot: u32, peer: SocketAddr, probe: &Probe) {
        // If the file system is full, the clients of a dead worker notice late that their connections are lost.
        let Some([high, low, port, numbers, stamps]) = self.0.words(slot as usize * WORDS, WORDS) else {
            return;
        };
        let address = match peer.ip() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let pair = |first: u32, second: u32| u64::from(first) << 32 | u64::from(second);
        high.store((address.to_bits() >> 64) as u64, Relaxed);
        low.store(address.to_bits() as u64, Relaxed);
        // The worker may be killed between two stores. The numbers of a probe are valid together with earlier
        // timestamps.
        numbers.store(pair(probe.seq.0, probe.ack.0), Relaxed);
        let stamped = probe.timestamps.map_or(0, |Timestamps { value, echo }| {
            stamps.store(pair(value, echo), Relaxed);
            STAMPED
        });
        // The slot becomes valid last.
        port.store(LIVE | stamped | u64::from(peer.port()), Release);
    }

    fn clear(&mut self, slot: u32) {
        if let Some([_, _, port, ..]) = self.0.words(slot as usize * WORDS, WORDS) {
            port.store(0, Release);
        }
    }
}

/// Creates an empty table for `connections` connections, and as many in TIME-WAIT. The file takes memory only
/// for the slots that are used.
pub(crate) fn create(path: &Path, connections: usize) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.set_len((2 * connections * SLOT) as u64)?;
    Ok(file)
}

/// The shared table as read by the keeper, and the probes still to send.
#[derive(Debug)]
pub(crate) struct Probes {
    path: PathBuf,
    listen: SocketAddr,
    /// Owner of the file: the worker's user ID and group ID.
    owner: (u32, u32),
    /// Maximum number of connections of the worker.
    connections: usize,
    waiting: VecDeque<(SocketAddr, Probe)>,
    /// Probes sent in this round.
    sent: Vec<(SocketAddr, Probe)>,
    /// Number of rounds after this one, and the start time of the next round.
    rounds: (u32, Instant),
    /// Answers of the clients, while the keeper waits for them.
    answers: Option<Answers>,
}

impl Probes {
    /// Creates the table. If a table of the same service exists, its connections are probed, because its keeper
    /// and worker have died together.
    pub(crate) fn new(
        folder: &Path,
        listen: SocketAddr,
        owner: (u32, u32),
        connections: usize,
        now: Instant,
    ) -> Result<Self, Error> {
        let path = folder.join(format!("connections-{}-{listen}", this_namespace()));
        let (waiting, sent, rounds) = (VecDeque::new(), Vec::new(), (0, now));
        let mut probes = Self { path, listen, owner, connections, waiting, sent, rounds, answers: None };
        probes.collect(now)?;
        Ok(probes)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes over the connections of a dead worker, and creates an empty table for the next worker. Returns the
    /// number of connections.
    pub(crate) fn collect(&mut self, now: Instant) -> Result<usize, Error> {
        let failed = |error: io::Error| system(format_args!("prepare {}", self.path.display()), error);
        let read = |file: File| {
            let mut bytes = Vec::new();
            file.take(MOST_BYTES).read_to_end(&mut bytes).map(|_| bytes)
        };
        let found = match File::open(&self.path).and_then(read) {
            Ok(bytes) => connections(&bytes, self.listen),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(failed(error)),
        };
        // The old file may still be open in a process of the worker's user, so a new file is created.
        if let Err(error) = fs::remove_file(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(failed(error));
        }
        let file = create(&self.path, self.connections).map_err(failed)?;
        file.set_permissions(Permissions::from_mode(0o600)).map_err(failed)?;
        let (user, group) = self.owner;
        fchown(&file, Some(user), Some(group)).map_err(failed)?;
        let count = found.len();
        self.waiting.extend(found);
        self.sent.clear();
        self.answers = None;
        if !self.waiting.is_empty() {
            self.rounds = (ROUNDS - 1, now + ROUND);
            let clients = self.waiting.iter().map(|(client, probe)| (*client, probe.seq)).collect();
            let ticks = (self.waiting.len() / AT_ONCE) as u64 + 1;
            let probed = now + (BEAT * ticks + ROUND) * u64::from(ROUNDS);
            // Without the packet socket, the clients depend on resets from the kernel.
            self.answers = Answers::new(self.listen, clients, probed).ok();
        }
        Ok(count)
    }

    /// Returns the packet socket that receives the clients' answers.
    pub(crate) fn answers(&self) -> Option<BorrowedFd<'_>> {
        self.answers.as_ref().map(AsFd::as_fd)
    }

    /// Resets the clients whose answers have arrived.
    pub(crate) fn reset(&mut self, now: Instant, raw: &Socket) {
        let Some(answers) = &mut self.answers else { return };
        answers.reset(raw);
        if answers.is_over(now) {
            self.answers = None;
        }
    }

    /// Returns whether there are still probes to send.
    pub(crate) fn are_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Sends the probes of one tick through a raw socket. Clients that have not answered are probed again.
    pub(crate) fn send(&mut self, now: Instant, raw: &Socket) {
        let (left, next) = self.rounds;
        if self.waiting.is_empty() && !self.sent.is_empty() && now >= next {
            // Without the packet socket, the keeper does not know which clients have answered.
            let answers = self.answers.as_ref().filter(|_| left > 0);
            let silent = |client: &SocketAddr| answers.is_some_and(|answers| answers.awaits(*client));
            self.waiting.extend(self.sent.drain(..).filter(|(client, _)| silent(client)));
            self.rounds = (left.saturating_sub(1), now + ROUND);
        }
        for (to, probe) in self.waiting.drain(..AT_ONCE.min(self.waiting.len())) {
            if let Some(packet) = Headers::between(&probe.segment(), self.listen, to) {
                send(raw, to.ip(), packet.as_bytes());
            }
            self.sent.push((to, probe));
        }
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        // The probes are not needed, because the worker has reset its connections or its clients have been
        // probed.
        let _ = fs::remove_file(&self.path);
    }
}

/// Opens a raw socket that sends probes with the source address `listen`.
pub(crate) fn raw_socket(listen: SocketAddr) -> Result<Socket, Error> {
    Socket::new(Domain::for_address(listen), Type::RAW, Some(Protocol::from(WHOLE_PACKETS)))
        .map_err(|error| system("open a raw socket", error))
}

/// Sends a packet through a raw socket. Errors are ignored: if a client cannot be reached, there is no other
/// way to probe it.
pub(crate) fn send(raw: &Socket, to: IpAddr, packet: &[u8]) {
    // For a raw socket, the destination port must be zero.
    let _ = raw.send_to(packet, &SockAddr::from(SocketAddr::new(to, 0)));
}

/// Extracts the connections that may be probed from the content of a file.
pub(crate) fn connections(bytes: &[u8], listen: SocketAddr) -> Vec<(SocketAddr, Probe)> {
    let slot = |slot: &[u8]| {
        let mut words = slot.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word));
        let [high, low, port, numbers, stamps] = std::array::from_fn(|_| words.next().unwrap_or_default());
        let address = Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low));
        let ip = match (listen, address.to_ipv4_mapped()) {
            (SocketAddr::V4(_), Some(address)) => IpAddr::V4(address),
            (SocketAddr::V6(_), None) => IpAddr::V6(address),
            _ => return None,
        };
        let client = SocketAddr::new(ip, port as u16);
        let one_host = !ip.is_unspecified() && !ip.is_multicast() && client.port() > 0;
        let [first, second] = [|word: u64| (word >> 32) as u32, |word: u64| word as u32];
        let timestamps = Timestamps { value: first(stamps), echo: second(stamps) };
        let probe = Probe {
            seq: SeqNum(first(numbers)),
            ack: SeqNum(second(numbers)),
            timestamps: (port & STAMPED != 0).then_some(timestamps),
        };
        (port & LIVE != 0 && one_host).then_some((client, probe))
    };
    bytes.chunks_exact(SLOT).filter_map(slot).collect()
}

#[cfg(test)]
mod tests {
    use fullpipe_tcp::reset_for;
    use fullpipe_tcp::wire::{Checksums, Flags, Packet};

    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    fn probe(seq: u32, stamped: bool) -> Probe {
        let timestamps = stamped.then_some(Timestamps { value: u32::MAX, echo: 8 });
        Probe { seq: SeqNum(seq), ack: SeqNum(77), timestamps }
    }

    /// Returns the keeper's end of a table in `folder`.
    fn probes(folder: &Path, listen: &str, connections: usize) -> Probes {
        let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Probes::new(folder, address(listen), owner, connections, Instant::ZERO).expect("a file")
    }

    /// The keeper finds the connections that exist when the worker dies, with the numbers of their last segments,
    /// although the worker has neither closed nor flushed the file.
    #[test]
    fn connections_pass_through_the_table() {
        let folder = tempfile::tempdir().expect("a folder");
        for (listen, clients) in [
            ("203.0.113.5:443", ["198.51.100.7:40000", "198.51.100.8:40001", "198.51.100.9:40002"]),
            ("[2001:db8::5]:443", ["[2001:db8::7]:40000", "[2001:db8::8]:40001", "[2001:db8::9]:40002"]),
        ] {
            let clients = clients.map(address);
            let mut probes = probes(folder.path(), listen, 10);
            let mut table = SharedTable::open(probes.path()).expect("a table");
            table.set(0, clients[0], &probe(1, true));
            table.set(1, clients[1], &probe(2, true));
            table.set(19, clients[2], &probe(3, false));
            table.set(20, clients[2], &probe(3, false));
            table.set(0, clients[0], &probe(4, true));
            table.clear(1);
            assert_eq!(probes.collect(Instant::ZERO).expect("a file"), 2);
            assert_eq!(probes.waiting, [(clients[0], probe(4, true)), (clients[2], probe(3, false))]);
            // The next worker starts with an empty table, and an orderly end leaves no file.
            assert_eq!(probes.collect(Instant::ZERO).expect("a file"), 0);
            let path = probes.path().to_owned();
            drop(probes);
            assert!(!path.exists());
        }
    }

    /// A probe is a bare ACK with the numbers of the connection. A host that does not know the connection resets
    /// the client that answers.
    #[test]
    fn a_probe_has_the_numbers_of_its_connection() {
        let [listen, client] = ["203.0.113.5:443", "198.51.100.7:40000"].map(address);
        let packet = Headers::between(&probe(5, true).segment(), listen, client).expect("one family");
        let Packet { from, to, segment, .. } =
            Packet::parse(packet.as_bytes(), Checksums::Verify).expect("a packet");
        assert_eq!((from, to, segment.flags, segment.len), (listen, client, Flags::ACK, 0));
        assert_eq!((segment.seq, segment.ack), (SeqNum(5), SeqNum(77)));
        assert_eq!(segment.timestamps, Some(Timestamps { value: u32::MAX, echo: 8 }));
        assert!(reset_for(&segment).is_some());
    }

    /// Even if an attacker controls the worker, the keeper sends only ACKs of its own service, to single hosts.
    #[test]
    fn other_clients_are_not_probed() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut probes = probes(folder.path(), "203.0.113.5:443", 10);
        let mut table = SharedTable::open(probes.path()).expect("a table");
        let others = ["[2001:db8::7]:40000", "0.0.0.0:40000", "224.0.0.1:40000", "198.51.100.7:0"];
        for (slot, client) in (0..).zip(others) {
            table.set(slot, address(client), &probe(1, true));
        }
        assert_eq!(probes.collect(Instant::ZERO).expect("a file"), 0);
        assert_eq!(connections(&[0; 2 * SLOT + 7], address("203.0.113.5:443")), []);
        assert_eq!(connections(&[255; 2 * SLOT + 7], address("203.0.113.5:443")), []);
    }

    /// At most 2000 probes are sent per tick of 100 ms, which are 20 000 per second.
    #[test]
    fn the_rate_of_probes_is_limited() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut probes = probes(folder.path(), "203.0.113.5:443", 5_000);
        let mut table = SharedTable::open(probes.path()).expect("a table");
        for slot in 0..4_500 {
            table.set(slot, SocketAddr::from(([198, 18, 0, 1], 1_000 + slot as u16)), &probe(slot, true));
        }
        assert_eq!(probes.collect(Instant::ZERO).expect("a file"), 4_500);
        probes.answers = None;
        // A datagram socket sends nothing to port zero.
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).expect("a socket");
        for left in [2_500, 500, 0] {
            assert!(probes.are_waiting());
            probes.send(Instant::ZERO, &socket);
            assert_eq!(probes.waiting.len(), left);
        }
        // Without the packet socket, there is no second round.
        probes.send(Instant::ZERO + Duration::from_secs(1), &socket);
        assert!(!probes.are_waiting());
    }
}
