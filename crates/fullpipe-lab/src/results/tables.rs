//! Results and traces of a campaign as CSV tables.

use std::borrow::Cow;
use std::fmt;

use fullpipe_tcp::SendLimit;

use super::{Flow, RttMs, Run};

/// Trace of a run, which may be in memory or in a file.
pub trait TraceText {
    /// Returns the text from [`Csv::into_text`](crate::trace::Csv::into_text).
    ///
    /// # Errors
    /// Returns an error if the text cannot be read.
    fn text(&self) -> Result<Cow<'_, str>, fmt::Error>;
}

impl TraceText for String {
    fn text(&self) -> Result<Cow<'_, str>, fmt::Error> {
        Ok(self.as_str().into())
    }
}

/// The rows of one run in the CSV table of all traces: point and seed, then the columns of
/// [`Record`](crate::trace::Record).
#[derive(Clone, Copy, Debug)]
pub struct TraceRows<'a> {
    /// Label of the experiment point.
    pub label: &'a str,
    /// Random seed of the run.
    pub seed: u64,
    /// Text from [`Csv::into_text`](crate::trace::Csv::into_text).
    pub text: &'a str,
    /// Whether the header has already been written, so that these rows need none.
    pub has_header: bool,
}

impl TraceRows<'_> {
    /// A table without any row.
    pub const NO_COLUMNS: &'static str = "point,seed,\n";

    /// Returns whether the text has a header line with the names of the columns, that is, whether it is not
    /// empty.
    pub const fn has_columns(&self) -> bool {
        !self.text.is_empty()
    }
}

impl fmt::Display for TraceRows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = self.text.lines();
        if let Some(columns) = lines.next().filter(|_| !self.has_header) {
            writeln!(f, "point,seed,{columns}")?;
        }
        let first_cells = csv_lines([[self.label.to_owned(), self.seed.to_string()]])?;
        let first_cells = first_cells.trim_end();
        lines.try_for_each(|line| writeln!(f, "{first_cells},{line}"))
    }
}

/// The rows of one run in the CSV table of all results, one row per flow. Column names end in base units, and the
/// cell of a missing value is empty.
#[derive(Clone, Copy, Debug)]
pub struct ResultRows<'a> {
    /// Results of the run.
    pub run: &'a Run,
}

impl ResultRows<'_> {
    /// Returns the header of the table, with its newline.
    pub fn header() -> String {
        header().join(",") + "\n"
    }
}

impl fmt::Display for ResultRows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.run.flows.iter().enumerate().map(|(number, flow)| row(self.run, number, flow));
        f.write_str(&csv_lines(rows)?)
    }
}

/// Returns the names of the columns of the results.
fn header() -> Vec<String> {
    let of_flow = [
        "point",
        "seed",
        "flow",
        "cc",
        "received_bytes",
        "goodput_bps",
        "goodput_second_half_bps",
        "retransmits",
        "min_rtt_ms",
        "mean_rtt_ms",
        "p95_rtt_ms",
    ];
    let shares = SendLimit::ALL.map(|limit| format!("share_{limit}"));
    let of_run = [
        "delivered_packets",
        "queue_drops_packets",
        "random_drops_packets",
        "policed_packets",
        "aqm_drops_packets",
        "marked_packets",
        "duplicated_packets",
        "reordered_packets",
        "thinned_acks",
        "digest",
        "wall_s",
    ];
    of_flow.map(str::to_owned).into_iter().chain(shares).chain(of_run.map(str::to_owned)).collect()
}

/// Returns the cells of one flow, in the order of [`header`].
fn row(run: &Run, number: usize, flow: &Flow) -> Vec<String> {
    let path = run.path;
    let rtt = |of: fn(RttMs) -> f64| flow.rtt_ms.map_or(String::new(), |rtt| of(rtt).to_string());
    let of_flow = [
        run.point.clone(),
        run.seed.to_string(),
        number.to_string(),
        flow.cc.clone(),
        flow.bytes.to_string(),
        flow.goodput_bps.to_string(),
        flow.goodput_second_half_bps.to_string(),
        flow.retransmits.to_string(),
        rtt(|rtt| rtt.min),
        rtt(|rtt| rtt.mean),
        rtt(|rtt| rtt.p95),
    ];
    let share = |limit: SendLimit| flow.send_limit.get(limit.name()).copied().unwrap_or(0.0);
    let shares = SendLimit::ALL.map(|limit| share(limit).to_string());
    let of_run = [
        path.delivered.to_string(),
        path.queue_drops.to_string(),
        path.random_drops.to_string(),
        path.policed.to_string(),
        path.aqm_drops.to_string(),
        path.marked.to_string(),
        path.duplicated.to_string(),
        path.reordered.to_string(),
        path.acks_thinned.to_string(),
        run.digest.clone(),
        run.wall_s.to_string(),
    ];
    of_flow.into_iter().chain(shares).chain(of_run).collect()
}

/// Returns `records` as lines of CSV. Cells are quoted where necessary, because labels may contain any
/// character.
///
/// # Errors
/// Returns an error if the records have different numbers of cells; writing to memory does not fail.
fn csv_lines<R: IntoIterator<Item = String>>(
    records: impl IntoIterator<Item = R>,
) -> Result<String, fmt::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for record in records {
        writer.write_record(record).map_err(|_| fmt::Error)?;
    }
    let bytes = writer.into_inner().map_err(|_| fmt::Error)?;
    String::from_utf8(bytes).map_err(|_| fmt::Error)
}

#[cfg(test)]
mod tests {
    use super::super::Report;
    use super::super::tests::{experiment, runs};
    use super::*;
    use crate::experiment::Experiment;

    /// Returns the table of all runs.
    fn table(report: &Report) -> String {
        report.runs.iter().fold(ResultRows::header(), |table, run| table + &ResultRows { run }.to_string())
    }

    #[test]
    fn results_are_a_table_with_a_row_a_flow() {
        let experiment = experiment();
        let report = Report::new(&experiment, "sim", &runs());
        let table = table(&report);
        let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split(',').collect()).collect();
        let [header, first, second] = &rows[..] else { panic!("{table}") };
        assert!(first.len() == header.len() && second.len() == header.len(), "{table}");
        let cell = |row: &[&str], name: &str| {
            let column = header.iter().position(|column| *column == name).expect(name);
            row[column].to_owned()
        };
        assert_eq!(cell(first, "point"), "cc=bbr");
        assert_eq!((cell(first, "seed"), cell(second, "seed")), ("1".into(), "2".into()));
        assert_eq!(cell(first, "goodput_bps"), "8000000");
        assert_eq!((cell(first, "mean_rtt_ms"), cell(second, "mean_rtt_ms")), ("12".into(), String::new()));
        assert_eq!((cell(first, "share_pacing"), cell(first, "share_rwnd")), ("0.75".into(), "0".into()));
        assert_eq!((cell(first, "delivered_packets"), cell(first, "wall_s")), ("700".into(), "0.5".into()));
    }

    #[test]
    fn a_table_with_odd_labels_is_readable() {
        let mut report = Report::new(&experiment(), "sim", &runs());
        let label = "small, \"and\" odd\nlabel";
        report.runs[0].point = label.into();
        let table = table(&report);
        let mut reader = csv::Reader::from_reader(table.as_bytes());
        let columns = reader.headers().expect("a header").len();
        let records = reader.records().collect::<Result<Vec<_>, _>>().expect("records");
        assert_eq!((records.len(), records[0].len()), (2, columns));
        assert_eq!((&records[0][0], &records[1][0]), (label, "cc=bbr"));
    }

    #[test]
    fn traces_of_a_campaign_are_one_table() {
        let text = "name = 'x'\nduration = '1s'\n[path]\nrate = '1mbit'\nrtt = '10ms'\n\
                    [[flow]]\ncc = 'reno'\n[[sample]]\nevery = '250ms'\n\
                    [[point]]\nname = 'small, \"and\" odd'";
        let experiment = Experiment::from_toml(text).expect("valid");
        let mut csv = crate::trace::Csv::default();
        crate::sim::run_traced(&experiment.points()[0].scenario, &mut csv);
        let (label, text) = (&experiment.points()[0].label, &csv.into_text());
        let table = TraceRows { label, seed: 7, text, has_header: false }.to_string();
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[0].starts_with("point,seed,flow,t_s,cc,mss_bytes,cwnd_bytes,"), "{}", lines[0]);
        assert_eq!(lines.len(), 1 + 4, "{table}");
        let rest = lines[1].strip_prefix("\"small, \"\"and\"\" odd\"").expect("a quoted label");
        assert!(rest.starts_with(",7,0,0.25,"), "{}", lines[1]);
        assert_eq!(rest.split(',').count(), lines[0].split(',').count(), "{}", lines[1]);
    }
}
