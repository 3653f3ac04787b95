//! Tests of CoDel against RFC 8289 section 5.

use super::*;
use crate::packet::{PacketInfo, PacketKind};

const CONFIG: CodelConfig = CodelConfig::RFC8289;

fn packet(ecn: Ecn) -> PacketInfo {
    PacketInfo { len: 1_500, flow: 0, kind: PacketKind::Data, continues: false, ecn }
}

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

/// A standing queue from which one packet is dequeued per millisecond, with a sojourn time set by the test.
struct Standing {
    codel: Codel,
    ledger: Ledger<()>,
    ecn: Ecn,
}

impl Standing {
    fn new(config: CodelConfig, ecn: Ecn) -> Self {
        Self { codel: Codel::new(config), ledger: Ledger::default(), ecn }
    }

    /// Returns the times at which packets were dropped or marked.
    fn run(&mut self, from: u64, to: u64, sojourn: Duration) -> Vec<u64> {
        let mut signals = Vec::new();
        for ms in from..to {
            let mut fifo = Fifo::default();
            for _ in 0..40 {
                // No packet can arrive before the start of the run.
                let since = Instant::from_nanos((at(ms).as_nanos()).saturating_sub(sojourn.as_nanos()));
                fifo.push(QueuedPacket { packet: packet(self.ecn), since, payload: () });
            }
            let before = self.signals();
            assert!(self.codel.dequeue(at(ms), &mut fifo, &mut self.ledger).is_some());
            signals.extend((before..self.signals()).map(|_| ms));
        }
        signals
    }

    fn signals(&self) -> u64 {
        self.ledger.counters.aqm_drops + self.ledger.counters.marked
    }
}

/// Returns the expected drop times. The first drop occurs one interval after the delay exceeded the target;
/// the n-th gap is interval / sqrt(n), rounded up to the next dequeue.
fn expected(first: u64, count: usize) -> Vec<u64> {
    let mut due = first as f64;
    let gaps = (1..count).map(|n| {
        due += 100.0 / (n as f64).sqrt();
        due.ceil() as u64
    });
    std::iter::once(first).chain(gaps.collect::<Vec<_>>()).collect()
}

#[test]
fn the_control_law_is_the_inverse_square_root() {
    let mut standing = Standing::new(CONFIG, Ecn::NotEct);
    let drops = standing.run(1_000, 3_000, Duration::from_millis(20));
    assert_eq!(drops, expected(1_100, drops.len()));
    assert!(drops.len() > 60, "{} drops", drops.len());
    let exact = Codel { count: 3, ..Codel::new(CONFIG) };
    assert_eq!(exact.control_law(Instant::ZERO), Instant::from_nanos(57_735_026), "floor of 1e8 / sqrt(3)");
}

/// CoDel treats a queue delay equal to the target as above the target, and a delay one nanosecond shorter as
/// below the target. A single delay below the target restarts the interval.
#[test]
fn a_wait_below_the_target_ends_it() {
    let below = CONFIG.target - Duration::from_nanos(1);
    let mut standing = Standing::new(CONFIG, Ecn::NotEct);
    assert_eq!(standing.run(1_000, 3_000, below), []);
    assert_eq!(standing.run(3_000, 3_100, CONFIG.target), []);
    assert_eq!(standing.run(3_100, 3_101, below), []);
    assert_eq!(standing.run(3_101, 3_201, CONFIG.target), []);
    assert_eq!(standing.run(3_201, 3_202, CONFIG.target), [3_201], "an interval later");
}

/// A dropping state that begins within 16 intervals of the previous one resumes approximately the previous
/// drop frequency; a later dropping state starts again at the lowest frequency.
#[test]
fn it_remembers_for_sixteen_intervals() {
    for (pause, remembers) in [(1_000, true), (5_000, false)] {
        let mut standing = Standing::new(CONFIG, Ecn::NotEct);
        let first = standing.run(1_000, 3_000, Duration::from_millis(20)).len() as u64;
        standing.run(3_000, 3_000 + pause, Duration::ZERO);
        let again = standing.run(3_000 + pause, 3_400 + pause, Duration::from_millis(20));
        let gap = again[1] - again[0];
        // `lastcount` was 1, so the new count is the old count minus one.
        let frequent = 100.0 / ((first - 1) as f64).sqrt();
        let gap_expected = if remembers { frequent.ceil() as u64 } else { 100 };
        assert_eq!(gap, gap_expected, "{pause} ms between them");
    }
}

/// CoDel never drops the last packet in the queue, because the link could then go idle (`bytes() <=
/// MAXPACKET`).
#[test]
fn a_single_packet_may_wait_for_ever() {
    let (mut codel, mut ledger) = (Codel::new(CONFIG), Ledger::default());
    for ms in 1_000..3_000 {
        let mut fifo = Fifo::default();
        for _ in 0..2 {
            fifo.push(QueuedPacket { packet: packet(Ecn::NotEct), since: Instant::ZERO, payload: () });
        }
        assert!(codel.dequeue(at(ms), &mut fifo, &mut ledger).is_some());
    }
    assert_eq!(ledger.counters.aqm_drops, 0);
}

/// RFC 8290 section 5.2.6: ECN-capable packets are marked whenever other packets would be dropped.
#[test]
fn marks_come_when_drops_would() {
    let config = CodelConfig { ecn: true, ..CONFIG };
    let mut standing = Standing::new(config, Ecn::Ect0);
    let marks = standing.run(1_000, 2_000, Duration::from_millis(20));
    assert_eq!(marks, expected(1_100, marks.len()));
    assert_eq!(
        (standing.ledger.counters.marked, standing.ledger.counters.aqm_drops),
        (marks.len() as u64, 0)
    );
    standing.ecn = Ecn::NotEct;
    standing.run(2_000, 2_500, Duration::from_millis(20));
    assert!(standing.ledger.counters.aqm_drops > 0);
}

/// After a pause without dequeues, one dequeue drops several packets, until the next drop time is in the
/// future.
#[test]
fn several_are_dropped_at_once_when_they_are_due() {
    let mut standing = Standing::new(CONFIG, Ecn::NotEct);
    standing.run(1_000, 2_000, Duration::from_millis(20));
    // No packet was dequeued for 300 ms.
    let drops = standing.run(2_300, 2_301, Duration::from_millis(300));
    assert!(drops.len() > 5, "{drops:?}");
}
