//! A command together with all that descends from it.
//!
//! The kernel kills a child with its parent on request (`PR_SET_PDEATHSIG`), but not the child's own children: those of
//! a killed `fullpipe` would go on, in namespaces that nobody reaches any more. So a command runs in a PID namespace,
//! whose processes all end with its first one, whatever they have made of their sessions and groups.
//!
//! ```text
//!   fullpipe ─fork─► first process (1) ─fork─► the command (2) ─► its children
//!      │                  │ reaps orphans, hands on signals, ends as the command does
//!      └─ ends, however ─►└─ is killed, and the namespace with it
//! ```
//!
//! The first process is this program between fork and exec: it makes system calls and nothing else.

use std::io;
use std::process::Command;

use rustix::process::{
    Gid, Pid, Signal, Uid, WaitOptions, kill_process, set_parent_process_death_signal, wait,
};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};

use crate::rights::Caller;
use crate::sys;

/// Has `command` run as `caller`, contained. To be called, and the command started, in a thread that starts no other
/// thread afterwards: all children of that thread are contained from now on.
pub(crate) fn contain(command: &mut Command, caller: Option<Caller>) -> io::Result<()> {
    sys::unshare_processes()?;
    // SAFETY: what runs between fork and exec makes system calls only; it allocates nothing and takes no lock.
    unsafe { sys::before_exec(command, move || enter(caller)) };
    Ok(())
}

/// Goes on as the command; the first process stays behind in here.
fn enter(caller: Option<Caller>) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // A process that looks itself up has to find itself. Where it may not be mounted the machine's has to do.
    let _ = sys::own_proc();
    let before = sys::block_signals()?;
    // SAFETY: as in `contain`.
    match unsafe { sys::fork() }? {
        Some(command) => first_process(command),
        None => {
            sys::set_signal_mask(&before)?;
            caller.map_or(Ok(()), become_caller)
        }
    }
}

/// After the fork: the first process keeps its rights, so that its death signal stays and nobody but root stops it.
fn become_caller(caller: Caller) -> io::Result<()> {
    set_thread_groups(&[])?;
    set_thread_gid(Gid::from_raw(caller.group))?;
    Ok(set_thread_uid(Uid::from_raw(caller.user))?)
}

fn first_process(command: Pid) -> ! {
    // Pipes and devices of the parent's; whoever waits for their end must not wait for this process.
    sys::close_all_but_standard();
    loop {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if pid == command {
                let signal = status.terminating_signal().map(|signal| 128 + signal);
                sys::exit_at_once(status.exit_status().or(signal).unwrap_or(1));
            }
        }
        // What a terminal sends has reached the command as well.
        if let Some(signal) = sys::next_signal_from_outside().and_then(Signal::from_named_raw) {
            // It may just have ended, which the next round finds out.
            let _ = kill_process(command, signal);
        }
    }
}
