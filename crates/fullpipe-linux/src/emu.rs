//! Runs a scenario in real time on an emulated path, with kernel TCP stacks at both ends or with fullpipe's
//! TCP stack at one end.
//!
//! ```text
//!   setup ─► clock starts at zero ─► flows, samples on the grid ─► end: outcome ─► drain ─► reconciliation
//! ```
//!
//! The outcome covers the duration of the scenario. After that time, the senders stop writing, but the path
//! keeps running until all data is acknowledged, so that every drop can be matched with a retransmission.
//!
//! A third form has fullpipe's TCP at the sender's end as a relay in front of a server, alone or beside kernel senders:
//! [`run_relayed`].
//!
//! [`run`] creates the hosts of the run and removes them afterwards. [`run_between`] uses existing hosts of
//! the caller and ends as soon as all flows are complete. Both save most of the time that runs of short
//! downloads would take.

mod settings;

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;

use fullpipe_lab::capture::Capture;
use fullpipe_lab::outcome::Outcome;
use fullpipe_lab::scenario::Scenario;
use fullpipe_lab::trace::Sink;
use fullpipe_lab::validity::Validity;
use fullpipe_tcp::stack::Stack;
use fullpipe_units::{Duration, Instant};

use crate::Datapath;
use crate::clock::Clock;
use crate::error::{Doing, Error};
use crate::flows::{
    Ending, Flow, GreedyReads, LISTEN_PORT, Opener, Receivers, Sampler, Senders, Servers, allow_files,
    impose, listening, receive, send, stack,
};
use crate::link::{FlowNumbers, Log, PacketNote, Sampling, WAITING};
use crate::namespace::Namespace;
use crate::netlink::Netlink;
use crate::outcome::{FlowEnd, Totals, outcome};
use crate::poll::Stop;
use crate::stack_loop::{self, Port, locked};
use crate::sys;
use crate::wan::{End, Hosts, LOOPBACK, RELAY, SENDER, Wan, WanConfig};

pub use settings::{check, check_congestion_control};

/// Time for starting threads and creating sockets before the clock of the run starts.
const SETUP: Duration = Duration::from_millis(30);
const SETUP_PER_FLOW: Duration = Duration::from_micros(50);
/// Timeout for draining the path after the end of a run, in addition to `DRAIN_ROUND_TRIPS` round trips.
const DRAIN: Duration = Duration::from_secs(2);
const DRAIN_ROUND_TRIPS: u64 = 4;
/// Interval at which the senders are polled for unacknowledged data while the path drains.
const DRAIN_POLL: Duration = Duration::from_millis(10);

/// Program on the sending host that accepts the connections of the receiver with fullpipe's TCP at the end of the path, and
/// relays them to a server on the same host.
pub trait Relay: Sync {
    /// Relays the connections that arrive at the address `listen` on `port` to the address `server`, until `stop`. The
    /// calling thread is in the network namespace of the sending host.
    ///
    /// # Errors
    /// An error ends the run.
    fn run(&self, port: &Port, listen: SocketAddrV4, server: SocketAddrV4, stop: &Stop) -> Result<(), Error>;
}

/// Options of an emulated run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Form in which packets enter and leave the kernel: single packets or super-packets.
    pub datapath: Datapath,
    /// Whether to log every packet that enters or leaves the path.
    pub logged: bool,
}

/// Result of an emulated run.
#[derive(Clone, Debug)]
pub struct EmuRun {
    /// Outcome in the same form as that of a simulated run. The kernel does not report which limit stops a
    /// sender, so the shares of time per limit are zero.
    pub outcome: Outcome,
    /// Measurements that show whether the run is valid: lateness, drops and stalls.
    pub validity: Validity,
    /// Logs of all packets in both directions, if [`Options::logged`] was set.
    pub logs: Option<[Log; 2]>,
}

/// Runs `scenario` in real time on an emulated path, and passes all trace rows to `sink` after the run.
///
/// This function must not be called concurrently, because concurrent runs disturb each other's timing.
///
/// # Errors
/// Returns an error if the process lacks the privileges, if the kernel does not support a setting of the
/// scenario, or if a system call fails.
pub fn run(scenario: &Scenario, options: Options, sink: &mut dyn Sink) -> Result<EmuRun, Error> {
    let mut hosts = hosts(scenario, options.datapath)?;
    make(&mut hosts, scenario, Ending::AfterDuration, options, Links { sink, noted: None, relay: None })
}

/// Creates hosts with the TCP stacks that the flows of `scenario` require, for [`run_between`].
///
/// # Errors
/// Returns an error if the process lacks the privileges, if the flows require different stacks at the same end, or if
/// a system call fails.
pub fn hosts(scenario: &Scenario, datapath: Datapath) -> Result<Hosts, Error> {
    Hosts::with_ends(settings::ends(scenario)?, datapath, scenario.path.mtu)
}

/// Runs `scenario` in real time between `hosts`, and ends the run as soon as all flows are complete. The
/// hosts can then be used for the next run. Consecutive runs do not affect each other, because their
/// connections use different ports and the hosts do not save metrics of the path.
///
/// The outcome counts all packets until the end of the run. If flows are incomplete, the data in flight is lost, so
/// retransmissions and drops are not compared. `sink` receives only trace rows whose sampling
/// times are before the end of the run. Runs between different hosts may be concurrent if the machine keeps
/// up with them; the result shows whether it did ([`Validity`]).
///
/// # Errors
/// Returns the same errors as [`run`], and an error if the flows require TCP stacks other than those of
/// `hosts`.
pub fn run_between(hosts: &mut Hosts, scenario: &Scenario, sink: &mut dyn Sink) -> Result<EmuRun, Error> {
    if settings::ends(scenario)? != hosts.ends() {
        return Err(Error::settings(
            "the flows of a run require TCP stacks that the hosts do not have",
            "create the hosts for a scenario with the same stacks",
        ));
    }
    make(hosts, scenario, Ending::WhenComplete, Options::default(), Links { sink, noted: None, relay: None })
}

/// Creates hosts for [`run_relayed`] whose flows may have kernel senders too.
///
/// # Errors
/// Returns an error if the process lacks the privileges, or if a system call fails.
pub fn hosts_with_relay(datapath: Datapath, mtu: u64) -> Result<Hosts, Error> {
    Hosts::with_relay(datapath, mtu)
}

/// Runs `scenario` like [`run_between`], but with `relay` in front of the server of the flows that require fullpipe's TCP
/// as their sender. These flows have a request and are equal except for their start times, because the server learns
/// nothing else about a relayed connection. `relay` has the settings of their connections. The server is the one that
/// answers the flows of kernel senders, on a kernel socket.
///
/// Between hosts of [`hosts`], the relay is at the end of the path, and all flows are relayed. Between hosts of
/// [`hosts_with_relay`], the kernel of the sending host forwards the packets of the relay, and the other flows have kernel
/// senders.
///
/// The state of the sender in trace rows is that of the socket between server and relay. The relay's retransmissions are
/// not known, so they are not compared with the drops.
///
/// # Errors
/// Returns the same errors as [`run_between`], and an error if no flow is relayed or if the relayed flows differ.
pub fn run_relayed(
    hosts: &mut Hosts,
    scenario: &Scenario,
    sink: &mut dyn Sink,
    relay: &dyn Relay,
) -> Result<EmuRun, Error> {
    let relayed = settings::relayed(scenario);
    let of_kernel = relayed.len() < scenario.flows.len();
    let first = relayed.first().map(|&number| &scenario.flows[number]);
    let is_equal = |number: &usize| {
        let flow = &scenario.flows[*number];
        first.is_some_and(|first| flow.workload == first.workload && flow.bytes == first.bytes)
    };
    let are_downloads = first.is_some_and(|flow| flow.workload.request.is_some());
    let fits = match hosts.has_relay() {
        true => settings::kernel_receives(scenario),
        false => !of_kernel && hosts.ends() == [End::Ours, End::Kernel],
    };
    if !are_downloads || !relayed.iter().all(is_equal) || !fits {
        return Err(Error::settings(
            "a relay requires flows with the same request and size, and fullpipe's TCP as their sender",
            "set app = { request = \"200B\" } and stack = \"fullpipe\"",
        ));
    }
    let links = Links { sink, noted: None, relay: Some(relay) };
    make(hosts, scenario, Ending::WhenComplete, Options::default(), links)
}

/// Runs `scenario` like [`run`], and also captures the packets of the sending host. Until the path has
/// drained, `capture` receives every packet that enters or leaves this host.
///
/// The timestamp of a packet is the time at which the path accepted or delivered it. Super-packets are
/// captured as the wire segments into which they are split. A separate thread calls `capture`.
///
/// # Errors
/// Returns the same errors as [`run`].
pub fn run_captured(
    scenario: &Scenario,
    options: Options,
    sink: &mut dyn Sink,
    capture: &mut (impl Capture + Send),
) -> Result<EmuRun, Error> {
    let (note, noted) = sync_channel::<PacketNote>(WAITING);
    thread::scope(|scope| {
        // The channel closes when both directions of the link have ended, even after an error.
        scope.spawn(move || noted.iter().for_each(|packet| capture.packet(&packet.captured())));
        let mut hosts = hosts(scenario, options.datapath)?;
        let links = Links { sink, noted: Some(note), relay: None };
        make(&mut hosts, scenario, Ending::AfterDuration, options, links)
    })
}

/// Code of the caller that takes part in a run.
struct Links<'a> {
    sink: &'a mut dyn Sink,
    noted: Option<SyncSender<PacketNote>>,
    relay: Option<&'a dyn Relay>,
}

fn make(
    hosts: &mut Hosts,
    scenario: &Scenario,
    ending: Ending,
    options: Options,
    links: Links<'_>,
) -> Result<EmuRun, Error> {
    let Links { sink, noted, relay } = links;
    let flows = scenario.flows.len();
    allow_files(flows as u64);
    let ends = hosts.ends();
    let relayed = settings::relayed(scenario);
    let first_port = hosts.take_ports(flows as u16);
    hosts.set_initcwnd(scenario.host.initcwnd)?;
    let config = WanConfig {
        path: &scenario.path,
        flows: &scenario.flows,
        seed: scenario.seed,
        datapath: options.datapath,
        lead: SETUP + SETUP_PER_FLOW.mul_div(flows as u64, 1),
        logged: options.logged,
        ends,
    };
    let end = Instant::ZERO + scenario.duration;
    let sampling = Sampling { every: scenario.sample_every, until: end, flows: flows as u32 };
    let numbers = FlowNumbers::ByPort { first: first_port };
    let wan = Wan::between(hosts, &config, numbers, Some(sampling), noted)?;
    let clock = wan.clock;
    let stack_at = |side| wan.port(side).map(|port| Arc::new(Mutex::new(stack(scenario, side, port.cut()))));
    // A relay has its own stack.
    let stacks = [if relay.is_none() { stack_at(0) } else { None }, stack_at(1)];
    let (listener, receivers) = wan.receiver.run(|| match ends[1] {
        End::Ours => Ok((None, BTreeMap::new())),
        End::Kernel => {
            impose(&scenario.host)?;
            let listener = listening(&scenario.host, &scenario.flows)?;
            Ok((Some(listener), Opener::Receiver.sockets(scenario, 0..flows, first_port)?))
        }
    })?;
    let (servers, senders) = wan.sender.run(|| {
        impose(&scenario.host)?;
        let (servers, senders) = match ends[0] {
            End::Ours => (Servers::default(), BTreeMap::new()),
            End::Kernel => (
                Servers::all(&scenario.host, &scenario.flows)?,
                Opener::Sender.sockets(scenario, 0..flows, first_port)?,
            ),
        };
        match relay {
            None => Ok((servers, senders)),
            Some(_) => {
                Netlink::new()?.up(LOOPBACK, None)?;
                Ok((servers.with_relayed(relayed.clone())?, senders))
            }
        }
    })?;
    let mut flows = Flow::all(scenario, &stacks, [senders, receivers], first_port);
    let ours = match (relay, wan.relay(), wan.port(0)) {
        (Some(relay), Some(port), _) => {
            let listen = SocketAddrV4::new(RELAY, LISTEN_PORT);
            relayed.iter().for_each(|&number| flows[number].server = listen);
            OurEnds::Relaying(port, relay, &wan.sender, listen)
        }
        (Some(relay), None, Some(port)) => {
            OurEnds::Relaying(port, relay, &wan.sender, SocketAddrV4::new(SENDER, LISTEN_PORT))
        }
        _ => OurEnds::new(&wan, &stacks, &flows, scenario)?,
    };
    let kernel_sends = ends[0] == End::Kernel || relay.is_some();

    let (stop_sending, stop_receiving) = (Stop::new()?, Stop::new()?);
    let mut sampler = Sampler::new(scenario, &flows, ending);
    let (retransmits, duplicates) = thread::scope(|scope| {
        let sending = kernel_sends
            .then(|| scope.spawn(|| send(&flows, &scenario.flows, &servers, clock, &stop_sending)));
        let receiving = listener.as_ref().map(|listener| {
            let (flows, stop) = (&flows, &stop_receiving);
            let listeners = std::slice::from_ref(listener);
            scope.spawn(move || receive(flows, scenario, listeners, clock, stop, GreedyReads::Polled))
        });
        // At the end of the run, fullpipe's senders stop by themselves. The loop continues until all data is
        // acknowledged.
        let looping = scope.spawn(|| ours.run(clock, &stop_receiving));
        let watched = sampler.until(end, clock, &|| sink.goes_on());
        stop_sending.stop();
        let sent = sending.map_or(Ok(()), joined);
        if ending == Ending::AfterDuration && watched.is_ok() && sent.is_ok() {
            drain(&flows, clock, end + DRAIN + scenario.longest_rtt().mul_div(DRAIN_ROUND_TRIPS, 1));
        }
        stop_receiving.stop();
        let received = receiving.map_or(Ok(()), joined);
        joined(looping).and(received).and(sent).and(watched)?;
        let sums = flows.iter().map(|flow| flow.sender.repeats()).collect::<Result<Vec<_>, _>>();
        let sums = sums.doing("read TCP_INFO")?;
        Ok::<_, Error>(sums.iter().fold((0, 0), |sum, flow| (sum.0 + flow.0, sum.1 + flow.1)))
    })?;
    let elapsed = clock.now().saturating_since(Instant::ZERO);
    drop(listener);
    let report = wan.finish()?;

    let cpu = report.forward.cpu + report.backward.cpu;
    let validity = Validity {
        rtt: scenario.path.rtt(),
        lateness: report.forward.lateness.clone().with(&report.backward.lateness).quantiles(),
        tun_drops: report.tun_drops,
        retransmits: relay.is_none().then_some(retransmits),
        drops: report.forward.data_drops,
        duplicates,
        cpu: cpu.as_secs_f64() / elapsed.as_secs_f64(),
        stalls: report.stalls,
    };
    let rows = sampler.rows;
    let ends: Vec<FlowEnd> = flows.iter().map(FlowEnd::of).collect();
    let samples = &report.forward.samples;
    let forward = match ending {
        // These counters are from the last sample, which was taken at the end of the scenario, before the path
        // drained.
        Ending::AfterDuration => samples.last().map(|sample| sample.counters).unwrap_or_default(),
        Ending::WhenComplete => report.forward.counters,
    };
    let totals = Totals { forward, backward: report.backward.counters };
    let outcome = outcome(scenario, rows, &ends, samples, totals, sink);
    let logs = report.forward.log.zip(report.backward.log).map(|(forward, backward)| [forward, backward]);
    Ok(EmuRun { outcome, validity, logs })
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Waits until all written data is acknowledged, or until the time `until`.
fn drain(flows: &[Flow], clock: Clock, until: Instant) {
    let outstanding = || flows.iter().any(|flow| flow.sender.unacknowledged() > 0);
    while clock.now() < until && outstanding() {
        clock.sleep_until(clock.now() + DRAIN_POLL);
    }
}

/// fullpipe's TCP stack at one end of the path; `None` if both ends use the kernel stack.
enum OurEnds<'a> {
    None,
    Sending(&'a Port, &'a Mutex<Stack>, Senders<'a>),
    Receiving(&'a Port, &'a Mutex<Stack>, Receivers<'a>),
    /// A relay in front of a server in this network namespace, and the address at which it listens. It shares the path
    /// with kernel senders if the address is not that of the sending host.
    Relaying(&'a Port, &'a dyn Relay, &'a Namespace, SocketAddrV4),
}

impl<'a> OurEnds<'a> {
    fn new(
        wan: &'a Wan,
        stacks: &'a [Option<Arc<Mutex<Stack>>>; 2],
        flows: &'a [Flow],
        scenario: &'a Scenario,
    ) -> Result<Self, Error> {
        Ok(match ([wan.port(0), wan.port(1)], stacks) {
            ([Some(port), _], [Some(stack), _]) => {
                Self::Sending(port, stack, Senders::new(flows, scenario, &mut locked(stack))?)
            }
            ([_, Some(port)], [_, Some(stack)]) => {
                let receivers = Receivers::new(flows, scenario, &mut locked(stack))?;
                Self::Receiving(port, stack, receivers)
            }
            _ => Self::None,
        })
    }

    fn run(self, clock: Clock, stop: &Stop) -> Result<(), Error> {
        match self {
            Self::None => Ok(()),
            Self::Sending(port, stack, mut senders) => {
                stack_loop::run(port, stack, clock, &mut senders, stop)?;
                senders.failed.map_or(Ok(()), Err)
            }
            Self::Receiving(port, stack, mut receivers) => {
                stack_loop::run(port, stack, clock, &mut receivers, stop).map(drop)
            }
            Self::Relaying(port, relay, host, listen) => {
                host.run(|| {
                    if *listen.ip() == RELAY {
                        // The kernel's senders do not wait for ordinary threads, so a relay beside them does not either.
                        // Otherwise, it would lose its share of the path to them whenever the machine is busy.
                        // Real-time priority is best effort.
                        let _ = sys::run_in_real_time();
                    }
                    relay.run(port, listen, Servers::RELAYED, stop)
                })
            }
        }
    }
}
