//! Skips tests that need namespaces and TUN devices, with a message, if the process may not create
//! them; `FULLPIPE_REQUIRE_NETNS=1` turns a skip into a failure.

use std::sync::{Mutex, MutexGuard, PoisonError};

use fullpipe_linux::namespace::Namespace;

/// Real-time runs disturb each other, so they run one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Returns `None` if the test has to be skipped.
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
