//! Charts of runs as Plotly documents.

use std::path::PathBuf;

use fullpipe::Error;
use fullpipe::lab::experiment::Experiment;
use fullpipe::report::html::figure::{self, Figure, Theme};
use pyo3::prelude::*;

use crate::errors::usage;
use crate::work::{AtSignal, Attendance, attended};

/// Charts of some runs.
#[pyclass(frozen, module = "fullpipe._fullpipe")]
pub(crate) struct Charts(figure::Charts);

#[pymethods]
impl Charts {
    /// Labels of the runs, in the order of the runs.
    #[getter]
    fn labels(&self) -> Vec<&str> {
        self.0.labels().collect()
    }

    /// Returns a chart of the rates of all runs over time.
    fn rates(&self, dark: bool) -> String {
        self.0.rates().document(theme(dark)).to_string()
    }

    /// Returns a chart of rate, window, RTT, queue and limit of a run over time.
    fn time(&self, py: Python<'_>, run: usize, dark: bool) -> PyResult<String> {
        self.shown(py, run, self.0.time(run), dark)
    }

    /// Returns a chart of RTT and rate of a run against its data in flight.
    fn phase(&self, py: Python<'_>, run: usize, dark: bool) -> PyResult<String> {
        self.shown(py, run, self.0.phase(run), dark)
    }
}

impl Charts {
    /// Calls `make` on a separate thread; `make` returns `None` if the runs are abandoned.
    pub(crate) fn made(
        py: Python<'_>,
        make: impl FnOnce(&Attendance) -> Result<Option<figure::Charts>, Error> + Send + 'static,
    ) -> PyResult<Self> {
        let made = attended(py, AtSignal::Leave, None, move |attendance| {
            make(attendance)?
                .ok_or_else(|| Error::new("interrupted: the charts are not complete", "run it again"))
        })?;
        Ok(Self(made))
    }

    fn shown(&self, py: Python<'_>, run: usize, figure: Option<Figure>, dark: bool) -> PyResult<String> {
        let labels: Vec<&str> = self.0.labels().collect();
        match figure {
            Some(figure) => Ok(figure.document(theme(dark)).to_string()),
            None if run < labels.len() => Err(usage(
                py,
                format!("the run '{}' has no round-trip times", labels[run]),
                "choose a simulated run, or measure with iperf3 -J",
            )),
            None => Err(usage(
                py,
                format!("there is no run {run}"),
                match labels.len() {
                    0 => "nothing was simulated".into(),
                    number => format!("allowed: 0 to {}", number - 1),
                },
            )),
        }
    }
}

pub(crate) const fn theme(dark: bool) -> Theme {
    if dark { Theme::Dark } else { Theme::Light }
}

/// Simulates the first points of the experiment in the file `path`, or of `text`, and returns their charts.
#[pyfunction]
#[pyo3(signature = (path, text, *, seed))]
pub(crate) fn experiment_charts(
    py: Python<'_>,
    path: Option<PathBuf>,
    text: Option<String>,
    seed: Option<u64>,
) -> PyResult<Charts> {
    Charts::made(py, move |attendance| {
        let experiment = match &path {
            Some(path) => fullpipe::run::read(path)?,
            None => Experiment::from_toml(text.as_deref().unwrap_or_default())?,
        };
        let experiment = match seed {
            Some(seed) => experiment.with_seed(seed),
            None => experiment,
        };
        experiment.check_simulated()?;
        Ok(figure::Charts::of_experiment(&experiment, attendance)?)
    })
}
