//! One thing to change: why, for what gain, at what cost, and the ways to do it.

use std::fmt;
use std::str::FromStr;

use fullpipe_lab::host::Change;
use fullpipe_units::{Duration, Rate};
use schemars::JsonSchema;
use serde::Serialize;

use crate::advice::{Command, Host};

/// What is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// `tcp_wmem[2]` of the sender.
    TcpWmem,
    /// `tcp_rmem[2]` of the receiver.
    TcpRmem,
    /// `tcp_window_scaling`: without it no window exceeds 64 KiB.
    TcpWindowScaling,
    /// `tcp_moderate_rcvbuf`: without it no receive buffer grows.
    TcpModerateRcvbuf,
    /// The sender's congestion control.
    CongestionControl,
    /// The queueing discipline, where the kernel does not pace by itself.
    QueueingDiscipline,
    /// `tcp_notsent_lowat` of the sender.
    NotsentLowat,
    /// The initial window of new connections.
    Initcwnd,
    /// `tcp_slow_start_after_idle` of the sender.
    SlowStartAfterIdle,
}

impl What {
    /// What `--with` can ask for: of no use to a bulk transfer, and of some to others.
    pub const OPTIONAL: [Self; 3] = [Self::NotsentLowat, Self::Initcwnd, Self::SlowStartAfterIdle];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TcpWmem => "tcp_wmem",
            Self::TcpRmem => "tcp_rmem",
            Self::TcpWindowScaling => "tcp_window_scaling",
            Self::TcpModerateRcvbuf => "tcp_moderate_rcvbuf",
            Self::CongestionControl => "congestion_control",
            Self::QueueingDiscipline => "queueing_discipline",
            Self::NotsentLowat => "notsent_lowat",
            Self::Initcwnd => "initcwnd",
            Self::SlowStartAfterIdle => "slow_start_after_idle",
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Not the name of an item that can be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownItem(String);

impl fmt::Display for UnknownItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is none of notsent_lowat, initcwnd, slow_start_after_idle", self.0)
    }
}

impl std::error::Error for UnknownItem {}

impl FromStr for What {
    type Err = UnknownItem;

    fn from_str(name: &str) -> Result<Self, UnknownItem> {
        Self::OPTIONAL.into_iter().find(|what| what.name() == name).ok_or_else(|| UnknownItem(name.into()))
    }
}

/// One thing to change.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Item {
    /// What.
    pub what: What,
    /// The host that it belongs to.
    pub host: Host,
    /// Whether that is the host of the plan.
    pub here: bool,
    /// Whether it is for some applications only: applied when asked for by name.
    pub optional: bool,
    /// The present value, where it is known.
    pub present: Option<String>,
    /// The new value.
    pub new: String,
    /// Why.
    pub why: String,
    /// What it brings.
    pub gain: Gain,
    /// What it costs.
    pub cost: String,
    /// How to do it, narrowest scope first.
    pub ways: Vec<Way>,
}

impl Item {
    /// The way that is applied, if one is.
    pub fn applied(&self) -> Option<&Way> {
        self.ways.iter().find(|way| way.applied)
    }
}

/// What an item brings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Gain {
    /// In words.
    pub text: String,
    /// The lasting rate with the rest of the plan and without this item; null where it was not simulated: key
    /// `without_bps`.
    #[serde(rename = "without_bps", with = "crate::json::OptionalBps")]
    pub without: Option<Rate>,
    /// The lasting rate with the whole plan: key `with_bps`.
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
    pub(super) fn words(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A time that becomes shorter.
    pub(super) fn time(text: String, without: Duration, with: Duration) -> Self {
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
    pub change: Option<Change>,
    /// Whether it is what `--apply` does.
    pub applied: bool,
}
