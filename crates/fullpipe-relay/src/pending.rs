//! Connections whose key has not been accepted yet, limited in number for each address and in total.
//!
//! A host that opens many connections without a key only displaces its own connections. Many hosts together displace the
//! oldest connection of all, whose peer has had the most time for its key.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};

/// Maximum number of pending connections from one address.
const MOST: usize = 8;
/// Maximum number of pending connections in total.
const MOST_IN_TOTAL: usize = 256;

/// Pending connections. Dropping the `T` of a connection ends it.
#[derive(Debug)]
pub(crate) struct Pending<T> {
    next: u64,
    /// Connections by number, so that the oldest is the first, with their networks.
    connections: BTreeMap<u64, (IpAddr, T)>,
    /// Numbers of the connections of each network, oldest first.
    numbers: BTreeMap<IpAddr, VecDeque<u64>>,
}

impl<T> Default for Pending<T> {
    fn default() -> Self {
        Self { next: 0, connections: BTreeMap::new(), numbers: BTreeMap::new() }
    }
}

impl<T> Pending<T> {
    /// Adds a connection and returns its number. If its address or the relay then has too many pending connections, the
    /// oldest of them is dropped.
    pub(crate) fn enter(&mut self, address: IpAddr, connection: T) -> u64 {
        let (number, network) = (self.next, network(address));
        self.next += 1;
        self.connections.insert(number, (network, connection));
        let numbers = self.numbers.entry(network).or_default();
        numbers.push_back(number);
        let oldest = match (numbers.front(), self.connections.first_key_value()) {
            (Some(oldest), _) if numbers.len() > MOST => Some(*oldest),
            (_, Some((oldest, _))) if self.connections.len() > MOST_IN_TOTAL => Some(*oldest),
            _ => None,
        };
        if let Some(oldest) = oldest {
            self.leave(oldest);
        }
        number
    }

    /// Removes a connection whose key has been accepted, or that has ended.
    pub(crate) fn leave(&mut self, number: u64) {
        let Some((network, _)) = self.connections.remove(&number) else { return };
        let Some(numbers) = self.numbers.get_mut(&network) else { return };
        numbers.retain(|other| *other != number);
        if numbers.is_empty() {
            self.numbers.remove(&network);
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
        pending.leave(numbers[3]);
        pending.enter(one, Rc::clone(&connections[8]));
        assert!(alive(0) && !alive(3) && alive(8));
        pending.enter(one, Rc::clone(&connections[3]));
        assert!(!alive(0) && alive(1) && alive(9), "the other address keeps its connection");
        (0..20).for_each(|number| pending.leave(number));
        assert!(pending.connections.is_empty() && pending.numbers.is_empty());
    }

    #[test]
    fn the_oldest_of_all_pending_connections_gives_way() {
        let mut pending = Pending::default();
        let connections: Vec<Rc<()>> = (0..MOST_IN_TOTAL + 40).map(|_| Rc::new(())).collect();
        let address = |n: usize| IpAddr::V4(Ipv4Addr::new(192, 0, 2, (n / 4) as u8));
        for (n, connection) in connections.iter().enumerate() {
            pending.enter(address(n), Rc::clone(connection));
            assert!(pending.connections.len() <= MOST_IN_TOTAL);
        }
        let alive = connections.iter().map(|connection| Rc::strong_count(connection) == 2);
        assert!(alive.enumerate().all(|(n, is_alive)| is_alive == (n >= 40)));
        assert_eq!(pending.numbers.len(), MOST_IN_TOTAL / 4);
    }

    #[test]
    fn the_addresses_of_an_ipv6_network_count_together() {
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        assert_eq!(network(address("2001:db8::1:2:3:4")), network(address("2001:db8::5")));
        assert_ne!(network(address("2001:db8::5")), network(address("2001:db8:0:1::5")));
        assert_eq!(network(address("::ffff:192.0.2.1")), address("192.0.2.1"));
    }
}
