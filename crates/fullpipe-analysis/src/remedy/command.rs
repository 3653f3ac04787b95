//! Commands with their host, scope and undo.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One command to run, as data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Command {
    /// Command line or, for [`Scope::Socket`], the call in the application's source. The user replaces the
    /// words in capitals (`DEV`, `RECEIVER`).
    pub run: String,
    /// Host on which to run the command.
    pub host: Host,
    /// Scope of the change.
    pub scope: Scope,
    /// Command that undoes the change.
    pub undo: String,
    /// Prerequisite, or a fact to know before running the command.
    pub requires: Option<String>,
    /// Mechanism that the command uses; `None` in a parsed document, because it is not part of the JSON.
    #[serde(skip)]
    pub sets: Option<Mechanism>,
}

/// Mechanism by which a command takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// Socket option, or option of the application.
    Application,
    /// Metric of a route.
    Route,
    /// Kernel setting with this key.
    Setting(&'static str),
    /// Queueing discipline of a device.
    Qdisc,
}

impl Mechanism {
    /// Returns whether this is a kernel setting below `net.ipv4`.
    pub fn is_ipv4_setting(self) -> bool {
        matches!(self, Self::Setting(key) if key.starts_with("net.ipv4."))
    }
}

/// One endpoint of the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Host {
    /// Host that sends the data.
    Sender,
    /// Host that receives the data.
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

/// Scope of a command, narrowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// One socket of one application.
    Socket,
    /// Connections to one destination.
    Route,
    /// All new connections of the host, or of its network namespace.
    System,
}

impl Scope {
    /// Returns the scope in words, for the user who chooses one.
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

/// Undo of a call in the application's source.
const LEAVE_OUT: &str = "remove the call";

impl Command {
    /// Returns a call to add to the sending application's source; the undo is to remove it.
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

    /// Returns a command that sets metrics of the sender's route to the receiver.
    pub(crate) fn route(run: String, undo: String, requires: Option<String>) -> Self {
        Self { run, host: Host::Sender, scope: Scope::Route, undo, requires, sets: Some(Mechanism::Route) }
    }

    /// Returns a command that sets metrics of an unknown route.
    pub(crate) fn unknown_route(metrics: &str, requires: Option<String>) -> Self {
        let undo = "ip route change RECEIVER via GATEWAY dev DEV";
        Self::route(format!("{undo} {metrics}"), undo.into(), requires)
    }

    /// Returns a command that changes a kernel setting with the given command lines.
    pub(crate) fn setting(
        host: Host,
        key: &'static str,
        run: String,
        undo: String,
        requires: Option<String>,
    ) -> Self {
        Self { run, host, scope: Scope::System, undo, requires, sets: Some(Mechanism::Setting(key)) }
    }

    /// Returns a command that sets `key` to `value`; the undo restores the known previous value `before`.
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

    /// Returns a command that saves the unknown present value of `key` to a file for the undo, and sets
    /// `value`.
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

    /// Returns a command that turns on a switch that is known to be off.
    pub(crate) fn switch_on(host: Host, key: &'static str) -> Self {
        Self::set(host, key, "1", "0", None)
    }
}
