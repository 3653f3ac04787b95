//! The columns of a data set: one row per run and flow. The fields that differ between points are columns as
//! well; [`Design`](crate::experiment::Design) defines these.

use fullpipe_tcp::SendLimit;
use fullpipe_units::Duration;

use crate::columns::{Text, columns};
use crate::outcome::{FlowOutcome, Outcome};

/// Results of one flow of a run, as the source of a row of a data set.
#[derive(Clone, Copy, Debug)]
pub struct FlowRow<'a> {
    /// Number of the run in the data set.
    pub run: u64,
    /// Number of the point.
    pub point: u64,
    /// Random seed of the run.
    pub seed: u64,
    /// Number of the flow in the run.
    pub flow: u32,
    /// Outcome of the run.
    pub outcome: &'a Outcome,
    /// Outcome of the flow.
    pub of_flow: &'a FlowOutcome,
}

columns! {
    /// Results of one flow of a run in flat form: one field per column, in the order of the columns.
    RunRecord,
    /// The columns of a data set that every experiment has, in their order.
    RUN_COLUMNS,
    FlowRow { run, point, seed, flow, outcome, of_flow } => FlowRow<'_>;
    "the design" {
        /// Number of the run in the data set, starting from zero.
        run: u64, "", *run;
        /// Number of the point, starting from zero. All seeds of a point have the same number.
        point_index: u64, "", *point;
        /// Random seed of the run. Runs with the same seed are compared in pairs.
        seed: u64, "", *seed;
        /// Number of the flow in its run, starting from zero.
        flow: u32, "", *flow;
        /// Congestion control of the flow.
        flow_cc: Text, "", of_flow.cc.name().into();
    }
    "the flow" {
        /// Payload that the receiving application read, in bytes.
        received_bytes: u64, "bytes", of_flow.bytes.get();
        /// Goodput: payload divided by the flow's lifetime.
        goodput_bps: u64, "bit/s", of_flow.goodput.as_bps();
        /// Goodput over the second half of the flow's lifetime.
        goodput_second_half_bps: u64, "bit/s", of_flow.goodput_second_half.as_bps();
        /// Number of segments that the flow retransmitted.
        retransmits: u64, "segments", of_flow.retransmits;
        /// Minimum RTT; empty if no data was acknowledged.
        min_rtt_ms: Option<f64>, "ms", of_flow.rtt.map(|rtt| rtt.min.as_millis_f64());
        /// Mean RTT.
        mean_rtt_ms: Option<f64>, "ms", of_flow.rtt.map(|rtt| rtt.mean.as_millis_f64());
        /// Median RTT.
        p50_rtt_ms: Option<f64>, "ms", of_flow.rtt.map(|rtt| rtt.p50.as_millis_f64());
        /// 95th percentile of the RTT.
        p95_rtt_ms: Option<f64>, "ms", of_flow.rtt.map(|rtt| rtt.p95.as_millis_f64());
        /// Maximum congestion window.
        max_cwnd_bytes: u64, "bytes", of_flow.max_cwnd.get();
        /// Time at which the last byte of a flow of limited size was acknowledged; empty if incomplete.
        finished_s: Option<f64>, "s", of_flow.finished.map(|at| at.as_secs_f64());
        /// Time from the first SYN to the last byte of the response; empty without a request.
        from_syn_ms: Option<f64>, "ms", of_flow.response.map(|response| response.from_syn.as_millis_f64());
        /// Time from the first byte of the request to the last byte of the response; empty without a request.
        from_request_ms: Option<f64>, "ms", of_flow.response.map(|it| it.from_request.as_millis_f64());
        /// 99th percentile of the time between writing and reading a paced application's data, within 3 %.
        delay_p99_ms: Option<f64>, "ms", of_flow.delay_p99.map(Duration::as_millis_f64);
        /// Peak arrival rate of payload at the receiver over one sampling period.
        wire_peak_bps: u64, "bit/s", of_flow.wire.peak.as_bps();
        /// Mean arrival rate of payload at the receiver, duplicates included.
        wire_mean_bps: u64, "bit/s", of_flow.wire.mean.as_bps();
    }
    "the limits: shares of the flow's lifetime, 0 to 1" {
        /// Share of the time during which the application stopped the sender.
        share_app: f64, "", of_flow.share(SendLimit::App);
        /// Share of the time during which the send buffer stopped the sender.
        share_sndbuf: f64, "", of_flow.share(SendLimit::Sndbuf);
        /// Share of the time during which the receive window stopped the sender.
        share_rwnd: f64, "", of_flow.share(SendLimit::Rwnd);
        /// Share of the time during which the congestion window stopped the sender.
        share_cwnd: f64, "", of_flow.share(SendLimit::Cwnd);
        /// Share of the time during which the congestion window in slow start stopped the sender.
        share_slow_start: f64, "", of_flow.share(SendLimit::SlowStart);
        /// Share of the time during which the pacer stopped the sender.
        share_pacing: f64, "", of_flow.share(SendLimit::Pacing);
        /// Share of the time during which loss recovery stopped the sender.
        share_recovery: f64, "", of_flow.share(SendLimit::Recovery);
    }
    "the path: all flows of the run together" {
        /// Number of data packets that the path delivered.
        delivered_packets: u64, "packets", outcome.path.delivered;
        /// Number of packets that were dropped because the queue was full.
        queue_drops_packets: u64, "packets", outcome.path.queue_drops;
        /// Number of packets lost at random.
        random_drops_packets: u64, "packets", outcome.path.random_drops;
        /// Number of packets that a policer dropped.
        policed_packets: u64, "packets", outcome.path.policed;
        /// Number of packets that the AQM dropped although the queue was not full.
        aqm_drops_packets: u64, "packets", outcome.path.aqm_drops;
        /// Number of packets that the AQM marked (ECN CE).
        marked_packets: u64, "packets", outcome.path.marked;
        /// Number of duplicate packets that the path created.
        duplicated_packets: u64, "packets", outcome.path.duplicated;
        /// Number of packets that left the path after a later packet of the same flow.
        reordered_packets: u64, "packets", outcome.path.reordered;
        /// Number of pure ACKs that ACK decimation removed.
        thinned_acks: u64, "packets", outcome.path.acks_thinned;
    }
    "the run" {
        /// Hash over all trace rows of the run: identical for identical runs.
        digest: u64, "", outcome.digest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::tests::{names_end_in_their_unit, page_has};

    #[test]
    fn the_page_has_the_columns() {
        page_has("dataset.md", RUN_COLUMNS);
    }

    #[test]
    fn names_tell_the_unit() {
        names_end_in_their_unit(RUN_COLUMNS);
        let shares = RUN_COLUMNS.iter().filter(|column| column.name.starts_with("share_"));
        let limits: Vec<_> = shares.map(|column| column.name.trim_start_matches("share_")).collect();
        assert_eq!(limits, SendLimit::ALL.map(SendLimit::name), "a share for each limit");
    }
}
