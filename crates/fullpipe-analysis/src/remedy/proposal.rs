//! A part of a remedy, fitted to one host: why, for what gain, at what cost, and the ways to set it.

use std::fmt;

use fullpipe_lab::host::Change as HostChange;
use fullpipe_units::{Bytes, Duration, Rate};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Command, Host, sizes};

/// Whether a host needs a part.
pub(crate) enum Decision {
    /// It does.
    Propose(Box<Proposal>),
    /// It does not, for this reason.
    Leave(String),
    /// The question does not arise.
    Skip,
}

impl Decision {
    pub(crate) fn leave(why: impl Into<String>) -> Self {
        Self::Leave(why.into())
    }
}

/// A part that a host needs.
pub(crate) struct Proposal {
    /// The host that it belongs to.
    pub(crate) host: Host,
    /// Whether that is the host whose settings are known.
    pub(crate) here: bool,
    /// The present value, where it is known.
    pub(crate) present: Option<String>,
    /// The new value.
    pub(crate) new: String,
    pub(crate) why: String,
    pub(crate) gain: Gain,
    pub(crate) cost: Cost,
    /// How to set it, narrowest scope first.
    pub(crate) ways: Vec<Way>,
    /// What the other host lacks until it has the part, if that matters.
    pub(crate) until_then: Option<String>,
}

/// What a part costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Kernel memory of each connection that fills its buffer.
    Memory(Bytes),
    /// A burst of packets when a connection begins.
    Burst(u32),
    /// This share of the rate, in per cent, while a loss is repaired.
    Rate(u64),
    /// In words.
    Words(&'static str),
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(bytes) => write!(
                f,
                "a flow that fills it takes {bytes} of the kernel's memory ({} pages of tcp_mem)",
                sizes::pages(*bytes)
            ),
            Self::Burst(packets) => write!(
                f,
                "{packets} packets at once as each connection begins: a queue that is shorter drops the last"
            ),
            Self::Rate(percent) => write!(
                f,
                "{percent} % of the rate (simulated): while a loss is repaired the send buffer is full of what arrived behind it, and \
                 what waited unsent would have been a reserve to go on with; a larger tcp_wmem has room for both"
            ),
            Self::Words(words) => f.write_str(words),
        }
    }
}

/// What an item brings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Gain {
    /// In words.
    pub text: String,
    /// The steady-state rate with the rest of the plan and without this item; null where it was not simulated: key
    /// `without_bps`.
    #[serde(rename = "without_bps", with = "crate::json::OptionalBps")]
    pub without: Option<Rate>,
    /// The steady-state rate with the whole plan: key `with_bps`.
    #[serde(rename = "with_bps", with = "crate::json::OptionalBps")]
    pub with: Option<Rate>,
    /// What takes time without it, in milliseconds: a short transfer, a burst after a pause, a byte in the socket.
    pub without_ms: Option<f64>,
    /// The same with it.
    pub with_ms: Option<f64>,
    /// What the socket holds without it.
    pub without_bytes: Option<u64>,
    /// What it holds with it.
    pub with_bytes: Option<u64>,
}

impl Gain {
    /// A gain that was not simulated as a rate.
    pub(crate) fn words(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A time that becomes shorter.
    pub(crate) fn time(text: String, without: Duration, with: Duration) -> Self {
        let ms = |time: Duration| Some(time.as_millis_f64());
        Self { text, without_ms: ms(without), with_ms: ms(with), ..Self::default() }
    }
}

/// One way to make a change.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Way {
    /// What to run, and what takes it back.
    #[serde(flatten)]
    pub command: Command,
    /// The same as data, where it can be applied on this host.
    pub change: Option<HostChange>,
    /// Whether it is what `--apply` does.
    pub applied: bool,
}

impl Way {
    /// A way that somebody goes by hand.
    pub(crate) fn by_hand(command: Command) -> Self {
        Self { command, change: None, applied: false }
    }
}
