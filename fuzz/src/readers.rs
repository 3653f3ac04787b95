//! Fuzz targets for inputs that people pass to fullpipe: logs, captures, socket dumps, settings, traces and
//! experiments.
//!
//! A reader accepts any bytes. It returns values, for which findings can be computed, or an error with a message
//! and a hint of one line each.

use fullpipe::input::sysctl::HostSettings;
use fullpipe::input::trace::Choice;
use fullpipe::input::{InputError, decode};
use fullpipe::lab::cost::RunCost;
use fullpipe::lab::experiment::{Experiment, ExperimentError};
use fullpipe::{Error, HostFacts, Input, PathFacts, explain};

/// Longest input that is read; longer ones show nothing new.
const LONGEST: usize = 1 << 16;

fn one_line(message: &str, hint: &str) {
    assert!(!message.is_empty(), "an error without a message");
    assert!(!message.contains('\n') && !hint.contains('\n'), "more than one line: {message:?} {hint:?}");
}

/// Reads an input of any kind that `diagnose` accepts, and computes its findings with and without a known path.
pub fn input(data: &[u8]) {
    let data = &data[..data.len().min(LONGEST)];
    let input = match Input::from_bytes("input", data, &Choice::default()) {
        Ok(input) => input,
        Err(Error { message, hint, .. }) => return one_line(&message, &hint),
    };
    let known = PathFacts { link: "1gbit".parse().ok(), rtt: "100ms".parse().ok(), ..PathFacts::default() };
    for path in [PathFacts::default(), known] {
        match explain(&input.measurement, &path, &HostFacts::default()) {
            Ok(explanation) => drop(format!("{:?}", explanation.findings())),
            Err(Error { message, hint, .. }) => one_line(&message, &hint),
        }
    }
}

/// Reads `sysctl -a`.
pub fn sysctl(data: &[u8]) {
    let text = decode(&data[..data.len().min(LONGEST)]);
    match HostSettings::parse(&text) {
        Ok(settings) => drop((settings.window_rule(None), settings.lacks_congestion_control("bbr"))),
        Err(InputError { message, hint }) => one_line(&message, &hint),
    }
}

/// Reads an experiment. The text after a NUL is the file of its traces.
pub fn experiment(data: &[u8]) {
    let text = decode(&data[..data.len().min(LONGEST)]);
    let (text, trace) = text.split_once('\0').unwrap_or((&text, "1\n2\n5\n"));
    // Thousands of points are read in the same way as one point, but take longer.
    if text.matches("steps").count() > 2 {
        return;
    }
    let read = Experiment::from_toml_with(text, &|_| Ok(trace.to_owned()));
    let checked = read.and_then(|experiment| experiment.check_size().map(|()| experiment));
    match checked {
        Ok(experiment) => {
            assert!(!experiment.points().is_empty() && experiment.runs() > 0);
            for point in experiment.points() {
                let cost = RunCost::of(&point.scenario, true).packets();
                assert!(cost.is_finite() && cost >= 0.0, "{cost} for {}", point.label);
            }
        }
        Err(ExperimentError { message, hint }) => one_line(&message, &hint),
    }
}
