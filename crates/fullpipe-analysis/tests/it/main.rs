//! Tests of the public interface, with real inputs and simulated situations.

mod case;
mod copies;
mod cross_border;
mod ends;
mod fit;
mod floors;
#[cfg(feature = "html")]
mod html;
mod incomplete;
mod inputs;
mod ladder;
mod leaps;
mod loss;
mod packets;
mod parallel;
mod simulated_log;
mod situation;
mod situations;
mod tapped;
mod thresholds;
mod told;
mod tune;
mod udp;
mod undecided;
