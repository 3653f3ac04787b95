//! Copies of pipes.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread;

use fullpipe_relay::{Connections, CopyOptions, CopyReport, Pipe, Sources, copy};
use fullpipe_units::Bytes;

use crate::proxy::{Cut, Proxy, delaying};
use crate::{Fixture, Notes};

const MIB: usize = 1 << 20;

/// Copies the content of `source` through a pipe that a thread fills, with 4 MiB of memory.
fn piped(options: &CopyOptions, source: &Path) -> CopyReport {
    let content = fs::read(source).expect("a file");
    let (reader, mut writer) = io::pipe().expect("a pipe");
    let producer = thread::spawn(move || {
        // Parts that are no divisors of a block.
        content.chunks(100_003).for_each(|part| writer.write_all(part).expect("it is read"));
    });
    let pipe = Pipe::new(File::from(OwnedFd::from(reader)), Bytes::from_mib(4)).expect("a size");
    let options = CopyOptions { sources: Sources::Pipe(pipe), ..options.clone() };
    let report = copy(&options, None, &Notes).expect("copied");
    producer.join().expect("it has written all");
    report
}

#[test]
fn a_pipe_of_any_size_becomes_a_file() {
    let fixture = Fixture::new();
    for size in [0, 1, MIB - 1, MIB, MIB + 1, 9 * MIB, 9 * MIB + 77] {
        let source = fixture.source("a", size);
        let mut options = fixture.options(&source, "dir/piped", fixture.address);
        options.verify = true;
        let report = piped(&options, &source);
        let content = fs::read(&source).expect("a file");
        assert!(fs::read(fixture.placed("dir/piped")).expect("placed") == content, "{size} bytes");
        assert_eq!((report.files, report.bytes, report.sent_bytes), (1, size as u64, size as u64));
        assert_eq!(report.blake3, Some(blake3::hash(&content).to_hex().to_string()));
        assert_eq!(fixture.names().len(), 1, "nothing is left beside the target");
    }
}

/// 4 MiB of memory, a round trip of 200 ms and groups that wait for 250 ms carry less than 10 MiB/s.
#[test]
fn the_producer_waits_while_the_memory_is_full() {
    let fixture = Fixture::new();
    let source = fixture.source("a", 8 * MIB);
    let report = piped(&fixture.options(&source, "a", delaying(fixture.address, 100)), &source);
    assert!(report.blocked_s.is_some_and(|blocked| blocked > 0.4), "{report:?}");
    assert!(fs::read(fixture.placed("a")).expect("placed") == fs::read(&source).expect("a file"));
}

#[test]
fn the_memory_has_what_a_lost_connection_had() {
    let fixture = Fixture::new();
    let source = fixture.source("a", 12 * MIB);
    let proxy = Proxy::start(fixture.address, Cut { connection: 1, after: MIB as u64 / 2, stall_ms: 300 });
    let mut options = fixture.options(&source, "a", proxy.address);
    options.connections = Connections::new(2, 2).expect("a range");
    let report = piped(&options, &source);
    assert!(fs::read(fixture.placed("a")).expect("placed") == fs::read(&source).expect("a file"));
    assert!(report.connections[1].lost, "{report:?}");
}

#[test]
fn a_pipe_needs_a_name_and_memory() {
    let fixture = Fixture::new();
    let (reader, _writer) = io::pipe().expect("a pipe");
    let reader = File::from(OwnedFd::from(reader));
    let error = Pipe::new(reader.try_clone().expect("a copy"), Bytes::from_mib(1)).expect_err("too small");
    assert_eq!(error.hint, "choose from 4 MiB to 4 GiB");
    let pipe = Pipe::new(reader, Bytes::from_mib(4)).expect("a size");
    let options = fixture.options(Path::new("a"), "dir/", fixture.address);
    let error = copy(&CopyOptions { sources: Sources::Pipe(pipe), ..options }, None, &Notes);
    assert_eq!(error.expect_err("a folder").message, "a pipe has no name");
}
