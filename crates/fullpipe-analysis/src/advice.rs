//! What to run on which host: the commands of the remedies that lead from one state of the hosts to another.

use crate::remedy::{Case, Remedy, State, catalogue};

pub use crate::remedy::{Command, Host, Scope, memory_note};

/// The remedies of the ladder that were taken between two states, in the order of the catalogue.
pub fn taken(before: State, after: State) -> impl Iterator<Item = &'static Remedy> {
    catalogue::of_ladder().filter(move |remedy| remedy.is_between(before, after))
}

/// The same as words: `BBR on the sender and buffers for 2 x BDP on both hosts`.
pub fn title(before: State, after: State) -> String {
    taken(before, after).map(|remedy| (remedy.title)(after)).collect::<Vec<_>>().join(" and ")
}

/// What to run for it, remedy by remedy, each with the narrowest scope first.
pub fn commands(case: &Case<'_>, before: State, after: State) -> Vec<Command> {
    taken(before, after).flat_map(|remedy| remedy.commands(case, after)).collect()
}
