//! The rate that an application offers, and how its queue grows if the path carries less.
//!
//! ```text
//!   backlog grows by      offered - carried
//!   memory is full after  memory / (offered - carried)
//! ```

use fullpipe_units::{Bytes, Duration, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use fullpipe_measurement::input::InputError;

/// Example size of an application's queue, if the available memory is unknown.
const EXAMPLE: Bytes = Bytes::from_mib(1024);
const MINUTE: Duration = Duration::from_secs(60);

/// Rate that an application offers to the path, and the memory for its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Rate of the payload that the application produces.
    pub rate: Rate,
    /// Memory available to the application's queue.
    pub memory: Memory,
}

/// Memory available to an application's queue, with its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Size given by the user.
    Given(Bytes),
    /// Available memory of the sending host (`MemAvailable`), assuming that nothing else needs it.
    Available(Bytes),
    /// Unknown size; 1 GiB serves as an example.
    Unknown,
}

impl Demand {
    /// Creates a demand with the given rate and memory.
    ///
    /// # Errors
    /// Returns an error if the rate or the memory is zero.
    pub fn new(rate: Rate, memory: Memory) -> Result<Self, InputError> {
        if rate.is_zero() {
            return Err(InputError::new("--offered is zero", "write a rate such as 150mbit"));
        }
        if memory.bytes().is_zero() {
            return Err(InputError::new("--memory is zero", "write a size such as 2GiB"));
        }
        Ok(Self { rate, memory })
    }
}

impl Memory {
    /// Returns the memory size on which calculations are based.
    pub const fn bytes(self) -> Bytes {
        match self {
            Self::Given(bytes) | Self::Available(bytes) => bytes,
            Self::Unknown => EXAMPLE,
        }
    }

    /// Returns the source of the memory size in the form of the JSON document.
    pub const fn source(self) -> MemorySource {
        match self {
            Self::Given(_) => MemorySource::Given,
            Self::Available(_) => MemorySource::Available,
            Self::Unknown => MemorySource::Example,
        }
    }
}

/// Source of the memory size for an application's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemorySource {
    /// Given by the user.
    Given,
    /// Available memory of the sending host (`MemAvailable`).
    Available,
    /// Example size, because the real size is unknown.
    Example,
}

/// Growth of the application's queue at one rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Backlog {
    /// Rate that the path carries: key `carried_bps`.
    #[serde(rename = "carried_bps", with = "fullpipe_measurement::json::Bps")]
    pub carried: Rate,
    /// Comparison of the offered rate with the carried rate.
    pub carries: Carries,
    /// Growth of the queue in bytes per second; 0 if the path carries the offered rate.
    pub growth_bytes_per_s: u64,
    /// Growth of the queue in bytes per minute.
    pub growth_bytes_per_minute: u64,
    /// Time until the memory is full, in seconds; null if the queue does not grow.
    pub memory_full_after_s: Option<f64>,
}

impl Backlog {
    /// Returns the backlog of a transfer that was measured at the rate `carried`.
    pub fn measured(demand: Demand, carried: Rate) -> Self {
        let carries = if demand.rate <= carried { Carries::All } else { Carries::Less };
        Self::grown(demand, carried, carries)
    }

    /// Returns the backlog at the rate `carried`. The queue grows only for [`Carries::Less`].
    pub(crate) fn grown(demand: Demand, carried: Rate, carries: Carries) -> Self {
        let short = Rate::from_bps(demand.rate.as_bps().saturating_sub(carried.as_bps()));
        let grows = carries == Carries::Less;
        let growth = if grows { short } else { Rate::ZERO };
        Self {
            carried,
            carries,
            growth_bytes_per_s: (growth * Duration::from_secs(1)).get(),
            growth_bytes_per_minute: (growth * MINUTE).get(),
            memory_full_after_s: grows
                .then(|| demand.memory.bytes().get() as f64 * 8.0 / growth.as_bps() as f64),
        }
    }
}

/// Comparison of the offered rate with the carried rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Carries {
    /// The path carries the offered rate, even at the low end of the carried rate's range.
    All,
    /// The path carries the offered rate on average; at the low end of the range the queue grows.
    OnAverage,
    /// The path carries less than the application offers.
    Less,
    /// The link rate is unknown, and the rate proven so far is less than the offered rate.
    Unknown,
}
