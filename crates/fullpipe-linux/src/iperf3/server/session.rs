//! The server side of the iperf3 protocol for one test.
//!
//! ```text
//!   PARAM_EXCHANGE ─► parameters ─► within the limits? ─► CREATE_STREAMS ─► all connected ─► TEST_START, TEST_RUNNING
//!                                        └─► SERVER_ERROR                                         │
//!   IPERF_DONE ◄─ DISPLAY_RESULTS ◄─ results of both ◄─ EXCHANGE_RESULTS ◄─ TEST_END ◄─ reports ◄─┘
//! ```
//!
//! Every test ends, whatever the client does: each step has a timeout, a test that transfers no data is
//! aborted, and a test that exceeds its requested duration is stopped.

use std::io;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};

use fullpipe_iperf3::document::{Endpoint, Interval, Start};
use fullpipe_iperf3::frame::{PARAMS_MOST, RESULTS_MOST};
use fullpipe_iperf3::results::Cpu;
use fullpipe_iperf3::streams::{self, Direction};
use fullpipe_iperf3::{Cookie, Mode, Params, Protocol, Refusal, Results, State};
use fullpipe_lab::trace::Row;
use fullpipe_units::{Bytes, Duration, Instant, Rate};
use socket2::{Socket, TcpKeepalive};

use super::register::Full;
use super::{IncomingStream, Limits, Server, ServerEvent, ServerNotice, Tag};
use crate::iperf3::client::{Part, ProcessTime, Watch, known, sample_all, time_between_samples};
use crate::iperf3::control::{ConnectionError, Control};
use crate::iperf3::meter::Meter;
use crate::iperf3::stream::{Budget, Sending};
use crate::iperf3::{options, sums};
use crate::poll::Stop;

/// Timeout for the client to open all data connections of its test.
const CONNECTING: Duration = Duration::from_secs(30);
/// Interval at which the server checks the control connection while it waits for data connections.
const LOOK: std::time::Duration = std::time::Duration::from_millis(20);
/// Time by which a test may exceed its requested duration, as in iperf3.
const GRACE: Duration = Duration::from_secs(40);
/// Timeout for a test that transfers no data, as in iperf3.
const NO_DATA: Duration = Duration::from_secs(120);
/// Timeout for the last state that the client sends.
const FAREWELL: Duration = Duration::from_secs(10);
/// Time within which a client must end its streams after the server has announced its termination.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// TCP keepalive settings with which the server detects after one minute that a client has vanished, even if
/// no data flows.
const KEEPALIVE_AFTER: std::time::Duration = std::time::Duration::from_secs(20);
const KEEPALIVE_EVERY: std::time::Duration = std::time::Duration::from_secs(10);
const KEEPALIVES: u32 = 4;

/// Reason why a server's test did not complete.
enum TestFailure {
    /// The server refuses the parameters of the test.
    Refused(Refusal, String),
    /// The server cannot admit the test, because a limit is reached.
    Full(Full),
    /// The client has terminated the test.
    Terminated,
    /// The control connection with the client failed.
    Broken(ConnectionError),
}

impl From<ConnectionError> for TestFailure {
    fn from(broken: ConnectionError) -> Self {
        Self::Broken(broken)
    }
}

impl From<Refusal> for TestFailure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal, refusal.to_string())
    }
}

/// Runs a test to its end, and reports the events of the test to the audience.
pub(super) fn run(server: &Server<'_>, socket: Socket, cookie: Cookie, tag: Tag) {
    let tell = |told: ServerEvent| server.audience.hear(ServerNotice::Test(tag, told));
    let control = match control(server, socket) {
        Ok(control) => control,
        Err(error) => {
            server.lock().leave(cookie);
            return tell(ServerEvent::Failed(format!("control connection: {error}")));
        }
    };
    let mut session = Session { server, control: &control, cookie, tag, left: false, said_farewell: false };
    let ended = session.converse();
    session.leave();
    let Err(failed) = ended else { return };
    // The refusal may not reach the client, but the event is reported in any case.
    let (_, why) = match failed {
        TestFailure::Refused(refusal, why) => (control.refuse(refusal), why),
        TestFailure::Full(full) => (
            control.say(State::AccessDenied),
            format!(
                "refused because the server \
            is busy: {full}"
            ),
        ),
        TestFailure::Terminated => (Ok(()), "the client has terminated".into()),
        TestFailure::Broken(ConnectionError::Stopped) if session.said_farewell => {
            (Ok(()), "the server has terminated".into())
        }
        TestFailure::Broken(ConnectionError::Stopped) => {
            (control.say(State::ServerTerminate), "the server has terminated".into())
        }
        TestFailure::Broken(ConnectionError::Closed) => {
            (Ok(()), "the client closed the connection unexpectedly".into())
        }
        TestFailure::Broken(broken @ ConnectionError::Silent) => (Ok(()), broken.to_string()),
        TestFailure::Broken(broken) => (control.refuse(Refusal::MESSAGE), broken.to_string()),
    };
    tell(ServerEvent::Failed(why));
}

fn control(server: &Server<'_>, socket: Socket) -> io::Result<Control> {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_EVERY);
    socket.set_tcp_keepalive(&keepalive.with_retries(KEEPALIVES))?;
    Control::new(socket, server.clock, server.stop)
}

struct Session<'a, 's> {
    server: &'a Server<'s>,
    control: &'a Control,
    cookie: Cookie,
    tag: Tag,
    /// Whether the test has already left the register of running tests.
    left: bool,
    /// Whether the server has told the client that the server terminates.
    said_farewell: bool,
}

impl Drop for Session<'_, '_> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Session<'_, '_> {
    /// Removes the test from the register before the client learns that the test is over, because the client
    /// may start its next test immediately.
    fn leave(&mut self) {
        if !std::mem::replace(&mut self.left, true) {
            self.server.lock().leave(self.cookie);
        }
    }

    fn tell(&self, told: ServerEvent) {
        self.server.audience.hear(ServerNotice::Test(self.tag, told));
    }

    fn converse(&mut self) -> Result<(), TestFailure> {
        let control = self.control;
        control.say(State::ParamExchange)?;
        let params = Params::from_json(&control.frame(PARAMS_MOST)?)?;
        self.check(&params)?;
        self.tell(ServerEvent::Accepted(Box::new(params.clone())));
        let wanted = streams::of(&params);
        self.server.lock().reserve(self.cookie, wanted.len()).map_err(TestFailure::Full)?;
        let sockets = self.connect(&params, wanted.len())?;
        for (socket, &(_, direction)) in sockets.iter().zip(&wanted) {
            self.prepare(socket, direction, &params)?;
        }
        control.say(State::TestStart)?;
        control.say(State::TestRunning)?;
        let stop =
            Stop::new().map_err(|error| TestFailure::Refused(Refusal::CREATE_STREAM, error.message))?;
        let ended = self.flow(&params, sockets, &wanted, &stop);
        // All streams are stopped, even after an error, so that no stream outlives its test.
        stop.stop();
        let (meters, cpu) = ended?;
        self.conclude(&params, meters, cpu)
    }

    /// Compares the parameters of the test with the server's limits.
    fn check(&self, params: &Params) -> Result<(), TestFailure> {
        let limits = &self.server.settings.limits;
        let asked = params.time + params.omit;
        if let Some(most) = limits.duration.filter(|&most| asked > most) {
            let why = format!("refused: {asked} requested, but at most {most} allowed");
            return Err(TestFailure::Refused(Refusal::MAX_DURATION, why));
        }
        let rate = params.rate.map(|rate| rate.mul_div(params.streams().into(), 1));
        if let (Some(rate), Some(most)) = (rate, limits.rate)
            && rate > most
        {
            let why = format!("refused: {rate} requested, but at most {most} allowed");
            return Err(TestFailure::Refused(Refusal::TOTAL_RATE, why));
        }
        Ok(())
    }

    /// Tells the client to open its data connections, and waits until all of them are open.
    fn connect(&self, params: &Params, count: usize) -> Result<Vec<Socket>, TestFailure> {
        let until = self.server.clock.now() + CONNECTING;
        // The capacity of the channel is the expected number of connections; the server closes any further
        // ones.
        let (taker, taken) = sync_channel(count);
        match params.protocol {
            Protocol::Tcp => self.server.lock().expect_connections(self.cookie, taker),
            Protocol::Udp => {
                // Another test from this address may still be opening its UDP streams.
                while !self.server.lock().expect_datagrams(self.cookie, taker.clone()) {
                    self.look(until)?;
                    self.server.clock.sleep_until(self.server.clock.now() + Duration::from_millis(20));
                }
            }
        }
        self.control.say(State::CreateStreams)?;
        let sockets = self.take(&taken, count, until);
        self.server.lock().expect_nothing(self.cookie);
        sockets
    }

    fn take(
        &self,
        taken: &Receiver<IncomingStream>,
        count: usize,
        until: Instant,
    ) -> Result<Vec<Socket>, TestFailure> {
        let mut sockets = Vec::with_capacity(count);
        while sockets.len() < count {
            match taken.recv_timeout(LOOK) {
                Ok(IncomingStream::Connection(socket) | IncomingStream::Datagrams(socket)) => {
                    sockets.push(socket);
                }
                Err(RecvTimeoutError::Timeout) => self.look(until)?,
                Err(RecvTimeoutError::Disconnected) => return Err(Refusal::STREAM_ACCEPT.into()),
            }
        }
        Ok(sockets)
    }

    /// Returns an error if the client has disconnected or the timeout has passed; called while data connections are
    /// being opened.
    fn look(&self, until: Instant) -> Result<(), TestFailure> {
        match self.control.state_now()? {
            None if self.server.clock.now() < until => Ok(()),
            None => Err(Refusal::STREAM_ACCEPT.into()),
            Some(State::ClientTerminate) => Err(TestFailure::Terminated),
            Some(_) => Err(Refusal::MESSAGE.into()),
        }
    }

    fn prepare(&self, socket: &Socket, direction: Direction, params: &Params) -> Result<(), TestFailure> {
        let no = |refusal| move |error: crate::Error| TestFailure::Refused(refusal, error.message);
        options::buffers(socket, params).map_err(no(Refusal::BUFFER_SIZE))?;
        let address = socket.local_addr().map_err(|error| TestFailure::Broken(error.into()))?;
        options::type_of_service(socket, address.domain(), params).map_err(no(Refusal::TOS))?;
        match (direction, params.protocol) {
            (Direction::Download, Protocol::Tcp) => {
                options::of_sender(socket, params).map_err(no(Refusal::CONGESTION))
            }
            _ => Ok(()),
        }
    }

    /// Runs the streams until the client ends the test, and returns the streams together with the CPU time
    /// used.
    fn flow(
        &mut self,
        params: &Params,
        sockets: Vec<Socket>,
        wanted: &[(u32, Direction)],
        stop: &Stop,
    ) -> Result<(Vec<Meter>, Cpu), TestFailure> {
        let failed = |error: crate::Error| TestFailure::Refused(Refusal::CREATE_STREAM, error.message);
        let mut watch = Watcher { server: self.server, tag: self.tag };
        watch.start(&self.started(params, &sockets).map_err(failed)?);
        let clock = self.server.clock;
        let cpu = ProcessTime::now(clock).map_err(failed)?;
        let mut meters = self.begin(params, sockets, wanted, stop).map_err(failed)?;
        let followed = self.follow(params, &mut meters, &mut watch);
        if matches!(followed, Err(TestFailure::Broken(ConnectionError::Stopped))) {
            self.say_farewell();
        }
        followed?;
        stop.stop();
        for meter in &mut meters {
            // Errors that occurred during the test have already been handled. The counters of a stream are
            // final once its thread has ended.
            let _ = meter.stream.join();
        }
        let used = cpu.until_now(clock).map_err(failed)?;
        Ok((meters, used))
    }

    /// Tells the client that the server terminates, and waits until the client has closed the connection. The
    /// streams continue until then. Otherwise, a client that sends on several streams would fail with a
    /// broken pipe before it reads the control connection.
    fn say_farewell(&mut self) {
        // If the client has vanished, the connection is closed below.
        let _ = self.control.say(State::ServerTerminate);
        self.said_farewell = true;
        let clock = self.server.clock;
        let until = clock.now() + LAST_WORDS;
        while clock.now() < until && matches!(self.control.state_now(), Err(ConnectionError::Stopped)) {
            clock.sleep_until(clock.now() + Duration::from_millis(5));
        }
    }

    /// Returns the description of the test as far as it is known before data flows.
    fn started(&self, params: &Params, sockets: &[Socket]) -> Result<Start, crate::Error> {
        let peer = Endpoint { host: self.tag.peer.ip().to_string(), port: self.tag.peer.port() };
        let start = known(params, sockets, self.control.socket(), self.server.settings.interval)?;
        Ok(Start { accepted_connection: Some(peer), cookie: Some(self.cookie.to_string()), ..start })
    }

    /// Starts the threads of all streams of the test.
    fn begin(
        &self,
        params: &Params,
        sockets: Vec<Socket>,
        wanted: &[(u32, Direction)],
        stop: &Stop,
    ) -> Result<Vec<Meter>, crate::Error> {
        let plan = Sending {
            block: params.block(),
            rate: self.rate(params),
            burst: params.burst.unwrap_or(1).into(),
            budget: budget(params),
        };
        let sockets = sockets.into_iter().zip(wanted);
        let begun = sockets.map(|(socket, &(id, direction))| {
            let sends = direction == Direction::Download;
            Meter::begin(id, socket, sends, params, &plan, self.server.clock, stop)
        });
        begun.collect()
    }

    /// Returns the rate of a sending stream: the requested rate, or the stream's share of the server's rate
    /// limit.
    fn rate(&self, params: &Params) -> Option<Rate> {
        let part = self.server.settings.limits.rate.map(|most| most.mul_div(1, params.streams().into()));
        params.rate.or(part)
    }

    /// Samples the sockets and reports intervals until the client ends the test.
    fn follow(
        &self,
        params: &Params,
        meters: &mut [Meter],
        watch: &mut Watcher<'_>,
    ) -> Result<(), TestFailure> {
        let Server { settings, clock, .. } = self.server;
        let begin = clock.now();
        let deadline = deadline(params, &settings.limits, begin);
        let sample = time_between_samples(meters);
        let mut part = Part::begin(begin, params.omit, Duration::ZERO, settings.interval);
        let mut next_sample = begin;
        let mut progress = Progress::new(&settings.limits, begin);
        loop {
            let now = clock.now();
            if next_sample <= now {
                // If the state of a socket can no longer be queried, the stream has ended; the client detects
                // that.
                let _ = sample_all(meters, now, part.omitted, watch);
                progress.look(now, sums::bytes_so_far(meters))?;
                // If a sample is late, the next one is due one interval from now.
                next_sample = now + sample;
            }
            let warm = part.omitted && part.is_over(now);
            if warm || part.next_report <= now {
                part.report(meters, now, warm, watch);
            }
            if warm {
                meters.iter_mut().for_each(|meter| meter.restart(now));
                part = Part::begin(now, Duration::ZERO, Duration::ZERO, settings.interval);
            }
            if deadline <= now {
                let why = format!("ended, because the test exceeded its duration by {GRACE}");
                return Err(TestFailure::Refused(Refusal::DURATION, why));
            }
            let wake = next_sample.min(part.next_report).min(part.end).min(deadline);
            let heard = self.control.state(wake);
            if matches!(heard, Err(ConnectionError::Silent)) {
                continue;
            }
            // The last report covers all data transferred so far, regardless of the reason why the test
            // ended.
            part.report(meters, clock.now(), true, watch);
            return match heard {
                Ok(State::TestEnd) => Ok(()),
                Ok(State::ClientTerminate) => Err(TestFailure::Terminated),
                Ok(_) => Err(Refusal::MESSAGE.into()),
                Err(broken) => Err(broken.into()),
            };
        }
    }

    /// Exchanges the results of the test with the client.
    fn conclude(&mut self, params: &Params, meters: Vec<Meter>, cpu: Cpu) -> Result<(), TestFailure> {
        let control = self.control;
        let ours = sums::results(&meters, params.protocol, cpu);
        for meter in &meters {
            // iperf3's client reads whole blocks and may be waiting for the rest of a block. The shutdown
            // sends end-of-file, without which the client would not check the control connection again. The
            // shutdown has no effect on UDP sockets.
            let _ = meter.stream.socket().shutdown(Shutdown::Both);
        }
        control.say(State::ExchangeResults)?;
        let theirs = Results::from_json(&control.frame(RESULTS_MOST)?).map_err(ConnectionError::from)?;
        theirs.of_streams(ours.streams.iter().map(|stream| stream.id))?;
        let main = |meter: &Meter| !meter.sends || params.mode != Mode::Bidirectional;
        let end = sums::end(&meters, params.protocol, &ours, Some(&theirs), main);
        // This event precedes the exchange of results, because the results may include the server's printed
        // output.
        self.tell(ServerEvent::Ended(Box::new(end)));
        let printed = params.get_server_output.then(|| self.server.audience.printed(&self.tag));
        let trace = params.wants_trace.then(|| self.server.audience.trace(&self.tag)).flatten();
        control.send(&Results { server_output: printed.flatten(), trace, ..ours }.to_json())?;
        self.leave();
        control.say(State::DisplayResults)?;
        // If the client disconnects without sending a final state, it has nevertheless received all results.
        let _ = control.state(self.server.clock.now() + FAREWELL);
        let _ = control.socket().shutdown(Shutdown::Write);
        Ok(())
    }
}

/// Forwards the events of a running test to the server's audience.
struct Watcher<'a> {
    server: &'a Server<'a>,
    tag: Tag,
}

impl Watch for Watcher<'_> {
    fn start(&mut self, start: &Start) {
        self.tell(ServerEvent::Started(Box::new(start.clone())));
    }

    fn row(&mut self, socket: i32, row: &Row, omitted: bool) {
        self.tell(ServerEvent::Row { socket, row: Box::new(row.clone()), omitted });
    }

    fn interval(&mut self, interval: Interval) {
        self.tell(ServerEvent::Interval(Box::new(interval)));
    }
}

impl Watcher<'_> {
    fn tell(&self, told: ServerEvent) {
        self.server.audience.hear(ServerNotice::Test(self.tag, told));
    }
}

/// Returns the time at which the server ends the test if the client does not end it. If the client requests
/// no duration, the server's maximum duration applies.
fn deadline(params: &Params, limits: &Limits, begin: Instant) -> Instant {
    let asked = Some(params.time).filter(|time| !time.is_zero()).map(|time| time + params.omit);
    asked.or(limits.duration).map_or(Instant::FAR_FUTURE, |longest| begin + longest + GRACE)
}

/// Returns the total number of bytes that a sending server may send; returns `None` if only the client ends
/// the test. The client counts the data that it receives: over TCP all sent data arrives, but over UDP or
/// with a warm-up the client does not count all of it.
fn budget(params: &Params) -> Option<Arc<Budget>> {
    let blocks = Bytes::new(params.blocks.saturating_mul(params.block().get()));
    let most = [params.num, blocks].into_iter().filter(|most| !most.is_zero()).min()?;
    let counts = params.protocol == Protocol::Tcp && params.omit.is_zero();
    counts.then(|| Arc::new(Budget::new(most)))
}

/// Checks that the test transfers data, and that its rate stays below the server's limit.
struct Progress {
    limit: Option<Rate>,
    over: Duration,
    /// Start of the current averaging period, and number of bytes transferred before that time.
    since: (Instant, Bytes),
    /// Unused allowance of the previous averaging period. A paced sender, including the server's own, needs
    /// this allowance to catch up after a delay.
    spared: Bytes,
    /// Time at which data was last transferred, and number of bytes transferred by then.
    moved: (Instant, Bytes),
}

impl Progress {
    fn new(limits: &Limits, now: Instant) -> Self {
        let begin = (now, Bytes::ZERO);
        Self { limit: limits.rate, over: limits.rate_over, since: begin, spared: Bytes::ZERO, moved: begin }
    }

    fn look(&mut self, now: Instant, moved: Bytes) -> Result<(), TestFailure> {
        if moved != self.moved.1 {
            self.moved = (now, moved);
        } else if now.saturating_since(self.moved.0) > NO_DATA {
            return Err(Refusal::NO_DATA.into());
        }
        let span = now.saturating_since(self.since.0);
        let Some(limit) = self.limit.filter(|_| span >= self.over) else { return Ok(()) };
        let (part, moved_since) = (limit * span, moved.saturating_sub(self.since.1));
        let rate = Rate::of(moved_since.saturating_sub(self.spared), span);
        self.since = (now, moved);
        self.spared = part.saturating_sub(moved_since);
        if rate > limit.mul_div(RATE_SLACK, 100) {
            let why = format!("ended: {rate} over {span}, but at most {limit} allowed");
            return Err(TestFailure::Refused(Refusal::TOTAL_RATE, why));
        }
        Ok(())
    }
}

/// Rate at which a test is ended, in percent of the rate limit. The margin tolerates a burst, and a sender
/// that exceeds the limit by less than one block.
const RATE_SLACK: u64 = 105;

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(rate: Option<u64>, duration: Option<u64>) -> Limits {
        let rate = rate.map(Rate::from_bps);
        Limits { rate, duration: duration.map(Duration::from_secs), ..Limits::default() }
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_test_that_moves_nothing_is_given_up() {
        let mut progress = Progress::new(&limits(None, None), at(0));
        assert!(progress.look(at(119), Bytes::ZERO).is_ok());
        assert!(progress.look(at(120), Bytes::new(1)).is_ok());
        assert!(progress.look(at(240), Bytes::new(1)).is_ok());
        let gone = progress.look(at(241), Bytes::new(1));
        assert!(matches!(gone, Err(TestFailure::Refused(Refusal::NO_DATA, _))));
    }

    #[test]
    fn the_rate_is_a_mean_over_some_seconds() {
        // The allowance of 1 Mbit/s over 5 s is 625 000 bytes.
        let mut progress = Progress::new(&limits(Some(1_000_000), None), at(0));
        assert!(progress.look(at(4), Bytes::new(650_000)).is_ok(), "not yet");
        assert!(progress.look(at(5), Bytes::new(650_000)).is_ok(), "within the slack");
        assert!(progress.look(at(10), Bytes::new(1_275_000)).is_ok());
        let fast = progress.look(at(15), Bytes::new(1_275_000 + 657_000));
        assert!(matches!(fast, Err(TestFailure::Refused(Refusal::TOTAL_RATE, _))));
    }

    #[test]
    fn a_span_may_make_up_for_the_one_before_it() {
        let mut progress = Progress::new(&limits(Some(1_000_000), None), at(0));
        assert!(progress.look(at(5), Bytes::new(500_000)).is_ok());
        assert!(progress.look(at(10), Bytes::new(1_250_000)).is_ok());
        assert!(progress.look(at(15), Bytes::new(1_875_000)).is_ok());
        let fast = progress.look(at(20), Bytes::new(1_875_000 + 657_000));
        assert!(
            matches!(fast, Err(TestFailure::Refused(Refusal::TOTAL_RATE, _))),
            "nothing is left of older ones"
        );
    }

    #[test]
    fn every_test_has_its_end_where_time_is_limited() {
        let of = |time, limits| {
            let params =
                Params { time: Duration::from_secs(time), omit: Duration::from_secs(2), ..Params::default() };
            deadline(&params, &limits, at(1))
        };
        assert_eq!(of(10, limits(None, None)), at(1 + 10 + 2 + 40));
        assert_eq!(of(0, limits(None, Some(60))), at(1 + 60 + 40));
        assert!(of(0, limits(None, None)).is_never());
    }
}
