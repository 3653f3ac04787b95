//! Keep-alive probes as packets, which another process can send if this one terminates.

use fullpipe_units::Instant;

use super::{ConnId, Stack};
use crate::wire::Headers;

impl Stack {
    /// Returns the packet of a keep-alive probe for the current state of the connection `id`
    /// ([`Connection::probe`](crate::Connection::probe)). The packet has no payload.
    pub fn probe_packet(&self, now: Instant, id: ConnId) -> Option<Headers> {
        let entry = self.entry(id)?;
        let segment = entry.connection.probe(now)?;
        Headers::between(&segment, entry.tuple.local, entry.tuple.remote)
    }
}
