//! Reports of single intervals, and sums over the whole test.

use fullpipe_units::{Bytes, Duration, Instant, Rate};

/// Range of the smoothed RTT, sampled at the end of each interval. Its minimum is what iperf3 calls
/// `min_rtt`; the kernel's own minimum may be lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RttRange {
    /// Minimum sample.
    pub min: Duration,
    /// Mean of the samples.
    pub mean: Duration,
    /// Maximum sample.
    pub max: Duration,
}

/// Datagram counts of a UDP test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Datagrams {
    /// Number of datagrams sent.
    pub total: u64,
    /// Number of datagrams that did not arrive; `None` if only the sender reported.
    pub lost: Option<u64>,
    /// Jitter: smoothed variation of the datagram spacing on arrival (RFC 1889); `None` if only the sender
    /// reported.
    pub jitter: Option<Duration>,
    /// Number of datagrams received out of order; `None` if only the sender reported. Text logs print the
    /// count only if it is not zero.
    pub out_of_order: Option<u64>,
}

/// iperf3 report for one interval, usually one second, summed over all streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Start of the interval, relative to the start of the test.
    pub start: Instant,
    /// End of the interval, later than `start`.
    pub end: Instant,
    /// Payload written (sender) or read (receiver).
    pub bytes: Bytes,
    /// Rate as printed.
    pub rate: Rate,
    /// Retransmitted segments; `None` in a receiver's log.
    pub retransmits: Option<u64>,
    /// Number of streams with retransmissions in the interval.
    pub lossy_streams: u64,
    /// Congestion window at the end of the interval; `None` in a receiver's log.
    pub cwnd: Option<Bytes>,
    /// Receive window as known to the sender at the end of the interval. Only JSON from iperf3 3.11 or newer,
    /// on kernel 5.4 or newer, contains it.
    pub snd_wnd: Option<Bytes>,
    /// Smoothed RTT at the end of the interval; JSON only. For several streams it is the mean weighted by
    /// their rates, so that rate x RTT is the sum of their data in flight.
    pub rtt: Option<Duration>,
    /// Datagram counts; `None` for TCP.
    pub datagrams: Option<Datagrams>,
}

impl Interval {
    /// Returns the length of the interval, which is positive.
    pub fn length(&self) -> Duration {
        self.end.saturating_since(self.start)
    }

    /// Adds the reports of two streams.
    pub(crate) fn added(self, other: Self) -> Self {
        let (a, b) = (self, other);
        let windows = |x: Option<Bytes>, y: Option<Bytes>| x.zip(y).map(|(x, y)| x + y);
        Self {
            start: a.start.min(b.start),
            end: a.end.max(b.end),
            bytes: a.bytes + b.bytes,
            rate: Rate::from_bps(a.rate.as_bps().saturating_add(b.rate.as_bps())),
            retransmits: a.retransmits.zip(b.retransmits).map(|(x, y)| x.saturating_add(y)),
            lossy_streams: a.lossy_streams + b.lossy_streams,
            cwnd: windows(a.cwnd, b.cwnd),
            snd_wnd: windows(a.snd_wnd, b.snd_wnd),
            rtt: a.rtt.zip(b.rtt).map(|(x, y)| weighted((a.rate, x), (b.rate, y))),
            datagrams: a.datagrams.zip(b.datagrams).map(|(x, y)| x.added(y)),
        }
    }
}

fn weighted(a: (Rate, Duration), b: (Rate, Duration)) -> Duration {
    let (x, y) = (a.0.as_bps() as f64, b.0.as_bps() as f64);
    if x + y <= 0.0 {
        return a.1.max(b.1);
    }
    Duration::from_secs_f64((x * a.1.as_secs_f64() + y * b.1.as_secs_f64()) / (x + y))
}

impl Datagrams {
    /// Returns the ratio of lost to sent datagrams.
    pub fn lost_share(&self) -> Option<f64> {
        let total = self.total.max(1) as f64;
        self.lost.map(|lost| (lost as f64 / total).min(1.0))
    }

    /// Returns the counts without those that only the receiver knows.
    pub(crate) const fn unheard(self) -> Self {
        Self { total: self.total, lost: None, jitter: None, out_of_order: None }
    }

    /// Adds the counts of two streams, and takes the larger jitter.
    pub(crate) fn added(self, other: Self) -> Self {
        Self {
            total: self.total.saturating_add(other.total),
            lost: self.lost.zip(other.lost).map(|(x, y)| x.saturating_add(y)),
            jitter: self.jitter.max(other.jitter),
            out_of_order: match (self.out_of_order, other.out_of_order) {
                (Some(x), Some(y)) => Some(x.saturating_add(y)),
                (one, other) => one.or(other),
            },
        }
    }
}

/// Counts of one endpoint over the whole test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Total {
    /// Length of the test.
    pub length: Duration,
    /// Payload in bytes.
    pub bytes: Bytes,
    /// Mean rate as printed.
    pub rate: Rate,
    /// Retransmitted segments; `None` at the receiver.
    pub retransmits: Option<u64>,
}

impl Total {
    /// Converts a report for the whole test to totals; `None` without payload, because older servers do not
    /// know the sender's counts and print zeros for them.
    pub(crate) fn of(report: Option<Interval>) -> Option<Self> {
        let report = report.filter(|report| !report.bytes.is_zero())?;
        let Interval { bytes, rate, retransmits, .. } = report;
        Some(Self { length: report.length(), bytes, rate, retransmits })
    }

    /// Returns the totals for `bytes` in `length`, including the mean rate.
    pub(crate) fn mean(bytes: Bytes, length: Duration, retransmits: Option<u64>) -> Self {
        Self { length, bytes, rate: Rate::mean(bytes, length), retransmits }
    }
}
