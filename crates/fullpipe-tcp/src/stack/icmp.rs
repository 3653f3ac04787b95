//! Delivery of ICMP errors about the stack's segments to the connections that sent them.

use fullpipe_units::Instant;

use super::{FourTuple, MOST_UNCLAIMED, Stack};
use crate::wire::{Checksums, IcmpMessage};

impl Stack {
    /// Handles a packet of a protocol other than TCP. If the packet is an ICMP error message, the function
    /// passes it to the connection whose segment it quotes (RFC 9293 MUST-54).
    #[cold]
    pub(super) fn handle_icmp(&mut self, now: Instant, bytes: &[u8], checksums: Checksums) {
        match IcmpMessage::parse(bytes, checksums) {
            Ok(error) => {
                let believed = error.and_then(|error| self.hear(now, &error));
                if error.is_some() && believed.is_none() && self.unclaimed.len() < MOST_UNCLAIMED {
                    self.unclaimed.push_back(bytes.to_vec());
                }
                let believed = believed.unwrap_or(false);
                let counter =
                    if believed { &mut self.counters.complaints } else { &mut self.counters.ignored };
                *counter += 1;
            }
            Err(_) => self.counters.refused += 1,
        }
    }

    /// Returns the next ICMP error about a segment that no connection of this stack has sent. If the stack
    /// shares its address with another TCP implementation, the driver passes the message on to that
    /// implementation.
    pub fn poll_unclaimed(&mut self) -> Option<Vec<u8>> {
        self.unclaimed.pop_front()
    }

    /// Passes an error to its connection, and returns whether the connection accepts it. Returns `None` if
    /// there is no connection.
    fn hear(&mut self, now: Instant, error: &IcmpMessage) -> Option<bool> {
        let tuple = FourTuple { local: error.from, remote: error.to };
        let slot = *self.by_tuple.get(&tuple)?;
        self.unfold(slot);
        // An error has no effect on a connection in TIME-WAIT.
        let Some(entry) = self.slots[slot as usize].1.entry_mut() else { return Some(false) };
        let believed = entry.connection.on_icmp(now, error.error, error.seq);
        self.touched(slot);
        Some(believed)
    }
}
