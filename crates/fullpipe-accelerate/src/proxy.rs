//! Header of the PROXY protocol version 2, which tells the server the client's address.
//!
//! ```text
//!   0    12 octets     signature
//!   12   0x21 / 0x20   version 2, command PROXY (a client's connection) or LOCAL (a health check)
//!   13   0x11 / 0x21   TCP over IPv4 or IPv6; 0 for LOCAL
//!   14   length        of the addresses: 12 or 36 octets
//!   16   addresses     client, server; then both ports
//! ```
//!
//! Specification: <https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>, section 2.2.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
const VERSION_2: u8 = 0x20;
const LOCAL: u8 = 0;
const PROXY: u8 = 1;
const TCP_OVER_IPV4: u8 = 0x11;
const TCP_OVER_IPV6: u8 = 0x21;

/// Returns the header of the connection from `client` to `server`. If the addresses are of different
/// families, both are written as IPv6.
pub fn header(client: SocketAddr, server: SocketAddr) -> Vec<u8> {
    let mut header = SIGNATURE.to_vec();
    header.push(VERSION_2 | PROXY);
    match (client.ip(), server.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            header.extend([TCP_OVER_IPV4, 0, 12]);
            header.extend(from.octets());
            header.extend(to.octets());
        }
        (from, to) => {
            header.extend([TCP_OVER_IPV6, 0, 36]);
            header.extend(as_ipv6(from).octets());
            header.extend(as_ipv6(to).octets());
        }
    }
    header.extend(client.port().to_be_bytes());
    header.extend(server.port().to_be_bytes());
    header
}

/// Returns the header of a connection without a client, for example a health check. The server must accept
/// such a connection, and uses the connection's own addresses.
pub fn local() -> Vec<u8> {
    let mut header = SIGNATURE.to_vec();
    header.extend([VERSION_2 | LOCAL, 0, 0, 0]);
    header
}

fn as_ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(client: &str, server: &str) -> Vec<u8> {
        header(client.parse().expect("an address"), server.parse().expect("an address"))
    }

    #[test]
    fn the_header_of_an_ipv4_connection() {
        let expected = [
            0x0d, 0x0a, 0x0d, 0x0a, 0x00, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a, 0x21, 0x11, 0x00, 0x0c,
            198, 51, 100, 7, 203, 0, 113, 5, 0x9c, 0x40, 0x01, 0xbb,
        ];
        assert_eq!(of("198.51.100.7:40000", "203.0.113.5:443"), expected);
    }

    #[test]
    fn the_header_of_an_ipv6_connection() {
        let header = of("[2001:db8::7]:40000", "[2001:db8::5]:443");
        assert_eq!(header.len(), 16 + 36);
        assert_eq!(header[12..16], [0x21, 0x21, 0, 36]);
        assert_eq!(header[16..20], [0x20, 0x01, 0x0d, 0xb8]);
        assert_eq!((header[31], header[47]), (7, 5));
        assert_eq!(header[48..], [0x9c, 0x40, 0x01, 0xbb]);
    }

    #[test]
    fn mixed_families_become_ipv6() {
        let header = of("198.51.100.7:40000", "[2001:db8::5]:443");
        assert_eq!((header.len(), header[13]), (52, 0x21));
        assert_eq!(header[26..32], [0xff, 0xff, 198, 51, 100, 7]);
    }

    #[test]
    fn a_health_check_has_no_addresses() {
        assert_eq!(local()[12..], [0x20, 0, 0, 0]);
    }
}
