//! Remedies as data: the change to the model, the hosts, the commands with their undo, and the cost.
//!
//! ```text
//!                      ┌─ change ───► ladder     simulates it, and climbs with it from limits that it lifts
//!   catalogue: Remedy ─┼─ commands ─► advice     commands to run on each host, with their undo
//!                      ├─ plan ─────► tune       whether one known host needs it, with its gain and cost
//!                      └─ backlog ──► offered    its effect on a queue that grows in the application
//! ```
//!
//! To add a remedy, see `catalogue/mod.rs`: there is one file for each kind. The ladder, advice, tune and
//! reports iterate over the catalogue without knowing any remedy by name. A new kind of change also requires
//! a variant of [`Change`] (`change.rs`).
//!
//! Facts about the kernel that common advice gets wrong:
//!
//! - `tcp_wmem[2]` on the sender and `tcp_rmem[2]` on the *receiver* limit autotuned buffers, so both hosts
//!   need the change. `net.core.*mem_max` only limits `SO_SNDBUF` and `SO_RCVBUF`, and is left alone.
//! - A send buffer of one BDP is not enough, because only 0.67 to 1.0 of the buffer is in flight. With 1 BDP,
//!   660 of 956 Mbit/s were measured; with 1.5 BDP, 915. The ladder therefore chooses sizes by their usable
//!   windows.
//! - Under loss, even a usable window of one BDP is not enough, because data behind a hole stays in both
//!   buffers until the hole is filled. The ladder doubles the usable window until doubling gains too little.
//! - Only the sender's congestion control matters, and a change affects only new connections.

mod case;
pub mod catalogue;
mod change;
mod command;
mod host;
#[cfg(test)]
pub(crate) mod made;
mod proposal;
mod route;
mod sizes;
mod step;

use std::fmt;
use std::str::FromStr;

use fullpipe_lab::campaign::RunPanicked;
use schemars::JsonSchema;
use serde::Serialize;

pub use case::Case;
pub(crate) use case::{End, HostCase, Trials, Unsent};
pub(crate) use catalogue::buffers::{CHANGE as LARGER_BUFFERS, OF_BOTH as BUFFER_SIZES};
pub(crate) use catalogue::connections::CHANGE as MANY_CONNECTIONS;
pub(crate) use catalogue::qdisc::MANAGED as MANAGED_QUEUE;
pub use change::{BufferHosts, Change, NotSimulated, State};
pub use command::{Command, Host, Mechanism, Scope};
use fullpipe_measurement::classify::Limit;
pub use host::{KEYS, LocalHost};
pub use proposal::{Cost, Gain, Way};
pub(crate) use proposal::{Decision, Proposal};
pub use sizes::memory_note;
pub(crate) use sizes::{PAGE, rcvbuf_for, sndbuf_for};
pub use step::{Order, Step, Transition};

/// Remedy for a limit or a delay.
#[derive(Debug)]
pub struct Remedy {
    /// Unique name.
    pub name: &'static str,
    /// Change to the model.
    pub change: Change,
    /// Limits that the remedy lifts or raises; empty for a remedy that shortens a delay.
    pub lifts: &'static [Limit],
    /// Whether the ladder, tune or the operator applies the remedy.
    pub usage: Usage,
    /// Returns the title of the remedy on the rung that it leads to.
    pub title: fn(&Transition) -> String,
    /// Advice for an application whose queue grows because the path carries less than it offers.
    pub backlog: Option<QueueAdvice>,
    /// Parts of the remedy, one setting each.
    pub parts: &'static [Part],
}

/// Advice for a growing queue in the application.
#[derive(Debug)]
pub struct QueueAdvice {
    /// The advice as a sentence.
    pub what: &'static str,
    /// Returns commands that work on any host; empty if only a change to the application's source helps.
    pub commands: fn() -> Vec<Command>,
}

/// Way in which a remedy is used: by the ladder, on request, or by the operator.
#[derive(Clone, Copy, Debug)]
pub enum Usage {
    /// The ladder uses the remedy, and tune plans it if it brings a gain.
    Ladder {
        /// Decides whether the remedy is needed on a path that takes too long to simulate.
        by_rule: fn(&Case<'_>) -> bool,
        /// Steps that the ladder tries.
        steps: &'static [Step],
    },
    /// Only some applications need the remedy: tune plans it, but applies it only on request.
    OnRequest,
    /// Only the operator applies the remedy; neither the ladder nor tune does.
    ByHand,
}

/// One setting of a remedy.
#[derive(Debug)]
pub struct Part {
    /// Name of the setting.
    pub what: What,
    /// Endpoints to which the setting applies.
    pub hosts: &'static [Host],
    /// Narrowest scope in which the setting can be changed.
    pub scope: Scope,
    /// Commands that change the setting.
    pub commands: Commands,
    /// Returns the cost of the setting in a state.
    pub cost: fn(&Case<'_>, State) -> Cost,
    /// Decides whether a host with known settings needs the part; `None` if tune does not plan it.
    pub(crate) plan: Option<Plan>,
}

/// Function that decides whether a host needs a part of a remedy.
type Plan = fn(&HostCase<'_>) -> Result<Decision, RunPanicked>;

/// Commands of a part, or the reason why there are none.
#[derive(Debug)]
pub enum Commands {
    /// Returns the commands that lead to a state, narrowest scope first. There are none if the host is known
    /// to have the setting. For a switch that is on by default, there are commands only if it is known to be
    /// off.
    Run(fn(&Case<'_>, State) -> Vec<Command>),
    /// No command can change the setting, for this reason.
    None(&'static str),
}

impl Remedy {
    /// Returns the commands that lead to `state`.
    pub fn commands(&self, case: &Case<'_>, state: State) -> Vec<Command> {
        self.parts.iter().flat_map(|part| part.commands(case, state)).collect()
    }

    /// Returns whether the ladder uses the remedy.
    pub const fn is_of_ladder(&self) -> bool {
        matches!(self.usage, Usage::Ladder { .. })
    }

    /// Returns the steps with which the ladder tries the remedy; none if the ladder does not use this remedy.
    pub const fn steps(&self) -> &'static [Step] {
        match self.usage {
            Usage::Ladder { steps, .. } => steps,
            Usage::OnRequest | Usage::ByHand => &[],
        }
    }

    /// Returns whether tune applies the remedy only on request.
    pub const fn is_on_request(&self) -> bool {
        matches!(self.usage, Usage::OnRequest)
    }

    /// Returns whether a rule includes this remedy in the plan for a path that takes too long to simulate.
    pub fn is_needed_by_rule(&self, case: &Case<'_>) -> bool {
        matches!(self.usage, Usage::Ladder { by_rule, .. } if by_rule(case))
    }

    /// Returns whether the remedy leads from one state to the other, that is, whether the states differ in
    /// the value that it sets.
    pub fn is_between(&self, before: State, after: State) -> bool {
        after.without(self.change, before) != after
    }
}

impl Part {
    /// Returns the commands that change the setting as in `state`.
    pub fn commands(&self, case: &Case<'_>, state: State) -> Vec<Command> {
        match self.commands {
            Commands::Run(commands) => commands(case, state),
            Commands::None(_) => Vec::new(),
        }
    }
}

/// Name of a setting. The file of each remedy adds its own names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct What(&'static str);

impl What {
    /// Returns the name as a string.
    pub const fn name(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

/// Error for a name that is not the name of an optional part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPart(String);

impl fmt::Display for UnknownPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = catalogue::on_request().into_iter().map(What::name).collect();
        write!(f, "'{}' is not one of {}", self.0, names.join(", "))
    }
}

impl std::error::Error for UnknownPart {}

impl FromStr for What {
    type Err = UnknownPart;

    fn from_str(name: &str) -> Result<Self, UnknownPart> {
        let found = catalogue::on_request().into_iter().find(|what| what.name() == name);
        found.ok_or_else(|| UnknownPart(name.into()))
    }
}
