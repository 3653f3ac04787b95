//! Where stacks differ and none is wrong: numbers and rules that are settings of a connection, not of its congestion control.

use fullpipe_units::Duration;

/// A stack's choices; the kernel's unless asked for others ([0002](../../../docs/decisions/0002-kernel-profile-first.md)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunables {
    /// How the retransmission timeout follows from RTT and its variation.
    pub rto: RtoRule,
    /// A retransmission lost in fast recovery is congestion anew and reduces the window again, at most once a round trip (RFC 5681
    /// section 4.3). In Linux it is that only in the repair after a timeout.
    pub lost_retransmission_reduces: bool,
}

/// The retransmission timeout without back-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RtoRule {
    /// `SRTT + max(floor, 4 RTTVAR)`, the variation taken once a round trip, and slower when the RTT falls: Linux.
    Slack {
        /// Smallest `4 RTTVAR` that enters (`net.ipv4.tcp_rto_min_us`).
        floor: Duration,
    },
    /// `max(floor, SRTT + max(granularity, 4 RTTVAR))` from every sample (RFC 6298 section 2).
    Rfc6298 {
        /// Smallest timeout; the RFC wants one second (2.4).
        floor: Duration,
        /// The clock's tick (`G`).
        granularity: Duration,
    },
}

impl Tunables {
    /// Linux 6.18.
    pub const LINUX: Self = Self {
        rto: RtoRule::Slack { floor: Duration::from_millis(200) },
        lost_retransmission_reduces: false,
    };

    /// The latest RFCs.
    pub const RFC: Self = Self {
        rto: RtoRule::Rfc6298 { floor: Duration::from_secs(1), granularity: Duration::from_millis(1) },
        lost_retransmission_reduces: true,
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
