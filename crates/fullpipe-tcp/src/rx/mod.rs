//! Receiving half: reassembly, ACK policy and advertised window.

pub(crate) mod ack;
pub(crate) mod reassembly;
pub(crate) mod window;
