//! Finds the limit of a TCP transfer, tests remedies in a simulator, and applies them.
//!
//! ```text
//!   input, measure, watch ──► explain ──► ladder ──► tune
//!   an Experiment ──► run, in a World ──► Report
//! ```
//!
//! | to | call |
//! |---|---|
//! | explain a log, a capture, a trace or `ss` output | [`Input::open`], then [`diagnose()`] |
//! | show the limit before its ladder is simulated | [`explain()`], then [`Explanation::climb`] |
//! | calculate the ladder of a path without a measurement | [`whatif()`] |
//! | find the number of flows that fill a path | [`flow_counts()`] |
//! | measure to an iperf3 server | `measure::Probe::measure`, then [`explain()`] |
//! | sample the connections of running applications | `watch::Watch`, then `watch::measurement` |
//! | run an experiment | [`run::read`] and [`run()`], in a [`World`] |
//! | plan, apply and revert changes | `tune::plan`, `tune::apply`, `tune::confirm`, `tune::rollback` |
//! | print a result | [`render_text`], [`json::document`] |
//!
//! This program names the limit of the connection in a series of `ss` dumps, and prints its ladder:
//!
//! ```
//! use fullpipe::input::trace::Choice;
//! use fullpipe::{HostFacts, Input, Look, PathFacts, diagnose, render_text};
//!
//! let sockets = Input::open("../../examples/ss/cubic-loss.txt", &Choice::default())?;
//! let path = PathFacts { link: "100mbit".parse().ok(), ..PathFacts::default() };
//! let diagnosis = diagnose(&sockets.measurement, &path, &HostFacts::default(), &())?;
//! print!("{}", render_text(&diagnosis, Look { width: 80, colour: false }));
//! # Ok::<(), fullpipe::Error>(())
//! ```
//!
//! | module | concept |
//! |---|---|
//! | [`input`] | logs, captures, traces and `ss` output as inputs of a diagnosis |
//! | `measure` | iperf3 tests that also sample their sockets (Linux) |
//! | `watch` | samples of the connections of running applications (Linux) |
//! | [`mod@run`] | experiments in the simulator or on the emulator |
//! | `dataset` | the results of a sweep as Parquet files, made in parts (feature `tables`) |
//! | `table` | results in memory in the column layout of Arrow (feature `tables`) |
//! | [`forecast`] | the estimated time that an experiment takes |
//! | [`prove`] | rungs of a ladder on a Linux kernel in virtual time |
//! | [`mod@race`] | senders compared by the times of downloads |
//! | [`tune`] | TCP tuning of a host: plan, trial, confirmation, rollback, verification (Linux) |
//! | [`host`] | kernel settings and free memory of this host |
//! | `exporter` | Prometheus metrics of this host's connections (Linux, feature `exporter`) |
//! | `simulated_copy` | a copy in the simulator, which chooses its connections as a real one (Linux, feature `relay`) |
//! | `copy_forecast` | the rates of a copy with each number of connections (Linux, feature `relay`) |
//! | `accelerate` | fullpipe's TCP in front of a server (Linux, feature `accelerate`) |
//! | [`files`], [`json`] | result files that are written atomically |
//!
//! Functions without I/O come from [`fullpipe_analysis`] and have the same names here. [`lab`], [`tcp`],
//! [`units`], [`iperf3`] and `linux` re-export the underlying crates. Long operations report their progress
//! to an [`Observer`], which can stop them early.
//!
//! All features are disabled by default: `html` (reports as HTML pages), `pcapng` (captures of runs),
//! `exporter`, `accelerate`, `relay` (files over several TLS connections, re-exported as `relay`), and
//! `tables` (results of sweeps as Parquet files).
#![forbid(unsafe_code)]

#[cfg(feature = "pcapng")]
mod capture;
#[cfg(not(feature = "pcapng"))]
#[path = "capture_absent.rs"]
mod capture;
#[cfg(all(target_os = "linux", feature = "relay"))]
pub mod copy_forecast;
#[cfg(feature = "tables")]
pub mod dataset;
#[cfg(target_os = "linux")]
mod emu;
#[cfg(not(target_os = "linux"))]
#[path = "emu_elsewhere.rs"]
mod emu;
mod error;
#[cfg(all(target_os = "linux", feature = "exporter"))]
pub mod exporter;
pub mod files;
pub mod forecast;
pub mod host;
pub mod input;
pub mod json;
#[cfg(target_os = "linux")]
pub mod measure;
#[cfg(all(target_os = "linux", feature = "relay"))]
mod own_sockets;
#[cfg(target_os = "linux")]
pub mod pair;
#[cfg(target_os = "linux")]
pub mod prove;
#[cfg(not(target_os = "linux"))]
#[path = "prove_elsewhere.rs"]
pub mod prove;
pub mod race;
pub mod run;
mod run_files;
#[cfg(all(target_os = "linux", feature = "relay"))]
pub mod simulated_copy;
#[cfg(feature = "tables")]
pub mod table;
mod trace_spool;
#[cfg(target_os = "linux")]
pub mod tune;
#[cfg(target_os = "linux")]
mod uml;
#[cfg(not(target_os = "linux"))]
#[path = "uml_elsewhere.rs"]
mod uml;
mod unpack;
#[cfg(target_os = "linux")]
pub mod watch;

pub use error::{Error, Kind as ErrorKind};
pub use forecast::{Forecast, TimeLeft};
#[cfg(all(target_os = "linux", feature = "accelerate"))]
pub use fullpipe_accelerate as accelerate;
pub use fullpipe_analysis::*;
pub use fullpipe_iperf3 as iperf3;
pub use fullpipe_lab as lab;
#[cfg(target_os = "linux")]
pub use fullpipe_linux as linux;
#[cfg(all(target_os = "linux", feature = "relay"))]
pub use fullpipe_relay as relay;
pub use fullpipe_tcp as tcp;
pub use fullpipe_units as units;
pub use input::Input;
#[cfg(all(target_os = "linux", feature = "relay"))]
pub use own_sockets::{HostKernel, KernelPacer, OwnSockets};
pub use race::race;
pub(crate) use run::JobRelay;
pub use run::{
    Datapath, EmuOptions, Observer, PreparedRun, Report, ReportTotals, SimOptions, UmlOptions, World, run,
};

/// The limit of a transfer, determined from a measurement without a simulation.
#[derive(Clone, Debug)]
pub struct Explanation<'m>(fullpipe_analysis::Explanation<'m>);

impl Explanation<'_> {
    /// Returns the findings: the limit with its evidence, and the questions that remain open.
    pub fn findings(&self) -> &Findings {
        self.0.findings()
    }

    /// Returns a document with the findings but without a ladder, which can be shown while the ladder is simulated.
    pub fn without_ladder(&self) -> Diagnosis {
        self.0.clone().without_ladder()
    }

    /// Climbs the ladder: lifts the limit, simulates the transfer, names the next limit, and
    /// repeats this up to the link.
    ///
    /// ```
    /// use fullpipe::input::trace::Choice;
    /// use fullpipe::lab::campaign::Progress;
    /// use fullpipe::{HostFacts, Input, Observer, PathFacts, explain};
    ///
    /// struct Print;
    ///
    /// impl Observer for Print {
    ///     fn progress(&self, Progress { done, total }: Progress) {
    ///         println!("{done} of {total} runs");
    ///     }
    /// }
    ///
    /// let text = std::fs::read("../../examples/iperf3/udp-reverse.txt").expect("an example");
    /// let log = Input::from_bytes("a log", &text, &Choice::default())?;
    /// let path = PathFacts { link: "20mbit".parse().ok(), rtt: "20ms".parse().ok(), ..PathFacts::default() };
    /// let diagnosis = explain(&log.measurement, &path, &HostFacts::default())?.climb(&Print)?;
    /// println!("{} rungs", diagnosis.ladder.len());
    /// # Ok::<(), fullpipe::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the observer abandons the runs, or if the simulator has a defect.
    pub fn climb(self, observer: &impl Observer) -> Result<Diagnosis, Error> {
        Ok(self.0.climb(JobRelay(observer))?)
    }
}

/// Determines the limit of the transfer in `measurement`, given facts about the path and the hosts.
///
/// ```
/// use fullpipe::input::trace::Choice;
/// use fullpipe::{HostFacts, Input, PathFacts, explain};
///
/// let log = Input::open("../../examples/cross-border/cubic.iperf3.txt", &Choice::default())?;
/// let path = PathFacts { link: "1gbit".parse().ok(), rtt: "210ms".parse().ok(), ..PathFacts::default() };
/// let hosts = HostFacts::default();
/// let explanation = explain(&log.measurement, &path, &hosts)?;
/// println!("{:?}", explanation.findings());
/// # Ok::<(), fullpipe::Error>(())
/// ```
///
/// # Errors
/// Returns an error if the facts contradict each other or the measurement.
pub fn explain<'m>(
    measurement: &'m Measurement,
    path: &PathFacts,
    hosts: &'m HostFacts,
) -> Result<Explanation<'m>, Error> {
    Ok(Explanation(fullpipe_analysis::explain(measurement, path, hosts)?))
}

/// Determines the limit of the transfer in `measurement`, and climbs its ladder of limits.
///
/// # Errors
/// Returns an error if the facts contradict each other or the measurement, if the observer abandons the
/// runs, or if the simulator has a defect.
pub fn diagnose(
    measurement: &Measurement,
    path: &PathFacts,
    hosts: &HostFacts,
    observer: &impl Observer,
) -> Result<Diagnosis, DiagnoseError> {
    fullpipe_analysis::diagnose(measurement, path, hosts, JobRelay(observer))
}

/// Climbs the ladder of limits of a path that is given by rate, RTT and loss instead of a measurement.
///
/// ```
/// use fullpipe::{Look, PathFacts, Question, render_whatif, whatif};
///
/// let question = Question {
///     path: PathFacts { link: "10mbit".parse().ok(), rtt: "50ms".parse().ok(), ..PathFacts::default() },
///     sndbuf: None,
///     rcvbuf: None,
///     kernel: None,
///     cc: fullpipe::tcp::cc::Algorithm::Cubic,
/// };
/// let answer = whatif(&question, &()).map_err(fullpipe::Error::from)?;
/// print!("{}", render_whatif(&answer, Look { width: 80, colour: false }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Returns an error if the values of the path contradict each other, if the observer abandons the runs, or if the
/// simulator has a defect.
pub fn whatif(question: &Question, observer: &impl Observer) -> Result<WhatIf, DiagnoseError> {
    fullpipe_analysis::whatif(question, JobRelay(observer))
}

/// Simulates each number of flows of `range` on a path that is given by rate, RTT and loss. The number of flows
/// in `question` is ignored.
///
/// ```
/// use fullpipe::{FlowRange, Look, PathFacts, Question, flow_counts, render_flow_counts};
///
/// let question = Question {
///     path: PathFacts { link: "10mbit".parse().ok(), rtt: "50ms".parse().ok(), ..PathFacts::default() },
///     sndbuf: "32KiB".parse().ok(),
///     rcvbuf: None,
///     kernel: None,
///     cc: fullpipe::tcp::cc::Algorithm::Cubic,
/// };
/// let range: FlowRange = "1..4".parse()?;
/// let counts = flow_counts(&question, &range, &()).map_err(fullpipe::Error::from)?;
/// print!("{}", render_flow_counts(&counts, "flows", Look { width: 100, colour: false }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Returns an error if the values of the path contradict each other, if the observer abandons the runs, or if the
/// simulator has a defect.
pub fn flow_counts(
    question: &Question,
    range: &FlowRange,
    observer: &impl Observer,
) -> Result<FlowCounts, DiagnoseError> {
    fullpipe_analysis::flow_counts(question, range, JobRelay(observer))
}
