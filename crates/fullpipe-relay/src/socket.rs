//! Options of a copy's sockets: the congestion control, and buffers of a fixed size.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use fullpipe_units::Bytes;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::{TcpSocket, TcpStream};

use crate::engine::Budget;
use crate::error::Error;
use crate::frame::SocketLimits;
use crate::memory::kernel_limit;

/// Largest name of a congestion control in bytes (`TCP_CA_NAME_MAX`, with its final zero, is 16).
const MOST_NAME: usize = 15;

/// Options of a copy's sockets that override the kernel's defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SocketOptions {
    /// Kernel name of the congestion control.
    pub(crate) cc: Option<String>,
    /// Fixed size of the send buffer. Without it, the kernel chooses the size.
    pub(crate) sndbuf: Option<Bytes>,
    /// Fixed size of the receive buffer. Without it, the kernel chooses the size.
    pub(crate) rcvbuf: Option<Bytes>,
}

/// Direction in which a socket carries the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Sends,
    Receives,
}

/// Returns the size to which the buffer of each socket is fixed if `connections` share the memory `budget`; `None` if
/// the kernel's choice does not exceed the share, or if the kernel does not permit a buffer of this size. Without a
/// fixed size, the memory samples enforce the budget.
pub(crate) fn fixed_buffer(budget: Bytes, connections: u32, direction: Direction) -> Option<Bytes> {
    let (largest, permitted) = match direction {
        Direction::Sends => ("/proc/sys/net/ipv4/tcp_wmem", "/proc/sys/net/core/wmem_max"),
        Direction::Receives => ("/proc/sys/net/ipv4/tcp_rmem", "/proc/sys/net/core/rmem_max"),
    };
    let (largest, permitted) = (kernel_limit(largest, 2)?, kernel_limit(permitted, 0)?);
    fixed(Budget::share(budget, connections), largest, permitted)
}

/// Returns the buffer size for a share. The kernel would choose a size of up to `largest`; it permits programs to set
/// up to `permitted`, and doubles the value that they set.
fn fixed(share: Bytes, largest: Bytes, permitted: Bytes) -> Option<Bytes> {
    (share < largest && share <= permitted.mul_div(2, 1)).then_some(share)
}

/// Returns whether `name` can be the name of a congestion control.
pub(crate) fn is_cc(name: &str) -> bool {
    (1..=MOST_NAME).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Sets the congestion control of a socket.
pub(crate) fn set_cc(socket: &impl AsFd, name: &str) -> io::Result<()> {
    SockRef::from(socket).set_tcp_congestion(name.as_bytes())
}

/// Returns the congestion control of a socket. A route may set another one than the default of the kernel.
pub(crate) fn cc_of(socket: &impl AsFd) -> Option<String> {
    let name = SockRef::from(socket).tcp_congestion().ok()?;
    let name = name.split(|byte| *byte == 0).next()?;
    String::from_utf8(name.to_vec()).ok().filter(|name| is_cc(name))
}

/// Returns the error for a congestion control that the kernel of `host` refuses.
pub(crate) fn cc_error(host: &str, name: &str, error: &io::Error) -> Error {
    if error.kind() == io::ErrorKind::PermissionDenied {
        return Error::runtime(
            format!("on {host}, only root may use the congestion control {name}"),
            format!("add {name} to net.ipv4.tcp_allowed_congestion_control there"),
        );
    }
    let known = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let known = known.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(", ");
    let hint = match known.is_empty() {
        true => format!("load it with modprobe tcp_{name}"),
        false => format!("load it with modprobe tcp_{name}, or choose one of {known}"),
    };
    Error::runtime(format!("the kernel of {host} has no congestion control {name}"), hint)
}

impl SocketOptions {
    /// Returns an error if this kernel does not have the congestion control.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let Some(name) = &self.cc else { return Ok(()) };
        if !is_cc(name) {
            return Err(Error::usage(
                format!("'{name}' is not the name of a congestion control"),
                "list the names with sysctl net.ipv4.tcp_available_congestion_control",
            ));
        }
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP));
        let set = socket.and_then(|socket| set_cc(&socket, name));
        set.map_err(|error| cc_error("this host", name, &error))
    }

    /// Returns the largest size of a send buffer, if the kernel reports it.
    pub(crate) fn send_buffer(&self) -> Option<Bytes> {
        self.sndbuf.or_else(|| kernel_limit("/proc/sys/net/ipv4/tcp_wmem", 2))
    }

    /// Returns the largest size of a receive buffer, if the kernel reports it.
    pub(crate) fn receive_buffer(&self) -> Option<Bytes> {
        self.rcvbuf.or_else(|| kernel_limit("/proc/sys/net/ipv4/tcp_rmem", 2))
    }

    /// Returns the limits that a relay reports to its client. `socket` is that of connection 0.
    pub(crate) fn limits(&self, socket: &impl AsFd) -> SocketLimits {
        SocketLimits {
            sndbuf_bytes: self.send_buffer().map(Bytes::get),
            rcvbuf_bytes: self.receive_buffer().map(Bytes::get),
            cc: cc_of(socket),
        }
    }

    /// Sets the options of a socket. The kernel doubles the sizes of buffers, so half of each size is set.
    pub(crate) fn apply(&self, socket: &impl AsFd) -> io::Result<()> {
        let set = SockRef::from(socket);
        if let Some(size) = self.sndbuf {
            set.set_send_buffer_size(half(size))?;
        }
        if let Some(size) = self.rcvbuf {
            set.set_recv_buffer_size(half(size))?;
        }
        match &self.cc {
            Some(name) => set_cc(socket, name),
            None => Ok(()),
        }
    }

    /// Connects to the first of `addresses` that answers. The options are set before connecting, because the size of
    /// the receive buffer determines the window scale, and slow start depends on the congestion control.
    pub(crate) async fn connect(&self, addresses: &[SocketAddr]) -> io::Result<TcpStream> {
        let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in addresses {
            let socket = match address {
                SocketAddr::V4(_) => TcpSocket::new_v4(),
                SocketAddr::V6(_) => TcpSocket::new_v6(),
            };
            let connected = match socket.and_then(|socket| self.apply(&socket).map(|()| socket)) {
                Ok(socket) => socket.connect(*address).await,
                Err(error) => Err(error),
            };
            match connected {
                Ok(stream) => return Ok(stream),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }
}

/// Returns half of a size as an integer of the type that the socket options require.
fn half(size: Bytes) -> usize {
    usize::try_from(size.get() / 2).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_congestion_control_is_one_line_and_a_hint() {
        let options = |cc: &str| SocketOptions { cc: Some(cc.into()), ..SocketOptions::default() };
        assert_eq!(options("cubic").check().or(options("reno").check()), Ok(()));
        let error = options("no-such-cc").check().expect_err("unknown");
        assert_eq!(error.message, "the kernel of this host has no congestion control no-such-cc");
        assert!(error.hint.contains("or choose one of ") && error.hint.contains("reno"), "{}", error.hint);
        for wrong in ["", "a b", "sixteen-letters-", "ü"] {
            assert!(options(wrong).check().expect_err(wrong).message.contains("is not the name"), "{wrong}");
        }
    }

    #[test]
    fn a_buffer_is_fixed_only_if_its_share_is_smaller_and_permitted() {
        let mib = Bytes::from_mib;
        assert_eq!(fixed(mib(2), mib(4), mib(8)), Some(mib(2)));
        assert_eq!(fixed(mib(4), mib(4), mib(8)), None, "the kernel's choice fits");
        assert_eq!(fixed(mib(2), mib(4), Bytes::from_kib(208)), None, "416 KiB would be too small a buffer");
    }

    #[test]
    fn the_kernel_has_the_size_that_was_asked_for() {
        let size = Bytes::from_kib(128);
        let options = SocketOptions { cc: Some("reno".into()), sndbuf: Some(size), rcvbuf: Some(size) };
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        options.apply(&socket).expect("permitted");
        let sizes = (socket.send_buffer_size().expect("a size"), socket.recv_buffer_size().expect("a size"));
        assert_eq!(sizes, (128 << 10, 128 << 10));
        let (size, cc) = (Some(128 << 10), Some("reno".into()));
        assert_eq!(options.limits(&socket), SocketLimits { sndbuf_bytes: size, rcvbuf_bytes: size, cc });
        let of_kernel = SocketOptions::default().limits(&socket);
        assert!(of_kernel.sndbuf_bytes > size && of_kernel.rcvbuf_bytes > size, "{of_kernel:?}");
    }
}
