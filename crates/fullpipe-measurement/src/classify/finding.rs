//! Findings of the classifier and the explainer: a limit with its confidence and evidence.

use fullpipe_units::Rate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Cause that keeps a transfer from being faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The sending application offers no more data.
    App,
    /// The receiving application reads too slowly.
    ReceiverApp,
    /// The receive window.
    Rwnd,
    /// The send buffer, which is full of unacknowledged data.
    Sndbuf,
    /// The congestion window, outside slow start.
    Cwnd,
    /// The congestion window in slow start, while it doubles each round trip.
    SlowStart,
    /// The sender's pacing rate.
    Pacing,
    /// A rate cap below the link rate, on one flow or one host, by an unknown mechanism: a policer, a shaper,
    /// or a limit of the host itself, for example in a virtual switch.
    Cap,
    /// A policer: a token bucket that drops the packets that exceed its rate.
    Policer,
    /// The processor of one of the hosts.
    Cpu,
    /// The link itself.
    Link,
    /// Unknown limit at the sender or on the path: only the receiver was observed.
    Unknown,
}

impl Limit {
    /// All limits that an input can show: every limit except [`Limit::Unknown`].
    pub const ALL: [Self; 11] = [
        Self::App,
        Self::ReceiverApp,
        Self::Rwnd,
        Self::Sndbuf,
        Self::Cwnd,
        Self::SlowStart,
        Self::Pacing,
        Self::Cap,
        Self::Policer,
        Self::Cpu,
        Self::Link,
    ];

    /// Returns the name used in reports and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::App => "app",
            Self::ReceiverApp => "receiver_app",
            Self::Rwnd => "rwnd",
            Self::Sndbuf => "sndbuf",
            Self::Cwnd => "cwnd",
            Self::SlowStart => "slow_start",
            Self::Pacing => "pacing",
            Self::Cap => "cap",
            Self::Policer => "policer",
            Self::Cpu => "cpu",
            Self::Link => "link",
            Self::Unknown => "unknown",
        }
    }
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Confidence in a finding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// The finding fits the input, but another finding fits it too.
    #[default]
    Low,
    /// The finding is the best explanation, but the evidence has a known gap.
    High,
    /// The finding follows from the numbers alone.
    Certain,
}

impl Confidence {
    /// Returns the wording used in text reports.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Certain => "certain",
            Self::High => "high confidence",
            Self::Low => "low confidence",
        }
    }
}

/// One limit with its confidence and evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// The limit.
    pub limit: Limit,
    /// Short description of the limit in plain words, such as `loss holds cwnd down`.
    #[serde(default)]
    pub what: String,
    /// Share of the test for which this limit applied, 0 to 1. Alternative findings cover the same time.
    #[serde(default)]
    pub share: f64,
    /// Confidence in the limit.
    #[serde(default)]
    pub confidence: Confidence,
    /// Rate that this limit allows, if it can be determined: key `ceiling_bps`.
    #[serde(rename = "ceiling_bps", default, with = "crate::json::OptionalBps")]
    pub ceiling: Option<Rate>,
    /// Evidence for the limit, one sentence each.
    #[serde(default)]
    pub evidence: Vec<String>,
    /// Questions that the input leaves open, each with a reason.
    #[serde(default)]
    pub could_not_tell: Vec<String>,
    /// Measurement that would answer the open questions.
    pub next_test: Option<String>,
}
