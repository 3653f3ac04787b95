//! Kernel sockets that connect to the server.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use fullpipe_linux::Readiness;
use fullpipe_linux::bind::choose_port_when_connecting;
use rustix::io::Errno;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::config::Upstream;
use crate::health::Attempt;
use crate::relay::{End, Input, Output};

/// Source addresses for connections to a server on a loopback address. Each address has about 28 000 ports;
/// the addresses 127.1.0.0 to 127.254.255.255 are used in turn.
#[derive(Debug, Default)]
pub(crate) struct Sources(u32);

impl Sources {
    /// Returns the next source address for connections to `server`; `None` lets the kernel choose.
    fn next(&mut self, server: SocketAddr) -> Option<SocketAddr> {
        let SocketAddr::V4(server) = server else { return None };
        if !server.ip().is_loopback() {
            return None;
        }
        let [_, second, third, fourth] = self.0.to_be_bytes();
        self.0 = (self.0 + 1) % (254 << 16);
        Some((Ipv4Addr::new(127, 1 + second, third, fourth), 0).into())
    }
}

/// Progress of a connection attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connecting {
    /// The accept queue of the server's Unix socket is full. The kernel does not wait for room, so the attempt must be
    /// repeated.
    Waits,
    /// The outcome is still unknown.
    Begun,
    /// The server has accepted the connection, or the attempt has failed.
    Ended,
}

/// A connection to the server.
#[derive(Debug)]
pub(crate) struct Server {
    socket: Socket,
    connecting: Connecting,
    /// Whether anything has been written, and whether the kernel sends small writes at once (`TCP_NODELAY`).
    written: bool,
    nodelay: bool,
    /// Whether the direction to the server has ended, but the socket has not been shut down for writing.
    ends: bool,
    /// Readiness that epoll has reported and that reads have not used up.
    readiness: Readiness,
    /// Result of the connection attempt, if a failed write or the end of the attempt has revealed a failure of
    /// the connection. The kernel reports a reset only once; later reads see an orderly end.
    failure: Option<Attempt>,
}

impl Server {
    /// Starts to connect to the server. If `client` is given, the socket is bound to this address, which
    /// requires `CAP_NET_RAW` and a return path.
    pub(crate) fn open(
        upstream: &Upstream,
        sources: &mut Sources,
        client: Option<SocketAddr>,
    ) -> io::Result<Self> {
        let domain = match upstream {
            Upstream::Tcp(address) => Domain::for_address(*address),
            Upstream::Unix(_) => Domain::UNIX,
        };
        let socket = Socket::new(domain, Type::STREAM.nonblocking(), None)?;
        if let Upstream::Tcp(address) = upstream {
            // From here on, the kernel resets the connection if this process dies. After an orderly end, the
            // server would take an incomplete upload for a complete one.
            socket.set_linger(Some(std::time::Duration::ZERO))?;
            match client {
                Some(client) => borrow(&socket, client)?,
                None => {
                    if let Some(source) = sources.next(*address) {
                        choose_port_when_connecting(socket.as_fd())?;
                        socket.bind(&SockAddr::from(source))?;
                    }
                }
            }
        }
        // A read of a Unix socket can return fewer bytes than requested because a message has ended, although
        // more data is available.
        let ends = matches!(upstream, Upstream::Unix(_));
        let readiness = Readiness { ends, ..Readiness::default() };
        // Unix sockets do not delay data as Nagle's algorithm does, so there is nothing to disable.
        let nodelay = matches!(upstream, Upstream::Unix(_));
        let (written, ends, connecting) = (false, false, Connecting::Waits);
        let mut server = Self { socket, connecting, written, nodelay, ends, readiness, failure: None };
        server.connect(upstream)?;
        Ok(server)
    }

    /// Starts the connection attempt, or repeats it after the accept queue of a Unix socket was full.
    pub(crate) fn connect(&mut self, upstream: &Upstream) -> io::Result<()> {
        let address = match upstream {
            Upstream::Tcp(address) => SockAddr::from(*address),
            Upstream::Unix(path) => SockAddr::unix(path)?,
        };
        let is = |error: &io::Error, errno: Errno| error.raw_os_error() == Some(errno.raw_os_error());
        self.connecting = match self.socket.connect(&address) {
            Ok(()) => Connecting::Ended,
            // Over loopback, the handshake has already completed, although the call does not report it.
            Err(error) if is(&error, Errno::INPROGRESS) => Connecting::Begun,
            Err(error) if is(&error, Errno::AGAIN) && matches!(upstream, Upstream::Unix(_)) => {
                Connecting::Waits
            }
            Err(error) => return Err(error),
        };
        Ok(())
    }

    /// Returns whether the accept queue of the server had no room, so that [`Self::connect`] must be called again.
    pub(crate) fn waits(&self) -> bool {
        self.connecting == Connecting::Waits
    }

    /// Records what epoll has reported about the socket.
    pub(crate) fn became(&mut self, change: Readiness) {
        self.readiness.readable |= change.readable;
        self.readiness.ends |= change.ends;
    }

    /// Returns whether the outcome of the connection attempt is still unknown. The first write or an epoll
    /// event reveals it.
    pub(crate) fn is_connecting(&self) -> bool {
        self.connecting != Connecting::Ended
    }

    /// Returns the result of the connection attempt, if a failed write has revealed it.
    pub(crate) fn failure(&self) -> Option<Attempt> {
        self.failure
    }

    /// Asks the kernel whether the server has accepted the connection.
    pub(crate) fn has_connected(&mut self) -> bool {
        if self.is_connecting() && self.socket.peer_addr().is_ok() {
            self.connecting = Connecting::Ended;
        }
        !self.is_connecting()
    }

    /// Ends the direction to the server, if [`End::shutdown`] was called.
    pub(crate) fn send_end(&mut self) {
        if std::mem::take(&mut self.ends) {
            // If the server has reset the connection, the next read reports it.
            let _ = self.socket.shutdown(Shutdown::Write);
        }
    }

    /// Determines the outcome of the connection attempt, once the socket is ready.
    pub(crate) fn finish_connecting(&mut self) -> io::Result<()> {
        match self.socket.take_error()? {
            // The server has accepted the connection, and has reset it since.
            Some(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                (self.connecting, self.failure) = (Connecting::Ended, Some(Attempt::Accepted));
                Ok(())
            }
            Some(error) => Err(error),
            None => {
                self.connecting = Connecting::Ended;
                Ok(())
            }
        }
    }

    /// Closes the connection in an orderly way: the kernel still sends the data that was written, and the end of both
    /// directions.
    pub(crate) fn close(self) {
        // If the option cannot be cleared, the server sees a reset instead of end-of-file, which does not affect
        // the bytes that it has already read.
        let _ = self.socket.set_linger(None);
    }
}

/// Binds a socket to the address of the client.
fn borrow(socket: &Socket, client: SocketAddr) -> io::Result<()> {
    match client {
        SocketAddr::V4(_) => socket.set_ip_transparent_v4(true)?,
        SocketAddr::V6(_) => socket.set_ip_transparent_v6(true)?,
    }
    // An earlier connection from the same port may still be in TIME-WAIT.
    socket.set_reuse_address(true)?;
    // The client's port may be privileged, or a socket of this host may listen on it. The server then sees a
    // different port.
    let bound = socket.bind(&SockAddr::from(client));
    bound.or_else(|_| socket.bind(&SockAddr::from(SocketAddr::new(client.ip(), 0))))
}

impl AsFd for Server {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns whether an error means that the call can be repeated later.
pub(crate) fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Returns the result of a connection attempt that failed with `error`.
pub(crate) fn attempt(error: &io::Error) -> Attempt {
    const UNDECIDED: [Errno; 8] = [
        // The server has not answered any SYN.
        Errno::TIMEDOUT,
        // This process or this host lacks descriptors, memory or ports.
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOBUFS,
        Errno::NOMEM,
        Errno::ADDRNOTAVAIL,
        Errno::ADDRINUSE,
        Errno::INTR,
    ];
    let is_undecided = |code| UNDECIDED.iter().any(|errno| errno.raw_os_error() == code);
    if error.raw_os_error().is_some_and(is_undecided) { Attempt::NoAnswer } else { Attempt::Refused }
}

impl End for Server {
    fn read(&mut self, room: &mut [u8]) -> Input {
        if self.is_connecting() || !self.readiness.readable {
            return Input::Wait;
        }
        match (&self.socket).read(room) {
            Ok(0) if self.failure.is_some() => Input::Reset,
            Ok(0) => Input::End,
            Ok(len) => {
                self.readiness.readable = len == room.len() || self.readiness.ends;
                Input::Bytes(len)
            }
            Err(error) if is_temporary(&error) => {
                self.readiness.readable = false;
                Input::Wait
            }
            Err(_) => Input::Reset,
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Output {
        if self.waits() {
            return Output::Accepted(0);
        }
        if self.written && !self.nodelay {
            // Nagle's algorithm never delays the first write, and many connections have only one write, so the
            // option is set only before the second one.
            self.nodelay = true;
            let _ = self.socket.set_tcp_nodelay(true);
        }
        match (&self.socket).write(bytes) {
            Ok(len) => {
                (self.connecting, self.written) = (Connecting::Ended, true);
                Output::Accepted(len)
            }
            // While the connection is being established, the error is also EAGAIN.
            Err(error) if is_temporary(&error) => Output::Accepted(0),
            Err(error) => {
                // Only a connection that the server has accepted can be reset.
                if error.kind() == io::ErrorKind::ConnectionReset {
                    self.connecting = Connecting::Ended;
                }
                self.failure = Some(attempt(&error));
                Output::Reset
            }
        }
    }

    fn shutdown(&mut self) {
        // If both directions have ended, closing the socket is sufficient.
        self.ends = true;
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    /// Only a refusal shows that the server does not run. If the accept queue of a Unix socket is full, the attempt waits,
    /// and succeeds when it is repeated after the server has accepted a connection.
    #[test]
    fn a_failed_attempt_is_a_refusal_or_no_answer() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("server");
        let open = || Server::open(&Upstream::Unix(path.clone()), &mut Sources::default(), None);
        let failed = |server: io::Result<Server>| attempt(&server.expect_err("a failed attempt"));
        assert_eq!(failed(open()), Attempt::Refused, "no such file");
        let listener = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
        listener.bind(&SockAddr::unix(&path).expect("a path")).expect("a free path");
        assert_eq!(failed(open()), Attempt::Refused, "nothing listens");
        listener.listen(0).expect("a listener");
        let mut queued = Vec::new();
        let mut waiting = loop {
            let server = open().expect("it listens");
            if server.waits() {
                break server;
            }
            queued.push(server);
            assert!(queued.len() < 10, "the queue has room for one connection");
        };
        assert!(waiting.is_connecting() && !waiting.has_connected());
        assert_eq!(waiting.write(b"early"), Output::Accepted(0));
        let upstream = Upstream::Unix(path.clone());
        waiting.connect(&upstream).expect("it listens");
        assert!(waiting.waits());
        let _accepted = listener.accept().expect("a connection");
        waiting.connect(&upstream).expect("it listens");
        assert!(!waiting.is_connecting());
        assert_eq!(waiting.write(b"early"), Output::Accepted(5));
    }

    /// Returns a server that listens on a loopback address.
    fn listening() -> (TcpListener, Upstream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let upstream = Upstream::Tcp(listener.local_addr().expect("an address"));
        (listener, upstream)
    }

    #[test]
    fn sources_rotate_through_the_loopback_network() {
        let mut sources = Sources::default();
        let server: SocketAddr = "127.0.0.1:80".parse().expect("an address");
        let next = |sources: &mut Sources| sources.next(server).map(|source| source.ip().to_string());
        assert_eq!(next(&mut sources).as_deref(), Some("127.1.0.0"));
        assert_eq!(next(&mut sources).as_deref(), Some("127.1.0.1"));
        sources.0 = (254 << 16) - 1;
        assert_eq!(next(&mut sources).as_deref(), Some("127.254.255.255"));
        assert_eq!(next(&mut sources).as_deref(), Some("127.1.0.0"));
        for other in ["192.0.2.1:80", "[::1]:80"] {
            assert_eq!(sources.next(other.parse().expect("an address")), None, "{other}");
        }
    }

    /// Dropping a connection resets it, and `close` ends it in an orderly way.
    #[test]
    fn a_dropped_connection_is_reset() {
        let (listener, upstream) = listening();
        let mut sources = Sources::default();
        for in_order in [true, false] {
            let mut server = Server::open(&upstream, &mut sources, None).expect("it listens");
            let (mut accepted, from) = listener.accept().expect("a connection");
            assert!(from.ip().to_string().starts_with("127.1."), "{from}");
            server.finish_connecting().expect("accepted");
            assert_eq!(server.write(b"upload"), Output::Accepted(6));
            let mut read = [0; 6];
            accepted.read_exact(&mut read).expect("six bytes");
            if in_order {
                server.close();
            } else {
                drop(server);
            }
            let end = accepted.read(&mut read);
            match in_order {
                true => assert_eq!(end.expect("an end"), 0),
                false => assert_eq!(end.expect_err("a reset").kind(), io::ErrorKind::ConnectionReset),
            }
        }
    }

    /// Data that the server sent before a reset is read first, and the reset is not reported as an orderly
    /// end.
    #[test]
    fn a_reset_comes_after_the_bytes() {
        let (listener, upstream) = listening();
        let mut server = Server::open(&upstream, &mut Sources::default(), None).expect("it listens");
        let (mut accepted, _) = listener.accept().expect("a connection");
        server.finish_connecting().expect("accepted");
        accepted.write_all(b"half").expect("room");
        Socket::from(accepted).set_linger(Some(std::time::Duration::ZERO)).expect("a socket");
        // On a busy machine, the kernel delivers the reset some time after the call that sends it.
        let timeout = Timespec { tv_sec: 5, tv_nsec: 0 };
        let reset = poll(&mut [PollFd::new(&server, PollFlags::empty())], Some(&timeout));
        assert_eq!(reset.expect("a socket"), 1);
        let mut read = [0; 16];
        server.became(Readiness { readable: true, ends: true, failed: true });
        assert_eq!(server.read(&mut read), Input::Bytes(4));
        assert_eq!(server.read(&mut read), Input::Reset);
    }

    /// A server that accepts a connection and resets it at once runs, and its bytes are read first, even if the worker
    /// learns of both at the same time.
    #[test]
    fn a_reset_directly_after_the_handshake_is_no_refusal() {
        let (listener, upstream) = listening();
        for writes in [false, true] {
            let mut server = Server::open(&upstream, &mut Sources::default(), None).expect("it listens");
            let (mut accepted, _) = listener.accept().expect("a connection");
            accepted.write_all(b"half").expect("room");
            Socket::from(accepted).set_linger(Some(std::time::Duration::ZERO)).expect("a socket");
            if writes {
                assert_eq!(server.write(b"upload"), Output::Reset);
            } else {
                server.finish_connecting().expect("the server has accepted the connection");
            }
            assert!(!server.is_connecting());
            let mut read = [0; 16];
            server.became(Readiness { readable: true, ends: true, failed: true });
            assert_eq!(server.read(&mut read), Input::Bytes(4));
            assert_eq!(server.read(&mut read), Input::Reset);
        }
    }

    /// A read that returns fewer bytes than requested has emptied the socket, so it is not read again before
    /// epoll reports more data. If epoll has reported the end, the end is read without another report.
    #[test]
    fn a_socket_is_read_after_a_report() {
        let (listener, upstream) = listening();
        for ends in [false, true] {
            let mut server = Server::open(&upstream, &mut Sources::default(), None).expect("it listens");
            assert!(server.has_connected(), "over loopback, the handshake has ended");
            let (mut accepted, _) = listener.accept().expect("a connection");
            accepted.write_all(b"all of it").expect("room");
            drop(accepted);
            let mut read = [0; 16];
            assert_eq!(server.read(&mut read), Input::Wait, "nothing has been reported");
            server.became(Readiness { readable: true, ends, failed: false });
            assert_eq!(server.read(&mut read[..4]), Input::Bytes(4));
            assert_eq!(server.read(&mut read), Input::Bytes(5));
            assert_eq!(server.read(&mut read), if ends { Input::End } else { Input::Wait });
        }
    }
}
