//! Runs an experiment in the simulator, and returns its results as tables.

use std::path::Path;
use std::sync::Arc;

use fullpipe_lab::campaign;
use fullpipe_lab::columns::Cell;
use fullpipe_lab::experiment::{Design, Experiment, ExperimentError, FieldColumns};
use fullpipe_lab::results::{self, FlowRow, RUN_COLUMNS, RunRecord, TimedOutcome};
use fullpipe_lab::scenario::Scenario;
use fullpipe_lab::trace::{Record, Row, Sink};

use super::{Batch, ColumnData, ColumnSpec, Table, TableBuilder, Values};
use crate::dataset::trace_columns;
use crate::run::{LARGEST_EXPERIMENT, ObserverRelay, beside, read_at_most, timed};
use crate::{Error, Observer};

/// Source of an experiment.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// A file; file names in the experiment are relative to the file's folder.
    File(&'a Path),
    /// A string that refers to no other file.
    Text(&'a str),
}

/// Options of [`simulate`].
#[derive(Clone, Copy, Debug, Default)]
pub struct SimulateOptions {
    /// First random seed; `None` for the experiment's own.
    pub seed: Option<u64>,
    /// Number of random seeds per point, 1 to 10 000; `None` for the experiment's own.
    pub repeat: Option<u64>,
    /// Whether to keep the trace rows of all runs.
    pub traced: bool,
}

/// Results of an experiment: the document of `fullpipe run --json`, and tables.
#[derive(Clone, Debug)]
pub struct Simulation {
    /// Document with all runs and expectations.
    pub document: results::Report,
    /// One row per run and flow, with the columns of a data set.
    pub runs: Table,
    /// One row per run, flow and sampling time, with the columns of a data set's trace.
    pub trace: Option<Table>,
}

/// Runs every point of an experiment with every seed in the simulator, unless `observer` stops it early.
///
/// ```
/// use fullpipe::table::{SimulateOptions, Source, simulate};
///
/// let text = "name = 'small'\nduration = '1s'\n[path]\nrate = '10mbit'\nrtt = ['20ms', '40ms']\n\
///             [[flow]]\ncc = 'cubic'\n";
/// let made = simulate(Source::Text(text), SimulateOptions { traced: true, ..Default::default() }, &())?;
/// assert_eq!((made.runs.rows(), made.runs.columns()[0].name.as_str()), (2, "rtt_ms"));
/// assert_eq!(made.trace.map(|trace| trace.rows()), Some(20));
/// # Ok::<(), fullpipe::Error>(())
/// ```
///
/// # Errors
/// Returns an error if the experiment cannot be read, is invalid, has too many runs or rows, or requires a
/// kernel, or if a run panics because of a defect.
pub fn simulate(
    source: Source<'_>,
    options: SimulateOptions,
    observer: &impl Observer,
) -> Result<Simulation, Error> {
    let (design, mut experiment) = match source {
        Source::File(path) => {
            let text = read_at_most(LARGEST_EXPERIMENT, path).map_err(|e| {
                Error::new(
                    format!("cannot read {}: {e}", path.display()),
                    "pass the path of an experiment file, for example experiments/window-rtt.toml",
                )
            })?;
            parse(&text, &beside(path)).map_err(|e| Error::from(e).about(path.display()))?
        }
        Source::Text(text) => {
            let load = |name: &str| {
                Err(format!(
                    "cannot read the trace '{name}', because the folder of the \
                                          experiment is not known"
                ))
            };
            parse(text, &load)?
        }
    };
    if let Some(seed) = options.seed {
        experiment = experiment.with_seed(seed);
    }
    if let Some(repeat) = options.repeat {
        experiment = experiment.with_repeat(repeat);
    }
    experiment.check_size()?;
    experiment.check_simulated()?;
    if options.traced {
        experiment.check_trace_size()?;
    }

    let trace_columns = trace_columns();
    // The number of the run, which is the first column, is known only after the run.
    let of_row: Arc<[ColumnSpec]> = trace_columns[1..].into();
    let runner = |scenario: &Scenario| {
        let mut rows = TraceRows(options.traced.then(|| TableBuilder::new(Arc::clone(&of_row))));
        let timed = timed(scenario, &mut rows, observer);
        (timed, rows.0.map(TableBuilder::into_batches))
    };
    let observed = ObserverRelay { experiment: &experiment, observer };
    let made = campaign::run(experiment.points(), &experiment.seeds(), runner, &observed)?;

    let repeat = experiment.seeds().len() as u64;
    let first_seed = experiment.seeds().first().copied().unwrap_or(1);
    let number = |point: usize, seed: u64| point as u64 * repeat + seed.wrapping_sub(first_seed);
    let mut trace = Vec::new();
    let mut runs = Vec::new();
    for campaign::RunResult { point, seed, value: (timed, rows) } in made {
        let batches = rows.into_iter().flatten();
        trace.extend(batches.map(|batch| Arc::new(numbered(batch, number(point, seed)))));
        runs.push(campaign::RunResult { point, seed, value: timed });
    }
    let rows = FlowTable { design: &design, number };
    Ok(Simulation {
        runs: rows.table(&runs)?,
        document: results::Report::new(&experiment, "sim", &runs),
        trace: options.traced.then(|| Table::new(trace_columns, trace)),
    })
}

fn parse(
    text: &str,
    load: &dyn Fn(&str) -> Result<String, String>,
) -> Result<(Design, Experiment), ExperimentError> {
    Ok((Design::from_toml_with(text, load, None)?, Experiment::from_toml_with(text, load)?))
}

/// Inserts the number of the run as the first column of its trace rows.
fn numbered(mut batch: Batch, run: u64) -> Batch {
    let column = ColumnData { values: Values::U64(vec![run; batch.rows]), validity: None };
    batch.columns.insert(0, column);
    batch
}

/// A sink that stores the trace rows of one run as columns, or discards them.
struct TraceRows(Option<TableBuilder>);

impl Sink for TraceRows {
    fn row(&mut self, row: &Row) {
        if let Some(rows) = &mut self.0 {
            rows.push(Record::from(row).cells());
        }
    }
}

/// Converts the results of runs into a table that has the columns of a data set.
struct FlowTable<'a, N> {
    design: &'a Design,
    number: N,
}

impl<N: Fn(usize, u64) -> u64> FlowTable<'_, N> {
    fn table(&self, runs: &[campaign::RunResult<TimedOutcome>]) -> Result<Table, ExperimentError> {
        let mut fields = FieldColumns::default();
        let mut settings = Vec::new();
        self.design.visit(|point| {
            fields.add(&point.settings);
            settings.push(point.settings);
            Ok(())
        })?;
        let of_fields = fields
            .columns()
            .map(|field| ColumnSpec::new(&field.name(), field.kind, fields.is_optional(field)));
        let of_runs =
            RUN_COLUMNS.iter().map(|column| ColumnSpec::new(column.name, column.kind, column.optional));
        let mut builder = TableBuilder::new(of_fields.chain(of_runs).collect());
        for run in runs {
            let outcome = &run.value.outcome;
            let cells: Vec<Cell> = fields.cells(&settings[run.point]).collect();
            for (flow, of_flow) in (0..).zip(&outcome.flows) {
                let number = (self.number)(run.point, run.seed);
                let row =
                    FlowRow { run: number, point: run.point as u64, seed: run.seed, flow, outcome, of_flow };
                builder.push(cells.iter().cloned().chain(RunRecord::from(&row).cells()));
            }
        }
        Ok(builder.finish())
    }
}
