//! Field types for link rates and for impairments of one direction: jitter, duplication, detours, aggregation
//! and ACK decimation.

use std::collections::BTreeMap;

use fullpipe_path::{AggregatorConfig, DetourConfig, JitterConfig, Opportunities, Spread};
use fullpipe_units::{Bytes, Duration, Probability, Rate};

use super::ExperimentError;
use super::number::Number;
use super::value::{Delay, Value, fields, of_unit, out_of_range, whole_number};

/// The rate of a link: constant, or given by a trace file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LinkRate {
    Constant(Rate),
    /// Name of a trace file, as written in the experiment file.
    Trace(String),
}

/// Type: rate, or `{ trace = "FILE" }`
/// Range: `1bit` to `1tbit`
impl Value for LinkRate {
    const EXAMPLE: &'static str = "write 340mbit, or { trace = \"cellular.trace\" }";
    const KEYS: &'static [&'static str] = &["trace"];

    /// Parses a link rate such as `340mbit` or `trace=cellular.trace`.
    fn read(text: &str) -> Result<Self, ExperimentError> {
        match text.split_once('=') {
            Some(("trace", name)) if !name.trim().is_empty() => Ok(Self::Trace(name.trim().into())),
            Some(_) => Err(ExperimentError::new(format!("rate '{text}' is invalid"), Self::EXAMPLE)),
            None => Rate::read(text).map(Self::Constant),
        }
    }

    fn between(from: &Self, to: &Self, step: u64, last: u64) -> Option<String> {
        match (from, to) {
            (Self::Constant(from), Self::Constant(to)) => Rate::between(from, to, step, last),
            _ => None,
        }
    }

    fn number(&self) -> Option<Number> {
        match self {
            Self::Constant(rate) => rate.number(),
            Self::Trace(_) => None,
        }
    }
}

/// Parsed trace files of an experiment, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Traces(BTreeMap<String, Opportunities>);

impl Traces {
    /// Reads each trace file in `names` once.
    pub(super) fn read<'n>(
        names: impl Iterator<Item = &'n str>,
        load: &dyn Fn(&str) -> Result<String, String>,
    ) -> Result<Self, ExperimentError> {
        let mut traces = BTreeMap::new();
        for name in names {
            if !traces.contains_key(name) {
                let text = load(name).map_err(|problem| {
                    ExperimentError::new(
                        problem,
                        "write the path of the trace relative to the folder of \
                        the experiment file",
                    )
                })?;
                let opportunities = opportunities(&text)
                    .map_err(|e| ExperimentError { message: format!("trace {name}: {}", e.message), ..e })?;
                traces.insert(name.to_owned(), opportunities);
            }
        }
        Ok(Self(traces))
    }

    /// Returns the names of the trace files.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns a constant rate as it is; for a trace file, returns the mean rate and the delivery
    /// opportunities.
    pub(super) fn resolve(&self, rate: &LinkRate) -> Option<(Rate, Option<Opportunities>)> {
        match rate {
            LinkRate::Constant(rate) => Some((*rate, None)),
            LinkRate::Trace(name) => {
                let opportunities = self.0.get(name)?;
                Some((opportunities.mean_rate(), Some(opportunities.clone())))
            }
        }
    }
}

/// Number of bytes that a link may send at a delivery opportunity: one full packet. (Mahimahi counts 1504
/// bytes, 4 of which are its own header.)
const OPPORTUNITY: Bytes = Bytes::new(1_500);
/// Latest time accepted in a trace file, in milliseconds: one day.
const LONGEST_TRACE: u64 = 86_400_000;

/// Parses a trace file in Mahimahi's format. Each line contains a time, in whole milliseconds, at which one
/// packet may be sent; the times are in ascending order. If several packets may be sent at the same time, the
/// line is repeated. After the last line, the trace restarts.
fn opportunities(text: &str) -> Result<Opportunities, ExperimentError> {
    const FORM: &str =
        "write one whole number of milliseconds per line, in ascending order, the last above zero";
    let mut times = Vec::new();
    let mut before = 0;
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let time = line.trim().parse::<u64>().ok().filter(|ms| (before..=LONGEST_TRACE).contains(ms));
        let Some(ms) = time else {
            return Err(ExperimentError::new(
                format!("line {}: '{}' is not a valid time", number + 1, line.trim()),
                FORM,
            ));
        };
        times.push(Duration::from_millis(ms));
        before = ms;
    }
    let period = Duration::from_millis(before);
    Opportunities::new(times, period, OPPORTUNITY)
        .ok_or_else(|| ExperimentError::new("the trace does not allow any packet to be sent", FORM))
}

/// A probability that applies to each packet, such as `1%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share(pub(super) Probability);

/// Type: probability
/// Range: 0 to 100 %
impl Value for Share {
    const EXAMPLE: &'static str = "write 1% or 20ppm";

    fn read(text: &str) -> Result<Self, ExperimentError> {
        text.parse().map(Self).map_err(|e| of_unit(&e, Self::EXAMPLE))
    }

    fn number(&self) -> Option<Number> {
        Some(Number::probability(self.0))
    }
}

/// Jitter, written as the maximum additional delay or as a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JitterSpec(pub(super) JitterConfig);

/// Type: time, or `{ up_to = "10ms", spread = "normal", share = "5%", order = false }`
/// Range: up to `100s`
impl Value for JitterSpec {
    const EXAMPLE: &'static str =
        "write 10ms, or { up_to = \"10ms\", spread = \"normal\", share = \"5%\", order = false }";
    const KEYS: &'static [&'static str] = &["up_to", "spread", "share", "order"];

    /// Parses jitter such as `10ms` or `up_to=10ms,spread=normal,share=5%,order=false`.
    fn read(text: &str) -> Result<Self, ExperimentError> {
        let plain =
            |most| JitterConfig { most, spread: Spread::Uniform, share: Probability::ONE, in_order: true };
        if !text.contains('=') {
            return Delay::read(text).map(|delay| Self(plain(delay.0)));
        }
        let fields = fields::<Self>("jitter", text)?;
        let Some(most) = fields.get("up_to") else {
            return Err(ExperimentError::new("jitter requires 'up_to'", Self::EXAMPLE));
        };
        let mut config = plain(Delay::read(most)?.0);
        config.spread = match fields.get("spread").copied() {
            None | Some("uniform") => Spread::Uniform,
            Some("normal") => Spread::Normal,
            Some("fixed") => Spread::Fixed,
            Some(other) => {
                return Err(ExperimentError::new(
                    format!("unknown jitter distribution '{other}'"),
                    "known: uniform, normal, fixed",
                ));
            }
        };
        if let Some(share) = fields.get("share") {
            config.share = Share::read(share)?.0;
        }
        if let Some(order) = fields.get("order") {
            config.in_order = bool::read(order)?;
        }
        Ok(Self(config))
    }

    fn number(&self) -> Option<Number> {
        let JitterConfig { most, spread, share, in_order } = self.0;
        let is_plain = spread == Spread::Uniform && share == Probability::ONE && in_order;
        is_plain.then(|| Number::time(most))
    }
}

/// An additional delay for a limited time, such as after a route change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Detour(pub(super) DetourConfig);

/// Type: `{ by = "40ms", at = "20s", until = "60s" }`; `until` is optional
/// Range: `by` up to `100s`
impl Value for Detour {
    const EXAMPLE: &'static str = "write { by = \"40ms\", at = \"20s\", until = \"60s\" }; until is optional";
    const KEYS: &'static [&'static str] = &["by", "at", "until"];

    /// Parses a detour such as `by=40ms,at=20s,until=60s`.
    fn read(text: &str) -> Result<Self, ExperimentError> {
        let fields = fields::<Self>("detour", text)?;
        let time = |key| -> Result<Option<Duration>, ExperimentError> {
            fields.get(key).map(|text| Duration::read(text)).transpose()
        };
        let (Some(by), Some(from)) = (fields.get("by"), time("at")?) else {
            return Err(ExperimentError::new("a detour requires both 'by' and 'at'", Self::EXAMPLE));
        };
        let until = time("until")?.unwrap_or(Duration::MAX);
        if until <= from {
            return Err(ExperimentError::new("a detour must end after it begins", Self::EXAMPLE));
        }
        Ok(Self(DetourConfig { by: Delay::read(by)?.0, from, until }))
    }
}

/// Packet aggregation, written as the maximum holding time or as a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Aggregation(pub(super) AggregatorConfig);

/// Type: time, or `{ within = "5ms", packets = 32 }`
/// Range: up to `100s`; 1 to 100 000 packets
impl Value for Aggregation {
    const EXAMPLE: &'static str = "write 5ms, or { within = \"5ms\", packets = 32 }";
    const KEYS: &'static [&'static str] = &["within", "packets"];

    /// Parses packet aggregation such as `5ms` or `within=5ms,packets=32`.
    fn read(text: &str) -> Result<Self, ExperimentError> {
        if !text.contains('=') {
            return Delay::read(text)
                .map(|delay| Self(AggregatorConfig { within: delay.0, packets: u32::MAX }));
        }
        let fields = fields::<Self>("aggregation", text)?;
        let Some(within) = fields.get("within") else {
            return Err(ExperimentError::new("aggregation requires 'within'", Self::EXAMPLE));
        };
        let packets = match fields.get("packets") {
            None => u32::MAX,
            Some(text) => whole_number("packets", text, 1, 100_000)? as u32,
        };
        Ok(Self(AggregatorConfig { within: Delay::read(within)?.0, packets }))
    }

    fn number(&self) -> Option<Number> {
        (self.0.packets == u32::MAX).then(|| Number::time(self.0.within))
    }
}

/// ACK decimation factor n: one of every n pure ACKs is forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Thinning(pub(super) u32);

/// Type: whole number
/// Range: 1 to 10
impl Value for Thinning {
    const EXAMPLE: &'static str = "write ack_thinning = 4 to keep one ACK in four";

    fn read(text: &str) -> Result<Self, ExperimentError> {
        // The ten segments of an initial window produce ten ACKs. If none of these ACKs were forwarded, the
        // transfer would stall.
        match whole_number("ack_thinning", text, 1, 10) {
            Ok(n) => Ok(Self(n as u32)),
            Err(_) => Err(out_of_range("ack_thinning", text, "1 to 10; 4 keeps one ACK in four")),
        }
    }

    fn number(&self) -> Option<Number> {
        Some(Number::count(self.0.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;

    fn load(name: &str) -> Result<String, String> {
        match name {
            "steps.trace" => Ok("1\n2\n2\n4\n".into()),
            "backwards.trace" => Ok("3\n\n2\n".into()),
            "zero.trace" => Ok("0\n0\n".into()),
            "words.trace" => Ok("12 Mbit/s\n".into()),
            other => Err(format!("cannot read {other}: there is none")),
        }
    }

    fn with_path(path: &str) -> Result<Experiment, ExperimentError> {
        let text =
            format!("name = 'x'\nduration = '20s'\n[path]\nrtt = '40ms'\n{path}\n[[flow]]\ncc = 'cubic'\n");
        Experiment::from_toml_with(&text, &load)
    }

    /// An impairment in `[path]` applies only to the data direction, whereas the rate applies to both
    /// directions. Each direction may set its own values.
    #[test]
    fn impairments_hang_on_a_direction() {
        let experiment = with_path(
            "rate = '10mbit'\njitter = '5ms'\nduplicate = '1%'\ndetour = { by = '40ms', at = '20s' }\n[path.backward]\nrate = '1mbit'\nack_thinning = 4\n\
             aggregation = { within = '5ms', packets = 32 }\n\
             jitter = { up_to = '8ms', spread = 'normal', share = '5%', order = false }",
        )
        .unwrap_or_else(|e| panic!("{e}"));
        let path = &experiment.points()[0].scenario.path;
        let ms = Duration::from_millis;
        let forward =
            JitterConfig { most: ms(5), spread: Spread::Uniform, share: Probability::ONE, in_order: true };
        let backward = JitterConfig {
            most: ms(8),
            spread: Spread::Normal,
            share: "5%".parse().expect("a share"),
            in_order: false,
        };
        assert_eq!((path.forward.jitter, path.backward.jitter), (Some(forward), Some(backward)));
        assert_eq!(
            (path.forward.duplicate, path.backward.duplicate),
            (Probability::from_ppm(10_000), Probability::ZERO)
        );
        assert_eq!((path.forward.ack_thinning, path.backward.ack_thinning), (1, 4));
        let detour = DetourConfig { by: ms(40), from: ms(20_000), until: Duration::MAX };
        assert_eq!((path.forward.detour, path.backward.detour), (Some(detour), None));
        let aggregation = AggregatorConfig { within: ms(5), packets: 32 };
        assert_eq!((path.forward.aggregation, path.backward.aggregation), (None, Some(aggregation)));
    }

    /// The trace delivers four packets in 4 ms, which is 12 Mbit/s. The BDP is computed from this mean rate.
    #[test]
    fn a_trace_stands_for_its_mean_rate() {
        let experiment =
            with_path("rate = ['12mbit', { trace = 'steps.trace' }]").unwrap_or_else(|e| panic!("{e}"));
        let [constant, traced] = experiment.points() else { panic!("two points") };
        let (constant, traced) = (&constant.scenario.path, &traced.scenario.path);
        assert_eq!(
            (traced.forward.rate, traced.forward.queue),
            (constant.forward.rate, constant.forward.queue)
        );
        assert!(
            traced.forward.trace.is_some()
                && traced.backward.trace.is_some()
                && constant.forward.trace.is_none()
        );
        assert_eq!(experiment.points()[1].label, "rate=trace=steps.trace");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (path, message) in [
            ("rate = { trace = 'none.trace' }", "cannot read none.trace: there is none"),
            (
                "rate = { trace = 'backwards.trace' }",
                "trace backwards.trace: line 3: '2' is not a valid time",
            ),
            (
                "rate = { trace = 'zero.trace' }",
                "trace zero.trace: the trace does not allow any packet to be sent",
            ),
            (
                "rate = { trace = 'words.trace' }",
                "trace words.trace: line 1: '12 Mbit/s' is not a valid time",
            ),
            ("rate = { tace = 'x' }", "unknown key 'tace'"),
            ("rate = '1mbit'\njitter = { spread = 'normal' }", "jitter requires 'up_to'"),
            (
                "rate = '1mbit'\njitter = { up_to = '1ms', spread = 'pareto' }",
                "unknown jitter distribution 'pareto'",
            ),
            ("rate = '1mbit'\ndetour = { by = '1ms' }", "a detour requires both 'by' and 'at'"),
            (
                "rate = '1mbit'\ndetour = { by = '1ms', at = '3s', until = '3s' }",
                "a detour must end after it begins",
            ),
            ("rate = '1mbit'\njitter = '200s'", "time '200s' is out of range"),
            ("rate = '1mbit'\nack_thinning = 2", "unknown key 'ack_thinning'"),
            ("rate = '1mbit'\nbackward = { ack_thinning = 0 }", "ack_thinning '0' is out of range"),
            ("rate = '1mbit'\nbackward = { aggregation = { packets = 2 } }", "aggregation requires 'within'"),
            ("rate = '1mbit'\nduplicate = '200%'", "probability '200%' is out of range"),
        ] {
            let error = with_path(path).expect_err(path);
            assert!(error.message.ends_with(message), "{path}: {}", error.message);
            assert!(!error.hint.is_empty(), "{path}");
        }
    }
}
