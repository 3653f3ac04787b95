//! Journal of the changes to a host, with former values and progress: one file per generation, the newest
//! last.

use std::fs;
use std::io;
use std::path::PathBuf;

use fullpipe_units::Duration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::apply::{file_text, no_rights};
use super::files;
use super::lock::Lock;
use super::place::Target;
use super::route::RouteStep;
use super::salvage::{self, Damage, MOST_BYTES};
use crate::clock::{since_1970, since_boot};
use crate::error::{Doing, Error};
use crate::namespace::this_namespace;

/// Phase of a generation of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The changes are being applied; any of them may be in effect.
    Applying,
    /// The changes are in effect until the deadline.
    Trial,
    /// The changes are in effect permanently.
    Confirmed,
    /// The changes are being reverted; any of them may still be in effect.
    Reverting,
}

impl Phase {
    /// Returns whether the phase is stable: a generation can stay in it between commands.
    pub(super) const fn is_whole(self) -> bool {
        matches!(self, Self::Trial | Self::Confirmed)
    }
}

/// Journal entry of a changed kernel setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Setting {
    /// Dotted key of the kernel setting.
    pub(super) key: String,
    /// Value before the change, byte for byte.
    pub(super) former: String,
    /// Value that fullpipe wrote.
    pub(super) value: String,
}

/// Generation of changes: all changes that one command made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Generation {
    /// Schema name and version of the journal file.
    pub(super) schema: String,
    /// Number of the generation, starting from one.
    pub(super) number: u64,
    pub(super) phase: Phase,
    /// Time at which the generation began, in seconds since 1970.
    pub(super) began_unix_s: u64,
    /// Boot ID of the host when the generation began.
    pub(super) boot_id: String,
    /// Inode number of the network namespace in which the changes were made.
    pub(super) namespace: u64,
    /// Time at which unconfirmed changes are reverted, in nanoseconds since boot, including time in suspend.
    pub(super) deadline_boottime_ns: Option<u64>,
    pub(super) settings: Vec<Setting>,
    pub(super) routes: Vec<RouteStep>,
    /// Former contents of fullpipe's settings file; null if the file did not exist.
    pub(super) former_file: Option<String>,
    /// Damage of the journal file; `None` if the file is intact.
    #[serde(skip)]
    pub(super) damage: Option<Damage>,
}

pub(super) const SCHEMA: &str = "fullpipe.tune.state/1";

impl Generation {
    pub(super) fn new(place: &Target, number: u64, revert_after: Option<Duration>) -> Self {
        Self {
            schema: SCHEMA.into(),
            number,
            phase: Phase::Applying,
            began_unix_s: since_1970().as_nanos() / 1_000_000_000,
            boot_id: place.boot(),
            namespace: this_namespace(),
            deadline_boottime_ns: revert_after.map(|after| (since_boot() + after).as_nanos()),
            settings: Vec::new(),
            routes: Vec::new(),
            former_file: None,
            damage: None,
        }
    }

    /// Returns the time until the deadline of the trial: `None` without a deadline, zero once the deadline
    /// has passed. A trial ends with a reboot, because a user whose host is unreachable can only reboot
    /// it.
    pub(super) fn left(&self, place: &Target) -> Option<Duration> {
        let deadline = self.deadline_boottime_ns?;
        let left = deadline.saturating_sub(since_boot().as_nanos());
        Some(if self.boot_id == place.boot() { Duration::from_nanos(left) } else { Duration::ZERO })
    }

    /// Returns whether this generation is a trial whose deadline has passed.
    pub(super) fn is_overdue(&self, place: &Target) -> bool {
        self.phase == Phase::Trial && self.left(place) == Some(Duration::ZERO)
    }

    /// Returns whether the changes were made since the last boot, in this network namespace.
    pub(super) fn is_of_this_kernel(&self, place: &Target) -> bool {
        self.boot_id == place.boot() && self.namespace == this_namespace()
    }

    pub(super) fn save(&self, place: &Target, lock: &Lock) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(self).map_err(io::Error::other);
        text.and_then(|text| files::write(lock, &path(place, self.number), &(text + "\n")))
            .doing(format_args!("write the former values to {}", place.state().display()))
    }

    /// Writes the contents of a damaged journal file to a file next to it, so that they are kept when the
    /// journal is replaced or removed. Returns the path of the new file.
    pub(super) fn keep_aside(&self, place: &Target, lock: &Lock) -> Result<Option<PathBuf>, Error> {
        let Some(damage) = &self.damage else { return Ok(None) };
        let name = |nth: u32| {
            let more = if nth == 1 { String::new() } else { format!(".{nth}") };
            place.state().join(format!("{:04}.json.damaged{more}", self.number))
        };
        // If a process died after this step, it has left a file with the same contents.
        let free = |path: &PathBuf| match fs::read(path) {
            Ok(other) => other == damage.original,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        let path = (1..=MOST_ASIDE).map(name).find(free).unwrap_or_else(|| name(MOST_ASIDE));
        files::write_bytes(lock, &path, &damage.original)
            .doing(format_args!("keep the damaged journal as {}", path.display()))?;
        Ok(Some(path))
    }

    pub(super) fn forget(&self, place: &Target, lock: &Lock) -> Result<(), Error> {
        files::remove(lock, &path(place, self.number)).doing("remove the journal")
    }
}

/// Maximum number of damaged journal files that are kept per generation.
const MOST_ASIDE: u32 = 100;

fn path(place: &Target, number: u64) -> PathBuf {
    place.state().join(format!("{number:04}.json"))
}

/// Returns all generations of changes in the journal, the newest last. Damaged journal files are read as far
/// as possible ([`Generation::damage`]).
pub(super) fn generations(place: &Target) -> Result<Vec<Generation>, Error> {
    let mut found = Vec::new();
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            no_rights(format!("no permission to read {}: {error}", place.state().display()))
        }
        _ => Error::system(format_args!("read {}", place.state().display()), error),
    };
    let entries = match fs::read_dir(place.state()) {
        Ok(entries) => Some(entries),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(unreadable(error)),
    };
    for entry in entries.into_iter().flatten() {
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(".json")?.parse::<u32>().ok());
        let Some(number) = number else { continue };
        let bytes = files::read_bytes(&entry.path(), MOST_BYTES)
            .doing(format_args!("read {}", entry.path().display()))?;
        // The reader does not hold the lock, so a file may have been removed after it was listed.
        let Some(bytes) = bytes else { continue };
        found.push(salvage::generation(number.into(), &bytes));
    }
    found.sort_by_key(|generation| generation.number);
    // The former settings file follows from the earlier generations, so a damaged copy of it in the journal
    // does not matter.
    for index in 0..found.len() {
        if found[index].damage.is_some() && index > 0 {
            found[index].former_file = Some(file_text(&found[..index]));
        }
    }
    Ok(found)
}
