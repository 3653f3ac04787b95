//! One thing to change: why, for what gain, at what cost, and the ways to do it.

use schemars::JsonSchema;
use serde::Serialize;

use crate::remedy::Host;
pub use crate::remedy::{Gain, Way, What};

/// One thing to change.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Item {
    /// What.
    pub what: What,
    /// The host that it belongs to.
    pub host: Host,
    /// Whether that is the host of the plan.
    pub here: bool,
    /// Whether it is for some applications only: applied when asked for by name.
    pub optional: bool,
    /// The present value, where it is known.
    pub present: Option<String>,
    /// The new value.
    pub new: String,
    /// Why.
    pub why: String,
    /// What it brings.
    pub gain: Gain,
    /// What it costs.
    pub cost: String,
    /// How to do it, narrowest scope first.
    pub ways: Vec<Way>,
}

impl Item {
    /// The way that is applied, if one is.
    pub fn applied(&self) -> Option<&Way> {
        self.ways.iter().find(|way| way.applied)
    }
}
