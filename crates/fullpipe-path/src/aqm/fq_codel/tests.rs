//! Tests of FQ-CoDel against RFC 8290 section 4.

use super::*;
use crate::packet::{PacketInfo, PacketKind};
use fullpipe_units::{Duration, Ecn};

fn packet(flow: u32, len: u32) -> PacketInfo {
    PacketInfo { len, flow, kind: PacketKind::Data, continues: false, ecn: Ecn::NotEct }
}

struct Rig {
    queue: FqCodel<u64>,
    ledger: Ledger<u64>,
    now: Instant,
    next: u64,
}

impl Rig {
    fn new(config: FqCodelConfig) -> Self {
        let mut ledger = Ledger::default();
        ledger.keep_notes();
        Self { queue: FqCodel::new(config, 7, 1), ledger, now: Instant::ZERO, next: 0 }
    }

    fn push(&mut self, flow: u32, len: u32, limit: u64) {
        let waiting = QueuedPacket { packet: packet(flow, len), since: self.now, payload: self.next };
        self.next += 1;
        self.queue.enqueue(waiting, Bytes::new(limit), &mut self.ledger);
    }

    fn pop(&mut self) -> Option<u32> {
        self.queue.dequeue(self.now, &mut self.ledger).map(|waiting| waiting.packet.flow)
    }

    fn pops(&mut self, n: usize) -> Vec<u32> {
        (0..n).filter_map(|_| self.pop()).collect()
    }
}

const CONFIG: FqCodelConfig = FqCodelConfig::RFC8290;

/// RFC 8290 section 4.2: flows share the link equally by bytes, regardless of their packet sizes. The flows
/// of this test are hashed to different queues.
#[test]
fn backlogged_flows_share_by_bytes() {
    let mut rig = Rig::new(CONFIG);
    for _ in 0..600 {
        for (flow, len) in [(0, 1_500), (1, 300), (2, 750)] {
            rig.push(flow, len, u64::MAX);
        }
    }
    let mut bytes = [0u64; 3];
    for flow in rig.pops(600) {
        bytes[flow as usize] += [1_500, 300, 750][flow as usize];
    }
    let (least, most) = (bytes.iter().min().unwrap(), bytes.iter().max().unwrap());
    assert!(most - least <= 3 * 1_514, "{bytes:?}");
}

/// RFC 8290 section 4.2: new queues are served first, for one quantum. After that, the new queues become old
/// queues and take turns with the other old queues.
#[test]
fn a_new_flow_goes_first_but_once() {
    let mut rig = Rig::new(CONFIG);
    for _ in 0..40 {
        rig.push(0, 500, u64::MAX);
    }
    // A quantum of 1514 bytes covers three of these packets and part of a fourth, which leaves the credit
    // negative.
    assert_eq!(rig.pops(5), [0, 0, 0, 0, 0]);
    for _ in 0..10 {
        rig.push(1, 500, u64::MAX);
    }
    assert_eq!(rig.pops(12), [1, 1, 1, 1, 0, 0, 1, 1, 1, 0, 0, 0]);
}

/// RFC 8290 section 4.2: a queue that empties while it is new moves behind the old queues before it can
/// become new again.
#[test]
fn emptying_does_not_keep_a_flow_new() {
    let mut rig = Rig::new(CONFIG);
    for _ in 0..40 {
        rig.push(0, 500, u64::MAX);
    }
    assert_eq!(rig.pops(4), [0, 0, 0, 0]);
    rig.push(1, 100, u64::MAX);
    assert_eq!(rig.pops(2), [1, 0], "served first, then found empty and put behind");
    rig.push(1, 100, u64::MAX);
    assert_eq!(rig.pops(3), [0, 0, 1], "not new: it had not left the lists");
    assert_eq!(rig.pop(), Some(0), "found empty among the old, it leaves them");
    rig.push(1, 100, u64::MAX);
    assert_eq!(rig.pop(), Some(1));
}

/// RFC 8290 section 4.1: above the limit, half of the longest queue, but at most 64 packets, is dropped from
/// its head.
#[test]
fn the_longest_queue_pays() {
    let mut rig = Rig::new(CONFIG);
    rig.push(1, 1_500, 150_000);
    for _ in 0..100 {
        rig.push(0, 1_500, 150_000);
    }
    let dropped: Vec<_> = std::iter::from_fn(|| rig.ledger.next_note()).collect();
    assert_eq!(dropped.len(), 50);
    for (n, note) in dropped.iter().enumerate() {
        let crate::Note::Dropped { packet, payload, verdict } = *note else { panic!("{note:?}") };
        assert_eq!((packet.flow, payload, verdict), (0, 1 + n as u64, Verdict::QueueFull));
    }
    assert_eq!((rig.queue.len(), rig.queue.bytes()), (51, 51 * 1_500));
    let mut rig = Rig::new(CONFIG);
    for _ in 0..10_241 {
        rig.push(0, 100, u64::MAX);
    }
    assert_eq!(rig.ledger.counters.queue_drops, 64);
}

/// Each queue has its own CoDel controller, so only the flow with a standing queue loses packets.
#[test]
fn codel_acts_on_the_flow_that_stands() {
    let mut rig = Rig::new(CONFIG);
    let mut dropped = 0;
    for n in 0..3_000u32 {
        rig.now += Duration::from_millis(1);
        rig.push(0, 1_500, u64::MAX);
        rig.push(0, 1_500, u64::MAX);
        if n.is_multiple_of(10) {
            rig.push(1, 100, u64::MAX);
        }
        rig.pop();
        while let Some(crate::Note::Dropped { packet, .. }) = rig.ledger.next_note() {
            assert_eq!(packet.flow, 0);
            dropped += 1;
        }
    }
    assert!(dropped > 50, "{dropped}");
    let in_lanes: usize = rig.queue.lanes.iter().flatten().map(|lane| lane.fifo.len()).sum();
    assert_eq!(in_lanes, rig.queue.len());
}

/// If there are more flows than queues, flows share queues. The seed determines which flows share.
#[test]
fn flows_are_hashed() {
    let mut rig = Rig::new(FqCodelConfig { flows: 1, ..CONFIG });
    for flow in [0, 1, 0, 1] {
        rig.push(flow, 1_500, u64::MAX);
    }
    assert_eq!(rig.pops(4), [0, 1, 0, 1], "one queue, first in first out");
}
