//! Where a server is, and connections to it.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use fullpipe_iperf3::PORT;
use fullpipe_units::Duration;
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::{Doing, Error};

/// How long a connection may take to be made, where nobody says.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// Which addresses of a name to use (`-4`, `-6`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// In the order of the resolver.
    #[default]
    Any,
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Where a server is, and how to get there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Which of its addresses to use.
    pub family: Family,
    /// Address of this end, if it matters (`-B`).
    pub bind: Option<IpAddr>,
    /// How long a connection may take to be made.
    pub connect_timeout: Option<Duration>,
}

impl ServerAddress {
    /// The server that `HOST`, `HOST:PORT`, `ADDRESS`, `[ADDRESS]` or `[ADDRESS]:PORT` means, on iperf3's port where none is named.
    ///
    /// # Errors
    /// Why it means none, in a few words.
    pub fn named(text: &str) -> Result<Self, &'static str> {
        let number = |port: &str| port.parse::<u16>().map_err(|_| "the text after the colon is not a port");
        let (host, port) = match (text.strip_prefix('['), text.rsplit_once(':')) {
            (Some(bracketed), _) => match bracketed.split_once(']').ok_or("a bracket is open")? {
                (host, "") => (host, PORT),
                (host, port) => (host, number(port.trim_start_matches(':'))?),
            },
            // An address of IPv6 has more colons than one.
            (None, Some((host, port))) if !host.contains(':') => (host, number(port)?),
            _ => (text, PORT),
        };
        if host.is_empty() || host.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err("there is no host");
        }
        Ok(Self { host: host.into(), port, family: Family::Any, bind: None, connect_timeout: None })
    }

    /// A connection to the server; `prepare` is called with each socket before it connects. The first address that answers
    /// is taken.
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
        Err(last.unwrap_or_else(|| self.nowhere("it has no address of that family")))
    }

    fn nowhere(&self, why: impl std::fmt::Display) -> Error {
        let hint = "check the name; -4 and -6 restrict its addresses";
        Error::network(format!("cannot find {}: {why}", self.host), hint)
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

    /// A connection to `address`, which is one of this place's.
    pub(crate) fn connect_to(
        &self,
        address: SocketAddr,
        prepare: impl Fn(&Socket, Domain) -> Result<(), Error>,
    ) -> Result<Socket, Error> {
        let domain = Domain::for_address(address);
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP)).doing("make a socket")?;
        prepare(&socket, domain)?;
        self.bind(&socket)?;
        let patience = self.connect_timeout.unwrap_or(CONNECT_PATIENCE);
        let patience = std::time::Duration::from_nanos(patience.as_nanos());
        socket.connect_timeout(&address.into(), patience).map_err(|error| {
            let hint = match error.kind() {
                ErrorKind::ConnectionRefused => "start a server there: iperf3 -s, or fullpipe iperf3 -s",
                ErrorKind::TimedOut => "a firewall may drop what goes to this port; -p chooses another",
                _ => "check address and route",
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

    /// Binds `socket` to this end's address, if one was asked for.
    pub(crate) fn bind(&self, socket: &Socket) -> Result<(), Error> {
        let Some(own) = self.bind else { return Ok(()) };
        socket.bind(&SocketAddr::new(own, 0).into()).map_err(|error| {
            Error::settings(format!("cannot bind to {own}: {error}"), "give -B an address of this host")
        })
    }
}
