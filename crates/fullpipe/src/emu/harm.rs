//! Runs a race that measures harm on the emulator, several cells at the same time.
//!
//! ```text
//!   sending host:  kernel's TCP: victims, bbr1 ──┐
//!                  relay's TCP: surge ─ kernel ──┴─► path ─► kernel's TCP: all clients
//! ```
//!
//! Each job is one seed of one cell: the victim alone, and then beside each arm, between the same hosts. The victims and
//! the arms that the kernel has use kernel sockets. The other arms are served through the relay of `fullpipe accelerate`,
//! whose packets the kernel of the sending host forwards.

use fullpipe_lab::race::{Attempt, EMU, HarmCell, HarmPlan, StoredHarm};
use fullpipe_lab::scenario::{Scenario, Stack};
use fullpipe_linux::emu::{check_congestion_control, hosts_with_relay};
use fullpipe_units::Duration;

use super::lanes::{Job, expected_time, in_lanes, until_kept_up};
use super::race::{self, OwnArms};
use crate::Error;
use crate::race::{MissingSeeds, Relay};
use crate::run::{Datapath, Observer};

/// Maximum sum of the link rates of concurrent runs in bit/s. Unlike downloads, the flows of a run use up the link all the
/// time. At 150 Mbit/s, they take 0.9 of two cores; at 350 Mbit/s, the applications and the relay wait so long for a core that
/// surge does a third of its harm.
const RATES_TOGETHER: u64 = 240_000_000;
/// Maximum number of repetitions of a run with which the machine did not keep up. A run takes as long as the scenario
/// states, so a second repetition would delay the race too much.
const REPETITIONS: u32 = 1;
/// Time for starting and ending a run.
const OVERHEAD: Duration = Duration::from_millis(500);

/// Determines the TCP stack that sends for each arm, and reports to `observer` the arms for which fullpipe's TCP sends.
/// Also checks that the kernel has the congestion controls of the victims.
pub(crate) fn check_harm(plan: &HarmPlan, observer: &impl Observer) -> Result<OwnArms, Error> {
    for cell in plan.cells() {
        check_congestion_control(cell.victim.algorithm())
            .map_err(|error| Error::from(error).about(format_args!("victim {}", cell.victim)))?;
    }
    let own = OwnArms::of(plan.arms(), observer)?;
    if let Some(arm) = plan.arms().iter().find(|arm| arm.launch && !own.contains(**arm)) {
        return Err(Error::new(
            format!("the kernel would give the victim the initial window of the arm {arm} too"),
            format!("remove {arm}, or race in the simulator: --world sim"),
        ));
    }
    let relays = plan.arms().iter().any(|arm| own.contains(*arm));
    if relays && cfg!(not(feature = "accelerate")) {
        return Err(Error::new(
            "this build has no relay for the arms on fullpipe's TCP",
            "enable the feature accelerate, or race in the simulator: --world sim",
        ));
    }
    Ok(own)
}

/// Estimates the time in which the missing runs are made.
pub(crate) fn expected_harm_time(plan: &HarmPlan, missing: &[MissingSeeds]) -> Duration {
    let jobs = missing.iter().map(|MissingSeeds { cell, seeds }| {
        let scenario = &plan.cells()[*cell].point.scenario;
        let runs = (seeds.len() * (1 + plan.arms().len())) as u64;
        (scenario.path.forward.rate.as_bps(), (scenario.duration + OVERHEAD).mul_div(runs, 1))
    });
    expected_time(jobs, RATES_TOGETHER)
}

/// Runs the missing seeds; returns the runs of each with the number of its cell.
pub(crate) fn harm_runs<O: Observer>(
    plan: &HarmPlan,
    own: &OwnArms,
    missing: &[MissingSeeds],
    relay: &Relay<'_, O, StoredHarm>,
) -> Result<Vec<(usize, StoredHarm)>, Error> {
    in_lanes(jobs(plan, missing), RATES_TOGETHER, |job| {
        let cell = &plan.cells()[job.cell];
        let about = |error: Error| error.about(format_args!("cell '{}' {}", cell.point.label, cell.victim));
        let mut made = Vec::new();
        for &seed in &job.seeds {
            let run = one_seed(plan, own, cell, seed, relay);
            // An abandoned run fails, and the runs with its seed are discarded.
            if !relay.goes_on() && run.is_err() || relay.observer.abandons() {
                break;
            }
            let stored = run.map_err(about)?;
            relay.finished(&stored);
            made.push((job.cell, stored));
        }
        Ok(made)
    })
}

/// Makes one job per cell and seed: first one seed of each cell, then the next. If a race is ended early, all cells
/// therefore have about as many seeds.
fn jobs(plan: &HarmPlan, missing: &[MissingSeeds]) -> Vec<Job> {
    let most = missing.iter().map(|missing| missing.seeds.len()).max().unwrap_or(0);
    let job = |missing: &MissingSeeds, number: usize| {
        let rate = plan.cells()[missing.cell].point.scenario.path.forward.rate.as_bps();
        Some(Job { cell: missing.cell, seeds: vec![*missing.seeds.get(number)?], rate })
    };
    (0..most).flat_map(|number| missing.iter().filter_map(move |missing| job(missing, number))).collect()
}

/// Runs the victim of `cell` alone and beside each arm.
fn one_seed<O: Observer>(
    plan: &HarmPlan,
    own: &OwnArms,
    cell: &HarmCell,
    seed: u64,
    relay: &Relay<'_, O, StoredHarm>,
) -> Result<StoredHarm, Error> {
    let scenario = Scenario { seed, ..cell.point.scenario.clone() };
    let mut hosts = hosts_with_relay(Datapath::Plain.into(), scenario.path.mtu)?;
    let runs = plan.run_in(cell, &scenario, |scenario| {
        if !relay.goes_on() {
            return Err(Error::new("the race was ended early", ""));
        }
        let scenario = own.with_sender(scenario);
        let made = until_kept_up(REPETITIONS, || race::run(&mut hosts, &scenario, relay.observer))?;
        Ok(Attempt {
            outcome: made.kept_up.then_some(made.run.outcome),
            repeated: made.repeated,
            knows_retransmits: scenario.flows.iter().all(|flow| flow.stack != Some(Stack::Fullpipe)),
        })
    })?;
    Ok(plan.stored(EMU, cell, seed, &runs))
}
