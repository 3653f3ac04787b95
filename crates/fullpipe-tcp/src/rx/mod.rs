//! The receiving half: reassembly, the ACK policy, and the window it offers.

pub(crate) mod ack;
pub(crate) mod reassembly;
pub(crate) mod window;
