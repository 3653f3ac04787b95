//! Reads only the values that a diagnosis needs from a document of any iperf3 version.
//!
//! Interval reports are passed on one by one, so that the reader can decide which values to keep. Only the
//! values that the reader keeps take memory, regardless of the size of the document.

use serde::Deserialize;

use crate::document::{Document, EndStream, Start};
use crate::lenient::{
    Array, Collect, array, count, lenient_object, maybe, nested, number, present, switch, text,
};
use crate::report::Report;

/// Maximum number of streams in an interval or at the end of a test. iperf3 opens at most 128 in each
/// direction.
pub const MOST_STREAMS: usize = 1024;
/// Error message without its subject, "the JSON".
const TOO_MANY_STREAMS: &str = "has more streams than iperf3 opens";

/// Values of a document that a reader needs. The collection `I` receives the reports of the streams, interval
/// by interval.
#[derive(Clone, Debug)]
pub struct Log<I> {
    /// Values known before the data transfer starts; `None` if the key is missing.
    pub start: Option<LogStart>,
    /// Reports of all intervals; `None` if the value of the key is not an array.
    pub intervals: Option<I>,
    /// Totals of the test; empty if the test did not finish.
    pub end: LogEnd,
    /// Error that ended the test.
    pub error: Option<String>,
}

impl<I: Default> Default for Log<I> {
    fn default() -> Self {
        Self { start: None, intervals: Some(I::default()), end: LogEnd::default(), error: None }
    }
}

/// Values known before the data transfer starts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogStart {
    /// Name and version of the program.
    pub version: Option<String>,
    /// Operating system of the host that wrote the document, as `uname -a` prints it.
    pub system_info: Option<String>,
    /// Requested socket buffer size in bytes; 0 leaves the size to the kernel.
    pub sock_bufsize: Option<u64>,
    /// `SO_SNDBUF` in bytes, as the kernel reports it.
    pub sndbuf_actual: Option<u64>,
    /// `SO_RCVBUF` in bytes, as the kernel reports it.
    pub rcvbuf_actual: Option<u64>,
    /// Requested maximum segment size in bytes.
    pub tcp_mss: Option<u64>,
    /// Maximum segment size of the control connection in bytes.
    pub tcp_mss_default: Option<u64>,
    /// Target bitrate of each stream in bit/s; 0 means no limit.
    pub target_bitrate: Option<u64>,
    /// The client; only in a server's document.
    pub accepted_connection: Option<Client>,
    /// Parameters of the test.
    pub test_start: LogTest,
}

/// The client of a test, as its server names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// Address of the client.
    pub host: Option<String>,
}

/// Parameters of a test.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogTest {
    /// Protocol: `TCP`, `UDP` or `SCTP`.
    pub protocol: Option<String>,
    /// Whether the server sends (`-R`).
    pub reverse: Option<bool>,
    /// Target bitrate of each stream in bit/s; 0 means no limit.
    pub target_bitrate: Option<u64>,
    /// Number of parallel streams.
    pub num_streams: Option<u64>,
}

/// CPU utilisation of both hosts during the test, in percent of one CPU core.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogCpu {
    /// User and system CPU time of the host that wrote the document.
    pub host_total: Option<f64>,
    /// User and system CPU time of the peer.
    pub remote_total: Option<f64>,
}

/// Totals of a test.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogEnd {
    /// Totals of each stream.
    pub streams: Streams<LogEndStream>,
    /// Sum over all streams of a UDP test, with the sender's bytes.
    pub sum: Option<Report>,
    /// Sum of the data sent.
    pub sum_sent: Option<Report>,
    /// Sum of the data received.
    pub sum_received: Option<Report>,
    /// CPU utilisation of both hosts.
    pub cpu_utilization_percent: Option<LogCpu>,
    /// Congestion control of the sending end.
    pub sender_tcp_congestion: Option<String>,
    /// Congestion control of the receiving end.
    pub receiver_tcp_congestion: Option<String>,
}

/// Totals of one stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogEndStream {
    /// Totals of the sending end, over TCP.
    pub sender: Option<Report>,
    /// Totals of the receiving end, over TCP.
    pub receiver: Option<Report>,
    /// Totals of both ends, over UDP.
    pub udp: Option<Report>,
}

/// Items of the streams of a test, at most [`MOST_STREAMS`].
#[derive(Clone, Debug, PartialEq)]
pub struct Streams<T>(pub Vec<T>);

impl<T> Default for Streams<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Collect for Streams<T> {
    type Item = T;

    fn collect(&mut self, item: T) -> Result<(), &'static str> {
        if self.0.len() == MOST_STREAMS {
            return Err(TOO_MANY_STREAMS);
        }
        self.0.push(item);
        Ok(())
    }
}

/// Reports of the streams in one interval.
#[derive(Clone, Debug, Default)]
pub struct LogInterval {
    /// One report for each stream.
    pub streams: Streams<Report>,
}

/// Passes each interval on to `I`.
#[derive(Default)]
struct PassedOn<I>(I);

impl<I: Default + Extend<LogInterval>> Collect for PassedOn<I> {
    type Item = LogInterval;

    fn collect(&mut self, interval: LogInterval) -> Result<(), &'static str> {
        self.0.extend([interval]);
        Ok(())
    }
}

fn intervals<'de, A, I>(map: &mut A) -> Result<Option<I>, A::Error>
where
    A: serde::de::MapAccess<'de>,
    I: Default + Extend<LogInterval>,
{
    Ok(map.next_value::<Array<PassedOn<I>>>()?.0.map(|read| read.0))
}

/// A collection of intervals.
trait Intervals: Default + Extend<LogInterval> {}

impl<I: Default + Extend<LogInterval>> Intervals for I {}

lenient_object!(Log<I: Intervals> { start: maybe, intervals: intervals, end: nested, error: present });
lenient_object!(LogInterval { streams: array });
lenient_object!(LogStart {
    version: text,
    system_info: text,
    sock_bufsize: count,
    sndbuf_actual: count,
    rcvbuf_actual: count,
    tcp_mss: count,
    tcp_mss_default: count,
    target_bitrate: count,
    accepted_connection: maybe,
    test_start: nested,
});
lenient_object!(Client { host: text });
lenient_object!(LogTest { protocol: text, reverse: switch, target_bitrate: count, num_streams: count });
lenient_object!(LogCpu { host_total: number, remote_total: number });
lenient_object!(LogEnd {
    streams: array,
    sum: maybe,
    sum_sent: maybe,
    sum_received: maybe,
    cpu_utilization_percent: maybe,
    sender_tcp_congestion: text,
    receiver_tcp_congestion: text,
});
lenient_object!(LogEndStream { sender: maybe, receiver: maybe, udp: maybe });

/// One line of `--json-stream`.
#[derive(Clone, Debug)]
pub enum LogEvent {
    /// `start`.
    Start(Box<LogStart>),
    /// `interval`.
    Interval(LogInterval),
    /// `end`.
    End(Box<LogEnd>),
    /// `error`.
    Error(Option<String>),
    /// Any other event.
    Other,
}

impl LogEvent {
    /// Parses a line of `--json-stream`. The line is parsed twice, because the name of the event determines
    /// how the data is read, but may come after the data.
    ///
    /// # Errors
    /// Returns an error if the line is not JSON or has too many streams.
    pub fn read(line: &str) -> serde_json::Result<Self> {
        #[derive(Default)]
        struct Name {
            event: Option<String>,
        }
        lenient_object!(Name { event: text });

        #[derive(Default)]
        struct Data<T> {
            data: T,
        }
        trait Readable: Default + for<'de> Deserialize<'de> {}
        impl<T: Default + for<'de> Deserialize<'de>> Readable for T {}
        lenient_object!(Data<T: Readable> { data: nested });
        fn data<T: Readable>(line: &str) -> serde_json::Result<T> {
            serde_json::from_str::<Data<T>>(line).map(|read| read.data)
        }

        #[derive(Default)]
        struct Error {
            data: Option<String>,
        }
        lenient_object!(Error { data: present });

        Ok(match serde_json::from_str::<Name>(line)?.event.as_deref() {
            Some("start") => Self::Start(Box::new(data(line)?)),
            Some("interval") => Self::Interval(data(line)?),
            Some("end") => Self::End(Box::new(data(line)?)),
            Some("error") => Self::Error(serde_json::from_str::<Error>(line)?.data),
            _ => Self::Other,
        })
    }
}

impl<I: Default + Extend<LogInterval>> From<&Document> for Log<I> {
    fn from(document: &Document) -> Self {
        let mut intervals = I::default();
        intervals.extend(document.intervals.iter().map(|interval| LogInterval {
            streams: Streams(interval.streams.iter().map(Report::from).collect()),
        }));
        let end = &document.end;
        let sum = |sum: &Option<_>| sum.as_ref().map(Report::from);
        let end = LogEnd {
            streams: Streams(end.streams.iter().map(LogEndStream::from).collect()),
            sum: sum(&end.sum),
            sum_sent: sum(&end.sum_sent),
            sum_received: sum(&end.sum_received),
            cpu_utilization_percent: end
                .cpu_utilization_percent
                .as_ref()
                .map(|cpu| LogCpu { host_total: Some(cpu.host_total), remote_total: Some(cpu.remote_total) }),
            sender_tcp_congestion: end.sender_tcp_congestion.clone(),
            receiver_tcp_congestion: end.receiver_tcp_congestion.clone(),
        };
        Self {
            start: Some(LogStart::from(&document.start)),
            intervals: Some(intervals),
            end,
            error: document.error.clone(),
        }
    }
}

impl From<&Start> for LogStart {
    fn from(start: &Start) -> Self {
        let asked = start.asked.as_ref();
        let bytes = |bytes: fullpipe_units::Bytes| bytes.get();
        Self {
            version: Some(start.version.clone()),
            system_info: Some(start.system_info.clone()),
            sock_bufsize: asked.map(|asked| bytes(asked.sock_bufsize)),
            sndbuf_actual: asked.map(|asked| bytes(asked.sndbuf_actual)),
            rcvbuf_actual: asked.map(|asked| bytes(asked.rcvbuf_actual)),
            tcp_mss: start.tcp_mss.map(bytes),
            tcp_mss_default: start.tcp_mss_default.map(bytes),
            target_bitrate: asked.map(|asked| asked.target_bitrate.as_bps()),
            accepted_connection: start
                .accepted_connection
                .as_ref()
                .map(|client| Client { host: Some(client.host.clone()) }),
            test_start: asked.map_or_else(LogTest::default, |asked| LogTest {
                protocol: Some(asked.test_start.protocol.into()),
                reverse: Some(asked.test_start.reverse > 0),
                target_bitrate: Some(asked.test_start.target_bitrate.as_bps()),
                num_streams: Some(asked.test_start.num_streams.into()),
            }),
        }
    }
}

impl From<&EndStream> for LogEndStream {
    fn from(stream: &EndStream) -> Self {
        match stream {
            EndStream::Tcp { sender, receiver } => Self {
                sender: sender.as_ref().map(Report::from),
                receiver: receiver.as_ref().map(Report::from),
                udp: None,
            },
            EndStream::Udp { udp } => Self { udp: Some(Report::from(udp)), ..Self::default() },
        }
    }
}

#[cfg(test)]
mod tests;
