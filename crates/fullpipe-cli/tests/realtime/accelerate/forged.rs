//! Packets that no ordinary client sends: with forged source addresses, or without a connection.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use fullpipe::tcp::wire::{Checksums, Flags, Headers, Packet, Segment, SeqNum, SynOptions};
use fullpipe::units::Ecn;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RawProtocol, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, recv,
    sendto, socket_with,
};

/// Raw socket for packets with any source address. It requires root's privileges.
pub(super) struct Forger(OwnedFd);

impl Forger {
    pub(super) fn new(v6: bool) -> io::Result<Self> {
        // With protocol number 255, packets are written including their IP headers.
        let whole = Protocol::from_raw(RawProtocol::new(255).expect("not zero"));
        let family = if v6 { AddressFamily::INET6 } else { AddressFamily::INET };
        Ok(Self(socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, Some(whole))?))
    }

    /// Sends a packet to `to`. The packet begins with its IP header.
    pub(super) fn send(&self, packet: &[u8], to: SocketAddr) -> io::Result<()> {
        // For a raw socket, the destination port must be zero.
        sendto(&self.0, packet, SendFlags::empty(), &SocketAddr::new(to.ip(), 0))?;
        Ok(())
    }
}

/// Raw socket that receives copies of the TCP packets to this host, over IPv4.
pub(super) struct Receiver(OwnedFd);

impl Receiver {
    /// Returns a socket on which a call waits at most `longest`.
    pub(super) fn new(longest: std::time::Duration) -> io::Result<Self> {
        let socket =
            socket_with(AddressFamily::INET, SocketType::RAW, SocketFlags::CLOEXEC, Some(ipproto::TCP))?;
        set_socket_timeout(&socket, Timeout::Recv, Some(longest))?;
        Ok(Self(socket))
    }

    /// Returns the next segment to `to`.
    pub(super) fn next_to(&self, to: SocketAddr) -> io::Result<Segment> {
        let mut room = [0; 2_048];
        loop {
            let (len, _) = recv(&self.0, &mut room[..], RecvFlags::empty())?;
            match Packet::parse(&room[..len], Checksums::Skip) {
                Ok(packet) if packet.to == to => return Ok(packet.segment),
                _ => {}
            }
        }
    }
}

/// Returns a segment without data, with its headers.
pub(super) fn segment(from: SocketAddr, to: SocketAddr, flags: Flags, seq: u32, ack: u32) -> Headers {
    let options = SynOptions { mss: 1_460, window_scale: Some(7), sack_permitted: true };
    let segment = Segment {
        seq: SeqNum(seq),
        ack: SeqNum(ack),
        len: 0,
        window: 64_240,
        flags,
        timestamps: None,
        syn: flags.has(Flags::SYN).then_some(options),
        sack: Default::default(),
        ecn: Ecn::NotEct,
    };
    Headers::between(&segment, from, to).expect("one family")
}

/// Returns a SYN with its headers.
pub(super) fn syn(from: SocketAddr, to: SocketAddr, seq: u32) -> Headers {
    segment(from, to, Flags::SYN, seq, 0)
}
