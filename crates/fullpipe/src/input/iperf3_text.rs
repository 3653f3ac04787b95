//! The text output of iperf3.
//!
//! ```text
//! [ ID] Interval           Transfer     Bandwidth       Retr  Cwnd
//! [  4]   0.00-1.00   sec   109 KBytes   892 Kbits/sec    0   42.4 KBytes
//! - - - - - - - - - - - - - - - - - - - - - - - - -
//! [  4]   0.00-30.00  sec   249 MBytes  69.6 Mbits/sec  101             sender
//! ```
//!
//! Amounts are powers of 1024 although they read "KBytes", rates in bits powers of 1000. Only a
//! sender's log has `Retr` and `Cwnd`. An interval's rate is the rate of *writes* into the socket, so
//! single intervals jump by whole write blocks.

use std::collections::{BTreeMap, BTreeSet};

use fullpipe_units::{Bytes, Duration, Instant, Rate};

use super::{InputError, Kind, quote};

/// Fewer intervals than this without a summary are not a measurement.
pub const FEWEST_INTERVALS: usize = 5;

/// One iperf3 run over TCP.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Iperf3Log {
    /// The version, which only verbose logs print.
    pub version: Option<String>,
    /// Parallel streams, at least 1.
    pub streams: usize,
    /// Congestion control of the sender, which only verbose logs print.
    pub congestion_control: Option<String>,
    /// Segment size in bytes, which only verbose logs print.
    pub mss: Option<Bytes>,
    /// The reports in order of time, all streams added; warm-up intervals (`-O`) left out.
    pub intervals: Vec<Interval>,
    /// The sender's summary.
    pub sent: Option<Summary>,
    /// The receiver's summary: what arrived.
    pub received: Option<Summary>,
    /// The log breaks off before its summary.
    pub truncated: bool,
    /// The error that iperf3 reported, of a run that failed late enough to be of use.
    pub error: Option<String>,
    /// Warm-up intervals that were left out.
    pub omitted: usize,
}

/// One report of iperf3, usually over a second, all streams added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Where it begins, counted from the start of the test.
    pub start: Instant,
    /// Where it ends, after `start`.
    pub end: Instant,
    /// Payload written (sender) or read (receiver).
    pub bytes: Bytes,
    /// The rate as printed.
    pub rate: Rate,
    /// Segments sent again; `None` in a receiver's log.
    pub retransmits: Option<u64>,
    /// Streams that sent something again; one stream counts once.
    pub lossy_streams: u64,
    /// Congestion window at the end of the interval; `None` in a receiver's log.
    pub cwnd: Option<Bytes>,
}

impl Interval {
    /// Its length, above zero.
    pub fn length(&self) -> Duration {
        self.end.saturating_since(self.start)
    }
}

/// One side's summary of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Length of the test.
    pub length: Duration,
    /// Payload in total.
    pub bytes: Bytes,
    /// The mean rate as printed.
    pub rate: Rate,
    /// Segments sent again; `None` on the receiver's side.
    pub retransmits: Option<u64>,
}

impl Iperf3Log {
    /// Reads a log.
    ///
    /// # Errors
    /// Whatever is no TCP log of one complete run, with a hint: nothing at all, JSON, UDP, both
    /// directions at once, several runs, a failed run, a log of fewer than [`FEWEST_INTERVALS`]
    /// intervals without summary, another tool's output.
    pub fn parse(text: &str) -> Result<Self, InputError> {
        refuse_other_kinds(text)?;
        let mut rows = Rows::default();
        let mut log = Self::default();
        for line in text.lines().map(str::trim) {
            match Row::parse(line) {
                Some(row) => rows.add(row),
                None => log.take_remark(line)?,
            }
        }
        rows.refuse_unusable()?;
        log.streams = rows.streams.len().max(1);
        log.omitted = rows.omitted;
        log.intervals = rows.intervals();
        log.sent = rows.summary(Role::Sender);
        log.received = rows.summary(Role::Receiver);
        log.truncated = log.sent.is_none() && log.received.is_none();
        log.checked()
    }

    /// Length of the test: the summary's, or what the intervals cover.
    pub fn length(&self) -> Duration {
        let summary = self.received.or(self.sent).map(|s| s.length).filter(|length| !length.is_zero());
        summary.unwrap_or_else(|| self.intervals.iter().fold(Duration::ZERO, |sum, i| sum + i.length()))
    }

    /// The mean goodput: what the receiver counted if the log says so, for the sender's figure includes
    /// what never left its socket buffer.
    pub fn mean_rate(&self) -> Rate {
        match self.received.or(self.sent) {
            Some(summary) => summary.rate,
            None => Rate::of(self.bytes(), self.length()),
        }
    }

    /// Payload in total.
    pub fn bytes(&self) -> Bytes {
        match self.received.or(self.sent) {
            Some(summary) => summary.bytes,
            None => self.intervals.iter().fold(Bytes::ZERO, |sum, i| sum + i.bytes),
        }
    }

    /// Keeps what verbose logs say beside the table.
    fn take_remark(&mut self, line: &str) -> Result<(), InputError> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["iperf", version, ..] if version.starts_with("3.") => self.version = Some(quote(version)),
            ["TCP", "MSS:", mss, ..] | ["Control", "connection", "MSS", mss] => {
                let plausible = |mss: &u64| (64..=65_535).contains(mss);
                self.mss = mss.parse().ok().filter(plausible).map(Bytes::new).or(self.mss);
            }
            ["snd_tcp_congestion", name] => self.congestion_control = Some(quote(name)),
            ["Starting", "Test:", "protocol:", "UDP,", ..] => return Err(udp()),
            _ => {
                if let Some(("iperf3", message)) = line.split_once(": ").map(|(tool, m)| (tool.trim(), m)) {
                    // "interrupt - the client has terminated" is how an ordinary Ctrl-C ends.
                    if let Some(message) = message.trim().strip_prefix("error - ") {
                        self.error = Some(quote(message));
                    }
                }
            }
        }
        Ok(())
    }

    fn checked(self) -> Result<Self, InputError> {
        let usable =
            self.intervals.len() >= FEWEST_INTERVALS || (!self.truncated && !self.intervals.is_empty());
        match (&self.error, usable) {
            (Some(message), false) => Err(InputError::new(
                format!("the iperf3 run failed: {message}"),
                "repeat the measurement; nothing was transferred in this one",
            )),
            (None, false) => Err(InputError::new(
                match self.intervals.len() {
                    0 if self.omitted > 0 => "the iperf3 log holds warm-up intervals (-O) only".into(),
                    0 => "the iperf3 log holds no interval".into(),
                    1 => "the iperf3 log breaks off after 1 interval".into(),
                    n => format!("the iperf3 log breaks off after {n} intervals"),
                },
                "give a complete log of iperf3 -c HOST -t 30 with reports every second",
            )),
            (_, true) => Ok(self),
        }
    }
}

/// Whether `line` could only come from iperf3 (or from iperf 2, which is told apart before).
pub(super) fn is_typical_line(line: &str) -> bool {
    line.starts_with("Connecting to host ")
        || line.starts_with("iperf3:")
        || line.starts_with("iperf Done")
        || line.starts_with("[ ID] Interval")
        || Row::parse(line).is_some()
}

fn udp() -> InputError {
    InputError::new(
        "this is a UDP log, which says nothing about windows, buffers or congestion control",
        "repeat the measurement over TCP: iperf3 -c HOST -t 30 without -u",
    )
}

fn refuse_other_kinds(text: &str) -> Result<(), InputError> {
    let (message, hint) = match Kind::of(text) {
        Kind::Iperf3Text => {
            let header = |line: &str| line.trim_start().starts_with('[') && line.contains("Interval");
            let udp_columns = |line: &str| line.contains("Datagrams") || line.contains("Jitter");
            if text.lines().any(|line| header(line) && udp_columns(line)) {
                return Err(udp());
            }
            let begins = |line: &str| {
                let line = line.trim_start();
                line.starts_with("Connecting to host ") || line.starts_with("Accepted connection from")
            };
            match text.lines().filter(|line| begins(line)).count() {
                0 | 1 => return Ok(()),
                n => return Err(several_runs(&format!("the log holds {n} runs"))),
            }
        }
        Kind::Empty => ("the input is empty", "give the text that iperf3 -c HOST -t 30 printed"),
        Kind::Json => {
            ("this is JSON; text logs are read for now", "repeat the measurement without -J or --json-stream")
        }
        Kind::Iperf2Text => (
            "this is a log of iperf 2, which shows no congestion window",
            "repeat the measurement with iperf3",
        ),
        Kind::Sysctl => {
            ("this is a sysctl dump, not a log", "give it with --sysctl FILE beside an iperf3 log")
        }
        Kind::Unknown => (
            "this is not an iperf3 log",
            "give the text that iperf3 -c HOST -t 30 printed on the sending host",
        ),
    };
    Err(InputError::new(message, hint))
}

fn several_runs(message: &str) -> InputError {
    InputError::new(message, "give one run alone, from 'Connecting to host' to 'iperf Done.'")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    Sender,
    Receiver,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowKind {
    Interval,
    Omitted,
    Summary(Role),
}

/// One line of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Row {
    /// `None` for the sum over all streams.
    stream: Option<u32>,
    kind: RowKind,
    both_directions: bool,
    udp: bool,
    interval: Interval,
}

impl Row {
    /// `None` for whatever is no complete line of the table with values that can be.
    fn parse(line: &str) -> Option<Self> {
        // What stands before the bracket is a time stamp (--timestamps).
        let (id, rest) = line.get(line.find('[')? + 1..)?.split_once(']')?;
        let stream = match id.trim() {
            "SUM" => None,
            number => Some(number.parse().ok()?),
        };
        let (both_directions, rest) = match rest.strip_prefix('[') {
            Some(rest) => (true, rest.split_once(']')?.1),
            None => (false, rest),
        };
        let mut words = rest.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let (start, end) = (seconds(start)?, seconds(end)?);
        if words.next()? != "sec" || end <= start {
            return None;
        }
        let bytes = Bytes::new(scaled(words.next()?, amount_unit(words.next()?)?)?);
        let rate = Rate::from_bps(scaled(words.next()?, rate_unit(words.next()?)?)?);
        let mut tail: Vec<&str> = words.collect();
        let kind = match tail.last().copied() {
            Some("sender") => RowKind::Summary(Role::Sender),
            Some("receiver") => RowKind::Summary(Role::Receiver),
            Some("(omitted)") => RowKind::Omitted,
            _ => RowKind::Interval,
        };
        if kind != RowKind::Interval {
            tail.pop();
        }
        let udp = tail.get(1) == Some(&"ms");
        let retransmits = tail.first().and_then(|word| count(word));
        let cwnd = match tail.as_slice() {
            [_, number, unit] => amount_unit(unit).and_then(|unit| scaled(number, unit)).map(Bytes::new),
            _ => None,
        };
        let lossy_streams = u64::from(retransmits.is_some_and(|n| n > 0));
        let interval = Interval { start, end, bytes, rate, retransmits, lossy_streams, cwnd };
        Some(Self { stream, kind, both_directions, udp, interval })
    }
}

/// The longest test that iperf3 can be asked for is a day; ten years leaves room.
const LONGEST_SECONDS: f64 = 3.2e8;

fn seconds(text: &str) -> Option<Instant> {
    let value: f64 = text.parse().ok()?;
    let plausible = value.is_finite() && (0.0..=LONGEST_SECONDS).contains(&value);
    plausible.then(|| Instant::from_nanos((value * 1e9).round() as u64))
}

fn scaled(number: &str, unit: f64) -> Option<u64> {
    let value: f64 = number.parse().ok()?;
    // `as` saturates.
    (value.is_finite() && value >= 0.0).then_some((value * unit).round() as u64)
}

/// A count of segments. iperf3 prints "unknown" as -1, some releases as 2^64-1.
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

/// Bytes in one `unit` of an amount.
fn amount_unit(unit: &str) -> Option<f64> {
    binary(unit.strip_suffix("Bytes")?)
}

/// bit/s in one `unit` of a rate.
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

/// The lines of the table, sorted by what they are.
#[derive(Default)]
struct Rows {
    streams: BTreeSet<u32>,
    intervals: Vec<Row>,
    summaries: Vec<(Role, Row)>,
    omitted: usize,
    both_directions: bool,
    udp: bool,
}

impl Rows {
    fn add(&mut self, row: Row) {
        self.both_directions |= row.both_directions;
        self.udp |= row.udp;
        self.streams.extend(row.stream);
        match row.kind {
            RowKind::Interval => self.intervals.push(row),
            RowKind::Summary(role) => self.summaries.push((role, row)),
            // Once per interval, not once per stream.
            RowKind::Omitted => self.omitted += usize::from(row.stream == self.streams.first().copied()),
        }
    }

    fn refuse_unusable(&self) -> Result<(), InputError> {
        if self.udp {
            return Err(udp());
        }
        if self.both_directions {
            return Err(InputError::new(
                "the log holds two directions at once (--bidir)",
                "measure one direction at a time: iperf3 -c HOST, then iperf3 -c HOST -R",
            ));
        }
        let mut last: BTreeMap<Option<u32>, Instant> = BTreeMap::new();
        for row in &self.intervals {
            // A step back in time is where another run begins.
            if last.insert(row.stream, row.interval.start).is_some_and(|before| row.interval.start <= before)
            {
                return Err(several_runs("the intervals of the log do not follow each other"));
            }
        }
        Ok(())
    }

    /// One interval per point in time: the only stream's, or the streams added. The sums that iperf3 prints
    /// lack the congestion windows; they serve where the streams' own lines were filtered out.
    fn intervals(&self) -> Vec<Interval> {
        if self.streams.is_empty() {
            return self.intervals.iter().map(|row| row.interval).collect();
        }
        let mut by_start: BTreeMap<Instant, Vec<Interval>> = BTreeMap::new();
        for row in self.intervals.iter().filter(|row| row.stream.is_some()) {
            by_start.entry(row.interval.start).or_default().push(row.interval);
        }
        // A stream missing from the last group means that the log breaks off there.
        let complete = by_start.into_values().filter(|group| group.len() == self.streams.len());
        complete.filter_map(|group| group.into_iter().reduce(added)).collect()
    }

    fn summary(&self, role: Role) -> Option<Summary> {
        let of_role = || self.summaries.iter().filter(|(r, _)| *r == role).map(|(_, row)| row);
        let sum = of_role().find(|row| row.stream.is_none()).map(|row| row.interval);
        let total = sum.or_else(|| of_role().map(|row| row.interval).reduce(added))?;
        let summary = Summary {
            length: total.length(),
            bytes: total.bytes,
            rate: total.rate,
            retransmits: total.retransmits,
        };
        // Older servers print a sender's summary of zero, for they do not know it.
        (!summary.bytes.is_zero()).then_some(summary)
    }
}

fn added(a: Interval, b: Interval) -> Interval {
    let both = |x: Option<u64>, y: Option<u64>| Some(x?.saturating_add(y?));
    Interval {
        start: a.start.min(b.start),
        end: a.end.max(b.end),
        bytes: a.bytes + b.bytes,
        rate: Rate::from_bps(a.rate.as_bps().saturating_add(b.rate.as_bps())),
        retransmits: both(a.retransmits, b.retransmits),
        lossy_streams: a.lossy_streams + b.lossy_streams,
        cwnd: a.cwnd.zip(b.cwnd).map(|(x, y)| x + y),
    }
}

#[cfg(test)]
mod tests;
