//! Answers the packets that were forwarded to a dead worker and that it has not read.
//!
//! ```text
//!   SYN             ─► the kernel's listener, so that the client need not retransmit it
//!   other packets   ─► a reset to the client, because their connection is lost
//! ```
//!
//! A packet that a raw socket sends to an address of this host traverses the loopback device and reaches the
//! kernel's listener.
//!
//! Without the resets, a client whose final ACK answers a SYN cookie would not learn that its connection is lost: the
//! stack keeps no state for it, so the shared table of live connections does not contain it
//! ([`probes`](crate::probes)).

use std::net::{IpAddr, SocketAddr};

use fullpipe_linux::Tun;
use fullpipe_tcp::reset_for;
use fullpipe_tcp::wire::{Flags, Headers, Packet, Segment};
use socket2::Socket;

use crate::probes::send;

/// Maximum number of bytes that are read from a packet, enough for its headers.
const MOST_BYTES: usize = 256;
/// Maximum length of an IP packet.
const MOST_PACKET: usize = 65_535;

/// Takes all packets that wait at the device, and answers them.
pub(crate) fn answer_all(tun: &Tun, listen: SocketAddr, raw: &Socket) {
    let mut room = [0; MOST_BYTES];
    while let Some(packet) = tun.next_packet(&mut room) {
        if let Some((to, answer)) = answer(packet, listen) {
            send(raw, to, answer.as_bytes());
        }
    }
}

/// Returns the packet that answers `packet`, and its destination: this host for a SYN, and the client for other packets
/// to `listen`. Returns `None` for packets that are not answered.
fn answer(packet: &[u8], listen: SocketAddr) -> Option<(IpAddr, Headers)> {
    // Only the beginning of the packet was read, and this function does not change the payload. The checksum of a
    // packet from this host is only partly computed.
    let packet = Packet::parse_cut(packet, MOST_PACKET).ok()?;
    if packet.to != listen {
        return None;
    }
    let flags = packet.segment.flags;
    let others = [Flags::ACK, Flags::RST, Flags::FIN];
    if flags.has(Flags::SYN) && !others.into_iter().any(|flag| flags.has(flag)) {
        let syn = Segment { len: 0, ..packet.segment };
        return Some((listen.ip(), Headers::between(&syn, packet.from, packet.to)?));
    }
    let reset = reset_for(&packet.segment)?;
    Some((packet.from.ip(), Headers::between(&reset, packet.to, packet.from)?))
}

#[cfg(test)]
mod tests {
    use fullpipe_tcp::wire::{Checksums, SeqNum};

    use super::*;
    use crate::test_packets;

    const LISTEN: &str = "203.0.113.5:443";
    const CLIENT: &str = "198.51.100.7:40000";
    /// ACK number of the client's packets.
    const ACK: SeqNum = SeqNum(77);

    fn packet(to: &str, flags: Flags) -> Vec<u8> {
        let segment = test_packets::segment(SeqNum(1_000), ACK, flags);
        test_packets::packet(&segment, CLIENT, to)
    }

    /// A SYN to the service is returned to the kernel, with complete checksums.
    #[test]
    fn a_syn_is_given_back() {
        let listen: SocketAddr = LISTEN.parse().expect("an address");
        let whole = packet(LISTEN, Flags::SYN);
        let mut partial = whole.clone();
        partial[36..38].fill(0);
        let (to, syn) = answer(&partial, listen).expect("a SYN");
        assert_eq!((to, syn.as_bytes()), (listen.ip(), &whole[..]));
        assert!(Packet::parse(syn.as_bytes(), Checksums::Verify).is_ok());
    }

    /// The client of any other packet is reset, with the sequence number that it expects.
    #[test]
    fn the_client_of_another_packet_is_reset() {
        let listen: SocketAddr = LISTEN.parse().expect("an address");
        for flags in [Flags::ACK, Flags::ACK.with(Flags::FIN), Flags::SYN.with(Flags::ACK)] {
            let (to, reset) = answer(&packet(LISTEN, flags), listen).expect("a reset");
            assert_eq!(to.to_string(), "198.51.100.7");
            let reset = Packet::parse(reset.as_bytes(), Checksums::Verify).expect("a packet");
            assert_eq!((reset.from, reset.to.to_string()), (listen, CLIENT.into()));
            assert!(reset.segment.flags.has(Flags::RST) && reset.segment.seq == ACK, "{flags:?}");
        }
    }

    #[test]
    fn resets_and_packets_to_others_are_not_answered() {
        let listen: SocketAddr = LISTEN.parse().expect("an address");
        for other in [
            packet("203.0.113.5:22", Flags::SYN),
            packet("203.0.113.5:22", Flags::ACK),
            packet(LISTEN, Flags::RST),
            packet(LISTEN, Flags::RST.with(Flags::ACK)),
            packet(LISTEN, Flags::SYN)[..30].to_vec(),
        ] {
            assert!(answer(&other, listen).is_none(), "{other:?}");
        }
    }
}
