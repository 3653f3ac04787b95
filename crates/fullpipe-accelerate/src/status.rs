//! State of running services, from the files that their keepers write below `/run/fullpipe`.
//!
//! ```text
//!   accelerate-NAMESPACE-TABLE.json   state, written by the keeper
//!   accelerate-NAMESPACE-TABLE.lock   flock of the keeper, for as long as it runs
//!   start.lock                        flock of a service that is starting
//! ```
//!
//! The file reports the keeper's state, but whether packets are steered is read from the kernel. Network
//! namespaces of one host can share `/run`, so the file names contain the namespace number.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use fullpipe_linux::Error;
use fullpipe_linux::device::Drops;
use fullpipe_linux::namespace::this_namespace;
use fullpipe_units::{Bytes, Duration, Rate};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::nft;
use crate::steering::Phase;
use crate::system;
use crate::worker::{Beat, PathReport};

/// Folder for the files of running services.
pub(crate) const FOLDER: &str = "/run/fullpipe";
const PREFIX: &str = "accelerate-";
const STATE: &str = "json";
const LOCK: &str = "lock";

/// State of one service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Process ID of the keeper.
    pub keeper: u32,
    /// Process ID of the worker; null while it is being restarted.
    pub worker: Option<u32>,
    /// Inode number of the network namespace in which the connections are accelerated.
    pub namespace: u64,
    /// Address and port whose connections are accelerated.
    pub listen: SocketAddr,
    /// The server.
    pub upstream: String,
    /// nftables table of the service.
    pub table: String,
    /// Phase that the keeper has set: learning, steady or aside; null if nothing is steered.
    pub phase: Option<String>,
    /// Whether the kernel has the table of the service; null if the table could not be read or belongs to
    /// another network namespace.
    pub steered: Option<bool>,
    /// Number of starts of the worker.
    pub starts: u64,
    /// Number of connections that stay with the kernel.
    pub kernels: usize,
    /// Numbers of packets that the kernel has dropped since the start of the service.
    pub drops: DroppedPackets,
    /// Maximum rate of all connections together, in bit/s: 98 % of the device speed; null if the speed is not
    /// known.
    pub limit: Option<u64>,
    /// Rates since the previous status, which is about a second old.
    pub rates: Rates,
    /// Most recent report of the worker.
    pub report: Beat,
}

/// Rates of a service over a period, and the longest delay of its worker's loop in this period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Rate of the data from clients, in bit/s.
    pub up: u64,
    /// Rate of the data to clients, in bit/s.
    pub down: u64,
    /// Number of connections that were accepted per second.
    pub accepted: f64,
    /// Longest time in seconds by which the loop was late.
    pub loop_delay: f64,
}

impl Rates {
    /// Computes the rates between two reports of a worker. The counters of a new worker start at zero.
    pub(crate) fn between(before: &Beat, after: &Beat, period: Duration, delay: f64) -> Self {
        if period.is_zero() {
            return Self { loop_delay: delay, ..Self::default() };
        }
        let since = |after: u64, before: u64| after.checked_sub(before).unwrap_or(after);
        let rate = |after, before| Rate::mean(Bytes::new(since(after, before)), period).as_bps();
        Self {
            up: rate(after.bytes_up, before.bytes_up),
            down: rate(after.bytes_down, before.bytes_down),
            accepted: since(after.accepted, before.accepted) as f64 / period.as_secs_f64(),
            loop_delay: delay,
        }
    }
}

/// Packets that the kernel has dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedPackets {
    /// Number of packets from clients that were dropped because the worker did not read them in time.
    pub unread: u64,
    /// Number of packets that the queues of the devices to the clients have dropped, including packets of
    /// other programs.
    pub queues: u64,
}

impl From<Drops> for DroppedPackets {
    fn from(drops: Drops) -> Self {
        Self { unread: drops.unread, queues: drops.queues }
    }
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

/// Waits until no other service is starting, and returns a lock that prevents other starts. Without the lock,
/// two services could choose the same device, or steer the same port.
pub(crate) fn lock_starts() -> Result<File, Error> {
    let folder = Path::new(FOLDER);
    fs::create_dir_all(folder).map_err(|error| system(format_args!("create {FOLDER}"), error))?;
    lock(&folder.join("start.lock"))
}

/// Opens the file `path`, and waits for its lock.
fn lock(path: &Path) -> Result<File, Error> {
    let failed = |error: io::Error| system(format_args!("lock {}", path.display()), error);
    // Only root may open the file, because any process that can open it can also lock it.
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = file.map_err(failed)?;
    flock(&file, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
    Ok(file)
}

/// The status file of a keeper; dropping this value removes the file.
#[derive(Debug)]
pub(crate) struct StatusFile {
    path: PathBuf,
    /// The kernel releases the lock when the keeper ends, even if the keeper was killed.
    _lock: File,
}

impl StatusFile {
    pub(crate) fn new(folder: &Path, table: &str) -> Result<Self, Error> {
        let path = folder.join(format!("{PREFIX}{}-{table}.{STATE}", this_namespace()));
        let lock = lock(&path.with_extension(LOCK))?;
        Ok(Self { path, _lock: lock })
    }

    /// Replaces the content of the file.
    pub(crate) fn write(&self, status: &Status) -> Result<(), Error> {
        let failed = |error: io::Error| system(format_args!("write {}", self.path.display()), error);
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
        let text = serde_json::to_vec(status).map_err(|error| failed(error.into()))?;
        file.write_all(&text).map_err(failed)?;
        // The counters are not secret.
        file.as_file().set_permissions(fs::Permissions::from_mode(0o644)).map_err(failed)?;
        file.persist(&self.path).map_err(|error| failed(error.error))?;
        Ok(())
    }
}

impl Drop for StatusFile {
    fn drop(&mut self) {
        // If the files cannot be removed, `read` finds that their keeper has ended.
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_file(self.path.with_extension(LOCK));
    }
}

/// Removes the files of killed keepers. The caller must hold the lock that prevents other starts.
pub(crate) fn remove_stale() {
    for path in state_files(Path::new(FOLDER)).unwrap_or_default() {
        let lock = path.with_extension(LOCK);
        let keeper = fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Status>(&text).ok());
        if !is_running(&lock, keeper.map_or(0, |status| status.keeper)) {
            let _ = fs::remove_file(&path);
            let _ = fs::remove_file(lock);
        }
    }
}

/// Returns the state of all services on this host whose keepers run.
///
/// # Errors
/// Returns an error if the status files cannot be read.
pub fn read() -> Result<Vec<Status>, Error> {
    read_folder(Path::new(FOLDER))
}

/// Returns the paths of the status files in a folder.
fn state_files(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(system(format_args!("read {}", folder.display()), error)),
    };
    let of_a_service = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == STATE)
            && path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX))
    };
    Ok(entries.flatten().map(|entry| entry.path()).filter(of_a_service).collect())
}

fn read_folder(folder: &Path) -> Result<Vec<Status>, Error> {
    let own = this_namespace();
    let mut found = Vec::new();
    for path in state_files(folder)? {
        // The keeper may have ended in the meantime. A file written by another version may not be readable.
        let Ok(text) = fs::read(&path) else { continue };
        let Ok(mut status) = serde_json::from_slice::<Status>(&text) else { continue };
        if !is_running(&path.with_extension(LOCK), status.keeper) {
            continue;
        }
        // Only the tables of this process's own namespace are visible. nft 1.0.6 may abort while it prints the list of
        // tables as JSON.
        if status.namespace == own {
            let tables = nft::query(&["list", "tables", "netdev"]).ok();
            let own = format!("table netdev {}", status.table);
            status.steered = tables.map(|tables| tables.lines().any(|table| table == own));
        }
        found.push(status);
    }
    found.sort_by_key(|status| (status.listen, status.keeper));
    Ok(found)
}

/// Returns whether the keeper with this lock file and process ID is running.
fn is_running(lock: &Path, keeper: u32) -> bool {
    match File::open(lock) {
        Ok(file) => flock(&file, FlockOperation::NonBlockingLockShared).is_err(),
        // Only root can open the file.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Path::new(&format!("/proc/{keeper}")).exists()
        }
        Err(_) => false,
    }
}

/// Returns the tables of the services that run in this network namespace.
pub(crate) fn tables_here() -> Result<Vec<String>, Error> {
    let own = this_namespace();
    let here = read()?.into_iter().filter(|service| service.namespace == own);
    Ok(here.map(|service| service.table).collect())
}

/// Returns the running service that accelerates `listen` in this network namespace.
pub(crate) fn service_at(listen: SocketAddr) -> Option<Status> {
    let own = this_namespace();
    let services = read().unwrap_or_default();
    services.into_iter().find(|service| service.listen == listen && service.namespace == own)
}

/// Formats the state of a service as text.
pub fn render(status: &Status) -> String {
    let Status { listen, upstream, report, .. } = status;
    let phase = status.phase.as_deref().unwrap_or("not steering");
    let steered = match status.steered {
        Some(true) => "in the kernel",
        Some(false) => "missing in the kernel",
        None if status.namespace == this_namespace() => "not readable without root",
        None => "in another network namespace",
    };
    let worker = status.worker.map_or_else(|| "restarting".to_owned(), |pid| pid.to_string());
    let server = if report.health == "unknown" {
        "unknown, because there was no connection within the last \
        second"
    } else {
        &report.health
    };
    let total: f64 = report.limits.values().sum();
    let limits: Vec<String> = report
        .limits
        .iter()
        .filter(|(_, spent)| **spent > 0.0 && total > 0.0)
        .map(|(name, spent)| format!("{name} {:.0} %", 100.0 * spent / total))
        .collect();
    let limits = if limits.is_empty() { "none yet".into() } else { limits.join(", ") };
    let Status { table, kernels, keeper, starts, .. } = status;
    let Beat { connections, accepted, resets, unreachable, packets_in, packets_out, refused, .. } = report;
    let DroppedPackets { unread, queues } = status.drops;
    let limit = status.limit.map_or_else(String::new, |limit| {
        format!("; at most {:.0} Mbit/s together", Rate::from_bps(limit).as_mbps_f64())
    });
    let [up, down, held] = [report.bytes_up, report.bytes_down, report.held].map(Bytes::new);
    [
        format!("{listen} -> {upstream}"),
        format!("  steering     {phase}; table {table} {steered}; {kernels} connections left to the kernel"),
        format!("  processes    keeper {keeper}, worker {worker} (start {starts})"),
        format!("  server       {server}"),
        format!(
            "  connections  {connections} open, {accepted} accepted, {resets} resets, {unreachable} without a \
             server"
        ),
        format!("  data         {up} from clients, {down} to clients, {held} in buffers"),
        render_rates(status.rates),
        format!("  packets      {packets_in} in, {packets_out} out, {refused} refused"),
        format!("  drops        {unread} not read by the worker, {queues} in queues of devices{limit}"),
        format!("  limits       {limits}"),
    ]
    .into_iter()
    .chain(report.paths.as_ref().map(render_paths))
    .chain([String::new()])
    .collect::<Vec<_>>()
    .join("\n")
}

/// Formats the rates as one line.
fn render_rates(rates: Rates) -> String {
    let [up, down] = [rates.up, rates.down].map(Rate::from_bps);
    format!(
        "  rates        {up} from clients, {down} to clients, {:.1} new connections per second; loop at most {:.1} \
         ms late",
        rates.accepted,
        1e3 * rates.loop_delay
    )
}

/// Formats the state of the path memory as one line.
fn render_paths(paths: &PathReport) -> String {
    let PathReport { prefixes, launches, over_budget, stopped } = paths;
    match stopped {
        Some(reason) => format!("  launches     stopped; new connections start with bbr1, because {reason}"),
        None => format!(
            "  launches     {launches} above ten segments, {over_budget} reduced to fit a budget; {prefixes} \
             prefixes in the path memory"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Status {
        let report = Beat {
            connections: 2,
            health: "up".into(),
            limits: [("app".to_owned(), 3.0), ("cwnd".to_owned(), 1.0)].into(),
            ..Beat::default()
        };
        Status {
            keeper: std::process::id(),
            worker: None,
            namespace: this_namespace(),
            listen: SocketAddr::from(([203, 0, 113, 5], 443)),
            upstream: "127.0.0.1:8443".into(),
            table: "fullpipe_fp0".into(),
            phase: Status::phase_name(Some(Phase::Steady)),
            steered: Some(false),
            starts: 1,
            kernels: 7,
            drops: DroppedPackets { unread: 1, queues: 2 },
            limit: Some(980_000_000),
            rates: Rates { up: 8_000, down: 96_000_000, accepted: 2.5, loop_delay: 0.0012 },
            report,
        }
    }

    #[test]
    fn a_state_is_shown_as_text() {
        let status = status();
        let text = render(&status);
        for part in [
            "203.0.113.5:443 -> 127.0.0.1:8443",
            "steady; table fullpipe_fp0 missing in the kernel; 7 connections",
            "worker restarting",
            "app 75 %, cwnd 25 %",
            "8 kbit/s from clients, 96 Mbit/s to clients, 2.5 new connections per second; loop at most 1.2 ms late",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("launches"), "{text}");
        let paths = PathReport { prefixes: 3, launches: 9, over_budget: 1, stopped: None };
        let with = |paths: PathReport| {
            let report = Beat { paths: Some(paths), ..status.report.clone() };
            render(&Status { report, ..status.clone() })
        };
        let text = with(paths.clone());
        assert!(
            text.ends_with(
                "  launches     9 above ten segments, 1 reduced to fit a budget; 3 prefixes in the path memory\n"
            ),
            "{text}"
        );
        let stopped =
            Some("for 30s, connections sent 1.20 bytes per byte needed, which is more than 1.10".into());
        let text = with(PathReport { stopped, ..paths });
        assert!(
            text.contains(
                "stopped; new connections start with bbr1, because for 30s, connections sent \
                               1.20 bytes"
            ),
            "{text}"
        );
        let json = serde_json::to_string(&status).expect("JSON");
        assert_eq!(serde_json::from_str::<Status>(&json).expect("the same"), status);
    }

    #[test]
    fn rates_are_those_between_two_reports() {
        let beat = |bytes: u64| Beat { bytes_down: bytes, accepted: bytes / 1_000, ..Beat::default() };
        let rates = |before, after| Rates::between(&beat(before), &beat(after), Duration::from_secs(2), 0.5);
        let expected = Rates { up: 0, down: 8_000, accepted: 1.0, loop_delay: 0.5 };
        assert_eq!(rates(1_000, 3_000), expected);
        assert_eq!(rates(9_000, 2_000), expected, "a new worker");
        let none = Rates::between(&beat(0), &beat(1_000), Duration::ZERO, 0.0);
        assert_eq!(none, Rates::default());
    }

    /// The file of a killed keeper still exists, but no process holds its lock.
    #[test]
    fn only_running_services_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let names = |folder: &Path| -> Vec<String> {
            read_folder(folder).expect("readable").into_iter().map(|status| status.table).collect()
        };
        assert_eq!(names(&folder.path().join("missing")), [""; 0]);
        let file = StatusFile::new(folder.path(), "fullpipe_fp0").expect("a lock");
        file.write(&status()).expect("room");
        assert_eq!(names(folder.path()), ["fullpipe_fp0"]);
        let killed = folder.path().join("accelerate-1-fullpipe_fp1");
        fs::copy(&file.path, killed.with_extension(STATE)).expect("room");
        assert_eq!(names(folder.path()).len(), 1, "without a lock file");
        fs::write(killed.with_extension(LOCK), "").expect("room");
        assert_eq!(names(folder.path()).len(), 1, "without a lock");
        drop(file);
        assert_eq!(names(folder.path()), [""; 0]);
    }
}
