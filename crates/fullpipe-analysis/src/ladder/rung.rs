//! Steps of the ladder.

use std::fmt;

use fullpipe_lab::scenario::Scenario;
use fullpipe_units::{Duration, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::advice::Command;
use crate::classify::Limit;

/// Source of a rung's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The log.
    Measured,
    /// A simulated run.
    Simulated,
    /// The link rate or rate cap, as given or as far as it is known.
    Given,
}

/// Round-trip times at the rate of a rung.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RungRtt {
    /// RTT of the idle path, in milliseconds.
    pub idle_ms: f64,
    /// Median RTT under load, in milliseconds; null if it was not measured.
    pub p50_ms: Option<f64>,
    /// 95th percentile of the RTT under load, in milliseconds; null if it was not measured.
    pub p95_ms: Option<f64>,
}

impl RungRtt {
    pub(super) fn new(idle: Duration, p50: Option<Duration>, p95: Option<Duration>) -> Self {
        let millis = |time: Option<Duration>| time.map(Duration::as_millis_f64);
        Self { idle_ms: idle.as_millis_f64(), p50_ms: millis(p50), p95_ms: millis(p95) }
    }
}

impl fmt::Display for RungRtt {
    /// Writes the times under load, then that of the idle path; only the latter if nothing else is known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |ms: f64| Duration::from_secs_f64(ms / 1e3);
        match (self.p50_ms, self.p95_ms) {
            (Some(p50), Some(p95)) => {
                write!(
                    f,
                    "{} (p50) and {} (p95) under load, {} idle",
                    time(p50),
                    time(p95),
                    time(self.idle_ms)
                )
            }
            _ => write!(f, "{} idle", time(self.idle_ms)),
        }
    }
}

/// One step of the ladder from the present rate to the link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rung {
    /// Limit of the transfer at this rate.
    pub limit: Limit,
    /// The limit as a noun phrase, for example `a 3 MiB receive window`.
    pub what: String,
    /// Mean rate of the log, or of the first half of a simulated run: key `bps`.
    #[serde(rename = "bps", with = "crate::json::Bps")]
    pub rate: Rate,
    /// Steady-state rate, after the ramp of the log or over the second half of a simulated run: key
    /// `steady_bps`.
    #[serde(rename = "steady_bps", with = "crate::json::OptionalBps")]
    pub steady: Option<Rate>,
    /// Lower bound of the steady-state rate, from the upper bound of the loss interval or from the worst of
    /// several seeds: key `low_bps`.
    #[serde(rename = "low_bps", with = "crate::json::OptionalBps")]
    pub low: Option<Rate>,
    /// Upper bound of the steady-state rate, from the lower bound of the loss interval or from the best of
    /// several seeds: key `high_bps`.
    #[serde(rename = "high_bps", with = "crate::json::OptionalBps")]
    pub high: Option<Rate>,
    /// Source of the rates.
    pub source: Source,
    /// Whether the input does not decide the present limit: `what` then lists the candidates. Only for the
    /// measured rung; not part of the JSON, where the diagnosis has `undecided`.
    #[serde(skip)]
    pub undecided: bool,
    /// Present limit on which this rung depends, if the input does not decide the present limit.
    #[serde(default)]
    pub only_if: Option<Limit>,
    /// Round-trip times on this rung; null if they are unknown.
    #[serde(default)]
    pub rtt: Option<RungRtt>,
    /// Change that leads from the previous rung to this one; `None` for the first rung and the link.
    pub remedy: Option<String>,
    /// Commands that apply the change, narrowest scope first.
    pub commands: Vec<Command>,
    /// One of the simulated runs of this rung, for closer inspection. The measured rung has a run of the
    /// fitted path in its present state. Not part of the JSON.
    #[serde(skip)]
    pub scenario: Option<Scenario>,
}

impl Rung {
    /// Returns the steady-state rate, or the mean rate if there is none.
    pub fn lasting(&self) -> Rate {
        self.steady.unwrap_or(self.rate)
    }
}
