//! A part of a remedy for one host, with its reason, gain and cost, and the ways to apply it.

use std::fmt;

use fullpipe_lab::host::Change as HostChange;
use fullpipe_units::{Bytes, Duration, Rate};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Command, Host, sizes};

/// Decision whether a host needs a part.
pub(crate) enum Decision {
    /// The host needs the part.
    Propose(Box<Proposal>),
    /// The host does not need the part, for this reason.
    Leave(String),
    /// The part does not apply to this host.
    Skip,
}

impl Decision {
    pub(crate) fn leave(why: impl Into<String>) -> Self {
        Self::Leave(why.into())
    }
}

/// A part that a host needs.
pub(crate) struct Proposal {
    /// Endpoint of the transfer at which the part is applied.
    pub(crate) host: Host,
    /// Whether that endpoint is the host with the known settings.
    pub(crate) here: bool,
    /// Present value, if known.
    pub(crate) present: Option<String>,
    /// New value.
    pub(crate) new: String,
    pub(crate) why: String,
    pub(crate) gain: Gain,
    pub(crate) cost: Cost,
    /// Ways to apply the part, narrowest scope first.
    pub(crate) ways: Vec<Way>,
    /// Note on the limit that remains until the part is applied, if it must be applied on the other host;
    /// `None` if that limit does not matter.
    pub(crate) until_then: Option<String>,
}

/// Cost of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Kernel memory, in bytes, for each connection that fills its buffer.
    Memory(Bytes),
    /// Burst at the start of each connection, in packets.
    Burst(u32),
    /// Share of the rate lost during loss recovery, in percent.
    Rate(u64),
    /// Cost in words.
    Words(&'static str),
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(bytes) => write!(
                f,
                "a flow that fills the buffer takes {bytes} of kernel memory ({} pages of tcp_mem)",
                sizes::pages(*bytes)
            ),
            Self::Burst(packets) => write!(
                f,
                "each connection starts with {packets} packets at once, and a shorter queue drops the last of these"
            ),
            Self::Rate(percent) => write!(
                f,
                "{percent} % of the rate (simulated): during loss recovery, the data behind the lost \
                 segment fills the send buffer, and the sender has no unsent data left; a larger tcp_wmem \
                 has room for both"
            ),
            Self::Words(words) => f.write_str(words),
        }
    }
}

/// Gain of an item.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Gain {
    /// The gain in words.
    pub text: String,
    /// Steady-state rate with the rest of the plan but without this item; null if it was not simulated: key
    /// `without_bps`.
    #[serde(rename = "without_bps", with = "fullpipe_measurement::json::OptionalBps")]
    pub without: Option<Rate>,
    /// Steady-state rate with the whole plan: key `with_bps`.
    #[serde(rename = "with_bps", with = "fullpipe_measurement::json::OptionalBps")]
    pub with: Option<Rate>,
    /// Duration without the item, in milliseconds: that of a short transfer, that of a burst after an idle
    /// period, or the time that a byte waits in the socket.
    pub without_ms: Option<f64>,
    /// Duration with the item, in milliseconds.
    pub with_ms: Option<f64>,
    /// Bytes in the socket without the item.
    pub without_bytes: Option<u64>,
    /// Bytes in the socket with the item.
    pub with_bytes: Option<u64>,
}

impl Gain {
    /// Returns a gain without a simulated rate.
    pub(crate) fn words(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Returns a gain in the form of a shorter duration.
    pub(crate) fn time(text: String, without: Duration, with: Duration) -> Self {
        let ms = |time: Duration| Some(time.as_millis_f64());
        Self { text, without_ms: ms(without), with_ms: ms(with), ..Self::default() }
    }
}

/// One way to make a change.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Way {
    /// Command that makes the change, with its undo.
    #[serde(flatten)]
    pub command: Command,
    /// The change as data, if it can be applied on this host.
    pub change: Option<HostChange>,
    /// Whether `--apply` uses this way.
    pub applied: bool,
}

impl Way {
    /// Returns a way that the user applies by hand.
    pub(crate) fn by_hand(command: Command) -> Self {
        Self { command, change: None, applied: false }
    }
}
