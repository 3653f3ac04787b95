//! Tests of the limits on the memory that a peer can make a connection use.

use super::*;

/// A peer that sends every second octet of the window creates only as many ranges as the buffer allows. No
/// data that was acknowledged or SACKed is lost, and the stream is complete once the holes are filled.
#[test]
fn ranges_above_holes() {
    for (buffer, most) in [(4_608, 64), (1 << 20, (1 << 20) / 832)] {
        let mut script =
            Script::client(Config { rcvbuf: Buffer::Fixed(Bytes::new(buffer)), ..config(Algorithm::Reno) });
        let room = script.conn.receiver.window.edge();
        for offset in (1..room).step_by(2) {
            script.data(1, offset, 1);
            script.conn.check();
        }
        let held = script.conn.receiver.reassembly.held_bytes();
        assert_eq!(held, most.min(room / 2), "one octet each");
        script.clear();
        script.data(2, 0, 2 * held);
        assert_eq!((script.conn.readable(), script.conn.receiver.reassembly.held_bytes()), (2 * held, 0));
    }
}

/// A peer that SACKs every second octet creates only about one range per segment that this side has sent.
#[test]
fn ranges_that_the_peer_reports() {
    let mut script = Script::client(config(Algorithm::Reno));
    script.write(10 * MSS);
    for offset in (1..10 * MSS).step_by(8) {
        script.ack(1, 0, &[(offset, offset + 1), (offset + 2, offset + 3), (offset + 4, offset + 5)]);
        script.conn.check();
    }
    script.ack(100, 10 * MSS, &[]);
    assert_eq!(script.conn.acknowledged(), 10 * MSS);
}

/// A peer that acknowledges one octet per timeout makes progress, and so keeps the connection open. Each
/// timeout causes retransmissions, but the list of retransmissions never becomes longer than the list of
/// segments.
#[test]
fn an_octet_for_each_timeout() {
    let mut script = Script::client(config(Algorithm::Reno));
    script.write(10 * MSS);
    let mut at = 0;
    for acked in 1..1_000 {
        at = script.conn.poll_timeout().saturating_since(START).as_millis().max(at) + 1;
        script.ack(at, acked, &[]);
        script.conn.check();
        let (remembered, records) =
            (script.conn.sender.recovery.rack.remembered(), script.conn.sender.recovery.board.outstanding());
        assert!(remembered <= 2 * records, "{remembered} of {records} after {acked}");
    }
    assert!(script.conn.stats().timeouts > 400, "{:?}", script.conn.stats());
}

/// The connection answers unacceptable segments at most twice per second.
#[test]
fn answers_to_what_is_out_of_place() {
    let mut script = Script::client(config(Algorithm::Reno));
    for i in 0..10_000 {
        script.run(i / 10);
        let mut forged = script.segment(1 << 30, 0, i);
        forged.flags = [Flags::ACK, Flags::SYN, Flags::RST][i as usize % 3];
        script.inject(&forged);
    }
    assert!(script.segments.len() <= 3, "{} answers in a second", script.segments.len());
    assert_eq!(script.conn.state(), State::Established);
}
