//! Smoothed RTT and retransmission timeout (RFC 6298, in Linux's form).
//!
//! Like the kernel, the estimator applies the floor to the variance term, `RTO = SRTT + max(200 ms, 4
//! RTTVAR)`, instead of `max(200 ms, SRTT + 4 RTTVAR)`. A long path therefore keeps 200 ms of slack above its
//! RTT. If the RTT drops far, the deviation changes with an eighth of the usual gain, so that a draining
//! queue does not look like jitter. The variance decays only once per round trip. [`RtoRule`] also offers the
//! RFC's form. With [`Tunables::rto_prompt`](crate::Tunables::rto_prompt), the floor is lower for a peer that
//! acknowledges promptly ([`AckDelay`]).

use fullpipe_units::{Duration, Instant};

use super::ack_delay::AckDelay;
use crate::RtoRule;

/// Largest permitted value of [`Tunables::rto_max`](crate::Tunables::rto_max), the upper bound of the
/// retransmission timeout including back-off.
pub const RTO_MAX: Duration = Duration::from_secs(120);
/// Retransmission timeout before the first RTT sample (RFC 6298 section 2.1).
pub const RTO_INITIAL: Duration = Duration::from_secs(1);
/// Age at which the minimum RTT expires and is replaced by a later, larger minimum.
const MIN_RTT_WINDOW: Duration = Duration::from_secs(300);

/// Estimator of SRTT, RTTVAR, the retransmission timeout and the windowed minimum RTT.
#[derive(Clone, Debug)]
pub struct RttEstimator {
    rule: RtoRule,
    /// Minimum of `var4` with [`RtoRule::Slack`], in nanoseconds.
    floor: u64,
    /// Minimum of `var4` in the retransmission timeout unless the peer acknowledges promptly, in nanoseconds. Zero if
    /// `floor` applies to all peers.
    floor_unless_prompt: u64,
    ack_delay: AckDelay,
    srtt: Option<Duration>,
    /// Mean deviation of the RTT, multiplied by four.
    mdev4: u64,
    /// Largest `mdev4` of the current round trip.
    mdev4_max: u64,
    /// Four times RTTVAR; with [`RtoRule::Slack`], the floor is included.
    var4: u64,
    round_end: u64,
    min_rtt: Option<(Duration, Instant)>,
}

impl RttEstimator {
    /// Returns an RTT estimator that computes the retransmission timeout by `rule`. If the peer acknowledges promptly,
    /// `prompt` replaces the floor of [`RtoRule::Slack`], provided that it is lower.
    pub fn new(rule: RtoRule, prompt: Option<Duration>) -> Self {
        let (floor, floor_unless_prompt) = match (rule, prompt) {
            (RtoRule::Slack { floor }, Some(prompt)) if prompt < floor => (prompt, floor),
            (RtoRule::Slack { floor }, _) => (floor, Duration::ZERO),
            (RtoRule::Rfc6298 { .. }, _) => (Duration::ZERO, Duration::ZERO),
        };
        Self {
            rule,
            floor: floor.as_nanos(),
            floor_unless_prompt: floor_unless_prompt.as_nanos(),
            ack_delay: AckDelay::default(),
            srtt: None,
            mdev4: 0,
            mdev4_max: 0,
            var4: 0,
            round_end: 0,
            min_rtt: None,
        }
    }

    /// Records an RTT sample for the retransmission timeout: the RTT of the *oldest* segment that an ACK
    /// delivered, including the peer's ACK delay.
    #[inline]
    pub fn on_sample(&mut self, rtt: Duration, snd_una: u64, snd_nxt: u64) {
        let floor = match self.rule {
            RtoRule::Slack { .. } => self.floor,
            RtoRule::Rfc6298 { .. } => return self.on_plain_sample(rtt),
        };
        let m = rtt.as_nanos().max(1);
        let Some(srtt) = self.srtt else {
            self.srtt = Some(rtt);
            self.mdev4 = m * 2;
            self.var4 = self.mdev4.max(floor);
            self.mdev4_max = self.var4;
            self.round_end = snd_nxt;
            return;
        };
        let srtt = srtt.as_nanos();
        let deviation = m.abs_diff(srtt);
        // mdev += (|err| - mdev) / 4, stored times four. If the RTT falls by more than mdev, the gain is an
        // eighth of the usual gain.
        let mdev = self.mdev4 / 4;
        self.mdev4 = if m < srtt && deviation > mdev {
            self.mdev4 + (deviation - mdev) / 8
        } else {
            self.mdev4 - mdev + deviation
        };
        self.srtt =
            Some(Duration::from_nanos(if m >= srtt { srtt + deviation / 8 } else { srtt - deviation / 8 }));
        if self.mdev4 > self.mdev4_max {
            self.mdev4_max = self.mdev4;
            self.var4 = self.var4.max(self.mdev4_max);
        }
        if snd_una > self.round_end {
            if self.mdev4_max < self.var4 {
                self.var4 -= (self.var4 - self.mdev4_max) / 4;
            }
            self.round_end = snd_nxt;
            self.mdev4_max = floor;
        }
    }

    /// Records the ACK delay that an RTT sample shows. Must follow [`Self::on_sample`] and [`Self::on_min_sample`] for
    /// the same ACK. `single` indicates whether the ACK acknowledged one segment that was sent once, while nothing was
    /// missing.
    #[inline(always)]
    pub fn on_ack_delay(&mut self, rtt: Duration, single: bool) {
        if self.floor_unless_prompt > 0
            && let Some(min_rtt) = self.min_rtt()
        {
            self.ack_delay.on_ack(rtt.saturating_sub(min_rtt), single);
        }
    }

    /// Applies the floor for late peers until the connection ends, for example because an unnecessary retransmission has
    /// shown that an ACK was late.
    pub fn expect_late_acks(&mut self) {
        self.ack_delay.expect_late_acks();
    }

    /// Returns four times RTTVAR, with the floor that applies to this peer.
    fn slack(&self) -> u64 {
        if self.ack_delay.is_prompt() { self.var4 } else { self.var4.max(self.floor_unless_prompt) }
    }

    /// Records an RTT sample by the rules of RFC 6298 section 2.
    #[inline(never)]
    fn on_plain_sample(&mut self, rtt: Duration) {
        let r = rtt.as_nanos().max(1);
        match self.srtt.map(Duration::as_nanos) {
            None => {
                self.srtt = Some(rtt);
                self.var4 = 2 * r;
            }
            Some(srtt) => {
                // RTTVAR := 3/4 RTTVAR + 1/4 |SRTT - R|, stored times four. SRTT is the value before this
                // sample.
                self.var4 = self.var4 - self.var4 / 4 + r.abs_diff(srtt);
                self.srtt = Some(Duration::from_nanos(srtt - srtt / 8 + r / 8));
            }
        }
    }

    /// Records an RTT sample for the minimum RTT: the RTT of the *newest* segment that an ACK delivered.
    pub fn on_min_sample(&mut self, rtt: Duration, now: Instant) {
        match self.min_rtt {
            Some((min, at)) if rtt > min && now.saturating_since(at) <= MIN_RTT_WINDOW => {}
            _ => self.min_rtt = Some((rtt, now)),
        }
    }

    /// Returns SRTT, or `None` before the first RTT sample.
    pub fn srtt(&self) -> Option<Duration> {
        self.srtt
    }

    /// Returns RTTVAR; with [`RtoRule::Slack`], the floor is included.
    pub fn rttvar(&self) -> Duration {
        Duration::from_nanos(self.slack() / 4)
    }

    /// Returns four times the mean deviation of the RTT, excluding the floor.
    pub fn deviation4(&self) -> Duration {
        Duration::from_nanos(match self.rule {
            RtoRule::Slack { .. } => self.mdev4,
            RtoRule::Rfc6298 { .. } => self.var4,
        })
    }

    /// Returns the smallest RTT of the last five minutes.
    pub fn min_rtt(&self) -> Option<Duration> {
        self.min_rtt.map(|(rtt, _)| rtt)
    }

    /// Returns the retransmission timeout, excluding back-off.
    pub fn rto(&self) -> Duration {
        match self.srtt {
            None => RTO_INITIAL,
            Some(srtt) => {
                let slack = Duration::from_nanos(self.slack());
                let rto = match self.rule {
                    RtoRule::Slack { .. } => srtt + slack,
                    RtoRule::Rfc6298 { floor, granularity } => (srtt + slack.max(granularity)).max(floor),
                };
                rto.min(RTO_MAX)
            }
        }
    }
}

impl Default for RttEstimator {
    fn default() -> Self {
        Self::new(RtoRule::default(), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn feed(samples: &[u64]) -> RttEstimator {
        let mut estimator = RttEstimator::default();
        for (i, &ms) in samples.iter().enumerate() {
            // The test records one sample per round trip.
            estimator.on_sample(MS(ms), 10 * i as u64 + 5, 10 * (i as u64 + 1));
        }
        estimator
    }

    /// A steady RTT of 100 ms gives a retransmission timeout of 300 ms, not 200 ms (RTO-2).
    #[test]
    fn steady_rtt_keeps_200_ms_of_slack() {
        // Values are compared in whole microseconds, because the integer decay stops a few nanoseconds above
        // the floor.
        assert_eq!(feed(&[100; 50]).rto().as_micros(), 300_000);
        assert_eq!(feed(&[210; 100]).rto().as_micros(), 410_000);
        assert_eq!(feed(&[]).rto(), RTO_INITIAL);
    }

    /// With a floor of 50 ms, the timeout falls to 50 ms above a steady RTT. The mean deviation has no floor,
    /// and falls below any bound.
    #[test]
    fn a_lower_floor_leaves_less_slack() {
        let mut estimator = RttEstimator::new(RtoRule::Slack { floor: MS(50) }, None);
        estimator.on_sample(MS(100), 5, 10);
        assert_eq!((estimator.rto(), estimator.deviation4()), (MS(300), MS(200)));
        for round in 1..100 {
            estimator.on_sample(MS(100), 10 * round + 5, 10 * (round + 1));
        }
        assert_eq!(estimator.rto().as_micros(), 150_000);
        assert!(estimator.deviation4() < MS(1), "{}", estimator.deviation4());
    }

    /// Returns an estimator with floors of 200 and 100 ms, after a handshake and `samples` RTTs in milliseconds, each
    /// from an ACK of a single segment.
    fn with_prompt_floor(samples: &[u64]) -> RttEstimator {
        let mut estimator = RttEstimator::new(RtoRule::Slack { floor: MS(200) }, Some(MS(100)));
        estimator.on_sample(MS(50), 0, 0);
        estimator.on_min_sample(MS(50), Instant::ZERO);
        for (i, &ms) in samples.iter().enumerate() {
            estimator.on_sample(MS(ms), 10 * i as u64 + 5, 10 * (i as u64 + 1));
            estimator.on_min_sample(MS(ms), Instant::ZERO);
            estimator.on_ack_delay(MS(ms), true);
        }
        estimator
    }

    /// Without evidence, the slack is 200 ms. Four prompt ACKs reduce it to 100 ms, and a late ACK or an unnecessary
    /// retransmission raises it again, for good. A larger variation than the floor is not affected.
    #[test]
    fn a_prompt_peer_has_a_lower_floor() {
        let slack = |estimator: &RttEstimator| {
            (estimator.rto() - estimator.srtt().expect("a sample")).as_micros() / 1_000
        };
        assert_eq!(slack(&with_prompt_floor(&[50; 3])), 200);
        let mut prompt = with_prompt_floor(&[50; 4]);
        assert_eq!((slack(&prompt), prompt.rttvar()), (100, MS(25)));
        prompt.expect_late_acks();
        assert_eq!((slack(&prompt), prompt.rttvar()), (200, MS(50)));
        let late = [&[50; 20][..], &[101], &[50; 100]].concat();
        assert_eq!(slack(&with_prompt_floor(&late)), 200);
        // ACKs that arrive too early lower the minimum RTT, so honest ACKs look late.
        let forged = [&[5; 20][..], &[56], &[5; 20]].concat();
        assert_eq!(slack(&with_prompt_floor(&forged)), 200);
        let mut varying = with_prompt_floor(&[50; 4]);
        (0..3).for_each(|_| varying.on_sample(MS(98), 1_000, 1_001));
        assert!(slack(&varying) > 100, "{}", slack(&varying));

        // A floor for prompt peers that is not lower changes nothing, and neither does one for the RFC's rule.
        for (rule, prompt) in [
            (RtoRule::Slack { floor: MS(200) }, MS(200)),
            (RtoRule::Rfc6298 { floor: MS(1_000), granularity: MS(1) }, MS(100)),
        ] {
            let [mut with, mut without] = [Some(prompt), None].map(|prompt| RttEstimator::new(rule, prompt));
            for i in 0..20 {
                for estimator in [&mut with, &mut without] {
                    estimator.on_sample(MS(50 + i % 3), 10 * i + 5, 10 * (i + 1));
                    estimator.on_min_sample(MS(50 + i % 3), Instant::ZERO);
                    estimator.on_ack_delay(MS(50 + i % 3), true);
                }
                assert_eq!((with.rto(), with.rttvar()), (without.rto(), without.rttvar()));
            }
        }
    }

    /// With profile `rfc`, the timeout is 300, 250, 325 and 282.8 ms without a floor, and one second with the
    /// RFC's floor (RFC 6298 section 2; RTO-1).
    #[test]
    fn rto_1_the_numbers_of_the_rfc() {
        let granularity = MS(1);
        for (floor, expected) in [(MS(0), [300_000, 250_000, 325_000, 282_812]), (MS(1_000), [1_000_000; 4])]
        {
            let mut estimator = RttEstimator::new(RtoRule::Rfc6298 { floor, granularity }, None);
            assert_eq!(estimator.rto(), RTO_INITIAL);
            for (ms, micros) in [100, 100, 200, 100].into_iter().zip(expected) {
                estimator.on_sample(MS(ms), 0, 0);
                assert_eq!(estimator.rto().as_micros(), micros);
            }
        }
    }

    /// With profile `rfc` and a constant RTT, RTTVAR falls to zero, and the RTO stays one clock tick above
    /// SRTT (RFC 6298 section 2; RTO-6).
    #[test]
    fn rto_6_a_tick_is_left() {
        let rule = RtoRule::Rfc6298 { floor: Duration::ZERO, granularity: MS(1) };
        let mut estimator = RttEstimator::new(rule, None);
        for _ in 0..200 {
            estimator.on_sample(MS(100), 0, 0);
        }
        assert_eq!(estimator.rto(), MS(101));
    }

    /// At a constant RTT, RTTVAR falls to its floor, and nothing underflows (RTO-6).
    #[test]
    fn variance_decays_to_its_floor() {
        let mut samples = vec![100, 900, 100];
        samples.extend([100; 200]);
        let estimator = feed(&samples);
        assert!(estimator.srtt().unwrap() <= MS(101));
        assert!(estimator.rto() <= MS(310), "{}", estimator.rto());
    }

    /// A sudden increase of the RTT lengthens the retransmission timeout at once.
    #[test]
    fn a_spike_widens_the_timeout() {
        let before = feed(&[100; 20]).rto();
        let mut samples = vec![100; 20];
        samples.push(600);
        assert!(feed(&samples).rto() > before + MS(200));
    }

    #[test]
    fn minimum_expires_after_its_window() {
        let mut estimator = RttEstimator::default();
        estimator.on_min_sample(MS(40), Instant::ZERO);
        estimator.on_min_sample(MS(80), Instant::ZERO + Duration::from_secs(299));
        assert_eq!(estimator.min_rtt(), Some(MS(40)));
        estimator.on_min_sample(MS(80), Instant::ZERO + Duration::from_secs(301));
        assert_eq!(estimator.min_rtt(), Some(MS(80)));
    }
}
