//! Steps of the ladder.

use std::fmt;

use fullpipe_lab::scenario::Scenario;
use fullpipe_measurement::classify::Limit;
use fullpipe_units::{Duration, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::advice::{self, AppliedRemedy, Command};

/// Source of a rung's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The log.
    Measured,
    /// Simulated runs.
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
    /// Writes the RTTs under load and then the RTT of the idle path, or only the latter if nothing else is known.
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

/// Remedies that lead to a rung, in catalogue order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "RemedyKeys", into = "RemedyKeys")]
pub struct RungRemedies(pub Vec<AppliedRemedy>);

/// JSON keys of the remedies of a rung.
#[derive(Serialize, Deserialize, JsonSchema)]
struct RemedyKeys {
    /// Change that leads from the previous rung to this one; `None` for the first rung and the link.
    remedy: Option<String>,
    /// Commands that apply the change, narrowest scope first.
    commands: Vec<Command>,
    /// Remedies of this change, with the values that they set; empty for the first rung and the link.
    #[serde(default)]
    remedies: Vec<AppliedRemedy>,
}

impl From<RungRemedies> for RemedyKeys {
    fn from(remedies: RungRemedies) -> Self {
        Self {
            remedy: remedies.title(),
            commands: remedies.commands().cloned().collect(),
            remedies: remedies.0,
        }
    }
}

impl From<RemedyKeys> for RungRemedies {
    fn from(keys: RemedyKeys) -> Self {
        let RemedyKeys { remedy, commands, remedies } = keys;
        match remedy {
            // A document of an older version has only the titles and the commands.
            Some(title) if remedies.is_empty() => {
                Self(vec![AppliedRemedy { title, commands, ..AppliedRemedy::default() }])
            }
            _ => Self(remedies),
        }
    }
}

impl RungRemedies {
    /// Returns the joined titles of the remedies; `None` if there is no remedy.
    pub fn title(&self) -> Option<String> {
        let titles: Vec<&str> = self.0.iter().map(|remedy| remedy.title.as_str()).collect();
        (!titles.is_empty()).then(|| advice::joined(&titles))
    }

    /// Returns the commands of all remedies.
    pub fn commands(&self) -> impl Iterator<Item = &Command> {
        self.0.iter().flat_map(|remedy| &remedy.commands)
    }

    /// Returns the remedies without their commands.
    pub(crate) fn without_commands(self) -> Self {
        let without = |remedy: AppliedRemedy| AppliedRemedy { commands: Vec::new(), ..remedy };
        Self(self.0.into_iter().map(without).collect())
    }
}

/// One run of a rung on a Linux kernel in virtual time, and the same run in the simulator. Both runs have the same path
/// and the same loss pattern.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RungProof {
    /// Release and timer frequency of the kernel, such as `Linux 6.1.176, HZ=100`.
    pub kernel: String,
    /// Steady-state rate on the kernel: key `bps`.
    #[serde(rename = "bps", with = "fullpipe_measurement::json::Bps")]
    pub steady: Rate,
    /// Steady-state rate in the simulator, with the receive-window rule of the kernel: key `simulated_bps`.
    #[serde(rename = "simulated_bps", with = "fullpipe_measurement::json::Bps")]
    pub simulated: Rate,
}

/// One step of the ladder from the present rate to the link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rung {
    /// Limit of the transfer at this rate.
    pub limit: Limit,
    /// The limit as a noun phrase, for example `a 3 MiB receive window`.
    pub what: String,
    /// Mean rate of the log, or of the first half of a simulated run: key `bps`.
    #[serde(rename = "bps", with = "fullpipe_measurement::json::Bps")]
    pub rate: Rate,
    /// Steady-state rate, after the ramp of the log or over the second half of a simulated run: key
    /// `steady_bps`.
    #[serde(rename = "steady_bps", with = "fullpipe_measurement::json::OptionalBps")]
    pub steady: Option<Rate>,
    /// Lower bound of the steady-state rate, from the upper bound of the loss interval or from the worst of
    /// several seeds: key `low_bps`.
    #[serde(rename = "low_bps", with = "fullpipe_measurement::json::OptionalBps")]
    pub low: Option<Rate>,
    /// Upper bound of the steady-state rate, from the lower bound of the loss interval or from the best of
    /// several seeds: key `high_bps`.
    #[serde(rename = "high_bps", with = "fullpipe_measurement::json::OptionalBps")]
    pub high: Option<Rate>,
    /// Source of the rates.
    pub source: Source,
    /// Whether the input leaves the present limit open; if so, `what` lists the candidates. Can be true only for the
    /// measured rung. Not part of the JSON; there, the diagnosis has the key `undecided`.
    #[serde(skip)]
    pub undecided: bool,
    /// Present limit on which this rung depends, if the input leaves the present limit open.
    #[serde(default)]
    pub only_if: Option<Limit>,
    /// Round-trip times on this rung; null if they are unknown.
    #[serde(default)]
    pub rtt: Option<RungRtt>,
    /// Remedies that lead from the previous rung to this one; none for the first rung and the link. JSON has
    /// them under the key `remedies`, and their titles and commands under `remedy` and `commands`.
    #[serde(flatten)]
    pub remedies: RungRemedies,
    /// One run of this rung on a Linux kernel; absent unless requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<RungProof>,
    /// One of the simulated runs of this rung, for closer inspection. The measured rung has a run of the present state
    /// on the fitted path. Not part of the JSON.
    #[serde(skip)]
    pub scenario: Option<Scenario>,
}

impl Rung {
    /// Creates a rung with a limit, a mean rate and the source of that rate, and without other
    /// figures.
    pub fn new(limit: Limit, what: impl Into<String>, rate: Rate, source: Source) -> Self {
        Self {
            limit,
            what: what.into(),
            rate,
            steady: None,
            low: None,
            high: None,
            source,
            undecided: false,
            only_if: None,
            rtt: None,
            remedies: RungRemedies::default(),
            proof: None,
            scenario: None,
        }
    }

    /// Returns the steady-state rate, or the mean rate if there is none.
    pub fn lasting(&self) -> Rate {
        self.steady.unwrap_or(self.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::{Host, Scope};

    fn remedy(name: &str, title: &str) -> AppliedRemedy {
        let command = Command {
            run: format!("set {name}"),
            host: Host::Sender,
            scope: Scope::System,
            undo: format!("unset {name}"),
            requires: None,
            sets: None,
        };
        AppliedRemedy {
            name: name.into(),
            title: title.into(),
            commands: vec![command],
            ..AppliedRemedy::default()
        }
    }

    /// The JSON keeps the keys of older documents, and a round trip through JSON leaves the remedies unchanged.
    #[test]
    fn remedies_keep_their_keys_and_parse() {
        let both =
            RungRemedies(vec![remedy("bbr", "BBR on the sender"), remedy("buffers", "larger buffers")]);
        let json = serde_json::to_value(&both).expect("JSON");
        assert_eq!(json["remedy"], "BBR on the sender and larger buffers");
        assert_eq!(json["commands"][1]["run"], "set buffers");
        assert_eq!(
            (&json["remedies"][0]["name"], &json["remedies"][1]["title"]),
            (&"bbr".into(), &"larger buffers".into())
        );
        assert_eq!(serde_json::from_value::<RungRemedies>(json).expect("remedies"), both);
        let none = serde_json::to_value(RungRemedies::default()).expect("JSON");
        assert!(none["remedy"].is_null() && none["commands"].as_array().is_some_and(Vec::is_empty), "{none}");
        assert_eq!(serde_json::from_value::<RungRemedies>(none).expect("none"), RungRemedies::default());
        // An older document.
        let mut older = serde_json::to_value(&both).expect("JSON");
        older.as_object_mut().expect("an object").remove("remedies");
        let older: RungRemedies = serde_json::from_value(older).expect("remedies");
        assert_eq!((older.title(), older.commands().count()), (both.title(), 2));
    }
}
