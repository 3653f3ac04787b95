//! Tests of the retransmission timeout for peers that acknowledge promptly, and for peers that do not.

use super::*;

/// Returns a client without pacing whose timeout has a lower floor if the peer is prompt.
fn prompt_config() -> Config {
    Config { tunables: Tunables { rto_prompt: Some(ms(100)), ..Tunables::LINUX }, ..config(Algorithm::Reno) }
}

/// A client that sends one segment at a time. The peer acknowledges the segments after a delay.
struct Requests {
    script: Script,
    acked: u64,
}

impl Requests {
    fn new(config: Config) -> Self {
        Self { script: Script::client(config), acked: 0 }
    }

    fn with(config: Config, delays: &[u64]) -> Self {
        let mut requests = Self::new(config);
        delays.iter().for_each(|&delay| requests.exchange(delay));
        requests
    }

    fn at(&self) -> u64 {
        self.script.elapsed().as_millis()
    }

    /// Sends one segment, which the peer acknowledges `delay` ms after its arrival, even if a retransmission has arrived
    /// before. The ACK echoes the timestamp of the first transmission.
    fn exchange(&mut self, delay: u64) {
        let sent_at = self.script.now;
        let script = &mut self.script;
        script.write(MSS);
        script.run_to(sent_at + ms(RTT + delay));
        self.acknowledge(sent_at, MSS);
    }

    /// Acknowledges `len` more octets, and echoes the timestamp of a segment that was sent at `sent_at`.
    fn acknowledge(&mut self, sent_at: Instant, len: u64) {
        self.acked += len;
        let script = &mut self.script;
        let mut ack = script.segment(0, 0, self.acked);
        ack.timestamps = Some(Timestamps { value: clock(script.now), echo: clock(sent_at) });
        script.inject(&ack);
    }

    /// Sends `count` pairs of segments. The peer acknowledges the two segments of a pair together.
    fn pairs(&mut self, count: u64) {
        for _ in 0..count {
            let sent_at = self.script.now;
            self.script.write(2 * MSS);
            self.script.run_to(sent_at + ms(RTT));
            self.acknowledge(sent_at, 2 * MSS);
        }
    }

    /// Returns the margin of the timeout over SRTT in ms.
    fn slack(&self) -> u64 {
        let rtt = &self.script.conn.sender.rtt;
        (rtt.rto() - rtt.srtt().expect("a sample")).as_micros() / 1_000
    }
}

/// The last segment and its probe are lost. If the peer has been prompt, the probe and the timeout come 100 ms earlier.
/// Without ACKs of single segments, and with Linux's rule, they do not.
#[test]
fn the_end_of_a_response_is_repaired_earlier() {
    let linux = config(Algorithm::Reno);
    for (config, exchanges, expected) in [
        (prompt_config(), 30, [200, 400, 800]),
        (linux, 30, [300, 600, 1200]),
        (prompt_config(), 3, [300, 600, 1200]),
    ] {
        let mut requests = Requests::with(config, &vec![0; exchanges]);
        requests.script.clear();
        let sent_at = requests.at();
        requests.script.write(MSS);
        requests.script.run(sent_at + 1_300);
        let times: Vec<u64> = requests.script.segments.iter().map(|(at, _)| at - sent_at).collect();
        // The integer decay of RTTVAR stops a few nanoseconds above its floor.
        assert_eq!(times, [&[0][..], &expected].concat(), "{exchanges} exchanges");
    }
}

/// A peer that delays ACKs by 100 ms keeps the floor of 200 ms, even if it acknowledges some segments at once. ACKs of two
/// segments, and of parts of a segment, show nothing.
#[test]
fn other_peers_keep_the_floor() {
    assert_eq!(Requests::with(prompt_config(), &[0; 30]).slack(), 100, "prompt");
    assert_eq!(Requests::with(prompt_config(), &[50; 60]).slack(), 100, "still prompt");
    for delays in
        [&[100; 30][..], &[&[100][..], &[0; 60]].concat(), &[&[0; 60][..], &[100], &[0; 60]].concat()]
    {
        assert!(Requests::with(prompt_config(), delays).slack() >= 200, "{delays:?}");
    }
    let mut requests = Requests::new(prompt_config());
    requests.pairs(20);
    assert_eq!(requests.slack(), 200, "pairs");
    // Two segments, and eight parts of a third one, are three single segments.
    let mut requests = Requests::with(prompt_config(), &[0; 2]);
    let sent_at = requests.script.now;
    requests.script.write(MSS);
    requests.script.run_to(sent_at + ms(RTT));
    (0..8).for_each(|_| requests.acknowledge(sent_at, MSS / 8));
    requests.pairs(20);
    assert_eq!(requests.slack(), 200, "parts");
    requests.exchange(0);
    assert_eq!(requests.slack(), 100, "the fourth segment");
}

/// A peer without SACK gets no tail loss probe before the timeout, so its floor stays 200 ms.
#[test]
fn a_peer_without_sack_keeps_the_floor() {
    assert_eq!(Requests::with(Config { sack: false, ..prompt_config() }, &[0; 30]).slack(), 200);
}

/// A peer that begins to delay its ACKs causes one unnecessary transmission: the probe, and with a delay of 350 ms also a
/// spurious timeout. From then on, the timeout has the floor of 200 ms, even if the peer is prompt again.
#[test]
fn a_peer_that_becomes_late_is_late_only_once() {
    for (delay, probes, timeouts) in [(90, 0, 0), (120, 1, 0), (180, 1, 0), (350, 1, 1)] {
        let mut requests = Requests::with(prompt_config(), &[0; 30]);
        assert_eq!(requests.slack(), 100);
        (0..40).for_each(|_| requests.exchange(delay));
        let stats = requests.script.conn.stats();
        assert_eq!((stats.probes, stats.timeouts), (probes, timeouts), "{delay} ms");
        (0..200).for_each(|_| requests.exchange(0));
        assert_eq!(requests.slack(), 200, "{delay} ms");
        assert_eq!(requests.script.conn.stats().timeouts, timeouts, "{delay} ms");
    }
}

/// If a tail loss probe arrives before the delayed ACK has left, the D-SACK of the probe shows that the peer is late. The
/// next segments get no probe.
#[test]
fn an_unnecessary_probe_shows_a_late_peer() {
    let mut requests = Requests::with(prompt_config(), &[0; 30]);
    let (sent_at, start) = (requests.at(), requests.acked);
    requests.script.write(MSS);
    requests.script.run(sent_at + 201);
    assert_eq!(requests.script.conn.stats().probes, 1);
    requests.acked += MSS;
    requests.script.ack(sent_at + 300, requests.acked, &[(start, requests.acked)]);
    assert_eq!(requests.slack(), 200);
    (0..20).for_each(|_| requests.exchange(95));
    assert_eq!((requests.script.conn.stats().probes, requests.script.conn.stats().timeouts), (1, 0));
}

/// Surge has the lower floor by default, and a setting that is not lower switches it off. Other controls have it only if it
/// is set.
#[test]
fn surge_expects_prompt_peers() {
    let with = |cc, rto_prompt| Config { tunables: Tunables { rto_prompt, ..Tunables::LINUX }, ..config(cc) };
    for (config, expected) in [
        (with(Algorithm::Surge, None), 100),
        (with(Algorithm::Surge, Some(ms(200))), 200),
        (with(Algorithm::Surge, Some(ms(150))), 150),
        (with(Algorithm::Bbr1, None), 200),
        (with(Algorithm::Bbr1, Some(ms(100))), 100),
    ] {
        let cc = config.cc;
        assert_eq!(Requests::with(config, &[0; 40]).slack(), expected, "{cc}");
    }
}
