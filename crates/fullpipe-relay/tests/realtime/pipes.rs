//! Tests of copies from pipes.

use std::fs::{self, File};
use std::io::{self, PipeReader, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Mutex, mpsc};
use std::thread;

use fullpipe_relay::{
    Connections, CopyObserver, CopyOptions, CopyReport, Error, Pipe, PipeOptions, Sources, copy,
};
use fullpipe_units::{Bytes, Duration};

use crate::proxy::{Cut, Proxy, delaying};
use crate::{Fixture, Notes};

const MIB: usize = 1 << 20;

const MEMORY: PipeOptions = PipeOptions { memory: Bytes::from_mib(4), stream: None, spool: None };

fn unnamed(reader: PipeReader) -> Pipe {
    Pipe::new(File::from(OwnedFd::from(reader)), MEMORY).expect("a size")
}

/// Copies the content of `source` through a pipe with 4 MiB of memory; a thread writes to the pipe.
fn piped(options: &CopyOptions, source: &Path) -> CopyReport {
    let content = fs::read(source).expect("a file");
    let (reader, mut writer) = io::pipe().expect("a pipe");
    let producer = thread::spawn(move || {
        // The length of these parts does not divide the block size.
        content.chunks(100_003).for_each(|part| writer.write_all(part).expect("it is read"));
    });
    let options = CopyOptions { sources: Sources::Pipe(unnamed(reader)), ..options.clone() };
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

/// With 4 MiB of memory, an RTT of 200 ms and groups that wait for 250 ms, the rate stays below 10 MiB/s.
#[test]
fn the_producer_waits_while_the_memory_is_full() {
    let fixture = Fixture::new();
    let source = fixture.source("a", 8 * MIB);
    let report = piped(&fixture.options(&source, "a", delaying(fixture.address, 100)), &source);
    assert!(report.pipe.as_ref().is_some_and(|pipe| pipe.blocked_s > 0.4), "{report:?}");
    let pipe = report.pipe.expect("a pipe");
    assert!(pipe.offered_bps > 2 * pipe.carried_bps && pipe.most_held_bytes == 4 * MIB as u64, "{pipe:?}");
    assert!(fs::read(fixture.placed("a")).expect("placed") == fs::read(&source).expect("a file"));
}

#[test]
fn the_memory_has_what_a_lost_connection_had() {
    let fixture = Fixture::new();
    let source = fixture.source("a", 12 * MIB);
    // The stall leaves the other connection time to open on a busy machine.
    let cut = Cut { connection: 1, after: MIB as u64 / 2, stall_ms: 1_500 };
    let proxy = Proxy::start(fixture.address, cut);
    let mut options = fixture.options(&source, "a", proxy.address);
    options.connections = Connections::new(2, 2).expect("a range");
    let report = piped(&options, &source);
    assert!(fs::read(fixture.placed("a")).expect("placed") == fs::read(&source).expect("a file"));
    // Both connections open at the same time, so either of them may be the second one at the proxy.
    assert_eq!(report.connections.iter().filter(|connection| connection.lost).count(), 1, "{report:?}");
}

#[test]
fn a_pipe_needs_a_name_and_memory() {
    let fixture = Fixture::new();
    let (reader, _writer) = io::pipe().expect("a pipe");
    let reader = File::from(OwnedFd::from(reader));
    let refused =
        |options: PipeOptions| Pipe::new(reader.try_clone().expect("a copy"), options).expect_err("refused");
    assert_eq!(refused(PipeOptions { memory: Bytes::from_mib(1), ..MEMORY }).hint, "allowed: 4 MiB to 4 GiB");
    let spool = Some(fixture.folder.path().into());
    assert_eq!(refused(PipeOptions { spool, ..MEMORY }).hint, "add --stream NAME");
    assert!(
        refused(PipeOptions { stream: Some("a\nb".into()), ..MEMORY }).message.contains("1 to 255 bytes")
    );
    let pipe = Pipe::new(reader, MEMORY).expect("a size");
    let options = fixture.options(Path::new("a"), "dir/", fixture.address);
    let error = copy(&CopyOptions { sources: Sources::Pipe(pipe), ..options }, None, &Notes);
    assert_eq!(error.expect_err("a folder").message, "the target is a folder, but a pipe has no file name");
}

/// Records the accepted offsets, and passes the first one to the producer.
#[derive(Debug)]
struct Accepted {
    offsets: Mutex<Vec<u64>>,
    producer: mpsc::Sender<u64>,
}

impl CopyObserver for Accepted {
    fn accepted(&self, offset: Bytes) {
        self.offsets.lock().expect("no panic").push(offset.get());
        // The producer needs only the first offset.
        let _ = self.producer.send(offset.get());
    }

    fn note(&self, text: &str) {
        eprintln!("client: {text}");
    }
}

/// Copies a stream whose producer starts at the first accepted offset of `content`. Returns the result and
/// the accepted offsets.
fn continued(
    options: &CopyOptions,
    pipe_options: PipeOptions,
    content: &[u8],
) -> (Result<CopyReport, Error>, Vec<u64>) {
    let (reader, mut writer) = io::pipe().expect("a pipe");
    let pipe = Pipe::new(File::from(OwnedFd::from(reader)), pipe_options).expect("valid");
    let options = CopyOptions { sources: Sources::Pipe(pipe), ..options.clone() };
    let (producer, first) = mpsc::channel();
    let content = content.to_vec();
    // A failed copy does not read all data; the thread then ends when the pipe is closed.
    thread::spawn(move || {
        let Ok(begin) = first.recv() else { return };
        let _ = content[begin as usize..].chunks(100_003).try_for_each(|part| writer.write_all(part));
    });
    let accepted = Accepted { offsets: Mutex::default(), producer };
    let result = copy(&options, None, &accepted);
    (result, accepted.offsets.into_inner().expect("no panic"))
}

fn named(name: &str) -> PipeOptions {
    PipeOptions { stream: Some(name.into()), ..MEMORY }
}

/// If the relay returns after connection 0 was lost, the copy loses no data.
#[test]
fn a_pipe_survives_the_loss_of_connection_0() {
    let fixture = Fixture::new();
    let source = fixture.source("a", 12 * MIB + 77);
    let proxy = Proxy::start(fixture.address, Cut { connection: 0, after: 3 * MIB as u64, stall_ms: 600 });
    let mut options = fixture.options(&source, "a", proxy.address);
    (options.connections, options.retry) =
        (Connections::new(1, 1).expect("a range"), Duration::from_secs(10));
    let report = piped(&options, &source);
    assert!(fs::read(fixture.placed("a")).expect("placed") == fs::read(&source).expect("a file"));
    assert_eq!(report.reconnects, 1, "{report:?}");
    assert_eq!(report.blake3, Some(blake3::hash(&fs::read(&source).expect("a file")).to_hex().to_string()));
    assert!(report.sent_bytes < 12 * MIB as u64 + 6 * MIB as u64, "{report:?}");
    assert_eq!(fixture.names(), [Path::new("a")]);
}

/// A copy of files also continues after connection 0 was lost.
#[test]
fn a_copy_of_files_continues_by_itself() {
    let fixture = Fixture::new();
    let source = fixture.source("dir/a", 9 * MIB);
    fixture.source("dir/b", 100);
    let proxy = Proxy::start(fixture.address, Cut { connection: 0, after: 4 * MIB as u64, stall_ms: 1500 });
    let mut options = fixture.options(source.parent().expect("a folder"), "dir", proxy.address);
    (options.connections, options.retry) =
        (Connections::new(1, 1).expect("a range"), Duration::from_secs(10));
    let report = copy(&options, None, &Notes).expect("copied");
    assert_eq!((report.files, report.same_files, report.reconnects), (2, 0, 1), "{report:?}");
    assert!(report.connections[0].bytes <= 6 * MIB as u64, "nothing durable is retransmitted: {report:?}");
    assert!(fs::read(fixture.placed("dir/a")).expect("placed") == fs::read(&source).expect("a file"));
}

/// A second process continues the stream of the first; it knows only the accepted offset.
#[test]
fn a_named_stream_continues_where_it_was_accepted() {
    let fixture = Fixture::new();
    let content = fs::read(fixture.source("content", 12 * MIB + 77)).expect("a file");
    let proxy = Proxy::start(fixture.address, Cut { connection: 0, after: 5 * MIB as u64, stall_ms: 600 });
    let mut options = fixture.options(Path::new("-"), "feed", proxy.address);
    options.connections = Connections::new(1, 1).expect("a range");
    let (result, accepted) = continued(&options, named("monday"), &content);
    assert!(result.is_err() && accepted[0] == 0, "{result:?}");
    let durable = *accepted.last().expect("reported");
    let (options, seconds) =
        (fixture.options(Path::new("-"), "feed", fixture.address), Duration::from_secs(10));
    let options = CopyOptions { retry: seconds, ..options };
    let (result, accepted) = continued(&options, named("monday"), &content);
    let report = result.expect("copied");
    assert!(accepted[0] >= durable && accepted[0] >= 3 * MIB as u64, "{accepted:?}, {durable} before");
    assert!(accepted.is_sorted() && accepted.last() == Some(&(content.len() as u64)), "{accepted:?}");
    assert!(fs::read(fixture.placed("feed")).expect("placed") == content);
    let pipe = report.pipe.as_ref().expect("a pipe");
    assert_eq!((pipe.begin_bytes, report.sent_bytes), (accepted[0], content.len() as u64 - accepted[0]));
    assert_eq!(report.blake3, Some(blake3::hash(&content).to_hex().to_string()));
    assert_eq!(fixture.names(), [Path::new("feed")]);
    // The same command finds the stream complete, and a copy with another stream name replaces the file.
    let (result, accepted) = continued(&options, named("monday"), &content);
    assert_eq!((result.expect("complete").sent_bytes, accepted), (0, vec![content.len() as u64]));
    let longer = [&content[..], b"more"].concat();
    let (result, _) = continued(&options, named("monday"), &longer);
    assert_eq!(result.expect_err("more").hint, "choose another --stream for other data");
    let (result, accepted) = continued(&options, named("tuesday"), b"short");
    assert_eq!((result.expect("copied").sent_bytes, accepted[0]), (5, 0));
    assert_eq!(fs::read(fixture.placed("feed")).expect("placed"), b"short");
}

/// With a spool, the producer continues after the bytes in the spool, even if the relay has received fewer.
#[test]
fn a_spool_keeps_what_the_relay_does_not_have() {
    let fixture = Fixture::new();
    let content = fs::read(fixture.source("content", 9 * MIB + 77)).expect("a file");
    let folder = fixture.folder.path().join("spool");
    fs::create_dir(&folder).expect("a folder");
    let spooled = || PipeOptions { spool: Some(folder.clone()), ..named("monday") };
    let proxy = Proxy::start(fixture.address, Cut { connection: 0, after: 2 * MIB as u64, stall_ms: 900 });
    let mut options = fixture.options(Path::new("-"), "feed", proxy.address);
    options.connections = Connections::new(1, 1).expect("a range");
    let (result, accepted) = continued(&options, spooled(), &content);
    let before = *accepted.last().expect("reported");
    assert!(result.is_err() && before >= 3 * MIB as u64, "more than the relay received: {accepted:?}");
    assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 1);
    let options = fixture.options(Path::new("-"), "feed", fixture.address);
    let options = CopyOptions { retry: Duration::from_secs(10), ..options };
    // The thread that read the pipe of the first copy runs in this process, and holds the spool until it
    // notices the end.
    let accepted = loop {
        match continued(&options, spooled(), &content) {
            (Err(error), _) if error.message.starts_with("another copy uses the spool") => crate::wait(10),
            (result, accepted) => {
                result.expect("copied");
                break accepted;
            }
        }
    };
    assert!(accepted[0] >= before, "{accepted:?}");
    assert!(fs::read(fixture.placed("feed")).expect("placed") == content);
    assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 0, "the spool is removed");
}
