//! `fullpipe tune --verify`: prints the measured rates, and offers to roll back changes without a gain.

use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::process::ExitCode;

use fullpipe::tune::{AppliedChanges, Verdict, VerifyResult, rollback};
use fullpipe::units::Rate;

use super::ApplyContext;
use super::state::{options, taken_back_text};
use crate::failure::{EXPECTATION, Failure};
use crate::output;

pub(super) fn code(verified: &VerifyResult) -> ExitCode {
    if is_gain(verified) { ExitCode::SUCCESS } else { ExitCode::from(EXPECTATION) }
}

pub(super) fn is_gain(verified: &VerifyResult) -> bool {
    verified.verdict == Verdict::Gain
}

pub(super) fn text(verified: &VerifyResult) -> String {
    let list = |rates: &[u64]| {
        rates.iter().map(|rate| Rate::from_bps(*rate).to_string()).collect::<Vec<_>>().join(", ")
    };
    let mut text = format!("\nVerified: {}\n", verified.verdict);
    let _ = writeln!(text, "  before: {}", list(&verified.before_bps));
    let _ = writeln!(text, "  after:  {}", list(&verified.after_bps));
    text
}
/// Offers to roll back changes without a gain. On a terminal, the user is asked whether to roll back now.
/// Without a terminal or without an answer, the changes stay on trial until the deadline, if there is
/// one.
pub(super) fn offer(doing: &ApplyContext<'_>, applied: Option<&AppliedChanges>) -> Result<(), Failure> {
    let options = options(&doing.args.place);
    let left = applied.and_then(|applied| applied.revert_after);
    let by_itself = left.map(|left| format!(" (otherwise, they are reverted in {left})")).unwrap_or_default();
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return output::print(&format!(
            "Without a gain, there is no reason to keep the changes. To revert them now: fullpipe tune \
             rollback{options}{by_itself}.\n"
        ));
    }
    eprint!("Without a gain, there is no reason to keep the changes. Revert them now{by_itself}? [y/N] ");
    let mut answer = String::new();
    // Without an answer, or after a read error, the text is empty, which is treated as "no".
    let _ = io::stdin().read_line(&mut answer);
    if !matches!(answer.trim(), "y" | "Y" | "yes") {
        return output::print(&format!(
            "The changes are still on trial. To revert them now: fullpipe tune \
                                       rollback{options}{by_itself}\n"
        ));
    }
    match rollback(doing.place, false)? {
        Some(taken_back) => output::print(&taken_back_text(&taken_back)),
        None => output::print("The changes were already reverted.\n"),
    }
}
