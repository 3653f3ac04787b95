//! Admission of new connections: whether a listener answers SYNs, holds them, or refuses them.
//!
//! ```text
//!   SYN ──Open────► half-open connection, or a SYN cookie
//!       ──Held────► queue (at most `backlog`) ──Open──► as above
//!       │                                    └─Refused─► reset
//!       ──Refused─► reset, as from a closed port
//! ```
//!
//! A service whose server may be down decides about the server before a client sees a SYN-ACK. Connections
//! that exist, half-open ones included, are not affected.

use std::net::SocketAddr;

use fullpipe_units::Instant;

use super::Stack;

/// Reaction of a listener to a SYN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// SYNs are answered.
    #[default]
    Open,
    /// SYNs wait until the admission changes.
    Held,
    /// SYNs are answered with a reset.
    Refused,
}

impl Stack {
    /// Sets the admission of the listener on `local`, and applies the new value to the SYNs that it holds.
    pub fn set_admission(&mut self, now: Instant, local: SocketAddr, admission: Admission) {
        let Some(listener) = self.listeners.get_mut(&local) else { return };
        listener.admission = admission;
        if admission == Admission::Held {
            return;
        }
        for (tuple, syn) in std::mem::take(&mut listener.held) {
            // The client may have reused its port for a connection that was completed in the meantime.
            if !self.by_tuple.contains_key(&tuple) {
                self.without_connection(now, tuple, &syn, &[]);
            }
        }
    }

    /// Returns the number of SYNs that wait for the admission of the listener on `local`.
    pub fn held_syns(&self, local: SocketAddr) -> usize {
        self.listeners.get(&local).map_or(0, |listener| listener.held.len())
    }
}
