//! The iperf3 log of a run whose sockets were sampled: the document that `iperf3 -c ... -J` would print on
//! the sending host.
//!
//! ```text
//!   rows of a guest or of the simulator, one moment per report ──► Document ──► JSON or text ──► diagnosis
//! ```
//!
//! A report contains only values that iperf3 reads from its sockets or counts itself. It does not depend on
//! the path, the receive buffer or the internal state of a sender in any other way. RTT variation and
//! reordering are not sampled, so their keys are zero; no diagnosis reads them. The settings are those that
//! iperf3 would need for the first flow: `-b` for a slow writer, `--fq-rate` for a pacing rate, `-n` for an
//! amount of data. The hosts set the buffers, so `-w` is not used.

use std::collections::BTreeMap;

use fullpipe::iperf3::document::{
    Amount, DataConnection, Document, End, EndReceiver, EndSender, EndStream, Endpoint, Interval, Start,
    StreamInterval, Sum, TcpInterval, TestSettings, TestStart,
};
use fullpipe::iperf3::{PORT, Params};
use fullpipe::lab::capture::{FIRST_PORT, LISTEN_PORT, RECEIVER, SENDER};
use fullpipe::lab::scenario::Scenario;
use fullpipe::lab::trace::{Row, TcpInfo};
use fullpipe::lab::workload::Writing;
use fullpipe::linux::kernel_name;
use fullpipe::units::{Bytes, Duration, Instant, Rate};

/// Interval between two reports of iperf3.
pub const INTERVAL: Duration = Duration::from_secs(1);
/// Version of iperf3 in whose format the documents are written.
const VERSION: &str = "iperf 3.17.1";
/// Number of the first data connection in a document, and difference between consecutive numbers. iperf3
/// uses file descriptors as numbers, which are usually 5, 7, 9 and so on.
const FIRST_SOCKET: i32 = 5;
const NEXT_SOCKET: i32 = 2;
/// Initial sizes of autotuned socket buffers, as iperf3 prints them. These defaults are the same in every
/// kernel.
const SNDBUF_ACTUAL: Bytes = Bytes::new(16_384);
const RCVBUF_ACTUAL: Bytes = Bytes::new(131_072);

/// Returns the log of a run of `scenario` on hosts with the kernel `release`. `rows` contains, in
/// chronological order, a row of each flow for the end of every report.
pub fn document(scenario: &Scenario, release: &str, rows: &[Row]) -> Document {
    let mut written: BTreeMap<u32, Reading> = BTreeMap::new();
    let mut intervals = Vec::new();
    for moment in rows.chunk_by(|a, b| a.flow < b.flow) {
        let streams = moment.iter().map(|row| {
            let reading = written.entry(row.flow).or_default();
            let before = *reading;
            *reading = before.next(row, has_amount(scenario, row.flow));
            StreamInterval {
                socket: socket(row.flow),
                amount: reading.since(before),
                tcp: Some(tcp(&row.sender, before.retransmits, scenario)),
                udp: None,
                omitted: false,
                sender: true,
                fullpipe: None,
            }
        });
        intervals.push(Interval::of(streams.collect()));
    }
    let first = rows.first().map(|row| row.sender);
    let cc = scenario.flows.first().map(|flow| kernel_name(flow.cc).to_owned());
    let streams: Vec<(u32, Reading)> = written.into_iter().collect();
    Document {
        start: start(scenario, release, first.map(|sender| sender.mss)),
        intervals,
        end: End {
            streams: streams.iter().map(end_of_stream).collect(),
            sum_sent: sum(&streams, |reading| reading.written, true),
            sum_received: sum(&streams, |reading| reading.read, false),
            sender_tcp_congestion: cc.clone(),
            receiver_tcp_congestion: cc,
            ..End::default()
        },
        ..Document::default()
    }
}

/// Counters of a flow at the end of a report.
#[derive(Clone, Copy, Default)]
struct Reading {
    at: Instant,
    /// Number of bytes that the sending application has written.
    written: Bytes,
    /// Number of bytes that the receiving application has read.
    read: Bytes,
    retransmits: u64,
}

impl Reading {
    /// Returns the counters at the later `row`. iperf3 counts a byte when the socket accepts it. If an
    /// amount of data (`has_amount`) fits into the send buffer, it is written immediately, and the log would
    /// show no duration. An amount is therefore counted when it is delivered.
    fn next(self, row: &Row, has_amount: bool) -> Self {
        let TcpInfo { delivered, inflight, notsent, retransmits, .. } = row.sender;
        // Segments that are marked lost and not yet retransmitted are in none of these three amounts, so
        // the sum may briefly be too small. An application never takes data back, so the largest sum so
        // far counts.
        let accepted = if has_amount { delivered } else { delivered + inflight + notsent };
        let written = accepted.max(self.written);
        let read = row.receiver.map_or(written, |it| it.received.saturating_sub(it.unread));
        Self { at: row.at, written, read, retransmits }
    }

    fn since(self, before: Self) -> Amount {
        Amount { start: before.at, end: self.at, bytes: self.written.saturating_sub(before.written) }
    }

    fn whole(self, bytes: Bytes) -> Amount {
        Amount { start: Instant::ZERO, end: self.at, bytes }
    }
}

/// Returns whether a flow transfers an amount of data, and ends with it.
fn has_amount(scenario: &Scenario, flow: u32) -> bool {
    scenario.flows.get(flow as usize).is_some_and(|flow| flow.bytes.is_some())
}

const fn socket(flow: u32) -> i32 {
    FIRST_SOCKET + NEXT_SOCKET * flow as i32
}

fn tcp(sender: &TcpInfo, retransmits_before: u64, scenario: &Scenario) -> TcpInterval {
    TcpInterval {
        retransmits: sender.retransmits.saturating_sub(retransmits_before),
        snd_cwnd: sender.cwnd,
        snd_wnd: sender.rwnd,
        rtt: sender.srtt.unwrap_or_default(),
        pmtu: Bytes::new(scenario.path.mtu),
        ..TcpInterval::default()
    }
}

fn start(scenario: &Scenario, release: &str, mss: Option<Bytes>) -> Start {
    let flows = u16::try_from(scenario.flows.len()).unwrap_or(u16::MAX);
    let first = scenario.flows.first();
    let rate = first.and_then(|flow| match flow.workload.writing {
        Writing::Paced { rate, .. } => Some(rate),
        _ => None,
    });
    let params = Params {
        time: scenario.duration,
        parallel: flows.into(),
        num: first.and_then(|flow| flow.bytes).unwrap_or_default(),
        rate,
        fq_rate: first.and_then(|flow| flow.max_pacing_rate),
        ..Params::default()
    };
    let connection = |flow: u16| DataConnection {
        socket: socket(flow.into()),
        local_host: SENDER.to_string(),
        local_port: FIRST_PORT + flow,
        remote_host: RECEIVER.to_string(),
        remote_port: LISTEN_PORT,
    };
    let test_start = TestStart::of(&params, INTERVAL);
    Start {
        connected: (0..flows).map(connection).collect(),
        version: VERSION.into(),
        system_info: format!("Linux sender {release} #1 SMP x86_64"),
        connecting_to: Some(Endpoint { host: RECEIVER.to_string(), port: PORT }),
        tcp_mss_default: mss,
        asked: Some(TestSettings {
            target_bitrate: rate.unwrap_or(Rate::ZERO),
            fq_rate: params.fq_rate.unwrap_or(Rate::ZERO),
            sock_bufsize: Bytes::ZERO,
            sndbuf_actual: SNDBUF_ACTUAL,
            rcvbuf_actual: RCVBUF_ACTUAL,
            test_start,
        }),
        ..Start::default()
    }
}

fn end_of_stream(&(flow, reading): &(u32, Reading)) -> EndStream {
    let socket = socket(flow);
    EndStream::Tcp {
        sender: Some(EndSender {
            socket,
            amount: reading.whole(reading.written),
            retransmits: Some(reading.retransmits),
            extremes: None,
            sender: true,
        }),
        receiver: Some(EndReceiver { socket, amount: reading.whole(reading.read), sender: true }),
    }
}

fn sum(streams: &[(u32, Reading)], of: impl Fn(&Reading) -> Bytes, sent: bool) -> Option<Sum> {
    let (_, first) = streams.first()?;
    let bytes = streams.iter().fold(Bytes::ZERO, |sum, (_, reading)| sum + of(reading));
    let retransmits = streams.iter().map(|(_, reading)| reading.retransmits).sum();
    Some(Sum {
        amount: first.whole(bytes),
        retransmits: Some(retransmits).filter(|_| sent),
        udp: None,
        sender: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe::input::trace::Choice;
    use fullpipe::lab::experiment::Experiment;
    use fullpipe::lab::sim;
    use fullpipe::tcp::buffers::KernelVersion;
    use fullpipe::{Input, Measurement, tcp};

    /// Returns a run of five seconds with this many flows, and the measurement that is read from
    /// its log.
    fn read_back(flows: u32) -> (Vec<Row>, Measurement) {
        let text = format!(
            "name = 'x'\nduration = '5s'\n[path]\nrate = '20mbit'\nrtt = '40ms'\nloss = '0.1%'\n[host]\n\
             [[flow]]\ncc = 'reno'\ncount = {flows}"
        );
        let mut scenario = Experiment::from_toml(&text).expect("valid").points()[0].scenario.clone();
        scenario.sample_every = INTERVAL;
        let mut rows: Vec<Row> = Vec::new();
        sim::run_traced(&scenario, &mut rows);
        let log = document(&scenario, "6.1.176", &rows);
        let json = serde_json::to_vec_pretty(&log).expect("JSON");
        let input = Input::from_bytes("log", &json, &Choice::default()).expect("a log");
        (rows, input.measurement)
    }

    /// The log has the figures of the sockets at the end of each second, and the receiver's bytes.
    #[test]
    fn a_log_has_what_the_sockets_report() {
        for flows in [1, 3] {
            let (rows, measurement) = read_back(flows);
            assert_eq!(measurement.hosts.kernel, Some(KernelVersion::new(6, 1)), "{flows}");
            let sent = measurement.transfer();
            assert_eq!(sent.congestion_control.as_deref(), Some(tcp::cc::Algorithm::Reno.name()));
            let intervals = &sent.intervals;
            assert_eq!(intervals.len(), 5, "{flows}");
            let moment = &rows[4 * flows as usize..];
            let total = |of: fn(&Row) -> u64| moment.iter().map(of).sum::<u64>();
            let last = intervals.last().expect("an interval");
            assert_eq!(last.cwnd.map(Bytes::get), Some(total(|row| row.sender.cwnd.get())), "{flows}");
            assert_eq!(last.snd_wnd.map(Bytes::get), Some(total(|row| row.sender.rwnd.get())));
            let retransmits: u64 = intervals.iter().filter_map(|interval| interval.retransmits).sum();
            assert_eq!(retransmits, total(|row| row.sender.retransmits));
            let written: u64 = intervals.iter().map(|interval| interval.bytes.get()).sum();
            let in_buffers = total(|row| row.sender.flight_size.get() + row.sender.notsent.get());
            let delivered = total(|row| row.sender.delivered.get());
            assert!((delivered..=delivered + in_buffers).contains(&written), "{written} {delivered}");
            let received = sent.received.map(|total| total.bytes.get());
            let arrived = total(|row| row.receiver.map_or(0, |it| it.received.get() - it.unread.get()));
            assert_eq!(received, Some(arrived), "{flows}");
        }
    }
}
