//! Settings that differ between correct TCP stacks, except those of congestion control.
//!
//! Each setting has a range within which a connection keeps its guarantees ([`Tunables::check`]): every byte
//! arrives exactly once, the sender respects the windows, and a connection on a dead path stops sending.

use core::fmt;
use core::ops::RangeInclusive;

use fullpipe_units::Duration;

use crate::cc::Repair;

/// Shortest and longest time after which a SYN-ACK may be retransmitted early. A shorter time would cause retransmissions
/// to clients that reply slightly late because they are busy.
pub(crate) const SYN_ACK_EARLY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// Settings that differ between TCP stacks; the defaults are those of Linux
/// ([0002](../../../docs/decisions/0002-kernel-profile-first.md)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunables {
    /// Rule that derives the retransmission timeout from the RTT and its variation.
    pub rto: RtoRule,
    /// Floor of [`RtoRule::Slack`] for a peer that acknowledges promptly: after four ACKs of single segments with a delay
    /// of at most 50 ms, and until the first later ACK. Other peers, and peers without SACK, have the floor of the rule. A
    /// value that is not below that floor has no effect. `None` selects the default of the congestion control algorithm
    /// ([`Algorithm::rto_prompt`](crate::cc::Algorithm::rto_prompt)).
    pub rto_prompt: Option<Duration>,
    /// Upper bound of the retransmission timeout, including back-off (`net.ipv4.tcp_rto_max_ms`).
    pub rto_max: Duration,
    /// Number of consecutive expiries before the retransmission timeout starts to double. In RFC 6298 section
    /// 5.5, it doubles after the first expiry.
    pub rto_linear: u32,
    /// Congestion window in segments after the first retransmission timeout for the outstanding data, unless
    /// the window was smaller. After a repeated timeout, the window is always one segment, because the path
    /// may be dead. RFC 5681 section 3.1 requires one segment.
    pub loss_window: u32,
    /// Minimum congestion window in segments, except in recovery after a retransmission timeout and where PRR
    /// reduces the window. With 0, the congestion control algorithm sets the minimum.
    pub least_window: u32,
    /// Rule for the timeout of the tail loss probe.
    pub probe_timeout: ProbeTimeout,
    /// Rule for the reordering window of RACK.
    pub reo_wnd: ReoWnd,
    /// Time after which an unanswered SYN-ACK is retransmitted early, if no RTT of an earlier connection to the client
    /// is known. If an RTT is known, the time is 1.5 times this RTT, but at least 100 ms and at most 1 s. The early
    /// retransmission happens once, in addition to [`Retries::syn_ack`], and starts the timeout of one second. With
    /// `None`, that timeout starts with the first SYN-ACK.
    pub syn_ack_early: Option<Duration>,
    /// Copies of segments that the congestion control algorithm may request. Only surge requests copies.
    pub copies: Repair,
    /// Number of retransmissions before a connection gives up.
    pub retries: Retries,
    /// Whether a lost retransmission in fast recovery counts as new congestion and reduces the window again,
    /// at most once per round trip (RFC 5681 section 4.3). Linux does so only in recovery after a timeout.
    pub lost_retransmission_reduces: bool,
    /// Whether the connection also checks at ACKs and timers whether the application fills the window
    /// (draft-ietf-ccwg-bbr section 4.1.2.4). Linux checks only when the application writes.
    pub app_limited_without_write: bool,
    /// Whether a small transmission waits for an ACK that is about to make room for more (TSO deferral,
    /// `tcp_tso_should_defer`). No RFC requires TSO deferral.
    pub tso_deferral: bool,
    /// Rule for the bursts of a paced sender.
    pub bursts: Bursts,
}

/// Rule for the bursts of a paced sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bursts {
    /// Linux's rule: a transmission contains about 1 ms of data at the pacing rate, and more on short paths (TSO
    /// autosizing). A late sender catches up by at most half the time of a transmission.
    Linux,
    /// A transmission contains a limited amount of data. A sender that could not send on time sends the data
    /// that it has missed.
    Limited {
        /// Maximum time that a transmission takes at the pacing rate. A transmission of one or two segments may take
        /// longer.
        length: Duration,
        /// Maximum time for which a sender catches up.
        missed: Duration,
    },
}

impl Bursts {
    /// Rule for a sender in real time whose thread may wake up late: transmissions are as long as Linux's, and the
    /// sender makes up for a delay of up to 20 ms.
    ///
    /// A sender that does not make up for its delays measures its own delayed rate as the bandwidth, and becomes slower
    /// every round trip. In virtual time, surge downloads 8 MB at 100 Mbit/s with a queue of one BDP in 1.8 s at an RTT
    /// of 200 ms, and in 0.9 s at 50 ms. Times in seconds at 200 and 50 ms, if each wake-up is up to 5 or 15 ms late
    /// (means of three seeds):
    ///
    /// | makes up for | 5 ms late | 15 ms late |
    /// |---|---|---|
    /// | half a transmission (Linux) | 11.2, 10.4 | 33, 30 |
    /// | 1 ms | 10.2, 11.2 | 47, 42 |
    /// | 4 ms | 3.5, 1.2 | 28, 25 |
    /// | 10 ms | 3.2, 1.3 | 3.1, 1.3 |
    /// | 20 ms | 3.2, 1.3 | 2.0, 1.2 |
    ///
    /// At 50 ms and with delays of up to 15 ms, bursts after a delay overflow the queue: 12 % of the packets are dropped
    /// with 10 ms, and 14 % with 20 ms.
    pub const REAL_TIME: Self =
        Self::Limited { length: Duration::from_secs(1), missed: Duration::from_millis(20) };
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

/// Rule for the timeout of the tail loss probe (PTO, RFC 8985 section 7.2). The retransmission timeout is an
/// upper bound of the PTO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeTimeout {
    /// Multiple of SRTT in percent, to which 2 ms are added.
    pub srtt_percent: u32,
    /// Minimum difference between the probe timeout and the sum of SRTT and four times the mean deviation of
    /// the RTT. This minimum raises the timeout at most to the two SRTT of RFC 8985. With `None`, the
    /// deviation has no effect.
    pub floor: Option<Duration>,
    /// ACK delay of the peer, which replaces the 2 ms if a single segment is in flight (`MAX_ACK_DELAY` in
    /// RFC 8985).
    pub ack_delay: Duration,
}

/// Rule for the reordering window of RACK (RFC 8985 section 6.2 step 4). Each round trip with a D-SACK widens
/// the window by its initial size, up to SRTT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReoWnd {
    /// Initial reordering window as a share of the minimum RTT, in units of 1/[`ReoWnd::UNIT`].
    pub share: u32,
    /// Whether the window stays zero until the sender has seen reordering or a D-SACK. If false, and if no reordering
    /// has been seen, the window is zero only during recovery and while at least three segments are SACKed.
    pub on_evidence: bool,
}

impl ReoWnd {
    /// Number of units in the minimum RTT.
    pub const UNIT: u32 = 64;
}

/// Numbers of retransmissions before a connection gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// Number of retransmissions of a SYN, including four that are sent one second apart before the interval starts to
    /// double (`net.ipv4.tcp_syn_retries` + `net.ipv4.tcp_syn_linear_timeouts`).
    pub syn: u32,
    /// Number of retransmissions of a SYN-ACK (`net.ipv4.tcp_synack_retries`).
    pub syn_ack: u32,
    /// Number of retransmission timeouts, or of window probes, without an answer (`net.ipv4.tcp_retries2`).
    pub data: u32,
    /// Number of retransmission timeouts without an answer after the application has closed the socket
    /// (`net.ipv4.tcp_orphan_retries`).
    pub orphan: u32,
}

impl Tunables {
    /// Settings of Linux 6.18.
    pub const LINUX: Self = Self {
        rto: RtoRule::Slack { floor: Duration::from_millis(200) },
        rto_prompt: None,
        rto_max: Duration::from_secs(120),
        rto_linear: 0,
        loss_window: 1,
        least_window: 0,
        probe_timeout: ProbeTimeout { srtt_percent: 200, floor: None, ack_delay: Duration::from_millis(200) },
        reo_wnd: ReoWnd { share: ReoWnd::UNIT / 4, on_evidence: false },
        syn_ack_early: None,
        copies: Repair::DEFAULT,
        retries: Retries { syn: 10, syn_ack: 5, data: 15, orphan: 8 },
        lost_retransmission_reduces: false,
        app_limited_without_write: false,
        tso_deferral: true,
        bursts: Bursts::Linux,
    };

    /// Settings of the latest RFCs.
    pub const RFC: Self = Self {
        rto: RtoRule::Rfc6298 { floor: Duration::from_secs(1), granularity: Duration::from_millis(1) },
        lost_retransmission_reduces: true,
        app_limited_without_write: true,
        tso_deferral: false,
        ..Self::LINUX
    };

    /// Checks that each setting is within its range.
    ///
    /// # Errors
    /// Returns an error that names the first setting out of its range, and the range.
    pub fn check(&self) -> Result<(), TunableError> {
        let ms = Duration::from_millis;
        let (RtoRule::Slack { floor } | RtoRule::Rfc6298 { floor, .. }) = self.rto;
        within("rto_min", floor, ms(10)..=ms(1_000), "10ms to 1s")?;
        let prompt = self.rto_prompt.unwrap_or(ms(100));
        within("rto_min_prompt", prompt, ms(50)..=ms(1_000), "50ms to 1s")?;
        within("rto_max", self.rto_max, ms(1_000)..=ms(120_000), "1s to 120s")?;
        within("rto_linear", self.rto_linear, 0..=2, "0 to 2")?;
        within("loss_window", self.loss_window, 1..=10, "1 to 10 segments")?;
        within("least_window", self.least_window, 0..=60, "0 to 60 segments")?;
        let ProbeTimeout { srtt_percent, floor, ack_delay } = self.probe_timeout;
        within("tlp_factor", f64::from(srtt_percent) / 100.0, 1.0..=2.0, "1 to 2")?;
        within("tlp_floor", floor.unwrap_or_default(), ms(0)..=ms(200), "0ms to 200ms")?;
        within("tlp_ack_delay", ack_delay, ms(5)..=ms(200), "5ms to 200ms")?;
        let share = f64::from(self.reo_wnd.share) / f64::from(ReoWnd::UNIT);
        within("reo_wnd", share, 0.015_625..=1.0, "0.015625 to 1")?;
        let early = self.syn_ack_early.unwrap_or(ms(1_000));
        within("syn_ack_early", early, SYN_ACK_EARLY.0..=SYN_ACK_EARLY.1, "100ms to 1s")?;
        within("tail_copies", self.copies.tail_copies, 0..=2, "0 to 2")?;
        let Retries { syn, syn_ack, data, orphan } = self.retries;
        within("syn_retries", syn, 1..=10, "1 to 10")?;
        within("syn_ack_retries", syn_ack, 1..=10, "1 to 10")?;
        within("retries", data, 3..=15, "3 to 15")?;
        within("orphan_retries", orphan, 1..=15, "1 to 15")
    }
}

/// Checks that a setting is in its range; `allowed` is the range as a string.
pub(crate) fn within<T: PartialOrd + fmt::Display>(
    key: &'static str,
    value: T,
    range: RangeInclusive<T>,
    allowed: &'static str,
) -> Result<(), TunableError> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(TunableError { key, value: value.to_string(), allowed })
}

/// Error for a setting that is out of its range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunableError {
    key: &'static str,
    value: String,
    allowed: &'static str,
}

impl TunableError {
    /// Returns the range of the setting, as a string.
    pub const fn allowed(&self) -> &'static str {
        self.allowed
    }
}

impl fmt::Display for TunableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} is out of range", self.key, self.value)
    }
}

impl std::error::Error for TunableError {}

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

#[cfg(test)]
mod tests {
    use super::*;

    /// Both predefined sets are within the ranges. For a setting beyond either end of its range, the error
    /// names the setting and the range.
    #[test]
    fn ranges_are_checked() {
        const LINUX: Tunables = Tunables::LINUX;
        assert_eq!((LINUX.check(), Tunables::RFC.check()), (Ok(()), Ok(())));
        let ms = Duration::from_millis;
        let rto = |floor| Tunables { rto: RtoRule::Slack { floor }, ..LINUX };
        let probe = |probe_timeout| Tunables { probe_timeout, ..LINUX };
        let retries = |retries| Tunables { retries, ..LINUX };
        for (tunables, message, allowed) in [
            (rto(ms(9)), "rto_min 9ms is out of range", "10ms to 1s"),
            (rto(ms(1_100)), "rto_min 1.1s is out of range", "10ms to 1s"),
            (
                Tunables { rto_prompt: Some(ms(49)), ..LINUX },
                "rto_min_prompt 49ms is out of range",
                "50ms to 1s",
            ),
            (Tunables { rto_max: ms(999), ..LINUX }, "rto_max 999ms is out of range", "1s to 120s"),
            (Tunables { rto_linear: 3, ..LINUX }, "rto_linear 3 is out of range", "0 to 2"),
            (Tunables { loss_window: 0, ..LINUX }, "loss_window 0 is out of range", "1 to 10 segments"),
            (Tunables { least_window: 61, ..LINUX }, "least_window 61 is out of range", "0 to 60 segments"),
            (
                probe(ProbeTimeout { srtt_percent: 99, ..LINUX.probe_timeout }),
                "tlp_factor 0.99 is out of range",
                "1 to 2",
            ),
            (
                probe(ProbeTimeout { floor: Some(ms(201)), ..LINUX.probe_timeout }),
                "tlp_floor 201ms is out of range",
                "0ms to 200ms",
            ),
            (
                probe(ProbeTimeout { ack_delay: ms(4), ..LINUX.probe_timeout }),
                "tlp_ack_delay 4ms is out of range",
                "5ms to 200ms",
            ),
            (
                Tunables { reo_wnd: ReoWnd { share: 65, on_evidence: true }, ..LINUX },
                "reo_wnd 1.015625 is out of range",
                "0.015625 to 1",
            ),
            (
                Tunables { syn_ack_early: Some(ms(99)), ..LINUX },
                "syn_ack_early 99ms is out of range",
                "100ms to 1s",
            ),
            (
                Tunables { copies: Repair { tail_copies: 3, ..Repair::NONE }, ..LINUX },
                "tail_copies 3 is out of range",
                "0 to 2",
            ),
            (retries(Retries { syn: 11, ..LINUX.retries }), "syn_retries 11 is out of range", "1 to 10"),
            (
                retries(Retries { syn_ack: 0, ..LINUX.retries }),
                "syn_ack_retries 0 is out of range",
                "1 to 10",
            ),
            (retries(Retries { data: 120, ..LINUX.retries }), "retries 120 is out of range", "3 to 15"),
            (
                retries(Retries { orphan: 16, ..LINUX.retries }),
                "orphan_retries 16 is out of range",
                "1 to 15",
            ),
        ] {
            let error = tunables.check().expect_err(message);
            assert_eq!((error.to_string().as_str(), error.allowed()), (message, allowed));
        }
    }
}
