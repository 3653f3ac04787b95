//! One TCP stream of an iperf3 test: its socket, the thread that transfers its data, and its counters.
//!
//! ```text
//!   write or read ──► EAGAIN ──► wait for the socket, or the stop signal ──► ...
//!        │                                                           └──► ended
//!        └──► ahead of -b ──► wait until due, or for the stop signal ──► ...
//! ```
//!
//! Both client and server use this module. The counters only increase; an interval report, or a result
//! without the warm-up, is the difference between two readings of the counters. A sender counts the bytes
//! that it writes to the socket; only the receiver knows how many bytes have arrived.

use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use fullpipe_iperf3::Arrivals;
use fullpipe_units::{Bytes, Duration, Instant, Rate, draw};
use rustix::event::PollFlags;
use socket2::Socket;

use super::wait::{ready, stops_within};
use crate::clock::Clock;
use crate::error::{Doing, Error};
use crate::poll::Stop;
use crate::sys;

/// Number of reads, writes or datagrams after which a stream checks the stop signal. Without these checks, a
/// stream that never waits for its socket would not detect the signal.
pub(super) const LOOK_EVERY: u64 = 64;

/// Parameters of a stream on which this host sends.
#[derive(Clone, Debug)]
pub(crate) struct Sending {
    /// Number of bytes per write, or per datagram (`-l`).
    pub(crate) block: Bytes,
    /// Mean rate to which the stream is paced, from its start (`-b`). After a stall, the stream catches up,
    /// as in iperf3.
    pub(crate) rate: Option<Rate>,
    /// Number of blocks that are sent together once one of them is due.
    pub(crate) burst: u64,
    /// Amount of data that all streams may send in total (`-n`, `-k`).
    pub(crate) budget: Option<Arc<Budget>>,
}

/// Number of bytes that all streams of a test together may still send.
#[derive(Debug)]
pub(crate) struct Budget(AtomicU64);

impl Budget {
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self(AtomicU64::new(bytes.get()))
    }

    /// Takes up to `most` bytes from the budget, and returns the number of bytes taken; returns 0 once the
    /// budget is used up.
    pub(crate) fn take(&self, most: u64) -> u64 {
        let left = self.0.fetch_update(Relaxed, Relaxed, |left| Some(left.saturating_sub(most)));
        left.unwrap_or(0).min(most)
    }
}

/// Counters that the thread of a stream updates.
#[derive(Debug, Default)]
pub(crate) struct StreamCounters {
    /// Number of payload bytes that the stream has written or read.
    pub(crate) bytes: AtomicU64,
    /// Number of datagrams that the stream has sent.
    pub(crate) datagrams: AtomicU64,
    /// Loss, reordering and jitter of the received datagrams.
    pub(crate) arrivals: Mutex<Arrivals>,
}

/// A stream of an iperf3 test whose thread has been started.
pub(crate) struct Stream {
    socket: Arc<Socket>,
    counted: Arc<StreamCounters>,
    /// Thread of the stream; `None` after the thread has been joined.
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Stream {
    /// Starts a stream that sends on `socket` until the budget is used up, the peer closes the connection, or
    /// `stop` is set.
    pub(crate) fn send(socket: Socket, sending: Sending, clock: Clock, stop: &Stop) -> Result<Self, Error> {
        let stop = stop.clone();
        Self::spawn(socket, move |socket, counted| send(socket, &sending, counted, clock, &stop))
    }

    /// Starts a stream that reads from `socket`, at most `block` bytes per read, until the peer closes the
    /// connection or `stop` is set.
    pub(crate) fn receive(socket: Socket, block: Bytes, stop: &Stop) -> Result<Self, Error> {
        let stop = stop.clone();
        Self::spawn(socket, move |socket, counted| receive(socket, block, counted, &stop))
    }

    /// Starts a stream whose thread runs `work` with `socket` in non-blocking mode.
    pub(super) fn spawn(
        socket: Socket,
        work: impl FnOnce(&Socket, &StreamCounters) -> io::Result<()> + Send + 'static,
    ) -> Result<Self, Error> {
        socket.set_nonblocking(true).doing("make a socket non-blocking")?;
        let (socket, counted) = (Arc::new(socket), Arc::new(StreamCounters::default()));
        let (its_socket, its_count) = (Arc::clone(&socket), Arc::clone(&counted));
        let thread = thread::Builder::new().name(format!("stream {}", socket.as_raw_fd()));
        let thread = thread.spawn(move || work(&its_socket, &its_count)).doing("start a thread")?;
        Ok(Self { socket, counted, thread: Some(thread) })
    }

    /// Returns the socket of the stream, so that its state can be queried.
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Returns the number of payload bytes that the stream has written or read so far.
    pub(crate) fn bytes(&self) -> Bytes {
        Bytes::new(self.counted.bytes.load(Relaxed))
    }

    /// Returns the number of datagrams that the stream has sent so far.
    pub(crate) fn datagrams(&self) -> u64 {
        self.counted.datagrams.load(Relaxed)
    }

    pub(super) fn counted(&self) -> &StreamCounters {
        &self.counted
    }

    /// Returns whether the thread of the stream has ended, either by itself or because it was stopped.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the thread of the stream to end, and returns its result.
    pub(crate) fn join(&mut self) -> io::Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread of a stream panicked")))
    }
}

fn send(
    mut socket: &Socket,
    sending: &Sending,
    counted: &StreamCounters,
    clock: Clock,
    stop: &Stop,
) -> io::Result<()> {
    let payload = payload(sending.block);
    let pace = Pace::new(sending, clock.now());
    let mut sent = 0u64;
    loop {
        if !pace.wait(sent, clock, stop)? {
            return Ok(());
        }
        for _ in 0..sending.burst.max(1) {
            let most = payload.len() as u64;
            let block = sending.budget.as_ref().map_or(most, |budget| budget.take(most)) as usize;
            if block == 0 {
                return Ok(());
            }
            let mut rest = &payload[..block];
            while !rest.is_empty() {
                match socket.write(rest) {
                    Ok(written) => {
                        rest = &rest[written..];
                        sent += written as u64;
                        counted.bytes.fetch_add(written as u64, Relaxed);
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        if !ready(socket, PollFlags::OUT, stop)? {
                            return Ok(());
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        // If a socket always accepts data, the stream never waits, so it checks the stop signal here.
        if stops_within(stop, Duration::ZERO)? {
            return Ok(());
        }
    }
}

fn receive(socket: &Socket, block: Bytes, counted: &StreamCounters, stop: &Stop) -> io::Result<()> {
    let most = block.get().max(1) as usize;
    let mut reads = 0u64;
    loop {
        match sys::discard(socket.as_fd(), most) {
            Ok(0) => return Ok(()),
            Ok(taken) => {
                counted.bytes.fetch_add(taken as u64, Relaxed);
                reads += 1;
                if reads.is_multiple_of(LOOK_EVERY) && stops_within(stop, Duration::ZERO)? {
                    return receive_the_rest(socket, most, counted);
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if !ready(socket, PollFlags::IN, stop)? {
                    return receive_the_rest(socket, most, counted);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Reads and counts the data that has already arrived but has not been read; data that arrives later is not
/// counted.
fn receive_the_rest(socket: &Socket, most: usize, counted: &StreamCounters) -> io::Result<()> {
    let mut left = sys::unread(socket.as_fd())?;
    while left > 0 {
        match sys::discard(socket.as_fd(), most.min(left.try_into().unwrap_or(usize::MAX))) {
            Ok(0) => break,
            Ok(taken) => {
                counted.bytes.fetch_add(taken as u64, Relaxed);
                left = left.saturating_sub(taken as u64);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    Ok(())
}

/// Paces a stream to the mean rate that `-b` requests.
pub(super) struct Pace {
    rate: Option<Rate>,
    start: Instant,
}

impl Pace {
    pub(super) fn new(sending: &Sending, start: Instant) -> Self {
        Self { rate: sending.rate.filter(|rate| !rate.is_zero()), start }
    }

    /// Waits until more than `sent` bytes are due, and returns false if the stop signal was set.
    pub(super) fn wait(&self, sent: u64, clock: Clock, stop: &Stop) -> io::Result<bool> {
        let Some(rate) = self.rate else { return Ok(true) };
        let due = self.start + rate.time_for(Bytes::new(sent));
        loop {
            let left = due.saturating_since(clock.now());
            if left.is_zero() {
                return Ok(true);
            }
            if stops_within(stop, left)? {
                return Ok(false);
            }
        }
    }
}

/// Returns a block of payload that cannot be compressed.
pub(super) fn payload(block: Bytes) -> Vec<u8> {
    let words = block.get().div_ceil(8);
    let mut bytes: Vec<u8> = (0..words).flat_map(|word| draw(0, 0, word).to_le_bytes()).collect();
    bytes.truncate(block.get() as usize);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_iperf3::params::TCP_BLOCK;
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (Socket, Socket) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let near = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        let (far, _) = listener.accept().expect("a connection");
        (near.into(), far.into())
    }

    fn sending(rate: Option<Rate>, budget: Option<u64>) -> Sending {
        let budget = budget.map(|bytes| Arc::new(Budget::new(Bytes::new(bytes))));
        Sending { block: TCP_BLOCK, rate, burst: 1, budget }
    }

    /// Waits until `happened` returns true, for at most one minute, and returns whether it did.
    fn becomes(clock: Clock, happened: impl Fn() -> bool) -> bool {
        let until = clock.now() + Duration::from_secs(60);
        while !happened() {
            if until <= clock.now() {
                return false;
            }
            clock.sleep_until(clock.now() + Duration::from_millis(1));
        }
        true
    }

    /// With `-n`, no more bytes are sent than requested, for any block size, and both ends count the same
    /// number of bytes.
    #[test]
    fn a_budget_is_sent_to_the_byte_by_all_streams_together() {
        let clock = Clock::starting_in(Duration::ZERO);
        let stop = Stop::new().expect("an eventfd");
        let plan = sending(None, Some(1_000_001));
        let mut ends = Vec::new();
        for _ in 0..3 {
            let (near, far) = pair();
            let sender = Stream::send(near, plan.clone(), clock, &stop).expect("a thread");
            ends.push((sender, Stream::receive(far, TCP_BLOCK, &stop).expect("a thread")));
        }
        let (mut sent, mut received) = (0, 0);
        for (mut sender, mut receiver) in ends {
            let counted = Arc::clone(&sender.counted);
            sender.join().expect("no error");
            sent += counted.bytes.load(Relaxed);
            // Dropping the sender closes its socket, and the receiver then ends.
            drop(sender);
            let counted = Arc::clone(&receiver.counted);
            receiver.join().expect("no error");
            received += counted.bytes.load(Relaxed);
        }
        assert_eq!((sent, received), (1_000_001, 1_000_001));
    }

    /// A receiver stops on request even if the peer keeps sending; otherwise, joining its thread would block
    /// forever.
    #[test]
    fn a_receiver_that_is_never_idle_hears_the_word() {
        let clock = Clock::starting_in(Duration::ZERO);
        let (theirs, ours) = (Stop::new().expect("an eventfd"), Stop::new().expect("an eventfd"));
        let (near, far) = pair();
        let mut sender = Stream::send(near, sending(None, None), clock, &theirs).expect("a thread");
        // With one byte per read, the receive buffer is never empty.
        let mut receiver = Stream::receive(far, Bytes::new(1), &ours).expect("a thread");
        assert!(becomes(clock, || !receiver.bytes().is_zero()));
        ours.stop();
        assert!(becomes(clock, || receiver.has_ended()));
        receiver.join().expect("no error");
        theirs.stop();
        sender.join().expect("no error");
    }

    /// With `-b`, no block is sent before it is due.
    #[test]
    fn a_paced_sender_keeps_its_rate() {
        let clock = Clock::starting_in(Duration::ZERO);
        let stop = Stop::new().expect("an eventfd");
        let (near, far) = pair();
        // At a rate of 10 Mbit/s, a block of 128 KiB is due every 105 ms.
        let rate = Rate::from_bps(10_000_000);
        let begun = clock.now();
        let mut sender = Stream::send(near, sending(Some(rate), None), clock, &stop).expect("a thread");
        let mut receiver = Stream::receive(far, TCP_BLOCK, &stop).expect("a thread");
        for blocks in 1..=5 {
            assert!(becomes(clock, || sender.bytes() >= TCP_BLOCK.mul_div(blocks, 1)));
            let sent = sender.bytes();
            let took = clock.now().saturating_since(begun);
            let due = rate.time_for(sent.saturating_sub(TCP_BLOCK));
            assert!(took >= due, "{sent} after {took}, due after {due}");
        }
        stop.stop();
        sender.join().expect("no error");
        receiver.join().expect("no error");
    }

    /// With `-b`, a sender that waits until its next block is due detects the stop signal.
    #[test]
    fn a_paced_sender_hears_the_word() {
        let clock = Clock::starting_in(Duration::ZERO);
        let stop = Stop::new().expect("an eventfd");
        let (near, far) = pair();
        // At a rate of 100 bit/s, a block of 128 KiB is due every three hours.
        let plan = sending(Some(Rate::from_bps(100)), None);
        let mut sender = Stream::send(near, plan, clock, &stop).expect("a thread");
        let mut receiver = Stream::receive(far, TCP_BLOCK, &stop).expect("a thread");
        assert!(becomes(clock, || sender.bytes() == TCP_BLOCK));
        assert!(!sender.has_ended());
        stop.stop();
        assert!(becomes(clock, || sender.has_ended()));
        sender.join().expect("no error");
        receiver.join().expect("no error");
        assert_eq!(sender.bytes(), TCP_BLOCK);
    }

    /// A sender detects the stop signal even if its peer reads nothing.
    #[test]
    fn a_blocked_sender_hears_the_word() {
        let clock = Clock::starting_in(Duration::ZERO);
        let stop = Stop::new().expect("an eventfd");
        let (near, _far) = pair();
        let mut sender = Stream::send(near, sending(None, None), clock, &stop).expect("a thread");
        // The test considers the sender blocked if the sender has written data and then writes nothing for 50
        // ms.
        assert!(becomes(clock, || {
            let written = sender.bytes();
            clock.sleep_until(clock.now() + Duration::from_millis(50));
            !written.is_zero() && sender.bytes() == written
        }));
        assert!(!sender.has_ended());
        stop.stop();
        assert!(becomes(clock, || sender.has_ended()));
        sender.join().expect("no error");
    }

    #[test]
    fn payload_is_of_the_size_asked_for_and_does_not_repeat() {
        let bytes = payload(Bytes::new(1_003));
        assert_eq!(bytes.len(), 1_003);
        assert_ne!(bytes[..500], bytes[500..1_000]);
    }
}
