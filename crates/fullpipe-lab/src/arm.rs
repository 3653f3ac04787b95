//! Arms of a race: the senders that are compared with identical paths, hosts and seeds.

use std::fmt;
use std::str::FromStr;

use fullpipe_tcp::cc::Algorithm;

use crate::scenario::Scenario;

/// Launch window of `NAME+iw`, in segments: the initial window that several content delivery networks used
/// in 2017 (cdnplanet, "Initcwnd settings of major CDN providers": 44 to 46 segments), and the largest number
/// of full segments (1448 bytes) below 64 000 bytes. A Linux client first offers a window of 65 160 bytes, so
/// a larger launch window would gain little.
pub const LAUNCH_WINDOW: u32 = 44;

/// Suffix of the name of an arm that starts with [`LAUNCH_WINDOW`].
const WITH_LAUNCH: &str = "+iw";

/// One of the senders that a race compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arm {
    /// Congestion control of the sender.
    pub cc: Algorithm,
    /// Initial congestion window in segments; `None` for the window of the scenario.
    pub launch: Option<u32>,
}

impl Arm {
    /// Returns the arms of all congestion controls, first without and then with the launch window.
    pub fn all() -> impl Iterator<Item = Self> {
        let with = |launch| Algorithm::ALL.into_iter().map(move |cc| Self { cc, launch });
        with(None).chain(with(Some(LAUNCH_WINDOW)))
    }

    /// Returns `scenario` with this sender for every flow.
    #[must_use]
    pub fn applied(self, scenario: &Scenario) -> Scenario {
        let mut scenario = scenario.clone();
        scenario.flows.iter_mut().for_each(|flow| flow.cc = self.cc);
        scenario.host.initcwnd = self.launch.or(scenario.host.initcwnd);
        scenario
    }
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let launch = if self.launch.is_some() { WITH_LAUNCH } else { "" };
        f.pad(&format!("{}{launch}", self.cc.name()))
    }
}

/// Error for a name that is not the name of an arm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownArm(String);

impl UnknownArm {
    /// Returns a hint that lists the known names; one line.
    pub fn hint(&self) -> String {
        format!("{}; NAME{WITH_LAUNCH} starts with a window of {LAUNCH_WINDOW} segments", Algorithm::KNOWN)
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
        let (name, launch) = match text.strip_suffix(WITH_LAUNCH) {
            Some(name) => (name, Some(LAUNCH_WINDOW)),
            None => (text, None),
        };
        let cc = name.parse().map_err(|_| UnknownArm(text.into()))?;
        Ok(Self { cc, launch })
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
        let iw = Arm { cc: Algorithm::Bbr1, launch: Some(44) };
        assert_eq!(("bbr+iw".parse(), iw.to_string().as_str()), (Ok(iw), "bbr1+iw"), "the kernel's name");
        for name in ["", "+iw", "bbr1+iw+iw", "bbr9", "bbr1 "] {
            let error = name.parse::<Arm>().expect_err(name);
            assert_eq!(error.to_string(), format!("unknown arm '{name}'"));
        }
    }
}
