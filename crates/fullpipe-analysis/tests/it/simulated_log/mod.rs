//! Logs of simulated transfers: what iperf3 would have printed. The truth about the path is known, so a
//! conclusion from the log can be compared with it.

use std::fmt::Write;

use fullpipe_analysis::Measurement;
use fullpipe_analysis::input::iperf3;
use fullpipe_lab::experiment::Experiment;
use fullpipe_lab::scenario::Scenario;
use fullpipe_lab::sim;
use fullpipe_lab::trace::Row;

/// A simulated transfer, sampled once a second.
pub(crate) struct Transferred {
    rows: Vec<Row>,
}

/// One second of a transfer.
struct Second {
    bytes: u64,
    retransmits: u64,
    cwnd: u64,
    wnd: u64,
    rtt_us: u64,
}

impl Transferred {
    /// Simulates the only point of an experiment with these lines in its tables, for 30 s.
    pub(crate) fn of(path: &str, host: &str, flow: &str, seed: u64) -> Self {
        Self::sampled(path, host, flow, seed, "1s")
    }

    /// Simulates the same point, with samples at the interval `every`.
    pub(crate) fn sampled(path: &str, host: &str, flow: &str, seed: u64, every: &str) -> Self {
        let text = format!(
            "name = 'x'\nduration = '30s'\n[path]\n{path}\n[host]\n{host}\n[[flow]]\n{flow}\n[[sample]]\nevery = '{every}'"
        );
        let experiment = Experiment::from_toml(&text).expect("valid");
        let scenario = Scenario { seed, ..experiment.points()[0].scenario.clone() };
        let mut rows = Vec::new();
        sim::run_traced(&scenario, &mut rows);
        Self { rows }
    }

    /// Returns the samples with only the columns that sockets report.
    pub(crate) fn observed(&self) -> Vec<Row> {
        self.rows.iter().map(Row::observed).collect()
    }

    fn seconds(&self) -> impl Iterator<Item = Second> {
        let mut before = (0, 0);
        self.rows.iter().filter(|row| row.at.as_nanos() > 0).map(move |row| {
            let sender = &row.sender;
            let now = (sender.delivered.get(), sender.retransmits);
            let second = Second {
                bytes: now.0.saturating_sub(before.0),
                retransmits: now.1 - before.1,
                cwnd: sender.cwnd.get(),
                wnd: sender.rwnd.get(),
                rtt_us: sender.srtt.unwrap_or_default().as_nanos() / 1000,
            };
            before = now;
            second
        })
    }

    /// Returns the text log of the sending client: no RTT, no receive window.
    pub(crate) fn text(&self) -> Measurement {
        let mut text =
            String::from("Connecting to host h, port 5201\n[ ID] Interval Transfer Bitrate Retr Cwnd\n");
        let (mut total, mut again, mut end) = (0, 0, 0);
        for second in self.seconds() {
            let start = end;
            end += 1;
            total += second.bytes;
            again += second.retransmits;
            let (mib, mbps) = (second.bytes as f64 / 1048576.0, second.bytes as f64 * 8e-6);
            let kib = second.cwnd as f64 / 1024.0;
            let _ = writeln!(
                text,
                "[  5] {start}.00-{end}.00 sec {mib:.3} MBytes {mbps:.3} Mbits/sec {} {kib:.1} KBytes",
                second.retransmits
            );
        }
        let (mib, mbps) = (total as f64 / 1048576.0, total as f64 * 8e-6 / f64::from(end));
        let _ = writeln!(
            text,
            "[  5] 0.00-{end}.00 sec {mib:.3} MBytes {mbps:.3} Mbits/sec {again} sender\n\
             [  5] 0.00-{end}.00 sec {mib:.3} MBytes {mbps:.3} Mbits/sec receiver"
        );
        iperf3::parse(&text).expect("a log")
    }

    /// Returns the JSON document of the sending client, which names the congestion control `cc`.
    pub(crate) fn json(&self, cc: &str) -> Measurement {
        let (mut intervals, mut total, mut again) = (Vec::new(), 0, 0);
        for (start, second) in self.seconds().enumerate() {
            let end = start + 1;
            total += second.bytes;
            again += second.retransmits;
            intervals.push(format!(
                r#"{{"streams":[{{"socket":5,"start":{start},"end":{end},"seconds":1,"bytes":{},"bits_per_second":{},
                   "retransmits":{},"snd_cwnd":{},"snd_wnd":{},"rtt":{},"omitted":false,"sender":true}}]}}"#,
                second.bytes,
                second.bytes * 8,
                second.retransmits,
                second.cwnd,
                second.wnd,
                second.rtt_us,
            ));
        }
        let end = intervals.len();
        let sum = |again: &str| {
            format!(
                r#"{{"start":0,"end":{end},"bytes":{total},"bits_per_second":{}{again}}}"#,
                total * 8 / end as u64
            )
        };
        let (sent, received) = (sum(&format!(r#","retransmits":{again}"#)), sum(""));
        let text = format!(
            r#"{{"start":{{"version":"iperf 3.17","tcp_mss_default":1448,"sock_bufsize":0,"sndbuf_actual":16384,"rcvbuf_actual":131072,
               "test_start":{{"protocol":"TCP","reverse":0,"target_bitrate":0}}}},"intervals":[{}],
               "end":{{"sum_sent":{sent},"sum_received":{received},"sender_tcp_congestion":"{cc}"}}}}"#,
            intervals.join(",")
        );
        iperf3::parse(&text).expect("a log")
    }
}
