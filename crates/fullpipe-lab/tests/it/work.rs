//! Tests of the work per packet and per ACK, which determines the simulator's speed.
//!
//! Run times vary between machines and over time, but these counts do not, so they show regressions that a
//! measured time would hide. The scenarios are shortened versions of those in `BENCHMARKS.md`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::counting::count_in;
use crate::rig::ms;
use fullpipe_lab::experiment::Experiment;
use fullpipe_lab::outcome::Outcome;
use fullpipe_lab::scenario::Scenario;
use fullpipe_lab::sim;
use fullpipe_units::Duration;

const LOSSLESS: &str = include_str!("../../../../experiments/bench-lossless.toml");
const LOSSY: &str = include_str!("../../../../experiments/bench-lossy.toml");
const TEN_FLOWS: &str = include_str!("../../../../experiments/bench-ten-flows.toml");
const AQM: &str = include_str!("../../../../experiments/aqm.toml");
const WINDOW_SIZE: &str = include_str!("../../../../experiments/bench-window-size.toml");

/// Returns the scenario of point `number` of a benchmark, shortened to `seconds` of virtual time.
fn scenario(file: &str, number: usize, seconds: u64) -> Scenario {
    let experiment = Experiment::from_toml(file).expect("a benchmark of the project");
    let point = &experiment.points()[number];
    Scenario { duration: Duration::from_secs(seconds), seed: 1, ..point.scenario.clone() }
}

fn run(file: &str, number: usize, seconds: u64) -> Outcome {
    sim::run(&scenario(file, number, seconds))
}

/// Difference between a longer and a shorter run, which cancels the cost of starting a run.
struct Later {
    packets: f64,
    events: f64,
    acks: f64,
    visited: f64,
}

fn between(file: &str, number: usize, from: u64, to: u64) -> Later {
    let (short, long) = (run(file, number, from), run(file, number, to));
    let more = |of: fn(&Outcome) -> u64| (of(&long) - of(&short)) as f64;
    Later {
        packets: more(|outcome| outcome.path.delivered),
        events: more(|outcome| outcome.work.events),
        acks: more(|outcome| outcome.work.acks),
        visited: more(|outcome| outcome.work.records_visited),
    }
}

/// Each data packet arrives, every second packet is acknowledged, and that ACK arrives: 1.5 events per
/// packet. Timers and trace rows add events, which must be rare.
#[test]
fn a_packet_takes_one_and_a_half_events() {
    // A queue with an AQM computes the departure of a packet only when it dequeues the packet.
    for (file, number, seconds) in [(LOSSLESS, 0, 8), (TEN_FLOWS, 0, 4), (AQM, 1, 8), (AQM, 2, 8)] {
        let later = between(file, number, seconds, 2 * seconds);
        let per_packet = later.events / later.packets;
        println!("{per_packet:.3} events a packet over {} packets", later.packets);
        assert!((1.4..=1.6).contains(&per_packet), "{per_packet}");
    }
}

/// Under loss, the receiver coalesces its ACKs for a millisecond (28 packets here) and sends fewer of them.
/// Delayed ACKs, the pacer and RACK add timer events.
#[test]
fn loss_adds_few_events() {
    let later = between(LOSSY, 0, 3, 6);
    let per_packet = later.events / later.packets;
    println!("{per_packet:.3} events a packet over {} packets", later.packets);
    assert!((1.0..=1.6).contains(&per_packet), "{per_packet}");
}

/// All buffers for packets and records reach their final size in the first half of the run, so the second
/// half allocates nothing per packet. The remaining allocations are the history of each flow, which is a
/// vector that grows by doubling, and a few queues that may reach a new peak.
#[test]
fn no_allocation_per_packet() {
    const PEAKS: u64 = 4;
    static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
    count_in(&ALLOCATIONS);
    let allocations = |scenario: &Scenario| {
        let before = ALLOCATIONS.load(Relaxed);
        let outcome = sim::run(scenario);
        (ALLOCATIONS.load(Relaxed) - before, outcome.path.delivered)
    };
    let surge = LOSSY.replace("\"bbr1\"", "\"surge\"");
    for (name, file, number, seconds) in [
        ("lossless", LOSSLESS, 0, 16),
        ("lossy", LOSSY, 0, 4),
        ("lossy, surge", &surge, 0, 4),
        ("ten flows", TEN_FLOWS, 0, 10),
        ("CoDel", AQM, 1, 12),
        ("FQ-CoDel", AQM, 2, 12),
        ("PIE", AQM, 3, 12),
    ] {
        let short = allocations(&scenario(file, number, seconds));
        let long = allocations(&scenario(file, number, 2 * seconds));
        assert!(short.0 > 10, "{name}: a run that seems to allocate nothing is not counted");
        let (more, packets) = (long.0 - short.0, long.1 - short.1);
        println!("{name}: {more} allocations more for {packets} packets more");
        assert!(packets > 80_000, "{name}: {packets}");
        let flows = scenario(file, number, seconds).flows.len() as u64;
        assert!(more <= PEAKS + flows, "{name}: {more} allocations for {packets} packets");
    }
}

/// Without loss, the record of a sent segment is visited when it is freed and when RACK's cursor passes it,
/// and each ACK visits the record at which the cursor stopped. Under loss, a record is also visited when it
/// is SACKed. Each ACK visits the heads of RACK's two queues, and so does a timer that the ACK has set.
#[test]
fn an_ack_looks_at_what_it_newly_says() {
    for (name, file, number, (from, to), (per_packet, per_ack)) in [
        ("lossless", LOSSLESS, 0, (8, 16), (2.0, 1.0)),
        ("lossy", LOSSY, 0, (3, 6), (3.0, 6.0)),
        ("175 packets", WINDOW_SIZE, 0, (2, 3), (2.0, 1.0)),
        ("17 500 packets", WINDOW_SIZE, 1, (5, 6), (2.0, 1.0)),
    ] {
        let Later { packets, acks, visited, .. } = between(file, number, from, to);
        println!("{name}: {:.3} records an ACK, {:.3} a packet", visited / acks, visited / packets);
        let bound = per_packet * packets + per_ack * acks;
        assert!(visited <= bound, "{name}: {visited} for {packets} packets, {acks} ACKs");
        assert!(visited >= packets, "{name}: a record that is never looked at is never freed");
    }
}

/// The number of records that an ACK visits does not grow with the window, even if the window is a hundred
/// times as large.
#[test]
fn an_ack_costs_the_same_in_a_large_window() {
    let per_ack = |number, from, to| {
        let later = between(WINDOW_SIZE, number, from, to);
        later.visited / later.acks
    };
    let (small, large) = (per_ack(0, 2, 3), per_ack(1, 5, 6));
    assert!(large <= 1.05 * small, "{large} records an ACK at 17 500 packets, {small} at 175");
    // The same holds under loss, where the outstanding data has holes.
    let lossy = |rtt: u64| {
        let mut scenario = scenario(LOSSY, 0, 4);
        for direction in [&mut scenario.path.forward, &mut scenario.path.backward] {
            direction.delay = ms(rtt) / 2;
        }
        let outcome = sim::run(&scenario);
        outcome.work.records_visited as f64 / outcome.path.delivered as f64
    };
    let (near, far) = (lossy(14), lossy(280));
    println!("lossy: {near:.3} records a packet at 14 ms, {far:.3} at 280 ms");
    assert!(far <= 1.2 * near, "{far} records a packet at 280 ms, {near} at 14 ms");
}
