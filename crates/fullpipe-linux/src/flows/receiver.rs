//! The receiving applications of all flows on kernel sockets.

use std::io::{ErrorKind, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};

use fullpipe_lab::outcome::ResponseOutcome;
use fullpipe_lab::scenario::{FlowSpec, Scenario};
use fullpipe_lab::workload::Reader;
use fullpipe_units::{Bytes, Instant};
use socket2::Socket;

use super::sockets::clamp;
use super::{Flow, Opener, Starts, accept, again, connect, set_receiver_algorithm};
use crate::clock::Clock;
use crate::error::{Doing, Error};
use crate::poll::{Alarm, Poll, Stop, WaitCondition};
use crate::sys;

/// Maximum number of bytes per read from a kernel socket.
const READ: usize = 4 << 20;
/// Maximum number of bytes per read call that waits inside the kernel.
const LONG_READ: usize = 1 << 30;
/// Maximum number of bytes per write of a request.
const REQUEST: usize = 4 << 10;
static ZEROS: [u8; REQUEST] = [0; REQUEST];

/// Method of reading the data of a flow whose application reads without a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GreedyReads {
    /// One thread reads all flows, each as soon as epoll reports data.
    Polled,
    /// A thread for each flow waits inside the kernel, which reads each segment when it arrives. The ACKs are
    /// the same as with [`Self::Polled`], but no system call is needed per segment.
    Blocking,
}

/// Accepts flows without a request on `listeners`, connects the other flows at their start times, and reads
/// each flow at the rate of its application, until `stop` is set.
pub(crate) fn receive(
    flows: &[Flow],
    scenario: &Scenario,
    listeners: &[Socket],
    clock: Clock,
    stop: &Stop,
    greedy: GreedyReads,
) -> Result<(), Error> {
    let blocking = BlockingReads { stopped: AtomicBool::new(false) };
    thread::scope(|scope| {
        let mut threads = Vec::new();
        let mut hand_over = |socket| threads.push(blocking.start(scope, socket));
        let hand_over: Option<&mut dyn FnMut(_)> = match greedy {
            GreedyReads::Polled => None,
            GreedyReads::Blocking => Some(&mut hand_over),
        };
        let received = receive_polled(flows, scenario, listeners, clock, stop, hand_over);
        let read = threads.into_iter().map(|(socket, thread)| blocking.end(socket, thread));
        read.fold(received, Result::and)
    })
}

/// Threads that wait inside the kernel to read flows.
struct BlockingReads {
    /// Whether the run has ended.
    stopped: AtomicBool,
}

type Reading<'s, 'f> = (&'f Socket, ScopedJoinHandle<'s, Result<(), Error>>);

impl BlockingReads {
    fn start<'s, 'f: 's>(&'s self, scope: &'s Scope<'s, '_>, socket: &'f Socket) -> Reading<'s, 'f> {
        (socket, scope.spawn(|| self.read(socket)))
    }

    fn read(&self, socket: &Socket) -> Result<(), Error> {
        socket.set_nonblocking(false).doing("make a socket blocking")?;
        loop {
            match sys::discard_all(socket.as_fd(), LONG_READ) {
                Ok(0) if self.stopped.load(Ordering::Acquire) => return Ok(()),
                Ok(0) => {
                    confirm_end(socket);
                    return Ok(());
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::system("read from a flow", error)),
            }
        }
    }

    fn end(&self, socket: &Socket, thread: ScopedJoinHandle<'_, Result<(), Error>>) -> Result<(), Error> {
        self.stopped.store(true, Ordering::Release);
        // The shutdown ends the thread's wait. The shutdown fails only if the connection has already ended,
        // in which case the thread does not wait.
        let _ = socket.shutdown(Shutdown::Read);
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Closes this direction of a connection that the sender has closed, to tell the sender that all data was
/// read.
fn confirm_end(socket: &Socket) {
    // An error means that the connection was reset, so the sender is not waiting.
    let _ = socket.shutdown(Shutdown::Write);
}

fn receive_polled<'f>(
    flows: &'f [Flow],
    scenario: &Scenario,
    listeners: &[Socket],
    clock: Clock,
    stop: &Stop,
    mut hand_over: Option<&mut dyn FnMut(&'f Socket)>,
) -> Result<(), Error> {
    let mut poll = Poll::new()?;
    let alarm = Alarm::new()?;
    let mut happened = Vec::new();
    let (timer, stopping) = (flows.len() as u64, flows.len() as u64 + 1);
    let first_listener = flows.len() as u64 + 2;
    for (number, listener) in (first_listener..).zip(listeners) {
        poll.watch(listener.as_fd(), number)?;
    }
    poll.watch(stop.as_fd(), stopping)?;
    poll.watch(alarm.as_fd(), timer)?;
    let window_clamp = scenario.host.window_clamp;
    let mut receivers: Vec<Receiver> = scenario.flows.iter().map(Receiver::new).collect();
    let mut waiting = Opener::Receiver.starts(&scenario.flows);
    if waiting.peek().is_some() {
        // The clock shows time zero until it starts. A SYN that is sent earlier would wait on the path until
        // the clock starts.
        clock.sleep_until(Instant::from_nanos(1));
    }
    let next = |receivers: &[Receiver], waiting: &mut Starts| {
        let wakes = receivers.iter().map(Receiver::wakes_at).min().unwrap_or(Instant::FAR_FUTURE);
        waiting.peek().map_or(wakes, |&(start, _)| start.min(wakes))
    };
    loop {
        // Most receivers only wait for data and do not need the time. On some systems, reading the clock
        // takes a system call.
        let now = match next(&receivers, &mut waiting) {
            at if at.is_never() => Instant::ZERO,
            _ => clock.now(),
        };
        while let Some((_, number)) = waiting.next_if(|&(start, _)| start <= now) {
            let Some(socket) = flows[number].receiver.socket() else { continue };
            receivers[number].opened_at = clock.now();
            connect(socket, flows[number].server)?;
            poll.watch_writes(socket.as_fd(), number as u64)?;
        }
        for (number, receiver) in receivers.iter_mut().enumerate() {
            if receiver.wakes_at() <= now {
                receiver.read(&flows[number], number, window_clamp, clock, &poll)?;
            }
        }
        alarm.set(&clock, next(&receivers, &mut waiting))?;
        poll.wait(&mut happened)?;
        for &event in happened.iter().filter(|&&event| event != timer) {
            if event == stopping {
                return Ok(());
            }
            let listener = event.checked_sub(first_listener).map(|which| which as usize);
            if let Some(listener) = listener.and_then(|which| listeners.get(which)) {
                if let Some(number) = accept(flows, listener, |flow| &flow.receiver, &poll, None)?
                    && let Some(socket) = flows[number].receiver.socket()
                {
                    set_receiver_algorithm(socket, &scenario.flows[number], &scenario.flows)?;
                }
                continue;
            }
            let number = event as usize;
            let (flow, receiver) = (&flows[number], &mut receivers[number]);
            if let Some(hand_over) = &mut hand_over
                && receiver.only_waits_for_data(window_clamp)
                && let Some(socket) = flow.receiver.socket()
            {
                poll.forget(socket.as_fd())?;
                hand_over(socket);
            } else if receiver.unsent > 0 {
                receiver.send_request(flow, number, clock, &poll)?;
            } else {
                receiver.read(flow, number, window_clamp, clock, &poll)?;
            }
        }
    }
}

/// The receiving application of one flow on a kernel socket.
struct Receiver {
    reader: Reader,
    busy: bool,
    ended: bool,
    /// Number of bytes of the request that the application has not written yet; zero without a request.
    unsent: u64,
    /// Number of bytes of the flow that the application has not read yet.
    unread: u64,
    /// Number of bytes that the application has read.
    read: u64,
    /// Whether the application records the delays of the data.
    records_delays: bool,
    /// Time at which the application started to connect a flow with a request.
    opened_at: Instant,
    /// Time at which the application started to send the request; `None` for a flow without a request.
    requested_at: Option<Instant>,
}

impl Receiver {
    fn new(spec: &FlowSpec) -> Self {
        Self {
            reader: Reader::new(spec.workload.reading, Instant::ZERO + spec.start),
            busy: false,
            ended: false,
            unsent: spec.workload.request.map_or(0, Bytes::get),
            unread: spec.bytes.map_or(u64::MAX, Bytes::get),
            read: 0,
            records_delays: spec.workload.writing.is_paced(),
            opened_at: Instant::ZERO + spec.start,
            requested_at: None,
        }
    }

    fn wakes_at(&self) -> Instant {
        if self.ended { Instant::FAR_FUTURE } else { self.reader.wakes_at() }
    }

    /// Returns whether the application reads all data as soon as it arrives, and does nothing else.
    fn only_waits_for_data(&self, window_clamp: Option<Bytes>) -> bool {
        self.reader.is_greedy()
            && !self.records_delays
            && self.unsent == 0
            && self.requested_at.is_none()
            && window_clamp.is_none()
    }

    /// Writes as much of the request as the socket accepts, once the connection is established. After the
    /// request, the socket is watched for the response.
    fn send_request(&mut self, flow: &Flow, number: usize, clock: Clock, poll: &Poll) -> Result<(), Error> {
        let Some(mut socket) = flow.receiver.socket() else { return Ok(()) };
        while self.unsent > 0 {
            let now = clock.now();
            match socket.write(&ZEROS[..self.unsent.min(REQUEST as u64) as usize]) {
                Ok(written) => {
                    self.requested_at.get_or_insert(now);
                    self.unsent -= written as u64;
                }
                Err(error) if again(error.kind()) => return Ok(()),
                Err(error) => {
                    return Err(Error::system(format_args!("send the request of flow {number}"), error));
                }
            }
        }
        poll.watch_instead(socket.as_fd(), number as u64, WaitCondition::Data)
    }

    /// Reads the data that has arrived, but not more than the application currently wants.
    fn read(
        &mut self,
        flow: &Flow,
        number: usize,
        window_clamp: Option<Bytes>,
        clock: Clock,
        poll: &Poll,
    ) -> Result<(), Error> {
        let Some(socket) = flow.receiver.socket() else { return Ok(()) };
        // A greedy reader ignores the time.
        let now = if self.reader.is_greedy() { Instant::ZERO } else { clock.now() };
        let most = self.reader.takes(now).min(READ as u64) as usize;
        let taken =
            if most == 0 { Err(ErrorKind::WouldBlock.into()) } else { sys::discard(socket.as_fd(), most) };
        match taken {
            Ok(0) => {
                self.ended = true;
                poll.forget(socket.as_fd())?;
                confirm_end(socket);
                return Ok(());
            }
            Ok(taken) => {
                self.reader.took(now, taken as u64);
                self.unread = self.unread.saturating_sub(taken as u64);
                self.read += taken as u64;
                if self.records_delays {
                    flow.on_read(self.read, clock.now());
                }
                if let Some(requested_at) = self.requested_at.filter(|_| self.unread == 0) {
                    let read_at = clock.now();
                    let _ = flow.response.set(ResponseOutcome {
                        from_syn: read_at.saturating_since(self.opened_at),
                        from_request: read_at.saturating_since(requested_at),
                    });
                }
                // Since Linux 6.9, the kernel drops the window clamp when it updates its estimate of the skb
                // overhead, so the clamp is set again.
                if let Some(window) = window_clamp {
                    clamp(socket, window).doing("set TCP_WINDOW_CLAMP")?;
                }
            }
            Err(error) if again(error.kind()) => {}
            Err(error) => return Err(Error::system(format_args!("read from flow {number}"), error)),
        }
        let busy = !self.reader.wakes_at().is_never();
        if busy != self.busy {
            let awaited = if busy { WaitCondition::Nothing } else { WaitCondition::Data };
            poll.watch_instead(socket.as_fd(), number as u64, awaited)?;
            self.busy = busy;
        }
        Ok(())
    }
}
