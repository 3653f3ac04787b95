//! FQ-CoDel (RFC 8290): one queue per flow, each with its own CoDel controller. Deficit round robin serves
//! the queues by bytes.
//!
//! ```text
//!   arrival ─► hash of the flow ─► its queue; if the queue was in no list:
//!
//!              new queues  [ a ][ b ]        served first, one quantum each
//!                            │ used up its quantum, or empty
//!                            ▼
//!              old queues  [ c ][ d ][ e ]   served in turn; an empty queue leaves the list
//! ```
//!
//! A flow that sends less than its share finds its queue empty at each arrival. The queue is therefore always
//! new, and never waits for backlogged flows.

use std::collections::VecDeque;

use fullpipe_units::{Bytes, Draws, Instant};

use super::codel::{Codel, CodelConfig};
use super::fifo::{Fifo, QueuedPacket};
use crate::ledger::Ledger;
use crate::packet::Verdict;

/// The parameters of FQ-CoDel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FqCodelConfig {
    /// CoDel parameters of each queue.
    pub codel: CodelConfig,
    /// Number of queues to which flows are hashed (RFC 8290 section 5.2.5: 1024).
    pub flows: u32,
    /// Bytes that a queue may send per round (RFC 8290 section 5.2.4: one Ethernet packet, 1514 bytes).
    pub quantum: Bytes,
    /// Maximum number of packets in all queues together (RFC 8290 section 5.2.3: 10240).
    pub packets: u32,
}

impl FqCodelConfig {
    /// The default FQ-CoDel parameters of RFC 8290 section 5.2.
    pub const RFC8290: Self =
        Self { codel: CodelConfig::RFC8289, flows: 1_024, quantum: Bytes::new(1_514), packets: 10_240 };
}

/// Maximum number of packets dropped at once when the queues are full. Within this limit, half of the longest
/// queue is dropped (RFC 8290 section 4.1).
const DROP_BATCH: usize = 64;

#[derive(Clone, Debug)]
struct Lane<T> {
    fifo: Fifo<T>,
    codel: Codel,
    deficit: i64,
    listed: bool,
}

#[derive(Clone, Debug)]
pub(super) struct FqCodel<T> {
    config: FqCodelConfig,
    hash: Draws,
    /// The queues, indexed by flow hash; each is created when it is first used.
    lanes: Vec<Option<Box<Lane<T>>>>,
    new: VecDeque<u32>,
    old: VecDeque<u32>,
    bytes: u64,
    packets: usize,
}

impl<T> FqCodel<T> {
    pub(super) fn new(config: FqCodelConfig, seed: u64, element: u64) -> Self {
        let lanes = (0..config.flows.max(1)).map(|_| None).collect();
        Self {
            config,
            hash: Draws::new(seed, element),
            lanes,
            new: VecDeque::new(),
            old: VecDeque::new(),
            bytes: 0,
            packets: 0,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.packets
    }

    /// Accepts a packet. If the queues then hold more than `limit` bytes, or more packets than allowed, drops
    /// packets from the longest queue.
    pub(super) fn enqueue(&mut self, waiting: QueuedPacket<T>, limit: Bytes, ledger: &mut Ledger<T>) {
        let number = (self.hash.at(waiting.packet.flow.into()) % self.lanes.len() as u64) as u32;
        let codel = self.config.codel;
        let lane = self.lanes[number as usize].get_or_insert_with(|| {
            Box::new(Lane { fifo: Fifo::default(), codel: Codel::new(codel), deficit: 0, listed: false })
        });
        self.bytes += u64::from(waiting.packet.len);
        self.packets += 1;
        lane.fifo.push(waiting);
        if !lane.listed {
            lane.listed = true;
            lane.deficit = self.config.quantum.get() as i64;
            self.new.push_back(number);
        }
        if self.bytes > limit.get() || self.packets > self.config.packets as usize {
            self.shed(ledger);
        }
    }

    /// Drops packets from the head of the queue with the most bytes.
    fn shed(&mut self, ledger: &mut Ledger<T>) {
        let bytes_of =
            |number: &u32| self.lanes[*number as usize].as_ref().map_or(0, |lane| lane.fifo.bytes());
        // Among queues of equal length, drop from the first in list order.
        let listed = self.new.iter().chain(&self.old);
        let Some(longest) = listed.copied().rev().max_by_key(bytes_of) else { return };
        let Some(lane) = &mut self.lanes[longest as usize] else { return };
        let half = lane.fifo.bytes() / 2;
        for _ in 0..DROP_BATCH {
            let Some(head) = lane.fifo.pop() else { break };
            self.bytes -= u64::from(head.packet.len);
            self.packets -= 1;
            ledger.dropped_inside(head.packet, head.payload, Verdict::QueueFull);
            if lane.fifo.bytes() <= half {
                break;
            }
        }
    }

    /// Dequeues the packet to transmit at `now`.
    pub(super) fn dequeue(&mut self, now: Instant, ledger: &mut Ledger<T>) -> Option<QueuedPacket<T>> {
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let number = *list.front()?;
            let lane = self.lanes[number as usize].as_mut()?;
            if lane.deficit <= 0 {
                lane.deficit += self.config.quantum.get() as i64;
                list.pop_front();
                self.old.push_back(number);
                continue;
            }
            let (bytes, packets) = (lane.fifo.bytes(), lane.fifo.len());
            let taken = lane.codel.dequeue(now, &mut lane.fifo, ledger);
            // Also subtract the bytes of the packets that CoDel dropped.
            self.bytes -= bytes - lane.fifo.bytes();
            self.packets -= packets - lane.fifo.len();
            let Some(waiting) = taken else {
                list.pop_front();
                if is_new {
                    // A new queue that has run empty first moves to the end of the list of old queues.
                    // Otherwise a flow could keep its queue new by letting it run empty at the right time.
                    self.old.push_back(number);
                } else {
                    lane.listed = false;
                }
                continue;
            };
            lane.deficit -= i64::from(waiting.packet.len);
            return Some(waiting);
        }
    }
}

#[cfg(test)]
mod tests;
