//! Tuning plan for one host: the changes, their gain, and how to undo them.
//!
//! ```text
//!   facts of the host ───┐
//!   inputs: path, report ┴─► plan ─► items: the ways to do each, narrowest scope first; some can be applied
//!                             │
//!                           ladder (simulated): the gain of each item
//! ```
//!
//! A plan is a pure function of values; fullpipe-linux reads and changes the host. A change without effect is
//! not planned, but listed with a reason ([`SkippedItem`]). Values are never lowered.

mod apps;
mod drift;
mod from_report;
mod inputs;
mod item;
mod items;
mod plan;
mod show;
mod verdict;

pub use drift::{Override, overrides};
pub use from_report::FromReport;
pub use inputs::{Peer, PlanInputs, Role};
pub use item::{Gain, Item, Way, What};
pub use plan::{Plan, SCHEMA, SkippedItem, plan};
pub use show::{Limits, SHOW_SCHEMA, Show, show};
pub use verdict::{Verdict, judge};

pub use crate::remedy::{KEYS, LocalHost};
