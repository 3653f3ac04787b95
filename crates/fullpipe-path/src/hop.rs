//! One hop: a drop-tail queue, a link of constant rate, and a constant delay.
//!
//! One element combines queue, link and delay. The link transmits in order at a known rate, so a packet's
//! departure is known when it enters: `max(arrival, link free) + length / rate + delay`. The hop's only event
//! is the exit of its oldest packet, so no event is scheduled per packet.
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
    /// Link rate in bits per second, applied to the packet length. With [`Rate::MAX`], transmission takes no
    /// time.
    pub rate: Rate,
    /// One-way propagation delay behind the link.
    pub delay: Duration,
    /// Capacity of the queue in bytes, excluding the packet in service.
    pub queue: Bytes,
}

/// A hop: a drop-tail queue, a link of constant rate and a propagation delay.
#[derive(Clone, Debug)]
pub struct Hop<T> {
    config: HopConfig,
    held: VecDeque<DepartingPacket<T>>,
    /// Time at which the link has transmitted all accepted packets.
    free_at: Instant,
    /// Fraction of a nanosecond by which `free_at` is too early, in units of 1/rate ns. Without this carry,
    /// each service time would be rounded down, and a busy link would exceed its rate.
    carry: u64,
    /// Total service time of all accepted packets.
    service: Duration,
    service_of: ServiceOf,
    /// Packets whose transmission had not begun when the queue was last queried, and their total length in
    /// bytes.
    waiting: VecDeque<ServiceSlot>,
    waiting_bytes: u64,
    /// Time at which the first waiting packet begins transmission, immediately after the packet before it.
    next_start: Instant,
}

/// A packet in the hop and the time at which it leaves.
#[derive(Clone, Debug)]
struct DepartingPacket<T> {
    exit: Instant,
    packet: PacketInfo,
    payload: T,
}

/// Properties of a waiting packet that the queue needs.
///
/// These properties are stored separately because the boundary between waiting and served packets moves with
/// each packet. If they were stored with the packets, they would rarely be in the cache.
#[derive(Clone, Copy, Debug)]
struct ServiceSlot {
    /// Time at which the transmission of this packet ends and the next packet begins transmission.
    served: Instant,
    len: u32,
}

/// Cached service time for one packet length. Most packets have the same length as the previous packet, so
/// the cache saves a division.
#[derive(Clone, Copy, Debug)]
struct ServiceOf {
    len: u32,
    nanos: u64,
    /// Remainder of the division that gives the service time, in units of 1/rate ns.
    remainder: u64,
}

const NANOS_PER_BYTE_AT_1BPS: u64 = 8_000_000_000;

impl<T> Hop<T> {
    /// Creates an empty hop. A rate of zero is treated as 1 bit/s.
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

    /// Accepts a packet and returns its exit time, or `None` if the queue is full. The payload is constructed
    /// in place.
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
            // The first waiting packet waits for the packet in service.
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

    /// Returns the transmission time of `len` bytes, and carries the fraction of a nanosecond over to the
    /// next packet.
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
        // The carry and the remainder are below the rate, so together they add at most one nanosecond.
        let missing = rate - remainder;
        if self.carry >= missing {
            self.carry -= missing;
            Duration::from_nanos(nanos + 1)
        } else {
            self.carry += remainder;
            Duration::from_nanos(nanos)
        }
    }

    /// Returns the time at which the oldest packet leaves the hop, or [`Instant::FAR_FUTURE`] if the hop is
    /// empty.
    #[inline]
    pub fn next_exit(&self) -> Instant {
        self.held.front().map_or(Instant::FAR_FUTURE, |held| held.exit)
    }

    /// Returns the oldest packet and its exact exit time if it has left the hop by `now`.
    pub fn pop(&mut self, now: Instant) -> Option<(Instant, PacketInfo, T)> {
        if self.next_exit() > now {
            return None;
        }
        let DepartingPacket { exit, packet, payload } = self.held.pop_front()?;
        self.on_exit();
        Some((exit, packet, payload))
    }

    /// If the oldest packet has left the hop by `now`, passes it to `take` without a copy.
    #[inline]
    pub fn pop_with<R>(&mut self, now: Instant, take: impl FnOnce(PacketInfo, &mut T) -> R) -> Option<R> {
        let oldest = self.held.front_mut().filter(|held| held.exit <= now)?;
        let taken = take(oldest.packet, &mut oldest.payload);
        self.held.pop_front();
        self.on_exit();
        Some(taken)
    }

    /// Removes a departed packet from the waiting packets, unless an earlier query has done so.
    #[inline]
    fn on_exit(&mut self) {
        if self.waiting.len() > self.held.len() {
            self.begin_next();
        }
    }

    /// Moves the first waiting packet into service.
    #[inline]
    fn begin_next(&mut self) {
        if let Some(ServiceSlot { served, len }) = self.waiting.pop_front() {
            self.waiting_bytes -= u64::from(len);
            self.next_start = if self.waiting.is_empty() { Instant::FAR_FUTURE } else { served };
        }
    }

    /// Returns the number of bytes waiting at `now`, excluding the packet in service.
    pub fn backlog(&mut self, now: Instant) -> Bytes {
        self.start_service(now);
        Bytes::new(self.waiting_bytes)
    }

    /// Returns the total time up to `now` for which the link has been transmitting.
    pub fn busy(&self, now: Instant) -> Duration {
        self.service - self.free_at.saturating_since(now)
    }

    /// Returns the number of packets in the hop: waiting, in service or propagating.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Returns whether the hop is empty.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Moves all packets whose transmission began by `now` from waiting into service.
    #[inline]
    fn start_service(&mut self, now: Instant) {
        // If no packet is waiting, `next_start` is in the far future, and `now` may be in the far future,
        // too.
        while self.next_start <= now && !self.waiting.is_empty() {
            self.begin_next();
        }
    }
}
