//! The trace: what every world fills, and what explainer and report read.

use std::fmt::{self, Write};

use fullpipe_tcp::Snapshot;
use fullpipe_units::{Bytes, Duration, Instant};

/// One flow at one moment, and the queue of the data direction then.
#[derive(Clone, Debug)]
pub struct Row {
    /// When.
    pub at: Instant,
    /// Number of the flow.
    pub flow: u32,
    /// The sender's state.
    pub sender: Snapshot,
    /// Payload that the receiving application has got so far.
    pub received: Bytes,
    /// Bytes waiting in the queues of the data direction.
    pub queue: Bytes,
    /// Time spent stopped by each limit so far, in the order of [`fullpipe_tcp::SendLimit::ALL`].
    pub limit_times: [Duration; fullpipe_tcp::SendLimit::ALL.len()],
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

/// Rows as lines of comma-separated values under [`Csv::COLUMNS`]: base units, named in the column, and
/// nothing where there is no value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Csv(String);

impl Csv {
    /// Names of the columns.
    pub const COLUMNS: &str = "flow,t_s,cwnd_bytes,ssthresh_bytes,inflight_bytes,rwnd_bytes,queued_bytes,\
                               pacing_bps,srtt_ms,min_rtt_ms,delivered_bytes,lost_bytes,retransmits,\
                               received_bytes,queue_bytes,send_limit,phase";

    /// The lines so far.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.0.lines()
    }
}

impl Sink for Csv {
    fn row(&mut self, row: &Row) {
        let sender = &row.sender;
        let millis = |span: Option<Duration>| Cell(span.map(Duration::as_millis_f64));
        // Writing to a string does not fail.
        let _ = writeln!(
            self.0,
            "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}",
            row.flow,
            row.at.as_secs_f64(),
            sender.cwnd,
            Cell((sender.ssthresh != u64::MAX).then_some(sender.ssthresh)),
            sender.inflight,
            sender.rwnd,
            sender.queued,
            Cell(sender.pacing_rate.map(|rate| rate.as_bps())),
            millis(sender.srtt),
            millis(sender.min_rtt),
            sender.delivered,
            sender.lost,
            sender.stats.retransmits,
            row.received.get(),
            row.queue.get(),
            sender.limit,
            sender.status.phase,
        );
    }
}

/// A value, or an empty cell.
struct Cell<T>(Option<T>);

impl<T: fmt::Display> fmt::Display for Cell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |value| value.fmt(f))
    }
}

/// A hash over integers in order: FNV-1a, 64 bits.
#[derive(Clone, Copy, Debug)]
pub struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    /// Adds one integer.
    pub fn add(&mut self, value: u64) {
        for byte in value.to_le_bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// The hash so far.
    pub fn value(self) -> u64 {
        self.0
    }
}

impl Sink for Digest {
    fn row(&mut self, row: &Row) {
        let sender = &row.sender;
        let optional = |span: Option<Duration>| span.map_or(u64::MAX, Duration::as_nanos);
        for value in [
            row.at.as_nanos(),
            row.flow.into(),
            sender.cwnd,
            sender.ssthresh,
            sender.inflight,
            sender.rwnd,
            sender.pacing_rate.map_or(0, |rate| rate.as_bps()),
            optional(sender.srtt),
            optional(sender.min_rtt),
            sender.delivered,
            sender.lost,
            sender.queued,
            sender.stats.retransmits,
            sender.limit as u64,
            row.received.get(),
            row.queue.get(),
        ] {
            self.add(value);
        }
    }
}
