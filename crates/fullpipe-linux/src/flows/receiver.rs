//! The receiving applications of all flows on kernel sockets.

use std::io::ErrorKind;
use std::os::fd::AsFd;

use fullpipe_lab::scenario::{FlowSpec, Scenario};
use fullpipe_lab::workload::Reader;
use fullpipe_units::{Bytes, Instant};
use socket2::Socket;

use super::sender::again;
use super::sockets::clamp;
use super::{FIRST_PORT, Flow, Half};
use crate::clock::Clock;
use crate::error::{Doing, Error};
use crate::poll::{Alarm, Poll, Stop, WaitCondition};
use crate::sys;

/// Maximum number of bytes per read from a kernel socket.
const READ: usize = 4 << 20;

/// Accepts all flows on `listener` and reads each flow at the rate of its application, until `stop` is set.
pub(crate) fn receive(
    flows: &[Flow],
    scenario: &Scenario,
    listener: &Socket,
    clock: Clock,
    stop: &Stop,
) -> Result<(), Error> {
    let mut poll = Poll::new()?;
    let alarm = Alarm::new()?;
    let mut happened = Vec::new();
    let (listening, stopping, timer) = (flows.len() as u64, flows.len() as u64 + 1, flows.len() as u64 + 2);
    poll.watch(listener.as_fd(), listening)?;
    poll.watch(stop.as_fd(), stopping)?;
    poll.watch(alarm.as_fd(), timer)?;
    let window_clamp = scenario.host.window_clamp;
    let mut receivers: Vec<Receiver> = scenario.flows.iter().map(Receiver::new).collect();
    loop {
        let now = clock.now();
        for (number, receiver) in receivers.iter_mut().enumerate() {
            if receiver.wakes_at() <= now
                && let Some(socket) = flows[number].receiver.socket()
            {
                receiver.read(socket, number, window_clamp, now, &poll)?;
            }
        }
        let wakes = receivers.iter().map(Receiver::wakes_at).min();
        alarm.set(&clock, wakes.unwrap_or(Instant::FAR_FUTURE))?;
        poll.wait(&mut happened)?;
        for &event in happened.iter().filter(|&&event| event != timer) {
            if event == stopping {
                return Ok(());
            }
            if event == listening {
                accept(flows, listener, &poll)?;
                continue;
            }
            let number = event as usize;
            let Some(socket) = flows[number].receiver.socket() else { continue };
            receivers[number].read(socket, number, window_clamp, clock.now(), &poll)?;
        }
    }
}

/// The receiving application of one flow on a kernel socket.
struct Receiver {
    reader: Reader,
    busy: bool,
    ended: bool,
}

impl Receiver {
    fn new(spec: &FlowSpec) -> Self {
        Self {
            reader: Reader::new(spec.workload.reading, Instant::ZERO + spec.start),
            busy: false,
            ended: false,
        }
    }

    fn wakes_at(&self) -> Instant {
        if self.ended { Instant::FAR_FUTURE } else { self.reader.wakes_at() }
    }

    fn read(
        &mut self,
        socket: &Socket,
        number: usize,
        window_clamp: Option<Bytes>,
        now: Instant,
        poll: &Poll,
    ) -> Result<(), Error> {
        let most = self.reader.takes(now).min(READ as u64) as usize;
        let taken =
            if most == 0 { Err(ErrorKind::WouldBlock.into()) } else { sys::discard(socket.as_fd(), most) };
        match taken {
            Ok(0) => {
                // The sender has closed the connection. By closing the other direction, the receiver tells
                // the sender that all data was read.
                self.ended = true;
                poll.forget(socket.as_fd())?;
                let _ = socket.shutdown(std::net::Shutdown::Write);
                return Ok(());
            }
            Ok(taken) => {
                self.reader.took(now, taken as u64);
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

fn accept(flows: &[Flow], listener: &Socket, poll: &Poll) -> Result<(), Error> {
    let (socket, peer) = match listener.accept() {
        Ok(accepted) => accepted,
        Err(error) if again(error.kind()) => return Ok(()),
        Err(error) => return Err(Error::system("accept a flow", error)),
    };
    socket.set_nonblocking(true).doing("make a socket non-blocking")?;
    let port = peer.as_socket().map_or(0, |peer| peer.port());
    let number = usize::from(port.wrapping_sub(FIRST_PORT));
    if let Some(Half::Kernel(receiver)) = flows.get(number).map(|flow| &flow.receiver) {
        poll.watch(socket.as_fd(), number as u64)?;
        let _ = receiver.set(socket);
    }
    Ok(())
}
