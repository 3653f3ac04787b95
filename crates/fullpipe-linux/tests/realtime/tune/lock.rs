//! Tests of the lock on the state folder: other users cannot access it, every wait has a timeout, and it
//! cannot prevent the end of an overdue trial.

use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration as Wait;

use fullpipe_linux::Kind;
use fullpipe_linux::tune::{Guard, Phase, Target, apply, confirm, rollback, settle, status};
use fullpipe_units::Duration;
use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;

use super::{applied, becomes, changes, dead_guard, guard, host, place, rolled_back, snapshot};

/// User ID of an unprivileged user: `nobody` on most systems.
const NOBODY: u32 = 65_534;
const SHORT: Duration = Duration::from_millis(300);
/// Duration of the trial in tests that wait for the guard, long enough for the test to take the lock before
/// the guard does.
const TRIAL: Duration = Duration::from_secs(1);

fn state(root: &Path) -> PathBuf {
    root.join("var/lib/fullpipe")
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Takes the lock of the state folder; dropping the returned file releases it.
fn held(root: &Path) -> File {
    let file = File::open(state(root).join("lock")).unwrap();
    assert!(becomes(|| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()), "nobody else does");
    file
}

/// A child process, which is killed when this value is dropped at the end of the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sets the modes of the lock and its folder to those of earlier versions, 0644 and 0755.
fn open_to_all(root: &Path) {
    set_mode(&state(root), 0o755);
    for entry in fs::read_dir(state(root)).unwrap() {
        set_mode(&entry.unwrap().path(), 0o644);
    }
}

/// The guard waits for two seconds, reverts the trial, and reports to syslog which process holds the lock.
#[test]
fn the_guard_takes_an_overdue_trial_back_although_the_lock_is_held() {
    let root = host("held");
    let before = snapshot(&root, false);
    // The path of a socket is limited to 107 bytes, so the log is in another folder, to which a symbolic link
    // points.
    let short = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(short.path(), root.join("dev")).unwrap();
    let log = UnixDatagram::bind(short.path().join("log")).unwrap();
    log.set_read_timeout(Some(Wait::from_secs(10))).unwrap();
    applied(&root, false, Some(TRIAL));
    let _held = held(&root);
    assert!(becomes(|| snapshot(&root, false) == before), "still applied: {}", snapshot(&root, false));
    assert!(becomes(|| status(&place(&root, false)).unwrap().states.is_empty()));
    let mut line = [0; 1000];
    let length = log.recv(&mut line).unwrap();
    let line = String::from_utf8_lossy(&line[..length]);
    assert!(line.starts_with("<28>fullpipe["), "{line}");
    assert!(
        line.contains(&format!("process {} (", std::process::id())) && line.contains("the lock"),
        "{line}"
    );
    // The next command takes the new lock file.
    applied(&root, false, None);
    rolled_back(&root, false);
}

/// Without a guard, the next command or the systemd timer reverts an overdue trial, although the lock is
/// held.
#[test]
fn the_next_command_takes_an_overdue_trial_back_although_the_lock_is_held() {
    let root = host("held-settle");
    let before = snapshot(&root, false);
    let place = place(&root, false).with_lock_wait(SHORT);
    apply(&place, &changes(false), Some(Duration::from_millis(1)), &dead_guard(), &mut |_| ())
        .unwrap()
        .unwrap();
    let _held = held(&root);
    let said = settle(&place).unwrap();
    let holder = format!("process {} (", std::process::id());
    assert!(said[0].starts_with(&holder) && said[0].contains("held the lock"), "{said:?}");
    assert_eq!(snapshot(&root, false), before);
}

/// If `confirm` takes longer than the guard waits, the guard reverts the trial, and `confirm` detects this
/// before its next write.
#[test]
fn a_confirm_that_the_guard_has_overtaken_changes_nothing() {
    let root = host("held-confirm");
    let before = snapshot(&root, false);
    let place = place(&root, false);
    applied(&root, false, Some(TRIAL));
    let restored = || snapshot(&root, false) == before && status(&place).unwrap().states.is_empty();
    // In the first step of `confirm` the settings file is written; the journal follows.
    let late = confirm(&place, &mut |_| assert!(becomes(restored), "{}", snapshot(&root, false)));
    let error = late.unwrap_err();
    assert!(error.message.contains("expired trial") && error.hint.contains("status"), "{error:?}");
    assert!(restored(), "{}", snapshot(&root, false));
    let left: Vec<_> = fs::read_dir(state(&root)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["lock"]);
}

/// The process that holds the lock may be working on unfinished changes. These changes are therefore left to
/// that process, and the command reports this.
#[test]
fn what_is_half_made_is_left_to_the_holder_of_the_lock() {
    let root = host("held-half");
    let before = snapshot(&root, false);
    let place = place(&root, false).with_lock_wait(SHORT);
    apply(&place, &changes(false), Some(Duration::from_millis(1)), &dead_guard(), &mut |_| ())
        .unwrap()
        .unwrap();
    let mut first = true;
    let done = rollback(&place, false, &mut |_| {
        if first {
            // By this time, the journal records the phase `Reverting`.
            let said = settle(&place).unwrap();
            assert!(said[0].contains("unfinished") && said[0].contains("has to complete"), "{said:?}");
        }
        first = false;
    });
    assert_eq!(done.unwrap().unwrap().done.len(), 3);
    assert_eq!(snapshot(&root, false), before);
    assert!(status(&place).unwrap().states.is_empty());
}

#[test]
fn a_wait_for_the_lock_ends_and_names_the_holder() {
    let root = host("held-wait");
    applied(&root, false, Some(Duration::from_secs(60)));
    let place = place(&root, false).with_lock_wait(SHORT);
    let refused = |error: fullpipe_linux::Error| {
        assert_eq!(error.kind, Kind::System);
        let pid = std::process::id();
        assert!(
            error.message.contains(&format!("process {pid} (")) && error.message.contains("300ms"),
            "{error}"
        );
        assert!(error.hint.contains(&format!("kill {pid}")), "{}", error.hint);
    };
    let lock = held(&root);
    refused(rollback(&place, false, &mut |_| ()).unwrap_err());
    refused(confirm(&place, &mut |_| ()).unwrap_err());
    refused(apply(&place, &changes(false), None, &dead_guard(), &mut |_| ()).unwrap_err());
    assert_eq!(status(&place).unwrap().states[0].phase, Phase::Trial);
    drop(lock);
    rolled_back(&root, false);
}

/// The first command that makes a change restricts access to files that an earlier version left open to other
/// users. The lock file is replaced once, because other users may have it open.
#[test]
fn modes_of_an_earlier_version_are_closed() {
    let root = host("held-upgrade");
    applied(&root, false, None);
    let (state, lock) = (state(&root), state(&root).join("lock"));
    assert_eq!((mode(&state), mode(&lock), mode(&state.join("0001.json"))), (0o700, 0o600, 0o600));
    open_to_all(&root);
    let theirs = File::open(&lock).unwrap();
    // A command that makes no change only restricts access to the state folder.
    settle(&place(&root, false)).unwrap();
    assert_eq!(mode(&state), 0o700);
    let more = super::Change::Setting { key: super::WMEM.0.into(), value: "4096 16384 99999744".into() };
    apply(&place(&root, false), &[more], None, &dead_guard(), &mut |_| ()).unwrap().unwrap();
    assert_eq!((mode(&lock), mode(&state.join("0001.json"))), (0o600, 0o600));
    let replaced = fs::metadata(&lock).unwrap().ino();
    assert_ne!(theirs.metadata().unwrap().ino(), replaced, "whoever has it open holds nothing");
    flock(&theirs, FlockOperation::NonBlockingLockExclusive).unwrap();
    rolled_back(&root, false);
    assert_eq!(fs::metadata(&lock).unwrap().ino(), replaced);
    rolled_back(&root, false);
    set_mode(&state, 0o755);
    assert_eq!(rollback(&place(&root, false), false, &mut |_| ()).unwrap(), None);
    assert_eq!(mode(&state), 0o700, "also when there is nothing to take back");
}

/// The guard of changes without a trial ends without taking the lock. Otherwise, it would delay the next command,
/// or replace the lock file of an earlier version.
#[test]
fn the_guard_of_confirmed_changes_does_not_take_the_lock() {
    let root = host("held-confirmed");
    apply(&place(&root, false), &changes(false), None, &dead_guard(), &mut |_| ()).unwrap().unwrap();
    open_to_all(&root);
    let Guard { program, arguments } = guard(&root, false);
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let theirs = Stdio::from(OwnedFd::from(theirs));
    let child = Command::new(program).args(arguments).arg("1").stdin(theirs).stdout(Stdio::null()).spawn();
    let mut running = Running(child.unwrap());
    let mut ready = [0];
    ours.read_exact(&mut ready).unwrap();
    ours.write_all(b"d").unwrap();
    assert!(running.0.wait().unwrap().success());
    assert_eq!(mode(&state(&root).join("lock")), 0o644, "the lock file was replaced");
    rolled_back(&root, false);
}

/// If an unauthorised user took the lock before its access was restricted, the lock is replaced. If an
/// authorised user holds the lock, the command waits.
#[test]
fn a_lock_that_another_user_holds_is_replaced() {
    if !geteuid().is_root() {
        eprintln!("skipped: only root can start a process as another user");
        return;
    }
    let root = host("held-foreign");
    let before = snapshot(&root, false);
    applied(&root, false, Some(Duration::from_secs(60)));
    open_to_all(&root);
    let held = held(&root);
    let place = place(&root, false).with_lock_wait(SHORT);
    let refused = rollback(&place, false, &mut |_| ()).unwrap_err();
    assert!(refused.message.contains(&format!("process {} (", std::process::id())), "{refused}");
    // /proc/locks still names this process, although it has passed the descriptor on to another process.
    let theirs = Command::new("sleep").arg("60").uid(NOBODY).stdin(Stdio::from(held)).spawn().unwrap();
    let _theirs = Running(theirs);
    rollback(&place, false, &mut |_| ()).unwrap().expect("something");
    assert_eq!(snapshot(&root, false), before);
}

/// A state folder that is a symbolic link is rejected, because following it would change the mode of a
/// different folder.
#[test]
fn a_state_folder_that_is_a_link_is_refused() {
    let root = host("held-link");
    let elsewhere = root.join("elsewhere");
    fs::create_dir_all(&elsewhere).unwrap();
    set_mode(&elsewhere, 0o755);
    fs::create_dir_all(state(&root).parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(&elsewhere, state(&root)).unwrap();
    let before = snapshot(&root, false);
    let refused = Target::inherited(Some(&root), None).unwrap_err();
    assert!(refused.message.contains("symbolic link"), "{refused}");
    assert_eq!((snapshot(&root, false), mode(&elsewhere)), (before, 0o755));
}
