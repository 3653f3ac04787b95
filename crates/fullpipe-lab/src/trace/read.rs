//! Reads trace rows from comma-separated values that fullpipe or another tool with the same columns has
//! written.

use std::fmt;

use fullpipe_tcp::cc::Status;
use fullpipe_tcp::{SendLimit, cc};
use fullpipe_units::{Bytes, Duration, Instant, Rate};
use serde::Deserialize;

use super::{BbrInfo, COLUMNS, PathState, ReceiverInfo, Record, Row, SenderTruth, TcpInfo};
use crate::columns::Column;

/// Latest time accepted in a trace, in seconds: one year.
const LONGEST_S: f64 = 31_536_000.0;
/// Lowest rate in bit/s that means "no limit".
const UNBOUNDED_BPS: u64 = 10_000_000_000_000;
/// Names of columns by which the header line of a trace is recognised.
const TYPICAL: [&str; 3] = ["t_s", "cwnd_bytes", "delivered_bytes"];
/// Congestion-control phases that the reader recognises; any other phase is read as the empty string.
const PHASES: [&str; 4] = ["Startup", "Drain", "ProbeBW", "ProbeRTT"];

/// A trace row, and the run to which it belongs.
#[derive(Clone, Debug)]
pub struct RunRow {
    /// Label of the experiment point; `None` if the trace contains only one run.
    pub point: Option<String>,
    /// Random seed of the run; `None` if the trace contains only one run.
    pub seed: Option<u64>,
    /// Trace row without its run.
    pub row: Row,
}

/// All rows of a trace file.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// Trace rows with their runs, in the order of the lines of the file.
    pub rows: Vec<RunRow>,
    /// Whether the last line of the file was incomplete and was therefore dropped.
    pub truncated: bool,
}

/// Error in a trace file, as a one-line message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadError(String);

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ReadError {}

/// Columns that name the run to which a line belongs.
#[derive(Deserialize)]
struct Run {
    #[serde(default)]
    point: Option<String>,
    #[serde(default)]
    seed: Option<u64>,
}

/// Returns whether `line` is the header line of a trace.
pub fn is_header(line: &str) -> bool {
    let names: Vec<&str> = line.split(',').map(|name| name.trim().trim_matches('"')).collect();
    TYPICAL.iter().all(|typical| names.contains(typical))
}

/// Reads a trace file. Columns may be in any order, and unknown columns are ignored. Columns that are
/// [`optional`](crate::columns::Column::optional) may be missing. Lines before the header line are skipped.
///
/// # Errors
/// Returns an error if a required column is missing, if a line other than the last one does not match the
/// header line, or if a value is invalid.
pub fn read(text: &str) -> Result<Recording, ReadError> {
    let skipped = text.lines().take_while(|line| !is_header(line)).count();
    let begin = text.split_inclusive('\n').take(skipped).map(str::len).sum::<usize>();
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(&text.as_bytes()[begin..]);
    let headers = reader
        .headers()
        .map_err(|_| ReadError("the header line with the column names is missing".into()))?
        .clone();
    let mut required = COLUMNS.iter().filter(|column| !column.optional);
    if let Some(Column { name, .. }) =
        required.find(|column| !headers.iter().any(|header| header == column.name))
    {
        return Err(ReadError(format!("column {name} is missing")));
    }
    let mut recording = Recording::default();
    let mut records = reader.into_records().peekable();
    while let Some(record) = records.next() {
        let record = match record {
            Ok(record) => record,
            // The last line is incomplete if the run was interrupted or the file was copied partially.
            Err(_) if records.peek().is_none() => {
                recording.truncated = true;
                break;
            }
            Err(error) => return Err(explained(&error, &headers, skipped)),
        };
        let line = skipped as u64 + record.position().map_or(0, csv::Position::line);
        let known = |e: csv::Error| explained(&e, &headers, skipped);
        let run: Run = record.deserialize(Some(&headers)).map_err(known)?;
        let row: Record = record.deserialize(Some(&headers)).map_err(known)?;
        let row = Row::try_from(&row).map_err(|e| ReadError(format!("line {line}: {e}")))?;
        recording.rows.push(RunRow { point: run.point, seed: run.seed, row });
    }
    Ok(recording)
}

/// Adds the line number and the name of the column to the parser's error.
fn explained(error: &csv::Error, headers: &csv::StringRecord, skipped: usize) -> ReadError {
    let line = |position: Option<&csv::Position>| skipped as u64 + position.map_or(0, csv::Position::line);
    ReadError(match error.kind() {
        csv::ErrorKind::Deserialize { pos, err } => {
            let column = err.field().and_then(|field| headers.get(field as usize)).unwrap_or("a column");
            format!("line {}: {column} has an invalid value: {}", line(pos.as_ref()), err.kind())
        }
        csv::ErrorKind::UnequalLengths { pos, expected_len, len } => {
            format!("line {} has {len} fields instead of {expected_len}", line(pos.as_ref()))
        }
        _ => "the file is not a table of comma-separated values".into(),
    })
}

impl TryFrom<&Record> for Row {
    type Error = ReadError;

    fn try_from(record: &Record) -> Result<Self, ReadError> {
        let seconds = |name: &str, value: f64| {
            let fits = value.is_finite() && (0.0..=LONGEST_S).contains(&value);
            fits.then(|| Duration::from_secs_f64(value))
                .ok_or_else(|| ReadError(format!("{name} {value} is not a valid time")))
        };
        let millis = |name: &str, value: Option<f64>| value.map(|ms| seconds(name, ms / 1e3)).transpose();
        if let Some((name, value)) = record.out_of_bounds() {
            return Err(ReadError(format!("{name} {value} is larger than any host supports")));
        }
        // The kernel reports an unlimited rate as a value in which all bits are set.
        let rate = |bps: Option<u64>| bps.filter(|bps| *bps < UNBOUNDED_BPS).map(Rate::from_bps);
        let bbr_min_rtt = millis("bbr_min_rtt_ms", record.bbr_min_rtt_ms)?;
        let bbr = || {
            Some(BbrInfo {
                bw: rate(record.bbr_bw_bps)?,
                min_rtt: bbr_min_rtt,
                pacing_gain_percent: record.bbr_pacing_gain_percent?,
                cwnd_gain_percent: record.bbr_cwnd_gain_percent?,
            })
        };
        let sender = TcpInfo {
            cc: record.cc.as_deref().and_then(|name| name.parse().ok()),
            mss: Bytes::new(record.mss_bytes),
            cwnd: Bytes::new(record.cwnd_bytes),
            ssthresh: record.ssthresh_bytes.map(Bytes::new),
            inflight: Bytes::new(record.inflight_bytes),
            flight_size: Bytes::new(record.flight_size_bytes),
            rwnd: Bytes::new(record.rwnd_bytes),
            pacing_rate: rate(record.pacing_bps),
            max_pacing_rate: rate(record.max_pacing_bps),
            delivery_rate: rate(record.delivery_bps),
            app_limited: record.app_limited,
            srtt: millis("srtt_ms", record.srtt_ms)?,
            min_rtt: millis("min_rtt_ms", record.min_rtt_ms)?,
            delivered: Bytes::new(record.delivered_bytes),
            retransmits: record.retransmits,
            dsack_dups: record.dsack_dups.unwrap_or(0),
            recovering: record.recovering,
            notsent: Bytes::new(record.notsent_bytes),
            sndbuf: Bytes::new(record.sndbuf_bytes),
            sndbuf_used: Bytes::new(record.sndbuf_used_bytes),
            bbr: bbr(),
        };
        if sender.mss.is_zero() {
            return Err(ReadError("mss_bytes is zero".into()));
        }
        let receiver = || {
            Some(ReceiverInfo {
                received: Bytes::new(record.received_bytes?),
                unread: Bytes::new(record.unread_bytes?),
                rcvbuf: Bytes::new(record.rcvbuf_bytes?),
            })
        };
        let span = |seconds: Option<f64>| {
            seconds.filter(|s| (0.0..=LONGEST_S).contains(s)).map(Duration::from_secs_f64)
        };
        let path = || {
            Some(PathState {
                queue: Bytes::new(record.queue_bytes?),
                link_busy: span(record.link_busy_s)?,
                shaper_busy: span(record.shaper_busy_s)?,
                policed: record.policed?,
                queue_drops: record.queue_drops?,
                random_drops: record.random_drops?,
            })
        };
        let truth = || {
            let limit = record.send_limit.as_deref()?;
            let phase = record.phase.as_deref()?;
            Some(SenderTruth {
                send_limit: SendLimit::ALL.into_iter().find(|known| known.name() == limit)?,
                limit_times: [
                    span(record.limited_app_s)?,
                    span(record.limited_sndbuf_s)?,
                    span(record.limited_rwnd_s)?,
                    span(record.limited_cwnd_s)?,
                    span(record.limited_slow_start_s)?,
                    span(record.limited_pacing_s)?,
                    span(record.limited_recovery_s)?,
                ],
                lost: Bytes::new(record.lost_bytes?),
                status: Status {
                    phase: PHASES.into_iter().find(|known| *known == phase).unwrap_or_default(),
                    ..cc::Status::default()
                },
            })
        };
        Ok(Self {
            at: Instant::ZERO + seconds("t_s", record.t_s)?,
            flow: record.flow,
            sender,
            receiver: receiver(),
            path: path(),
            truth: truth().map(Box::new),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;
    use crate::trace::{Csv, Sink};

    fn rows() -> Vec<Row> {
        let text = "name = 'x'\nduration = '3s'\n[path]\nrate = '10mbit'\nrtt = '10ms'\nloss = '1%'\n\
                    [[flow]]\ncc = 'bbr1'\n[[sample]]\nevery = '100ms'";
        let experiment = Experiment::from_toml(text).expect("valid");
        let mut rows = Vec::new();
        crate::sim::run_traced(&experiment.points()[0].scenario, &mut rows);
        rows
    }

    fn written(rows: &[Row]) -> String {
        let mut csv = Csv::default();
        rows.iter().for_each(|row| csv.row(row));
        csv.into_text()
    }

    /// Every column is read back into the field from which it was written: writing the rows a second time
    /// yields identical text.
    #[test]
    fn what_a_run_writes_is_read_again() {
        let mut rows = rows();
        // Only the rows of kernel sockets have these fields.
        rows[7].sender.bbr = Some(BbrInfo {
            bw: Rate::from_bps(9_500_000),
            min_rtt: Some(Duration::from_millis(10)),
            pacing_gain_percent: 125,
            cwnd_gain_percent: 200,
        });
        rows[7].sender.max_pacing_rate = Some(Rate::from_bps(20_000_000));
        rows[7].sender.ssthresh = Some(Bytes::new(65_536));
        let text = written(&rows);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        assert_eq!(lines[0], COLUMNS.iter().map(|column| column.name).collect::<Vec<_>>());
        for (at, column) in COLUMNS.iter().enumerate() {
            assert!(lines[1..].iter().any(|cells| !cells[at].is_empty()), "{} has no value", column.name);
        }
        let recording = read(&text).expect("its own rows");
        assert!(!recording.truncated);
        let again: Vec<Row> = recording.rows.into_iter().map(|recorded| recorded.row).collect();
        assert_eq!(written(&again), text);
        for (row, again) in rows.iter().zip(&again) {
            assert_eq!((row.at, row.sender, row.receiver), (again.at, again.sender, again.receiver));
            let (truth, read) = (row.truth.as_ref().expect("truth"), again.truth.as_ref().expect("read"));
            assert_eq!((truth.send_limit, truth.lost), (read.send_limit, read.lost));
            assert_eq!(truth.status.phase, read.status.phase);
        }
    }

    /// Rows that contain only the values that `TCP_INFO` and `SO_MEMINFO` report for a kernel socket can be
    /// read.
    #[test]
    fn columns_of_a_socket_are_enough() {
        let rows: Vec<Row> = rows().iter().map(Row::observed).collect();
        let text = written(&rows);
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let headers = reader.headers().expect("names").clone();
        let kept: Vec<usize> = (0..COLUMNS.len()).filter(|i| !COLUMNS[*i].optional).collect();
        let line =
            |record: &csv::StringRecord| kept.iter().map(|i| &record[*i]).collect::<Vec<_>>().join(",");
        let lines: Vec<String> = std::iter::once(line(&headers))
            .chain(reader.records().map(|r| line(&r.expect("a line"))))
            .collect();
        let recording = read(&lines.join("\n")).expect("enough");
        assert_eq!(recording.rows.len(), rows.len());
        assert!(recording.rows.iter().all(|recorded| recorded.row.truth.is_none()));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let text = written(&rows());
        let of = |text: &str| read(text).expect_err("refused").to_string();
        assert_eq!(of(&text.replacen("mss_bytes", "mss", 1)), "column mss_bytes is missing");
        let spoilt = text.replacen(",1448,", ",many,", 1);
        assert!(of(&spoilt).starts_with("line 2: mss_bytes has an invalid value"), "{}", of(&spoilt));
        let short = text.replacen(",1448,", ",", 1);
        assert!(of(&short).starts_with("line 2 has "), "{}", of(&short));
        let cut = &text[..text.len() - 30];
        assert!(read(cut).expect("but for the last line").truncated);
    }
}
