//! Handling of Ctrl-C: the first Ctrl-C ends the current work and keeps its results.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::{Failure, INTERRUPTED};

/// Calls `act` each time the process receives SIGINT (Ctrl-C), SIGTERM or SIGHUP.
pub(crate) fn at_signal(mut act: impl FnMut() + Send + 'static) -> Result<(), Failure> {
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]);
    let mut signals =
        signals.map_err(|e| Failure::new(format!("cannot install the signal handlers: {e}"), ""))?;
    thread::spawn(move || signals.forever().for_each(|_| act()));
    Ok(())
}

/// Returns a counter of the Ctrl-C signals received so far. On each signal, `at` is called with the new
/// count; the third signal ends the process. The counter changes after the call, so that what `at` prints
/// precedes the output of a thread that has seen the new count.
pub(crate) fn counted(at: impl Fn(u8) + Send + 'static) -> Result<Arc<AtomicU8>, Failure> {
    let count = Arc::new(AtomicU8::new(0));
    let counted = Arc::clone(&count);
    at_signal(move || match counted.load(Ordering::Relaxed) + 1 {
        number @ (1 | 2) => {
            at(number);
            counted.store(number, Ordering::Release);
        }
        _ => std::process::exit(INTERRUPTED.into()),
    })?;
    Ok(count)
}

/// Returns a flag that is set by the first Ctrl-C, after a call of `at_first`; the second Ctrl-C ends
/// the process.
pub(crate) fn noted(at_first: impl Fn() + Send + 'static) -> Result<Arc<AtomicBool>, Failure> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let noted = Arc::clone(&interrupted);
    at_signal(move || {
        if noted.load(Ordering::Relaxed) {
            std::process::exit(INTERRUPTED.into());
        }
        at_first();
        noted.store(true, Ordering::Release);
    })?;
    Ok(interrupted)
}
