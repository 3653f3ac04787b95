//! Queue disciplines: they decide which packets are queued, dropped or marked.
//!
//! | discipline | decides | by |
//! |---|---|---|
//! | drop-tail | on arrival | bytes in the queue |
//! | step marking | on arrival | bytes in the queue above a lower threshold, with marks only (RFC 8257 section 3.1) |
//! | [`RedConfig`] | on arrival | average queue |
//! | [`PieConfig`] | on arrival | a controller of the queue delay |
//! | [`CodelConfig`] | on departure | the time for which the queue delay has exceeded a target |
//! | [`FqCodelConfig`] | on departure | CoDel for each flow |

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

/// Queue discipline of a hop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discipline {
    /// Drop-tail: packets that do not fit into the queue are dropped.
    #[default]
    DropTail,
    /// Step marking: marks an ECN-capable packet if more than this number of bytes wait ahead of it. Packets
    /// that are not ECN-capable pass unchanged.
    Step(Bytes),
    /// Random Early Detection (RED).
    Red(RedConfig),
    /// Proportional Integral controller Enhanced (PIE, RFC 8033).
    Pie(PieConfig),
    /// Controlled Delay (CoDel, RFC 8289).
    Codel(CodelConfig),
    /// FQ-CoDel (RFC 8290): a CoDel queue for each flow.
    FqCodel(FqCodelConfig),
}

/// Decision of a queue discipline on an arriving packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    Pass,
    Mark,
    Drop,
}

/// A packet queue and its queue discipline.
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
    /// Creates a queue of `limit` bytes; `element` selects its random streams.
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

    /// Returns the number of bytes in the queue.
    pub(crate) fn bytes(&self) -> u64 {
        match &self.lanes {
            Lanes::One(fifo, _) => fifo.bytes(),
            Lanes::Fair(fair) => fair.bytes(),
        }
    }

    /// Returns the number of packets in the queue.
    pub(crate) fn len(&self) -> usize {
        match &self.lanes {
            Lanes::One(fifo, _) => fifo.len(),
            Lanes::Fair(fair) => fair.len(),
        }
    }

    /// Accepts or drops a packet. If the link is idle, `idle` contains the start of the idle period and the
    /// transmission time of a packet of [`Queue::TYPICAL_PACKET`] bytes. A packet that arrives at an idle
    /// link does not wait, so the queue limit does not apply to it.
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

    /// Dequeues the packet to transmit at `now`; `None` if the queue is empty or the discipline dropped all
    /// packets.
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

    /// Packet length, in bytes, used to convert an idle period into a number of packets.
    pub(crate) const TYPICAL_PACKET: u32 = Red::typical_packet();
}
