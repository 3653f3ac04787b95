//! Admission of new connections: whether a listener answers SYNs, holds them, or refuses them.
//!
//! ```text
//!   SYN ──Open────► half-open connection, or a SYN cookie
//!       ──Held────► queue (at most `backlog`) ──Open──► as above
//!       │                                    ├─Refused─► reset
//!       │                                    └─ drop_held_syns ─► no reply: the client retransmits its SYN
//!       ──Refused─► reset, as from a closed port
//! ```
//!
//! A service can check whether its server is up before a client receives a SYN-ACK. The admission does not
//! affect existing connections, including half-open connections.

use std::net::SocketAddr;

use fullpipe_units::Instant;

use super::Stack;

/// Reaction of a listener to a SYN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// The listener answers SYNs.
    #[default]
    Open,
    /// The listener keeps SYNs until the admission changes.
    Held,
    /// The listener answers SYNs with a reset.
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
            match self.by_tuple.get(&tuple).copied() {
                None => self.without_connection(now, tuple, &syn, &[]),
                Some(slot) if self.reopened_by(slot, &syn).is_some() => self.deliver(now, slot, &syn, &[]),
                // In the meantime, the client has reused its port for a connection whose handshake has
                // completed.
                Some(_) => {}
            }
        }
    }

    /// Drops the SYNs that the listener on `local` holds, as a full accept queue does. The clients retransmit
    /// them.
    pub fn drop_held_syns(&mut self, local: SocketAddr) {
        if let Some(listener) = self.listeners.get_mut(&local) {
            self.counters.accept_overflows += listener.held.len() as u64;
            listener.held.clear();
        }
    }

    /// Returns the number of SYNs that the listener on `local` keeps until its admission changes.
    pub fn held_syns(&self, local: SocketAddr) -> usize {
        self.listeners.get(&local).map_or(0, |listener| listener.held.len())
    }
}
