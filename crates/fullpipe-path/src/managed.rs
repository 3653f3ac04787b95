//! A hop with an AQM, or with a link that follows a trace.
//!
//! ```text
//!   push ─► [ queue: waits, is dropped or marked ] ─► link ─► [ propagating ] ─► pop
//!                                                   ▲
//!                                dequeuing of a packet: a separate event
//! ```
//!
//! Unlike in a [`Hop`](crate::Hop), the departure is not known when a packet enters: CoDel's decision depends
//! on the sojourn times of other packets, and the order of service depends on later arrivals. Each query
//! therefore first dequeues every packet that is due, at its own due time.

use std::collections::VecDeque;

use fullpipe_units::{Bytes, Duration, Instant, Rate};

use crate::aqm::{Discipline, Queue};
use crate::ledger::Ledger;
use crate::link::{Link, Opportunities};
use crate::packet::{PacketInfo, Verdict};

/// Service of a link: a constant rate or a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Service {
    /// Constant rate in bits per second, applied to the packet length. With [`Rate::MAX`], transmission takes
    /// no time.
    Rate(Rate),
    /// Transmission opportunities of a trace.
    Trace(Opportunities),
}

/// The parameters of a [`ManagedHop`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedHopConfig {
    /// Constant rate or trace of the link.
    pub service: Service,
    /// One-way propagation delay behind the link.
    pub delay: Duration,
    /// Capacity of the queue in bytes, excluding the packet in service.
    pub queue: Bytes,
    /// Queue discipline of the hop.
    pub discipline: Discipline,
}

/// A hop: a queue with an AQM, a link and a delay.
#[derive(Clone, Debug)]
pub struct ManagedHop<T> {
    queue: Queue<T>,
    link: Link,
    delay: Duration,
    /// Time at which a packet last arrived at the empty queue.
    backlogged_since: Instant,
    /// Packets that have begun transmission, with their exit times.
    sent: VecDeque<(Instant, PacketInfo, T)>,
    /// Total busy time of the link, up to the time at which the link becomes free.
    busy: Duration,
}

impl<T> ManagedHop<T> {
    /// Creates an empty hop; `element` selects its random streams.
    pub fn new(config: ManagedHopConfig, seed: u64, element: u64) -> Self {
        let link = match config.service {
            Service::Rate(rate) => Link::constant(rate),
            Service::Trace(opportunities) => Link::traced(opportunities),
        };
        Self {
            queue: Queue::new(config.queue, config.discipline, seed, element),
            link,
            delay: config.delay,
            backlogged_since: Instant::ZERO,
            sent: VecDeque::new(),
            busy: Duration::ZERO,
        }
    }

    /// Accepts or drops a packet.
    pub(crate) fn push(
        &mut self,
        now: Instant,
        packet: PacketInfo,
        payload: T,
        ledger: &mut Ledger<T>,
    ) -> Verdict {
        self.run_until(now, ledger);
        let empty = self.queue.len() == 0;
        let idle = (empty && self.link.free_at() <= now)
            .then(|| (self.link.free_at(), self.link.mean_service(Queue::<T>::TYPICAL_PACKET)));
        let verdict = self.queue.enqueue(now, packet, payload, idle, ledger);
        if empty {
            self.backlogged_since = now;
        }
        self.run_until(now, ledger);
        verdict
    }

    /// Returns the exit time of the oldest transmitted packet. If there is none, returns the time at which
    /// the next transmission starts.
    pub(crate) fn next_event(&self) -> Instant {
        self.sent.front().map_or_else(|| self.next_service(), |&(exit, ..)| exit)
    }

    /// Returns the time at which the next packet is dequeued.
    fn next_service(&self) -> Instant {
        if self.queue.len() == 0 { Instant::FAR_FUTURE } else { self.link.start(self.backlogged_since) }
    }

    /// Returns the oldest packet and its exact exit time if it has left the hop by `now`.
    pub(crate) fn pop(&mut self, now: Instant, ledger: &mut Ledger<T>) -> Option<(Instant, PacketInfo, T)> {
        self.run_until(now, ledger);
        if self.sent.front()?.0 > now {
            return None;
        }
        self.sent.pop_front()
    }

    /// Returns the number of bytes waiting at `now`, excluding the packet in service.
    pub(crate) fn backlog(&mut self, now: Instant, ledger: &mut Ledger<T>) -> Bytes {
        self.run_until(now, ledger);
        Bytes::new(self.queue.bytes())
    }

    /// Returns the total time up to `now` for which the link has been busy.
    pub(crate) fn busy(&mut self, now: Instant, ledger: &mut Ledger<T>) -> Duration {
        self.run_until(now, ledger);
        let waiting = if self.queue.len() == 0 {
            Duration::ZERO
        } else {
            now.saturating_since(self.link.free_at().max(self.backlogged_since))
        };
        self.busy + waiting - self.link.free_at().saturating_since(now)
    }

    /// Returns the number of packets in the hop: waiting, in service or propagating.
    pub fn len(&self) -> usize {
        self.queue.len() + self.sent.len()
    }

    /// Returns whether the hop is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Dequeues and transmits the packets due by `now`, each at its own due time.
    fn run_until(&mut self, now: Instant, ledger: &mut Ledger<T>) {
        loop {
            let start = self.next_service();
            if start > now || start.is_never() {
                return;
            }
            let ready = self.link.free_at().max(self.backlogged_since);
            if let Some(waiting) = self.queue.dequeue(start, ledger) {
                let free_at = self.link.send(start, waiting.packet.len);
                self.busy += free_at.saturating_since(ready);
                self.sent.push_back((free_at + self.delay, waiting.packet, waiting.payload));
            }
        }
    }
}
