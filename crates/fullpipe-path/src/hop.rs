//! One hop: a drop-tail queue, a link of constant rate, a constant delay.
//!
//! The three are fused. As the link serves in order at a known rate, a packet's departure is known when
//! it enters, `max(arrival, link free) + length / rate + delay`; nothing is scheduled per packet, and
//! the hop's only event is the exit of its oldest packet.
//!
//! ```text
//!   held (oldest first):  [ propagating | in service | waiting ............ ]
//!                                                    ^ started <= now moves this boundary
//! ```

use std::collections::VecDeque;

use fullpipe_units::{Bytes, Duration, Instant, Rate};

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
    held: VecDeque<Held<T>>,
    /// When the link has sent everything that was accepted.
    free_at: Instant,
    /// The part of a nanosecond by which `free_at` is early, in units of 1/rate ns: kept so that a
    /// busy link serves exactly at its rate instead of rounding each packet down.
    carry: u64,
    /// Service time of everything that was accepted.
    service: Duration,
    /// How many of the newest packets had not begun service when last looked, and their bytes.
    waiting: usize,
    waiting_bytes: u64,
}

#[derive(Clone, Debug)]
struct Held<T> {
    exit: Instant,
    starts: Instant,
    len: u32,
    payload: T,
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
            waiting: 0,
            waiting_bytes: 0,
        }
    }

    /// Takes a packet of `len` bytes, or refuses it because the queue is full.
    #[inline]
    pub fn push(&mut self, now: Instant, len: u32, payload: T) -> bool {
        self.start_service(now);
        let starts = self.free_at.max(now);
        if starts > now && self.waiting_bytes + u64::from(len) > self.config.queue.get() {
            return false;
        }
        if self.free_at < now {
            self.carry = 0;
        }
        self.free_at = starts;
        if self.config.rate != Rate::MAX {
            let rate = self.config.rate.as_bps();
            let work = u64::from(len) * NANOS_PER_BYTE_AT_1BPS + self.carry;
            let service = Duration::from_nanos(work / rate);
            self.free_at += service;
            self.service += service;
            self.carry = work % rate;
        }
        if starts > now {
            self.waiting += 1;
            self.waiting_bytes += u64::from(len);
        }
        self.held.push_back(Held { exit: self.free_at + self.config.delay, starts, len, payload });
        true
    }

    /// When the oldest packet leaves; [`Instant::FAR_FUTURE`] when empty.
    #[inline]
    pub fn next_exit(&self) -> Instant {
        self.held.front().map_or(Instant::FAR_FUTURE, |held| held.exit)
    }

    /// The oldest packet if it has left by `now`, with its exact exit time and length.
    pub fn pop(&mut self, now: Instant) -> Option<(Instant, u32, T)> {
        if self.next_exit() > now {
            return None;
        }
        let held = self.held.pop_front()?;
        self.on_exit(held.len);
        Some((held.exit, held.len, held.payload))
    }

    /// Hands the oldest packet to `take`, where it lies, if it has left by `now`.
    #[inline]
    pub fn pop_with<R>(&mut self, now: Instant, take: impl FnOnce(&mut T) -> R) -> Option<R> {
        let oldest = self.held.front_mut().filter(|held| held.exit <= now)?;
        let (taken, len) = (take(&mut oldest.payload), oldest.len);
        self.held.pop_front();
        self.on_exit(len);
        Some(taken)
    }

    /// Whoever left has been served, whether or not anybody looked in between.
    #[inline]
    fn on_exit(&mut self, len: u32) {
        if self.waiting > self.held.len() {
            self.waiting = self.held.len();
            self.waiting_bytes -= u64::from(len);
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
    fn start_service(&mut self, now: Instant) {
        while self.waiting > 0 {
            let first_waiting = &self.held[self.held.len() - self.waiting];
            if first_waiting.starts > now {
                break;
            }
            self.waiting -= 1;
            self.waiting_bytes -= u64::from(first_waiting.len);
        }
    }
}
