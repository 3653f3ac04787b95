//! Flows of a scenario: kernel sockets, with one thread that sends for all flows and one that receives;
//! or fullpipe's own TCP at one end, with its loop.
//!
//! The applications are those of the simulator: the sender always has more data, or a fixed number of
//! bytes; the receiver reads at once. Neither touches payload: the receiver discards data inside the
//! kernel.

mod ours;
mod receiver;
mod sender;
mod sockets;

use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, OnceLock};

use fullpipe_lab::scenario::{FlowSpec, HostSpec, Scenario};
use fullpipe_lab::trace::{ReceiverInfo, SenderTruth, TcpInfo};
use fullpipe_tcp::cc::Algorithm;
use fullpipe_tcp::stack::Stack;
use fullpipe_units::Instant;
use socket2::Socket;

use crate::error::Error;
use crate::{sys, tcp_info};

pub(crate) use fullpipe_lab::capture::{FIRST_PORT, LISTEN_PORT};
pub(crate) use ours::{Ours, Receivers, Senders, stack};
pub(crate) use receiver::receive;
pub(crate) use sender::send;
pub use sockets::kernel_name;
pub(crate) use sockets::{connecting, impose, listening};

/// Both ends of a flow, shared by the threads that move its bytes and the one that samples them.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) sender: Half,
    pub(crate) receiver: Half,
    /// Time at which the receiver had all data, for a flow of limited size.
    pub(crate) finished: OnceLock<Instant>,
}

/// One end of a flow.
#[derive(Debug)]
pub(crate) enum Half {
    /// Kernel socket; the receiver's is set when the connection is accepted.
    Kernel(OnceLock<Socket>),
    /// Connection on fullpipe's own TCP.
    Ours(Box<Ours>),
}

impl Flow {
    /// Creates both ends of every flow of `scenario`, unconnected; call it inside the sender's
    /// namespace. An end for which `stacks` has a stack uses that stack; any other end is a kernel
    /// socket.
    pub(crate) fn all(
        scenario: &Scenario,
        stacks: &[Option<Arc<Mutex<Stack>>>; 2],
    ) -> Result<Vec<Self>, Error> {
        let half = |number: usize, side: usize| {
            let stack = stacks[side].as_ref()?;
            Some(Half::Ours(Box::new(Ours::new(stack, scenario, number, side as u64))))
        };
        let numbered = scenario.flows.iter().enumerate();
        numbered
            .map(|(number, spec)| {
                let sender = match half(number, 0) {
                    Some(ours) => ours,
                    None => {
                        let socket = connecting(&scenario.host, spec, FIRST_PORT + number as u16)?;
                        Half::Kernel(OnceLock::from(socket))
                    }
                };
                let receiver = half(number, 1).unwrap_or(Half::Kernel(OnceLock::new()));
                Ok(Self { sender, receiver, finished: OnceLock::new() })
            })
            .collect()
    }
}

impl Half {
    /// Returns the kernel socket, if this end has one and it exists yet.
    pub(crate) fn socket(&self) -> Option<&Socket> {
        match self {
            Self::Kernel(socket) => socket.get(),
            Self::Ours(_) => None,
        }
    }

    pub(crate) fn ours(&self) -> Option<&Ours> {
        match self {
            Self::Kernel(_) => None,
            Self::Ours(ours) => Some(ours),
        }
    }

    /// Returns the state of the sending end of `spec`, and the internal truth if the end is fullpipe's
    /// TCP.
    pub(crate) fn sender(
        &self,
        now: Instant,
        spec: &FlowSpec,
        host: &HostSpec,
    ) -> io::Result<(TcpInfo, Option<SenderTruth>)> {
        match self {
            Self::Ours(ours) => {
                let (info, truth) = ours.sender(now, spec);
                Ok((info, Some(truth)))
            }
            Self::Kernel(socket) => {
                let paced = spec.cc.is_rate_based() || host.fair_queue || spec.max_pacing_rate.is_some();
                let socket = socket.get().ok_or(io::ErrorKind::NotConnected)?;
                let told = tcp_info::sender(socket.as_fd(), paced)?;
                let bbr = if spec.cc == Algorithm::Bbr1 { tcp_info::bbr(socket.as_fd())? } else { None };
                Ok((TcpInfo { cc: Some(spec.cc), bbr, ..told }, None))
            }
        }
    }

    /// Returns the state of the receiving end, once it exists.
    pub(crate) fn receiver(&self) -> io::Result<Option<ReceiverInfo>> {
        match self {
            Self::Ours(ours) => Ok(ours.receiver()),
            Self::Kernel(socket) => socket.get().map(|socket| tcp_info::receiver(socket.as_fd())).transpose(),
        }
    }

    /// Returns the bytes written and not yet acknowledged.
    pub(crate) fn unacknowledged(&self) -> u64 {
        match self {
            Self::Ours(ours) => ours.unacknowledged(),
            Self::Kernel(socket) => {
                socket.get().and_then(|socket| sys::unacknowledged(socket.as_fd()).ok()).unwrap_or(0)
            }
        }
    }

    /// Returns the segments that the sending end retransmitted, and those that its peer received twice.
    pub(crate) fn repeats(&self) -> io::Result<(u64, u64)> {
        match self {
            Self::Ours(ours) => Ok(ours.repeats()),
            Self::Kernel(socket) => {
                socket.get().map_or(Ok((0, 0)), |socket| tcp_info::repeats(socket.as_fd()))
            }
        }
    }
}
