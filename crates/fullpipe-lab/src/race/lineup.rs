//! The arms of a race, with the settings that the experiment gives them.

use std::collections::btree_map::Entry;

use fullpipe_tcp::cc::Algorithm;

use crate::arm::{Arm, ArmSettings, LAUNCH_WINDOW};
use crate::experiment::{Experiment, ExperimentError, missing_profile};
use crate::profile::{Profile, Profiles};
use crate::scenario::Scenario;

/// Arms of a race and their settings.
#[derive(Clone, Debug)]
pub(super) struct Lineup {
    pub(super) arms: Vec<Arm>,
    /// Arm with which the other arms are compared.
    pub(super) against: Arm,
    /// Profiles of the experiment, and the built-in profiles that arms name.
    pub(super) profiles: Profiles,
    launch: SurgeLaunch,
}

/// Launch window of surge in a race. It is also the initial window of the arms `NAME+iw`, so that the comparison of
/// such an arm with surge shows the effect of everything except the initial window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SurgeLaunch {
    /// Surge has the settings of the scenario.
    OfScenario,
    /// Surge has a profile with this window in segments, or is not in the race and would have this window.
    Segments(u32),
}

impl Lineup {
    /// Checks the arms and collects their profiles.
    pub(super) fn new(experiment: &Experiment, arms: &[Arm], against: Arm) -> Result<Self, ExperimentError> {
        check(arms, against)?;
        let mut profiles = experiment.profiles().clone();
        for name in arms.iter().filter_map(|arm| arm.profile) {
            if let Entry::Vacant(entry) = profiles.entry(name) {
                entry.insert(Profile::built_in(name).ok_or_else(|| missing_profile(name))?);
            }
        }
        let launch = surge_launch(arms, &profiles)?;
        Ok(Self { arms: arms.into(), against, profiles, launch })
    }

    /// Returns the settings of `arm` for a run of `scenario`.
    pub(super) fn settings(&self, arm: Arm, scenario: &Scenario) -> ArmSettings {
        ArmSettings {
            profile: arm.profile.and_then(|name| self.profiles.get(&name)).copied(),
            window: arm.launch.then(|| self.launch_window(scenario)),
        }
    }

    /// Returns the launch window of surge in `scenario`, in segments.
    pub(super) fn launch_window(&self, scenario: &Scenario) -> u32 {
        match self.launch {
            SurgeLaunch::Segments(window) => window,
            SurgeLaunch::OfScenario => {
                let profile = scenario.flows.first().and_then(|flow| flow.profile);
                let of_profile = profile.map(|profile| profile.launch.window);
                of_profile.or(scenario.host.initcwnd).unwrap_or(LAUNCH_WINDOW)
            }
        }
    }
}

/// Checks whether `arms` can be compared with the arm `against`.
pub(super) fn check(arms: &[Arm], against: Arm) -> Result<(), ExperimentError> {
    if let Some((_, twice)) = arms.iter().enumerate().find(|(i, arm)| arms[..*i].contains(arm)) {
        return Err(ExperimentError::new(
            format!("the arm {twice} is listed twice"),
            "list each arm once; bbr is another name of bbr1",
        ));
    }
    if !arms.contains(&against) {
        let known: Vec<_> = arms.iter().map(Arm::to_string).collect();
        return Err(ExperimentError::new(
            format!("the arm {against} is not in the race"),
            format!("compare with one of the arms: {}", known.join(", ")),
        ));
    }
    if arms.len() < 2 {
        return Err(ExperimentError::new("a race needs at least two arms", "add an arm, such as bbr1"));
    }
    Ok(())
}

/// Returns the launch window of surge in a race of `arms`.
///
/// # Errors
/// Returns an error if it is ambiguous: an arm `NAME+iw` is in the race, and surge only has profiles with different
/// windows.
fn surge_launch(arms: &[Arm], profiles: &Profiles) -> Result<SurgeLaunch, ExperimentError> {
    let mut of_profiles = Vec::new();
    for arm in arms.iter().filter(|arm| arm.cc == Algorithm::Surge && !arm.launch) {
        match arm.profile.and_then(|name| profiles.get(&name)) {
            None => return Ok(SurgeLaunch::OfScenario),
            Some(profile) => of_profiles.push((*arm, profile.launch.window)),
        }
    }
    let Some(&(first, window)) = of_profiles.first() else {
        return Ok(SurgeLaunch::Segments(LAUNCH_WINDOW));
    };
    let other = of_profiles.iter().find(|(_, other)| *other != window);
    if let (Some((other, segments)), Some(iw)) = (other, arms.iter().find(|arm| arm.launch)) {
        return Err(ExperimentError::new(
            format!(
                "the initial window of {iw} is ambiguous: {first} launches {window} segments, and {other} \
                 launches {segments}"
            ),
            format!("run one race for each profile, or remove {iw}"),
        ));
    }
    Ok(SurgeLaunch::Segments(window))
}
