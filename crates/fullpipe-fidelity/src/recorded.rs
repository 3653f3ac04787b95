//! Converts a run to inputs of a diagnosis, in the formats of the tools that could have recorded the run.
//!
//! ```text
//!   rows of the sockets ──┬──► trace (CSV)
//!                         ├──► ss -tmi, ten times a second
//!                         └──► iperf3 of the sending host: text, and JSON (-J)
//!   packets at the sender ───► capture
//! ```

use std::fmt::{self, Write as _};

use fullpipe::iperf3::Params;
use fullpipe::iperf3::document::Document;
use fullpipe::iperf3::text::{Side, Text};
use fullpipe::iperf3::unit::RateFormat;
use fullpipe::lab::capture::{Capture, CapturedPacket, FIRST_PORT, LISTEN_PORT, RECEIVER, SENDER, SNAPLEN};
use fullpipe::lab::scenario::Scenario;
use fullpipe::lab::trace::{Csv, Row, Sink};
use fullpipe::linux::kernel_name;
use fullpipe::units::{Bytes, Duration, Instant};

use crate::iperf3_log;

/// Time between two dumps of `ss`.
const DUMP: Duration = Duration::from_millis(100);

/// Form in which a run is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InputKind {
    /// Trace rows of both sockets, as `fullpipe run` writes them.
    Rows,
    /// JSON document of iperf3 (`-J`).
    Json,
    /// Text log of iperf3.
    Text,
    /// Dumps of `ss -tmi` on the sending host.
    Ss,
    /// Capture on the sending host.
    Capture,
}

impl InputKind {
    /// All kinds, in the order in which tables list them.
    pub const ALL: [Self; 5] = [Self::Rows, Self::Json, Self::Text, Self::Ss, Self::Capture];

    /// Returns the name of the file that stores this kind.
    pub const fn file(self) -> &'static str {
        match self {
            Self::Rows => "trace.csv",
            Self::Json => "iperf3.json",
            Self::Text => "iperf3.txt",
            Self::Ss => "ss.txt",
            Self::Capture => "sender.pcap",
        }
    }

    /// Returns whether the input is an iperf3 log, for which the RTT of the path must be given.
    pub const fn is_log(self) -> bool {
        matches!(self, Self::Json | Self::Text)
    }
}

impl fmt::Display for InputKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Rows => "trace rows",
            Self::Json => "iperf3 `-J`",
            Self::Text => "iperf3 text",
            Self::Ss => "`ss -tmi`",
            Self::Capture => "capture",
        })
    }
}

/// Packets of a run as a pcap file.
#[derive(Clone, Debug)]
pub struct Pcap(Vec<u8>);

impl Default for Pcap {
    /// Returns a file without packets: version 2.4, timestamps in nanoseconds, packets that begin with their
    /// IP header.
    fn default() -> Self {
        let mut file = Vec::new();
        for word in [0xa1b2_3c4d, 0x0004_0002, 0, 0, SNAPLEN as u32, 101] {
            file.extend(u32::to_le_bytes(word));
        }
        Self(file)
    }
}

impl Capture for Pcap {
    fn packet(&mut self, packet: &CapturedPacket<'_>) {
        let nanos = packet.at.as_nanos();
        let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
        for word in [seconds as u32, rest as u32, packet.headers.len() as u32, packet.len] {
            self.0.extend(u32::to_le_bytes(word));
        }
        self.0.extend(packet.headers);
    }
}

/// A run with one flow, and all records of the run.
pub struct Recorded<'s> {
    /// Scenario of the run.
    pub scenario: &'s Scenario,
    /// Release of the sending host's kernel.
    pub release: String,
    /// Rows with only the columns that sockets report, from the start of the flow to its end.
    rows: Vec<Row>,
    packets: Pcap,
}

impl<'s> Recorded<'s> {
    /// Creates the records of flow 0 of a run.
    pub fn new(scenario: &'s Scenario, rows: &[Row], packets: Pcap, release: String) -> Self {
        let rows = rows.iter().filter(|row| row.flow == 0).map(Row::observed).collect();
        Self { scenario, release, rows, packets }
    }

    /// Returns the content of the file of this kind.
    pub fn bytes(&self, kind: InputKind) -> Vec<u8> {
        match kind {
            InputKind::Rows => self.trace().into_bytes(),
            InputKind::Json => self.json().into_bytes(),
            InputKind::Text => self.text().into_bytes(),
            InputKind::Ss => self.dumps().into_bytes(),
            InputKind::Capture => self.packets.0.clone(),
        }
    }

    fn trace(&self) -> String {
        let mut trace = Csv::default();
        self.rows.iter().for_each(|row| trace.row(row));
        trace.into_text()
    }

    /// Returns the first row at or after each multiple of `every`.
    fn every(&self, every: Duration) -> impl Iterator<Item = &Row> {
        let mut next = Instant::ZERO;
        self.rows.iter().filter(move |row| {
            let due = row.at >= next;
            while row.at >= next {
                next += every;
            }
            due
        })
    }

    fn dumps(&self) -> String {
        let mut text = String::new();
        for row in self.every(DUMP) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{:.3}", 1_700_000_000.0 + row.at.as_secs_f64());
            text += "State Recv-Q Send-Q  Local Address:Port  Peer Address:PortProcess\n";
            text += &dump(row);
        }
        text
    }

    fn text(&self) -> String {
        let params = Params::default();
        let mut text = Text::new(Side::Client, &params, RateFormat::default(), false);
        let Document { start, intervals, end, .. } = self.document();
        let mut lines = text.start(&start);
        for interval in &intervals {
            lines += &text.interval(interval);
        }
        lines + &text.end(&end, true) + "\niperf Done.\n"
    }

    fn json(&self) -> String {
        serde_json::to_string(&self.document()).unwrap_or_default()
    }

    fn document(&self) -> Document {
        iperf3_log::document(self.scenario, &self.release, &self.reported())
    }

    /// Returns the row at the end of each report: one per second, and one for the rest of the flow's time. A
    /// flow with a fixed amount of data ends when all data is delivered.
    fn reported(&self) -> Vec<Row> {
        let total = self.scenario.flows[0].bytes;
        let done = |row: &Row| total.is_some_and(|total| row.sender.delivered >= total);
        let until = self.rows.iter().position(done).map_or(self.rows.len(), |last| last + 1);
        let rows = &self.rows[..until];
        let Some(last) = rows.last() else { return Vec::new() };
        let (mut reported, mut from) = (Vec::new(), Instant::ZERO);
        while from < last.at {
            let to = (from + iperf3_log::INTERVAL).min(last.at);
            let Some(row) = rows.iter().find(|row| row.at >= to) else { break };
            from = row.at;
            reported.push(row.clone());
        }
        reported
    }
}

/// Returns the two lines of a connection in a dump of iproute2 6.1.
fn dump(row: &Row) -> String {
    let sender = &row.sender;
    let mss = sender.mss.get().max(1);
    let segments = |bytes: Bytes| bytes.get().div_ceil(mss);
    let millis = |time: Option<Duration>| time.map_or(0.0, Duration::as_millis_f64);
    let mut text = format!(
        "ESTAB 0 {} {SENDER}:{FIRST_PORT} {RECEIVER}:{LISTEN_PORT}\n\t skmem:(r0,rb131072,t0,tb{},f0,w{},o0,bl0,d0) ts sack {}",
        (sender.notsent + sender.flight_size).get(),
        sender.sndbuf.get(),
        sender.sndbuf_used.get(),
        sender.cc.map_or("cubic", |cc| kernel_name(cc.into())),
    );
    let mut add = |field: String| text += &format!(" {field}");
    add(format!(
        "rto:{:.0} rtt:{:.3}/1 mss:{mss} pmtu:1500",
        200.0 + millis(sender.srtt),
        millis(sender.srtt)
    ));
    add(format!("cwnd:{}", segments(sender.cwnd)));
    if let Some(ssthresh) = sender.ssthresh {
        add(format!("ssthresh:{}", segments(ssthresh)));
    }
    // ss derives the amount in flight from `unacked`, `sacked`, `lost` and `retrans`.
    let (unacked, inflight) = (segments(sender.flight_size), segments(sender.inflight));
    let delivered = sender.delivered.get();
    let sacked = unacked.saturating_sub(inflight);
    let again = u64::from(sender.recovering);
    add(format!("bytes_acked:{}", delivered.saturating_sub(sacked * mss)));
    if let Some(bbr) = sender.bbr {
        add(format!(
            "bbr:(bw:{}bps,mrtt:{:.3},pacing_gain:{:.2},cwnd_gain:{:.2})",
            bbr.bw.as_bps(),
            millis(bbr.min_rtt),
            f64::from(bbr.pacing_gain_percent) / 100.0,
            f64::from(bbr.cwnd_gain_percent) / 100.0
        ));
    }
    if let Some(rate) = sender.pacing_rate {
        let most = sender.max_pacing_rate.map_or(String::new(), |most| format!("/{}bps", most.as_bps()));
        add(format!("pacing_rate {}bps{most}", rate.as_bps()));
    }
    if let Some(rate) = sender.delivery_rate {
        add(format!("delivery_rate {}bps", rate.as_bps()));
    }
    add(format!("delivered:{}", delivered / mss));
    if sender.app_limited {
        add("app_limited".into());
    }
    if unacked > 0 {
        add(format!("unacked:{unacked}"));
    }
    if sender.retransmits > 0 {
        add(format!("retrans:{again}/{}", sender.retransmits));
    }
    if sacked > 0 {
        add(format!("sacked:{sacked}"));
    }
    if sender.dsack_dups > 0 {
        add(format!("dsack_dups:{}", sender.dsack_dups));
    }
    if !sender.notsent.is_zero() {
        add(format!("notsent:{}", sender.notsent.get()));
    }
    add(format!("minrtt:{:.3} snd_wnd:{}", millis(sender.min_rtt), sender.rwnd.get()));
    text + "\n"
}

#[cfg(test)]
mod tests {
    use fullpipe::input::trace::Choice;
    use fullpipe::lab::capture::Wire;
    use fullpipe::lab::experiment::Experiment;
    use fullpipe::lab::sim;
    use fullpipe::{Input, Measurement};

    use super::*;

    fn scenario(flow: &str) -> Scenario {
        let text = format!(
            "name = 'x'\nduration = '4s'\n[path]\nrate = '50mbit'\nrtt = '40ms'\nloss = '0.1%'\n[[flow]]\n{flow}\n\
             [[sample]]\nevery = '50ms'\n"
        );
        Experiment::from_toml(&text).expect("valid").points()[0].scenario.clone()
    }

    fn recorded(scenario: &Scenario) -> Recorded<'_> {
        let (mut rows, mut packets) = (Vec::new(), Pcap::default());
        sim::run_tapped(scenario, &mut rows, &mut Wire(&mut packets));
        Recorded::new(scenario, &rows, packets, "6.18.0".into())
    }

    fn read(recorded: &Recorded<'_>, kind: InputKind) -> Measurement {
        let bytes = recorded.bytes(kind);
        let read = Input::from_bytes(kind.file(), &bytes, &Choice::default());
        read.unwrap_or_else(|error| panic!("{kind}: {}", error.message)).measurement
    }

    /// Rows and dumps agree, and the log counts what the socket accepted.
    #[test]
    fn every_kind_is_read_and_has_the_figures_of_the_run() {
        let scenario = scenario("cc = 'cubic'");
        let recorded = recorded(&scenario);
        let last = recorded.rows.last().expect("rows").sender;
        assert!(last.retransmits > 5 && last.delivered > Bytes::from_mib(2), "{last:?}");
        let rows = read(&recorded, InputKind::Rows);
        assert_eq!(rows.rows()[0].last().map(|row| row.sender.delivered), Some(last.delivered));
        let dumps = read(&recorded, InputKind::Ss);
        let dumped = dumps.rows()[0].last().expect("dumps").sender;
        assert_eq!(dumped.retransmits, last.retransmits);
        assert_eq!((dumped.mss, dumped.cwnd, dumped.rwnd), (last.mss, last.cwnd, last.rwnd));
        // A dump counts segments, and one of them may be in flight again as a retransmission.
        let within = |a: Bytes, b: Bytes| a.get().abs_diff(b.get()) <= 2 * last.mss.get();
        assert!(within(dumped.inflight, last.inflight), "{:?} {:?}", dumped.inflight, last.inflight);
        assert!(within(dumped.delivered, last.delivered), "{:?} {:?}", dumped.delivered, last.delivered);
        for kind in [InputKind::Json, InputKind::Text] {
            let log = read(&recorded, kind);
            assert_eq!(log.flows[0].intervals.len(), 4, "{kind}");
            let counted: u64 = log.flows[0].intervals.iter().map(|one| one.bytes.get()).sum();
            let accepted = (last.delivered + last.inflight + last.notsent).get() as f64;
            assert!((counted as f64 / accepted - 1.0).abs() < 0.01, "{kind}: {counted} of {accepted}");
        }
        let packets = read(&recorded, InputKind::Capture);
        let counts = packets.packets().expect("packets").connection.counts;
        assert_eq!(counts.retransmits, last.retransmits);
    }

    /// A log ends when an amount of data is delivered, and states the options of its flow.
    #[test]
    fn a_log_has_the_time_and_the_options_of_its_flow() {
        let short = scenario("cc = 'cubic'\nbytes = '1MiB'");
        let log = read(&recorded(&short), InputKind::Json);
        let end = log.flows[0].intervals.last().expect("an interval");
        assert!(log.flows[0].intervals.len() < 4, "{end:?}");
        let paced = scenario("cc = 'bbr1'\nmax_pacing = '8mbit'");
        let json = String::from_utf8(recorded(&paced).bytes(InputKind::Json)).expect("JSON");
        assert!(json.contains("\"fq_rate\":8000000") && json.contains("\"bbr\""), "{json}");
        let slow = scenario("cc = 'cubic'\napp = { write = '3mbit' }");
        let json = String::from_utf8(recorded(&slow).bytes(InputKind::Json)).expect("JSON");
        assert!(json.contains("\"target_bitrate\":3000000"), "{json}");
    }
}
