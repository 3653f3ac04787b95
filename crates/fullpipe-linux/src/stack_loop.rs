//! The real-time loop of fullpipe's TCP stack, which runs on a TUN device or at an end of an emulated path.
//!
//! ```text
//!   epoll ─► read all packets ─► stack.handle_packet
//!         ─► stack.handle_timeout ─► the application: events, reads, writes
//!         ─► stack.poll_packet until none is left ─► write; again from the start if this caused events
//!         ─► timer at stack.poll_timeout() or at the application's wake-up time, absolute
//! ```
//!
//! One thread serves all connections of a stack. A different thread that samples a connection, for example
//! for a trace, locks the stack between two rounds of the loop. With offload, one write can contain a
//! super-packet, which the kernel or the path splits.
//!
//! The loop takes a port, a stack, a clock and an application, and does not depend on the lab. A service on a host
//! creates its port from a TUN device: [`Tun::new`], followed by [`Port::from`]. A [`Service`] also has kernel sockets,
//! for example to the server for which it accepts connections; the same epoll instance watches them, and the service
//! handles them once per round.

use std::io::IoSlice;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fullpipe_tcp::stack::{Cut, Outgoing, Stack};
use fullpipe_tcp::wire::{Checksums, Flags};
use fullpipe_units::{Bytes, Duration, Instant, Rate};
use rustix::io::{Errno, read, write, writev};
use rustix::thread::set_current_timer_slack;

use crate::clock::{Clock, thread_cpu};
use crate::error::Error;
use crate::poll::{Alarm, Poll, Readiness, Stop, WaitCondition};
use crate::sys;
use crate::tun::{Datapath, Tun, VIRTIO_HEADER};

/// Maximum size of an IP packet in bytes.
const MOST_BYTES: usize = 65_535;
/// Maximum number of packets that the loop reads before the application runs and packets are sent.
const READ_AT_ONCE: usize = 64;
/// Timer slack of 1 ns, so that timers fire on time: the intervals between paced packets are only
/// microseconds.
const TIMER_SLACK: NonZeroU64 = NonZeroU64::MIN;

/// `virtio_net_hdr` flags: the checksum must be completed before the packet is sent (`NEEDS_CSUM`), or has
/// been verified.
const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_ECN: u8 = 0x80;
/// Offsets of the checksum and of the flags in a TCP header.
const TCP_CHECKSUM: u16 = 16;
const TCP_FLAGS: usize = 13;

const AWAKE: u64 = 0;
const STOPPING: u64 = 1;
const DEVICE: u64 = 2;
/// Number of the first socket of a service; the numbers below belong to the loop.
const FIRST_SOCKET: u64 = 3;

/// An application that reads and writes on the connections of a stack.
pub trait Application {
    /// Handles all events of the stack: accepts connections, reads and writes. Returns the time at which the
    /// loop calls the application again if no event occurs before then; [`Instant::FAR_FUTURE`] for no such
    /// time.
    fn attend(&mut self, now: Instant, stack: &mut Stack) -> Instant;
}

/// An application that also uses sockets of the kernel.
pub trait Service {
    /// Handles the events of the stack and the sockets that are ready. Returns the time at which the loop calls the
    /// service again if no event occurs before then; [`Instant::FAR_FUTURE`] for no such time.
    ///
    /// # Errors
    /// An error ends the loop.
    fn attend(&mut self, now: Instant, stack: &mut Stack, sockets: &Sockets<'_>) -> Result<Instant, Error>;

    /// Returns the rate on an Ethernet link that all connections together must not exceed at present; `None` without a
    /// limit.
    fn limit(&self) -> Option<Rate>;
}

/// Kernel sockets of a [`Service`], which the loop watches. Each socket has a number that the service
/// chooses.
pub struct Sockets<'a> {
    poll: &'a Poll,
    delay: Duration,
}

impl Sockets<'_> {
    /// Returns the time by which this round is late for the time that the loop had set; zero if an event has
    /// started the round earlier.
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// Returns the numbers of the sockets that are ready or have failed, with their changes.
    pub fn ready(&self) -> impl Iterator<Item = (u64, Readiness)> + '_ {
        self.poll
            .changes()
            .filter_map(|(number, readiness)| Some((number.checked_sub(FIRST_SOCKET)?, readiness)))
    }

    /// Starts to watch a socket for changes until it is closed. The service must read until the socket is empty and
    /// write until it is full, because only later changes are reported. Room in the send buffer is reported only after
    /// a call of [`Self::watch_room`].
    ///
    /// # Errors
    /// Returns an error if the kernel cannot watch the socket.
    pub fn watch(&self, fd: BorrowedFd<'_>, number: u64) -> Result<(), Error> {
        self.poll.watch_changes(fd, number + FIRST_SOCKET, false, false)
    }

    /// Also reports when a connection is established, and when a full send buffer has room again. `again` is true if
    /// the socket is already being watched.
    ///
    /// # Errors
    /// Returns an error if the kernel cannot watch the socket.
    pub fn watch_room(&self, fd: BorrowedFd<'_>, number: u64, again: bool) -> Result<(), Error> {
        self.poll.watch_changes(fd, number + FIRST_SOCKET, true, again)
    }

    /// Changes the condition for which a socket is watched from `before` to `after`. Before the number of a socket is
    /// used for another socket, the first one must be changed to [`WaitCondition::Nothing`] or closed.
    ///
    /// # Errors
    /// Returns an error if the kernel cannot watch the socket.
    pub fn change(
        &self,
        fd: BorrowedFd<'_>,
        number: u64,
        before: WaitCondition,
        after: WaitCondition,
    ) -> Result<(), Error> {
        self.poll.change(fd, number + FIRST_SOCKET, before, after)
    }
}

/// Packet counters and CPU time of a stack's loop.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoopReport {
    /// Number of packets read from the port; with offload, one packet may contain several segments.
    pub reads: u64,
    /// Number of packets written to the port.
    pub writes: u64,
    /// Number of packets that the kernel refused to accept.
    pub write_errors: u64,
    /// CPU time that the loop has used.
    pub cpu: Duration,
}

/// Source and destination of a stack's packets: a TUN device, or one end of a socket pair.
#[derive(Debug)]
pub struct Port(Tun);

impl From<Tun> for Port {
    fn from(tun: Tun) -> Self {
        Self(tun)
    }
}

impl Port {
    /// Creates two connected ports without a device: a packet that is written to one end is read from the
    /// other end.
    ///
    /// # Errors
    /// Returns an error if the process cannot open any more files.
    pub fn pair(datapath: Datapath) -> Result<[Self; 2], Error> {
        Ok(Tun::pair(datapath)?.map(Self))
    }

    /// Returns whether a stack on this port must send single segments or super-packets.
    pub fn cut(&self) -> Cut {
        match self.0.datapath {
            Datapath::Plain => Cut::Segments,
            Datapath::Offload => Cut::SuperPackets,
        }
    }
}

/// Locks the stack, even if another thread has panicked while it held the lock.
pub fn locked(stack: &Mutex<Stack>) -> MutexGuard<'_, Stack> {
    stack.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Moves packets between `port` and `stack`, and calls `application`, until `stop` is set.
///
/// # Errors
/// Returns an error if a system call fails unexpectedly.
pub fn run(
    port: &Port,
    stack: &Mutex<Stack>,
    clock: Clock,
    application: &mut impl Application,
    stop: &Stop,
) -> Result<LoopReport, Error> {
    // Real-time priority is best effort: without it, the RTT is longer on a busy machine. The kernel TCP
    // stack does not wait for ordinary threads either.
    let _ = sys::run_in_real_time();
    let attend = |now, stack: &mut Stack, _: &Sockets<'_>| Ok((application.attend(now, stack), None));
    run_loop(port, stack, clock, false, stop, attend)
}

/// Moves packets between `port` and `stack`, and calls `service`, until `stop` is set or the service returns an error.
/// The rate of all connections together stays below [`Service::limit`]. The thread keeps its scheduling class, because
/// the service shares its host with the server.
///
/// # Errors
/// Returns an error if a system call fails unexpectedly, or if the service returns an error.
pub fn serve(
    port: &Port,
    stack: &Mutex<Stack>,
    clock: Clock,
    service: &mut impl Service,
    stop: &Stop,
) -> Result<LoopReport, Error> {
    let attend = |now, stack: &mut Stack, sockets: &Sockets<'_>| {
        let wakes = service.attend(now, stack, sockets)?;
        Ok((wakes, service.limit()))
    };
    run_loop(port, stack, clock, true, stop, attend)
}

/// Loop of [`run`] and [`serve`]. `attend` returns the next wake-up time and the rate limit. If the application has
/// sockets, the loop also checks the descriptors in rounds that do not sleep, so that packets cannot keep its sockets
/// waiting.
fn run_loop(
    port: &Port,
    stack: &Mutex<Stack>,
    clock: Clock,
    has_sockets: bool,
    stop: &Stop,
    mut attend: impl FnMut(Instant, &mut Stack, &Sockets<'_>) -> Result<(Instant, Option<Rate>), Error>,
) -> Result<LoopReport, Error> {
    let (mut poll, alarm) = (Poll::new()?, Alarm::new()?);
    let mut happened = Vec::new();
    poll.watch(port.0.as_fd(), DEVICE)?;
    poll.watch(alarm.as_fd(), AWAKE)?;
    poll.watch(stop.as_fd(), STOPPING)?;
    // Timer slack is best effort: without it, pacing is coarser.
    let _ = set_current_timer_slack(Some(TIMER_SLACK));
    let mut device = Device {
        tun: &port.0,
        shaper: None,
        room: vec![0; VIRTIO_HEADER + MOST_BYTES],
        held: Vec::new(),
        report: LoopReport::default(),
    };
    let mut waits_for_room = false;
    let mut expected = Instant::FAR_FUTURE;
    loop {
        let (more, next) = {
            let mut stack = locked(stack);
            let more = device.read_all(&mut stack, clock)?;
            let now = clock.now();
            stack.handle_timeout(now);
            let sockets = Sockets { poll: &poll, delay: now.saturating_since(expected) };
            let (wakes, limit) = attend(now, &mut stack, &sockets)?;
            device.limit(limit);
            device.write_all(&mut stack, now);
            // Sending may have made a socket writable, in which case the application writes immediately.
            (more || stack.has_events(), wakes.min(stack.poll_timeout()).min(device.free_at(now)))
        };
        expected = next;
        let blocked = !device.held.is_empty();
        if blocked != waits_for_room {
            let awaited = if blocked { WaitCondition::DataAndRoom } else { WaitCondition::Data };
            poll.watch_instead(port.0.as_fd(), DEVICE, awaited)?;
            waits_for_room = blocked;
        }
        if more || next <= clock.now() {
            if !has_sockets {
                continue;
            }
            poll.look(&mut happened)?;
        } else {
            alarm.set_at_latest(&clock, next)?;
            poll.wait(&mut happened)?;
        }
        if happened.contains(&AWAKE) {
            alarm.expired();
        }
        if happened.contains(&STOPPING) {
            return Ok(LoopReport { cpu: thread_cpu(), ..device.report });
        }
    }
}

/// Octets that an Ethernet link needs per packet in addition to the packet: header, checksum, preamble and gap (IEEE
/// 802.3).
const ETHERNET_OVERHEAD: u64 = 14 + 4 + 8 + 12;
/// If the loop wakes up late by at most this time, it sends the delayed packets immediately.
const CREDIT: Duration = Duration::from_millis(1);

/// Limits the total rate of all packets of a port. Without this limit, connections that fill the link would lose
/// packets in the queue of this host.
#[derive(Debug)]
struct Shaper {
    rate: Rate,
    /// Time from which the next packet may be sent.
    free_at: Instant,
}

impl Shaper {
    fn new(rate: Rate) -> Self {
        Self { rate, free_at: Instant::ZERO }
    }

    /// Records a packet that is sent at `now`.
    fn on_sent(&mut self, now: Instant, packet: &Outgoing<'_>) {
        let headers = packet.headers.as_bytes().len() as u64;
        let payload = packet.len() as u64 - headers;
        let segments = packet.gso_size.map_or(1, |size| payload.div_ceil(u64::from(size).max(1)).max(1));
        let octets = payload + segments * (headers + ETHERNET_OVERHEAD);
        let begin = self.free_at.max(Instant::from_nanos(now.as_nanos().saturating_sub(CREDIT.as_nanos())));
        self.free_at = begin + self.rate.time_for(Bytes::new(octets));
    }
}

struct Device<'a> {
    tun: &'a Tun,
    /// Rate limit for all packets together; `None` without a limit.
    shaper: Option<Shaper>,
    room: Vec<u8>,
    /// A packet that did not fit into the device's queue; empty if there is none. Until this packet is written, no
    /// further packet is taken from the stack.
    held: Vec<u8>,
    report: LoopReport,
}

impl Device<'_> {
    /// Changes the rate limit.
    fn limit(&mut self, limit: Option<Rate>) {
        match (limit.filter(|rate| !rate.is_zero()), &mut self.shaper) {
            (Some(rate), Some(shaper)) => shaper.rate = rate,
            (limit, shaper) => *shaper = limit.map(Shaper::new),
        }
    }

    /// Reads packets from the port, and returns true if more packets may be waiting.
    fn read_all(&mut self, stack: &mut Stack, clock: Clock) -> Result<bool, Error> {
        let header = self.tun.datapath.header_len();
        for _ in 0..READ_AT_ONCE {
            let len = match read(self.tun, &mut self.room[..]) {
                // A read of zero bytes means that the other end of the socket pair is closed.
                Ok(0) | Err(Errno::AGAIN) => return Ok(false),
                Ok(len) => len,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(Error::system("read from a TUN device", error)),
            };
            self.report.reads += 1;
            let (virtio, packet) = self.room[..len].split_at(header.min(len));
            let checked = virtio.first().is_some_and(|flags| flags & (NEEDS_CSUM | DATA_VALID) != 0);
            let checksums = if checked { Checksums::Skip } else { Checksums::Verify };
            stack.handle_packet(clock.now(), packet, checksums);
        }
        Ok(true)
    }

    /// Returns the time from which packets may be sent; [`Instant::FAR_FUTURE`] unless the rate limit holds them
    /// back at `now`.
    fn free_at(&self, now: Instant) -> Instant {
        let free_at = self.shaper.as_ref().map(|shaper| shaper.free_at);
        free_at.filter(|free_at| *free_at > now).unwrap_or(Instant::FAR_FUTURE)
    }

    /// Writes packets of the stack until the stack has none left, the device's queue is full, or the rate limit is
    /// reached.
    fn write_all(&mut self, stack: &mut Stack, now: Instant) {
        if !self.held.is_empty() {
            if write(self.tun, &self.held) == Err(Errno::AGAIN) {
                return;
            }
            self.held.clear();
        }
        while self.free_at(now).is_never() {
            let Some(packet) = stack.poll_packet(now) else { return };
            if let Some(shaper) = &mut self.shaper {
                shaper.on_sent(now, &packet);
            }
            self.report.writes += 1;
            let virtio = virtio_header(&packet);
            let parts = [
                IoSlice::new(&virtio[..self.tun.datapath.header_len()]),
                IoSlice::new(packet.headers.as_bytes()),
                IoSlice::new(packet.payload[0]),
                IoSlice::new(packet.payload[1]),
            ];
            match writev(self.tun, &parts) {
                Ok(_) => {}
                Err(Errno::AGAIN) => {
                    parts.iter().for_each(|part| self.held.extend_from_slice(part));
                    return;
                }
                // If the write fails, the packet is lost as on a real link, and TCP detects the loss.
                Err(_) => self.report.write_errors += 1,
            }
        }
    }
}

/// Builds the header that tells the kernel how to segment a packet and complete its checksum.
fn virtio_header(packet: &Outgoing<'_>) -> [u8; VIRTIO_HEADER] {
    let headers = packet.headers.as_bytes();
    let tcp = packet.headers.tcp_at();
    let mut virtio = [0; VIRTIO_HEADER];
    virtio[0] = NEEDS_CSUM;
    if let Some(size) = packet.gso_size {
        let ecn = if Flags::from_bits(headers[tcp + TCP_FLAGS]).has(Flags::CWR) { GSO_ECN } else { 0 };
        virtio[1] = ecn | if headers[0] >> 4 == 4 { GSO_TCPV4 } else { GSO_TCPV6 };
        virtio[4..6].copy_from_slice(&size.to_ne_bytes());
    }
    // The headers are at most about 100 bytes long, so their length fits into 16 bits.
    virtio[2..4].copy_from_slice(&(headers.len() as u16).to_ne_bytes());
    virtio[6..8].copy_from_slice(&(tcp as u16).to_ne_bytes());
    virtio[8..10].copy_from_slice(&TCP_CHECKSUM.to_ne_bytes());
    virtio
}
