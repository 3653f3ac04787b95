//! iperf3 text output, from either endpoint and any version.
//!
//! ```text
//! [ ID] Interval           Transfer     Bandwidth       Retr  Cwnd
//! [  4]   0.00-1.00   sec   109 KBytes   892 Kbits/sec    0   42.4 KBytes              a TCP sender
//! [  5]   0.00-1.00   sec  12.0 MBytes   101 Mbits/sec                                 a TCP receiver
//! [  5]   0.00-1.00   sec  1.22 MBytes  10.2 Mbits/sec  39                             a UDP sender
//! [  5]   0.00-1.00   sec  1.22 MBytes  10.2 Mbits/sec  0.006 ms  0/39 (0%)            a UDP receiver
//! [  7][RX-C]   0.00-1.00   sec  12.0 MBytes   101 Mbits/sec                           --bidir
//! - - - - - - - - - - - - - - - - - - - - - - - - -
//! [  4]   0.00-30.00  sec   249 MBytes  69.6 Mbits/sec  101             sender
//! ```
//!
//! Amounts use powers of 1024 although the unit is "KBytes"; bit rates use powers of 1000. The rate in a
//! sender's interval is the rate of *writes* to the socket, so single intervals vary by whole write
//! blocks.

use std::collections::{BTreeMap, BTreeSet};

use fullpipe_iperf3::log::MOST_STREAMS;
use fullpipe_units::{Bytes, Duration, Instant, Rate};

use super::iperf3::{
    OneWay, check_order, finished, implausible, instant, joined, plausible_mss, several_runs,
};
use super::{InputError, quote};
use crate::measurement::{
    self, Datagrams, Detail, Flow, Format, Hosts, Interval, Measurement, Origin, Protocol, Role, Summary,
    Total, added,
};

/// Reads a log; at least one line must satisfy [`is_typical_line`].
pub(super) fn parse(text: &str) -> Result<Measurement, InputError> {
    let begins = |line: &str| {
        let line = line.trim_start();
        line.starts_with("Connecting to host ") || line.starts_with("Accepted connection from")
    };
    let runs = text.lines().filter(|line| begins(line)).count();
    if runs > 1 {
        return Err(several_runs(&format!("the log contains {runs} runs")));
    }
    let mut remarks = Remarks::default();
    let (mut sent, mut received) = (Rows::default(), Rows::default());
    for line in text.lines().map(str::trim) {
        match Row::parse(line) {
            Some(row) if row.direction == Some(Direction::Rx) => received.rows.push(row),
            Some(row) => sent.rows.push(row),
            None => remarks.take(line),
        }
    }
    let udp = remarks.udp || sent.is_udp() || received.is_udp();
    let sends = remarks.client && !remarks.reverse;
    finished(remarks.complete(sent.one_way(udp, sends)?, received.one_way(udp, false)?))
}

/// Returns whether `line` can only come from iperf3 (or from iperf 2, which is detected earlier).
pub(super) fn is_typical_line(line: &str) -> bool {
    line.starts_with("Connecting to host ")
        || line.starts_with("iperf3:")
        || line.starts_with("iperf Done")
        || is_header(line)
        || Row::parse(line).is_some()
}

fn is_header(line: &str) -> bool {
    line.contains("[ ID] Interval") || line.contains("[ ID][Role] Interval")
}

/// Values from lines outside the table.
#[derive(Default)]
struct Remarks {
    version: Option<String>,
    kernel: Option<fullpipe_tcp::buffers::KernelVersion>,
    mss: Option<Bytes>,
    congestion_control: Option<String>,
    offered: Option<Rate>,
    error: Option<String>,
    reverse: bool,
    /// Whether the client wrote the log.
    client: bool,
    udp: bool,
    /// Number of datagrams received out of order, from the lines that report it.
    out_of_order: u64,
}

impl Remarks {
    fn take(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["iperf", version, ..] if version.starts_with("3.") => self.version = Some(quote(version)),
            ["Linux", _host, release, _build, ..] => self.kernel = release.parse().ok(),
            ["TCP", "MSS:", mss, ..] | ["Control", "connection", "MSS", mss] => {
                self.mss = mss.parse().ok().and_then(plausible_mss).or(self.mss);
            }
            ["snd_tcp_congestion", name] => self.congestion_control = Some(quote(name)),
            ["Target", "Bitrate:", rate] => {
                self.offered = rate.parse().ok().filter(|rate| *rate > 0).map(Rate::from_bps);
            }
            ["Reverse", "mode,", ..] => self.reverse = true,
            ["Connecting", "to", "host", ..] => self.client = true,
            ["Starting", "Test:", "protocol:", "UDP,", ..] => self.udp = true,
            // iperf3 prints one such line per stream with out-of-order datagrams, and labels each as the sum.
            [_, "sec", late, "datagrams", "received", "out-of-order"]
            | [_, _, "sec", late, "datagrams", "received", "out-of-order"]
            | [_, _, _, "sec", late, "datagrams", "received", "out-of-order"] => {
                self.out_of_order = self.out_of_order.saturating_add(count(late).unwrap_or(0));
            }
            _ if is_header(line) => self.udp |= line.contains("Datagrams") || line.contains("Jitter"),
            _ => {
                if let Some(("iperf3", message)) = line.split_once(": ").map(|(tool, m)| (tool.trim(), m)) {
                    // A line such as "interrupt - the client has terminated" only reports Ctrl-C and is not
                    // an error.
                    if let Some(message) = message.trim().strip_prefix("error - ") {
                        self.error = Some(quote(message));
                    }
                }
            }
        }
    }

    fn complete(self, mut sent: Option<OneWay>, mut received: Option<OneWay>) -> Measurement {
        let both = sent.is_some() && received.is_some();
        // Lines outside the table describe the first direction.
        if let Some(main) = sent.as_mut().or(received.as_mut()) {
            for flow in &mut main.flows {
                flow.mss = self.mss;
                // The target rate applies to each stream.
                flow.offered = self.offered;
                // In a bidirectional test both endpoints send, and the log does not state whose congestion
                // control it names.
                flow.congestion_control = self.congestion_control.clone().filter(|_| !both);
            }
            let heard = main.datagrams.as_mut().filter(|datagrams| datagrams.lost.is_some() && !both);
            if let Some(datagrams) = heard {
                datagrams.out_of_order = Some(self.out_of_order);
            }
        }
        let origin =
            Origin { format: Format::Text, version: self.version, error: self.error, ..Origin::default() };
        joined(sent, received, self.reverse, origin, Hosts { kernel: self.kernel, ..Hosts::default() })
    }
}

/// Endpoint that a summary line belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Sender,
    Receiver,
}

/// Role column of `--bidir`: whether this endpoint sent the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Tx,
    Rx,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowKind {
    Interval,
    Omitted,
    Summary(Side),
}

/// Line of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Row {
    /// Stream number; `None` for the sum of all streams.
    stream: Option<u32>,
    kind: RowKind,
    direction: Option<Direction>,
    interval: Interval,
}

impl Row {
    /// Parses a line of the table; `None` for a line that is incomplete or has impossible values.
    fn parse(line: &str) -> Option<Self> {
        // A timestamp may precede the bracket (--timestamps).
        let (id, rest) = line.get(line.find('[')? + 1..)?.split_once(']')?;
        let stream = match id.trim() {
            "SUM" => None,
            number => Some(number.parse().ok()?),
        };
        let (direction, rest) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((role, rest)) if role.starts_with("TX") => (Some(Direction::Tx), rest),
            Some((role, rest)) if role.starts_with("RX") => (Some(Direction::Rx), rest),
            Some(_) => return None,
            None => (None, rest),
        };
        // After a vertical bar, fullpipe iperf3 prints additional columns about the sending socket.
        let columns = rest.split_once(" | ").map_or(rest, |(columns, _)| columns);
        let mut words = columns.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let (start, end) = (seconds(start)?, seconds(end)?);
        if words.next()? != "sec" || end <= start {
            return None;
        }
        let bytes = Bytes::new(scaled(words.next()?, amount_unit(words.next()?)?)?);
        let rate = Rate::from_bps(scaled(words.next()?, rate_unit(words.next()?)?)?);
        let mut tail: Vec<&str> = words.collect();
        let kind = match tail.last().copied() {
            Some("sender") => RowKind::Summary(Side::Sender),
            Some("receiver") => RowKind::Summary(Side::Receiver),
            Some("(omitted)") => RowKind::Omitted,
            _ => RowKind::Interval,
        };
        if kind != RowKind::Interval {
            tail.pop();
        }
        let datagrams = match tail.as_slice() {
            [jitter, "ms", of_total, ..] => Some(datagrams(jitter, of_total)?),
            _ => None,
        };
        // For a UDP sender this column is the datagram count; `Rows::read_as_udp` moves it.
        let retransmits = tail.first().and_then(|word| count(word)).filter(|_| datagrams.is_none());
        let cwnd = match tail.as_slice() {
            [_, number, unit] => amount_unit(unit).and_then(|unit| scaled(number, unit)).map(Bytes::new),
            _ => None,
        };
        let lossy_streams = u64::from(retransmits.is_some_and(|n| n > 0));
        let (snd_wnd, rtt) = (None, None);
        let interval =
            Interval { start, end, bytes, rate, retransmits, lossy_streams, cwnd, snd_wnd, rtt, datagrams };
        implausible(&interval).is_none().then_some(Self { stream, kind, direction, interval })
    }
}

/// Parses `0.006 ms  3/39 (7.7%)`; out-of-order arrivals can make the loss count of an interval negative.
fn datagrams(jitter: &str, of_total: &str) -> Option<Datagrams> {
    let (lost, total) = of_total.split_once('/')?;
    let lost = lost.parse::<i64>().ok()?.max(0).unsigned_abs();
    let milliseconds = decimal(jitter).filter(|ms| *ms >= 0.0)?;
    let jitter = Some(Duration::from_secs_f64(milliseconds / 1e3));
    Some(Datagrams { total: count(total)?, lost: Some(lost), jitter, out_of_order: None })
}

/// Parses a number with a decimal point, or with the decimal comma that many locales print.
fn decimal(text: &str) -> Option<f64> {
    let value = text.parse().or_else(|_| text.replacen(',', ".", 1).parse());
    value.ok().filter(|value: &f64| value.is_finite())
}

fn seconds(text: &str) -> Option<Instant> {
    instant(decimal(text)?)
}

fn scaled(number: &str, unit: f64) -> Option<u64> {
    // `as` saturates.
    decimal(number).filter(|value| *value >= 0.0).map(|value| (value * unit).round() as u64)
}

/// Parses a segment count. iperf3 prints an unknown count as -1, and some releases as 2^64-1.
fn count(text: &str) -> Option<u64> {
    text.parse().ok().filter(|n: &u64| *n < 1 << 63)
}

fn binary(prefix: &str) -> Option<f64> {
    Some(match prefix {
        "" => 1.0,
        "K" => 1024.0,
        "M" => 1024.0 * 1024.0,
        "G" => 1024.0 * 1024.0 * 1024.0,
        "T" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    })
}

/// Returns the number of bytes in one `unit` of an amount.
fn amount_unit(unit: &str) -> Option<f64> {
    binary(unit.strip_suffix("Bytes")?)
}

/// Returns the number of bit/s in one `unit` of a rate.
fn rate_unit(unit: &str) -> Option<f64> {
    let unit = unit.strip_suffix("/sec")?;
    match unit.strip_suffix("bits") {
        Some("") => Some(1.0),
        Some("K") => Some(1e3),
        Some("M") => Some(1e6),
        Some("G") => Some(1e9),
        Some("T") => Some(1e12),
        Some(_) => None,
        None => amount_unit(unit).map(|bytes| 8.0 * bytes),
    }
}

/// Table lines of one direction.
#[derive(Default)]
struct Rows {
    rows: Vec<Row>,
}

impl Rows {
    fn is_udp(&self) -> bool {
        self.rows.iter().any(|row| row.interval.datagrams.is_some())
    }

    /// Returns the streams and sums of this direction, or `None` if there are no lines for it. `by_command`
    /// tells whether, according to the command in the log, this endpoint sends.
    fn one_way(mut self, udp: bool, by_command: bool) -> Result<Option<OneWay>, InputError> {
        let Some(first) = self.rows.first().copied() else {
            return Ok(None);
        };
        if udp {
            self.read_as_udp();
        }
        self.check_streams()?;
        let streams: BTreeSet<u32> = self.rows.iter().filter_map(|row| row.stream).collect();
        let of_each = self.intervals(&streams);
        let intervals = added(of_each.iter().map(Vec::as_slice));
        check_order(&intervals)?;
        let of_sender = |i: &Interval| match i.datagrams {
            Some(datagrams) => datagrams.lost.is_none(),
            None => i.retransmits.is_some() || i.cwnd.is_some(),
        };
        // Builds for macOS and Windows, and old builds, print neither retransmissions nor Cwnd for
        // a sender.
        let sends = match first.direction {
            Some(direction) => direction == Direction::Tx,
            None => by_command || intervals.iter().any(of_sender),
        };
        let omitted = self.rows.iter().filter(|row| row.kind == RowKind::Omitted);
        let counted = || intervals.iter().filter_map(|i| i.datagrams).reduce(Datagrams::added);
        let (summary, datagrams) = self.summary(|side| self.total(side));
        // If the streams' own lines were filtered out, only the sum is left.
        let ids = if streams.is_empty() { vec![None] } else { streams.iter().copied().map(Some).collect() };
        let summaries = self.first_summaries();
        let flows = ids.into_iter().zip(of_each).map(|(stream, intervals)| {
            let own = |side| summaries.get(&(side, stream)).copied();
            let (summary, datagrams) = self.summary(own);
            Flow {
                id: stream.unwrap_or_default(),
                direction: measurement::Direction::default(),
                role: if sends { Role::Sender } else { Role::Receiver },
                protocol: if udp { Protocol::Udp } else { Protocol::Tcp },
                congestion_control: None,
                mss: None,
                offered: None,
                intervals,
                summary,
                detail: datagrams.map(Detail::Datagrams),
            }
        });
        Ok(Some(OneWay {
            flows: flows.collect(),
            summary,
            datagrams: datagrams.or_else(counted),
            // Each interval is counted once, not once per stream.
            omitted: omitted.filter(|row| row.stream == streams.first().copied()).count(),
        }))
    }

    /// Returns the counts of both endpoints; `total` returns the summary line of each endpoint.
    fn summary(&self, total: impl Fn(Side) -> Option<Interval>) -> (Summary, Option<Datagrams>) {
        let (sent, received) = (total(Side::Sender), total(Side::Receiver));
        // The sender's summary says "0 lost", although the sender does not know the number.
        let told = received.and_then(|total| total.datagrams);
        let datagrams = told.or(sent.and_then(|total| total.datagrams).map(Datagrams::unheard));
        (Summary { sent: Total::of(sent), received: Total::of(received), rtt: None }, datagrams)
    }

    /// Converts rows to UDP, where a single number is the datagram count. In old versions the summary does
    /// not name an endpoint: it has the receiver's counts, and starts at zero after the interval lines.
    fn read_as_udp(&mut self) {
        let mut ends: BTreeMap<Option<u32>, Instant> = BTreeMap::new();
        for Row { stream, kind, interval, .. } in &mut self.rows {
            let total = interval.retransmits.take();
            interval.lossy_streams = 0;
            interval.datagrams =
                interval.datagrams.or(total.map(|total| Datagrams { total, ..Datagrams::default() }));
            if *kind != RowKind::Interval {
                continue;
            }
            // The last report may end up to 0.01 s after the summary.
            let covers = |end: &Instant| interval.end + Duration::from_millis(20) >= *end;
            if interval.start == Instant::ZERO && ends.get(stream).is_some_and(covers) {
                *kind = RowKind::Summary(Side::Receiver);
                // The printed amount is the sent amount.
                if let Some(Datagrams { total, lost: Some(lost), .. }) = interval.datagrams {
                    let arrived = total.saturating_sub(lost);
                    interval.bytes = interval.bytes.mul_div(arrived, total.max(1));
                    interval.rate = interval.rate.mul_div(arrived, total.max(1));
                }
            } else {
                ends.insert(*stream, interval.end);
            }
        }
    }

    fn of_intervals(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.kind == RowKind::Interval)
    }

    /// Checks the order of each stream's reports, and the number of streams.
    fn check_streams(&self) -> Result<(), InputError> {
        // The last report of each stream; none for a stream that has only a summary or omitted reports.
        let mut latest: BTreeMap<Option<u32>, Option<Interval>> = BTreeMap::new();
        for row in &self.rows {
            let last = latest.entry(row.stream).or_default();
            if row.kind == RowKind::Interval
                && let Some(before) = last.replace(row.interval)
            {
                check_order(&[before, row.interval])?;
            }
            if latest.len() > MOST_STREAMS {
                return Err(InputError::new(
                    format!("the log has more than {MOST_STREAMS} streams"),
                    "use the unedited output of iperf3 -c HOST -t 30",
                ));
            }
        }
        Ok(())
    }

    /// Returns the reports of each stream, in the order of `streams`, for the intervals that all of them
    /// report. The sums printed by iperf3 lack the congestion windows, so they are used only if the lines of
    /// the streams were filtered out.
    fn intervals(&self, streams: &BTreeSet<u32>) -> Vec<Vec<Interval>> {
        if streams.is_empty() {
            return vec![self.of_intervals().map(|row| row.interval).collect()];
        }
        let mut groups: Vec<Vec<&Row>> = Vec::new();
        for row in self.of_intervals().filter(|row| row.stream.is_some()) {
            // Streams report at the same time, within the precision of the printed times.
            let joins = |group: &Vec<&Row>| {
                let apart = group[0].interval.start.saturating_since(row.interval.start)
                    + row.interval.start.saturating_since(group[0].interval.start);
                apart * 2 < row.interval.length() && group.iter().all(|other| other.stream != row.stream)
            };
            match groups.last_mut().filter(|group| joins(group)) {
                Some(group) => group.push(row),
                None => groups.push(vec![row]),
            }
        }
        // If a stream is missing from the last group, the log ends there.
        groups.retain(|group| group.len() == streams.len());
        let of_stream = |stream: &u32| {
            let own = |group: &Vec<&Row>| {
                group.iter().find(|row| row.stream == Some(*stream)).map(|row| row.interval)
            };
            groups.iter().filter_map(own).collect()
        };
        streams.iter().map(of_stream).collect()
    }

    fn summaries(&self, side: Side) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.kind == RowKind::Summary(side))
    }

    /// Returns the first summary of each stream and endpoint.
    fn first_summaries(&self) -> BTreeMap<(Side, Option<u32>), Interval> {
        let mut first = BTreeMap::new();
        for row in &self.rows {
            if let RowKind::Summary(side) = row.kind {
                first.entry((side, row.stream)).or_insert(row.interval);
            }
        }
        first
    }

    /// Returns the sum over all streams.
    fn total(&self, side: Side) -> Option<Interval> {
        let sum = self.summaries(side).find(|row| row.stream.is_none()).map(|row| row.interval);
        sum.or_else(|| self.summaries(side).map(|row| row.interval).reduce(Interval::added))
    }
}

#[cfg(test)]
mod tests;
