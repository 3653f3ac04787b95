//! The server: one port, many tests at a time.
//!
//! ```text
//!   accept ─► stranger ─ cookie ─► known ─────────────► data connection ─► its test
//!                │          └────► unknown ─ room? ───► control connection ─► a test: a thread, and one for each stream
//!                │                              └─ no ► ACCESS_DENIED
//!                └─ silent for 10 s, or pushed out by others ─► closed
//!   UDP hello ─► the test from that address that expects one ─► a socket of its own
//! ```
//!
//! iperf3's own server takes one test at a time. Here all share the port, because a TCP connection begins with the cookie of
//! its test, and a UDP stream with a hello from the address of one.
//!
//! | file | concept |
//! |---|---|
//! | `pending` | connections that have not said which test they belong to |
//! | `register` | which tests run, and who may begin another |
//! | `hello` | the UDP port, and a connected socket for each stream |
//! | `session` | the conversation of one test |
//! | `control` | its control connection, each read within its time |

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

/// What a server is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address to listen on; all of the machine when left out.
    pub address: Option<IpAddr>,
    /// Which addresses, where none is given.
    pub family: Family,
    /// Port of TCP and UDP.
    pub port: u16,
    /// To end after one test.
    pub one_off: bool,
    /// Time between two reports; zero for none.
    pub interval: Duration,
    /// What clients may ask for.
    pub limits: Limits,
}

/// What clients may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Tests at a time.
    pub tests: usize,
    /// Tests at a time from one address.
    pub per_address: usize,
    /// Longest test, with what is omitted.
    pub duration: Option<Duration>,
    /// Largest rate of a test, all its streams together.
    pub rate: Option<Rate>,
    /// Time over which that rate is a mean.
    pub rate_over: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { tests: 16, per_address: 8, duration: None, rate: None, rate_over: Duration::from_secs(5) }
    }
}

/// A test of a server, for those who hear of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Counted from 1 since the server began.
    pub number: u64,
    /// Tests that ran when it began, this one too.
    pub running: usize,
    /// The client's control connection.
    pub peer: SocketAddr,
}

/// What a server has to tell.
#[derive(Debug)]
pub enum Said {
    /// It listens, and the next test has this number.
    Listening {
        /// Its port.
        port: u16,
        /// Number of the next test.
        number: u64,
    },
    /// Somebody was turned away.
    TurnedAway {
        /// Who.
        peer: IpAddr,
        /// Why.
        why: String,
    },
    /// Of a test.
    Test(Tag, ServerEvent),
}

/// What is told of a test, in this order.
#[derive(Debug)]
pub enum ServerEvent {
    /// A client has come, and asks for this.
    Accepted(Box<Params>),
    /// Its streams are connected, and data flows.
    Started(Box<Start>),
    /// A sample of a sending stream.
    Row {
        /// The stream's number in documents.
        socket: i32,
        /// What its socket told.
        row: Box<Row>,
        /// It is of the warm-up.
        omitted: bool,
    },
    /// A report.
    Interval(Box<Interval>),
    /// It is over.
    Ended(Box<End>),
    /// It went wrong: one line without a final period.
    Failed(String),
    /// Nothing more is told of it.
    Left,
}

/// Who hears what a server has to tell. Several tests tell at the same time.
pub trait Audience: Sync {
    /// Something happened.
    fn hear(&self, said: Said);
    /// What was printed of a test so far, for a client that asks for it (`--get-server-output`).
    fn printed(&self, of: &Tag) -> Option<ServerOutput>;
    /// What the sending sockets of a test told, as lines of a trace, for a client that asks for it.
    fn trace(&self, of: &Tag) -> Option<String>;
}

/// What a test waits for.
#[derive(Debug)]
enum Arrived {
    /// A TCP connection that has shown the cookie of the test.
    Connection(Socket),
    /// A connected UDP socket, on which the hello was answered.
    Datagrams(Socket),
}

type Tests = Mutex<Register<SyncSender<Arrived>>>;

/// Descriptors that are not of streams: those of the process, listeners, and what a test needs beside its streams.
const DESCRIPTORS_ASIDE: usize = 64;
/// Descriptors of a test beside its streams: the control connection, and the word to stop.
const DESCRIPTORS_A_TEST: usize = 4;
/// Streams of all tests together where there are descriptors for more: each is a thread.
const STREAMS_MOST: usize = 1_024;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1_024;

const STOPPING: u64 = 0;
const TIMER: u64 = 1;
const TCP: u64 = 2;
const UDP: u64 = 3;
const BELL: u64 = 4;
/// Strangers have the numbers from here on.
const FIRST_STRANGER: u64 = 16;

/// Serves until `stop`, or after one test if so told.
///
/// # Errors
/// When the port cannot be had.
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
    /// Rung by a test that is over.
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
        self.audience.hear(Said::Listening { port, number });
        loop {
            alarm.set(&self.clock, pending.next_due())?;
            poll.wait(&mut happened)?;
            for &event in &happened {
                match event {
                    STOPPING => return Ok(()),
                    TIMER => {
                        // Closed without a word: there is nobody to tell.
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
                            self.audience.hear(Said::Listening { port, number });
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

    /// Takes in all connections that wait.
    fn accept(&self, poll: &Poll, pending: &mut Pending<Socket>, next: &mut u64) -> Result<(), Error> {
        loop {
            let (socket, peer) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // The client has gone again, or there is no memory: neither is the end of the server.
                Err(error) if is_passing(&error) => return Ok(()),
                Err(error) => return Err(Error::system("accept a connection", error)),
            };
            let Some(peer) = peer.as_socket().map(|peer| peer.ip().to_canonical()) else { continue };
            if socket.set_nonblocking(true).is_err() {
                continue;
            }
            poll.watch(socket.as_fd(), *next)?;
            // Closing a descriptor takes it out of the epoll too.
            drop(pending.came(*next, socket, peer, self.clock.now()));
            *next += 1;
        }
    }

    /// Reads from a stranger; its socket, once its cookie is whole.
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
                self.audience.hear(Said::TurnedAway { peer: stranger.peer, why: error.to_string() });
                None
            }
        }
    }

    fn hand_over(&self, socket: Socket, cookie: Cookie) {
        let tests = self.lock();
        match tests.connection(cookie) {
            // One that is not wanted any more is closed.
            Some(test) => drop(test.try_send(Arrived::Connection(socket))),
            None => deny(&socket),
        }
    }

    /// Begins a test if there is room; whether it did.
    fn begin<'s>(
        &'s self,
        scope: &'s thread::Scope<'s, '_>,
        socket: Socket,
        peer: SocketAddr,
        cookie: Cookie,
        number: u64,
    ) -> bool {
        let mut tests = self.lock();
        // After its one test a server takes no other, though it may still be waiting for the end of that one.
        if self.settings.one_off && number > 1 {
            deny(&socket);
            return false;
        }
        if let Err(full) = tests.admit(cookie, peer.ip()) {
            deny(&socket);
            let why = format!("busy: {full}");
            self.audience.hear(Said::TurnedAway { peer: peer.ip(), why });
            return false;
        }
        let tag = Tag { number, running: tests.len(), peer };
        drop(tests);
        let session = move || {
            session::run(self, socket, cookie, tag);
            self.audience.hear(Said::Test(tag, ServerEvent::Left));
            self.bell.ring();
        };
        let spawned = thread::Builder::new().name(format!("test {number}")).spawn_scoped(scope, session);
        if let Err(error) = spawned {
            // The socket went with the closure: the client sees the connection close.
            self.lock().leave(cookie);
            self.audience
                .hear(Said::TurnedAway { peer: peer.ip(), why: format!("no thread for it: {error}") });
            return false;
        }
        true
    }

    /// Gives each client that says hello over UDP a socket of its own.
    fn answer_hellos(&self) {
        let expected = |peer| self.lock().hello(peer).is_some();
        self.hello.answer(expected, |peer, socket| {
            if let Some(test) = self.lock().hello(peer) {
                drop(test.try_send(Arrived::Datagrams(socket)));
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, Register<SyncSender<Arrived>>> {
        // What a panicking test leaves of the register is whole: each change is one call.
        self.tests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Settings {
    fn listen_address(&self) -> SocketAddr {
        let any = match self.family {
            Family::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            // A machine without IPv6 has no such address to listen on.
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
    // Connections of the tests before may still be in TIME-WAIT.
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

/// Says that the server is full, as iperf3's does.
fn deny(socket: &Socket) {
    // One byte fits the send buffer of a new connection; if the client has gone, so be it.
    let _ = socket.send(&[State::AccessDenied.byte()]);
}

fn is_passing(error: &io::Error) -> bool {
    const PASSING: [i32; 6] =
        [libc::ECONNABORTED, libc::EINTR, libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    error.raw_os_error().is_some_and(|error| PASSING.contains(&error))
}

/// Asks for as many descriptors as the process may have; how many streams they suffice for.
fn room_for_streams(tests: usize) -> Result<usize, Error> {
    let limit = getrlimit(Resource::Nofile);
    if let Some(most) = limit.maximum {
        // The limit as it was may do too.
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
