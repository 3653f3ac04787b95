//! The remedy for one host: what to change on it, what that brings, and how to take it back.
//!
//! ```text
//!   facts of the host ──┐
//!   a path, or a report ┴─► aim ─► plan ─► items: ways to do it, narrowest first; of which some can be applied
//!                                   │
//!                                 ladder (simulated): what each item brings
//! ```
//!
//! All of it is a pure function of values: reading a host and changing it is fullpipe-linux's part. What changes
//! nothing is not planned, and is said with its reason ([`Left`]); nothing is ever lowered.

mod aim;
mod apps;
mod drift;
mod item;
mod items;
mod plan;
mod show;
mod verdict;

pub use aim::{Aim, FromReport, Peer, Role};
pub use drift::{Override, overrides};
pub use item::{Gain, Item, Way, What};
pub use plan::{Left, Plan, SCHEMA, plan};
pub use show::{Limits, SHOW_SCHEMA, Show, show};
pub use verdict::{Verdict, judge};

pub use crate::remedy::{KEYS, LocalHost};
