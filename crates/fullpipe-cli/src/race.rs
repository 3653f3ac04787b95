//! `fullpipe race`: compares senders by the times of downloads, and prints one table per compared arm.

use std::process::ExitCode;

use fullpipe::lab::experiment::Experiment;
use fullpipe::race::{self, Arm, RacePlan, RaceTable, UnknownArm};
use fullpipe::report::html::render_race;

use crate::args::{Format, RaceArgs, World};
use crate::failure::{EXPECTATION, Failure, USAGE};
use crate::output::{self, Notes};
use crate::suggestion::nearest_name;

/// Arms of a race without `--arms`. Linux has no surge.
const SIMULATED_ARMS: &str = "cubic,bbr1,bbr1+iw,surge";
const KERNEL_ARMS: &str = "cubic,bbr1,bbr1+iw";
const PROGRESS: &str = "racing {bar:30} {pos}/{len} pairs";

pub(crate) fn race(args: &RaceArgs) -> Result<ExitCode, Failure> {
    let plan = plan(args)?;
    if args.check && plan.bounds().is_empty() {
        return Err(Failure::new(
            "--check requires a [[ratio]] for the arms of this race, and there is none",
            "add a [[ratio]] to the file of --paths, or remove --check",
        ));
    }
    if let Some(path) = &args.html {
        output::check_html(path)?;
    }
    let out = args.out.as_deref();
    let report = match args.world {
        World::Sim => output::with_bar(PROGRESS, |observer| fullpipe::race(&plan, out, observer)),
        World::Emu => {
            // The race is prepared before the progress bar is shown, because acquiring privileges may require
            // a single-threaded process.
            let prepared = race::prepare(&plan, &Notes)?;
            output::with_bar(PROGRESS, |observer| prepared.run(out, observer))
        }
    }?;
    if let Some(path) = &args.html {
        output::write_html(path, |made| Ok::<_, fullpipe::Error>(render_race(&report, made)))?;
    }
    match args.output.format() {
        Format::Json => output::print(&output::json(&report)?)?,
        Format::Text => output::print(&RaceTable { report: &report }.to_string())?,
    }
    let failed = args.check && report.failed() > 0;
    Ok(if failed { ExitCode::from(EXPECTATION) } else { ExitCode::SUCCESS })
}

/// Returns the plan of the race: the cells, arms and pairs that the options select.
fn plan(args: &RaceArgs) -> Result<RacePlan, Failure> {
    let arms = args.arms.as_deref().unwrap_or(match args.world {
        World::Sim => SIMULATED_ARMS,
        World::Emu => KERNEL_ARMS,
    });
    let arms = arms.split(',').map(|name| arm(name.trim())).collect::<Result<Vec<_>, _>>()?;
    let against = match &args.against {
        Some(name) => arm(name)?,
        None => {
            let bbr1 = arm("bbr1")?;
            *arms.iter().find(|arm| **arm == bbr1).unwrap_or(&arms[0])
        }
    };
    RacePlan::check_arms(&arms, against).map_err(|error| Failure::from(error).exiting(USAGE))?;
    let experiment = match &args.paths {
        Some(path) => race::read(path)?,
        None => Experiment::from_toml(if args.full { race::FULL } else { race::QUICK })?,
    };
    let experiment = match args.seed {
        Some(seed) => experiment.with_seed(seed),
        None => experiment,
    };
    let experiment = match args.pairs {
        Some(pairs) => experiment.with_repeat(pairs),
        None => experiment,
    };
    let experiment = match &args.profiles {
        Some(path) => experiment.with_profiles(race::read_profiles(path)?),
        None => experiment,
    };
    experiment.check_size()?;
    let plan = RacePlan::new(&experiment, &arms, against).map_err(|error| match &args.paths {
        Some(path) => Failure::from(error).about(path.display()),
        None => error.into(),
    })?;
    // In real time, 1000 pairs of each small download would take hours.
    let emulated = args.world == World::Emu;
    Ok(match args.pairs.or_else(|| emulated.then(|| experiment.seeds().len() as u64)) {
        Some(pairs) => plan.with_pairs(pairs),
        None => plan,
    })
}

fn arm(name: &str) -> Result<Arm, Failure> {
    name.parse().map_err(|error: UnknownArm| {
        let names: Vec<String> = Arm::all().map(|arm| arm.to_string()).collect();
        let nearest = nearest_name(&name.to_ascii_lowercase(), names.iter().map(String::as_str));
        let nearest = nearest.map_or_else(String::new, |name| format!("did you mean {name}? "));
        Failure::usage(error.to_string(), nearest + &error.hint())
    })
}
