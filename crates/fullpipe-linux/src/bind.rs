//! Choice of the local port of a socket.

use std::io;
use std::os::fd::BorrowedFd;

use crate::sys;

/// Makes the kernel choose the local port when the socket connects, if the socket is bound to an address without a
/// port (`IP_BIND_ADDRESS_NO_PORT`). Connections to different destinations can then use the same port.
///
/// # Errors
/// Returns an error if the descriptor is not an IPv4 or IPv6 socket.
pub fn choose_port_when_connecting(socket: BorrowedFd<'_>) -> io::Result<()> {
    let enabled: libc::c_int = 1;
    sys::set_socket_option(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, enabled)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr, TcpListener};
    use std::os::fd::AsFd;

    use socket2::{Domain, Socket, Type};

    use super::*;

    #[test]
    fn the_port_is_chosen_late() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let server = listener.local_addr().expect("an address");
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        choose_port_when_connecting(socket.as_fd()).expect("a socket of IPv4");
        let source = SocketAddr::from((Ipv4Addr::new(127, 1, 2, 3), 0));
        socket.bind(&source.into()).expect("a loopback address");
        let port = || socket.local_addr().expect("an address").as_socket().map(|address| address.port());
        assert_eq!(port(), Some(0));
        socket.connect(&server.into()).expect("it listens");
        assert_ne!(port(), Some(0));
    }
}
