//! Compares the number of connections that a copy chooses on the twelve paths of `experiments/copy-connections.toml`
//! with fixed numbers.

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

use fullpipe_lab::experiment::{Experiment, Point};

use fullpipe_units::draw;

use super::*;

/// Fraction of the best fixed number's rate that a copy must reach; a number that reaches it is sufficient.
const ENOUGH: f64 = 0.95;
/// Maximum number of connections of a settled copy, as a multiple of the smallest sufficient number.
const MOST: f64 = 1.5;
/// Time, plus 20 round trips, after which a copy must have reached its rate.
const SETTLED: Duration = Duration::from_secs(5);
const SETTLED_ROUND_TRIPS: u64 = 20;
/// Additional time after which the number of connections must have settled. The copy tries fewer connections only after
/// it has reached the rate.
const SEARCHED: Duration = Duration::from_secs(10);

/// Names of the paths, in the order of the experiment, with the smallest sufficient number of connections.
const NEEDED: [(&str, u32); 12] = [
    ("clean", 1),
    ("send buffer", 4),
    ("receive window", 6),
    ("shaper of each", 6),
    ("policer of each", 5),
    ("policer of all", 4),
    ("loss", 16),
    ("loss and BBR", 1),
    ("deep queue", 1),
    ("shallow queue", 1),
    ("slow reader", 1),
    ("slow producer", 1),
];

/// All fixed numbers.
const ALL: [u32; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];

/// Seeds of the varied paths, and the varied paths on which a bound is missed.
const NEIGHBOURS: [u64; 2] = [1, 2];
const MISSES: [(u64, &str); 3] = [(2, "send buffer"), (2, "policer of all"), (2, "loss and BBR")];

/// Paths with a queue of less than a BDP, as combinations of rate, RTT and queue; the paths of the short test, with the
/// smallest sufficient number of connections; the fixed numbers that are compared on all of them; and the paths on which a
/// bound is missed.
const SHALLOW: &str = r#"
name = "shallow"
duration = "50s"
[path]
rate = ["50mbit", "100mbit", "200mbit"]
rtt = ["20ms", "40ms", "100ms"]
queue = ["0.1bdp", "0.2bdp", "0.3bdp"]
[host]
sndbuf = "4MiB"
rcvbuf = "6MiB"
notsent_lowat = "128KiB"
[[flow]]
cc = "cubic"
"#;
const SHALLOW_NEEDED: [(&str, u32); 3] = [
    ("rate=50mbit rtt=20ms queue=0.1bdp", 3),
    ("rate=100mbit rtt=20ms queue=0.3bdp", 1),
    ("rate=200mbit rtt=40ms queue=0.1bdp", 2),
];
const SHALLOW_COMPARED: [u32; 8] = [1, 2, 3, 4, 6, 8, 12, 16];
const SHALLOW_MISSES: [&str; 1] = ["rate=200mbit rtt=100ms queue=0.1bdp"];

/// Paths with random loss, and long paths: combinations of rate, RTT and loss with the kernel's default buffers. Only 16
/// connections, or as many as fill the link, are enough on most of them.
const LOSSY: &str = r#"
name = "lossy"
duration = "50s"
[path]
rate = ["50mbit", "340mbit"]
rtt = ["20ms", "60ms", "140ms"]
loss = ["0.5%", "1.5%", "3%"]
[host]
sndbuf = "4MiB"
rcvbuf = "32MiB"
notsent_lowat = "128KiB"
[[flow]]
cc = "cubic"
"#;
const LOSSY_COMPARED: [u32; 7] = [1, 2, 4, 6, 8, 12, 16];
const LOSSY_SEEDS: [u64; 2] = [1, 2];
const LOSSY_MISSES: [(u64, &str); 2] =
    [(2, "rate=50mbit rtt=20ms loss=0.5%"), (2, "rate=50mbit rtt=20ms loss=3%")];

/// Paths for copies that end soon after slow start, and the sizes of these copies in MB. At 500 Mbit/s and 210 ms, four
/// connections fill the link; on the other paths, one does or two do.
const SHORT: &str = r#"
name = "short"
duration = "12s"
[path]
rate = ["100mbit", "500mbit"]
rtt = ["40ms", "210ms"]
queue = "1bdp"
[host]
sndbuf = "4MiB"
rcvbuf = "32MiB"
notsent_lowat = "128KiB"
[[flow]]
cc = "cubic"
"#;
const SHORT_SIZES: [u64; 3] = [2, 10, 100];
/// Send and receive buffer of these paths.
const SHORT_BUFFERS: (Bytes, Bytes) = (Bytes::from_mib(4), Bytes::from_mib(32));

/// Path on which the user states the link rate, because from a single connection, a shaper looks like the link.
const STATED: &str = "shaper of each";

fn points() -> Vec<(Point, u32)> {
    let file = include_str!("../../../../experiments/copy-connections.toml");
    let points = Experiment::from_toml(file).expect("an experiment").points().to_vec();
    assert_eq!(points.len(), NEEDED.len());
    let needed = |(point, (name, needed)): (Point, (&str, u32))| {
        assert_eq!(point.parameters["point"], name);
        (point, needed)
    };
    points.into_iter().zip(NEEDED).map(needed).collect()
}

fn settled(scenario: &Scenario) -> Instant {
    Instant::ZERO + SETTLED + scenario.path.rtt() * SETTLED_ROUND_TRIPS
}

/// Returns the rate of a fixed number of connections, measured after the time in which a copy must settle.
fn rate_of(scenario: &Scenario, count: u32) -> Rate {
    let connections = Connections::new(count, count).expect("a number");
    simulate(scenario, connections, None).rate_since(settled(scenario))
}

/// Result of a copy that chooses its number of connections.
struct Chosen {
    rate: Rate,
    most: u32,
    changes: String,
}

fn chosen(point: &Point) -> Chosen {
    let scenario = &point.scenario;
    let is_stated = point.parameters.get("point").is_some_and(|name| name == STATED);
    let link = is_stated.then_some(scenario.path.forward.rate);
    let course = simulate(scenario, Connections::AUTO, link);
    let change = |(at, count): &(Instant, u32)| {
        format!("{count} ({:.1} s)", at.saturating_since(Instant::ZERO).as_secs_f64())
    };
    let from = settled(scenario);
    Chosen {
        rate: course.rate_since(from),
        most: course.most_since(from + SEARCHED),
        changes: course.changes().iter().map(change).collect::<Vec<_>>().join(", "),
    }
}

fn ratio(rate: Rate, of: Rate) -> f64 {
    rate.as_bps() as f64 / of.as_bps() as f64
}

/// This test takes half of the experiment's duration, and compares the copy only with the sufficient number; the next
/// test compares it with all numbers.
#[test]
fn a_copy_chooses_about_as_many_connections_as_are_enough() {
    let mut misses = String::new();
    for (mut point, needed) in points() {
        // If the send buffer is the limit, the windows of new connections grow for 15 s.
        if point.parameters["point"] != "send buffer" {
            point.scenario.duration = point.scenario.duration / 2;
        }
        let (chosen, enough) = (chosen(&point), rate_of(&point.scenario, needed));
        let (reached, most) = (ratio(chosen.rate, enough), f64::from(chosen.most) / f64::from(needed));
        if reached < ENOUGH || most > MOST {
            let Chosen { most, changes, .. } = chosen;
            let _ = writeln!(misses, "{}: {reached:.3}, {most} for {needed}: {changes}", point.label);
        }
    }
    assert_eq!(misses, "");
}

/// The losses of a trial would cost more than its connections can add, so the cycles of the windows decide.
#[test]
fn a_copy_in_front_of_a_shallow_queue_fills_the_link() {
    let experiment = Experiment::from_toml(SHALLOW).expect("an experiment");
    for (label, needed) in SHALLOW_NEEDED {
        let point = experiment.points().iter().find(|point| point.label == label).expect("a point");
        let (chosen, enough) = (chosen(point), rate_of(&point.scenario, needed));
        let (reached, most) = (ratio(chosen.rate, enough), f64::from(chosen.most) / f64::from(needed));
        assert!(reached >= 0.97 && most <= MOST, "{label}: {reached:.3}, {}", chosen.changes);
    }
}

/// Returns the time at which a fixed number of connections has delivered each of `sizes`, without the handshakes.
fn times_of(scenario: &Scenario, count: u32, sizes: [u64; 3]) -> [Option<Duration>; 3] {
    let course = simulate(scenario, Connections::new(count, count).expect("a number"), None);
    sizes.map(|size| {
        let state = course.0.iter().find(|state| state.read >= Bytes::new(size * 1_000_000))?;
        Some(state.at.saturating_since(Instant::ZERO))
    })
}

/// The forecast predicts the time of each number from the slow start of its windows. The simulated connections begin at the
/// same time, which the first seven connections of a copy do, too.
#[test]
fn a_short_copy_starts_with_about_the_fastest_number() {
    const MOST: u32 = 7;
    let experiment = Experiment::from_toml(SHORT).expect("an experiment");
    for point in experiment.points() {
        let path = &point.scenario.path;
        let (rtt, link) = (path.rtt(), path.forward.rate);
        let times: Vec<_> = (1..=MOST).map(|count| times_of(&point.scenario, count, SHORT_SIZES)).collect();
        for (index, size) in SHORT_SIZES.into_iter().enumerate() {
            let Some(best) = times.iter().filter_map(|times| times[index]).min() else { continue };
            let buffers =
                fullpipe_relay::Buffers { send: Some(SHORT_BUFFERS.0), receive: Some(SHORT_BUFFERS.1) };
            let mut choice = Choice::new(1, MOST, Some(link));
            let count = choice.forecast(rtt, buffers, Some(Bytes::new(size * 1_000_000)));
            let chosen = times[count as usize - 1][index].expect("as fast as the best");
            let line = format!(
                "{}, {size} MB: {count} in {chosen}, best {best}, one {:?}",
                point.label, times[0][index]
            );
            println!("{line}");
            // The handshakes and the last reply take four round trips more.
            assert!(chosen + rtt * 4 <= (best + rtt * 4).mul_div(105, 100), "{line}");
        }
    }
}

/// With random loss, each connection has a rate of its own, which varies: rates of single seconds decide little, and the
/// number of losses decides.
#[test]
fn a_copy_over_a_lossy_path_takes_all_connections() {
    let experiment = Experiment::from_toml(LOSSY).expect("an experiment");
    for label in ["rate=340mbit rtt=140ms loss=1.5%", "rate=50mbit rtt=60ms loss=1.5%"] {
        for seed in LOSSY_SEEDS {
            let point = experiment.points().iter().find(|point| point.label == label).expect("a point");
            let mut point = point.clone();
            point.scenario.seed = seed;
            let (chosen, enough) = (chosen(&point), rate_of(&point.scenario, 16));
            let reached = ratio(chosen.rate, enough);
            assert!(reached >= ENOUGH, "{label}, seed {seed}: {reached:.3}, {}", chosen.changes);
        }
    }
}

/// Compares a copy with the fixed numbers `counts`. Returns a row of the page, the smallest sufficient number, and whether a
/// bound is missed.
fn compared(point: &Point, name: &str, counts: &[u32]) -> (String, u32, bool) {
    let fixed: Vec<Rate> = counts.iter().map(|count| rate_of(&point.scenario, *count)).collect();
    let best = fixed.iter().copied().max().expect("sixteen rates");
    let enough = fixed.iter().position(|rate| ratio(*rate, best) >= ENOUGH).map_or(0, |index| counts[index]);
    let Chosen { rate, most, changes } = chosen(point);
    let reached = ratio(rate, best);
    let row = format!(
        "| {name} | {} | {best} | {enough} | {rate} | {reached:.3} | {most} | {changes} |\n",
        fixed[0]
    );
    (row, enough, reached < ENOUGH || f64::from(most) > MOST * f64::from(enough))
}

/// With `SNAPSHOTS=overwrite`, this test writes `docs/evidence/copy-connections.md`.
#[test]
#[ignore = "five minutes: cargo test -p fullpipe --features relay --lib -- --ignored twelve_paths"]
fn a_copy_chooses_as_many_connections_as_twelve_paths_need() {
    let mut page = include_str!("page.md").to_owned();
    let heading = page.lines().rev().take(2).collect::<Vec<_>>();
    let heading = format!("{}\n{}\n", heading[1], heading[0]);
    let mut misses = String::new();
    for (point, needed) in points() {
        let (row, enough, is_miss) = compared(&point, &point.parameters["point"], &ALL);
        if is_miss || enough != needed {
            misses += &row;
        }
        page += &row;
    }
    let file = include_str!("../../../../experiments/copy-connections.toml");
    for seed in NEIGHBOURS {
        let _ = write!(page, "\n## Neighbouring paths, seed {seed}\n\n{heading}");
        let experiment = Experiment::from_toml(&neighbouring(file, seed)).expect("an experiment");
        for point in experiment.points() {
            let name = point.parameters["point"].as_str();
            let (row, _, is_miss) = compared(point, name, &ALL);
            let is_known = MISSES.contains(&(seed, name));
            if is_miss != is_known {
                misses += &row;
            }
            page += &row;
        }
    }
    let _ = write!(page, "\n## Shallow queues\n\n{heading}");
    for point in Experiment::from_toml(SHALLOW).expect("an experiment").points() {
        let name = ["rate", "rtt", "queue"].map(|key| point.parameters[key].as_str()).join(", ");
        let (row, _, is_miss) = compared(point, &name, &SHALLOW_COMPARED);
        if is_miss != SHALLOW_MISSES.contains(&point.label.as_str()) {
            misses += &row;
        }
        page += &row;
    }
    let _ = write!(page, "\n## Random loss\n\n{heading}");
    for point in Experiment::from_toml(LOSSY).expect("an experiment").points() {
        let path = ["rate", "rtt", "loss"].map(|key| point.parameters[key].as_str()).join(", ");
        for seed in LOSSY_SEEDS {
            let mut point = point.clone();
            point.scenario.seed = seed;
            let (row, _, is_miss) = compared(&point, &format!("{path}, seed {seed}"), &LOSSY_COMPARED);
            if is_miss != LOSSY_MISSES.contains(&(seed, point.label.as_str())) {
                misses += &row;
            }
            page += &row;
        }
    }
    println!("{page}");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/evidence/copy-connections.md");
    if env::var("SNAPSHOTS").is_ok_and(|action| action == "overwrite") {
        fs::write(&file, &page).expect("written");
    }
    assert_eq!(misses, "");
    assert_eq!(fs::read_to_string(&file).expect("a page"), page);
}

/// Returns the experiment with each rate, time and buffer size changed by up to a third. The duration does not change.
fn neighbouring(file: &str, seed: u64) -> String {
    let (mut text, mut number) = (String::new(), 0);
    for (index, part) in file.split('"').enumerate() {
        // After splitting at the quotation marks, every second part is a quoted value.
        let changed =
            [("ms", 1000, "us"), ("mbit", 1000, "kbit"), ("MiB", 1 << 20, "B"), ("KiB", 1 << 10, "B")]
                .into_iter()
                .filter(|_| index % 2 == 1)
                .find_map(|(unit, parts, smaller)| {
                    let value: u64 = part.strip_suffix(unit)?.parse().ok()?;
                    number += 1;
                    let thirds = 200 + draw(seed, 0, number) % 200;
                    Some(format!("{}{smaller}", value * parts * thirds / 300))
                });
        text += if index == 0 { "" } else { "\"" };
        text += changed.as_deref().unwrap_or(part);
    }
    text
}
