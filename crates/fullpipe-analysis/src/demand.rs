//! What an application wants of a path, and what becomes of its queue where less is carried.
//!
//! ```text
//!   backlog grows by      offered - carried
//!   memory is full after  memory / (offered - carried)
//! ```

use fullpipe_units::{Bytes, Duration, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::input::InputError;

/// The queue of an application for which no memory is known is measured by this.
const EXAMPLE: Bytes = Bytes::from_mib(1024);
const MINUTE: Duration = Duration::from_secs(60);

/// What an application wants of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Payload that it produces.
    pub rate: Rate,
    /// Memory that its queue may take.
    pub memory: Memory,
}

/// Memory for the queue of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// So much by the user's word.
    Given(Bytes),
    /// What the sending host has left (`MemAvailable`), if nothing else wants it.
    Available(Bytes),
    /// Not known: 1 GiB as an example.
    Unknown,
}

impl Demand {
    /// A demand that can be.
    ///
    /// # Errors
    /// A rate or a memory of zero.
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
    /// The amount that is reckoned with.
    pub const fn bytes(self) -> Bytes {
        match self {
            Self::Given(bytes) | Self::Available(bytes) => bytes,
            Self::Unknown => EXAMPLE,
        }
    }

    /// Where it comes from, as JSON has it.
    pub const fn source(self) -> MemorySource {
        match self {
            Self::Given(_) => MemorySource::Given,
            Self::Available(_) => MemorySource::Available,
            Self::Unknown => MemorySource::Example,
        }
    }
}

/// Where the memory for an application's queue comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemorySource {
    /// The user said so.
    Given,
    /// What the sending host has left (`MemAvailable`).
    Available,
    /// Not known: an example.
    Example,
}

/// What becomes of the application's queue at one rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Backlog {
    /// What is carried: key `carried_bps`.
    #[serde(rename = "carried_bps", with = "crate::json::Bps")]
    pub carried: Rate,
    /// Whether that is enough.
    pub carries: Carries,
    /// How fast the queue grows, in bytes per second; 0 where all is carried.
    pub growth_bytes_per_s: u64,
    /// How much that is in a minute.
    pub growth_bytes_per_minute: u64,
    /// When the memory is full, in seconds; null where the queue does not grow.
    pub memory_full_after_s: Option<f64>,
}

impl Backlog {
    /// Of a transfer that was measured to carry so much.
    pub fn measured(demand: Demand, carried: Rate) -> Self {
        let carries = if demand.rate <= carried { Carries::All } else { Carries::Less };
        Self::grown(demand, carried, carries)
    }

    /// The queue grows where less is carried than is offered.
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

/// Whether what is offered is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Carries {
    /// Also at the low end of its range.
    All,
    /// On average; at the low end of its range the queue grows.
    OnAverage,
    /// Less than is offered.
    Less,
    /// The line is not known, and what it surely carries is less.
    Unknown,
}
