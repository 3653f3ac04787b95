//! Starts the command and gathers what it says.
#![allow(dead_code, reason = "each file of tests uses its part")]

#[cfg(target_os = "linux")]
pub(crate) mod emulated;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// Exit code, standard output, standard error.
pub(crate) type Said = (i32, String, String);

/// Whether `program` is there. A test that needs it is skipped with a message where it is not, unless FULLPIPE_REQUIRE_ and its name
/// is 1.
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

/// A folder of its own for one test.
pub(crate) fn folder(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder for the test");
    folder
}

/// A file that comes with the project, as an argument.
pub(crate) fn example(name: &str) -> String {
    format!("{}/../../examples/{name}", env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn fullpipe(arguments: &[&str]) -> Said {
    fullpipe_reading(b"", arguments)
}

/// The same with `input` on its standard input.
pub(crate) fn fullpipe_reading(input: &[u8], arguments: &[&str]) -> Said {
    let mut child = Command::new(crate::PROGRAM)
        .args(arguments)
        .envs([("NO_COLOR", ""), ("COLUMNS", "")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    // A command that reads no input closes the pipe early, which is its right.
    let _ = child.stdin.take().expect("a pipe").write_all(input);
    let Output { status, stdout, stderr } = child.wait_with_output().expect("it ends");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code().expect("an exit code"), text(stdout), text(stderr))
}

/// Sends a signal, `name` as `kill` has it.
pub(crate) fn signal(child: &Child, name: &str) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {}", child.id())]).status();
    assert!(sent.expect("a shell").success());
}

/// Waits until `happened`, at most a minute; whether it did.
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

/// A free port that stays free until a server of the caller binds it: below the range from which the kernel gives ports to
/// connections, of which other tests open thousands meanwhile, another one for each call, and claimed by an abstract socket of its
/// name, so that tests in other processes pass it over until this process ends.
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

/// What went wrong and what to do instead: one line each and nothing else, with `code` as the exit code.
#[track_caller]
pub(crate) fn refusal(code: i32, said: Said) -> (String, String) {
    let (exit, stdout, stderr) = said;
    assert_eq!((exit, stdout.as_str()), (code, ""), "{stderr}");
    let lines: Vec<&str> = stderr.lines().collect();
    let [error, hint] = lines[..] else { panic!("not two lines:\n{stderr}") };
    let error = error.strip_prefix("error: ").unwrap_or_else(|| panic!("{stderr}"));
    let hint = hint.strip_prefix("hint: ").unwrap_or_else(|| panic!("{stderr}"));
    assert!(!error.is_empty() && !hint.is_empty(), "{stderr}");
    (error.into(), hint.into())
}

/// An experiment in a folder of its own: the folder, and the file as an argument.
pub(crate) fn experiment(test: &str, text: &str) -> (PathBuf, String) {
    let folder = folder(test);
    let file = folder.join("runs.toml");
    fs::write(&file, text).expect("an experiment file");
    (folder, file.to_str().expect("UTF-8").into())
}

/// Runs `script` with a disk of so many KiB at `$D`; `None` where no disk can be made.
#[cfg(target_os = "linux")]
pub(crate) fn with_disk(folder: &Path, kib: u32, script: &str) -> Option<Said> {
    let disk = folder.join("disk");
    fs::create_dir_all(&disk).expect("a folder");
    let mounted = format!("mount -t tmpfs -o size={kib}k none \"$D\" || exit 99; {script}");
    let command = ["--mount", "sh", "-c", &mounted];
    let run = Command::new("unshare").args(command).env("D", &disk).env("FULLPIPE", crate::PROGRAM).output();
    let Ok(Output { status, stdout, stderr }) = run else { return None };
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let said = (status.code().expect("an exit code"), text(stdout), text(stderr));
    let made = said.0 != 99 && !said.2.starts_with("unshare: ");
    let required = std::env::var_os("FULLPIPE_REQUIRE_NETNS").is_some_and(|value| value == "1");
    assert!(made || !required, "FULLPIPE_REQUIRE_NETNS=1, and {}", said.2);
    if !made {
        eprintln!("skipped: {}", said.2);
    }
    made.then_some(said)
}
