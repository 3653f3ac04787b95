//! One step of the ladder.

use fullpipe_lab::scenario::Scenario;
use fullpipe_units::Rate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::advice::Command;
use crate::classify::Limit;

/// Where a rung's rate comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The log.
    Measured,
    /// A simulated run.
    Simulated,
    /// The user's own figure: the line.
    Given,
}

/// One step from the present rate to the line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rung {
    /// What holds the transfer at this rate.
    pub limit: Limit,
    /// The same as a noun for people: `a 3 MiB receive window`.
    pub what: String,
    /// The mean over the log's duration: key `bps`.
    #[serde(rename = "bps", with = "crate::json::Bps")]
    pub rate: Rate,
    /// The last half of a longer run: key `steady_bps`.
    #[serde(rename = "steady_bps", with = "crate::json::OptionalBps")]
    pub steady: Option<Rate>,
    /// The rate at the upper end of the loss interval: key `low_bps`.
    #[serde(rename = "low_bps", with = "crate::json::OptionalBps")]
    pub low: Option<Rate>,
    /// The rate at the lower end of the loss interval: key `high_bps`.
    #[serde(rename = "high_bps", with = "crate::json::OptionalBps")]
    pub high: Option<Rate>,
    /// Where the rates come from.
    pub source: Source,
    /// What was changed, beyond the rung before, to get here; `None` on the first rung and the line's.
    pub remedy: Option<String>,
    /// How to change it, narrowest scope first.
    pub commands: Vec<Command>,
    /// One of the runs that this rung was simulated with, to look at it again; on the measured rung that of
    /// the fitted path as it is. No part of the JSON.
    #[serde(skip)]
    pub scenario: Option<Scenario>,
}

impl Rung {
    /// The rate that lasts: the steady one if there is one.
    pub fn lasting(&self) -> Rate {
        self.steady.unwrap_or(self.rate)
    }
}
