//! Tests of copies that succeed, some after an interruption.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::thread;

use fullpipe_relay::{Connections, CopyOptions, Error, Kind, copy};

use crate::proxy::{Cut, Proxy, delaying, noting};
use crate::{Fixture, Notes, copy_again, wait};

const MIB: usize = 1 << 20;

/// Files with sizes near block boundaries arrive with their content, permission bits and modification time.
#[test]
fn files_of_any_size_arrive_with_their_attributes() {
    let fixture = Fixture::new();
    let is_root = fs::metadata("/proc/self").expect("a folder").uid() == 0;
    for (number, size) in [0, 1, MIB - 1, MIB, MIB + 1, 9 * MIB + 77].into_iter().enumerate() {
        let name = format!("file-{size}");
        let source = fixture.source(&name, size);
        if is_root {
            chown(&source, Some(4711), Some(4712)).expect("root may do so");
        }
        fs::set_permissions(&source, fs::Permissions::from_mode(0o4750)).expect("the owner may do so");
        let report = fixture.copy(&source, &format!("new/folder/{name}")).expect("copied");
        let target = fixture.placed(&format!("new/folder/{name}"));
        let content = fs::read(&source).expect("a file");
        assert!(fs::read(&target).expect("placed") == content, "{size} bytes");
        let (from, to) = (fs::metadata(&source).expect("a file"), fs::metadata(&target).expect("a file"));
        assert_eq!((to.mtime(), to.mtime_nsec()), (from.mtime(), from.mtime_nsec()));
        assert_eq!(to.mode() & 0o7777, 0o750, "the set-user-ID bit is dropped");
        assert_eq!((to.uid(), to.gid()), (from.uid(), from.gid()), "root keeps the owner");
        assert_eq!((report.files, report.bytes, report.sent_bytes), (1, size as u64, size as u64));
        assert_eq!(report.blake3, Some(blake3::hash(&content).to_hex().to_string()));
        assert_eq!(report.connections.len(), 3);
        assert_eq!(fixture.names().len(), number + 1, "nothing is left beside the targets");
    }
}

#[test]
fn a_folder_arrives_and_a_second_copy_sends_nothing() {
    let fixture = Fixture::new();
    let odd = OsStr::from_bytes(b"new\nline \xff%41");
    let sources: Vec<PathBuf> =
        (0..150).map(|n| fixture.source(&format!("dir/inner-{}/{n}", n % 7), 10_240 + n)).collect();
    let folder = fixture.folder.path().join("out/dir");
    fs::write(folder.join(odd), "odd").expect("written");
    fs::create_dir_all(folder.join("empty/inner")).expect("a folder");
    let private = fs::Permissions::from_mode(0o700);
    for name in ["inner-3", "empty/inner"] {
        fs::set_permissions(folder.join(name), private.clone()).expect("the owner may");
    }
    let report = fixture.copy(&folder, "").expect("copied");
    assert_eq!((report.files, report.same_files, report.blake3), (151, 0, None));
    for name in ["", "inner-1", "inner-3", "empty", "empty/inner"] {
        let mode = |path: PathBuf| fs::metadata(path).expect("a folder").permissions().mode() & 0o777;
        assert_eq!(mode(fixture.placed("dir").join(name)), mode(folder.join(name)), "{name}");
    }
    assert!(fixture.placed("dir/empty/inner").is_dir(), "an empty folder");
    assert_eq!(fixture.names().len(), 151);
    for source in &sources {
        let name = source.strip_prefix(folder.parent().expect("a folder")).expect("below");
        let target = fixture.placed(name.to_str().expect("UTF-8"));
        assert!(fs::read(target).expect("placed") == fs::read(source).expect("a file"), "{}", name.display());
    }
    assert_eq!(fs::read(fixture.placed("dir").join(odd)).expect("placed"), b"odd");
    let again = fixture.copy(&folder, "").expect("nothing to do");
    assert_eq!((again.files, again.same_files, again.sent_bytes), (151, 151, 0));
}

#[test]
fn a_changed_file_replaces_the_old_one() {
    let fixture = Fixture::new();
    let source = fixture.source("a", 2 * MIB);
    fixture.copy(&source, "a").expect("copied");
    let inode = fs::metadata(fixture.placed("a")).expect("placed").ino();
    fs::write(&source, "short").expect("written");
    let report = fixture.copy(&source, "a").expect("copied");
    assert_eq!((report.same_files, report.sent_bytes), (0, 5));
    assert_eq!(fs::read(fixture.placed("a")).expect("placed"), b"short");
    assert_ne!(
        fs::metadata(fixture.placed("a")).expect("placed").ino(),
        inode,
        "the old file is not written to"
    );
}

#[test]
fn links_are_copied_as_links() {
    let fixture = Fixture::new();
    let folder = fixture.folder.path().join("out/dir");
    fixture.source("dir/a", 5);
    for (to, name) in [("a", "near"), ("/nowhere/else", "absolute"), ("..", "up")] {
        symlink(to, folder.join(name)).expect("a link");
    }
    let report = fixture.copy(&folder, "").expect("copied");
    assert_eq!((report.files, report.same_files, report.bytes), (4, 0, 5));
    let link = |name: &str| fs::read_link(fixture.placed(&format!("dir/{name}"))).expect("a link");
    assert_eq!([link("near"), link("absolute"), link("up")], ["a", "/nowhere/else", ".."].map(PathBuf::from));
    fs::remove_file(folder.join("near")).expect("removed");
    symlink("b", folder.join("near")).expect("a link");
    fs::remove_file(folder.join("up")).expect("removed");
    fs::write(folder.join("up"), "a file now").expect("written");
    let report = fixture.copy(&folder, "").expect("copied");
    assert_eq!((report.files, report.same_files), (4, 2));
    assert_eq!(link("near"), Path::new("b"));
    assert_eq!(fs::read(fixture.placed("dir/up")).expect("a file"), b"a file now");
    assert_eq!(fixture.names().len(), 4, "nothing is left beside the links");
}

/// The copy preserves holes at the start of a file, between blocks, within a block, and at the end.
#[test]
fn holes_stay_holes() {
    let fixture = Fixture::new();
    let (source, small) = (fixture.folder.path().join("out/sparse"), fixture.folder.path().join("out/small"));
    let file = fs::File::create(&source).expect("a file");
    let size = 64 * MIB as u64 + 5;
    file.set_len(size).expect("a hole");
    for offset in [3 * MIB as u64 + 700_000, 9 * MIB as u64, 9 * MIB as u64 + 40_000] {
        file.write_all_at(&[7; 9000], offset).expect("written");
    }
    let file = fs::File::create(&small).expect("a file");
    file.set_len(MIB as u64).expect("a hole");
    file.write_all_at(b"data", 500_000).expect("written");
    for (source, name) in [(&source, "sparse"), (&small, "small")] {
        let report = fixture.copy(source, name).expect("copied");
        let target = fixture.placed(name);
        assert!(report.sent_bytes <= 2 * MIB as u64, "{report:?}");
        let content = fs::read(source).expect("a file");
        assert!(fs::read(&target).expect("placed") == content);
        assert_eq!(report.blake3, Some(blake3::hash(&content).to_hex().to_string()));
        let stored = |path: &Path| fs::metadata(path).expect("a file").blocks() * 512;
        let (before, after) = (stored(source), stored(&target));
        assert!(after <= before + 8192, "{name}: {before} bytes, {after} in the copy");
    }
}

/// With verification, a copy tells apart two files that have the same size and modification time but
/// different hashes.
#[test]
fn verify_compares_hashes() {
    let fixture = Fixture::new();
    for size in [5, 2 * MIB + 5] {
        let source = fixture.source("a", size);
        let mut options = fixture.options(&source, "a", fixture.address);
        options.verify = true;
        copy(&options, None, &Notes).expect("copied");
        let report = copy(&options, None, &Notes).expect("nothing to do");
        assert_eq!((report.same_files, report.sent_bytes), (1, 0));
        let time = fs::metadata(&source).expect("a file").modified().expect("a time");
        let mut content = fs::read(&source).expect("a file");
        content[size / 2] ^= 1;
        fs::write(&source, &content).expect("written");
        let file = fs::File::options().write(true).open(&source).expect("a file");
        file.set_times(fs::FileTimes::new().set_modified(time)).expect("set");
        let report = fixture.copy(&source, "a").expect("not noticed");
        assert_eq!(report.same_files, 1);
        let report = copy(&options, None, &Notes).expect("copied");
        assert_eq!((report.files, report.same_files, report.sent_bytes), (1, 0, size as u64));
        assert!(fs::read(fixture.placed("a")).expect("placed") == content);
    }
}

/// Copies `source` as `large` over one connection, through a proxy that stops forwarding after 5 MiB; waits
/// until the relay has made these 5 MiB durable, and cuts the connection. Returns the error of the copy.
fn interrupted(fixture: &Fixture, source: &Path) -> Error {
    let proxy = Proxy::start(fixture.address, Cut { connection: 0, after: 5 * MIB as u64, stall_ms: 2_500 });
    let mut options = fixture.options(source, "large", proxy.address);
    options.connections = Connections::new(1, 1).expect("a range");
    copy(&options, None, &Notes).expect_err("cut")
}

#[test]
fn an_interrupted_copy_continues_where_it_was_durable() {
    let fixture = Fixture::new();
    let source = fixture.source("large", 20 * MIB);
    let error = interrupted(&fixture, &source);
    assert_eq!(
        (error.kind, error.hint.as_str()),
        (Kind::Network, "run the same command again to continue the copy")
    );
    assert!(!fixture.placed("large").exists(), "an unfinished file does not have the name");
    let report = copy_again(&fixture.options(&source, "large", fixture.address));
    assert!(report.resumed_bytes >= 3 * MIB as u64, "{report:?}");
    assert_eq!(report.resumed_bytes + report.sent_bytes, 20 * MIB as u64, "nothing is sent twice");
    assert!(fs::read(fixture.placed("large")).expect("placed") == fs::read(&source).expect("a file"));
    assert_eq!(fixture.names(), [Path::new("large")]);
}

/// The source is truncated while the connection is blocked, before the copy reads the rest.
#[test]
fn a_source_that_is_truncated_meanwhile_is_not_placed() {
    let fixture = Fixture::new();
    let source = fixture.source("large", 60 * MIB);
    let proxy = Proxy::pausing(fixture.address, Cut { connection: 0, after: MIB as u64, stall_ms: 1000 });
    let mut options = fixture.options(&source, "large", proxy.address);
    options.connections = Connections::new(1, 1).expect("a range");
    let copying = thread::spawn(move || copy(&options, None, &()));
    wait(500);
    let file = fs::OpenOptions::new().write(true).open(&source).expect("a file");
    file.set_len(MIB as u64 + 5).expect("truncated");
    let error = copying.join().expect("no panic").expect_err("truncated");
    let message = format!("{} changed during the copy", source.display());
    assert_eq!((error.kind, error.message), (Kind::Runtime, message));
    assert_eq!(error.hint, "run the same command again when no program writes to the file");
    assert!(fixture.names().iter().all(|name| name != Path::new("large")));
    copy_again(&fixture.options(&source, "large", fixture.address));
    assert!(fs::read(fixture.placed("large")).expect("placed") == fs::read(&source).expect("a file"));
    assert_eq!(fixture.names(), [Path::new("large")]);
}

#[test]
fn a_source_that_changed_meanwhile_is_sent_anew() {
    let fixture = Fixture::new();
    let source = fixture.source("large", 12 * MIB);
    interrupted(&fixture, &source);
    wait(20);
    fixture.source("large", 12 * MIB + 1);
    let report = copy_again(&fixture.options(&source, "large", fixture.address));
    assert_eq!((report.resumed_bytes, report.sent_bytes), (0, 12 * MIB as u64 + 1));
    assert!(fs::read(fixture.placed("large")).expect("placed") == fs::read(&source).expect("a file"));
}

/// The relay drops the oldest of more than eight handshakes from one address, and each copy here opens sixteen
/// connections.
#[test]
fn two_copies_from_one_address_open_all_their_connections() {
    let fixture = Fixture::new();
    let copied = |name: &str| {
        let source = fixture.source(name, 64 * MIB);
        let mut options = fixture.options(&source, name, fixture.address);
        options.connections = Connections::new(16, 16).expect("a range");
        copy(&options, None, &Notes).expect("copied")
    };
    let reports = thread::scope(|scope| {
        let other = scope.spawn(|| copied("b"));
        [copied("a"), other.join().expect("no panic")]
    });
    for report in reports {
        let lost = report.connections.iter().filter(|connection| connection.lost).count();
        assert_eq!((report.connections.len(), lost), (16, 0), "{report:?}");
    }
}

/// All connections are opened at the same time, so with a delay of 100 ms in each direction, all of them have carried
/// blocks and the files are placed before a connection that waits for the first one could send: three round trips for
/// the first block, two until the copy has ended, and the data.
#[test]
fn all_connections_send_from_the_third_round_trip_on() {
    let fixture = Fixture::new();
    let source = fixture.source("large", 8 * MIB);
    let address = delaying(fixture.address, 100);
    let mut options = fixture.options(&source, "large", address);
    options.connections = Connections::new(7, 7).expect("a range");
    let report = copy(&options, None, &Notes).expect("copied");
    let first_byte = report.first_byte_s.expect("sent");
    println!("first byte after {first_byte:.2} s, all after {:.2} s", report.wall_s);
    // The proxy delays no TCP handshake, so the first byte leaves after two round trips.
    assert!(first_byte >= 0.4, "{report:?}");
    let carried = report.connections.iter().filter(|connection| connection.bytes > 0).count();
    assert_eq!(carried, 7, "{report:?}");
}

/// A connection may reach the relay before connection 0, for example because a packet of connection 0 was lost.
#[test]
fn a_connection_waits_for_connection_0_of_its_transfer() {
    let fixture = Fixture::new();
    let source = fixture.source("large", 24 * MIB);
    let proxy = Proxy::pausing(fixture.address, Cut { connection: 0, after: 300, stall_ms: 700 });
    let report = copy(&fixture.options(&source, "large", proxy.address), None, &Notes).expect("copied");
    assert_eq!((report.connections.len(), report.reconnects), (3, 0));
    assert!(
        report.connections.iter().all(|connection| !connection.lost && connection.bytes > 0),
        "{report:?}"
    );
    assert!(fs::read(fixture.placed("large")).expect("placed") == fs::read(&source).expect("a file"));
}

#[test]
fn the_other_connections_send_what_a_lost_one_had() {
    let fixture = Fixture::new();
    let source = fixture.source("large", 40 * MIB);
    // All connections open at the same time, so the third one at the proxy may be connection 0. Without connection 0,
    // a copy ends, and is begun again here.
    let attempt = |_| {
        let cut = Cut { connection: 2, after: MIB as u64 / 2, stall_ms: 300 };
        let proxy = Proxy::start(fixture.address, cut);
        copy(&fixture.options(&source, "large", proxy.address), None, &Notes).ok()
    };
    let report = (0..5).find_map(attempt).expect("copied");
    assert!(fs::read(fixture.placed("large")).expect("placed") == fs::read(&source).expect("a file"));
    let lost: Vec<bool> = report.connections.iter().map(|connection| connection.lost).collect();
    assert_eq!(lost.iter().filter(|lost| **lost).count(), 1, "{report:?}");
    assert!(!lost[0], "connection 0 carries the messages");
}

/// Over a short path, the handshakes of a copy never displace each other at the relay: a displaced connection would be opened
/// a second time, 200 ms later.
#[test]
fn sixteen_connections_open_once_each() {
    let fixture = Fixture::new();
    let (proxy, ports) = noting(fixture.address);
    let source = fixture.source("small", 1000);
    for number in 1..=20 {
        let options = CopyOptions {
            connections: Connections::new(16, 16).expect("a range"),
            ..fixture.options(&source, &format!("small-{number}"), proxy)
        };
        copy(&options, None, &Notes).expect("copied");
        assert_eq!(ports.lock().expect("no panic").len(), 16 * number);
    }
}
