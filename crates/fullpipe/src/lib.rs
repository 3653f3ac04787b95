//! Finds out why a TCP path is slow, proves the remedy in a lab, and applies it.
//!
//! ```text
//!   input, measure, watch ──► explain ──► ladder ──► tune
//!   an Experiment ──► run, in a World ──► Report
//! ```
//!
//! | module | concept |
//! |---|---|
//! | [`input`] | logs, captures, traces and samples of `ss`, opened and told apart |
//! | `measure` | iperf3's tests, watched through their sockets (Linux) |
//! | `watch` | the connections of running applications (Linux) |
//! | [`mod@run`] | experiments in the simulator or on the emulator |
//! | [`tune`] | a host and its route: planned, applied on trial, confirmed, rolled back, verified (Linux) |
//! | [`host`] | this host's settings and memory |
//! | `exporter` | Prometheus metrics of this host's connections (Linux, feature `exporter`) |
//! | [`files`], [`json`] | results as files that are there whole or not at all |
//!
//! What is pure comes from [`fullpipe_analysis`], and is found here under the same names; [`lab`], [`tcp`], [`units`], [`iperf3`] and
//! `linux` are the crates below. What takes long tells an [`Observer`], and ends early if that one wants it to.
//!
//! Features, none of them on by default: `html` (reports as pages), `pcapng` (runs as captures), `exporter`.
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
pub use run::{Datapath, EmuOptions, Observer, Report, SimOptions, World, run};

/// What holds a transfer back, before anything has been simulated.
#[derive(Clone, Debug)]
pub struct Explanation<'f> {
    facts: Facts<'f>,
    findings: Findings,
}

impl Explanation<'_> {
    /// The limit, with its evidence, and what could not be decided.
    pub fn findings(&self) -> &Findings {
        &self.findings
    }

    /// Lifts the limit, simulates, names the next, and so on up to the link.
    ///
    /// # Errors
    /// A defect of the simulator.
    pub fn climb(self, observer: &impl Observer) -> Result<Diagnosis, Error> {
        let progress = |progress| observer.progress(progress);
        Ok(diagnose_explained(&self.facts, self.findings, progress)?)
    }
}

/// Names what holds back the transfer that `facts` are about.
///
/// # Errors
/// Facts that contradict each other or the input.
pub fn explain<'f>(facts: &Facts<'f>) -> Result<Explanation<'f>, Error> {
    Ok(Explanation { facts: *facts, findings: fullpipe_analysis::explain(facts)? })
}

/// Explains `facts` and climbs the ladder.
///
/// # Errors
/// Facts that contradict each other or the input, or a defect of the simulator.
pub fn diagnose(facts: &Facts<'_>, observer: &impl Observer) -> Result<Diagnosis, DiagnoseError> {
    fullpipe_analysis::diagnose(facts, |progress| observer.progress(progress))
}

/// Climbs the ladder of a path that is given instead of measured.
///
/// # Errors
/// Figures that contradict each other, or a defect of the simulator.
pub fn whatif(question: &Question, observer: &impl Observer) -> Result<WhatIf, DiagnoseError> {
    fullpipe_analysis::whatif(question, |progress| observer.progress(progress))
}
