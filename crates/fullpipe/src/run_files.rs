//! Result files of an experiment, written run by run, so that memory need not grow with the number of runs.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};

use fullpipe_lab::campaign::RunResult;
use fullpipe_lab::results::{Report, ResultRows, Run, TraceRows, TraceText};

use crate::Error;
use crate::files::{AtomicFile, cannot_write};
use crate::trace_spool::{RunTrace, nameless};

/// Spaces before each line of a run in the document.
const INDENT: &str = "    ";

/// Result files of an experiment. All have temporary names until [`ResultFiles::commit`].
pub(crate) struct ResultFiles {
    dir: PathBuf,
    table: AtomicFile,
    lines: AtomicFile,
    trace: AtomicFile,
    /// The runs of `result.json`, in a file without a name, because the keys before the runs are
    /// known only after the last run.
    runs: BufWriter<File>,
    is_empty: bool,
    has_trace_header: bool,
}

impl ResultFiles {
    pub(crate) fn create(dir: &Path) -> Result<Self, Error> {
        let create = |name| AtomicFile::create(&dir.join(name)).map_err(|e| cannot(dir, name, &e));
        let mut table = create("results.csv")?;
        table.write_all(ResultRows::header().as_bytes()).map_err(|e| cannot(dir, "results.csv", &e))?;
        Ok(Self {
            dir: dir.into(),
            table,
            lines: create("results.jsonl")?,
            trace: create("trace.csv")?,
            // This file is created last, because creating the others also creates the folder and
            // removes the temporary files of killed processes.
            runs: BufWriter::new(nameless(dir).map_err(|e| cannot(dir, "result.json", &e))?),
            is_empty: true,
            has_trace_header: false,
        })
    }

    /// Appends a run to all files.
    pub(crate) fn add(&mut self, run: &Run, trace: &RunResult<RunTrace>) -> Result<(), Error> {
        let Self { dir, table, lines, trace: rows, runs, is_empty, has_trace_header } = self;
        let append = |file: &mut dyn Write, name, text: &dyn Display| {
            write!(file, "{text}").map_err(|e| cannot(dir, name, &e))
        };
        append(table, "results.csv", &ResultRows { run })?;
        append(lines, "results.jsonl", &crate::json::line(run)?)?;
        let entry = crate::json::document(run)?;
        let entry: Vec<_> = entry.lines().map(|line| format!("{INDENT}{line}")).collect();
        let separator = if *is_empty { "\n" } else { ",\n" };
        append(runs, "result.json", &format_args!("{separator}{}", entry.join("\n")))?;
        let text = trace.value.text().map_err(|e| cannot(dir, "trace.csv", &io::Error::other(e)))?;
        let of_run =
            TraceRows { label: &run.point, seed: run.seed, text: &text, has_header: *has_trace_header };
        append(rows, "trace.csv", &of_run)?;
        *has_trace_header |= of_run.has_columns();
        *is_empty = false;
        Ok(())
    }

    /// Gives all files their final names. `report` is the document without runs.
    pub(crate) fn commit(mut self, report: &Report) -> Result<(), Error> {
        let dir = self.dir;
        if !self.has_trace_header {
            write!(self.trace, "{}", TraceRows::NO_COLUMNS).map_err(|e| cannot(&dir, "trace.csv", &e))?;
        }
        let document = crate::json::document(report)?;
        // Quotes in strings are escaped, so only the key itself matches.
        let Some((before, after)) = document.split_once("\"runs\": []") else {
            unreachable!("the document has no runs")
        };
        let write = || -> io::Result<()> {
            let mut file = AtomicFile::create(&dir.join("result.json"))?;
            write!(file, "{before}\"runs\": [")?;
            let mut runs = self.runs.into_inner().map_err(io::IntoInnerError::into_error)?;
            runs.rewind()?;
            io::copy(&mut runs, &mut file)?;
            write!(file, "{}]{after}", if self.is_empty { "" } else { "\n  " })?;
            file.commit()
        };
        write().map_err(|e| cannot(&dir, "result.json", &e))?;
        for (file, name) in
            [(self.table, "results.csv"), (self.lines, "results.jsonl"), (self.trace, "trace.csv")]
        {
            file.commit().map_err(|e| cannot(&dir, name, &e))?;
        }
        Ok(())
    }
}

fn cannot(dir: &Path, name: &str, error: &io::Error) -> Error {
    cannot_write(&dir.join(name), error, "choose a writable folder")
}
