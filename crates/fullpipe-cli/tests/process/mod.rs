//! Runs the `fullpipe` command and collects its output.
#![allow(dead_code, reason = "each file of tests uses its part")]

#[cfg(target_os = "linux")]
pub(crate) mod emulated;
pub(crate) mod pages;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// Result of a command: exit code, standard output and standard error.
pub(crate) type CommandOutput = (i32, String, String);

/// Returns whether `program` is installed. If the program is missing, the test is skipped with a message. If
/// the environment variable FULLPIPE_REQUIRE_ followed by the program's name is 1, the test fails instead.
pub(crate) fn has(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok_and(|told| told.status.success());
    let variable = format!("FULLPIPE_REQUIRE_{}", program.to_uppercase());
    let required = std::env::var_os(&variable).is_some_and(|value| value == "1");
    assert!(there || !required, "{variable}=1, and there is no {program}");
    if !there {
        eprintln!("skipped: there is no {program}");
    }
    there
}

/// Creates an empty folder for a test.
pub(crate) fn folder(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder for the test");
    folder
}

/// Returns the path of a file in the project's folder `examples`.
pub(crate) fn example(name: &str) -> String {
    format!("{}/../../examples/{name}", env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn fullpipe(arguments: &[&str]) -> CommandOutput {
    fullpipe_reading(b"", arguments)
}

/// Runs the `fullpipe` command with `input` on its standard input.
pub(crate) fn fullpipe_reading(input: &[u8], arguments: &[&str]) -> CommandOutput {
    let mut child = Command::new(crate::PROGRAM)
        .args(arguments)
        .envs([("NO_COLOR", ""), ("COLUMNS", "")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    // If the command does not read its input, it may close the pipe early.
    let _ = child.stdin.take().expect("a pipe").write_all(input);
    let Output { status, stdout, stderr } = child.wait_with_output().expect("it ends");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code().expect("an exit code"), text(stdout), without_forecast(&text(stderr)))
}

/// Removes the line in which `run` states the cost of an experiment, because it depends on the machine.
pub(crate) fn without_forecast(stderr: &str) -> String {
    stderr.split_inclusive('\n').filter(|line| !is_forecast(line)).collect()
}

/// Returns whether a line states the number of runs, their duration and an estimate.
pub(crate) fn is_forecast(line: &str) -> bool {
    line.contains(" s of virtual time; takes about ") || line.contains(" s of real time; takes about ")
}

/// Sends the signal `name` to a process; `name` is the name of the signal in `kill`.
pub(crate) fn signal(child: &Child, name: &str) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {}", child.id())]).status();
    assert!(sent.expect("a shell").success());
}

/// Waits until `happened` returns true, for at most one minute, and returns whether it did.
#[expect(clippy::disallowed_methods, reason = "the kernel's time, not the engine's")]
pub(crate) fn becomes(happened: impl Fn() -> bool) -> bool {
    let tries = || std::thread::sleep(Duration::from_millis(10));
    (0..6_000).any(|_| {
        happened() || {
            tries();
            false
        }
    })
}

/// Returns a port that stays free until the caller's server binds to it. Each call returns a different port.
/// The ports are below the kernel's ephemeral range, from which other tests open thousands of connections. An
/// abstract socket named after the port reserves it, so that tests in other processes skip the port until
/// this process ends.
#[cfg(target_os = "linux")]
pub(crate) fn port() -> u16 {
    use std::net::{Ipv4Addr, TcpListener, UdpSocket};
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
    use std::sync::{Mutex, PoisonError};

    static CALLS: AtomicU16 = AtomicU16::new(0);
    static CLAIMS: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    const FIRST: u16 = 20_000;
    const MANY: u16 = 12_000;
    let claimed = |port: u16| {
        let name = SocketAddr::from_abstract_name(format!("fullpipe-test-port-{port}")).expect("a name");
        let claim = UnixListener::bind_addr(&name).ok()?;
        let free = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()
            && UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok();
        CLAIMS.lock().unwrap_or_else(PoisonError::into_inner).push(claim);
        free.then_some(port)
    };
    let begun = std::process::id() % u32::from(MANY);
    (0..MANY)
        .map(|_| begun + u32::from(CALLS.fetch_add(1, Relaxed)))
        .map(|number| FIRST + u16::try_from(number % u32::from(MANY)).expect("below the number of ports"))
        .find_map(claimed)
        .expect("a free port")
}

/// Asserts that the exit code is `code`, and that the output consists of one line that describes
/// the error and one line with a hint.
#[track_caller]
pub(crate) fn refusal(code: i32, said: CommandOutput) -> (String, String) {
    let (exit, stdout, stderr) = said;
    assert_eq!((exit, stdout.as_str()), (code, ""), "{stderr}");
    let lines: Vec<&str> = stderr.lines().collect();
    let [error, hint] = lines[..] else { panic!("not two lines:\n{stderr}") };
    let error = error.strip_prefix("error: ").unwrap_or_else(|| panic!("{stderr}"));
    let hint = hint.strip_prefix("hint: ").unwrap_or_else(|| panic!("{stderr}"));
    assert!(!error.is_empty() && !hint.is_empty(), "{stderr}");
    (error.into(), hint.into())
}

/// Writes an experiment file to a new folder, and returns the folder and the path of the file.
pub(crate) fn experiment(test: &str, text: &str) -> (PathBuf, String) {
    let folder = folder(test);
    let file = folder.join("runs.toml");
    fs::write(&file, text).expect("an experiment file");
    (folder, file.to_str().expect("UTF-8").into())
}

/// Runs `script` with a file system of `kib` KiB mounted at `$D`; returns `None` if the file system cannot be
/// created.
#[cfg(target_os = "linux")]
pub(crate) fn with_disk(folder: &Path, kib: u32, script: &str) -> Option<CommandOutput> {
    let disk = folder.join("disk");
    fs::create_dir_all(&disk).expect("a folder");
    let mounted = format!("mount -t tmpfs -o size={kib}k none \"$D\" || exit 99; {script}");
    let command = ["--mount", "sh", "-c", &mounted];
    let run = Command::new("unshare").args(command).env("D", &disk).env("FULLPIPE", crate::PROGRAM).output();
    let Ok(Output { status, stdout, stderr }) = run else { return None };
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let said = (status.code().expect("an exit code"), text(stdout), without_forecast(&text(stderr)));
    let made = said.0 != 99 && !said.2.starts_with("unshare: ");
    let required = std::env::var_os("FULLPIPE_REQUIRE_NETNS").is_some_and(|value| value == "1");
    assert!(made || !required, "FULLPIPE_REQUIRE_NETNS=1, and {}", said.2);
    if !made {
        eprintln!("skipped: {}", said.2);
    }
    made.then_some(said)
}
