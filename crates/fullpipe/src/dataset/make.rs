//! Simulates the parts of a data set on several threads.
//!
//! ```text
//!   parts of the shard ─► runs, in order ─► threads ─► rows, in order of the runs ─► a part ─► its file
//! ```
//!
//! The threads take runs in order, so the number of open parts exceeds the number of threads by at most one.
//! The rows of a run wait in memory until the rows of all earlier runs of its part have been added. Apart
//! from the open parts, no rows are kept in memory.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use fullpipe_lab::campaign::{Progress, RunPanicked, panic_message};
use fullpipe_lab::columns::{Cell, Column, Kind};
use fullpipe_lab::results::{FlowRow, RunRecord};
use fullpipe_lab::scenario::Scenario;
use fullpipe_lab::sim;
use fullpipe_lab::trace::{COLUMNS, NoTrace, Record, Row, Sink};

use super::files::{part_name, write_whole};
use super::manifest::{ColumnSpec, Part};
use super::part::{PartWriter, Rows};
use super::{Dataset, Shard};
use crate::run::Attended;
use crate::{Error, Observer};

/// Result of [`Dataset::make`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// Number of parts of the shard that this call has made.
    pub made: u64,
    /// Number of parts of the shard that already existed.
    pub existed: u64,
    /// Number of parts of the shard that are missing, because the observer stopped the work.
    pub missing: u64,
}

/// Columns of the parts of a trace: the number of the run, and the columns of a trace. Their texts are names
/// of congestion controls, limits and phases, so a table stores each different text once per batch.
pub(crate) fn trace_columns() -> Arc<[ColumnSpec]> {
    let run = ColumnSpec::new("run", Kind::U64, false);
    let rows = COLUMNS.iter().map(|Column { name, kind, optional, .. }| match kind {
        Kind::Text => ColumnSpec { kind: "word".into(), ..ColumnSpec::new(name, *kind, *optional) },
        _ => ColumnSpec::new(name, *kind, *optional),
    });
    std::iter::once(run).chain(rows).collect()
}

/// Rows of one run.
struct RunRows {
    results: Rows,
    trace: Option<Rows>,
}

/// A part whose runs are not all complete.
struct OpenPart {
    results: PartWriter,
    trace: Option<PartWriter>,
    /// Number of the run whose rows are added next, and rows of later runs.
    next: u64,
    waiting: BTreeMap<u64, RunRows>,
    end: u64,
}

impl OpenPart {
    /// Adds the rows of a run, and returns whether the part is complete.
    fn add(&mut self, run: u64, rows: RunRows) -> Result<bool, Error> {
        self.waiting.insert(run, rows);
        while let Some(RunRows { results, trace }) = self.waiting.remove(&self.next) {
            self.results.append(results)?;
            if let (Some(writer), Some(trace)) = (&mut self.trace, trace) {
                writer.append(trace)?;
            }
            self.next += 1;
        }
        Ok(self.next == self.end)
    }
}

/// State that the threads share.
struct State {
    /// Parts of the shard that no thread has started.
    parts: std::vec::IntoIter<usize>,
    /// Part whose runs are being assigned to threads, and the run to assign next.
    current: Option<(usize, u64)>,
    open: BTreeMap<usize, OpenPart>,
    /// Number of finished runs, including those of parts that already existed, and number of all runs of the
    /// shard.
    progress: Progress,
    made: Made,
    error: Option<Error>,
}

/// Context of the threads that work on one data set.
struct Work<'a, O> {
    dataset: &'a Dataset,
    dir: &'a Path,
    observer: &'a O,
    /// Hash of the manifest, which each part contains.
    manifest: String,
    columns: Arc<[ColumnSpec]>,
    trace_columns: Option<Arc<[ColumnSpec]>>,
    state: Mutex<State>,
}

pub(super) fn make(
    dataset: &Dataset,
    dir: &Path,
    shard: Shard,
    threads: NonZeroUsize,
    observer: &impl Observer,
) -> Result<Made, Error> {
    let parts: Vec<usize> = (0..dataset.manifest.parts.len()).filter(|part| shard.has(*part)).collect();
    let runs = parts.iter().map(|part| dataset.manifest.parts[*part].runs).sum::<u64>();
    let state = State {
        parts: parts.into_iter(),
        current: None,
        open: BTreeMap::new(),
        progress: Progress { done: 0, total: usize::try_from(runs).unwrap_or(usize::MAX) },
        made: Made::default(),
        error: None,
    };
    let work = Work {
        dataset,
        dir,
        observer,
        manifest: super::manifest::hash(dataset.manifest.to_text()?.as_bytes()),
        columns: dataset.manifest.columns.as_slice().into(),
        trace_columns: dataset.manifest.trace_ns.map(|_| trace_columns()),
        state: Mutex::new(state),
    };
    let most = usize::try_from(runs.max(1)).unwrap_or(usize::MAX);
    thread::scope(|scope| {
        for _ in 0..threads.get().min(most) {
            scope.spawn(|| work.take_runs());
        }
    });
    let State { made, error, parts, open, .. } =
        work.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    let missing = parts.len() as u64 + open.len() as u64;
    error.map_or(Ok(Made { missing, ..made }), Err)
}

impl<O: Observer> Work<'_, O> {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Simulates runs until none is left, the observer stops the work, or an error occurs.
    fn take_runs(&self) {
        loop {
            let job = self.next(&mut self.state());
            let done = match job {
                Ok(Some((part, run))) => self.finish(part, run),
                Ok(None) => return,
                Err(error) => Err(error),
            };
            if let Err(error) = done {
                self.state().error.get_or_insert(error);
                return;
            }
            if self.observer.abandons() {
                return;
            }
        }
    }

    /// Returns the next run to simulate, with its part. Parts that already exist are skipped.
    fn next(&self, state: &mut State) -> Result<Option<(usize, u64)>, Error> {
        if state.error.is_some() {
            return Ok(None);
        }
        while state.current.is_none() {
            if !self.observer.goes_on() {
                return Ok(None);
            }
            let Some(number) = state.parts.next() else { return Ok(None) };
            let Part { first_run, runs, .. } = self.dataset.manifest.parts[number];
            if self.exists(number) {
                state.made.existed += 1;
                state.progress.done += runs as usize;
                self.observer.progress(state.progress);
                continue;
            }
            let writer = |columns, table| PartWriter::new(columns, &self.manifest, table, number);
            let results = writer(&self.columns, "runs")?;
            let trace = self.trace_columns.as_ref().map(|columns| writer(columns, "trace")).transpose()?;
            let (next, waiting, end) = (first_run, BTreeMap::new(), first_run + runs);
            state.open.insert(number, OpenPart { results, trace, next, waiting, end });
            state.current = Some((number, first_run));
        }
        let job = state.current;
        if let Some((number, run)) = job {
            let Part { first_run, runs, .. } = self.dataset.manifest.parts[number];
            state.current = (run + 1 < first_run + runs).then_some((number, run + 1));
        }
        Ok(job)
    }

    fn exists(&self, number: usize) -> bool {
        let exists = |folder: &str| self.dir.join(folder).join(part_name(number)).is_file();
        exists("runs") && (self.trace_columns.is_none() || exists("trace"))
    }

    /// Simulates a run, and writes its part if the part is then complete.
    fn finish(&self, number: usize, run: u64) -> Result<(), Error> {
        let Some(rows) = self.run(run)? else { return Ok(()) };
        let complete = {
            let mut state = self.state();
            state.progress.done += 1;
            self.observer.progress(state.progress);
            let Some(part) = state.open.get_mut(&number) else { return Ok(()) };
            if part.add(run, rows)? { state.open.remove(&number) } else { None }
        };
        let Some(OpenPart { results, trace, .. }) = complete else { return Ok(()) };
        // A part counts as complete if its results exist, so the results are written last.
        if let Some(trace) = trace {
            write_whole(&self.dir.join("trace"), &part_name(number), &trace.finish()?)?;
        }
        write_whole(&self.dir.join("runs"), &part_name(number), &results.finish()?)?;
        self.state().made.made += 1;
        Ok(())
    }

    /// Returns the rows of a run, or `None` if the observer abandoned it.
    fn run(&self, run: u64) -> Result<Option<RunRows>, Error> {
        let design = &self.dataset.design;
        let (point, seed) = (design.point_of(run), design.seed_of(run));
        let at = design.point(point)?;
        let scenario = Scenario { seed, ..at.point.scenario };
        let mut trace =
            self.trace_columns.as_ref().map(|columns| TraceRows { run, rows: Rows::new(columns) });
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let observer = self.observer;
            match &mut trace {
                Some(rows) => sim::run_traced(&scenario, &mut Attended { rows, observer }),
                None => sim::run_traced(&scenario, &mut Attended { rows: &mut NoTrace, observer }),
            }
        }));
        let outcome = outcome.map_err(|panic| {
            let message = panic_message(panic.as_ref());
            RunPanicked { point: at.point.label.clone(), seed, message }
        })?;
        if self.observer.abandons() {
            return Ok(None);
        }
        let mut results = Rows::new(&self.columns);
        let fields: Vec<Cell> = self.dataset.fields.cells(&at.settings).collect();
        for (flow, of_flow) in (0..).zip(&outcome.flows) {
            let row = FlowRow { run, point, seed, flow, outcome: &outcome, of_flow };
            results.push(fields.iter().cloned().chain(RunRecord::from(&row).cells()));
        }
        Ok(Some(RunRows { results, trace: trace.map(|trace| trace.rows) }))
    }
}

/// A sink that stores the trace rows of one run as columns.
struct TraceRows {
    run: u64,
    rows: Rows,
}

impl Sink for TraceRows {
    fn row(&mut self, row: &Row) {
        self.rows.push(std::iter::once(Cell::U64(self.run)).chain(Record::from(row).cells()));
    }
}
