//! Tests that need namespaces and TUN devices are skipped where the process may not make them, with a message;
//! `FULLPIPE_REQUIRE_NETNS=1` makes a skip a failure.

use std::sync::{Mutex, MutexGuard, PoisonError};

use fullpipe_linux::namespace::Namespace;

/// Runs in real time disturb each other: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// `None` when the test has to be skipped.
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
