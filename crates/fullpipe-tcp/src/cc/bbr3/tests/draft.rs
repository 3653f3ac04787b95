//! The draft's example test cases (its appendix "BBR Example Test Cases"), in the draft's order. Each case
//! runs on paths of 1, 10 and 100 ms and 1, 100 and 1000 Mbit/s (B3-22). If a case cannot occur on some of
//! the paths, its comment says so.

use super::*;
use crate::cc::testing::Policer;

/// Runs `case` on every path of the matrix whose BDP is at least `least_bdp` segments.
fn on_paths(least_bdp: f64, case: impl Fn(Rate, Duration)) {
    for rate in [1, 100, 1_000] {
        for rtt in [1, 10, 100] {
            let bdp = rate as f64 * 1e6 / 8.0 * rtt as f64 / 1e3 / MSS as f64;
            if bdp >= least_bdp {
                eprintln!("{rate} Mbit/s, {rtt} ms");
                case(mbps(rate), ms(rtt));
            }
        }
    }
}

impl Run<Bbr3> {
    fn bdp(&self) -> u64 {
        (self.bdp_segments() * MSS as f64) as u64
    }

    /// Advances the run until `done` returns true, and returns the elapsed time. Panics after 40 s of virtual
    /// time.
    fn until_it(&mut self, mut done: impl FnMut(&Self) -> bool) -> Duration {
        let begin = self.cx.now;
        // Each step is shorter than any RTT in these tests; `done` is evaluated on every ACK.
        let mut seen = None;
        while seen.is_none() {
            assert!(self.cx.now < begin + Duration::from_secs(40), "{:?}", self.cc);
            let step = self.cx.now + Duration::from_micros(500);
            self.until(step, |run| {
                if seen.is_none() && done(run) {
                    seen = Some(run.cx.now);
                }
            });
        }
        seen.unwrap_or(begin).saturating_since(begin)
    }

    /// Advances the run until UP begins with at least 25 path RTTs left before the next ProbeRTT.
    fn until_undisturbed_up(&mut self) {
        self.until_it(|run| {
            let due = run.cc.min_rtt.recent_stamp + PROBE_RTT_INTERVAL;
            run.cc.state == State::Up && run.cx.now + run.rtt * 25 < due
        });
    }

    /// Makes the flow application-limited. The application then writes at less than half of the measured
    /// bandwidth, a rate that even ProbeRTT can carry, so that no backlog builds up. The shortest paths are
    /// full with the initial window alone.
    fn slow_down(&mut self) {
        if self.cc.state == State::Startup && self.bdp_segments() > 20.0 {
            self.until_it(|run| run.cc.max_bw.get() > run.rate.mul_div(1, 8));
            self.write_at(Some(self.rate.mul_div(1, 18)));
        } else {
            self.write_at(Some(self.rate.mul_div(1, 5)));
        }
    }

    fn until_state(&mut self, state: State) -> Duration {
        self.until_it(|run| run.cc.state == state)
    }
}

/// Case 1: Startup ends when the delivery rate no longer grows.
#[test]
fn case_01_startup_ends_on_a_plateau() {
    on_paths(0.0, |rate, rtt| {
        let mut run = run(rate, rtt, BIG);
        run.until_it(|run| {
            assert_eq!(run.cc.full_pipe.reached, run.cc.state != State::Startup);
            run.cc.state == State::Drain || run.cc.state == State::Down
        });
        assert!(
            close(run.cc.max_bw.get().as_bps() as f64, rate.as_bps() as f64, 0.02),
            "{}",
            run.cc.max_bw.get()
        );
        assert_eq!(run.cx.lost, 0);
    });
}

/// Case 2: loss ends Startup even while the flow is application-limited. Only with a few dozen segments in
/// flight can six ranges be lost in a round trip.
#[test]
fn case_02_startup_ends_on_loss_of_a_slow_application() {
    on_paths(200.0, |rate, rtt| {
        let mut run = run(rate, rtt, BIG);
        run.slow_down();
        run.until(run.cx.now + rtt * 10, |_| ());
        assert_eq!((run.cc.state, run.cc.full_pipe.reached), (State::Startup, false));
        run.loss_ppm = 200_000;
        // Far less than a BDP is in flight, so there is nothing to drain, and Drain ends on the same ACK.
        run.until_it(|run| run.cc.state != State::Startup);
        assert!(run.cc.full_pipe.now && run.cc.full_pipe.reached);
        assert!(run.cc.bounds.inflight_longterm.is_some());
    });
}

/// Case 3: Drain ends when no more than the BDP is in flight.
#[test]
fn case_03_drain_ends_on_inflight() {
    // On paths with a smaller BDP, the offload budget exceeds the volume in flight at the end of Startup, so
    // there is nothing to drain.
    on_paths(40.0, |rate, rtt| {
        let mut run = run(rate, rtt, BIG);
        run.until_state(State::Drain);
        assert_eq!(run.cc.state.pacing_gain(), DRAIN_PACING_GAIN);
        run.until_it(|run| {
            let (now, target) = (run.cx.inflight, run.cc.inflight(run.cc.bw, Gain::UNIT));
            let done = run.cc.state != State::Drain;
            assert_eq!(done, now <= target, "{now} in flight, {target} to be");
            done
        });
        assert!(run.cc.rounds.count <= run.cc.drain_start_round + DRAIN_ROUNDS);
        assert!(run.cc.state.is_probe_bw());
    });
}

/// Case 4: Drain ends after three round trips although more than the BDP is in flight, because the bandwidth
/// was overestimated. If the rate falls by a tenth, as in the draft, the queue still drains in time. If the
/// rate falls to a tenth, the queue does not drain in time.
#[test]
fn case_04_drain_ends_on_time() {
    on_paths(40.0, |rate, rtt| {
        for left in [9, 1] {
            let mut run = run(rate, rtt, BIG);
            run.until_state(State::Drain);
            run.set_rate(rate.mul_div(left, 10));
            let start = run.cc.rounds.count;
            run.until_it(|run| run.cc.state != State::Drain);
            if run.cc.state == State::ProbeRtt {
                // At a tenth of the rate, rounds on the longest paths are so long that ProbeRTT is due first.
                continue;
            }
            assert!(run.cc.rounds.count <= start + DRAIN_ROUNDS + 1);
            if left == 1 {
                assert_eq!(run.cc.rounds.count, start + DRAIN_ROUNDS + 1);
                assert!(run.cx.inflight > run.cc.inflight(run.cc.bw, Gain::UNIT));
            }
        }
    });
}

/// Case 5: UP ends when the delivery rate no longer grows.
#[test]
fn case_05_up_ends_on_a_plateau() {
    on_paths(0.0, |rate, rtt| {
        let mut run = run(rate, rtt, BIG);
        let mut start = 0;
        // ProbeRTT may come before DOWN.
        while run.cc.state != State::Down {
            run.until_state(State::Up);
            assert!(!run.cc.full_pipe.now);
            start = run.cc.rounds.count;
            run.until_it(|run| run.cc.state != State::Up);
        }
        assert!(run.cc.full_pipe.now);
        assert!(run.cc.rounds.count >= start + u64::from(FULL_BW_ROUNDS));
        assert_eq!(run.cx.lost, 0);
    });
}

/// Case 6: loss ends UP even while the flow is application-limited. In that case, the volume in flight does
/// not show the capacity of the path, so the long-term bound stays unchanged. On paths with a BDP below one
/// segment, the next probe follows at once.
#[test]
fn case_06_up_ends_on_loss_of_a_slow_application() {
    on_paths(8.0, |rate, rtt| {
        let mut run = run(rate, rtt, BIG);
        run.until_undisturbed_up();
        run.slow_down();
        let start = run.cc.rounds.count;
        run.until_it(|run| run.cc.rounds.count > start + 4);
        assert_eq!(run.cc.state, State::Up);
        run.loss_ppm = 100_000;
        run.until_it(|run| run.cc.state != State::Up);
        // With so few segments in flight, DOWN may end on the same ACK.
        assert!(matches!(run.cc.state, State::Down | State::Cruise), "{:?}", run.cc.state);
        assert!(run.cx.lost > 0 && run.cc.probe.prev_too_high);
        assert_eq!(run.cc.bounds.inflight_longterm, None);
    });
}

/// Case 7: without loss, neither Startup nor UP ends while the flow is application-limited. Only ProbeRTT
/// interrupts Startup or UP.
#[test]
fn case_07_a_slow_application_ends_nothing() {
    on_paths(0.0, |rate, rtt| {
        let mut startup = run(rate, rtt, BIG);
        startup.slow_down();
        startup.until(at_ms(12_000), |run| {
            assert!(matches!(run.cc.state, State::Startup | State::ProbeRtt), "{:?}", run.cc.state);
        });
        let mut up = run(rate, rtt, BIG);
        up.until_undisturbed_up();
        up.slow_down();
        let start = up.cc.rounds.count;
        // On paths with a BDP of a few segments, the sender is sometimes idle, and an idle period replaces
        // ProbeRTT.
        let mut still = true;
        up.until(up.cx.now + Duration::from_secs(12), |run| {
            assert!(!still || matches!(run.cc.state, State::Up | State::ProbeRtt), "{:?}", run.cc.state);
            still &= run.cc.state == State::Up;
        });
        assert!(up.cc.rounds.count > start + 10);
    });
}

/// Case 8: DOWN ends when there is headroom and no queue.
#[test]
fn case_08_down_ends_on_inflight() {
    // A buffer of three quarters of a BDP causes loss, which sets the long-term bound.
    on_paths(8.0, |rate, rtt| {
        let buffer = (rate * rtt).get() * 3 / 4;
        let mut run = run(rate, rtt, buffer);
        run.until_state(State::Up);
        run.until_state(State::Down);
        assert_eq!(run.cc.state.pacing_gain(), DOWN_PACING_GAIN);
        run.until_it(|run| {
            let headroom = run.cc.bounds.with_headroom(MSS).unwrap_or(u64::MAX);
            let target = headroom.min(run.cc.inflight(run.cc.max_bw.get(), Gain::UNIT));
            match run.cc.state {
                State::Down => assert!(run.cx.inflight > target),
                State::Cruise => assert!(run.cx.inflight <= target),
                // A precautionary probe without excessive loss is followed by a full probe, and the full
                // probe is followed by another DOWN.
                _ => {}
            }
            run.cc.state == State::Cruise
        });
    });
}

/// Case 9: if the queue does not drain, DOWN lasts until the next probe is due. In this test, the bandwidth
/// falls by more than DOWN lowers the pacing rate. DOWN paces at 0.9 x 0.99, so after a loss of exactly a
/// tenth of the bandwidth, the queue would still drain slowly.
#[test]
fn case_09_down_ends_on_time() {
    on_paths(40.0, |rate, rtt| {
        let mut run = run(rate, rtt, BIG);
        run.until_state(State::Up);
        run.until_state(State::Down);
        run.set_rate(rate.mul_div(85, 100));
        let probe = (run.cc.probe.cycle_stamp, run.cc.probe.wait);
        run.until_it(|run| run.cc.state != State::Down);
        if run.cc.state == State::ProbeRtt {
            // On long paths, ProbeRTT is due before the next probe.
            return;
        }
        assert_eq!(run.cc.state, State::Refill);
        let on_the_clock = run.cx.now > probe.0 + probe.1;
        assert!(on_the_clock || run.cc.probe.rounds_since_up >= 40, "{:?}", run.cc.probe);
    });
}

/// Case 10: ProbeRTT begins five seconds after the last RTT minimum and lasts 200 ms plus one round trip.
#[test]
fn case_10_probe_rtt() {
    on_paths(0.0, |rate, rtt| {
        let mut run = run(rate, rtt, BIG);
        run.until_it(|run| run.cc.state.is_probe_bw());
        run.until_state(State::ProbeRtt);
        assert!(run.cx.now > Instant::ZERO + PROBE_RTT_INTERVAL);
        assert_eq!(run.cc.state.cwnd_gain(), PROBE_RTT_CWND_GAIN);
        let (bw, delivered) = (run.cc.max_bw.get(), run.cx.delivered);
        let stay = run.until_it(|run| run.cc.state != State::ProbeRtt);
        assert!(stay >= PROBE_RTT_DURATION && stay <= PROBE_RTT_DURATION + run.rtt * 5 + ms(60), "{stay}");
        assert_eq!(run.cc.state, State::Cruise);
        assert!(run.cx.delivered > delivered);
        assert_eq!(run.cc.max_bw.get(), bw, "half a pipe says nothing of the bandwidth");
    });
}

/// Case 11: an idle period replaces ProbeRTT.
#[test]
fn case_11_idling_stands_for_probe_rtt() {
    on_paths(0.0, |rate, rtt| {
        let mut run = run(rate, rtt, BIG);
        run.until_it(|run| run.cc.state.is_probe_bw());
        run.silent = true;
        let idle = run.cx.now + ms(1_000) + PROBE_RTT_INTERVAL;
        run.until(idle, |_| ());
        assert_eq!(run.cx.inflight, 0);
        run.silent = false;
        // The first ACK after the idle period refreshes the minimum RTT and then clears `BBR.idle_restart`.
        run.until_it(|run| run.cx.now > idle + run.rtt * 3);
        assert_ne!(run.cc.state, State::ProbeRtt);
        let before = run.cx.now;
        run.until(before + ms(1_000), |run| assert_ne!(run.cc.state, State::ProbeRtt));
    });
}

/// Case 12: with aggregated ACKs in Startup, the window covers the aggregation. The bandwidth estimate
/// reaches the rate of the path without exceeding it.
#[test]
fn case_12_startup_with_lumps_of_acks() {
    on_paths(8.0, |rate, rtt| {
        let mut run = run(rate, rtt, BIG);
        run.ack_grid = rtt;
        let mut widened = false;
        run.until_it(|run| {
            let model = run.cc.bdp_multiple(run.cc.bw, DEFAULT_CWND_GAIN);
            widened |= run.cc.aggregation.extra() > 0 && run.cc.cwnd > run.cc.with_quanta(model);
            run.cc.full_pipe.reached
        });
        assert!(widened);
        // The send rate limits the samples, and it exceeds the rate of the path while a queue builds up.
        let found = run.cc.max_bw.get().as_bps() as f64 / rate.as_bps() as f64;
        assert!((0.95..2.0).contains(&found), "{found} of the rate");
    });
}

/// Case 13: with aggregated ACKs while cruising, the window covers the maximum of ten rounds, and the path
/// stays full.
#[test]
fn case_13_cruise_with_lumps_of_acks() {
    on_paths(8.0, |rate, rtt| {
        let mut run = run(rate, rtt, BIG);
        run.until_state(State::Cruise);
        run.ack_grid = rtt / 2;
        let from = run.cx.now + rtt * 10;
        run.until(from, |_| ());
        let delivered = run.cx.delivered;
        run.until(from + rtt * 20 + ms(300), |_| ());
        let got = Rate::of(Bytes::new(run.cx.delivered - delivered), rtt * 20 + ms(300));
        assert!(run.cc.aggregation.extra() >= (rate * rtt).get() / 4, "{}", run.cc.aggregation.extra());
        assert!(got.as_bps() as f64 > 0.93 * rate.as_bps() as f64, "{got}");
    });
}

/// Case 14: on paths with a BDP of less than one packet, four segments are in flight, and the flow reaches
/// the full rate of the path.
#[test]
fn case_14_less_than_a_packet() {
    for (rate, rtt) in [(64_000, 1), (64_000, 10), (1_000_000, 1)] {
        let mut run = run(Rate::from_bps(rate), ms(rtt), BIG);
        run.until_it(|run| run.cc.state == State::Cruise || run.cc.state == State::Refill);
        let (from, delivered) = (run.cx.now, run.cx.delivered);
        run.until(from + Duration::from_secs(20), |run| {
            assert!(run.control().cwnd >= MIN_PIPE_SEGMENTS * MSS);
            if run.cc.state == State::Cruise {
                assert!(
                    close(pacing(&run.cc).as_bps() as f64, 0.99 * rate as f64, 0.02),
                    "{}",
                    pacing(&run.cc)
                );
            }
        });
        let got = Rate::of(Bytes::new(run.cx.delivered - delivered), ms(20_000)).as_bps();
        assert!(got as f64 > 0.97 * rate as f64, "{got} of {rate}");
    }
}

/// Case 15: BBR finds a tenfold increase of the bandwidth in a number of round trips proportional to the
/// logarithm of the BDP. If there is a long-term bound, the growth of the bound doubles in each round.
#[test]
fn case_15_ten_times_the_bandwidth() {
    on_paths(80.0, |rate, rtt| {
        // The slow path has a small buffer, so that loss sets a bound; the fast path has a larger buffer.
        let slow = rate.mul_div(1, 10);
        let mut run = run(slow, rtt, (slow * rtt).get() / 2);
        run.until_it(|run| run.cc.bounds.inflight_longterm.is_some() && run.cc.state == State::Cruise);
        let bound = run.cc.bounds.inflight_longterm.unwrap();
        run.set_rate(rate);
        run.buffer = (rate * rtt).get();
        run.until_state(State::Up);
        let start = run.cc.rounds.count;
        let mut slopes = Vec::new();
        let mut most_rounds = 0;
        run.until_it(|run| {
            if run.cc.state == State::Up && run.rounds > most_rounds {
                most_rounds = run.rounds;
                slopes.push(run.cc.bounds.inflight_longterm.unwrap());
            }
            run.cc.max_bw.get() >= rate.mul_div(95, 100)
        });
        assert!(run.cc.bounds.inflight_longterm.unwrap() > bound);
        let growth: Vec<u64> = slopes.windows(2).map(|pair| (pair[1] - pair[0]) / MSS).collect();
        let doubling = growth.windows(2).filter(|pair| pair[1] >= 2 * pair[0].max(1)).count();
        assert!(doubling >= 2, "{growth:?}");
        let rounds = run.cc.rounds.count - start;
        let log = run.bdp_segments().log2();
        assert!((rounds as f64) < 10.0 * log, "{rounds} rounds, log2(BDP) = {log:.1}");
    });
}

/// Case 16: after the bandwidth falls to a tenth, the short-term bound follows within a few rounds, and the
/// bandwidth maximum after two cycles.
#[test]
fn case_16_a_tenth_of_the_bandwidth() {
    on_paths(80.0, |rate, rtt| {
        let mut run = run(rate, rtt, (rate * rtt).get());
        run.until_state(State::Cruise);
        let slow = rate.mul_div(1, 10);
        run.set_rate(slow);
        run.buffer = (slow * rtt).get();
        let start = run.cc.rounds.count;
        run.until_it(|run| run.cc.bw <= rate.mul_div(1, 2));
        assert!(run.cc.rounds.count - start <= 8, "{} rounds", run.cc.rounds.count - start);
        assert!(run.cc.bounds.bw_shortterm.is_some());
        // A cycle counts when its maximum becomes `previous`. A cycle whose last round is a ProbeRTT round
        // does not count.
        let (mut cycles, mut before) = (0, run.cc.max_bw.previous);
        run.until_it(|run| {
            cycles += u32::from(before != run.cc.max_bw.previous);
            before = run.cc.max_bw.previous;
            close(run.cc.max_bw.get().as_bps() as f64, slow.as_bps() as f64, 0.05)
        });
        assert!(cycles <= 2, "{cycles} cycles");
    });
}

/// Case 17: behind a policer, losses lower the bounds to the policer's rate; after that, the flow loses less
/// than 1 %.
#[test]
fn case_17_token_bucket() {
    on_paths(80.0, |rate, rtt| {
        let mut run = run(rate, rtt, BIG);
        run.until_state(State::Cruise);
        let limit = rate.mul_div(1, 2);
        let burst = (limit * rtt).get() / 2;
        run.policer = Some(Policer { rate: limit, burst, tokens: burst, filled: run.cx.now });
        run.until_it(|run| {
            run.cc.bounds.bw_shortterm.is_some() && run.cc.bounds.inflight_shortterm.is_some()
        });
        run.until(run.cx.now + Duration::from_secs(10), |_| ());
        let (lost, delivered) = (run.cx.lost, run.cx.delivered);
        let from = run.cx.now;
        run.until(from + Duration::from_secs(15), |_| ());
        let (lost, delivered) = (run.cx.lost - lost, run.cx.delivered - delivered);
        let got = Rate::of(Bytes::new(delivered), Duration::from_secs(15));
        assert!(lost * 100 < (delivered + lost), "{lost} lost of {delivered}");
        assert!(got >= limit.mul_div(9, 10), "{got}");
    });
}

/// Cases 18 and 19: reordering causes a spurious fast recovery or a spurious timeout. Afterwards, BBR
/// restores the bounds, the window and the state.
#[test]
fn case_18_and_19_spurious_recovery() {
    on_paths(8.0, |rate, rtt| {
        for timeout in [false, true] {
            let mut run = run(rate, rtt, BIG);
            run.until_state(State::Up);
            run.until_it(|run| run.cx.inflight >= 8 * MSS && run.cc.probe.is_sample);
            if run.cc.state != State::Up {
                continue;
            }
            let (bounds, cwnd) = (run.cc.bounds, run.cc.cwnd);
            run.take_back_losses(8, timeout);
            assert_eq!(run.cc.bounds, bounds);
            assert!(run.cc.cwnd >= cwnd);
            // Eight lost segments end the probe only if they are more than 2 % of the volume in flight.
            assert!(matches!(run.cc.state, State::Up | State::Refill), "{:?}", run.cc.state);
            if run.cc.state == State::Refill {
                run.until_state(State::Up);
            }
        }
    });
}

/// Case 20: if ProbeRTT interrupts a Startup that a slow application has prolonged, the flow returns to
/// Startup.
#[test]
fn case_20_probe_rtt_in_startup() {
    // On paths with a smaller BDP, the sender is sometimes idle, and an idle period replaces ProbeRTT.
    on_paths(8.0, |rate, rtt| {
        let mut run = run(rate, rtt, BIG);
        run.slow_down();
        run.until_state(State::ProbeRtt);
        assert!(!run.cc.full_pipe.reached);
        run.until_it(|run| run.cc.state != State::ProbeRtt);
        assert_eq!(run.cc.state, State::Startup);
        run.write_at(None);
        run.until_it(|run| run.cc.full_pipe.reached);
        assert!(close(run.cc.max_bw.get().as_bps() as f64, rate.as_bps() as f64, 0.02));
    });
}

/// Case 21: a loss in UP lowers the long-term bound to no less than 0.7 of the target in flight, and DOWN
/// follows.
#[test]
fn case_21_loss_in_up() {
    on_paths(40.0, |rate, rtt| {
        let mut run = run(rate, rtt, BIG);
        run.until_state(State::Refill);
        run.cc.bounds.inflight_longterm = Some(4 * run.bdp());
        run.until_state(State::Up);
        run.until_it(|run| run.cc.rounds.start);
        assert_eq!(run.cc.state, State::Up);
        let bound = run.cc.bounds.inflight_longterm.unwrap();
        run.loss_ppm = 100_000;
        run.until_it(|run| run.cc.state != State::Up);
        assert_eq!(run.cc.state, State::Down);
        let after = run.cc.bounds.inflight_longterm.unwrap();
        assert!(
            after < bound && after >= BETA.times(run.bdp().min(run.cc.cwnd)) - MSS,
            "{after} after {bound}"
        );
        assert!(run.cc.probe.prev_too_high);
    });
}

/// Case 22: if the application pauses during REFILL, the low bandwidth samples do not lower the bandwidth
/// maximum, and UP follows.
#[test]
fn case_22_a_pause_in_refill() {
    on_paths(8.0, |rate, rtt| {
        let mut run = run(rate, rtt, BIG);
        let mut bw = Rate::ZERO;
        // ProbeRTT may come before UP.
        while run.cc.state != State::Up {
            run.until_state(State::Refill);
            bw = run.cc.max_bw.get();
            run.write_at(Some(rate.mul_div(1, 5)));
            run.until_it(|run| {
                assert!(run.cc.max_bw.get() >= bw);
                run.cc.state != State::Refill
            });
            run.write_at(None);
        }
        run.until_it(|run| run.cc.state == State::Down);
        assert!(run.cc.max_bw.get() >= bw);
    });
}
