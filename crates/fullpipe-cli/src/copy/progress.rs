//! Progress of a copy on standard error: a bar on a terminal, and plain lines in a log.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use fullpipe::copy_forecast::Forecasting;
use fullpipe::relay::{Connections, CopyObserver, CopyReport, ForecastReport, Reached};
use fullpipe::units::{Bytes, Duration, Rate};
use indicatif::{ProgressBar, ProgressStyle};

use super::{LinkToPeer, one_line};

/// Time between two lines of progress in a log. A copy that takes less time prints none.
const EVERY: Duration = Duration::from_secs(10);

/// Progress of a copy on standard error.
pub(super) struct CopyProgress {
    /// The bar; absent if standard error is not a terminal, because redrawn lines are noise in a log.
    bar: Option<ProgressBar>,
    /// Lines for a log.
    log: Mutex<ProgressLog>,
    started: Instant,
    /// File that receives the accepted offsets of a pipe.
    accepted: Option<File>,
    /// Path for the forecast, and the numbers of connections to simulate.
    path: Option<(LinkToPeer, Connections)>,
    /// Forecast, which starts once the path and the buffers of both hosts are known.
    forecasting: Mutex<Option<Forecasting>>,
}

impl CopyProgress {
    #[expect(clippy::disallowed_methods, reason = "progress is shown in the user's time")]
    pub(super) fn new(accepted: Option<File>, path: Option<(LinkToPeer, Connections)>) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let template = "copying {bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left{msg}";
            let style = ProgressStyle::with_template(template);
            ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        let log = Mutex::default();
        Self { bar, log, started: Instant::now(), accepted, path, forecasting: Mutex::default() }
    }

    /// Returns a function that removes the bar.
    pub(super) fn clearing(&self) -> impl Fn() + Send + 'static {
        let bar = self.bar.clone();
        move || bar.iter().for_each(ProgressBar::finish_and_clear)
    }

    /// Sets the text after the progress itself.
    fn state(&self, text: String) {
        match &self.bar {
            Some(bar) => bar.set_message(text),
            None => self.log().state = text,
        }
    }

    fn log(&self) -> MutexGuard<'_, ProgressLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the forecast for the largest number of connections that the copy has used.
    pub(super) fn forecast(&self, report: &CopyReport) -> Option<ForecastReport> {
        let forecasting = self.forecasting.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let counts = forecasting.end()?;
        let simulated = counts.of(report.most_connections)?;
        let steady_bps = simulated.steady.as_bps();
        let ratio = report.goodput_bps as f64 / steady_bps.max(1) as f64;
        Some(ForecastReport { connections: simulated.flows, steady_bps, ratio })
    }

    pub(super) fn clear(&self) {
        self.clearing()();
    }
}

impl CopyObserver for CopyProgress {
    fn connected(&self, reached: &Reached) {
        let Some((path, connections)) = self.path else { return };
        let mut forecasting = self.forecasting.lock().unwrap_or_else(PoisonError::into_inner);
        // Only the first connection counts, because a copy that has lost its relay connects again.
        forecasting.get_or_insert_with(|| Forecasting::begin(path.with(reached.clone()), connections));
    }

    fn progress(&self, done: Bytes, total: Bytes) {
        if let Some(bar) = &self.bar {
            bar.set_length(total.get());
            bar.set_position(done.get());
            return;
        }
        let elapsed =
            Duration::from_nanos(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX));
        if let Some(line) = self.log().line(elapsed, done, total) {
            eprintln!("{line}");
        }
    }

    fn connections(&self, count: u32, limit: Option<&str>) {
        let plural = if count == 1 { "" } else { "s" };
        self.state(format!(", {count} connection{plural}, limit {}", limit.unwrap_or("unknown")));
    }

    fn accepted(&self, offset: Bytes) {
        if let Some(mut file) = self.accepted.as_ref() {
            // If the producer has closed the descriptor, the copy continues.
            let _ = file.write_all(format!("{}\n", offset.get()).as_bytes());
        }
    }

    fn queue(&self, held: Bytes, memory: Bytes) {
        self.state(format!(", {held} of {memory} kept"));
    }

    fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("note: {}", one_line(text))),
            None => eprintln!("note: {}", one_line(text)),
        }
    }
}

/// Progress of a copy as lines for a log.
#[derive(Debug, Default)]
struct ProgressLog {
    /// Time of the last line since the start of the copy, and amount of data that was durable at that time.
    last: (Duration, Bytes),
    /// Text after the progress itself.
    state: String,
}

impl ProgressLog {
    /// Returns the next line if it is due `elapsed` after the start of the copy.
    fn line(&mut self, elapsed: Duration, done: Bytes, total: Bytes) -> Option<String> {
        let (time, before) = self.last;
        let since = elapsed.saturating_sub(time);
        if since < EVERY {
            return None;
        }
        self.last = (elapsed, done);
        let rate = Rate::mean(done.saturating_sub(before), since);
        let percent = done.get().saturating_mul(100) / total.get().max(1);
        let left = match rate.as_bps() {
            0 => String::new(),
            bps => format!(", {} s left", total.saturating_sub(done).get().saturating_mul(8).div_ceil(bps)),
        };
        Some(format!("copied {done} of {total} ({percent} %), {rate}{left}{}", self.state))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_gets_a_line_every_ten_seconds() {
        let mut log = ProgressLog::default();
        let mut line = |seconds, done, total| {
            log.line(Duration::from_secs(seconds), Bytes::from_mib(done), Bytes::from_mib(total))
        };
        assert_eq!(line(9, 100, 400), None, "a short copy prints nothing");
        let expected = "copied 120 MiB of 400 MiB (30 %), 101 Mbit/s, 24 s left";
        assert_eq!(line(10, 120, 400).as_deref(), Some(expected));
        assert_eq!(line(19, 200, 400), None);
        log.state = ", 4 connections, limit sndbuf".into();
        let mut line = |seconds, done, total| {
            log.line(Duration::from_secs(seconds), Bytes::from_mib(done), Bytes::from_mib(total))
        };
        let expected = "copied 120 MiB of 400 MiB (30 %), 0 bit/s, 4 connections, limit sndbuf";
        assert_eq!(line(20, 120, 400).as_deref(), Some(expected), "nothing arrives");
    }
}
