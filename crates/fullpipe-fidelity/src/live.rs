//! Classifies live measurements: runs `fullpipe iperf3 -c` against iperf3's own server, across the path of
//! each situation.
//!
//! ```text
//!   fullpipe iperf3 -c ─► limit_seconds ─► the limit of most time ─► right or wrong
//! ```
//!
//! The receiver is not sampled. At the sender, a window that is small because of the receive buffer and one
//! that is small because of a slow application differ only in their development over time. Runs in which the
//! classifier mistakes one for the other are counted separately.

use std::fs;
use std::path::Path;

use fullpipe::Limit;
use fullpipe::lab::experiment::{Experiment, Point};
use fullpipe::linux::rights;
use fullpipe_fidelity::classifier_validation::{self, NamedLimit, Situation};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::args::FidelityArgs;
use crate::iperf3::{self, TestRun, cannot};
use crate::kernel::{keep, kept};
use crate::situations::expected;
use fullpipe::Error;

/// Required share of runs in which `fullpipe iperf3` reports the correct limit.
const ASKED: f64 = 0.9;
/// Name of the file that stores the live measurements.
const KEPT: &str = "live.jsonl";

/// A live measurement as stored in the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct LiveRecord {
    point: String,
    seed: u64,
    named: Option<NamedLimit>,
    /// Whether the machine was too busy to keep the timing of the emulated path.
    disturbed: bool,
}

/// Returns the table of situations, and whether `fullpipe iperf3` reports the correct limit often
/// enough.
pub(crate) fn table(experiment: &Experiment, args: &FidelityArgs) -> Result<(String, bool), Error> {
    let points = experiment.points();
    let expected = points.iter().map(expected).collect::<Result<Vec<_>, _>>()?;
    fs::create_dir_all(&args.out).map_err(|error| cannot("create", &args.out, &error))?;
    rights::acquire()?;
    let mut made: Vec<LiveRecord> = kept(&args.out.join(KEPT))?;
    for &seed in &experiment.seeds() {
        for point in points {
            if made.iter().any(|run| run.point == point.label && run.seed == seed) {
                continue;
            }
            let run = measured(point, seed, &args.out)?;
            eprintln!("seed {seed}, {}: {}", run.point, said(run.named));
            keep(&args.out.join(KEPT), &run)?;
            made.push(run);
        }
    }
    let of = |point: &Point| {
        let runs =
            made.iter().filter(|run| run.point == point.label && experiment.seeds().contains(&run.seed));
        runs.cloned().collect::<Vec<_>>()
    };
    let runs: Vec<Vec<LiveRecord>> = points.iter().map(of).collect();
    let situation = |((point, &expected), runs): ((_, _), &Vec<LiveRecord>)| {
        let named = runs.iter().filter_map(|run| run.named).collect();
        Situation { point, expected, named }
    };
    let situations: Vec<_> = points.iter().zip(&expected).zip(&runs).map(situation).collect();
    let all: Vec<&LiveRecord> = runs.iter().flatten().collect();
    let right: usize = situations.iter().map(Situation::right).sum();
    let either = |of: &Situation<'_>| {
        let other = other_of_one_end(of.expected);
        of.named.iter().filter(|named| Some(named.limit) == other).count()
    };
    let unseen: usize = situations.iter().map(either).sum();
    let disturbed = all.iter().filter(|run| run.disturbed).count();
    let share = right as f64 / all.len().max(1) as f64;
    let holds = share >= ASKED && !all.is_empty();
    let taken = match unseen {
        0 => String::new(),
        _ => format!(
            " In {unseen} of the other runs, a small receive buffer was mistaken for a slow reader, or the reverse; only the \
             receiver can tell the two apart."
        ),
    };
    let text = format!(
        "{} runs; `{}` makes this table.\n\n{}\nThe correct limit is reported in {right} of {} runs ({:.1} %). Target \
         {:.0} %: {}.{taken} In {disturbed} of the runs, the machine was too busy to keep the path's timing; these runs are \
         counted, too.\n",
        all.len(),
        crate::command("--situations --live ", args),
        classifier_validation::lines(&situations),
        all.len(),
        100.0 * share,
        100.0 * ASKED,
        if holds { "met" } else { "not met" },
    );
    Ok((text, holds))
}

/// Returns the limit that cannot be distinguished from `limit` if only the sender is sampled.
fn other_of_one_end(limit: Limit) -> Option<Limit> {
    match limit {
        Limit::Rwnd => Some(Limit::ReceiverApp),
        Limit::ReceiverApp => Some(Limit::Rwnd),
        _ => None,
    }
}

fn said(named: Option<NamedLimit>) -> String {
    named.map_or("nothing named".into(), |named| format!("{} {:.0} %", named.limit, 100.0 * named.share))
}

fn measured(point: &Point, seed: u64, dir: &Path) -> Result<LiveRecord, Error> {
    if point.scenario.flows.len() != 1 {
        return Err(Error::new("a situation must have one flow", "remove count"));
    }
    let link = format!("--link {}bit/s", point.scenario.path.forward.rate.as_bps());
    let TestRun { document, disturbed } = iperf3::run(point, seed, dir, &link)?;
    let document: Value = serde_json::from_str(&document)
        .map_err(|error| Error::new(format!("the client's document is not JSON: {error}"), ""))?;
    Ok(LiveRecord { point: point.label.clone(), seed, named: named(&document), disturbed })
}

/// Returns the limit that lasted longest, according to the client's JSON document.
fn named(document: &Value) -> Option<NamedLimit> {
    let seconds = document.pointer("/end/fullpipe/limit_seconds")?.as_object()?;
    let all: f64 = seconds.values().filter_map(Value::as_f64).sum();
    let (name, most) = seconds
        .iter()
        .filter_map(|(name, time)| Some((name, time.as_f64()?)))
        .max_by(|a, b| a.1.total_cmp(&b.1))?;
    let limit = Limit::ALL.into_iter().find(|limit| limit.name() == name)?;
    Some(NamedLimit { limit, share: most / all })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_limit_of_most_time_is_the_one_that_is_named() {
        let of = |seconds: Value| named(&json!({"end": {"fullpipe": {"limit_seconds": seconds}}}));
        let told = of(json!({"slow_start": 1.0, "rwnd": 3.0})).expect("named");
        assert!(told.limit == Limit::Rwnd && (told.share - 0.75).abs() < 1e-9, "{told:?}");
        assert_eq!((of(json!({})), named(&json!({"end": {}}))), (None, None));
    }
}
