//! A limit, how sure it is, and what speaks for it: what the classifier and the explainer answer with.

use fullpipe_units::Rate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What holds a transfer back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The sending application offers no more.
    App,
    /// The receiving application reads no faster.
    ReceiverApp,
    /// The receiver's window.
    Rwnd,
    /// The send buffer, full of data that is not acknowledged yet.
    Sndbuf,
    /// The congestion window, outside slow start.
    Cwnd,
    /// The congestion window while it still doubles each round trip.
    SlowStart,
    /// The sender's pacing.
    Pacing,
    /// Whatever lets one flow or one host pass no faster although the line could: a policer or shaper,
    /// also the host's own ceiling (processor, virtual switch). A log cannot tell these apart.
    Policer,
    /// The line itself.
    Link,
}

impl Limit {
    /// All there are.
    pub const ALL: [Self; 9] = [
        Self::App,
        Self::ReceiverApp,
        Self::Rwnd,
        Self::Sndbuf,
        Self::Cwnd,
        Self::SlowStart,
        Self::Pacing,
        Self::Policer,
        Self::Link,
    ];

    /// The name in reports and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::App => "app",
            Self::ReceiverApp => "receiver_app",
            Self::Rwnd => "rwnd",
            Self::Sndbuf => "sndbuf",
            Self::Cwnd => "cwnd",
            Self::SlowStart => "slow_start",
            Self::Pacing => "pacing",
            Self::Policer => "policer",
            Self::Link => "link",
        }
    }
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// How sure a finding is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Fits, but so does something else.
    #[default]
    Low,
    /// The best explanation, with a known gap.
    High,
    /// Follows from the numbers alone.
    Certain,
}

impl Confidence {
    /// How reports for people say it.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Certain => "certain",
            Self::High => "high confidence",
            Self::Low => "low confidence",
        }
    }
}

/// One limit, and why it is thought to be it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// The limit.
    pub limit: Limit,
    /// A clause for people: `loss holds cwnd down`.
    #[serde(default)]
    pub what: String,
    /// Share of the test's time that this limit held, 0 to 1. Alternatives share the same time.
    #[serde(default)]
    pub share: f64,
    /// How sure it is.
    #[serde(default)]
    pub confidence: Confidence,
    /// The rate that this limit allows, where it can be told: key `ceiling_bps`.
    #[serde(rename = "ceiling_bps", default, with = "crate::json::OptionalBps")]
    pub ceiling: Option<Rate>,
    /// What speaks for it, one sentence each.
    #[serde(default)]
    pub evidence: Vec<String>,
    /// What the input leaves open, and why.
    #[serde(default)]
    pub could_not_tell: Vec<String>,
    /// The measurement that would settle it.
    pub next_test: Option<String>,
}
