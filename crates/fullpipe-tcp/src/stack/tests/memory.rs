//! Tests of the memory limit of all connections.

use super::*;

const LIMIT: u64 = 256 << 10;
const CONNECTIONS: u16 = 8;
const LEN: u64 = 300_000;

/// Opens connections to a stack whose memory is limited, and returns their identifiers at both ends.
fn connected(pair: &mut Pair) -> Vec<[ConnId; 2]> {
    pair.ends[1].set_memory_limit(LIMIT);
    pair.listen(usize::from(CONNECTIONS));
    let far = pair.addresses[1];
    let mut ids = Vec::new();
    for port in 0..CONNECTIONS {
        let near = SocketAddr::new(pair.addresses[0].ip(), 40_000 + port);
        let id = pair.ends[0].connect(pair.now, near, far, config()).expect("free");
        let accepted = loop {
            assert!(pair.step(Instant::FAR_FUTURE), "no connection");
            if let Some(id) = pair.ends[1].accept(far) {
                break id;
            }
        };
        ids.push([id, accepted]);
    }
    ids
}

/// Sends `LEN` bytes over each connection from the end `from`, and checks every byte. The other end reads from the time
/// `reads_from` on. The memory of the second end never exceeds the limit, and nothing is left of it in the end.
fn transfer_all(from: usize, reads_from: Instant) -> Pair {
    let mut pair = Pair::v4();
    let ids = connected(&mut pair);
    let mut moved = vec![[0; 2]; ids.len()];
    let until = pair.now + Duration::from_secs(600);
    let mut most = 0;
    while moved.iter().any(|[_, read]| *read < LEN) {
        for (ids, [written, read]) in ids.iter().zip(&mut moved) {
            let bytes: Vec<u8> = (*written..LEN.min(*written + 20_000)).map(pattern).collect();
            *written += pair.ends[from].write(ids[from], &bytes) as u64;
            let mut room = [0; 20_000];
            while pair.now >= reads_from {
                let got = pair.ends[1 - from].read(pair.now, ids[1 - from], &mut room);
                if got == 0 {
                    break;
                }
                assert!(room[..got].iter().zip(*read..).all(|(byte, at)| *byte == pattern(at)));
                *read += got as u64;
            }
        }
        assert!(pair.step(until), "stalled at {}: {moved:?}", pair.now);
        pair.ends.iter_mut().for_each(|end| while end.poll_event().is_some() {});
        most = most.max(pair.ends[1].memory());
        assert!(most <= LIMIT, "{most} bytes at {}", pair.now);
    }
    assert!(most >= LIMIT / 4 * 3, "{most} bytes at most");
    while pair.step(pair.now + Duration::from_secs(1)) {}
    let own: u64 = ids.iter().map(|ids| pair.ends[1].memory_of(ids[1])).sum();
    assert_eq!(pair.ends[1].memory(), own);
    ids.iter().for_each(|ids| pair.ends[1].fit_memory(ids[1]));
    assert_eq!(pair.ends[1].memory(), 0);
    pair
}

#[test]
fn writes_are_cut_short_at_the_limit() {
    transfer_all(1, Instant::ZERO);
}

/// The payload of segments for which there is no memory is discarded, and arrives again when the application has read.
#[test]
fn payload_beyond_the_limit_arrives_later() {
    let pair = transfer_all(0, Instant::ZERO + Duration::from_secs(20));
    assert!(pair.ends[1].counters().out_of_memory > 0);
}

/// A connection without payload gets memory even if the others have used up their share.
#[test]
fn a_request_arrives_although_others_use_up_the_memory() {
    let mut pair = Pair::v4();
    let ids = connected(&mut pair);
    let (last, others) = ids.split_last().expect("connections");
    for ids in others {
        assert!(pair.ends[0].write(ids[0], &[1; 100_000]) > 60_000, "an initial window");
    }
    while pair.step(pair.now + Duration::from_secs(5)) && pair.now < Instant::ZERO + Duration::from_secs(5) {}
    assert!(pair.ends[1].counters().out_of_memory > 0);
    assert_eq!(pair.ends[0].write(last[0], &[2; 300]), 300);
    while pair.ends[1].peek(last[1], &mut [0; 300]) < 300 {
        assert!(pair.step(pair.now + Duration::from_millis(100)), "the request has not arrived");
    }
    assert!(pair.ends[1].memory() <= LIMIT);
}

/// When half of a connection's own memory is free again, an event reports that a write can proceed.
#[test]
fn a_starved_connection_continues() {
    let mut pair = Pair::v4();
    let ids = connected(&mut pair)[0];
    pair.ends[1].set_memory_limit(40_000);
    assert_eq!(pair.ends[1].write(ids[1], &[1; 30_000]), 30_000);
    assert_eq!(pair.ends[1].write(ids[1], &[1; 30_000]), 2_768, "to the end of a ring of 32 KiB");
    assert!(pair.ends[1].is_starved(ids[1]));
    while pair.ends[1].poll_event().is_some() {}
    let event = loop {
        assert!(pair.step(pair.now + Duration::from_secs(5)), "no event");
        if let Some(event) = pair.ends[1].poll_event() {
            break event;
        }
    };
    assert_eq!(event, (ids[1], Event::Writable));
    assert!(!pair.ends[1].is_starved(ids[1]));
}
