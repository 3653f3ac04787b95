//! Two network namespaces connected by an emulated path.
//!
//! ```text
//!   Hosts: namespaces, devices ──► kept between runs
//!   Wan:   path, clock, threads ──► built for each run, from the seed of the run
//! ```

use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc::SyncSender;
use std::thread::{self, JoinHandle};

use fullpipe_lab::capture::FIRST_PORT;
use fullpipe_lab::scenario::{FlowSpec, PathSpec};
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
/// Name of the TUN device of a relay at the sending host, and the addresses of the relay and of the kernel on this device.
const RELAY_DEVICE: &str = "relay0";
pub(crate) const RELAY: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 6);
const RELAY_GATEWAY: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 5);
/// Prefix lengths for IPv4 (`PREFIX_LEN`) and IPv6; the addresses of both ends are in the same subnet.
pub(crate) const PREFIX_LEN: u8 = 30;
const PREFIX_LEN_V6: u8 = 126;
/// Maximum number of packets that a device queues until the link reads them. If a sender's window suddenly
/// grows by tens of megabytes, a short queue overflows; with the default of 500 packets, the kernel would
/// silently drop the excess.
pub(crate) const TX_QUEUE: u32 = 100_000;

/// Settings of a [`Wan`].
#[derive(Clone, Debug)]
pub struct WanConfig<'a> {
    /// Specification of both directions of the path.
    pub path: &'a PathSpec,
    /// Flows of the run, whose hosts may have different access RTTs ([`FlowSpec::access_rtt`]); empty if the
    /// packets of other programs cross the path.
    pub flows: &'a [FlowSpec],
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

/// The hosts at both ends of an emulated path: two network namespaces, each with a TUN device.
///
/// Hosts can be used for several consecutive runs. The connections of all runs have different ports, because
/// the kernel keeps the ports of a closed connection for a minute (TIME_WAIT).
#[derive(Debug)]
pub struct Hosts {
    sender: Namespace,
    receiver: Namespace,
    ends: [End; 2],
    devices: [HostDevice; 2],
    /// Initial congestion window of connections to the receiver, in segments; `None` for the kernel's
    /// default.
    initcwnd: Option<u32>,
    ports: Ports,
    /// Device of a relay at the sending host, to which the kernel forwards the packets for the address [`RELAY`].
    relay: Option<Tun>,
}

/// Ports for the connections of consecutive runs.
#[derive(Clone, Copy, Debug)]
struct Ports {
    /// First port that no run has used yet.
    next: u16,
}

impl Ports {
    /// Returns the first of `flows` consecutive ports. After about 25 000 connections, the ports start again
    /// from the first one.
    fn take(&mut self, flows: u16) -> u16 {
        let first = if self.next.checked_add(flows).is_some() { self.next } else { FIRST_PORT };
        self.next = first.saturating_add(flows);
        first
    }
}

/// Connection between a host and the link.
#[derive(Debug)]
struct HostDevice {
    link: Tun,
    /// Port of fullpipe's TCP stack; `None` for a kernel TCP stack.
    stack: Option<Tun>,
}

impl Hosts {
    /// Creates two hosts with these TCP stacks, whose devices have the given MTU in bytes.
    pub(crate) fn with_ends(ends: [End; 2], datapath: Datapath, mtu: u64) -> Result<Self, Error> {
        let (sender, receiver) = (Namespace::new()?, Namespace::new()?);
        let device = |namespace: &Namespace, address: IpAddr, end| match end {
            End::Kernel => {
                // The MTU is at most 65 535, so it fits into 32 bits.
                let link = namespace.run(|| host(address, datapath, mtu as u32))?;
                Ok::<_, Error>(HostDevice { link, stack: None })
            }
            End::Ours => {
                let [link, stack] = Tun::pair(datapath)?;
                Ok(HostDevice { link, stack: Some(stack) })
            }
        };
        let devices =
            [device(&sender, SENDER.into(), ends[0])?, device(&receiver, RECEIVER.into(), ends[1])?];
        Ok(Self {
            sender,
            receiver,
            ends,
            devices,
            initcwnd: None,
            ports: Ports { next: FIRST_PORT },
            relay: None,
        })
    }

    /// Creates two hosts with the kernel's TCP stack. The sending host also has a device for a relay, whose packets the
    /// kernel forwards to and from the path.
    pub(crate) fn with_relay(datapath: Datapath, mtu: u64) -> Result<Self, Error> {
        let hosts = Self::with_ends([End::Kernel; 2], datapath, mtu)?;
        let relay = hosts.sender.run(|| {
            set_sysctl("net/ipv4/ip_forward", "1")?;
            Tun::new(&TunConfig {
                name: RELAY_DEVICE,
                datapath,
                mtu: mtu as u32,
                queue: TX_QUEUE,
                address: RELAY_GATEWAY.into(),
                prefix_len: PREFIX_LEN,
            })
        })?;
        hosts.receiver.run(|| {
            let netlink = Netlink::new()?;
            netlink.set_host_route(netlink.index(DEVICE)?, RELAY, 0)
        })?;
        Ok(Self { relay: Some(relay), ..hosts })
    }

    /// Returns whether the sending host has a device for a relay.
    pub(crate) fn has_relay(&self) -> bool {
        self.relay.is_some()
    }

    /// Returns the TCP stacks at the sender's end and at the receiver's end.
    pub(crate) fn ends(&self) -> [End; 2] {
        self.ends
    }

    /// Returns the first of `flows` consecutive ports for the connections of a run.
    pub(crate) fn take_ports(&mut self, flows: u16) -> u16 {
        self.ports.take(flows)
    }

    /// Sets the initial congestion window of connections to the receiver, in segments; `None` for the
    /// kernel's default.
    ///
    /// The window is set on a host route to the peer. The host route takes precedence over the subnet route
    /// that the kernel created for the address. fullpipe's TCP has the window in the configuration of its connections.
    pub(crate) fn set_initcwnd(&mut self, segments: Option<u32>) -> Result<(), Error> {
        if segments == self.initcwnd || self.ends[0] == End::Ours {
            return Ok(());
        }
        self.initcwnd = segments;
        self.sender.run(|| {
            let netlink = Netlink::new()?;
            netlink.set_host_route(netlink.index(DEVICE)?, RECEIVER, segments.unwrap_or(0))
        })
    }

    /// Discards the packets that the hosts sent after the path of the previous run had stopped.
    fn discard_packets(&self) -> Result<(), Error> {
        self.devices.iter().try_for_each(|device| {
            device.link.discard_packets()?;
            device.stack.as_ref().map_or(Ok(()), Tun::discard_packets)
        })?;
        self.relay.as_ref().map_or(Ok(()), Tun::discard_packets)
    }
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
    relay: Option<Port>,
    stop: Stop,
    threads: Option<[JoinHandle<Result<LinkReport, Error>>; 2]>,
    watch: Option<JoinHandle<Result<Lateness, Error>>>,
    answers: Answers,
    /// Number of packets that the kernel had dropped at the devices before this path was built.
    dropped_before: u64,
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
        let hosts = Hosts::with_ends(config.ends, config.datapath, config.path.mtu)?;
        Self::between(&hosts, config, FlowNumbers::by_appearance(), None, None)
    }

    /// Builds a path between `hosts`, which determine the TCP stacks and the datapath. `flows` assigns the
    /// flow numbers, `sampling` requests samples of the forward direction, and `noted` receives a capture of
    /// the packets at the sender's end.
    pub(crate) fn between(
        hosts: &Hosts,
        config: &WanConfig<'_>,
        flows: FlowNumbers,
        sampling: Option<Sampling>,
        noted: Option<SyncSender<PacketNote>>,
    ) -> Result<Self, Error> {
        hosts.discard_packets()?;
        let (sender, receiver) = (hosts.sender.try_clone()?, hosts.receiver.try_clone()?);
        let ends = hosts.ends;
        let dropped_before = dropped([&sender, &receiver], ends, hosts.has_relay())?;
        let [near, far] = hosts.devices.each_ref().map(|device| device.link.clone());
        let ports = hosts.devices.each_ref().map(|device| device.stack.clone().map(Port::from));
        let relay = hosts.relay.clone().map(Port::from);
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
                specs: config.flows,
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
        let forward = start("link forward", &near, &far, 0, flows.clone(), sampling)?;
        let backward = start("link backward", &far, &near, 1, flows, None)?;
        let watching = stop.clone();
        let watch = Some(named("watch", move || wakes(clock, &watching))?);
        let threads = Some([forward, backward]);
        Ok(Self {
            sender,
            receiver,
            clock,
            ends,
            ports,
            relay,
            stop,
            threads,
            watch,
            answers,
            dropped_before,
        })
    }

    /// Returns the port of fullpipe's TCP stack at the sender's end (0) or the receiver's end (1); returns
    /// `None` unless that end is [`End::Ours`].
    pub fn port(&self, end: usize) -> Option<&Port> {
        self.ports.get(end)?.as_ref()
    }

    /// Returns the port of a relay on the sending host; `None` if the host has no device for a relay.
    pub(crate) fn relay(&self) -> Option<&Port> {
        self.relay.as_ref()
    }

    /// Stops both directions of the link and returns their report.
    ///
    /// # Errors
    /// Returns an error if a system call failed in one of the directions.
    pub fn finish(mut self) -> Result<WanReport, Error> {
        // The drop counters are read before the threads stop, because the devices may disappear with the
        // threads.
        let dropped = dropped([&self.sender, &self.receiver], self.ends, self.relay.is_some())?;
        let tun_drops = dropped.saturating_sub(self.dropped_before);
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

/// Returns the number of packets that the kernel has dropped at the devices of the sending and the receiving host, since
/// the devices were created.
fn dropped(hosts: [&Namespace; 2], ends: [End; 2], has_relay: bool) -> Result<u64, Error> {
    let at = |host: &Namespace, device| {
        host.run(|| {
            let DeviceCounts { tx_dropped, rx_dropped } = Netlink::new()?.counts(device)?;
            Ok(tx_dropped + rx_dropped)
        })
    };
    let of_relay = if has_relay { at(hosts[0], RELAY_DEVICE)? } else { 0 };
    hosts.into_iter().zip(ends).try_fold(of_relay, |sum, (host, end)| match end {
        End::Kernel => Ok(sum + at(host, DEVICE)?),
        End::Ours => Ok(sum),
    })
}

/// Creates a TUN device in `namespace` for fullpipe's stack. The device is configured like one end of an
/// emulated path, but there is no path between the stack and the kernel. The kernel gets the address `kernel`
/// in a subnet of four addresses (prefix length 30 or 126); the stack may use another address in that subnet.
///
/// # Errors
/// Returns an error if the process lacks the privileges, or if a system call fails.
pub fn device(namespace: &Namespace, kernel: IpAddr, datapath: Datapath, mtu: u32) -> Result<Port, Error> {
    namespace.run(|| host(kernel, datapath, mtu)).map(Port::from)
}

/// Number of the loopback device in every network namespace.
pub(crate) const LOOPBACK: u32 = 1;

/// Sets the sysctls of a host with the given address, in the network namespace of the calling thread.
pub(crate) fn set_host_sysctls(address: IpAddr) -> Result<(), Error> {
    // With IPv6 enabled, the kernel would send router solicitations and other packets that belong to no flow.
    if address.is_ipv4() && std::path::Path::new("/proc/sys/net/ipv6").exists() {
        set_sysctl("net/ipv6/conf/all/disable_ipv6", "1")?;
        set_sysctl("net/ipv6/conf/default/disable_ipv6", "1")?;
    }
    // This setting prevents the kernel from reusing metrics that an earlier connection has saved for the
    // path.
    set_sysctl("net/ipv4/tcp_no_metrics_save", "1")
}

/// Configures one end of the path. The function must be called inside the network namespace of that end.
fn host(address: IpAddr, datapath: Datapath, mtu: u32) -> Result<Tun, Error> {
    set_host_sysctls(address)?;
    // There is no default route. Connections to all addresses except the peer's, for example to a resolver,
    // therefore fail immediately instead of timing out.
    let prefix_len = if address.is_ipv4() { PREFIX_LEN } else { PREFIX_LEN_V6 };
    let tun = Tun::new(&TunConfig { name: DEVICE, datapath, mtu, queue: TX_QUEUE, address, prefix_len })?;
    Netlink::new()?.up(LOOPBACK, None)?;
    Ok(tun)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn consecutive_runs_have_different_ports() {
        let mut ports = Ports { next: FIRST_PORT };
        assert_eq!([1, 3, 1].map(|flows| ports.take(flows)), [FIRST_PORT, FIRST_PORT + 1, FIRST_PORT + 4]);
        // All ports of a run are valid, and are not lower than the first one.
        let starts: Vec<u16> = (0..30_000).map(|_| ports.take(2)).collect();
        assert!(starts.iter().all(|&first| (FIRST_PORT..u16::MAX).contains(&first)));
        let distinct = |ports: &[u16]| ports.iter().collect::<BTreeSet<_>>().len() == ports.len();
        assert!(starts.chunks(12_000).all(distinct));
    }
}
