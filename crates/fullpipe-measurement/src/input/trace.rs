//! Traces: rows written by `fullpipe run --out`, or by any tool that samples sockets with the same columns.
//!
//! A trace may contain many runs and flows, one of which is diagnosed. For the figures of a report, the rows
//! are also summarised as intervals, like a log of that flow.

use fullpipe_lab::trace::{self, Row, RunRow};
use fullpipe_units::{Bytes, Duration, Instant, Rate};

use super::iperf3::FEWEST_INTERVALS;
use super::{InputError, quote, spans};
use crate::measurement::{
    Detail, Direction, Flow, Format, Hosts, Interval, Measurement, Origin, Protocol, Role, RttRange, Summary,
    Total, Totals,
};

/// Maximum number of points listed in a message.
const LISTED: usize = 4;
/// Maximum total number of intervals of the companions of a flow, that is, of the other flows on its path.
/// Each companion has the intervals of the chosen flow. Without a maximum, a day-long connection with
/// thousands of short companions would not fit into memory.
const MOST_OF_COMPANIONS: usize = 1 << 20;

/// Selection of one flow in a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice<'a> {
    /// Label of the point; if `None`, the first point in the file.
    pub point: Option<&'a str>,
    /// Seed of the run; if `None`, the first run of the point.
    pub seed: Option<u64>,
    /// Number of the flow, counted from 1; if `None`, the first flow of a run, or the largest connection.
    pub flow: Option<u32>,
}

/// Reads a trace and returns the flow that `choice` selects.
///
/// # Errors
/// Returns an error if the text is not a trace, if it does not contain the flow, or if the flow sent too
/// little.
pub fn parse(text: &str, choice: &Choice<'_>) -> Result<Measurement, InputError> {
    let written = "give the complete, unedited trace.csv that fullpipe run --out DIR wrote";
    let recording = trace::read(&super::clean(text)).map_err(|e| InputError::new(e.to_string(), written))?;
    if recording.rows.is_empty() {
        return Err(InputError::new("the trace has no rows", written));
    }
    let mut notes = Vec::new();
    let (rows, others) = chosen(recording.rows, choice, &mut notes)?;
    let mut measurement =
        of_one_among(rows, others.iter().map(Vec::as_slice), Format::Trace, notes, written)?;
    measurement.origin.truncated = recording.truncated;
    // The live view replays the other flows together with the chosen one.
    for rows in others {
        let Some(number) = rows.first().map(|row| row.flow) else { continue };
        if let Some(companion) = measurement.flows.iter_mut().skip(1).find(|flow| flow.id == number) {
            companion.detail = Some(Detail::Rows(rows));
        }
    }
    Ok(measurement)
}

/// Builds a measurement from the rows of one flow, from any source. `hint` tells the user what to do if the
/// time of the rows does not advance.
///
/// # Errors
/// Returns an error for rows out of order, and for rows that deliver too little data.
pub fn of_rows(
    rows: Vec<Row>,
    format: Format,
    notes: Vec<String>,
    hint: &str,
) -> Result<Measurement, InputError> {
    of_streams(vec![rows], format, notes, hint)
}

/// Builds a measurement from the rows of parallel streams of one transfer, all sampled at the same times.
/// Streams that delivered next to nothing are left out.
///
/// # Errors
/// Returns an error for rows out of order, and if every stream delivered too little data.
pub fn of_streams(
    mut streams: Vec<Vec<Row>>,
    format: Format,
    mut notes: Vec<String>,
    hint: &str,
) -> Result<Measurement, InputError> {
    if let Some(pair) = streams.iter().find_map(|rows| rows.windows(2).find(|pair| pair[0].at >= pair[1].at))
    {
        let at = pair[1].at.as_secs_f64();
        return Err(InputError::new(format!("the time in the trace does not advance at {at} s"), hint));
    }
    // Data delivered before the first sample of a socket is not part of the measurement.
    let moving = |rows: &Vec<Row>| {
        let begin = rows.first().map(|row| row.sender.delivered).unwrap_or_default();
        rows.iter().filter(|row| row.sender.delivered > begin).count()
    };
    let (all, most) = (streams.len(), streams.iter().map(moving).max().unwrap_or(0));
    streams.retain(|rows| moving(rows) >= FEWEST_INTERVALS);
    if streams.is_empty() {
        return Err(InputError::new(
            format!("only {most} rows of this flow deliver data, which are too few for a measurement"),
            "sample for longer, and at least ten times per second",
        ));
    }
    if streams.len() < all {
        notes.push(format!(
            "{} of {all} streams delivered almost no data and are ignored",
            all - streams.len()
        ));
    }
    let origin = Origin { format, notes, ..Origin::default() };
    let transfers: Vec<&[Row]> = streams.iter().map(|rows| of_transfer(rows)).collect();
    let totals = Totals { direction: Direction::Forward, summary: summary(&transfers), datagrams: None };
    let mut flows = flows(&transfers);
    for (flow, rows) in flows.iter_mut().zip(streams) {
        flow.detail = Some(Detail::Rows(rows));
    }
    Ok(Measurement { origin, hosts: Hosts::default(), flows, totals: vec![totals], chosen: None })
}

/// Builds a measurement of one connection, the diagnosed one, from its rows and from those of other
/// connections that share its path in the same direction. All of them are sampled on one clock.
///
/// # Errors
/// Fails as [`of_rows`] does for the rows of the chosen connection.
pub fn of_one_among<'a>(
    rows: Vec<Row>,
    others: impl Iterator<Item = &'a [Row]>,
    format: Format,
    notes: Vec<String>,
    hint: &str,
) -> Result<Measurement, InputError> {
    let mut measurement = of_rows(rows, format, notes, hint)?;
    add_companions(&mut measurement, others);
    Ok(measurement)
}

/// Adds connections to a measurement of one flow, as far as they moved data at the same time.
pub(super) fn add_companions<'a>(measurement: &mut Measurement, others: impl Iterator<Item = &'a [Row]>) {
    measurement.chosen = Some(0);
    let Some(chosen) = measurement.flows.first() else { return };
    let begin = match &chosen.detail {
        Some(Detail::Rows(rows) | Detail::Snapshot(rows)) => span(&[of_transfer(rows)]).0,
        _ => return,
    };
    let at = |at: Instant| begin + at.saturating_since(Instant::ZERO);
    let others: Vec<&'a [Row]> = others.filter(|rows| !moved(rows).is_zero()).collect();
    let (all, most) = (others.len(), MOST_OF_COMPANIONS / chosen.intervals.len().max(1));
    let others = largest(others, most);
    if others.len() < all {
        measurement.origin.notes.push(format!(
            "of {all} other connections that carried data, only the {} largest are considered",
            others.len()
        ));
    }
    let companion = |rows: &'a [Row]| {
        let last = &rows.last()?.sender;
        let of_chosen = |own: &Interval| interval(begin, at(own.start), at(own.end), rows);
        let intervals: Vec<Interval> = chosen.intervals.iter().map(of_chosen).collect();
        intervals.iter().any(|interval| !interval.bytes.is_zero()).then(|| Flow {
            id: rows[0].flow,
            congestion_control: last.cc.map(|cc| cc.name().into()),
            mss: Some(last.mss),
            intervals,
            summary: summary(&[rows]),
            detail: None,
            ..*chosen
        })
    };
    let others: Vec<Flow> = others.into_iter().filter_map(companion).collect();
    measurement.flows.extend(others);
}

/// Returns the data that a flow delivered. The count starts again from zero if a later connection uses the
/// same ports.
fn moved(rows: &[Row]) -> Bytes {
    rows.windows(2).fold(Bytes::ZERO, |sum, pair| sum + delivered(&pair[0], &pair[1]))
}

/// Returns the `most` flows that moved the most data, in their original order.
fn largest(flows: Vec<&[Row]>, most: usize) -> Vec<&[Row]> {
    if flows.len() <= most {
        return flows;
    }
    let mut by_size: Vec<usize> = (0..flows.len()).collect();
    by_size.sort_by_cached_key(|nth| std::cmp::Reverse(moved(flows[*nth])));
    by_size.truncate(most);
    by_size.sort_unstable();
    by_size.into_iter().map(|nth| flows[nth]).collect()
}

/// Builds a measurement from rows that extrapolate a single sample.
pub(super) fn of_one_row(
    rows: Vec<Row>,
    format: Format,
    mut notes: Vec<String>,
) -> Result<Measurement, InputError> {
    notes.push(
        "there is only one sample; its state is assumed to last, and the rate is its last delivery-rate \
         sample"
            .into(),
    );
    let mut measurement = of_rows(rows, format, notes, "")?;
    for flow in &mut measurement.flows {
        flow.detail = match flow.detail.take() {
            Some(Detail::Rows(rows)) => Some(Detail::Snapshot(rows)),
            other => other,
        };
    }
    Ok(measurement)
}

/// Returns the rows of the chosen flow of one run, and the rows of the other flows of that run.
fn chosen(
    rows: Vec<RunRow>,
    choice: &Choice<'_>,
    notes: &mut Vec<String>,
) -> Result<(Vec<Row>, Vec<Vec<Row>>), InputError> {
    let mut points: Vec<Option<String>> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for row in &rows {
        if points.last() != Some(&row.point) && seen.insert(&row.point) {
            points.push(row.point.clone());
        }
    }
    let label = |point: &Option<String>| format!("'{}'", quote(point.as_deref().unwrap_or("-")));
    let point = match choice.point {
        None => points[0].clone(),
        Some(wanted) => {
            let known = points.iter().find(|point| point.as_deref() == Some(wanted));
            let list: Vec<String> = points.iter().take(LISTED).map(label).collect();
            let more = if points.len() > LISTED { ", ..." } else { "" };
            known.cloned().ok_or_else(|| {
                let message = format!("the trace has no point '{}'", quote(wanted));
                InputError::new(message, format!("the points of the trace are {}{more}", list.join(", ")))
            })?
        }
    };
    if points.len() > 1 && choice.point.is_none() {
        notes.push(format!(
            "the trace has {} points; this is {}, the first (choose another with --point)",
            points.len(),
            label(&point)
        ));
    }
    let rows: Vec<RunRow> = rows.into_iter().filter(|row| row.point == point).collect();
    let seeds = distinct(rows.iter().map(|row| row.seed));
    let seed = pick(
        "seed",
        choice.seed.map(Some),
        &seeds,
        |seed| seed.map_or("-".into(), |s| s.to_string()),
        notes,
    )?;
    let rows: Vec<Row> = rows.into_iter().filter(|row| row.seed == seed).map(|row| row.row).collect();
    let mut flows = by_flow(rows);
    let count = flows.len();
    let number = choice.flow.unwrap_or(1);
    let Some(index) = (number as usize).checked_sub(1).filter(|index| *index < count) else {
        return Err(InputError::new(
            format!("the run has no flow {number}"),
            format!(
                "the flows of the run are numbered from 1 to {count}, in the order of the column flow \
                     of the trace"
            ),
        ));
    };
    if count > 1 && choice.flow.is_none() {
        notes.push(format!("the run has {count} flows; this is the first (choose another with --flow)"));
    }
    Ok((flows.remove(index), flows))
}

/// Returns the rows of each flow, in the order of the flow numbers. Each list takes no more memory than its
/// rows need, because a trace may have as many flows as rows.
fn by_flow(mut rows: Vec<Row>) -> Vec<Vec<Row>> {
    rows.sort_by_key(|row| row.flow);
    let mut flows = Vec::new();
    while let Some(last) = rows.last().map(|row| row.flow) {
        flows.push(rows.split_off(rows.partition_point(|row| row.flow < last)));
    }
    flows.reverse();
    flows.iter_mut().for_each(Vec::shrink_to_fit);
    flows
}

fn distinct<T: Ord>(values: impl Iterator<Item = T>) -> Vec<T> {
    values.collect::<std::collections::BTreeSet<T>>().into_iter().collect()
}

/// Returns `wanted` if it is present, or the first value if `wanted` is `None`.
fn pick<T: Copy + PartialEq>(
    what: &str,
    wanted: Option<T>,
    known: &[T],
    name: impl Fn(&T) -> String,
    notes: &mut Vec<String>,
) -> Result<T, InputError> {
    match wanted {
        Some(wanted) if known.contains(&wanted) => Ok(wanted),
        Some(wanted) => {
            let list: Vec<String> = known.iter().take(LISTED).map(&name).collect();
            let more = if known.len() > LISTED { ", ..." } else { "" };
            Err(InputError::new(
                format!("the trace has no {what} {}", name(&wanted)),
                format!("it has {what} {}{more}", list.join(", ")),
            ))
        }
        None => {
            if known.len() > 1 {
                let first = name(&known[0]);
                notes.push(format!(
                    "the run has {} of {what}; this is {first} (choose another with --{what})",
                    known.len()
                ));
            }
            Ok(known[0])
        }
    }
}

/// Returns the streams as flows without rows, whose intervals end at the same times.
fn flows(streams: &[&[Row]]) -> Vec<Flow> {
    let (begin, end) = span(streams);
    // All streams are sampled at the same times, so the samples of the longest stream cover every stream.
    let longest = streams.iter().max_by_key(|rows| rows.len()).copied().unwrap_or_default();
    let spans = spans::of_samples(begin, end, longest.iter().map(|row| row.at));
    let flow = |rows: &&[Row]| {
        let last = rows.last().map(|row| &row.sender);
        Flow {
            id: rows.first().map_or(0, |row| row.flow),
            direction: Direction::Forward,
            role: Role::Sender,
            protocol: Protocol::Tcp,
            congestion_control: last.and_then(|sender| sender.cc).map(|cc| cc.name().into()),
            mss: last.map(|sender| sender.mss),
            offered: None,
            intervals: spans.iter().map(|&(from, to)| interval(begin, from, to, rows)).collect(),
            summary: summary(&[*rows]),
            detail: None,
        }
    };
    streams.iter().map(flow).collect()
}

/// Returns the start of the first stream and the end of the last stream.
fn span(streams: &[&[Row]]) -> (Instant, Instant) {
    let begin = streams.iter().filter_map(|rows| rows.first()).map(|row| row.at).min().unwrap_or_default();
    let end = streams.iter().filter_map(|rows| rows.last()).map(|row| row.at).max().unwrap_or_default();
    (begin, end)
}

/// Returns the sums of the streams over the whole time.
fn summary(streams: &[&[Row]]) -> Summary {
    let (begin, end) = span(streams);
    let length = end.saturating_since(begin);
    let ends = streams.iter().filter_map(|rows| Some((rows.first()?, rows.last()?)));
    let bytes = ends.clone().fold(Bytes::ZERO, |sum, (first, last)| sum + delivered(first, last));
    let again =
        |(first, last): (&Row, &Row)| last.sender.retransmits.saturating_sub(first.sender.retransmits);
    let retransmits = Some(ends.map(again).fold(0, u64::saturating_add));
    Summary { sent: Some(Total::mean(bytes, length, retransmits)), received: None, rtt: round_trips(streams) }
}

/// Returns the rows of a stream from its first data to its last data.
fn of_transfer(rows: &[Row]) -> &[Row] {
    let moves = |row: &Row| !(row.sender.delivered.is_zero() && row.sender.flight_size.is_zero());
    let begin = rows.iter().position(moves).unwrap_or(0).saturating_sub(1);
    let end = rows
        .iter()
        .rposition(|row| !row.sender.flight_size.is_zero())
        .map_or(rows.len(), |i| (i + 2).min(rows.len()));
    rows.get(begin..end).unwrap_or(rows)
}

/// Returns the interval of a stream between two times.
fn interval(origin: Instant, from: Instant, to: Instant, rows: &[Row]) -> Interval {
    let by = |at: Instant| &rows[rows.partition_point(|row| row.at <= at).saturating_sub(1)];
    let (first, last) = (by(from), by(to));
    let at = |at: Instant| Instant::ZERO + at.saturating_since(origin);
    let (bytes, length) = (delivered(first, last), to.saturating_since(from));
    let retransmits = last.sender.retransmits.saturating_sub(first.sender.retransmits);
    Interval {
        start: at(from),
        end: at(to),
        bytes,
        rate: Rate::mean(bytes, length),
        retransmits: Some(retransmits),
        lossy_streams: u64::from(retransmits > 0),
        cwnd: Some(last.sender.cwnd),
        snd_wnd: Some(last.sender.rwnd),
        rtt: last.sender.srtt,
        datagrams: None,
    }
}

fn delivered(first: &Row, last: &Row) -> Bytes {
    last.sender.delivered.saturating_sub(first.sender.delivered)
}

fn round_trips(streams: &[&[Row]]) -> Option<RttRange> {
    let rows = || streams.iter().copied().flatten();
    let smooth: Vec<Duration> =
        rows().filter_map(|row| row.sender.srtt).filter(|rtt| !rtt.is_zero()).collect();
    let least = rows().filter_map(|row| row.sender.min_rtt).filter(|rtt| !rtt.is_zero()).min();
    let max = smooth.iter().copied().max()?;
    let mean = smooth.iter().map(|rtt| rtt.as_secs_f64()).sum::<f64>() / smooth.len() as f64;
    let min = least.or_else(|| smooth.iter().copied().min())?.min(max);
    Some(RttRange { min, mean: Duration::from_secs_f64(mean), max })
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &str = "flow,t_s,cc,mss_bytes,cwnd_bytes,inflight_bytes,flight_size_bytes,rwnd_bytes,notsent_bytes,\
                           sndbuf_bytes,sndbuf_used_bytes,app_limited,srtt_ms,min_rtt_ms,delivered_bytes,retransmits,\
                           recovering\n";

    /// Returns the rows of flow `number`, one second apart, which has delivered `bytes` by each of them.
    fn flow(number: u32, bytes: &[u64]) -> Vec<Row> {
        let line = |(nth, bytes): (usize, &u64)| {
            format!(
                "{number},{nth},cubic,1448,14480,14480,14480,65535,0,99999,9999,false,9,9,{bytes},0,false\n"
            )
        };
        let lines: String = bytes.iter().enumerate().map(line).collect();
        let recording = trace::read(&format!("{COLUMNS}{lines}")).expect("a trace");
        recording.rows.into_iter().map(|row| row.row).collect()
    }

    #[test]
    fn the_largest_companions_keep_their_order() {
        let flows = [flow(1, &[0, 5]), flow(2, &[0, 9]), flow(3, &[7]), flow(4, &[0, 6, 0, 6])];
        let kept = |most| -> Vec<u32> {
            let kept = largest(flows.iter().map(Vec::as_slice).collect(), most);
            kept.iter().map(|rows| rows[0].flow).collect()
        };
        assert_eq!(kept(4), [1, 2, 3, 4]);
        assert_eq!(kept(2), [2, 4]);
        assert_eq!((moved(&flows[2]), moved(&flows[3])), (Bytes::ZERO, Bytes::new(12)));
    }

    /// If the intervals of all companions exceed the maximum, only the largest companions are kept, and a note
    /// states how many.
    #[test]
    fn companions_are_bounded() {
        let delivered: Vec<u64> = (0..1_000).map(|nth| 1_000_000 * nth).collect();
        let others: Vec<Vec<Row>> = (2..1_502).map(|number| flow(number, &[0, u64::from(number)])).collect();
        let others = others.iter().map(Vec::as_slice);
        let read = of_one_among(flow(1, &delivered), others, Format::Trace, Vec::new(), "");
        let measurement = read.unwrap_or_else(|error| panic!("{error}"));
        let intervals = measurement.flows[0].intervals.len();
        let companions = measurement.flows.len() - 1;
        assert_eq!(companions, MOST_OF_COMPANIONS / intervals);
        assert_eq!(measurement.flows.last().map(|flow| flow.id), Some(1_501), "the largest one");
        let note = format!("of 1500 other connections that carried data, only the {companions} largest");
        assert!(measurement.origin.notes[0].starts_with(&note), "{:?}", measurement.origin.notes);
    }

    #[test]
    fn rows_are_split_by_flow() {
        let rows = [flow(1, &[6]), flow(2, &[1, 2, 3]), flow(7, &[4]), flow(2, &[5])].concat();
        let bytes = |rows: &Vec<Row>| rows.iter().map(|row| row.sender.delivered.get()).collect::<Vec<u64>>();
        let split: Vec<(u32, Vec<u64>)> =
            by_flow(rows).iter().map(|rows| (rows[0].flow, bytes(rows))).collect();
        assert_eq!(split, [(1, vec![6]), (2, vec![1, 2, 3, 5]), (7, vec![4])]);
        assert!(by_flow(Vec::new()).is_empty());
    }
}
