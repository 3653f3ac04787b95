//! Runs the flows of a scenario in real time. At an end with kernel sockets, one thread sends or receives for
//! all flows. At an end with fullpipe's TCP stack, the loop of the stack sends or receives for all flows.
//!
//! The sender opens the connection of a flow. For a flow with a request, the receiver opens the connection,
//! sends the request and reads the response.
//!
//! The applications behave as in the simulator: by default the sender has unlimited data or a fixed number of
//! bytes, and the receiver reads immediately. The applications do not process the payload; the receiver
//! discards the data inside the kernel.

mod ours;
mod receiver;
mod sampler;
mod sender;
mod sockets;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::iter::Peekable;
use std::mem::MaybeUninit;
use std::net::SocketAddrV4;
use std::os::fd::AsFd;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use fullpipe_lab::outcome::ResponseOutcome;
use fullpipe_lab::scenario::{FlowSpec, HostSpec, Scenario};
use fullpipe_lab::trace::{ReceiverInfo, SenderTruth, TcpInfo};
use fullpipe_lab::workload::{Delays, Writer};
use fullpipe_tcp::cc::Algorithm;
use fullpipe_tcp::stack::Stack;
use fullpipe_units::{Duration, Instant};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::Socket;

use crate::error::{Doing, Error};
use crate::poll::Poll;
use crate::wan::SENDER;
use crate::{sys, tcp_info};

pub(crate) use fullpipe_lab::capture::{FIRST_PORT, LISTEN_PORT};
pub(crate) use ours::{Ours, Receivers, Senders, stack};
pub(crate) use receiver::{GreedyReads, receive};
pub(crate) use sampler::{Ending, Sampler};
pub(crate) use sender::send;
pub use sockets::kernel_name;
pub(crate) use sockets::{Servers, check_congestion_control, impose, listening};
use sockets::{connecting, requesting, set_receiver_algorithm};

/// Maximum number of bytes per write: the default block size of iperf3.
const WRITE: usize = 128 << 10;
/// Data that the flows send. A constant array would enlarge the program by the size of the array.
static ZEROS: LazyLock<Vec<u8>> = LazyLock::new(|| vec![0; WRITE]);

/// Both ends of a flow, shared by the threads that transfer the flow's data and the thread that samples the
/// flow.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) sender: Half,
    pub(crate) receiver: Half,
    /// Time at which the receiver had received all data of a flow of limited size.
    pub(crate) finished: OnceLock<Instant>,
    /// Times of the response to the flow's request, once the receiver has read the whole response.
    pub(crate) response: OnceLock<ResponseOutcome>,
    /// Port of the end that opens the connection.
    port: u16,
    /// Address to which the receiver of a flow with a request connects.
    pub(crate) server: SocketAddrV4,
    /// Paced writer of the sending application, once it has started to produce data.
    producer: OnceLock<Writer>,
    /// Delays of the paced writer's data that was read before the end of the run.
    delays: Mutex<Delays>,
    /// Time at which the run ends.
    end: Instant,
}

/// Kernel sockets that open the connections of flows, by the number of the flow.
pub(crate) type OpeningSockets = BTreeMap<usize, Socket>;

/// End of a flow that opens the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opener {
    Sender,
    Receiver,
}

/// Start times and numbers of flows, sorted by time.
type Starts = Peekable<std::vec::IntoIter<(Instant, usize)>>;

impl Opener {
    fn of(flow: &FlowSpec) -> Self {
        match flow.workload.request {
            None => Self::Sender,
            Some(_) => Self::Receiver,
        }
    }

    /// Creates the kernel sockets of those `flows` of `scenario` that this end opens; flow `n` has the port
    /// `first + n`. The function must be called inside the network namespace of this end's host.
    pub(crate) fn sockets(
        self,
        scenario: &Scenario,
        flows: impl Iterator<Item = usize>,
        first: u16,
    ) -> Result<OpeningSockets, Error> {
        let opened = flows.filter(|&number| Self::of(&scenario.flows[number]) == self);
        let create = match self {
            Self::Sender => connecting,
            Self::Receiver => requesting,
        };
        opened
            .map(|number| {
                let port = first + number as u16;
                Ok((number, create(&scenario.host, &scenario.flows[number], port)?))
            })
            .collect()
    }

    /// Returns the start times and numbers of the flows that this end opens, sorted by time.
    fn starts(self, specs: &[FlowSpec]) -> Starts {
        let opened = specs.iter().enumerate().filter(|(_, spec)| Self::of(spec) == self);
        let mut starts: Vec<(Instant, usize)> =
            opened.map(|(number, spec)| (Instant::ZERO + spec.start, number)).collect();
        starts.sort_unstable();
        starts.into_iter().peekable()
    }
}

/// One end of a flow: a kernel socket, or a connection on fullpipe's TCP stack.
#[derive(Debug)]
pub(crate) enum Half {
    /// Kernel socket; the socket of an end that does not open the connection exists once the connection has
    /// been accepted.
    Kernel(OnceLock<Socket>),
    /// Connection on fullpipe's own TCP stack.
    Ours(Box<Ours>),
}

impl Flow {
    /// Creates both ends of every flow in `scenario`, without connecting them. An end uses its stack in `stacks`
    /// if there is one, and otherwise a kernel socket. `sockets` contains the kernel sockets of the ends that
    /// open a connection: those of the senders, and those of the receivers ([`Opener::sockets`]). `first` is the
    /// port of the opening end of flow 0.
    pub(crate) fn all(
        scenario: &Scenario,
        stacks: &[Option<Arc<Mutex<Stack>>>; 2],
        mut sockets: [OpeningSockets; 2],
        first: u16,
    ) -> Vec<Self> {
        let mut half = |number: usize, side: usize| match &stacks[side] {
            Some(stack) => Half::Ours(Box::new(Ours::new(stack, scenario, number, side as u64))),
            // The socket of the other end exists once the connection has been accepted.
            None => {
                let opening = sockets[side].remove(&number);
                Half::Kernel(opening.map_or_else(OnceLock::new, OnceLock::from))
            }
        };
        let ports = Servers::ports(&scenario.flows);
        let flow = |number: usize| Self {
            sender: half(number, 0),
            receiver: half(number, 1),
            finished: OnceLock::new(),
            response: OnceLock::new(),
            port: first + number as u16,
            server: SocketAddrV4::new(SENDER, ports[number]),
            producer: OnceLock::new(),
            delays: Mutex::default(),
            end: Instant::ZERO + scenario.duration,
        };
        (0..scenario.flows.len()).map(flow).collect()
    }

    /// Tells the receiving end when the data of a paced writer is produced, once `writer` has started.
    fn offers(&self, writer: &Writer) {
        if self.producer.get().is_none() && writer.chunk(0).is_some() {
            let _ = self.producer.set(writer.clone());
        }
    }

    /// Records the delays of a paced writer's data after the receiving application has read `read` bytes at `now`.
    fn on_read(&self, read: u64, now: Instant) {
        if let Some(writer) = self.producer.get()
            && now < self.end
        {
            self.delays.lock().unwrap_or_else(PoisonError::into_inner).on_read(writer, read, now);
        }
    }

    /// Returns the 99th percentile of the delays of a paced writer's data; `None` for other writers.
    pub(crate) fn delay_p99(&self) -> Option<Duration> {
        let delays = self.delays.lock().unwrap_or_else(PoisonError::into_inner);
        delays.p99(self.producer.get()?, self.end)
    }

    /// Returns the number of the flow that is opened from `port`. If there is no such flow, the
    /// number is larger than any flow number.
    fn of_port(flows: &[Self], port: u16) -> usize {
        let first = flows.first().map_or(FIRST_PORT, |flow| flow.port);
        usize::from(port.wrapping_sub(first))
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
                let Some(socket) = socket.get() else {
                    return Ok((TcpInfo { cc: spec.cc.of_fullpipe(), ..tcp_info::unconnected() }, None));
                };
                let told = tcp_info::sender(socket.as_fd(), paced)?;
                let bbr = if spec.cc == Algorithm::Bbr1 { tcp_info::bbr(socket.as_fd())? } else { None };
                Ok((TcpInfo { cc: spec.cc.of_fullpipe(), bbr, ..told }, None))
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

/// Starts to connect a non-blocking socket.
fn connect(socket: &Socket, peer: SocketAddrV4) -> Result<(), Error> {
    match socket.connect(&peer.into()) {
        Ok(()) => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(()),
        Err(error) => Err(Error::system("connect", error)),
    }
}

/// Accepts a connection, determines its flow from the peer's port, and watches it for data. `end` selects the
/// accepting end of the flow. `relayed` is the number of the flow if a relay connects, whose port shows no flow. Returns the number of the flow; `None` if no connection of a flow was accepted.
fn accept(
    flows: &[Flow],
    listener: &Socket,
    end: fn(&Flow) -> &Half,
    poll: &Poll,
    relayed: Option<usize>,
) -> Result<Option<usize>, Error> {
    let (socket, peer) = match listener.accept() {
        Ok(accepted) => accepted,
        Err(error) if again(error.kind()) => return Ok(None),
        Err(error) => return Err(Error::system("accept a flow", error)),
    };
    socket.set_nonblocking(true).doing("make a socket non-blocking")?;
    // A connection of a relay that ends without a request only checks whether the server accepts connections.
    if relayed.is_some() && socket.peek(&mut [MaybeUninit::uninit()]).is_ok_and(|octets| octets == 0) {
        return Ok(None);
    }
    let number =
        relayed.unwrap_or_else(|| Flow::of_port(flows, peer.as_socket().map_or(0, |peer| peer.port())));
    if let Some(Half::Kernel(accepted)) = flows.get(number).map(end) {
        poll.watch(socket.as_fd(), number as u64)?;
        let _ = accepted.set(socket);
        return Ok(Some(number));
    }
    Ok(None)
}

/// Raises the limit on open files to two per flow plus 64, as runs with many flows require.
pub(crate) fn allow_files(flows: u64) {
    let wanted = 2 * flows + 64;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return;
    }
    let maximum = limit.maximum.map(|most| most.max(wanted));
    if setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }).is_err() {
        // Only root may raise the hard limit. The system call that exceeds it will report the error.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    }
}

fn again(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use fullpipe_units::{Bytes, Rate};

    use super::*;

    fn flow(cc: Algorithm, request: Option<u64>) -> FlowSpec {
        let mut flow = FlowSpec::plain(cc);
        flow.workload.request = request.map(Bytes::new);
        flow
    }

    #[test]
    fn each_end_opens_its_flows_in_the_order_of_their_start() {
        let mut flows = [None, Some(200), None, Some(1)].map(|request| flow(Algorithm::Reno, request));
        flows[0].start = Duration::from_millis(5);
        flows[1].start = Duration::from_millis(9);
        let numbers = |opener: Opener| opener.starts(&flows).map(|(_, number)| number).collect::<Vec<_>>();
        assert_eq!((numbers(Opener::Sender), numbers(Opener::Receiver)), (vec![2, 0], vec![3, 1]));
    }

    /// On fullpipe's stack, the configuration of a connection is that of its listener and contains the seed of the
    /// flow.
    #[test]
    fn flows_on_our_stack_have_a_listener_each() {
        let ours = FlowSpec {
            stack: Some(fullpipe_lab::scenario::Stack::Fullpipe),
            ..flow(Algorithm::Surge, Some(200))
        };
        let ports = Servers::ports(&[ours.clone(), ours]);
        assert_eq!(ports, [LISTEN_PORT, LISTEN_PORT + 1]);
    }

    /// Flows with different settings connect to different listeners, because an accepted socket inherits the
    /// settings of its listener.
    #[test]
    fn flows_with_the_same_settings_share_a_listener() {
        let paced = FlowSpec {
            max_pacing_rate: Some(Rate::from_bps(1_000_000)),
            ..flow(Algorithm::Cubic, Some(200))
        };
        let flows = [
            flow(Algorithm::Cubic, Some(200)),
            flow(Algorithm::Reno, None),
            flow(Algorithm::Bbr1, Some(200)),
            flow(Algorithm::Cubic, Some(99)),
            paced,
        ];
        let ports = Servers::ports(&flows);
        assert_eq!([0, 2, 3, 4].map(|number| ports[number] - LISTEN_PORT), [0, 1, 0, 2]);
    }
}
