//! State file with what the last copy to each peer has seen, from which the next copy starts.
//!
//! The file is a hint: a file that is damaged, too large or writable by other users is ignored, and so is an entry
//! that is too old. A new file replaces the old one as a whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use fullpipe_units::{Duration, Rate};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::engine::Remembered;
use crate::frame::MOST_CONNECTIONS;
use crate::keys::Fingerprint;
use crate::target::End;

/// Schema of the file.
const SCHEMA: &str = "fullpipe.copy-peers/1";
/// Age in seconds from which an entry is ignored: 30 days.
const OLD: u64 = 30 * 86_400;
/// Maximum number of entries; the oldest are dropped.
const MOST_PEERS: usize = 128;
/// Maximum size of the file in bytes; 128 entries with long host names take less.
const MOST_FILE: u64 = 128 << 10;
/// Permission bits of the file and of a new folder, and the bits that let other users write.
const PRIVATE: u32 = 0o600;
const PRIVATE_FOLDER: u32 = 0o700;
const OTHERS_WRITE: u32 = 0o022;

/// The other end of a copy, and the congestion control that the copy was told to use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Peer {
    /// Address as on the command line.
    address: String,
    /// Fingerprint of the permanent key; a host that is reached with ssh has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cc: Option<String>,
}

impl Peer {
    /// Returns the peer of a copy to `target`; `None` if the target is on this host.
    pub(crate) fn of(target: &End, key: Option<Fingerprint>, cc: Option<&str>) -> Option<Self> {
        let address = match target {
            End::Relay { host, port, .. } => format!("{host} {port}"),
            End::Ssh { host, .. } => host.clone(),
            End::Local(_) | End::Pipe => return None,
        };
        Some(Self { address, key: key.map(|key| key.to_string()), cc: cc.map(str::to_owned) })
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Content {
    schema: String,
    peers: Vec<Entry>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Entry {
    #[serde(flatten)]
    peer: Peer,
    /// Seconds since 1970 at the end of the copy.
    at: u64,
    connections: u32,
    rtt_us: u64,
    rate_bps: u64,
}

impl Entry {
    fn is_current(&self, now: u64) -> bool {
        // A clock that is set back makes entries of the future, whose age is not known.
        now.checked_sub(self.at).is_some_and(|age| age < OLD)
    }

    fn remembered(&self) -> Option<Remembered> {
        let is_possible =
            (1..=MOST_CONNECTIONS).contains(&self.connections) && self.rtt_us > 0 && self.rate_bps > 0;
        is_possible.then(|| Remembered {
            connections: self.connections,
            rtt: Duration::from_micros(self.rtt_us),
            rate: Rate::from_bps(self.rate_bps),
        })
    }
}

/// State file of a user.
#[derive(Clone, Debug)]
pub(crate) struct Peers {
    path: PathBuf,
}

impl Peers {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.into() }
    }

    /// Returns what the last copy to `peer` has seen.
    pub(crate) fn get(&self, peer: &Peer) -> Option<Remembered> {
        self.get_at(peer, now())
    }

    /// Records what a copy to `peer` has seen. Without an entry, the next copy starts with one connection, so errors
    /// are ignored.
    pub(crate) fn put(&self, peer: &Peer, remembered: Remembered) {
        let _ = self.put_at(peer, remembered, now());
    }

    fn get_at(&self, peer: &Peer, now: u64) -> Option<Remembered> {
        let entries = self.read();
        let entry = entries.iter().rev().find(|entry| entry.peer == *peer && entry.is_current(now));
        entry.and_then(Entry::remembered)
    }

    fn put_at(&self, peer: &Peer, remembered: Remembered, now: u64) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        fs::DirBuilder::new().recursive(true).mode(PRIVATE_FOLDER).create(folder)?;
        let create =
            |path: &Path| OpenOptions::new().write(true).create(true).truncate(true).mode(PRIVATE).open(path);
        // Another copy that ends at the same time must not lose its entry, nor write to the same new file.
        let lock = create(&self.path.with_extension("lock"))?;
        flock(&lock, FlockOperation::LockExclusive)?;
        let mut peers: Vec<Entry> =
            self.read().into_iter().filter(|entry| entry.peer != *peer && entry.is_current(now)).collect();
        let Remembered { connections, rtt, rate } = remembered;
        let (rtt_us, rate_bps) = (rtt.as_nanos() / 1000, rate.as_bps());
        peers.push(Entry { peer: peer.clone(), at: now, connections, rtt_us, rate_bps });
        peers.drain(..peers.len().saturating_sub(MOST_PEERS));
        let new = self.path.with_extension("new");
        let mut file = create(&new)?;
        let mut text = serde_json::to_vec_pretty(&Content { schema: SCHEMA.into(), peers })?;
        text.push(b'\n');
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)
    }

    /// Returns the entries, oldest first.
    fn read(&self) -> Vec<Entry> {
        let read = || {
            let file = File::open(&self.path).ok()?;
            let metadata = file.metadata().ok()?;
            if !metadata.is_file() || metadata.mode() & OTHERS_WRITE != 0 {
                return None;
            }
            let mut text = Vec::new();
            file.take(MOST_FILE + 1).read_to_end(&mut text).ok()?;
            if text.len() as u64 > MOST_FILE {
                return None;
            }
            let content: Content = serde_json::from_slice(&text).ok()?;
            (content.schema == SCHEMA).then_some(content.peers)
        };
        read().unwrap_or_default()
    }
}

/// Returns the seconds since 1970.
#[expect(clippy::disallowed_methods, reason = "the age of an entry counts across reboots")]
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn relay(host: &str, key: Option<Fingerprint>, cc: Option<&str>) -> Peer {
        let end = End::parse(format!("relay://{host}/file").as_ref()).expect("an end");
        Peer::of(&end, key, cc).expect("a peer")
    }

    fn peer(host: &str) -> Peer {
        relay(host, None, None)
    }

    fn remembered(connections: u32) -> Remembered {
        Remembered { connections, rtt: Duration::from_millis(210), rate: Rate::from_bps(470_000_000) }
    }

    fn peers() -> (tempfile::TempDir, Peers) {
        let folder = tempfile::tempdir().expect("a folder");
        let peers = Peers::new(&folder.path().join("state/fullpipe/copy-peers.json"));
        (folder, peers)
    }

    #[test]
    fn the_last_copy_to_each_peer_is_remembered() {
        let (_folder, peers) = peers();
        assert_eq!(peers.get_at(&peer("a"), NOW), None);
        let key: Fingerprint = format!("sha256:{}", "5a".repeat(32)).parse().expect("a fingerprint");
        let (keyed, bbr) = (relay("a", Some(key), None), relay("a", None, Some("bbr")));
        let over_ssh = Peer::of(&End::parse("a:file".as_ref()).expect("an end"), None, None).expect("a peer");
        let puts =
            [(&peer("a"), 4), (&keyed, 7), (&bbr, 1), (&over_ssh, 3), (&peer("a:9582"), 2), (&peer("a"), 5)];
        for (peer, connections) in puts {
            peers.put_at(peer, remembered(connections), NOW).expect("written");
        }
        for (peer, connections) in &puts[1..] {
            assert_eq!(peers.get_at(peer, NOW), Some(remembered(*connections)), "{peer:?}");
        }
        let mode = |path: &Path| path.metadata().expect("metadata").mode() & 0o777;
        let folder = peers.path.parent().expect("a folder");
        assert_eq!((mode(&peers.path), mode(folder)), (0o600, 0o700));
        let mut names: Vec<_> =
            folder.read_dir().expect("entries").map(|entry| entry.expect("an entry").file_name()).collect();
        names.sort();
        assert_eq!(names, ["copy-peers.json", "copy-peers.lock"], "no new file is left");
    }

    #[test]
    fn an_entry_is_ignored_after_a_month_or_if_it_is_from_the_future() {
        let (_folder, peers) = peers();
        peers.put_at(&peer("a"), remembered(4), NOW).expect("written");
        assert_eq!(peers.get_at(&peer("a"), NOW + OLD - 1), Some(remembered(4)));
        assert_eq!(peers.get_at(&peer("a"), NOW + OLD), None);
        assert_eq!(peers.get_at(&peer("a"), NOW - 1), None);
        peers.put_at(&peer("b"), remembered(4), NOW + OLD).expect("written");
        assert_eq!(peers.read().len(), 1, "the old entry is dropped");
    }

    #[test]
    fn the_oldest_of_many_peers_are_dropped() {
        let (_folder, peers) = peers();
        let content = Content {
            schema: SCHEMA.into(),
            peers: (0..MOST_PEERS as u64 + 9)
                .map(|n| Entry {
                    peer: peer(&format!("host-{n}")),
                    at: NOW,
                    connections: 2,
                    rtt_us: 1,
                    rate_bps: 1,
                })
                .collect(),
        };
        fs::create_dir_all(peers.path.parent().expect("a folder")).expect("a folder");
        fs::write(&peers.path, serde_json::to_vec(&content).expect("JSON")).expect("written");
        peers.put_at(&peer("last"), remembered(4), NOW).expect("written");
        assert_eq!(peers.read().len(), MOST_PEERS);
        assert_eq!(peers.get_at(&peer("last"), NOW), Some(remembered(4)));
        assert_eq!(peers.get_at(&peer("host-9"), NOW), None);
        assert!(peers.get_at(&peer("host-10"), NOW).is_some());
    }

    #[test]
    fn a_damaged_file_is_ignored_and_replaced() {
        let (_folder, peers) = peers();
        peers.put_at(&peer("a"), remembered(4), NOW).expect("written");
        let whole = fs::read(&peers.path).expect("a file");
        // Cut off at each byte, or with one byte changed: never a panic, and never an impossible number.
        for length in 0..whole.len() - 2 {
            fs::write(&peers.path, &whole[..length]).expect("written");
            assert_eq!(peers.get_at(&peer("a"), NOW), None, "{length}");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x11;
            fs::write(&peers.path, changed).expect("written");
            if let Some(remembered) = peers.get_at(&peer("a"), NOW) {
                assert!((1..=MOST_CONNECTIONS).contains(&remembered.connections), "{at}");
            }
        }
        let text = String::from_utf8(whole.clone()).expect("text");
        for (from, to) in [
            ("\"connections\": 4", "\"connections\": 17"),
            ("\"connections\": 4", "\"connections\": 0"),
            ("copy-peers/1", "copy-peers/2"),
        ] {
            assert!(text.contains(from));
            fs::write(&peers.path, text.replace(from, to)).expect("written");
            assert_eq!(peers.get_at(&peer("a"), NOW), None, "{to}");
        }
        fs::write(&peers.path, " ".repeat(MOST_FILE as usize) + &text).expect("written");
        assert_eq!(peers.get_at(&peer("a"), NOW), None, "too large");
        peers.put_at(&peer("a"), remembered(4), NOW).expect("written");
        assert_eq!(peers.get_at(&peer("a"), NOW), Some(remembered(4)));
        fs::set_permissions(&peers.path, fs::Permissions::from_mode(0o620)).expect("permissions");
        assert_eq!(peers.get_at(&peer("a"), NOW), None, "other users may write it");
    }
}
