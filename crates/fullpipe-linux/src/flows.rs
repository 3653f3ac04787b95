//! Kernel sockets at both ends: one thread sends for all flows, one receives.
//!
//! The applications are those of the simulator: a sender that always has more, or a number of bytes, and a receiver
//! that reads at once. Neither touches payload: the receiver discards what arrived in the kernel.

mod receiver;
mod sender;
mod sockets;

use std::sync::OnceLock;

use fullpipe_lab::scenario::Scenario;
use fullpipe_units::Instant;
use socket2::Socket;

pub(crate) use fullpipe_lab::capture::{FIRST_PORT, LISTEN_PORT};
pub(crate) use receiver::receive;
pub(crate) use sender::send;
pub(crate) use sockets::{connecting, impose, listening};

/// Both ends of a flow, shared by those who move its bytes and those who watch.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) sender: Socket,
    /// Once the connection was accepted.
    pub(crate) receiver: OnceLock<Socket>,
    /// When the receiver had got everything, for a flow of limited size.
    pub(crate) finished: OnceLock<Instant>,
}

impl Flow {
    /// Sockets for every flow of `scenario`, unconnected: to be made inside the sender's namespace.
    pub(crate) fn all(scenario: &Scenario) -> Result<Vec<Self>, crate::Error> {
        let numbered = scenario.flows.iter().enumerate();
        numbered
            .map(|(number, spec)| {
                let sender = connecting(&scenario.host, spec, FIRST_PORT + number as u16)?;
                Ok(Self { sender, receiver: OnceLock::new(), finished: OnceLock::new() })
            })
            .collect()
    }
}
