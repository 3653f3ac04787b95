//! State of running services, from the files that their keepers write below `/run/fullpipe`.
//!
//! The file reports what the keeper knows; whether packets are steered is read back from the kernel.

use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use fullpipe_linux::Error;
use serde::{Deserialize, Serialize};

use crate::nft;
use crate::steering::Phase;
use crate::system;
use crate::worker::Beat;

/// Folder of the files of running services.
pub(crate) const FOLDER: &str = "/run/fullpipe";
const PREFIX: &str = "accelerate-";

/// State of one service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Process ID of the keeper.
    pub keeper: u32,
    /// Process ID of the worker; null while it is being restarted.
    pub worker: Option<u32>,
    /// Address and port whose connections are accelerated.
    pub listen: SocketAddr,
    /// The server.
    pub upstream: String,
    /// nftables table of the service.
    pub table: String,
    /// Phase that the keeper has set: learning, steady or aside; null if nothing is steered.
    pub phase: Option<String>,
    /// Whether the kernel has the table of the service; null if it could not be read.
    pub steered: Option<bool>,
    /// Number of starts of the worker.
    pub starts: u64,
    /// Number of connections that stay with the kernel.
    pub kernels: usize,
    /// Last report of the worker.
    pub report: Beat,
}

impl Status {
    /// Returns the name of a phase in status reports.
    pub(crate) fn phase_name(phase: Option<Phase>) -> Option<String> {
        let name = match phase? {
            Phase::Learning => "learning",
            Phase::Steady => "steady",
            Phase::Aside => "aside",
        };
        Some(name.into())
    }
}

/// The status file of a keeper, which is removed with this value.
#[derive(Debug)]
pub(crate) struct StatusFile(PathBuf);

impl StatusFile {
    pub(crate) fn new(table: &str) -> Result<Self, Error> {
        let folder = Path::new(FOLDER);
        fs::create_dir_all(folder).map_err(|error| system(format_args!("create {FOLDER}"), error))?;
        Ok(Self(folder.join(format!("{PREFIX}{table}.json"))))
    }

    /// Replaces the content of the file.
    pub(crate) fn write(&self, status: &Status) -> Result<(), Error> {
        let failed = |error: io::Error| system(format_args!("write {}", self.0.display()), error);
        let mut file = tempfile::NamedTempFile::new_in(FOLDER).map_err(failed)?;
        let text = serde_json::to_vec(status).map_err(|error| failed(error.into()))?;
        file.write_all(&text).map_err(failed)?;
        // The counters are no secret.
        file.as_file().set_permissions(fs::Permissions::from_mode(0o644)).map_err(failed)?;
        file.persist(&self.0).map_err(|error| failed(error.error))?;
        Ok(())
    }
}

impl Drop for StatusFile {
    fn drop(&mut self) {
        // If the file cannot be removed, `read` finds that its keeper has ended.
        let _ = fs::remove_file(&self.0);
    }
}

/// Returns the state of all services on this host whose keepers run.
///
/// # Errors
/// Returns an error if the status files cannot be read.
pub fn read() -> Result<Vec<Status>, Error> {
    let entries = match fs::read_dir(FOLDER) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(system(format_args!("read {FOLDER}"), error)),
    };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let path = entry.path();
        let text = fs::read(&path).map_err(|error| system(format_args!("read {}", path.display()), error))?;
        // A file of another version is not readable, and the service of a keeper that has ended is not there.
        let Ok(mut status) = serde_json::from_slice::<Status>(&text) else { continue };
        if !Path::new(&format!("/proc/{}", status.keeper)).exists() {
            continue;
        }
        let tables = nft::query(&["-j", "list", "tables", "netdev"]).ok();
        status.steered = tables.map(|tables| tables.contains(&format!("\"{}\"", status.table)));
        found.push(status);
    }
    found.sort_by_key(|status| status.listen);
    Ok(found)
}

/// Formats the state of a service as text.
pub fn render(status: &Status) -> String {
    let Status { listen, upstream, report, .. } = status;
    let phase = status.phase.as_deref().unwrap_or("nothing is steered");
    let steered = match status.steered {
        Some(true) => "in the kernel",
        Some(false) => "missing in the kernel",
        None => "not readable without root",
    };
    let worker = status.worker.map_or_else(|| "restarting".to_owned(), |pid| pid.to_string());
    let total: f64 = report.limits.values().sum();
    let limits: Vec<String> = report
        .limits
        .iter()
        .filter(|(_, spent)| **spent > 0.0 && total > 0.0)
        .map(|(name, spent)| format!("{name} {:.0} %", 100.0 * spent / total))
        .collect();
    format!(
        "{listen} -> {upstream}\n  steering    {phase}; table {} {steered}; {} connections left to the kernel\n  \
         processes   keeper {}, worker {worker}, {} starts\n  server      {}\n  connections {} open, {} accepted, \
         {} resets, {} without a server\n  bytes       {} from clients, {} to clients, {} in buffers\n  packets     \
         {} in, {} out, {} refused\n  limits      {}\n",
        status.table,
        status.kernels,
        status.keeper,
        status.starts,
        report.health,
        report.connections,
        report.accepted,
        report.resets,
        report.unreachable,
        report.bytes_up,
        report.bytes_down,
        report.held,
        report.packets_in,
        report.packets_out,
        report.refused,
        if limits.is_empty() { "none yet".into() } else { limits.join(", ") },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_shown_as_text() {
        let report = Beat {
            connections: 2,
            health: "up".into(),
            limits: [("app".to_owned(), 3.0), ("cwnd".to_owned(), 1.0)].into(),
            ..Beat::default()
        };
        let status = Status {
            keeper: 10,
            worker: None,
            listen: SocketAddr::from(([203, 0, 113, 5], 443)),
            upstream: "127.0.0.1:8443".into(),
            table: "fullpipe_fp0".into(),
            phase: Status::phase_name(Some(Phase::Steady)),
            steered: Some(false),
            starts: 1,
            kernels: 7,
            report,
        };
        let text = render(&status);
        for part in [
            "203.0.113.5:443 -> 127.0.0.1:8443",
            "steady; table fullpipe_fp0 missing in the kernel; 7 connections",
            "worker restarting",
            "app 75 %, cwnd 25 %",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let json = serde_json::to_string(&status).expect("JSON");
        assert_eq!(serde_json::from_str::<Status>(&json).expect("the same"), status);
    }
}
