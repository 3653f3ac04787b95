//! Diagnosis of slow TCP paths.
//!
//! ```text
//! iperf3 log ───► input ──► explain ──► Findings ──► ladder ──► Diagnosis ──► report
//! trace ────────► input ──► classify ──────┘
//! sysctl dump ──► input ──────┘            simulator, remedy ──┘
//! ```
//!
//! Everything is a pure function of text and values: no I/O, no clock.
//!
//! - [`diagnose`] runs the complete analysis of a measurement.
//! - [`whatif()`] builds the ladder of a path that is given instead of measured.
//! - [`flow_counts()`] simulates such a path with different numbers of flows.
//! - [`ladder::climb_known`] builds the ladder for one point of an experiment.
//! - [`offered_load`] compares a ladder with the rate that an application offers.
//! - [`live`] classifies one flow while it is running, and [`sockets`] all flows of a host.
//! - [`tune`] plans changes to a host for a given path.
//!
//! The modules form layers: `live < explain < remedy < ladder < tune < report`. No module uses a layer above
//! its own. The layers below, `input < classify`, are in `fullpipe-measurement`, whose public items are also here.
#![forbid(unsafe_code)]

pub mod advice;
pub mod demand;
pub mod diagnosis;
pub mod explain;
pub mod flow_counts;
pub mod ladder;
pub mod latency;
pub mod live;
pub mod offered_load;
pub mod remedy;
pub mod report;
pub mod sockets;
pub mod tcp_vs_udp;
pub mod tune;
pub mod whatif;

pub use demand::{Demand, Memory};
pub use diagnosis::Diagnosis;
pub use explain::{Findings, HostFacts, RateOption};
pub use flow_counts::{FlowCount, FlowCounts, FlowRange, flow_counts};
pub use fullpipe_measurement::{
    Finding, HostSettings, InputError, Kind, Limit, LossEstimate, Measurement, PathFacts, classify, input,
    loss_estimate, measurement, segment, throughput_models,
};
pub use ladder::{DiagnoseError, Ladder, Rung};
pub use latency::Latency;
pub use live::{CurrentLimit, Live};
pub use offered_load::OfferedLoad;
pub use remedy::{Command, Remedy};
pub use report::{
    Look, render_brief, render_findings, render_flow_counts, render_ladder, render_latency, render_plan,
    render_show, render_tcp_vs_udp, render_text, render_whatif,
};
pub use sockets::{SocketReport, Sockets};
pub use tcp_vs_udp::TcpVsUdp;
pub use whatif::{Question, WhatIf, whatif};

use explain::Facts;
use fullpipe_lab::campaign::JobWatch;
use measurement::Transfer;

/// Findings about a transfer, with the facts from which its ladder can be built.
#[derive(Clone, Debug)]
pub struct Explanation<'m> {
    measurement: &'m Measurement,
    transfer: Transfer,
    path: PathFacts,
    hosts: &'m HostFacts,
    findings: Findings,
}

/// Finds the limits of the transfer in `measurement`. Only the link rate and the RTT in `path` are used.
///
/// # Errors
/// Returns an error if the given facts contradict each other or the measurement.
pub fn explain<'m>(
    measurement: &'m Measurement,
    path: &PathFacts,
    hosts: &'m HostFacts,
) -> Result<Explanation<'m>, InputError> {
    let transfer = explain::subject(measurement, path.link);
    let findings = explain::explain(&Facts { measurement, transfer: &transfer, path: *path, hosts })?;
    Ok(Explanation { measurement, transfer, path: *path, hosts, findings })
}

/// Explains a measurement and builds its ladder. `watch` is called from any thread as simulated runs
/// finish.
///
/// # Errors
/// Returns an error if the given facts contradict each other or the measurement, for abandoned runs, or for
/// a defect of the simulator.
pub fn diagnose(
    measurement: &Measurement,
    path: &PathFacts,
    hosts: &HostFacts,
    watch: impl JobWatch,
) -> Result<Diagnosis, DiagnoseError> {
    let explanation = explain(measurement, path, hosts).map_err(DiagnoseError::Input)?;
    explanation.climb(watch)
}

impl Explanation<'_> {
    /// Returns the limits with their evidence and the open questions.
    pub fn findings(&self) -> &Findings {
        &self.findings
    }

    /// Returns a document with the findings but without a ladder.
    pub fn without_ladder(self) -> Diagnosis {
        let Self { measurement, transfer, path, hosts, findings } = self;
        Diagnosis::new(&Facts { measurement, transfer: &transfer, path, hosts }, findings, Vec::new())
    }

    /// Builds the ladder: lifts the present limit, simulates, lifts the next limit, and so on up to the link.
    /// `watch` is called from any thread as simulated runs finish.
    ///
    /// # Errors
    /// Returns an error for abandoned runs, and for a defect of the simulator.
    pub fn climb(self, watch: impl JobWatch) -> Result<Diagnosis, DiagnoseError> {
        let Self { measurement, transfer, path, hosts, mut findings } = self;
        let facts = Facts { measurement, transfer: &transfer, path, hosts };
        let none = if measurement.is_snapshot() {
            Some(
                "fullpipe simulates no ladder, because a single sample does not show a steady rate to start from",
            )
        } else if hosts.same_host {
            Some(
                "fullpipe simulates no ladder, because both ends are on one host and no network path connects them; \
                 use --link to simulate the ladder anyway",
            )
        } else {
            None
        };
        let Ladder { rungs, assumptions, notes, fit } = match none {
            Some(none) => Ladder { notes: vec![none.into()], ..Ladder::default() },
            None => ladder::complete(&watch, |watch| ladder::climb(&facts, &findings, watch))?,
        };
        findings.assumptions.extend(assumptions);
        if measurement.packets().is_some() {
            findings.notes.extend(measurement.origin.notes.iter().cloned());
        }
        findings.notes.extend(notes);
        Ok(Diagnosis { fit, ..Diagnosis::new(&facts, findings, rungs) })
    }
}
