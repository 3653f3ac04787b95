//! iperf3 JSON: one document (`-J`), or one event per line (`--json-stream`, since 3.17).
//!
//! ```text
//! start      version, system_info, tcp_mss*, sock_bufsize, sndbuf_actual, test_start { protocol, reverse, ... }
//! intervals  [ { streams [ { socket, start, end, bytes, retransmits, snd_cwnd, snd_wnd, rtt (us), sender } ], sum } ]
//! end        streams [ { sender { min_rtt, ... }, receiver } | { udp } ], sum_sent, sum_received, sender_tcp_congestion
//! error      a string, for a failed run
//! ```
//!
//! No version has all of these fields, so a missing field only means that the value is unknown. There are
//! three pitfalls: some fields use -1 for unknown values, which builds up to 3.12 print as
//! 18446744073709551615; `sndbuf_actual` is the initial size of an autotuned buffer, not its size during the
//! test; and a bidirectional test swaps the names of the two congestion controls.

use fullpipe_iperf3::log::{Log, LogEnd, LogEvent, LogInterval, LogStart};
use fullpipe_iperf3::report::Report;
use fullpipe_units::{Bytes, Duration, Rate};
use serde_json::Deserializer;

use super::iperf3::{
    OneWay, check_order, finished, implausible, instant, joined, plausible_mss, several_runs,
};
use super::{InputError, Kind, quote};
use crate::measurement::{
    CpuLoad, Datagrams, Detail, Direction, Flow, Format, Hosts, Interval, Measurement, Origin, Protocol,
    Role, RttRange, SocketBuffers, Summary, Total, added,
};

/// Returns whether `line` may be the start of a document or an event.
pub(super) fn begins_document(line: &str) -> bool {
    line.trim_start().starts_with('{') || matches!(line.trim(), "[" | "[{")
}

/// Returns the kind of the documents in `text`; one of its lines must satisfy [`begins_document`].
pub(super) fn kind(text: &str) -> Kind {
    let text = from_first_document(text);
    // Only the start of the text is checked: a truncated document, or one with an error, must still be
    // recognised as iperf3 output.
    let head: String = text.chars().filter(|c| !c.is_whitespace()).take(200).collect();
    if head.starts_with("{\"event\":\"") {
        Kind::Iperf3JsonStream
    } else if ["{\"start\":", "{\"title\":", "{\"error\":", "{\"intervals\":"]
        .iter()
        .any(|key| head.starts_with(key))
        || (head.starts_with('{') && text.contains("\"intervals\"") && text.contains("\"bits_per_second\""))
    {
        Kind::Iperf3Json
    } else {
        Kind::Json
    }
}

fn from_first_document(text: &str) -> &str {
    let before = text.split_inclusive('\n').take_while(|line| !begins_document(line)).map(str::len).sum();
    text.get(before..).unwrap_or_default()
}

/// Reads the output of `-J`. Other terminal output before and after the document is ignored.
pub(super) fn parse(text: &str) -> Result<Measurement, InputError> {
    let text = from_first_document(text);
    let mut documents = Deserializer::from_str(text).into_iter::<Log<Records>>();
    let log = documents.next().unwrap_or_else(|| Ok(Log::default())).map_err(|e| damaged(&e))?;
    let rest = &text[documents.byte_offset()..];
    if rest.lines().any(begins_document) {
        return Err(several_runs("the input contains several JSON documents"));
    }
    read(log, Format::Json)
}

/// Reads the output of `--json-stream`: the events up to `end`. A truncated last line is ignored.
pub(super) fn parse_stream(text: &str) -> Result<Measurement, InputError> {
    let mut log = Log::<Records>::default();
    let mut ended = false;
    let mut lines = text.lines().filter(|line| line.trim_start().starts_with('{')).peekable();
    while let Some(line) = lines.next() {
        match LogEvent::read(line) {
            Ok(LogEvent::Start(_)) if log.start.is_some() => {
                return Err(several_runs("the input contains the events of several runs"));
            }
            Ok(LogEvent::Start(start)) => log.start = Some(*start),
            Ok(LogEvent::Interval(interval)) => log.intervals.get_or_insert_default().extend([interval]),
            Ok(LogEvent::End(end)) => (log.end, ended) = (*end, true),
            Ok(LogEvent::Error(error)) => log.error = error,
            Ok(LogEvent::Other) => {}
            // With --json-stream-full-output the whole document follows the events.
            Err(_) if ended || lines.peek().is_none() => break,
            Err(e) => return Err(damaged(&e)),
        }
    }
    read(log, Format::JsonStream)
}

fn damaged(error: &serde_json::Error) -> InputError {
    let (line, column) = (error.line(), error.column());
    if error.is_eof() {
        InputError::new(
            format!("the JSON document is truncated at line {line}"),
            "wait until the test ends and iperf3 -J prints the document, or use --json-stream",
        )
    } else if error.is_data() {
        InputError::new(format!("the JSON {error}"), "use the unedited output of iperf3 -J")
    } else {
        InputError::new(
            format!("the JSON is damaged at line {line}, column {column}"),
            "use the unedited output of iperf3 -J",
        )
    }
}

fn odd(what: impl std::fmt::Display) -> InputError {
    InputError::new(format!("the JSON lacks a usable {what}"), "use the unedited output of iperf3 -J")
}

fn bytes(bytes: Option<u64>) -> Option<Bytes> {
    bytes.filter(|bytes| *bytes > 0).map(Bytes::new)
}

fn micros(micros: Option<u64>) -> Option<Duration> {
    micros.filter(|micros| *micros > 0).map(Duration::from_micros)
}

fn rate(bits_per_second: Option<f64>) -> Option<Rate> {
    bits_per_second.map(|bps| Rate::from_bps(bps as u64))
}

/// Reports of streams, in the order in which they are read. The direction of a report may depend on keys that follow
/// the report, so both directions are kept together.
#[derive(Default)]
pub(super) struct Records {
    records: Vec<Record>,
    /// Number of intervals read.
    intervals: usize,
    /// First unusable value: its interval, counted from 1, and its key.
    unusable: Option<(usize, &'static str)>,
}

/// Report of one stream in one interval. It holds all values of the report, including those that this endpoint does not
/// know.
struct Record {
    /// Number of the interval.
    nth: usize,
    socket: Option<u64>,
    sender: Option<bool>,
    omitted: bool,
    interval: Interval,
}

impl Extend<LogInterval> for Records {
    fn extend<T: IntoIterator<Item = LogInterval>>(&mut self, intervals: T) {
        for interval in intervals {
            self.intervals += 1;
            let nth = self.intervals;
            for report in &interval.streams.0 {
                match of_report(report) {
                    Ok(interval) => self.records.push(Record {
                        nth,
                        socket: report.socket,
                        sender: report.sender,
                        omitted: report.omitted == Some(true),
                        interval,
                    }),
                    Err(key) => self.unusable = self.unusable.or(Some((nth, key))),
                }
            }
        }
    }
}

/// Returns the report of one stream, or the key of an unusable value.
fn of_report(report: &Report) -> Result<Interval, &'static str> {
    let start = report.start.and_then(instant).ok_or("start")?;
    let end = report.end.and_then(instant).filter(|end| *end > start).ok_or("end")?;
    let moved = Bytes::new(report.bytes.ok_or("bytes")?);
    let datagrams = report.packets.is_some() || report.jitter_ms.is_some();
    let interval = Interval {
        start,
        end,
        bytes: moved,
        rate: rate(report.bits_per_second).unwrap_or_else(|| Rate::of(moved, end.saturating_since(start))),
        retransmits: report.retransmits,
        lossy_streams: 0,
        cwnd: bytes(report.snd_cwnd),
        snd_wnd: report.snd_wnd.map(Bytes::new),
        rtt: micros(report.rtt),
        datagrams: datagrams.then(|| datagrams_of(report)),
    };
    implausible(&interval).map_or(Ok(interval), Err)
}

/// Reads a document that this process created, without converting it to JSON first.
pub(super) fn of_document(document: &fullpipe_iperf3::document::Document) -> Result<Measurement, InputError> {
    read(Log::from(document), Format::Json)
}

/// Returns the processor time that iperf3 used on both hosts, if the document contains it. Since version 3.16, each
/// stream has its own thread.
fn cpu_load(start: &LogStart, end: &LogEnd) -> Option<CpuLoad> {
    /// First version of iperf3 with one thread per stream.
    /// Source: its release notes.
    /// Unit: version
    const FIRST_WITH_THREADS: (u64, u64) = (3, 16);
    let used = end.cpu_utilization_percent.as_ref()?;
    let version = start.version.as_deref().and_then(|version| {
        let mut numbers = version.trim_start_matches("iperf ").split(['.', '+']).map(str::parse::<u64>);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    });
    let streams = start.test_start.num_streams.unwrap_or(1);
    let threads = if version >= Some(FIRST_WITH_THREADS) { streams.max(1) } else { 1 };
    let percent = |share: f64| share.round() as u32;
    Some(CpuLoad {
        local: percent(used.host_total?),
        remote: used.remote_total.map_or(0, percent),
        threads: u32::try_from(threads).unwrap_or(u32::MAX),
    })
}

fn read(log: Log<Records>, format: Format) -> Result<Measurement, InputError> {
    let whole = Document::new(&log)?;
    if let Some((number, key)) = log.intervals.as_ref().and_then(|records| records.unusable) {
        return Err(odd(format!("'{key}' in interval {number}")));
    }
    if let Some(key) = unusable_total(&log.end) {
        return Err(odd(format!("'{key}' in 'end'")));
    }
    let (sending, receiving) = (whole.one_way(true)?, whole.one_way(false)?);
    let Document { reverse, version, error, hosts, .. } = whole;
    let origin = Origin { format, version, error, ..Origin::default() };
    // The records are no longer needed, and may take most of the memory.
    drop(log);
    finished(joined(sending, receiving, reverse, origin, hosts))
}

/// Returns the key of the first impossible value in the totals of a test.
fn unusable_total(end: &LogEnd) -> Option<&'static str> {
    let sums = [&end.sum, &end.sum_sent, &end.sum_received].into_iter();
    let streams = end.streams.0.iter().flat_map(|stream| [&stream.sender, &stream.receiver, &stream.udp]);
    sums.chain(streams).flatten().find_map(|report| {
        let datagrams = Some(datagrams_of(report));
        implausible(&Interval { datagrams, ..summary(report)? })
    })
}

/// A document, with the values that apply to all of its parts.
struct Document<'a> {
    records: &'a [Record],
    end: &'a LogEnd,
    version: Option<String>,
    hosts: Hosts,
    protocol: Protocol,
    reverse: bool,
    mss: Option<Bytes>,
    /// Target rate of one stream.
    target: Option<Rate>,
    error: Option<String>,
    server: bool,
}

impl<'a> Document<'a> {
    fn new(log: &'a Log<Records>) -> Result<Self, InputError> {
        let error = log.error.as_deref().map(quote);
        if log.start.is_none() && error.is_none() {
            return Err(odd("'start'"));
        }
        let Some(Records { records, .. }) = &log.intervals else {
            return Err(odd("'intervals'"));
        };
        let start = log.start.clone().unwrap_or_default();
        let test = &start.test_start;
        let protocol = match test.protocol.as_deref() {
            Some("UDP") => Protocol::Udp,
            Some("SCTP") => {
                return Err(InputError::new(
                    "SCTP logs are not supported",
                    "repeat the measurement over TCP, without --sctp",
                ));
            }
            _ => Protocol::Tcp,
        };
        // The requested size is zero if the kernel chooses the size; sndbuf_actual is then only the initial
        // size.
        let buffers = bytes(start.sndbuf_actual).zip(bytes(start.rcvbuf_actual));
        let set = bytes(start.sock_bufsize).and(buffers);
        let version = start.version.as_deref().map(|version| quote(version.trim_start_matches("iperf ")));
        let release = start.system_info.as_deref().and_then(|info| info.strip_prefix("Linux "));
        let kernel = release.and_then(|info| info.split_whitespace().nth(1)?.parse().ok());
        let set_buffers = set.map(|(sndbuf, rcvbuf)| SocketBuffers { sndbuf, rcvbuf });
        let mss = [start.tcp_mss, start.tcp_mss_default].into_iter().find_map(|mss| plausible_mss(mss?));
        let target = test.target_bitrate.or(start.target_bitrate);
        Ok(Self {
            records,
            end: &log.end,
            version,
            hosts: Hosts { kernel, set_buffers, cpu: cpu_load(&start, &log.end) },
            protocol,
            reverse: test.reverse == Some(true),
            mss,
            target: target.filter(|bps| *bps > 0).map(Rate::from_bps),
            error,
            server: start.accepted_connection.is_some(),
        })
    }

    /// Returns the data that this endpoint sent or received as one direction; `None` if there is no report for that
    /// direction.
    fn one_way(&self, sending: bool) -> Result<Option<OneWay>, InputError> {
        let intervals = || self.records.chunk_by(|a, b| a.nth == b.nth);
        let of_interval = |all: &'a [Record]| all.iter().filter(move |record| self.sends(record) == sending);
        // If a stream is missing from an interval, it ended early.
        let mut ids: Vec<Option<u64>> = Vec::new();
        for all in intervals() {
            if of_interval(all).count() > ids.len() {
                ids = of_interval(all).map(|record| record.socket).collect();
            }
        }
        if ids.is_empty() {
            return Ok(None);
        }
        let omitted = |all: &&'a [Record]| of_interval(all).any(|record| record.omitted);
        let complete = |all: &&'a [Record]| !omitted(all) && of_interval(all).count() == ids.len();
        let reports = intervals().filter(complete).count();
        let mut of_each: Vec<Vec<Interval>> = ids.iter().map(|_| Vec::with_capacity(reports)).collect();
        for all in intervals().filter(complete) {
            for (intervals, record) in of_each.iter_mut().zip(of_interval(all)) {
                intervals.push(self.interval(record, sending));
            }
        }
        let omitted = intervals().filter(omitted).count();
        let intervals = added(of_each.iter().map(Vec::as_slice));
        check_order(&intervals)?;
        let both_ways = self.records.iter().any(|record| self.sends(record) != sending);
        let (summary, datagrams) = match self.protocol {
            Protocol::Tcp => (self.summary_of_tcp(sending, both_ways), None),
            Protocol::Udp => self.summary_of_udp(&intervals, sending, both_ways),
        };
        let congestion_control = self.congestion_control(both_ways);
        let flows = ids.iter().zip(of_each).enumerate().map(|(nth, (id, intervals))| {
            let (summary, datagrams) = self.summary_of_stream(nth, *id, sending);
            Flow {
                id: id.and_then(|id| u32::try_from(id).ok()).unwrap_or(nth as u32 + 1),
                direction: Direction::default(),
                role: if sending { Role::Sender } else { Role::Receiver },
                protocol: self.protocol,
                congestion_control: congestion_control.clone(),
                mss: self.mss,
                offered: self.target,
                intervals,
                summary,
                detail: datagrams.map(Detail::Datagrams),
            }
        });
        Ok(Some(OneWay { flows: flows.collect(), summary, datagrams, omitted }))
    }

    /// Returns whether this endpoint sent the data in a report. Versions before 3.7 do not state this, so
    /// fields that only one endpoint knows decide.
    fn sends(&self, record: &Record) -> bool {
        let jitter = record.interval.datagrams.and_then(|datagrams| datagrams.jitter);
        match (record.sender, self.protocol) {
            (Some(sender), _) => sender,
            (None, Protocol::Tcp) if record.interval.retransmits.is_some() => true,
            (None, Protocol::Udp) if jitter.is_some() => false,
            _ => self.reverse == self.server,
        }
    }

    /// Returns the values of a report that this endpoint knows.
    fn interval(&self, record: &Record, sending: bool) -> Interval {
        let Interval { retransmits, cwnd, snd_wnd, rtt, datagrams, .. } = record.interval;
        let udp = self.protocol == Protocol::Udp;
        let retransmits = retransmits.filter(|_| sending && !udp);
        Interval {
            retransmits,
            lossy_streams: u64::from(retransmits.is_some_and(|n| n > 0)),
            cwnd: cwnd.filter(|_| sending),
            snd_wnd: snd_wnd.filter(|_| sending),
            rtt: rtt.filter(|_| sending),
            datagrams: udp.then(|| {
                let all = datagrams.unwrap_or(NO_DATAGRAMS);
                if sending { all.unheard() } else { all }
            }),
            ..record.interval
        }
    }

    /// Returns the summaries of the streams in this direction.
    fn of_streams(&self, side: Side, sending: bool) -> impl Iterator<Item = &'a Report> {
        let streams = self.end.streams.0.iter().filter_map(move |stream| match side {
            Side::Sender => stream.sender.as_ref(),
            Side::Receiver => stream.receiver.as_ref(),
            Side::Both => stream.udp.as_ref(),
        });
        // If the flag is missing, there was only one direction.
        streams.filter(move |report| report.sender.is_none_or(|sender| sender == sending))
    }

    fn summary_of_tcp(&self, sending: bool, both_ways: bool) -> Summary {
        // In a bidirectional test, the key of a direction's sums depends on the endpoint.
        let total = |sum: &Option<Report>, side: Side| {
            let sum = sum.as_ref().and_then(summary).filter(|_| !both_ways);
            let streams = || self.of_streams(side, sending).filter_map(summary).reduce(Interval::added);
            Total::of(sum.or_else(streams))
        };
        // A receiving socket does not measure the RTT of the data.
        let senders = self.of_streams(Side::Sender, sending).filter(|_| sending);
        Summary {
            sent: total(&self.end.sum_sent, Side::Sender),
            received: total(&self.end.sum_received, Side::Receiver),
            rtt: rtt_range(&senders.collect::<Vec<_>>()),
        }
    }

    fn congestion_control(&self, both_ways: bool) -> Option<String> {
        let name = self.end.sender_tcp_congestion.as_deref().filter(|name| !name.is_empty());
        let other = self.end.receiver_tcp_congestion.as_deref();
        let tcp = self.protocol == Protocol::Tcp;
        name.filter(|_| tcp && (!both_ways || name == other)).map(quote)
    }

    fn summary_of_udp(
        &self,
        intervals: &[Interval],
        sending: bool,
        both_ways: bool,
    ) -> (Summary, Option<Datagrams>) {
        let streams: Vec<&Report> = self.of_streams(Side::Both, sending).collect();
        let of_streams = || streams.iter().copied().filter_map(summary).reduce(Interval::added);
        let [all, sent, received] = [&self.end.sum, &self.end.sum_sent, &self.end.sum_received]
            .map(|sum| sum.as_ref().filter(|_| !both_ways));
        let heard = received.or(all).filter(|sum| sum.packets.is_some());
        let counted = intervals.iter().filter_map(|i| i.datagrams).reduce(Datagrams::added);
        let of_end = || streams.iter().copied().map(datagrams_of).reduce(Datagrams::added);
        let mut all = heard.map(datagrams_of).or_else(of_end).or(counted);
        // The sums lack the count of out-of-order datagrams.
        let out_of_order = of_end().and_then(|all| all.out_of_order);
        if let Some(all) = all.as_mut().filter(|all| all.lost.is_some()) {
            all.out_of_order = all.out_of_order.or(out_of_order);
        }
        let sent = sent.and_then(summary).or_else(of_streams);
        // Only `sum_received` counts data that arrived; `sum` and the streams count sent data.
        let arrived = received.and_then(summary);
        let received = arrived.or_else(|| Some(arrived_of(of_streams()?, all?)));
        (Summary { sent: Total::of(sent), received: Total::of(received), rtt: None }, all)
    }

    /// Returns the sums of one stream: the one with socket `id`, or else the `nth` stream of its direction.
    fn summary_of_stream(&self, nth: usize, id: Option<u64>, sending: bool) -> (Summary, Option<Datagrams>) {
        let of = |side: Side| {
            let known = id.and_then(|_| self.of_streams(side, sending).find(|report| report.socket == id));
            known.or_else(|| self.of_streams(side, sending).nth(nth))
        };
        if self.protocol == Protocol::Udp {
            let Some(stream) = of(Side::Both) else { return (Summary::default(), None) };
            let (sent, all) = (summary(stream), datagrams_of(stream));
            let received = sent.map(|sent| arrived_of(sent, all));
            return (Summary { sent: Total::of(sent), received: Total::of(received), rtt: None }, Some(all));
        }
        let total = |side: Side| Total::of(of(side).and_then(summary));
        let rtt = of(Side::Sender).filter(|_| sending).and_then(|sender| rtt_range(&[sender]));
        (Summary { sent: total(Side::Sender), received: total(Side::Receiver), rtt }, None)
    }
}

/// Endpoint whose totals the summary of a stream contains.
#[derive(Clone, Copy)]
enum Side {
    Sender,
    Receiver,
    /// Both, over UDP.
    Both,
}

/// Scales the sent amount to the part that arrived.
fn arrived_of(sent: Interval, Datagrams { total, lost, .. }: Datagrams) -> Interval {
    let share = |amount: u64| {
        (u128::from(amount) * u128::from(total.saturating_sub(lost.unwrap_or(0))) / u128::from(total.max(1)))
            as u64
    };
    Interval {
        bytes: Bytes::new(share(sent.bytes.get())),
        rate: Rate::from_bps(share(sent.rate.as_bps())),
        ..sent
    }
}

/// Datagram counts of a report that contains none.
const NO_DATAGRAMS: Datagrams = Datagrams { total: 0, lost: None, jitter: None, out_of_order: None };

fn datagrams_of(report: &Report) -> Datagrams {
    Datagrams {
        total: report.packets.unwrap_or(0),
        // Out-of-order arrivals can make the loss count of an interval negative.
        lost: report.lost_packets.map(|lost| lost.max(0).unsigned_abs()),
        jitter: report.jitter_ms.map(|ms| Duration::from_secs_f64(ms / 1e3)),
        out_of_order: report.out_of_order,
    }
}

/// Returns a summary as a report for the whole test.
fn summary(report: &Report) -> Option<Interval> {
    let bytes = Bytes::new(report.bytes?);
    let (start, end) = (instant(report.start?)?, instant(report.end?)?);
    Some(Interval {
        start,
        end,
        bytes,
        rate: rate(report.bits_per_second).unwrap_or_else(|| Rate::of(bytes, end.saturating_since(start))),
        retransmits: report.retransmits,
        lossy_streams: 0,
        cwnd: None,
        snd_wnd: None,
        rtt: None,
        datagrams: None,
    })
}

/// Returns the range of RTTs over all streams; an endpoint that does not know the RTT reports zeros.
fn rtt_range(senders: &[&Report]) -> Option<RttRange> {
    let all = |rtt: fn(&Report) -> Option<u64>| {
        senders.iter().filter_map(|sender| micros(rtt(sender))).collect::<Vec<_>>()
    };
    let means = all(|sender| sender.mean_rtt);
    let sum = means.iter().fold(Duration::ZERO, |sum, rtt| sum + *rtt);
    Some(RttRange {
        min: all(|sender| sender.min_rtt).into_iter().min()?,
        mean: if means.is_empty() { return None } else { sum / means.len() as u64 },
        max: all(|sender| sender.max_rtt).into_iter().max()?,
    })
}
