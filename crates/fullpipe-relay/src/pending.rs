//! Connections whose key has not been accepted yet, limited in number for each address.
//!
//! A host that opens many connections without a key only displaces its own connections.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};

/// Maximum number of pending connections from one address.
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
    /// Adds a connection and returns its number. If its address then has too many pending connections, the
    /// oldest of them is dropped.
    pub(crate) fn enter(&mut self, address: IpAddr, connection: T) -> u64 {
        let number = self.next;
        self.next += 1;
        let queue = self.connections.entry(network(address)).or_default();
        queue.push_back((number, connection));
        if queue.len() > MOST {
            queue.pop_front();
        }
        number
    }

    /// Removes a connection whose key has been accepted, or that has ended.
    pub(crate) fn leave(&mut self, address: IpAddr, number: u64) {
        let address = network(address);
        let Some(queue) = self.connections.get_mut(&address) else { return };
        queue.retain(|(other, _)| *other != number);
        if queue.is_empty() {
            self.connections.remove(&address);
        }
    }
}

/// Returns the IPv4 address, or the first 64 bits of the IPv6 address, because a host can choose the other
/// bits.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
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

    #[test]
    fn the_addresses_of_an_ipv6_network_count_together() {
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        assert_eq!(network(address("2001:db8::1:2:3:4")), network(address("2001:db8::5")));
        assert_ne!(network(address("2001:db8::5")), network(address("2001:db8:0:1::5")));
        assert_eq!(network(address("::ffff:192.0.2.1")), address("192.0.2.1"));
    }
}
