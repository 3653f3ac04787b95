//! What a capture at the sending host shows of a run: every packet that leaves it or arrives there, headers only.
//!
//! ```text
//!   sender's TCP ──►──┬──► path ──► receiver
//!                     │ the tap: departures with the path's verdict, arrivals as they come
//!   sender's TCP ◄──┴──◄── path ◄──
//! ```
//!
//! The simulator's packets have a payload of zeros, of which nothing is kept; times are those of the trace.
//!
//! A file is of the sending host alone: an analyser that is shown both ends takes each packet for a retransmission of itself.

use std::net::{Ipv4Addr, SocketAddrV4};

use fullpipe_tcp::wire::{Headers, Segment};
use fullpipe_units::Instant;

pub use fullpipe_path::Verdict;

/// Address of the sender's end in every world: from the range for benchmarks (RFC 2544), which no network uses.
pub const SENDER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// Address of the receiver's end.
pub const RECEIVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
/// Flow `n` sends from port `FIRST_PORT + n`.
pub const FIRST_PORT: u16 = 40_000;
/// And all flows to this one: iperf3's, so that every tool takes the traffic for what it is.
pub const LISTEN_PORT: u16 = 5_201;

/// The most bytes of a packet that are kept: more than IP and TCP headers take with all their options.
pub const SNAPLEN: usize = 96;

/// A packet that passed the sending host's wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturedPacket<'a> {
    /// When, on the clock of the trace.
    pub at: Instant,
    /// It leaves the host.
    pub outbound: bool,
    /// Its first bytes, from the IP header on, at most [`SNAPLEN`].
    pub headers: &'a [u8],
    /// Its length in bytes, from the IP header on.
    pub len: u32,
    /// What the path made of it when it entered; a queue behind a shaper may still drop it.
    pub verdict: Verdict,
}

/// Where captured packets go.
pub trait Capture {
    /// Takes the next packet.
    fn packet(&mut self, packet: &CapturedPacket<'_>);
}

/// Sees segments pass the hosts. A type parameter of the simulator's loop, so that an unused tap costs nothing.
pub trait Tap {
    /// A wire segment of `flow` has entered the path, or been dropped on entering it.
    fn leaves(&mut self, at: Instant, flow: u32, segment: &Segment, verdict: Verdict);

    /// A segment of `flow` has come over the path.
    fn arrives(&mut self, at: Instant, flow: u32, segment: &Segment);

    /// At the receiving host: a segment of `flow` has come over the path.
    fn reaches(&mut self, _at: Instant, _flow: u32, _segment: &Segment) {}

    /// At the receiving host: a segment of `flow` is on its way back, unless the path has dropped it.
    fn answers(&mut self, _at: Instant, _flow: u32, _segment: &Segment, _verdict: Verdict) {}
}

/// Sees nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTap;

impl Tap for NoTap {
    #[inline]
    fn leaves(&mut self, _: Instant, _: u32, _: &Segment, _: Verdict) {}

    #[inline]
    fn arrives(&mut self, _: Instant, _: u32, _: &Segment) {}
}

/// Turns segments into the packets that they would be on a wire.
#[derive(Debug)]
pub struct Wire<'a, C: Capture>(
    /// Where they go.
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
