//! Settings that differ between correct TCP stacks, except those of congestion control.

use fullpipe_units::Duration;

/// Settings that differ between TCP stacks; the defaults are those of Linux
/// ([0002](../../../docs/decisions/0002-kernel-profile-first.md)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunables {
    /// Rule that derives the retransmission timeout from the RTT and its variation.
    pub rto: RtoRule,
    /// Whether a lost retransmission in fast recovery counts as new congestion and reduces the window again,
    /// at most once per round trip (RFC 5681 section 4.3). Linux does so only in recovery after a timeout.
    pub lost_retransmission_reduces: bool,
    /// Whether ACKs and timers also check whether the application fills the window
    /// (draft-ietf-ccwg-bbr section 4.1.2.4). Linux checks only when the application writes.
    pub app_limited_without_write: bool,
    /// Whether a small transmission waits for an ACK that is about to make room for more (TSO deferral,
    /// `tcp_tso_should_defer`). No RFC requires it.
    pub tso_deferral: bool,
}

/// Rule for the retransmission timeout, excluding back-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RtoRule {
    /// Linux's rule: `SRTT + max(floor, 4 RTTVAR)`. RTTVAR decays once per round trip, and follows a falling
    /// RTT more slowly.
    Slack {
        /// Minimum value of `4 RTTVAR` (`net.ipv4.tcp_rto_min_us`).
        floor: Duration,
    },
    /// RFC 6298 section 2: `max(floor, SRTT + max(granularity, 4 RTTVAR))`, updated with every RTT sample.
    Rfc6298 {
        /// Minimum retransmission timeout; RFC 6298 section 2.4 requires one second.
        floor: Duration,
        /// Clock granularity (`G` in RFC 6298).
        granularity: Duration,
    },
}

impl Tunables {
    /// Settings of Linux 6.18.
    pub const LINUX: Self = Self {
        rto: RtoRule::Slack { floor: Duration::from_millis(200) },
        lost_retransmission_reduces: false,
        app_limited_without_write: false,
        tso_deferral: true,
    };

    /// Settings of the latest RFCs.
    pub const RFC: Self = Self {
        rto: RtoRule::Rfc6298 { floor: Duration::from_secs(1), granularity: Duration::from_millis(1) },
        lost_retransmission_reduces: true,
        app_limited_without_write: true,
        tso_deferral: false,
    };
}

impl Default for Tunables {
    fn default() -> Self {
        Self::LINUX
    }
}

impl Default for RtoRule {
    fn default() -> Self {
        Tunables::LINUX.rto
    }
}
