//! The columns of a trace, all of which are defined in one table.
//!
//! The flat trace row, the cells of a CSV file, the required columns and bounds of the reader, and
//! `docs/reference/trace.md` are all generated from this table.
//!
//! ```text
//!   Row ──value──► Record ──serde──► a line of CSV ──serde──► Record ──within bounds──► Row
//! ```
//!
//! Values are in base units, and the name of a column ends in its unit. A cell without a value is empty. To
//! add a column, add a line to the table; a test then fails until [`read`](super::read()) stores the column's
//! value in a row. A writer of another format takes names, units and types from [`COLUMNS`], and the values
//! from [`Record::cells`].

use fullpipe_tcp::SendLimit;
use fullpipe_units::{Duration, Rate};
use serde::{Deserialize, Serialize};

use super::{Row, SenderTruth, Sink};
use crate::columns::{Text, columns};

/// Maximum segment size accepted, in bytes. The length field of an IP packet allows no more than 64 KiB.
const LARGEST_SEGMENT: u64 = 65_535;
/// Maximum window or socket-buffer size accepted: 1 TiB, so that sums and products of sizes do not overflow.
const LARGEST_BUFFER: u64 = 1 << 40;

columns! {
    /// A trace row in flat form: one field per column, in the order of the columns.
    #[derive(Serialize, Deserialize)]
    Record,
    /// The columns of a trace, in the order in which a CSV file contains them.
    COLUMNS,
    Row { at, flow, sender, receiver, path, truth } => Row;
    "the run" {
        /// Number of the flow, starting from zero.
        flow: u32, "", *flow;
        /// Time since the start of the run, in seconds.
        t_s: f64, "s", at.as_secs_f64();
    }
    "the sending socket" {
        /// Congestion control of the sender.
        cc: Option<Text>, "", sender.cc.map(|cc| cc.name().into());
        /// Payload length of a full-sized segment (MSS), in bytes.
        mss_bytes: u64, "bytes" <= LARGEST_SEGMENT, sender.mss.get();
        /// Congestion window, in bytes.
        cwnd_bytes: u64, "bytes" <= LARGEST_BUFFER, sender.cwnd.get();
        /// Slow-start threshold in bytes; empty before the first reduction of the congestion window.
        ssthresh_bytes: Option<u64>, "bytes", sender.ssthresh.map(|bytes| bytes.get());
        /// Bytes in flight, as estimated by the sender.
        inflight_bytes: u64, "bytes" <= LARGEST_BUFFER, sender.inflight.get();
        /// Bytes that were sent but not yet cumulatively acknowledged.
        flight_size_bytes: u64, "bytes" <= LARGEST_BUFFER, sender.flight_size.get();
        /// Window that the receiver advertises, in bytes.
        rwnd_bytes: u64, "bytes" <= LARGEST_BUFFER, sender.rwnd.get();
        /// Bytes that the application has written but TCP has not sent yet.
        notsent_bytes: u64, "bytes" <= LARGEST_BUFFER, sender.notsent.get();
        /// Memory that the send buffer may use, in bytes.
        sndbuf_bytes: u64, "bytes" <= LARGEST_BUFFER, sender.sndbuf.get();
        /// Memory that the send buffer currently uses, in bytes.
        sndbuf_used_bytes: u64, "bytes" <= LARGEST_BUFFER, sender.sndbuf_used.get();
        /// Pacing rate of the sender.
        pacing_bps: Option<u64>, "bit/s", bps(sender.pacing_rate);
        /// Upper bound on the pacing rate; empty if the application set none.
        max_pacing_bps: Option<u64>, "bit/s", bps(sender.max_pacing_rate);
        /// Most recent delivery-rate sample, without application-limited samples that lower the rate.
        delivery_bps: Option<u64>, "bit/s", bps(sender.delivery_rate);
        /// Whether the delivery-rate sample was limited by the application.
        app_limited: bool, "", sender.app_limited;
        /// Smoothed RTT.
        srtt_ms: Option<f64>, "ms", millis(sender.srtt);
        /// Minimum RTT of the last five minutes.
        min_rtt_ms: Option<f64>, "ms", millis(sender.min_rtt);
        /// Bytes that the sender knows to have been delivered so far.
        delivered_bytes: u64, "bytes", sender.delivered.get();
        /// Number of segments retransmitted so far.
        retransmits: u64, "segments", sender.retransmits;
        /// Whether the sender is in fast recovery or in recovery after an RTO.
        recovering: bool, "", sender.recovering;
        /// Number of duplicates that the receiver has reported so far (D-SACK).
        dsack_dups: Option<u64>, "segments", Some(sender.dsack_dups);
    }
    "the receiving socket" {
        /// Payload bytes that the receiver has received in order so far.
        received_bytes: Option<u64>, "bytes", receiver.map(|it| it.received.get());
        /// Payload bytes that the receiver holds but the application has not read yet.
        unread_bytes: Option<u64>, "bytes", receiver.map(|it| it.unread.get());
        /// Memory that the receive buffer may use, in bytes.
        rcvbuf_bytes: Option<u64>, "bytes" <= LARGEST_BUFFER, receiver.map(|it| it.rcvbuf.get());
    }
    "the path" {
        /// Bytes waiting in the queues of the path.
        queue_bytes: Option<u64>, "bytes", path.map(|it| it.queue.get());
        /// Total time for which the link has been transmitting so far.
        link_busy_s: Option<f64>, "s", path.map(|it| it.link_busy.as_secs_f64());
        /// Total time for which the shaper has delayed packets so far.
        shaper_busy_s: Option<f64>, "s", path.map(|it| it.shaper_busy.as_secs_f64());
        /// Number of packets that a policer has dropped so far.
        policed: Option<u64>, "packets", path.map(|it| it.policed);
        /// Number of packets dropped so far by a full queue or by its AQM.
        queue_drops: Option<u64>, "packets", path.map(|it| it.queue_drops);
        /// Number of packets lost at random so far.
        random_drops: Option<u64>, "packets", path.map(|it| it.random_drops);
    }
    "our own sender" {
        /// Bytes that the sender has marked lost so far.
        lost_bytes: Option<u64>, "bytes", truth.as_ref().map(|it| it.lost.get());
        /// Limit that currently stops the sender.
        send_limit: Option<Text>, "", truth.as_ref().map(|it| it.send_limit.name().into());
        /// Total time for which the application has stopped the sender so far.
        limited_app_s: Option<f64>, "s", limited(truth, SendLimit::App);
        /// Total time for which the send buffer has stopped the sender so far.
        limited_sndbuf_s: Option<f64>, "s", limited(truth, SendLimit::Sndbuf);
        /// Total time for which the receive window has stopped the sender so far.
        limited_rwnd_s: Option<f64>, "s", limited(truth, SendLimit::Rwnd);
        /// Total time for which the congestion window has stopped the sender so far.
        limited_cwnd_s: Option<f64>, "s", limited(truth, SendLimit::Cwnd);
        /// Total time for which the congestion window in slow start has stopped the sender so far.
        limited_slow_start_s: Option<f64>, "s", limited(truth, SendLimit::SlowStart);
        /// Total time for which the pacer has stopped the sender so far.
        limited_pacing_s: Option<f64>, "s", limited(truth, SendLimit::Pacing);
        /// Total time for which loss recovery has stopped the sender so far.
        limited_recovery_s: Option<f64>, "s", limited(truth, SendLimit::Recovery);
        /// Current phase of the congestion control.
        phase: Option<Text>, "", truth.as_ref().map(|it| it.status.phase.into());
    }
    "a kernel's BBR" {
        /// Bottleneck bandwidth as estimated by BBR.
        bbr_bw_bps: Option<u64>, "bit/s", sender.bbr.map(|it| it.bw.as_bps());
        /// Smallest RTT of the last ten seconds, as measured by BBR.
        bbr_min_rtt_ms: Option<f64>, "ms", millis(sender.bbr.and_then(|it| it.min_rtt));
        /// BBR's pacing gain: pacing rate divided by the estimated bottleneck bandwidth, in percent.
        bbr_pacing_gain_percent: Option<u32>, "%", sender.bbr.map(|it| it.pacing_gain_percent);
        /// BBR's cwnd gain: congestion window divided by the estimated BDP, in percent.
        bbr_cwnd_gain_percent: Option<u32>, "%", sender.bbr.map(|it| it.cwnd_gain_percent);
    }
}

fn millis(span: Option<Duration>) -> Option<f64> {
    span.map(Duration::as_millis_f64)
}

fn bps(rate: Option<Rate>) -> Option<u64> {
    rate.map(Rate::as_bps)
}

fn limited(truth: &Option<Box<SenderTruth>>, limit: SendLimit) -> Option<f64> {
    truth.as_ref().map(|truth| truth.limit_times[limit as usize].as_secs_f64())
}

/// Trace rows as comma-separated values, after a header line.
#[derive(Debug)]
pub struct Csv(csv::Writer<Vec<u8>>);

impl Default for Csv {
    fn default() -> Self {
        Self(csv::Writer::from_writer(Vec::new()))
    }
}

impl Csv {
    /// Returns the CSV text: the header line, then one line per row; empty if there was no row.
    pub fn into_text(self) -> String {
        // Writing to memory cannot fail, and trace records contain only UTF-8.
        self.0.into_inner().ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
    }
}

impl Sink for Csv {
    fn row(&mut self, row: &Row) {
        let _ = self.0.serialize(Record::from(row));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::tests::{names_end_in_their_unit, page_has};
    use crate::trace::is_header;

    #[test]
    fn the_page_has_the_columns() {
        page_has("trace.md", COLUMNS);
    }

    /// The name of a column ends in its unit, so that a CSV file can be read without documentation. The names
    /// of counts contain no unit.
    #[test]
    fn names_tell_the_unit() {
        names_end_in_their_unit(COLUMNS);
        assert!(is_header(&COLUMNS.iter().map(|column| column.name).collect::<Vec<_>>().join(",")));
    }
}
