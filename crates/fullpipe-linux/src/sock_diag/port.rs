//! Sockets on one local port, in every state: listening, half-open, connected, closing and TIME-WAIT.

use std::net::SocketAddr;

use super::{
    ATTRIBUTE, HEADER, INET_DIAG_REQ_BYTECODE, MESSAGE, NLM_F_DUMP, SOCKID, SockDiag, TCPDIAG_GETSOCK,
    bytecode, close, id_of, refused, u16_at,
};
use crate::error::Error;

/// All TCP states from ESTABLISHED (1) to NEW-SYN-RECV (12), except CLOSE (7). Half-open connections are
/// reported as SYN-RECV, but the kernel keeps them as NEW-SYN-RECV.
const ALL_STATES: u32 = 0x1ffe & !(1 << 7);
/// State LISTEN.
const LISTEN: u8 = 10;
/// Attribute that states whether an IPv6 socket accepts only IPv6.
const INET_DIAG_SKV6ONLY: u16 = 11;

/// A TCP socket on a local port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortSocket {
    /// Address and port on this host; an unspecified address if the socket listens on all addresses.
    pub local: SocketAddr,
    /// Address and port of the peer; unspecified for a listening socket.
    pub remote: SocketAddr,
    /// Whether the socket listens for connections.
    pub listens: bool,
    /// Whether an IPv6 socket on all addresses also accepts IPv4 connections.
    pub accepts_ipv4: bool,
}

impl PortSocket {
    /// Returns whether the socket accepts connections to `to`.
    pub fn accepts(&self, to: SocketAddr) -> bool {
        let address = self.local.ip();
        let any = address.is_unspecified() && (address.is_ipv4() == to.is_ipv4() || self.accepts_ipv4);
        self.listens && self.local.port() == to.port() && (any || address == to.ip())
    }
}

impl SockDiag {
    /// Returns the sockets whose local port is `port`, in all states.
    ///
    /// # Errors
    /// Returns the same errors as [`SockDiag::open`].
    pub fn at_port(&mut self, port: u16) -> Result<Vec<PortSocket>, Error> {
        self.socket.send(&request(port), 0).map_err(refused)?;
        let mut seen = Vec::new();
        self.answers(1, &mut |bytes| seen.extend(parse(bytes))).map_err(refused)?;
        Ok(seen)
    }
}

/// Builds a request for all sockets on a local port, in both address families (`struct inet_diag_req`).
fn request(port: u16) -> Vec<u8> {
    let filter = bytecode::of_local_port(port);
    let mut bytes = vec![0; HEADER];
    bytes.extend([libc::AF_UNSPEC as u8, 0, 0, 0]);
    bytes.extend([0; SOCKID]);
    bytes.extend(ALL_STATES.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(((ATTRIBUTE + filter.len()) as u16).to_ne_bytes());
    bytes.extend(INET_DIAG_REQ_BYTECODE.to_ne_bytes());
    bytes.extend(filter);
    close(&mut bytes, 0, TCPDIAG_GETSOCK, NLM_F_DUMP);
    bytes
}

fn parse(bytes: &[u8]) -> Option<PortSocket> {
    let fixed = bytes.get(..MESSAGE)?;
    let id = id_of(fixed)?;
    let mut accepts_ipv4 = id.ipv6;
    let mut rest = &bytes[MESSAGE..];
    while let (Some(length), Some(kind)) = (u16_at(rest, 0), u16_at(rest, 2)) {
        let length = usize::from(length);
        let Some(content) = rest.get(ATTRIBUTE..length) else { break };
        if kind == INET_DIAG_SKV6ONLY && content.first().is_some_and(|only| *only != 0) {
            accepts_ipv4 = false;
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    // If a listening IPv6 socket listens on all addresses, its address must not be converted to IPv4.
    Some(PortSocket { local: id.local, remote: id.remote, listens: fixed[1] == LISTEN, accepts_ipv4 })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// The listening socket and its end of the connection are reported, but the port of the other end is not.
    #[test]
    fn the_sockets_of_a_port_are_listed() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let local = listener.local_addr().expect("an address");
        let client = TcpStream::connect(local).expect("it listens");
        let (server, peer) = listener.accept().expect("a connection");
        let sockets = SockDiag::open().expect("sock_diag").at_port(local.port()).expect("an answer");
        assert!(sockets.iter().any(|socket| socket.accepts(local)), "{sockets:?}");
        let connected: Vec<&PortSocket> = sockets.iter().filter(|socket| !socket.listens).collect();
        assert_eq!(connected.len(), 1, "{sockets:?}");
        assert_eq!((connected[0].local, connected[0].remote), (local, peer));
        drop((client, server));
    }

    #[test]
    fn a_listener_accepts_its_address_and_family() {
        let socket = |local: &str, accepts_ipv4| PortSocket {
            local: local.parse().expect("an address"),
            remote: "0.0.0.0:0".parse().expect("an address"),
            listens: true,
            accepts_ipv4,
        };
        let to: SocketAddr = "192.0.2.1:443".parse().expect("an address");
        for (local, accepts_ipv4, accepts) in [
            ("192.0.2.1:443", false, true),
            ("192.0.2.2:443", false, false),
            ("0.0.0.0:443", false, true),
            ("0.0.0.0:80", false, false),
            ("[::]:443", true, true),
            ("[::]:443", false, false),
        ] {
            assert_eq!(socket(local, accepts_ipv4).accepts(to), accepts, "{local}");
        }
        assert!(!PortSocket { listens: false, ..socket("192.0.2.1:443", false) }.accepts(to));
    }
}
