//! Measurements of this host's own making: iperf3's tests, watched through the sockets that make them.

mod ending;
mod explained;
mod probe;
mod recorder;
mod samples;

pub use ending::{ending, numbered_event};
pub use explained::{Explained, Explanations, TestContext, explain, is_this_host};
pub use probe::{Control, Probe, server};
pub use recorder::{ROWS, Recorder};
pub use samples::Samples;
