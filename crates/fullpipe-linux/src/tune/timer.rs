//! A systemd timer that backs up the guard. A service manager may kill every process of a session at
//! its last logout (`KillUserProcesses=`), including the guard, but not processes that it starts itself
//! from a timer.
//!
//! ```text
//!   systemd-run --on-active=TIME  ──►  fullpipe tune guard --overdue N   ends an overdue trial, and does nothing else
//! ```

use std::process::{Command, Stdio};

use fullpipe_units::Duration;

use super::guard::Guard;
use super::place::Target;

/// Folder that exists if the host's service manager is systemd (sd_booted(3)).
const BOOTED: &str = "run/systemd/system";
/// Delay after the deadline, at which the guard itself acts.
const GRACE: Duration = Duration::from_secs(1);

/// Sets a systemd timer that ends overdue trials after `after` plus a delay; returns its name, or
/// `None` if systemd is missing or refuses. The timer is a backup: nothing depends on it.
pub(super) fn set(place: &Target, guard: &Guard, number: u64, after: Duration) -> Option<String> {
    if !place.is_lasting() || !place.below_root(BOOTED).is_dir() {
        return None;
    }
    // A number is reused once a trial has been reverted, and that trial's timer may still exist.
    let unit = format!("fullpipe-tune-{number}-{}", std::process::id());
    let seconds = (after + GRACE).as_secs_f64().ceil();
    let set = Command::new("systemd-run")
        .args(["--quiet", "--collect", "--unit", &unit, "--timer-property=AccuracySec=1s"])
        .arg("--description=fullpipe tune: take back what nobody has confirmed")
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
