//! The process `nft -i`, which owns the nftables table of a service.
//!
//! The kernel removes a table with `flags owner` when the socket that created the table is closed. The
//! process keeps this socket open until its standard input ends, so the table disappears with the keeper,
//! however the keeper ends.
//!
//! `nft -i` executes its input line by line, and reports errors on standard error, which is unbuffered. After
//! each transaction, the keeper asks for a table that does not exist. The error message about that table
//! shows that all earlier lines have been executed, and every message before it belongs to the transaction.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, Command, Output, Stdio};

use fullpipe_linux::{Clock, Error};
use fullpipe_units::{Duration, Instant};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl};

use crate::{refused, system};

/// Time after which a transaction counts as failed. A set of a million connections takes about a second.
const PATIENCE: Duration = Duration::from_secs(10);
/// Prefix of the names of tables that never exist; a number follows.
const FENCE: &str = "fullpipe_fence_";

/// A running `nft -i` process.
#[derive(Debug)]
pub(crate) struct Nft {
    child: Child,
    /// Standard input of the process; `None` once the process must end.
    input: Option<ChildStdin>,
    errors: ChildStderr,
    fences: u64,
    clock: Clock,
}

impl Nft {
    /// Starts `nft -i` in the network namespace of the calling thread.
    pub(crate) fn start(clock: Clock) -> Result<Self, Error> {
        // The pipes of this process are closed on exec, so no other child process keeps the table alive.
        let child = Command::new("nft")
            .arg("-i")
            // nft would otherwise write its input to the user's history file.
            .env("HOME", "/dev/null")
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // In its own process group, nft does not receive Ctrl-C; the keeper ends it last.
            .process_group(0)
            .spawn();
        let mut child = child.map_err(not_installed)?;
        let (Some(input), Some(errors)) = (child.stdin.take(), child.stderr.take()) else {
            return Err(system("start nft", io::ErrorKind::BrokenPipe));
        };
        fcntl_setfl(&errors, OFlags::NONBLOCK).map_err(|error| system("read from nft", error))?;
        Ok(Self { child, input: Some(input), errors, fences: 0, clock })
    }

    /// Executes a transaction, given as one line without a line break.
    pub(crate) fn apply(&mut self, transaction: &str) -> Result<(), Error> {
        self.fences += 1;
        let fence = format!("{FENCE}{}", self.fences);
        let lines = format!("{transaction}\nlist table netdev {fence}\n");
        let Some(input) = &mut self.input else {
            return Err(system("write to nft", io::ErrorKind::BrokenPipe));
        };
        let written = input.write_all(lines.as_bytes());
        let said =
            written.map_err(|error| system("write to nft", error)).and_then(|()| self.read_until(&fence));
        // An nft process that has ended or hangs is replaced. When it ends, the kernel removes the table.
        let said = said.inspect_err(|_| self.input = None)?;
        match failure(&said, &fence) {
            None => Ok(()),
            Some(why) => {
                let hint = "check --match; fullpipe accelerate --dry-run prints the rules";
                Err(refused(format!("nft refuses the rules: {why}"), hint))
            }
        }
    }

    /// Kills the process, which removes the table. Killing takes less than a millisecond; a transaction takes
    /// several milliseconds.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Returns whether the process is running and answers. If it has died, the kernel has removed the table.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.input.is_some() && matches!(self.child.try_wait(), Ok(None))
    }

    /// Reads error messages until one of them names `fence`.
    fn read_until(&mut self, fence: &str) -> Result<String, Error> {
        let until = self.clock.now() + PATIENCE;
        let mut said = String::new();
        let mut room = [0; 4_096];
        while !said.contains(fence) {
            if !self.wait(until)? {
                return Err(refused("nft does not answer", "nft -i must read commands from a pipe"));
            }
            match self.errors.read(&mut room) {
                Ok(0) => return Err(refused(format!("nft has ended: {}", said.trim()), "")),
                Ok(len) => said += &String::from_utf8_lossy(&room[..len]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(system("read from nft", error)),
            }
        }
        Ok(said)
    }

    /// Waits for an error message; returns false if none arrives before `until`.
    fn wait(&self, until: Instant) -> Result<bool, Error> {
        let left = until.saturating_since(self.clock.now());
        let timeout = Timespec {
            tv_sec: (left.as_millis() / 1_000) as i64,
            tv_nsec: (left.as_nanos() % 1_000_000_000) as i64,
        };
        let mut fds = [PollFd::from_borrowed_fd(self.errors.as_fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => Ok(self.clock.now() < until),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(true),
            Err(error) => Err(system("wait for nft", error)),
        }
    }
}

impl AsFd for Nft {
    /// Returns the pipe of the error messages, whose other end is closed when the process ends.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.errors.as_fd()
    }
}

impl Drop for Nft {
    fn drop(&mut self) {
        // nft ends at the end of its input, and the kernel then removes the table. An nft process that hangs
        // is killed.
        let hangs = self.input.take().is_none();
        if hangs {
            self.kill();
        }
        let _ = self.child.wait();
    }
}

/// Extracts the error messages of a transaction from nft's output, up to the message about `fence`.
fn failure(said: &str, fence: &str) -> Option<String> {
    // The message about the fence begins with "Error:", and the quoted command after it contains the name of
    // the fence.
    let end = said.find(fence)?;
    let begin = said[..end].rfind("Error").unwrap_or(end);
    failures(&said[..begin])
}

/// Extracts all error messages from nft's output. Each message is followed by the part of the transaction that nft has
/// underlined.
fn failures(said: &str) -> Option<String> {
    let mut found = Vec::new();
    let mut lines = said.lines();
    while let Some(line) = lines.next() {
        let Some((_, message)) = line.split_once("Error: ") else { continue };
        // The quoted transaction can be very long; the next line underlines the part that failed.
        let (quoted, marks) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        let marked: String =
            quoted.chars().zip(marks.chars()).filter(|(_, mark)| *mark == '^').map(|(c, _)| c).collect();
        found.push(format!("{message} ({})", marked.trim()));
    }
    (!found.is_empty()).then(|| found.join("; "))
}

fn not_installed(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => {
            refused("the program nft is not installed", "install nftables, for example apt install nftables")
        }
        _ => system("start nft", error),
    }
}

/// Runs `nft` with `arguments` once.
fn run(arguments: &[&str]) -> Result<Output, Error> {
    let mut command = Command::new("nft");
    command.args(arguments).stdin(Stdio::null()).current_dir("/").output().map_err(not_installed)
}

/// Returns the reason why nft would refuse a transaction; `None` if it would execute the transaction. This function
/// changes nothing.
pub(crate) fn objection(transaction: &str) -> Result<Option<String>, Error> {
    let output = run(&["-c", transaction])?;
    let said = String::from_utf8_lossy(&output.stderr);
    let refused = !output.status.success();
    Ok(refused.then(|| failures(&said).unwrap_or_else(|| said.lines().next().unwrap_or_default().to_owned())))
}

/// Runs `nft` with `arguments` once, and returns its output.
pub(crate) fn query(arguments: &[&str]) -> Result<String, Error> {
    let output = run(arguments)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let why = said.lines().next().unwrap_or_default().trim();
        let why = format!("nft {}: {why}", arguments.join(" "));
        let denied = said.contains("Operation not permitted") || said.contains("must be root");
        let kind = if denied { io::ErrorKind::PermissionDenied } else { io::ErrorKind::Other };
        return Err(system("read the firewall rules", io::Error::new(kind, why)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FENCE_MESSAGE: &str = concat!(
        "Error: No such file or directory\n",
        "list table netdev fullpipe_fence_2\n",
        "                  ^^^^^^^^^^^^^^^^\n"
    );

    #[test]
    fn a_transaction_without_a_message_has_succeeded() {
        assert_eq!(failure(FENCE_MESSAGE, "fullpipe_fence_2"), None);
    }

    #[test]
    fn the_message_before_the_fence_is_the_failure() {
        let said = format!(
            "                  ^^^^\nError: No such file or directory\nflush chain netdev fp steer; add rule x\n\
             \x20                  ^^\n{FENCE_MESSAGE}"
        );
        let why = failure(&said, "fullpipe_fence_2").expect("a failure");
        assert_eq!(why, "No such file or directory (fp)");
    }
}
