//! Estimates that the sender derives from ACKs: RTT and delivery rate.

mod ack_delay;
mod histogram;
mod rate;
mod rtt;

pub use histogram::RttHistogram;
pub use rate::{DeliveryRate, RateSample, RateSnapshot};
pub use rtt::{RTO_INITIAL, RTO_MAX, RttEstimator};
