//! Live connections in a table that outlives the process: what another process needs to end them.
//!
//! ```text
//!   SYN ──► set, before the SYN-ACK leaves ── each segment ──► set ── ended, or TIME-WAIT ──► clear
//! ```
//!
//! A client considers its connection established when the SYN-ACK arrives, and may then wait for data without
//! sending anything. The entry therefore exists before the SYN-ACK leaves. It contains the numbers of a
//! keep-alive probe: the sequence and ACK number change when a segment arrives, and the timestamp must not be
//! older than that of the last segment sent.

use std::fmt;
use std::net::SocketAddr;

use fullpipe_units::Instant;

use super::{ConnId, FourTuple, Stack};
use crate::conn::Probe;

/// Table of live connections. The stack writes an entry with each segment, so `set` must be cheap.
pub trait LiveTable: fmt::Debug + Send {
    /// Stores the peer of the connection in `slot` and the numbers of its keep-alive probe. A slot is reused
    /// after [`Self::clear`].
    fn set(&mut self, slot: u32, peer: SocketAddr, probe: &Probe);

    /// Removes the connection in `slot`.
    fn clear(&mut self, slot: u32);
}

impl Stack {
    /// Sets the table of live connections; `None` leaves the entries of the present table as they are. A slot is
    /// below the sum of the maximum numbers of connections and of connections in TIME-WAIT, and low slots are
    /// used first.
    pub fn set_live_table(&mut self, table: Option<Box<dyn LiveTable>>) {
        self.live = table;
    }

    /// Returns the identifiers of all connections that are established and have not ended, with their
    /// addresses and the probe for `now`. This includes released connections whose last data is in flight.
    pub fn live_connections(&self, now: Instant) -> impl Iterator<Item = (ConnId, FourTuple, Probe)> + '_ {
        self.slots.iter().filter_map(move |(_, place)| {
            let entry = place.entry()?;
            Some((entry.id, entry.tuple, entry.connection.probe(now)?))
        })
    }

    /// Writes the connection in `slot` to the table.
    #[inline]
    pub(super) fn keep_live(&mut self, now: Instant, slot: u32) {
        let Self { live: Some(live), slots, .. } = self else { return };
        if let Some(entry) = slots[slot as usize].1.entry()
            && let Some(probe) = entry.connection.probe(now)
        {
            live.set(slot, entry.tuple.remote, &probe);
        }
    }

    /// Removes the connection in `slot` from the table.
    pub(super) fn clear_live(&mut self, slot: u32) {
        if let Some(live) = &mut self.live {
            live.clear(slot);
        }
    }
}
