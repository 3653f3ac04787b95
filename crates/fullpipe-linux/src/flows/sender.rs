//! The sending application of all flows.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddrV4;
use std::os::fd::AsFd;

use fullpipe_lab::scenario::FlowSpec;
use fullpipe_units::Instant;
use socket2::Socket;

use super::{Flow, LISTEN_PORT};
use crate::clock::Clock;
use crate::error::{Doing, Error};
use crate::poll::{Alarm, Poll, Stop};
use crate::wan::RECEIVER;

/// Most that is written at once.
const WRITE: usize = 256 << 10;

/// Writes for all `flows`, each from its start on, until `stop`.
pub(crate) fn send(flows: &[Flow], specs: &[FlowSpec], clock: Clock, stop: &Stop) -> Result<(), Error> {
    let mut poll = Poll::new()?;
    let mut happened = Vec::new();
    let alarm = Alarm::new()?;
    let (timer, stopping) = (flows.len() as u64, flows.len() as u64 + 1);
    poll.watch(alarm.as_fd(), timer)?;
    poll.watch(stop.as_fd(), stopping)?;
    let mut starts: Vec<(Instant, usize)> =
        specs.iter().enumerate().map(|(number, spec)| (Instant::ZERO + spec.start, number)).collect();
    starts.sort_unstable();
    let mut waiting = starts.into_iter().peekable();
    // What is still to be written; as much as goes in for a flow without end.
    let mut rest: Vec<u64> =
        specs.iter().map(|spec| spec.bytes.map_or(u64::MAX, |bytes| bytes.get())).collect();
    let zeros = vec![0; WRITE];

    loop {
        while let Some((_, number)) = waiting.next_if(|&(start, _)| start <= clock.now()) {
            connect(&flows[number])?;
            poll.watch_writes(flows[number].sender.as_fd(), number as u64)?;
        }
        alarm.set(&clock, waiting.peek().map_or(Instant::FAR_FUTURE, |&(start, _)| start))?;
        poll.wait(&mut happened)?;
        for &event in &happened {
            if event == stopping {
                return Ok(());
            }
            let number = event as usize;
            if event == timer {
                continue;
            }
            let flow = &flows[number];
            if rest[number] > 0 {
                fill(&flow.sender, &zeros, &mut rest[number])
                    .map_err(|error| Error::system(format_args!("write to flow {number}"), error))?;
                if rest[number] == 0 {
                    flow.sender.shutdown(std::net::Shutdown::Write).doing("end a flow")?;
                    poll.watch_end(flow.sender.as_fd(), event)?;
                }
            } else if !matches!((&flow.sender).read(&mut [0]), Err(error) if again(error.kind())) {
                // The receiver has closed: it has everything, and its last acknowledgement is here.
                let _ = flow.finished.set(clock.now());
                poll.forget(flow.sender.as_fd())?;
            }
        }
    }
}

/// Writes until the send buffer is full, as a blocking writer does. A socket is writable again only when a third of its
/// buffer is free: who writes once for each time that it is never uses the last third.
///
/// A short write is the end of it. To go on until the kernel refuses would be too much: the kernel looks at the buffer
/// when it begins a packet and not when it adds to one, and a rest of less than a segment, which waits for more, takes
/// another 64 KiB with each write, many times what the buffer allows.
fn fill(mut socket: &Socket, zeros: &[u8], rest: &mut u64) -> io::Result<()> {
    while *rest > 0 {
        let most = (*rest).min(zeros.len() as u64) as usize;
        let written = match socket.write(&zeros[..most]) {
            Ok(written) => written,
            Err(error) if again(error.kind()) => return Ok(()),
            Err(error) => return Err(error),
        };
        // A flow without end stays without end.
        *rest -= if *rest == u64::MAX { 0 } else { written as u64 };
        if written < most {
            break;
        }
    }
    Ok(())
}

fn connect(flow: &Flow) -> Result<(), Error> {
    match flow.sender.connect(&SocketAddrV4::new(RECEIVER, LISTEN_PORT).into()) {
        Ok(()) => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(()),
        Err(error) => Err(Error::system("connect", error)),
    }
}

pub(super) fn again(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
