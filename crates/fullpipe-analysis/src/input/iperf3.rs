//! One run of iperf3, however it was written down: text, `-J`, `--json-stream`.

use fullpipe_units::{Bytes, Duration, Instant};

use super::{InputError, Kind, clean, iperf3_json, iperf3_text};
use crate::measurement::{
    Datagrams, Direction, Flow, Format, Hosts, Interval, Measurement, Origin, Role, RttRange, Summary,
    Totals, added,
};

/// Fewer intervals than this without a summary are not a measurement.
pub const FEWEST_INTERVALS: usize = 5;

/// Reads a log of any format, told apart by its content.
///
/// # Errors
/// Whatever is no log of one run, with a hint: nothing at all, several runs, a failed run, a log of fewer
/// than [`FEWEST_INTERVALS`] intervals without summary, another tool's output.
pub fn parse(text: &str) -> Result<Measurement, InputError> {
    let text = &*clean(text);
    let (message, hint) = match Kind::of(text) {
        Kind::Iperf3Text => return iperf3_text::parse(text),
        Kind::Iperf3Json => return iperf3_json::parse(text),
        Kind::Iperf3JsonStream => return iperf3_json::parse_stream(text),
        Kind::Empty => ("the input is empty", "use the output of iperf3 -c HOST -t 30 (or with -J)"),
        Kind::Json => ("this JSON is not from iperf3", "use the unedited output of iperf3 -c HOST -t 30 -J"),
        Kind::Iperf2Text => {
            ("this is an iperf 2 log, which has no congestion window", "repeat the measurement with iperf3")
        }
        Kind::Trace => ("this is a trace, not a log", "read it with input::trace::parse"),
        Kind::Ss => ("this is the output of ss, not a log", "read it with input::ss::parse"),
        Kind::Sysctl => {
            ("this is a sysctl dump, not a log", "pass it with --sysctl FILE, together with an iperf3 log")
        }
        Kind::Unknown if text.contains('\0') => {
            ("this is not text", "use the output of iperf3 -c HOST -t 30 (or with -J), not a capture")
        }
        Kind::Unknown => (
            "this is not an iperf3 log",
            "use the output of iperf3 -c HOST -t 30 (or with -J) from the sending host",
        ),
    };
    Err(InputError::new(message, hint))
}

/// Reads a document as iperf3 writes it, which a program has already.
///
/// # Errors
/// As [`parse`].
pub fn of_document(document: &serde_json::Value) -> Result<Measurement, InputError> {
    iperf3_json::read(document, Format::Json)
}

/// One direction of a test while it is read.
pub(super) struct OneWay {
    /// Its streams; their direction is set when both directions are known.
    pub(super) flows: Vec<Flow>,
    /// What iperf3 says of all of them together.
    pub(super) summary: Summary,
    pub(super) datagrams: Option<Datagrams>,
    /// Warm-up intervals that were left out.
    pub(super) omitted: usize,
}

impl OneWay {
    fn directed(mut self, direction: Direction) -> (Vec<Flow>, Totals) {
        self.flows.iter_mut().for_each(|flow| flow.direction = direction);
        (self.flows, Totals { direction, summary: self.summary, datagrams: self.datagrams })
    }
}

/// A test as a measurement: what this end sent first, then what it received. `reverse` says that the server sent what comes
/// first.
pub(super) fn joined(
    sending: Option<OneWay>,
    receiving: Option<OneWay>,
    reverse: bool,
    origin: Origin,
    hosts: Hosts,
) -> Measurement {
    let both = sending.is_some() && receiving.is_some();
    let first = if reverse { Direction::Reverse } else { Direction::Forward };
    let mut measurement = Measurement { origin, hosts, flows: Vec::new(), totals: Vec::new() };
    let mut direction = first;
    for (role, one_way) in [(Role::Sender, sending), (Role::Receiver, receiving)] {
        let Some(one_way) = one_way else { continue };
        if measurement.totals.is_empty() {
            measurement.origin.omitted = one_way.omitted;
        }
        let (mut flows, totals) = one_way.directed(direction);
        if both {
            // The table of such a test says which end sent; a line alone may not.
            flows.iter_mut().for_each(|flow| flow.role = role);
        }
        measurement.flows.extend(flows);
        measurement.totals.push(totals);
        direction = first.opposite();
    }
    measurement
}

/// The last step of every reader: derives what the reports imply, and refuses what is too little.
pub(super) fn finished(mut measurement: Measurement) -> Result<Measurement, InputError> {
    let intervals = added(measurement.explained().map(|flow| flow.intervals.as_slice()));
    if let Some(totals) = measurement.totals.first_mut() {
        totals.summary.rtt = totals.summary.rtt.or_else(|| sampled_rtt(&intervals));
    }
    let summary = measurement.totals.first().map(|totals| totals.summary).unwrap_or_default();
    let origin = &mut measurement.origin;
    origin.truncated = summary.sent.is_none() && summary.received.is_none();
    let usable = intervals.len() >= FEWEST_INTERVALS || (!origin.truncated && !intervals.is_empty());
    match (&origin.error, usable) {
        (Some(message), false) => Err(InputError::new(
            format!("the iperf3 run failed: {message}"),
            "repeat the measurement; nothing was transferred in this one",
        )),
        (None, false) => Err(InputError::new(
            match intervals.len() {
                0 if origin.omitted > 0 => "the iperf3 log contains only warm-up intervals (-O)".into(),
                0 => "the iperf3 log contains no interval".into(),
                1 => "the iperf3 log breaks off after 1 interval".into(),
                n => format!("the iperf3 log breaks off after {n} intervals"),
            },
            "use a complete log of iperf3 -c HOST -t 30 with one report per second",
        )),
        (_, true) => Ok(measurement),
    }
}

fn sampled_rtt(intervals: &[Interval]) -> Option<RttRange> {
    let samples: Vec<Duration> =
        intervals.iter().filter_map(|i| i.rtt).filter(|rtt| !rtt.is_zero()).collect();
    let sum = samples.iter().fold(Duration::ZERO, |sum, rtt| sum + *rtt);
    Some(RttRange {
        min: *samples.iter().min()?,
        mean: sum / samples.len() as u64,
        max: *samples.iter().max()?,
    })
}

pub(super) fn several_runs(message: &str) -> InputError {
    InputError::new(message, "use one complete run, from its first line to its last")
}

/// Refuses reports that step back in time, which is where another run begins.
pub(super) fn check_order(intervals: &[Interval]) -> Result<(), InputError> {
    if intervals.is_sorted_by(|a, b| a.start < b.start) {
        Ok(())
    } else {
        Err(several_runs("the intervals of the log do not follow each other"))
    }
}

/// The longest test that iperf3 can be asked for is a day; ten years leaves room.
/// Unit: seconds
const LONGEST_SECONDS: f64 = 3.2e8;

/// A point in time within a test; `None` for what cannot be.
pub(super) fn instant(seconds: f64) -> Option<Instant> {
    let plausible = seconds.is_finite() && (0.0..=LONGEST_SECONDS).contains(&seconds);
    plausible.then(|| Instant::from_nanos((seconds * 1e9).round() as u64))
}

/// A segment size; `None` for what cannot be.
pub(super) fn plausible_mss(mss: u64) -> Option<Bytes> {
    (64..=65_535).contains(&mss).then_some(Bytes::new(mss))
}
