//! Sending half: determines what to send next, and when. Congestion control, outside this module, determines
//! the amount that the path can carry. Only this module can create a [`Transmit`] that carries data.

pub(crate) mod build;
pub(crate) mod fresh;
pub(crate) mod pacer;
pub(crate) mod queue;
pub(crate) mod retransmit;
mod transmit;

pub(crate) use transmit::Departure;
pub use transmit::{Piece, Segments, Transmit};
