//! Packet captures at the sending host: the headers of every packet that the host sends or receives.
//!
//! ```text
//!   sender's TCP ──►──┬──► path ──► receiver
//!                     │ tap: departures with the path's verdict, arrivals
//!   sender's TCP ◄──┴──◄── path ◄──
//! ```
//!
//! The payload of simulated packets consists of zeros and is not kept. Timestamps are those of the trace.
//!
//! A capture contains only the packets at the sending host. If it contained those of both hosts, an analyser
//! would mistake the second copy of each packet for a retransmission.

use std::net::{Ipv4Addr, SocketAddrV4};

use fullpipe_tcp::wire::{Headers, Segment};
use fullpipe_units::Instant;

pub use fullpipe_path::Verdict;

/// Address of the sender in every world, from the range reserved for benchmarking (RFC 2544), which no
/// network uses.
pub const SENDER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// Address of the receiver in every world.
pub const RECEIVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
/// Port of the first flow's sender; flow `n` sends from `FIRST_PORT + n`.
pub const FIRST_PORT: u16 = 40_000;
/// Destination port of all flows: the iperf3 port, so that every tool recognises the traffic.
pub const LISTEN_PORT: u16 = 5_201;

/// Maximum number of bytes captured per packet: more than IP and TCP headers with all options.
pub const SNAPLEN: usize = 96;

/// A packet that crossed the network interface of the sending host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturedPacket<'a> {
    /// Time on the clock of the trace.
    pub at: Instant,
    /// Whether the sending host sent the packet; otherwise it received the packet.
    pub outbound: bool,
    /// First bytes of the packet from the IP header on, at most [`SNAPLEN`].
    pub headers: &'a [u8],
    /// Length in bytes, from the IP header on.
    pub len: u32,
    /// The path's verdict when the packet entered it; a queue behind a shaper may still drop the packet.
    pub verdict: Verdict,
}

/// Destination of captured packets.
pub trait Capture {
    /// Takes the next packet.
    fn packet(&mut self, packet: &CapturedPacket<'_>);
}

/// Observer of the segments that the hosts send and receive. It is a type parameter of the event loop, so
/// that an unused tap costs nothing.
pub trait Tap {
    /// Called when a wire segment of `flow` has entered the path, or was dropped at its entry.
    fn leaves(&mut self, at: Instant, flow: u32, segment: &Segment, verdict: Verdict);

    /// Called when a segment of `flow` has arrived at the sending host.
    fn arrives(&mut self, at: Instant, flow: u32, segment: &Segment);

    /// Called when a segment of `flow` has arrived at the receiving host.
    fn reaches(&mut self, _at: Instant, _flow: u32, _segment: &Segment) {}

    /// Called when the receiving host has sent a segment of `flow`; `_verdict` tells whether the path dropped
    /// the segment.
    fn answers(&mut self, _at: Instant, _flow: u32, _segment: &Segment, _verdict: Verdict) {}
}

/// A tap that ignores all segments.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTap;

impl Tap for NoTap {
    #[inline]
    fn leaves(&mut self, _: Instant, _: u32, _: &Segment, _: Verdict) {}

    #[inline]
    fn arrives(&mut self, _: Instant, _: u32, _: &Segment) {}
}

/// A tap that converts segments into the packets that would appear on the wire.
#[derive(Debug)]
pub struct Wire<'a, C: Capture>(
    /// Destination of the packets.
    pub &'a mut C,
);

impl<C: Capture> Wire<'_, C> {
    fn packet(&mut self, at: Instant, flow: u32, segment: &Segment, outbound: bool, verdict: Verdict) {
        let near = SocketAddrV4::new(SENDER, FIRST_PORT.wrapping_add(flow as u16));
        let far = SocketAddrV4::new(RECEIVER, LISTEN_PORT);
        let (from, to) = if outbound { (near, far) } else { (far, near) };
        let headers = Headers::of(segment, from, to);
        let len = segment.header_len() + segment.len;
        self.0.packet(&CapturedPacket { at, outbound, headers: headers.as_bytes(), len, verdict });
    }
}

impl<C: Capture> Tap for Wire<'_, C> {
    fn leaves(&mut self, at: Instant, flow: u32, segment: &Segment, verdict: Verdict) {
        self.packet(at, flow, segment, true, verdict);
    }

    fn arrives(&mut self, at: Instant, flow: u32, segment: &Segment) {
        self.packet(at, flow, segment, false, Verdict::Accepted);
    }
}
