//! Rows as lines of comma-separated values, both ways.
//!
//! Base units, named in the column; nothing where there is no value. [`Record`] is the one list of columns.

use fullpipe_tcp::SendLimit;
use fullpipe_units::{Duration, Rate};
use serde::{Deserialize, Serialize};

use super::{Row, Sink};

/// A row, flat: the columns in their order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Number of the flow.
    pub flow: u32,
    /// Seconds since the start of the run.
    pub t_s: f64,
    /// Congestion control.
    pub cc: Option<String>,
    /// Payload of a full segment.
    pub mss_bytes: u64,
    /// Congestion window.
    pub cwnd_bytes: u64,
    /// Slow-start threshold.
    pub ssthresh_bytes: Option<u64>,
    /// Bytes in the network.
    pub inflight_bytes: u64,
    /// Sent and not cumulatively acknowledged.
    pub flight_size_bytes: u64,
    /// The receiver's window.
    pub rwnd_bytes: u64,
    /// Written and not sent.
    pub notsent_bytes: u64,
    /// Memory the send buffer may take.
    pub sndbuf_bytes: u64,
    /// Memory it takes.
    pub sndbuf_used_bytes: u64,
    /// Pacing rate.
    pub pacing_bps: Option<u64>,
    /// Its upper bound, if one was set.
    pub max_pacing_bps: Option<u64>,
    /// Delivery rate.
    pub delivery_bps: Option<u64>,
    /// The delivery rate is the application's, not the path's.
    pub app_limited: bool,
    /// Smoothed RTT.
    pub srtt_ms: Option<f64>,
    /// Smallest RTT.
    pub min_rtt_ms: Option<f64>,
    /// Bytes delivered so far.
    pub delivered_bytes: u64,
    /// Segments sent again so far.
    pub retransmits: u64,
    /// In fast recovery, or repairing after a timeout.
    pub recovering: bool,
    /// Payload received in order so far.
    pub received_bytes: Option<u64>,
    /// Received and not read.
    pub unread_bytes: Option<u64>,
    /// Memory the receive buffer may take.
    pub rcvbuf_bytes: Option<u64>,
    /// Bytes waiting in the path.
    pub queue_bytes: Option<u64>,
    /// How long the link has been sending so far.
    pub link_busy_s: Option<f64>,
    /// How long the shaper has made packets wait so far.
    pub shaper_busy_s: Option<f64>,
    /// Packets that a policer dropped so far.
    pub policed: Option<u64>,
    /// Packets that a full queue dropped so far.
    pub queue_drops: Option<u64>,
    /// Packets lost at random so far.
    pub random_drops: Option<u64>,
    /// Bytes marked lost so far.
    pub lost_bytes: Option<u64>,
    /// What stops the sender now.
    pub send_limit: Option<String>,
    /// Seconds stopped by the application so far; the next columns likewise.
    pub limited_app_s: Option<f64>,
    /// By the send buffer.
    pub limited_sndbuf_s: Option<f64>,
    /// By the receiver's window.
    pub limited_rwnd_s: Option<f64>,
    /// By the congestion window.
    pub limited_cwnd_s: Option<f64>,
    /// By slow start.
    pub limited_slow_start_s: Option<f64>,
    /// By the pacer.
    pub limited_pacing_s: Option<f64>,
    /// By loss recovery.
    pub limited_recovery_s: Option<f64>,
    /// The controller's phase.
    pub phase: Option<String>,
    /// Bottleneck bandwidth that a kernel's BBR has measured.
    pub bbr_bw_bps: Option<u64>,
    /// Its smallest RTT.
    pub bbr_min_rtt_ms: Option<f64>,
    /// Its pacing rate over that bandwidth.
    pub bbr_pacing_gain_percent: Option<u32>,
    /// Its window over what both of them make.
    pub bbr_cwnd_gain_percent: Option<u32>,
}

impl From<&Row> for Record {
    fn from(row: &Row) -> Self {
        let Row { at, flow, sender, receiver, path, truth } = row;
        let millis = |span: Option<Duration>| span.map(Duration::as_millis_f64);
        let bps = |rate: Option<Rate>| rate.map(Rate::as_bps);
        let limited =
            |limit: SendLimit| truth.as_ref().map(|truth| truth.limit_times[limit as usize].as_secs_f64());
        Self {
            flow: *flow,
            t_s: at.as_secs_f64(),
            cc: sender.cc.map(|cc| cc.name().into()),
            mss_bytes: sender.mss.get(),
            cwnd_bytes: sender.cwnd.get(),
            ssthresh_bytes: sender.ssthresh.map(|ssthresh| ssthresh.get()),
            inflight_bytes: sender.inflight.get(),
            flight_size_bytes: sender.flight_size.get(),
            rwnd_bytes: sender.rwnd.get(),
            notsent_bytes: sender.notsent.get(),
            sndbuf_bytes: sender.sndbuf.get(),
            sndbuf_used_bytes: sender.sndbuf_used.get(),
            pacing_bps: bps(sender.pacing_rate),
            max_pacing_bps: bps(sender.max_pacing_rate),
            delivery_bps: bps(sender.delivery_rate),
            app_limited: sender.app_limited,
            srtt_ms: millis(sender.srtt),
            min_rtt_ms: millis(sender.min_rtt),
            delivered_bytes: sender.delivered.get(),
            retransmits: sender.retransmits,
            recovering: sender.recovering,
            received_bytes: receiver.map(|receiver| receiver.received.get()),
            unread_bytes: receiver.map(|receiver| receiver.unread.get()),
            rcvbuf_bytes: receiver.map(|receiver| receiver.rcvbuf.get()),
            queue_bytes: path.map(|path| path.queue.get()),
            link_busy_s: path.map(|path| path.link_busy.as_secs_f64()),
            shaper_busy_s: path.map(|path| path.shaper_busy.as_secs_f64()),
            policed: path.map(|path| path.policed),
            queue_drops: path.map(|path| path.queue_drops),
            random_drops: path.map(|path| path.random_drops),
            lost_bytes: truth.as_ref().map(|truth| truth.lost.get()),
            send_limit: truth.as_ref().map(|truth| truth.send_limit.name().into()),
            limited_app_s: limited(SendLimit::App),
            limited_sndbuf_s: limited(SendLimit::Sndbuf),
            limited_rwnd_s: limited(SendLimit::Rwnd),
            limited_cwnd_s: limited(SendLimit::Cwnd),
            limited_slow_start_s: limited(SendLimit::SlowStart),
            limited_pacing_s: limited(SendLimit::Pacing),
            limited_recovery_s: limited(SendLimit::Recovery),
            phase: truth.as_ref().map(|truth| truth.status.phase.into()),
            bbr_bw_bps: sender.bbr.map(|bbr| bbr.bw.as_bps()),
            bbr_min_rtt_ms: millis(sender.bbr.and_then(|bbr| bbr.min_rtt)),
            bbr_pacing_gain_percent: sender.bbr.map(|bbr| bbr.pacing_gain_percent),
            bbr_cwnd_gain_percent: sender.bbr.map(|bbr| bbr.cwnd_gain_percent),
        }
    }
}

/// Rows as lines of comma-separated values under a line of their names.
#[derive(Debug)]
pub struct Csv(csv::Writer<Vec<u8>>);

impl Default for Csv {
    fn default() -> Self {
        Self(csv::Writer::from_writer(Vec::new()))
    }
}

impl Csv {
    /// The lines: the names of the columns, then one a row. Nothing without a row.
    pub fn into_text(self) -> String {
        // Writing to memory does not fail, and records hold nothing but UTF-8.
        self.0.into_inner().ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
    }
}

impl Sink for Csv {
    fn row(&mut self, row: &Row) {
        let _ = self.0.serialize(Record::from(row));
    }
}
