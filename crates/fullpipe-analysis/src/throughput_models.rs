//! Closed forms: what the literature says a sender reaches. Beside a simulation they are a check on it.

use fullpipe_units::{Bytes, Duration, Rate};

/// Mean window in segments of a loss-based sender that loses `loss` of its segments: CUBIC's (RFC 9438
/// section 5.1, `1.054 (RTT/p)^0.75`), or Reno's (`1.22 / sqrt(p)`) where that is more.
pub fn loss_based_window(rtt: Duration, loss: f64) -> f64 {
    (1.054 * (rtt.as_secs_f64() / loss).powf(0.75)).max(1.22 / loss.sqrt())
}

/// The rate that this window carries with segments of `mss`.
pub fn loss_based_rate(rtt: Duration, loss: f64, mss: Bytes) -> Rate {
    let bits = loss_based_window(rtt, loss) * mss.get() as f64 * 8.0;
    Rate::from_bps((bits / rtt.as_secs_f64()) as u64)
}

/// The loss at which it carries `rate`: 0 to 1.
pub fn loss_to_fill(rtt: Duration, rate: Rate, mss: Bytes) -> f64 {
    let window = rate.as_bps() as f64 / 8.0 * rtt.as_secs_f64() / mss.get() as f64;
    let cubic = rtt.as_secs_f64() * (1.054 / window).powf(4.0 / 3.0);
    let reno = (1.22 / window).powi(2);
    cubic.max(reno).min(1.0)
}
