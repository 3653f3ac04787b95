//! Output of `ss -ti` and `ss -tmi`: one dump, or a series of dumps (`while sleep 0.1; do ss -tmi; done`).
//!
//! ```text
//!   State Recv-Q Send-Q  Local Address:Port  Peer Address:Port Process
//!   ESTAB 0      3874816     127.0.0.1:52296    127.0.0.1:5999          ──► the connection
//!        skmem:(r0,rb131072,t0,tb4194304,...) bbr rtt:10.6/4.1 mss:1448 ...  ──► a row of the connection
//! ```
//!
//! The reader finds fields by name and ignores unknown fields, because the order and number of fields differ
//! between versions. A dump ends where a connection appears for the second time. If no time is printed before
//! the dumps (`date +%s.%N`), the kernel's millisecond counters determine the time between two dumps:
//! `lastsnd`, `lastrcv`, `lastack` and `busy` never grow by more than that time.

use std::collections::BTreeMap;
use std::net::IpAddr;

use fullpipe_lab::trace::{BbrInfo, Row, TcpInfo};
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Bytes, Duration, Instant, Rate};

use super::iperf3::FEWEST_INTERVALS;
use super::trace;
use super::{InputError, quote};
use crate::measurement::sharing::may_share;
use crate::measurement::{Format, Measurement};

/// Assumed time between two dumps if it is unknown.
const UNKNOWN_TIME: Duration = Duration::from_millis(100);
/// Assumed window if ss does not show it: the maximum window of TCP (RFC 7323 section 2.3), so that it never
/// counts as full.
const UNKNOWN_WINDOW: Bytes = Bytes::from_mib(1024);
/// Maximum number of connections listed in a message.
const LISTED: usize = 4;
/// Number of rows that replace a single row; its state is assumed to last for that many round trips.
const EXTRAPOLATED: u64 = FEWEST_INTERVALS as u64 + 2;
const HINT: &str =
    "give the complete output of ss -tmi, from one run or many (while sleep 0.1; do ss -tmi; done)";

/// Returns whether a line comes from `ss`: column names, or connection details.
pub(super) fn is_typical_line(line: &str) -> bool {
    let inside = |name: &str| line.split_whitespace().any(|word| word.starts_with(name));
    is_header(line) || inside("cwnd:") && inside("rtt:") && inside("rto:")
}

fn is_header(line: &str) -> bool {
    line.contains("Recv-Q") && line.contains("Send-Q") && line.contains("Address:Port")
}

/// Maximum number of fields of a connection that are read.
const MOST_FIELDS: usize = 128;

/// One connection in one dump.
#[derive(Clone, Debug, Default)]
struct Sample<'a> {
    name: String,
    /// Names and values of the fields, in the order of the text; a field without a value has an empty string.
    /// If a name occurs more than once, the last field counts.
    fields: Vec<(&'a str, &'a str)>,
}

/// One dump, with the time printed before it, if any.
#[derive(Debug, Default)]
struct Dump<'a> {
    time: Option<f64>,
    samples: Vec<Sample<'a>>,
}

/// Reads dumps and returns one connection: number `flow`, counting from 1 in order of appearance, or the one
/// that sent the most data.
///
/// # Errors
/// Returns an error if the text contains no connection with details, or no connection with that number.
pub fn parse(text: &str, flow: Option<u32>) -> Result<Measurement, InputError> {
    let text = super::clean(text);
    let dumps = dumps(&text);
    let connections = connections(&dumps);
    if connections.is_empty() {
        return Err(InputError::new("this ss output contains no connection details (ss -ti)", HINT));
    }
    let sent = |rows: &Vec<(Instant, &Sample<'_>)>| {
        let acked = |row: Option<&(Instant, &Sample<'_>)>| row.map_or(0, |(_, sample)| sample.acked());
        (acked(rows.last()).saturating_sub(acked(rows.first())), acked(rows.last()))
    };
    let chosen = match flow {
        None => connections.iter().max_by_key(|(_, rows)| sent(rows)),
        Some(number) => number.checked_sub(1).and_then(|index| connections.get(index as usize)),
    };
    let Some((name, samples)) = chosen else {
        let list: Vec<&str> = connections.iter().take(LISTED).map(|(name, _)| name.as_str()).collect();
        let hint = format!("connections 1 to {} are {}", connections.len(), list.join(", "));
        return Err(InputError::new(format!("ss shows no connection number {}", flow.unwrap_or(0)), hint));
    };
    let mut notes = Vec::new();
    if connections.len() > 1 {
        notes.push(format!(
            "ss shows {} connections; this is {}, {} (choose another with --flow)",
            connections.len(),
            quote(name),
            if flow.is_some() { "the selected one" } else { "the one that sent the most data" }
        ));
    }
    let shows = |field: &str| dumps.iter().flat_map(|dump| &dump.samples).any(|sample| sample.has(field));
    let shows_window = shows("snd_wnd");
    if !shows_window {
        notes.push(
            "the output does not show the receiver's window (snd_wnd, which requires Linux 5.4 and a newer \
             ss), so the window is assumed not to be the limit, although it may be"
                .into(),
        );
    }
    if !shows("skmem") {
        notes.push(
            "the output does not show the send buffer (use ss -tmi); if the application seems to offer no \
             more data, it may be waiting for the buffer"
                .into(),
        );
    }
    let others: Vec<Vec<Row>> = (1..)
        .zip(&connections)
        .filter(|(_, (other, _))| other != name && share_a_path(name, other))
        .map(|(number, (_, samples))| rows(number, samples, shows_window))
        .collect();
    let number = connections.iter().position(|(other, _)| other == name).unwrap_or(0) + 1;
    let rows = rows(number as u32, samples, shows_window);
    let [row] = rows.as_slice() else {
        return trace::of_one_among(rows, others.iter().map(Vec::as_slice), Format::Ss, notes, HINT);
    };
    let mut measurement = trace::of_one_row(extrapolated(row)?, Format::Ss, notes)?;
    // ss also shows the last delivery rate of a connection that is idle.
    let busy = others.iter().filter_map(|rows| rows.first()).filter(|row| !row.sender.flight_size.is_zero());
    let others: Vec<Vec<Row>> = busy.filter_map(|row| extrapolated(row).ok()).collect();
    trace::add_companions(&mut measurement, others.iter().map(Vec::as_slice));
    Ok(measurement)
}

/// Returns the rows of one connection.
fn rows(flow: u32, samples: &[(Instant, &Sample<'_>)], shows_window: bool) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (at, sample) in samples {
        if rows.last().is_none_or(|last| *at > last.at) {
            let sender = sample.sender(shows_window);
            rows.push(Row { at: *at, flow, sender, receiver: None, path: None, truth: None });
        }
    }
    rows
}

/// Returns whether two connections, written as `local > remote`, may share a link.
fn share_a_path(a: &str, b: &str) -> bool {
    let address = |end: &str| {
        let host = end.rsplit_once(':')?.0.trim_matches(['[', ']']);
        // An address may name its interface: fe80::1%eth0.
        host.split('%').next()?.parse::<IpAddr>().ok()
    };
    let ends = |name: &str| {
        let (local, remote) = name.split_once(" > ")?;
        Some((address(local)?, address(remote)?))
    };
    ends(a).zip(ends(b)).is_some_and(|(a, b)| may_share(a, b))
}

/// Returns rows that extrapolate a single row at its delivery rate.
fn extrapolated(row: &Row) -> Result<Vec<Row>, InputError> {
    let still = InputError::new(
        "the connection in this single dump has not sent data recently",
        "take ten dumps per second during a transfer: while sleep 0.1; do ss -tmi; done",
    );
    let rate = row.sender.delivery_rate.filter(|rate| !rate.is_zero()).ok_or(still)?;
    let trip = row.sender.srtt.filter(|rtt| !rtt.is_zero()).unwrap_or(UNKNOWN_TIME);
    let later = |trips: u64| {
        let mut row = row.clone();
        row.at = Instant::ZERO + trip * trips;
        row.sender.delivered += rate * (trip * trips);
        row
    };
    Ok((0..EXTRAPOLATED).map(later).collect())
}

/// Splits the text into dumps, and each dump into connections.
fn dumps(text: &str) -> Vec<Dump<'_>> {
    let mut dumps: Vec<Dump<'_>> = vec![Dump::default()];
    let mut time = None;
    // Number of the dump that last contained each connection. A map is fast even if a dump lists a hundred
    // thousand connections.
    let mut latest: BTreeMap<String, usize> = BTreeMap::new();
    for line in text.lines() {
        if is_header(line) {
            dumps.push(Dump { time: time.take(), samples: Vec::new() });
        } else if let Some((name, rest)) = connection(line) {
            if latest.get(&name) == Some(&dumps.len()) || time.is_some() {
                dumps.push(Dump { time: time.take(), samples: Vec::new() });
            }
            match latest.get_mut(&name) {
                Some(number) => *number = dumps.len(),
                None => {
                    latest.insert(name.clone(), dumps.len());
                }
            }
            let mut sample = Sample { name, ..Sample::default() };
            sample.read(rest);
            if let Some(dump) = dumps.last_mut() {
                dump.samples.push(sample);
            }
        } else if let Some(stamp) = stamp(line) {
            time = Some(stamp);
        } else if let Some(sample) = dumps.last_mut().and_then(|dump| dump.samples.last_mut())
            && line.starts_with(char::is_whitespace)
        {
            sample.read(line);
        }
    }
    dumps.retain(|dump| !dump.samples.is_empty());
    dumps
}

/// Returns the two endpoints at the start of a line, and the rest of the line.
fn connection(line: &str) -> Option<(String, &str)> {
    if line.starts_with(char::is_whitespace) {
        return None;
    }
    let mut rest = line;
    let mut word = || {
        let trimmed = rest.trim_start();
        let (word, after) = trimmed.split_at(trimmed.find(char::is_whitespace).unwrap_or(trimmed.len()));
        rest = after;
        (!word.is_empty()).then_some(word)
    };
    let mut first = word()?;
    let number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
    // ss omits the state column if a state was selected, and with -a it also prints the protocol.
    for _ in 0..2 {
        if !number(first) {
            first = word()?;
        }
    }
    let (queues, local, remote) = ([first, word()?], word()?, word()?);
    let end = |word: &str| word.rsplit_once(':').is_some_and(|(_, port)| !port.is_empty() && port != "*");
    let is_one = queues.into_iter().all(number) && end(local) && end(remote);
    is_one.then(|| (format!("{local} > {remote}"), rest))
}

/// Returns the seconds in a line that contains only a time: since the epoch, or since midnight (`date
/// +%T.%N`, `date -Ins`).
fn stamp(line: &str) -> Option<f64> {
    let line = line.trim();
    if let Ok(seconds) = line.parse::<f64>() {
        return (seconds.is_finite() && seconds >= 0.0).then_some(seconds);
    }
    let day = line.split(['T', ' ']).find(|part| part.matches(':').count() >= 2)?;
    let day = day.split(['+', 'Z']).next()?.replace(',', ".");
    let mut parts = day.splitn(3, ':');
    let mut part = || parts.next()?.parse::<f64>().ok().filter(|part| part.is_finite() && *part >= 0.0);
    let (hours, minutes, seconds) = (part()?, part()?, part()?);
    (hours < 24.0 && minutes < 60.0 && seconds < 61.0).then_some(hours * 3_600.0 + minutes * 60.0 + seconds)
}

/// Returns every connection with its samples, in order of appearance.
fn connections<'d, 't>(dumps: &'d [Dump<'t>]) -> Vec<(String, Vec<(Instant, &'d Sample<'t>)>)> {
    let mut connections: Vec<(String, Vec<(Instant, &Sample<'_>)>)> = Vec::new();
    let mut index: BTreeMap<&str, usize> = BTreeMap::new();
    let mut at = Instant::ZERO;
    for (i, dump) in dumps.iter().enumerate() {
        if let Some(before) = i.checked_sub(1).map(|before| &dumps[before]) {
            at += passed(before, dump);
        }
        for sample in dump.samples.iter().filter(|sample| sample.has("mss") && sample.has("cwnd")) {
            let number = *index.entry(&sample.name).or_insert_with(|| {
                connections.push((sample.name.clone(), Vec::new()));
                connections.len() - 1
            });
            connections[number].1.push((at, sample));
        }
    }
    connections
}

/// Returns the time between two dumps: from the printed times, or else the largest growth of a millisecond
/// counter.
fn passed(before: &Dump<'_>, after: &Dump<'_>) -> Duration {
    if let (Some(from), Some(to)) = (before.time, after.time) {
        // A time of day goes backwards at midnight.
        let seconds = if to >= from { to - from } else { 0.0 };
        return Duration::from_secs_f64(seconds);
    }
    let earlier: BTreeMap<&str, &Sample<'_>> =
        before.samples.iter().map(|sample| (sample.name.as_str(), sample)).collect();
    let grown = after.samples.iter().filter_map(|sample| {
        let earlier = earlier.get(sample.name.as_str())?;
        let counters = ["lastsnd", "lastrcv", "lastack", "busy"];
        counters.iter().filter_map(|name| sample.millis(name)?.checked_sub(earlier.millis(name)?)).max()
    });
    match grown.max() {
        None | Some(0) => UNKNOWN_TIME,
        Some(millis) => Duration::from_millis(millis),
    }
}

impl<'a> Sample<'a> {
    /// Adds the fields of a line. Some fields have their value in the next word, mostly after a colon.
    fn read(&mut self, line: &'a str) {
        let mut words = line.split_whitespace();
        while let Some(word) = words.next() {
            let (name, value) = match word {
                "send" | "pacing_rate" | "delivery_rate" | "max_pacing_rate" => {
                    (word, words.next().unwrap_or_default())
                }
                word => word.split_once(':').unwrap_or((word, "")),
            };
            if self.fields.len() < MOST_FIELDS {
                self.fields.push((name, value));
            }
        }
    }

    fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    fn value(&self, name: &str) -> Option<&'a str> {
        self.fields.iter().rev().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.value(name)?.parse().ok()
    }

    /// Returns a millisecond counter, such as `busy:328ms` or `lastsnd:12`.
    fn millis(&self, name: &str) -> Option<u64> {
        let value = self.value(name)?;
        value.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    }

    /// Parses milliseconds with a fraction, such as `minrtt:0.04`.
    fn span(value: &str) -> Option<Duration> {
        let millis: f64 = value.parse().ok()?;
        (millis > 0.0 && millis < 1e9).then(|| Duration::from_secs_f64(millis / 1e3))
    }

    /// Parses a rate, such as `92Mbps` or `92019424bps`; `0` means that there is no rate.
    fn rate(value: &str) -> Option<Rate> {
        let number = value.strip_suffix("bps")?;
        let (digits, unit) =
            number.split_at(number.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(number.len()));
        let unit = match unit {
            "" => 1.0,
            "K" | "k" => 1e3,
            "M" => 1e6,
            "G" => 1e9,
            "T" => 1e12,
            _ => return None,
        };
        let bps = digits.parse::<f64>().ok()? * unit;
        (1.0..1e15).contains(&bps).then(|| Rate::from_bps(bps as u64))
    }

    /// Returns one value from `skmem:(r0,rb131072,...)`.
    fn memory(&self, part: &str) -> Bytes {
        let parts = self.value("skmem").unwrap_or_default().trim_matches(['(', ')']);
        let value = parts.split(',').find_map(|field| {
            let digits = field.find(|c: char| c.is_ascii_digit())?;
            let (name, value) = field.split_at(digits);
            (name == part).then(|| value.parse::<u64>().ok())?
        });
        Bytes::new(value.unwrap_or(0))
    }

    /// Returns the payload acknowledged so far.
    fn acked(&self) -> u64 {
        self.number("bytes_acked").unwrap_or(0)
    }

    fn sender(&self, shows_window: bool) -> TcpInfo {
        let mss = self.number("mss").unwrap_or(0);
        let count = |name: &str| self.number(name).unwrap_or(0);
        let segments = |count: u64| Bytes::new(count.saturating_mul(mss));
        let named = ["reno", "bic", "cubic", "vegas", "bbr"].into_iter().find(|name| {
            // BBR's own figures are also labelled `bbr`: bbr:(bw:...).
            self.has(name)
        });
        let cc = named.and_then(|name| if name == "bbr" { Some(Algorithm::Bbr1) } else { name.parse().ok() });
        // The first number counts retransmissions in flight, the second all retransmissions since the start.
        let (again, retransmits) = match self.value("retrans").and_then(|value| value.split_once('/')) {
            Some((now, all)) => (now.parse().unwrap_or(0), all.parse().unwrap_or(0)),
            None => (0, 0),
        };
        let unacked = count("unacked");
        let inflight =
            unacked.saturating_add(again).saturating_sub(count("sacked").saturating_add(count("lost")));
        let rtt = self.value("rtt").and_then(|value| Self::span(value.split('/').next()?));
        let (pacing, max_pacing) = match self.value("pacing_rate") {
            Some(value) => {
                let (rate, most) = value.split_once('/').unwrap_or((value, ""));
                (Self::rate(rate), Self::rate(most))
            }
            None => (None, None),
        };
        // The kernel computes a pacing rate for every socket, but only a rate-based sender or a socket with a
        // maximum pacing rate is paced.
        let paced = cc.is_some_and(Algorithm::is_rate_based) || max_pacing.is_some();
        let window = if shows_window { Bytes::new(count("snd_wnd")) } else { UNKNOWN_WINDOW };
        // `bbr:(bw:92Mbps,mrtt:40.1,pacing_gain:1.25,cwnd_gain:2)`
        let model: BTreeMap<&str, &str> = self
            .value("bbr")
            .map(|value| {
                value.trim_matches(['(', ')']).split(',').filter_map(|part| part.split_once(':')).collect()
            })
            .unwrap_or_default();
        let gain = |name: &str| {
            let gain: f64 = model.get(name)?.parse().ok()?;
            (0.0..100.0).contains(&gain).then(|| (100.0 * gain).round() as u32)
        };
        let bbr = || {
            Some(BbrInfo {
                bw: Self::rate(model.get("bw")?)?,
                min_rtt: model.get("mrtt").and_then(|value| Self::span(value)),
                pacing_gain_percent: gain("pacing_gain")?,
                cwnd_gain_percent: gain("cwnd_gain")?,
            })
        };
        TcpInfo {
            cc,
            mss: Bytes::new(mss),
            cwnd: segments(count("cwnd")),
            ssthresh: self.number("ssthresh").map(segments),
            inflight: segments(inflight),
            flight_size: segments(unacked),
            rwnd: window,
            pacing_rate: pacing.filter(|_| paced),
            max_pacing_rate: max_pacing,
            delivery_rate: self.value("delivery_rate").and_then(Self::rate),
            app_limited: self.has("app_limited"),
            srtt: rtt,
            min_rtt: self.value("minrtt").and_then(Self::span),
            delivered: Bytes::new(self.acked()) + segments(self.number("sacked").unwrap_or(0)),
            retransmits,
            // ss omits a count of zero.
            dsack_dups: count("dsack_dups"),
            recovering: again > 0 || count("lost") > 0,
            notsent: Bytes::new(count("notsent")),
            sndbuf: self.memory("tb"),
            sndbuf_used: self.memory("w"),
            bbr: bbr(),
        }
    }
}

#[cfg(any(test, feature = "samples"))]
pub mod made;
#[cfg(test)]
mod tests;
