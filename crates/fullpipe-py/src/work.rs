//! Long operations: a thread does the work, and the calling thread handles signals and reports progress.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use fullpipe::lab::campaign::{JobWatch, Progress};
use fullpipe::{Error, Observer};
use pyo3::prelude::*;

use crate::errors::exception;

/// Interval at which signals are handled, and therefore the maximum delay after Ctrl-C.
const POLL: Duration = Duration::from_millis(50);

/// Observer that the calling thread can stop, and that counts finished runs.
#[derive(Default)]
pub(crate) struct Attendance {
    stopped: AtomicBool,
    done: AtomicUsize,
    total: AtomicUsize,
}

impl Observer for Attendance {
    fn goes_on(&self) -> bool {
        !self.stopped.load(Ordering::Relaxed)
    }

    fn abandons(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn progress(&self, progress: Progress) {
        self.total.store(progress.total, Ordering::Relaxed);
        self.done.store(progress.done, Ordering::Relaxed);
    }
}

impl JobWatch for Attendance {
    fn finished(&self, _: Progress) {}

    fn abandons(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

/// Effect on the work when a signal handler raises an exception.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtSignal {
    /// The work stops within milliseconds, and the exception is raised after it has ended.
    Wait,
    /// The work may read a large input before it notices the request to stop. It ends in the background, and
    /// its result is dropped.
    Leave,
}

/// Calls `work` on a new thread, without the GIL, and returns its result. When the number of finished runs
/// has changed, the calling thread calls `progress` with this number and the number of all runs.
///
/// # Errors
/// Returns the exception for an error or a panic of the work, and the exception that a signal handler or
/// `progress` raises.
pub(crate) fn attended<T: Send + 'static>(
    py: Python<'_>,
    at_signal: AtSignal,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&Attendance) -> Result<T, Error> + Send + 'static,
) -> PyResult<T> {
    let attendance = Arc::new(Attendance::default());
    let of_worker = Arc::clone(&attendance);
    let (sender, mut receiver) = mpsc::channel();
    let worker = thread::Builder::new().name("fullpipe".into()).spawn(move || {
        let result = catch_unwind(AssertUnwindSafe(|| work(&of_worker))).unwrap_or_else(|panic| {
            let message = fullpipe::lab::campaign::panic_message(panic.as_ref()).replace('\n', " ");
            Err(Error::new(
                format!("fullpipe panicked: {message}"),
                "this is a defect of fullpipe: please report it with the input",
            ))
        });
        // Sending fails if the calling thread no longer waits.
        let _ = sender.send(result);
    });
    let failed =
        |problem: String| exception(py, &Error::new(problem, "end other programs, or raise ulimit -u"));
    let worker = worker.map_err(|error| failed(format!("cannot start a thread: {error}")))?;
    let mut reported = None;
    loop {
        let of_waiting = &mut receiver;
        match py.detach(move || of_waiting.recv_timeout(POLL)) {
            Ok(result) => {
                let result = result.map_err(|error| exception(py, &error))?;
                report(&attendance, progress, &mut reported)?;
                return Ok(result);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(failed("the worker ended early".into())),
        }
        let interrupted = py.check_signals().and_then(|()| report(&attendance, progress, &mut reported));
        if let Err(raised) = interrupted {
            attendance.stopped.store(true, Ordering::Relaxed);
            if at_signal == AtSignal::Wait {
                // A panic was caught above.
                let _ = py.detach(|| worker.join());
            }
            return Err(raised);
        }
    }
}

/// Calls `progress` if a run has finished since the last call.
fn report(
    attendance: &Attendance,
    progress: Option<&Bound<'_, PyAny>>,
    reported: &mut Option<usize>,
) -> PyResult<()> {
    let Some(progress) = progress else { return Ok(()) };
    let (done, total) = (attendance.done.load(Ordering::Relaxed), attendance.total.load(Ordering::Relaxed));
    if total == 0 || *reported == Some(done) {
        return Ok(());
    }
    *reported = Some(done);
    progress.call1((done, total)).map(drop)
}
