//! Returns the SYNs that were forwarded to a dead worker to the kernel, so that clients need not retransmit
//! them.
//!
//! A packet that a raw socket sends to an address of this host traverses the loopback device and reaches the
//! kernel's listener.

use std::net::SocketAddr;

use fullpipe_linux::Tun;
use fullpipe_tcp::wire::{Checksums, Flags, Headers, Packet, Segment};
use socket2::Socket;

use crate::probes::send;

/// Maximum number of bytes that are read from a packet. The headers of a SYN have at most 100 octets.
const MOST_BYTES: usize = 256;

/// Takes all packets that wait at the device, and sends the SYNs among them to the kernel. The other packets
/// belong to lost connections and are dropped. Returns the number of SYNs.
pub(crate) fn give_back(tun: &Tun, listen: SocketAddr, raw: &Socket) -> usize {
    let mut room = [0; MOST_BYTES];
    let mut count = 0;
    while let Some(packet) = tun.next_packet(&mut room) {
        if let Some(headers) = syn(packet, listen) {
            send(raw, listen.ip(), headers.as_bytes());
            count += 1;
        }
    }
    count
}

/// Returns the packet of a SYN to `listen` with complete checksums; `None` for other packets.
fn syn(packet: &[u8], listen: SocketAddr) -> Option<Headers> {
    // The checksum of a packet from this host is only partly computed.
    let packet = Packet::parse(packet, Checksums::Skip).ok()?;
    let flags = packet.segment.flags;
    let others = [Flags::ACK, Flags::RST, Flags::FIN];
    let opens = flags.has(Flags::SYN) && !others.into_iter().any(|flag| flags.has(flag));
    let segment = Segment { len: 0, ..packet.segment };
    (opens && packet.to == listen).then(|| Headers::between(&segment, packet.from, packet.to))?
}

#[cfg(test)]
mod tests {
    use fullpipe_tcp::wire::SeqNum;

    use super::*;
    use crate::test_packets;

    const LISTEN: &str = "203.0.113.5:443";

    fn packet(to: &str, flags: Flags) -> Vec<u8> {
        let segment = test_packets::segment(SeqNum(1_000), SeqNum(0), flags);
        test_packets::packet(&segment, "198.51.100.7:40000", to)
    }

    /// Only SYNs to the service are returned to the kernel, with complete checksums.
    #[test]
    fn only_syns_of_the_service_are_given_back() {
        let listen: SocketAddr = LISTEN.parse().expect("an address");
        let whole = packet(LISTEN, Flags::SYN);
        let mut partial = whole.clone();
        partial[36..38].fill(0);
        let found = syn(&partial, listen).expect("a SYN");
        assert_eq!(found.as_bytes(), whole);
        assert!(Packet::parse(found.as_bytes(), Checksums::Verify).is_ok());
        for other in [
            packet("203.0.113.5:22", Flags::SYN),
            packet(LISTEN, Flags::SYN.with(Flags::ACK)),
            packet(LISTEN, Flags::ACK),
            packet(LISTEN, Flags::RST),
            whole[..30].to_vec(),
        ] {
            assert!(syn(&other, listen).is_none(), "{other:?}");
        }
    }
}
