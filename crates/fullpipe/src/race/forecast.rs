//! Announces a simulated race: its size, and the time that it will take.

use std::thread;

use fullpipe_lab::cost::RunCost;

use crate::Observer;
use crate::forecast::speed;

/// Reports the number of cells, the number of `runs` and the estimated time to `observer`. The speed of this machine
/// is measured with a short run, which takes about 10 ms.
pub(super) fn announce(observer: &impl Observer, cells: usize, runs: &str, cost: RunCost) {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let wall_s = cost.packets() / speed() / threads as f64;
    let digits = usize::from(wall_s < 9.95);
    let cores = if threads == 1 { "core" } else { "cores" };
    let wall_s = wall_s.max(0.1);
    observer.status(&format!("{cells} cells, {runs}; takes about {wall_s:.digits$} s on {threads} {cores}"));
}
