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

use fullpipe_units::{Bytes, Duration, Rate};
use serde_json::{Deserializer, Map, Value};

use super::iperf3::{OneWay, check_order, finished, instant, joined, plausible_mss, several_runs};
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
    let mut documents = Deserializer::from_str(text).into_iter::<Value>();
    let document = documents.next().unwrap_or(Ok(Value::Null)).map_err(|e| damaged(&e))?;
    let rest = &text[documents.byte_offset()..];
    if rest.lines().any(begins_document) {
        return Err(several_runs("the input holds several JSON documents"));
    }
    read(&document, Format::Json)
}

/// Reads the output of `--json-stream`: the events up to `end`. A truncated last line is ignored.
pub(super) fn parse_stream(text: &str) -> Result<Measurement, InputError> {
    let mut document = Map::new();
    let mut intervals = Vec::new();
    let mut lines = text.lines().filter(|line| line.trim_start().starts_with('{')).peekable();
    while let Some(line) = lines.next() {
        let ended = document.contains_key("end");
        let event = match serde_json::from_str::<Value>(line) {
            Ok(event) => event,
            // With --json-stream-full-output the whole document follows the events.
            Err(_) if ended || lines.peek().is_none() => break,
            Err(e) => return Err(damaged(&e)),
        };
        let data = event.get("data").cloned().unwrap_or_default();
        match event.get("event").and_then(Value::as_str) {
            Some("start") if document.contains_key("start") => {
                return Err(several_runs("the input holds the events of several runs"));
            }
            Some("interval") => intervals.push(data),
            Some(name @ ("start" | "end" | "error")) => {
                document.insert(name.to_owned(), data);
            }
            _ => {}
        }
    }
    document.insert("intervals".into(), Value::Array(intervals));
    read(&Value::Object(document), Format::JsonStream)
}

fn damaged(error: &serde_json::Error) -> InputError {
    let (line, column) = (error.line(), error.column());
    if error.is_eof() {
        InputError::new(
            format!("the JSON document is truncated at line {line}"),
            "wait until the test ends and iperf3 -J prints the document, or use --json-stream",
        )
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

/// Returns a count or size; `None` for -1 in either notation, and for a value that is not a number.
fn count(object: &Value, key: &str) -> Option<u64> {
    // Values of 2^63 and above are negative numbers that were printed as unsigned.
    let value = object.get(key)?.as_f64().filter(|value| (0.0..9.2e18).contains(value))?;
    Some(value as u64)
}

/// Returns a number that is finite and not negative.
fn number(object: &Value, key: &str) -> Option<f64> {
    object.get(key)?.as_f64().filter(|value| value.is_finite() && *value >= 0.0)
}

fn bytes(object: &Value, key: &str) -> Option<Bytes> {
    count(object, key).filter(|bytes| *bytes > 0).map(Bytes::new)
}

fn micros(object: &Value, key: &str) -> Option<Duration> {
    count(object, key).filter(|micros| *micros > 0).map(Duration::from_micros)
}

/// Returns a Boolean, which some versions print as 0 or 1 and others as false or true.
fn flag(object: &Value, key: &str) -> bool {
    object.get(key).is_some_and(|value| value.as_bool().unwrap_or(value.as_f64().is_some_and(|n| n > 0.0)))
}

fn text<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get(key)?.as_str()
}

fn array<'a>(object: &'a Value, key: &str) -> &'a [Value] {
    object.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns the processor time that iperf3 used on both hosts, if the document contains it. Each stream has its
/// own thread since version 3.16.
fn cpu_load(document: &Value) -> Option<CpuLoad> {
    /// First version of iperf3 with one thread per stream.
    /// Source: its release notes.
    /// Unit: version
    const FIRST_WITH_THREADS: (u64, u64) = (3, 16);
    let used = document.get("end")?.get("cpu_utilization_percent")?;
    let start = document.get("start")?;
    let version = text(start, "version").and_then(|version| {
        let mut numbers = version.trim_start_matches("iperf ").split(['.', '+']).map(str::parse::<u64>);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    });
    let streams = start.get("test_start").and_then(|test| count(test, "num_streams")).unwrap_or(1);
    let threads = if version >= Some(FIRST_WITH_THREADS) { streams.max(1) } else { 1 };
    let percent = |key: &str| number(used, key).map(|percent| percent.round() as u32);
    Some(CpuLoad {
        local: percent("host_total")?,
        remote: percent("remote_total").unwrap_or(0),
        threads: u32::try_from(threads).unwrap_or(u32::MAX),
    })
}

pub(super) fn read(document: &Value, format: Format) -> Result<Measurement, InputError> {
    let whole = Document::new(document)?;
    let (sending, receiving) = (whole.one_way(true)?, whole.one_way(false)?);
    let origin = Origin { format, version: whole.version, error: whole.error, ..Origin::default() };
    finished(joined(sending, receiving, whole.reverse, origin, whole.hosts))
}

/// A document, with the values that apply to all of its parts.
struct Document<'a> {
    intervals: &'a [Value],
    end: &'a Value,
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
    fn new(document: &'a Value) -> Result<Self, InputError> {
        const NOTHING: &Value = &Value::Null;
        let error = document.get("error").filter(|error| !error.is_null());
        let error = error.map(|error| quote(error.as_str().unwrap_or(&error.to_string())));
        let part = |key: &str| document.get(key).unwrap_or(NOTHING);
        if !part("start").is_object() && error.is_none() {
            return Err(odd("'start'"));
        }
        if !matches!(part("intervals"), Value::Array(_) | Value::Null) {
            return Err(odd("'intervals'"));
        }
        let start = part("start");
        let test = start.get("test_start").unwrap_or(NOTHING);
        let protocol = match text(test, "protocol") {
            Some("UDP") => Protocol::Udp,
            Some("SCTP") => {
                return Err(InputError::new(
                    "SCTP logs are not supported",
                    "repeat the measurement over TCP: without --sctp",
                ));
            }
            _ => Protocol::Tcp,
        };
        // The requested size is zero if the kernel chooses the size; sndbuf_actual is then only the initial
        // size.
        let buffers = bytes(start, "sndbuf_actual").zip(bytes(start, "rcvbuf_actual"));
        let set = bytes(start, "sock_bufsize").and(buffers);
        let version = text(start, "version").map(|version| quote(version.trim_start_matches("iperf ")));
        let release = text(start, "system_info").and_then(|info| info.strip_prefix("Linux "));
        let kernel = release.and_then(|info| info.split_whitespace().nth(1)?.parse().ok());
        let set_buffers = set.map(|(sndbuf, rcvbuf)| SocketBuffers { sndbuf, rcvbuf });
        let mss =
            ["tcp_mss", "tcp_mss_default"].iter().find_map(|key| count(start, key).and_then(plausible_mss));
        let target = count(test, "target_bitrate").or_else(|| count(start, "target_bitrate"));
        Ok(Self {
            intervals: array(document, "intervals"),
            end: part("end"),
            version,
            hosts: Hosts { kernel, set_buffers, cpu: cpu_load(document) },
            protocol,
            reverse: flag(test, "reverse"),
            mss,
            target: target.filter(|bps| *bps > 0).map(Rate::from_bps),
            error,
            server: start.get("accepted_connection").is_some(),
        })
    }

    /// Returns the direction that this endpoint sent or received; `None` if there is no report for it.
    fn one_way(&self, sending: bool) -> Result<Option<OneWay>, InputError> {
        let mut groups: Vec<Vec<Interval>> = Vec::new();
        let mut ids: Vec<Option<u64>> = Vec::new();
        let mut omitted = 0;
        for (number, interval) in self.intervals.iter().enumerate() {
            let reports = || array(interval, "streams").iter().filter(|s| self.sends(s) == sending);
            let mut group = Vec::new();
            let mut warm_up = false;
            for report in reports() {
                warm_up |= flag(report, "omitted");
                group.push(
                    self.interval(report, sending)
                        .map_err(|key| odd(format!("'{key}' in interval {}", number + 1)))?,
                );
            }
            if group.len() > ids.len() {
                ids = reports().map(|report| count(report, "socket")).collect();
            }
            match warm_up {
                true => omitted += usize::from(!group.is_empty()),
                false => groups.push(group),
            }
        }
        if ids.is_empty() {
            return Ok(None);
        }
        // If a stream is missing, it ended early.
        groups.retain(|group| group.len() == ids.len());
        let of_stream = |nth: usize| -> Vec<Interval> { groups.iter().map(|group| group[nth]).collect() };
        let of_each: Vec<Vec<Interval>> = (0..ids.len()).map(of_stream).collect();
        let intervals = added(of_each.iter().map(Vec::as_slice));
        check_order(&intervals)?;
        let both_ways =
            self.intervals.iter().flat_map(|i| array(i, "streams")).any(|s| self.sends(s) != sending);
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
    fn sends(&self, report: &Value) -> bool {
        if let Some(sender) = report.get("sender").and_then(Value::as_bool) {
            return sender;
        }
        match self.protocol {
            Protocol::Tcp if report.get("retransmits").is_some() => true,
            Protocol::Udp if report.get("jitter_ms").is_some() => false,
            _ => self.reverse == self.server,
        }
    }

    /// Returns the report of one stream, or the key of an unusable value.
    fn interval(&self, report: &Value, sending: bool) -> Result<Interval, &'static str> {
        let time = |key: &'static str| number(report, key).and_then(instant).ok_or(key);
        let (start, end) = (time("start")?, time("end")?);
        if end <= start {
            return Err("end");
        }
        let bytes_moved = Bytes::new(count(report, "bytes").ok_or("bytes")?);
        let rate = number(report, "bits_per_second").map(|bps| Rate::from_bps(bps as u64));
        let udp = self.protocol == Protocol::Udp;
        let retransmits = count(report, "retransmits").filter(|_| sending && !udp);
        Ok(Interval {
            start,
            end,
            bytes: bytes_moved,
            rate: rate.unwrap_or_else(|| Rate::of(bytes_moved, end.saturating_since(start))),
            retransmits,
            lossy_streams: u64::from(retransmits.is_some_and(|n| n > 0)),
            cwnd: bytes(report, "snd_cwnd").filter(|_| sending),
            snd_wnd: count(report, "snd_wnd").map(Bytes::new).filter(|_| sending),
            rtt: micros(report, "rtt").filter(|_| sending),
            datagrams: udp.then(|| {
                let all = datagrams(report);
                if sending { all.unheard() } else { all }
            }),
        })
    }

    /// Returns the summaries of the streams in this direction, from `end.streams[].{key}`.
    fn of_streams(&self, key: &str, sending: bool) -> impl Iterator<Item = &'a Value> {
        array(self.end, "streams")
            .iter()
            .filter_map(move |stream| stream.get(key))
            // If the flag is missing, there was only one direction.
            .filter(move |side| side.get("sender").and_then(Value::as_bool).is_none_or(|s| s == sending))
    }

    fn summary_of_tcp(&self, sending: bool, both_ways: bool) -> Summary {
        // In a bidirectional test, the key of a direction's sums depends on the endpoint.
        let total = |sum: &str, side: &str| {
            let sum = self.end.get(sum).and_then(summary).filter(|_| !both_ways);
            let streams = || self.of_streams(side, sending).filter_map(summary).reduce(Interval::added);
            Total::of(sum.or_else(streams))
        };
        // A receiving socket does not measure the RTT of the data.
        let senders = self.of_streams("sender", sending).filter(|_| sending);
        Summary {
            sent: total("sum_sent", "sender"),
            received: total("sum_received", "receiver"),
            rtt: rtt_range(&senders.collect::<Vec<_>>()),
        }
    }

    fn congestion_control(&self, both_ways: bool) -> Option<String> {
        let name = text(self.end, "sender_tcp_congestion").filter(|name| !name.is_empty());
        let other = text(self.end, "receiver_tcp_congestion");
        let tcp = self.protocol == Protocol::Tcp;
        name.filter(|_| tcp && (!both_ways || name == other)).map(quote)
    }

    fn summary_of_udp(
        &self,
        intervals: &[Interval],
        sending: bool,
        both_ways: bool,
    ) -> (Summary, Option<Datagrams>) {
        let streams: Vec<&Value> = self.of_streams("udp", sending).collect();
        let of_streams = || streams.iter().copied().filter_map(summary).reduce(Interval::added);
        let sum = |key: &str| self.end.get(key).filter(|_| !both_ways);
        let heard = sum("sum_received").or_else(|| sum("sum")).filter(|sum| count(sum, "packets").is_some());
        let counted = intervals.iter().filter_map(|i| i.datagrams).reduce(Datagrams::added);
        let of_end = || streams.iter().copied().map(datagrams).reduce(Datagrams::added);
        let mut all = heard.map(datagrams).or_else(of_end).or(counted);
        // The sums lack the count of out-of-order datagrams.
        let out_of_order = of_end().and_then(|all| all.out_of_order);
        if let Some(all) = all.as_mut().filter(|all| all.lost.is_some()) {
            all.out_of_order = all.out_of_order.or(out_of_order);
        }
        let sent = sum("sum_sent").and_then(summary).or_else(of_streams);
        // Only `sum_received` counts data that arrived; `sum` and the streams count sent data.
        let arrived = sum("sum_received").and_then(summary);
        let received = arrived.or_else(|| Some(arrived_of(of_streams()?, all?)));
        (Summary { sent: Total::of(sent), received: Total::of(received), rtt: None }, all)
    }

    /// Returns the sums of one stream: the one with socket `id`, or else the `nth` stream of its direction.
    fn summary_of_stream(&self, nth: usize, id: Option<u64>, sending: bool) -> (Summary, Option<Datagrams>) {
        let side = |key: &str| {
            let known =
                id.and_then(|_| self.of_streams(key, sending).find(|side| count(side, "socket") == id));
            known.or_else(|| self.of_streams(key, sending).nth(nth))
        };
        if self.protocol == Protocol::Udp {
            let Some(stream) = side("udp") else { return (Summary::default(), None) };
            let (sent, all) = (summary(stream), datagrams(stream));
            let received = sent.map(|sent| arrived_of(sent, all));
            return (Summary { sent: Total::of(sent), received: Total::of(received), rtt: None }, Some(all));
        }
        let total = |key: &str| Total::of(side(key).and_then(summary));
        let rtt = side("sender").filter(|_| sending).and_then(|sender| rtt_range(&[sender]));
        (Summary { sent: total("sender"), received: total("receiver"), rtt }, None)
    }
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

fn datagrams(object: &Value) -> Datagrams {
    // Out-of-order arrivals can make the loss count of an interval negative.
    let lost = object.get("lost_packets").and_then(Value::as_f64).filter(|lost| lost.abs() < 9.2e18);
    Datagrams {
        total: count(object, "packets").unwrap_or(0),
        lost: lost.map(|lost| lost.max(0.0) as u64),
        jitter: number(object, "jitter_ms").map(|ms| Duration::from_secs_f64(ms / 1e3)),
        out_of_order: count(object, "out_of_order"),
    }
}

/// Returns a summary as a report for the whole test.
fn summary(object: &Value) -> Option<Interval> {
    let bytes = Bytes::new(count(object, "bytes")?);
    let (start, end) = (instant(number(object, "start")?)?, instant(number(object, "end")?)?);
    let rate = number(object, "bits_per_second").map(|bps| Rate::from_bps(bps as u64));
    Some(Interval {
        start,
        end,
        bytes,
        rate: rate.unwrap_or_else(|| Rate::of(bytes, end.saturating_since(start))),
        retransmits: count(object, "retransmits"),
        lossy_streams: 0,
        cwnd: None,
        snd_wnd: None,
        rtt: None,
        datagrams: None,
    })
}

/// Returns the range of RTTs over all streams; an endpoint that does not know the RTT reports zeros.
fn rtt_range(senders: &[&Value]) -> Option<RttRange> {
    let all = |key: &str| senders.iter().filter_map(|sender| micros(sender, key)).collect::<Vec<_>>();
    let means = all("mean_rtt");
    let sum = means.iter().fold(Duration::ZERO, |sum, rtt| sum + *rtt);
    Some(RttRange {
        min: all("min_rtt").into_iter().min()?,
        mean: if means.is_empty() { return None } else { sum / means.len() as u64 },
        max: all("max_rtt").into_iter().max()?,
    })
}
