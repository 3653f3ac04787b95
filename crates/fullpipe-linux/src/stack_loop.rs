//! The other loop with the real clock: fullpipe's TCP on a TUN device, or on the end of an emulated path.
//!
//! ```text
//!   epoll ─► read what there is ─► stack.handle_packet
//!         ─► stack.handle_timeout ─► the application: events, reads, writes
//!         ─► stack.poll_packet until there is none ─► write
//!         ─► timer at stack.poll_timeout() or when the application wants to be woken, absolute
//! ```
//!
//! One thread for all connections of a stack. Whatever else wants to look at one, a trace for instance, locks it
//! between two rounds. With offload a super-packet goes in one write and the kernel, or the path, cuts it.
//!
//! The loop takes a port, a stack, a clock and an application, and knows nothing of the lab. A service of a host makes
//! its port of a device: [`Tun::new`], then [`Port::from`].

use std::io::IoSlice;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fullpipe_tcp::stack::{Cut, Outgoing, Stack};
use fullpipe_tcp::wire::{Checksums, Flags};
use fullpipe_units::{Duration, Instant};
use rustix::io::{Errno, read, write, writev};
use rustix::thread::set_current_timer_slack;

use crate::clock::{Clock, thread_cpu};
use crate::error::Error;
use crate::poll::{Alarm, Awaited, Poll, Stop};
use crate::sys;
use crate::tun::{Datapath, Tun, VIRTIO_HEADER};

/// The largest IP packet.
const MOST_BYTES: usize = 65_535;
/// Packets that are read before the application is asked and anything is sent.
const READ_AT_ONCE: usize = 64;
/// Timers fire when they are due: a pacer's releases are microseconds apart.
const TIMER_SLACK: NonZeroU64 = NonZeroU64::MIN;

/// `virtio_net_hdr`: the checksum is left to whoever sends the packet on; or it has been looked at.
const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_ECN: u8 = 0x80;
/// Where a TCP header has its checksum, and its flags.
const TCP_CHECKSUM: u16 = 16;
const TCP_FLAGS: usize = 13;

const AWAKE: u64 = 0;
const STOPPING: u64 = 1;
const DEVICE: u64 = 2;

/// What reads and writes on the connections of a stack.
pub trait Application {
    /// Something may have happened: takes the stack's events, accepts, reads and writes. Returns when to be asked again if
    /// nothing happens; [`Instant::FAR_FUTURE`] for never.
    fn attend(&mut self, now: Instant, stack: &mut Stack) -> Instant;
}

/// What a loop did.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoopReport {
    /// Packets read; with offload one may carry several segments.
    pub reads: u64,
    /// Packets written.
    pub writes: u64,
    /// Writes that the kernel refused.
    pub write_errors: u64,
    /// Processor time of the loop.
    pub cpu: Duration,
}

/// Where the packets of a stack come from and go to: a TUN device, or an end of a pair of sockets that stands for one.
#[derive(Debug)]
pub struct Port(Tun);

impl From<Tun> for Port {
    fn from(tun: Tun) -> Self {
        Self(tun)
    }
}

impl Port {
    /// In what packets a stack on it has to send.
    pub fn cut(&self) -> Cut {
        match self.0.datapath {
            Datapath::Plain => Cut::Segments,
            Datapath::Offload => Cut::SuperPackets,
        }
    }
}

/// The stack behind a lock, whatever became of others who held it.
pub fn locked(stack: &Mutex<Stack>) -> MutexGuard<'_, Stack> {
    stack.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Moves packets between `port` and `stack`, and asks `application`, until `stop`.
///
/// # Errors
/// When a system call fails that should not.
pub fn run(
    port: &Port,
    stack: &Mutex<Stack>,
    clock: Clock,
    application: &mut impl Application,
    stop: &Stop,
) -> Result<LoopReport, Error> {
    let (mut poll, alarm) = (Poll::new()?, Alarm::new()?);
    let mut happened = Vec::new();
    poll.watch(port.0.as_fd(), DEVICE)?;
    poll.watch(alarm.as_fd(), AWAKE)?;
    poll.watch(stop.as_fd(), STOPPING)?;
    // Both are favours: without them pacing is coarser, and on a busy machine a round trip longer. A kernel's TCP does not
    // wait for ordinary threads either.
    let _ = set_current_timer_slack(Some(TIMER_SLACK));
    let _ = sys::run_in_real_time();
    let mut device = Device {
        tun: &port.0,
        room: vec![0; VIRTIO_HEADER + MOST_BYTES],
        held: Vec::new(),
        report: LoopReport::default(),
    };
    let mut waits_for_room = false;
    loop {
        let (more, next) = {
            let mut stack = locked(stack);
            let more = device.read_all(&mut stack, clock)?;
            let now = clock.now();
            stack.handle_timeout(now);
            let wakes = application.attend(now, &mut stack);
            device.write_all(&mut stack, now);
            (more, wakes.min(stack.poll_timeout()))
        };
        let blocked = !device.held.is_empty();
        if blocked != waits_for_room {
            let awaited = if blocked { Awaited::DataAndRoom } else { Awaited::Data };
            poll.watch_instead(port.0.as_fd(), DEVICE, awaited)?;
            waits_for_room = blocked;
        }
        if more || next <= clock.now() {
            continue;
        }
        alarm.set(&clock, next)?;
        poll.wait(&mut happened)?;
        if happened.contains(&STOPPING) {
            return Ok(LoopReport { cpu: thread_cpu(), ..device.report });
        }
    }
}

struct Device<'a> {
    tun: &'a Tun,
    room: Vec<u8>,
    /// A packet for which there was no room; nothing is taken from the stack until it has gone.
    held: Vec<u8>,
    report: LoopReport,
}

impl Device<'_> {
    /// Takes packets from the kernel; true when there may be more.
    fn read_all(&mut self, stack: &mut Stack, clock: Clock) -> Result<bool, Error> {
        let header = self.tun.datapath.header_len();
        for _ in 0..READ_AT_ONCE {
            let len = match read(self.tun, &mut self.room[..]) {
                // The other end of a pair has gone.
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

    /// Writes what the stack has, as long as there is room.
    fn write_all(&mut self, stack: &mut Stack, now: Instant) {
        if !self.held.is_empty() {
            if write(self.tun, &self.held) == Err(Errno::AGAIN) {
                return;
            }
            self.held.clear();
        }
        while let Some(packet) = stack.poll_packet(now) {
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
                // As on a wire: it is lost, and TCP finds out.
                Err(_) => self.report.write_errors += 1,
            }
        }
    }
}

/// What tells the kernel how to cut and complete a packet.
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
    // Headers are at most a hundred bytes.
    virtio[2..4].copy_from_slice(&(headers.len() as u16).to_ne_bytes());
    virtio[6..8].copy_from_slice(&(tcp as u16).to_ne_bytes());
    virtio[8..10].copy_from_slice(&TCP_CHECKSUM.to_ne_bytes());
    virtio
}
