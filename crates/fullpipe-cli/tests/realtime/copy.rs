//! Tests of `fullpipe copy` and `fullpipe relay` as users and scripts run them, including cases in
//! which either end is killed.

mod clock;
mod dead_link;
mod emulated_path;
mod full_disk;
mod memory;
mod over_ssh;

use std::cell::Cell;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use fullpipe::units::draw;
use serde_json::Value;

use crate::process::{becomes, folder, fullpipe, has, port, refusal};

const MIB: usize = 1 << 20;

/// Folder of a test that contains the keys of both ends.
struct Ends {
    folder: PathBuf,
    port: u16,
    client: String,
    relay: String,
}

/// Starts the program, whose output is read later.
fn started(words: &[String]) -> Child {
    let command =
        Command::new(crate::PROGRAM).args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    command.expect("it starts")
}

impl Ends {
    fn new(test: &str) -> Self {
        let folder = folder(test);
        let path = |name: &str| folder.join(name).to_str().expect("UTF-8").to_owned();
        fs::create_dir(path("in")).expect("a folder");
        let fingerprint = |name: &str| {
            let (code, stdout, stderr) = fullpipe(&["relay", "key", "--key", &path(name)]);
            assert_eq!((code, stderr.as_str()), (0, ""));
            stdout.trim().to_owned()
        };
        let (client, relay) = (fingerprint("client.key"), fingerprint("relay.key"));
        Self { folder, port: port(), client, relay }
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_str().expect("UTF-8").to_owned()
    }

    /// Returns the shell command of a relay at the far end of an emulated path.
    fn relay_on_path(&self) -> String {
        format!(
            "exec {program} relay serve --listen 198.18.0.2:9581 --root {root} --key {key} --allow {client}",
            program = crate::PROGRAM,
            root = self.path("in"),
            key = self.path("relay.key"),
            client = self.client
        )
    }

    /// Starts the relay, and waits until it is listening.
    fn serve(&self) -> Killed {
        let listen = format!("127.0.0.1:{}", self.port);
        let child = Command::new(crate::PROGRAM)
            .args(["relay", "serve", "--listen", &listen, "--root", &self.path("in")])
            .args(["--key", &self.path("relay.key"), "--allow", &self.client])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut child = Killed(child);
        let mut lines = BufReader::new(child.0.stderr.take().expect("a pipe"));
        let mut line = String::new();
        lines.read_line(&mut line).expect("a line");
        assert_eq!(line, format!("listening on {listen}; clients need --peer {}\n", self.relay));
        // The pipe is read until the relay ends, so that the relay never blocks on it.
        std::thread::spawn(move || lines.lines().map_while(Result::ok).for_each(|line| eprintln!("{line}")));
        child
    }

    /// Returns the arguments of a copy from `source` to `target` on the relay.
    fn arguments(&self, source: &str, target: &str) -> Vec<String> {
        self.between(self.path(source), self.at_relay(target))
    }

    fn copy(&self, source: &str, target: &str) -> (i32, String, String) {
        Self::copy_with(&self.arguments(source, target))
    }

    /// Runs a copy with these arguments, and a report as JSON.
    fn copy_with(arguments: &[String]) -> (i32, String, String) {
        let words: Vec<&str> = arguments.iter().map(String::as_str).chain(["--json"]).collect();
        fullpipe(&words)
    }

    /// Returns the arguments of a copy from `source` on the relay to `target`.
    fn fetching(&self, source: &str, target: &str) -> Vec<String> {
        self.between(self.at_relay(source), self.path(target))
    }

    fn at_relay(&self, name: &str) -> String {
        format!("relay://127.0.0.1:{}/{name}", self.port)
    }

    fn between(&self, source: String, target: String) -> Vec<String> {
        let (peer, key) = (self.relay.clone(), self.path("client.key"));
        vec!["copy".into(), source, target, "--peer".into(), peer, "--key".into(), key]
    }

    /// Asserts that the copied tree equals its source, and that the target contains nothing else.
    fn compare(&self, (source, target): (&str, &str)) {
        let (sent, placed) = (names(Path::new(&self.path(source))), names(Path::new(&self.path(target))));
        assert_eq!(placed.len(), sent.len(), "nothing is left beside the targets: {placed:?}");
        for (from, to) in sent.iter().zip(&placed) {
            assert_eq!(from.file_name(), to.file_name());
            assert!(fs::read(from).expect("a file") == fs::read(to).expect("placed"), "{}", to.display());
        }
    }
}

/// A process that is killed with SIGKILL when this value is dropped.
struct Killed(Child);

impl Killed {
    /// Kills the process, and returns how many bytes it has read from files.
    fn read_bytes(mut self) -> u64 {
        // The process may already have ended.
        let _ = self.0.kill();
        read_bytes(&mut self.0)
    }
}

/// Waits until a process has ended, and returns how many bytes it has read from files.
fn read_bytes(child: &mut Child) -> u64 {
    let of = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", child.id())).expect("a child");
    // The kernel keeps the numbers of a process that has ended until its parent waits for it.
    let has_ended = || of("stat").rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('Z'));
    assert!(becomes(has_ended), "{}", of("stat"));
    let bytes = bytes_read(child.id());
    child.wait().expect("it has ended");
    bytes
}

/// Returns how many bytes a process has read from files.
fn bytes_read(id: u32) -> u64 {
    let io = fs::read_to_string(format!("/proc/{id}/io")).expect("a process");
    let line = io.lines().find_map(|line| line.strip_prefix("rchar: ")).expect("a number");
    line.parse().expect("a number")
}

impl Drop for Killed {
    fn drop(&mut self) {
        // The process may already have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn content(salt: u64, size: usize) -> Vec<u8> {
    // Eight bytes at a time, because tests are not optimised.
    let mut content = Vec::with_capacity(size);
    for n in 0..size as u64 / 8 {
        content.extend_from_slice(&draw(salt, 0, n).to_le_bytes());
    }
    content
}

/// Returns the names in a folder and its subfolders, without the journal.
fn names(folder: &Path) -> Vec<PathBuf> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry")) {
        match entry.file_type().expect("a type").is_dir() {
            true if entry.file_name() != ".fullpipe" => names.extend(self::names(&entry.path())),
            true => {}
            false => names.push(entry.path()),
        }
    }
    names.sort();
    names
}

/// Direction of a copy.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    ToRelay,
    FromRelay,
}

/// Maximum number of bytes that a copy sends again after a kill. A kill loses at most 64 MiB that were not yet durable,
/// and the content of the buffers of four connections (by default at most 4 MiB to send and 6 MiB to receive). The bound
/// is twice their sum.
const RESENT: u64 = 2 * ((64 + 4 * (4 + 6)) * MIB as u64);
/// Maximum number of bytes that the sending end reads besides the files: messages of the other end, keys, libraries.
const OTHER_READS: u64 = MIB as u64;

/// While a large file and `files` small files are copied, the test alternately kills one end and the other,
/// at a different time in each round. In the end, both trees are equal, and no other file is left.
///
/// The sending end reads each byte before it sends it. The number of bytes that it has read therefore shows how many were
/// sent again.
fn survives(test: &str, kills: u64, large: usize, files: u64, way: Way) {
    let ends = Ends::new(test);
    // The source folder, the target folder, the folder that contains the target, and the arguments
    // of the copy.
    let (source, target, beside, arguments) = match way {
        Way::ToRelay => ("out", "in/out", "in", ends.arguments("out", "out")),
        Way::FromRelay => ("in/out", "back/out", "back", ends.fetching("out", "back/out")),
    };
    fs::create_dir(ends.path(source)).expect("a folder");
    fs::write(ends.path(&format!("{source}/large")), content(100_000, large)).expect("written");
    for number in 0..files {
        // Files are sent in the order of their names, so half of the small files precede the large one.
        let name = if number.is_multiple_of(2) { "a" } else { "z" };
        fs::write(ends.path(&format!("{source}/{name}-{number}")), content(number, 3_000)).expect("written");
    }
    let sent_again = |sent: u64, kills: u64| {
        let again = sent.saturating_sub(large as u64 + files * 3_000);
        assert!(again <= kills * RESENT + OTHER_READS, "{again} bytes were sent again after {kills} kills");
        again
    };
    let mut relay = ends.serve();
    let mut finished = 0;
    // Bytes that the ends have read up to the last kill, and at the begin of this copy; kills during this copy.
    let (mut by_client, mut by_relay, mut begin, mut kills_of_copy, mut resent) = (0, 0, 0, 0, 0);
    for number in 0..kills {
        let mut client = Command::new(crate::PROGRAM)
            .args(&arguments)
            .args(["--retry", "0s", "--connections", "4"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        pause(30 + draw(7, 0, number) % 400);
        if number.is_multiple_of(2) {
            by_client += Killed(client).read_bytes();
        } else {
            by_relay += relay.read_bytes();
            by_client += read_bytes(&mut client);
            relay = ends.serve();
        }
        kills_of_copy += 1;
        // After a complete copy, the next copy starts from the beginning.
        let placed = if Path::new(&ends.path(beside)).exists() {
            names(Path::new(&ends.path(beside)))
        } else {
            Vec::new()
        };
        let is_unfinished = |path: &PathBuf| path.extension().is_some_and(|end| end == "partial");
        if placed.len() as u64 == files + 1 && !placed.iter().any(is_unfinished) {
            finished += 1;
            ends.compare((source, target));
            fs::remove_dir_all(ends.path(target)).expect("removed");
            let sent = match way {
                Way::ToRelay => by_client,
                Way::FromRelay => by_relay + bytes_read(relay.0.id()),
            };
            resent += sent_again(sent - begin, kills_of_copy);
            (begin, kills_of_copy) = (sent, 0);
        }
    }
    let last = Cell::new(0);
    let copied = || {
        let (code, stdout, stderr) = Ends::copy_with(&arguments);
        // The relay may not have noticed yet that the client was killed.
        assert!(code == 0 || stderr.contains("another transfer is writing"), "{stderr}");
        code == 0 && {
            let report: Value = serde_json::from_str(&stdout).expect("JSON");
            assert_eq!(
                (&report["schema"], &report["files"]),
                (&"fullpipe.copy/1".into(), &(files + 1).into())
            );
            last.set(report["sent_bytes"].as_u64().expect("a number"));
            true
        }
    };
    assert!(becomes(copied));
    ends.compare((source, target));
    let sent = match way {
        Way::ToRelay => by_client + last.get(),
        Way::FromRelay => by_relay + bytes_read(relay.0.id()),
    };
    resent += sent_again(sent - begin, kills_of_copy);
    println!(
        "{kills} kills, {finished} copies were complete before the last one, {} KiB sent again",
        resent >> 10
    );
}

/// Returns the number of kills of the long tests: `FULLPIPE_KILLS`, or 200.
fn kills() -> u64 {
    let number = env::var("FULLPIPE_KILLS").ok();
    number.map_or(200, |number| number.parse().expect("a number of kills"))
}

#[test]
fn after_ten_kills_of_either_end_every_byte_has_arrived() {
    survives("copy-kills", 10, 64 * MIB, 200, Way::ToRelay);
}

#[test]
fn a_download_survives_ten_kills_of_either_end() {
    survives("copy-download-kills", 10, 64 * MIB, 200, Way::FromRelay);
}

#[test]
#[ignore = "minutes, and 8 GB of memory: cargo test -p fullpipe-cli --features copy --test realtime -- --ignored two_hundred_kills"]
fn after_two_hundred_kills_of_either_end_every_byte_has_arrived() {
    survives("copy-many-kills", kills(), 2048 * MIB, 5000, Way::ToRelay);
}

#[test]
#[ignore = "minutes: cargo test -p fullpipe-cli --features copy --test realtime -- --ignored download_survives_two_hundred"]
fn a_download_survives_two_hundred_kills_of_either_end() {
    survives("copy-many-download-kills", kills(), 512 * MIB, 5000, Way::FromRelay);
}

/// A producer that follows the accepted offset feeds a copy, while the test alternately kills one end and the
/// other. If the relay is killed, the copy continues by itself; if the copy is killed, it is started again.
/// The copy never asks again for an accepted byte, and the file contains each byte once. With a spool, the bytes are
/// accepted before the relay has them.
fn pipe_survives(test: &str, kills: u64, size: usize, has_spool: bool) {
    let ends = Ends::new(test);
    let content = content(5, size);
    let progress = ends.path("progress");
    fs::create_dir(ends.path("spool")).expect("a folder");
    let target = format!("relay://127.0.0.1:{}/feed", ends.port);
    let mut relay = Some(ends.serve());
    let (mut stream, mut accepted, mut kill) = (0, 0, 0);
    while kill < kills || accepted > 0 || stream == 0 {
        fs::write(&progress, "").expect("written");
        let name = format!("stream {stream}");
        let mut command = Command::new("sh");
        // A shell is needed to pass on a file descriptor with a given number.
        command.args([
            "-c",
            "progress=$1; shift; exec \"$@\" 3>>\"$progress\"",
            "sh",
            &progress,
            crate::PROGRAM,
        ]);
        command.args(["copy", "-", &target, "--peer", &ends.relay, "--key", &ends.path("client.key")]);
        command.args(["--stream", &name, "--progress-fd", "3", "--memory", "4MiB", "--limit", "400mbit"]);
        command.args(["--connections", "4"]);
        if has_spool {
            command.args(["--spool", &ends.path("spool")]);
        }
        let mut client = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts");
        let mut input = client.stdin.take().expect("a pipe");
        let mut client = Killed(client);
        let offsets = || -> Vec<u64> {
            let text = fs::read_to_string(&progress).expect("a file");
            // The last line may be incomplete.
            let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
            whole.lines().map(|line| line.parse().expect("an offset")).collect()
        };
        assert!(becomes(|| !offsets().is_empty()), "the first line is the accepted offset");
        let begin = offsets()[0];
        assert!(begin >= accepted, "stream {stream}: {accepted} bytes were accepted, and {begin} now");
        let is_complete = std::thread::scope(|scope| {
            let rest = &content[begin as usize..];
            scope.spawn(move || {
                // The copy may be killed before it has read all data.
                let _ = rest.chunks(70_001).try_for_each(|part| std::io::Write::write_all(&mut input, part));
            });
            if kill < kills {
                pause(30 + draw(11, 0, kill) % 350);
                // During each copy, the relay is killed twice, and the copy itself is killed after that.
                for _ in 0..2 {
                    drop(relay.take());
                    pause(20);
                    relay = Some(ends.serve());
                    kill += 1;
                    pause(draw(11, 1, kill) % 350);
                }
                kill += 1;
                let _ = client.0.kill();
            }
            client.0.wait().expect("it ends").success()
        });
        let offsets = offsets();
        assert!(offsets.is_sorted(), "{offsets:?}");
        accepted = offsets.last().copied().unwrap_or(accepted);
        // A restarted copy also sends the data in its spool.
        if accepted == size as u64 && (is_complete || !has_spool) {
            assert!(fs::read(ends.path("in/feed")).expect("placed") == content, "stream {stream}");
            (stream, accepted) = (stream + 1, 0);
        }
    }
    assert!(stream > 0, "no stream was complete");
    assert_eq!(names(Path::new(&ends.path("in"))).len(), 1, "nothing is left beside the target");
    println!("{kill} kills, {stream} streams were complete");
}

#[test]
fn a_pipe_survives_ten_kills_of_either_end() {
    pipe_survives("copy-pipe-kills", 10, 48 * MIB, false);
}

#[test]
fn a_spool_survives_ten_kills_of_either_end() {
    pipe_survives("copy-spool-kills", 10, 48 * MIB, true);
}

#[test]
#[ignore = "minutes: cargo test -p fullpipe-cli --features copy --test realtime -- --ignored pipe_survives_two_hundred"]
fn a_pipe_survives_two_hundred_kills_of_either_end() {
    pipe_survives("copy-many-pipe-kills", kills(), 256 * MIB, false);
}

/// Returns the local ports of the connections to `port`, and closes those in `killed` as `ss -K` does; `None` if the
/// kernel or its rights do not permit it.
fn connections(port: u16, killed: &[u16]) -> Option<Vec<u16>> {
    let ss = |filter: &[&str]| {
        let output =
            Command::new("ss").args(filter).output().ok().filter(|output| output.status.success())?;
        let text = String::from_utf8(output.stdout).ok()?;
        let local = |line: &str| line.split_whitespace().nth(2)?.rsplit_once(':')?.1.parse().ok();
        Some(text.lines().filter_map(local).collect::<Vec<u16>>())
    };
    for source in killed {
        ss(&["-KHtn", "state", "established", "sport", "=", &format!(":{source}")])?;
    }
    ss(&["-Htn", "state", "established", "dport", "=", &format!(":{port}")])
}

/// All connections but one are closed from outside during a copy. It continues over the last one, or connects again if
/// that one does not carry the messages between both ends.
#[test]
fn a_copy_continues_over_its_last_connection() {
    let ends = Ends::new("copy-last-connection");
    fs::write(ends.path("large"), content(3, 24 * MIB)).expect("written");
    let _relay = ends.serve();
    let mut words = ends.arguments("large", "large");
    words.extend(["--json", "--limit", "80mbit", "--connections", "4"].map(String::from));
    let client = started(&words);
    let open = || connections(ends.port, &[]).unwrap_or_default();
    assert!(becomes(|| open().len() == 4 || !has("ss")));
    pause(500);
    let left = connections(ends.port, open().get(1..).unwrap_or_default());
    let output = client.wait_with_output().expect("it ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(
        fs::read(ends.path("in/large")).expect("placed") == fs::read(ends.path("large")).expect("a file")
    );
    if left.is_none_or(|left| left.len() > 1) {
        return eprintln!("skipped: connections cannot be closed here");
    }
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let connections = report["connections"].as_array().expect("connections");
    let lost = connections.iter().filter(|connection| connection["lost"] == true).count();
    assert!(report["reconnects"] == 1 || (connections.len(), lost) == (4, 3), "{report}");
}

/// Linux does not pace the first ten segments of a connection, which have 64 KiB each over loopback.
/// Runs a copy from the relay to standard output; returns its exit code, the content and standard error.
fn to_pipe(ends: &Ends, source: &str, options: &[&str]) -> (Option<i32>, Vec<u8>, String) {
    let output = Command::new(crate::PROGRAM)
        .args(ends.between(ends.at_relay(source), "-".into()))
        .args(options)
        .env("TMPDIR", ends.path("temporary"))
        .output()
        .expect("it runs");
    (output.status.code(), output.stdout, String::from_utf8(output.stderr).expect("UTF-8"))
}

/// A file of another host is written to standard output in order, and the report to standard error.
#[test]
fn a_file_is_copied_to_standard_output() {
    let ends = Ends::new("copy-to-pipe");
    fs::create_dir(ends.path("temporary")).expect("a folder");
    fs::create_dir(ends.path("in/folder")).expect("a folder");
    let _relay = ends.serve();
    for (number, size) in [0, 5000, 20 * MIB + 72].into_iter().enumerate() {
        let content = content(number as u64, size);
        fs::write(ends.path("in/file"), &content).expect("written");
        let (code, stdout, stderr) = to_pipe(&ends, "file", &["--connections", "8"]);
        assert_eq!((code, stdout == content), (Some(0), true), "{size} bytes: {stderr}");
        assert!(stderr.starts_with("copied 1 file"), "{stderr}");
    }
    let (code, stdout, stderr) = to_pipe(&ends, "folder", &[]);
    assert_eq!((code, stdout.len()), (Some(2), 0), "{stderr}");
    assert!(stderr.starts_with("error: the source is not a single file"), "{stderr}");
    // The reader ends after one byte.
    let words = ends.between(ends.at_relay("file"), "-".into()).join(" ");
    let script = format!("{{ {} {words}; echo $? >&2; }} | head -c 1", crate::PROGRAM);
    let output = Command::new("sh").args(["-c", &script]).env("TMPDIR", ends.path("temporary")).output();
    let stderr = String::from_utf8(output.expect("it runs").stderr).expect("UTF-8");
    assert!(stderr.contains("error: cannot write to standard output: Broken pipe"), "{stderr}");
    assert!(stderr.ends_with("\n1\n"), "{stderr}");
    assert!(names(Path::new(&ends.path("temporary"))).is_empty(), "nothing is left");
}

/// After Ctrl-C, a copy prints the command that continues it. This command does not resend data that was durable.
#[test]
fn ctrl_c_prints_the_command_that_continues_the_copy() {
    let ends = Ends::new("copy-interrupted");
    fs::write(ends.path("large file"), content(3, 12 * MIB)).expect("written");
    let _relay = ends.serve();
    let mut words = ends.arguments("large file", "large");
    words.extend(["--limit", "40mbit", "--connections", "2"].map(String::from));
    let client = started(&words);
    pause(1800);
    let interrupted = Command::new("kill").args(["-INT", &client.id().to_string()]).status();
    assert!(interrupted.expect("it runs").success());
    let output = client.wait_with_output().expect("it ends");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let command: Vec<String> = words
        .iter()
        .map(|word| if word.contains(' ') { format!("'{word}'") } else { word.clone() })
        .collect();
    let expected = format!(
        "interrupted; data that is durable at the target is kept\nhint: to continue the copy, run fullpipe {}\n",
        command.join(" ")
    );
    assert_eq!((output.status.code(), output.stdout.len(), stderr), (Some(130), 0, expected));
    words.push("--json".into());
    let copied = || {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (code, stdout, stderr) = fullpipe(&words);
        // The relay may not have noticed yet that the client has ended.
        assert!(code == 0 || stderr.contains("another transfer is writing"), "{stderr}");
        let report: Option<Value> = (code == 0).then(|| serde_json::from_str(&stdout).expect("JSON"));
        report.is_some_and(|report| report["resumed_bytes"].as_u64() >= Some(MIB as u64))
    };
    assert!(becomes(copied));
}

#[test]
fn a_limited_copy_has_the_rate_of_its_limit() {
    const SIZE: usize = 24 * MIB;
    let ends = Ends::new("copy-limit");
    fs::write(ends.path("large"), content(1, SIZE)).expect("written");
    let relay = ends.serve();
    for connections in [1, 4] {
        let arguments = ends.arguments("large", &format!("large-{connections}"));
        let count = connections.to_string();
        let more = ["--json", "--limit", "100mbit", "--connections", &count];
        let words: Vec<&str> = arguments.iter().map(String::as_str).chain(more).collect();
        let (code, stdout, stderr) = fullpipe(&words);
        assert_eq!((code, stderr.as_str()), (0, ""));
        let report: Value = serde_json::from_str(&stdout).expect("JSON");
        let share = report["goodput_bps"].as_f64().expect("a rate") / 100e6;
        println!("{connections} connections: {share:.3} of the limit");
        let unpaced = connections * 10 * (64 << 10);
        let most = SIZE as f64 / (SIZE - unpaced) as f64 + 0.01;
        assert!((0.85..most).contains(&share), "{connections} connections: {share:.3} of the limit");
    }
    // The next copies go in the opposite direction: the relay paces the connections, and reports what limits
    // them. It also chooses their number, unless the client states it.
    let source = format!("relay://127.0.0.1:{}/large-1", ends.port);
    let key = ends.path("client.key");
    for connections in ["auto", "2"] {
        let back = ends.path(&format!("back-{connections}"));
        let words = ["copy", &source, &back, "--peer", &ends.relay, "--key", &key, "--json"];
        let words = [&words[..], &["--limit", "100mbit", "--connections", connections]].concat();
        let (code, stdout, stderr) = fullpipe(&words);
        assert_eq!((code, stderr.as_str()), (0, ""));
        let report: Value = serde_json::from_str(&stdout).expect("JSON");
        let share = report["goodput_bps"].as_f64().expect("a rate") / 100e6;
        println!("back over {connections}: {share:.3} of the limit, {}", report["limit"]);
        assert!((0.85..1.06).contains(&share), "{report}");
        assert!(report["limit"].is_string() && report["limit_share"].is_number(), "{report}");
        assert!(fs::read(&back).expect("placed") == fs::read(ends.path("large")).expect("a file"));
    }
    let arguments = ends.arguments("large", "large");
    let words: Vec<&str> = arguments.iter().map(String::as_str).chain(["--limit", "1kbit"]).collect();
    let (error, hint) = refusal(2, fullpipe(&words));
    assert_eq!(error, "a limit of 1 kbit/s is too low for a copy");
    assert_eq!(hint, "choose a limit of at least 100 kbit/s");
    drop(relay);
}

/// 32 MiB are enough for one connection, whose socket has a share of 1 MiB. The buffer has this size if the kernel
/// permits it.
#[test]
fn a_copy_keeps_its_memory_and_reports_it() {
    let ends = Ends::new("copy-files-memory");
    fs::write(ends.path("large"), content(1, 24 * MIB)).expect("written");
    let _relay = ends.serve();
    let permitted = fs::read_to_string("/proc/sys/net/core/wmem_max").expect("a limit");
    let permitted = 2 * permitted.trim().parse::<u64>().expect("a number");
    let share: u64 = 1 << 20;
    let fixed = if share <= permitted { Value::from(share) } else { Value::Null };
    for (memory, fixed, held_to) in [("32MiB", fixed, Value::from(1)), ("1GiB", Value::Null, Value::Null)] {
        let arguments = ends.arguments("large", &format!("large-{memory}"));
        let more = ["--memory", memory, "--connections", "4", "--cc", "cubic"];
        let (code, stdout, stderr) = Ends::copy_with(&[arguments, more.map(String::from).to_vec()].concat());
        assert_eq!((code, stderr.as_str()), (0, ""));
        let report: Value = serde_json::from_str(&stdout).expect("JSON");
        println!("{memory}: {}", report["memory"]);
        assert_eq!(report["memory"]["fixed_buffer_bytes"], fixed, "{report}");
        assert_eq!(report["memory"]["held_to"], held_to, "{report}");
        let resident = report["memory"]["rss_bytes"].as_u64().expect("a number");
        assert!((1 << 20..96 << 20).contains(&resident), "{report}");
    }
    let arguments = ends.arguments("large", "large");
    let with = |more: &[&str]| {
        let words: Vec<&str> = arguments.iter().map(String::as_str).chain(more.iter().copied()).collect();
        fullpipe(&words)
    };
    let (error, hint) = refusal(2, with(&["--memory", "1MiB"]));
    assert_eq!(error, "1 MiB of memory is too little for a copy of files");
    assert_eq!(hint, "choose at least 32 MiB");
    let (error, hint) = refusal(1, with(&["--cc", "no-such-cc"]));
    assert_eq!(error, "the kernel of this host has no congestion control no-such-cc");
    assert!(hint.starts_with("load it with modprobe tcp_no-such-cc, or choose one of "), "{hint}");
}

/// Both ends are this host, and each reports its own buffers to the other.
#[test]
fn a_plan_states_the_buffers_of_both_ends_and_copies_nothing() {
    let ends = Ends::new("copy-plan");
    for name in ["a", "in/b"] {
        fs::write(ends.path(name), name).expect("written");
    }
    let _relay = ends.serve();
    let largest = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).expect("a limit");
        text.split_whitespace().nth(2).expect("three values").parse::<u64>().expect("a number")
    };
    for arguments in [ends.arguments("a", "x"), ends.fetching("b", "y")] {
        let more = ["--plan", "--link", "10mbit", "--connections", "1..2", "--cc", "cubic"];
        let (code, stdout, stderr) = Ends::copy_with(&[arguments, more.map(String::from).to_vec()].concat());
        assert_eq!(code, 0, "{stderr}");
        let plan: Value = serde_json::from_str(&stdout).expect("JSON");
        let path = &plan["path"];
        assert_eq!(path["sndbuf_bytes"], largest("tcp_wmem"), "{path}");
        assert_eq!(path["rcvbuf_bytes"], largest("tcp_rmem"), "{path}");
        assert_eq!(path["congestion_control"], "cubic");
        let assumptions = plan["assumptions"].to_string();
        assert!(!assumptions.contains("default buffers") && !assumptions.contains("--"), "{assumptions}");
    }
    assert!(!Path::new(&ends.path("in/x")).exists() && !Path::new(&ends.path("y")).exists());
}

#[test]
fn errors_of_copies_are_one_line_and_a_hint() {
    let ends = Ends::new("copy-errors");
    fs::write(ends.path("a"), "a").expect("written");
    let (error, hint) = refusal(3, ends.copy("a", "a"));
    assert!(
        error.starts_with("cannot connect to 127.0.0.1 port ") && hint.contains("relay serve"),
        "{error}"
    );
    let relay = ends.serve();
    let (error, _) = refusal(1, ends.copy("absent", "a"));
    assert!(error.starts_with("cannot read ") && error.contains("absent"), "{error}");
    let (error, _) = refusal(2, fullpipe(&["copy", "host:b", "relay://h/a"]));
    assert_eq!(error, "neither the source nor the target is on this host");
    let (error, _) = refusal(2, fullpipe(&["copy", "host:b", &ends.path("a"), "c"]));
    assert!(error.starts_with("some of the sources are on this host"), "{error}");
    let (error, _) = refusal(2, fullpipe(&["copy", "a", "host:b", "--peer", &ends.relay]));
    assert!(error.starts_with("--peer and --key apply only to relay://"), "{error}");
    let (_, hint) = refusal(2, fullpipe(&["copy", &ends.path("a"), "b", "--key", &ends.path("client.key")]));
    assert!(hint.starts_with("use cp -a, or write the target as HOST:PATH"), "{hint}");
    let unpinned = format!("relay://127.0.0.1:{}/a", ends.port);
    let (file, key) = (ends.path("a"), ends.path("client.key"));
    let (error, hint) = refusal(4, fullpipe(&["copy", &file, &unpinned, "--key", &key]));
    assert!(
        error.contains(&ends.relay) && hint.ends_with(&format!("add --peer {}", ends.relay)),
        "{error}: {hint}"
    );
    let (code, stdout, stderr) = ends.copy("a", "a");
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    let (error, _) = refusal(2, fullpipe(&["copy", "-", &file, &unpinned, "--key", &key]));
    assert_eq!(error, "standard input cannot be copied together with files");
    let arguments = ["copy", "-", &unpinned, "--key", &key, "--peer", &ends.relay];
    let input = fs::File::open(ends.path("a")).expect("a file");
    let status = Command::new(crate::PROGRAM).args(arguments).stdin(input).stdout(Stdio::null()).status();
    assert!(status.expect("it starts").success());
    assert_eq!(fs::read(ends.path("in/a")).expect("placed"), b"a");
    drop(relay);
}

#[expect(clippy::disallowed_methods, reason = "the kernel's time, not the engine's")]
fn pause(milliseconds: u64) {
    std::thread::sleep(std::time::Duration::from_millis(milliseconds));
}
