use super::*;
use crate::cc::testing::{Bench, MSS, ms, sample};
use crate::cc::{CongestionControl, Hints, Reno, Signal, SlowStart};

fn at(segments: u64) -> Bench<Reno> {
    let watched = |cx: &Context, hints: &Hints| {
        Reno::new(cx, &Hints { slow_start: Some(SlowStart::HyStartPlusPlus), ..hints.clone() })
    };
    Bench::new(segments, watched)
}

/// Runs a round with `acks` ACKs of one segment each, all with an RTT of `rtt`; the last ACK ends the round.
/// Returns the window growth.
fn round(bench: &mut Bench<Reno>, acks: u64, rtt: Duration) -> u64 {
    let before = bench.cwnd();
    let end = bench.cx.snd_una + acks * MSS;
    // Data sent in this round is acknowledged in the next round.
    bench.cx.snd_nxt = end + bench.cwnd() * MSS;
    for _ in 0..acks {
        bench.cx.snd_una += MSS;
        bench.cc.on_ack(&bench.cx, &AckSample { rtt: Some(rtt), ..sample(1) });
    }
    bench.cwnd() - before
}

/// Ends the first HyStart++ round, so that the following rounds are as long as those of [`round`].
fn begin(bench: &mut Bench<Reno>) {
    bench.cx.snd_nxt = bench.cx.snd_una;
    bench.cx.snd_una += MSS;
    bench.cc.on_ack(&bench.cx, &AckSample { rtt: None, ..sample(1) });
}

fn phase(bench: &Bench<Reno>) -> &'static str {
    bench.cc.status().phase
}

/// Runs one whole HyStart++ round, with one ACK per element of `rtts`. Returns the window growth.
fn watch_round(watch: &mut HyStartPlusPlus, cx: &mut Context, window: &mut Window, rtts: &[Duration]) -> u64 {
    let before = window.cwnd();
    cx.snd_nxt = cx.snd_una + 2 * rtts.len() as u64 * MSS;
    for rtt in rtts {
        cx.snd_una += MSS;
        let ack = AckSample { rtt: Some(*rtt), ..sample(1) };
        let grant = watch.on_ack(cx, &ack, window);
        window.on_watched_ack(cx, &ack, grant);
    }
    // End the round here, so that the next round has the same length.
    watch.window_end = cx.snd_una + rtts.len() as u64 * MSS;
    watch.last_round = watch.this_round.take().or(watch.last_round);
    watch.samples = 0;
    window.cwnd() - before
}

fn watched(segments: u64) -> (HyStartPlusPlus, Context, Window) {
    let cx = crate::cc::testing::context();
    let hints = Hints { initial_cwnd: Some(segments * MSS), ..Hints::default() };
    let mut watch = HyStartPlusPlus::new(&cx);
    watch.window_end = u64::MAX;
    let window = Window::new(&cx, &hints);
    (watch, cx, window)
}

/// HyStart++ reacts if the RTT grows by at least an eighth of the last round's minimum, where this threshold
/// is at least 4 ms and at most 16 ms (RFC 9406 section 4.2; HS-1).
#[test]
fn hs_1_by_how_much_the_delay_must_grow() {
    for (last, threshold) in [(20, 4), (40, 5), (200, 16)] {
        for (more, conservative) in [(threshold - 1, false), (threshold, true)] {
            let (mut watch, ..) = watched(10);
            watch.last_round = Some(ms(last));
            (0..8).for_each(|_| watch.on_rtt(ms(last + more)));
            assert_eq!(watch.is_conservative(), conservative, "{last} + {more} ms");
        }
    }
    let (mut watch, ..) = watched(10);
    watch.last_round = Some(ms(20));
    (0..7).for_each(|_| watch.on_rtt(ms(100)));
    assert!(!watch.is_conservative(), "seven samples may be chance");
}

/// In Conservative Slow Start, the window grows a quarter as fast as in slow start (RFC 9406 section 4.2;
/// HS-2).
#[test]
fn hs_2_conservative_growth() {
    let (mut watch, mut cx, mut window) = watched(100);
    watch.conservative = Some(Conservative { baseline: ms(60), rounds: 0, credit: 0 });
    assert_eq!(watch_round(&mut watch, &mut cx, &mut window, &[ms(60); 100]), 25);
}

/// After five CSS rounds, including the round in which CSS began, congestion avoidance starts at the current
/// window (RFC 9406 section 4.2; HS-3).
#[test]
fn hs_3_five_rounds() {
    let mut bench = at(16);
    begin(&mut bench);
    // The start of the previous round determines the end of a round, so HyStart++ reacts to a change one
    // round later.
    for rtt in [ms(40), ms(40), ms(60), ms(60)] {
        let acks = bench.cwnd();
        round(&mut bench, acks, rtt);
    }
    assert_eq!(phase(&bench), "conservative_slow_start");
    let (from, mut rounds) = (bench.cwnd(), 0);
    while phase(&bench) == "conservative_slow_start" {
        let acks = bench.cwnd();
        round(&mut bench, acks, ms(60));
        rounds += 1;
        assert!(rounds <= 5);
    }
    assert_eq!(phase(&bench), "congestion_avoidance");
    assert_eq!(bench.cwnd(), bench.ssthresh());
    let factor = bench.cwnd() as f64 / from as f64;
    assert!(factor > 1.25 && factor <= 1.25_f64.powi(5), "{factor}");
}

/// After jitter in a single round, slow start continues (RFC 9406 section 4.2; HS-4).
#[test]
fn hs_4_jitter() {
    let mut bench = at(16);
    begin(&mut bench);
    for rtt in [ms(40), ms(40), ms(60)] {
        let acks = bench.cwnd();
        round(&mut bench, acks, rtt);
    }
    assert_eq!(phase(&bench), "conservative_slow_start");
    let acks = bench.cwnd();
    round(&mut bench, acks, ms(41));
    assert_eq!(phase(&bench), "slow_start");
    let before = bench.cwnd();
    assert_eq!(round(&mut bench, before, ms(41)), before, "and doubles");
}

/// RFC 9406 section 4.2: without pacing, the window grows by at most eight segments per ACK.
#[test]
fn an_unpaced_window_grows_by_eight_segments_an_ack() {
    for (paced, growth) in [(false, 8), (true, 40)] {
        let mut bench = at(100);
        bench.cx.next_departure = if paced { bench.cx.now + ms(1) } else { bench.cx.now };
        bench.ack(40);
        assert_eq!(bench.cwnd(), 100 + growth);
    }
}

/// RFC 9406 section 4.3: HyStart++ runs only in the first slow start, and a loss ends it.
#[test]
fn only_the_first_slow_start() {
    let mut bench = at(100);
    begin(&mut bench);
    for rtt in [ms(40), ms(40), ms(60)] {
        round(&mut bench, 10, rtt);
    }
    bench.signal(Signal::Timeout { first: true });
    assert_eq!(phase(&bench), "slow_start");
    let growth = round(&mut bench, 10, ms(200));
    assert_eq!(growth, 10);
}
