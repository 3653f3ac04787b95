//! Data sets: the results of a sweep as Parquet files.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use fullpipe::dataset::{
    Comparison, DatasetOptions, Made, PairedRatio, ProblemKind, RowOrigin, Selection, Shard, check,
};
use fullpipe::lab::columns::Cell;
use fullpipe::units::Duration;
use pyo3::prelude::*;
use pyo3::types::PyBool;

use crate::convert::{ANY, text, unit, whole, whole_or_none};
use crate::errors::usage;
use crate::run::{REPEAT, experiment_text, raised};
use crate::table::Table;
use crate::work::{AtSignal, attended};

/// A data set: its manifest and its design.
#[pyclass(frozen, module = "fullpipe._fullpipe")]
pub(crate) struct Dataset(Arc<fullpipe::dataset::Dataset>);

#[pymethods]
impl Dataset {
    /// Plans the data set of the experiment in the file `path`, or of `text`.
    #[staticmethod]
    #[pyo3(signature = (path, text, *, points, seed, repeat, trace, part_packets))]
    #[expect(clippy::too_many_arguments, reason = "one for each option of the command")]
    fn plan(
        py: Python<'_>,
        path: Option<PathBuf>,
        text: Option<Bound<'_, PyAny>>,
        points: Option<PathBuf>,
        seed: Option<Bound<'_, PyAny>>,
        repeat: Option<Bound<'_, PyAny>>,
        trace: Option<Bound<'_, PyAny>>,
        part_packets: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let text = experiment_text(text.as_ref())?;
        let options = DatasetOptions {
            points,
            seed: whole_or_none("seed", seed.as_ref(), ANY)?,
            repeat: whole_or_none("repeat", repeat.as_ref(), REPEAT)?,
            trace: unit::<Duration>("trace", trace.as_ref())?,
            part_packets: whole_or_none("part_packets", part_packets.as_ref(), 1..=u64::MAX)?,
        };
        let planned = attended(py, AtSignal::Leave, None, move |_| match &path {
            Some(path) => fullpipe::dataset::Dataset::plan(path, &options),
            None => fullpipe::dataset::Dataset::from_text(text.as_deref().unwrap_or_default(), &options),
        })?;
        Ok(Self(Arc::new(planned)))
    }

    /// Opens the data set in the folder `folder`.
    #[staticmethod]
    fn open(py: Python<'_>, folder: PathBuf) -> PyResult<Self> {
        let opened = attended(py, AtSignal::Leave, None, move |_| fullpipe::dataset::Dataset::open(&folder))?;
        Ok(Self(Arc::new(opened)))
    }

    /// Returns `manifest.json`.
    fn manifest(&self, py: Python<'_>) -> PyResult<String> {
        raised(py, fullpipe::json::document(self.0.manifest()))
    }

    /// Writes the manifest to the folder `folder`; if the folder already contains a manifest, checks that the
    /// two are equal.
    fn prepare(&self, py: Python<'_>, folder: PathBuf) -> PyResult<()> {
        raised(py, py.detach(|| self.0.prepare(&folder)))
    }

    /// Makes each missing part whose number leaves the remainder `index` when divided by `of`. Returns the
    /// numbers of parts that were made, that existed before, and that are missing.
    #[pyo3(signature = (folder, *, index, of, threads, progress))]
    fn make(
        &self,
        py: Python<'_>,
        folder: PathBuf,
        index: usize,
        of: usize,
        threads: Option<Bound<'_, PyAny>>,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<(u64, u64, u64)> {
        let shard = Shard::new(index, of)
            .ok_or_else(|| usage(py, format!("there is no shard {index} of {of}"), "allowed: 0 to of - 1"))?;
        let threads = whole_or_none("threads", threads.as_ref(), 1..=u64::MAX)?.and_then(NonZeroUsize::new);
        let dataset = Arc::clone(&self.0);
        let made = attended(py, AtSignal::Wait, progress.as_ref(), move |attendance| {
            dataset.make(&folder, shard, threads, attendance)
        })?;
        let Made { made, existed, missing } = made;
        Ok((made, existed, missing))
    }

    /// Returns the numbers of the parts that are missing in the folder `folder`.
    fn missing(&self, folder: PathBuf) -> Vec<usize> {
        self.0.missing(&folder)
    }

    /// Reads the rows of all parts that exist in the folder `folder`.
    fn table(&self, py: Python<'_>, folder: PathBuf) -> PyResult<Table> {
        let dataset = Arc::clone(&self.0);
        attended(py, AtSignal::Leave, None, move |_| dataset.table(&folder)).map(Table::from)
    }

    /// Reads the trace rows of all parts that exist in the folder `folder`.
    fn trace(&self, py: Python<'_>, folder: PathBuf) -> PyResult<Option<Table>> {
        let dataset = Arc::clone(&self.0);
        let read = attended(py, AtSignal::Leave, None, move |_| dataset.trace(&folder))?;
        Ok(read.map(Table::from))
    }

    /// Compares the rows of two selections, each of which is a list of columns with values. Returns the median of
    /// the ratios, both ends of the confidence interval of the median, the number of pairs, and the number of
    /// omitted rows.
    #[pyo3(signature = (folder, a, b, *, column, seed))]
    fn ratio(
        &self,
        py: Python<'_>,
        folder: PathBuf,
        a: Vec<(Bound<'_, PyAny>, Bound<'_, PyAny>)>,
        b: Vec<(Bound<'_, PyAny>, Bound<'_, PyAny>)>,
        column: Bound<'_, PyAny>,
        seed: Bound<'_, PyAny>,
    ) -> PyResult<(f64, f64, f64, u64, u64)> {
        let comparison = Comparison {
            a: selection(a)?,
            b: selection(b)?,
            column: text("column", &column, "write the name of a column in quotes: column=\"goodput_bps\"")?,
            seed: whole("seed", &seed, ANY)?,
        };
        let dataset = Arc::clone(&self.0);
        let found = attended(py, AtSignal::Leave, None, move |_| dataset.ratio(&folder, &comparison))?;
        let PairedRatio { median, low, high, pairs, left_out } = found;
        Ok((median, low, high, pairs, left_out))
    }

    /// Returns the label of the point, the settings, the seed, the run and the flow of a row.
    #[expect(clippy::type_complexity, reason = "the Python sources give the values names")]
    fn origin(
        &self,
        py: Python<'_>,
        row: Bound<'_, PyAny>,
    ) -> PyResult<(String, Vec<(String, String)>, u64, u64, u64)> {
        let row = whole("row", &row, ANY)?;
        let RowOrigin { run, flow, seed, label, settings, .. } = raised(py, self.0.origin(row))?;
        let settings = settings.into_iter().map(|setting| (setting.key, setting.text)).collect();
        Ok((label, settings, seed, run, flow))
    }
}

fn selection(values: Vec<(Bound<'_, PyAny>, Bound<'_, PyAny>)>) -> PyResult<Selection> {
    let cell = |name: &str, value: &Bound<'_, PyAny>| {
        // Check for a Boolean value first, because a Boolean value of Python is also an integer.
        if let Ok(flag) = value.cast::<PyBool>() {
            return Ok(Cell::Bool(flag.is_true()));
        }
        if let Ok(number) = value.extract::<u64>() {
            return Ok(Cell::U64(number));
        }
        if let Ok(number) = value.extract::<f64>() {
            return Ok(Cell::F64(number));
        }
        if let Ok(text) = value.extract::<String>() {
            return Ok(Cell::Text(text.into()));
        }
        let message =
            format!("{name} is {}, but a number, a string or a Boolean value is expected", value.repr()?);
        Err(usage(
            value.py(),
            message,
            "select rows by values as they are in the column, for example {\"cc\": \"bbr1\"}",
        ))
    };
    let named = |(name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let name = text("a column name", &name, "select rows by columns, for example {\"cc\": \"bbr1\"}")?;
        let cell = cell(&name, &value)?;
        Ok((name, cell))
    };
    values.into_iter().map(named).collect()
}

/// Returns each problem with a file of the data set in the folder `folder`: the kind of the problem, and the
/// name of the file.
#[pyfunction]
pub(crate) fn check_dataset(py: Python<'_>, folder: PathBuf) -> PyResult<Vec<(&'static str, String)>> {
    let report = attended(py, AtSignal::Leave, None, move |_| check(&folder))?;
    let problems = report.problems.into_iter().map(|problem| {
        let kind = match problem.kind {
            ProblemKind::Missing => "missing",
            ProblemKind::Damaged => "damaged",
            ProblemKind::Foreign => "foreign",
        };
        (kind, problem.file)
    });
    Ok(problems.collect())
}
