//! `fullpipe race`: compares senders by their download times, and prints one table per compared arm.

use std::process::ExitCode;

use fullpipe::lab::experiment::{Experiment, ExperimentError};
use fullpipe::race::{
    self, Arm, HarmPlan, HarmTable, RacePlan, RaceTable, UnknownArm, UnknownVictim, Victim,
};
use fullpipe::report::html::render_race;

use crate::args::{Format, RaceArgs, World};
use crate::failure::{EXPECTATION, Failure, INTERRUPTED, USAGE};
use crate::output::{self, Notes};
use crate::suggestion::nearest_name;

/// Default arms of a race.
const ARMS: &str = "cubic,bbr1,bbr1+iw,surge";
/// Default arms of a race that measures harm.
const HARM_ARMS: &str = "bbr1,surge";
const PROGRESS: &str = "racing {bar:30} {pos}/{len} pairs";
const HARM_PROGRESS: &str = "measuring harm {bar:30} {pos}/{len} seeds";

pub(crate) fn race(args: &RaceArgs) -> Result<ExitCode, Failure> {
    if args.harm {
        return harm(args);
    }
    let plan = plan(args)?;
    if args.check && plan.bounds().is_empty() {
        return Err(no_bound("[[ratio]]"));
    }
    if let Some(path) = &args.html {
        output::check_html(path)?;
    }
    let out = args.out.as_deref();
    let report = match args.world {
        World::Sim => {
            output::with_interruptible_bar(PROGRESS, |observer| fullpipe::race(&plan, out, observer))
        }
        World::Emu => {
            // The race is prepared before the progress bar is shown, because acquiring privileges may require
            // a single-threaded process.
            let prepared = race::prepare(&plan, &Notes)?;
            output::with_interruptible_bar(PROGRESS, |observer| prepared.run(out, observer))
        }
    }?;
    if let Some(path) = &args.html {
        output::write_html(path, |made| Ok::<_, fullpipe::Error>(render_race(&report, made)))?;
    }
    match args.output.format() {
        Format::Json => output::print(&output::json(&report)?)?,
        Format::Text => output::print(&RaceTable { report: &report }.to_string())?,
    }
    Ok(verdict(args, report.interrupted, report.failed()))
}

/// Runs a race that measures the harm that senders cause to other flows.
fn harm(args: &RaceArgs) -> Result<ExitCode, Failure> {
    let emulated = args.world == World::Emu;
    if emulated && args.full {
        return Err(Failure::usage(
            "the emulator would take days for the 525 cells of --harm --full",
            "remove --full, or choose cells with --paths",
        ));
    }
    let victims = match &args.victims {
        None => Victim::ALL.to_vec(),
        Some(names) => names.split(',').map(|name| victim(name.trim())).collect::<Result<Vec<_>, _>>()?,
    };
    if let Some((_, twice)) = victims.iter().enumerate().find(|(i, victim)| victims[..*i].contains(victim)) {
        let message = format!("the victim {} is listed twice", twice.name());
        return Err(Failure::usage(message, "list each victim once"));
    }
    let (arms, against) = arms(args, HARM_ARMS)?;
    let experiment =
        experiment(args, if args.full || emulated { race::HARM_FULL } else { race::HARM_QUICK })?;
    let experiment = match (emulated, &args.paths, args.pairs) {
        (true, None, None) => experiment.with_repeat(race::EMULATED_SEEDS),
        _ => experiment,
    };
    let plan = HarmPlan::new(&experiment, &arms, against, &victims).map_err(|error| about(args, error))?;
    let plan = match (emulated, &args.paths) {
        (true, None) => race::emulated_cells(plan)?,
        (true, Some(_)) => plan.with_requests(),
        (false, _) => plan,
    };
    if args.check && plan.bounds().is_empty() {
        return Err(no_bound("[[harm]]"));
    }
    let out = args.out.as_deref();
    let report = match args.world {
        World::Sim => {
            output::with_interruptible_bar(HARM_PROGRESS, |observer| race::harm(&plan, out, observer))
        }
        World::Emu => {
            // As for other races, privileges are acquired before the progress bar starts a thread.
            let prepared = race::prepare_harm(&plan, &Notes)?;
            output::with_interruptible_bar(HARM_PROGRESS, |observer| prepared.run(out, observer))
        }
    }?;
    match args.output.format() {
        Format::Json => output::print(&output::json(&report)?)?,
        Format::Text => output::print(&HarmTable { report: &report }.to_string())?,
    }
    Ok(verdict(args, report.interrupted, report.failed()))
}

fn no_bound(table: &str) -> Failure {
    Failure::new(
        format!("--check requires a {table} for the arms of this race, but there is none"),
        format!("add a {table} to the --paths file, or remove --check"),
    )
}

/// Returns the exit code of a race with `failed` violated bounds. An interrupted race also prints how to continue.
fn verdict(args: &RaceArgs, interrupted: bool, failed: usize) -> ExitCode {
    if interrupted {
        let kept = if args.out.is_some() { "; the same command makes only the missing runs" } else { "" };
        eprintln!("interrupted: some runs are missing{kept}");
        return ExitCode::from(INTERRUPTED);
    }
    if args.check && failed > 0 { ExitCode::from(EXPECTATION) } else { ExitCode::SUCCESS }
}

/// Returns the plan of the race: the cells, arms and pairs that the options select.
fn plan(args: &RaceArgs) -> Result<RacePlan, Failure> {
    let (arms, against) = arms(args, ARMS)?;
    let experiment = experiment(args, if args.full { race::FULL } else { race::QUICK })?;
    let plan = RacePlan::new(&experiment, &arms, against).map_err(|error| about(args, error))?;
    let emulated = args.world == World::Emu;
    let plan = if emulated && args.paths.is_none() { plan.without_simulated_cells() } else { plan };
    Ok(match args.pairs {
        Some(pairs) => plan.with_pairs(pairs),
        None if emulated => plan.in_real_time(),
        None => plan,
    })
}

/// Returns the arms of the race, and the arm with which the others are compared.
fn arms(args: &RaceArgs, default: &str) -> Result<(Vec<Arm>, Arm), Failure> {
    let names = args.arms.as_deref().unwrap_or(default);
    let arms = names.split(',').map(|name| arm(name.trim())).collect::<Result<Vec<_>, _>>()?;
    let against = match &args.against {
        Some(name) => arm(name)?,
        None => {
            let bbr1 = arm("bbr1")?;
            *arms.iter().find(|arm| **arm == bbr1).unwrap_or(&arms[0])
        }
    };
    RacePlan::check_arms(&arms, against).map_err(|error| Failure::from(error).exiting(USAGE))?;
    Ok((arms, against))
}

/// Returns the experiment whose points are the cells of the race: `default`, unless the options name a file.
fn experiment(args: &RaceArgs, default: &str) -> Result<Experiment, Failure> {
    let experiment = match &args.paths {
        Some(path) => race::read(path)?,
        None => Experiment::from_toml(default)?,
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
    // The result of a race for harm is a few figures per run, however many flows compete.
    if args.harm {
        experiment.check_runs()?;
    } else {
        experiment.check_size()?;
    }
    Ok(experiment)
}

/// Converts an error about an experiment that cannot be run as a race into a failure.
fn about(args: &RaceArgs, error: ExperimentError) -> Failure {
    match &args.paths {
        Some(path) => Failure::from(error).about(path.display()),
        None => error.into(),
    }
}

fn victim(name: &str) -> Result<Victim, Failure> {
    name.parse().map_err(|error: UnknownVictim| {
        let names = Victim::ALL.into_iter().map(Victim::name);
        let nearest = nearest_name(&name.to_ascii_lowercase(), names);
        let nearest = nearest.map_or_else(String::new, |name| format!("did you mean {name}? "));
        Failure::usage(error.to_string(), nearest + Victim::KNOWN)
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
