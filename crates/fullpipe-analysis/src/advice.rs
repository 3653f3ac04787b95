//! Advice: the commands on each host that lead from one state of the hosts to another.

use crate::remedy::{Case, Remedy, State, catalogue};

pub use crate::remedy::{Command, Host, Scope, memory_note};

/// Returns the remedies of the ladder that lead from one state to the other, in the order of the catalogue.
pub fn taken(before: State, after: State) -> impl Iterator<Item = &'static Remedy> {
    catalogue::of_ladder().filter(move |remedy| remedy.is_between(before, after))
}

/// Returns the names of those remedies: `BBR on the sender and buffers for 2 x BDP on both hosts`.
pub fn title(before: State, after: State) -> String {
    taken(before, after).map(|remedy| (remedy.title)(after)).collect::<Vec<_>>().join(" and ")
}

/// Returns the commands of those remedies, remedy by remedy, each with the narrowest scope first.
pub fn commands(case: &Case<'_>, before: State, after: State) -> Vec<Command> {
    taken(before, after).flat_map(|remedy| remedy.commands(case, after)).collect()
}
