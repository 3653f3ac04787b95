//! The receiving application of all flows.

use std::os::fd::AsFd;

use fullpipe_units::Bytes;
use socket2::Socket;

use super::sender::again;
use super::sockets::clamp;
use super::{FIRST_PORT, Flow};
use crate::error::{Doing, Error};
use crate::poll::{Poll, Stop};
use crate::sys;

/// Most that is taken at once.
const READ: usize = 4 << 20;

/// Accepts every flow on `listener` and reads whatever there is, at once, until `stop`.
pub(crate) fn receive(
    flows: &[Flow],
    listener: &Socket,
    window_clamp: Option<Bytes>,
    stop: &Stop,
) -> Result<(), Error> {
    let mut poll = Poll::new()?;
    let mut happened = Vec::new();
    let (listening, stopping) = (flows.len() as u64, flows.len() as u64 + 1);
    poll.watch(listener.as_fd(), listening)?;
    poll.watch(stop.as_fd(), stopping)?;
    loop {
        poll.wait(&mut happened)?;
        for &event in &happened {
            if event == stopping {
                return Ok(());
            }
            if event == listening {
                accept(flows, listener, &poll)?;
                continue;
            }
            let Some(socket) = flows[event as usize].receiver.get() else { continue };
            match sys::discard(socket.as_fd(), READ) {
                Ok(0) => {
                    // The sender has ended; closing tells it that everything was read.
                    poll.forget(socket.as_fd())?;
                    let _ = socket.shutdown(std::net::Shutdown::Write);
                }
                Ok(_) => {
                    // Since 6.9 a kernel forgets the bound when it learns how large packets are in memory.
                    if let Some(window) = window_clamp {
                        clamp(socket, window).doing("set TCP_WINDOW_CLAMP")?;
                    }
                }
                Err(error) if again(error.kind()) => {}
                Err(error) => return Err(Error::system(format_args!("read from flow {event}"), error)),
            }
        }
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
    if let Some(flow) = flows.get(number) {
        poll.watch(socket.as_fd(), number as u64)?;
        let _ = flow.receiver.set(socket);
    }
    Ok(())
}
