//! The guest's init: the first and only program of a guest. It configures both hosts, runs the flows of the
//! scenario on the guest's kernel, and powers the guest off.
//!
//! ```text
//!   guest's kernel ─► init ─► namespace "sender":   vec0, sending applications
//!                        └──► namespace "receiver": vec1, receiving applications
//! ```
//!
//! Flows with a different access RTT use a separate pair of namespaces and devices.
//!
//! Init is the program that started the guest, which the guest sees through hostfs like every other file of
//! the host. Applications and samples are the same as in the emulator.

use std::ffi::CStr;
use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::panic::catch_unwind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use fullpipe_lab::capture::FIRST_PORT;
use fullpipe_lab::scenario::Scenario;
use fullpipe_units::{Duration, Instant};
use rustix::system::{RebootCommand, finit_module, reboot, uname};
use rustix::time::{ClockId, clock_getres};

use super::control::Control;
use super::exchange::{self, GUEST_FAILURE, GUEST_REPORT, GuestReport, ORDER, Order};
use super::launch::devices;
use crate::clock::Clock;
use crate::error::{Doing, Error};
use crate::flows::{
    Ending, Flow, GreedyReads, Opener, OpeningSockets, Sampler, Servers, allow_files, impose, kernel_name,
    listening, receive, send,
};
use crate::namespace::{Namespace, set_sysctl};
use crate::netlink::Netlink;
use crate::outcome::FlowEnd;
use crate::poll::Stop;
use crate::sys;
use crate::wan::{LOOPBACK, PREFIX_LEN, RECEIVER, SENDER, TX_QUEUE, set_host_sysctls};

/// Argument that the guest's kernel passes to init.
pub(super) const GUEST_ARGUMENT: &str = "fullpipe-guest";
/// Folder of the run, as the guest's kernel sees it through the folder of its own process on the host.
const RUN_ON_HOST: &CStr = c"/proc/self/cwd/.";
/// Folder of the guest at which the folder of the run is mounted. It exists on every host.
const RUN: &str = "/tmp";
/// Link to the folder of the kernel's modules, in the folder of the run.
pub(super) const MODULES: &str = "modules";

/// Time between the announcement of a run and its start, for starting threads and creating sockets.
/// Computation takes no virtual time in the guest, so this preparation always ends before the run starts.
const LEAD: Duration = Duration::from_millis(30);
/// Value of `tcp_mem` in the guest, in pages. By default, the kernel derives this value from the size of its
/// memory, and a guest has less memory than a host.
const TCP_MEM: &str = "4194304 4194304 4194304";

/// Whether the running program becomes a guest's init when it is started as such.
static CAN_BE_INIT: AtomicBool = AtomicBool::new(false);

/// Returns whether the running program has called [`run_if_guest`].
pub(super) fn can_be_init() -> bool {
    CAN_BE_INIT.load(Ordering::Relaxed)
}

/// Runs this process as the guest's init, and powers the guest off, if the process was started as such.
/// Otherwise, returns immediately.
///
/// A program that runs scenarios on a guest calls this function at the start of `main`, and becomes the
/// guest's init. Without the call, the init is the program `fullpipe-guest`, which must be in the folder of
/// the program or library that contains this code.
pub fn run_if_guest() {
    CAN_BE_INIT.store(true, Ordering::Relaxed);
    let is_guest = std::process::id() == 1 && std::env::args().nth(1).as_deref() == Some(GUEST_ARGUMENT);
    if !is_guest {
        return;
    }
    let failure = match catch_unwind(main) {
        Ok(Ok(())) => None,
        Ok(Err(Error { message, hint, .. })) => Some(format!("{message}\n{hint}")),
        Err(_) => Some("the guest's init panicked".into()),
    };
    if let Some(failure) = failure {
        // If the folder of the run is not mounted, the launcher reports the last line of the guest's console.
        let _ = fs::write(Path::new(RUN).join(GUEST_FAILURE), &failure);
        eprintln!("{failure}");
    }
    rustix::fs::sync();
    let _ = reboot(RebootCommand::PowerOff);
    sys::exit_at_once(1);
}

fn main() -> Result<(), Error> {
    sys::mount(c"proc", c"/proc", c"").doing("mount /proc")?;
    sys::mount(c"hostfs", c"/tmp", RUN_ON_HOST).doing("mount the folder of the run")?;
    let order: Option<Order> = exchange::read(Path::new(RUN), ORDER);
    let Some(Order { scenario, .. }) = order else {
        return Err(Error::settings("the description of the run cannot be read", ""));
    };
    load_controls(&scenario)?;
    let report = run(&scenario)?;
    exchange::write(Path::new(RUN), GUEST_REPORT, &report).doing("write the report")
}

/// Loads the congestion controls that are modules.
fn load_controls(scenario: &Scenario) -> Result<(), Error> {
    const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    for flow in &scenario.flows {
        let name = kernel_name(flow.cc);
        let available = fs::read_to_string(AVAILABLE).doing("read the congestion controls")?;
        if !available.split_whitespace().any(|known| known == name) {
            // If the kernel does not have the module, creating the socket fails with a precise message.
            let folder = Path::new(RUN).join(MODULES);
            let list = fs::read_to_string(folder.join("modules.dep")).unwrap_or_default();
            for module in modules(&list, &format!("tcp_{name}.ko")) {
                let file = fs::File::open(folder.join(module)).doing(format_args!("open {module}"))?;
                finit_module(file, c"", 0).doing(format_args!("load {module}"))?;
            }
        }
    }
    Ok(())
}

/// Returns the paths of a module and of the modules that it requires, in the order in which they are loaded.
/// `list` is the file `modules.dep`, whose lines name required modules last.
fn modules<'l>(list: &'l str, file: &str) -> Vec<&'l str> {
    let lines = list.lines().filter_map(|line| line.split_once(':'));
    let mut found = lines.filter(|(path, _)| path.rsplit('/').next() == Some(file));
    let found =
        found.next().map(|(path, required)| required.split_whitespace().rev().chain([path]).collect());
    found.unwrap_or_default()
}

/// Moves a device into `namespace` and configures it there.
fn host(namespace: &Namespace, device: &str, address: Ipv4Addr, mtu: u64) -> Result<(), Error> {
    let netlink = Netlink::new()?;
    netlink.move_device(netlink.index(device)?, namespace.descriptor())?;
    namespace.run(|| {
        set_host_sysctls(address.into())?;
        let netlink = Netlink::new()?;
        let index = netlink.index(device)?;
        // Each end of a pair has a single device, so there is no address to resolve.
        netlink.disable_arp(index)?;
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).doing("create a socket")?;
        sys::disable_device_merging(socket.as_fd(), device).doing("disable GRO and GSO")?;
        netlink.add_address(index, address.into(), PREFIX_LEN)?;
        netlink.up(index, Some((mtu as u32, TX_QUEUE)))?;
        netlink.up(LOOPBACK, None)
    })
}

/// A pair of hosts: two namespaces with a device each.
struct HostPair {
    sender: Namespace,
    receiver: Namespace,
    /// Numbers of the flows between these hosts.
    flows: Vec<usize>,
}

impl HostPair {
    /// Creates all pairs of hosts. Their namespaces are separate, so all pairs have the same addresses.
    fn all(scenario: &Scenario) -> Result<Vec<Self>, Error> {
        let pairs = scenario.host_pairs();
        let pair = |number: usize| {
            let (sender, receiver) = (Namespace::new()?, Namespace::new()?);
            let devices = [0, 1].map(|side| format!("vec{}", 2 * number + side));
            host(&sender, &devices[0], SENDER, scenario.path.mtu)?;
            host(&receiver, &devices[1], RECEIVER, scenario.path.mtu)?;
            if let Some(segments) = scenario.host.initcwnd {
                sender.run(|| {
                    let netlink = Netlink::new()?;
                    netlink.set_host_route(netlink.index(&devices[0])?, RECEIVER, segments)
                })?;
            }
            let flows = pairs.iter().enumerate().filter(|(_, of)| **of == number).map(|(flow, _)| flow);
            Ok(Self { sender, receiver, flows: flows.collect() })
        };
        (0..devices(scenario) / 2).map(pair).collect()
    }
}

fn run(scenario: &Scenario) -> Result<GuestReport, Error> {
    allow_files(scenario.flows.len() as u64);
    set_sysctl("net/ipv4/tcp_mem", TCP_MEM)?;
    let pairs = HostPair::all(scenario)?;
    // Every sending host can reach the path, so the first one sends the messages.
    let path = pairs[0].sender.run(|| UdpSocket::bind((SENDER, 0)).doing("create a socket"))?;
    let tell = |control: Control| {
        path.send_to(&control.datagram(), Control::ADDRESS).doing("send a message to the path").map(drop)
    };

    let (mut listeners, mut servers) = (Vec::new(), Servers::default());
    let mut sockets = [OpeningSockets::new(), OpeningSockets::new()];
    for HostPair { sender, receiver, flows } in &pairs {
        let opening = |opener: Opener| opener.sockets(scenario, flows.iter().copied(), FIRST_PORT);
        let (listener, receivers) = receiver.run(|| {
            impose(&scenario.host)?;
            Ok((listening(&scenario.host, &scenario.flows)?, opening(Opener::Receiver)?))
        })?;
        let (listeners_of_host, senders) = sender.run(|| {
            impose(&scenario.host)?;
            Ok((Servers::all(&scenario.host, &scenario.flows)?, opening(Opener::Sender)?))
        })?;
        listeners.push(listener);
        servers.extend(listeners_of_host);
        sockets[0].extend(senders);
        sockets[1].extend(receivers);
    }
    let flows = Flow::all(scenario, &[None, None], sockets, FIRST_PORT);

    let (stop_sending, stop_receiving) = (Stop::new()?, Stop::new()?);
    tell(Control::Start { lead: LEAD.as_nanos() })?;
    let clock = Clock::starting_in(LEAD);
    let mut sampler = Sampler::new(scenario, &flows, Ending::AfterDuration);
    thread::scope(|scope| {
        let sending = scope.spawn(|| send(&flows, &scenario.flows, &servers, clock, &stop_sending));
        let receiving = scope
            .spawn(|| receive(&flows, scenario, &listeners, clock, &stop_receiving, GreedyReads::Blocking));
        let sampled = sampler.until(Instant::ZERO + scenario.duration, clock, &|| true);
        stop_sending.stop();
        stop_receiving.stop();
        let joined = |thread: thread::ScopedJoinHandle<'_, Result<(), Error>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        joined(sending).and(joined(receiving)).and(sampled)
    })?;
    tell(Control::End)?;
    Ok(GuestReport {
        release: uname().release().to_string_lossy().into_owned(),
        hz: timer_frequency(),
        rows: sampler.rows,
        ends: flows.iter().map(FlowEnd::of).collect(),
    })
}

/// Returns the frequency of the kernel's timer interrupt: the coarse clock advances once per interrupt.
fn timer_frequency() -> u64 {
    let tick = clock_getres(ClockId::MonotonicCoarse);
    1_000_000_000u64.checked_div(tick.tv_nsec as u64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required_modules_are_loaded_first() {
        let list = "kernel/net/ipv4/tcp_bbr.ko:\n\
                    kernel/net/ipv4/tcp_x.ko: kernel/lib/a.ko kernel/lib/b.ko\n\
                    kernel/net/ipv4/xtcp_x.ko:\n";
        assert_eq!(modules(list, "tcp_bbr.ko"), ["kernel/net/ipv4/tcp_bbr.ko"]);
        let ordered = ["kernel/lib/b.ko", "kernel/lib/a.ko", "kernel/net/ipv4/tcp_x.ko"];
        assert_eq!(modules(list, "tcp_x.ko"), ordered);
        assert!(modules(list, "tcp_y.ko").is_empty());
    }
}
