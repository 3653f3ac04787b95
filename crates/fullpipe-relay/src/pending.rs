//! Connections whose key has not been accepted yet, bounded by address.
//!
//! A host that opens many connections without a key only displaces its own.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

/// Maximum number of pending connections of an address.
const MOST: usize = 8;

/// Pending connections of each address, oldest first. Dropping the `T` of a connection ends it.
#[derive(Debug)]
pub(crate) struct Pending<T> {
    next: u64,
    connections: BTreeMap<IpAddr, VecDeque<(u64, T)>>,
}

impl<T> Default for Pending<T> {
    fn default() -> Self {
        Self { next: 0, connections: BTreeMap::new() }
    }
}

impl<T> Pending<T> {
    /// Adds a connection and returns its number. The oldest connection of an address with too many is dropped.
    pub(crate) fn enter(&mut self, address: IpAddr, connection: T) -> u64 {
        let number = self.next;
        self.next += 1;
        let queue = self.connections.entry(address).or_default();
        queue.push_back((number, connection));
        if queue.len() > MOST {
            queue.pop_front();
        }
        number
    }

    /// Removes a connection that has been accepted, or has ended.
    pub(crate) fn leave(&mut self, address: IpAddr, number: u64) {
        let Some(queue) = self.connections.get_mut(&address) else { return };
        queue.retain(|(other, _)| *other != number);
        if queue.is_empty() {
            self.connections.remove(&address);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn the_oldest_pending_connection_of_an_address_gives_way() {
        let (one, two) = (IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)));
        let mut pending = Pending::default();
        let connections: Vec<Rc<()>> = (0..10).map(|_| Rc::new(())).collect();
        let alive = |n: usize| Rc::strong_count(&connections[n]) == 2;
        pending.enter(two, Rc::clone(&connections[9]));
        let numbers: Vec<u64> = connections[..8].iter().map(|c| pending.enter(one, Rc::clone(c))).collect();
        assert!((0..8).all(alive));
        pending.leave(one, numbers[3]);
        pending.enter(one, Rc::clone(&connections[8]));
        assert!(alive(0) && !alive(3) && alive(8));
        pending.enter(one, Rc::clone(&connections[3]));
        assert!(!alive(0) && alive(1) && alive(9), "the other address keeps its connection");
        for number in 0..20 {
            pending.leave(one, number);
            pending.leave(two, number);
        }
        assert!(pending.connections.is_empty());
    }
}
