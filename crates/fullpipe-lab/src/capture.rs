//! Packet captures at the sending host, with the headers of all packets that the host sends or receives.
//!
//! ```text
//!   sender's TCP ──►──┬──► path ──► receiver
//!                     │ tap: departures with the path's verdict, arrivals
//!   sender's TCP ◄──┴──◄── path ◄──
//! ```
//!
//! The payload of simulated packets consists of zeros and is not kept. The times of packets and of trace rows
//! are read from the same clock.
//!
//! A capture contains only the packets at the sending host. If a capture also contained the packets at the
//! receiving host, an analyser would mistake the second copy of each packet for a retransmission.

use std::net::{Ipv4Addr, SocketAddrV4};

use fullpipe_tcp::wire::{Headers, Segment};
use fullpipe_units::Instant;

pub use fullpipe_path::Verdict;

/// IPv4 address of the sending host in simulated and emulated runs. It is from the range that RFC 2544
/// reserves for benchmarking, so no real network uses it.
pub const SENDER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// IPv4 address of the receiving host in simulated and emulated runs.
pub const RECEIVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
/// TCP source port of flow 0; flow `n` sends from port `FIRST_PORT + n`.
pub const FIRST_PORT: u16 = 40_000;
/// TCP destination port of all flows: the iperf3 port 5201, so that every tool recognises the traffic.
pub const LISTEN_PORT: u16 = 5_201;

/// Maximum number of bytes captured per packet, large enough for IP and TCP headers with all options.
pub const SNAPLEN: usize = 96;

/// A packet that crossed the network interface of the sending host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturedPacket<'a> {
    /// Time at which the packet crossed the interface, on the clock of the trace.
    pub at: Instant,
    /// Whether the sending host sent the packet (`true`) or received it (`false`).
    pub outbound: bool,
    /// First bytes of the packet, at most [`SNAPLEN`], starting with the IP header.
    pub headers: &'a [u8],
    /// Length of the packet in bytes, including the IP header.
    pub len: u32,
    /// Verdict of the path when the packet entered it; a queue behind a shaper may still drop the packet
    /// later.
    pub verdict: Verdict,
}

/// Consumer of captured packets, such as a writer of capture files.
pub trait Capture {
    /// Consumes the next captured packet.
    fn packet(&mut self, packet: &CapturedPacket<'_>);
}

/// Observer of the segments that the hosts send and receive. The event loop is compiled once with an observer
/// and once without, so that a run without an observer has no additional cost.
pub trait Tap {
    /// Called when the sending host has sent a wire segment of `flow`, including segments that the path
    /// dropped on entry.
    fn leaves(&mut self, at: Instant, flow: u32, segment: &Segment, verdict: Verdict);

    /// Called when a segment of `flow` has arrived at the sending host.
    fn arrives(&mut self, at: Instant, flow: u32, segment: &Segment);

    /// Called when a segment of `flow` has arrived at the receiving host.
    fn reaches(&mut self, _at: Instant, _flow: u32, _segment: &Segment) {}

    /// Called when the receiving host has sent a segment of `flow`; `_verdict` indicates whether the path
    /// dropped the segment.
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

/// A tap that converts segments into the packets that would appear on a real network, and passes them to a
/// capture.
#[derive(Debug)]
pub struct Wire<'a, C: Capture>(
    /// Consumer of the converted packets.
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
