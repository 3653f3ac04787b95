//! The sending half: what to send next and when. Nothing here decides how much the path bears.

pub(crate) mod build;
pub(crate) mod pacer;
pub(crate) mod queue;
