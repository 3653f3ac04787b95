//! Variants of the eleven situations. The variants are drawn from a seed instead of being chosen by hand.
//!
//! The rate of the link, the RTT, the congestion control and the value that limits the flow are drawn
//! independently of each other. Some combinations do not have the limit of their situation: on a slow path,
//! for example, a loss of 0.1 % does not limit any flow. The caller decides which combinations have the
//! limit; the others are drawn again.

use fullpipe::lab::experiment::{Experiment, ExperimentError, Point};
use fullpipe::lab::scenario::Scenario;
use fullpipe::units::{Bytes, Duration, Rate, draw};

/// Seed of the drawn variants; it was chosen before any of them was run.
pub const SEED: u64 = 16;
/// Seed of the run for the first draw; each further draw uses the next seed.
const FIRST_SEED: u64 = 1_000;
/// Maximum number of draws for all variants of one situation.
const ATTEMPTS: u64 = 200;

/// Link rates in Mbit/s and RTTs in milliseconds. The smallest BDP is 200 KB, so that a fraction of it is
/// still many segments.
const PATHS: [(u64, u64); 14] = [
    (20, 80),
    (20, 150),
    (40, 60),
    (40, 120),
    (60, 30),
    (60, 200),
    (100, 25),
    (100, 70),
    (100, 160),
    (150, 40),
    (150, 100),
    (200, 15),
    (200, 50),
    (200, 120),
];
const CONTROLS: [&str; 3] = ["cubic", "reno", "bbr1"];
const LOSS_BASED: [&str; 2] = ["cubic", "reno"];
/// Percentages of the link rate or of the BDP to which a flow is limited.
const SHARES: [u64; 5] = [8, 15, 25, 40, 60];

/// Numbers of the random streams, one for each drawn value.
const PATH: u64 = 0;
const CONTROL: u64 = 1;
const VALUE: u64 = 2;
const SIZE: u64 = 3;

/// One draw: the drawn path, and the source of the values that a situation draws.
struct Draw {
    seed: u64,
    ordinal: u64,
    rate: u64,
    rtt: u64,
}

/// Settings that turn a draw into a point of a situation: a description, and the keys of the `[[point]]`.
struct Settings {
    what: String,
    path: String,
    host: String,
    flow: String,
}

impl Settings {
    fn flow(what: impl Into<String>, flow: impl Into<String>) -> Self {
        Self { what: what.into(), path: String::new(), host: String::new(), flow: flow.into() }
    }

    fn path(what: impl Into<String>, path: impl Into<String>, flow: impl Into<String>) -> Self {
        Self { path: path.into(), ..Self::flow(what, flow) }
    }
}

impl Draw {
    fn new(seed: u64, ordinal: u64) -> Self {
        let (rate, rtt) = PATHS[(draw(seed, PATH, ordinal) % PATHS.len() as u64) as usize];
        Self { seed, ordinal, rate, rtt }
    }

    fn pick<T: Copy>(&self, stream: u64, of: &[T]) -> T {
        of[(draw(self.seed, stream, self.ordinal) % of.len() as u64) as usize]
    }

    fn control(&self, of: &[&'static str]) -> String {
        format!("cc = \"{}\"", self.pick(CONTROL, of))
    }

    fn bdp(&self) -> Bytes {
        Rate::from_bps(self.rate * 1_000_000) * Duration::from_millis(self.rtt)
    }

    /// Returns a share of the link rate, in kbit/s.
    fn slower(&self) -> u64 {
        self.rate * 10 * self.pick(VALUE, &SHARES)
    }

    /// Returns a share of the BDP in KiB.
    fn smaller(&self) -> u64 {
        (self.bdp().get() * self.pick(VALUE, &SHARES) / 100 / 1024).max(64)
    }
}

/// A situation with its limit.
struct Template {
    /// Name of the situation in `experiments/kernel-situations.toml`.
    name: &'static str,
    limit: &'static str,
    settings: fn(&Draw) -> Settings,
}

const TEMPLATES: [Template; 11] = [
    Template {
        name: "sndbuf: 256 KiB set by hand",
        limit: "sndbuf",
        settings: |of| {
            let size = of.smaller();
            let host = format!("sndbuf = {{ fixed = \"{size}KiB\" }}");
            Settings { host, ..Settings::flow(format!("{size} KiB"), of.control(&CONTROLS)) }
        },
    },
    Template {
        name: "rwnd: 256 KiB set by hand",
        limit: "rwnd",
        settings: |of| {
            let size = of.smaller();
            let host = format!("rcvbuf = {{ fixed = \"{size}KiB\" }}");
            Settings { host, ..Settings::flow(format!("{size} KiB"), of.control(&CONTROLS)) }
        },
    },
    Template {
        name: "receiver_app: reads 8 Mbit/s",
        limit: "receiver_app",
        settings: |of| {
            let rate = of.slower();
            let flow = format!("{}, app = {{ read = \"{rate}kbit\" }}", of.control(&CONTROLS));
            Settings::flow(format!("{rate} kbit/s"), flow)
        },
    },
    Template {
        name: "app: writes 20 Mbit/s",
        limit: "app",
        settings: |of| {
            let rate = of.slower();
            let flow = format!("{}, app = {{ write = \"{rate}kbit\" }}", of.control(&CONTROLS));
            Settings::flow(format!("{rate} kbit/s"), flow)
        },
    },
    Template {
        name: "cwnd: 1 % lost with CUBIC",
        limit: "cwnd",
        settings: |of| {
            let loss = of.pick(VALUE, &["0.1%", "0.2%", "0.5%", "1%", "2%"]);
            Settings::path(loss, format!("loss = \"{loss}\""), of.control(&LOSS_BASED))
        },
    },
    Template {
        name: "link: 2 % lost with BBR",
        limit: "link",
        settings: |of| {
            let loss = of.pick(VALUE, &["0.5%", "1%", "2%", "3%"]);
            Settings::path(loss, format!("loss = \"{loss}\""), "cc = \"bbr1\"")
        },
    },
    Template {
        name: "link: a deep queue",
        limit: "link",
        settings: |of| {
            let queue = of.pick(VALUE, &[2, 3, 4, 6]);
            let path = format!("queue = \"{queue}bdp\"");
            Settings::path(format!("{queue} BDP"), path, of.control(&LOSS_BASED))
        },
    },
    Template {
        name: "pacing: SO_MAX_PACING_RATE 30 Mbit/s",
        limit: "pacing",
        settings: |of| {
            let rate = of.slower();
            let flow = format!("{}, max_pacing = \"{rate}kbit\"", of.control(&CONTROLS));
            Settings::flow(format!("{rate} kbit/s"), flow)
        },
    },
    Template {
        name: "slow_start: a short flow",
        limit: "slow_start",
        settings: |of| {
            let size = (of.bdp().get() * of.pick(VALUE, &[30, 50, 80]) / 100 / 1024).max(128);
            let flow = format!("{}, bytes = \"{size}KiB\"", of.control(&CONTROLS));
            Settings::flow(format!("{size} KiB"), flow)
        },
    },
    Template {
        name: "policer: 20 Mbit/s for each flow",
        limit: "policer",
        settings: |of| {
            let (rate, burst) = (of.slower(), of.pick(SIZE, &[32, 64, 128]));
            let path =
                format!("policer = {{ rate = \"{rate}kbit\", burst = \"{burst}KiB\", per_flow = true }}");
            Settings::path(format!("{rate} kbit/s, {burst} KiB"), path, of.control(&CONTROLS))
        },
    },
    Template {
        name: "cap: a shaper of 20 Mbit/s for each flow",
        limit: "cap",
        settings: |of| {
            let (rate, queue) = (of.slower(), of.pick(SIZE, &[128, 256, 512]));
            let path = format!(
                "shaper = {{ rate = \"{rate}kbit\", burst = \"32KiB\", queue = \"{queue}KiB\", per_flow = true }}"
            );
            Settings::path(format!("{rate} kbit/s, {queue} KiB"), path, of.control(&CONTROLS))
        },
    },
];

/// Returns the name of the situation to which a point belongs.
pub fn situation(point: &Point) -> &str {
    point.label.split_once("; drawn ").map_or(&point.label, |(situation, _)| situation)
}

/// Returns `count` variants of each situation, with runs of `duration`. The scenario of each variant contains
/// the seed of its run. A variant for which `has_its_limit` is false is drawn again. If too many draws of a
/// situation fail, the situation has fewer variants.
///
/// # Errors
/// Returns an error if `duration` is not valid in an experiment.
pub fn points(
    seed: u64,
    count: u64,
    duration: Duration,
    mut has_its_limit: impl FnMut(&Point) -> bool,
) -> Result<Vec<Point>, ExperimentError> {
    let mut points = Vec::new();
    for (nth, template) in (0..).zip(&TEMPLATES) {
        let (mut number, first) = (1, nth * ATTEMPTS);
        for ordinal in first..first + ATTEMPTS {
            if number > count {
                break;
            }
            let point = point(template, &Draw::new(seed, ordinal), number, duration)?;
            let is_known = |known: &Point| {
                Scenario { seed: point.scenario.seed, ..known.scenario.clone() } == point.scenario
            };
            if !points.iter().any(is_known) && has_its_limit(&point) {
                points.push(point);
                number += 1;
            }
        }
    }
    Ok(points)
}

fn point(template: &Template, of: &Draw, number: u64, duration: Duration) -> Result<Point, ExperimentError> {
    let Settings { what, path, host, flow } = (template.settings)(of);
    let cc = flow.split('"').nth(1).unwrap_or_default();
    let (name, limit, rate, rtt) = (template.name, template.limit, of.rate, of.rtt);
    // The keys of a point replace the keys of the tables above it.
    let text = format!(
        "name = \"drawn-situations\"\nduration = \"{}ms\"\n[path]\nrate = \"{rate}mbit\"\nrtt = \"{rtt}ms\"\n\
         queue = \"1bdp\"\n[host]\nsndbuf = \"16MiB\"\nrcvbuf = \"16MiB\"\n[[flow]]\ncc = \"cubic\"\n\
         [[sample]]\nevery = \"50ms\"\n\
         [[point]]\nname = \"{name}; drawn {number}: {rate} Mbit/s, {rtt} ms, {cc}, {what}\"\nlimit = \"{limit}\"\n\
         path = {{ {path} }}\nhost = {{ {host} }}\nflow = {{ {flow} }}\n",
        duration.as_millis()
    );
    let experiment = Experiment::from_toml(&text)?;
    // The file has one [[point]] without lists. Other losses might give the run another limit, so the seed is
    // part of the variant.
    let point = &experiment.points()[0];
    let scenario = Scenario { seed: FIRST_SEED + of.ordinal, ..point.scenario.clone() };
    Ok(Point { scenario, ..point.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classifier_validation::expected;

    fn drawn(seed: u64) -> Vec<Point> {
        points(seed, 3, Duration::from_secs(10), |_| true).expect("valid")
    }

    /// Published results refer to these variants, so they must not change with the list, the seed
    /// or the draws.
    #[test]
    fn the_seed_draws_these_variants() {
        let labels: Vec<String> = drawn(SEED).into_iter().map(|point| point.label).collect();
        assert_eq!(labels.len(), 3 * TEMPLATES.len());
        let drawn = |name: &str| {
            let label = labels.iter().find(|label| label.starts_with(name));
            label.and_then(|label| label.split_once("; drawn ")).map(|(_, drawn)| drawn.to_owned())
        };
        assert_eq!(drawn("sndbuf").as_deref(), Some("1: 200 Mbit/s, 50 ms, cubic, 305 KiB"));
        assert_eq!(drawn("policer").as_deref(), Some("1: 60 Mbit/s, 30 ms, cubic, 24000 kbit/s, 64 KiB"));
    }

    #[test]
    fn every_variant_has_the_limit_of_its_situation() {
        for point in drawn(1) {
            let limit = expected(&point).expect("a limit");
            assert!(situation(&point).starts_with(limit.name()), "{}", point.label);
            assert!(point.label.len() > situation(&point).len());
        }
    }

    /// A variant without its limit is replaced, and a situation whose draws never have the limit
    /// has no variants.
    #[test]
    fn variants_without_their_limit_are_drawn_again() {
        let slow = |point: &Point| point.scenario.path.forward.rate < Rate::from_bps(50_000_000);
        let points = points(SEED, 2, Duration::from_secs(1), slow).expect("valid");
        assert_eq!(points.len(), 2 * TEMPLATES.len());
        assert!(points.iter().all(slow));
        assert!(super::points(SEED, 2, Duration::from_secs(1), |_| false).expect("valid").is_empty());
    }
}
