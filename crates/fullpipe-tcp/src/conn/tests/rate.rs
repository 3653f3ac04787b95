//! Tests of the delivery-rate samples of a connection.

use super::*;

/// If the application does not fill the window, the connection marks the samples of all data as
/// application-limited until the flight is delivered (DR-6).
#[test]
fn dr_6_application_limited() {
    let mut script = Script::warm(Algorithm::Reno, 40);
    let una = script.conn.sender.snd_una;
    let at = script.elapsed().as_millis();
    script.write(20 * MSS);
    // At the next write, the window has room and the send queue is empty.
    script.write(5 * MSS);
    let snapshot = |script: &Script, i: u64| {
        script
            .conn
            .sender
            .recovery
            .board
            .get(script.conn.sender.recovery.board.base() + i)
            .expect("outstanding")
            .snapshot
    };
    assert!(snapshot(&script, 20).app_limited);
    // After a full window of data has been delivered, samples are no longer application-limited.
    script.write(100 * MSS);
    for i in 1..=26 {
        script.ack(at + 100, una + i * MSS, &[]);
    }
    let newest = script.conn.sender.recovery.board.newest().expect("outstanding");
    assert!(!newest.snapshot.app_limited);
}

/// A write does not mark samples application-limited if the window is full (DR-7).
#[test]
fn dr_7_at_the_edge_of_the_window() {
    let mut script = Script::client(config(Algorithm::Reno));
    script.write(10 * MSS);
    script.write(10 * MSS);
    assert_eq!(script.conn.sender.recovery.board.inflight(), 10 * MSS);
    script.ack(100, MSS, &[]);
    assert!(!script.conn.sender.recovery.board.newest().expect("outstanding").snapshot.app_limited);
}

/// A full receive window does not mark samples application-limited (DR-8).
#[test]
fn dr_8_window_limited_is_not_application_limited() {
    let mut script = Script::client(config(Algorithm::Reno));
    script.write(50 * MSS);
    // The congestion window is ten segments, and from the first ACK on, the peer has room for only four
    // segments.
    script.window = 6;
    for i in 1..=20 {
        script.ack(100 + i, i * MSS, &[]);
    }
    let sender = &script.conn.sender;
    assert!(sender.window_left() < MSS && sender.unsent() > MSS, "the receive window is full");
    assert!(
        sender.recovery.board.inflight() + MSS < sender.effective_cwnd(),
        "the congestion window has room"
    );
    assert!(!sender.rate.is_app_limited());
    assert!(!sender.recovery.board.newest().expect("outstanding").snapshot.app_limited);
}

/// One ACK of ten segments yields one rate sample, which starts at the last of the segments (DR-9).
#[test]
fn dr_9_a_stretch_ack() {
    let mut script = Script::client(config(Algorithm::Bbr1));
    script.write(10 * MSS);
    script.ack(100, 10 * MSS, &[]);
    assert_eq!(script.conn.stats().acks, 1);
    assert_eq!(script.conn.snapshot().delivered, 10 * MSS);
    // Ten segments in 100 ms correspond to a rate of 1.158 Mbit/s.
    let (name, bandwidth) = script.conn.sender.decision.status().values[0];
    assert_eq!((name, bandwidth.round()), ("bw", (80 * MSS) as f64 / 0.1));
}

/// In the RFC profile, the application-limited check runs on a write, on an ACK, and when a timer fires, so
/// the tail loss probe yields an application-limited sample. In the Linux profile, the check runs only on a
/// write (DR-12).
#[test]
fn dr_12_a_timer_asks_too() {
    for (tunables, asks) in [(Tunables::LINUX, false), (Tunables::RFC, true)] {
        a_timer_asks(tunables, asks);
    }
}

fn a_timer_asks(tunables: Tunables, asks: bool) {
    let mut script = Script::warm_with(Config { tunables, ..config(Algorithm::Reno) }, 20);
    let (start, una) = (script.elapsed().as_millis(), script.conn.sender.snd_una);
    script.write(20 * MSS);
    // The window was full before this ACK. After the ACK, the window has room, but there is no data to fill
    // it.
    script.ack(start + 100, una + 10 * MSS, &[]);
    assert!(!script.conn.sender.rate.is_app_limited());
    script.run(start + 310);
    assert_eq!(script.conn.stats().probes, 1);
    assert_eq!(script.conn.sender.rate.is_app_limited(), asks);
    let probe = script.conn.sender.recovery.board.newest().expect("the probe");
    assert_eq!(probe.snapshot.app_limited, asks);
}

/// Data that is SACKed and later acknowledged is counted as delivered only once (DR-10).
#[test]
fn dr_10_counted_once() {
    let mut script = Script::client(config(Algorithm::Reno));
    script.write(10 * MSS);
    script.ack(100, 0, &[(MSS, 3 * MSS)]);
    script.ack(101, 0, &[(MSS, 3 * MSS)]);
    assert_eq!(script.conn.snapshot().delivered, 2 * MSS);
    script.ack(102, 5 * MSS, &[]);
    assert_eq!(script.conn.snapshot().delivered, 5 * MSS);
}

/// The rate sample of a retransmission starts when the retransmission leaves (DR-11).
#[test]
fn dr_11_a_retransmission_has_its_own_snapshot() {
    let mut script = Script::client(config(Algorithm::Reno));
    script.write(10 * MSS);
    script.ack(100, 0, &[(MSS, 4 * MSS)]);
    let resent = script.conn.sender.recovery.board.oldest().expect("outstanding");
    assert_eq!((resent.transmissions, resent.snapshot.delivered), (2, 3 * MSS));
    assert_eq!(resent.sent_at, START + ms(100));
}
