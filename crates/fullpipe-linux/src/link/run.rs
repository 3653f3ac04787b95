//! The thread that forwards packets in one direction of the link.

use std::io::IoSlice;
use std::num::NonZeroU64;
use std::os::fd::AsFd;

use fullpipe_lab::scenario::{DirectionSpec, FlowSpec};
use fullpipe_lab::sim::direction;
use fullpipe_lab::trace::PathState;
use fullpipe_lab::validity::Lateness;
use fullpipe_path::{Counters, Exit, Note, PacketInfo, PacketKind, Path, Verdict};
use fullpipe_units::{Duration, Instant};
use rustix::io::{Errno, read, write, writev};
use rustix::thread::set_current_timer_slack;

use super::{Arrival, Departure, FlowNumbers, LinkReport, Log, PathSample, Sampling, Tap, is_drop};
use crate::arena::{Arena, Slot};
use crate::clock::{Clock, thread_cpu};
use crate::error::Error;
use crate::hosts::Answers;
use crate::packet::{MOST_HEADERS, Segments, merged_headers, parse, set_ecn};
use crate::poll::{Alarm, Poll, Stop};
use crate::sys;
use crate::tun::{Datapath, Tun, VIRTIO_HEADER};

/// Maximum size of an IP packet in bytes.
const MOST_BYTES: usize = 65_535;
/// Maximum number of consecutive reads before the loop processes departures.
const READ_AT_ONCE: usize = 32;
/// With offload, packets that are due within this time are written together, just as a network card coalesces
/// packets before it raises an interrupt.
const MERGE_WITHIN: Duration = Duration::from_micros(50);
/// Divisor that limits the coalescing time to 1/100 of the path delay.
const MERGE_PER_DELAY: u64 = 100;
/// Timer slack of 1 ns, so that timers fire on time. With the default slack, the kernel would coalesce timers
/// that expire within 50 us.
const TIMER_SLACK: NonZeroU64 = NonZeroU64::MIN;

/// epoll event numbers: a packet or the timer (`AWAKE`), and the stop signal (`STOPPING`).
const AWAKE: u64 = 0;
const STOPPING: u64 = 1;

/// A wire segment on the path, given by the location of its super-packet and its index in the super-packet.
#[derive(Clone, Copy, Debug)]
struct Piece {
    slot: Slot,
    index: u32,
    arrival: u64,
}

/// Configuration of one direction of the link.
pub(crate) struct LinkConfig<'a> {
    pub(crate) input: Tun,
    pub(crate) output: Tun,
    pub(crate) direction: &'a DirectionSpec,
    /// Flows of the run; the link uses the access RTTs of their hosts.
    pub(crate) specs: &'a [FlowSpec],
    pub(crate) seed: u64,
    /// Number of the direction, which selects its random stream: 0 is forward, 1 is backward.
    pub(crate) number: u64,
    pub(crate) clock: Clock,
    pub(crate) flows: FlowNumbers,
    pub(crate) sampling: Option<Sampling>,
    pub(crate) logged: bool,
    pub(crate) tap: Option<Tap>,
    /// Measures how long the receiving host takes to answer the data packets of direction 0.
    pub(crate) answers: Answers,
}

pub(crate) struct Link {
    input: Tun,
    output: Tun,
    path: Path<Piece>,
    clock: Clock,
    flows: FlowNumbers,
    sampling: Option<Sampling>,
    next_sample: Instant,
    /// Maximum time for which a due packet waits for other packets that can be written together with it.
    gather: Duration,
    arena: Arena,
    arrivals: u64,
    /// Segments that are due and will be written next.
    due: Vec<Exit<Piece>>,
    tap: Option<Tap>,
    answers: Answers,
    /// Whether this direction of the link carries packets to the receiver.
    to_receiver: bool,
    report: LinkReport,
}

impl Link {
    pub(crate) fn new(config: LinkConfig<'_>) -> Self {
        let gather = match config.output.datapath {
            Datapath::Plain => Duration::ZERO,
            Datapath::Offload => MERGE_WITHIN.min(config.direction.delay / MERGE_PER_DELAY),
        };
        let mut path = direction(config.direction, config.specs, config.seed, config.number);
        path.keep_notes();
        let next_sample = config.sampling.map_or(Instant::FAR_FUTURE, |s| Instant::ZERO + s.every);
        Self {
            input: config.input,
            output: config.output,
            path,
            clock: config.clock,
            flows: config.flows,
            sampling: config.sampling,
            next_sample,
            gather,
            arena: Arena::default(),
            arrivals: 0,
            due: Vec::new(),
            tap: config.tap,
            answers: config.answers,
            to_receiver: config.number == 0,
            report: LinkReport {
                counters: Counters::default(),
                data_drops: 0,
                lateness: Lateness::default(),
                write_errors: 0,
                writes: 0,
                packets: 0,
                cpu: Duration::ZERO,
                real_time: false,
                samples: Vec::new(),
                log: config.logged.then(Log::default),
            },
        }
    }

    /// Forwards packets until `stop` is set.
    pub(crate) fn run(mut self, stop: &Stop) -> Result<LinkReport, Error> {
        let (mut poll, alarm) = (Poll::new()?, Alarm::new()?);
        let mut happened = Vec::new();
        poll.watch(self.input.as_fd(), AWAKE)?;
        poll.watch(alarm.as_fd(), AWAKE)?;
        poll.watch(stop.as_fd(), STOPPING)?;
        // Timer slack and real-time priority are best effort: without them, the loop wakes up later, which is
        // visible in the measured lateness.
        let _ = set_current_timer_slack(Some(TIMER_SLACK));
        self.report.real_time = sys::run_in_real_time().is_ok();

        loop {
            let now = self.clock.now();
            self.depart(now);
            self.sample(now);
            if self.arrive()? {
                continue;
            }
            let next = (self.path.next_event() + self.gather).min(self.next_sample);
            if next <= self.clock.now() {
                continue;
            }
            alarm.set(&self.clock, next)?;
            poll.wait(&mut happened)?;
            if happened.contains(&STOPPING) {
                break;
            }
        }
        // At the end of a run on a busy machine, the stop signal may arrive before the last timer event.
        self.sample(self.clock.now());
        self.report.counters = self.path.counters();
        self.report.cpu = thread_cpu();
        Ok(self.report)
    }

    /// Reads packets from the kernel, and returns true if more packets may be waiting.
    fn arrive(&mut self) -> Result<bool, Error> {
        let header = self.input.datapath.header_len();
        for _ in 0..READ_AT_ONCE {
            let room = self.arena.room(header + MOST_BYTES);
            let len = match read(&self.input, room) {
                Ok(len) => len,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(Error::system("read from a TUN device", error)),
            };
            let now = self.clock.now();
            if !self.to_receiver {
                self.answers.answered(now);
            }
            if len > header {
                self.push(now, len);
            }
            self.depart(now);
        }
        Ok(true)
    }

    /// Pushes the segments of the packet that was just read, which has `len` bytes, into the path.
    fn push(&mut self, now: Instant, len: usize) {
        let header = self.input.datapath.header_len();
        let (virtio, packet) = self.arena.room(header + MOST_BYTES)[..len].split_at(header);
        let parsed = parse(packet);
        let segments = Segments::of(virtio, packet, &parsed);
        let slot = self.arena.keep(len, segments.count);
        let flow = self.flows.number(&parsed.flow);
        for index in 0..segments.count {
            let (_, payload) = segments.payload(index);
            let info = PacketInfo {
                len: (parsed.headers + payload) as u32,
                flow,
                kind: parsed.kind,
                continues: index > 0,
                ecn: parsed.ecn,
            };
            let verdict = self.path.push(now, info, Piece { slot, index, arrival: self.arrivals });
            self.arrivals += 1;
            if let Some(log) = &mut self.report.log {
                log.arrivals.push(Arrival { at: now, packet: info, verdict });
            }
            if let Some(tap) = self.tap.as_ref().filter(|tap| tap.outbound) {
                let read = self.arena.bytes(slot).split_at(header);
                tap.note(now, read, &parsed, &segments, index, verdict);
            }
            if is_drop(verdict) {
                self.report.data_drops += u64::from(info.kind == PacketKind::Data);
                self.arena.release(slot);
            }
            self.take_notes();
        }
    }

    /// Processes the path's reports on duplicated and dropped packets, so that each reference to a packet is
    /// released exactly once.
    fn take_notes(&mut self) {
        while let Some(note) = self.path.next_note() {
            match note {
                Note::Duplicated { payload, .. } => self.arena.retain(payload.slot),
                Note::Dropped { packet, payload, .. } => {
                    self.report.data_drops += u64::from(packet.kind == PacketKind::Data);
                    self.arena.release(payload.slot);
                }
            }
        }
    }

    /// Writes all packets that are due by `now`, once the first of them has waited for the coalescing time.
    fn depart(&mut self, now: Instant) {
        if self.path.next_event() + self.gather > now {
            return;
        }
        while let Some(due) = self.path.pop(now) {
            self.due.push(due);
        }
        // The reports must be processed before any reference is released, because a duplicate may leave after
        // its original.
        self.take_notes();
        let due = std::mem::take(&mut self.due);
        let gather = self.gather;
        let mut rest = due.as_slice();
        while let Some(first) = rest.first() {
            // Consecutive segments of one super-packet are written together if they are due at the same time
            // and have the same ECN field.
            let together = rest.windows(2).take_while(|pair| {
                let (one, next) = (pair[0].payload, pair[1].payload);
                next.slot == one.slot
                    && next.index == one.index + 1
                    && pair[1].packet.ecn == first.packet.ecn
                    && pair[1].at.saturating_since(first.at) <= gather
            });
            let (now_due, later) = rest.split_at(1 + together.count());
            rest = later;
            self.write(now_due);
        }
        self.due = due;
        self.due.clear();
    }

    fn write(&mut self, group: &[Exit<Piece>]) {
        let Some(Exit { packet: info, payload: first, .. }) = group.first().copied() else { return };
        let bytes = self.arena.bytes(first.slot);
        let last = first.index + group.len() as u32 - 1;
        let now = self.clock.now();
        let (virtio, packet) = bytes.split_at(self.output.datapath.header_len());
        // The packet is recorded before it is written, so that the record of the reply follows it.
        if let Some(tap) = self.tap.as_ref().filter(|tap| !tap.outbound) {
            let parsed = parse(packet);
            let segments = Segments::of(virtio, packet, &parsed);
            for exit in group {
                let index = exit.payload.index;
                tap.note(now, (virtio, packet), &parsed, &segments, index, Verdict::Accepted);
            }
        }
        let parsed = parse(packet);
        let segments = Segments::of(virtio, packet, &parsed);
        // The packet is recorded before it is written, because the kernel answers within the write call.
        if self.to_receiver && info.kind == PacketKind::Data {
            self.answers.asked(now, group.len() as u32);
        }
        let marked = info.ecn != parsed.ecn;
        let uncut = virtio.is_empty() || group.len() as u32 == segments.count;
        let result = if uncut && !marked {
            write(&self.output, bytes)
        } else {
            let mut headers = [0; VIRTIO_HEADER + MOST_HEADERS];
            let (len, payload) = if uncut {
                let len = virtio.len() + parsed.headers.min(MOST_HEADERS);
                headers[..len].copy_from_slice(&bytes[..len]);
                (len, &bytes[len..])
            } else {
                let len = merged_headers(bytes, &parsed, &segments, first.index, last, &mut headers);
                let (from, _) = segments.payload(first.index);
                let (last_at, last_len) = segments.payload(last);
                (len, &packet[parsed.headers..][from..last_at + last_len])
            };
            if marked {
                set_ecn(&mut headers[virtio.len()..len], info.ecn);
            }
            writev(&self.output, &[IoSlice::new(&headers[..len]), IoSlice::new(payload)])
        };
        self.report.writes += 1;
        self.report.write_errors += u64::from(result.is_err());
        for exit in group {
            self.report.packets += 1;
            self.report.lateness.add(now.saturating_since(exit.at));
            if let Some(log) = &mut self.report.log {
                let (arrival, ecn) = (exit.payload.arrival, exit.packet.ecn);
                log.departures.push(Departure { due: exit.at, arrival, ecn });
            }
            self.arena.release(exit.payload.slot);
        }
    }

    /// Records the state of the path for every sampling time up to `now`.
    fn sample(&mut self, now: Instant) {
        let Some(sampling) = self.sampling else { return };
        while self.next_sample <= now {
            let states = (0..sampling.flows).map(|flow| PathState::of(&mut self.path, now, flow)).collect();
            self.report.samples.push(PathSample { states, counters: self.path.counters() });
            let next = self.next_sample + sampling.every;
            // The last sample is taken at the end of the run, even if the end is not a sampling time.
            self.next_sample = match self.next_sample {
                at if at >= sampling.until => Instant::FAR_FUTURE,
                _ => next.min(sampling.until),
            };
        }
    }
}
