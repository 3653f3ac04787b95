//! Tests of the receiving half: its ACKs, their contents, and the advertised window.

use super::*;

fn receiver() -> Script {
    let mut script = Script::client(Config {
        rcvbuf: Buffer::Auto { max: Bytes::new(131_072) },
        ..config(Algorithm::Reno)
    });
    script.clear();
    script
}

fn read_data(script: &mut Script, at: u64, seq: u64, len: u64) {
    script.data(at, seq, len);
    script.conn.read(script.now, u64::MAX);
    script.flush();
}

/// If single segments arrive 120 ms apart, the connection sends about twenty immediate ACKs, and then doubles
/// the delay of each ACK up to the RTT (ACK-1, G-8). Linux sends 20 immediate ACKs, and then delays ACKs by
/// 44, 84 and 105-108 ms. In this test, times are exact, and one or two more ACKs are immediate, because the
/// initial window differs from Linux's by a few segments.
#[test]
fn ack_1_quick_phase() {
    let mut script = receiver();
    for i in 0..30 {
        read_data(&mut script, 120 * i, i * MSS, MSS);
    }
    script.run(120 * 30);
    let delays: Vec<u64> = script.segments.iter().map(|(at, _)| at % 120).collect();
    let immediate = delays.iter().take_while(|delay| **delay == 0).count();
    assert!((20..=22).contains(&immediate), "{immediate} of {delays:?}");
    assert_eq!(delays[immediate..immediate + 4], [40, 80, 100, 100]);
}

/// Long after the quick-ACK phase, two full-sized segments together cause an immediate ACK, and a single
/// segment does not (RFC 5681 section 4.2; ACK-2).
#[test]
fn ack_2_every_second_segment() {
    let mut script = receiver();
    for i in 0..40 {
        read_data(&mut script, 120 * i, i * MSS, MSS);
    }
    // A pause longer than the timeout would start another quick-ACK phase.
    script.run(4800);
    script.clear();
    read_data(&mut script, 4800, 40 * MSS, MSS);
    script.sent(&[]);
    read_data(&mut script, 4800, 41 * MSS, MSS);
    script.sent(&[&format!("4800 ms ack {}", 42 * MSS)]);
}

/// For several segments, the connection reports only once that data is readable.
#[test]
fn events_are_told_once_and_in_order() {
    let mut script = receiver();
    script.data(0, 0, MSS);
    script.data(1, MSS, MSS);
    let mut fin = script.segment(2 * MSS, 0, 0);
    fin.flags = fin.flags.with(Flags::FIN);
    script.inject(&fin);
    assert_eq!(script.events(), [Event::Readable, Event::PeerClosed]);
    assert_eq!(script.events(), []);
    script.data(2, MSS, MSS);
    assert_eq!(script.events(), [], "a duplicate brings nothing");
}

/// Out-of-order data is acknowledged at once and SACKed (RFC 5681 section 4.2; ACK-4).
#[test]
fn ack_4_out_of_order() {
    let mut script = receiver();
    script.data(10, MSS, MSS);
    script.data(11, 3 * MSS, MSS);
    script.data(12, 0, MSS);
    script.sent(&[
        "10 ms ack 0 sack 1448..2896",
        "11 ms ack 0 sack 4344..5792 sack 1448..2896",
        "12 ms ack 2896 sack 4344..5792",
    ]);
}

/// A duplicate segment is acknowledged at once, and its exact range is reported in a D-SACK (RFC 2883;
/// ACK-5).
#[test]
fn ack_5_duplicate() {
    let mut script = receiver();
    read_data(&mut script, 10, 0, MSS);
    read_data(&mut script, 10, MSS, MSS);
    script.run(1000);
    script.clear();
    script.data(1000, 0, MSS);
    script.data(1001, MSS, 100);
    script.sent(&["1000 ms ack 2896 sack 0..1448", "1001 ms ack 2896 sack 1448..1548"]);
}

/// SACK compression: above a hole, the receiver sends the first three ACKs at once. Each further ACK waits
/// for a millisecond and covers the segments that arrive meanwhile, at most 44.
#[test]
fn sack_compression() {
    let mut script = receiver();
    // Quick ACKs take precedence, also above a hole, so use them up first.
    for i in 0..40 {
        read_data(&mut script, 120 * i, i * MSS, MSS);
    }
    script.run(4800);
    script.clear();
    for i in 41..=60 {
        script.data(4800, i * MSS, MSS);
    }
    assert_eq!(script.segments.len(), 3);
    script.clear();
    script.run(4810);
    let (hole, end) = (40 * MSS, 61 * MSS);
    script.sent(&[&format!("4801100 us ack {hole} sack {}..{end}", hole + MSS)]);
    // The connection acknowledges the filled hole at once.
    script.data(4830, hole, MSS);
    script.sent(&[&format!("4830 ms ack {end}")]);
}

/// A new connection acknowledges every segment at once, even above a hole (Linux: `__tcp_ack_snd_check`).
#[test]
fn quick_acks_come_before_compression() {
    let mut script = receiver();
    for i in 1..=10 {
        script.data(10, i * MSS, MSS);
    }
    assert_eq!(script.segments.len(), 10);
}

/// The ACK of a FIN waits for this side's own FIN, which carries it (Linux: `tcp_fin`). The ACK does not wait
/// if no data arrived before the FIN, because then the receiver has measured no delay. Nor does the ACK wait
/// if this side has already sent its FIN, because then no segment would carry the ACK.
#[test]
fn the_ack_of_a_fin_waits_for_a_close() {
    let fin = |script: &Script, at: u64| {
        let mut fin = script.segment(at, 0, script.conn.sender.snd_una);
        fin.flags = fin.flags.with(Flags::FIN);
        fin
    };
    let after_data = |closes: bool| {
        let mut script = receiver();
        read_data(&mut script, 10, 0, MSS);
        script.clear();
        script.run(20);
        let fin = fin(&script, MSS);
        script.inject(&fin);
        script.sent(&[]);
        if closes {
            script.run(30);
            script.conn.close();
            script.flush();
        }
        script.run(100);
        script.segments.iter().map(|(at, segment)| (*at, segment.flags.has(Flags::FIN))).collect::<Vec<_>>()
    };
    assert_eq!(after_data(false), [(60, false)]);
    assert_eq!(after_data(true)[0], (30, true));

    let mut script = receiver();
    script.run(20);
    let bare = fin(&script, 0);
    script.inject(&bare);
    script.sent(&["20 ms ack 1"]);
}

/// The right edge of the window never moves left, regardless of what arrives and how slowly the application
/// reads (WS-4, the counterpart of TCP-7).
#[test]
fn ws_4_the_edge_never_moves_back() {
    let mut script = receiver();
    let scale = script.conn.receiver.window.scale();
    let (mut next, mut edge) = (0, 0);
    for i in 0..2000u64 {
        let len = 1 + fullpipe_units::draw(3, 0, i) % MSS;
        let room = edge.max(20_000) - next;
        if room > 2 * MSS {
            // Before every fifth segment, a segment arrives above a hole.
            if i.is_multiple_of(5) {
                script.data(i, next + len, len);
            }
            script.data(i, next, len);
            next = script.conn.received();
        }
        if i.is_multiple_of(7) {
            script.conn.read(script.now, 3000);
            script.flush();
        }
        for (_, segment) in std::mem::take(&mut script.segments) {
            let ack = segment.ack.distance_from(PEER_ISS.plus(1)) as u64;
            let offered = ack + (u64::from(segment.window) << scale);
            assert!(offered >= edge, "step {i}: from {edge} back to {offered}");
            edge = offered;
        }
    }
    assert!(next > 500_000);
}

/// An application that reads one byte at a time does not cause a window update for every byte (RFC 9293
/// section 3.8.6.2.2; SWS-1).
#[test]
fn sws_1_no_update_for_a_few_bytes() {
    let mut script = receiver();
    let mut seq = 0;
    while script.conn.receiver.window.remaining(script.conn.received()) >= MSS {
        script.data(10, seq, MSS);
        seq += MSS;
    }
    script.run(1000);
    script.clear();
    for _ in 0..MSS / 2 {
        script.conn.read(script.now, 1);
        script.flush();
    }
    assert_eq!(script.segments.len(), 0);
    script.conn.read(script.now, u64::MAX);
    script.flush();
    assert_eq!(script.segments.len(), 1, "all room at once is worth an update");
}

/// With a fixed buffer, the window stays the same for the whole connection (DRS-5).
#[test]
fn drs_5_a_fixed_buffer() {
    let mut script =
        Script::client(Config { rcvbuf: Buffer::Fixed(Bytes::new(131_072)), ..config(Algorithm::Reno) });
    let most = 131_072 * 160 / 256;
    for i in 0..2000 {
        read_data(&mut script, 10 + i / 20, i * MSS, MSS);
        let room = script.conn.receiver.window.remaining(script.conn.received());
        assert!(room <= most + 1024, "{room}");
    }
}

/// The connection replies to new data with an older timestamp, but does not accept the data (RFC 7323 section
/// 5; PAWS-1). A pure ACK with an older timestamp is accepted (PAWS-5).
#[test]
fn paws_1_old_timestamp() {
    let mut script = receiver();
    read_data(&mut script, 10, 0, MSS);
    read_data(&mut script, 20, MSS, MSS);
    script.run(500);
    script.clear();
    let mut old = script.segment(2 * MSS, MSS as u32, 0);
    old.timestamps = Some(Timestamps { value: clock(START + ms(20)) - 1, echo: clock(script.now) });
    script.inject(&old);
    assert_eq!(script.conn.received(), 2 * MSS);
    script.sent(&["500 ms ack 2896"]);
}

/// Timestamps are compared modulo 2^32 (RFC 7323 section 5; PAWS-4).
#[test]
fn paws_4_timestamp_wrap() {
    let mut script = receiver();
    script.conn.receiver.ts_recent = u32::MAX - 1;
    let mut wrapped = script.segment(0, MSS as u32, 0);
    wrapped.timestamps = Some(Timestamps { value: 3, echo: clock(script.now) });
    script.inject(&wrapped);
    assert_eq!((script.conn.received(), script.conn.receiver.ts_recent), (MSS, 3));
}

/// A SYN on an established connection causes a challenge ACK, resets nothing and consumes no sequence number
/// (RFC 5961 section 4.2; CH-1, CH-5). A second SYN within half a second causes no ACK.
#[test]
fn ch_1_syn_is_challenged() {
    for seq in [PEER_ISS, PEER_ISS.plus(1), PEER_ISS.plus(5000), SeqNum(0x8000_0000)] {
        let mut script = receiver();
        script.run(100);
        let syn = Segment { seq, flags: Flags::SYN, ..script.segment(0, 0, 0) };
        script.inject(&syn);
        script.run(200);
        script.inject(&syn);
        script.sent(&["100 ms ack 0"]);
        script.run(700);
        script.inject(&syn);
        script.sent(&["700 ms ack 0"]);
        assert_eq!((script.conn.state(), script.conn.received()), (State::Established, 0));
    }
}

/// A reset is accepted only at the next expected octet (RFC 5961 section 3.2; CH-2, G-10). Elsewhere in the
/// window, a reset causes a challenge ACK; outside the window, it is ignored.
#[test]
fn ch_2_resets() {
    for (seq, state, lines) in [
        (PEER_ISS.plus(1), State::Closed, &[][..]),
        (PEER_ISS.plus(2), State::Established, &["100 ms ack 0"][..]),
        (PEER_ISS.plus(20_000), State::Established, &["100 ms ack 0"][..]),
        (PEER_ISS, State::Established, &[][..]),
        (PEER_ISS.plus(10_000_000), State::Established, &[][..]),
    ] {
        let mut script = receiver();
        script.run(100);
        let rst = Segment { seq, flags: Flags::RST, ..script.segment(0, 0, 0) };
        script.inject(&rst);
        assert_eq!(script.conn.state(), state, "{seq:?}");
        script.sent(lines);
    }
}

/// A replayed old ACK with a larger window changes nothing (RFC 9293 section 3.10.7.4; TCP-5).
#[test]
fn tcp_5_old_window() {
    let mut script = Script::client(config(Algorithm::Reno));
    script.write(10 * MSS);
    script.window = 200;
    script.ack(100, 2 * MSS, &[]);
    script.window = 100;
    script.ack(101, 4 * MSS, &[]);
    script.window = 300;
    script.ack(102, 2 * MSS, &[]);
    assert_eq!(script.conn.snapshot().rwnd, 100 << 10);
}

/// An ACK of data that was never sent acknowledges nothing, but the connection answers it (RFC 9293 section
/// 3.10.7.4; TCP-6).
#[test]
fn tcp_6_ack_of_the_future() {
    let mut script = Script::client(config(Algorithm::Reno));
    script.write(2 * MSS);
    script.clear();
    script.ack(100, 3 * MSS, &[]);
    script.sent(&["100 ms ack 0"]);
    assert_eq!(script.conn.acknowledged(), 0);
}
