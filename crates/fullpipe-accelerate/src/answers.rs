//! Resets clients that answer the probes for a dead worker, even if a firewall drops their answers.
//!
//! ```text
//!   keeper ─ probe ─► client ─ answer ─┬─► packet socket ─► keeper ─ reset ─► client
//!                                      └─► INPUT ─► the kernel, which answers with a reset
//! ```
//!
//! The kernel answers with a reset only if the answer passes INPUT. A firewall that drops packets unknown to
//! connection tracking (`ct state invalid`) also drops the answer. The keeper therefore receives a copy of
//! it, which contains the sequence number that the client expects in a reset (RFC 5961 section 3). The keeper
//! has no other source for this number. A client that receives two resets has already closed its connection
//! when the second one arrives.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use fullpipe_linux::Error;
use fullpipe_tcp::reset_for;
use fullpipe_tcp::wire::{Flags, Headers, Packet, SeqNum};
use fullpipe_units::{Duration, Instant};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

use crate::{probes, system};

/// Time to wait for answers after the last probe: several round trips.
const PATIENCE: Duration = Duration::from_secs(3);
/// EtherTypes of IPv4 and IPv6.
const ETH_P_IP: u16 = 0x0800;
const ETH_P_IPV6: u16 = 0x86dd;
/// Maximum number of bytes that are read from a packet, enough for its headers.
const MOST_BYTES: usize = 256;
/// Maximum length of an IP packet.
const MOST_PACKET: usize = 65_535;
/// Maximum number of answers that are handled at once.
const AT_ONCE: usize = 1_000;

/// Maximum number of bytes that a client may have received beyond those that it has acknowledged in the table.
/// The value is larger than a send buffer.
const MOST_RECEIVED: i32 = 32 << 20;

/// Instructions of the classic packet filter (`linux/filter.h`).
const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const LOAD_BYTE: u16 = 0x30;
const LOAD_HALF_INDEXED: u16 = 0x48;
const LOAD_BYTE_INDEXED: u16 = 0x50;
const LOAD_IPV4_HEADER_LEN: u16 = 0xb1;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_SET: u16 = 0x45;
const RETURN: u16 = 0x06;

/// Protocol number of TCP.
const TCP: u32 = 6;

/// Packet socket that receives the answers of probed clients.
#[derive(Debug)]
pub(crate) struct Answers {
    socket: Socket,
    listen: SocketAddr,
    /// Clients that have not answered, and the sequence numbers of their probes.
    clients: BTreeMap<SocketAddr, SeqNum>,
    until: Instant,
}

impl Answers {
    /// Waits for answers of `clients` until several round trips after `probed`, the time of the last probe.
    pub(crate) fn new(
        listen: SocketAddr,
        clients: BTreeMap<SocketAddr, SeqNum>,
        probed: Instant,
    ) -> Result<Self, Error> {
        let failed = |error: io::Error| system("open a packet socket", error);
        let kind = if listen.is_ipv4() { ETH_P_IP } else { ETH_P_IPV6 };
        // The protocol number of a packet socket is in network byte order.
        let protocol = Protocol::from(i32::from(kind.to_be()));
        let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(protocol)).map_err(failed)?;
        // Packets that arrived before the filter was attached are checked again when they are read.
        let of =
            |Instruction { code, skip, value }: Instruction| SockFilter::new(code, skip[0], skip[1], value);
        let program: Vec<SockFilter> = filter(listen).into_iter().map(of).collect();
        socket.attach_filter(&program).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        Ok(Self { socket, listen, clients, until: probed + PATIENCE })
    }

    /// Returns whether `client` has been probed but has not answered.
    pub(crate) fn awaits(&self, client: SocketAddr) -> bool {
        self.clients.contains_key(&client)
    }

    /// Returns whether no further answers are expected.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.clients.is_empty() || now >= self.until
    }

    /// Sends a reset in response to each answer that has arrived. Returns the number of resets.
    pub(crate) fn reset(&mut self, raw: &Socket) -> usize {
        let (mut room, mut count) = ([0; MOST_BYTES], 0);
        for _ in 0..AT_ONCE {
            let len = match (&self.socket).read(&mut room) {
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            let Some((client, ack, reset)) = reset_of(&room[..len], self.listen) else { continue };
            if self.clients.get(&client).is_some_and(|probe| answers(ack, *probe)) {
                self.clients.remove(&client);
                probes::send(raw, client.ip(), reset.as_bytes());
                count += 1;
            }
        }
        count
    }
}

impl AsFd for Answers {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns whether a packet with the ACK number `ack` may answer a probe with the sequence number `probe`. A
/// client that has not received the SYN-ACK of the dead worker repeats its SYN, and its next packet belongs to a
/// connection of the kernel, which has random sequence numbers.
fn answers(ack: SeqNum, probe: SeqNum) -> bool {
    (1..=MOST_RECEIVED).contains(&ack.distance_from(probe))
}

/// Returns the client that sent a packet to `listen`, the ACK number of the packet, and the reset to send in
/// response.
fn reset_of(bytes: &[u8], listen: SocketAddr) -> Option<(SocketAddr, SeqNum, Headers)> {
    // Only the beginning of the packet was read.
    let packet = Packet::parse_cut(bytes, MOST_PACKET).ok()?;
    if packet.to != listen || packet.segment.flags.has(Flags::SYN) {
        return None;
    }
    let reset = reset_for(&packet.segment)?;
    Some((packet.from, packet.segment.ack, Headers::between(&reset, packet.to, packet.from)?))
}

/// An instruction of the classic packet filter (`struct sock_filter`).
#[derive(Clone, Copy, Debug)]
struct Instruction {
    code: u16,
    /// Numbers of instructions to skip: the first if the condition is true, the second if it is false.
    skip: [u8; 2],
    value: u32,
}

/// Returns a filter for packets to `listen` that are neither SYNs nor resets. The packets begin with the IP
/// header.
fn filter(listen: SocketAddr) -> Vec<Instruction> {
    /// Offset of the flags in a TCP header.
    const FLAGS: u32 = 13;
    const SYN_OR_RST: u32 = 2 | 4;
    let port = u32::from(listen.port());
    // Each check loads a value, and compares it with another value or requires that certain bits are zero.
    let mut checks: Vec<(u16, u32, u16, u32)> = Vec::new();
    match listen.ip() {
        IpAddr::V4(address) => {
            checks.push((LOAD_BYTE, 9, JUMP_EQUAL, TCP));
            checks.push((LOAD_WORD, 16, JUMP_EQUAL, address.to_bits()));
            checks.push((LOAD_HALF_INDEXED, 2, JUMP_EQUAL, port));
            checks.push((LOAD_BYTE_INDEXED, FLAGS, JUMP_SET, SYN_OR_RST));
        }
        IpAddr::V6(address) => {
            checks.push((LOAD_BYTE, 6, JUMP_EQUAL, TCP));
            for (at, word) in (24..).step_by(4).zip(address.octets().as_chunks::<4>().0) {
                checks.push((LOAD_WORD, at, JUMP_EQUAL, u32::from_be_bytes(*word)));
            }
            checks.push((LOAD_HALF, 42, JUMP_EQUAL, port));
            checks.push((LOAD_BYTE, 40 + FLAGS, JUMP_SET, SYN_OR_RST));
        }
    }
    let instruction = |code, skip, value| Instruction { code, skip, value };
    let mut program = Vec::new();
    if listen.is_ipv4() {
        program.push(instruction(LOAD_IPV4_HEADER_LEN, [0, 0], 0));
    }
    let count = checks.len();
    for (number, (load, at, jump, value)) in checks.into_iter().enumerate() {
        // The last two instructions reject and accept the packet. If the last check succeeds, it skips the
        // rejection.
        let (to_refusal, is_last) = (2 * (count - number - 1) as u8, number + 1 == count);
        let next = u8::from(is_last);
        let skip = if jump == JUMP_EQUAL { [next, to_refusal] } else { [to_refusal, next] };
        program.push(instruction(load, [0, 0], at));
        program.push(instruction(jump, skip, value));
    }
    program.push(instruction(RETURN, [0, 0], 0));
    program.push(instruction(RETURN, [0, 0], MOST_BYTES as u32));
    program
}

#[cfg(test)]
mod tests {
    use fullpipe_tcp::wire::{Checksums, SeqNum};

    use super::*;
    use crate::test_packets;

    fn packet(to: &str, flags: Flags) -> Vec<u8> {
        let from = if to.starts_with('[') { "[2001:db8::7]:40000" } else { "198.51.100.7:40000" };
        test_packets::packet(&test_packets::segment(SeqNum(1_000), SeqNum(77), flags), from, to)
    }

    /// Runs a filter as the kernel does; returns whether the packet is accepted.
    fn accepts(program: &[Instruction], packet: &[u8]) -> bool {
        let number = |at: usize, len: usize| {
            packet[at..at + len].iter().fold(0, |sum, octet| sum << 8 | u32::from(*octet))
        };
        let (mut value, mut index, mut next) = (0, 0, 0);
        loop {
            let Instruction { code, skip: [if_true, if_false], value: k } = program[next];
            next += 1;
            match code {
                LOAD_WORD => value = number(k as usize, 4),
                LOAD_HALF => value = number(k as usize, 2),
                LOAD_BYTE => value = number(k as usize, 1),
                LOAD_HALF_INDEXED => value = number(index + k as usize, 2),
                LOAD_BYTE_INDEXED => value = number(index + k as usize, 1),
                LOAD_IPV4_HEADER_LEN => index = 4 * (number(k as usize, 1) & 15) as usize,
                JUMP_EQUAL => next += usize::from(if value == k { if_true } else { if_false }),
                JUMP_SET => next += usize::from(if value & k != 0 { if_true } else { if_false }),
                RETURN => return k > 0,
                _ => panic!("{code:#x}"),
            }
        }
    }

    /// Of all packets that the host receives, the filter accepts only packets that a client of the port sends
    /// on an existing connection.
    #[test]
    fn only_answers_pass_the_filter() {
        for (listen, others) in [
            ("203.0.113.5:443", ["203.0.113.6:443", "203.0.113.5:444"]),
            ("[2001:db8::5]:443", ["[2001:db8::6]:443", "[2001:db8::5]:444"]),
        ] {
            let program = filter(listen.parse().expect("an address"));
            assert!(accepts(&program, &packet(listen, Flags::ACK)), "{listen}");
            assert!(accepts(&program, &packet(listen, Flags::ACK.with(Flags::FIN))), "{listen}");
            for flags in [Flags::SYN, Flags::RST, Flags::RST.with(Flags::ACK)] {
                assert!(!accepts(&program, &packet(listen, flags)), "{listen} {flags:?}");
            }
            for other in others {
                assert!(!accepts(&program, &packet(other, Flags::ACK)), "{other}");
            }
            let mut udp = packet(listen, Flags::ACK);
            udp[if listen.starts_with('[') { 6 } else { 9 }] = 17;
            assert!(!accepts(&program, &udp), "{listen}");
        }
    }

    /// The reset has the sequence number that the client expects.
    #[test]
    fn an_answer_is_reset_with_its_own_numbers() {
        let listen: SocketAddr = "203.0.113.5:443".parse().expect("an address");
        let (client, ack, reset) = reset_of(&packet("203.0.113.5:443", Flags::ACK), listen).expect("a reset");
        assert_eq!(ack, SeqNum(77));
        let reset = Packet::parse(reset.as_bytes(), Checksums::Verify).expect("a packet");
        assert_eq!((reset.from, reset.to), (listen, client));
        assert!(reset.segment.flags.has(Flags::RST));
        assert_eq!(reset.segment.seq, SeqNum(77));
        assert!(reset_of(&packet("203.0.113.5:444", Flags::ACK), listen).is_none());
        assert!(reset_of(&packet("203.0.113.5:443", Flags::SYN), listen).is_none());
    }

    /// An answer acknowledges at least the octets that the client had acknowledged, and at most a send buffer more.
    /// Other packets belong to a new connection of the client.
    #[test]
    fn packets_of_new_connections_are_no_answers() {
        let probe = SeqNum(u32::MAX - 10);
        for (ack, expected) in [(0, false), (1, true), (1_000_000, true), (1 << 30, false), (1 << 31, false)]
        {
            assert_eq!(answers(probe.plus(ack), probe), expected, "{ack}");
        }
    }
}
