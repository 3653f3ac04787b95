//! Tests of keep-alive probes that are sent after the connection has been lost.

use fullpipe_units::{Duration, Instant};

use super::{Pair, packet, stack};
use crate::conn::Event;
use crate::wire::Checksums;

/// A stack disappears during a transfer. A probe that the stack built earlier makes the peer send an ACK, and
/// a host without that connection answers this ACK with a reset.
#[test]
fn a_probe_ends_the_peer_of_a_lost_connection() {
    let mut pair = Pair::v4();
    pair.listen(4);
    let local = pair.addresses[1];
    let client = pair.connect();
    let until = Instant::ZERO + Duration::from_secs(10);
    let server = loop {
        assert!(pair.step(until), "no connection");
        if let Some(id) = pair.ends[1].accept(local) {
            break id;
        }
    };
    assert_eq!(pair.ends[1].write(server, &[7; 5_000]), 5_000);
    while pair.ends[0].connection(client).expect("open").received() < 5_000 {
        assert!(pair.step(until), "no data");
    }
    let probe = pair.ends[1].probe_packet(pair.now, server).expect("an established connection");
    let mut other = stack(local.ip(), 9);
    let now = pair.now + Duration::from_secs(1);
    pair.ends[0].handle_packet(now, probe.as_bytes(), Checksums::Verify);
    let answer = packet(&mut pair.ends[0], now).expect("an answer");
    other.handle_packet(now, &answer, Checksums::Verify);
    let reset = packet(&mut other, now).expect("a reset");
    pair.ends[0].handle_packet(now, &reset, Checksums::Verify);
    let mut events = Vec::new();
    while let Some((id, event)) = pair.ends[0].poll_event() {
        assert_eq!(id, client);
        events.push(event);
    }
    assert_eq!(events.last(), Some(&Event::Aborted), "{events:?}");
}

/// A connection that is half-open or has been reset has no probe.
#[test]
fn only_established_connections_have_a_probe() {
    let mut pair = Pair::v4();
    let client = pair.connect();
    assert!(pair.ends[0].probe_packet(pair.now, client).is_none());
    let now = pair.now;
    pair.ends[0].abort(now, client);
    assert!(pair.ends[0].probe_packet(now, client).is_none());
}
