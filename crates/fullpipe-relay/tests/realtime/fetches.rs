//! Tests of copies from a relay.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fullpipe_relay::{
    Connections, CopyOptions, CopyReport, End, Error, Kernel, Kind, Pacer, RateLimit, Room, Sampler,
    SocketSample, Sources, copy,
};
use fullpipe_units::{Bytes, Duration, Rate};

use crate::limits::CountingPacer;
use crate::proxy::{Cut, Proxy, slow};
use crate::{Fixture, Notes};

const MIB: usize = 1 << 20;

impl Fixture {
    /// Returns the options of a copy from the relay at `address` to `target`, below the folder `out`.
    pub(crate) fn fetching(
        &self,
        sources: &[&str],
        target: &str,
        address: std::net::SocketAddr,
    ) -> CopyOptions {
        let end = |source: &&str| End::parse(format!("relay://{address}/{source}").as_ref()).expect("an end");
        // Joining the paths as text keeps a slash at the end.
        let target = format!("{}/out/{target}", self.folder.path().display());
        CopyOptions {
            sources: Sources::Remote(sources.iter().map(end).collect()),
            target: End::Local(target.into()),
            ..self.options(Path::new("-"), "-", address)
        }
    }

    fn fetch(&self, sources: &[&str], target: &str) -> Result<CopyReport, Error> {
        copy(&self.fetching(sources, target, self.address), None, &Notes)
    }

    /// Writes a file of the relay, and returns its content.
    fn stored(&self, name: &str, size: usize) -> Vec<u8> {
        let source = self.source(&format!("../in/{name}"), size);
        fs::read(source).expect("a file")
    }

    pub(crate) fn fetched(&self, name: &str) -> PathBuf {
        self.folder.path().join("out").join(name)
    }
}

/// A relay that cannot sample its sockets asks only for the minimum number of connections.
#[test]
fn the_relay_asks_for_the_connections_that_it_chooses() {
    let fixture = Fixture::new();
    let content = fixture.stored("large", 40 * MIB);
    for (least, most) in [(1, 16), (3, 5)] {
        let connections = Connections::new(least, most).expect("a range");
        let options = CopyOptions { connections, ..fixture.fetching(&["large"], "large", fixture.address) };
        let report = copy(&options, None, &Notes).expect("copied");
        assert!(fs::read(fixture.fetched("large")).expect("placed") == content);
        assert!((1..=u64::from(least)).contains(&report.most_connections), "{report:?}");
        fs::remove_file(fixture.fetched("large")).expect("removed");
    }
}

/// A kernel that reports 32 Mbit/s and a full send buffer for each connection of this host.
#[derive(Debug)]
struct SmallBuffers;

impl Kernel for SmallBuffers {
    fn sampler(&self, _: Option<Rate>) -> Option<Box<dyn Sampler>> {
        Some(Box::new(Sockets::new(|sample| sample)))
    }

    fn pacer(&self) -> Arc<dyn Pacer> {
        Arc::new(CountingPacer::new(Duration::ZERO))
    }
}

/// A sampler that reports 32 Mbit/s and a full send buffer for each connection of this host, unless `change` changes
/// the report.
pub(crate) struct Sockets<C> {
    calls: u32,
    change: C,
}

impl<C: FnMut(SocketSample) -> SocketSample + Send> Sockets<C> {
    pub(crate) fn new(change: C) -> Self {
        Self { calls: 0, change }
    }
}

impl<C: FnMut(SocketSample) -> SocketSample + Send> Sampler for Sockets<C> {
    fn sample(&mut self) -> Vec<SocketSample> {
        self.calls += 1;
        if !self.calls.is_multiple_of(2) {
            return Vec::new();
        }
        let sample = |(port, peer)| SocketSample {
            port,
            peer,
            acked: Bytes::from_kib(800),
            rate: Rate::from_bps(32 << 20),
            rtt: Duration::from_millis(10),
            retransmits: 0,
            limit: Some("sndbuf".into()),
            room: Room::PerConnection,
            is_growing: false,
            is_window_limited: false,
            memory: Bytes::from_mib(1),
            sent: Bytes::ZERO,
        };
        established().into_iter().map(sample).map(&mut self.change).collect()
    }
}

/// Returns the local port and the peer of each TCP connection of this host, from `/proc/net/tcp`.
fn established() -> Vec<(u16, SocketAddr)> {
    // An address is a word in the byte order of the host: `0100007F:22B8` is 127.0.0.1:8888.
    let address = |text: &str| {
        let (address, port) = text.split_once(':')?;
        let address = u32::from_str_radix(address, 16).ok()?.to_ne_bytes();
        Some(SocketAddr::from((Ipv4Addr::from(address), u16::from_str_radix(port, 16).ok()?)))
    };
    let table = fs::read_to_string("/proc/self/net/tcp").expect("the kernel's table");
    let connection = |line: &str| match line.split_ascii_whitespace().collect::<Vec<_>>()[..] {
        [_, local, peer, "01", ..] => Some((address(local)?.port(), address(peer)?)),
        _ => None,
    };
    table.lines().filter_map(connection).collect()
}

/// If the send buffer limits each connection, the relay asks its client for more of them. With a fixed number, it
/// reports the limit, too.
#[test]
fn the_relay_asks_for_more_connections_if_each_has_a_limit() {
    let fixture = Fixture::with_kernel(Arc::new(SmallBuffers));
    let content = fixture.stored("large", 20 * MIB);
    // 4 MiB/s on each connection.
    let address = slow(fixture.address, 16);
    for (range, opened) in [((1, 8), 2..=8), ((2, 2), 1..=2)] {
        let connections = Connections::new(range.0, range.1).expect("a range");
        let options = CopyOptions { connections, ..fixture.fetching(&["large"], "large", address) };
        let report = copy(&options, None, &Notes).expect("copied");
        assert!(fs::read(fixture.fetched("large")).expect("placed") == content);
        assert!(opened.contains(&report.most_connections), "{report:?}");
        assert_eq!((report.limit.as_deref(), report.limit_share), (Some("sndbuf"), Some(1.0)));
        assert!(report.advice[0].starts_with("larger buffers on the sending host"), "{report:?}");
        fs::remove_file(fixture.fetched("large")).expect("removed");
    }
}

#[test]
fn a_relay_that_cannot_limit_its_rate_refuses_to_send() {
    let fixture = Fixture::new();
    fixture.stored("file", 1000);
    let limit = RateLimit::new(Rate::from_bps(1_000_000)).expect("a limit");
    let options = CopyOptions { limit: Some(limit), ..fixture.fetching(&["file"], "file", fixture.address) };
    let error = copy(&options, None, &Notes).expect_err("no limit");
    assert_eq!(
        (error.message.as_str(), error.hint.as_str()),
        ("the relay does not support rate limits", "remove --limit")
    );
    assert!(!fixture.fetched("file").exists());
}

#[test]
fn files_arrive_with_their_attributes() {
    let fixture = Fixture::new();
    for size in [0, 1, MIB, MIB + 1, 9 * MIB + 77] {
        let name = format!("dir/file-{size}");
        let content = fixture.stored(&name, size);
        fs::set_permissions(fixture.placed(&name), fs::Permissions::from_mode(0o640)).expect("the owner may");
        for same in [0, 1] {
            let report = fixture.fetch(&[&name], &format!("new/{size}")).expect("copied");
            assert_eq!((report.files, report.same_files, report.bytes), (1, same, size as u64), "{report:?}");
            assert_eq!(report.sent_bytes, if same == 0 { size as u64 } else { 0 });
            let hash = blake3::hash(&content).to_hex().to_string();
            assert_eq!(report.blake3, (same == 0).then_some(hash));
        }
        let target = fixture.fetched(&format!("new/{size}"));
        assert!(fs::read(&target).expect("placed") == content, "{size} bytes");
        let (from, to) = (fs::metadata(fixture.placed(&name)), fs::metadata(&target));
        let (from, to) = (from.expect("a file"), to.expect("a file"));
        assert_eq!(
            (to.mtime(), to.mtime_nsec(), to.mode() & 0o777),
            (from.mtime(), from.mtime_nsec(), 0o640)
        );
    }
    assert_eq!(fs::read_dir(fixture.fetched("new")).expect("a folder").count(), 5, "no journal is left");
}

#[test]
fn folders_arrive_with_links_and_without_the_journal() {
    let fixture = Fixture::new();
    for number in 0..120 {
        fixture.stored(&format!("dir/{}/{number}", number % 3), 500 + number);
    }
    let large = fixture.stored("dir/large", 3 * MIB);
    fs::create_dir_all(fixture.placed("dir/empty")).expect("a folder");
    fs::set_permissions(fixture.placed("dir/1"), fs::Permissions::from_mode(0o710)).expect("the owner may");
    symlink("large", fixture.placed("dir/link")).expect("a link");
    fixture.stored("other", 5);
    let report = fixture.fetch(&["dir", "other"], "both").expect("copied");
    assert_eq!((report.files, report.same_files), (123, 0), "{report:?}");
    assert!(fs::read(fixture.fetched("both/dir/large")).expect("placed") == large);
    assert_eq!(fs::read_link(fixture.fetched("both/dir/link")).expect("a link"), Path::new("large"));
    let mode = fs::metadata(fixture.fetched("both/dir/1")).expect("a folder").mode();
    assert_eq!(mode & 0o777, 0o710);
    assert!(fixture.fetched("both/dir/empty").is_dir() && fixture.fetched("both/other").is_file());
    let again = fixture.fetch(&["dir", "other"], "both").expect("nothing to do");
    assert_eq!((again.files, again.same_files, again.sent_bytes), (123, 123, 0));
    let all = fixture.fetch(&[""], "all").expect("copied");
    assert_eq!(all.files, 123, "the journal of the relay is not sent");
}

#[test]
fn a_fetch_continues_where_it_was_durable() {
    let fixture = Fixture::new();
    let content = fixture.stored("large", 20 * MIB);
    let cut = Cut { connection: 0, after: 6 * MIB as u64, stall_ms: 1800 };
    let proxy = Proxy::backwards(fixture.address, cut);
    let mut options = fixture.fetching(&["large"], "large", proxy.address);
    options.connections = Connections::new(1, 1).expect("a range");
    let error = copy(&options, None, &Notes).expect_err("cut");
    assert_eq!(
        (error.kind, error.message.starts_with("lost the connection")),
        (Kind::Network, true),
        "{error}"
    );
    assert!(!fixture.fetched("large").exists());
    let report = fixture.fetch(&["large"], "large").expect("copied");
    assert!(report.resumed_bytes >= 3 * MIB as u64, "{report:?}");
    assert_eq!(report.resumed_bytes + report.sent_bytes, 20 * MIB as u64, "nothing is sent twice");
    assert!(fs::read(fixture.fetched("large")).expect("placed") == content);
    // The same command continues the copy after a second interruption.
    fs::remove_file(fixture.fetched("large")).expect("removed");
    let proxy = Proxy::backwards(fixture.address, cut);
    let options = CopyOptions { retry: Duration::from_secs(10), ..options };
    let options =
        CopyOptions { sources: fixture.fetching(&["large"], "large", proxy.address).sources, ..options };
    let report = copy(&options, None, &Notes).expect("copied");
    assert_eq!((report.reconnects, report.same_files), (1, 0), "{report:?}");
    assert!(fs::read(fixture.fetched("large")).expect("placed") == content);
}

#[test]
fn rights_are_those_of_the_allow_file() {
    let fixture = Fixture::with_rights("write-only");
    fixture.stored("a", 5);
    let error = fixture.fetch(&["a"], "a").expect_err("write-only");
    assert!(error.message.contains("may only write"), "{error}");
    assert!(!fixture.fetched("a").exists());
    fixture.copy(&fixture.source("b", 5), "b").expect("it may write");
    let fixture = Fixture::with_rights("read-only");
    fixture.stored("a", 5);
    fixture.fetch(&["a"], "a").expect("it may read");
    let error = fixture.copy(&fixture.source("b", 5), "b").expect_err("read-only");
    assert!(error.message.contains("may only read") && !fixture.placed("b").exists(), "{error}");
}

/// No path leads out of the relay's root, and an existing link at the client does not redirect files.
#[test]
fn neither_end_leaves_its_folder() {
    let fixture = Fixture::new();
    let outside = tempfile::tempdir().expect("a folder");
    fs::write(outside.path().join("secret"), "kept").expect("written");
    symlink(outside.path(), fixture.placed("out")).expect("a link");
    symlink(outside.path().join("secret"), fixture.placed("link")).expect("a link");
    for source in ["../out/a", "out/secret", "link", "/etc/hostname", ".fullpipe/journal", "absent"] {
        let error = fixture.fetch(&[source], "target").expect_err(source);
        assert!(!error.message.is_empty() && !fixture.fetched("target").exists(), "{source}");
    }
    fixture.stored("dir/inner/file", 5);
    fs::create_dir(fixture.fetched("dir")).expect("a folder");
    fs::create_dir(fixture.fetched("elsewhere")).expect("a folder");
    symlink("../elsewhere", fixture.fetched("dir/inner")).expect("a link");
    let error = fixture.fetch(&["dir"], "dir").expect_err("a link on the way");
    assert!(error.message.ends_with("leads through a symbolic link"), "{error}");
    assert_eq!(fs::read_dir(fixture.fetched("elsewhere")).expect("a folder").count(), 0);
}
