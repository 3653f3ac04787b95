//! Two network namespaces connected by an emulated path.

use std::net::IpAddr;
use std::sync::mpsc::SyncSender;
use std::thread::{self, JoinHandle};

use fullpipe_lab::scenario::PathSpec;
use fullpipe_lab::validity::{Lateness, Stalls};
use fullpipe_units::Duration;

use crate::clock::Clock;
use crate::error::Error;
use crate::hosts::{Answers, wakes};
use crate::link::{FlowNumbers, Link, LinkConfig, LinkReport, PacketNote, Sampling, Tap};
use crate::namespace::{Namespace, set_sysctl};
use crate::netlink::{DeviceCounts, Netlink};
use crate::poll::Stop;
use crate::stack_loop::Port;
use crate::tun::{Datapath, Tun, TunConfig};

pub use fullpipe_lab::capture::{RECEIVER, SENDER};

/// Name of the TUN device in each network namespace.
const DEVICE: &str = "fullpipe0";
/// Prefix lengths for IPv4 (`PREFIX_LEN`) and IPv6; the addresses of both ends are in the same subnet.
const PREFIX_LEN: u8 = 30;
const PREFIX_LEN_V6: u8 = 126;
/// Maximum number of packets that a device queues until the link reads them. A sender whose window opens by
/// tens of megabytes at once overflows a short queue; with the default of 500 packets, the kernel would
/// silently drop the excess.
const TX_QUEUE: u32 = 100_000;

/// Settings of a [`Wan`].
#[derive(Clone, Debug)]
pub struct WanConfig<'a> {
    /// Specification of both directions of the path.
    pub path: &'a PathSpec,
    /// Seed of all random numbers of the path.
    pub seed: u64,
    /// Form in which packets enter and leave the kernel: single packets or super-packets.
    pub datapath: Datapath,
    /// Time between building the link and the start of its clock.
    pub lead: Duration,
    /// Whether to log every packet that enters or leaves the path.
    pub logged: bool,
    /// TCP stacks at the sender's end and at the receiver's end.
    pub ends: [End; 2],
}

/// TCP stack at one end of the emulated path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// The kernel TCP stack, behind a TUN device in a network namespace.
    #[default]
    Kernel,
    /// fullpipe's TCP stack, which exchanges packets directly with the link through [`Wan::port`].
    Ours,
}

/// Two network namespaces with a TUN device in each, a thread for each direction of the path, and a thread
/// that measures whether the machine keeps up.
#[derive(Debug)]
pub struct Wan {
    /// Network namespace in which the sender runs.
    pub sender: Namespace,
    /// Network namespace in which the receiver runs.
    pub receiver: Namespace,
    /// Clock that all threads of the run share.
    pub clock: Clock,
    ends: [End; 2],
    ports: [Option<Port>; 2],
    stop: Stop,
    threads: Option<[JoinHandle<Result<LinkReport, Error>>; 2]>,
    watch: Option<JoinHandle<Result<Lateness, Error>>>,
    answers: Answers,
}

/// Packet counters and timing measurements of both directions and of the hosts.
#[derive(Clone, Debug)]
pub struct WanReport {
    /// Report on the direction from sender to receiver.
    pub forward: LinkReport,
    /// Report on the direction from receiver to sender.
    pub backward: LinkReport,
    /// Number of packets that the kernel dropped at the devices, that is, between its TCP stack and the path.
    pub tun_drops: u64,
    /// Delays that the hosts at both ends caused.
    pub stalls: Stalls,
}

impl Wan {
    /// Builds the network namespaces and the path. The path forwards packets as soon as this function
    /// returns.
    ///
    /// # Errors
    /// Returns an error if the process lacks the privileges, or if a system call fails.
    pub fn new(config: &WanConfig<'_>) -> Result<Self, Error> {
        Self::build(config, [FlowNumbers::by_appearance(), FlowNumbers::by_appearance()], None, None)
    }

    /// Builds a [`Wan`] with a given flow numbering for each direction, samples of the forward direction, and
    /// a capture of the packets at the sender's end.
    pub(crate) fn build(
        config: &WanConfig<'_>,
        [forward_flows, backward_flows]: [FlowNumbers; 2],
        sampling: Option<Sampling>,
        noted: Option<SyncSender<PacketNote>>,
    ) -> Result<Self, Error> {
        let (sender, receiver) = (Namespace::new()?, Namespace::new()?);
        let end_of = |namespace: &Namespace, address, end| match end {
            End::Kernel => {
                // The MTU is at most 65 535, so it fits into 32 bits.
                let mtu = config.path.mtu as u32;
                namespace.run(|| host(address, config.datapath, mtu)).map(|tun| (tun, None))
            }
            End::Ours => Tun::pair(config.datapath).map(|[link, ours]| (link, Some(Port::from(ours)))),
        };
        let (near, near_port) = end_of(&sender, SENDER.into(), config.ends[0])?;
        let (far, far_port) = end_of(&receiver, RECEIVER.into(), config.ends[1])?;
        let stop = Stop::new()?;
        // Creating namespaces and devices can take a long time on a busy machine, so the clock starts
        // afterwards.
        let clock = Clock::starting_in(config.lead);
        let answers = Answers::default();
        let start = |name: &str, input: &Tun, output: &Tun, number, flows, sampling| {
            let link = Link::new(LinkConfig {
                input: input.clone(),
                output: output.clone(),
                direction: if number == 0 { &config.path.forward } else { &config.path.backward },
                seed: config.seed,
                number,
                clock,
                flows,
                sampling,
                logged: config.logged,
                tap: noted.clone().map(|to| Tap { to, outbound: number == 0 }),
                answers: answers.clone(),
            });
            let stop = stop.clone();
            named(name, move || link.run(&stop))
        };
        let forward = start("link forward", &near, &far, 0, forward_flows, sampling)?;
        let backward = start("link backward", &far, &near, 1, backward_flows, None)?;
        let watching = stop.clone();
        let watch = Some(named("watch", move || wakes(clock, &watching))?);
        let threads = Some([forward, backward]);
        let (ends, ports) = (config.ends, [near_port, far_port]);
        Ok(Self { sender, receiver, clock, ends, ports, stop, threads, watch, answers })
    }

    /// Returns the port of fullpipe's TCP stack at the sender's end (0) or the receiver's end (1); returns
    /// `None` unless that end is [`End::Ours`].
    pub fn port(&self, end: usize) -> Option<&Port> {
        self.ports.get(end)?.as_ref()
    }

    /// Stops both directions of the link and returns their report.
    ///
    /// # Errors
    /// Returns an error if a system call failed in one of the directions.
    pub fn finish(mut self) -> Result<WanReport, Error> {
        // The drop counters are read before the threads stop, because the devices disappear with the threads.
        let dropped = |namespace: &Namespace, end| match end {
            End::Kernel => namespace.run(|| {
                let DeviceCounts { tx_dropped, rx_dropped } = Netlink::new()?.counts(DEVICE)?;
                Ok(tx_dropped + rx_dropped)
            }),
            End::Ours => Ok(0),
        };
        let tun_drops = dropped(&self.sender, self.ends[0])? + dropped(&self.receiver, self.ends[1])?;
        self.stop.stop();
        let [forward, backward] = self
            .threads
            .take()
            .into_iter()
            .flatten()
            .map(join)
            .collect::<Vec<_>>()
            .try_into()
            .unwrap_or_else(|_| unreachable!("two directions"));
        let (forward, backward) = (forward?, backward?);
        let tun_drops = tun_drops + forward.write_errors + backward.write_errors;
        let woken = self.watch.take().map_or(Ok(Lateness::default()), join)?;
        Ok(WanReport { forward, backward, tun_drops, stalls: self.answers.stalls(&woken) })
    }
}

impl Drop for Wan {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

fn named<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Error> {
    let started = thread::Builder::new().name(name.into()).spawn(work);
    started.map_err(|e| Error::system("start a thread", e))
}

fn join<T>(thread: JoinHandle<T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Sets the initial congestion window of connections to the receiver, in segments. The function must be
/// called inside the sender's network namespace.
///
/// The window is set on a host route to the peer. The host route takes precedence over the subnet route that
/// the kernel created for the address.
pub(crate) fn set_initcwnd(segments: u32) -> Result<(), Error> {
    let netlink = Netlink::new()?;
    netlink.add_route(netlink.index(DEVICE)?, RECEIVER, segments)
}

/// Creates a TUN device in `namespace` for fullpipe's stack. The device is configured like an end of an
/// emulated path, but nothing lies between the stack and the kernel. The kernel gets the address `kernel` in
/// a subnet of four addresses (prefix length 30 or 126); the stack may use another address in that subnet.
///
/// # Errors
/// Returns an error if the process lacks the privileges, or if a system call fails.
pub fn device(namespace: &Namespace, kernel: IpAddr, datapath: Datapath, mtu: u32) -> Result<Port, Error> {
    namespace.run(|| host(kernel, datapath, mtu)).map(Port::from)
}

/// Configures one end of the path. The function must be called inside the network namespace of that end.
fn host(address: IpAddr, datapath: Datapath, mtu: u32) -> Result<Tun, Error> {
    const LOOPBACK: u32 = 1;
    // With IPv6 enabled, the kernel would send router solicitations and other packets that belong to no flow.
    if address.is_ipv4() && std::path::Path::new("/proc/sys/net/ipv6").exists() {
        set_sysctl("net/ipv6/conf/all/disable_ipv6", "1")?;
        set_sysctl("net/ipv6/conf/default/disable_ipv6", "1")?;
    }
    // This setting prevents the kernel from reusing metrics that an earlier connection has saved for the
    // path.
    set_sysctl("net/ipv4/tcp_no_metrics_save", "1")?;
    // There is no default route. Connections to all addresses except the peer's, for example to a resolver,
    // therefore fail immediately instead of timing out.
    let prefix_len = if address.is_ipv4() { PREFIX_LEN } else { PREFIX_LEN_V6 };
    let tun = Tun::new(&TunConfig { name: DEVICE, datapath, mtu, queue: TX_QUEUE, address, prefix_len })?;
    Netlink::new()?.up(LOOPBACK, None)?;
    Ok(tun)
}
