//! Opens connections to a relay.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fullpipe_units::Bytes;
use ring::rand::{SecureRandom, SystemRandom};
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::engine::{Buffers, HANDSHAKES};
use crate::error::Error;
use crate::frame::{Fetch, Reply, Request, SocketLimits, VERSION};
use crate::hex::Hex;
use crate::keys::{Fingerprint, Identity};
use crate::socket::{Direction, SocketOptions, cc_of};
use crate::ssh::{self, Dial};
use crate::tls::{self, SAME_VERSION, SeenKey};
use crate::wire::{self, Readiness};
use crate::{locked, span};

/// Time within which a relay must accept a connection: enough for several round trips on the longest paths,
/// and for lost SYNs.
const GREETING: Duration = Duration::from_secs(15);
/// Maximum number of attempts to open a connection. An attempt can fail because the handshakes of other copies displace
/// its handshake.
const ATTEMPTS: u32 = 3;
/// Time within which a relay that ssh has started must accept a TCP connection before the other direction is tried.
const DIRECT: Duration = Duration::from_secs(5);
/// Time within which such a relay must connect to this host.
const REVERSE: Duration = Duration::from_secs(8);
/// Pause before the second attempt; the pause grows with each attempt.
const PAUSE: Duration = Duration::from_millis(200);

/// An open connection.
pub(crate) type Opened = (TlsStream<TcpStream>, Readiness);

/// What the first connection of a copy has shown about its path and the sockets of both hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    /// RTT of the path, as measured by the handshake.
    pub rtt: fullpipe_units::Duration,
    /// Largest sizes of the buffers at both ends.
    pub buffers: Buffers,
    /// Congestion control of the sending host's connection, by its name in the kernel; `None` if it is not known.
    pub cc: Option<String>,
}

/// A relay as seen by a client.
pub(crate) struct Relay {
    host: String,
    port: u16,
    pub(crate) name: String,
    config: Arc<ClientConfig>,
    transfer: Hex<16>,
    own: Fingerprint,
    expected: Option<Fingerprint>,
    seen: SeenKey,
    advice: &'static str,
    /// Files that the relay is to send.
    fetch: Option<Fetch>,
    /// Shortest duration of a TCP handshake so far.
    handshake: watch::Sender<Option<Duration>>,
    /// Permits for handshakes of further connections.
    opening: Arc<Semaphore>,
    /// Options of the sockets.
    sockets: SocketOptions,
    /// Congestion control that the relay is to use.
    cc: Option<String>,
    /// Notes of the relay for the user.
    notes: Mutex<Vec<String>>,
    /// Limits of the relay's sockets, as far as it has reported them.
    limits: Mutex<SocketLimits>,
    /// Congestion control of this host's socket of connection 0.
    own_cc: Mutex<Option<String>>,
    /// Asks the relay to connect to this host; absent if the relay was not started over ssh.
    dial: Option<Dial>,
    /// Listener for connections from the relay, used after this host has failed to connect to the relay.
    listener: OnceCell<TcpListener>,
}

impl Relay {
    /// Describes a relay; `advice` is the hint for the user if it cannot be reached.
    pub(crate) fn new(
        (host, port): (&str, u16),
        identity: &Identity,
        expected: Option<Fingerprint>,
        advice: &'static str,
    ) -> Result<Self, Error> {
        let seen = SeenKey::default();
        let config = tls::client(identity, expected, Arc::clone(&seen))?;
        let mut transfer = [0; 16];
        SystemRandom::new()
            .fill(&mut transfer)
            .map_err(|_| Error::runtime("the system's random number generator failed", ""))?;
        Ok(Self {
            host: host.to_owned(),
            port,
            name: format!("{host} port {port}"),
            config,
            transfer: Hex(transfer),
            own: identity.fingerprint(),
            expected,
            seen,
            advice,
            fetch: None,
            handshake: watch::Sender::default(),
            opening: Arc::new(Semaphore::new(HANDSHAKES as usize)),
            sockets: SocketOptions::default(),
            cc: None,
            notes: Mutex::default(),
            limits: Mutex::default(),
            own_cc: Mutex::default(),
            dial: None,
            listener: OnceCell::new(),
        })
    }

    /// Returns the RTT of the path, as measured by the TCP handshake; `None` before the first handshake.
    pub(crate) fn rtt(&self) -> Option<fullpipe_units::Duration> {
        self.handshake.borrow().map(span)
    }

    /// Waits for the first handshake, and returns the RTT of the path.
    pub(super) async fn first_rtt(&self) -> fullpipe_units::Duration {
        let mut handshake = self.handshake.subscribe();
        loop {
            if let Some(rtt) = self.rtt() {
                return rtt;
            }
            // `self` owns the sender, so the channel cannot close.
            let _ = handshake.changed().await;
        }
    }

    /// Returns the sizes of the buffers that are known so far, if the payload has this direction.
    pub(crate) fn buffers(&self, direction: Direction) -> Buffers {
        let limits = locked(&self.limits);
        let peer = |bytes: Option<u64>| bytes.map(Bytes::new);
        match direction {
            Direction::Sends => {
                Buffers { send: self.sockets.send_buffer(), receive: peer(limits.rcvbuf_bytes) }
            }
            Direction::Receives => {
                Buffers { send: peer(limits.sndbuf_bytes), receive: self.sockets.receive_buffer() }
            }
        }
    }

    /// Returns what the first connection has shown; `None` before its handshake. The limits of the relay are known after
    /// its `welcome`.
    pub(crate) fn reached(&self, direction: Direction) -> Option<Reached> {
        let cc = match direction {
            Direction::Sends => locked(&self.own_cc).clone(),
            Direction::Receives => locked(&self.limits).cc.clone(),
        };
        Some(Reached { rtt: self.rtt()?, buffers: self.buffers(direction), cc })
    }

    /// Opens connection 0, ends the transfer without sending a file, and returns what the connection has shown.
    pub(crate) async fn probe(&self) -> Result<Reached, Error> {
        let (mut tls, _) = self.connect(0).await?;
        let direction = if self.fetch.is_some() { Direction::Receives } else { Direction::Sends };
        let ended = async {
            if direction == Direction::Sends {
                wire::write_message(&mut tls, &Request::Bye).await?;
                tls.shutdown().await?;
            }
            // The relay closes the connection after its last message, which is a `bye` if it was asked for files.
            tokio::io::copy(&mut tls, &mut tokio::io::sink()).await?;
            tls.shutdown().await
        };
        // At this point the keys are accepted and the RTT is known, so the way in which the relay ends the
        // transfer does not matter.
        let _ = timeout(GREETING, ended).await;
        self.reached(direction).ok_or_else(|| self.failed(&io::ErrorKind::NotConnected.into()))
    }

    /// Sets the options of the sockets, and the congestion control that the relay is to use.
    pub(crate) fn with_sockets(self, sockets: SocketOptions, cc: Option<String>) -> Self {
        Self { sockets, cc, ..self }
    }

    /// Lets the relay connect to this host if this host cannot connect to the relay.
    pub(crate) fn with_dial(self, dial: Dial) -> Self {
        Self { dial: Some(dial), ..self }
    }

    /// Returns the notes of the relay for the user; a second call returns none.
    pub(crate) fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut *locked(&self.notes))
    }

    /// Asks the relay to send files.
    pub(crate) fn fetching(self, fetch: Fetch) -> Self {
        Self { fetch: Some(fetch), ..self }
    }

    /// Opens a connection, and waits until the relay has accepted it.
    pub(crate) async fn connect(&self, connection: u32) -> Result<Opened, Error> {
        let mut opened = self.open(connection).await?;
        self.accepted(&mut opened.0).await?;
        Ok(opened)
    }

    /// Opens a further connection of a transfer, and waits until the relay has accepted it.
    pub(crate) async fn join(&self, connection: u32) -> Result<Opened, Error> {
        Ok(self.attempts(connection, true).await?.0)
    }

    /// Opens a further connection of a transfer, and sends its first message. Blocks may follow without waiting for a
    /// reply. Also returns the permit for the handshake.
    pub(super) async fn join_early(
        &self,
        connection: u32,
    ) -> Result<(Opened, Option<OwnedSemaphorePermit>), Error> {
        self.attempts(connection, false).await
    }

    /// Opens a connection as soon as fewer than [`HANDSHAKES`] others are in their handshakes, and tries again after a
    /// network error. `waits` states whether to wait until the relay has accepted the connection. Also returns the permit
    /// for the handshake.
    async fn attempts(
        &self,
        connection: u32,
        waits: bool,
    ) -> Result<(Opened, Option<OwnedSemaphorePermit>), Error> {
        // The semaphore is never closed.
        let permit = Arc::clone(&self.opening).acquire_owned().await.ok();
        let mut attempt = 1;
        loop {
            let opened = match waits {
                true => self.connect(connection).await,
                false => self.open(connection).await,
            };
            match opened {
                Err(error) if error.is_loss() && attempt < ATTEMPTS => {
                    sleep(PAUSE * attempt).await;
                }
                opened => return opened.map(|opened| (opened, permit)),
            }
            attempt += 1;
        }
    }

    /// Opens a connection, and sends its first message. On connection 0, further messages may follow without
    /// waiting for a reply.
    pub(super) async fn open(&self, connection: u32) -> Result<Opened, Error> {
        self.in_time(self.greet(connection)).await
    }

    /// Waits until the relay has accepted a connection.
    pub(super) async fn accepted(&self, reader: &mut (impl AsyncRead + Unpin)) -> Result<(), Error> {
        self.in_time(self.answer(reader)).await
    }

    async fn in_time<T>(&self, step: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        timeout(GREETING, step).await.unwrap_or_else(|_| {
            Err(Error::network(
                format!("{} did not answer within {} s", self.name, GREETING.as_secs()),
                self.advice,
            )
            .silence())
        })
    }

    /// Returns the error for a connection that has failed.
    pub(crate) fn failed(&self, error: &io::Error) -> Error {
        tls::handshake_error(&self.name, error, self.own, self.expected, &self.seen)
    }

    async fn greet(&self, connection: u32) -> Result<Opened, Error> {
        let tcp = self.tcp(connection).await?;
        let failed = |error| self.failed(&error);
        wire::prepare(&tcp).map_err(failed)?;
        let (tcp, readiness) = Readiness::of(tcp).map_err(failed)?;
        if connection == 0 {
            *locked(&self.own_cc) = cc_of(&readiness.socket());
        }
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let begun = Instant::now();
        let mut tls = connector.connect(tls::no_name()?, tcp).await.map_err(failed)?;
        if self.listener.initialized() {
            // The relay has opened the TCP connection, so the TLS handshake is the first round trip that this host can
            // measure.
            self.timed(begun.elapsed());
        }
        let fetch = self.fetch.clone().filter(|_| connection == 0);
        let hello = Request::Hello {
            versions: vec![VERSION],
            transfer: self.transfer,
            connection,
            fetch,
            cc: self.cc.clone(),
        };
        if let Err(error) = wire::write_message(&mut tls, &hello).await {
            // If the relay does not accept the key, it ends the connection after the client has completed its
            // handshake. The relay's reason can then be read, even if the message can no longer be written.
            self.answer(&mut tls).await?;
            return Err(failed(error));
        }
        Ok((tls, readiness))
    }

    /// Opens a TCP connection. If the first attempt fails and ssh has started the relay, the relay connects to this
    /// host from then on.
    async fn tcp(&self, connection: u32) -> Result<TcpStream, Error> {
        if self.dial.is_some() && connection != 0 {
            // Connection 0 finds out which of the two hosts can connect to the other.
            self.first_rtt().await;
        }
        if let (Some(dial), true) = (&self.dial, self.listener.initialized()) {
            return self.dialled(dial).await.map_err(|error| self.unreachable(&error));
        }
        let Some(dial) = self.dial.as_ref().filter(|_| self.rtt().is_none()) else {
            return self.direct().await.map_err(|error| self.unreachable(&error));
        };
        let direct = timeout(DIRECT, self.direct()).await;
        let direct = direct.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let Err(error) = direct else { return direct.map_err(|error| self.unreachable(&error)) };
        match self.dialled(dial).await {
            Ok(tcp) => {
                locked(&self.notes).push(format!(
                    "cannot connect to {} ({error}); that host connects to this one instead",
                    self.name
                ));
                Ok(tcp)
            }
            Err(reverse) => Err(Error::network(
                format!(
                    "this host cannot connect to {} ({error}), nor can that host connect to this one ({reverse})",
                    self.name
                ),
                self.advice,
            )),
        }
    }

    fn unreachable(&self, error: &io::Error) -> Error {
        Error::network(format!("cannot connect to {}: {error}", self.name), self.advice)
    }

    /// Connects to the relay.
    async fn direct(&self) -> io::Result<TcpStream> {
        // The time that the name lookup takes is not part of the RTT.
        let addresses: Vec<SocketAddr> = lookup_host((self.host.as_str(), self.port)).await?.collect();
        let begun = Instant::now();
        let tcp = self.sockets.connect(&addresses).await?;
        self.timed(begun.elapsed());
        Ok(tcp)
    }

    /// Waits for a connection of the relay to this host.
    async fn dialled(&self, dial: &Dial) -> io::Result<TcpStream> {
        let listener =
            self.listener.get_or_try_init(|| async { TcpListener::from_std(ssh::listen()?) }).await?;
        dial.ask(listener.local_addr()?.port())?;
        let (tcp, _) = timeout(REVERSE, listener.accept()).await.map_err(|_| io::ErrorKind::TimedOut)??;
        self.sockets.apply(&tcp)?;
        Ok(tcp)
    }

    /// Records the duration of a handshake.
    fn timed(&self, handshake: Duration) {
        self.handshake.send_modify(|least| {
            *least = Some(least.map_or(handshake, |least| least.min(handshake)));
        });
    }

    async fn answer(&self, reader: &mut (impl AsyncRead + Unpin)) -> Result<(), Error> {
        match wire::next_message::<Reply>(reader).await.map_err(|error| self.failed(&error))? {
            Some(Reply::Welcome { version: VERSION, notes, limits }) => {
                locked(&self.notes).extend(notes);
                if let Some(limits) = limits {
                    *locked(&self.limits) = limits;
                }
                Ok(())
            }
            Some(Reply::Failed { message, hint, temporary }) => {
                let error = Error::network(message, hint);
                Err(if temporary { error.temporary() } else { error.refusal() })
            }
            // This host has offered one version.
            Some(Reply::Welcome { version, .. }) => Err(Error::network(
                format!(
                    "{} uses version {version} of the protocol, and this host version {VERSION}",
                    self.name
                ),
                SAME_VERSION,
            )
            .refusal()),
            Some(_) => {
                Err(Error::network(format!("{} violates the protocol", self.name), SAME_VERSION).refusal())
            }
            None => Err(self.failed(&io::ErrorKind::UnexpectedEof.into())),
        }
    }
}
