//! iperf3 server: one port, many concurrent tests.
//!
//! ```text
//!   accept ─► pending ── cookie ─► known ─────────────► data connection ─► its test
//!                │          └────► unknown ─ room? ───► control connection ─► a test: a thread, plus one per stream
//!                │                              └─ no ► ACCESS_DENIED
//!                └─ silent for 10 s, or evicted when full ─► closed
//!   UDP hello ─► test that expects one from that address ─► separate connected socket
//! ```
//!
//! iperf3's own server runs one test at a time. Here concurrent tests share the port: a TCP connection
//! begins with the cookie of its test, and a UDP stream with a hello from the address of its test's
//! client.
//!
//! | file | concept |
//! |---|---|
//! | `pending` | connections that have not yet sent the cookie of their test |
//! | `register` | running tests, and admission of new ones |
//! | `hello` | the UDP port, and a connected socket per stream |
//! | `session` | the protocol of one test |
//! | `control` | its control connection, with a time limit for every read |

mod hello;
mod pending;
mod register;
mod session;

use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use fullpipe_iperf3::document::{End, Interval, Start};
use fullpipe_iperf3::results::ServerOutput;
use fullpipe_iperf3::{Cookie, Params, State};
use fullpipe_lab::trace::Row;
use fullpipe_units::{Duration, Rate};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Protocol, Socket, Type};

use crate::clock::Clock;
use crate::error::{Doing, Error};
use crate::poll::{Alarm, Bell, Poll, Stop};

use super::Family;
use hello::Hello;
use pending::Pending;
use register::Register;

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address to listen on; all addresses if `None`.
    pub address: Option<IpAddr>,
    /// Address family to listen on, if no address is given.
    pub family: Family,
    /// TCP and UDP port.
    pub port: u16,
    /// Whether to exit after one test.
    pub one_off: bool,
    /// Interval between reports; zero for none.
    pub interval: Duration,
    /// Limits for clients' tests.
    pub limits: Limits,
}

/// Limits for clients' tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of concurrent tests.
    pub tests: usize,
    /// Maximum number of concurrent tests from one address.
    pub per_address: usize,
    /// Longest test duration, including omitted time.
    pub duration: Option<Duration>,
    /// Highest rate of a test, summed over its streams.
    pub rate: Option<Rate>,
    /// Time over which that rate is averaged.
    pub rate_over: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { tests: 16, per_address: 8, duration: None, rate: None, rate_over: Duration::from_secs(5) }
    }
}

/// Identification of a server's test in its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Test number, counted from 1 since the server started.
    pub number: u64,
    /// Number of running tests when it began, including this one.
    pub running: usize,
    /// Address of the client's control connection.
    pub peer: SocketAddr,
}

/// Event of a server.
#[derive(Debug)]
pub enum ServerNotice {
    /// The server is listening for the next test.
    Listening {
        /// Port that it listens on.
        port: u16,
        /// Number of the next test.
        number: u64,
    },
    /// A client was rejected.
    TurnedAway {
        /// Address of the client.
        peer: IpAddr,
        /// Reason for the rejection.
        why: String,
    },
    /// Event of a test.
    Test(Tag, ServerEvent),
}

/// Events of a test, in the order in which they occur.
#[derive(Debug)]
pub enum ServerEvent {
    /// A client's test was accepted, with these parameters.
    Accepted(Box<Params>),
    /// All streams are connected, and data flows.
    Started(Box<Start>),
    /// Sample of a sending stream.
    Row {
        /// Stream number in JSON documents.
        socket: i32,
        /// Sampled state of the socket.
        row: Box<Row>,
        /// Whether it belongs to the warm-up.
        omitted: bool,
    },
    /// Interval report.
    Interval(Box<Interval>),
    /// The test is over.
    Ended(Box<End>),
    /// The test failed: one line without a final period.
    Failed(String),
    /// Last event of the test.
    Left,
}

/// Receiver of a server's events, called by several tests concurrently.
pub trait Audience: Sync {
    /// Handles an event.
    fn hear(&self, said: ServerNotice);
    /// Returns the output of a test so far, for a client that requests it (`--get-server-output`).
    fn printed(&self, of: &Tag) -> Option<ServerOutput>;
    /// Returns the samples of a test's sending sockets as trace lines, for a client that requests them.
    fn trace(&self, of: &Tag) -> Option<String>;
}

/// A data connection for a waiting test.
#[derive(Debug)]
enum IncomingStream {
    /// TCP connection that sent the cookie of the test.
    Connection(Socket),
    /// Connected UDP socket whose hello was answered.
    Datagrams(Socket),
}

type Tests = Mutex<Register<SyncSender<IncomingStream>>>;

/// Descriptors reserved for the process and its listeners.
const DESCRIPTORS_ASIDE: usize = 64;
/// Descriptors per test besides its streams: control connection, stop signal and so on.
const DESCRIPTORS_A_TEST: usize = 4;
/// Limit on the streams of all tests together, even with enough descriptors: each stream is a thread.
const STREAMS_MOST: usize = 1_024;
/// Connections that may wait for `accept`.
const BACKLOG: i32 = 1_024;

const STOPPING: u64 = 0;
const TIMER: u64 = 1;
const TCP: u64 = 2;
const UDP: u64 = 3;
const BELL: u64 = 4;
/// First event number of pending connections.
const FIRST_STRANGER: u64 = 16;

/// Serves until `stop`, or until one test has ended if so configured.
///
/// # Errors
/// Fails if the port cannot be bound.
pub fn serve(settings: &Settings, stop: &Stop, audience: &dyn Audience) -> Result<(), Error> {
    let server = Server::new(settings, stop, audience)?;
    thread::scope(|scope| server.run(scope))
}

struct Server<'a> {
    settings: &'a Settings,
    audience: &'a dyn Audience,
    stop: &'a Stop,
    clock: Clock,
    listener: Socket,
    hello: Hello,
    tests: Tests,
    /// Rung by each test that ends.
    bell: Bell,
}

impl<'a> Server<'a> {
    fn new(settings: &'a Settings, stop: &'a Stop, audience: &'a dyn Audience) -> Result<Self, Error> {
        let address = settings.listen_address();
        let listener = listener(address, settings.only_v6())?;
        let port = bound_port(&listener)?;
        let address = SocketAddr::new(address.ip(), port);
        let hello = Hello::new(address, settings.only_v6())?;
        let streams_most = room_for_streams(settings.limits.tests)?;
        Ok(Self {
            settings,
            audience,
            stop,
            clock: Clock::starting_in(Duration::ZERO),
            listener,
            hello,
            tests: Mutex::new(Register::new(settings.limits, streams_most)),
            bell: Bell::new()?,
        })
    }

    fn run<'s>(&'s self, scope: &'s thread::Scope<'s, '_>) -> Result<(), Error> {
        let mut poll = Poll::new()?;
        let alarm = Alarm::new()?;
        poll.watch(self.stop.as_fd(), STOPPING)?;
        poll.watch(alarm.as_fd(), TIMER)?;
        poll.watch(self.listener.as_fd(), TCP)?;
        poll.watch(self.hello.as_fd(), UDP)?;
        poll.watch(self.bell.as_fd(), BELL)?;
        let port = bound_port(&self.listener)?;
        let mut pending: Pending<Socket> = Pending::new();
        let (mut next, mut number) = (FIRST_STRANGER, 1);
        let mut happened = Vec::new();
        self.audience.hear(ServerNotice::Listening { port, number });
        loop {
            alarm.set(&self.clock, pending.next_due())?;
            poll.wait(&mut happened)?;
            for &event in &happened {
                match event {
                    STOPPING => return Ok(()),
                    TIMER => {
                        // Closed without a message: the peer has not identified itself.
                        while pending.overdue(self.clock.now()).is_some() {}
                    }
                    TCP => self.accept(&poll, &mut pending, &mut next)?,
                    UDP => self.answer_hellos(),
                    BELL => {
                        self.bell.quiet();
                        if self.settings.one_off && number > 1 && self.lock().is_empty() {
                            return Ok(());
                        }
                        if self.lock().is_empty() {
                            self.audience.hear(ServerNotice::Listening { port, number });
                        }
                    }
                    stranger => {
                        let Some((socket, peer, cookie)) = self.listen_to(&mut pending, stranger) else {
                            continue;
                        };
                        poll.forget(socket.as_fd())?;
                        if self.lock().knows(cookie) {
                            self.hand_over(socket, cookie);
                        } else if self.begin(scope, socket, peer, cookie, number) {
                            number += 1;
                        }
                    }
                }
            }
        }
    }

    /// Accepts all waiting connections.
    fn accept(&self, poll: &Poll, pending: &mut Pending<Socket>, next: &mut u64) -> Result<(), Error> {
        loop {
            let (socket, peer) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // The client has disconnected, or resources are short; neither ends the server.
                Err(error) if is_passing(&error) => return Ok(()),
                Err(error) => return Err(Error::system("accept a connection", error)),
            };
            let Some(peer) = peer.as_socket().map(|peer| peer.ip().to_canonical()) else { continue };
            if socket.set_nonblocking(true).is_err() {
                continue;
            }
            poll.watch(socket.as_fd(), *next)?;
            // Closing a descriptor also removes it from the epoll set.
            drop(pending.came(*next, socket, peer, self.clock.now()));
            *next += 1;
        }
    }

    /// Reads from a pending connection; returns its socket once its cookie is complete.
    fn listen_to(&self, pending: &mut Pending<Socket>, number: u64) -> Option<(Socket, SocketAddr, Cookie)> {
        let stranger = pending.get(number)?;
        let (mut socket, unsaid) = stranger.unsaid();
        let said = match socket.read(unsaid) {
            Ok(0) => {
                pending.remove(number);
                return None;
            }
            Ok(read) => stranger.said(read).map(Cookie::from_wire),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => None,
            Err(_) => {
                pending.remove(number);
                return None;
            }
        };
        let cookie = said?;
        let stranger = pending.remove(number)?;
        match cookie {
            Ok(cookie) => {
                let peer = stranger.connection.peer_addr().ok()?.as_socket()?;
                Some((stranger.connection, SocketAddr::new(peer.ip().to_canonical(), peer.port()), cookie))
            }
            Err(error) => {
                self.audience.hear(ServerNotice::TurnedAway { peer: stranger.peer, why: error.to_string() });
                None
            }
        }
    }

    fn hand_over(&self, socket: Socket, cookie: Cookie) {
        let tests = self.lock();
        match tests.connection(cookie) {
            // A connection that is no longer wanted is closed.
            Some(test) => drop(test.try_send(IncomingStream::Connection(socket))),
            None => deny(&socket),
        }
    }

    /// Starts a test if there is room; returns whether it did.
    fn begin<'s>(
        &'s self,
        scope: &'s thread::Scope<'s, '_>,
        socket: Socket,
        peer: SocketAddr,
        cookie: Cookie,
        number: u64,
    ) -> bool {
        let mut tests = self.lock();
        // With `one_off`, later tests are rejected even while the server waits for the first one to
        // end.
        if self.settings.one_off && number > 1 {
            deny(&socket);
            return false;
        }
        if let Err(full) = tests.admit(cookie, peer.ip()) {
            deny(&socket);
            let why = format!("busy: {full}");
            self.audience.hear(ServerNotice::TurnedAway { peer: peer.ip(), why });
            return false;
        }
        let tag = Tag { number, running: tests.len(), peer };
        drop(tests);
        let session = move || {
            session::run(self, socket, cookie, tag);
            self.audience.hear(ServerNotice::Test(tag, ServerEvent::Left));
            self.bell.ring();
        };
        let spawned = thread::Builder::new().name(format!("test {number}")).spawn_scoped(scope, session);
        if let Err(error) = spawned {
            // The socket was dropped with the closure: the client sees the connection close.
            self.lock().leave(cookie);
            self.audience.hear(ServerNotice::TurnedAway {
                peer: peer.ip(),
                why: format!("no thread for it: {error}"),
            });
            return false;
        }
        true
    }

    /// Gives each client that sent a UDP hello a separate connected socket.
    fn answer_hellos(&self) {
        let expected = |peer| self.lock().hello(peer).is_some();
        self.hello.answer(expected, |peer, socket| {
            if let Some(test) = self.lock().hello(peer) {
                drop(test.try_send(IncomingStream::Datagrams(socket)));
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, Register<SyncSender<IncomingStream>>> {
        // A panicking test leaves the register consistent: each change is one call.
        self.tests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Settings {
    fn listen_address(&self) -> SocketAddr {
        let any = match self.family {
            Family::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            // Without IPv6 there is no such address to listen on.
            Family::Any if !has_ipv6() => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Family::Any | Family::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        SocketAddr::new(self.address.unwrap_or(any), self.port)
    }

    fn only_v6(&self) -> bool {
        self.family == Family::V6
    }
}

fn has_ipv6() -> bool {
    Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP)).is_ok()
}

fn listener(address: SocketAddr, only_v6: bool) -> Result<Socket, Error> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))
        .doing("make a socket")?;
    if address.is_ipv6() {
        socket.set_only_v6(only_v6).doing("set IPV6_V6ONLY")?;
    }
    // Connections of earlier tests may still be in TIME-WAIT.
    socket.set_reuse_address(true).doing("set SO_REUSEADDR")?;
    socket.set_nonblocking(true).doing("make a socket non-blocking")?;
    socket.bind(&address.into()).map_err(|error| cannot_listen(address, &error))?;
    socket.listen(BACKLOG).map_err(|error| cannot_listen(address, &error))?;
    Ok(socket)
}

fn cannot_listen(address: SocketAddr, error: &io::Error) -> Error {
    let hint = match error.kind() {
        ErrorKind::AddrInUse => "-p chooses another port; ss -ltnup shows who has this one",
        ErrorKind::AddrNotAvailable => "-B takes an address of this host",
        ErrorKind::PermissionDenied => "ports below 1024 need rights: -p chooses another",
        _ => "check -B and -p",
    };
    Error::settings(format!("cannot listen on {address}: {error}"), hint)
}

fn bound_port(socket: &Socket) -> Result<u16, Error> {
    let address = socket.local_addr().doing("ask a socket for its port")?;
    Ok(address.as_socket().map_or(0, |address| address.port()))
}

/// Reports that the server is full, as iperf3's server does.
fn deny(socket: &Socket) {
    // One byte fits the send buffer of a new connection; an error means that the client has
    // disconnected.
    let _ = socket.send(&[State::AccessDenied.byte()]);
}

fn is_passing(error: &io::Error) -> bool {
    const PASSING: [i32; 6] =
        [libc::ECONNABORTED, libc::EINTR, libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    error.raw_os_error().is_some_and(|error| PASSING.contains(&error))
}

/// Raises the descriptor limit as far as allowed; returns the number of streams that it allows.
fn room_for_streams(tests: usize) -> Result<usize, Error> {
    let limit = getrlimit(Resource::Nofile);
    if let Some(most) = limit.maximum {
        // On failure the current limit may still be enough.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..limit });
    }
    let descriptors = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |most| most as usize);
    let aside = DESCRIPTORS_ASIDE + pending::MOST + DESCRIPTORS_A_TEST.saturating_mul(tests);
    match descriptors.saturating_sub(aside).min(STREAMS_MOST) {
        0 => Err(Error::settings(
            format!("{descriptors} open files are too few for {tests} tests"),
            "raise the limit (ulimit -n), or allow fewer with --max-tests",
        )),
        streams => Ok(streams),
    }
}
