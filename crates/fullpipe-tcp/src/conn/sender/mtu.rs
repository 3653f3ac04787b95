//! The largest packet that the path takes (RFC 1191, RFC 8201).
//!
//! ```text
//!   ICMP "too big" ──`icmp.rs`: quotes what is outstanding──► smaller segments; what was larger is retransmitted, and no window pays for it
//!   no answer to three timeouts ──if asked for──► smaller segments, in case a router swallows what is too big and says nothing
//! ```
//!
//! A path's MTU is never taken to have grown again while the connection lasts: there is no search upwards (RFC 4821).

use fullpipe_units::Instant;

use super::Sender;
use crate::IpVersion;
use crate::cc::Signal;
use crate::tx::build;

/// No path is believed to be narrower (`net.ipv4.route.min_pmtu`): a forged message shall not make segments of nothing.
const LEAST_IPV4: u64 = 552;
/// Every path for IPv6 takes as much (RFC 8200 section 5).
const LEAST_IPV6: u64 = 1280;
/// Payload and TCP options of the smallest segment: 68 bytes, the least MTU of IPv4, hold them and the TCP header.
const LEAST_MSS: u64 = 68 - 20;
/// Where packets seem to vanish: the payload tried first, then half of it and so on (`tcp_base_mss`, `tcp_mtu_probe_floor`).
const BLACK_HOLE_MSS: u64 = 1024;
const BLACK_HOLE_FLOOR: u64 = 48;
/// Timeouts in a row that make a black hole likely (`tcp_retries1`).
pub(super) const BLACK_HOLE_TIMEOUTS: u32 = 3;

impl Sender {
    /// A packet exceeds the `mtu` of a link, in bytes with the IP header, while data may flow. True if segments become smaller: a
    /// message can make them nothing else, and no smaller than a floor.
    pub(in crate::conn) fn narrow_path(&mut self, now: Instant, mtu: u64) -> bool {
        let mtu = match self.config.ip {
            IpVersion::V4 => mtu.max(LEAST_IPV4),
            IpVersion::V6 if mtu < LEAST_IPV6 => return false,
            IpVersion::V6 => mtu,
        };
        let mss = mtu.saturating_sub(self.config.ip.headers() + self.agreed.option_bytes());
        let smaller = mss < self.path_mss;
        if smaller {
            self.cut_segments_to(now, mss);
        }
        smaller
    }

    /// PMTU-4: nothing was answered, and perhaps because of its size.
    #[cold]
    pub(super) fn suspect_black_hole(&mut self, now: Instant) {
        let half = (self.mss / 2).max(BLACK_HOLE_FLOOR);
        let mss = if self.mss > BLACK_HOLE_MSS { BLACK_HOLE_MSS } else { half };
        if mss < self.mss {
            self.cut_segments_to(now, mss);
        }
    }

    /// What is larger than `mss` and outstanding is retransmitted, in pieces. It was not lost to congestion: the windows stay, in
    /// segments as in Linux.
    fn cut_segments_to(&mut self, now: Instant, mss: u64) {
        self.path_mss = mss;
        self.recovery.board.mark_larger_than(mss);
        self.resize_segments(now);
    }

    /// The peer has offered a larger window than ever: segments that a small one had cut grow with it.
    #[inline(never)]
    pub(super) fn on_largest_window(&mut self, now: Instant, window: u64) {
        self.peer.max = window;
        if self.mss < self.path_mss {
            self.resize_segments(now);
        }
    }

    /// Payload of a full segment: what the path allows, and no more than half of the largest window that the peer has offered,
    /// so that there is always an ACK under way (Linux: `tcp_sync_mss`).
    pub(super) fn bounded_mss(&self) -> u64 {
        build::bound_to_half_window(self.path_mss, self.peer.max).max(LEAST_MSS - self.agreed.option_bytes())
    }

    fn resize_segments(&mut self, now: Instant) {
        let mss = self.bounded_mss();
        if mss != self.mss {
            self.mss = mss;
            self.signal(now, Signal::MssChanged);
            self.refresh_control(now);
        }
    }
}
