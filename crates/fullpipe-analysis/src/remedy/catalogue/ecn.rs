//! ECN: a managed queue marks packets CE instead of dropping them.

use fullpipe_measurement::classify::Limit;

use crate::remedy::{Change, Command, Commands, Cost, Host, Part, Remedy, Scope, Usage, What};

/// Avoids retransmissions if the bottleneck has a managed queue; has no effect on random loss.
pub(super) static REMEDY: Remedy = Remedy {
    name: "ecn",
    change: Change::Ecn,
    lifts: &[Limit::Cwnd],
    usage: Usage::ByHand,
    title: |_| "ECN on the sender".into(),
    backlog: None,
    parts: &[Part {
        what: What::ECN,
        hosts: &[Host::Sender],
        scope: Scope::Route,
        commands: Commands::Run(|_, _| commands()),
        cost: |_, _| COST,
        plan: None,
    }],
};

impl What {
    /// `tcp_ecn` of the sender.
    pub const ECN: Self = Self("ecn");
}

const COST: Cost = Cost::Words(
    "none known; if the path drops packets with ECN bits, the sender retransmits the SYN \
                 without these bits",
);

fn commands() -> Vec<Command> {
    let requires = Some(
        "a managed queue at the bottleneck (fq_codel, CAKE); a receiver with tcp_ecn 1 or 2, which is the default"
            .to_owned(),
    );
    vec![
        Command::unknown_route("features ecn", requires.clone()),
        Command::save_and_set(Host::Sender, "net.ipv4.tcp_ecn", "1", "tcp_ecn.before", requires),
    ]
}
