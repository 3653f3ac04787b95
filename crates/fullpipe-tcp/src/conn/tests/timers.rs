//! Tests of the timers that run when the peer does not reply: probe, timeout, back-off and closed window. The
//! engine has no jiffies, so its times are exact; Linux's timers are a few milliseconds late.

use super::*;

/// One segment remains unacknowledged (G-3, RTO-4, TLP-1). To allow for a delayed ACK, the probe timeout is 2
/// SRTT + 200 ms. The retransmission timeout of SRTT + 200 ms is shorter, so the probe leaves when the
/// retransmission timeout is due, which then restarts. Linux sends the probe after 311-332 ms, and then
/// retransmits at intervals of 320, 640 and 1248 ms.
#[test]
fn g_3_one_segment_and_silence() {
    let mut script = Script::client(config(Algorithm::Reno));
    script.write(MSS);
    script.run(2600);
    script.sent(&[
        "0 ms data 0..1448",
        "300 ms data 0..1448",
        "600 ms data 0..1448",
        "1200 ms data 0..1448",
        "2400 ms data 0..1448",
    ]);
    let stats = script.conn.stats();
    assert_eq!((stats.probes, stats.timeouts), (1, 3));
}

/// Five segments remain unacknowledged (G-3, TLP-1). The last segment is sent as a probe after 2 SRTT + 2 ms,
/// and the first segment is retransmitted after the timeout. Linux sends the probe after 205.7 ms, and then
/// retransmits at intervals of 324, 640 and 1248 ms.
#[test]
fn tlp_1_five_segments_and_silence() {
    for cc in [Algorithm::Reno, Algorithm::Cubic, Algorithm::Bbr1] {
        let mut script = Script::client(config(cc));
        script.write(5 * MSS);
        script.run(2400);
        let flight =
            ["0 ms data 0..1448", "0 ms data 1448..2896", "0 ms data 2896..4344", "0 ms data 4344..5792"];
        let rest = [
            "0 ms data 5792..7240",
            "202 ms data 5792..7240",
            "502 ms data 0..1448",
            "1102 ms data 0..1448",
            "2302 ms data 0..1448",
        ];
        script.sent(&[&flight[..], &rest[..]].concat());
    }
}

/// A tail loss probe carries new data if any is available, because new data may reveal the loss and is useful
/// in any case.
#[test]
fn a_probe_prefers_new_data() {
    let mut script = Script::client(config(Algorithm::Reno));
    script.write(11 * MSS);
    script.clear();
    script.run(300);
    script.sent(&["202 ms data 14480..15928"]);
    assert_eq!(script.conn.stats().retransmits, 0);
}

/// No probe is sent while the peer holds data above a hole (RFC 8985 section 7; TLP-4). At most one probe is
/// sent per flight (RFC 8985 section 7; TLP-5).
#[test]
fn tlp_4_no_probe_with_sacks_held() {
    let mut script = Script::client(config(Algorithm::Reno));
    script.write(5 * MSS);
    script.clear();
    script.ack(100, 0, &[(MSS, 2 * MSS)]);
    // RACK waits a quarter of the RTT and then retransmits the first segment. The other segments are
    // retransmitted only after the timeout.
    script.run(420);
    script.sent(&["125 ms data 0..1448"]);
    assert_eq!(script.conn.stats().probes, 0);
}

/// At a steady RTT of 100 ms, the timeout is SRTT + 200 ms, not max(200 ms, ...) (RTO-2).
#[test]
fn rto_2_slack_of_200_ms() {
    let script = Script::warm(Algorithm::Reno, 160);
    assert_eq!(script.conn.sender.recovery.rto.timeout(&script.conn.sender.rtt).as_millis(), 300);
}

/// A timeout sets the window to one segment and `ssthresh` to half of the previous window, and marks all
/// records older than a round trip lost (RTO-7). Recovery then proceeds in slow start.
#[test]
fn rto_7_loss_window() {
    let mut script = Script::warm(Algorithm::Reno, 20);
    let start = script.elapsed().as_millis();
    let base = script.conn.sender.snd_una;
    script.write(20 * MSS);
    assert_eq!(script.data_segments(), 20);
    // The probe leaves at 202 ms, and the timeout expires 300 ms after the probe.
    script.run(start + 502);
    assert_eq!(script.windows(), (1, 10));
    assert_eq!(script.data_segments(), 2);
    assert_eq!(
        script.conn.sender.recovery.board.lost_pending(),
        19 * MSS,
        "all but the first, which is under way again"
    );
    script.ack(start + 600, base + MSS, &[]);
    assert_eq!(script.windows(), (2, 10));
    script.clear();
    script.ack(start + 700, base + 3 * MSS, &[]);
    assert_eq!(script.windows(), (4, 10));
}

/// With profile `rfc` and an RTT of 100 ms, the timeout is one second (RFC 6298 section 2.4; RTO-1). The
/// probe timeout does not change.
#[test]
fn rto_1_a_second_at_least() {
    let mut script = Script::client(Config { tunables: Tunables::RFC, ..config(Algorithm::Reno) });
    script.write(5 * MSS);
    script.clear();
    script.run(4_300);
    script.sent(&["202 ms data 5792..7240", "1202 ms data 0..1448", "3202 ms data 0..1448"]);
}

/// The timeout doubles up to 120 s (RTO-3). After fifteen unanswered expiries, the connection gives up. This
/// takes 924.6 s with an initial timeout of 200 ms (TCP-8). In this test, the initial timeout is 300 ms,
/// after a probe.
#[test]
fn rto_3_backs_off_and_gives_up() {
    let mut script = Script::client(config(Algorithm::Reno));
    script.write(MSS);
    script.run(2_000_000);
    let times: Vec<u64> = script.segments.iter().map(|(at, _)| *at).collect();
    let gaps: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let mut expected: Vec<u64> = vec![300];
    expected.extend((0..15).map(|n| (300 << n).min(120_000)));
    assert_eq!(gaps, expected);
    assert_eq!(script.conn.state(), State::Closed);
    assert_eq!(script.events(), [Event::Aborted]);
}

/// With timestamps, an ACK of the retransmission ends the back-off at once (counterpart of RTO-5).
#[test]
fn progress_ends_the_back_off() {
    let mut script = Script::client(config(Algorithm::Reno));
    script.write(MSS);
    script.run(1250);
    script.ack(1300, MSS, &[]);
    assert_eq!(script.conn.sender.recovery.rto.backoff(), 0);
    assert!(script.conn.poll_timeout().is_never(), "nothing is outstanding");
}

/// ACKs are lost for several seconds (Karn's rule, RFC 6298 section 3; RTO-5). Then one ACK covers a
/// retransmission, and a segment that was sent once, several seconds before. This ACK does not indicate an
/// RTT of seconds; the peer's timestamp echo gives the real RTT.
#[test]
fn rto_5_an_ambiguous_ack_is_not_a_long_rtt() {
    let mut script = Script::client(config(Algorithm::Reno));
    script.write(3 * MSS);
    script.run(9_000);
    script.clear();
    let mut late = script.segment(0, 0, 3 * MSS);
    late.timestamps = Some(Timestamps { value: clock(script.now), echo: clock(script.now) - RTT as u32 });
    script.inject(&late);
    let srtt = script.conn.snapshot().srtt.expect("measured");
    assert!(srtt <= ms(101), "{srtt}");
}

/// If the peer acknowledges nothing, the sender sends one segment per timeout, regardless of the earlier
/// window (INV-4, INV-6).
#[test]
fn inv_6_total_loss_ends_in_silence() {
    for cc in [Algorithm::Reno, Algorithm::Cubic, Algorithm::Bbr1] {
        let mut script = Script::warm(cc, 80);
        script.write(1000 * MSS);
        script.clear();
        let start = script.elapsed().as_millis();
        script.run(start + 60_000);
        let after: Vec<_> = script.segments.iter().filter(|(at, _)| *at > start + 500).collect();
        assert!(after.len() <= 9, "{} segments of {cc:?} in 60 s of silence", after.len());
        for pair in after.windows(2) {
            assert!(pair[1].0 - pair[0].0 >= 300, "{cc:?}: two within {} ms", pair[1].0 - pair[0].0);
        }
    }
}

/// Creates a script whose simulated peer acknowledges ten segments and closes its window at 100 ms.
fn closed_window() -> Script {
    let mut script = Script::client(config(Algorithm::Reno));
    script.write(20 * MSS);
    script.clear();
    script.window = 0;
    script.ack(100, 10 * MSS, &[]);
    script
}

/// The first probe leaves after one RTO, and then the interval doubles (RFC 9293 section 3.8.6.1; ZWP-1).
/// Probes have no payload, and their sequence number is one octet below `una`. With an RTO of 304 ms, Linux
/// sends them after 309, 949, 2197, 4821 and 9941 ms.
#[test]
fn zwp_1_probe_times() {
    let mut script = closed_window();
    script.run(10_000);
    script.sent(&[
        "400 ms window probe 14479",
        "1000 ms window probe 14479",
        "2200 ms window probe 14479",
        "4600 ms window probe 14479",
        "9400 ms window probe 14479",
    ]);
    assert_eq!(script.conn.stats().timeouts, 0);
}

/// As long as the peer answers the probes, the connection continues to send them at intervals of at most 120
/// s (RFC 9293 section 3.8.6.1; ZWP-2). After fifteen unanswered probes, the connection gives up.
#[test]
fn zwp_2_patience_while_answered() {
    let mut script = closed_window();
    let mut answered = 0;
    while answered < 100 {
        let next = script.conn.poll_timeout();
        script.run_to(next);
        assert_eq!(script.segments.len(), 1);
        script.clear();
        let answer = script.segment(0, 0, 10 * MSS);
        script.inject(&answer);
        answered += 1;
    }
    assert_eq!(script.conn.state(), State::Established);
    assert!(script.conn.poll_timeout().saturating_since(script.now) <= Duration::from_secs(120));

    let mut script = closed_window();
    script.run(4_000_000);
    assert_eq!(script.segments.len(), 15);
    assert_eq!(script.conn.state(), State::Closed);
}

/// The reply to the next probe replaces a lost window update (RFC 9293 section 3.8.6.1; ZWP-3).
#[test]
fn zwp_3_a_lost_window_update() {
    let mut script = closed_window();
    script.run(450);
    script.clear();
    script.window = 65_535;
    script.ack(460, 10 * MSS, &[]);
    assert_eq!(script.data_segments(), 10);
}

/// The receiving side answers a probe at once, even if no data was ever received (RFC 9293 section 3.8.6.1;
/// ZWP-3).
#[test]
fn zwp_3_a_window_probe_is_answered() {
    for received in [0, 5] {
        let mut script = Script::client(config(Algorithm::Reno));
        for i in 0..received {
            script.data(10, i * MSS, MSS);
        }
        script.run(1000);
        script.clear();
        let mut probe = script.segment(received * MSS, 0, 0);
        probe.seq = PEER_ISS.plus(received * MSS);
        script.inject(&probe);
        script.sent(&[&format!("1000 ms ack {}", received * MSS)]);
    }
}

/// When the peer's window reopens, the congestion window is unchanged, the back-off ends, and nothing is
/// marked lost (ZWP-4).
#[test]
fn zwp_4_reopening_costs_nothing() {
    let mut script = closed_window();
    let windows = script.windows();
    script.run(5_000);
    script.clear();
    script.window = 65_535;
    script.ack(5_100, 10 * MSS, &[]);
    assert_eq!(script.data_segments(), 10);
    assert_eq!(script.windows(), windows);
    assert_eq!(script.conn.sender.recovery.rto.backoff(), 0);
    let snapshot = script.conn.snapshot();
    assert_eq!((snapshot.lost, snapshot.stats.retransmits), (0, 0));
}

/// If the peer shrinks its window, the sender sends no new data beyond the window, but still retransmits lost
/// data there (RFC 9293 section 3.8.6; TCP-7).
#[test]
fn tcp_7_a_shrunk_window() {
    let mut script = Script::client(config(Algorithm::Reno));
    script.write(20 * MSS);
    script.clear();
    // The peer has accepted two segments and has room for two more (3 KiB), although eight are in flight.
    // Three of the eight arrive.
    script.window = 3;
    script.ack(100, 2 * MSS, &[(3 * MSS, 6 * MSS)]);
    script.sent(&["100 ms data 2896..4344"]);
    script.run(150);
    assert_eq!(script.conn.sender.snd_nxt(), 10 * MSS);
    script.window = 65_535;
    script.ack(200, 10 * MSS, &[]);
    assert!(script.data_segments() > 0 && script.conn.sender.snd_nxt() > 10 * MSS);
}

/// An idle connection sends nothing, and no timer runs (RFC 9293 section 3.8.4; KA-1).
#[test]
fn ka_1_silence_when_idle() {
    let mut script = Script::client(config(Algorithm::Reno));
    script.write(MSS);
    script.ack(100, MSS, &[]);
    script.clear();
    assert!(script.conn.poll_timeout().is_never());
    script.run(10_000_000);
    script.sent(&[]);
}
