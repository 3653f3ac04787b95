//! Probes that tell the clients of a dead worker that their connections are lost.
//!
//! ```text
//!   worker ─► file: one slot per connection, a ready-made packet ─► keeper, once the worker is dead ─► client
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
//! The file belongs to the worker's user, so the keeper does not trust its content: it sends only bare ACKs
//! from the address and port of the service.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use fullpipe_linux::Error;
use fullpipe_linux::namespace::this_namespace;
use fullpipe_tcp::wire::{Checksums, Flags, Headers, Packet};
use fullpipe_units::{Duration, Instant};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::answers::Answers;
use crate::system;
use crate::worker::BEAT;

/// Size in bytes of a slot, which contains a length and a packet. An ACK over IPv6 with timestamps has 72
/// octets.
const SLOT: usize = 80;
/// Protocol number of raw sockets that send whole packets (`IPPROTO_RAW`).
const WHOLE_PACKETS: i32 = 255;
/// Maximum number of probes per tick of 100 ms.
pub(crate) const AT_ONCE: usize = 2_000;
/// Maximum number of probes to a client that does not answer; a single probe or its answer may be lost.
const ROUNDS: u32 = 3;
/// Pause between two probes of a client: several round trips.
const ROUND: Duration = Duration::from_millis(300);
/// Maximum number of bytes that the keeper reads, enough for the probes of 800 000 connections.
const MOST_BYTES: u64 = 64 << 20;

/// The probe file as written by the worker.
#[derive(Debug)]
pub(crate) struct ProbeFile {
    file: File,
    len: u64,
    /// Buffer for the slots to write. Its memory is reused.
    slots: Vec<u8>,
}

impl ProbeFile {
    /// Opens the probe file that the keeper has created.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let file = OpenOptions::new().write(true).open(path);
        file.map(|file| Self { file, len: 0, slots: Vec::new() })
            .map_err(|error| system(format_args!("open {}", path.display()), error))
    }

    /// Replaces all packets in the file.
    pub(crate) fn write(&mut self, packets: impl Iterator<Item = Headers>) -> io::Result<()> {
        self.len = 0;
        // All slots have the same size, so a file that is only partly replaced is still readable.
        self.append(packets)?;
        self.file.set_len(self.len)
    }

    /// Adds the packets of new connections.
    pub(crate) fn append(&mut self, packets: impl Iterator<Item = Headers>) -> io::Result<()> {
        self.slots.clear();
        packets.for_each(|packet| push_slot(&mut self.slots, packet.as_bytes()));
        if !self.slots.is_empty() {
            self.file.write_all_at(&self.slots, self.len)?;
        }
        self.len += self.slots.len() as u64;
        Ok(())
    }
}

/// The probe file as read by the keeper, and the probes still to send.
#[derive(Debug)]
pub(crate) struct Probes {
    path: PathBuf,
    listen: SocketAddr,
    /// Owner of the file: the worker's user ID and group ID.
    owner: (u32, u32),
    waiting: VecDeque<(SocketAddr, Vec<u8>)>,
    /// Probes sent in this round.
    sent: Vec<(SocketAddr, Vec<u8>)>,
    /// Number of rounds after this one, and the start time of the next round.
    rounds: (u32, Instant),
    /// Answers of the clients, while the keeper waits for them.
    answers: Option<Answers>,
}

impl Probes {
    /// Creates the probe file. If a file of the same service exists, its packets are kept, because its keeper
    /// and worker have died together.
    pub(crate) fn new(
        folder: &Path,
        listen: SocketAddr,
        owner: (u32, u32),
        now: Instant,
    ) -> Result<Self, Error> {
        let path = folder.join(format!("probes-{}-{listen}", this_namespace()));
        let (waiting, sent, rounds) = (VecDeque::new(), Vec::new(), (0, now));
        let mut probes = Self { path, listen, owner, waiting, sent, rounds, answers: None };
        probes.collect(now)?;
        Ok(probes)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes over the probes of a dead worker, and creates an empty file for the next worker. Returns the
    /// number of probes.
    pub(crate) fn collect(&mut self, now: Instant) -> Result<usize, Error> {
        let failed = |error: io::Error| system(format_args!("prepare {}", self.path.display()), error);
        let read = |file: File| {
            let mut bytes = Vec::new();
            file.take(MOST_BYTES).read_to_end(&mut bytes).map(|_| bytes)
        };
        let found = match File::open(&self.path).and_then(read) {
            Ok(bytes) => packets(&bytes, self.listen),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(failed(error)),
        };
        // The old file may still be open in a process of the worker's user, so a new file is created.
        if let Err(error) = fs::remove_file(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(failed(error));
        }
        let file = OpenOptions::new().write(true).create_new(true).open(&self.path).map_err(failed)?;
        file.set_permissions(Permissions::from_mode(0o600)).map_err(failed)?;
        let (user, group) = self.owner;
        fchown(&file, Some(user), Some(group)).map_err(failed)?;
        let count = found.len();
        self.waiting.extend(found);
        self.sent.clear();
        self.answers = None;
        if !self.waiting.is_empty() {
            self.rounds = (ROUNDS - 1, now + ROUND);
            let clients = self.waiting.iter().map(|(client, _)| *client).collect();
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
        for (to, packet) in self.waiting.drain(..AT_ONCE.min(self.waiting.len())) {
            send(raw, to.ip(), &packet);
            self.sent.push((to, packet));
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

fn push_slot(slots: &mut Vec<u8>, packet: &[u8]) {
    // An ACK without SACK blocks has at most 72 octets, so no packet is longer than a slot.
    if packet.len() < SLOT {
        slots.push(packet.len() as u8);
        slots.extend_from_slice(packet);
        slots.resize(slots.len().next_multiple_of(SLOT), 0);
    }
}

/// Extracts the packets that may be sent from the content of a file.
fn packets(bytes: &[u8], listen: SocketAddr) -> Vec<(SocketAddr, Vec<u8>)> {
    let slot = |slot: &[u8]| {
        let (len, packet) = slot.split_first()?;
        let packet = packet.get(..usize::from(*len))?;
        let parsed = Packet::parse(packet, Checksums::Verify).ok()?;
        let bare = parsed.segment.flags == Flags::ACK && parsed.payload == (packet.len()..packet.len());
        (bare && parsed.from == listen).then(|| (parsed.to, packet.to_vec()))
    };
    bytes.chunks_exact(SLOT).filter_map(slot).collect()
}

#[cfg(test)]
mod tests {
    use fullpipe_tcp::reset_for;
    use fullpipe_tcp::wire::SeqNum;

    use super::*;
    use crate::test_packets;

    const LISTEN: &str = "203.0.113.5:443";

    /// Returns a packet from `from` to a client, with the given flags.
    fn packet(from: &str, to: &str, flags: Flags) -> Vec<u8> {
        let segment = |flags| test_packets::segment(SeqNum(1), SeqNum(2), flags);
        let answered = reset_for(&segment(Flags::ACK)).is_some();
        assert!(answered, "a host without the connection answers it with a reset");
        test_packets::packet(&segment(flags), from, to)
    }

    fn listen() -> SocketAddr {
        LISTEN.parse().expect("an address")
    }

    #[test]
    fn packets_pass_through_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let mut probes = Probes::new(folder.path(), listen(), owner, Instant::ZERO).expect("a file");
        let mut file = ProbeFile::open(probes.path()).expect("a file");
        let clients = ["198.51.100.7:40000", "198.51.100.8:40001"];
        let [one, two] = clients.map(|client| packet(LISTEN, client, Flags::ACK));
        let to = |client: &str| {
            let segment = test_packets::segment(SeqNum(1), SeqNum(2), Flags::ACK);
            Headers::between(&segment, listen(), client.parse().expect("an address"))
        };
        file.write([clients[0], clients[1], clients[0]].into_iter().filter_map(to)).expect("room");
        file.write(to(clients[0]).into_iter()).expect("room");
        file.append(to(clients[1]).into_iter()).expect("room");
        assert_eq!(probes.collect(Instant::ZERO).expect("a file"), 2);
        let expected = [("198.51.100.7:40000", &one), ("198.51.100.8:40001", &two)];
        for ((address, packet), (to, expected)) in probes.waiting.iter().zip(expected) {
            assert_eq!((address.to_string().as_str(), packet), (to, expected));
        }
        // The next worker starts with an empty file, and an orderly end leaves no file.
        assert_eq!(probes.collect(Instant::ZERO).expect("a file"), 0);
        let path = probes.path().to_owned();
        drop(probes);
        assert!(!path.exists());
    }

    /// Even if an attacker controls the worker, the keeper sends only ACKs of its own service.
    #[test]
    fn other_packets_are_not_sent() {
        let mut damaged = packet(LISTEN, "198.51.100.7:40000", Flags::ACK);
        damaged[8] ^= 1;
        let mut slots = Vec::new();
        for packet in [
            packet("203.0.113.5:22", "198.51.100.7:40000", Flags::ACK),
            packet("203.0.113.6:443", "198.51.100.7:40000", Flags::ACK),
            packet(LISTEN, "198.51.100.7:40000", Flags::RST),
            packet(LISTEN, "198.51.100.7:40000", Flags::SYN),
            [packet(LISTEN, "198.51.100.7:40000", Flags::ACK), vec![0; 4]].concat(),
            damaged,
            vec![0; 20],
            vec![0; 200],
        ] {
            push_slot(&mut slots, &packet);
        }
        slots.extend([255; SLOT]);
        slots.extend([1; SLOT / 2]);
        assert_eq!(packets(&slots, listen()), []);
    }

    #[test]
    fn a_probe_over_ipv6_fits_into_a_slot() {
        let from = "[2001:db8::5]:443";
        let packet = packet(from, "[2001:db8::7]:40000", Flags::ACK);
        let mut slots = Vec::new();
        push_slot(&mut slots, &packet);
        assert_eq!(slots.len(), SLOT);
        assert_eq!(packets(&slots, from.parse().expect("an address")).len(), 1);
    }
}
