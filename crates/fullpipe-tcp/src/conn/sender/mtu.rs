//! Path MTU: the largest packet that the path can carry (RFC 1191, RFC 8201).
//!
//! ```text
//!   ICMP "too big" ──`icmp.rs`: quotes outstanding data──► smaller segments; larger ones are retransmitted,
//!                                                          and no window is reduced
//!   three unanswered timeouts ──if configured──► smaller segments, in case a router drops large packets
//!                                                without an ICMP message
//! ```
//!
//! A connection never raises the path MTU again, because it has no upward search (RFC 4821).

use fullpipe_units::Instant;

use super::Sender;
use crate::IpVersion;
use crate::cc::Signal;
use crate::tx::build;

/// Smallest path MTU accepted for IPv4, in bytes (`net.ipv4.route.min_pmtu`). The limit prevents forged ICMP
/// messages from making segments tiny.
const LEAST_IPV4: u64 = 552;
/// Smallest MTU of an IPv6 path, in bytes (RFC 8200 section 5).
const LEAST_IPV6: u64 = 1280;
/// Smallest MSS in bytes, including TCP options: the smallest IPv4 MTU of 68 minus 20.
const LEAST_MSS: u64 = 68 - 20;
/// Payload length of a segment to try first after a suspected path MTU black hole, in bytes (`tcp_base_mss`).
/// After that, the length is halved, down to `tcp_mtu_probe_floor`.
const BLACK_HOLE_MSS: u64 = 1024;
const BLACK_HOLE_FLOOR: u64 = 48;
/// Number of consecutive timeouts that suggest a path MTU black hole (`tcp_retries1`).
pub(super) const BLACK_HOLE_TIMEOUTS: u32 = 3;

impl Sender {
    /// Handles an ICMP report that a packet exceeded a link MTU of `mtu` bytes, including the IP header.
    /// Returns whether segments become smaller. A report can only make segments smaller, and only down to a
    /// lower limit.
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

    /// Reduces the segment size after consecutive timeouts that large segments may have caused (PMTU-4).
    #[cold]
    pub(super) fn suspect_black_hole(&mut self, now: Instant) {
        let half = (self.mss / 2).max(BLACK_HOLE_FLOOR);
        let mss = if self.mss > BLACK_HOLE_MSS { BLACK_HOLE_MSS } else { half };
        if mss < self.mss {
            self.cut_segments_to(now, mss);
        }
    }

    /// Limits segments to `mss`, and retransmits larger outstanding segments in pieces. The larger segments
    /// were not lost to congestion, so the windows keep their size in segments, as in Linux.
    fn cut_segments_to(&mut self, now: Instant, mss: u64) {
        self.path_mss = mss;
        self.recovery.board.mark_larger_than(mss);
        self.resize_segments(now);
    }

    /// Records `window` if it is the peer's largest window so far. If the previous largest window limited the
    /// segment size, segments then become larger.
    #[inline(never)]
    pub(super) fn on_largest_window(&mut self, now: Instant, window: u64) {
        self.peer.max = window;
        if self.mss < self.path_mss {
            self.resize_segments(now);
        }
    }

    /// Returns the payload length of a full-sized segment, in bytes: the length that the path allows, but at
    /// most half of the peer's largest window, so that an ACK is always in flight (Linux: `tcp_sync_mss`).
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
