//! Applies, confirms and reverts changes to a host in steps; the process may die after any step.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

use fullpipe_lab::host::Change;
use fullpipe_units::Duration;
use rustix::process::geteuid;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::files;
use super::guard::{Attempt, Guard, attempt};
use super::journal::{Generation, Phase, Setting, generations};
use super::lock::{LOCK_WAIT, Lock, OVERDUE_WAIT, close_folder};
use super::place::Target;
use super::route::{Metrics, PeerRoute};
use super::timer;
use crate::error::{Doing, Error, Kind};
use crate::netlink::Netlink;

/// A completed step of a change to the host, reported to an observer. Tests kill the process after each step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The journal with the former values has been written to disk.
    Kept,
    /// The guard process has been started.
    Guarded,
    /// The settings file has been written or restored.
    File,
    /// A kernel setting has been changed or restored.
    Setting,
    /// A route has been changed or restored.
    Route,
    /// All changed values have been read back, and they match.
    ReadBack,
    /// The new phase has been written to the journal.
    Recorded,
    /// The journal entry has been removed.
    Forgotten,
}

/// Changes to the host that [`apply`] has made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AppliedChanges {
    /// Kernel settings that were changed.
    pub settings: Vec<SettingChange>,
    /// Host routes that were changed or added, one per peer.
    pub routes: Vec<RouteChange>,
    /// Time until fullpipe reverts the changes if they are not confirmed; `None` if they stay. The JSON key
    /// is `revert_after_s`.
    #[serde(rename = "revert_after_s", serialize_with = "optional_seconds")]
    #[schemars(with = "Option<f64>")]
    pub revert_after: Option<Duration>,
    /// Name of the systemd timer that also reverts the changes; `None` if there is no timer.
    pub timer: Option<String>,
}

/// A kernel setting that was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SettingChange {
    /// Dotted key of the kernel setting.
    pub key: String,
    /// Value of the setting before the change.
    pub former: String,
    /// Value of the setting after the change.
    pub value: String,
}

/// A host route to a single peer that was changed or added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RouteChange {
    /// Former host route, in the format of `ip route`; `None` if there was no host route.
    pub former: Option<String>,
    /// New host route, in the format of `ip route`.
    pub route: String,
}

/// Serialises an optional duration as a number of seconds.
pub(super) fn optional_seconds<S: Serializer>(
    time: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}

/// Normalises the white space in a value: one space between words, and none at either end.
pub(super) fn plain(value: &str) -> String {
    value.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Applies `changes`. If the changes are not confirmed within `revert_after`, fullpipe reverts them; with
/// `None`, the changes stay. Returns `None` if all changes are already in effect.
///
/// # Errors
/// Returns an error of [`Kind::Rights`] before any change if the process lacks the privileges, or of
/// [`Kind::Reverted`] if a change failed and all changes were reverted.
pub fn apply(
    place: &Target,
    changes: &[Change],
    revert_after: Option<Duration>,
    guard: &Guard,
    watch: &mut dyn FnMut(Step),
) -> Result<Option<AppliedChanges>, Error> {
    may(place, changes)?;
    let lock = lock(place)?;
    let before = generations(place)?;
    if before.iter().any(|generation| generation.phase == Phase::Trial) {
        let hint =
            "keep these changes with fullpipe tune confirm, or revert them with fullpipe tune rollback";
        return Err(Error::settings("other changes are still on trial", hint));
    }
    let number = before.last().map_or(0, |last| last.number) + 1;
    let mut generation = Generation::new(place, number, revert_after);
    collect(place, changes, &mut generation)?;
    if generation.settings.is_empty() && generation.routes.is_empty() {
        return Ok(None);
    }
    generation.former_file = own_file(place)?;
    generation.save(place, &lock)?;
    watch(Step::Kept);
    let mut all = before;
    all.push(generation.clone());
    // After the journal has been written, every error reverts the changes.
    let mut timer = None;
    let done = guard.start(number).and_then(|mut started| {
        timer = revert_after.and_then(|after| timer::set(place, guard, number, after));
        watch(Step::Guarded);
        make(place, &lock, &all, watch)?;
        watch(Step::ReadBack);
        generation.phase = if revert_after.is_some() { Phase::Trial } else { Phase::Confirmed };
        if generation.phase == Phase::Confirmed {
            all.pop();
            all.push(generation.clone());
            files::write(&lock, place.owned(), &file_text(&all)).doing("write the file of settings")?;
        }
        generation.save(place, &lock)?;
        watch(Step::Recorded);
        started.done();
        Ok(())
    });
    if let Err(error) = done {
        let back = revert(place, &lock, generation, &all[..all.len() - 1], true, watch);
        return Err(match back {
            Ok(_) => Error {
                kind: Kind::Reverted,
                message: format!("{}; all changes were reverted", error.message),
                ..error
            },
            Err(second) => Error {
                kind: Kind::System,
                message: format!("{}; reverting the changes also failed: {}", error.message, second.message),
                hint: "try again with fullpipe tune rollback".into(),
            },
        });
    }
    Ok(Some(AppliedChanges {
        settings: generation
            .settings
            .into_iter()
            .map(|Setting { key, former, value }| SettingChange { key, former: plain(&former), value })
            .collect(),
        routes: generation
            .routes
            .into_iter()
            .map(|route| RouteChange { former: route.former_text, route: route.ours_text })
            .collect(),
        revert_after,
        timer,
    }))
}

/// Confirms the changes that are on trial, and returns the number of changes.
///
/// # Errors
/// Returns an error if no changes are on trial, if the process lacks the privileges, or if the trial became
/// overdue and was reverted in the meantime.
pub fn confirm(place: &Target, watch: &mut dyn FnMut(Step)) -> Result<usize, Error> {
    let lock = lock(place)?;
    confirm_locked(place, &lock, watch).map_err(|error| lock.explain(error))
}

fn confirm_locked(place: &Target, lock: &Lock, watch: &mut dyn FnMut(Step)) -> Result<usize, Error> {
    let mut all = generations(place)?;
    if all.last().is_some_and(|last| last.damage.is_some()) {
        return Err(Error::settings(
            "the changes cannot be confirmed, because their journal is damaged",
            "restore the known values with fullpipe tune rollback, and apply the changes again",
        ));
    }
    let Some(last) = all.last_mut().filter(|last| last.phase == Phase::Trial) else {
        return Err(Error::settings(
            "no changes are on trial",
            "fullpipe tune status shows the applied changes",
        ));
    };
    last.phase = Phase::Confirmed;
    last.deadline_boottime_ns = None;
    let confirmed = last.clone();
    // The settings file is written before the journal: if the process dies in between, the changes are still on
    // trial, and the trial ends as usual.
    files::write(lock, place.owned(), &file_text(&all)).doing("write the file of settings")?;
    watch(Step::File);
    confirmed.save(place, lock)?;
    watch(Step::Recorded);
    Ok(confirmed.settings.len() + confirmed.routes.len())
}

/// Result of reverting changes, with one line of text per value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TakenBack {
    /// Values that were restored.
    pub done: Vec<String>,
    /// Values that another program had changed in the meantime and that were therefore not restored.
    pub left: Vec<String>,
    /// Lines about a damaged journal: values that were not restored because their former values are lost, and
    /// the file in which the damaged journal is kept.
    pub damage: Vec<String>,
}

/// Reverts the newest generation of changes. Unless `force` is set, values that another program has changed
/// since are not restored. Returns `None` if there are no changes to revert.
///
/// # Errors
/// Returns an error if the process lacks the privileges, or if a value cannot be restored.
pub fn rollback(
    place: &Target,
    force: bool,
    watch: &mut dyn FnMut(Step),
) -> Result<Option<TakenBack>, Error> {
    // The existence of the state folder is checked before the lock is taken, because taking the lock would
    // create the folder.
    if generations(place)?.is_empty() && !place.state().exists() {
        return Ok(None);
    }
    let lock = lock(place)?;
    let mut all = generations(place)?;
    let Some(last) = all.pop() else { return Ok(None) };
    revert(place, &lock, last, &all, force, watch).map(Some).map_err(|error| lock.explain(error))
}

/// Completes the unfinished work of processes that died, and reverts overdue trials; returns lines that
/// describe this work, or an empty list if there was none. Does nothing if the process lacks the privileges.
/// If another process holds the lock, an overdue trial is reverted anyway, but unfinished changes are left to
/// that process.
///
/// # Errors
/// Returns an error if a value cannot be restored, or if the state cannot be locked.
pub fn settle(place: &Target) -> Result<Vec<String>, Error> {
    let due = |generation: &Generation| !generation.phase.is_whole() || generation.is_overdue(place);
    // An earlier version left the state folder accessible to other users. If the process lacks the privileges
    // to change the mode of the folder, the mode stays as it is.
    let _ = close_folder(place.state());
    // The journal is first read without the lock, because usually there is nothing to do.
    let last = match generations(place) {
        Err(error) if error.kind == Kind::Rights => None,
        found => found?.pop().filter(due),
    };
    let Some(last) = last else { return Ok(Vec::new()) };
    let wait = if last.is_overdue(place) { OVERDUE_WAIT } else { LOCK_WAIT };
    let (lock, passed_over) = match attempt(place, wait.min(place.lock_wait()), &due) {
        Ok(Attempt::Locked { lock, passed_over }) => (lock, passed_over),
        Ok(Attempt::NothingDue) => return Ok(Vec::new()),
        Ok(Attempt::LeftTo(holder)) => {
            return Ok(vec![format!(
                "there are unfinished changes, which {holder} has to complete, because \
                                    it holds the lock"
            )]);
        }
        Err(error) if error.kind == Kind::Rights => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut all = generations(place)?;
    let Some(last) = all.pop().filter(due) else { return Ok(Vec::new()) };
    let why = match last.phase {
        Phase::Trial => "changes were not confirmed in time",
        _ => "a process died before it had completed its changes",
    };
    let reverted = revert(place, &lock, last, &all, false, &mut |_| ());
    let TakenBack { mut done, left, damage } = reverted.map_err(|error| lock.explain(error))?;
    done.insert(0, format!("{why}; reverting them:"));
    if let Some(holder) = passed_over {
        done.insert(0, format!("{holder} held the lock, so the lock was replaced"));
    }
    done.extend(left.into_iter().chain(damage));
    Ok(done)
}

/// Reverts `generation`, the newest one; `earlier` contains all generations before it.
pub(super) fn revert(
    place: &Target,
    lock: &Lock,
    mut generation: Generation,
    earlier: &[Generation],
    force: bool,
    watch: &mut dyn FnMut(Step),
) -> Result<TakenBack, Error> {
    // An unfinished generation may have left any value. In a complete generation, a value that differs from
    // fullpipe's was set by another program. After a reboot, the kernel no longer has fullpipe's values, so
    // the present values come from another source.
    let whole = generation.phase.is_whole();
    let damage = damage_lines(place, lock, &generation, earlier)?;
    let damaged = generation.damage.take().is_some();
    let anything = generation.is_of_this_kernel(place) && (force || !whole);
    let file_before: Vec<String> = [Phase::Trial, Phase::Confirmed]
        .into_iter()
        .map(|phase| {
            let as_it_was = Generation { phase, ..generation.clone() };
            file_text(&earlier.iter().cloned().chain([as_it_was]).collect::<Vec<_>>())
        })
        .collect();
    if whole {
        generation.phase = Phase::Reverting;
        generation.save(place, lock)?;
        watch(Step::Kept);
    }
    let (mut done, mut left) = (Vec::new(), Vec::new());
    if !generation.routes.is_empty() && !place.is_imitated() {
        let netlink = Netlink::new()?;
        for route in generation.routes.iter().rev() {
            let present = route.present(&netlink);
            if present == route.former_text {
                continue;
            }
            if present.as_ref() != Some(&route.ours_text) && !(anything && present.is_some()) {
                let now = present.unwrap_or_else(|| "none".into());
                left.push(format!(
                    "route to {}: not restored, because another program has changed it: {now}",
                    route.destination
                ));
                continue;
            }
            lock.ensure_held().doing("restore a route")?;
            route.restore(&netlink)?;
            let former = route.former_text.as_deref().unwrap_or("no host route");
            done.push(format!("route to {}: {former}", route.destination));
            watch(Step::Route);
        }
    }
    for setting in generation.settings.iter().rev() {
        let Setting { key, former, value } = setting;
        let present = match place.read(key) {
            Ok(present) => present,
            Err(error) => {
                left.push(format!("{key}: not restored, because it cannot be read: {error}"));
                continue;
            }
        };
        if present == *former {
            continue;
        }
        if plain(&present) != *value && !anything {
            left.push(format!(
                "{key}: not restored, because another program has changed it: {}",
                plain(&present)
            ));
            continue;
        }
        lock.ensure_held().doing(format_args!("restore {key}"))?;
        place.write(key, former)?;
        done.push(format!("{key} = {}", plain(former)));
        watch(Step::Setting);
    }
    let file = files::read(place.owned()).doing("read the file of settings")?;
    if file != generation.former_file {
        // After damage to the journal, the text of the settings file cannot be derived, so its header decides
        // whether fullpipe wrote it.
        let ours = |file: &String| file_before.contains(file) || (damaged && file.starts_with(HEADER));
        let ours = file.as_ref().is_some_and(ours);
        if ours || force || !whole {
            match &generation.former_file {
                Some(former) => files::write(lock, place.owned(), former),
                None => files::remove(lock, place.owned()),
            }
            .doing(format_args!("restore {}", place.owned().display()))?;
            done.push(match generation.former_file {
                Some(_) => format!("{}: restored", place.owned().display()),
                None => format!("{}: removed", place.owned().display()),
            });
        } else {
            left.push(format!(
                "{}: not restored, because another program or user has edited it",
                place.owned().display()
            ));
        }
    }
    watch(Step::File);
    generation.forget(place, lock)?;
    watch(Step::Forgotten);
    Ok(TakenBack { done, left, damage })
}

/// Keeps a copy of a damaged journal file. Returns lines for the user: the keys whose former values are lost,
/// and the path of the copy.
fn damage_lines(
    place: &Target,
    lock: &Lock,
    generation: &Generation,
    earlier: &[Generation],
) -> Result<Vec<String>, Error> {
    let Some(damage) = &generation.damage else { return Ok(Vec::new()) };
    let mut lines = Vec::new();
    for (key, former) in &damage.formers {
        lines.push(format!("{key}: not restored; to restore it: sysctl -w {key}='{}'", plain(former)));
    }
    // fullpipe's settings file contains every key that fullpipe set, so it shows which keys are missing in
    // the journal.
    let known = |key: &str| {
        let of = |generation: &Generation| generation.settings.iter().any(|setting| setting.key == key);
        of(generation) || earlier.iter().any(of) || damage.formers.iter().any(|(other, _)| other == key)
    };
    let file = files::read(place.owned()).ok().flatten().unwrap_or_default();
    for line in file.lines() {
        let Some((key, _)) = line.trim_start_matches(['#', ' ']).split_once(" = ") else { continue };
        if key.contains(char::is_whitespace) || known(key) {
            continue;
        }
        let present = place.read(key).map_or_else(|error| error.to_string(), |value| plain(&value));
        lines.push(format!(
            "{key}: not restored, because its former value is lost; it stays {present} until you set it or reboot"
        ));
    }
    if let Some(path) = generation.keep_aside(place, lock)? {
        lines.push(format!("a copy of the damaged journal is in {} ({})", path.display(), damage.why));
    }
    Ok(lines)
}

/// Checks whether the process is permitted to make `changes`, before it changes anything.
fn may(place: &Target, changes: &[Change]) -> Result<(), Error> {
    for change in changes {
        match change {
            Change::Setting { key, .. } => place.may_write(key).map_err(|error| match error.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    no_rights(format!("no permission to set {key}: {error}"))
                }
                io::ErrorKind::NotFound => Error::settings(
                    format!("{key} does not exist here"),
                    "change the setting on the host, because the namespace of a container does not have it",
                ),
                _ => Error::system(format_args!("set {key}"), error),
            })?,
            Change::Route { .. } if !may_administer() => {
                return Err(no_rights("no permission to change routes (CAP_NET_ADMIN)".into()));
            }
            Change::Route { .. } => {}
        }
    }
    Ok(())
}

pub(super) fn no_rights(message: String) -> Error {
    let hint = "run fullpipe tune as root (for a container, on its host), or run the commands printed above";
    Error { kind: Kind::Rights, message, hint: hint.into() }
}

/// Bit number of `CAP_NET_ADMIN` in a capability set (see capabilities(7)).
const CAP_NET_ADMIN: u32 = 12;

fn may_administer() -> bool {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = effective.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    set.map_or(geteuid().is_root(), |set| set >> CAP_NET_ADMIN & 1 == 1)
}

fn lock(place: &Target) -> Result<Lock, Error> {
    Lock::take(place, place.lock_wait()).map_err(|error| error.into_error(place))
}

/// Collects the changes that are not in effect yet, together with the former values.
fn collect(place: &Target, changes: &[Change], generation: &mut Generation) -> Result<(), Error> {
    let mut metrics: BTreeMap<IpAddr, Metrics> = BTreeMap::new();
    for change in changes {
        match change {
            Change::Setting { key, value } => {
                let former = place.read(key).doing(format_args!("read {key}"))?;
                let value = plain(value);
                if plain(&former) != value {
                    generation.settings.push(Setting { key: key.clone(), former, value });
                }
            }
            Change::Route { destination, congctl, initcwnd } => {
                let wanted = metrics.entry(*destination).or_default();
                wanted.congctl = congctl.clone().or(wanted.congctl.take());
                wanted.initcwnd = initcwnd.or(wanted.initcwnd);
            }
        }
    }
    if metrics.is_empty() {
        return Ok(());
    }
    let netlink = Netlink::new()?;
    for (destination, wanted) in metrics {
        generation.routes.extend(PeerRoute::to(&netlink, destination)?.step(&wanted));
    }
    Ok(())
}

/// Makes the changes of the newest generation in `all`, and reads the changed values back.
fn make(place: &Target, lock: &Lock, all: &[Generation], watch: &mut dyn FnMut(Step)) -> Result<(), Error> {
    let Some(generation) = all.last() else { return Ok(()) };
    files::write(lock, place.owned(), &file_text(all))
        .doing(format_args!("write {}", place.owned().display()))?;
    watch(Step::File);
    for setting in &generation.settings {
        lock.ensure_held().doing(format_args!("set {}", setting.key))?;
        place.write(&setting.key, &setting.value)?;
        watch(Step::Setting);
    }
    for setting in &generation.settings {
        let now = place.read(&setting.key).doing(format_args!("read {}", setting.key))?;
        if plain(&now) != setting.value {
            let message = format!("{} is {} after it was set to {}", setting.key, plain(&now), setting.value);
            return Err(Error::settings(message, "this kernel does not accept the value"));
        }
    }
    if generation.routes.is_empty() {
        return Ok(());
    }
    let netlink = Netlink::new()?;
    for route in &generation.routes {
        lock.ensure_held().doing("change a route")?;
        route.apply(&netlink).map_err(|error| Error {
            hint: "fullpipe tune show lists the congestion controls of this kernel".into(),
            ..error
        })?;
        watch(Step::Route);
        let present = route.present(&netlink);
        if present.as_ref() != Some(&route.ours_text) {
            let now = present.unwrap_or_else(|| "none".into());
            let message = format!("the route is '{now}' after it was set to '{}'", route.ours_text);
            return Err(Error::settings(message, "this kernel does not accept the route"));
        }
    }
    Ok(())
}

/// First line of the settings file that fullpipe writes, by which fullpipe recognises the file.
const HEADER: &str = "# Written by fullpipe tune. To take it back: fullpipe tune rollback";

/// Returns the text of fullpipe's settings file; returns an error if another program wrote the file.
fn own_file(place: &Target) -> Result<Option<String>, Error> {
    let found = files::read(place.owned()).doing(format_args!("read {}", place.owned().display()))?;
    match found {
        Some(text) if !text.starts_with(HEADER) => Err(Error::settings(
            format!("{} exists, but was not written by fullpipe", place.owned().display()),
            "move this file away, because fullpipe would replace it",
        )),
        found => Ok(found),
    }
}

/// Builds the text of fullpipe's settings file. The file sets the newest confirmed values. Values on trial
/// are only comments, so that a reboot restores the former state.
pub(super) fn file_text(all: &[Generation]) -> String {
    let mut text = format!("{HEADER}\n");
    let mut active: BTreeMap<&str, &str> = BTreeMap::new();
    for generation in all.iter().filter(|generation| generation.phase == Phase::Confirmed) {
        active.extend(generation.settings.iter().map(|s| (s.key.as_str(), s.value.as_str())));
    }
    for (key, value) in active {
        text += &format!("{key} = {value}\n");
    }
    for generation in all.iter().filter(|generation| generation.phase != Phase::Confirmed) {
        text += "# On trial, not set at boot: to set these at every boot, run fullpipe tune confirm.\n";
        for Setting { key, value, .. } in &generation.settings {
            text += &format!("# {key} = {value}\n");
        }
    }
    let routes: Vec<&str> =
        all.iter().flat_map(|generation| &generation.routes).map(|route| route.ours_text.as_str()).collect();
    if !routes.is_empty() {
        text += "# Routes last until the next boot: to keep them, add these commands to the network configuration.\n";
        for route in routes {
            text += &format!("# ip route replace {route}\n");
        }
    }
    text
}
