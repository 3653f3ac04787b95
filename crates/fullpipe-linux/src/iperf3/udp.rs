//! UDP streams, whose datagrams have a header with a sequence number and are counted at both ends.

use std::io::{self, ErrorKind};
use std::sync::atomic::Ordering::Relaxed;

use fullpipe_iperf3::Arrivals;
use fullpipe_iperf3::datagram::{self, Header};
use fullpipe_units::{Bytes, Duration};
use rustix::event::PollFlags;
use socket2::Socket;

use super::stream::{LOOK_EVERY, Pace, Sending, Stream, StreamCounters, payload};
use super::wait::{ready, stops_within};
use crate::clock::Clock;
use crate::error::Error;
use crate::poll::Stop;

impl Stream {
    /// Starts a stream that sends datagrams on the connected `socket` until the budget is used up or `stop`
    /// is set. If `wide` is set, sequence numbers have 64 bits.
    pub(crate) fn send_datagrams(
        socket: Socket,
        sending: Sending,
        wide: bool,
        clock: Clock,
        stop: &Stop,
    ) -> Result<Self, Error> {
        let stop = stop.clone();
        Self::spawn(socket, move |socket, counted| send(socket, &sending, wide, counted, clock, &stop))
    }

    /// Starts a stream that counts the datagrams that arrive on the connected `socket`, until `stop` is set.
    pub(crate) fn receive_datagrams(
        socket: Socket,
        wide: bool,
        clock: Clock,
        stop: &Stop,
    ) -> Result<Self, Error> {
        let stop = stop.clone();
        Self::spawn(socket, move |socket, counted| receive(socket, wide, counted, clock, &stop))
    }

    /// Returns loss, reordering and jitter of the received datagrams.
    pub(crate) fn arrivals(&self) -> Arrivals {
        self.counted().arrivals.lock().map(|arrivals| arrivals.clone()).unwrap_or_default()
    }

    /// Ends the warm-up of the stream by resetting the jitter.
    pub(crate) fn omitted(&self) {
        if let Ok(mut arrivals) = self.counted().arrivals.lock() {
            arrivals.omitted();
        }
    }
}

fn send(
    socket: &Socket,
    sending: &Sending,
    wide: bool,
    counted: &StreamCounters,
    clock: Clock,
    stop: &Stop,
) -> io::Result<()> {
    let mut datagram = payload(Bytes::new(sending.block.get().max(datagram::LONGEST as u64)));
    let pace = Pace::new(sending, clock.now());
    let (mut sent, mut number) = (0u64, 0u64);
    loop {
        if !pace.wait(sent, clock, stop)? {
            return Ok(());
        }
        for _ in 0..sending.burst.max(1) {
            let most = datagram.len() as u64;
            // A datagram is never split, so the last datagram may exceed the budget.
            if sending.budget.as_ref().is_some_and(|budget| budget.take(most) == 0) {
                return Ok(());
            }
            number += 1;
            loop {
                Header { sent: clock.now(), number }.write(wide, &mut datagram);
                match socket.send(&datagram) {
                    Ok(_) => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        if !ready(socket, PollFlags::OUT, stop)? {
                            return Ok(());
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
            sent += most;
            counted.bytes.fetch_add(most, Relaxed);
            counted.datagrams.fetch_add(1, Relaxed);
        }
        if number.is_multiple_of(LOOK_EVERY) && stops_within(stop, Duration::ZERO)? {
            return Ok(());
        }
    }
}

fn receive(
    socket: &Socket,
    wide: bool,
    counted: &StreamCounters,
    clock: Clock,
    stop: &Stop,
) -> io::Result<()> {
    // The buffer is larger than any datagram, so no datagram is truncated and all its bytes are
    // counted.
    let mut buffer = vec![0; 1 << 16];
    let mut socket_reader: &Socket = socket;
    let mut reads = 0u64;
    loop {
        match io::Read::read(&mut socket_reader, &mut buffer) {
            Ok(len) => {
                reads += 1;
                if reads.is_multiple_of(LOOK_EVERY) && stops_within(stop, Duration::ZERO)? {
                    return Ok(());
                }
                // Only datagrams of the test are counted, and not, for example, a second hello.
                let Some(header) = Header::read(wide, &buffer[..len]) else { continue };
                counted.bytes.fetch_add(len as u64, Relaxed);
                if let Ok(mut arrivals) = counted.arrivals.lock() {
                    arrivals.arrived(clock.now(), header);
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if !ready(socket, PollFlags::IN, stop)? {
                    return Ok(());
                }
            }
            // The peer's socket is closed or not open yet. This error does not end the stream.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iperf3::stream::Budget;
    use fullpipe_units::Rate;
    use std::net::UdpSocket;
    use std::sync::Arc;

    /// At a rate that the loopback device sustains, no datagram is lost, and both ends count the same number
    /// of datagrams.
    #[test]
    fn datagrams_are_numbered_paced_and_counted() {
        let (near, far) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        near.connect(far.local_addr().unwrap()).unwrap();
        far.connect(near.local_addr().unwrap()).unwrap();
        let clock = Clock::starting_in(Duration::ZERO);
        let stop = Stop::new().unwrap();
        let mut receiver = Stream::receive_datagrams(far.into(), true, clock, &stop).unwrap();
        let sending = Sending {
            block: Bytes::new(1_000),
            rate: Some(Rate::from_bps(8_000_000)),
            burst: 1,
            // This amount of data fits into the receive buffer, so no datagram is lost while the receiver
            // waits for a CPU.
            budget: Some(Arc::new(Budget::new(Bytes::new(50_000)))),
        };
        let begin = clock.now();
        let mut sender = Stream::send_datagrams(near.into(), sending, true, clock, &stop).unwrap();
        let until = begin + Duration::from_secs(60);
        let wait_for = |happened: &dyn Fn() -> bool| {
            while !happened() && clock.now() < until {
                clock.sleep_until(clock.now() + Duration::from_millis(1));
            }
        };
        wait_for(&|| sender.has_ended());
        let took = clock.now().saturating_since(begin);
        wait_for(&|| receiver.arrivals().counts().packets >= 50);
        stop.stop();
        assert_eq!((sender.datagrams(), sender.bytes().get()), (50, 50_000));
        let counts = receiver.arrivals().counts();
        assert_eq!((counts.packets, counts.lost, counts.out_of_order), (50, 0, 0));
        assert_eq!(receiver.bytes().get(), 50_000);
        // At 1000 datagrams per second, the 50th datagram is due after 49 ms.
        assert!(took >= Duration::from_millis(49), "{took}");
        sender.join().unwrap();
        receiver.join().unwrap();
    }
}
