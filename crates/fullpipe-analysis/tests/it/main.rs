//! Tests of the public interface, with real inputs and simulated situations.

mod case;
mod cross_border;
mod ends;
mod fit;
mod floors;
#[cfg(feature = "html")]
mod html;
mod incomplete;
mod inputs;
mod ladder;
mod loss;
mod packets;
mod simulated_log;
mod situation;
mod situations;
mod tapped;
mod thresholds;
mod told;
mod tune;
mod udp;
mod undecided;
