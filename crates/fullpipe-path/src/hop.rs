//! One hop: a drop-tail queue, a link of constant rate, a constant delay.
//!
//! The three are fused. As the link serves in order at a known rate, a packet's departure is known when
//! it enters, `max(arrival, link free) + length / rate + delay`; nothing is scheduled per packet, and
//! the hop's only event is the exit of its oldest packet.
//!
//! ```text
//!   held (oldest first):  [ propagating | in service | waiting ............ ]
//!                                                    ^ next_start <= now moves this boundary
//! ```

use std::collections::VecDeque;

use fullpipe_units::{Bytes, Duration, Instant, Rate};

use crate::packet::PacketInfo;

/// The parameters of a [`Hop`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HopConfig {
    /// Link rate in bits of the packets as counted by their length; [`Rate::MAX`] serves in no time.
    pub rate: Rate,
    /// Propagation delay behind the link, one way.
    pub delay: Duration,
    /// Most bytes that may wait. The packet in service does not wait and is not counted.
    pub queue: Bytes,
}

/// Queue, rate and delay.
#[derive(Clone, Debug)]
pub struct Hop<T> {
    config: HopConfig,
    held: VecDeque<DepartingPacket<T>>,
    /// When the link has sent everything that was accepted.
    free_at: Instant,
    /// The part of a nanosecond by which `free_at` is early, in units of 1/rate ns: kept so that a
    /// busy link serves exactly at its rate instead of rounding each packet down.
    carry: u64,
    /// Service time of everything that was accepted.
    service: Duration,
    service_of: ServiceOf,
    /// The newest packets, as far as they had not begun service when last looked, and their bytes.
    waiting: VecDeque<ServiceSlot>,
    waiting_bytes: u64,
    /// When the first of them begins: as soon as the packet before it has been served.
    next_start: Instant,
}

/// A packet and when it leaves.
#[derive(Clone, Debug)]
struct DepartingPacket<T> {
    exit: Instant,
    packet: PacketInfo,
    payload: T,
}

/// What the queue needs to know of a packet. Apart from it, for the boundary between waiting and served moves
/// with each packet, and packets are large: in their midst it would hardly ever be in the cache.
#[derive(Clone, Copy, Debug)]
struct ServiceSlot {
    /// When it will have been served, which is when the next one begins.
    served: Instant,
    len: u32,
}

/// Service time of packets of one length: nearly all have the length of the one before, and need no division.
#[derive(Clone, Copy, Debug)]
struct ServiceOf {
    len: u32,
    nanos: u64,
    /// What is left over, in units of 1/rate ns.
    remainder: u64,
}

const NANOS_PER_BYTE_AT_1BPS: u64 = 8_000_000_000;

impl<T> Hop<T> {
    /// An empty hop. A rate of zero is taken as 1 bit/s.
    pub fn new(mut config: HopConfig) -> Self {
        config.rate = config.rate.max(Rate::from_bps(1));
        Self {
            config,
            held: VecDeque::new(),
            free_at: Instant::ZERO,
            carry: 0,
            service: Duration::ZERO,
            service_of: ServiceOf { len: 0, nanos: 0, remainder: 0 },
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            next_start: Instant::FAR_FUTURE,
        }
    }

    /// Takes a packet and says when it will leave, or refuses it because the queue is full. The payload is made
    /// where it will lie.
    #[inline]
    pub fn push_with(
        &mut self,
        now: Instant,
        packet: PacketInfo,
        payload: impl FnOnce() -> T,
    ) -> Option<Instant> {
        self.start_service(now);
        let len = packet.len;
        let waits = self.free_at > now;
        if waits {
            if self.waiting_bytes + u64::from(len) > self.config.queue.get() {
                return None;
            }
            // The first to wait does so for the packet in service.
            self.next_start = self.next_start.min(self.free_at);
            self.waiting_bytes += u64::from(len);
        } else {
            if self.free_at < now {
                self.carry = 0;
            }
            self.free_at = now;
        }
        let service = self.serve(len);
        self.free_at += service;
        self.service += service;
        if waits {
            self.waiting.push_back(ServiceSlot { served: self.free_at, len });
        }
        let exit = self.free_at + self.config.delay;
        self.held.push_back(DepartingPacket { exit, packet, payload: payload() });
        Some(exit)
    }

    /// Time on the link for `len` bytes more; the rest of a nanosecond is carried.
    #[inline]
    fn serve(&mut self, len: u32) -> Duration {
        if self.config.rate == Rate::MAX {
            return Duration::ZERO;
        }
        let rate = self.config.rate.as_bps();
        if len != self.service_of.len {
            let work = u64::from(len) * NANOS_PER_BYTE_AT_1BPS;
            self.service_of = ServiceOf { len, nanos: work / rate, remainder: work % rate };
        }
        let ServiceOf { nanos, remainder, .. } = self.service_of;
        // Both are below the rate: together they make one nanosecond more at most.
        let missing = rate - remainder;
        if self.carry >= missing {
            self.carry -= missing;
            Duration::from_nanos(nanos + 1)
        } else {
            self.carry += remainder;
            Duration::from_nanos(nanos)
        }
    }

    /// When the oldest packet leaves; [`Instant::FAR_FUTURE`] when empty.
    #[inline]
    pub fn next_exit(&self) -> Instant {
        self.held.front().map_or(Instant::FAR_FUTURE, |held| held.exit)
    }

    /// The oldest packet if it has left by `now`, with its exact exit time.
    pub fn pop(&mut self, now: Instant) -> Option<(Instant, PacketInfo, T)> {
        if self.next_exit() > now {
            return None;
        }
        let DepartingPacket { exit, packet, payload } = self.held.pop_front()?;
        self.on_exit();
        Some((exit, packet, payload))
    }

    /// Hands the oldest packet to `take`, where it lies, if it has left by `now`.
    #[inline]
    pub fn pop_with<R>(&mut self, now: Instant, take: impl FnOnce(PacketInfo, &mut T) -> R) -> Option<R> {
        let oldest = self.held.front_mut().filter(|held| held.exit <= now)?;
        let taken = take(oldest.packet, &mut oldest.payload);
        self.held.pop_front();
        self.on_exit();
        Some(taken)
    }

    /// Whoever left has been served, whether or not anybody looked in between.
    #[inline]
    fn on_exit(&mut self) {
        if self.waiting.len() > self.held.len() {
            self.begin_next();
        }
    }

    /// The first packet waiting is in service.
    #[inline]
    fn begin_next(&mut self) {
        if let Some(ServiceSlot { served, len }) = self.waiting.pop_front() {
            self.waiting_bytes -= u64::from(len);
            self.next_start = if self.waiting.is_empty() { Instant::FAR_FUTURE } else { served };
        }
    }

    /// Bytes waiting at `now`, the packet in service not counted.
    pub fn backlog(&mut self, now: Instant) -> Bytes {
        self.start_service(now);
        Bytes::new(self.waiting_bytes)
    }

    /// How long the link has been sending by `now`, over the whole run.
    pub fn busy(&self, now: Instant) -> Duration {
        self.service - self.free_at.saturating_since(now)
    }

    /// Packets inside: waiting, in service or propagating.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Nothing is inside.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Moves the boundary between "in service" and "waiting" to `now`.
    #[inline]
    fn start_service(&mut self, now: Instant) {
        // With nothing waiting the next start is never, and `now` may be, too.
        while self.next_start <= now && !self.waiting.is_empty() {
            self.begin_next();
        }
    }
}
