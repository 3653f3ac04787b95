//! Logs that are built into the program, so that a new user can try a diagnosis without a file.

use std::process::ExitCode;

use clap::ValueEnum;
use fullpipe::input::Input;
use fullpipe::input::trace::Choice;
use fullpipe::{HostFacts, HostSettings, Look};

use crate::args::{DiagnoseArgs, Format};
use crate::diagnose::explained;
use crate::failure::Failure;
use crate::output;

/// A built-in log, with the settings of the host that wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Example {
    // These variants have no doc comments, because clap would then print the help as a long list.
    //
    // One CUBIC stream on a leased line, 1 Gbit/s and 210 ms: 69 Mbit/s
    Cubic,
    // The same log, diagnosed with the buffers that the author set afterwards
    CubicTuned,
    // One BBR stream on the same leased line: 102 Mbit/s
    Bbr,
}

impl Example {
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn log(self) -> &'static str {
        match self {
            Self::Cubic | Self::CubicTuned => include_str!("../assets/cubic.iperf3.txt"),
            Self::Bbr => include_str!("../assets/bbr.iperf3.txt"),
        }
    }

    fn sysctl(self) -> &'static str {
        match self {
            Self::Cubic | Self::Bbr => include_str!("../assets/sysctl-before.txt"),
            Self::CubicTuned => include_str!("../assets/sysctl-tuned.txt"),
        }
    }

    /// Returns the lines that follow the diagnosis: the command for the user's own log, and the names of the
    /// other examples.
    fn next_steps(self) -> String {
        let others: Vec<String> =
            Self::value_variants().iter().filter(|other| **other != self).map(|other| other.name()).collect();
        format!(
            "\nTo diagnose a transfer of your own, save the output of iperf3 on the sending host to LOG, and\n\
             the output of sysctl -a there to SYSCTL. Pass the rate of your link and the RTT of the idle path:\n  \
             fullpipe diagnose LOG --link {LINK} --rtt {RTT} --sysctl SYSCTL\n\
             Other examples: {}\n",
            others.join(", ")
        )
    }
}

/// Rate of the leased line, as written on the command line.
const LINK: &str = "1gbit";
/// Round-trip time of the idle leased line, measured with ping.
const RTT: &str = "210ms";

/// Diagnoses `example`. Command-line options take precedence over the facts that belong to the example.
pub(crate) fn diagnose(example: Example, mut args: DiagnoseArgs, look: Look) -> Result<ExitCode, Failure> {
    let name = format!("example {}", example.name());
    let input = Input::from_bytes(&name, example.log().as_bytes(), &Choice::default())?;
    args.link = args.link.or(LINK.parse().ok());
    args.rtt = args.rtt.or(RTT.parse().ok());
    let hosts = HostFacts { local: HostSettings::parse(example.sysctl()).ok(), ..HostFacts::default() };
    let done = explained(&args, look, &input.name, &input.measurement, hosts, args.sysctl.as_deref(), None)?;
    if args.output.format() == Format::Text {
        output::print(&example.next_steps())?;
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each example has both a log and settings, so that no diagnosis silently lacks the settings.
    #[test]
    fn every_example_has_a_log_and_settings() {
        for example in Example::value_variants() {
            let name = example.name();
            let input = Input::from_bytes(&name, example.log().as_bytes(), &Choice::default());
            assert!(input.is_ok(), "{name}: {input:?}");
            assert!(HostSettings::parse(example.sysctl()).is_ok(), "{name}");
        }
    }
}
