//! Tests of the table of live connections: at every moment at which a process may die, it contains what another
//! process needs to end the connections of its clients.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use fullpipe_units::{Duration, Instant};

use super::super::{Admission, LiveTable, Stack};
use super::{Pair, bytes, config, packet, stack, syn};
use crate::conn::{Event, Probe};
use crate::wire::{Checksums, Flags, Headers, Packet, Segment};

/// A table in memory that outlives its stack.
#[derive(Clone, Debug, Default)]
struct Table(Arc<Mutex<BTreeMap<u32, (SocketAddr, Probe)>>>);

impl Table {
    fn of(stack: &mut Stack) -> Self {
        let table = Self::default();
        stack.set_live_table(Some(Box::new(table.clone())));
        table
    }

    fn entries(&self) -> Vec<(SocketAddr, Probe)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().copied().collect()
    }
}

impl LiveTable for Table {
    fn set(&mut self, slot: u32, peer: SocketAddr, probe: &Probe) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(slot, (peer, *probe));
    }

    fn clear(&mut self, slot: u32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&slot);
    }
}

/// Runs a connection for `steps` steps of the path. The server sends 60 000 bytes, which do not fit into the
/// first window, and releases the connection at once; the client only receives, and closes after the end of
/// the data. Then the server's process dies together with all packets that it has not read, and another
/// process sends the probes of the table. Returns whether the connection of the client had ended before.
fn dies_after(steps: usize) -> bool {
    let mut pair = Pair::v4();
    pair.listen(4);
    let (local, client) = (pair.addresses[1], pair.connect());
    let table = Table::of(&mut pair.ends[1]);
    let mut before = Vec::new();
    for _ in 0..steps {
        if !pair.step(Instant::ZERO + Duration::from_secs(10)) {
            return true;
        }
        if let Some(server) = pair.ends[1].accept(local) {
            assert_eq!(pair.ends[1].write(server, &[7; 60_000]), 60_000);
            pair.ends[1].release(pair.now, server);
        }
        while let Some((id, event)) = pair.ends[0].poll_event() {
            before.push(event);
            let now = pair.now;
            pair.ends[0].read(now, id, &mut [0; 100_000]);
            if event == Event::PeerClosed {
                pair.ends[0].shutdown(id);
            }
        }
    }
    let ended = before.contains(&Event::Closed);
    // A client that has not received the SYN-ACK retransmits its SYN, and one that waits for the last ACK its FIN. The
    // other process answers both.
    let waits = before.contains(&Event::Connected) && !before.contains(&Event::PeerClosed);
    let (mut end, mut other) = (pair.ends.into_iter().next().expect("a client"), stack(local.ip(), 9));
    let now = pair.now + Duration::from_secs(1);
    for (peer, probe) in table.entries() {
        let probe = Headers::between(&probe.segment(), local, peer).expect("one version");
        end.handle_packet(now, probe.as_bytes(), Checksums::Verify);
    }
    while let Some(answer) = packet(&mut end, now) {
        other.handle_packet(now, &answer, Checksums::Verify);
    }
    while let Some(reset) = packet(&mut other, now) {
        end.handle_packet(now, &reset, Checksums::Verify);
    }
    let mut after = Vec::new();
    while let Some((id, event)) = end.poll_event() {
        assert_eq!(id, client);
        after.push(event);
    }
    if waits {
        assert!(after.contains(&Event::Aborted), "after {steps} steps: {before:?}, {after:?}");
    }
    ended
}

/// The server's process dies after each step of a connection, from the SYN to the end of both directions. A
/// client that waits for data learns of it from a probe, even if the last ACK of the handshake or the last
/// acknowledgements have not been read, and if the application has already released the connection.
#[test]
fn a_probe_reaches_the_client_whenever_the_server_dies() {
    let steps = (1..1_000).find(|steps| dies_after(*steps)).expect("the connection ends");
    assert!(steps > 10, "{steps} steps");
}

/// The entry exists before the SYN-ACK leaves, follows each segment, and disappears with the connection: after
/// the last ACK, a reset, or the timeout of the handshake, and in TIME-WAIT.
#[test]
fn the_table_follows_the_connections() {
    let server = SocketAddr::from(([198, 18, 0, 2], 5_201));
    let mut end = stack(server.ip(), 9);
    end.listen(server, config(), 8).expect("free");
    let table = Table::of(&mut end);
    let now = Instant::ZERO;
    let hear = |end: &mut Stack, from, segment: &Segment| {
        end.handle_packet(now, &bytes(segment, from, server), Checksums::Verify);
    };
    let next = |end: &mut Stack| {
        let bytes = packet(end, now).expect("a packet");
        Packet::parse(&bytes, Checksums::Verify).expect("well made").segment
    };
    for closes_first in [false, true] {
        let (from, first) = syn(1, 100, false);
        hear(&mut end, from, &first);
        let answer = next(&mut end);
        let [(peer, half_open)] = table.entries()[..] else { panic!("{:?}", table.entries()) };
        assert_eq!((peer, half_open.seq, half_open.ack), (from, answer.seq, first.seq.plus(1)));
        let ack = |ack, flags| Segment { seq: first.seq.plus(1), ack, flags, syn: None, ..first.clone() };
        hear(&mut end, from, &ack(answer.seq.plus(1), Flags::ACK));
        let id = end.accept(server).expect("established");
        assert_eq!(end.write(id, &[7; 100]), 100);
        while packet(&mut end, now).is_some() {}
        let probe = || table.entries().first().map(|(_, probe)| (probe.seq, probe.ack));
        assert_eq!(probe(), Some((answer.seq, first.seq.plus(1))), "nothing is acknowledged");
        hear(&mut end, from, &ack(answer.seq.plus(101), Flags::ACK));
        assert_eq!(probe(), Some((answer.seq.plus(100), first.seq.plus(1))));
        if closes_first {
            end.release(now, id);
            while packet(&mut end, now).is_some() {}
            hear(&mut end, from, &ack(answer.seq.plus(102), Flags::ACK.with(Flags::FIN)));
            while packet(&mut end, now).is_some() {}
            assert_eq!((end.in_time_wait(), probe()), (1, None));
        } else {
            hear(&mut end, from, &ack(answer.seq.plus(101), Flags::RST.with(Flags::ACK)));
            end.release(now, id);
            while packet(&mut end, now).is_some() {}
            assert_eq!((end.connections(), probe()), (0, None));
        }
    }
    let (from, segment) = syn(2, 100, false);
    hear(&mut end, from, &segment);
    while packet(&mut end, now).is_some() {}
    assert_eq!(table.entries().len(), 1);
    while end.connections() > end.in_time_wait() {
        let now = end.poll_timeout();
        end.handle_timeout(now);
        while packet(&mut end, now).is_some() {}
    }
    assert_eq!(table.entries(), []);
    // A SYN that is not answered has no entry.
    end.set_admission(now, server, Admission::Refused);
    hear(&mut end, from, &segment);
    assert_eq!(table.entries(), []);
}

/// The timestamp of an entry is not older than that of any segment that has left, because a client may not answer a
/// probe with an older one (RFC 7323 section 5).
#[test]
fn no_segment_has_a_newer_timestamp_than_the_entry() {
    let mut pair = Pair::v4();
    pair.listen(4);
    let table = Table::of(&mut pair.ends[1]);
    pair.connect();
    while pair.step(Instant::ZERO + Duration::from_secs(1)) {}
    let server = pair.ends[1].accept(pair.addresses[1]).expect("established");
    let mut now = pair.now + Duration::from_secs(3_600);
    assert_eq!(pair.ends[1].write(server, &[7; 100]), 100);
    // The client does not answer, and the segment is retransmitted.
    let mut segments = 0;
    while segments < 4 {
        while let Some(bytes) = packet(&mut pair.ends[1], now) {
            segments += 1;
            let sent = Packet::parse(&bytes, Checksums::Verify).expect("well made").segment;
            let [(_, probe)] = table.entries()[..] else { panic!("{:?}", table.entries()) };
            assert_eq!(probe.timestamps, sent.timestamps);
        }
        now = pair.ends[1].poll_timeout();
        pair.ends[1].handle_timeout(now);
    }
}

/// A connection that was reset, or in which only this end has sent a SYN, has no probe.
#[test]
fn only_synchronized_connections_have_a_probe() {
    let mut pair = Pair::v4();
    let client = pair.connect();
    let probes = |pair: &Pair| pair.ends[0].live_connections(pair.now).count();
    assert_eq!(probes(&pair), 0);
    pair.listen(4);
    while pair.step(Instant::ZERO + Duration::from_secs(1)) {}
    assert_eq!(probes(&pair), 1);
    let now = pair.now;
    pair.ends[0].abort(now, client);
    assert_eq!(probes(&pair), 0);
}
