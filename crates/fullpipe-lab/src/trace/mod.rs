//! The trace: what every world fills, and what explainer and report read.
//!
//! A row has four parts, by who can know them. What a socket tells of itself is there in every world; the
//! state of the path only where the path is ours; the truth about the sender only where its TCP is ours:
//!
//! | part | sim | emu | live |
//! |---|---|---|---|
//! | [`TcpInfo`], the sending socket | yes | yes | yes |
//! | [`ReceiverInfo`], the receiving socket | yes | yes | with a peer that reports |
//! | [`PathState`] | yes | yes | no |
//! | [`SenderTruth`] | yes | with our TCP | with our TCP |

mod columns;
mod digest;
mod read;

pub use columns::{COLUMNS, Column, Csv, Kind, Record};
pub use digest::Digest;
pub use read::{ReadError, Recorded, Recording, is_header, read};

use fullpipe_path::Path;
use fullpipe_tcp::cc::{Algorithm, Status};
use fullpipe_tcp::{Connection, ReceiverSnapshot, SendLimit, Snapshot};
use fullpipe_units::{Bytes, Duration, Instant, Rate};

/// One flow at one moment.
#[derive(Clone, Debug)]
pub struct Row {
    /// When.
    pub at: Instant,
    /// Number of the flow.
    pub flow: u32,
    /// What the sending socket tells.
    pub sender: TcpInfo,
    /// What the receiving socket tells; `None` when only one end is watched.
    pub receiver: Option<ReceiverInfo>,
    /// The data direction of the path; `None` on a real network.
    pub path: Option<PathState>,
    /// What only the sender's own code knows; `None` for a kernel's. It stands apart because it is more than a third of the whole:
    /// who watches a thousand sockets of a kernel keeps hundreds of thousands of rows without it.
    pub truth: Option<Box<SenderTruth>>,
}

/// What a sending socket tells of itself: the kernel's `TCP_INFO` and `SO_MEMINFO`, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpInfo {
    /// Its congestion control (`TCP_CONGESTION`); `None` when not asked for, or none of ours.
    pub cc: Option<Algorithm>,
    /// Payload of a full segment.
    pub mss: Bytes,
    /// Congestion window in force.
    pub cwnd: Bytes,
    /// Slow-start threshold; `None` before the first reduction.
    pub ssthresh: Option<Bytes>,
    /// Bytes in the network.
    pub inflight: Bytes,
    /// Sent and not cumulatively acknowledged.
    pub flight_size: Bytes,
    /// The receiver's window.
    pub rwnd: Bytes,
    /// Pacing rate in force.
    pub pacing_rate: Option<Rate>,
    /// Most that the socket may be paced at (`SO_MAX_PACING_RATE`).
    pub max_pacing_rate: Option<Rate>,
    /// The last delivery-rate sample that tells of the path.
    pub delivery_rate: Option<Rate>,
    /// That sample was taken while the application left the window unused.
    pub app_limited: bool,
    /// Smoothed RTT.
    pub srtt: Option<Duration>,
    /// Smallest RTT.
    pub min_rtt: Option<Duration>,
    /// Bytes delivered so far.
    pub delivered: Bytes,
    /// Retransmitted segments so far.
    pub retransmits: u64,
    /// In fast recovery, or repairing after a timeout.
    pub recovering: bool,
    /// Written and not sent yet.
    pub notsent: Bytes,
    /// Memory the send buffer may take now.
    pub sndbuf: Bytes,
    /// Memory the send buffer takes.
    pub sndbuf_used: Bytes,
    /// What a kernel's BBR believes of the path; `None` for other congestion controls.
    pub bbr: Option<BbrInfo>,
}

/// What BBR tells of its model: the kernel's `tcp_bbr_info` (`TCP_CC_INFO`, `INET_DIAG_BBRINFO`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BbrInfo {
    /// Bottleneck bandwidth: the most that was delivered in one of the last ten round trips.
    pub bw: Rate,
    /// Smallest RTT of the last ten seconds.
    pub min_rtt: Option<Duration>,
    /// Pacing rate over bandwidth, in percent: 288 in Startup, 34 in Drain, 125, 75 and 100 in ProbeBW.
    pub pacing_gain_percent: u32,
    /// Window over bandwidth times smallest RTT, in percent.
    pub cwnd_gain_percent: u32,
}

/// What a receiving socket tells of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverInfo {
    /// Payload received in order so far.
    pub received: Bytes,
    /// Received and not read yet (`Recv-Q`).
    pub unread: Bytes,
    /// Memory the receive buffer may take now.
    pub rcvbuf: Bytes,
}

/// What a receiving socket tells at one moment where the sending one is not watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// When.
    pub at: Instant,
    /// Number of the flow.
    pub flow: u32,
    /// What every receiving socket tells.
    pub receiver: ReceiverInfo,
    /// The window that it has offered last; zero throughout where its kernel does not tell it (before 6.2).
    pub window: Bytes,
    /// Round trip as it sees it: from the acknowledgement to the data that it released.
    pub rtt: Option<Duration>,
    /// Segments that came while an earlier one was missing, so far.
    pub out_of_order: u64,
    /// Payload of the segments that come.
    pub mss: Bytes,
}

/// The data direction of a path that is ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathState {
    /// Bytes waiting in its queues.
    pub queue: Bytes,
    /// How long its link has been sending so far.
    pub link_busy: Duration,
    /// How long its shaper has made packets of this flow wait so far.
    pub shaper_busy: Duration,
    /// Packets that a policer dropped so far, of all flows.
    pub policed: u64,
    /// Packets that a queue dropped so far, being full or by its management, of all flows.
    pub queue_drops: u64,
    /// Packets lost at random so far, of all flows.
    pub random_drops: u64,
}

/// What a sender's own code knows and no kernel tells.
#[derive(Clone, Debug)]
pub struct SenderTruth {
    /// What stops the sender now.
    pub send_limit: SendLimit,
    /// Time spent stopped by each limit so far, in the order of [`SendLimit::ALL`].
    pub limit_times: [Duration; SendLimit::ALL.len()],
    /// Bytes marked lost so far.
    pub lost: Bytes,
    /// The controller's phase and named values.
    pub status: Status,
}

impl TcpInfo {
    /// The part of a connection's state that a kernel would show of its own.
    pub fn of(sender: &Snapshot, cc: Algorithm, max_pacing_rate: Option<Rate>) -> Self {
        Self {
            cc: Some(cc),
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
            recovering: sender.recovering,
            notsent: Bytes::new(sender.notsent),
            sndbuf: Bytes::new(sender.sndbuf),
            sndbuf_used: Bytes::new(sender.sndbuf_used),
            bbr: None,
        }
    }
}

impl SenderTruth {
    /// The part of a connection's state that no kernel would show.
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
    /// The state of `path` at `now` as `flow` meets it.
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
    /// Payload received in order so far, where the receiver is watched.
    pub fn received(&self) -> Option<Bytes> {
        self.receiver.map(|receiver| receiver.received)
    }

    /// This row as a kernel's socket would show it from the sending end: without path and truth.
    #[must_use]
    pub fn observed(&self) -> Self {
        Self { path: None, truth: None, ..self.clone() }
    }
}

/// Where rows go. A type parameter of the loop, so that an unused trace costs nothing.
pub trait Sink {
    /// Takes the next row; rows come in order of time, then of flow.
    fn row(&mut self, row: &Row);
}

/// Drops rows.
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
