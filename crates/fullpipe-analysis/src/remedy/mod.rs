//! Remedies as data: the change to the model, the hosts, the commands with their undo, and the cost.
//!
//! ```text
//!                      ┌─ change ───► ladder     simulates it, and climbs with it from limits that it lifts
//!   catalogue: Remedy ─┼─ commands ─► advice     commands to run on each host, with their undo
//!                      ├─ plan ─────► tune       whether one known host needs it, with its gain and cost
//!                      └─ backlog ──► offered    its effect on a queue that grows in the application
//! ```
//!
//! To add a remedy, see `catalogue/mod.rs`: each kind is one file there. Ladder, advice, tune and reports
//! iterate over the catalogue and know no remedy by name. A new kind of change also needs a variant of
//! [`Change`] (`change.rs`).
//!
//! Facts about the kernel that common advice gets wrong:
//!
//! - `tcp_wmem[2]` on the sender and `tcp_rmem[2]` on the *receiver* bound autotuned buffers; both hosts need
//!   the change. `net.core.*mem_max` bounds only `SO_SNDBUF`/`SO_RCVBUF` and is left alone.
//! - One BDP of send buffer is not enough, because only 0.67 to 1.0 of the buffer is in flight. With 1 BDP,
//!   660 of 956 Mbit/s were measured; with 2 BDP, 955.
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

use std::fmt;
use std::str::FromStr;

use fullpipe_lab::campaign::RunPanicked;
use schemars::JsonSchema;
use serde::Serialize;

use crate::classify::Limit;
pub use case::Case;
pub(crate) use case::{End, HostCase, Trials, Unsent};
pub(crate) use catalogue::buffers::CHANGE as LARGER_BUFFERS;
pub use change::{Change, NotSimulated, State};
pub use command::{Command, Host, Mechanism, Scope};
pub use host::{KEYS, LocalHost};
pub use proposal::{Cost, Gain, Way};
pub(crate) use proposal::{Decision, Proposal};
pub use sizes::memory_note;
pub(crate) use sizes::{PAGE, rcvbuf_for, sndbuf_for};

/// A remedy.
#[derive(Debug)]
pub struct Remedy {
    /// Unique name.
    pub name: &'static str,
    /// Change to the model.
    pub change: Change,
    /// Limits that it lifts or raises; empty for a remedy that shortens a delay.
    pub lifts: &'static [Limit],
    /// User of the remedy: the ladder, tune or the operator.
    pub usage: Usage,
    /// Returns its title on a rung, for the state that it leads to.
    pub title: fn(State) -> String,
    /// Advice on an application's queue that grows because the path carries less than the application offers.
    pub backlog: Option<QueueAdvice>,
    /// Parts of the remedy, one setting each.
    pub parts: &'static [Part],
}

/// Advice on a queue that grows in the application.
#[derive(Debug)]
pub struct QueueAdvice {
    /// The advice as a sentence.
    pub what: &'static str,
    /// Returns commands that work on any host; empty where only a change to the application's source helps.
    pub commands: fn() -> Vec<Command>,
}

/// User of a remedy.
#[derive(Clone, Copy, Debug)]
pub enum Usage {
    /// The ladder climbs with it, and tune plans it where it brings a gain.
    Ladder {
        /// Decides whether it is needed where the path takes too long to simulate.
        by_rule: fn(&Case<'_>) -> bool,
    },
    /// Some applications need it: tune plans it, and applies it only on request.
    OnRequest,
    /// The operator uses it; neither the ladder nor tune does.
    ByHand,
}

/// One setting of a remedy.
#[derive(Debug)]
pub struct Part {
    /// Name of the setting.
    pub what: What,
    /// Ends of the transfer that have the setting.
    pub hosts: &'static [Host],
    /// Narrowest scope at which it can be set.
    pub scope: Scope,
    /// Commands that set it.
    pub commands: Commands,
    /// Returns its cost in a state.
    pub cost: fn(&Case<'_>, State) -> Cost,
    /// Decides whether a host with known settings needs it; `None` if tune does not plan it.
    pub(crate) plan: Option<Plan>,
}

/// Decision function: whether a host needs a part.
type Plan = fn(&HostCase<'_>) -> Result<Decision, RunPanicked>;

/// Commands of a part, or the reason why there are none.
#[derive(Debug)]
pub enum Commands {
    /// Returns the commands that lead to a state, narrowest scope first. A host that is known to have the
    /// setting gets none. For a switch that is on by default, only a host where it is known to be off gets
    /// one.
    Run(fn(&Case<'_>, State) -> Vec<Command>),
    /// No command can set it, for this reason.
    None(&'static str),
}

impl Remedy {
    /// Returns the commands that lead to `state`.
    pub fn commands(&self, case: &Case<'_>, state: State) -> Vec<Command> {
        self.parts.iter().flat_map(|part| part.commands(case, state)).collect()
    }

    /// Returns whether the ladder climbs with it.
    pub const fn is_of_ladder(&self) -> bool {
        matches!(self.usage, Usage::Ladder { .. })
    }

    /// Returns whether tune applies it only on request.
    pub const fn is_on_request(&self) -> bool {
        matches!(self.usage, Usage::OnRequest)
    }

    /// Returns whether the ladder would need it on a path that takes too long to simulate.
    pub fn is_needed_by_rule(&self, case: &Case<'_>) -> bool {
        matches!(self.usage, Usage::Ladder { by_rule } if by_rule(case))
    }

    /// Returns whether it leads from one state to the other: the value that it sets differs.
    pub fn is_between(&self, before: State, after: State) -> bool {
        after.without(self.change, before) != after
    }
}

impl Part {
    /// Returns the commands that set it as in `state`.
    pub fn commands(&self, case: &Case<'_>, state: State) -> Vec<Command> {
        match self.commands {
            Commands::Run(commands) => commands(case, state),
            Commands::None(_) => Vec::new(),
        }
    }
}

/// Name of a setting. Each remedy's file adds its own names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct What(&'static str);

impl What {
    /// Returns the name as text.
    pub const fn name(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

/// Error for a name that is not that of an optional part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPart(String);

impl fmt::Display for UnknownPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = catalogue::on_request().into_iter().map(What::name).collect();
        write!(f, "'{}' is none of {}", self.0, names.join(", "))
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
