//! Tests that compare the simulator with the kernel of this host.
#![cfg(target_os = "linux")]

#[path = "../../../fullpipe-cli/tests/process/mod.rs"]
mod process;

mod left_behind;
mod situations;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Path of the `fullpipe-fidelity` program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_fullpipe-fidelity");

/// Returns a lock for exclusive use of the machine, because concurrent runs in real time disturb each other;
/// returns `None` if the process is not permitted to create namespaces and TUN devices.
fn alone() -> Option<MutexGuard<'static, ()>> {
    static ALONE: Mutex<()> = Mutex::new(());
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Err(error) = fullpipe::linux::rights::acquire() else { return Some(guard) };
    let required = std::env::var_os("FULLPIPE_REQUIRE_NETNS").is_some_and(|value| value == "1");
    assert!(!required, "FULLPIPE_REQUIRE_NETNS=1, and {error}");
    eprintln!("skipped: {error}");
    None
}
