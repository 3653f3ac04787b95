//! The trace of a run: simulated, emulated and live runs write it, and the diagnosis and the reports read it.
//!
//! A trace row has four parts, grouped by their source. Sockets report their own state in every kind of run.
//! The state of the path is available only if fullpipe provides the path. The internal state of the sender is
//! available only if the sender uses fullpipe's TCP:
//!
//! | part | sim | emu | live |
//! |---|---|---|---|
//! | [`TcpInfo`], the sending socket | yes | yes | yes |
//! | [`ReceiverInfo`], the receiving socket | yes | yes | if the peer reports it |
//! | [`PathState`] | yes | yes | no |
//! | [`SenderTruth`] | yes | with fullpipe's TCP | with fullpipe's TCP |

mod columns;
mod digest;
mod read;

pub use columns::{COLUMNS, Csv, Record};
pub use digest::Digest;
pub use read::{ReadError, Recording, RunRow, is_header, read};

use fullpipe_path::Path;
use fullpipe_tcp::cc::{Algorithm, Status};
use fullpipe_tcp::{Connection, ReceiverSnapshot, SendLimit, Snapshot};
use fullpipe_units::{Bytes, Duration, Instant, Rate};

use crate::workload::Grants;

/// State of one flow at one sampling time.
#[derive(Clone, Debug)]
pub struct Row {
    /// Time at which the state was sampled.
    pub at: Instant,
    /// Number of the sampled flow.
    pub flow: u32,
    /// State that the kernel or fullpipe's TCP reports for the sending socket.
    pub sender: TcpInfo,
    /// State that the receiving socket reports; `None` if only the sending socket is sampled.
    pub receiver: Option<ReceiverInfo>,
    /// State of the path in the data direction; `None` if the path is a real network.
    pub path: Option<PathState>,
    /// Internal state of the sender; `None` for the kernel TCP stack. The field is boxed because it takes
    /// more than a third of a row, and a thousand kernel sockets yield hundreds of thousands of rows that do
    /// not need it.
    pub truth: Option<Box<SenderTruth>>,
}

/// State that a sending socket reports: the kernel's `TCP_INFO` and `SO_MEMINFO`, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpInfo {
    /// Congestion control (`TCP_CONGESTION`); `None` if fullpipe did not read it or does not implement it.
    pub cc: Option<Algorithm>,
    /// Payload length of a full-sized segment (MSS).
    pub mss: Bytes,
    /// Current congestion window of the sender, in bytes.
    pub cwnd: Bytes,
    /// Slow-start threshold in bytes; `None` before the first reduction of the congestion window.
    pub ssthresh: Option<Bytes>,
    /// Bytes in flight, as estimated by the sender.
    pub inflight: Bytes,
    /// Bytes that were sent but not yet cumulatively acknowledged.
    pub flight_size: Bytes,
    /// Window that the receiver advertises.
    pub rwnd: Bytes,
    /// Current pacing rate of the sender; `None` if it does not pace.
    pub pacing_rate: Option<Rate>,
    /// Upper bound on the pacing rate, if the application has set one (`SO_MAX_PACING_RATE`).
    pub max_pacing_rate: Option<Rate>,
    /// Most recent delivery-rate sample (`tcpi_delivery_rate`). An application-limited sample replaces the
    /// previous one only if its rate is at least as high.
    pub delivery_rate: Option<Rate>,
    /// Whether the delivery-rate sample was limited by the application.
    pub app_limited: bool,
    /// Smoothed RTT of the sender.
    pub srtt: Option<Duration>,
    /// Minimum RTT of the last five minutes.
    pub min_rtt: Option<Duration>,
    /// Bytes that the sender knows to have been delivered so far.
    pub delivered: Bytes,
    /// Number of segments retransmitted so far.
    pub retransmits: u64,
    /// Number of duplicates that the receiver has reported so far (D-SACK, RFC 2883); zero if they are not
    /// known.
    pub dsack_dups: u64,
    /// Whether the sender is in fast recovery or in recovery after an RTO.
    pub recovering: bool,
    /// Bytes that the application has written but TCP has not sent yet.
    pub notsent: Bytes,
    /// Memory in bytes that the send buffer may currently use.
    pub sndbuf: Bytes,
    /// Memory that the send buffer currently uses.
    pub sndbuf_used: Bytes,
    /// Path model of BBR in a kernel; `None` for other congestion controls.
    pub bbr: Option<BbrInfo>,
}

/// The path model that BBR reports: the kernel's `tcp_bbr_info` (`TCP_CC_INFO`, `INET_DIAG_BBRINFO`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BbrInfo {
    /// Bottleneck bandwidth as estimated by BBR: the highest delivery rate in the last ten round trips.
    pub bw: Rate,
    /// Smallest RTT of the last ten seconds, as measured by BBR.
    pub min_rtt: Option<Duration>,
    /// Pacing gain: pacing rate divided by bandwidth, in percent. The pacing gain is 288 in Startup, 34 in
    /// Drain, and 125, 75 or 100 in ProbeBW.
    pub pacing_gain_percent: u32,
    /// cwnd gain: congestion window divided by the estimated BDP (bandwidth x smallest RTT), in percent.
    pub cwnd_gain_percent: u32,
}

/// State that a receiving socket reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverInfo {
    /// Payload received in order so far, in bytes.
    pub received: Bytes,
    /// Payload that was received but not yet read by the application (`Recv-Q`).
    pub unread: Bytes,
    /// Memory in bytes that the receive buffer may currently use.
    pub rcvbuf: Bytes,
}

/// Sample of a receiving socket, for connections whose sending socket is not sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverSample {
    /// Time at which the receiving socket was sampled.
    pub at: Instant,
    /// Number of the sampled flow.
    pub flow: u32,
    /// State that the kernel reports for every receiving socket.
    pub receiver: ReceiverInfo,
    /// Most recently advertised window; zero in all samples if the kernel does not report it (before Linux
    /// 6.2).
    pub window: Bytes,
    /// RTT as measured by the receiver: the time from an acknowledgement to the data that this
    /// acknowledgement allowed the sender to send.
    pub rtt: Option<Duration>,
    /// Number of segments received out of order so far, that is, while an earlier segment was missing.
    pub out_of_order: u64,
    /// Payload length of a full-sized received segment.
    pub mss: Bytes,
}

/// State of the data direction of a path that fullpipe provides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathState {
    /// Bytes waiting in the queues of the path.
    pub queue: Bytes,
    /// Total time for which the link has been transmitting so far.
    pub link_busy: Duration,
    /// Total time for which the shaper has delayed packets of this flow so far; of all flows, if they share a
    /// bucket.
    pub shaper_busy: Duration,
    /// Number of packets that a policer has dropped so far, over all flows.
    pub policed: u64,
    /// Number of packets dropped so far by a full queue or by its AQM, over all flows.
    pub queue_drops: u64,
    /// Number of packets lost at random so far, over all flows.
    pub random_drops: u64,
}

/// Internal state of the sender in fullpipe's TCP, which no kernel reports.
#[derive(Clone, Debug)]
pub struct SenderTruth {
    /// Limit that currently stops the sender.
    pub send_limit: SendLimit,
    /// Total time for which each limit has stopped the sender so far, in the order of [`SendLimit::ALL`].
    pub limit_times: [Duration; SendLimit::ALL.len()],
    /// Bytes that the sender has marked lost so far.
    pub lost: Bytes,
    /// Phase of the congestion control, and its named values.
    pub status: Status,
}

impl TcpInfo {
    /// Returns the part of a connection's state that a kernel also reports for its own sockets.
    pub fn of(sender: &Snapshot, cc: Option<Algorithm>, max_pacing_rate: Option<Rate>) -> Self {
        Self {
            cc,
            mss: Bytes::new(sender.mss),
            cwnd: Bytes::new(sender.cwnd),
            ssthresh: (sender.ssthresh != u64::MAX).then_some(Bytes::new(sender.ssthresh)),
            inflight: Bytes::new(sender.inflight),
            flight_size: Bytes::new(sender.flight_size),
            rwnd: Bytes::new(sender.rwnd),
            pacing_rate: sender.pacing_rate,
            max_pacing_rate,
            delivery_rate: sender.delivery_rate,
            app_limited: sender.app_limited,
            srtt: sender.srtt,
            min_rtt: sender.min_rtt,
            delivered: Bytes::new(sender.delivered),
            retransmits: sender.stats.retransmits,
            dsack_dups: sender.stats.duplicates,
            recovering: sender.recovering,
            notsent: Bytes::new(sender.notsent),
            sndbuf: Bytes::new(sender.sndbuf),
            sndbuf_used: Bytes::new(sender.sndbuf_used),
            bbr: None,
        }
    }
}

impl SenderTruth {
    /// Returns the internal state of a connection's sender, which no kernel reports.
    pub fn of(sender: &Connection, now: Instant) -> Self {
        let snapshot = sender.snapshot();
        Self {
            send_limit: snapshot.limit,
            limit_times: sender.limit_times(now),
            lost: Bytes::new(snapshot.lost),
            status: snapshot.status,
        }
    }
}

impl PathState {
    /// Returns the state of the path at time `now`, as it affects `flow`.
    pub fn of<T: Clone>(path: &mut Path<T>, now: Instant, flow: u32) -> Self {
        let busy = path.busy(now, flow);
        let counters = path.counters();
        Self {
            queue: path.backlog(now),
            link_busy: busy.link,
            shaper_busy: busy.shaper,
            policed: counters.policed,
            queue_drops: counters.queue_drops + counters.aqm_drops,
            random_drops: counters.random_drops,
        }
    }
}

impl From<ReceiverSnapshot> for ReceiverInfo {
    fn from(receiver: ReceiverSnapshot) -> Self {
        Self {
            received: Bytes::new(receiver.received),
            unread: Bytes::new(receiver.unread),
            rcvbuf: Bytes::new(receiver.rcvbuf),
        }
    }
}

impl Row {
    /// Returns the payload that was received in order so far; returns `None` if the receiver is not sampled.
    pub fn received(&self) -> Option<Bytes> {
        self.receiver.map(|receiver| receiver.received)
    }

    /// Returns this row as a sending host with a kernel TCP stack would observe it: without the state of the
    /// path, and without the internal state of the sender.
    #[must_use]
    pub fn observed(&self) -> Self {
        Self { path: None, truth: None, ..self.clone() }
    }
}

/// Consumer of trace rows.
pub trait Sink {
    /// Consumes the next trace row. Rows arrive ordered by time, then by flow.
    fn row(&mut self, row: &Row);

    /// Returns whether the run should continue. The event loop calls this function every few milliseconds of
    /// real time. If it returns `false`, the run ends early, and its outcome covers only the time until then.
    fn goes_on(&self) -> bool {
        true
    }

    /// Returns the amounts that the flows of a program may write and read from `now` on, for a sink that
    /// controls a program ([`run_team`](crate::sim::run_team)). The event loop calls this function at the
    /// start, and after the rows of each sampling time. With `None`, each flow has its own application.
    fn grants(&mut self, _now: Instant) -> Option<Grants> {
        None
    }
}

/// A sink that discards all trace rows.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTrace;

impl Sink for NoTrace {
    fn row(&mut self, _: &Row) {}
}

impl Sink for Vec<Row> {
    fn row(&mut self, row: &Row) {
        self.push(row.clone());
    }
}
