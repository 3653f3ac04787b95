//! Reads the kernel settings and the free memory of this host.

use std::fs;
use std::path::Path;

use fullpipe_analysis::HostSettings;
use fullpipe_analysis::tune::KEYS;
use fullpipe_units::Bytes;

use crate::Error;
use crate::input::read;

/// Name of the source that means the settings of this host.
pub const LOCAL: &str = "local";

/// Reads kernel settings from the file `source`, which contains the output of `sysctl -a`. If `source` is
/// `local`, reads the settings of this host.
///
/// # Errors
/// Returns an error if the file cannot be read or contains no settings.
pub fn settings(source: &str) -> Result<HostSettings, Error> {
    let text = if source == LOCAL { local() } else { read(source)? };
    HostSettings::parse(&text).map_err(|e| Error::from(e).about(source))
}

/// Returns the kernel settings of this host in the format of `sysctl -a`. Settings that cannot be read, for
/// example in a container, are omitted.
fn local() -> String {
    let line = |path: &&str| {
        let value = fs::read_to_string(Path::new("/proc/sys").join(path)).ok()?;
        Some(format!("{} = {}\n", path.replace('/', "."), value.trim()))
    };
    KEYS.iter().filter_map(line).collect()
}

/// Returns the memory that is available to applications; returns `None` if the host does not report it.
pub fn memory_left() -> Option<Bytes> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes::new(kibibytes.saturating_mul(1024)))
}
