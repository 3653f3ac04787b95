//! An iperf3 server that runs many concurrent tests on one port.
//!
//! ```text
//!   accept ─► pending ── cookie ─► known ─────────────► data connection ─► its test
//!                │          └────► unknown ─ room? ───► control connection ─► a test: a thread, plus one per stream
//!                │                              └─ no ► ACCESS_DENIED
//!                └─ silent for 10 s, or evicted when full ─► closed
//!   UDP hello ─► test that expects one from that address ─► separate connected socket
//! ```
//!
//! iperf3's own server runs one test at a time, whereas on this server concurrent tests share one port. The first bytes
//! on a TCP connection are the cookie of its test. A UDP stream starts with a hello, which is matched to a test by the
//! client's address.
//!
//! | file | concept |
//! |---|---|
//! | `pending` | connections that have not sent the cookie of their test yet |
//! | `register` | running tests, and admission of new ones |
//! | `hello` | the UDP port, and a connected socket for each stream |
//! | `session` | the server side of the protocol for one test |
//! | `control` | the control connection of a test, with a time limit for every read |

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

/// Settings of an iperf3 server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// IP address on which the server listens; `None` for all addresses.
    pub address: Option<IpAddr>,
    /// Address family on which the server listens if `address` is `None`.
    pub family: Family,
    /// TCP and UDP port on which the server listens.
    pub port: u16,
    /// Whether the server exits after one test.
    pub one_off: bool,
    /// Interval between reports; zero means no interval reports.
    pub interval: Duration,
    /// Limits that the server imposes on the tests of its clients.
    pub limits: Limits,
}

/// Limits that a server imposes on the tests of its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of tests that run concurrently.
    pub tests: usize,
    /// Maximum number of concurrent tests from one client address.
    pub per_address: usize,
    /// Maximum duration of a test, including the omitted period; `None` for no limit.
    pub duration: Option<Duration>,
    /// Maximum rate of a test, as a sum over its streams; `None` for no limit.
    pub rate: Option<Rate>,
    /// Period over which the rate of a test is averaged.
    pub rate_over: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { tests: 16, per_address: 8, duration: None, rate: None, rate_over: Duration::from_secs(5) }
    }
}

/// Identifies the test to which a server event belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Number of the test; tests are counted from 1 since the start of the server.
    pub number: u64,
    /// Number of tests, including this one, that were running when this test began.
    pub running: usize,
    /// Address and port of the client's control connection.
    pub peer: SocketAddr,
}

/// An event that a server reports.
#[derive(Debug)]
pub enum ServerNotice {
    /// The server is waiting for the next test.
    Listening {
        /// Port on which the server listens.
        port: u16,
        /// Number of the next test that the server will run.
        number: u64,
    },
    /// The server rejected a client.
    TurnedAway {
        /// Address of the rejected client.
        peer: IpAddr,
        /// Reason for rejecting the client.
        why: String,
    },
    /// An event of one test.
    Test(Tag, ServerEvent),
}

/// Events of one test, in the order in which they occur.
#[derive(Debug)]
pub enum ServerEvent {
    /// The server accepted a client's test, with these parameters.
    Accepted(Box<Params>),
    /// All streams of the test are connected, and data starts to flow.
    Started(Box<Start>),
    /// A socket of a sending stream was sampled.
    Row {
        /// Stream number in iperf3 JSON documents.
        socket: i32,
        /// Sampled state of the sending socket.
        row: Box<Row>,
        /// Whether the sample was taken during the warm-up.
        omitted: bool,
    },
    /// An interval report of the test is available.
    Interval(Box<Interval>),
    /// The test has ended, with these sums.
    Ended(Box<End>),
    /// The test failed; the text is the reason, in one line without a final period.
    Failed(String),
    /// The test has left the register of running tests; no further events of this test follow.
    Left,
}

/// Receiver of server events. Several tests may call these methods concurrently.
pub trait Audience: Sync {
    /// Handles a server event.
    fn hear(&self, said: ServerNotice);
    /// Returns the text that the server has printed about a test so far, for a client that requests it
    /// (`--get-server-output`).
    fn printed(&self, of: &Tag) -> Option<ServerOutput>;
    /// Returns the samples of a test's sending sockets as lines of a trace, for a client that requests them.
    fn trace(&self, of: &Tag) -> Option<String>;
}

/// A data connection that is passed to the test that expects it.
#[derive(Debug)]
enum IncomingStream {
    /// A TCP connection on which the cookie of the test has arrived.
    Connection(Socket),
    /// A connected UDP socket for a stream whose hello was answered.
    Datagrams(Socket),
}

type Tests = Mutex<Register<SyncSender<IncomingStream>>>;

/// Number of file descriptors reserved for the process and its listening sockets.
const DESCRIPTORS_ASIDE: usize = 64;
/// Number of file descriptors that a test needs in addition to its streams, for example for the control
/// connection and the stop signal.
const DESCRIPTORS_A_TEST: usize = 4;
/// Maximum total number of streams of all tests, regardless of the number of file descriptors, because each
/// stream has a thread.
const STREAMS_MOST: usize = 1_024;
/// Listen backlog of the server.
const BACKLOG: i32 = 1_024;

const STOPPING: u64 = 0;
const TIMER: u64 = 1;
const TCP: u64 = 2;
const UDP: u64 = 3;
const BELL: u64 = 4;
/// First epoll event number that is used for pending connections.
const FIRST_STRANGER: u64 = 16;

/// Runs the server until `stop` is set or, with `one_off`, until one test has ended.
///
/// # Errors
/// Returns an error if the server cannot bind to its port.
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
    /// Bell that wakes the server; each test rings the bell when the test ends.
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
                        // The server closes the connection without a message, because the peer has not
                        // identified itself.
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

    /// Accepts all connections that are in the listen backlog.
    fn accept(&self, poll: &Poll, pending: &mut Pending<Socket>, next: &mut u64) -> Result<(), Error> {
        loop {
            let (socket, peer) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // Either the client has disconnected or a resource is temporarily exhausted; neither of these
                // errors ends the server.
                Err(error) if is_passing(&error) => return Ok(()),
                Err(error) => return Err(Error::system("accept a connection", error)),
            };
            let Some(peer) = peer.as_socket().map(|peer| peer.ip().to_canonical()) else { continue };
            if socket.set_nonblocking(true).is_err() {
                continue;
            }
            poll.watch(socket.as_fd(), *next)?;
            // The evicted connection is closed; closing its descriptor also removes it from the epoll set.
            drop(pending.came(*next, socket, peer, self.clock.now()));
            *next += 1;
        }
    }

    /// Reads from a pending connection, and returns its socket once the cookie is complete.
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
            // If the test no longer expects a connection, the connection is dropped and thus closed.
            Some(test) => drop(test.try_send(IncomingStream::Connection(socket))),
            None => deny(&socket),
        }
    }

    /// Starts a test if the limits allow it, and returns whether the test was started.
    fn begin<'s>(
        &'s self,
        scope: &'s thread::Scope<'s, '_>,
        socket: Socket,
        peer: SocketAddr,
        cookie: Cookie,
        number: u64,
    ) -> bool {
        let mut tests = self.lock();
        // With `one_off`, the server rejects later tests, even while it waits for the end of the first test.
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
            // If the thread cannot be started, the closure drops the socket, so the client sees a closed
            // connection.
            self.lock().leave(cookie);
            self.audience.hear(ServerNotice::TurnedAway {
                peer: peer.ip(),
                why: format!("cannot start a thread for the test: {error}"),
            });
            return false;
        }
        true
    }

    /// Answers each UDP hello from a new connected socket.
    fn answer_hellos(&self) {
        let expected = |peer| self.lock().hello(peer).is_some();
        self.hello.answer(expected, |peer, socket| {
            if let Some(test) = self.lock().hello(peer) {
                drop(test.try_send(IncomingStream::Datagrams(socket)));
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, Register<SyncSender<IncomingStream>>> {
        // Each change to the register is a single call, so the register stays consistent if a test panics.
        self.tests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Settings {
    fn listen_address(&self) -> SocketAddr {
        let any = match self.family {
            Family::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            // On a host without IPv6, the dual-stack address is not available.
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
        .doing("create a socket")?;
    if address.is_ipv6() {
        socket.set_only_v6(only_v6).doing("set IPV6_V6ONLY")?;
    }
    // Connections of earlier tests may still be in TIME-WAIT on the same port.
    socket.set_reuse_address(true).doing("set SO_REUSEADDR")?;
    socket.set_nonblocking(true).doing("make a socket non-blocking")?;
    socket.bind(&address.into()).map_err(|error| cannot_listen(address, &error))?;
    socket.listen(BACKLOG).map_err(|error| cannot_listen(address, &error))?;
    Ok(socket)
}

fn cannot_listen(address: SocketAddr, error: &io::Error) -> Error {
    let hint = match error.kind() {
        ErrorKind::AddrInUse => "pass another port with -p; ss -ltnup shows which process uses this port",
        ErrorKind::AddrNotAvailable => "pass an address of this host with -B",
        ErrorKind::PermissionDenied => "ports below 1024 require privileges: pass another port with -p",
        _ => "check -B and -p",
    };
    Error::settings(format!("cannot listen on {address}: {error}"), hint)
}

fn bound_port(socket: &Socket) -> Result<u16, Error> {
    let address = socket.local_addr().doing("read the port of a socket")?;
    Ok(address.as_socket().map_or(0, |address| address.port()))
}

/// Tells the client that the server is busy, in the same way as iperf3's server.
fn deny(socket: &Socket) {
    // One byte always fits into the send buffer of a new connection, so an error means that the client has
    // disconnected.
    let _ = socket.send(&[State::AccessDenied.byte()]);
}

fn is_passing(error: &io::Error) -> bool {
    const PASSING: [i32; 6] =
        [libc::ECONNABORTED, libc::EINTR, libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    error.raw_os_error().is_some_and(|error| PASSING.contains(&error))
}

/// Raises the limit on open files as far as permitted, and returns the number of streams for which there are
/// enough descriptors.
fn room_for_streams(tests: usize) -> Result<usize, Error> {
    let limit = getrlimit(Resource::Nofile);
    if let Some(most) = limit.maximum {
        // If the limit cannot be raised, the current limit may still suffice.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..limit });
    }
    let descriptors = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |most| most as usize);
    let aside = DESCRIPTORS_ASIDE + pending::MOST + DESCRIPTORS_A_TEST.saturating_mul(tests);
    match descriptors.saturating_sub(aside).min(STREAMS_MOST) {
        0 => Err(Error::settings(
            format!("the limit of {descriptors} open files is too low for {tests} tests"),
            "raise the limit with ulimit -n, or allow fewer tests with --max-tests",
        )),
        streams => Ok(streams),
    }
}
