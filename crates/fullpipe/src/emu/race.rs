//! Runs the pairs of a race on the emulator, several of them at the same time.
//!
//! ```text
//!   missing pairs ─► jobs: a cell and a few seeds, the longest first ─► lanes
//!   lane: creates two hosts, then for each seed: arm, arm, arm
//! ```
//!
//! A download takes a fraction of a second, and creating hosts takes about as long. All downloads of a job therefore
//! use the same hosts: one pair for the arms in which the kernel is the sender, and one for the arms in which
//! fullpipe's TCP is the sender. The client is always the kernel, and the server is the same program for all arms. The
//! kernel's arms connect to it directly, and the others through the relay of `fullpipe accelerate`. The path is created
//! anew for each download, from the seed of the pair.

use std::cmp::Reverse;

use fullpipe_lab::race::{ArmRun, Cell, EMU, Pair, RacePlan};
use fullpipe_lab::scenario::{Scenario, Stack};
use fullpipe_lab::trace::NoTrace;
use fullpipe_linux::Kind;
use fullpipe_linux::emu::{EmuRun, check_congestion_control, hosts, run_between};
use fullpipe_linux::wan::Hosts;
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::Duration;

use super::lanes::{Job, in_lanes, until_kept_up};
use crate::Error;
use crate::race::{Arm, MissingSeeds, Relay};
use crate::run::{Attended, Datapath, Observer};

/// Maximum sum of the link rates of concurrent downloads in bit/s. Two cores forward more than twice this
/// rate on time.
const RATES_TOGETHER: u64 = 400_000_000;
/// Number of pairs that use the same hosts. A larger number would save little time, and would leave lanes idle at the
/// end of the race.
const PAIRS_PER_JOB: usize = 5;
/// Maximum number of repetitions of a download with which the machine did not keep up.
const REPETITIONS: u32 = 2;
/// Estimated number of round trips of a download, in addition to the transmission time of its bytes.
const ROUND_TRIPS: u64 = 6;

/// Determines the TCP stack that sends for each arm, and reports to `observer` the arms for which fullpipe's TCP
/// sends. Also checks that every cell has only one connection.
///
/// The kernel sends for an arm unless the arm has a profile, or a congestion control that neither mainline Linux nor
/// this kernel has.
pub(crate) fn check_arms(plan: &RacePlan, observer: &impl Observer) -> Result<OwnArms, Error> {
    if let Some(cell) = plan.cells().iter().find(|cell| cell.point.scenario.flows.len() > 1) {
        return Err(Error::new(
            format!("cell '{}' has several connections, which only the simulator can race", cell.point.label),
            "remove count, or race in the simulator: --world sim",
        ));
    }
    OwnArms::of(plan.arms(), observer)
}

/// Returns whether `cc` is part of mainline Linux, possibly as a module.
fn is_in_linux(cc: Algorithm) -> bool {
    !matches!(cc, Algorithm::Bbr3 | Algorithm::Surge)
}

/// Congestion controls for which fullpipe's TCP sends, because this kernel lacks them.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnArms {
    algorithms: Vec<Algorithm>,
}

impl OwnArms {
    /// Determines which of `arms` fullpipe's TCP sends, and reports them to `observer`.
    pub(super) fn of(arms: &[Arm], observer: &impl Observer) -> Result<Self, Error> {
        let mut own = Self::default();
        for &arm in arms {
            let why = if arm.profile.is_some() {
                "the kernel's TCP does not support profiles"
            } else {
                match check_congestion_control(arm.cc) {
                    Ok(()) => continue,
                    Err(error) if error.kind == Kind::Settings && !is_in_linux(arm.cc) => {
                        own.algorithms.push(arm.cc);
                        "this kernel does not have the congestion control"
                    }
                    Err(error) => return Err(Error::from(error).about(format_args!("arm {arm}"))),
                }
            };
            observer.note(&format!("fullpipe's TCP sends for {arm}; {why}"));
        }
        Ok(own)
    }

    /// Returns whether fullpipe's TCP sends for `arm`.
    pub(super) fn contains(&self, arm: Arm) -> bool {
        arm.profile.is_some() || self.algorithms.contains(&arm.cc)
    }

    /// Returns `scenario` with the sending TCP stack set.
    pub(super) fn with_sender(&self, scenario: &Scenario) -> Scenario {
        let mut scenario = scenario.clone();
        for flow in &mut scenario.flows {
            let own = flow.profile.is_some() || self.algorithms.iter().any(|&cc| flow.cc == cc);
            flow.stack = Some(if own { Stack::Fullpipe } else { Stack::Kernel });
        }
        scenario
    }
}

/// Runs the missing pairs; returns each pair with the number of its cell.
pub(crate) fn pairs<O: Observer>(
    plan: &RacePlan,
    own: &OwnArms,
    missing: &[MissingSeeds],
    relay: &Relay<'_, O, Pair>,
) -> Result<Vec<(usize, Pair)>, Error> {
    in_lanes(jobs(plan, missing), RATES_TOGETHER, |job| run_job(plan, own, job, relay))
}

/// Divides the missing pairs into jobs, with the longest job first, because a long job that starts last would run
/// alone.
fn jobs(plan: &RacePlan, missing: &[MissingSeeds]) -> Vec<Job> {
    let expected = |cell: &Cell| -> Duration {
        let scenario = &cell.point.scenario;
        scenario.path.forward.rate.time_for(cell.size) + scenario.longest_rtt().mul_div(ROUND_TRIPS, 1)
    };
    let mut jobs: Vec<(Duration, Job)> = Vec::new();
    for MissingSeeds { cell: number, seeds } in missing {
        let cell = &plan.cells()[*number];
        let rate = cell.point.scenario.path.forward.rate.as_bps();
        for seeds in seeds.chunks(PAIRS_PER_JOB) {
            let time = expected(cell).mul_div(seeds.len() as u64, 1);
            jobs.push((time, Job { cell: *number, seeds: seeds.into(), rate }));
        }
    }
    // The sort is stable, so jobs of equal length stay in the order of the plan.
    jobs.sort_by_key(|(time, _)| Reverse(*time));
    jobs.into_iter().map(|(_, job)| job).collect()
}

/// Runs the pairs of a job one after the other, unless the observer ends the race early.
fn run_job<O: Observer>(
    plan: &RacePlan,
    own: &OwnArms,
    job: &Job,
    relay: &Relay<'_, O, Pair>,
) -> Result<Vec<(usize, Pair)>, Error> {
    let cell = &plan.cells()[job.cell];
    let about = |error: Error| error.about(format_args!("cell '{}'", cell.point.label));
    let mut made = Vec::new();
    if !relay.goes_on() {
        return Ok(made);
    }
    // The hosts of the kernel's arms, and those of the arms on fullpipe's TCP.
    let mut hosts_by_stack = [const { None::<Hosts> }; 2];
    for &seed in &job.seeds {
        if !relay.goes_on() {
            break;
        }
        let scenario = Scenario { seed, ..cell.point.scenario.clone() };
        let download = |scenario: &Scenario| {
            let scenario = own.with_sender(scenario);
            let is_own = scenario.flows.iter().any(|flow| flow.stack == Some(Stack::Fullpipe));
            let hosts = match &mut hosts_by_stack[usize::from(is_own)] {
                Some(hosts) => hosts,
                none => none.insert(hosts(&scenario, Datapath::Plain.into())?),
            };
            download(hosts, &scenario, relay.observer)
        };
        let pair = plan.run_pair_in(EMU, cell, &scenario, download);
        // An abandoned download fails, and its pair is discarded.
        if relay.observer.abandons() {
            break;
        }
        let pair = pair.map_err(about)?;
        relay.finished(&pair);
        made.push((job.cell, pair));
    }
    Ok(made)
}

/// Runs one download, and repeats it if the machine did not keep up with the path.
fn download(hosts: &mut Hosts, scenario: &Scenario, observer: &impl Observer) -> Result<ArmRun, Error> {
    let made = until_kept_up(REPETITIONS, || run(hosts, scenario, observer))?;
    let run = ArmRun { repeated: made.repeated, ..ArmRun::from(&made.run.outcome) };
    Ok(match made.kept_up {
        true => run,
        false => ArmRun { from_syn_ns: None, from_request_ns: None, late: true, ..run },
    })
}

/// Runs `scenario` between `hosts`, with a relay if fullpipe's TCP sends.
pub(super) fn run(hosts: &mut Hosts, scenario: &Scenario, observer: &impl Observer) -> Result<EmuRun, Error> {
    let mut attended = Attended { rows: &mut NoTrace, observer };
    let is_own = scenario.flows.iter().any(|flow| flow.stack == Some(Stack::Fullpipe));
    Ok(match is_own {
        true => sender::run(hosts, scenario, &mut attended)?,
        false => run_between(hosts, scenario, &mut attended)?,
    })
}

/// Downloads by fullpipe's TCP, through the relay of `fullpipe accelerate`.
#[cfg(feature = "accelerate")]
mod sender {
    use std::net::SocketAddrV4;

    use fullpipe_accelerate::worker::{RunService, relay_run};
    use fullpipe_lab::trace::Sink;
    use fullpipe_linux::emu::{Relay, run_relayed};
    use fullpipe_linux::stack_loop::Port;
    use fullpipe_linux::{Error, Stop};

    use super::{EmuRun, Hosts, Scenario, Stack};

    /// The relay with the sender of `scenario`.
    struct ArmRelay<'a> {
        scenario: &'a Scenario,
    }

    impl Relay for ArmRelay<'_> {
        fn run(
            &self,
            port: &Port,
            listen: SocketAddrV4,
            server: SocketAddrV4,
            stop: &Stop,
        ) -> Result<(), Error> {
            let Scenario { flows, host, path, .. } = self.scenario;
            let relayed = flows.iter().find(|flow| flow.stack == Some(Stack::Fullpipe));
            let Some((flow, cc)) = relayed.and_then(|flow| Some((flow, flow.cc.of_fullpipe()?))) else {
                return Ok(());
            };
            let service = RunService {
                listen: listen.into(),
                server: server.into(),
                cc,
                initcwnd: flow.initcwnd.or(host.initcwnd),
                profile: flow.profile,
                mtu: path.mtu as u32,
            };
            relay_run(port, &service, stop)
        }
    }

    pub(super) fn run(hosts: &mut Hosts, scenario: &Scenario, sink: &mut dyn Sink) -> Result<EmuRun, Error> {
        run_relayed(hosts, scenario, sink, &ArmRelay { scenario })
    }
}

/// Downloads by fullpipe's TCP. Without the relay of `fullpipe accelerate`, the server uses fullpipe's TCP itself.
#[cfg(not(feature = "accelerate"))]
mod sender {
    use fullpipe_lab::trace::Sink;
    use fullpipe_linux::Error;

    use super::{EmuRun, Hosts, Scenario, run_between};

    pub(super) fn run(hosts: &mut Hosts, scenario: &Scenario, sink: &mut dyn Sink) -> Result<EmuRun, Error> {
        run_between(hosts, scenario, sink)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MBIT: u64 = 1_000_000;

    #[test]
    fn long_jobs_come_first_and_have_few_pairs() {
        let text = "name = 'small'\nduration = '60s'\nrepeat = 12\nseed = 5\n\
                    [path]\nrate = '20mbit'\nrtt = '40ms'\nloss = '1%'\n\
                    [[flow]]\ncc = 'bbr1'\nbytes = ['700kB', '4MB']\napp = { request = '200B' }\n";
        let experiment = fullpipe_lab::experiment::Experiment::from_toml(text).expect("valid");
        let [bbr1, iw] = ["bbr1", "bbr1+iw"].map(|arm| arm.parse().expect("an arm"));
        let plan = RacePlan::new(&experiment, &[bbr1, iw], bbr1).expect("a plan");
        let missing = [0, 1].map(|cell| MissingSeeds { cell, seeds: plan.cells()[cell].seeds.clone() });
        let jobs = jobs(&plan, &missing);
        let found: Vec<_> = jobs.iter().map(|job| (job.cell, job.seeds[0], job.seeds.len())).collect();
        assert_eq!(found, [(1, 5, 5), (1, 10, 5), (1, 15, 2), (0, 5, 5), (0, 10, 5), (0, 15, 2)]);
        assert!(jobs.iter().all(|job| job.rate == 20 * MBIT));
    }
}
