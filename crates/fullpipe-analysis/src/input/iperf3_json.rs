//! The JSON of iperf3: one document (`-J`), or one event a line (`--json-stream`, from 3.17 on).
//!
//! ```text
//! start      version, system_info, tcp_mss*, sock_bufsize, sndbuf_actual, test_start { protocol, reverse, ... }
//! intervals  [ { streams [ { socket, start, end, bytes, retransmits, snd_cwnd, snd_wnd, rtt (us), sender } ], sum } ]
//! end        streams [ { sender { min_rtt, ... }, receiver } | { udp } ], sum_sent, sum_received, sender_tcp_congestion
//! error      a string, of a failed run
//! ```
//!
//! Every version lacks some of it, so what is missing is unknown and nothing else. Three traps: "unknown"
//! is -1 in some fields, which builds up to 3.12 print as 18446744073709551615; `sndbuf_actual` is where an
//! autotuned buffer begins, not its size; and a test of both directions names the two congestion controls
//! the wrong way round.

use fullpipe_units::{Bytes, Duration, Rate};
use serde_json::{Deserializer, Map, Value};

use super::iperf3::{
    Datagrams, Format, Interval, Iperf3Log, Protocol, Role, RttRange, SocketBuffers, Summary, check_order,
    instant, joined, plausible_mss, several_runs,
};
use super::{InputError, Kind, quote};

/// Whether a document or an event may begin with `line`.
pub(super) fn begins_document(line: &str) -> bool {
    line.trim_start().starts_with('{') || matches!(line.trim(), "[" | "[{")
}

/// What the documents of `text` are; one of its lines [`begins_document`].
pub(super) fn kind(text: &str) -> Kind {
    let text = from_first_document(text);
    // Judged by the head: a document that breaks off or holds an error must still say so as iperf3's.
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

/// Reads the output of `-J`. What a terminal leaves around the document does not matter.
pub(super) fn parse(text: &str) -> Result<Iperf3Log, InputError> {
    let text = from_first_document(text);
    let mut documents = Deserializer::from_str(text).into_iter::<Value>();
    let document = documents.next().unwrap_or(Ok(Value::Null)).map_err(|e| damaged(&e))?;
    let rest = &text[documents.byte_offset()..];
    if rest.lines().any(begins_document) {
        return Err(several_runs("the input holds several JSON documents"));
    }
    read(&document, Format::Json)
}

/// Reads the output of `--json-stream`: the events up to `end`. A last line that is cut off is dropped.
pub(super) fn parse_stream(text: &str) -> Result<Iperf3Log, InputError> {
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
            format!("the JSON document breaks off at line {line}"),
            "iperf3 -J prints it when the test ends: wait for that, or use --json-stream",
        )
    } else {
        InputError::new(
            format!("the JSON is damaged at line {line}, column {column}"),
            "give what iperf3 -J printed, unedited",
        )
    }
}

fn odd(what: impl std::fmt::Display) -> InputError {
    InputError::new(format!("the JSON has no usable {what}"), "give what iperf3 -J printed, unedited")
}

/// A count or size; `None` for -1 in either spelling, and for what is no number.
fn count(object: &Value, key: &str) -> Option<u64> {
    // 2^63 and more is a negative number that was printed without its sign.
    let value = object.get(key)?.as_f64().filter(|value| (0.0..9.2e18).contains(value))?;
    Some(value as u64)
}

/// A number that is finite and not negative.
fn number(object: &Value, key: &str) -> Option<f64> {
    object.get(key)?.as_f64().filter(|value| value.is_finite() && *value >= 0.0)
}

fn bytes(object: &Value, key: &str) -> Option<Bytes> {
    count(object, key).filter(|bytes| *bytes > 0).map(Bytes::new)
}

fn micros(object: &Value, key: &str) -> Option<Duration> {
    count(object, key).filter(|micros| *micros > 0).map(Duration::from_micros)
}

/// A switch, which versions print as 0 and 1 or as false and true.
fn flag(object: &Value, key: &str) -> bool {
    object.get(key).is_some_and(|value| value.as_bool().unwrap_or(value.as_f64().is_some_and(|n| n > 0.0)))
}

fn text<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get(key)?.as_str()
}

fn array<'a>(object: &'a Value, key: &str) -> &'a [Value] {
    object.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn read(document: &Value, format: Format) -> Result<Iperf3Log, InputError> {
    let whole = Document::new(document)?;
    let sending = whole.log(true)?;
    let receiving = whole.log(false)?;
    let mut log = joined(sending, receiving).unwrap_or_default();
    log.format = format;
    log.error = whole.error;
    if let Some(opposite) = &mut log.opposite {
        opposite.format = format;
    }
    log.finished()
}

/// A document and what all of its parts share.
struct Document<'a> {
    intervals: &'a [Value],
    end: &'a Value,
    template: Iperf3Log,
    /// What one stream was told to send at most.
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
                    "this is an SCTP log, which is not read",
                    "repeat the measurement over TCP: without --sctp",
                ));
            }
            _ => Protocol::Tcp,
        };
        // What was asked for is zero where the kernel chooses, and then sndbuf_actual is only its beginning.
        let buffers = bytes(start, "sndbuf_actual").zip(bytes(start, "rcvbuf_actual"));
        let set = bytes(start, "sock_bufsize").and(buffers);
        let version = text(start, "version").map(|version| quote(version.trim_start_matches("iperf ")));
        let release = text(start, "system_info").and_then(|info| info.strip_prefix("Linux "));
        let template = Iperf3Log {
            version,
            kernel: release.and_then(|info| info.split_whitespace().nth(1)?.parse().ok()),
            protocol,
            reverse: flag(test, "reverse"),
            mss: ["tcp_mss", "tcp_mss_default"]
                .iter()
                .find_map(|key| count(start, key).and_then(plausible_mss)),
            set_buffers: set.map(|(sndbuf, rcvbuf)| SocketBuffers { sndbuf, rcvbuf }),
            ..Iperf3Log::default()
        };
        let target = count(test, "target_bitrate").or_else(|| count(start, "target_bitrate"));
        Ok(Self {
            intervals: array(document, "intervals"),
            end: part("end"),
            template,
            target: target.filter(|bps| *bps > 0).map(Rate::from_bps),
            error,
            server: start.get("accepted_connection").is_some(),
        })
    }

    /// The data that this end sent, or that it received; `None` where no report goes this way.
    fn log(&self, sending: bool) -> Result<Option<Iperf3Log>, InputError> {
        let mut intervals = Vec::new();
        let (mut streams, mut omitted) = (0, 0);
        for (number, interval) in self.intervals.iter().enumerate() {
            let reports = array(interval, "streams").iter().filter(|s| self.sends(s) == sending);
            let mut group = Vec::new();
            let mut warm_up = false;
            for report in reports {
                warm_up |= flag(report, "omitted");
                group.push(
                    self.interval(report, sending)
                        .map_err(|key| odd(format!("'{key}' in interval {}", number + 1)))?,
                );
            }
            streams = streams.max(group.len());
            let complete = group.len() == streams;
            match group.into_iter().reduce(Interval::added) {
                Some(_) if warm_up => omitted += 1,
                // A stream that is missing ended early.
                Some(total) if complete => intervals.push(total),
                _ => {}
            }
        }
        if streams == 0 {
            return Ok(None);
        }
        check_order(&intervals)?;
        let both_ways =
            self.intervals.iter().flat_map(|i| array(i, "streams")).any(|s| self.sends(s) != sending);
        let mut log = Iperf3Log {
            role: if sending { Role::Sender } else { Role::Receiver },
            streams,
            omitted,
            offered: self.target.map(|target| target.mul_div(streams as u64, 1)),
            intervals,
            ..self.template.clone()
        };
        match log.protocol {
            Protocol::Tcp => self.summarise_tcp(&mut log, sending, both_ways),
            Protocol::Udp => self.summarise_udp(&mut log, sending, both_ways),
        }
        Ok(Some(log))
    }

    /// Whether this end sent the data of a report. Versions before 3.7 do not say; then it is what only a
    /// sender can know.
    fn sends(&self, report: &Value) -> bool {
        if let Some(sender) = report.get("sender").and_then(Value::as_bool) {
            return sender;
        }
        match self.template.protocol {
            Protocol::Tcp if report.get("retransmits").is_some() => true,
            Protocol::Udp if report.get("jitter_ms").is_some() => false,
            _ => self.template.reverse == self.server,
        }
    }

    /// One stream's report, or the key that cannot be used.
    fn interval(&self, report: &Value, sending: bool) -> Result<Interval, &'static str> {
        let time = |key: &'static str| number(report, key).and_then(instant).ok_or(key);
        let (start, end) = (time("start")?, time("end")?);
        if end <= start {
            return Err("end");
        }
        let bytes_moved = Bytes::new(count(report, "bytes").ok_or("bytes")?);
        let rate = number(report, "bits_per_second").map(|bps| Rate::from_bps(bps as u64));
        let udp = self.template.protocol == Protocol::Udp;
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

    /// The summaries of this direction's streams, from `end.streams[].{key}`.
    fn of_streams(&self, key: &str, sending: bool) -> impl Iterator<Item = &'a Value> {
        array(self.end, "streams")
            .iter()
            .filter_map(move |stream| stream.get(key))
            // Without the flag there was one direction only.
            .filter(move |side| side.get("sender").and_then(Value::as_bool).is_none_or(|s| s == sending))
    }

    fn summarise_tcp(&self, log: &mut Iperf3Log, sending: bool, both_ways: bool) {
        // In a test of both directions the sums of this direction have a name that depends on the end.
        let total = |sum: &str, side: &str| {
            let sum = self.end.get(sum).and_then(summary).filter(|_| !both_ways);
            let streams = || self.of_streams(side, sending).filter_map(summary).reduce(Interval::added);
            sum.or_else(streams)
        };
        let (sent, received) = (total("sum_sent", "sender"), total("sum_received", "receiver"));
        log.sent = sent.as_ref().and_then(Summary::of);
        log.received = received.as_ref().and_then(Summary::of);
        // What a receiver's socket measures is not the way of the data.
        let senders = self.of_streams("sender", sending).filter(|_| sending);
        log.rtt = rtt_range(&senders.collect::<Vec<_>>());
        let name = text(self.end, "sender_tcp_congestion").filter(|name| !name.is_empty());
        let other = text(self.end, "receiver_tcp_congestion");
        log.congestion_control = name.filter(|_| !both_ways || name == other).map(quote);
    }

    fn summarise_udp(&self, log: &mut Iperf3Log, sending: bool, both_ways: bool) {
        let streams: Vec<&Value> = self.of_streams("udp", sending).collect();
        let of_streams = || streams.iter().copied().filter_map(summary).reduce(Interval::added);
        let sum = |key: &str| self.end.get(key).filter(|_| !both_ways);
        let heard = sum("sum_received").or_else(|| sum("sum")).filter(|sum| count(sum, "packets").is_some());
        let counted = log.intervals.iter().filter_map(|i| i.datagrams).reduce(Datagrams::added);
        let of_end = || streams.iter().copied().map(datagrams).reduce(Datagrams::added);
        log.datagrams = heard.map(datagrams).or_else(of_end).or(counted);
        // The sums lack what arrived out of order.
        let out_of_order = of_end().and_then(|all| all.out_of_order);
        if let Some(all) = log.datagrams.as_mut().filter(|all| all.lost.is_some()) {
            all.out_of_order = all.out_of_order.or(out_of_order);
        }
        log.sent = sum("sum_sent").and_then(summary).or_else(of_streams).as_ref().and_then(Summary::of);
        // Only `sum_received` is an amount that arrived; `sum` and the streams have what was sent.
        let arrived = sum("sum_received").and_then(summary).or_else(|| {
            let (all, Datagrams { total, lost, .. }) = of_streams().zip(log.datagrams)?;
            let share = |amount: u64| {
                (u128::from(amount) * u128::from(total.saturating_sub(lost.unwrap_or(0)))
                    / u128::from(total.max(1))) as u64
            };
            Some(Interval {
                bytes: Bytes::new(share(all.bytes.get())),
                rate: Rate::from_bps(share(all.rate.as_bps())),
                ..all
            })
        });
        log.received = arrived.as_ref().and_then(Summary::of);
    }
}

fn datagrams(object: &Value) -> Datagrams {
    // Out-of-order arrivals can make the loss of an interval negative.
    let lost = object.get("lost_packets").and_then(Value::as_f64).filter(|lost| lost.abs() < 9.2e18);
    Datagrams {
        total: count(object, "packets").unwrap_or(0),
        lost: lost.map(|lost| lost.max(0.0) as u64),
        jitter: number(object, "jitter_ms").map(|ms| Duration::from_secs_f64(ms / 1e3)),
        out_of_order: count(object, "out_of_order"),
    }
}

/// A summary in the form of a report over the whole test.
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

/// Over all streams; zeros are an end that does not know.
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
