//! One thing to run: on which host, how far it reaches, and what undoes it.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One thing to run, as data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Command {
    /// The command line, or the call in the application's source for [`Scope::Socket`]. Words in capitals
    /// (`DEV`, `RECEIVER`) are to be filled in.
    pub run: String,
    /// The host to run it on.
    pub host: Host,
    /// How much it changes.
    pub scope: Scope,
    /// What takes it back.
    pub undo: String,
    /// What has to be in place before, or what to know.
    pub requires: Option<String>,
    /// What it sets; `None` in a document that was parsed, because it is not part of the JSON.
    #[serde(skip)]
    pub sets: Option<Mechanism>,
}

/// What a command sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// A socket option or an option of the program.
    Application,
    /// A metric of a route.
    Route,
    /// The kernel setting with this key.
    Setting(&'static str),
    /// The queueing discipline of a device.
    Qdisc,
}

impl Mechanism {
    /// Whether it is a setting below `net.ipv4`.
    pub fn is_ipv4_setting(self) -> bool {
        matches!(self, Self::Setting(key) if key.starts_with("net.ipv4."))
    }
}

/// An end of the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Host {
    /// Where the data comes from.
    Sender,
    /// Where the data goes to.
    Receiver,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sender => "sender",
            Self::Receiver => "receiver",
        })
    }
}

/// How much a command changes, narrowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// One socket of one program.
    Socket,
    /// Connections to one destination.
    Route,
    /// Every new connection of the host (of its network namespace).
    System,
}

impl Scope {
    /// What it means to whoever has to decide on it.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Socket => "one socket of one program",
            Self::Route => "connections to one destination",
            Self::System => "every new connection of the host",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Socket => "socket",
            Self::Route => "route",
            Self::System => "system",
        })
    }
}

/// The undo of a call in an application's source.
const LEAVE_OUT: &str = "leave the call out";

impl Command {
    /// A call in the sending application's source, which is left out again to undo it.
    pub(crate) fn call(run: String, requires: Option<String>) -> Self {
        Self {
            run,
            host: Host::Sender,
            scope: Scope::Socket,
            undo: LEAVE_OUT.into(),
            requires,
            sets: Some(Mechanism::Application),
        }
    }

    /// Metrics of the sender's route to the receiver.
    pub(crate) fn route(run: String, undo: String, requires: Option<String>) -> Self {
        Self { run, host: Host::Sender, scope: Scope::Route, undo, requires, sets: Some(Mechanism::Route) }
    }

    /// Metrics of a route of which nothing is known.
    pub(crate) fn unknown_route(metrics: &str, requires: Option<String>) -> Self {
        let undo = "ip route change RECEIVER via GATEWAY dev DEV";
        Self::route(format!("{undo} {metrics}"), undo.into(), requires)
    }

    /// A kernel setting with these commands.
    pub(crate) fn setting(
        host: Host,
        key: &'static str,
        run: String,
        undo: String,
        requires: Option<String>,
    ) -> Self {
        Self { run, host, scope: Scope::System, undo, requires, sets: Some(Mechanism::Setting(key)) }
    }

    /// Sets `key` to `value` where its present value is known.
    pub(crate) fn set(
        host: Host,
        key: &'static str,
        value: &str,
        before: &str,
        requires: Option<String>,
    ) -> Self {
        let assign = |value: &str| format!("sysctl -w {key}={value}");
        Self::setting(host, key, assign(value), assign(before), requires)
    }

    /// Sets `key` to `value`, and keeps the present value, which is not known, in a file for the undo.
    pub(crate) fn save_and_set(
        host: Host,
        key: &'static str,
        value: &str,
        file: &str,
        requires: Option<String>,
    ) -> Self {
        let run = format!("sysctl -n {key} > {file} && sysctl -w {key}={value}");
        Self::setting(host, key, run, format!("sysctl -w {key}=\"$(cat {file})\""), requires)
    }

    /// Turns a switch on that is known to be off.
    pub(crate) fn switch_on(host: Host, key: &'static str) -> Self {
        Self::set(host, key, "1", "0", None)
    }
}
