//! The sending applications of all flows on kernel sockets.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddrV4;
use std::os::fd::AsFd;

use fullpipe_lab::scenario::FlowSpec;
use fullpipe_lab::workload::Writer;
use fullpipe_units::{Bytes, Instant};
use socket2::Socket;

use super::{Flow, LISTEN_PORT, Opener, Servers, WRITE, ZEROS, accept, again, connect};
use crate::clock::Clock;
use crate::error::{Doing, Error};
use crate::poll::{Alarm, Poll, Stop, WaitCondition};
use crate::sys;
use crate::wan::RECEIVER;

/// Connects each flow without a request at its start time, accepts the other flows on `servers`, and writes
/// the data of all flows, until `stop` is set.
pub(crate) fn send(
    flows: &[Flow],
    specs: &[FlowSpec],
    servers: &Servers,
    clock: Clock,
    stop: &Stop,
) -> Result<(), Error> {
    let mut poll = Poll::new()?;
    let mut happened = Vec::new();
    let alarm = Alarm::new()?;
    let (timer, stopping) = (flows.len() as u64, flows.len() as u64 + 1);
    poll.watch(alarm.as_fd(), timer)?;
    poll.watch(stop.as_fd(), stopping)?;
    let first_server = flows.len() as u64 + 2;
    for (number, server) in (first_server..).zip(servers.sockets()) {
        poll.watch(server.as_fd(), number)?;
    }
    let mut waiting = Opener::Sender.starts(specs);
    let mut senders: Vec<Sender> = specs.iter().map(Sender::new).collect();

    loop {
        let now = clock.now();
        while let Some((_, number)) = waiting.next_if(|&(start, _)| start <= now) {
            let Some(socket) = flows[number].sender.socket() else { continue };
            connect(socket, SocketAddrV4::new(RECEIVER, LISTEN_PORT))?;
            poll.watch_writes(socket.as_fd(), number as u64)?;
        }
        for (number, sender) in senders.iter_mut().enumerate() {
            if sender.wakes_at() <= now {
                sender.write(&flows[number], number, now, &poll)?;
            }
        }
        let wakes = senders.iter().map(Sender::wakes_at).min();
        let starts = waiting.peek().map_or(Instant::FAR_FUTURE, |&(start, _)| start);
        alarm.set(&clock, starts.min(wakes.unwrap_or(Instant::FAR_FUTURE)))?;
        poll.wait(&mut happened)?;
        for &event in happened.iter().filter(|&&event| event != timer) {
            if event == stopping {
                return Ok(());
            }
            let server = event.checked_sub(first_server).map(|which| which as usize);
            if let Some(which) = server
                && let Some(server) = servers.sockets().get(which)
            {
                accept(flows, server, |flow| &flow.sender, &poll, servers.next_relayed(which, flows))?;
                continue;
            }
            let number = event as usize;
            let (flow, sender) = (&flows[number], &mut senders[number]);
            let Some(mut socket) = flow.sender.socket() else { continue };
            if !sender.has_request(socket, number)? {
                continue;
            }
            if !sender.writer.is_done() {
                sender.write(flow, number, clock.now(), &poll)?;
            } else if !matches!(socket.read(&mut [0]), Err(error) if again(error.kind())) {
                // The receiver has closed the connection, so the receiver has all data and its last ACK has
                // arrived.
                let _ = flow.finished.set(clock.now());
                poll.forget(socket.as_fd())?;
            }
        }
    }
}

/// The sending application of one flow on a kernel socket.
struct Sender {
    /// Number of bytes of the request that the application has not read yet; zero without a request.
    request: u64,
    writer: Writer,
    awaited: WaitCondition,
}

impl Sender {
    fn new(spec: &FlowSpec) -> Self {
        // A connecting socket becomes writable when its connection is established, so it is watched for
        // writability from the start. An accepted socket is watched for the request.
        let awaited = match Opener::of(spec) {
            Opener::Sender => WaitCondition::Room,
            Opener::Receiver => WaitCondition::Data,
        };
        Self {
            request: spec.workload.request.map_or(0, Bytes::get),
            writer: Writer::new(spec.workload.writing, spec.bytes),
            awaited,
        }
    }

    /// Reads the part of the request that has arrived, and returns whether the request is complete. For a
    /// flow without a request, returns true.
    fn has_request(&mut self, socket: &Socket, number: usize) -> Result<bool, Error> {
        while self.request > 0 {
            match sys::discard(socket.as_fd(), self.request as usize) {
                Ok(taken) if taken > 0 => self.request -= taken as u64,
                Err(error) if again(error.kind()) => return Ok(false),
                ended => {
                    let error = ended.err().unwrap_or_else(|| ErrorKind::UnexpectedEof.into());
                    return Err(Error::system(format_args!("read the request of flow {number}"), error));
                }
            }
        }
        Ok(true)
    }

    fn wakes_at(&self) -> Instant {
        if self.writer.is_done() { Instant::FAR_FUTURE } else { self.writer.wakes_at() }
    }

    fn write(&mut self, flow: &Flow, number: usize, now: Instant, poll: &Poll) -> Result<(), Error> {
        let Some(socket) = flow.sender.socket() else { return Ok(()) };
        let offered = self.writer.offers(now);
        flow.offers(&self.writer);
        let taken = fill(socket, offered)
            .map_err(|error| Error::system(format_args!("write to flow {number}"), error))?;
        self.writer.wrote(offered, taken);
        let awaited = if taken < offered || self.writer.has_more() {
            WaitCondition::Room
        } else if self.writer.is_done() {
            socket.shutdown(std::net::Shutdown::Write).doing("end a flow")?;
            WaitCondition::Data
        } else {
            WaitCondition::Nothing
        };
        if awaited != self.awaited {
            poll.watch_instead(socket.as_fd(), number as u64, awaited)?;
            self.awaited = awaited;
        }
        Ok(())
    }
}

/// Writes `offered` bytes as iperf3 does, in blocks of 128 KiB, and returns the number of bytes that the
/// kernel accepted. The function repeats the write of a block until the block is complete or the kernel
/// returns EAGAIN. After EAGAIN, the rest of the block counts as the next block. The number of blocks in
/// `offered` bounds the number of attempts.
///
/// After EAGAIN, a further write may succeed: the kernel checks the send buffer only when it allocates a new
/// skb, not when it appends to one. While the front of the last skb in the queue is being sent, the kernel
/// again appends data to its end.
fn fill(mut socket: &Socket, offered: u64) -> io::Result<u64> {
    let mut taken = 0;
    for _ in 0..offered.div_ceil(WRITE as u64) {
        let mut rest = offered.min((taken / WRITE as u64 + 1) * WRITE as u64) - taken;
        while rest > 0 {
            match socket.write(&ZEROS[..rest as usize]) {
                Ok(written) => (taken, rest) = (taken + written as u64, rest - written as u64),
                Err(error) if again(error.kind()) => break,
                Err(error) => return Err(error),
            }
        }
    }
    Ok(taken)
}
