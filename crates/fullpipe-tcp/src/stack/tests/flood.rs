//! Tests of hostile input: SYN floods, guessed SYN cookies, and packets that belong to no connection.

use std::net::SocketAddr;

use fullpipe_units::{Bytes, Duration, Instant, draw};

use super::super::{Entry, FourTuple, HalfOpen, MOST_REPLIES, Place, cookie};
use super::{Pair, bytes, config, packet, pattern, stack, syn};
use crate::buffers::Buffer;
use crate::conn::{Config, Event, State};
use crate::stack::siphash::Key;
use crate::wire::{Checksums, Flags, Packet, Segment, SeqNum, Timestamps};

const KEY: Key = Key::new([9; 16]);

fn server() -> SocketAddr {
    SocketAddr::from(([198, 18, 0, 2], 5_201))
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn tuple(port: u16) -> FourTuple {
    FourTuple { local: server(), remote: syn(port, 0, true).0 }
}

/// Returns the next segment that the stack sends, in parsed form.
fn answer(end: &mut super::Stack, now: Instant) -> Option<Segment> {
    let bytes = packet(end, now)?;
    Some(Packet::parse(&bytes, Checksums::Verify).expect("well made").segment)
}

/// During a flood of three seconds with 10 000 SYNs per second from addresses that do not reply, the number
/// of connections stays within the backlog plus one (RFC 4987; SYN-1). A client that connects during the
/// flood is connected after one round trip, with all options of its SYN.
#[test]
fn syn_1_a_flood_keeps_nobody_out() {
    let mut pair = Pair::v4();
    pair.listen(128);
    let mut client = None;
    let mut connected = None;
    for n in 0..30_000u64 {
        let until = Instant::ZERO + Duration::from_micros(100 * n);
        while pair.step(until) {}
        pair.now = until;
        let (from, segment) = syn(n as u16 | 1, draw(n, 1, 1) as u32, true);
        pair.ends[1].handle_packet(until, &bytes(&segment, from, server()), Checksums::Verify);
        pair.send();
        assert!(pair.ends[1].connections() <= 128 + 1, "{}", pair.ends[1].connections());
        if n == 20_000 {
            client = Some((pair.connect(), until));
        }
        while let Some((id, event)) = pair.ends[0].poll_event() {
            if event == Event::Connected {
                connected = Some(pair.now);
                assert_eq!(pair.ends[0].write(id, &[7; 3_000]), 3_000);
            }
        }
    }
    let counters = pair.ends[1].counters();
    assert!(counters.cookies_sent > 29_000 && counters.cookies_accepted == 1, "{counters:?}");
    assert!(pair.ends[1].slots.len() <= 129, "memory of connections that never were");
    let (_, begun) = client.expect("begun");
    let took = connected.expect("in time").saturating_since(begun);
    assert!((millis(20)..=millis(21)).contains(&took), "one round trip of 20 ms, and not {took}");
    let id = pair.ends[1].accept(server()).expect("a connection");
    let mut read = [0; 4_000];
    assert_eq!(pair.ends[1].read(pair.now, id, &mut read), 3_000);
    assert!(read[..3_000].iter().all(|byte| *byte == 7));
}

/// The stack accepts none of 2^20 guessed cookies while the listener expects replies to cookies (RFC 4987;
/// SYN-2).
#[test]
fn syn_2_guesses_are_no_cookies() {
    let mut end = stack(server().ip(), 9);
    end.listen(server(), config(), 1).expect("free");
    for n in 1..3 {
        let (from, segment) = syn(n, 5, true);
        end.handle_packet(at(1), &bytes(&segment, from, server()), Checksums::Verify);
    }
    assert_eq!(end.counters().cookies_sent, 1, "so that cookies are looked for");
    for n in 0..1u64 << 20 {
        let (from, segment) = syn((n % 60_000) as u16 + 100, draw(n, 2, 0) as u32, true);
        let guess = Segment { ack: SeqNum(draw(n, 3, 0) as u32), flags: Flags::ACK, syn: None, ..segment };
        end.without_connection(at(2), FourTuple { local: server(), remote: from }, &guess, &[]);
    }
    let counters = end.counters();
    assert_eq!((counters.cookies_accepted, counters.cookies_refused), (0, 1 << 20));
}

/// A cookie that returns makes a connection that can be accepted at once, even if the client sends no data because the
/// server speaks first. The timestamp that the client echoes is older than the connection.
#[test]
fn a_cookie_makes_a_connection_at_once() {
    for wait in [Duration::ZERO, millis(200), Duration::from_secs(59)] {
        a_cookie_returns_after(wait);
    }
}

fn a_cookie_returns_after(wait: Duration) {
    let mut end = stack(server().ip(), 9);
    end.listen(server(), config(), 2).expect("free");
    let syns: Vec<_> = (1..=3).map(|port| syn(port, 5, true)).collect();
    for (from, segment) in &syns {
        end.handle_packet(at(1), &bytes(segment, *from, server()), Checksums::Verify);
    }
    assert_eq!(end.counters().cookies_sent, 1);
    let (from, segment) = &syns[2];
    let to_third = |packet: Vec<u8>| {
        let packet = Packet::parse(&packet, Checksums::Verify).expect("well made");
        (packet.to == *from).then_some(packet.segment)
    };
    let syn_ack = std::iter::from_fn(|| packet(&mut end, at(1))).find_map(to_third).expect("an answer");
    while packet(&mut end, at(1)).is_some() {}
    let last = echo(segment, syn_ack.seq, syn_ack.timestamps.map(|stamps| stamps.value));
    let now = at(1) + wait;
    end.handle_packet(now, &bytes(&last, *from, server()), Checksums::Verify);
    assert_eq!(end.counters().cookies_accepted, 1);
    let id = end.accept(server()).expect("a connection");
    assert_eq!(end.write(id, b"220 ready"), 9);
    assert!(answer(&mut end, now).is_some_and(|first| first.len == 9));
}

/// Returns the peer's reply to a SYN-ACK with a cookie for `syn`.
fn echo(syn: &Segment, iss: SeqNum, stamp: Option<u32>) -> Segment {
    Segment {
        seq: syn.seq.plus(1),
        ack: iss.plus(1),
        flags: Flags::ACK,
        syn: None,
        timestamps: stamp.map(|echo| Timestamps { value: 1_001, echo }),
        ..syn.clone()
    }
}

/// A cookie is valid for at least one minute and invalid after two minutes, regardless of the second in which
/// it was created (SYN-3).
#[test]
fn syn_3_cookies_go_stale() {
    let (_, segment) = syn(1, 77, false);
    let reduced = cookie::reduced(&tuple(1), &segment);
    for second in 0..60 {
        let made = at(600 + second);
        let iss = cookie::encode(KEY, made, &tuple(1), &reduced);
        let answer = echo(&segment, iss, None);
        for (age, good) in [(0, true), (59, true), (120, false), (180, false), (3_600, false)] {
            let decoded = cookie::decode(KEY, made + Duration::from_secs(age), &tuple(1), &answer);
            assert_eq!(decoded.is_some(), good, "made in second {second}, {age} s old");
        }
        // The cookie is not valid for other sockets or with another secret.
        assert_eq!(cookie::decode(KEY, made, &tuple(2), &answer), None);
        assert_eq!(cookie::decode(Key::new([8; 16]), made, &tuple(1), &answer), None);
    }
}

/// A cookie rounds the MSS down to one of four values (SYN-4).
#[test]
fn syn_4_the_mss_is_rounded_down() {
    for (said, kept) in
        [(0, 536), (500, 536), (1_299, 536), (1_400, 1_300), (1_440, 1_440), (1_460, 1_460), (8_960, 1_460)]
    {
        let (_, mut segment) = syn(1, 77, true);
        segment.syn = segment.syn.map(|options| crate::wire::SynOptions { mss: said, ..options });
        let reduced = cookie::reduced(&tuple(1), &segment);
        let iss = cookie::encode(KEY, at(1), &tuple(1), &reduced);
        let decoded = cookie::decode(KEY, at(1), &tuple(1), &echo(&segment, iss, None)).expect("ours");
        assert_eq!(decoded.syn.map(|options| options.mss), Some(kept), "{said}");
    }
}

/// With timestamps, a returned cookie restores window scale, SACK and ECN exactly (SYN-5). Without
/// timestamps, the connection does not use these options.
#[test]
fn syn_5_options_come_back_in_the_timestamp() {
    for shift in (0..=14).map(Some).chain([None]) {
        for (sack, ecn) in [(false, false), (false, true), (true, false), (true, true)] {
            for clock in [0, 63, 64, 1_000_000, u32::MAX] {
                let (_, mut segment) = syn(1, 77, true);
                segment.syn = segment.syn.map(|options| crate::wire::SynOptions {
                    window_scale: shift,
                    sack_permitted: sack,
                    ..options
                });
                if ecn {
                    segment.flags = segment.flags.with(Flags::ECE).with(Flags::CWR);
                }
                let reduced = cookie::reduced(&tuple(1), &segment);
                assert_eq!(reduced.syn, segment.syn, "nothing is lost");
                let iss = cookie::encode(KEY, at(1), &tuple(1), &reduced);
                let stamp = cookie::stamp(clock, &reduced);
                assert!(clock.wrapping_sub(stamp) < 64, "{stamp} at {clock}");
                let answer = echo(&segment, iss, Some(stamp));
                let decoded = cookie::decode(KEY, at(1), &tuple(1), &answer).expect("ours");
                assert_eq!((decoded.syn, decoded.flags), (segment.syn, segment.flags));
                let answer = echo(&segment, iss, None);
                let bare = cookie::decode(KEY, at(1), &tuple(1), &answer).expect("ours");
                let options = bare.syn.expect("a SYN");
                assert_eq!(
                    (options.window_scale, options.sack_permitted, bare.flags),
                    (None, false, Flags::SYN)
                );
            }
        }
    }
    // Without timestamps, the SYN-ACK does not offer these options either, because the peer would consider
    // them negotiated.
    let reduced = cookie::reduced(&tuple(1), &syn(1, 77, false).1);
    let options = reduced.syn.expect("a SYN");
    assert_eq!((options.window_scale, options.sack_permitted), (None, false));
}

/// While the accept queue is full, the stack does not complete the handshake of the third client, although
/// that client considers itself connected and sends data (SYN-6). Once the accept queue has room, the
/// retransmitted SYN-ACK or the data completes the handshake, and every byte arrives.
#[test]
fn syn_6_nobody_accepts() {
    let mut pair = Pair::v4();
    pair.listen(2);
    let connect = |pair: &mut Pair, port| {
        let near = SocketAddr::new(pair.addresses[0].ip(), port);
        pair.ends[0].connect(pair.now, near, server(), config()).expect("free")
    };
    connect(&mut pair, 40_001);
    while pair.step(at(0) + millis(100)) {}
    let late = [connect(&mut pair, 40_002), connect(&mut pair, 40_003)];
    let data: Vec<u8> = (0..5_000).map(pattern).collect();
    for id in late {
        assert_eq!(pair.ends[0].write(id, &data), data.len());
    }
    while pair.step(at(0) + millis(500)) {}
    let state = |pair: &Pair, id| pair.ends[0].connection(id).map(crate::Connection::state);
    assert_eq!(late.map(|id| state(&pair, id)), [Some(State::Established); 2], "both believe it");
    assert!(pair.ends[1].counters().accept_overflows > 0);
    let accepted = [(); 2].map(|()| pair.ends[1].accept(server()).expect("waits"));
    assert_eq!(pair.ends[1].accept(server()), None, "the third is not there");
    while pair.step(at(4)) {}
    let third = pair.ends[1].accept(server()).expect("it is now");
    let mut read = vec![0; 6_000];
    for id in [accepted[1], third] {
        assert_eq!(pair.ends[1].read(pair.now, id, &mut read), data.len());
        assert_eq!(read[..data.len()], data[..]);
    }
}

/// Between two events, the stack keeps only the SYN of a half-open connection and the progress of its
/// handshake. It retransmits the SYN-ACK at the times of Linux (1, 3, 7, 15 and 31 s), and in response to a
/// repeated SYN. The final ACK restores the whole connection, whose RTT sample starts at the first SYN-ACK.
/// If no reply arrives, no state remains.
#[test]
fn connections_are_small() {
    let mut end = stack(server().ip(), 9);
    end.listen(server(), config(), 8).expect("free");
    let (from, segment) = syn(1, 100, true);
    let hear = |end: &mut super::Stack, now, segment: &Segment| {
        end.handle_packet(now, &bytes(segment, from, server()), Checksums::Verify);
        answer(end, now)
    };
    let first = hear(&mut end, at(1), &segment).expect("a SYN-ACK");
    assert_eq!(answer(&mut end, at(1)), None);
    assert!(matches!(end.slots[0].1, Place::Folded(_)), "{:?}", end.slots[0].1);
    assert!(size_of::<HalfOpen>() <= 256, "{} bytes", size_of::<HalfOpen>());
    // An idle connection takes 3 KiB, of which the controller, the histogram and the relay need a quarter.
    assert!(size_of::<Entry>() <= 2304, "{} bytes", size_of::<Entry>());
    let again = hear(&mut end, at(1) + millis(600), &segment).expect("a SYN-ACK");
    assert_eq!((again.seq, again.ack, again.syn), (first.seq, first.ack, first.syn));
    let mut times = Vec::new();
    while !end.poll_timeout().is_never() {
        let now = end.poll_timeout();
        end.handle_timeout(now);
        while let Some(again) = answer(&mut end, now) {
            assert_eq!((again.seq, again.window, again.syn), (first.seq, first.window, first.syn));
            times.push(now.saturating_since(at(1)).as_secs_f64());
        }
    }
    assert_eq!((times, end.connections()), (vec![1.0, 3.0, 7.0, 15.0, 31.0], 0));

    let begun = at(100);
    let first = hear(&mut end, begun, &segment).expect("a SYN-ACK");
    let answered = Segment {
        seq: segment.seq.plus(1),
        ack: first.seq.plus(1),
        flags: Flags::ACK,
        syn: None,
        timestamps: first.timestamps.map(|sent| Timestamps { value: 1_030, echo: sent.value }),
        ..segment.clone()
    };
    // A segment of another connection between the same sockets changes nothing.
    let foreign = Segment { seq: SeqNum(7_000_000), ..answered.clone() };
    assert!(hear(&mut end, begun + millis(10), &foreign).is_some_and(|ack| ack.flags == Flags::ACK));
    assert_eq!(answer(&mut end, begun + millis(10)), None);
    assert!(matches!(end.slots[0].1, Place::Folded(_)));
    assert_eq!(hear(&mut end, begun + millis(30), &answered), None);
    let id = end.accept(server()).expect("established");
    let connection = end.connection(id).expect("open");
    assert_eq!(connection.snapshot().min_rtt, Some(millis(30)));
}

/// The MTU of the device can shrink and grow while connections exist.
#[test]
fn connections_follow_the_mtu_of_the_device() {
    let mut pair = Pair::v4();
    pair.listen(4);
    let mss = |pair: &Pair, id| pair.ends[1].connection(id).expect("open").snapshot().mss;
    let accept = |pair: &mut Pair, port| {
        let near = SocketAddr::new(pair.addresses[0].ip(), port);
        let _ = pair.ends[0].connect(pair.now, near, server(), config()).expect("free");
        while pair.step(pair.now + millis(50)) {}
        pair.ends[1].accept(server()).expect("established")
    };
    let early = accept(&mut pair, 40_001);
    assert_eq!(mss(&pair, early), 1_448);
    pair.ends[1].set_mtu(pair.now, server(), 1_300);
    let small = accept(&mut pair, 40_002);
    assert_eq!([early, small].map(|id| mss(&pair, id)), [1_248; 2]);
    pair.ends[1].set_mtu(pair.now, server(), 1_500);
    let large = accept(&mut pair, 40_003);
    assert_eq!([early, small, large].map(|id| mss(&pair, id)), [1_248, 1_248, 1_448]);
}

/// In LISTEN, the stack ignores a reset, and answers an ACK with a reset that carries the ACK number as its
/// sequence number (RFC 9293 section 3.10.7.2; TCP-3). A reset during the handshake leaves the listener
/// unchanged (RFC 9293 MUST-11).
#[test]
fn tcp_3_what_a_listener_answers() {
    let mut end = stack(server().ip(), 1);
    end.listen(server(), config(), 1).expect("free");
    let (from, segment) = syn(1, 100, true);
    let mut hands = |segment: &Segment| {
        end.handle_packet(at(1), &bytes(segment, from, server()), Checksums::Verify);
        (answer(&mut end, at(1)), end.connections())
    };
    let reset = Segment { flags: Flags::RST, syn: None, timestamps: None, ..segment.clone() };
    assert_eq!(hands(&reset), (None, 0));
    let ack = Segment { flags: Flags::ACK, ack: SeqNum(4_711), ..reset.clone() };
    let (answered, kept) = hands(&ack);
    let answered = answered.expect("a reset");
    assert_eq!((answered.flags, answered.seq, kept), (Flags::RST, SeqNum(4_711), 0));
    for _ in 0..3 {
        let (answered, kept) = hands(&segment);
        let answered = answered.expect("a SYN-ACK");
        assert_eq!((answered.flags, answered.ack, kept), (Flags::SYN.with(Flags::ACK), SeqNum(101), 1));
        let (answered, kept) = hands(&Segment { seq: SeqNum(101), ..reset.clone() });
        assert_eq!((answered, kept), (None, 0), "and the next SYN is welcome again");
    }
}

/// A port without a listener replies with a reset (RFC 9293 section 3.10.7.1; TCP-4). The queue of replies is
/// bounded, and the stack ignores packets for other addresses.
#[test]
fn tcp_4_a_closed_port_resets() {
    let mut end = stack(server().ip(), 1);
    let (from, segment) = syn(1, 100, true);
    end.handle_packet(at(1), &bytes(&segment, from, server()), Checksums::Verify);
    let answered = answer(&mut end, at(1)).expect("a reset");
    assert_eq!(
        (answered.flags, answered.seq, answered.ack),
        (Flags::RST.with(Flags::ACK), SeqNum(0), SeqNum(101))
    );
    for n in 0..1_000 {
        let (from, segment) = syn(n + 1, 100, true);
        end.handle_packet(at(1), &bytes(&segment, from, server()), Checksums::Verify);
    }
    assert_eq!(end.replies.len(), MOST_REPLIES);
    assert_eq!(end.counters().replies_dropped, 1_000 - MOST_REPLIES as u64);
    let before = end.counters();
    let other = SocketAddr::from(([198, 18, 0, 9], 80));
    for (from, to) in [
        (from, other),
        (SocketAddr::from(([224, 0, 0, 1], 80)), server()),
        (SocketAddr::from(([255, 255, 255, 255], 80)), server()),
        (SocketAddr::from(([0, 0, 0, 0], 80)), server()),
    ] {
        end.handle_packet(at(1), &bytes(&segment, from, to), Checksums::Verify);
    }
    assert_eq!((end.counters().ignored, end.counters().resets), (before.ignored + 4, before.resets));
}

/// The rings never exceed the buffer sizes, even if the peer or the application does not read.
#[test]
fn rings_stay_within_buffers() {
    let mut pair = Pair::v4();
    // Autotuned buffers would remain too small for this test.
    let buffer = Buffer::Fixed(Bytes::from_mib(1));
    let config = Config { sndbuf: buffer, rcvbuf: buffer, ..config() };
    pair.ends[1].listen(server(), config.clone(), 8).expect("free");
    let client = pair.ends[0].connect(pair.now, pair.addresses[0], server(), config).expect("free");
    let piece: Vec<u8> = (0..20_000).map(pattern).collect();
    let mut written = 0;
    while pair.step(at(60)) {
        written += pair.ends[0].write(client, &piece);
        while pair.ends[0].poll_event().is_some() {}
    }
    let server = pair.ends[1].accept(server()).expect("established");
    let [sending, receiving] = [
        &pair.ends[0].entry(client).expect("there").sending,
        &pair.ends[1].entry(server).expect("there").receiving,
    ];
    let limit = 1 << 20;
    assert!(written > limit, "{written} bytes were written, and nobody read");
    assert!(sending.memory() <= 2 * (limit + (64 << 10)), "{}", sending.memory());
    assert!(receiving.memory() <= 2 * limit, "{}", receiving.memory());
}
