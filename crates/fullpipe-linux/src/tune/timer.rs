//! A systemd timer that backs up the guard. At the last logout of a user, systemd may kill all processes of
//! the session (`KillUserProcesses=`), including the guard. Processes that a systemd timer starts are not
//! part of the session.
//!
//! ```text
//!   systemd-run --on-active=TIME  ──►  fullpipe tune guard --overdue N   ends an overdue trial, and does nothing else
//! ```

use std::process::{Command, Stdio};

use fullpipe_units::Duration;

use super::guard::Guard;
use super::place::Target;

/// Folder that exists if the host runs systemd (see sd_booted(3)).
const BOOTED: &str = "run/systemd/system";
/// Delay between the deadline, when the guard acts, and the expiry of the systemd timer.
const GRACE: Duration = Duration::from_secs(1);

/// Creates a systemd timer that reverts overdue trials `GRACE` later than `after`. Returns the name of the timer, or
/// `None` if systemd is missing or does not create it. Because the timer is only a backup, a failure is not an error.
pub(super) fn set(place: &Target, guard: &Guard, number: u64, after: Duration) -> Option<String> {
    if !place.is_lasting() || !place.below_root(BOOTED).is_dir() {
        return None;
    }
    // Generation numbers are reused after a trial has been reverted, so a timer for the same number may still
    // exist.
    let unit = format!("fullpipe-tune-{number}-{}", std::process::id());
    let seconds = (after + GRACE).as_secs_f64().ceil();
    let set = Command::new("systemd-run")
        .args(["--quiet", "--collect", "--unit", &unit, "--timer-property=AccuracySec=1s"])
        .arg("--description=fullpipe tune: revert unconfirmed changes")
        .arg(format!("--on-active={seconds}s"))
        .arg("--")
        .arg(&guard.program)
        .args(&guard.arguments)
        .args(["--overdue", &number.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    set.is_ok_and(|status| status.success()).then(|| format!("{unit}.timer"))
}
