//! Kernel runs that correspond to the rungs of a ladder.
//!
//! ```text
//!   log of a cell ──► diagnosis ──► rungs, simulated on the path that was fitted to the log
//!                                     │  remedies
//!   cell: the true path and hosts ────┴──► the state of each rung, for the kernel
//! ```

use fullpipe::lab::experiment::Point;
use fullpipe::lab::results::{Flow, Run};
use fullpipe::lab::scenario::{FlowSpec, HostSpec, Scenario};
use fullpipe::lab::stats;
use fullpipe::ladder::Source;
use fullpipe::tcp::buffers::Buffer;
use fullpipe::units::Bytes;
use fullpipe::{Diagnosis, HostSettings, Rung};

use crate::ladder_validation::RungComparison;

/// First and second values of `tcp_wmem` and `tcp_rmem`, the defaults of every kernel.
const WMEM: [Bytes; 2] = [Bytes::new(4_096), Bytes::new(16_384)];
const RMEM: [Bytes; 2] = [Bytes::new(4_096), Bytes::new(131_072)];

/// The ladder of one cell, with the kernel runs of its rungs.
#[derive(Clone, Debug)]
pub struct CellLadder {
    /// Label of the cell.
    pub cell: String,
    /// Rungs that have a prediction.
    pub steps: Vec<Step>,
}

/// A rung of a ladder, and the point that the kernel runs in the state of this rung.
#[derive(Clone, Debug)]
pub struct Step {
    /// Rung with its prediction.
    pub rung: Rung,
    /// Point with the remedies up to this rung.
    pub point: Point,
    /// Part of the run to which the prediction applies.
    pub period: Period,
}

/// Part of a run over which goodput is averaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// The full duration of the run, including slow start.
    Whole,
    /// The second half of the run.
    SecondHalf,
}

impl Period {
    /// Returns the goodput of all flows of `run` over this period, in bit/s.
    fn goodput(self, run: &Run) -> f64 {
        let of = |flow: &Flow| match self {
            Self::Whole => flow.goodput_bps,
            Self::SecondHalf => flow.goodput_second_half_bps,
        };
        run.flows.iter().map(of).sum::<u64>() as f64
    }
}

impl Step {
    /// Returns the step for a rung of the ladder of `cell`; the kernel runs `scenario`.
    pub fn new(cell: &Point, rung: Rung, scenario: Scenario, period: Period) -> Self {
        let done = rung.remedies.title().map_or_else(String::new, |remedy| format!(", then {remedy}"));
        let scenario = Scenario { seed: 0, ..scenario };
        Self {
            point: Point { label: format!("{}{done}", cell.label), scenario, ..cell.clone() },
            rung,
            period,
        }
    }
}

impl CellLadder {
    /// Compares each rung that the kernel has run with the kernel runs of that rung. `sim` contains the same
    /// runs in the simulator, and `blocks` simulated runs of the same points with other seeds.
    pub fn comparisons(&self, kernel: &[Run], sim: &[Run], blocks: &[Vec<Run>]) -> Vec<RungComparison<'_>> {
        let compared = self.steps.iter().map(|step| {
            let runs: Vec<&Run> = kernel.iter().filter(|run| run.point == step.point.label).collect();
            let pair = |run: &&Run| {
                let same = sim.iter().find(|sim| sim.point == run.point && sim.seed == run.seed);
                same.map(|sim| step.period.goodput(sim))
            };
            let mean_of = |block: &Vec<Run>| {
                let of_point = block.iter().filter(|run| run.point == step.point.label);
                stats::mean(of_point.map(|run| step.period.goodput(run)))
            };
            RungComparison {
                cell: &self.cell,
                rung: &step.rung,
                blocks: blocks.iter().filter_map(mean_of).collect(),
                kernel: runs.iter().map(|run| step.period.goodput(run)).collect(),
                whole: runs.iter().map(|run| Period::Whole.goodput(run)).collect(),
                paired: runs.iter().filter_map(pair).collect(),
            }
        });
        compared.filter(|compared| !compared.kernel.is_empty()).collect()
    }
}

/// Returns the steps of a ladder that was climbed from a log. `on` returns the scenario that the kernel runs
/// in the state of a rung, given the rung's simulated run. The first rung is the log itself; its prediction
/// is the simulation that was fitted to the log, and without a fit it has no prediction.
///
/// # Errors
/// Returns the error of `on`.
pub fn steps<E>(
    cell: &Point,
    diagnosis: &Diagnosis,
    on: impl Fn(&Rung, &Scenario) -> Result<Scenario, E>,
) -> Result<Vec<Step>, E> {
    let mut steps = Vec::new();
    for rung in &diagnosis.ladder {
        let Some(simulated) = &rung.scenario else { continue };
        let scenario = on(rung, simulated)?;
        if rung.source == Source::Simulated {
            steps.push(Step::new(cell, rung.clone(), scenario, Period::SecondHalf));
            continue;
        }
        let Some(fit) = diagnosis.fit else { continue };
        let (low, high) = fit.range();
        let rung = Rung { steady: Some(fit.mean), low: Some(low), high: Some(high), ..rung.clone() };
        // The simulated run is twice as long as a log of typical duration. If the fit compares the
        // mean of the whole log, the kernel's run is as long as the log; otherwise, it is as long as the
        // simulated run, and its second half is compared.
        let (duration, period) = if fit.log == diagnosis.path.mean {
            (simulated.duration / 2, Period::Whole)
        } else {
            (simulated.duration, Period::SecondHalf)
        };
        steps.push(Step::new(cell, rung, Scenario { duration, ..scenario }, period));
    }
    Ok(steps)
}

/// Returns the run of `cell` with the remedies of a rung: the congestion control, the number of connections,
/// the queueing discipline, and those buffers in `simulated` that are larger than the present ones. Buffers
/// are never lowered. Returns `None` if the rung has another remedy.
pub fn applied(cell: &Scenario, simulated: &Scenario, present: (Bytes, Bytes)) -> Option<Scenario> {
    let HostSpec { kernel, window_rule, sndbuf, rcvbuf, .. } = simulated.host;
    if simulated.host != HostSpec::plain(kernel, window_rule, sndbuf, rcvbuf) {
        return None;
    }
    let raised = |own: Buffer, named: Buffer, present: Bytes| {
        if named.limit() > present { Buffer::Auto { max: own.limit().max(named.limit()) } } else { own }
    };
    let cc = simulated.flows.first()?.cc;
    let flow = FlowSpec { cc, ..cell.flows.first()?.clone() };
    let mut run =
        Scenario { flows: vec![flow; simulated.flows.len()], duration: simulated.duration, ..cell.clone() };
    run.host.sndbuf = raised(run.host.sndbuf, sndbuf, present.0);
    run.host.rcvbuf = raised(run.host.rcvbuf, rcvbuf, present.1);
    // A fitted path has the default drop-tail queue, unless a remedy replaces it.
    run.path.forward.discipline = named_or(simulated.path.forward.discipline, run.path.forward.discipline);
    Some(run)
}

fn named_or<T: Default + PartialEq>(named: T, own: T) -> T {
    if named == T::default() { own } else { named }
}

/// Returns the kernel settings of a host with the buffer limits of `host`, as `sysctl -a` would print them.
pub fn settings(host: &HostSpec) -> HostSettings {
    let triple = |[least, default]: [Bytes; 2], buffer: Buffer| {
        let most = buffer.limit();
        Some([least.min(most), default.min(most), most])
    };
    HostSettings {
        tcp_wmem: triple(WMEM, host.sndbuf),
        tcp_rmem: triple(RMEM, host.rcvbuf),
        ..HostSettings::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe::Limit;
    use fullpipe::advice::AppliedRemedy;
    use fullpipe::lab::experiment::Experiment;
    use fullpipe::ladder::{Fit, RungRemedies};
    use fullpipe::tcp::cc::Algorithm;
    use fullpipe::units::{Duration, Rate};

    fn point(path: &str, host: &str, flow: &str) -> Point {
        let text = format!(
            "name = 'x'\nduration = '20s'\n[path]\nrate = '20mbit'\nrtt = '40ms'\n{path}\n[host]\n{host}\n[[flow]]\n{flow}"
        );
        Experiment::from_toml(&text).expect("valid").points()[0].clone()
    }

    fn limits(run: &Scenario) -> (Bytes, Bytes) {
        (run.host.sndbuf.limit(), run.host.rcvbuf.limit())
    }

    /// The path of the cell does not change, whatever path was fitted to the log.
    #[test]
    fn remedies_change_the_cell_and_nothing_else() {
        let (kib, mib) = (Bytes::from_kib, Bytes::from_mib);
        let host = "sndbuf = '64KiB'\nrcvbuf = '128KiB'";
        let cell = point("loss = '1%'\nqueue = '3bdp'", host, "cc = 'cubic'").scenario;
        let state = |path: &str, host: &str, flow: &str| point(path, host, flow).scenario;
        let present = (kib(64), kib(128));

        let same = applied(&cell, &state("loss = '2%'", host, "cc = 'cubic'"), present);
        assert_eq!(same, Some(cell.clone()), "no remedy");
        let bbr = applied(&cell, &state("", host, "cc = 'bbr1'\ncount = 4"), present).expect("a run");
        assert_eq!((bbr.flows.len(), bbr.flows[0].cc), (4, Algorithm::Bbr1.into()));
        assert_eq!(Scenario { flows: cell.flows.clone(), ..bbr }, cell);
        let larger = "sndbuf = '1MiB'\nrcvbuf = '2MiB'";
        let large = applied(&cell, &state("", larger, "cc = 'cubic'"), present).expect("a run");
        assert_eq!(limits(&large), (mib(1), mib(2)));
        let managed = state("queue = { aqm = 'fq_codel' }", host, "cc = 'cubic'");
        let queue = applied(&cell, &managed, present).expect("a run").path.forward;
        assert_eq!(
            (queue.discipline, queue.queue),
            (managed.path.forward.discipline, cell.path.forward.queue)
        );
    }

    /// Without the hosts' settings a diagnosis assumes the kernel's defaults. These defaults are not applied
    /// to the cell, because no command of a rung sets them.
    #[test]
    fn assumed_buffers_are_not_applied() {
        let cell = point("", "sndbuf = '64KiB'\nrcvbuf = '64MiB'", "cc = 'cubic'").scenario;
        let assumed = point("", "sndbuf = '4MiB'\nrcvbuf = '6MiB'", "cc = 'cubic'").scenario;
        let present = limits(&assumed);
        assert_eq!(applied(&cell, &assumed, present), Some(cell.clone()));
        let raised = point("", "sndbuf = '8MiB'\nrcvbuf = '12MiB'", "cc = 'cubic'").scenario;
        let raised = applied(&cell, &raised, present).expect("a run");
        assert_eq!(limits(&raised), (Bytes::from_mib(8), Bytes::from_mib(64)), "a buffer is never lowered");
    }

    #[test]
    fn a_remedy_that_the_harness_does_not_know_is_not_dropped() {
        let cell = point("", "", "cc = 'cubic'").scenario;
        let ecn = point("", "ecn = true", "cc = 'cubic'").scenario;
        assert_eq!(applied(&cell, &ecn, limits(&cell)), None);
    }

    #[test]
    fn settings_are_those_of_the_hosts() {
        let host = point("", "sndbuf = '8KiB'\nrcvbuf = '6MiB'", "cc = 'cubic'").scenario.host;
        let (b, settings) = (Bytes::new, settings(&host));
        assert_eq!(settings.tcp_wmem, Some([b(4_096), b(8_192), b(8_192)]));
        assert_eq!(settings.tcp_rmem, Some([b(4_096), b(131_072), Bytes::from_mib(6)]));
    }

    fn mbit(n: u64) -> Rate {
        Rate::from_bps(n * 1_000_000)
    }

    fn applied_remedy(title: &str) -> AppliedRemedy {
        AppliedRemedy { title: title.to_owned(), ..AppliedRemedy::default() }
    }

    fn rung(source: Source, remedy: Option<&str>, scenario: Option<Scenario>) -> Rung {
        Rung {
            steady: Some(mbit(8)),
            remedies: RungRemedies(remedy.map(applied_remedy).into_iter().collect()),
            scenario,
            ..Rung::new(Limit::Cwnd, "a limit", mbit(7), source)
        }
    }

    /// The fit predicts the first rung, for the period that the fit compares; the last rung, the link, has no
    /// run.
    #[test]
    fn a_log_and_its_rungs_become_steps() {
        let cell = point("", "", "cc = 'cubic'");
        let run = || Some(cell.scenario.clone());
        let ladder = vec![
            rung(Source::Measured, None, run()),
            rung(Source::Simulated, Some("a remedy"), run()),
            rung(Source::Given, None, None),
        ];
        let fit = Fit { log: mbit(7), mean: mbit(6), low: mbit(5), high: mbit(9), ..Fit::default() };
        let mut diagnosis = Diagnosis { ladder, fit: Some(fit), ..Diagnosis::default() };
        let steps = |diagnosis: &Diagnosis| {
            steps(&cell, diagnosis, |_, run| Ok::<_, ()>(run.clone())).expect("steps")
        };
        let seconds = |step: &Step| step.point.scenario.duration;
        diagnosis.path.mean = mbit(7);
        let whole = steps(&diagnosis);
        assert_eq!(whole.len(), 2);
        assert_eq!((whole[0].period, seconds(&whole[0])), (Period::Whole, Duration::from_secs(10)));
        assert_eq!((whole[0].rung.steady, whole[0].rung.low), (Some(mbit(6)), Some(mbit(5))));
        assert_eq!((whole[1].period, seconds(&whole[1])), (Period::SecondHalf, Duration::from_secs(20)));
        assert_eq!(whole[1].point.label, format!("{}, then a remedy", cell.label));
        diagnosis.path.mean = mbit(9);
        let second = steps(&diagnosis);
        assert_eq!((second[0].period, seconds(&second[0])), (Period::SecondHalf, Duration::from_secs(20)));
        diagnosis.fit = None;
        assert_eq!(steps(&diagnosis).len(), 1, "a log without a fit is no prediction");
    }
}
