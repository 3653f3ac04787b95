//! SYNs with forged source addresses.

use std::io;
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;

use fullpipe::tcp::wire::{Flags, Headers, Segment, SeqNum, SynOptions};
use fullpipe::units::Ecn;
use rustix::net::{
    AddressFamily, Protocol, RawProtocol, SendFlags, SocketFlags, SocketType, sendto, socket_with,
};

/// Raw socket for packets with any source address. It requires root's privileges.
pub(super) struct Forger(OwnedFd);

impl Forger {
    pub(super) fn new() -> io::Result<Self> {
        // With protocol number 255, packets are written including their IP headers.
        let raw = Protocol::from_raw(RawProtocol::new(255).expect("not zero"));
        Ok(Self(socket_with(AddressFamily::INET, SocketType::RAW, SocketFlags::CLOEXEC, Some(raw))?))
    }

    /// Sends a packet to `to`. The packet begins with its IP header.
    pub(super) fn send(&self, packet: &[u8], to: SocketAddrV4) -> io::Result<()> {
        sendto(&self.0, packet, SendFlags::empty(), &to)?;
        Ok(())
    }
}

/// Returns a SYN with its headers.
pub(super) fn syn(from: SocketAddrV4, to: SocketAddrV4, seq: u32) -> Headers {
    let segment = Segment {
        seq: SeqNum(seq),
        ack: SeqNum(0),
        len: 0,
        window: 64_240,
        flags: Flags::SYN,
        timestamps: None,
        syn: Some(SynOptions { mss: 1_460, window_scale: Some(7), sack_permitted: true }),
        sack: Default::default(),
        ecn: Ecn::NotEct,
    };
    Headers::between(&segment, from.into(), to.into()).expect("one family")
}
