//! Charts of runs as Plotly documents.

use std::path::PathBuf;

use fullpipe::Error;
use fullpipe::lab::experiment::Experiment;
use fullpipe::report::html::figure::{self, Figure, Theme};
use pyo3::prelude::*;

use crate::convert::{ANY, flag, whole, whole_or_none};
use crate::errors::usage;
use crate::run::experiment_text;
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
    fn rates(&self, dark: Bound<'_, PyAny>) -> PyResult<String> {
        Ok(self.0.rates().document(theme(&dark)?).to_string())
    }

    /// Returns a chart of rate, window, RTT, queue and limit of a run over time.
    fn time(&self, run: Bound<'_, PyAny>, dark: Bound<'_, PyAny>) -> PyResult<String> {
        self.shown(&run, figure::Charts::time, &dark)
    }

    /// Returns a chart of RTT and rate of a run against its data in flight.
    fn phase(&self, run: Bound<'_, PyAny>, dark: Bound<'_, PyAny>) -> PyResult<String> {
        self.shown(&run, figure::Charts::phase, &dark)
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

    fn shown(
        &self,
        run: &Bound<'_, PyAny>,
        figure: impl FnOnce(&figure::Charts, usize) -> Option<Figure>,
        dark: &Bound<'_, PyAny>,
    ) -> PyResult<String> {
        let py = run.py();
        let run = whole("run", run, ANY)?;
        let labels: Vec<&str> = self.0.labels().collect();
        match figure(&self.0, run) {
            Some(figure) => Ok(figure.document(theme(dark)?).to_string()),
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

pub(crate) fn theme(dark: &Bound<'_, PyAny>) -> PyResult<Theme> {
    Ok(if flag("dark", dark)? { Theme::Dark } else { Theme::Light })
}

/// Simulates the first points of the experiment in the file `path`, or of `text`, and returns their charts.
#[pyfunction]
#[pyo3(signature = (path, text, *, seed))]
pub(crate) fn experiment_charts(
    py: Python<'_>,
    path: Option<PathBuf>,
    text: Option<Bound<'_, PyAny>>,
    seed: Option<Bound<'_, PyAny>>,
) -> PyResult<Charts> {
    let text = experiment_text(text.as_ref())?;
    let seed = whole_or_none("seed", seed.as_ref(), ANY)?;
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
