//! Delivery of ICMP errors about the stack's segments to the connections that sent them.

use fullpipe_units::Instant;

use super::{FourTuple, Stack};
use crate::wire::{Checksums, IcmpMessage};

impl Stack {
    /// Handles a packet of a protocol other than TCP. An ICMP error message is passed to the connection whose
    /// segment it quotes (RFC 9293 MUST-54).
    #[cold]
    pub(super) fn handle_icmp(&mut self, now: Instant, bytes: &[u8], checksums: Checksums) {
        match IcmpMessage::parse(bytes, checksums) {
            Ok(error) => {
                let believed = error.is_some_and(|error| self.hear(now, &error));
                let counter =
                    if believed { &mut self.counters.complaints } else { &mut self.counters.ignored };
                *counter += 1;
            }
            Err(_) => self.counters.refused += 1,
        }
    }

    fn hear(&mut self, now: Instant, error: &IcmpMessage) -> bool {
        let tuple = FourTuple { local: error.from, remote: error.to };
        let Some(&slot) = self.by_tuple.get(&tuple) else { return false };
        let Some(entry) = self.slots[slot as usize].1.as_mut() else { return false };
        let believed = entry.connection.on_icmp(now, error.error, error.seq);
        self.touched(slot);
        believed
    }
}
