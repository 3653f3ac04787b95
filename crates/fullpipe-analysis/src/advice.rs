//! Advice: the remedies and commands that bring each host from one state to another.

use fullpipe_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::remedy::{Case, Change, Remedy, State, Transition, catalogue};

pub use crate::remedy::{Command, Host, Scope, memory_note};

/// A remedy between two states, with the values that it sets. A value that the remedy does not set is null.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AppliedRemedy {
    /// Name of the remedy in the catalogue, for example `bbr` or `buffers`.
    pub name: String,
    /// The remedy in words, for example `BBR on the sender`.
    pub title: String,
    /// Congestion control of the sender.
    pub congestion_control: Option<String>,
    /// Maximum send buffer of the sender (`tcp_wmem[2]`).
    pub sndbuf_bytes: Option<u64>,
    /// Maximum receive buffer of the receiver (`tcp_rmem[2]`).
    pub rcvbuf_bytes: Option<u64>,
    /// Number of parallel connections.
    pub connections: Option<u64>,
    /// Commands that apply the remedy, narrowest scope first.
    pub commands: Vec<Command>,
}

impl AppliedRemedy {
    fn of(remedy: &Remedy, case: &Case<'_>, step: &Transition) -> Self {
        let Transition { before, after, buffers: (send, receive) } = *step;
        let raises = matches!(remedy.change, Change::Buffers { .. });
        let replaces = matches!(remedy.change, Change::CongestionControl(_));
        let splits = matches!(remedy.change, Change::Connections(_));
        Self {
            name: remedy.name.into(),
            title: (remedy.title)(step),
            congestion_control: replaces.then(|| after.cc.name().into()),
            sndbuf_bytes: (raises && after.sndbuf != before.sndbuf).then(|| send.get()),
            rcvbuf_bytes: (raises && after.rcvbuf != before.rcvbuf).then(|| receive.get()),
            connections: after.connections.filter(|_| splits),
            commands: remedy.commands(case, after),
        }
    }
}

/// Returns the remedies of a transition with the values that they set, in catalogue order.
pub fn applied(case: &Case<'_>, step: &Transition) -> Vec<AppliedRemedy> {
    taken(step.before, step.after).map(|remedy| AppliedRemedy::of(remedy, case, step)).collect()
}

/// Returns the remedies that lead from state `before` to state `after`, in catalogue order.
pub fn taken(before: State, after: State) -> impl Iterator<Item = &'static Remedy> {
    catalogue::ALL.into_iter().filter(move |remedy| remedy.is_between(before, after))
}

/// Returns the names of the remedies that lead from `before` to `after`, for example `BBR on the sender and
/// buffers for 2 x BDP on the receiver (42 MiB per connection)`. `buffers` are the maximum send and receive
/// buffers in the state `after`.
pub fn title(before: State, after: State, buffers: (Bytes, Bytes)) -> String {
    let step = Transition { before, after, buffers };
    let titles: Vec<String> = taken(before, after).map(|remedy| (remedy.title)(&step)).collect();
    joined(&titles)
}

/// Joins the titles of several remedies with "and".
pub(crate) fn joined<T: AsRef<str>>(titles: &[T]) -> String {
    titles.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(" and ")
}

/// Returns the commands that apply the remedies between `before` and `after`: grouped by remedy, narrowest
/// scope first.
pub fn commands(case: &Case<'_>, before: State, after: State) -> Vec<Command> {
    taken(before, after).flat_map(|remedy| remedy.commands(case, after)).collect()
}
