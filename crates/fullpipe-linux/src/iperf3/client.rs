//! An iperf3 client that runs a test against any iperf3 server.
//!
//! ```text
//!   connect ─► parameters ─► data connections ─► [ sample | report | ... ] ─► end ─► results of both ─► sums
//!                                                       │
//!                                  warm-up ─► restart ──┘
//! ```
//!
//! Each stream has a thread that transfers its data. The main thread of the client handles the control
//! connection, and samples the sockets at least ten times per second, as the classifier requires.

mod dialog;

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use fullpipe_iperf3::document::{
    DataConnection, End, Endpoint, Interval, Start, TestSettings, TestStart, Timestamp,
};
use fullpipe_iperf3::params::UDP_BLOCK_MOST;
use fullpipe_iperf3::results::{Cpu, ServerOutput};
use fullpipe_iperf3::streams::{self, Direction};
use fullpipe_iperf3::{Cookie, Mode, Params, Protocol, Results, State, datagram, frame};
use fullpipe_lab::trace::{ReceiverSample, Row};
use fullpipe_units::{Bytes, Duration, Instant, Rate};
use rustix::event::PollFlags;
use socket2::{Domain, Socket, Type};

use self::dialog::{Dialog, Fault};
use super::control::ConnectionError;
use super::meter::Meter;
use super::options;
use super::place::ServerAddress;
use super::stream::{Budget, Sending};
use super::sums;
use super::wait::{WaitResult, wait};
use crate::clock::Clock;
use crate::error::{Doing, Error};
use crate::poll::Stop;
use crate::{sys, tcp_info};

/// Sampling interval of the sockets in a test with up to `MANY` streams.
const SAMPLE: Duration = Duration::from_millis(50);
/// Sampling interval of the sockets in a test with more than `MANY` streams: the classifier requires at least
/// ten samples per second.
const SAMPLE_OF_MANY: Duration = Duration::from_millis(100);
const MANY: usize = 16;
/// Interval at which the client checks the transferred amount, if the test ends after an amount of data.
const LOOK: Duration = Duration::from_millis(10);
/// Minimum duration of the last report, as a fraction of the report interval. As in iperf3, a shorter last
/// report is omitted.
const SHORTEST_REPORT: f64 = 0.1;
/// Timeout for the server's reply to a UDP hello. Because a hello may be lost, the client sends up to
/// `HELLOS` hellos.
const HELLO_PATIENCE: Duration = Duration::from_secs(3);
const HELLOS: u32 = 10;

/// Settings of an iperf3 client.
#[derive(Clone, Debug)]
pub struct Client {
    /// Address of the iperf3 server.
    pub place: ServerAddress,
    /// Parameters of the iperf3 test.
    pub params: Params,
    /// Interval between reports; zero means a single report for the whole test.
    pub interval: Duration,
    /// Function that calculates the duration of the test from the RTT of the first handshake; if `None`, the
    /// duration is `params.time`.
    pub length: Option<fn(Duration) -> Duration>,
}

/// Observer of a running iperf3 test.
pub trait Watch {
    /// Called once, when all data connections are established.
    fn start(&mut self, start: &Start);
    /// Called with each sample of the sending stream `socket`; `omitted` is true for samples of the warm-up.
    fn row(&mut self, socket: i32, row: &Row, omitted: bool);
    /// Called with each sample of the receiving stream `socket`.
    fn received(&mut self, _socket: i32, _sample: &ReceiverSample, _omitted: bool) {}
    /// Called with each interval report, to which the observer may add fullpipe's own fields.
    fn interval(&mut self, interval: Interval);
}

/// Result of an iperf3 client's test.
#[derive(Clone, Debug)]
pub struct TestResult {
    /// Totals over the whole test.
    pub end: End,
    /// Output of the server, if the client requested it.
    pub server_output: Option<ServerOutput>,
    /// Samples of the sending server as lines of a trace, if the server is fullpipe's.
    pub server_trace: Option<String>,
    /// Minimum RTT of the TCP handshakes, measured before data flowed.
    pub idle_rtt: Option<Duration>,
    /// Whether the test was stopped early. The results of the server are then missing.
    pub interrupted: bool,
}

/// Runs an iperf3 test and returns its result.
///
/// # Errors
/// Returns an error if the server cannot be reached, refuses the test or disconnects, or if this kernel does
/// not support an option of the test.
pub fn run(client: &Client, watch: &mut dyn Watch, stop: &Stop) -> Result<TestResult, Error> {
    match Test::prepare(client, stop).and_then(|test| test.run(watch)) {
        Ok(finished) => Ok(finished),
        Err(Fault::Failed(error)) => Err(error),
        Err(Fault::Interrupted) => Err(Error::network("the test was interrupted before data flowed", "")),
    }
}

/// A running test whose data connections are established.
struct Test<'a> {
    client: &'a Client,
    params: Params,
    control: Dialog,
    address: SocketAddr,
    cookie: Cookie,
    sockets: Vec<(u32, Direction, Socket)>,
    idle_rtt: Option<Duration>,
    clock: Clock,
    stop: &'a Stop,
}

impl<'a> Test<'a> {
    fn prepare(client: &'a Client, stop: &'a Stop) -> Result<Self, Fault> {
        let clock = Clock::starting_in(Duration::ZERO);
        let (socket, address) = client.place.connect(|_, _| Ok(()))?;
        let control = Dialog::new(socket, clock, stop)?;
        let cookie = Cookie::from_random(random()?);
        control.write(&cookie.to_wire())?;
        control.expect(State::ParamExchange)?;
        let mut params = client.params.clone();
        if params.len.is_none() {
            // A datagram should fit into one packet, so the default datagram size is the MSS of the control
            // connection.
            let mss = control.socket().tcp_mss().map_or(0, u64::from);
            let fits = Bytes::new(mss).min(UDP_BLOCK_MOST);
            let known = params.protocol == Protocol::Udp && !fits.is_zero();
            params.len = Some(if known { fits } else { params.block() });
        }
        let idle_rtt = shortest_rtt(control.socket());
        if let (Some(length), Some(rtt)) = (client.length, idle_rtt) {
            params.time = length(rtt);
        }
        control.send_json(&params.to_json())?;
        control.expect(State::CreateStreams)?;
        let mut this =
            Self { client, params, control, address, cookie, sockets: Vec::new(), idle_rtt, clock, stop };
        for (id, direction) in streams::of(&this.params) {
            let socket = match this.params.protocol {
                Protocol::Tcp => this.open_tcp()?,
                Protocol::Udp => this.open_udp()?,
            };
            this.sockets.push((id, direction, socket));
        }
        Ok(this)
    }

    fn open_tcp(&mut self) -> Result<Socket, Fault> {
        let params = &self.params;
        let socket = self.client.place.connect_to(self.address, |socket, domain| {
            options::before_handshake(socket, domain, params)?;
            options::of_sender(socket, params)
        })?;
        let rtt = shortest_rtt(&socket);
        self.idle_rtt = self.idle_rtt.into_iter().chain(rtt).min();
        self.greet(&socket)?;
        socket.set_tcp_nodelay(self.params.nodelay).doing("set TCP_NODELAY")?;
        Ok(socket)
    }

    /// Sends the cookie on a data connection, so that the server can assign the connection to the test.
    fn greet(&self, mut socket: &Socket) -> Result<(), Fault> {
        let cookie = self.cookie.to_wire();
        // The first bytes that are written to a connection always fit into the send buffer.
        socket.write_all(&cookie).map_err(|error| Fault::from(ConnectionError::from(error)))
    }

    fn open_udp(&mut self) -> Result<Socket, Fault> {
        let domain = Domain::for_address(self.address);
        let socket =
            Socket::new(domain, Type::DGRAM, Some(socket2::Protocol::UDP)).doing("create a socket")?;
        options::buffers(&socket, &self.params)?;
        options::type_of_service(&socket, domain, &self.params)?;
        options::max_pacing_rate(&socket, &self.params)?;
        self.client.place.bind(&socket)?;
        socket.connect(&self.address.into()).doing("connect a UDP socket")?;
        socket.set_nonblocking(true).doing("make a socket non-blocking")?;
        for _ in 0..HELLOS {
            socket.send(&datagram::HELLO).doing("send over UDP")?;
            let deadline = self.clock.now() + HELLO_PATIENCE;
            loop {
                let left = deadline.saturating_since(self.clock.now());
                let waited = wait(Some((&socket, PollFlags::IN)), self.stop, Some(left));
                match waited.doing("wait for the server")? {
                    WaitResult::Stopped => return Err(Fault::Interrupted),
                    WaitResult::Late if deadline <= self.clock.now() => break,
                    WaitResult::Late => continue,
                    WaitResult::Ready => {}
                }
                // With `-R`, data may arrive before the server's reply; the client ignores this
                // data.
                let mut buffer = [0; 1 << 16];
                match (&socket).read(&mut buffer) {
                    Ok(len) if datagram::is_answer(&buffer[..len]) => return Ok(socket),
                    Ok(_) => {}
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    Err(error) => {
                        let message = format!(
                            "the server does not accept UDP on port {}: {error}",
                            self.address.port()
                        );
                        return Err(Error::network(message, "").into());
                    }
                }
            }
        }
        let message = format!("the server does not answer over UDP on port {}", self.address.port());
        Err(Error::network(message, "check whether a firewall blocks UDP").into())
    }

    fn run(mut self, watch: &mut dyn Watch) -> Result<TestResult, Fault> {
        watch.start(&self.started()?);
        self.control.expect(State::TestStart)?;
        self.control.expect(State::TestRunning)?;
        let cpu = ProcessTime::now(self.clock)?;
        let (sending, receiving) = (Stop::new()?, Stop::new()?);
        let mut meters = self.begin(&sending, &receiving)?;
        let fault = self.flow(&mut meters, watch).err();
        // The senders are stopped first, because the receiver would not count data that is written after the
        // end of the test.
        sending.stop();
        let interrupted = match fault {
            None => false,
            Some(Fault::Interrupted) => true,
            Some(failed) => {
                receiving.stop();
                return Err(failed);
            }
        };
        if interrupted {
            // Even if the server does not receive this message, the test ends.
            let _ = self.control.say(State::ClientTerminate);
        } else {
            self.control.say(State::TestEnd)?;
        }
        let used = cpu.until_now(self.clock)?;
        let ours = sums::results(&meters, self.params.protocol, used);
        let theirs = if interrupted { None } else { Some(self.exchange(&ours)?) };
        receiving.stop();
        let main = |meter: &Meter| meter.sends || self.params.mode != Mode::Bidirectional;
        let end = sums::end(&meters, self.params.protocol, &ours, theirs.as_ref(), main);
        let (server_output, server_trace) =
            theirs.map_or((None, None), |theirs| (theirs.server_output, theirs.trace));
        for mut meter in meters {
            // The thread ends because it was stopped; errors that occurred during the test have already been
            // handled.
            let _ = meter.stream.join();
        }
        Ok(TestResult { end, server_output, server_trace, idle_rtt: self.idle_rtt, interrupted })
    }

    /// Returns the description of the test as far as it is known before data flows.
    fn started(&self) -> Result<Start, Fault> {
        let sockets: Vec<&Socket> = self.sockets.iter().map(|(_, _, socket)| socket).collect();
        let ServerAddress { host, port, .. } = &self.client.place;
        let start = known(&self.params, &sockets, self.control.socket(), self.client.interval)?;
        Ok(Start {
            connecting_to: Some(Endpoint { host: host.clone(), port: *port }),
            cookie: Some(self.cookie.to_string()),
            ..start
        })
    }

    /// Starts the threads of all streams.
    fn begin(&mut self, sending: &Stop, receiving: &Stop) -> Result<Vec<Meter>, Fault> {
        let params = &self.params;
        let block = params.block();
        let budget =
            self.amount().filter(|_| params.omit.is_zero()).map(|bytes| Arc::new(Budget::new(bytes)));
        let burst = params.burst.map_or(1, u64::from);
        let plan = Sending { block, rate: params.rate, burst, budget };
        let mut meters = Vec::new();
        for (id, direction, socket) in self.sockets.drain(..) {
            let sends = direction == Direction::Upload;
            let stop = if sends { sending } else { receiving };
            meters.push(Meter::begin(id, socket, sends, params, &plan, self.clock, stop)?);
        }
        Ok(meters)
    }

    /// Returns the amount of data after which the test ends; returns `None` if the test ends after a
    /// duration.
    fn amount(&self) -> Option<Bytes> {
        let blocks = self.params.block().mul_div(self.params.blocks, 1);
        [self.params.num, blocks].into_iter().find(|bytes| !bytes.is_zero())
    }

    /// Samples the sockets and reports intervals until the test has reached its duration or its amount of
    /// data.
    fn flow(&mut self, meters: &mut [Meter], watch: &mut dyn Watch) -> Result<(), Fault> {
        let sample = time_between_samples(meters);
        let amount = self.amount();
        let time = if amount.is_some() { Duration::ZERO } else { self.params.time };
        let start = self.clock.now();
        let mut part = Part::begin(start, self.params.omit, time, self.client.interval);
        // Number of bytes that were counted during the warm-up.
        let mut before = Bytes::ZERO;
        let mut next_sample = start;
        loop {
            let now = self.clock.now();
            if next_sample <= now {
                sample_all(meters, now, part.omitted, watch).doing("read TCP_INFO")?;
                // If a sample is late, the next one is due one interval from now.
                next_sample = now + sample;
            }
            let over = match amount {
                Some(amount) if !part.omitted => {
                    let enough = sums::bytes_so_far(meters).saturating_sub(before) >= amount;
                    enough && (!self.params.omit.is_zero() || has_arrived(meters))
                }
                _ => part.is_over(now),
            };
            if over || part.next_report <= now {
                part.report(meters, now, over, watch);
            }
            if over && !part.omitted {
                return Ok(());
            }
            if over {
                meters.iter_mut().for_each(|meter| meter.restart(now));
                before = sums::bytes_so_far(meters);
                part = Part::begin(now, Duration::ZERO, time, self.client.interval);
            }
            let mut wake = next_sample.min(part.next_report).min(part.end);
            if amount.is_some() {
                wake = wake.min(now + LOOK);
            }
            if self.control.speaks_within(wake.saturating_since(self.clock.now()))? {
                let state = self.control.state()?;
                let message = format!("the server sent the unexpected state {state:?} during the test");
                return Err(Error::network(message, "").into());
            }
            // If the test ends after an amount of data, each stream ends when it has sent its share.
            let mut ended = meters.iter().map(|meter| meter.stream.has_ended());
            let early = match amount {
                None => ended.any(|ended| ended),
                Some(amount) => ended.all(|ended| ended) && sums::bytes_so_far(meters) < amount,
            };
            if early {
                return Err(self.ended_early());
            }
        }
    }

    /// Determines why a data connection ended early; the server may report the reason on the control
    /// connection.
    fn ended_early(&mut self) -> Fault {
        const GRACE: Duration = Duration::from_secs(1);
        match self.control.speaks_within(GRACE) {
            Err(fault) => return fault,
            Ok(true) => {
                if let Err(fault) = self.control.state() {
                    return fault;
                }
            }
            Ok(false) => {}
        }
        Error::network("a data connection has closed unexpectedly", "check the output of the server").into()
    }

    /// Sends the client's results to the server, and receives the server's results.
    fn exchange(&mut self, ours: &Results) -> Result<Results, Fault> {
        self.control.expect(State::ExchangeResults)?;
        self.control.send_json(&ours.to_json())?;
        let most = match (self.params.get_server_output, self.params.wants_trace) {
            (true, _) => frame::OUTPUT_MOST,
            (false, true) => frame::TRACE_MOST,
            (false, false) => frame::RESULTS_MOST,
        };
        let theirs = Results::from_json(&self.control.read_json(most)?).map_err(ConnectionError::from)?;
        self.control.expect(State::DisplayResults)?;
        self.control.say(State::Done)?;
        let _ = self.control.socket().shutdown(std::net::Shutdown::Write);
        Ok(theirs)
    }
}

/// Returns the description of a test as far as client or server know it before data flows.
pub(super) fn known(
    params: &Params,
    sockets: &[impl std::borrow::Borrow<Socket>],
    control: &Socket,
    interval: Duration,
) -> Result<Start, Error> {
    let connected = sockets.iter().map(|socket| connected(socket.borrow())).collect::<Result<_, _>>()?;
    let (sndbuf, rcvbuf) = match sockets.first().map(std::borrow::Borrow::borrow) {
        Some(socket) => (
            socket.send_buffer_size().doing("read SO_SNDBUF")?,
            socket.recv_buffer_size().doing("read SO_RCVBUF")?,
        ),
        None => (0, 0),
    };
    let tcp = params.protocol == Protocol::Tcp;
    let mss = control.tcp_mss().ok().map(|mss| Bytes::new(mss.into()));
    Ok(Start {
        connected,
        timestamp: Some(Timestamp::new(crate::clock::since_1970())),
        tcp_mss: params.mss.filter(|_| tcp),
        tcp_mss_default: mss.filter(|_| tcp && params.mss.is_none()),
        asked: Some(TestSettings {
            target_bitrate: params.rate.unwrap_or(Rate::ZERO),
            fq_rate: params.fq_rate.unwrap_or(Rate::ZERO),
            sock_bufsize: params.window.unwrap_or_default(),
            sndbuf_actual: Bytes::new(sndbuf as u64),
            rcvbuf_actual: Bytes::new(rcvbuf as u64),
            test_start: TestStart::of(params, interval),
        }),
        ..super::this_host()
    })
}

/// Returns the sampling interval for the sockets of a test.
pub(super) fn time_between_samples(meters: &[Meter]) -> Duration {
    if meters.len() > MANY { SAMPLE_OF_MANY } else { SAMPLE }
}

/// Samples the sockets of all streams of a test.
pub(super) fn sample_all(
    meters: &[Meter],
    now: Instant,
    omitted: bool,
    watch: &mut dyn Watch,
) -> io::Result<()> {
    let at = now.max(Instant::from_nanos(1));
    for (flow, meter) in (0..).zip(meters) {
        if let Some(row) = meter.row(at, flow)? {
            watch.row(meter.number, &row, omitted);
        }
        if let Some(sample) = meter.received(at, flow)? {
            watch.received(meter.number, &sample, omitted);
        }
    }
    Ok(())
}

/// One part of a test: the warm-up, or the measured part after it.
pub(super) struct Part {
    pub(super) omitted: bool,
    pub(super) end: Instant,
    begun: Instant,
    last_report: Instant,
    pub(super) next_report: Instant,
    interval: Duration,
}

impl Part {
    /// Starts the warm-up if the test has one, and otherwise the measured part. A part without a `time` has
    /// no fixed end.
    pub(super) fn begin(now: Instant, omit: Duration, time: Duration, interval: Duration) -> Self {
        let omitted = !omit.is_zero();
        let length = if omitted { omit } else { time };
        let end = if length.is_zero() { Instant::FAR_FUTURE } else { now + length };
        let next = if interval.is_zero() { Instant::FAR_FUTURE } else { now + interval };
        Self { omitted, end, begun: now, last_report: now, next_report: next, interval }
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.end <= now
    }

    /// Reports the interval that ends now, unless it is the last interval and too short.
    pub(super) fn report(&mut self, meters: &mut [Meter], now: Instant, last: bool, watch: &mut dyn Watch) {
        let since = now.saturating_since(self.last_report);
        let enough = since.as_secs_f64() >= SHORTEST_REPORT * self.interval.as_secs_f64();
        // The counters are read even if the interval is too short, because the sums extend to the last
        // reading.
        let streams = meters.iter_mut().map(|meter| meter.report(now, self.omitted)).collect();
        let only = self.last_report == self.begun;
        if !last || enough || only {
            watch.interval(Interval::of(streams));
        }
        self.last_report = now;
        if !self.interval.is_zero() {
            while self.next_report <= now {
                self.next_report += self.interval;
            }
        }
    }
}

/// Returns whether all data to be sent has been sent and acknowledged. Data that was written but not
/// acknowledged does not count; otherwise, a test with a fixed amount of data would end as soon as the
/// send buffer has accepted all data.
fn has_arrived(meters: &[Meter]) -> bool {
    let mut sending = meters.iter().filter(|meter| meter.sends);
    sending.all(|meter| {
        // A socket whose state cannot be queried is treated as fully acknowledged.
        meter.stream.has_ended() && sys::unacknowledged(meter.stream.socket().as_fd()).unwrap_or(0) == 0
    })
}

/// A reading of the CPU time that the process has used so far.
pub(super) struct ProcessTime {
    at: Instant,
    used: [Duration; 2],
}

impl ProcessTime {
    pub(super) fn now(clock: Clock) -> Result<Self, Error> {
        Ok(Self { at: clock.now(), used: sys::process_times().doing("read the processor time")? })
    }

    pub(super) fn until_now(&self, clock: Clock) -> Result<Cpu, Error> {
        let later = Self::now(clock)?;
        let length = later.at.saturating_since(self.at).as_secs_f64().max(1e-9);
        let percent =
            |kind: usize| 100.0 * later.used[kind].saturating_sub(self.used[kind]).as_secs_f64() / length;
        let (user, system) = (percent(0), percent(1));
        Ok(Cpu { total: user + system, user, system })
    }
}

fn shortest_rtt(socket: &Socket) -> Option<Duration> {
    let told = tcp_info::sender(socket.as_fd(), false).ok()?;
    told.min_rtt.into_iter().chain(told.srtt).min()
}

fn connected(socket: &Socket) -> Result<DataConnection, Error> {
    let own = socket.local_addr().doing("read a socket's address")?.as_socket();
    let peer = socket.peer_addr().doing("read a socket's peer")?.as_socket();
    // A dual-stack socket reports an IPv4 address as an IPv4-mapped IPv6 address.
    let host =
        |address: Option<SocketAddr>| address.map_or_else(String::new, |a| a.ip().to_canonical().to_string());
    let port = |address: Option<SocketAddr>| address.map_or(0, |a| a.port());
    Ok(DataConnection {
        socket: socket.as_raw_fd(),
        local_host: host(own),
        local_port: port(own),
        remote_host: host(peer),
        remote_port: port(peer),
    })
}

/// Returns random bytes from the kernel.
fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    let mut source = std::fs::File::open("/dev/urandom").doing("open /dev/urandom")?;
    source.read_exact(&mut bytes).doing("read /dev/urandom")?;
    Ok(bytes)
}
