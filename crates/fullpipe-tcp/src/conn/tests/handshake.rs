//! Tests of opening a connection and of option negotiation.

use super::pair::{Pair, Side};
use super::*;

fn seconds(script: &Script, kind: &str) -> Vec<u64> {
    script
        .segments
        .iter()
        .zip(&script.lines)
        .filter(|(_, line)| line.ends_with(kind))
        .map(|((at, _), _)| at / 1000)
        .collect()
}

/// A three-way handshake during which the sequence numbers of both sides wrap around (RFC 9293 section 3.5;
/// TCP-1).
#[test]
fn tcp_1_handshake_across_the_wrap() {
    for iss in [SeqNum(1), SeqNum(u32::MAX - 4), SeqNum(u32::MAX)] {
        let mut pair = Pair::new(config(Algorithm::Reno), config(Algorithm::Reno));
        pair.client.sender.iss = iss;
        pair.server.sender.iss = iss;
        pair.client.open();
        pair.write(Side::Client, 100 * MSS);
        pair.client.close();
        pair.run(3000);
        assert_eq!(pair.server.received(), 100 * MSS, "iss {iss:?}");
        assert_eq!(pair.client.acknowledged(), 100 * MSS);
        assert_eq!(pair.client.stats().retransmits, 0);
        assert_eq!(pair.server.state(), State::CloseWait);
    }
}

/// In SYN-SENT, only an ACK of our SYN is accepted (RFC 9293 section 3.10.7.3; TCP-2). The reply to any other
/// acknowledgement is a reset, unless the segment is itself a reset, which is ignored.
#[test]
fn tcp_2_a_stray_syn_ack_is_reset() {
    let mut script = Script::new(Connection::client(config(Algorithm::Reno)));
    script.conn.open();
    script.flush();
    script.now = START;
    let stray =
        Segment { ack: script.conn.sender.iss.plus(2), ..script.syn_ack(Some(7), Some(1460), true, true) };
    script.clear();
    script.inject(&stray);
    script.sent(&["0 ms rst 1"]);
    script.inject(&Segment { flags: Flags::RST.with(Flags::ACK), ..stray });
    script.sent(&[]);
    assert_eq!(script.conn.state(), State::SynSent);
    let refusal = script.syn_ack(Some(7), Some(1460), true, true);
    script.inject(&Segment { flags: Flags::RST.with(Flags::ACK), ..refusal });
    assert_eq!(script.conn.state(), State::Closed);
    assert_eq!(script.events(), [Event::Aborted]);
}

/// An unanswered SYN is retransmitted four times at intervals of one second, and then at doubling intervals
/// (TCP-9).
#[test]
fn tcp_9_syn_times() {
    let mut script = Script::new(Connection::client(config(Algorithm::Reno)));
    script.now = START;
    script.conn.open();
    script.flush();
    script.run(70_000);
    assert_eq!(seconds(&script, "syn"), [0, 1, 2, 3, 4, 5, 7, 11, 19, 35, 67]);
    // The connection gives up after ten retransmissions (TCP-8).
    script.run(200_000);
    assert_eq!(script.conn.state(), State::Closed);
    assert_eq!(script.elapsed(), ms(200_000));
    assert_eq!(script.events(), [Event::Aborted]);
}

/// The retransmission interval of a SYN-ACK doubles from the start (TCP-9).
#[test]
fn tcp_9_syn_ack_times() {
    let mut script = Script::new(Connection::server(config(Algorithm::Reno)));
    script.now = START;
    let syn = Segment { flags: Flags::SYN, ..script.syn_ack(Some(7), Some(1460), true, true) };
    script.inject(&syn);
    script.run(60_000);
    assert_eq!(seconds(&script, "syn-ack"), [0, 1, 3, 7, 15, 31]);
    script.run(64_000);
    assert_eq!(script.conn.state(), State::Closed);
}

/// The reply to a retransmitted SYN is another SYN-ACK, because the first SYN-ACK may have been lost.
#[test]
fn a_lost_syn_ack_is_repeated_when_asked_for() {
    let mut script = Script::new(Connection::server(config(Algorithm::Reno)));
    script.now = START;
    let syn = Segment { flags: Flags::SYN, ..script.syn_ack(Some(7), Some(1460), true, true) };
    script.inject(&syn);
    script.run(500);
    script.inject(&syn);
    script.sent(&["0 ms syn-ack", "500 ms syn-ack"]);
}

/// One retransmission of the SYN leaves the initial window unchanged (TCP-10). After two retransmissions, the
/// initial window is one segment.
#[test]
fn tcp_10_initial_window_after_lost_syns() {
    for (retries, segments) in [(0, 10), (1, 10), (2, 1), (3, 1)] {
        let mut script = Script::new(Connection::client(config(Algorithm::Reno)));
        script.now = START;
        script.conn.open();
        script.flush();
        script.run(1000 * retries + 100);
        script.clear();
        let answer = script.syn_ack(Some(10), Some(1460), true, true);
        script.inject(&answer);
        script.write(20 * MSS);
        assert_eq!(script.data_segments(), segments, "after {retries} lost SYNs");
    }
}

/// Karn's rule: a handshake with a retransmitted SYN yields no RTT sample, so the retransmission timeout
/// keeps its initial value.
#[test]
fn a_repeated_syn_gives_no_rtt() {
    let mut script = Script::new(Connection::client(config(Algorithm::Reno)));
    script.now = START;
    script.conn.open();
    script.flush();
    script.run(1100);
    let answer = script.syn_ack(Some(10), Some(1460), true, true);
    script.inject(&answer);
    assert_eq!(script.conn.snapshot().srtt, None);
    assert_eq!(script.conn.sender.recovery.rto.timeout(&script.conn.sender.rtt), Duration::from_secs(1));
}

fn with_answer(scale: Option<u8>, mss: Option<u16>, sack: bool, timestamps: bool) -> Script {
    let mut script = Script::new(Connection::client(config(Algorithm::Reno)));
    script.conn.open();
    script.flush();
    script.now = START;
    let answer = script.syn_ack(scale, mss, sack, timestamps);
    script.inject(&answer);
    script
}

/// TCP options reduce the payload of a segment, but not the value of the MSS option in the SYN (RFC 9293
/// section 3.7.1; MSS-1 to MSS-3). A missing or tiny MSS option cannot make segments tiny.
#[test]
fn mss_1_to_3_payload_of_a_segment() {
    for (mss, timestamps, payload) in [
        (Some(1460), true, 1448),
        (Some(1460), false, 1460),
        (Some(9000), true, 1448),
        (Some(1000), true, 988),
        (None, false, 536),
        (None, true, 524),
        (Some(0), false, 536),
        (Some(1), true, 76),
        (Some(87), false, 88),
    ] {
        let mut script = with_answer(Some(10), mss, true, timestamps);
        script.write(20_000);
        let first = script.segments.iter().find(|(_, segment)| segment.len > 0).expect("sends");
        assert_eq!(u64::from(first.1.len), payload, "peer offers {mss:?}, timestamps {timestamps}");
    }
}

/// Expected options of our SYN and SYN-ACK for an MTU of 1500 (G-1). As in Linux, the window field is 64 240
/// (44 segments of 1460 bytes) in our SYN, and 65 160 in our SYN-ACK.
#[test]
fn g_1_syn_options() {
    let mut script = Script::new(Connection::client(Config {
        rcvbuf: Buffer::Auto { max: Bytes::new(33_554_432) },
        ..config(Algorithm::Reno)
    }));
    script.conn.open();
    script.flush();
    let (_, syn) = &script.segments[0];
    let options = syn.syn.expect("a SYN has options");
    assert_eq!((options.mss, options.window_scale, options.sack_permitted), (1460, Some(10), true));
    assert!(syn.timestamps.is_some());
    assert_eq!(syn.window, 64_240);
    assert_eq!(syn.header_len(), 60);
}

/// A window scale shift of 15 or more is treated as 14 (RFC 7323 section 2.3; WS-2).
#[test]
fn ws_2_the_largest_shift_is_14() {
    let mut script = with_answer(Some(15), Some(1460), true, true);
    script.window = 100;
    script.ack(1, 0, &[]);
    assert_eq!(script.conn.snapshot().rwnd, 100 << 14);
}

/// If the peer sends no window scale option, neither direction scales its windows (RFC 7323 section 2.2;
/// WS-3).
#[test]
fn ws_3_no_scaling_unless_both_ask() {
    let mut script = with_answer(None, Some(1460), true, true);
    script.window = 60_000;
    script.write(100);
    script.ack(1, 100, &[]);
    assert_eq!(script.conn.snapshot().rwnd, 60_000);
    script.clear();
    for i in 0..60 {
        script.data(2 + i, i * MSS, MSS);
        script.conn.read(script.now, u64::MAX);
    }
    let largest = script.segments.iter().map(|(_, segment)| segment.window).max().expect("acknowledges");
    assert!(largest > 60_000, "{largest}");
    let edge = script.conn.receiver.window.edge() - script.conn.receiver.reassembly.rcv_nxt();
    assert!(edge <= 65_535, "{edge}");
}

/// If the peer's SYN-ACK lacks the SACK-permitted option, the connection sends no SACK blocks.
#[test]
fn sack_is_sent_only_when_permitted() {
    for (permitted, line) in [(true, "1 ms ack 0 sack 1448..2896"), (false, "1 ms ack 0")] {
        let mut script = with_answer(Some(10), Some(1460), permitted, true);
        script.clear();
        script.data(1, MSS, MSS);
        script.sent(&[line]);
    }
}
