//! Option by which an application limits its own rate, such as curl's `--limit-rate`.
//!
//! A socket shows only that its application offers no more data, or reads no faster. The command line
//! of the application shows why.

use fullpipe_measurement::classify::Limit;
use std::fmt;

use super::{Facts, Findings};

/// Programs that can limit the rate of their transfers, with the option for it.
const OPTIONS: [(&str, &str); 5] = [
    ("curl", "--limit-rate"),
    ("wget", "--limit-rate"),
    ("rsync", "--bwlimit"),
    ("scp", "-l"),
    ("sftp", "-l"),
];

/// Option by which a running application limits its own rate, as on its command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateOption {
    program: &'static str,
    option: &'static str,
    value: String,
}

impl RateOption {
    /// Finds the option in the arguments of a process, the first of which is its program. Returns `None` if
    /// the program has no known option of this kind, or was started without it.
    pub fn in_command_line(arguments: &[String]) -> Option<Self> {
        let (path, arguments) = arguments.split_first()?;
        let name = path.rsplit('/').next()?;
        let (program, option) = OPTIONS.into_iter().find(|(program, _)| *program == name)?;
        let value_at = |nth: usize| {
            let attached = arguments[nth].strip_prefix(option)?;
            if attached.is_empty() {
                return arguments.get(nth + 1).map(String::as_str);
            }
            // The value of a short option follows without an equals sign.
            let of_short = Some(attached).filter(|_| !option.starts_with("--"));
            attached.strip_prefix('=').or(of_short)
        };
        // If the option occurs more than once, the last one counts.
        let value = (0..arguments.len()).rev().find_map(value_at).filter(|value| is_limit(value))?;
        Some(Self { program, option, value: value.into() })
    }

    /// Returns the name of the program.
    pub const fn program(&self) -> &'static str {
        self.program
    }
}

impl fmt::Display for RateOption {
    /// Writes the option with its value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.option, self.value)
    }
}

/// Returns whether the value of an option is a rate above zero. Zero means "not limited" for these programs.
fn is_limit(value: &str) -> bool {
    let is_number = value.starts_with(|first: char| first.is_ascii_digit());
    let is_plain = value.chars().all(|char| char.is_ascii_alphanumeric() || char == '.');
    is_number && is_plain && value.chars().any(|char| matches!(char, '1'..='9'))
}

impl<'a> Facts<'a> {
    /// Returns the option by which the sampled application limits its rate, if the option explains `limit`. A
    /// sending application then offers no more, and a receiving one reads no faster.
    pub(crate) fn rate_option(&self, limit: Limit) -> Option<&'a RateOption> {
        let explained = if self.made_by_sender() { Limit::App } else { Limit::ReceiverApp };
        self.hosts.rate_option.as_ref().filter(|_| limit == explained)
    }
}

/// Adds the application's own option to the findings that it explains.
pub(super) fn name_option(facts: &Facts<'_>, findings: &mut Findings) {
    for finding in &mut findings.findings {
        let Some(option) = facts.rate_option(finding.limit) else { continue };
        let program = option.program();
        finding.evidence.insert(0, format!("{program} runs with {option}, which limits its own rate"));
        finding.next_test = Some(format!("run {program} without {option}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> Option<String> {
        let arguments: Vec<String> = line.split(' ').map(String::from).collect();
        RateOption::in_command_line(&arguments).map(|found| format!("{}: {found}", found.program()))
    }

    #[test]
    fn the_option_of_a_known_program_is_found() {
        for (line, expected) in [
            ("curl --limit-rate 200K -O https://example.com/f", "curl: --limit-rate 200K"),
            ("/usr/bin/wget --limit-rate=1.5m https://example.com/f", "wget: --limit-rate 1.5m"),
            ("rsync -a --bwlimit=800 f host:", "rsync: --bwlimit 800"),
            ("rsync --bwlimit 800 f host:", "rsync: --bwlimit 800"),
            ("scp -l 800 f host:", "scp: -l 800"),
            ("sftp -l800 host", "sftp: -l 800"),
            ("curl --limit-rate 1M --limit-rate 2M f", "curl: --limit-rate 2M"),
        ] {
            assert_eq!(found(line).as_deref(), Some(expected), "{line}");
        }
    }

    #[test]
    fn other_programs_and_values_have_no_limit() {
        for line in [
            "",
            "curl",
            "curl -O https://example.com/f",
            "curl --limit-rate",
            "curl --limit-rates 200K",
            "curl --limit-rate 0",
            "curl --limit-rate 1M --limit-rate 0 f",
            "rsync --bwlimit=0.0 f host:",
            "scp -l \u{1b}[31m f host:",
            "ls -l 800",
            "mycurl --limit-rate 200K",
        ] {
            assert_eq!(found(line), None, "{line}");
        }
        assert_eq!(RateOption::in_command_line(&[]), None);
    }
}
