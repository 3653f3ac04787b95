//! MTU of the device through which the packets of a listener's connections leave the host.

use std::net::SocketAddr;
use std::sync::Arc;

use fullpipe_units::Instant;

use super::Stack;

impl Stack {
    /// Sets the MTU of the device of all connections on `local`, in bytes. New connections offer and use
    /// segments of the new size. Existing connections reduce their segment size if necessary, but never
    /// increase it.
    pub fn set_mtu(&mut self, now: Instant, local: SocketAddr, mtu: u64) {
        if let Some(listener) = self.listeners.get_mut(&local) {
            let policies = listener.policies.iter_mut().map(|(_, config)| config);
            for config in policies.chain([&mut listener.config]) {
                Arc::make_mut(config).mtu = mtu;
            }
        }
        for slot in 0..self.slots.len() as u32 {
            let entry = self.slots[slot as usize].1.entry_mut().filter(|entry| entry.tuple.local == local);
            if entry.is_some_and(|entry| entry.connection.limit_mtu(now, mtu)) {
                self.touched(slot);
            }
        }
    }
}
