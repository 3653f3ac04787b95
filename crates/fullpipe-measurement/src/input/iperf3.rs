//! One iperf3 run in any format: text, `-J` or `--json-stream`.

use fullpipe_units::{Bytes, Duration, Instant, Rate};

use super::{InputError, Kind, clean, iperf3_json, iperf3_text};
use crate::measurement::{
    Datagrams, Direction, Flow, Hosts, Interval, Measurement, Origin, Role, RttRange, Summary, Totals, added,
};

/// Minimum number of intervals of a measurement without a summary.
pub const FEWEST_INTERVALS: usize = 5;

/// Reads a log in any format, which is detected from its content.
///
/// # Errors
/// Returns an error with a hint for any input that is not a log of one run: an empty input, several runs, a
/// failed run, a log of fewer than [`FEWEST_INTERVALS`] intervals without a summary, or the output of another
/// tool.
pub fn parse(text: &str) -> Result<Measurement, InputError> {
    let text = &*clean(text);
    let (message, hint) = match Kind::of(text) {
        Kind::Iperf3Text => return iperf3_text::parse(text),
        Kind::Iperf3Json => return iperf3_json::parse(text),
        Kind::Iperf3JsonStream => return iperf3_json::parse_stream(text),
        Kind::Empty => ("the input is empty", "use the output of iperf3 -c HOST -t 30 (or with -J)"),
        Kind::Json => ("this JSON is not from iperf3", "use the unedited output of iperf3 -c HOST -t 30 -J"),
        Kind::Iperf2Text => (
            "this is an iperf 2 log, which does not show the congestion window",
            "repeat the test with iperf3 -c HOST -t 30 -J > FILE, then run fullpipe diagnose FILE",
        ),
        Kind::Foreign(tool) => return Err(tool.error()),
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

/// Reads a document that this process created, without converting it to JSON first.
///
/// # Errors
/// Returns the same errors as [`parse`].
pub fn of_document(document: &fullpipe_iperf3::document::Document) -> Result<Measurement, InputError> {
    iperf3_json::of_document(document)
}

/// One direction of a test, while it is read.
pub(super) struct OneWay {
    /// Streams of this direction; their `direction` is set once both directions are known.
    pub(super) flows: Vec<Flow>,
    /// Sums over all streams, as iperf3 reports them.
    pub(super) summary: Summary,
    pub(super) datagrams: Option<Datagrams>,
    /// Number of warm-up intervals that were omitted.
    pub(super) omitted: usize,
}

impl OneWay {
    fn directed(mut self, direction: Direction) -> (Vec<Flow>, Totals) {
        self.flows.iter_mut().for_each(|flow| flow.direction = direction);
        (self.flows, Totals { direction, summary: self.summary, datagrams: self.datagrams })
    }
}

/// Joins the directions of a test into a measurement: first the data sent by this endpoint, then the data
/// received. `reverse` means that the server sent the data of the first direction.
pub(super) fn joined(
    sending: Option<OneWay>,
    receiving: Option<OneWay>,
    reverse: bool,
    origin: Origin,
    hosts: Hosts,
) -> Measurement {
    let both = sending.is_some() && receiving.is_some();
    let first = if reverse { Direction::Reverse } else { Direction::Forward };
    let mut measurement = Measurement { origin, hosts, flows: Vec::new(), totals: Vec::new(), chosen: None };
    let mut direction = first;
    for (role, one_way) in [(Role::Sender, sending), (Role::Receiver, receiving)] {
        let Some(one_way) = one_way else { continue };
        if measurement.totals.is_empty() {
            measurement.origin.omitted = one_way.omitted;
        }
        let (mut flows, totals) = one_way.directed(direction);
        if both {
            // The table of a bidirectional test states which endpoint sent; a single line may not.
            flows.iter_mut().for_each(|flow| flow.role = role);
        }
        measurement.flows.extend(flows);
        measurement.totals.push(totals);
        direction = first.opposite();
    }
    measurement
}

/// Completes a measurement, as the last step of every reader: derives values that the reports imply, and
/// rejects logs that are too short.
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
            "repeat the measurement, because this one transferred no data",
        )),
        (None, false) => Err(InputError::new(
            match intervals.len() {
                0 if origin.omitted > 0 => "the iperf3 log contains only warm-up intervals (-O)".into(),
                0 => "the iperf3 log contains no interval".into(),
                1 => "the iperf3 log ends after 1 interval".into(),
                n => format!("the iperf3 log ends after {n} intervals"),
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

/// Rejects reports whose time does not advance, because another run starts there.
pub(super) fn check_order(intervals: &[Interval]) -> Result<(), InputError> {
    if intervals.is_sorted_by(|a, b| a.start < b.start) {
        Ok(())
    } else {
        Err(several_runs("the intervals of the log are not consecutive"))
    }
}

/// Maximum plausible length of a test: iperf3 accepts at most a day, so a limit of ten years leaves room.
/// Unit: seconds
const LONGEST_SECONDS: f64 = 3.2e8;

/// Returns an instant within a test, or `None` for an impossible value.
pub(super) fn instant(seconds: f64) -> Option<Instant> {
    let plausible = seconds.is_finite() && (0.0..=LONGEST_SECONDS).contains(&seconds);
    plausible.then(|| Instant::from_nanos((seconds * 1e9).round() as u64))
}

/// Maximum plausible rate: a thousand times the fastest interface. Values near 2^64 are damage, or a counter
/// that wrapped.
const FASTEST: Rate = Rate::from_bps(1_000_000_000_000_000);
/// Maximum plausible number of bytes, and of datagrams, in any part of a test.
const LARGEST_COUNT: u64 = 1 << 60;

/// Returns the JSON key of the first value of a report that no network can produce.
pub(super) fn implausible(report: &Interval) -> Option<&'static str> {
    let counts = report.datagrams.unwrap_or_default();
    let counts = [Some(counts.total), counts.lost, counts.out_of_order];
    if report.bytes.get() > LARGEST_COUNT {
        Some("bytes")
    } else if report.rate > FASTEST {
        Some("bits_per_second")
    } else if counts.into_iter().flatten().any(|count| count > LARGEST_COUNT) {
        Some("packets")
    } else {
        report.retransmits.is_some_and(|count| count > LARGEST_COUNT).then_some("retransmits")
    }
}

/// Returns a segment size, or `None` for an impossible value.
pub(super) fn plausible_mss(mss: u64) -> Option<Bytes> {
    (64..=65_535).contains(&mss).then_some(Bytes::new(mss))
}
