//! Items of a plan: one change each, with its reason, gain and cost, and the ways to apply it.

use schemars::JsonSchema;
use serde::Serialize;

use crate::remedy::Host;
pub use crate::remedy::{Gain, Way, What};

/// One change that a plan proposes.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Item {
    /// Name of the setting that changes.
    pub what: What,
    /// Endpoint of the transfer at which the change is made.
    pub host: Host,
    /// Whether the change is made on the host for which the plan is made.
    pub here: bool,
    /// Whether the item helps only some applications and is applied only on request.
    pub optional: bool,
    /// Present value, if known.
    pub present: Option<String>,
    /// New value.
    pub new: String,
    /// Reason for the change.
    pub why: String,
    /// Gain of the change.
    pub gain: Gain,
    /// Cost of the change.
    pub cost: String,
    /// Ways to make the change, narrowest scope first.
    pub ways: Vec<Way>,
}

impl Item {
    /// Returns the way that `--apply` uses, if there is one.
    pub fn applied(&self) -> Option<&Way> {
        self.ways.iter().find(|way| way.applied)
    }
}
