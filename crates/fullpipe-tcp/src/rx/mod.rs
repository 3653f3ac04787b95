//! Receiving half: reassembly, segment size, ACK policy and advertised window.

pub(crate) mod ack;
pub(crate) mod rcv_mss;
pub(crate) mod reassembly;
pub(crate) mod window;
