//! Announces a simulated race: its size, and the time that it will take.

use std::thread;

use fullpipe_lab::cost::RunCost;

use crate::Observer;
use crate::forecast::speed;

/// Size of a race: its cells, and the pairs or seeds of all cells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) cells: usize,
    pub(super) runs: usize,
    /// What `runs` counts, in the singular.
    pub(super) unit: &'static str,
    /// Number of runs whose results are stored and are not made again.
    pub(super) stored: usize,
}

/// Reports the size of a race and the estimated time for the `missing` work to `observer`. The speed of this machine
/// is measured with a short run, which takes about 10 ms.
pub(super) fn announce(observer: &impl Observer, size: Size, missing: RunCost) {
    let Size { cells, runs, unit, stored } = size;
    let race = format!("{}, {}", counted(cells, "cell"), counted(runs, unit));
    if stored == runs {
        observer.status(&format!("{race}, all of which are stored"));
        return;
    }
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let wall_s = missing.packets() / speed() / threads as f64;
    let digits = usize::from(wall_s < 9.95);
    let wall_s = wall_s.max(0.1);
    let kept = match stored {
        0 => String::new(),
        1 => ", 1 of which is stored".into(),
        _ => format!(", {stored} of which are stored"),
    };
    let cores = counted(threads, "core");
    observer.status(&format!("{race}{kept}; takes about {wall_s:.digits$} s on {cores}"));
}

/// Formats a number with its noun, in the singular or the plural.
fn counted(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}
