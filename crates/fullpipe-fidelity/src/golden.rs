//! Compares the golden ladder with the kernel: the rungs of the published CUBIC log of the cross-border link,
//! a run with ten connections instead of the remedies, and the rungs of the points in the experiment file,
//! whose paths are known.
//!
//! The path of the published log is unknown. The kernel therefore runs on the path that is fitted to the log,
//! and loses the same packets as the simulator with the same seed.

use std::fmt::Write as _;

use fullpipe::advice::AppliedRemedy;
use fullpipe::lab::experiment::{Experiment, Point};
use fullpipe::lab::scenario::{HostSpec, Scenario};
use fullpipe::ladder::{RungRemedies, Source};
use fullpipe::tcp::buffers::{Buffer, DrsRule, KernelVersion, WindowRule};
use fullpipe::{Error, HostFacts, HostSettings, Limit, PathFacts, Rung};
use fullpipe_fidelity::ladder_validation::{Criterion, RungComparison, is_within};
use fullpipe_fidelity::rung_runs::{CellLadder, Period, Step, steps};

use crate::Comparison;
use crate::args::{FidelityArgs, KernelWorld};
use crate::from_log::{diagnosed, kernel_seeds, of_seeds};
use crate::guest;
use crate::kernel::release;
use crate::ladder::{Compared, climb, points, present};

const NAME: &str = "cross-border log";
const LOG: &str = include_str!("../../../examples/cross-border/cubic.iperf3.txt");
const SYSCTL: &str = include_str!("../../../examples/cross-border/sysctl-before.txt");
const LINK: &str = "1gbit";
const RTT: &str = "210ms";

/// Targets of the golden ladder in Mbit/s: the rate that loss permits, the rate that the window permits after
/// that, and the minimum rate with the buffers that the ladder recommends.
const TARGET: (f64, f64, f64) = (75.0, 105.0, 900.0);
/// Number of connections in the run that uses more connections instead of the remedies.
const CONNECTIONS: usize = 10;
/// Minimum share of the link rate at the top of each ladder of the experiment file.
const OF_THE_LINK: f64 = 0.9;

/// Returns the table of rungs with the kernel's results and the targets. The comparison holds if every run is
/// valid and all targets are met.
pub(crate) fn table(experiment: &Experiment, args: &FidelityArgs) -> Result<Comparison, Error> {
    let seeds = kernel_seeds(experiment);
    let release = match args.world {
        KernelWorld::Emu => release(),
        KernelWorld::Uml => guest::found(args)?.release,
    };
    let kernel = release.parse::<KernelVersion>().map_err(|error| {
        Error::new(format!("cannot read the kernel's release: {error}"), "run this command on Linux")
    })?;
    let drs_rule = match args.world {
        KernelWorld::Emu => DrsRule::Since616,
        KernelWorld::Uml => DrsRule::of(kernel),
    };
    let (mut golden, climbed) = of_log(|simulated| on_kernel(simulated, kernel, drs_rule))?;
    let climb = |point| climb(point, &seeds);
    let known = guest::points(experiment, args)?;
    let mut ladders: Vec<CellLadder> = known.iter().map(climb).collect::<Result<_, _>>()?;
    let rungs = golden.steps.len();
    let ten = ten_connections(&golden, &seeds)?;
    golden.steps.extend(ten);
    ladders.insert(0, golden);
    let wanted = of_seeds(&points(&ladders), &seeds, args);
    let compared = Compared::run(&ladders, &wanted, args)?;
    let command = crate::command(&format!("--ladder --golden {}", args.world_option()), args);
    let mut table = compared.table(&command);
    let mut targets = Vec::new();
    if compared.has_all_rungs() {
        targets.push(of_climb(&climbed));
        targets.extend(of_golden_rungs(&compared.rungs[..rungs]));
        targets.extend(experiment.points().iter().filter_map(|point| of_top(point, &compared.rungs)));
    }
    for Target { what, is_met } in &targets {
        let _ = writeln!(table, "\n{what} Target met: {}.", if *is_met { "yes" } else { "**no**" });
    }
    let complete = compared.has_all_rungs() && compared.has_all_runs();
    let verdict = (complete && targets.iter().all(|target| target.is_met)).into();
    Ok(Comparison { table, verdict, complete })
}

/// Returns the ladder of the published log with the kernel runs of its rungs, and the list of all its rungs.
fn of_log(on_kernel: impl Fn(&Scenario) -> Scenario) -> Result<(CellLadder, Vec<Rung>), Error> {
    let path = PathFacts { link: LINK.parse().ok(), rtt: RTT.parse().ok(), ..PathFacts::default() };
    let hosts = HostFacts { local: Some(HostSettings::parse(SYSCTL)?), ..HostFacts::default() };
    let diagnosis = diagnosed(NAME, LOG, &path, &hosts)?;
    let no_run = || Error::new("the published log has no simulated ladder", "check examples/cross-border");
    let first = diagnosis.ladder.first().and_then(|rung| rung.scenario.clone()).ok_or_else(no_run)?;
    let cell = Point { label: NAME.into(), parameters: Default::default(), limit: None, scenario: first };
    let steps = steps(&cell, &diagnosis, |_, simulated| Ok::<_, Error>(on_kernel(simulated)))?;
    Ok((CellLadder { cell: NAME.into(), steps }, diagnosis.ladder))
}

/// Returns `simulated` with the receive buffer that gives the same window on the kernel. The kernel may
/// convert receive memory into a window by a different rule. It grows the receive buffer by `drs_rule`.
fn on_kernel(simulated: &Scenario, kernel: KernelVersion, drs_rule: DrsRule) -> Scenario {
    let HostSpec { window_rule, rcvbuf, .. } = simulated.host;
    let rule = WindowRule::of(kernel, None);
    let rcvbuf = Buffer::Auto { max: rule.space(window_rule.window(rcvbuf.limit())) };
    let host = HostSpec { kernel, window_rule: rule, drs_rule, rcvbuf, ..simulated.host.clone() };
    Scenario { host, ..simulated.clone() }
}

/// Returns the step that uses several connections instead of all remedies, with the present hosts and path;
/// `None` if the ladder has no first rung.
fn ten_connections(golden: &CellLadder, seeds: &[u64]) -> Result<Option<Step>, Error> {
    let Some(Step { point, .. }) = golden.steps.first().filter(|step| step.rung.remedies.title().is_none())
    else {
        return Ok(None);
    };
    let one = &point.scenario;
    // The run for the rung of the log is as long as the log. Here the run is twice as long, and its second
    // half is the steady state.
    let scenario = Scenario {
        flows: one.flows.iter().cycle().take(CONNECTIONS).cloned().collect(),
        duration: one.duration * 2,
        ..one.clone()
    };
    let first = present(NAME, &scenario, seeds)?;
    let remedies = RungRemedies(vec![AppliedRemedy {
        title: format!("{CONNECTIONS} connections in place of all this"),
        connections: Some(CONNECTIONS as u64),
        ..AppliedRemedy::default()
    }]);
    Ok(first.map(|rung| Step::new(point, Rung { remedies, ..rung }, scenario, Period::SecondHalf)))
}

/// A target of the golden ladder.
struct Target {
    what: String,
    is_met: bool,
}

/// Returns the target for the rates of the ladder that is climbed from the log.
fn of_climb(rungs: &[Rung]) -> Target {
    fn rate(rung: &Rung) -> f64 {
        rung.lasting().as_mbps_f64()
    }
    let climbed: Vec<&Rung> = rungs.iter().filter(|rung| rung.source != Source::Given).collect();
    let words: Vec<_> =
        climbed.iter().map(|rung| format!("{} {:.1}", rung.limit.name(), rate(rung))).collect();
    let is_met = match climbed[..] {
        [first, second, .., last] => {
            first.limit == Limit::Cwnd
                && matches!(second.limit, Limit::Rwnd | Limit::Sndbuf)
                && is_within(rate(first), TARGET.0)
                && is_within(rate(second), TARGET.1)
                && rate(last) >= TARGET.2
        }
        _ => false,
    };
    Target {
        what: format!(
            "The golden ladder is {} Mbit/s (target: cwnd near {}, a window near {}, then at least {}).",
            words.join(" -> "),
            TARGET.0,
            TARGET.1,
            TARGET.2
        ),
        is_met,
    }
}

/// Returns the targets for the rungs of the golden ladder. Where loss is the limit, simulator and kernel lose
/// the same packets with the same seed.
fn of_golden_rungs(rungs: &[RungComparison<'_>]) -> [Target; 2] {
    let near: Vec<_> = rungs.iter().filter(|rung| rung.asked() == Criterion::Near).collect();
    let lossy: Vec<_> = rungs.iter().filter(|rung| rung.rung.limit == Limit::Cwnd).collect();
    let windows = Target {
        what: format!(
            "{} rungs of the golden ladder whose limit is a window, a buffer or the link are within 10 % of the kernel's mean.",
            near.iter().filter(|rung| rung.holds()).count()
        ),
        is_met: !near.is_empty() && near.iter().all(|rung| rung.holds()),
    };
    let loss = Target {
        what: "On the rung that loss limits, each simulated run is within 10 % of the kernel run with the same losses, and the \
               range contains the kernel's mean."
            .into(),
        is_met: !lossy.is_empty()
            && lossy.iter().all(|rung| rung.agrees_run_by_run() && rung.contains_mean()),
    };
    [windows, loss]
}

/// Returns the target for the last rung of the ladder of `point`; `None` if the kernel has run no rung of
/// this ladder.
fn of_top(point: &Point, rungs: &[RungComparison<'_>]) -> Option<Target> {
    let top = rungs.iter().rfind(|rung| rung.cell == point.label)?;
    let least = OF_THE_LINK * point.scenario.path.forward.rate.as_mbps_f64();
    let mbit = |bps: f64| bps / 1e6;
    let simulated = top.rung.lasting().as_mbps_f64();
    Some(Target {
        what: format!(
            "{}: {simulated:.1} Mbit/s simulated in steady state (target: at least {least:.1}); kernel: {:.1} in steady state \
             (target: within 10 % of the simulation), {:.1} including the start.",
            point.label,
            mbit(top.mean()),
            mbit(top.mean_with_start())
        ),
        is_met: simulated >= least && top.is_near(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe::units::{Bytes, Rate};

    fn rung(limit: Limit, mbit: u64, source: Source) -> Rung {
        let rate = Rate::from_bps(mbit * 1_000_000);
        Rung { steady: Some(rate), ..Rung::new(limit, "a limit", rate, source) }
    }

    #[test]
    fn the_golden_ladder_climbs_from_loss_over_the_window_to_the_link() {
        let climb = |rates: [u64; 3]| {
            let [first, second, last] = rates;
            of_climb(&[
                rung(Limit::Cwnd, first, Source::Measured),
                rung(Limit::Rwnd, second, Source::Simulated),
                rung(Limit::Pacing, last, Source::Simulated),
                rung(Limit::Link, 965, Source::Given),
            ])
        };
        let met = climb([74, 104, 905]);
        assert!(met.is_met);
        assert_eq!(
            met.what,
            "The golden ladder is cwnd 74.0 -> rwnd 104.0 -> pacing 905.0 Mbit/s (target: cwnd near 75, a window near 105, then at \
             least 900)."
        );
        for missed in [[60, 104, 905], [74, 130, 905], [74, 104, 890]] {
            assert!(!climb(missed).is_met, "{missed:?}");
        }
        assert!(!of_climb(&[rung(Limit::Cwnd, 75, Source::Measured)]).is_met, "the ladder ends too early");
    }

    /// A window of 3 MiB takes 4 MiB of memory under the rule of the published hosts, and more on a kernel
    /// that measures the ratio itself.
    #[test]
    fn another_kernel_gives_the_same_window() {
        let text = "name = 'x'\nduration = '1s'\n[path]\nrate = '1gbit'\nrtt = '210ms'\n\
                    [host]\nkernel = '4.15'\nadv_win_scale = 2\nrcvbuf = '4MiB'\n[[flow]]\ncc = 'cubic'";
        let published = Experiment::from_toml(text).expect("valid").points()[0].scenario.clone();
        let run = on_kernel(&published, KernelVersion::new(6, 18), DrsRule::Since616);
        let window = |host: &HostSpec| host.window_rule.window(host.rcvbuf.limit());
        assert_eq!((window(&published.host), window(&run.host)), (Bytes::from_mib(3), Bytes::from_mib(3)));
        assert!(run.host.rcvbuf.limit() > published.host.rcvbuf.limit());
        assert_eq!(Scenario { host: published.host.clone(), ..run }, published);
    }
}
