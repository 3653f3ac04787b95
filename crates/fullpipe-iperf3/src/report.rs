//! A report of one stream or one sum, with the keys of iperf3: the form in which documents are written and
//! read.
//!
//! ```text
//!   StreamInterval, SumInterval ──┐                    ┌──► JSON (-J, --json-stream)
//!   EndSender, EndReceiver, ──────┼──► Report ◄────────┤
//!   EndUdp, Sum                 ──┘                    └─── JSON of any iperf3 version
//! ```
//!
//! Writers build the types of [`crate::document`], which define the content of each report. Readers get a
//! [`Report`], because no iperf3 version prints all keys: a missing key only means that the value is unknown.

use serde::{Serialize, Serializer};

use crate::document::{
    Amount, Datagrams, EndReceiver, EndSender, EndUdp, Extremes, SocketReading, StreamInterval, Sum,
    SumInterval, SumReading, TcpInterval,
};
use crate::lenient::{count, flag, lenient_object, number, signed, switch};

/// Report of a stream or of a sum, for one interval or for the whole test. The units are those of iperf3.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Number of the connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<u64>,
    /// Start of the period in seconds, counted from the start of the test.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<f64>,
    /// End of the period in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<f64>,
    /// Length of the period in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Payload transferred, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Mean rate in bit/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bits_per_second: Option<f64>,
    /// Segments retransmitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    /// Congestion window in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snd_cwnd: Option<u64>,
    /// Advertised window of the receiver in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snd_wnd: Option<u64>,
    /// Smoothed RTT in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt: Option<u64>,
    /// RTT variation in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rttvar: Option<u64>,
    /// Path MTU in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pmtu: Option<u64>,
    /// Largest congestion window in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_snd_cwnd: Option<u64>,
    /// Largest advertised window of the receiver in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_snd_wnd: Option<u64>,
    /// Largest smoothed RTT in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_rtt: Option<u64>,
    /// Smallest smoothed RTT in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_rtt: Option<u64>,
    /// Mean of the smoothed RTTs in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_rtt: Option<u64>,
    /// Reordering distance of the path in segments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reorder: Option<u64>,
    /// Jitter in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter_ms: Option<f64>,
    /// Datagrams lost; negative if datagrams counted as lost in an earlier interval arrived in this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_packets: Option<i64>,
    /// Datagrams sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
    /// Lost datagrams in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_percent: Option<f64>,
    /// Datagrams that arrived out of order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub out_of_order: Option<u64>,
    /// Whether the interval is omitted (`-O`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub omitted: Option<bool>,
    /// Whether this end sends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender: Option<bool>,
    /// Fullpipe's additions to an interval; not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fullpipe: Option<Additions>,
}

/// Values that fullpipe adds to the report of an interval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Additions {
    /// Additions to the report of a stream.
    Stream(SocketReading),
    /// Additions to the report of a sum.
    Sum(SumReading),
}

lenient_object!(Report {
    socket: count,
    start: number,
    end: number,
    seconds: number,
    bytes: count,
    bits_per_second: number,
    retransmits: count,
    snd_cwnd: count,
    snd_wnd: count,
    rtt: count,
    rttvar: count,
    pmtu: count,
    max_snd_cwnd: count,
    max_snd_wnd: count,
    max_rtt: count,
    min_rtt: count,
    mean_rtt: count,
    reorder: count,
    jitter_ms: number,
    lost_packets: signed,
    packets: count,
    lost_percent: number,
    out_of_order: count,
    omitted: switch,
    sender: flag,
});

impl Report {
    fn of(amount: Amount, sender: bool) -> Self {
        let seconds = amount.length().as_secs_f64();
        let bytes = amount.bytes.get();
        Self {
            start: Some(amount.start.as_secs_f64()),
            end: Some(amount.end.as_secs_f64()),
            seconds: Some(seconds),
            bytes: Some(bytes),
            bits_per_second: Some(if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 }),
            sender: Some(sender),
            ..Self::default()
        }
    }

    fn on(self, socket: i32) -> Self {
        Self { socket: u64::try_from(socket).ok(), ..self }
    }

    fn with_tcp(self, tcp: Option<TcpInterval>) -> Self {
        let Some(tcp) = tcp else { return self };
        Self {
            retransmits: Some(tcp.retransmits),
            snd_cwnd: Some(tcp.snd_cwnd.get()),
            snd_wnd: Some(tcp.snd_wnd.get()),
            rtt: Some(tcp.rtt.as_micros()),
            rttvar: Some(tcp.rttvar.as_micros()),
            pmtu: Some(tcp.pmtu.get()),
            reorder: Some(tcp.reorder.into()),
            ..self
        }
    }

    fn with_extremes(self, extremes: Option<Extremes>) -> Self {
        let Some(extremes) = extremes else { return self };
        Self {
            max_snd_cwnd: Some(extremes.cwnd.get()),
            max_snd_wnd: Some(extremes.wnd.get()),
            max_rtt: Some(extremes.max_rtt.as_micros()),
            min_rtt: Some(extremes.min_rtt.as_micros()),
            mean_rtt: Some(extremes.mean_rtt.as_micros()),
            reorder: Some(extremes.reorder.into()),
            ..self
        }
    }

    fn with_udp(self, udp: Option<Datagrams>) -> Self {
        let Some(udp) = udp else { return self };
        Self {
            jitter_ms: udp.heard.map(|heard| heard.jitter.as_millis_f64()),
            lost_packets: udp.heard.map(|heard| i64::try_from(heard.lost).unwrap_or(i64::MAX)),
            packets: Some(udp.packets),
            lost_percent: udp.lost_percent(),
            out_of_order: udp.out_of_order,
            ..self
        }
    }
}

impl From<&StreamInterval> for Report {
    fn from(of: &StreamInterval) -> Self {
        let report = Self::of(of.amount, of.sender).on(of.socket).with_tcp(of.tcp).with_udp(of.udp);
        let fullpipe = of.fullpipe.clone().map(Additions::Stream);
        Self { omitted: Some(of.omitted), fullpipe, ..report }
    }
}

impl From<&SumInterval> for Report {
    fn from(of: &SumInterval) -> Self {
        let report = Self::of(of.amount, of.sender).with_udp(of.udp);
        let fullpipe = of.fullpipe.clone().map(Additions::Sum);
        Self { retransmits: of.retransmits, omitted: Some(of.omitted), fullpipe, ..report }
    }
}

impl From<&EndSender> for Report {
    fn from(of: &EndSender) -> Self {
        let report = Self::of(of.amount, of.sender).on(of.socket).with_extremes(of.extremes);
        Self { retransmits: of.retransmits, ..report }
    }
}

impl From<&EndReceiver> for Report {
    fn from(of: &EndReceiver) -> Self {
        Self::of(of.amount, of.sender).on(of.socket)
    }
}

impl From<&EndUdp> for Report {
    fn from(of: &EndUdp) -> Self {
        Self::of(of.amount, of.sender).on(of.socket).with_udp(Some(of.datagrams))
    }
}

impl From<&Sum> for Report {
    fn from(of: &Sum) -> Self {
        Self { retransmits: of.retransmits, ..Self::of(of.amount, of.sender).with_udp(of.udp) }
    }
}

/// Serializes the types of a document as reports, so that each key is named in only one place.
macro_rules! written_as_report {
    ($($name:ty),*) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                Report::from(self).serialize(serializer)
            }
        }
    )*};
}

written_as_report!(StreamInterval, SumInterval, EndSender, EndReceiver, EndUdp, Sum);
