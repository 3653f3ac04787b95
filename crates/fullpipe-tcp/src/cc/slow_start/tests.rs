use super::*;
use crate::cc::testing::{MSS, context, ms};
use crate::cc::{Hints, Signal};

fn window(cx: &Context, segments: u64) -> Window {
    Window::new(cx, &Hints { initial_cwnd: Some(segments * MSS), ..Hints::default() })
}

/// Runs a round of ACKs that arrive `gap` apart with the given RTTs. Returns the number of ACKs until slow
/// start ends.
fn left_after(
    min_rtt: Duration,
    segments: u64,
    gap: Duration,
    paced: bool,
    rtts: &[Duration],
) -> Option<usize> {
    let mut cx = context();
    cx.now = Instant::ZERO + ms(1_000);
    // The pacing rate is so high that bursts cause no additional delay.
    cx.srtt = Some(Duration::from_nanos(1));
    let mut window = window(&cx, segments);
    let mut hystart = HyStart::new(&cx);
    for (count, rtt) in rtts.iter().enumerate() {
        cx.now += gap;
        cx.next_departure = if paced { cx.now + ms(1) } else { Instant::ZERO };
        hystart.on_rtt(&cx, *rtt, min_rtt, &mut window);
        if !window.in_slow_start() {
            assert_eq!(window.control().ssthresh / MSS, segments);
            return Some(count + 1);
        }
    }
    None
}

#[test]
fn hs_1_by_how_much_the_delay_must_grow() {
    for (min_rtt, threshold) in [(20, 4), (40, 5), (200, 16)] {
        assert_eq!(delay_threshold(ms(min_rtt)), ms(threshold));
    }
}

#[test]
fn delay_is_believed_after_eight_samples() {
    let rtts = [ms(46); 20];
    assert_eq!(left_after(ms(40), 100, ms(3), false, &rtts), Some(9));
    assert_eq!(left_after(ms(40), 100, ms(3), false, &[ms(45); 20]), None, "not more than the threshold");
    assert_eq!(left_after(ms(40), 15, ms(3), false, &rtts), None, "too few segments");
    let mut one_low = rtts;
    one_low[3] = ms(41);
    assert_eq!(left_after(ms(40), 100, ms(3), false, &one_low), None, "the least of the round counts");
}

#[test]
fn a_train_as_long_as_the_path_leaves() {
    let rtts = [ms(40); 100];
    assert_eq!(left_after(ms(40), 100, ms(1), false, &rtts), Some(21), "half of 40 ms exceeded");
    assert_eq!(left_after(ms(40), 100, ms(1), true, &rtts), Some(41), "the whole if paced");
    assert_eq!(left_after(ms(40), 100, ms(3), false, &rtts), None, "gaps break the train");
}

/// HyStart counts rounds even while the window is below the smallest window that it evaluates (Linux:
/// `hystart_update` resets the round first).
#[test]
fn rounds_pass_below_the_lowest_window() {
    let mut cx = context();
    let mut hystart = HyStart::new(&cx);
    let mut low = window(&cx, 10);
    (cx.snd_una, cx.snd_nxt) = (cx.snd_nxt + MSS, cx.snd_nxt + 20 * MSS);
    cx.now += ms(40);
    hystart.on_rtt(&cx, ms(40), ms(40), &mut low);
    assert_eq!((hystart.round_start, hystart.round_end), (cx.now, cx.snd_nxt));
    assert_eq!(hystart.samples, 0, "the round is not judged");
}

#[test]
fn acks_at_one_instant_neither_break_nor_stretch_a_train() {
    assert_eq!(left_after(ms(40), 100, Duration::ZERO, false, &[ms(40); 100]), None);
    let mut cx = context();
    cx.srtt = Some(Duration::from_nanos(1));
    let mut window = window(&cx, 100);
    let mut hystart = HyStart::new(&cx);
    for step in 0..=21 {
        for _ in 0..5 {
            hystart.on_rtt(&cx, ms(40), ms(40), &mut window);
        }
        assert_eq!(window.in_slow_start(), step <= 20, "at {step} ms");
        cx.now += ms(1);
    }
}

#[test]
fn lumps_lengthen_the_train_by_a_millisecond_at_most() {
    let mut cx = context();
    cx.srtt = Some(ms(100));
    assert_eq!(lump_delay(&cx, &window(&cx, 16)), ms(1));
    // At 10 Gbit/s and a pacing gain of 200 %, 256 KiB take 105 us to send.
    let delay = lump_delay(&cx, &window(&cx, 86_326)).as_nanos();
    assert!((104_000..106_000).contains(&delay), "{delay}");
    cx.srtt = None;
    assert_eq!(lump_delay(&cx, &window(&cx, 16)), Duration::ZERO);
}

#[test]
fn a_timeout_looks_again() {
    let mut cx = context();
    let mut window = window(&cx, 100);
    let mut hystart = HyStart::new(&cx);
    hystart.found = true;
    window.on_signal(&cx, Signal::Timeout { first: true }, |cwnd| cwnd / 2);
    cx.now += ms(100);
    hystart.restart(&cx);
    assert!(!hystart.found);
    assert_eq!(hystart.round_start, cx.now);
}
