//! The comparison on the kernel of this machine.
#![cfg(target_os = "linux")]

#[path = "../../../fullpipe-cli/tests/process/mod.rs"]
mod process;

mod left_behind;
mod situations;

/// The program that is tested.
const PROGRAM: &str = env!("CARGO_BIN_EXE_fullpipe-fidelity");

/// Whether the process may make namespaces and TUN devices.
fn allowed() -> bool {
    let Err(error) = fullpipe::linux::rights::acquire() else { return true };
    let required = std::env::var_os("FULLPIPE_REQUIRE_NETNS").is_some_and(|value| value == "1");
    assert!(!required, "FULLPIPE_REQUIRE_NETNS=1, and {error}");
    eprintln!("skipped: {error}");
    false
}
