//! The end of a transfer.

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

/// The FIN arrives behind the last byte, and both sides learn of the end once.
#[test]
fn fin_is_delivered() {
    let pair = transfer(|_, _, _| Fate::Arrives);
    assert_eq!(pair.server.received(), 30 * MSS + 7);
    assert_eq!(pair.server.readable(), 0);
    assert_eq!(seen(&pair, Side::Server, Event::PeerClosed), 1);
    assert_eq!(seen(&pair, Side::Client, Event::Finished), 1);
    assert!(pair.client.poll_timeout().is_never() && pair.server.poll_timeout().is_never());
}

/// A FIN that is lost is sent again.
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

/// A FIN that overtakes data ends nothing before the data is there.
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

/// Closing without a byte written.
#[test]
fn an_empty_stream_closes() {
    let mut pair = Pair::new(config(Algorithm::Reno), config(Algorithm::Reno));
    pair.client.open();
    pair.client.close();
    pair.run(5000);
    assert_eq!(seen(&pair, Side::Server, Event::PeerClosed), 1);
    assert_eq!(seen(&pair, Side::Client, Event::Finished), 1);
}

/// TCP-1: half close: the side that was told goes on sending, then closes itself.
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
