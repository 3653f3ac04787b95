//! Path MTU: the largest packet that the path takes (RFC 1191, RFC 8201).
//!
//! ```text
//!   ICMP "too big" ──`icmp.rs`: quotes outstanding data──► smaller segments; larger ones are retransmitted,
//!                                                          and no window is reduced
//!   three unanswered timeouts ──if configured──► smaller segments, in case a router drops large packets
//!                                                without an ICMP message
//! ```
//!
//! A connection never raises the path MTU again: there is no upward search (RFC 4821).

use fullpipe_units::Instant;

use super::Sender;
use crate::IpVersion;
use crate::cc::Signal;
use crate::tx::build;

/// Smallest path MTU believed for IPv4 (`net.ipv4.route.min_pmtu`), in bytes, so that a forged message cannot
/// make segments tiny.
const LEAST_IPV4: u64 = 552;
/// Smallest MTU of an IPv6 path, in bytes (RFC 8200 section 5).
const LEAST_IPV6: u64 = 1280;
/// Payload and TCP options of the smallest segment, in bytes: the smallest IPv4 MTU of 68 less 20.
const LEAST_MSS: u64 = 68 - 20;
/// First payload to try when packets seem to vanish, in bytes; it is then halved (`tcp_base_mss`,
/// `tcp_mtu_probe_floor`).
const BLACK_HOLE_MSS: u64 = 1024;
const BLACK_HOLE_FLOOR: u64 = 48;
/// Timeouts in a row that suggest a path MTU black hole (`tcp_retries1`).
pub(super) const BLACK_HOLE_TIMEOUTS: u32 = 3;

impl Sender {
    /// Handles a report that a packet exceeds a link's `mtu`, in bytes with the IP header. Returns true if
    /// segments become smaller; a message can do nothing else, and cannot go below a floor.
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

    /// Shrinks segments after timeouts without an answer, which their size may have caused (PMTU-4).
    #[cold]
    pub(super) fn suspect_black_hole(&mut self, now: Instant) {
        let half = (self.mss / 2).max(BLACK_HOLE_FLOOR);
        let mss = if self.mss > BLACK_HOLE_MSS { BLACK_HOLE_MSS } else { half };
        if mss < self.mss {
            self.cut_segments_to(now, mss);
        }
    }

    /// Limits segments to `mss` and retransmits larger outstanding ones in pieces. They were not lost to
    /// congestion, so the windows keep their size in segments, as in Linux.
    fn cut_segments_to(&mut self, now: Instant, mss: u64) {
        self.path_mss = mss;
        self.recovery.board.mark_larger_than(mss);
        self.resize_segments(now);
    }

    /// Records the largest window so far; segments that a smaller window had limited grow with it.
    #[inline(never)]
    pub(super) fn on_largest_window(&mut self, now: Instant, window: u64) {
        self.peer.max = window;
        if self.mss < self.path_mss {
            self.resize_segments(now);
        }
    }

    /// Returns the payload of a full segment: what the path allows, and at most half of the largest window
    /// that the peer has offered, so that an ACK is always in flight (Linux: `tcp_sync_mss`).
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
