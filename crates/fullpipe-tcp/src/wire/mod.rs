//! What segments say: sequence numbers and headers, as values.

mod segment;
mod seq;

pub use segment::{Flags, SackBlocks, Segment, SynOptions, Timestamps};
pub use seq::SeqNum;
