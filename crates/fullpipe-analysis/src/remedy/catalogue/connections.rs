//! Several connections for one transfer.

use crate::classify::Limit;
use crate::remedy::{Change, Command, Commands, Cost, Host, Part, Remedy, Scope, Usage, What};

/// Splits the transfer. Each connection has its own windows, buffers and losses, and a per-flow rate cap
/// applies to each connection separately.
pub(super) static REMEDY: Remedy = Remedy {
    name: "connections",
    change: Change::Connections(MANY),
    lifts: &[Limit::Cwnd, Limit::Rwnd, Limit::Sndbuf, Limit::Cap, Limit::Policer],
    usage: Usage::ByHand,
    title: |_| format!("{MANY} connections"),
    backlog: None,
    parts: &[Part {
        what: What::CONNECTIONS,
        hosts: &[Host::Sender],
        scope: Scope::Socket,
        commands: Commands::Run(|_, _| vec![command()]),
        cost: |_, _| COST,
        plan: None,
    }],
};

impl What {
    /// Number of connections for one transfer.
    pub const CONNECTIONS: Self = Self("connections");
}

/// Number of connections that shows whether splitting helps. A larger number takes more capacity from other
/// traffic.
const MANY: u64 = 10;
const COST: Cost = Cost::Words("memory and a start for each connection; other traffic on the path gets less");

fn command() -> Command {
    Command {
        undo: "carry the transfer on one connection".into(),
        ..Command::call(
            format!("carry the transfer on {MANY} connections at a time  /* iperf3: -P {MANY} */"),
            Some(
                "an application that can divide its data; each connection takes a share like any other"
                    .into(),
            ),
        )
    }
}
