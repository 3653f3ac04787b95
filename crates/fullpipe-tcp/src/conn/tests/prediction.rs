//! Tests that header prediction does not change any result.

use fullpipe_units::draw;

use super::pair::{Fate, Pair, Side};
use super::*;

/// Runs a transfer. Returns all segments with their times, and the final state of both ends.
fn transfer(cc: Algorithm, tunables: Tunables, loss_ppm: u64, predicts: bool) -> (Vec<String>, String) {
    let config = Config { tunables, ..config(cc) };
    let mut pair = Pair::on(config.clone(), config, move |side, segment, ordinal| {
        let drawn = draw(1, side as u64, ordinal) % 1_000_000;
        match segment.len {
            0 => Fate::Arrives,
            _ if drawn < loss_ppm => Fate::Lost,
            _ if drawn < 2 * loss_ppm => Fate::Late(20),
            _ => Fate::Arrives,
        }
    });
    pair.predicts = predicts;
    pair.client.open();
    // The transfer consists of bulk data, a request with its response, and more data after a pause.
    pair.write(Side::Client, 400 * MSS + 17);
    pair.run(900);
    pair.write(Side::Server, 3_000);
    pair.run(2_000);
    pair.write(Side::Client, 100 * MSS);
    pair.write(Side::Server, 50 * MSS);
    pair.run(9_000);
    let log = pair.log.iter().map(|(at, side, segment)| format!("{at} {side:?} {segment:?}")).collect();
    (log, format!("{:#?}\n{:#?}\n{:?}", pair.client, pair.server, pair.events))
}

/// With and without header prediction, the same segments leave at the same times, and both ends reach the
/// same state. The transfers include losses, late arrivals, pauses, and data in both directions, one after
/// the other or simultaneously.
#[test]
fn a_predicted_segment_does_what_any_segment_does() {
    for cc in [
        Algorithm::Reno,
        Algorithm::Cubic,
        Algorithm::Bbr1,
        Algorithm::Bbr3,
        Algorithm::Vegas,
        Algorithm::Surge,
    ] {
        for tunables in [Tunables::LINUX, Tunables::RFC] {
            for loss_ppm in [0, 1_000, 30_000] {
                let (log, end) = transfer(cc, tunables, loss_ppm, true);
                let (any_log, any_end) = transfer(cc, tunables, loss_ppm, false);
                assert!(log.len() > 500, "{}", log.len());
                for (segment, any) in log.iter().zip(&any_log) {
                    assert_eq!(segment, any, "{cc:?} {loss_ppm} ppm");
                }
                assert_eq!(log.len(), any_log.len());
                for (line, any) in end.lines().zip(any_end.lines()) {
                    assert_eq!(line, any, "{cc:?} {loss_ppm} ppm");
                }
            }
        }
    }
}
