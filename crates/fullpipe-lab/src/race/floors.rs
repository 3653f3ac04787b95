//! Times that no download can undercut, and the time of an ideal sender.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use fullpipe_path::{Ecn, PacketInfo, PacketKind, Verdict};
use fullpipe_units::{Bytes, Duration, Instant};

use crate::metric::HEADERS;
use crate::scenario::{DirectionSpec, Scenario};
use crate::sim::direction;

/// Initial receive window of a Linux client, in bytes: 65 160 bytes, rounded up to a multiple of the unit of
/// a scaled window.
const FIRST_WINDOW: u64 = 65_536;

/// Returns the end of the data that the client's window admits once `received` bytes have arrived in order: the window grows
/// by at most two bytes per byte received.
fn admitted(received: u64) -> u64 {
    received.saturating_mul(3).saturating_add(FIRST_WINDOW)
}

/// Returns the number of segments that `size` bytes need.
pub(super) fn segments(scenario: &Scenario, size: Bytes) -> u64 {
    size.get().div_ceil(payload(scenario))
}

/// Returns the payload of a full-sized segment in bytes.
fn payload(scenario: &Scenario) -> u64 {
    scenario.path.mtu.saturating_sub(HEADERS).max(1)
}

/// Returns the minimum times from the SYN that the path and the client's window allow
/// ([`CellReport::link_floor_s`](super::CellReport::link_floor_s),
/// [`CellReport::window_floor_s`](super::CellReport::window_floor_s)).
///
/// The window floor counts round trips: the bytes that the window admits arrive at least one round trip after those that
/// have opened it.
pub(super) fn floors(scenario: &Scenario, size: Bytes) -> (Duration, Duration) {
    let rtt = scenario.longest_rtt();
    let wire = size + Bytes::new(segments(scenario, size) * HEADERS);
    let (mut end, mut round_trips) = (admitted(0), 1);
    while end < size.get() {
        end = admitted(end);
        round_trips += 1;
    }
    (rtt * 2 + scenario.path.forward.rate.time_for(wire), rtt * (1 + round_trips))
}

/// Returns the time from the SYN of an ideal sender ([`CellReport::ideal_s`](super::CellReport::ideal_s)) with the packet
/// losses of the scenario's seed.
///
/// The sender knows the rate of the link and sends the next segment whenever the link is free and the client's window admits
/// it, so no queue delays an ACK. It sends a lost segment again, before all others, when its ACK is due. A lost packet takes
/// no time on the link, because the path loses packets before the queue. A download that does not complete takes as long
/// as the scenario.
pub(super) fn ideal(scenario: &Scenario, size: Bytes) -> Duration {
    let (rtt, forward, payload) = (scenario.longest_rtt(), &scenario.path.forward, payload(scenario));
    let count = segments(scenario, size);
    // The delay is that of a segment and its ACK.
    let plain = DirectionSpec::plain(forward.rate, rtt, forward.loss, Bytes::MAX);
    let spec = DirectionSpec { loss_pattern: forward.loss_pattern, ..plain };
    let mut path = direction(&spec, &scenario.flows, scenario.seed, 0);
    let flow = scenario.flows.len().saturating_sub(1) as u32;

    let request = Instant::ZERO + rtt * 3 / 2;
    let (mut now, mut end) = (request, request);
    let mut acked = vec![false; count as usize];
    let (mut in_order, mut next) = (0, 0);
    let (mut missing, mut repairs) = (VecDeque::new(), BinaryHeap::new());
    while now < Instant::ZERO + scenario.duration {
        while let Some(exit) = path.pop(now) {
            acked[exit.payload as usize] = true;
            end = exit.at;
        }
        while acked.get(in_order as usize) == Some(&true) {
            in_order += 1;
        }
        while let Some((_, segment)) = missing.front().filter(|(due, _)| *due <= now).copied() {
            missing.pop_front();
            repairs.push(Reverse(segment));
        }
        let end_of_next = ((next + 1) * payload).min(size.get());
        let segment = match repairs.pop() {
            Some(Reverse(segment)) => Some(segment),
            None if next < count && end_of_next <= admitted(in_order * payload) => {
                next += 1;
                Some(next - 1)
            }
            None => None,
        };
        if let Some(segment) = segment {
            let len = payload.min(size.get() - segment * payload) + HEADERS;
            let packet = PacketInfo {
                len: len as u32,
                flow,
                kind: PacketKind::Data,
                continues: false,
                ecn: Ecn::NotEct,
            };
            let on_link = forward.rate.time_for(Bytes::new(len));
            match path.push(now, packet, segment) {
                Verdict::Accepted => now += on_link,
                _ => missing.push_back((now + on_link + rtt, segment)),
            }
        } else {
            let due = missing.front().map_or(Instant::FAR_FUTURE, |(due, _)| *due);
            match path.next_event().min(due) {
                Instant::FAR_FUTURE => break,
                event => now = now.max(event),
            }
        }
    }
    if in_order < count { scenario.duration } else { end.saturating_since(Instant::ZERO) - rtt / 2 }
}

#[cfg(test)]
mod tests {
    use fullpipe_tcp::cc::Algorithm;
    use fullpipe_units::Probability;

    use super::*;
    use crate::experiment::Experiment;

    /// Returns a download at 100 Mbit/s and 50 ms.
    fn download(size: u64, loss: f64, seed: u64) -> Scenario {
        let text = "name = 'small'\nduration = '60s'\n[path]\nrate = '100mbit'\nrtt = '50ms'\n\
                    [[flow]]\ncc = 'bbr1'\napp = { request = '200B' }";
        let experiment = Experiment::from_toml(text).expect("valid");
        let mut scenario = experiment.points()[0].scenario.clone();
        scenario.flows[0].bytes = Some(Bytes::new(size));
        scenario.path.forward.loss = Probability::from_f64(loss);
        Scenario { seed, ..scenario }
    }

    /// Returns the time from the SYN in the simulator.
    fn simulated(scenario: &Scenario) -> Duration {
        crate::sim::run(scenario).flows[0].response.expect("complete").from_syn
    }

    /// 640 000 bytes need 442 segments of at most 1500 bytes, which take 53.0 ms at 100 Mbit/s after the two
    /// round trips. The window admits 64, 256 and 832 KiB in total after one, two and three round trips.
    #[test]
    fn floors_are_those_of_link_and_window() {
        let scenario = download(640_000, 0.0, 1);
        let (link, window) = floors(&scenario, Bytes::new(640_000));
        assert!((link.as_secs_f64() - (0.1 + 8.0 * (640_000.0 + 442.0 * 52.0) / 1e8)).abs() < 1e-6, "{link}");
        assert_eq!(window, Duration::from_millis(200));
        for (size, round_trips) in
            [(1, 2), (65_536, 2), (65_537, 3), (262_144, 3), (851_968, 4), (851_969, 5)]
        {
            let (_, window) = floors(&scenario, Bytes::new(size));
            assert_eq!(window, Duration::from_millis(50 * round_trips), "{size}");
        }
    }

    /// Without loss, the ideal sender meets both floors, and not even a sender without a limiting congestion window is
    /// faster.
    #[test]
    fn the_ideal_sender_is_between_the_floors_and_every_other_sender() {
        for size in [1_000, 30_000, 640_000, 8_000_000] {
            let mut scenario = download(size, 0.0, 1);
            scenario.flows[0].cc = Algorithm::Reno.into();
            scenario.host.initcwnd = Some(10_000);
            scenario.path.forward.queue = Bytes::MAX;
            let found = simulated(&scenario);
            let ideal = ideal(&scenario, Bytes::new(size));
            let (link, window) = floors(&scenario, Bytes::new(size));
            assert!(
                found >= ideal && ideal + Duration::from_micros(1) >= link.max(window),
                "{size}: {found}, {ideal}"
            );
            // A burst queues at the link, so its ACKs open the window later.
            assert!(found < ideal + ideal / 5, "{size}: {found}, {ideal}");
        }
    }

    /// A segment that is lost k times arrives k round trips and transmission times later.
    #[test]
    fn the_ideal_sender_repairs_a_loss_after_a_round_trip() {
        let clean = ideal(&download(1_000, 0.0, 1), Bytes::new(1_000));
        let turn =
            Duration::from_millis(50) + download(1, 0.0, 1).path.forward.rate.time_for(Bytes::new(1_052));
        let mut losses = 0;
        for seed in 1..=400 {
            let late = ideal(&download(1_000, 0.2, seed), Bytes::new(1_000)) - clean;
            let count = late.as_nanos() / turn.as_nanos();
            assert_eq!(late, turn * count);
            losses += count;
        }
        // The expected value is 400 x 0.2 / 0.8.
        assert!((75..=125).contains(&losses), "{losses}");
        assert_eq!(ideal(&download(1_000, 1.0, 1), Bytes::new(1_000)).as_secs_f64().round(), 60.0);
    }

    /// With loss, downloads by other senders take longer in the mean.
    #[test]
    fn the_ideal_sender_is_faster_with_loss_too() {
        for cc in [Algorithm::Bbr1, Algorithm::Surge] {
            let sum = |time: &dyn Fn(&Scenario) -> Duration| {
                let times = (1..=30).map(|seed| {
                    let mut scenario = download(640_000, 0.02, seed);
                    scenario.flows[0].cc = cc.into();
                    time(&scenario).as_secs_f64()
                });
                times.sum::<f64>()
            };
            let [found, ideal] = [sum(&simulated), sum(&|scenario| ideal(scenario, Bytes::new(640_000)))];
            assert!(found > ideal, "{cc}: {found}, {ideal}");
        }
    }
}
