//! Closed-form models from the literature for the throughput of a sender, as a check on the simulation.

use fullpipe_lab::cost::{CUBIC_WINDOW, RENO_WINDOW, mean_window};
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Bytes, Duration, Rate};

/// Returns the mean window, in segments, of a loss-based sender with a segment loss rate of `loss`: the
/// window of CUBIC, which is never below that of Reno ([`mean_window`]).
pub fn loss_based_window(rtt: Duration, loss: f64) -> f64 {
    mean_window(Algorithm::Cubic, rtt, loss)
}

/// Returns the rate of a loss-based sender with the window [`loss_based_window`] and segments of size `mss`.
pub fn loss_based_rate(rtt: Duration, loss: f64, mss: Bytes) -> Rate {
    let bits = loss_based_window(rtt, loss) * mss.get() as f64 * 8.0;
    Rate::from_bps((bits / rtt.as_secs_f64()) as u64)
}

/// Returns the segment loss rate, 0 to 1, at which [`loss_based_rate`] equals `rate`.
pub fn loss_to_fill(rtt: Duration, rate: Rate, mss: Bytes) -> f64 {
    let window = rate.as_bps() as f64 / 8.0 * rtt.as_secs_f64() / mss.get() as f64;
    let cubic = rtt.as_secs_f64() * (CUBIC_WINDOW / window).powf(4.0 / 3.0);
    let reno = (RENO_WINDOW / window).powi(2);
    cubic.max(reno).min(1.0)
}
