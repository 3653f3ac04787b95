//! Runs the flows of a scenario in real time. At an end with kernel sockets, one thread sends or receives for
//! all flows. At an end with fullpipe's TCP stack, the loop of the stack sends or receives for all flows.
//!
//! The applications behave as in the simulator: by default the sender has unlimited data or a fixed number of
//! bytes, and the receiver reads immediately. The applications do not process the payload; the receiver
//! discards the data inside the kernel.

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

/// Both ends of a flow, shared by the threads that transfer the flow's data and the thread that samples the
/// flow.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) sender: Half,
    pub(crate) receiver: Half,
    /// Time at which the receiver had received all data of a flow of limited size.
    pub(crate) finished: OnceLock<Instant>,
}

/// One end of a flow: a kernel socket, or a connection on fullpipe's TCP stack.
#[derive(Debug)]
pub(crate) enum Half {
    /// Kernel socket; the socket of a receiver exists once the connection has been accepted.
    Kernel(OnceLock<Socket>),
    /// Connection on fullpipe's own TCP stack.
    Ours(Box<Ours>),
}

impl Flow {
    /// Creates both ends of every flow in `scenario`, without connecting them. The function must be called
    /// inside the sender's network namespace. An end uses its stack in `stacks` if there is one, and
    /// otherwise a kernel socket.
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
    /// Returns the kernel socket of this end; returns `None` if the socket does not exist yet or the end uses
    /// fullpipe's stack.
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

    /// Returns the state of the sending end of a flow. If the sending end uses fullpipe's TCP stack, the
    /// result includes the internal state of the sender.
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

    /// Returns the state of the receiving end of a flow; returns `None` if this end does not exist yet.
    pub(crate) fn receiver(&self) -> io::Result<Option<ReceiverInfo>> {
        match self {
            Self::Ours(ours) => Ok(ours.receiver()),
            Self::Kernel(socket) => socket.get().map(|socket| tcp_info::receiver(socket.as_fd())).transpose(),
        }
    }

    /// Returns the number of bytes that the application has written but the peer has not acknowledged.
    pub(crate) fn unacknowledged(&self) -> u64 {
        match self {
            Self::Ours(ours) => ours.unacknowledged(),
            Self::Kernel(socket) => {
                socket.get().and_then(|socket| sys::unacknowledged(socket.as_fd()).ok()).unwrap_or(0)
            }
        }
    }

    /// Returns the number of segments that the sending end retransmitted, and the number of segments that its
    /// peer received twice.
    pub(crate) fn repeats(&self) -> io::Result<(u64, u64)> {
        match self {
            Self::Ours(ours) => Ok(ours.repeats()),
            Self::Kernel(socket) => {
                socket.get().map_or(Ok((0, 0)), |socket| tcp_info::repeats(socket.as_fd()))
            }
        }
    }
}
