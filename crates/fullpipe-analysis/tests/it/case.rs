//! Test case: a measurement with known facts, as a user would supply them.

use fullpipe_analysis::{
    DiagnoseError, Diagnosis, Findings, HostFacts, InputError, Measurement, PathFacts, explain,
};
use fullpipe_lab::campaign::Progress;
use fullpipe_units::{Duration, Rate};

/// Input of the explainer.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) measurement: Measurement,
    pub(crate) path: PathFacts,
    pub(crate) hosts: HostFacts,
}

impl Case {
    /// Creates a case with a measurement but no other facts.
    pub(crate) fn of(measurement: &Measurement) -> Self {
        let (path, hosts) = (PathFacts::default(), HostFacts::default());
        Self { measurement: measurement.clone(), path, hosts }
    }

    pub(crate) fn link(mut self, link: Option<Rate>) -> Self {
        self.path.link = link;
        self
    }

    pub(crate) fn rtt(mut self, rtt: Option<Duration>) -> Self {
        self.path.rtt = rtt;
        self
    }

    pub(crate) fn hosts(self, hosts: HostFacts) -> Self {
        Self { hosts, ..self }
    }

    pub(crate) fn explain(&self) -> Result<Findings, InputError> {
        Ok(explain(&self.measurement, &self.path, &self.hosts)?.findings().clone())
    }

    /// Returns the findings as a document, without a ladder.
    pub(crate) fn explained(&self) -> Result<Diagnosis, InputError> {
        Ok(explain(&self.measurement, &self.path, &self.hosts)?.without_ladder())
    }

    pub(crate) fn diagnose(&self) -> Result<Diagnosis, DiagnoseError> {
        self.diagnose_reporting(|_| ())
    }

    /// Returns the diagnosis; `progress` is called as simulated runs finish.
    pub(crate) fn diagnose_reporting(
        &self,
        progress: impl Fn(Progress) + Sync,
    ) -> Result<Diagnosis, DiagnoseError> {
        fullpipe_analysis::diagnose(&self.measurement, &self.path, &self.hosts, progress)
    }
}
