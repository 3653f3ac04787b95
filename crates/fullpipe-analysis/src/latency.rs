//! RTT increase under load, with a grade.
//!
//! The load is the transfer itself. The increase includes queueing delay on the path and on the sending host,
//! and the response time of a slow receiver. The grades follow the DSLReports speed test.

use std::fmt;

use fullpipe_units::Duration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Round-trip times before and during a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "LatencyKeys", into = "LatencyKeys")]
pub struct Latency {
    /// RTT before data was sent.
    pub idle: Option<Duration>,
    /// Mean RTT while data was being sent.
    pub loaded: Option<Duration>,
    /// Maximum RTT while data was being sent.
    pub longest: Option<Duration>,
    /// Number of RTT samples while data was being sent.
    pub samples: u64,
}

/// Grade of the RTT increase under load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Grade {
    /// Below 5 ms.
    #[serde(rename = "A+")]
    APlus,
    /// Below 30 ms.
    A,
    /// Below 60 ms.
    B,
    /// Below 200 ms.
    C,
    /// Below 400 ms.
    D,
    /// 400 ms or more.
    F,
}

impl Grade {
    /// Returns the grade for an RTT increase of `added`.
    pub fn of(added: Duration) -> Self {
        const BELOW: [(u64, Grade); 5] =
            [(5, Grade::APlus), (30, Grade::A), (60, Grade::B), (200, Grade::C), (400, Grade::D)];
        let grade = BELOW.iter().find(|(millis, _)| added < Duration::from_millis(*millis));
        grade.map_or(Self::F, |(_, grade)| *grade)
    }
}

impl fmt::Display for Grade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::APlus => "A+",
            Self::A => "A",
            Self::B => "B",
            Self::C => "C",
            Self::D => "D",
            Self::F => "F",
        })
    }
}

impl Latency {
    /// Returns the mean RTT increase under load; `None` if either RTT is unknown.
    pub fn added(&self) -> Option<Duration> {
        Some(self.loaded?.saturating_sub(self.idle?))
    }

    /// Returns the grade of the RTT increase.
    pub fn grade(&self) -> Option<Grade> {
        self.added().map(Grade::of)
    }
}

impl fmt::Display for Latency {
    /// Writes a sentence without a full stop. It also names the RTTs that were not measured.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.idle, self.loaded, self.longest, self.added()) {
            (Some(idle), Some(loaded), Some(longest), Some(added)) => write!(
                f,
                "idle {idle} (from the handshakes), loaded {loaded} on average and {longest} at most (the \
                 sender's smoothed RTT, {} samples): {added} added, grade {}",
                self.samples,
                Grade::of(added)
            ),
            (Some(idle), ..) => write!(
                f,
                "idle {idle} (from the handshakes), loaded not measured, because only a sending TCP socket \
                 measures round trips"
            ),
            _ => f.write_str("not measured"),
        }
    }
}

/// JSON form of a [`Latency`].
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Latency")]
struct LatencyKeys {
    /// RTT before data was sent, in milliseconds.
    idle_ms: Option<f64>,
    /// Mean RTT while data was being sent, in milliseconds.
    loaded_ms: Option<f64>,
    /// Maximum RTT while data was being sent, in milliseconds.
    longest_ms: Option<f64>,
    /// Mean RTT increase under load, in milliseconds.
    added_ms: Option<f64>,
    /// Number of RTT samples while data was being sent.
    samples: u64,
    /// Grade of the RTT increase under load.
    grade: Option<Grade>,
}

impl From<Latency> for LatencyKeys {
    fn from(latency: Latency) -> Self {
        let millis = |span: Option<Duration>| span.map(Duration::as_millis_f64);
        Self {
            idle_ms: millis(latency.idle),
            loaded_ms: millis(latency.loaded),
            longest_ms: millis(latency.longest),
            added_ms: millis(latency.added()),
            samples: latency.samples,
            grade: latency.grade(),
        }
    }
}

impl From<LatencyKeys> for Latency {
    fn from(keys: LatencyKeys) -> Self {
        let span = |millis: Option<f64>| millis.map(|millis| Duration::from_secs_f64(millis / 1e3));
        Self {
            idle: span(keys.idle_ms),
            loaded: span(keys.loaded_ms),
            longest: span(keys.longest_ms),
            samples: keys.samples,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The grades of DSLReports: A+ below 5 ms, A below 30 ms, B below 60 ms, C below 200 ms, D below 400 ms,
    /// then F.
    #[test]
    fn the_grade_is_that_of_what_the_load_adds() {
        let marks = [(0, "A+"), (4, "A+"), (5, "A"), (29, "A"), (30, "B"), (60, "C"), (199, "C"), (200, "D")];
        for (added, grade) in marks.into_iter().chain([(399, "D"), (400, "F"), (5_000, "F")]) {
            let idle = Duration::from_millis(210);
            let loaded = idle + Duration::from_millis(added);
            let latency =
                Latency { idle: Some(idle), loaded: Some(loaded), longest: Some(loaded), samples: 9 };
            assert_eq!(latency.grade().map(|g| g.to_string()).as_deref(), Some(grade), "{added} ms");
        }
    }

    #[test]
    fn what_was_not_measured_has_no_grade() {
        let idle = Latency { idle: Some(Duration::from_millis(3)), ..Latency::default() };
        assert_eq!((idle.added(), idle.grade()), (None, None));
        assert!(idle.to_string().contains("loaded not measured"), "{idle}");
        // A queue that was full only before the test does not count as a negative increase.
        let less = Latency { loaded: Some(Duration::from_millis(1)), ..idle };
        assert_eq!(less.grade(), Some(Grade::APlus));
    }
}
