//! Keep-alive probes as packets, which another process can send if this one dies.

use fullpipe_units::Instant;

use super::{ConnId, Stack};
use crate::wire::Headers;

impl Stack {
    /// Returns the packet of a keep-alive probe with the present numbers of the connection `id`
    /// ([`Connection::probe`](crate::Connection::probe)). The packet consists of its headers.
    pub fn probe_packet(&self, now: Instant, id: ConnId) -> Option<Headers> {
        let entry = self.entry(id)?;
        let segment = entry.connection.probe(now)?;
        Headers::between(&segment, entry.tuple.local, entry.tuple.remote)
    }
}
