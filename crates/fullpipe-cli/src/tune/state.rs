//! Displays, confirms and reverts the changes that were applied to a host.

use std::fmt::Write;
use std::process::ExitCode;

use fullpipe::tune::{
    self, AppliedChanges, Drift, Override, Phase, RouteChange, SettingChange, StatusReport, TakenBack,
};

use super::{place, settled};
use crate::args::{Format, PlaceArgs, RollbackArgs, StateArgs};
use crate::failure::Failure;
use crate::output;

/// Returns the command-line options that select the same target as `place`.
pub(super) fn options(place: &PlaceArgs) -> String {
    let mut text = String::new();
    if let Some(root) = &place.root {
        let _ = write!(text, " --root {}", root.display());
    }
    if let Some(netns) = &place.netns {
        let _ = write!(text, " --netns {netns}");
    }
    text
}

pub(super) fn applied_text(applied: &AppliedChanges, place: &PlaceArgs) -> String {
    let mut text = "\nApplied and verified by reading back:\n".to_owned();
    for SettingChange { key, former, value } in &applied.settings {
        let _ = writeln!(text, "  {key} = {value} (was {former})");
    }
    for RouteChange { former, route } in &applied.routes {
        let former = former.as_deref().unwrap_or("no host route");
        let _ = writeln!(text, "  ip route: {route} (was {former})");
    }
    let options = options(place);
    let _ = match applied.revert_after {
        Some(time) => {
            let timer = applied.timer.as_ref().map(|timer| format!(" (and by systemd, {timer})"));
            writeln!(
                text,
                "The changes are reverted in {time}{} unless you run: fullpipe tune confirm{options}\nTo \
                 revert them now: fullpipe tune rollback{options}",
                timer.unwrap_or_default()
            )
        }
        None => writeln!(text, "To revert the changes: fullpipe tune rollback{options}"),
    };
    text
}

pub(super) fn confirm(args: &StateArgs) -> Result<ExitCode, Failure> {
    let place = settled(&args.place)?;
    let confirmed = tune::confirm(&place)?;
    match args.output.format() {
        Format::Json => output::print(&output::json(&confirmed)?)?,
        Format::Text => {
            let file = place.owned().display();
            let changes = confirmed.changes;
            let many = if changes == 1 { "1 change is".into() } else { format!("{changes} changes are") };
            let overridden = overrides_text(&tune::status(&place)?.overrides);
            output::print(&format!("{many} permanent; {file} sets the values at every boot.\n{overridden}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn rollback(args: &RollbackArgs) -> Result<ExitCode, Failure> {
    // Unfinished work of earlier commands is not completed first, because the user may want to revert exactly
    // the expired or incomplete changes.
    let place = place(&args.place)?;
    let mut any = false;
    while let Some(taken_back) = tune::rollback(&place, args.force)? {
        any = true;
        output::print(&taken_back_text(&taken_back))?;
        if !args.all {
            break;
        }
    }
    if !any {
        output::print("There are no changes to revert.\n")?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn taken_back_text(TakenBack { done, left, damage }: &TakenBack) -> String {
    let mut text =
        if done.is_empty() { "All values were already restored.\n" } else { "Restored:\n" }.to_owned();
    for line in done {
        let _ = writeln!(text, "  {line}");
    }
    if !left.is_empty() {
        text += "Not restored (--force restores these too):\n";
    }
    for line in left {
        let _ = writeln!(text, "  {line}");
    }
    if !damage.is_empty() {
        text += "The journal was damaged:\n";
    }
    for line in damage {
        let _ = writeln!(text, "  {line}");
    }
    text
}

pub(super) fn status(args: &StateArgs) -> Result<ExitCode, Failure> {
    let place = settled(&args.place)?;
    let status = tune::status(&place)?;
    match args.output.format() {
        Format::Json => output::print(&output::json(&status)?)?,
        Format::Text => output::print(&text(&status, &args.place))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn overrides_text(overrides: &[Override]) -> String {
    let line = |Override { file, key, value }: &Override| {
        format!("Overridden at the next boot: {file} sets {key} = {value}\n")
    };
    overrides.iter().map(line).collect()
}

fn text(status: &StatusReport, place: &PlaceArgs) -> String {
    let mut text = String::new();
    if status.states.is_empty() {
        text += "There are no changes by fullpipe.\n";
    }
    for state in &status.states {
        let _ = match (state.phase, state.left) {
            (Phase::Trial, Some(left)) if left.is_zero() => writeln!(
                text,
                "On trial and expired: to revert the changes, run fullpipe tune rollback{} as root.",
                options(place)
            ),
            (Phase::Trial, Some(left)) => {
                writeln!(
                    text,
                    "On trial: reverted in {left} unless you run fullpipe tune confirm{}.",
                    options(place)
                )
            }
            (Phase::Confirmed | Phase::Trial, _) => writeln!(text, "Confirmed:"),
            (Phase::Applying | Phase::Reverting, _) => {
                writeln!(
                    text,
                    "Unfinished: to revert the changes, run fullpipe tune rollback{}.",
                    options(place)
                )
            }
        };
        if let Some(why) = &state.damage {
            let options = options(place);
            let _ = writeln!(
                text,
                "  The journal of these changes is damaged ({why}).\n  fullpipe tune rollback{options} \
                 restores the values that can be read, and keeps the damaged file."
            );
        }
        for change in &state.changes {
            let Drift { what, former, set, present, drifted } = change;
            let former = former.as_deref().unwrap_or("none");
            let _ = writeln!(text, "  {what}: {set} (was {former})");
            if *drifted {
                let present = present.as_deref().unwrap_or("none");
                let _ = writeln!(text, "    drifted: the value is now {present}");
            }
        }
    }
    text += &overrides_text(&status.overrides);
    for manager in &status.managers {
        let _ = writeln!(text, "Also managed by: {manager}");
    }
    text
}
