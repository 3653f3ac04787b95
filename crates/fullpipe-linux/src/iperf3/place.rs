//! Addresses of iperf3 servers, and connections to them.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use fullpipe_iperf3::PORT;
use fullpipe_units::Duration;
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::{Doing, Error};

/// Default timeout for connecting to a server.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// Address family to which the name of a server is resolved (`-4`, `-6`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// IPv4 or IPv6, in the order that the resolver returns.
    #[default]
    Any,
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

/// Address of an iperf3 server, with the options for connecting to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    /// Host name or IP address of the server.
    pub host: String,
    /// TCP and UDP port of the server.
    pub port: u16,
    /// Address family of the connection to the server.
    pub family: Family,
    /// Local address to which the client binds (`-B`); `None` for any address.
    pub bind: Option<IpAddr>,
    /// Timeout for connecting to the server; `None` for the default of 10 s.
    pub connect_timeout: Option<Duration>,
}

impl ServerAddress {
    /// Parses a server address of the form `HOST`, `HOST:PORT`, `ADDRESS`, `[ADDRESS]` or `[ADDRESS]:PORT`.
    /// If the port is missing, iperf3's default port applies.
    ///
    /// # Errors
    /// Returns a short description of the syntax error in `text`.
    pub fn named(text: &str) -> Result<Self, &'static str> {
        let number = |port: &str| port.parse::<u16>().map_err(|_| "the text after the colon is not a port");
        let (host, port) = match (text.strip_prefix('['), text.rsplit_once(':')) {
            (Some(bracketed), _) => {
                match bracketed.split_once(']').ok_or("the closing bracket is missing")? {
                    (host, "") => (host, PORT),
                    (host, port) => (host, number(port.trim_start_matches(':'))?),
                }
            }
            // If the text contains another colon, it is an IPv6 address without a port.
            (None, Some((host, port))) if !host.contains(':') => (host, number(port)?),
            _ => (text, PORT),
        };
        if host.is_empty() || host.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err("the host is missing");
        }
        Ok(Self { host: host.into(), port, family: Family::Any, bind: None, connect_timeout: None })
    }

    /// Connects to the first address of the server that answers. `prepare` is called with each socket before
    /// the socket connects.
    pub(crate) fn connect(
        &self,
        prepare: impl Fn(&Socket, Domain) -> Result<(), Error>,
    ) -> Result<(Socket, SocketAddr), Error> {
        let mut last = None;
        for address in self.addresses()? {
            match self.connect_to(address, &prepare) {
                Ok(socket) => return Ok((socket, address)),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| self.nowhere("the host has no address of that family")))
    }

    fn nowhere(&self, why: impl std::fmt::Display) -> Error {
        let hint = "check the name; -4 and -6 restrict its addresses";
        Error::network(format!("cannot resolve {}: {why}", self.host), hint)
    }

    fn addresses(&self) -> Result<Vec<SocketAddr>, Error> {
        let all = (self.host.as_str(), self.port).to_socket_addrs().map_err(|error| self.nowhere(error))?;
        let wanted = |address: &SocketAddr| {
            let fits = match self.family {
                Family::Any => true,
                Family::V4 => address.is_ipv4(),
                Family::V6 => address.is_ipv6(),
            };
            fits && self.bind.is_none_or(|own| own.is_ipv4() == address.is_ipv4())
        };
        Ok(all.filter(wanted).collect())
    }

    /// Connects to `address`, which is one of the addresses of the server.
    pub(crate) fn connect_to(
        &self,
        address: SocketAddr,
        prepare: impl Fn(&Socket, Domain) -> Result<(), Error>,
    ) -> Result<Socket, Error> {
        let domain = Domain::for_address(address);
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP)).doing("create a socket")?;
        prepare(&socket, domain)?;
        self.bind(&socket)?;
        let patience = self.connect_timeout.unwrap_or(CONNECT_PATIENCE);
        let patience = std::time::Duration::from_nanos(patience.as_nanos());
        socket.connect_timeout(&address.into(), patience).map_err(|error| {
            let hint = match error.kind() {
                ErrorKind::ConnectionRefused => {
                    "start a server on that host: iperf3 -s, or fullpipe iperf3 -s"
                }
                ErrorKind::TimedOut => {
                    "check whether a firewall drops packets to this port, or pass another port with -p"
                }
                _ => "check the address and the route",
            };
            let what = match error.kind() {
                ErrorKind::ConnectionRefused => "connection refused".to_owned(),
                ErrorKind::TimedOut => "no answer".to_owned(),
                _ => error.to_string(),
            };
            Error::network(format!("cannot connect to {} port {}: {what}", self.host, self.port), hint)
        })?;
        Ok(socket)
    }

    /// Binds `socket` to the local address, if the user has set one.
    pub(crate) fn bind(&self, socket: &Socket) -> Result<(), Error> {
        let Some(own) = self.bind else { return Ok(()) };
        socket.bind(&SocketAddr::new(own, 0).into()).map_err(|error| {
            Error::settings(format!("cannot bind to {own}: {error}"), "pass an address of this host with -B")
        })
    }
}
