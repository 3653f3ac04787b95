//! Runs the rungs of a ladder on a Linux kernel in virtual time, for comparison with the simulator.
//!
//! ```text
//!   rung ─► its scenario ──► guest ──────► steady-state rate ─┐
//!                     └────► simulator ──► steady-state rate ─┴─► RungProof
//! ```

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::thread::available_parallelism;

use fullpipe_analysis::ladder::{Rung, RungProof};
use fullpipe_lab::campaign::{self, Job};
use fullpipe_lab::experiment::Point;
use fullpipe_lab::outcome::Outcome;
use fullpipe_lab::sim;
use fullpipe_lab::trace::NoTrace;
use fullpipe_linux::uml::{self, Kernel, Options};
use fullpipe_tcp::buffers::KernelVersion;
use fullpipe_units::Rate;

use crate::Error;
use crate::run::{Observer, UmlOptions};

/// A User-Mode Linux kernel on which the rungs of ladders can run.
#[derive(Clone, Debug)]
pub struct Prover {
    kernel: Kernel,
    options: Options,
}

impl Prover {
    /// Finds the kernel that `options` select.
    ///
    /// # Errors
    /// Returns an error if there is no kernel that can run in virtual time.
    pub fn find(options: &UmlOptions) -> Result<Self, Error> {
        let options = options.options();
        Ok(Self { kernel: Kernel::find(&options)?, options })
    }

    /// Returns the version of the kernel; `None` if its release string cannot be parsed.
    pub fn version(&self) -> Option<KernelVersion> {
        self.kernel.release.parse().ok()
    }

    /// Runs each simulated rung on the kernel, one rung per core, and stores the result in the rung. Passes a
    /// note to `observer` for each rung that the kernel cannot run.
    ///
    /// The calling program becomes the guest's init if it has called `fullpipe::linux::uml::run_if_guest` at the
    /// start of `main`; otherwise, the program `fullpipe-guest` becomes the init.
    ///
    /// # Errors
    /// Returns an error if a run fails.
    pub fn prove(&self, ladder: &mut [Rung], observer: &impl Observer) -> Result<(), Error> {
        let mut jobs = Vec::new();
        let mut rungs = Vec::new();
        for rung in ladder {
            let Some(scenario) = rung.scenario.clone() else { continue };
            let label = rung.what.clone();
            let point = Point {
                label: label.clone(),
                parameters: BTreeMap::new(),
                limit: None,
                scenario: scenario.clone(),
            };
            match uml::check(&self.kernel, &point) {
                Ok(_) => {
                    jobs.push(Job { label, scenario });
                    rungs.push(rung);
                }
                Err(error) => observer.note(&format!("a rung was not run on the kernel: {}", error.message)),
            }
        }
        let threads = available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let run = |scenario: &_| {
            let guest = uml::run(&self.kernel, scenario, &self.options, &mut NoTrace)?;
            let simulated = sim::run(&uml::simulated(&self.kernel, scenario));
            Ok(RungProof {
                kernel: guest.kernel,
                steady: steady(&guest.outcome),
                simulated: steady(&simulated),
            })
        };
        let proofs: Vec<Result<RungProof, Error>> =
            campaign::run_jobs(threads, &jobs, run, |progress| observer.progress(progress))?;
        for (rung, proof) in rungs.into_iter().zip(proofs) {
            rung.proof = Some(proof?);
        }
        Ok(())
    }
}

/// Returns the total goodput of all flows in the second half of a run.
fn steady(outcome: &Outcome) -> Rate {
    Rate::from_bps(outcome.flows.iter().map(|flow| flow.goodput_second_half.as_bps()).sum())
}
