//! Congestion control: algorithms that turn send, delivery and loss events into a window and a pacing rate.
//!
//! ```text
//!   recovery/ ──events─►  CongestionControl  ──decision──►  tx/
//!   (what was sent,       (one algorithm       (cwnd, pacing,
//!    delivered, lost)      per file)              quantum)
//! ```
//!
//! A controller sees only [`Context`], samples and signals, and returns only [`Control`]. A controller marks
//! no record lost, sends nothing and reads no clock. The connection reads `control()` after every callback.
//!
//! Amounts are in bytes. Controllers taken from the kernel count segments: internally they use whole
//! segments, because the rounding is part of their behaviour, and at the interface they multiply by
//! [`Context::mss`].

use core::fmt;
use core::str::FromStr;

use fullpipe_units::{Bytes, Draws, Duration, Instant, Probability, Rate};

mod bbr1;
mod bbr3;
mod bic;
mod cubic;
mod gain;
mod launch;
mod reno;
mod slow_start;
mod surge;
#[cfg(test)]
mod testing;
mod vegas;
mod window;
mod windowed;

pub use bbr1::Bbr1;
pub use bbr3::Bbr3;
pub use bic::Bic;
pub use cubic::Cubic;
pub use launch::Launch;
pub use reno::Reno;
pub use surge::Surge;
pub use vegas::Vegas;
pub use window::INITIAL_SEGMENTS;

/// Congestion-control algorithm of one connection.
pub trait CongestionControl: fmt::Debug + Send {
    /// Handles a transmission that leaves at `sent.departure`. The connection calls this method for the first
    /// transmission after a time with nothing in flight, or for every transmission if the controller
    /// [follows](CongestionControl::follows_sends) transmissions.
    fn on_send(&mut self, cx: &Context, sent: &Sent) {
        let _ = (cx, sent);
    }

    /// Returns whether [`CongestionControl::on_send`] must be called for every transmission. No controller in
    /// this crate needs these calls, which together would cost as much as sending itself.
    fn follows_sends(&self) -> bool {
        false
    }

    /// Handles a sent record that has been marked lost. The connection calls this method once per lost
    /// record.
    fn on_lost(&mut self, cx: &Context, lost: &Lost) {
        let _ = (cx, lost);
    }

    /// Handles a [`Signal`]: the start or end of a phase of the connection, or another event.
    fn on_signal(&mut self, cx: &Context, signal: Signal) {
        let _ = (cx, signal);
    }

    /// Handles an ACK that delivered data or caused a record to be marked lost. The connection calls this
    /// method once per ACK: after `on_lost` for the records that the ACK marked lost, and after the signals
    /// that the ACK caused.
    fn on_ack(&mut self, cx: &Context, sample: &AckSample);

    /// Returns the controller's current decision: window, pacing and recovery algorithm.
    fn control(&self) -> Control;

    /// Returns the controller's phase and internal values, for traces only.
    fn status(&self) -> Status;

    /// Returns the controller's conclusions about the path. The default implementation returns an empty
    /// assessment, for controllers that do not distinguish congestive from random loss.
    fn assessment(&self) -> Assessment {
        Assessment::default()
    }
}

/// State of the connection that a congestion controller may read in a callback.
#[derive(Clone, Debug)]
pub struct Context {
    /// Time of the event that is being handled.
    pub now: Instant,
    /// Payload length of a full-sized segment, in bytes.
    pub mss: u64,
    /// Stream offset of the first unacknowledged byte.
    pub snd_una: u64,
    /// Stream offset of the next byte to be sent for the first time.
    pub snd_nxt: u64,
    /// Bytes estimated to be in the network: sent, but neither delivered nor marked lost (RFC 6675's `pipe`).
    pub inflight: u64,
    /// `snd_nxt - snd_una` in bytes (RFC 5681's `FlightSize`).
    pub flight_size: u64,
    /// Whether the congestion window has limited transmission in the current round.
    pub cwnd_limited: bool,
    /// Largest number of bytes outstanding at any time in the current round.
    pub max_inflight: u64,
    /// Whether the connection is application-limited, that is, the application offers less than the path
    /// could carry.
    pub app_limited: bool,
    /// Bytes sent since the start of the connection, including retransmissions.
    pub sent: u64,
    /// Bytes delivered (acknowledged cumulatively or selectively) since the start of the connection.
    pub delivered: u64,
    /// Time at which `delivered` last grew.
    pub delivered_time: Instant,
    /// Bytes marked lost since the start of the connection.
    pub lost: u64,
    /// Bytes sent as copies since the start of the connection ([`Repair`]); included in `sent`.
    pub copied: u64,
    /// Smoothed RTT (RFC 6298); `None` before the first RTT sample.
    pub srtt: Option<Duration>,
    /// RTT variation (RFC 6298).
    pub rttvar: Duration,
    /// Minimum RTT of the last five minutes; `None` before the first RTT sample.
    pub min_rtt: Option<Duration>,
    /// The peer's receive window in bytes.
    pub rwnd: u64,
    /// Whether the connection is in fast recovery, or in the round trip in which PRR reduces the window for
    /// an ECN mark. Slow start after a timeout is not fast recovery.
    pub in_recovery: bool,
    /// Whether the connection is recovering from a retransmission timeout.
    pub in_loss: bool,
    /// Whether selective acknowledgement was negotiated.
    pub has_sack: bool,
    /// Whether timestamps were negotiated.
    pub has_timestamps: bool,
    /// Earliest time at which the pacer releases the next transmission.
    pub next_departure: Instant,
    /// Random number generator of this connection.
    pub rng: Draws,
}

impl Context {
    /// Returns the context of a new connection, before its first event.
    pub fn fresh(mss: u64, rng: Draws) -> Self {
        Self {
            now: Instant::ZERO,
            mss,
            snd_una: 0,
            snd_nxt: 0,
            inflight: 0,
            flight_size: 0,
            cwnd_limited: false,
            max_inflight: 0,
            app_limited: false,
            sent: 0,
            delivered: 0,
            delivered_time: Instant::ZERO,
            lost: 0,
            copied: 0,
            srtt: None,
            rttvar: Duration::ZERO,
            min_rtt: None,
            rwnd: 0,
            in_recovery: false,
            in_loss: false,
            has_sack: true,
            has_timestamps: true,
            next_departure: Instant::ZERO,
            rng,
        }
    }

    /// Converts `bytes` to whole segments, rounded down.
    pub fn segments(&self, bytes: u64) -> u64 {
        bytes / self.mss
    }
}

/// Information about the path that is available before the first byte, from the handshake or from path memory
/// ([`memory`](crate::memory)).
#[derive(Clone, Debug, Default)]
pub struct Hints {
    /// RTT measured during the handshake, or the stored RTT of the path if Karn's rule forbids a sample.
    pub rtt: Option<Duration>,
    /// Variation of `rtt`.
    pub rttvar: Duration,
    /// Delivery rate that an earlier connection has reached on this path.
    pub rate: Option<Rate>,
    /// Data in flight at `rate` when the queue is empty.
    pub cwnd: Option<Bytes>,
    /// Rate of the bottleneck, as measured by an earlier connection.
    pub bottleneck: Option<Rate>,
    /// Initial congestion window in bytes; `None` means RFC 6928's ten segments.
    pub initial_cwnd: Option<u64>,
    /// Window and pacing rate of the first flight; `initial_cwnd` then contains the same window. `None`
    /// selects the controller's own rate.
    pub launch: Option<Launch>,
    /// Congestion window in segments after a retransmission timeout
    /// ([`Tunables::loss_window`](crate::Tunables::loss_window)); `None` means one segment.
    pub loss_window: Option<u32>,
    /// Exit rule of slow start, for Reno and CUBIC; `None` selects the algorithm's default.
    pub slow_start: Option<SlowStart>,
    /// Random loss that earlier connections have measured on this path; zero if it is not known.
    pub loss: Probability,
    /// Copies that the controller may request ([`Tunables::copies`](crate::Tunables::copies)).
    pub copies: Repair,
}

impl Hints {
    /// Returns the pacing rate of the first flight, or `None` for the controller's own rate.
    pub(crate) fn launch_rate(&self, cx: &Context) -> Option<Rate> {
        self.launch.map(|launch| launch.pacing_rate(cx.mss, cx.srtt.or(self.rtt)))
    }
}

/// Conclusions that a controller has drawn about its path, for path memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Assessment {
    /// Rate of the bottleneck, if the controller has seen that the path limits the connection. A rate that
    /// the application or the peer's window limited is not included.
    pub bottleneck: Option<Rate>,
    /// Whether a loss or mark in the first flight was a sign of congestion.
    pub launch_congested: bool,
}

/// Rule by which slow start ends before the first loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SlowStart {
    /// Slow start without early exit (RFC 5681); Reno's default.
    Standard,
    /// HyStart, as in Linux; CUBIC's default.
    HyStart,
    /// HyStart++ (RFC 9406).
    HyStartPlusPlus,
}

impl SlowStart {
    /// All slow-start exit rules.
    pub const ALL: [Self; 3] = [Self::Standard, Self::HyStart, Self::HyStartPlusPlus];

    /// List of the rule names, for hints in error messages.
    pub const KNOWN: &'static str = "known: standard, hystart, hystart++";

    /// Returns the name of the rule in experiment files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::HyStart => "hystart",
            Self::HyStartPlusPlus => "hystart++",
        }
    }
}

impl FromStr for SlowStart {
    type Err = UnknownSlowStart;

    fn from_str(name: &str) -> Result<Self, UnknownSlowStart> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| UnknownSlowStart(name.into()))
    }
}

/// Error for a name that is not one of [`SlowStart::ALL`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownSlowStart(String);

impl fmt::Display for UnknownSlowStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown slow start '{}' ({})", self.0, SlowStart::KNOWN)
    }
}

impl std::error::Error for UnknownSlowStart {}

/// One transmission, as reported to a congestion controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Stream offset of the first byte sent.
    pub offset: u64,
    /// Length of the transmission, in bytes.
    pub len: u64,
    /// Reason for the transmission.
    pub kind: SentKind,
    /// Whether the transmission is the first one after nothing was in flight.
    pub first_after_idle: bool,
    /// Time without transmissions before this one; zero for the first transmission of the connection.
    pub idle: Duration,
    /// Scheduled departure time of the transmission.
    pub departure: Instant,
}

/// Reason for a transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentKind {
    /// First transmission of the data range.
    New,
    /// Retransmission of a range that was marked lost.
    Retransmission,
    /// Tail loss probe, which elicits an ACK.
    Probe,
    /// Copy of a segment that is not marked lost ([`Repair`]).
    Copy,
}

/// Record of sent data that was marked lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Stream offset of the first byte of the lost record.
    pub offset: u64,
    /// Length of the lost record, in bytes.
    pub len: u64,
    /// Bytes in flight just after the record was sent, including the record.
    pub tx_in_flight: u64,
    /// Bytes marked lost since the record was sent, including the record.
    pub lost_since_sent: u64,
    /// Whether the flow was application-limited when the record was sent.
    pub app_limited: bool,
    /// Whether the record begins a new lost range, because the preceding record in offset order was not
    /// marked lost in the same batch.
    pub starts_new_range: bool,
    /// Mechanism that marked the record lost.
    pub cause: LossCause,
}

/// Mechanism that marks a record lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossCause {
    /// RACK: a segment sent later was delivered (RFC 8985).
    Rack,
    /// Three duplicate ACKs without SACK (RFC 6582).
    DupAck,
    /// Retransmission timeout (RFC 6298).
    Rto,
}

/// Event or change of phase of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Fast recovery begins after a loss. `Context::inflight` already excludes the bytes marked lost.
    EnterRecovery,
    /// Recovery ends: all data outstanding at its start has been acknowledged.
    ExitRecovery,
    /// The retransmission timer has expired. `Context::inflight` already excludes the bytes marked lost.
    Timeout {
        /// Whether this is the first expiry for the outstanding data; if so, the controller saves its state
        /// for an undo.
        first: bool,
    },
    /// The last timeout was spurious.
    SpuriousTimeout,
    /// The last fast recovery was spurious.
    SpuriousRecovery,
    /// A tail loss probe repaired a loss. The window must be reduced once, although there was no recovery.
    TlpRepaired,
    /// All records that were marked lost by the current event have been reported.
    LossBatchEnd,
    /// The peer echoed an ECN mark; reported at most once per round trip.
    EcnEcho,
    /// The segment size changed.
    MssChanged,
    /// Transmission resumes after an idle period with nothing in flight.
    Idle {
        /// Duration of the idle period, in which nothing was in flight.
        idle: Duration,
        /// Current retransmission timeout, the time unit of the decay in RFC 5681 section 4.1.
        rto: Duration,
    },
}

/// Measurements taken from one ACK.
#[derive(Clone, Copy, Debug)]
pub struct AckSample {
    /// Number of bytes newly acknowledged cumulatively, excluding bytes that had already been acknowledged
    /// selectively.
    pub cum_acked: u64,
    /// Number of bytes newly acknowledged selectively.
    pub sacked: u64,
    /// Number of segments newly delivered, that is, acknowledged cumulatively or selectively.
    pub acked_segments: u64,
    /// Whether the ACK advanced `snd_una`.
    pub una_advanced: bool,
    /// Whether the window may grow, because the ACK advanced `snd_una`, or delivered data on a path that
    /// reorders by more than three segments (Linux: `tcp_may_raise_cwnd`). On such a path, SACKs are not a
    /// sign of loss.
    pub may_grow: bool,
    /// Whether nothing was known to be missing before this ACK: no SACK, no loss, no retransmission in
    /// flight (Linux: `TCP_CA_Open`).
    pub was_open: bool,
    /// Bytes marked lost by this ACK.
    pub newly_lost: u64,
    /// Bytes in flight before this ACK was handled.
    pub prior_inflight: u64,
    /// Bytes in flight just after the newest delivered record was sent, including the record.
    pub tx_in_flight: u64,
    /// Bytes marked lost since the newest delivered record was sent.
    pub lost_since_sent: u64,
    /// Total number of bytes delivered when the newest delivered record was sent. This number identifies the
    /// round of the sample.
    pub prior_delivered: u64,
    /// Bytes delivered since the newest delivered record was sent: the numerator of the delivery rate.
    pub delivered: u64,
    /// The longer of the send interval and the ACK interval: the denominator of the delivery rate. `None` if
    /// the ACK carries no valid rate sample, because nothing was delivered or the interval is shorter than
    /// `min_rtt`.
    pub interval: Option<Duration>,
    /// RTT of the newest delivered record; `None` if it was retransmitted.
    pub rtt: Option<Duration>,
    /// RTT of the oldest delivered record, which includes the peer's ACK delay.
    pub oldest_rtt: Option<Duration>,
    /// Time at which the newest delivered record was sent.
    pub newest_sent_at: Instant,
    /// Whether the newest delivered record was sent only once.
    pub first_transmission: bool,
    /// Whether the flow was application-limited when the newest delivered record was sent.
    pub app_limited: bool,
    /// Whether the ACK shows that an earlier retransmission was unnecessary.
    pub spurious: bool,
    /// Whether this ACK begins a new packet-timed round trip.
    pub round_start: bool,
}

impl AckSample {
    /// Returns the delivery rate, or `None` if the sample is not valid.
    pub fn delivery_rate(&self) -> Option<Rate> {
        self.interval.map(|interval| Rate::of(Bytes::new(self.delivered), interval))
    }
}

/// Decision of a congestion controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Congestion window in bytes: the limit on the bytes in flight.
    pub cwnd: u64,
    /// Slow-start threshold in bytes; `u64::MAX` before the first reduction.
    pub ssthresh: u64,
    /// Pacing of transmissions.
    pub pacing: Pacing,
    /// Amount of data that the pacer releases at once.
    pub send_quantum: SendQuantum,
    /// Algorithm that sets the window during fast recovery.
    pub recovery: Recovery,
    /// Whether rate samples are marked application-limited until all data in flight has been delivered,
    /// although the application does not limit the sender. A controller sets this flag while its
    /// transmissions do not reflect the bandwidth of the path.
    pub mark_app_limited: bool,
    /// Permitted copies of segments that are not marked lost.
    pub repair: Repair,
}

/// Copies that may be sent in addition to retransmissions, while the peer's window, the send buffer or the
/// application limits the sender. Copies use capacity that would otherwise stay unused, within a budget
/// (`tx/retransmit.rs`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repair {
    /// Whether a copy follows each retransmission. Each lost retransmission costs another round trip, in
    /// which the hole blocks the peer's window.
    pub second_copy: bool,
    /// Number of segments at the end of the data that are copied. If the end is lost, no later segment
    /// reveals the loss.
    pub tail_copies: u32,
}

impl Repair {
    /// No copies.
    pub const NONE: Self = Self { second_copy: false, tail_copies: 0 };

    /// Copies that a controller may request unless the tunables change this. Copies of the last segments have no
    /// measurable benefit, and use up the budget of the second copies.
    pub const DEFAULT: Self = Self { second_copy: true, tail_copies: 0 };

    /// Returns whether copies may be sent.
    pub const fn is_any(self) -> bool {
        self.second_copy || self.tail_copies > 0
    }
}

/// Pacing of transmissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pacing {
    /// Transmissions leave as soon as the congestion window allows.
    Unpaced,
    /// Hosts that pace (for example, with the `fq` queueing discipline) use a percentage of `cwnd / srtt`;
    /// other hosts do not pace.
    SrttRatio {
        /// Percentage used while `cwnd < ssthresh / 2`.
        slow_start: u64,
        /// Percentage used once `cwnd` has reached `ssthresh / 2`.
        avoidance: u64,
    },
    /// Transmissions are paced at this rate on every host.
    Rate(Rate),
}

/// Amount of data that the pacer releases at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendQuantum {
    /// Amount that the kernel's TSO autosizing derives from the pacing rate.
    FromRate {
        /// Minimum number of segments in a send quantum.
        min_segments: u64,
    },
    /// Fixed send quantum in bytes.
    Bytes(u64),
}

/// Algorithm that sets the window during fast recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Proportional rate reduction towards `ssthresh` (RFC 9937).
    Prr,
    /// The controller's own `cwnd`, without PRR.
    Own,
}

/// Maximum amount of data that the kernel passes to a network card in one piece, in bytes.
pub(crate) const MAX_QUANTUM: u64 = 65_536;

/// Returns the number of bytes that the kernel sends at once at `rate` (TSO autosizing): a multiple of `mss`.
///
/// The amount is about 1 ms of data at `rate`, so that a burst delays other flows by no more than 1 ms. On a
/// short path, the kernel adds 64 KiB, halved for every 512 us of the minimum RTT, because bursts there do
/// little harm and save CPU time. The result is at most 64 KiB, but never less than `min_segments` segments.
pub fn linux_send_quantum(rate: Rate, min_rtt: Option<Duration>, mss: u64, min_segments: u64) -> u64 {
    let of_rate = rate.as_bytes_per_sec() >> 10;
    let halvings = min_rtt.map_or(63, |rtt| (rtt.as_micros() >> 9).min(63));
    let bytes = (of_rate + (MAX_QUANTUM >> halvings)).min(MAX_QUANTUM);
    let mss = mss.max(1);
    (bytes / mss).max(min_segments) * mss
}

/// Phase and internal values of a congestion controller, for traces only.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Status {
    /// Name of the current phase, specific to the algorithm.
    pub phase: &'static str,
    /// Names and values of internal variables; unused entries have an empty name.
    pub values: [(&'static str, f64); 4],
}

/// Congestion-control algorithms by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Reno (RFC 5681, RFC 6582), with Linux's rounding.
    Reno,
    /// BIC: binary increase congestion control (2004), as in Linux.
    Bic,
    /// CUBIC (RFC 9438) with HyStart, with Linux's rounding.
    Cubic,
    /// Vegas: delay-based control (1995), as in Linux.
    Vegas,
    /// BBR version 1, as in mainline Linux.
    Bbr1,
    /// BBR version 3, as in draft-ietf-ccwg-bbr.
    Bbr3,
    /// Surge: BBR version 1 with a faster start, and without packet conservation for random loss.
    Surge,
}

impl Algorithm {
    /// All congestion-control algorithms.
    pub const ALL: [Self; 7] =
        [Self::Reno, Self::Bic, Self::Cubic, Self::Vegas, Self::Bbr1, Self::Bbr3, Self::Surge];

    /// List of the algorithm names, for hints in error messages.
    pub const KNOWN: &'static str = "known: reno, bic, cubic, vegas, bbr1, bbr3, surge";

    /// Returns the name of the algorithm in experiments and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Bic => "bic",
            Self::Cubic => "cubic",
            Self::Vegas => "vegas",
            Self::Bbr1 => "bbr1",
            Self::Bbr3 => "bbr3",
            Self::Surge => "surge",
        }
    }

    /// Returns the default exit rule of slow start, or `None` if the algorithm offers no choice.
    pub const fn slow_start(self) -> Option<SlowStart> {
        match self {
            Self::Reno => Some(SlowStart::Standard),
            Self::Cubic => Some(SlowStart::HyStart),
            Self::Bic | Self::Vegas | Self::Bbr1 | Self::Bbr3 | Self::Surge => None,
        }
    }

    /// Returns the window and pacing rate of the first flight, or `None` if the algorithm starts with RFC
    /// 6928's ten segments. If a connection configures its initial window, that window replaces both.
    pub const fn launch(self) -> Option<Launch> {
        match self {
            Self::Surge => Some(Launch::DEFAULT),
            Self::Reno | Self::Bic | Self::Cubic | Self::Vegas | Self::Bbr1 | Self::Bbr3 => None,
        }
    }

    /// Returns the default of [`Tunables::rto_prompt`](crate::Tunables::rto_prompt): the minimum of four times the RTT
    /// variation in the retransmission timeout for a peer that acknowledges promptly. `None` if the algorithm has the
    /// same minimum for all peers, as in Linux.
    pub const fn rto_prompt(self) -> Option<Duration> {
        match self {
            Self::Surge => Some(surge::RTO_PROMPT),
            Self::Reno | Self::Bic | Self::Cubic | Self::Vegas | Self::Bbr1 | Self::Bbr3 => None,
        }
    }

    /// Returns the algorithm to use while larger launches are forbidden. BBRv1 replaces surge, because BBRv1
    /// has no loss threshold that random loss could exceed.
    pub const fn fallback(self) -> Self {
        match self {
            Self::Surge => Self::Bbr1,
            other => other,
        }
    }

    /// Returns whether the algorithm is rate-based: BBR and surge pace at a measured rate, and their window
    /// only limits the data in flight to a multiple of the BDP. The other algorithms are window-based.
    pub const fn is_rate_based(self) -> bool {
        matches!(self, Self::Bbr1 | Self::Bbr3 | Self::Surge)
    }

    /// Returns the number of congestion windows for which an autotuned send buffer reserves memory. As in
    /// Linux, a rate-based algorithm gets memory for one more window, because it may double its window even
    /// during recovery (`bbr_sndbuf_expand`).
    pub const fn sndbuf_windows(self) -> u64 {
        if self.is_rate_based() { 3 } else { 2 }
    }

    /// Returns a congestion controller for a new connection.
    pub fn build(self, cx: &Context, hints: &Hints) -> Box<dyn CongestionControl> {
        match self {
            Self::Reno => Box::new(Reno::new(cx, hints)),
            Self::Bic => Box::new(Bic::new(cx, hints)),
            Self::Vegas => Box::new(Vegas::new(cx, hints)),
            Self::Cubic => Box::new(Cubic::new(cx, hints)),
            Self::Bbr1 => Box::new(Bbr1::new(cx, hints)),
            Self::Bbr3 => Box::new(Bbr3::new(cx, hints)),
            Self::Surge => Box::new(Surge::new(cx, hints)),
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Error for a name that is neither one of [`Algorithm::ALL`] nor `bbr`, the kernel's name for `bbr1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownAlgorithm(String);

impl fmt::Display for UnknownAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown congestion control '{}' ({})", self.0, Algorithm::KNOWN)
    }
}

impl std::error::Error for UnknownAlgorithm {}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        let wanted = if name == "bbr" { "bbr1" } else { name };
        Self::ALL.into_iter().find(|a| a.name() == wanted).ok_or_else(|| UnknownAlgorithm(name.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_answers_to_its_name() {
        let names: Vec<_> = Algorithm::ALL.iter().map(|algorithm| algorithm.name()).collect();
        assert_eq!(Algorithm::KNOWN, format!("known: {}", names.join(", ")));
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.name().parse(), Ok(algorithm));
        }
        assert_eq!("bbr".parse(), Ok(Algorithm::Bbr1), "the kernel's name");
        let unknown = "westwood".parse::<Algorithm>().unwrap_err().to_string();
        assert_eq!(unknown, format!("unknown congestion control 'westwood' ({})", Algorithm::KNOWN));

        let names: Vec<_> = SlowStart::ALL.iter().map(|kind| kind.name()).collect();
        assert_eq!(SlowStart::KNOWN, format!("known: {}", names.join(", ")));
        assert!(names.iter().zip(SlowStart::ALL).all(|(name, kind)| name.parse() == Ok(kind)));
    }
}
