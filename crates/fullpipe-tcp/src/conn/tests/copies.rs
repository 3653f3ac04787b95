//! Tests of copies of segments that are not marked lost ([`Repair`]): their times, their effect on counters, and their
//! bounds.

use std::collections::BTreeMap;

use fullpipe_units::draw;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::pair::{Fate, Pair, Side};
use super::*;
use crate::cc::{
    AckSample, CongestionControl, Context, Control, Pacing, Recovery, Repair, SendQuantum, Status,
};

/// Congestion control with a constant window that requests copies.
#[derive(Debug)]
struct Copying(Repair);

/// Congestion window of [`Copying`], in segments.
const WINDOW: u64 = 40;

impl CongestionControl for Copying {
    fn on_ack(&mut self, _: &Context, _: &AckSample) {}

    fn control(&self) -> Control {
        Control {
            cwnd: WINDOW * MSS,
            ssthresh: u64::MAX,
            pacing: Pacing::Unpaced,
            send_quantum: SendQuantum::Bytes(2 * MSS),
            recovery: Recovery::Own,
            mark_app_limited: false,
            repair: self.0,
        }
    }

    fn status(&self) -> Status {
        Status::default()
    }
}

/// Returns a pair whose client requests `repair`. The server has a receive buffer of `rcvbuf` bytes. `lost` selects
/// which data segments of the client are lost, by the number of the segment in the stream and the number of the
/// transmission.
fn pair(repair: Repair, rcvbuf: u64, lost: impl Fn(u64, u64) -> bool + 'static) -> Pair {
    let server = Config { rcvbuf: Buffer::Fixed(Bytes::new(rcvbuf)), ..config(Algorithm::Reno) };
    let (mut origin, mut transmissions) = (None, BTreeMap::new());
    let fate = move |side, segment: &Segment, _| {
        if side == Side::Server || segment.len == 0 {
            return Fate::Arrives;
        }
        let origin = *origin.get_or_insert(segment.seq);
        let number = segment.seq.distance_from(origin).max(0) as u64 / MSS;
        let transmission = transmissions.entry(number).or_insert(0);
        *transmission += 1;
        if lost(number, *transmission) { Fate::Lost } else { Fate::Arrives }
    };
    let mut pair = Pair::on(config(Algorithm::Reno), server, fate);
    pair.client.open();
    pair.run(RTT);
    pair.client.sender.decision.replace(Box::new(Copying(repair)));
    pair.client.sender.refresh_control(pair.now);
    pair
}

/// Returns the times at which the client sent the segment at `offset`.
fn times(pair: &Pair, offset: u64) -> Vec<u64> {
    pair.data(Side::Client).into_iter().filter(|(_, at)| *at == offset).map(|(at, _)| at).collect()
}

const SECOND: Repair = Repair { second_copy: true, tail_copies: 0 };

/// While the peer's window limits the sender, a copy follows each retransmission after 5 ms. If the retransmission is
/// lost, the copy fills the hole one round trip earlier than a second retransmission.
#[test]
fn a_copy_replaces_a_lost_retransmission() {
    let done = |repair| {
        let mut pair = pair(repair, 33_000, |number, transmission| number == 1 && transmission <= 2);
        pair.write(Side::Client, 60 * MSS);
        pair.run(5_000);
        let all = pair.server.received();
        assert_eq!(all, 60 * MSS);
        (times(&pair, MSS), pair.client.stats(), pair.data(Side::Client).last().expect("data").0)
    };
    let (plain, with) = (done(Repair::NONE), done(SECOND));
    assert!(plain.0.len() > 2 && plain.1.copies == 0, "{plain:?}");
    assert_eq!((with.0[1] - with.0[0], with.0[2] - with.0[1]), (RTT, 5), "{with:?}");
    assert!(with.1.copies > 0 && with.2 + RTT / 2 < plain.2, "{with:?} {plain:?}");
}

/// If the retransmission and its copy both arrive, the peer reports a duplicate. The sender treats this duplicate
/// neither as a spurious retransmission nor as reordering.
#[test]
fn a_copy_that_was_not_needed_changes_nothing() {
    let mut pair = pair(SECOND, 33_000, |number, transmission| number == 1 && transmission == 1);
    pair.write(Side::Client, 60 * MSS);
    pair.run(5_000);
    let stats = pair.client.stats();
    assert_eq!(times(&pair, MSS).len(), 3, "sent, retransmitted, copied");
    assert_eq!((stats.copies, stats.retransmits, stats.duplicates), (1, 2, 0), "{stats:?}");
    assert_eq!((stats.recoveries, stats.timeouts), (1, 0), "{stats:?}");
    assert!(!pair.client.sender.recovery.rack.reorders_far(0));
    assert_eq!(pair.client.sender.context(pair.now).copied, MSS);
}

/// If only the congestion window limits the sender, no copy is sent, because a copy would take the place of data.
#[test]
fn data_comes_before_copies() {
    let mut pair = pair(SECOND, 1 << 20, |number, transmission| number == 1 && transmission == 1);
    pair.write(Side::Client, 2_000 * MSS);
    pair.run(1_000);
    let stats = pair.client.stats();
    assert!(stats.retransmits > 0 && stats.copies == 0, "{stats:?}");
}

/// The sender copies each of the last two segments of the data once, 5 ms after the original. If both originals are
/// lost, the data still arrives without a probe.
#[test]
fn the_end_of_the_data_is_copied() {
    let mut pair = pair(Repair { second_copy: false, tail_copies: 2 }, 1 << 20, |number, transmission| {
        number >= 18 && transmission == 1
    });
    pair.write(Side::Client, 20 * MSS);
    pair.run(5_000);
    for segment in [18, 19] {
        let times = times(&pair, segment * MSS);
        assert_eq!((times.len(), times[1] - times[0]), (2, 5), "{times:?}");
    }
    let stats = pair.client.stats();
    assert_eq!((stats.copies, stats.probes, stats.timeouts, pair.server.received()), (2, 0, 0, 20 * MSS));
}

/// Checks that the data sent by the client stays within the window that the client knows at each time, according to the
/// log of the server's segments.
fn within_window(pair: &Pair) {
    let origin = pair.client.sender.iss.plus(1);
    let scale = pair.client.sender.peer.scale;
    let (mut edge, mut known) = (0, Vec::new());
    for (at, side, segment) in &pair.log {
        let offset = |number: SeqNum| number.distance_from(origin).max(0) as u64;
        if *side == Side::Server {
            let shift = if segment.syn.is_some() { 0 } else { scale };
            known.push((at + RTT / 2, offset(segment.ack) + (u64::from(segment.window) << shift)));
        } else if segment.len > 0 {
            let heard = known.iter().take_while(|(heard, _)| heard <= at);
            edge = heard.map(|(_, end)| *end).fold(edge, u64::max);
            let end = offset(segment.seq) + u64::from(segment.len);
            assert!(end <= edge, "{end} is beyond the window {edge} at {at} ms");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, rng_seed: RngSeed::Fixed(35), failure_persistence: None, ..ProptestConfig::default() })]

    /// All data arrives, regardless of the losses, the window and the number of segments. The data in flight stays
    /// within the congestion window, and all segments stay within the peer's window. Copies are at most 3 % of the
    /// segments sent, plus two segments.
    #[test]
    fn copies_stay_within_their_bounds(
        seed: u64, percent in 0..30_u64, window in 20_000..400_000_u64, segments in 10..300_u64, tail_copies in 0..3_u32
    ) {
        let repair = Repair { second_copy: true, tail_copies };
        let mut pair = pair(repair, window, move |number, transmission| draw(seed, transmission, number) % 100 < percent);
        pair.write(Side::Client, segments * MSS);
        let mut time = RTT;
        while pair.server.received() < segments * MSS {
            time += 10;
            pair.run(time);
            prop_assert!(time < 600_000, "{} of {segments}", pair.server.received() / MSS);
            prop_assert!(pair.client.sender.recovery.board.inflight() <= WINDOW * MSS);
            pair.client.sender.check();
        }
        let stats = pair.client.stats();
        let copied = pair.client.sender.context(pair.now).copied;
        prop_assert!(copied <= stats.bytes_sent * 3 / 100 + 2 * MSS, "{copied} of {}", stats.bytes_sent);
        prop_assert!(stats.copies <= stats.retransmits);
        within_window(&pair);
    }
}
