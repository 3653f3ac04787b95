//! Congestion control: facts in, decision out.
//!
//! ```text
//!   recovery/ ──facts──►  CongestionControl  ──decision──►  tx/
//!   (what was sent,       (one algorithm       (cwnd, pacing,
//!    delivered, lost)      a file)              quantum)
//! ```
//!
//! A controller sees only [`Context`], samples and signals, and says only [`Control`]. It marks nothing
//! lost, sends nothing and reads no clock. `control()` is read after every callback.
//!
//! Amounts are in bytes. Kernel algorithms count segments; they keep whole segments inside and
//! multiply by [`Context::mss`] at the edge, because their rounding is part of their behaviour.

use core::fmt;
use core::str::FromStr;

use fullpipe_units::{Draws, Duration, Instant, Rate};

mod bbr1;
mod bbr3;
mod bic;
mod cubic;
mod gain;
mod reno;
mod slow_start;
#[cfg(test)]
mod testing;
mod vegas;
mod window;
mod windowed;

pub use bbr1::Bbr1;
pub use bbr3::Bbr3;
pub use bic::Bic;
pub use cubic::Cubic;
pub use reno::Reno;
pub use vegas::Vegas;
pub use window::INITIAL_SEGMENTS;

/// One congestion-control algorithm at work on one connection.
pub trait CongestionControl: fmt::Debug + Send {
    /// A range left, or is about to leave at `sent.departure`: the first after nothing was in flight; and each, if the
    /// controller [follows](CongestionControl::follows_sends) them.
    fn on_send(&mut self, cx: &Context, sent: &Sent) {
        let _ = (cx, sent);
    }

    /// Whether [`CongestionControl::on_send`] is to tell of every range. None of the controllers here needs that, and in
    /// the packet loop it costs as much as sending.
    fn follows_sends(&self) -> bool {
        false
    }

    /// A sent record was marked lost; called once per record.
    fn on_lost(&mut self, cx: &Context, lost: &Lost) {
        let _ = (cx, lost);
    }

    /// The connection entered or left a phase.
    fn on_signal(&mut self, cx: &Context, signal: Signal) {
        let _ = (cx, signal);
    }

    /// An ACK delivered something or led to something being marked lost; called once per ACK, after
    /// `on_lost` of the records it marked and after the signals it caused.
    fn on_ack(&mut self, cx: &Context, sample: &AckSample);

    /// The decision in force.
    fn control(&self) -> Control;

    /// Phase and inner values, for traces only.
    fn status(&self) -> Status;
}

/// What a controller may know of its connection at the time of a callback.
#[derive(Clone, Debug)]
pub struct Context {
    /// The time of the event being handled.
    pub now: Instant,
    /// Payload bytes of a full segment.
    pub mss: u64,
    /// Offset of the first unacknowledged byte.
    pub snd_una: u64,
    /// Offset of the next byte to be sent for the first time.
    pub snd_nxt: u64,
    /// Bytes believed to be in the network: sent, not delivered, not marked lost (RFC 6675's `pipe`).
    pub inflight: u64,
    /// `snd_nxt - snd_una` in bytes (RFC 5681's `FlightSize`).
    pub flight_size: u64,
    /// The congestion window held transmission back in the present round.
    pub cwnd_limited: bool,
    /// The most bytes that were outstanding at once in the present round.
    pub max_inflight: u64,
    /// The connection is in a phase where the application offers less than the path would take.
    pub app_limited: bool,
    /// Bytes sent for the first time, and again as retransmissions, since the start.
    pub sent: u64,
    /// Bytes delivered (acknowledged cumulatively or selectively) since the start.
    pub delivered: u64,
    /// When `delivered` last grew.
    pub delivered_time: Instant,
    /// Bytes marked lost since the start.
    pub lost: u64,
    /// Smoothed RTT (RFC 6298); `None` before the first sample.
    pub srtt: Option<Duration>,
    /// RTT variation (RFC 6298).
    pub rttvar: Duration,
    /// Smallest RTT seen so far; `None` before the first sample.
    pub min_rtt: Option<Duration>,
    /// The peer's receive window in bytes.
    pub rwnd: u64,
    /// Fast recovery is under way (not the slow start after a timeout), or the round trip over which PRR reduces for a mark.
    pub in_recovery: bool,
    /// A retransmission timeout is being recovered from.
    pub in_loss: bool,
    /// Selective acknowledgement was agreed.
    pub has_sack: bool,
    /// Timestamps were agreed.
    pub has_timestamps: bool,
    /// Earliest time at which the pacer would release the next transmission.
    pub next_departure: Instant,
    /// The connection's own random numbers.
    pub rng: Draws,
}

impl Context {
    /// A connection on which nothing has happened yet.
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

    /// `bytes` in whole segments, rounded down.
    pub fn segments(&self, bytes: u64) -> u64 {
        bytes / self.mss
    }
}

/// What is known of the path before the first byte: from the handshake or from path memory.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    /// RTT of the handshake.
    pub rtt: Option<Duration>,
    /// Initial window in bytes; RFC 6928's ten segments when `None`.
    pub initial_cwnd: Option<u64>,
    /// What watches slow start, for Reno and CUBIC; their own when `None`.
    pub slow_start: Option<SlowStart>,
}

/// How slow start ends before something is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SlowStart {
    /// It does not (RFC 5681): Reno's own.
    Standard,
    /// HyStart, as in Linux: CUBIC's own.
    HyStart,
    /// RFC 9406.
    HyStartPlusPlus,
}

impl SlowStart {
    /// Every way.
    pub const ALL: [Self; 3] = [Self::Standard, Self::HyStart, Self::HyStartPlusPlus];

    /// Their names, as hints give them.
    pub const KNOWN: &'static str = "known: standard, hystart, hystart++";

    /// The name in experiments.
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

/// The name is not one of [`SlowStart::ALL`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownSlowStart(String);

impl fmt::Display for UnknownSlowStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown slow start '{}' ({})", self.0, SlowStart::KNOWN)
    }
}

impl std::error::Error for UnknownSlowStart {}

/// One transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Offset of its first byte.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
    /// Why it was sent.
    pub kind: SentKind,
    /// It is the first transmission after nothing was in flight.
    pub first_after_idle: bool,
    /// How long nothing was sent before it; zero for the first of all.
    pub idle: Duration,
    /// Its scheduled departure.
    pub departure: Instant,
}

/// Why a range was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentKind {
    /// For the first time.
    New,
    /// Again, after it was marked lost.
    Retransmission,
    /// To provoke an ACK (tail loss probe).
    Probe,
}

/// One sent record that was marked lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Offset of its first byte.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
    /// Bytes in flight just after it was sent, itself included.
    pub tx_in_flight: u64,
    /// Bytes marked lost between its sending and now, itself included.
    pub lost_since_sent: u64,
    /// It was sent while the application was the limit.
    pub app_limited: bool,
    /// The record before it in offset order was not marked lost in the same batch.
    pub starts_new_range: bool,
    /// What marked it.
    pub cause: LossCause,
}

/// What marked a record lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossCause {
    /// Something sent later was delivered (RFC 8985).
    Rack,
    /// Three duplicate ACKs without SACK (RFC 6582).
    DupAck,
    /// A retransmission timeout (RFC 6298).
    Rto,
}

/// A change of phase of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Loss was detected and fast recovery begins; `Context::inflight` already excludes what was marked.
    EnterRecovery,
    /// Everything outstanding at the start of recovery was acknowledged.
    ExitRecovery,
    /// The retransmission timer expired; `Context::inflight` already excludes what was marked. `first`
    /// is false when it expires again for the same data.
    Timeout {
        /// First expiry for this data: the time to remember state for an undo.
        first: bool,
    },
    /// The last timeout turns out to have been spurious.
    SpuriousTimeout,
    /// The last fast recovery turns out to have been spurious.
    SpuriousRecovery,
    /// A tail loss probe repaired a loss; the window must be reduced once although no recovery ran.
    TlpRepaired,
    /// All records that this event marks lost have been reported.
    LossBatchEnd,
    /// The peer echoes a congestion mark, at most once per round trip.
    EcnEcho,
    /// The segment size changed.
    MssChanged,
    /// Transmission resumes after `idle` without anything in flight.
    Idle {
        /// How long nothing was in flight.
        idle: Duration,
        /// The retransmission timeout in force (the unit of RFC 5681 section 4.1's decay).
        rto: Duration,
    },
}

/// What one ACK said.
#[derive(Clone, Copy, Debug)]
pub struct AckSample {
    /// Bytes newly acknowledged cumulatively, and not selectively before.
    pub cum_acked: u64,
    /// Bytes newly acknowledged selectively.
    pub sacked: u64,
    /// Segments newly delivered, cumulatively or selectively.
    pub acked_segments: u64,
    /// `snd_una` moved.
    pub una_advanced: bool,
    /// Bytes marked lost by this ACK.
    pub newly_lost: u64,
    /// Bytes in flight before this ACK was handled.
    pub prior_inflight: u64,
    /// Bytes in flight just after the newest delivered record was sent, itself included.
    pub tx_in_flight: u64,
    /// Bytes marked lost since the newest delivered record was sent.
    pub lost_since_sent: u64,
    /// Bytes delivered in all when the newest delivered record was sent; it dates the sample.
    pub prior_delivered: u64,
    /// Bytes delivered since then: the numerator of the delivery rate.
    pub delivered: u64,
    /// The longer of the send and the ACK interval: its denominator. `None` when the ACK carries no
    /// valid rate sample (nothing delivered, or an interval shorter than `min_rtt`).
    pub interval: Option<Duration>,
    /// RTT of the newest delivered record; `None` if it was retransmitted.
    pub rtt: Option<Duration>,
    /// RTT of the oldest delivered record, which a delayed ACK inflates.
    pub oldest_rtt: Option<Duration>,
    /// When the newest delivered record was sent.
    pub newest_sent_at: Instant,
    /// The newest delivered record had been sent once only.
    pub first_transmission: bool,
    /// The newest delivered record was sent while the application was the limit.
    pub app_limited: bool,
    /// The ACK shows that an earlier retransmission was not needed.
    pub spurious: bool,
    /// This ACK begins a new packet-timed round trip.
    pub round_start: bool,
}

impl AckSample {
    /// The delivery rate, if the sample is valid.
    pub fn delivery_rate(&self) -> Option<Rate> {
        self.interval.map(|interval| Rate::of(fullpipe_units::Bytes::new(self.delivered), interval))
    }
}

/// A controller's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// The most bytes to have in flight.
    pub cwnd: u64,
    /// Slow-start threshold in bytes; `u64::MAX` before the first reduction.
    pub ssthresh: u64,
    /// How releases are spaced.
    pub pacing: Pacing,
    /// How much to release at once.
    pub send_quantum: SendQuantum,
    /// Who sets the window during fast recovery.
    pub recovery: Recovery,
    /// What is sent for now says nothing of the path's bandwidth: rate samples are marked as if the application
    /// were the limit, until all that is in flight has been delivered.
    pub mark_app_limited: bool,
}

/// How releases are spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pacing {
    /// As the window opens.
    Unpaced,
    /// At a percentage of `cwnd / srtt`, enforced only where the host paces (the kernel's `fq`).
    SrttRatio {
        /// Percent while `cwnd < ssthresh / 2`.
        slow_start: u64,
        /// Percent above that.
        avoidance: u64,
    },
    /// At this rate, always.
    Rate(Rate),
}

/// How much is released at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendQuantum {
    /// What the kernel's TSO autosizing makes of the pacing rate, at least so many segments.
    FromRate {
        /// The least number of segments.
        min_segments: u64,
    },
    /// So many bytes.
    Bytes(u64),
}

/// Who sets the window during fast recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Proportional rate reduction towards `ssthresh` (RFC 9937).
    Prr,
    /// The controller's own `cwnd`.
    Own,
}

/// Most bytes that a kernel hands to a network card in one piece.
pub(crate) const MAX_QUANTUM: u64 = 65_536;

/// How much a kernel sends at once at `rate`: TSO autosizing, in bytes of whole segments.
///
/// About 1 ms worth of data, so that a lump does not delay others for longer; and more on a short path
/// (64 KiB, halved for every 512 us of the least RTT), where lumps cannot hurt anybody far away and
/// save work. At least `min_segments`, at most 64 KiB.
pub fn linux_send_quantum(rate: Rate, min_rtt: Option<Duration>, mss: u64, min_segments: u64) -> u64 {
    let of_rate = rate.as_bytes_per_sec() >> 10;
    let halvings = min_rtt.map_or(63, |rtt| (rtt.as_micros() >> 9).min(63));
    let bytes = (of_rate + (MAX_QUANTUM >> halvings)).min(MAX_QUANTUM);
    let mss = mss.max(1);
    (bytes / mss).max(min_segments) * mss
}

/// Phase and inner values of a controller, for traces only.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Status {
    /// The algorithm's own name for its phase.
    pub phase: &'static str,
    /// Named inner values; unused places have an empty name.
    pub values: [(&'static str, f64); 4],
}

/// The algorithms by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// RFC 5681 and 6582, as Linux rounds it.
    Reno,
    /// Binary increase (2004), as in Linux.
    Bic,
    /// RFC 9438 with HyStart, as Linux rounds it.
    Cubic,
    /// Delay-based control (1995), as in Linux.
    Vegas,
    /// Version 1 of BBR, as in mainline Linux.
    Bbr1,
    /// Version 3 of BBR, as in draft-ietf-ccwg-bbr.
    Bbr3,
}

impl Algorithm {
    /// Every algorithm.
    pub const ALL: [Self; 6] = [Self::Reno, Self::Bic, Self::Cubic, Self::Vegas, Self::Bbr1, Self::Bbr3];

    /// Their names, as hints give them.
    pub const KNOWN: &'static str = "known: reno, bic, cubic, vegas, bbr1, bbr3";

    /// The name in experiments and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Bic => "bic",
            Self::Cubic => "cubic",
            Self::Vegas => "vegas",
            Self::Bbr1 => "bbr1",
            Self::Bbr3 => "bbr3",
        }
    }

    /// What its slow start is watched by unless something else is asked for; `None` if that is its own affair.
    pub const fn slow_start(self) -> Option<SlowStart> {
        match self {
            Self::Reno => Some(SlowStart::Standard),
            Self::Cubic => Some(SlowStart::HyStart),
            Self::Bic | Self::Vegas | Self::Bbr1 | Self::Bbr3 => None,
        }
    }

    /// It paces at a rate that it measures, and its window is a reserve above what that rate puts in flight: BBR.
    /// The others go by their window.
    pub const fn is_rate_based(self) -> bool {
        matches!(self, Self::Bbr1 | Self::Bbr3)
    }

    /// How many congestion windows' worth of memory an autotuned send buffer gets. BBR asks for one more, as
    /// its window is its target and not a limit that data waits behind.
    pub const fn sndbuf_windows(self) -> u64 {
        if self.is_rate_based() { 3 } else { 2 }
    }

    /// A controller for a new connection.
    pub fn build(self, cx: &Context, hints: &Hints) -> Box<dyn CongestionControl> {
        match self {
            Self::Reno => Box::new(Reno::new(cx, hints)),
            Self::Bic => Box::new(Bic::new(cx, hints)),
            Self::Vegas => Box::new(Vegas::new(cx, hints)),
            Self::Cubic => Box::new(Cubic::new(cx, hints)),
            Self::Bbr1 => Box::new(Bbr1::new(cx, hints)),
            Self::Bbr3 => Box::new(Bbr3::new(cx, hints)),
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The name is not one of [`Algorithm::ALL`] (nor `bbr`, which means `bbr1` outside the kernel).
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
