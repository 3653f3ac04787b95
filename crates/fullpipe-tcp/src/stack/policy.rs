//! Policies: connections of some clients get a configuration of their own.

use core::fmt;
use core::str::FromStr;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::{Stack, version_of};
use crate::conn::Config;

/// Addresses that share their first bits, such as `198.51.100.0/24`. A single address is a prefix, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientPrefix {
    address: IpAddr,
    length: u8,
}

impl ClientPrefix {
    /// Returns whether `client` is one of the addresses.
    pub fn contains(&self, client: IpAddr) -> bool {
        client.is_ipv4() == self.address.is_ipv4() && (bits(client) ^ bits(self.address)) & self.mask() == 0
    }

    /// Returns the mask of the shared bits. An address occupies the upper bits of a number.
    fn mask(&self) -> u128 {
        u128::MAX.checked_shl(u128::BITS - u32::from(self.length)).unwrap_or(0)
    }
}

/// Returns an address in the upper bits of a number.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)) << 96,
        IpAddr::V6(v6) => v6.into(),
    }
}

impl fmt::Display for ClientPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// Error for a string that is not a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidPrefix(String);

impl fmt::Display for InvalidPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is not a network such as 198.51.100.0/24", self.0)
    }
}

impl std::error::Error for InvalidPrefix {}

impl FromStr for ClientPrefix {
    type Err = InvalidPrefix;

    /// Parses `ADDRESS/LENGTH` or `ADDRESS`. Bits beyond the length must be zero, because they are usually a mistake.
    fn from_str(text: &str) -> Result<Self, InvalidPrefix> {
        let invalid = || InvalidPrefix(text.into());
        let (address, length) =
            text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let length = length.map_or(Ok(longest), |length| length.parse::<u8>().map_err(|_| invalid()))?;
        let prefix = Self { address, length };
        if length > longest || bits(address) & !prefix.mask() != 0 {
            return Err(invalid());
        }
        Ok(prefix)
    }
}

/// Configuration of the connections from some clients.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Addresses of the clients.
    pub clients: ClientPrefix,
    /// Configuration of their connections.
    pub config: Config,
}

impl Stack {
    /// Sets the policies of the listener on `local`. The first policy that contains the address of a client determines the
    /// configuration of its connections. All other clients have the configuration of the listener.
    ///
    /// The policies must be set before the first connection, because half-open connections are stored without their
    /// configuration.
    pub fn set_policies(&mut self, local: SocketAddr, policies: Vec<Policy>) {
        let Some(listener) = self.listeners.get_mut(&local) else { return };
        let with_version =
            |Policy { clients, config }| (clients, Arc::new(Config { ip: version_of(local), ..config }));
        listener.policies = policies.into_iter().map(with_version).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_contains_its_addresses() {
        let prefix = |text: &str| text.parse::<ClientPrefix>().expect(text);
        let contains = |text: &str, client: &str| prefix(text).contains(client.parse().expect(client));
        for (text, inside, outside) in [
            ("198.51.100.0/24", "198.51.100.255", "198.51.101.0"),
            ("198.51.100.7", "198.51.100.7", "198.51.100.6"),
            ("128.0.0.0/1", "255.255.255.255", "127.255.255.255"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
            ("2001:db8::1", "2001:db8::1", "2001:db8::2"),
            ("0.0.0.0/0", "203.0.113.1", "::"),
            ("::/0", "2001:db8::", "0.0.0.0"),
        ] {
            assert!(contains(text, inside) && !contains(text, outside), "{text}");
        }
        assert_eq!(prefix("198.51.100.7").to_string(), "198.51.100.7/32");
        for text in
            ["", "198.51.100.0/33", "::/129", "198.51.100.7/24", "198.51.100.0/", "web", "1.2.3/8", "::1/-1"]
        {
            let error = text.parse::<ClientPrefix>().expect_err(text).to_string();
            assert_eq!(error, format!("'{text}' is not a network such as 198.51.100.0/24"));
        }
    }
}
