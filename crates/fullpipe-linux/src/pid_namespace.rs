//! Runs a command together with all its descendants in a PID namespace.
//!
//! On request, the kernel kills a child process when its parent ends (`PR_SET_PDEATHSIG`), but not the
//! child's own children. If `fullpipe` were killed, these would keep running in network namespaces that no
//! other process can reach. Each command therefore runs in a PID namespace. All processes of the namespace
//! end with its first process, whatever sessions and process groups they have created.
//!
//! ```text
//!   fullpipe ─fork─► first process (1) ─fork─► the command (2) ─► its children
//!      │                  │ reaps orphans, forwards signals, exits when the command does
//!      └─ ends, however ─►└─ is killed, and the namespace with it
//! ```
//!
//! The first process of the namespace is a copy of this program between fork and exec, so it may only make
//! system calls.

use std::io;
use std::process::Command;

use rustix::process::{
    Gid, Pid, Signal, Uid, WaitOptions, kill_process, set_parent_process_death_signal, wait,
};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};

use crate::rights::Caller;
use crate::sys;

/// Makes `command` run as `caller` in a new PID namespace. The command must be started in a thread that
/// starts no other process afterwards, because all later children of that thread belong to the namespace.
pub(crate) fn contain(command: &mut Command, caller: Option<Caller>) -> io::Result<()> {
    sys::unshare_processes()?;
    // SAFETY: the code between fork and exec only makes system calls; it allocates no memory and takes no
    // lock.
    unsafe { sys::before_exec(command, move || enter(caller)) };
    Ok(())
}

/// Forks the process. The child returns and becomes the command; the parent stays in this function as the
/// first process of the namespace.
fn enter(caller: Option<Caller>) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // Processes in the PID namespace need a matching `/proc` to find themselves. If it cannot be mounted, the
    // processes see the host's `/proc`.
    let _ = sys::own_proc();
    let before = sys::block_signals()?;
    // SAFETY: the code between fork and exec only makes system calls.
    match unsafe { sys::fork() }? {
        Some(command) => first_process(command),
        None => {
            sys::set_signal_mask(&before)?;
            caller.map_or(Ok(()), become_caller)
        }
    }
}

/// Switches to the caller's identity after the fork. The first process of the namespace keeps its privileges.
/// The kernel therefore does not clear the parent-death signal of the first process, and only root can stop
/// that process.
fn become_caller(caller: Caller) -> io::Result<()> {
    set_thread_groups(&[])?;
    set_thread_gid(Gid::from_raw(caller.group))?;
    Ok(set_thread_uid(Uid::from_raw(caller.user))?)
}

fn first_process(command: Pid) -> ! {
    // The inherited pipes and devices are closed, so that a reader that waits for end-of-file does not have
    // to wait for this process.
    sys::close_all_but_standard();
    loop {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if pid == command {
                let signal = status.terminating_signal().map(|signal| 128 + signal);
                sys::exit_at_once(status.exit_status().or(signal).unwrap_or(1));
            }
        }
        // The terminal sends signals to the command directly, so only signals from other processes are
        // forwarded.
        if let Some(signal) = sys::next_signal_from_outside().and_then(Signal::from_named_raw) {
            // If the command has already ended, the next iteration detects this.
            let _ = kill_process(command, signal);
        }
    }
}
