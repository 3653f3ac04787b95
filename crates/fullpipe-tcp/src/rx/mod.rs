//! The receiving half: reassembly, the ACK policy, and the advertised window.

pub(crate) mod ack;
pub(crate) mod reassembly;
pub(crate) mod window;
