//! Finds the limit of a TCP path, tests the remedy in a lab, and applies it.
//!
//! ```text
//!   input, measure, watch ──► explain ──► ladder ──► tune
//!   an Experiment ──► run, in a World ──► Report
//! ```
//!
//! | module | concept |
//! |---|---|
//! | [`input`] | logs, captures, traces and `ss` output, opened with format detection |
//! | `measure` | iperf3 tests with samples of their sockets (Linux) |
//! | `watch` | connections of running applications (Linux) |
//! | [`mod@run`] | experiments in the simulator or on the emulator |
//! | [`tune`] | a host and its route: plan, trial, confirmation, rollback, verification (Linux) |
//! | [`host`] | settings and memory of this host |
//! | `exporter` | Prometheus metrics of this host's connections (Linux, feature `exporter`) |
//! | [`files`], [`json`] | results written to files atomically |
//!
//! Pure functions come from [`fullpipe_analysis`] and have the same names here. [`lab`], [`tcp`],
//! [`units`], [`iperf3`] and `linux` re-export the underlying crates. Long operations report to an
//! [`Observer`], which can stop them early.
//!
//! Features, all disabled by default: `html` (reports as HTML pages), `pcapng` (captures of runs),
//! `exporter`.
#![forbid(unsafe_code)]

#[cfg(feature = "pcapng")]
mod capture;
#[cfg(not(feature = "pcapng"))]
#[path = "capture_absent.rs"]
mod capture;
#[cfg(target_os = "linux")]
mod emu;
#[cfg(not(target_os = "linux"))]
#[path = "emu_elsewhere.rs"]
mod emu;
mod error;
#[cfg(all(target_os = "linux", feature = "exporter"))]
pub mod exporter;
pub mod files;
pub mod host;
pub mod input;
pub mod json;
#[cfg(target_os = "linux")]
pub mod measure;
pub mod run;
#[cfg(target_os = "linux")]
pub mod tune;
#[cfg(target_os = "linux")]
pub mod watch;

pub use error::{Error, Kind as ErrorKind};
pub use fullpipe_analysis::*;
pub use fullpipe_iperf3 as iperf3;
pub use fullpipe_lab as lab;
#[cfg(target_os = "linux")]
pub use fullpipe_linux as linux;
pub use fullpipe_tcp as tcp;
pub use fullpipe_units as units;
pub use input::Input;
pub use run::{Datapath, EmuOptions, Observer, PreparedRun, Report, SimOptions, World, run};

/// The limit of a transfer, determined before any simulation.
#[derive(Clone, Debug)]
pub struct Explanation<'m>(fullpipe_analysis::Explanation<'m>);

impl Explanation<'_> {
    /// Returns the limit with its evidence, and the questions that stay undecided.
    pub fn findings(&self) -> &Findings {
        self.0.findings()
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
    /// The simulator has a defect.
    pub fn climb(self, observer: &impl Observer) -> Result<Diagnosis, Error> {
        Ok(self.0.climb(|progress| observer.progress(progress))?)
    }
}

/// Names the limit of the transfer in `measurement`, given the known facts about path and hosts.
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
/// The facts contradict each other or the measurement.
pub fn explain<'m>(
    measurement: &'m Measurement,
    path: &PathFacts,
    hosts: &'m HostFacts,
) -> Result<Explanation<'m>, Error> {
    Ok(Explanation(fullpipe_analysis::explain(measurement, path, hosts)?))
}

/// Explains `measurement` and climbs its ladder.
///
/// # Errors
/// The facts contradict each other or the measurement, or the simulator has a defect.
pub fn diagnose(
    measurement: &Measurement,
    path: &PathFacts,
    hosts: &HostFacts,
    observer: &impl Observer,
) -> Result<Diagnosis, DiagnoseError> {
    fullpipe_analysis::diagnose(measurement, path, hosts, |progress| observer.progress(progress))
}

/// Climbs the ladder of a path that is described by figures instead of a measurement.
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
/// The figures contradict each other, or the simulator has a defect.
pub fn whatif(question: &Question, observer: &impl Observer) -> Result<WhatIf, DiagnoseError> {
    fullpipe_analysis::whatif(question, |progress| observer.progress(progress))
}
