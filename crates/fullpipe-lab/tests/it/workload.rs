//! Tests of slow applications: the limits that they cause, and the values that the sockets report.

use crate::rig::*;
use fullpipe_lab::scenario::Scenario;
use fullpipe_lab::workload::{Reading, Workload, Writing};
use fullpipe_tcp::SendLimit;
use fullpipe_tcp::buffers::Buffer;
use fullpipe_tcp::cc::Algorithm::{Bbr1, Cubic};
use fullpipe_units::{Bytes, Rate};

fn mbit(n: u64) -> Rate {
    Rate::from_bps(n * 1_000_000)
}

fn with(mut scenario: Scenario, writing: Writing, reading: Reading) -> Scenario {
    scenario.flows[0].workload = Workload { writing, reading, request: None };
    scenario
}

/// A flow whose writer is slower than the path gets the writer's rate, no data accumulates, and the sender
/// reports the application as its limit. The writer may write smoothly, or in bursts that fit into the
/// windows.
#[test]
fn a_paced_writer_gets_its_rate() {
    for cc in [Cubic, Bbr1] {
        for chunk in [2_500, 65_536] {
            let writing = Writing::Paced { rate: mbit(20), chunk: Bytes::new(chunk) };
            let scenario = with(link(cc, "100mbit", ms(40), 400, 20), writing, Reading::Greedy);
            let run = run(&scenario);
            assert_near(run.goodput(0, 5.0), 20e6, 0.005, &format!("{cc}, {chunk} B at a time"));
            let flow = &run.outcome.flows[0];
            assert_eq!(run.outcome.path.queue_drops, 0);
            if cc == Cubic {
                assert!(flow.share_second_half(SendLimit::App) > 0.99, "{:?}", flow.send_limit_second_half);
                assert!(run.rows_of(0, 5.0).all(|row| row.sender.notsent.get() <= chunk));
            } else {
                // BBR mistakes the writer's rate for the path's rate. BBR paces at the writer's rate, and
                // below that rate in its drain phases.
                assert!(flow.share_second_half(SendLimit::App) > 0.8, "{:?}", flow.send_limit_second_half);
            }
        }
    }
}

/// A flow whose writer is faster than the path gets the rate of the path: excess data waits in the
/// application, and the send buffer is full.
#[test]
fn a_writer_faster_than_the_path_is_not_the_limit() {
    let mut scenario =
        with(link(Cubic, "20mbit", ms(40), 70, 20), Writing::smooth(mbit(30)), Reading::Greedy);
    scenario.host.sndbuf = Buffer::Fixed(Bytes::from_mib(1));
    let run = run(&scenario);
    assert!(run.utilisation("20mbit", 5.0) > 0.95);
    assert!(run.outcome.flows[0].share_second_half(SendLimit::App) < 0.01);
}

/// A flow with a paced writer and a limited size completes half a round trip and an ACK after its last chunk.
#[test]
fn a_paced_writer_ends() {
    let mut scenario =
        with(link(Cubic, "100mbit", ms(40), 400, 20), Writing::smooth(mbit(8)), Reading::Greedy);
    scenario.flows[0].bytes = Some(Bytes::new(5_000_000));
    let outcome = run(&scenario).outcome;
    let finished = outcome.flows[0].finished.expect("finishes");
    assert_eq!(outcome.flows[0].bytes, Bytes::new(5_000_000));
    assert_near(finished.as_secs_f64(), 5.0 + 2.0 * 0.04, 0.01, "handshake, 5 s of data, a round trip");
}

/// A flow whose reader is slower than the path gets the reader's rate: the receive buffer is full, the window
/// opens only as far as the application reads, and the sender reports the receive window as its limit.
#[test]
fn a_paced_reader_fills_its_buffer_and_closes_the_window() {
    for cc in [Cubic, Bbr1] {
        let mut scenario =
            with(link(cc, "100mbit", ms(20), 400, 20), Writing::Greedy, Reading::smooth(mbit(8)));
        scenario.host.rcvbuf = Buffer::Fixed(Bytes::from_mib(1));
        let run = run(&scenario);
        let flow = &run.outcome.flows[0];
        assert_near(flow.goodput_second_half.as_bps() as f64, 8e6, 0.005, cc.name());
        let (rwnd, pacing) =
            (flow.share_second_half(SendLimit::Rwnd), flow.share_second_half(SendLimit::Pacing));
        // BBR mistakes the reader's rate for the path's rate, and paces within the window.
        let held = if cc == Cubic { rwnd } else { rwnd + pacing };
        assert!(held > 0.9 && rwnd > pacing, "{cc}: {:?}", flow.send_limit_second_half);
        let window = Bytes::from_mib(1).mul_div(160, 256).get() as f64;
        let unread = run.mean(5.0, |row| row.receiver.expect("both ends").unread.get() as f64);
        assert!(unread > 0.8 * window, "{cc}: {unread} B of {window} wait to be read");
        let rwnd = run.mean(5.0, |row| row.sender.rwnd.get() as f64);
        assert!(rwnd < 0.2 * window, "{cc}: a window of {rwnd} B");
        assert!(run.mean(5.0, |row| row.sender.notsent.get() as f64) > 0.0, "the sender has more");
    }
}

/// A reader that is faster than the path has no effect on the flow.
#[test]
fn a_reader_faster_than_the_path_is_not_the_limit() {
    let plain = link(Cubic, "20mbit", ms(40), 70, 10);
    let read = with(plain.clone(), Writing::Greedy, Reading::smooth(mbit(200)));
    assert_near(run(&read).goodput(0, 5.0), run(&plain).goodput(0, 5.0), 0.005, "goodput");
    assert!(run(&read).outcome.flows[0].share(SendLimit::Rwnd) < 0.01);
}

/// A transfer ends when the application has read the last byte, rather than when the last byte has been
/// acknowledged.
#[test]
fn goodput_is_what_was_read() {
    let mut scenario =
        with(link(Cubic, "100mbit", ms(20), 400, 20), Writing::Greedy, Reading::smooth(mbit(8)));
    scenario.flows[0].bytes = Some(Bytes::new(2_000_000));
    let outcome = run(&scenario).outcome;
    let flow = &outcome.flows[0];
    assert!(flow.finished.expect("finishes").as_secs_f64() < 1.0, "the buffer takes all of it");
    assert_near(flow.goodput.as_bps() as f64, 8e6, 0.03, "a handshake and half a round trip before");
}

/// The size of the writer's chunks determines the burst on the wire. At 20 Mbit/s, a chunk of 64 KiB is
/// written every 26 ms and crosses a link of 100 Mbit/s in 5.4 ms. A period of 10 ms thus contains between
/// half a chunk and one chunk, plus a small remainder of the previous chunk. With a smooth writer, the
/// periods differ by the chunk of one millisecond.
#[test]
fn a_burst_of_the_writer_is_seen_on_the_wire() {
    let wire = |writing| {
        let mut scenario = with(link(Cubic, "100mbit", ms(40), 400, 10), writing, Reading::Greedy);
        scenario.sample_every = ms(10);
        run(&scenario).outcome.flows[0].wire_second_half
    };
    let bursts = wire(Writing::Paced { rate: mbit(20), chunk: Bytes::from_kib(64) });
    let per_period = bursts.peak.as_bps() / 800;
    assert!((32_768..65_536 + MSS).contains(&per_period), "{per_period} B");
    assert_near(bursts.mean.as_bps() as f64, 20e6, 0.01, "the mean");
    let smooth = wire(Writing::smooth(mbit(20))).burst().expect("data arrives");
    assert!(smooth < 1.0 + 2.0 * 2_500.0 / 25_000.0, "{smooth}");
}
