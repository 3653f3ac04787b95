//! Diagnoses of measurements, and ladders of given paths.

use std::sync::Arc;

use fullpipe::host::{LOCAL, memory_left, settings};
use fullpipe::input::trace::Choice;
use fullpipe::report::html::{Provenance, figure, render_diagnosis};
use fullpipe::tcp::buffers::KernelVersion;
use fullpipe::tcp::cc::Algorithm;
use fullpipe::units::{Bytes, Duration, Probability, Rate};
use fullpipe::{
    Demand, Diagnosis, Error, HostFacts, HostSettings, Input, Look, Measurement, Memory, PathFacts, Question,
    WhatIf, render_brief, render_text, render_whatif,
};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::charts::{Charts, theme};
use crate::convert::{ANY, name, text, unit, whole, whole_or_none};
use crate::errors::{exception, usage};
use crate::run::raised;
use crate::work::{AtSignal, attended};
use crate::{arrow, arrow_read};

/// Result of `diagnose` or `whatif`, in several forms.
#[pyclass(frozen, module = "fullpipe._fullpipe")]
pub(crate) struct Answer {
    /// JSON document, as the option `--json` prints it.
    #[pyo3(get)]
    json: String,
    content: Arc<Content>,
}

enum Content {
    Diagnosis { measurement: Box<Measurement>, diagnosis: Box<Diagnosis> },
    WhatIf(Box<WhatIf>),
}

#[pymethods]
impl Answer {
    /// Returns the report as text with lines of at most `width` columns.
    fn text(&self, width: Bound<'_, PyAny>) -> PyResult<String> {
        let width: usize = whole("width", &width, ANY)?;
        let look = Look { width: width.max(40), colour: false };
        Ok(match &*self.content {
            Content::Diagnosis { diagnosis, .. } => render_text(diagnosis, look),
            Content::WhatIf(answer) => render_whatif(answer, look),
        })
    }

    /// Returns the report of `--brief` for a diagnosis, and that of `text` otherwise.
    fn brief(&self, width: usize) -> String {
        let look = Look { width: width.max(40), colour: false };
        match &*self.content {
            Content::Diagnosis { diagnosis, .. } => render_brief(diagnosis, look),
            Content::WhatIf(answer) => render_whatif(answer, look),
        }
    }

    /// Returns the charts of the measurement and of the rungs. The rungs are simulated again.
    fn charts(&self, py: Python<'_>) -> PyResult<Charts> {
        let content = Arc::clone(&self.content);
        Charts::made(py, move |attendance| {
            Ok(match &*content {
                Content::Diagnosis { measurement, diagnosis } => {
                    figure::Charts::of_diagnosis(measurement, diagnosis, attendance)?
                }
                Content::WhatIf(answer) => figure::Charts::of_ladder(&answer.ladder, attendance)?,
            })
        })
    }

    /// Returns the ladder as a Plotly document.
    fn ladder(&self, dark: Bound<'_, PyAny>) -> PyResult<String> {
        let (ladder, link) = match &*self.content {
            Content::Diagnosis { diagnosis, .. } => (&diagnosis.ladder, diagnosis.path.link),
            Content::WhatIf(answer) => (&answer.ladder, Some(answer.path.link)),
        };
        Ok(figure::ladder(ladder, link).document(theme(&dark)?).to_string())
    }

    /// Returns the report of a diagnosis as one page of HTML with charts.
    fn page(&self, py: Python<'_>) -> PyResult<String> {
        let content = Arc::clone(&self.content);
        attended(py, AtSignal::Leave, None, move |_| match &*content {
            Content::Diagnosis { measurement, diagnosis } => {
                let made = Provenance { command: "fullpipe.diagnose", version: env!("CARGO_PKG_VERSION") };
                Ok(render_diagnosis(measurement, diagnosis, made)?)
            }
            Content::WhatIf(_) => Err(Error::usage("a ladder without a measurement has no page", "use text")),
        })
    }
}

impl Answer {
    fn new(py: Python<'_>, content: Content) -> PyResult<Self> {
        let json = match &content {
            Content::Diagnosis { diagnosis, .. } => fullpipe::json::document(&**diagnosis),
            Content::WhatIf(answer) => fullpipe::json::document(&**answer),
        };
        let json = json.map_err(|error| exception(py, &error))?;
        Ok(Self { json, content: Arc::new(content) })
    }
}

/// Reads a measurement from the file `source`, or from `content`, and diagnoses it. `settings_text` and
/// `peer_settings_text` contain the output of `sysctl -a`, unless the settings come from the files `sysctl` and
/// `peer_sysctl`.
#[pyfunction]
#[pyo3(signature = (source, content, *, link, rtt, sysctl, settings_text, peer_sysctl, peer_settings_text, kernel,
    control, point, seed, flow, offered, memory))]
#[expect(clippy::too_many_arguments, reason = "one for each option of the command")]
pub(crate) fn diagnose(
    py: Python<'_>,
    source: Bound<'_, PyAny>,
    content: Option<Vec<u8>>,
    link: Option<Bound<'_, PyAny>>,
    rtt: Option<Bound<'_, PyAny>>,
    sysctl: Option<Bound<'_, PyAny>>,
    settings_text: Option<Bound<'_, PyAny>>,
    peer_sysctl: Option<Bound<'_, PyAny>>,
    peer_settings_text: Option<Bound<'_, PyAny>>,
    kernel: Option<Bound<'_, PyAny>>,
    control: Option<Bound<'_, PyAny>>,
    point: Option<Bound<'_, PyAny>>,
    seed: Option<Bound<'_, PyAny>>,
    flow: Option<Bound<'_, PyAny>>,
    offered: Option<Bound<'_, PyAny>>,
    memory: Option<Bound<'_, PyAny>>,
) -> PyResult<Answer> {
    let path = PathFacts {
        link: unit::<Rate>("link", link.as_ref())?,
        rtt: unit::<Duration>("rtt", rtt.as_ref())?,
        ..PathFacts::default()
    };
    let kernel = kernel_version(kernel.as_ref())?;
    let control = unit::<Rate>("control", control.as_ref())?;
    let demand = DemandArguments::of(py, offered.as_ref(), memory.as_ref())?;
    let named = |name: &str, value: Option<Bound<'_, PyAny>>| {
        value.map(|value| text(name, &value, "pass a str")).transpose()
    };
    let source = text("the name of the file", &source, "pass the content of the file")?;
    let (sysctl, settings_text) = (named("sysctl", sysctl)?, named("sysctl", settings_text)?);
    let (peer_sysctl, peer_settings_text) =
        (named("peer_sysctl", peer_sysctl)?, named("peer_sysctl", peer_settings_text)?);
    let point = named("point", point)?;
    let (seed, flow) =
        (whole_or_none("seed", seed.as_ref(), ANY)?, whole_or_none("flow", flow.as_ref(), ANY)?);
    let content = attended(py, AtSignal::Leave, None, move |attendance| {
        let choice = Choice { point: point.as_deref(), seed, flow };
        let input = match content {
            Some(bytes) => Input::from_bytes(&source, &bytes, &choice)?,
            None => Input::open(&source, &choice)?,
        };
        let of_host = |file: &Option<String>, text: Option<String>| match (file, text) {
            (Some(file), _) => settings(file).map(Some),
            (None, Some(text)) => {
                HostSettings::parse(&text).map(Some).map_err(|e| Error::from(e).about("sysctl"))
            }
            (None, None) => Ok(None),
        };
        let hosts = HostFacts {
            local: of_host(&sysctl, settings_text)?,
            peer: of_host(&peer_sysctl, peer_settings_text)?,
            kernel,
            control,
            ..HostFacts::default()
        };
        let measurement = input.measurement;
        let demand = demand.demand(|| {
            // The queue of the application is on the sending host, so the sender's settings apply.
            let settings = if measurement.made_by_sender() { &sysctl } else { &peer_sysctl };
            settings.as_deref().filter(|source| *source == LOCAL).and_then(|_| memory_left())
        })?;
        let explanation =
            fullpipe::explain(&measurement, &path, &hosts).map_err(|error| error.about(&input.name))?;
        let diagnosis = explanation.climb(attendance)?;
        let diagnosis = match demand {
            Some(demand) => diagnosis.against(demand),
            None => diagnosis,
        };
        Ok(Content::Diagnosis { diagnosis: Box::new(diagnosis), measurement: Box::new(measurement) })
    })?;
    Answer::new(py, content)
}

/// Returns the trace rows of a table as CSV. The table implements `__arrow_c_stream__`; `run` selects the rows of one
/// run.
#[pyfunction]
#[pyo3(signature = (table, *, run))]
pub(crate) fn trace_csv(
    py: Python<'_>,
    table: &Bound<'_, PyAny>,
    run: Option<Bound<'_, PyAny>>,
) -> PyResult<Vec<u8>> {
    let run = whole_or_none("run", run.as_ref(), ANY)?;
    let capsule = table.call_method0("__arrow_c_stream__")?;
    let capsule = capsule.cast::<PyCapsule>().map_err(|_| {
        let problem = "the table's __arrow_c_stream__ returns no capsule";
        usage(py, problem.into(), "pass a table of pandas, polars, pyarrow or DuckDB")
    })?;
    let mut stream = arrow::taken_stream(capsule)?;
    raised(py, arrow_read::trace_csv(&mut stream, run))
}

/// Builds the ladder of a path that the arguments describe.
#[pyfunction]
#[pyo3(signature = (*, link, rtt, loss, flows, mss, queue, cap, sndbuf, rcvbuf, kernel, cc, offered, memory))]
#[expect(clippy::too_many_arguments, reason = "one for each option of the command")]
pub(crate) fn whatif(
    py: Python<'_>,
    link: Bound<'_, PyAny>,
    rtt: Bound<'_, PyAny>,
    loss: Bound<'_, PyAny>,
    flows: Option<Bound<'_, PyAny>>,
    mss: Option<Bound<'_, PyAny>>,
    queue: Option<Bound<'_, PyAny>>,
    cap: Option<Bound<'_, PyAny>>,
    sndbuf: Option<Bound<'_, PyAny>>,
    rcvbuf: Option<Bound<'_, PyAny>>,
    kernel: Option<Bound<'_, PyAny>>,
    cc: Bound<'_, PyAny>,
    offered: Option<Bound<'_, PyAny>>,
    memory: Option<Bound<'_, PyAny>>,
) -> PyResult<Answer> {
    let known = "known: reno, bic, cubic, vegas, bbr, bbr3, surge";
    let question = Question {
        path: PathFacts {
            link: unit::<Rate>("link", Some(&link))?,
            rtt: unit::<Duration>("rtt", Some(&rtt))?,
            loss: unit::<Probability>("loss", Some(&loss))?,
            flows: whole_or_none("flows", flows.as_ref(), ANY)?,
            mss: unit::<Bytes>("mss", mss.as_ref())?,
            queue: unit::<Bytes>("queue", queue.as_ref())?,
            cap: unit::<Rate>("cap", cap.as_ref())?,
        },
        sndbuf: unit("sndbuf", sndbuf.as_ref())?,
        rcvbuf: unit("rcvbuf", rcvbuf.as_ref())?,
        kernel: kernel_version(kernel.as_ref())?,
        cc: name::<Algorithm>("cc", Some(&cc), known)?.unwrap_or(Algorithm::Cubic),
    };
    let demand = DemandArguments::of(py, offered.as_ref(), memory.as_ref())?;
    let content = attended(py, AtSignal::Leave, None, move |attendance| {
        let demand = demand.demand(|| None)?;
        let answer = fullpipe::whatif(&question, attendance)?;
        let answer = match demand {
            Some(demand) => answer.against(demand),
            None => answer,
        };
        Ok(Content::WhatIf(Box::new(answer)))
    })?;
    Answer::new(py, content)
}

fn kernel_version(value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<KernelVersion>> {
    name("kernel", value, "write a version such as 6.8")
}

/// Offered load of the application, and the memory of its queue.
struct DemandArguments {
    offered: Option<Rate>,
    memory: Option<Bytes>,
}

impl DemandArguments {
    fn of(
        py: Python<'_>,
        offered: Option<&Bound<'_, PyAny>>,
        memory: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let arguments = Self { offered: unit("offered", offered)?, memory: unit("memory", memory)? };
        if arguments.memory.is_some() && arguments.offered.is_none() {
            return Err(usage(py, "memory requires offered".into(), "add offered=\"150mbit\""));
        }
        Ok(arguments)
    }

    fn demand(&self, available: impl FnOnce() -> Option<Bytes>) -> Result<Option<Demand>, Error> {
        let Some(rate) = self.offered else { return Ok(None) };
        let memory = match self.memory {
            Some(memory) => Memory::Given(memory),
            None => available().map_or(Memory::Unknown, Memory::Available),
        };
        Ok(Some(Demand::new(rate, memory)?))
    }
}
