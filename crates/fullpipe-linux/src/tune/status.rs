//! Status of a host: applied changes, drift, and other programs or files that set the same keys.

use std::fs;
use std::path::{Path, PathBuf};

use super::apply::{optional_seconds, plain};
use super::journal::{Phase, generations};
use super::place::Target;
use crate::error::Error;
use crate::netlink::Netlink;
use fullpipe_units::Duration;
use schemars::JsonSchema;
use serde::Serialize;

/// Status of a target: the changes that fullpipe has made, and other sources of the same settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Generations of changes, from the oldest to the newest.
    pub states: Vec<State>,
    /// Path and text of each file from which settings are loaded at boot, including fullpipe's.
    pub files: Vec<(String, String)>,
    /// Programs that manage kernel settings, and how each was detected.
    pub managers: Vec<String>,
}

/// Changes that one command made, with the present values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct State {
    /// Phase of the changes: being applied, on trial, confirmed, or being reverted.
    pub phase: Phase,
    /// Time at which the changes began, in seconds since 1970.
    pub began_unix_s: u64,
    /// Time until fullpipe reverts the changes automatically; zero if they are overdue. The JSON key is
    /// `revert_in_s`.
    #[serde(rename = "revert_in_s", serialize_with = "optional_seconds")]
    #[schemars(with = "Option<f64>")]
    pub left: Option<Duration>,
    /// The changes to single settings and routes.
    pub changes: Vec<Drift>,
    /// Reason why the journal of these changes is only partly readable; absent if the journal is intact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
}

/// One change to a setting or route, with the present value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Drift {
    /// Key of a kernel setting, or `route to` followed by the address of a peer.
    pub what: String,
    /// Value before the change; `None` if there was none.
    pub former: Option<String>,
    /// Value that fullpipe set.
    pub set: String,
    /// Value at present; `None` if there is none.
    pub present: Option<String>,
    /// Whether the present value differs from the value that fullpipe set.
    pub drifted: bool,
}

impl Drift {
    fn new(what: String, former: Option<String>, set: String, present: Option<String>) -> Self {
        Self { drifted: present.as_ref() != Some(&set), what, former, set, present }
    }
}

/// Folders from which settings are loaded (see sysctl.d(5)).
const FOLDERS: [&str; 5] =
    ["etc/sysctl.d", "run/sysctl.d", "usr/local/lib/sysctl.d", "usr/lib/sysctl.d", "lib/sysctl.d"];

/// Reads the status of a target from its journal and its files.
///
/// # Errors
/// Returns an error if the journal cannot be read.
pub fn status(place: &Target) -> Result<Status, Error> {
    let netlink = if place.is_imitated() { None } else { Netlink::new().ok() };
    let states = generations(place)?.into_iter().map(|generation| {
        let left = generation.left(place);
        let damage = generation.damage.map(|damage| damage.why);
        let settings = generation.settings.into_iter().map(|setting| {
            let present = place.read(&setting.key).ok().map(|value| plain(&value));
            Drift::new(setting.key, Some(plain(&setting.former)), setting.value, present)
        });
        let routes = generation.routes.into_iter().map(|route| {
            let present = netlink.as_ref().and_then(|netlink| route.present(netlink));
            let what = format!("route to {}", route.destination);
            Drift::new(what, route.former_text, route.ours_text, present)
        });
        State {
            phase: generation.phase,
            began_unix_s: generation.began_unix_s,
            left,
            changes: settings.chain(routes).collect(),
            damage,
        }
    });
    Ok(Status { states: states.collect(), files: files(place), managers: managers(place) })
}

fn files(place: &Target) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut files: Vec<PathBuf> = Vec::new();
    let mut add = |path: PathBuf| {
        let Ok(text) = fs::read_to_string(&path) else { return };
        // Of two files with the same name, the one in the first folder takes precedence, and a link to
        // `/dev/null` is treated as an empty file. A file that is also reached through a link is listed once,
        // for example sysctl.conf through 99-sysctl.conf.
        let file = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        let path = path.display().to_string();
        let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        let null = file == Path::new("/dev/null");
        if (null || !files.contains(&file)) && !found.iter().any(|(other, _)| name(other) == name(&path)) {
            found.push((path, text));
        }
        if !null {
            files.push(file);
        }
    };
    for folder in FOLDERS {
        let entries = fs::read_dir(place.below_root(folder)).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        paths.into_iter().filter(|path| path.extension().is_some_and(|end| end == "conf")).for_each(&mut add);
    }
    add(place.below_root("etc/sysctl.conf"));
    found
}

/// Returns the names of running programs that manage kernel settings, and the configuration files from which
/// programs set them.
fn managers(place: &Target) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(place.of_kernel("proc")).into_iter().flatten().flatten() {
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if let name @ ("tuned" | "bpftune") = name.trim() {
            let said = format!("{name}, which is running and may change the same settings");
            if !found.contains(&said) {
                found.push(said);
            }
        }
    }
    let profile = fs::read_to_string(place.below_root("etc/tuned/active_profile")).unwrap_or_default();
    if !profile.trim().is_empty() {
        found.push(format!("tuned, with the profile {}", profile.trim()));
    }
    let folder = place.below_root("etc/cloud/cloud.cfg.d");
    let clouds = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    for path in clouds.chain([place.below_root("etc/cloud/cloud.cfg")]) {
        let text = fs::read_to_string(&path).unwrap_or_default();
        if text.lines().any(|line| !line.trim_start().starts_with('#') && line.contains("sysctl")) {
            found.push(format!("cloud-init, which changes kernel settings at boot: {}", path.display()));
        }
    }
    found
}
