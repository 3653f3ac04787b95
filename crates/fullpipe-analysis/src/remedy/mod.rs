//! Remedies as data: what each changes on the model, on which host, at what cost, by which commands, and how to undo it.
//!
//! ```text
//!                      ┌─ change ───► ladder     simulates it, and climbs with it from the limits that it lifts
//!   catalogue: Remedy ─┼─ commands ─► advice     what to run on each host, with its undo
//!                      ├─ plan ─────► tune       whether one known host needs it, what it brings and costs
//!                      └─ backlog ──► offered    what it does about a queue that grows in the application
//! ```
//!
//! To add one, see `catalogue/mod.rs`: each remedy is one file there. Ladder, advice, tune and reports iterate over the
//! catalogue and know no remedy by name. A change of a new kind also needs a variant of [`Change`] (`change.rs`).
//!
//! What the kernel does, and common advice gets wrong:
//!
//! - Autotuned buffers are bounded by `tcp_wmem[2]` on the sender and `tcp_rmem[2]` on the *receiver*; both
//!   hosts need the change. `net.core.*mem_max` bounds `SO_SNDBUF`/`SO_RCVBUF` only and is left alone.
//! - One BDP of send buffer is not enough: 0.67 to 1.0 of it is in flight (660 of 956 Mbit/s were measured
//!   with 1 BDP, 955 with 2).
//! - Only the sender's congestion control counts, and a change reaches new connections only.

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

/// One remedy.
#[derive(Debug)]
pub struct Remedy {
    /// Its name, which no other has.
    pub name: &'static str,
    /// What it changes on the model.
    pub change: Change,
    /// The limits that it lifts or raises; none for a remedy that shortens a delay.
    pub lifts: &'static [Limit],
    /// Who uses it.
    pub usage: Usage,
    /// What it is called on a rung, given the state that it leads to.
    pub title: fn(State) -> String,
    /// What it does about an application's queue that grows because the path carries less than is offered.
    pub backlog: Option<QueueAdvice>,
    /// What it consists of, each part on one host.
    pub parts: &'static [Part],
}

/// What a remedy does about a queue that grows.
#[derive(Debug)]
pub struct QueueAdvice {
    /// What to do, as a sentence.
    pub what: &'static str,
    /// Commands that do it on any host; none for what only the application's source can do.
    pub commands: fn() -> Vec<Command>,
}

/// Who uses a remedy.
#[derive(Clone, Copy, Debug)]
pub enum Usage {
    /// The ladder climbs with it, and tune plans it where it brings something.
    Ladder {
        /// Whether it is needed, where the path takes too long to simulate.
        by_rule: fn(&Case<'_>) -> bool,
    },
    /// Some applications only: tune plans it, and applies it if it is asked for by name.
    OnRequest,
    /// The operator: neither ladder nor tune takes it.
    ByHand,
}

/// One thing to set, on one host.
#[derive(Debug)]
pub struct Part {
    /// What.
    pub what: What,
    /// The hosts that have it.
    pub hosts: &'static [Host],
    /// The narrowest scope at which it can be set.
    pub scope: Scope,
    /// How to set it.
    pub commands: Commands,
    /// What it costs to have it in a state.
    pub cost: fn(&Case<'_>, State) -> Cost,
    /// Whether a host needs it whose settings are known; `None` if tune does not plan it.
    pub(crate) plan: Option<Plan>,
}

/// Decides whether a host needs a part.
type Plan = fn(&HostCase<'_>) -> Result<Decision, RunPanicked>;

/// How to set something.
#[derive(Debug)]
pub enum Commands {
    /// By these, which lead to a state, narrowest scope first. There are none for a host that is known to have it, and of
    /// switches that are on by default none for a host that is not known to have them off.
    Run(fn(&Case<'_>, State) -> Vec<Command>),
    /// By none, for this reason.
    None(&'static str),
}

impl Remedy {
    /// What to run to reach `state`.
    pub fn commands(&self, case: &Case<'_>, state: State) -> Vec<Command> {
        self.parts.iter().flat_map(|part| part.commands(case, state)).collect()
    }

    /// Whether the ladder climbs with it.
    pub const fn is_of_ladder(&self) -> bool {
        matches!(self.usage, Usage::Ladder { .. })
    }

    /// Whether tune applies it only if it is asked for.
    pub const fn is_on_request(&self) -> bool {
        matches!(self.usage, Usage::OnRequest)
    }

    /// Whether the ladder would take it, where the path takes too long to simulate.
    pub fn is_needed_by_rule(&self, case: &Case<'_>) -> bool {
        matches!(self.usage, Usage::Ladder { by_rule } if by_rule(case))
    }

    /// Whether it was taken between these states: what it sets differs.
    pub fn is_between(&self, before: State, after: State) -> bool {
        after.without(self.change, before) != after
    }
}

impl Part {
    /// What to run for it to reach `state`.
    pub fn commands(&self, case: &Case<'_>, state: State) -> Vec<Command> {
        match self.commands {
            Commands::Run(commands) => commands(case, state),
            Commands::None(_) => Vec::new(),
        }
    }
}

/// The name of what is set. Each remedy's file adds its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct What(&'static str);

impl What {
    /// The name itself.
    pub const fn name(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

/// Not the name of a part that can be asked for.
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
