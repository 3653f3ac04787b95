//! Several connections for one transfer.

use fullpipe_measurement::classify::Limit;

use crate::remedy::{
    Change, Command, Commands, Cost, Host, Order, Part, Remedy, Scope, State, Step, Usage, What,
};

/// Splits the transfer into several connections. Each connection has its own windows, buffers and losses, and
/// a per-flow rate cap applies to each connection separately.
pub(super) static REMEDY: Remedy = Remedy {
    name: "connections",
    change: CHANGE,
    lifts: LIFTS,
    usage: Usage::Ladder {
        // Additional connections take capacity from other traffic, which no other remedy does.
        by_rule: |_| false,
        steps: &[Step {
            order: Order::Connections,
            lifts: LIFTS,
            sizes: &[Change::Connections(2), Change::Connections(4), CHANGE],
        }],
    },
    title: |step| format!("{} connections", many(step.after)),
    backlog: None,
    parts: &[Part {
        what: What::CONNECTIONS,
        hosts: &[Host::Sender],
        scope: Scope::Socket,
        commands: Commands::Run(|_, state| vec![command(many(state))]),
        cost: |_, _| COST,
        plan: None,
    }],
};

impl What {
    /// Number of connections for one transfer.
    pub const CONNECTIONS: Self = Self("connections");
}

/// Number of connections that is large enough to show whether splitting helps. A larger number takes more
/// capacity from other traffic.
const MANY: u64 = 10;
pub(crate) const CHANGE: Change = Change::Connections(MANY);
/// Pacing leaves room on the link: BBR sends little while it measures the RTT, and an application may limit
/// the pacing rate of a socket. Another connection can use this room.
const LIFTS: &[Limit] =
    &[Limit::Cwnd, Limit::SlowStart, Limit::Rwnd, Limit::Sndbuf, Limit::Pacing, Limit::Cap, Limit::Policer];
const COST: Cost = Cost::Words(
    "memory and a slow start for each connection; other traffic on the path gets \
                                a lower rate",
);

fn many(state: State) -> u64 {
    state.connections.unwrap_or(MANY)
}

fn command(many: u64) -> Command {
    Command {
        undo: "transfer over one connection".into(),
        ..Command::call(
            format!("transfer over {many} connections at a time  /* iperf3: -P {many} */"),
            Some(
                "an application that can divide its data; each connection takes the same share of the path \
                 as any other"
                    .into(),
            ),
        )
    }
}
