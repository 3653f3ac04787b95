//! Reads the settings and free memory of this host.

use std::fs;
use std::path::Path;

use fullpipe_analysis::HostSettings;
use fullpipe_analysis::tune::KEYS;
use fullpipe_units::Bytes;

use crate::Error;
use crate::input::read;

/// Source name for the settings of this host.
pub const LOCAL: &str = "local";

/// Reads settings: from the sysctl dump in file `source`, or for `local` those of this host.
///
/// # Errors
/// The dump cannot be read, or contains no settings.
pub fn settings(source: &str) -> Result<HostSettings, Error> {
    let text = if source == LOCAL { local() } else { read(source)? };
    HostSettings::parse(&text).map_err(|e| Error::from(e).about(source))
}

/// Returns the settings of this host in the format of a sysctl dump. It omits settings that cannot
/// be read, for example in a container.
fn local() -> String {
    let line = |path: &&str| {
        let value = fs::read_to_string(Path::new("/proc/sys").join(path)).ok()?;
        Some(format!("{} = {}\n", path.replace('/', "."), value.trim()))
    };
    KEYS.iter().filter_map(line).collect()
}

/// Returns the memory available to applications, if the host reports it.
pub fn memory_left() -> Option<Bytes> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes::new(kibibytes.saturating_mul(1024)))
}
