//! Finds out why a TCP path is slow.
//!
//! ```text
//! iperf3 log ───► input ──► explain ──► Findings ──► ladder ──► Diagnosis ──► report
//! trace ────────► input ──► classify ──────┘
//! sysctl dump ──► input ──────┘            simulator, advice ──┘
//! ```
//!
//! Everything is a pure function of text and values: no I/O, no clock. [`diagnose`] is the whole way;
//! [`whatif()`] climbs the ladder of a path that is given instead of measured. [`offered`] compares either
//! ladder with what an application wants to send. [`ladder::climb_known`] climbs that of an
//! experiment's point. [`live`] classifies a flow
//! while it runs, and [`sockets`] all of a host. [`tune`] makes of a host and a path what to change on it.
//!
//! The modules stand on floors: `input < classify < explain < ladder < tune < report`. None uses a floor above its own.
#![forbid(unsafe_code)]

pub mod advice;
pub mod classify;
pub mod demand;
pub mod explain;
pub mod input;
mod json;
pub mod ladder;
pub mod latency;
pub mod laws;
pub mod live;
pub mod offered;
pub mod report;
pub mod segment;
pub mod side_by_side;
pub mod sockets;
pub mod stats;
pub mod tune;
pub mod whatif;

pub use advice::Command;
pub use classify::{Finding, Limit};
pub use demand::{Demand, Memory};
pub use explain::{Facts, Findings, explain};
pub use input::capture::Capture;
pub use input::iperf3::Iperf3Log;
pub use input::received::Received;
pub use input::sysctl::HostSettings;
pub use input::trace::Trace;
pub use input::{InputError, Kind};
pub use ladder::{DiagnoseError, Ladder, Rung, climb};
pub use latency::Latency;
pub use live::{Held, Live};
pub use offered::Offered;
pub use report::{
    Diagnosis, Look, render_latency, render_plan, render_show, render_side_by_side, render_text,
    render_whatif,
};
pub use side_by_side::SideBySide;
pub use sockets::{SocketReport, Sockets};
pub use stats::LossEstimate;
pub use whatif::{Question, WhatIf, whatif};

use fullpipe_lab::campaign::{Progress, RunPanicked};

/// Explains a run and climbs its ladder. `progress` is called as simulated runs finish, from any thread.
///
/// # Errors
/// Facts that contradict each other or the log, or a defect of the simulator.
pub fn diagnose(facts: &Facts<'_>, progress: impl Fn(Progress) + Sync) -> Result<Diagnosis, DiagnoseError> {
    let findings = explain(facts).map_err(DiagnoseError::Input)?;
    diagnose_explained(facts, findings, progress).map_err(DiagnoseError::Defect)
}

/// [`diagnose`] behind [`explain()`], which made `findings` of `facts`.
///
/// # Errors
/// A defect of the simulator.
pub fn diagnose_explained(
    facts: &Facts<'_>,
    mut findings: Findings,
    progress: impl Fn(Progress) + Sync,
) -> Result<Diagnosis, RunPanicked> {
    let none = if facts.trace.is_some_and(Trace::is_one_sample) {
        Some("no ladder: one sample shows no steady rate to begin it with")
    } else if facts.no_path {
        Some(
            "no ladder: both ends are one host, and between them is no path; --link has it climbed all the same",
        )
    } else {
        None
    };
    let Ladder { rungs, assumptions, notes } = if let Some(none) = none {
        Ladder { rungs: Vec::new(), assumptions: Vec::new(), notes: vec![none.into()] }
    } else {
        climb(facts, &findings, progress)?
    };
    findings.assumptions.extend(assumptions);
    if let Some(capture) = facts.capture {
        findings.notes.extend(capture.notes().iter().cloned());
    }
    findings.notes.extend(notes);
    Ok(Diagnosis::new(facts, findings, rungs))
}
