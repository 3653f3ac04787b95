//! A timer of systemd beside the guard. A service manager may kill every process of a session with its last login
//! (`KillUserProcesses=`), the guard among them; what it starts itself, at a time, it does not.
//!
//! ```text
//!   systemd-run --on-active=TIME  ──►  fullpipe tune guard --overdue N   ends a trial that is overdue, and nothing else
//! ```

use std::process::{Command, Stdio};

use fullpipe_units::Duration;

use super::guard::Guard;
use super::place::Target;

/// The folder that is there when the service manager of a host is systemd (sd_booted(3)).
const BOOTED: &str = "run/systemd/system";
/// So long after the deadline, which the guard keeps to the moment.
const GRACE: Duration = Duration::from_secs(1);

/// Has systemd end what is overdue after `after` and a little; the timer's name, or `None` where there is no systemd,
/// or it will not. It is one more who takes back, and not the only one: nothing depends on it.
pub(super) fn set(place: &Target, guard: &Guard, number: u64, after: Duration) -> Option<String> {
    if !place.is_lasting() || !place.below_root(BOOTED).is_dir() {
        return None;
    }
    // Numbers come again once a trial has been taken back; a timer that was set for it may still be there.
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
