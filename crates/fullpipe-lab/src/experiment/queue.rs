//! Field type for the queue of one direction: a size, or a table that selects the AQM.

use fullpipe_path::{CodelConfig, Discipline, FqCodelConfig, PieConfig, RedConfig};
use fullpipe_units::{Bytes, Duration, Probability};

use super::ExperimentError;
use super::impairments::Share;
use super::number::Number;
use super::value::{Amount, Value, fields, of_unit, out_of_range, whole_number};

/// Size and AQM of a queue. Sizes that are multiples of the BDP are converted to bytes later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Queue {
    size: Amount,
    manager: Manager,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manager {
    DropTail,
    Step {
        threshold: Amount,
    },
    Red {
        min: Option<Amount>,
        max: Option<Amount>,
        probability: Probability,
        gentle: bool,
        ecn: bool,
    },
    /// A queue discipline whose parameters do not depend on the BDP.
    Fixed(Discipline),
}

impl Queue {
    pub(super) const ONE_BDP: Self = Self { size: Amount::ONE_BDP, manager: Manager::DropTail };

    /// Returns the size in bytes and the queue discipline, on a path with the given BDP.
    pub(super) fn resolve(self, bdp: Bytes) -> Result<(Bytes, Discipline), ExperimentError> {
        let size = self.size.resolve(bdp);
        let discipline = match self.manager {
            Manager::DropTail => Discipline::DropTail,
            Manager::Step { threshold } => Discipline::Step(threshold.resolve(bdp)),
            Manager::Fixed(discipline) => discipline,
            Manager::Red { min, max, probability, gentle, ecn } => {
                // In tc-red, `max` defaults to a quarter of the limit, and `min` to a third of `max`.
                let max = max.map_or(size.mul_div(1, 4), |max| max.resolve(bdp));
                let min = min.map_or(max.mul_div(1, 3), |min| min.resolve(bdp));
                if min >= max {
                    return Err(ExperimentError::new(
                        format!("red requires max above min, but min is {min} and max is {max}"),
                        "increase max, usually to three times min",
                    ));
                }
                Discipline::Red(RedConfig { min, max, probability, gentle, ecn })
            }
        };
        Ok((size, discipline))
    }
}

/// Keys that each AQM accepts in addition to `size` and `aqm`.
const DISCIPLINES: [(&str, &[&str]); 6] = [
    ("droptail", &[]),
    ("step", &["threshold"]),
    ("red", &["min", "max", "probability", "gentle", "ecn"]),
    ("pie", &["target", "update", "burst", "ecn"]),
    ("codel", &["target", "interval", "ecn"]),
    ("fq_codel", &["target", "interval", "flows", "quantum", "packets", "ecn"]),
];

/// Type: amount, or table
impl Value for Queue {
    const EXAMPLE: &'static str = "write 1bdp, or { size = \"1bdp\", aqm = \"codel\", target = \"5ms\", interval = \"100ms\", ecn = true }";
    const KEYS: &'static [&'static str] = &[
        "size",
        "aqm",
        "threshold",
        "min",
        "max",
        "probability",
        "gentle",
        "target",
        "interval",
        "update",
        "burst",
        "flows",
        "quantum",
        "packets",
        "ecn",
    ];

    /// Parses a queue such as `1bdp`, `aqm=codel` or `size=1bdp,aqm=red,min=30KiB,max=90KiB`.
    fn read(text: &str) -> Result<Self, ExperimentError> {
        if !text.contains('=') {
            let size = Amount::read(text).map_err(|e| ExperimentError { hint: Self::EXAMPLE.into(), ..e })?;
            return Ok(Self { size, manager: Manager::DropTail });
        }
        let fields = fields::<Self>("queue", text)?;
        let aqm = fields.get("aqm").copied().unwrap_or("droptail");
        let Some((_, allowed)) = DISCIPLINES.iter().find(|(name, _)| *name == aqm) else {
            let names: Vec<_> = DISCIPLINES.iter().map(|(name, _)| *name).collect();
            let known = format!("known: {}", names.join(", "));
            return Err(ExperimentError::new(format!("unknown aqm '{aqm}'"), known));
        };
        let foreign = |key: &&&str| !["size", "aqm"].contains(*key) && !allowed.contains(*key);
        if let Some(key) = fields.keys().find(foreign) {
            let hint = match allowed.is_empty() {
                true => "a drop-tail queue accepts only size; add aqm = \"codel\"".into(),
                false => format!("allowed with {aqm}: {}", allowed.join(", ")),
            };
            return Err(ExperimentError::new(format!("{aqm} has no {key}"), hint));
        }
        let amount = |key| fields.get(key).map(|text| Amount::read(text)).transpose();
        let time = |key, default| match fields.get(key) {
            None => Ok(default),
            Some(text) => match Duration::read(text)? {
                time if (LEAST_TIME..=MOST_TIME).contains(&time) => Ok(time),
                _ => Err(out_of_range(key, text, "10us to 100s")),
            },
        };
        let flag = |key, default| fields.get(key).map_or(Ok(default), |text| bool::read(text));
        let ecn = flag("ecn", false)?;
        let codel = CodelConfig {
            target: time("target", CodelConfig::RFC8289.target)?,
            interval: time("interval", CodelConfig::RFC8289.interval)?,
            ecn,
        };
        let manager = match aqm {
            "step" => match amount("threshold")? {
                Some(threshold) => Manager::Step { threshold },
                None => {
                    return Err(ExperimentError::new(
                        "step requires 'threshold'",
                        "add threshold = \"100KiB\"",
                    ));
                }
            },
            "red" => Manager::Red {
                min: amount("min")?,
                max: amount("max")?,
                probability: fields
                    .get("probability")
                    .map_or(Ok(RED_PROBABILITY), |text| Share::read(text).map(|share| share.0))?,
                gentle: flag("gentle", true)?,
                ecn,
            },
            "pie" => Manager::Fixed(Discipline::Pie(PieConfig {
                target: time("target", PieConfig::RFC8033.target)?,
                update: time("update", PieConfig::RFC8033.update)?,
                burst: time("burst", PieConfig::RFC8033.burst)?,
                ecn,
            })),
            "codel" => Manager::Fixed(Discipline::Codel(codel)),
            "fq_codel" => {
                let default = FqCodelConfig::RFC8290;
                let number = |key, default| match fields.get(key) {
                    None => Ok(default),
                    Some(text) => whole_number(key, text, 1, 65_536).map(|n| n as u32),
                };
                let quantum = match fields.get("quantum").map(|text| (text, text.parse::<Bytes>())) {
                    None => default.quantum,
                    Some((_, Ok(quantum))) if (64..=1 << 20).contains(&quantum.get()) => quantum,
                    Some((text, Ok(_))) => return Err(out_of_range("quantum", text, "64B to 1MiB")),
                    Some((_, Err(error))) => return Err(of_unit(&error, "write 1514B")),
                };
                Manager::Fixed(Discipline::FqCodel(FqCodelConfig {
                    codel,
                    flows: number("flows", default.flows)?,
                    quantum,
                    packets: number("packets", default.packets)?,
                }))
            }
            _ => Manager::DropTail,
        };
        Ok(Self { size: amount("size")?.unwrap_or(Amount::ONE_BDP), manager })
    }

    fn between(from: &Self, to: &Self, step: u64, last: u64) -> Option<String> {
        let sizes_only = from.manager == Manager::DropTail && to.manager == Manager::DropTail;
        sizes_only.then(|| Amount::between(&from.size, &to.size, step, last)).flatten()
    }

    fn number(&self) -> Option<Number> {
        match self.manager {
            Manager::DropTail => self.size.number(),
            _ => None,
        }
    }
}

/// Shortest time accepted as an AQM parameter. A shorter time has no effect on a queue and would only cost
/// run time.
const LEAST_TIME: Duration = Duration::from_micros(10);
const MOST_TIME: Duration = Duration::from_secs(100);
/// Default value of `max_P` in `tc-red`: 2 %.
const RED_PROBABILITY: Probability = Probability::from_ppm(20_000);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;

    fn with_queue(queue: &str) -> Result<Experiment, ExperimentError> {
        let path = format!("rate = '100mbit'\nrtt = '40ms'\nqueue = {queue}");
        Experiment::from_toml(&format!(
            "name = 'x'\nduration = '20s'\n[path]\n{path}\n[[flow]]\ncc = 'cubic'\n\
             [[expect]]\nwhere = {{ queue = 'ecn=true,aqm=codel' }}\nmetric = 'marked'\nmin = 0"
        ))
    }

    /// A queue is a size, a table, or a list of both. Omitted keys have the RFC's defaults, and tables are
    /// compared by their values.
    #[test]
    fn queues_are_sizes_or_managed() {
        let experiment = with_queue(
            "['2bdp', { aqm = 'codel', ecn = true }, { size = '1MiB', aqm = 'red', max = '0.25bdp' },\
             { aqm = 'fq_codel', flows = 8, quantum = '300B', target = '1ms' }, { aqm = 'pie', burst = '50ms' },\
             { aqm = 'step', threshold = '65KiB' }]",
        )
        .unwrap_or_else(|e| panic!("{e}"));
        // BDP of a path with a rate of 100 Mbit/s and an RTT of 40 ms.
        let bdp = Bytes::new(500_000);
        let codel = CodelConfig { ecn: true, ..CodelConfig::RFC8289 };
        let red = RedConfig {
            min: Bytes::new(41_666),
            max: Bytes::new(125_000),
            probability: Probability::from_ppm(20_000),
            gentle: true,
            ecn: false,
        };
        let fair = FqCodelConfig {
            codel: CodelConfig { target: Duration::from_millis(1), ..CodelConfig::RFC8289 },
            flows: 8,
            quantum: Bytes::new(300),
            packets: 10_240,
        };
        let pie = PieConfig { burst: Duration::from_millis(50), ..PieConfig::RFC8033 };
        let expected = [
            (Bytes::new(1_000_000), Discipline::DropTail),
            (bdp, Discipline::Codel(codel)),
            (Bytes::from_mib(1), Discipline::Red(red)),
            (bdp, Discipline::FqCodel(fair)),
            (bdp, Discipline::Pie(pie)),
            (bdp, Discipline::Step(Bytes::from_kib(65))),
        ];
        let found: Vec<_> = experiment.points().iter().map(|point| &point.scenario.path.forward).collect();
        for (direction, expected) in found.iter().zip(expected) {
            assert_eq!((direction.queue, direction.discipline), expected);
        }
        assert_eq!(experiment.points()[1].label, "queue=aqm=codel,ecn=true");
        assert_eq!(experiment.expectations()[0].points, [1], "compared as values");
    }

    #[test]
    fn ranges_of_sizes_stay_ranges() {
        let path = "rate = { from = '10mbit', to = '30mbit', steps = 3 }\nrtt = '40ms'\n\
                    queue = { from = '1bdp', to = '2bdp', steps = 2 }";
        let text = format!("name = 'x'\nduration = '20s'\n[path]\n{path}\n[[flow]]\ncc = 'cubic'\n");
        assert_eq!(Experiment::from_toml(&text).expect("valid").points().len(), 6);
    }

    #[test]
    fn what_a_manager_does_not_know_is_refused() {
        for (queue, message, hint) in [
            ("{ aqm = 'cake' }", "unknown aqm 'cake'", "known: droptail, step, red, pie, codel, fq_codel"),
            (
                "{ aqm = 'pie', interval = '1ms' }",
                "pie has no interval",
                "allowed with pie: target, update, burst, ecn",
            ),
            (
                "{ ecn = true }",
                "droptail has no ecn",
                "a drop-tail queue accepts only size; add aqm = \"codel\"",
            ),
            ("{ aqm = 'step' }", "step requires 'threshold'", "add threshold = \"100KiB\""),
            (
                "{ aqm = 'red', min = '9KiB', max = '9KiB' }",
                "red requires max above min, but min is 9 KiB and max is 9 KiB",
                "increase max, usually to three times min",
            ),
            ("{ aqm = 'codel', target = '0s' }", "target '0s' is out of range", "allowed: 10us to 100s"),
            ("{ aqm = 'fq_codel', quantum = '1B' }", "quantum '1B' is out of range", "allowed: 64B to 1MiB"),
            ("{ aqm = 'codel', limit = 9 }", "unknown key 'limit'", "allowed here: size, aqm"),
        ] {
            let error = with_queue(queue).expect_err(queue);
            assert!(error.message.ends_with(message), "{queue}: {}", error.message);
            assert!(error.hint.starts_with(hint), "{queue}: {}", error.hint);
        }
    }
}
