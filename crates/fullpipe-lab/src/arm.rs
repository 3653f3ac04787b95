//! Arms of a race: the senders that the race compares on identical paths and hosts, with identical seeds.
//!
//! | name | sender |
//! |---|---|
//! | `bbr1` | a congestion control, with the initial window of the scenario |
//! | `bbr1+iw` | the same with the initial window that surge has: [`LAUNCH_WINDOW`] segments without a profile |
//! | `bbr1+web` | the same with the settings of the profile `web` ([`crate::profile`]) |
//! | `tcpa` | `bbr1` with the settings of TCPA, which are part of the program |

use std::fmt;
use std::str::FromStr;

use fullpipe_tcp::cc::{Algorithm, Launch};

use crate::profile::{Profile, ProfileName};
use crate::scenario::{FlowSpec, Scenario};

/// Launch window of surge in segments, if neither a profile nor the host sets another one. It is also the initial window
/// of `NAME+iw`.
pub const LAUNCH_WINDOW: u32 = Launch::DEFAULT.window;

/// Suffix in the name of an arm whose initial window is that of surge.
const WITH_LAUNCH: &str = "iw";

/// Name of the arm with the settings of TCPA, and of its profile.
const TCPA: &str = "tcpa";

/// One of the senders that a race compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arm {
    /// Congestion control of the sender.
    pub cc: Algorithm,
    /// Whether the initial congestion window is the one that surge has in the same race. Otherwise, it is that of the
    /// scenario or the profile.
    pub launch: bool,
    /// Name of the profile of the sender; `None` for the settings of the scenario.
    pub profile: Option<ProfileName>,
}

/// Settings of an arm that its name does not contain.
#[derive(Clone, Copy, Debug, Default)]
pub struct ArmSettings {
    /// Profile that the arm names.
    pub profile: Option<Profile>,
    /// Initial window in segments, if the arm has that of surge.
    pub window: Option<u32>,
}

impl Arm {
    /// Returns the arms of all congestion controls without a profile, first without and then with the launch
    /// window.
    pub fn all() -> impl Iterator<Item = Self> {
        let with = |launch| Algorithm::ALL.into_iter().map(move |cc| Self { cc, launch, profile: None });
        with(false).chain(with(true))
    }

    /// Returns `scenario` with this sender for every flow.
    #[must_use]
    pub fn applied(self, scenario: &Scenario, settings: &ArmSettings) -> Scenario {
        let mut scenario = scenario.clone();
        for flow in &mut scenario.flows {
            *flow = self.applied_to(flow, settings);
        }
        // The emulator can set the initial window only on the route, where it applies to all flows.
        scenario.host.initcwnd = settings.window.or(scenario.host.initcwnd);
        scenario
    }

    /// Returns `flow` with this sender, but without its initial window, because that is a setting of the
    /// host. If the flow has a profile of the experiment, the window of the profile would replace that of the host, so
    /// the profile gets the window too.
    fn applied_to(self, flow: &FlowSpec, settings: &ArmSettings) -> FlowSpec {
        let mut profile = settings.profile.or(flow.profile);
        if let (Some(profile), Some(window)) = (&mut profile, settings.window) {
            profile.launch.window = window;
        }
        FlowSpec { cc: self.cc.into(), profile, ..flow.clone() }
    }

    /// Returns `flow` with this sender, including its initial window. Other flows of the host are not affected.
    #[must_use]
    pub fn applied_to_one(self, flow: &FlowSpec, settings: &ArmSettings) -> FlowSpec {
        FlowSpec { initcwnd: settings.window, ..self.applied_to(flow, settings) }
    }
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.cc.name();
        match (&self.profile, self.launch) {
            (Some(profile), _) if self.cc == Algorithm::Bbr1 && profile.as_str() == TCPA => f.pad(TCPA),
            (Some(profile), _) => f.pad(&format!("{name}+{profile}")),
            (None, true) => f.pad(&format!("{name}+{WITH_LAUNCH}")),
            (None, false) => f.pad(name),
        }
    }
}

/// Error for a string that does not name an arm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownArm(String);

impl UnknownArm {
    /// Returns a one-line hint that lists the known names.
    pub fn hint(&self) -> String {
        format!(
            "{}; NAME+{WITH_LAUNCH} has the initial window of surge, {LAUNCH_WINDOW} segments without a profile, \
             NAME+PROFILE has the settings of a profile, and {TCPA} is short for bbr1+{TCPA}",
            Algorithm::KNOWN
        )
    }
}

impl fmt::Display for UnknownArm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown arm '{}'", self.0)
    }
}

impl std::error::Error for UnknownArm {}

impl FromStr for Arm {
    type Err = UnknownArm;

    fn from_str(text: &str) -> Result<Self, UnknownArm> {
        let unknown = || UnknownArm(text.into());
        let text = if text == TCPA { "bbr1+tcpa" } else { text };
        let (name, suffix) = text.split_once('+').map_or((text, None), |(name, suffix)| (name, Some(suffix)));
        let cc = name.parse().map_err(|_| unknown())?;
        let plain = Self { cc, launch: false, profile: None };
        match suffix {
            None => Ok(plain),
            Some(WITH_LAUNCH) => Ok(Self { launch: true, ..plain }),
            Some(profile) => {
                let profile = profile.parse().map_err(|_| unknown())?;
                Ok(Self { profile: Some(profile), ..plain })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_arm_answers_to_its_name() {
        for arm in Arm::all() {
            assert_eq!(arm.to_string().parse(), Ok(arm));
        }
        assert_eq!(Arm::all().count(), 2 * Algorithm::ALL.len());
        let iw = Arm { cc: Algorithm::Bbr1, launch: true, profile: None };
        assert_eq!(("bbr+iw".parse(), iw.to_string().as_str()), (Ok(iw), "bbr1+iw"), "the kernel's name");
        let web = Arm { launch: false, profile: Some("web".parse().expect("a name")), ..iw };
        assert_eq!(("bbr+web".parse(), web.to_string().as_str()), (Ok(web), "bbr1+web"));
        let tcpa = Arm { launch: false, profile: Some("tcpa".parse().expect("a name")), ..iw };
        assert_eq!(
            ("tcpa".parse(), "bbr+tcpa".parse(), tcpa.to_string().as_str()),
            (Ok(tcpa), Ok(tcpa), "tcpa")
        );
        for name in ["", "+iw", "bbr1+iw+iw", "bbr9", "bbr1 ", "bbr1+", "bbr1+IW", "bbr9+web"] {
            let error = name.parse::<Arm>().expect_err(name);
            assert_eq!(error.to_string(), format!("unknown arm '{name}'"));
        }
    }
}
