//! Advice: the commands that bring each host from one state to another.

use fullpipe_units::Bytes;

use crate::remedy::{Case, Remedy, State, Transition, catalogue};

pub use crate::remedy::{Command, Host, Scope, memory_note};

/// Returns the remedies that lead from state `before` to state `after`, in catalogue order.
pub fn taken(before: State, after: State) -> impl Iterator<Item = &'static Remedy> {
    catalogue::ALL.into_iter().filter(move |remedy| remedy.is_between(before, after))
}

/// Returns the names of the remedies that lead from `before` to `after`, for example `BBR on the sender and
/// buffers for 2 x BDP on the receiver (42 MiB per connection)`. `buffers` are the maximum send and receive
/// buffers in the state `after`.
pub fn title(before: State, after: State, buffers: (Bytes, Bytes)) -> String {
    let step = Transition { before, after, buffers };
    taken(before, after).map(|remedy| (remedy.title)(&step)).collect::<Vec<_>>().join(" and ")
}

/// Returns the commands that apply the remedies between `before` and `after`: grouped by remedy, narrowest
/// scope first.
pub fn commands(case: &Case<'_>, before: State, after: State) -> Vec<Command> {
    taken(before, after).flat_map(|remedy| remedy.commands(case, after)).collect()
}
