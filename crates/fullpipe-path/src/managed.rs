//! A hop whose queue is managed, or whose link follows a trace.
//!
//! ```text
//!   push ─► [ queue: who waits, who is dropped or marked ] ─► link ─► [ propagating ] ─► pop
//!                                                    ▲
//!                            the moment a packet is taken out: an event of its own
//! ```
//!
//! Unlike in a [`Hop`](crate::Hop) a departure is not known when a packet enters: what CoDel does depends on how
//! long others will have waited, and who is served next on who comes in between. So whoever looks first has the link
//! take out every packet that was due by then, each at its own moment.

use std::collections::VecDeque;

use fullpipe_units::{Bytes, Duration, Instant, Rate};

use crate::aqm::{Discipline, Queue};
use crate::ledger::Ledger;
use crate::link::{Link, Opportunities};
use crate::packet::{PacketInfo, Verdict};

/// When a link sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Service {
    /// At a constant rate, in bits of the packets as counted by their length; [`Rate::MAX`] serves in no time.
    Rate(Rate),
    /// At the opportunities of a trace.
    Trace(Opportunities),
}

/// The parameters of a [`ManagedHop`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedHopConfig {
    /// The link.
    pub service: Service,
    /// Propagation delay behind the link, one way.
    pub delay: Duration,
    /// Most bytes that may wait. The packet in service does not wait and is not counted.
    pub queue: Bytes,
    /// Who manages them.
    pub discipline: Discipline,
}

/// Managed queue, link and delay.
#[derive(Clone, Debug)]
pub struct ManagedHop<T> {
    queue: Queue<T>,
    link: Link,
    delay: Duration,
    /// Since when somebody has been waiting, while somebody does.
    backlogged_since: Instant,
    /// Sent, or being sent: when each leaves.
    sent: VecDeque<(Instant, PacketInfo, T)>,
    /// How long the link has had something to do, up to when it is free.
    busy: Duration,
}

impl<T> ManagedHop<T> {
    /// An empty hop; `element` tells its draws from those of others.
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

    /// Takes a packet, or drops it.
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

    /// When a packet leaves next, or, while nobody knows that, when it will be known.
    pub(crate) fn next_event(&self) -> Instant {
        self.sent.front().map_or_else(|| self.next_service(), |&(exit, ..)| exit)
    }

    /// When the next packet is taken out of the queue.
    fn next_service(&self) -> Instant {
        if self.queue.len() == 0 { Instant::FAR_FUTURE } else { self.link.start(self.backlogged_since) }
    }

    /// The oldest packet if it has left by `now`, with its exact exit time.
    pub(crate) fn pop(&mut self, now: Instant, ledger: &mut Ledger<T>) -> Option<(Instant, PacketInfo, T)> {
        self.run_until(now, ledger);
        if self.sent.front()?.0 > now {
            return None;
        }
        self.sent.pop_front()
    }

    /// Bytes waiting at `now`, the packet in service not counted.
    pub(crate) fn backlog(&mut self, now: Instant, ledger: &mut Ledger<T>) -> Bytes {
        self.run_until(now, ledger);
        Bytes::new(self.queue.bytes())
    }

    /// How long the link has had something to do by `now`, over the whole run.
    pub(crate) fn busy(&mut self, now: Instant, ledger: &mut Ledger<T>) -> Duration {
        self.run_until(now, ledger);
        let waiting = if self.queue.len() == 0 {
            Duration::ZERO
        } else {
            now.saturating_since(self.link.free_at().max(self.backlogged_since))
        };
        self.busy + waiting - self.link.free_at().saturating_since(now)
    }

    /// Packets inside: waiting, in service or propagating.
    pub fn len(&self) -> usize {
        self.queue.len() + self.sent.len()
    }

    /// Nothing is inside.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes out and sends what is due by `now`, each packet at its own moment.
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
