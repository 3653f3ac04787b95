//! Skips tests that need namespaces and TUN devices, with a message, if the process is not permitted to
//! create them. With `FULLPIPE_REQUIRE_NETNS=1`, such a test fails instead of being skipped.

use std::sync::{Mutex, MutexGuard, PoisonError};

use fullpipe_linux::namespace::Namespace;

/// Lock for real-time runs. Real-time runs are executed one at a time, because they would disturb each other.
static ALONE: Mutex<()> = Mutex::new(());

/// Takes the lock for real-time runs; returns `None` if the test must be skipped.
pub(crate) fn alone() -> Option<MutexGuard<'static, ()>> {
    let tun = std::fs::File::options().read(true).write(true).open("/dev/net/tun").is_ok();
    if tun && Namespace::new().is_ok() {
        return Some(ALONE.lock().unwrap_or_else(PoisonError::into_inner));
    }
    let required = std::env::var_os("FULLPIPE_REQUIRE_NETNS").is_some_and(|value| value == "1");
    assert!(!required, "FULLPIPE_REQUIRE_NETNS=1, and this process may not make namespaces and TUN devices");
    eprintln!("skipped: this process may not make namespaces and TUN devices; run the tests as root");
    None
}
