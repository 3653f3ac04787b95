//! The UDP port of the iperf3 server, with a connected socket for each stream.
//!
//! ```text
//!   hello ─► expected from this address? ─► new socket on the same port, connected to the client ─► answer ─► its test
//!                └─ no: dropped without an answer
//! ```
//!
//! The kernel delivers a datagram to the socket with the most specific match. A socket that is connected to a
//! client therefore receives the client's datagrams in preference to the other sockets on the port. Between
//! bind and connect, this socket may receive the hello of another client; the hello is then handled as if it
//! had arrived on the port's first socket.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use fullpipe_iperf3::datagram;
use socket2::{Domain, Protocol, Socket, Type};

use super::cannot_listen;
use crate::error::Error;

/// Size of the receive buffer for hellos, in bytes. A hello has four bytes, so a datagram that fills the
/// buffer is not a hello.
const HELLO_MOST: usize = 8;
/// Maximum number of hellos that are handled before other events.
const AT_ONCE: usize = 64;

/// The UDP socket on which the server receives hellos.
#[derive(Debug)]
pub(super) struct Hello {
    socket: UdpSocket,
    address: SocketAddr,
    only_v6: bool,
}

impl Hello {
    pub(super) fn new(address: SocketAddr, only_v6: bool) -> Result<Self, Error> {
        let socket = bound(address, only_v6).map_err(|error| cannot_listen(address, &error))?;
        Ok(Self { socket, address, only_v6 })
    }

    /// Handles all hellos that have arrived. A hello from an `expected` address is answered from a new
    /// connected socket, and that socket is passed to `taker`.
    pub(super) fn answer(&self, expected: impl Fn(IpAddr) -> bool, taker: impl Fn(IpAddr, Socket)) {
        let mut waiting = Vec::new();
        for _ in 0..AT_ONCE {
            match heard(&self.socket) {
                Ok(hello) => waiting.extend(hello),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // This error results from an ICMP error about a client that has disappeared; the kernel reports each
                // such error once.
                Err(_) => {}
            }
        }
        while let Some((peer, answer)) = waiting.pop() {
            let address = peer.ip().to_canonical();
            if !expected(address) {
                continue;
            }
            let Ok(socket) = bound(self.address, self.only_v6) else { continue };
            if socket.connect(peer).is_err() {
                continue;
            }
            // Datagrams that arrived before the socket was connected may belong to other clients.
            while let Ok(hello) = heard(&socket) {
                waiting.extend(hello.filter(|&(other, _)| other != peer));
            }
            if socket.send(&answer).is_ok() {
                taker(address, socket.into());
            }
        }
    }
}

impl AsFd for Hello {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Receives the next datagram. If the datagram is a hello, returns the peer's address and the reply to the
/// hello; otherwise returns `None`.
fn heard(socket: &UdpSocket) -> io::Result<Option<(SocketAddr, [u8; 4])>> {
    let mut buffer = [0; HELLO_MOST];
    let (len, peer) = socket.recv_from(&mut buffer)?;
    Ok(datagram::answer(&buffer[..len]).map(|answer| (peer, answer)))
}

fn bound(address: SocketAddr, only_v6: bool) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(only_v6)?;
    }
    // All UDP sockets of the server share one port.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::time::Duration;

    /// Each client has a separate UDP socket, which receives only the datagrams of that client.
    #[test]
    fn clients_on_one_port_do_not_hear_each_other() {
        let clock = crate::Clock::starting_in(fullpipe_units::Duration::ZERO);
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut hello = Hello::new(any, false).expect("a port");
        hello.address = hello.socket.local_addr().expect("bound");
        let client = || {
            let socket = UdpSocket::bind(any).expect("a port");
            socket.connect(hello.address).expect("an address");
            socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
            socket
        };
        let taken: RefCell<Vec<UdpSocket>> = RefCell::default();
        let answer = || hello.answer(|_| true, |_, socket| taken.borrow_mut().push(socket.into()));
        let clients = [client(), client(), client()];
        let mut buffer = [0; 16];
        for client in &clients {
            client.send(&datagram::HELLO).expect("room");
        }
        // On the loopback device, a datagram is usually delivered before `send` returns, but on a busy
        // machine it may arrive slightly later.
        let until = clock.now() + fullpipe_units::Duration::from_secs(60);
        while taken.borrow().len() < clients.len() && clock.now() < until {
            answer();
        }
        for client in &clients {
            let len = client.recv(&mut buffer).expect("an answer");
            assert_eq!(buffer[..len], datagram::ANSWER);
        }
        assert_eq!(taken.borrow().len(), 3);
        for (number, client) in clients.iter().enumerate() {
            client.send(&[number as u8; 3]).expect("room");
        }
        for socket in taken.borrow().iter() {
            socket.set_nonblocking(false).expect("a flag");
            socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
            let len = socket.recv(&mut buffer).expect("its data");
            socket.set_nonblocking(true).expect("a flag");
            let peer = socket.peer_addr().expect("connected");
            let of = clients.iter().position(|client| client.local_addr().is_ok_and(|at| at == peer));
            assert_eq!(buffer[..len], [of.expect("one of them") as u8; 3]);
            assert!(socket.recv(&mut buffer).is_err(), "and nothing else");
        }
        // The server answers neither a datagram that is not a hello, nor a hello from an unexpected
        // client.
        let stranger = client();
        stranger.send(b"GET /").expect("room");
        answer();
        stranger.send(&datagram::HELLO).expect("room");
        hello.answer(|_| false, |_, _| panic!("not expected"));
        stranger.set_nonblocking(true).expect("a flag");
        assert!(stranger.recv(&mut buffer).is_err());
    }
}
