//! Tests of connection close.

use super::pair::{Fate, Pair, Side};
use super::*;

fn transfer(fate: impl FnMut(Side, &Segment, u64) -> Fate + 'static) -> Pair {
    let mut pair = Pair::on(config(Algorithm::Cubic), config(Algorithm::Cubic), fate);
    pair.client.open();
    pair.write(Side::Client, 30 * MSS + 7);
    pair.client.close();
    pair.run(20_000);
    pair
}

fn seen(pair: &Pair, side: Side, event: Event) -> usize {
    pair.events.iter().filter(|seen| **seen == (side, event)).count()
}

/// The FIN is delivered after the last byte, and each side reports the end of the stream once.
#[test]
fn fin_is_delivered() {
    let pair = transfer(|_, _, _| Fate::Arrives);
    assert_eq!(pair.server.received(), 30 * MSS + 7);
    assert_eq!(pair.server.readable(), 0);
    assert_eq!(seen(&pair, Side::Server, Event::PeerClosed), 1);
    assert_eq!(seen(&pair, Side::Client, Event::Finished), 1);
    assert!(pair.client.poll_timeout().is_never() && pair.server.poll_timeout().is_never());
}

/// A lost FIN is retransmitted.
#[test]
fn a_lost_fin_is_repaired() {
    for times in [1, 2, 4] {
        let mut lost = 0;
        let pair = transfer(move |_, segment, _| {
            let lose = segment.flags.has(Flags::FIN) && lost < times;
            lost += u32::from(lose);
            if lose { Fate::Lost } else { Fate::Arrives }
        });
        assert_eq!(seen(&pair, Side::Server, Event::PeerClosed), 1, "lost {times} times");
        assert_eq!(seen(&pair, Side::Client, Event::Finished), 1);
        assert_eq!(pair.server.received(), 30 * MSS + 7);
    }
}

/// A FIN that overtakes data takes effect only after that data has arrived.
#[test]
fn a_fin_ahead_of_data_waits() {
    let pair = transfer(
        |side, _, ordinal| {
            if side == Side::Client && ordinal == 20 { Fate::Late(400) } else { Fate::Arrives }
        },
    );
    assert_eq!(pair.server.received(), 30 * MSS + 7);
    assert_eq!(seen(&pair, Side::Server, Event::PeerClosed), 1);
    let order: Vec<Event> =
        pair.events.iter().filter(|(side, _)| *side == Side::Server).map(|e| e.1).collect();
    assert_eq!(order.last(), Some(&Event::PeerClosed));
}

/// A connection on which no data was sent closes normally.
#[test]
fn an_empty_stream_closes() {
    let mut pair = Pair::new(config(Algorithm::Reno), config(Algorithm::Reno));
    pair.client.open();
    pair.client.close();
    pair.run(5000);
    assert_eq!(seen(&pair, Side::Server, Event::PeerClosed), 1);
    assert_eq!(seen(&pair, Side::Client, Event::Finished), 1);
}

/// After a half close, the side that received the FIN continues to send data, and closes later (RFC 9293
/// section 3.6; TCP-1).
#[test]
fn half_close() {
    let mut pair = Pair::new(config(Algorithm::Reno), config(Algorithm::Reno));
    pair.client.open();
    pair.client.close();
    pair.run(2000);
    pair.write(Side::Server, 50 * MSS);
    pair.server.close();
    pair.run(5000);
    assert_eq!(pair.client.received(), 50 * MSS);
    assert_eq!(seen(&pair, Side::Client, Event::PeerClosed), 1);
    assert_eq!(seen(&pair, Side::Server, Event::Finished), 1);
}

fn states(pair: &Pair) -> (State, State) {
    (pair.client.state(), pair.server.state())
}

/// Simultaneous and ordinary open and close, while the sequence numbers wrap around (RFC 9293 sections 3.5
/// and 3.6; TCP-1). The connections pass through every state, and both end in CLOSED.
#[test]
fn tcp_1_every_state_across_the_wrap() {
    for iss in [SeqNum(7), SeqNum(u32::MAX - 4), SeqNum(u32::MAX - 2)] {
        for together in [false, true] {
            let mut pair = Pair::new(config(Algorithm::Reno), config(Algorithm::Reno));
            if together {
                pair.server = Connection::client(config(Algorithm::Reno));
                pair.server.open();
            }
            (pair.client.sender.iss, pair.server.sender.iss) = (iss, iss);
            pair.client.open();
            pair.run(60);
            let halfway = if together { State::SynReceived } else { State::SynSent };
            assert_eq!(states(&pair), (halfway, State::SynReceived));
            pair.run(1_000);
            assert_eq!(states(&pair), (State::Established, State::Established), "{together}");

            pair.write(Side::Client, 3);
            pair.client.close();
            if together {
                pair.server.close();
            }
            pair.run(1_060);
            if together {
                assert_eq!(states(&pair), (State::Closing, State::Closing));
                pair.run(1_500);
                assert_eq!(states(&pair), (State::TimeWait, State::TimeWait));
            } else {
                assert_eq!(states(&pair), (State::FinWait1, State::CloseWait));
                pair.run(1_160);
                assert_eq!(states(&pair), (State::FinWait2, State::CloseWait));
                pair.write(Side::Server, 50 * MSS);
                pair.server.close();
                assert_eq!(pair.server.state(), State::LastAck);
                pair.run(2_500);
                assert_eq!(states(&pair), (State::TimeWait, State::Closed));
                assert_eq!(pair.client.received(), 50 * MSS);
            }
            pair.run(100_000);
            assert_eq!(states(&pair), (State::Closed, State::Closed));
            assert_eq!(pair.server.received(), 3);
            for side in [Side::Client, Side::Server] {
                assert_eq!(seen(&pair, side, Event::Closed), 1);
                assert_eq!(seen(&pair, side, Event::Aborted), 0);
            }
            assert_eq!(pair.client.stats().retransmits + pair.server.stats().retransmits, 0);
        }
    }
}

/// If forged segments make the states of two connections inconsistent, the connections answer each other
/// briefly and then stop (RFC 5961 section 7; CH-6). A connection in TIME-WAIT and a closed connection also
/// answer each other only briefly.
#[test]
fn ch_6_forged_segments_start_no_loop() {
    for flags in
        [Flags::ACK, Flags::SYN, Flags::RST, Flags::FIN.with(Flags::ACK), Flags::SYN.with(Flags::ACK)]
    {
        for len in [0, 100] {
            for distance in [-5_000_i64, -1, 0, 1, 5_000, 1 << 30] {
                for closed in [false, true] {
                    let mut pair = Pair::new(config(Algorithm::Reno), config(Algorithm::Reno));
                    pair.client.open();
                    pair.run(1_000);
                    if closed {
                        pair.client.close();
                        pair.server.close();
                        pair.run(2_000);
                    }
                    // Each side receives a forged segment that appears to come from the other side.
                    let forged = |to: &Connection, from: &Connection| Segment {
                        len,
                        flags,
                        ..super::super::reset::bare(
                            from.sender.iss.plus(1).plus((from.sender.snd_nxt() as i64 + distance) as u64),
                            Some(to.sender.iss.plus(1).plus((to.sender.snd_nxt() as i64 + distance) as u64)),
                        )
                    };
                    let (a, b) = (forged(&pair.client, &pair.server), forged(&pair.server, &pair.client));
                    pair.client.handle_segment(pair.now, &a);
                    pair.server.handle_segment(pair.now, &b);
                    pair.log.clear();
                    pair.run(60_000);
                    let (name, count) = (format!("{flags:?} {len} at {distance}, {closed}"), pair.log.len());
                    assert!(count <= 8, "{name}: {count} segments");
                    let last = pair.log.last().map_or(0, |(at, ..)| *at);
                    assert!(last < 10_000, "{name}: still talking at {last} ms");
                }
            }
        }
    }
}
