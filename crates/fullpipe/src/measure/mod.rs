//! Measurements by this host: iperf3 tests that also sample their sockets.

mod ending;
mod explained;
mod probe;
mod recorder;
mod samples;

pub use ending::{ending, numbered_event};
pub use explained::{ExplainResult, Explanations, TestContext, explain, is_this_host};
pub use probe::{Control, Probe, server};
pub use recorder::{ROWS, Recorder};
pub use samples::Samples;
