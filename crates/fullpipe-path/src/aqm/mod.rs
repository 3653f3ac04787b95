//! Queue management: who may wait, and who is told that there are too many.
//!
//! | discipline | decides | by |
//! |---|---|---|
//! | drop-tail | on arrival | the bytes that wait |
//! | step marking | on arrival | the same, at a lower threshold, with marks alone (RFC 8257 section 3.1) |
//! | [`RedConfig`] | on arrival | their average |
//! | [`PieConfig`] | on arrival | a controller of the wait |
//! | [`CodelConfig`] | on departure | how long the wait has not been short |
//! | [`FqCodelConfig`] | on departure | the same for each flow |

mod codel;
mod fifo;
mod fq_codel;
mod pie;
mod red;

use fullpipe_units::{Bytes, Duration, Ecn, Instant};

pub use codel::CodelConfig;
pub(crate) use fifo::QueuedPacket;
pub use fq_codel::FqCodelConfig;
pub use pie::PieConfig;
pub use red::RedConfig;

use crate::ledger::Ledger;
use crate::packet::{PacketInfo, Verdict};
use codel::Codel;
use fifo::Fifo;
use fq_codel::FqCodel;
use pie::Pie;
use red::Red;

/// How a queue is managed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discipline {
    /// Not at all: what finds it full is dropped.
    #[default]
    DropTail,
    /// Packets that can carry a mark are marked when more than this waits before them; others are left alone.
    Step(Bytes),
    /// Random Early Detection.
    Red(RedConfig),
    /// Proportional Integral controller Enhanced.
    Pie(PieConfig),
    /// Controlled Delay.
    Codel(CodelConfig),
    /// A queue with Controlled Delay for each flow.
    FqCodel(FqCodelConfig),
}

/// What a discipline wants to become of an arriving packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    Pass,
    Mark,
    Drop,
}

/// Packets that wait, and who manages them.
#[derive(Clone, Debug)]
pub(crate) struct Queue<T> {
    limit: Bytes,
    lanes: Lanes<T>,
}

#[derive(Clone, Debug)]
enum Lanes<T> {
    One(Fifo<T>, Manager),
    Fair(FqCodel<T>),
}

#[derive(Clone, Debug)]
enum Manager {
    Nobody,
    Step(Bytes),
    Red(Red),
    Pie(Pie),
    Codel(Codel),
}

impl<T> Queue<T> {
    /// A queue for `limit` bytes; `element` tells its draws from those of others.
    pub(crate) fn new(limit: Bytes, discipline: Discipline, seed: u64, element: u64) -> Self {
        let one = |manager| Lanes::One(Fifo::default(), manager);
        let lanes = match discipline {
            Discipline::DropTail => one(Manager::Nobody),
            Discipline::Step(threshold) => one(Manager::Step(threshold)),
            Discipline::Red(config) => one(Manager::Red(Red::new(config, seed, element))),
            Discipline::Pie(config) => one(Manager::Pie(Pie::new(config, seed, element))),
            Discipline::Codel(config) => one(Manager::Codel(Codel::new(config))),
            Discipline::FqCodel(config) => Lanes::Fair(FqCodel::new(config, seed, element)),
        };
        Self { limit, lanes }
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> u64 {
        match &self.lanes {
            Lanes::One(fifo, _) => fifo.bytes(),
            Lanes::Fair(fair) => fair.bytes(),
        }
    }

    /// Packets that wait.
    pub(crate) fn len(&self) -> usize {
        match &self.lanes {
            Lanes::One(fifo, _) => fifo.len(),
            Lanes::Fair(fair) => fair.len(),
        }
    }

    /// Takes a packet, or drops it. `idle` says that the link has nothing to do, and then since when, and how long a
    /// packet of [`Queue::TYPICAL_PACKET`] bytes takes it: such a packet need not wait, and is always taken.
    pub(crate) fn enqueue(
        &mut self,
        now: Instant,
        mut packet: PacketInfo,
        payload: T,
        idle: Option<(Instant, Duration)>,
        ledger: &mut Ledger<T>,
    ) -> Verdict {
        let limit = self.limit;
        let (fifo, manager) = match &mut self.lanes {
            Lanes::One(fifo, manager) => (fifo, manager),
            Lanes::Fair(fair) => {
                let limit = if idle.is_some() { Bytes::MAX } else { limit };
                fair.enqueue(QueuedPacket { packet, since: now, payload }, limit, ledger);
                return Verdict::Accepted;
            }
        };
        let queue = fifo.bytes();
        match manager {
            Manager::Red(red) => red.on_arrival(now, queue, idle),
            Manager::Pie(pie) => pie.run_until(now),
            Manager::Nobody | Manager::Step(_) | Manager::Codel(_) => {}
        }
        if idle.is_none() && queue.saturating_add(packet.len.into()) > limit.get() {
            return Verdict::QueueFull;
        }
        let decision = match manager {
            Manager::Nobody | Manager::Codel(_) => Decision::Pass,
            Manager::Step(threshold) if queue > threshold.get() && packet.ecn.is_capable() => Decision::Mark,
            Manager::Step(_) => Decision::Pass,
            Manager::Red(red) => red.decide(packet),
            Manager::Pie(pie) => pie.decide(packet, queue),
        };
        match decision {
            Decision::Drop => return Verdict::Managed,
            Decision::Mark => {
                packet.ecn = Ecn::Ce;
                ledger.counters.marked += 1;
            }
            Decision::Pass => {}
        }
        fifo.push(QueuedPacket { packet, since: now, payload });
        Verdict::Accepted
    }

    /// Takes out the packet that is to be sent at `now`; `None` when there is none, or management dropped them all.
    pub(crate) fn dequeue(&mut self, now: Instant, ledger: &mut Ledger<T>) -> Option<QueuedPacket<T>> {
        match &mut self.lanes {
            Lanes::Fair(fair) => fair.dequeue(now, ledger),
            Lanes::One(fifo, Manager::Codel(codel)) => codel.dequeue(now, fifo, ledger),
            Lanes::One(fifo, Manager::Pie(pie)) => {
                pie.run_until(now);
                let head = fifo.pop()?;
                pie.on_dequeue(head.sojourn(now), fifo.is_empty());
                Some(head)
            }
            Lanes::One(fifo, _) => fifo.pop(),
        }
    }

    /// The packet by which an idle time is counted.
    pub(crate) const TYPICAL_PACKET: u32 = Red::typical_packet();
}
