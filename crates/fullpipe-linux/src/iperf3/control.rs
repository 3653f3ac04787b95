//! The client's end of the control connection: one byte that says where the test is, and JSON beside it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use fullpipe_iperf3::frame::{self, Reader};
use fullpipe_iperf3::{Refusal, State, WireError, refusal};
use fullpipe_units::Duration;
use rustix::event::PollFlags;
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};

use super::wait::{Waited, wait};
use crate::error::{Doing, Error};
use crate::poll::Stop;

/// How long the server may take for an answer, as iperf3's: its server waits for all data connections.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a connection may take to be made, where nobody says.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// Why a test is not finished.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Somebody has said to stop.
    Interrupted,
    /// It cannot go on.
    Failed(Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<WireError> for Fault {
    fn from(error: WireError) -> Self {
        Self::Failed(Error::network(error.to_string(), "is this the port of an iperf3 server?"))
    }
}

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
pub struct Place {
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

impl Place {
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

/// The control connection.
pub(crate) struct Control<'a> {
    pub(crate) socket: Socket,
    stop: &'a Stop,
}

impl<'a> Control<'a> {
    pub(crate) fn new(socket: Socket, stop: &'a Stop) -> Result<Self, Error> {
        socket.set_tcp_nodelay(true).doing("set TCP_NODELAY")?;
        socket.set_nonblocking(true).doing("make a socket non-blocking")?;
        Ok(Self { socket, stop })
    }

    /// Waits for the next state, which must be `wanted`.
    pub(crate) fn expect(&mut self, wanted: State) -> Result<(), Fault> {
        match self.state()? {
            state if state == wanted => Ok(()),
            state => Err(Error::network(
                format!("the server said {state:?} where {wanted:?} was due"),
                "is this the port of an iperf3 server?",
            )
            .into()),
        }
    }

    /// The next state; a server that refuses or ends is an error.
    pub(crate) fn state(&mut self) -> Result<State, Fault> {
        let mut byte = [0];
        self.read(&mut byte)?;
        match State::from_byte(byte[0])? {
            State::AccessDenied => Err(Error::network(
                Refusal::BUSY.to_string(),
                "iperf3's server runs one test at a time; fullpipe iperf3 -s runs many",
            )
            .into()),
            State::ServerError => {
                let mut wire = [0; refusal::LENGTH];
                self.read(&mut wire)?;
                let refusal = Refusal::from_wire(wire);
                Err(Error::network(format!("the server has refused: {refusal}"), "").into())
            }
            State::ServerTerminate => Err(Error::network("the server has terminated", "").into()),
            state => Ok(state),
        }
    }

    /// Whether the server says something within `timeout`; as soon as it does.
    pub(crate) fn speaks_within(&self, timeout: Duration) -> Result<bool, Fault> {
        match wait(Some((&self.socket, PollFlags::IN)), self.stop, Some(timeout))
            .doing("wait for the server")?
        {
            Waited::Ready => Ok(true),
            Waited::Late => Ok(false),
            Waited::Stopped => Err(Fault::Interrupted),
        }
    }

    pub(crate) fn say(&mut self, state: State) -> Result<(), Fault> {
        self.write(&[state.byte()])
    }

    pub(crate) fn send_json(&mut self, value: &Value) -> Result<(), Fault> {
        self.write(&frame::encode(value))
    }

    /// Reads a frame of at most `most` bytes.
    pub(crate) fn read_json(&mut self, most: usize) -> Result<Value, Fault> {
        /// Most that is read at once: what is announced is not yet sent.
        const PIECE: usize = 64 << 10;
        let mut reader = Reader::new(most);
        let mut buffer = vec![0; PIECE];
        while let missing @ 1.. = reader.missing()? {
            let piece = &mut buffer[..missing.min(PIECE)];
            let len = self.read_some(piece)?;
            reader.push(&piece[..len]);
        }
        Ok(reader.value()?)
    }

    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> Result<(), Fault> {
        while !bytes.is_empty() {
            match (&self.socket).write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.await_socket(PollFlags::OUT)?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(broken(&error)),
            }
        }
        Ok(())
    }

    fn read(&mut self, mut buffer: &mut [u8]) -> Result<(), Fault> {
        while !buffer.is_empty() {
            let len = self.read_some(buffer)?;
            buffer = &mut buffer[len..];
        }
        Ok(())
    }

    fn read_some(&mut self, buffer: &mut [u8]) -> Result<usize, Fault> {
        loop {
            match (&self.socket).read(buffer) {
                Ok(0) => {
                    let message = "the server has closed the control connection unexpectedly";
                    return Err(Error::network(message, "see what it printed").into());
                }
                Ok(len) => return Ok(len),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.await_socket(PollFlags::IN)?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(broken(&error)),
            }
        }
    }

    fn await_socket(&self, what: PollFlags) -> Result<(), Fault> {
        match wait(Some((&self.socket, what)), self.stop, Some(PATIENCE)).doing("wait for the server")? {
            Waited::Ready => Ok(()),
            Waited::Stopped => Err(Fault::Interrupted),
            Waited::Late => {
                let message = format!("the server has not answered for {PATIENCE}");
                Err(Error::network(message, "is this the port of an iperf3 server?").into())
            }
        }
    }
}

fn broken(error: &io::Error) -> Fault {
    let message = format!("the control connection has broken off: {error}");
    Error::network(message, "see what the server printed").into()
}
