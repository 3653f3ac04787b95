//! Progress bar of a campaign. It is shown only on a terminal, because redrawn lines are noise in a log.

use std::io::{self, IsTerminal};

use fullpipe::Observer;
use fullpipe::lab::campaign::Progress;
use indicatif::{ProgressBar, ProgressStyle};

/// Returns a progress bar for a campaign of `runs` runs.
pub(crate) fn bar(runs: usize) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {eta} left");
    ProgressBar::new(runs as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Calls `work`, and shows the progress of its simulated runs.
pub(crate) fn with_ladder<T>(work: impl FnOnce(&(dyn Fn(Progress) + Sync)) -> T) -> T {
    let bar = bar(0);
    let done = work(&|progress| {
        bar.set_length(progress.total as u64);
        bar.set_position(progress.done as u64);
    });
    bar.finish_and_clear();
    done
}

/// An observer that passes the progress of simulated runs to a function.
pub(crate) struct Simulated<'a>(pub(crate) &'a (dyn Fn(Progress) + Sync));

impl Observer for Simulated<'_> {
    fn progress(&self, progress: Progress) {
        (self.0)(progress);
    }
}

/// An observer that prints notes to standard error.
pub(crate) struct Notes;

impl Observer for Notes {
    fn note(&self, text: &str) {
        eprintln!("note: {text}");
    }
}
