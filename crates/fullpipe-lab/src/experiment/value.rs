//! The types of the fields of an experiment file, each with its allowed range.
//!
//! Implausible values are rejected during parsing, while their line in the file is still known. Otherwise, a
//! value could make a run take a year, or end a campaign in the middle with a division by zero.

use std::collections::BTreeMap;
use std::str::FromStr;

use fullpipe_tcp::ReoWnd;
use fullpipe_tcp::buffers::{Buffer, KernelVersion};
use fullpipe_tcp::cc::{Algorithm, SlowStart};
use fullpipe_units::{Bytes, Duration, ParseUnitError, Probability, Rate};

use super::ExperimentError;
use super::impairments::{Aggregation, Detour, JitterSpec, LinkRate, Share, Thinning};
use super::number::Number;
use super::queue::Queue;
use crate::algorithm::{FlowAlgorithm, UnknownFlowAlgorithm};
use crate::arm::{Arm, UnknownArm};
use crate::profile::ProfileName;
use crate::scenario::{LossPattern, Stack};
use crate::victim::{UnknownVictim, Victim};
use crate::workload::{Reading, Workload, Writing};

/// A type that a field of an experiment file can have.
pub(super) trait Value: Sized + Clone + PartialEq {
    /// Example value for the hint of an error that has no better hint.
    const EXAMPLE: &'static str;
    /// Whether the value must be written as a string because a TOML number would lose information.
    const TEXT_ONLY: bool = false;
    /// Whether the notation `{ fixed = … }` is accepted.
    const FIXED: bool = false;
    /// Possible second keys of the two-key table notation, such as `burst` in `{ rate = "1%", burst = 5 }`;
    /// `None` if this notation is not accepted.
    const TABLE: Option<[&'static str; 2]> = None;
    /// Keys of the table notation. As a string, the table is written as `key=value` for each key, in this
    /// order, separated by commas.
    const KEYS: &'static [&'static str] = &[];

    /// Parses and validates one value.
    fn read(text: &str) -> Result<Self, ExperimentError>;

    /// Interpolates between two values and returns the value at step `step` of `last` as a string; returns
    /// `None` for types without intermediate values.
    fn between(_from: &Self, _to: &Self, _step: u64, _last: u64) -> Option<String> {
        None
    }

    /// Returns the value as a number with a unit; returns `None` if the value is a name, or more than one
    /// number.
    fn number(&self) -> Option<Number> {
        None
    }
}

pub(super) fn of_unit(error: &ParseUnitError, example: &str) -> ExperimentError {
    let hint = if error.hint().is_empty() { example } else { error.hint() };
    ExperimentError::new(error.to_string(), hint)
}

/// Interpolates linearly between two integers with integer arithmetic, exact at both ends.
fn lerp(from: u64, to: u64, step: u64, last: u64) -> u64 {
    let (from, to, step, last) =
        (i128::from(from), i128::from(to), i128::from(step), i128::from(last.max(1)));
    (from + (to - from) * step / last) as u64
}

/// Formats `n` in the largest unit that divides it, so that parsing the string returns exactly `n`.
fn exact(n: u64, units: &[(u64, &str)]) -> String {
    let (factor, unit) = units.iter().find(|(factor, _)| n.is_multiple_of(*factor)).unwrap_or(&(1, ""));
    format!("{}{unit}", n / factor)
}

/// Formats a number of millionths as a decimal number without trailing zeros.
fn decimal(millionths: u64) -> String {
    let text = format!("{}.{:06}", millionths / 1_000_000, millionths % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').into()
}

pub(super) fn out_of_range(what: &str, text: &str, allowed: &str) -> ExperimentError {
    ExperimentError::new(format!("{what} '{text}' is out of range"), format!("allowed: {allowed}"))
}

pub(super) fn whole_number(what: &str, text: &str, least: u64, most: u64) -> Result<u64, ExperimentError> {
    let allowed = format!("{least} to {most}");
    match text.parse::<u64>() {
        Ok(n) if (least..=most).contains(&n) => Ok(n),
        Ok(_) => Err(out_of_range(what, text, &allowed)),
        Err(_) => Err(ExperimentError::new(
            format!("{what} '{text}' is not a whole number"),
            format!("allowed: {allowed}"),
        )),
    }
}

/// Splits a string of the form `key=value,key=value`; each key of `T` may appear at most once.
pub(super) fn fields<'t, T: Value>(
    what: &str,
    text: &'t str,
) -> Result<BTreeMap<&'t str, &'t str>, ExperimentError> {
    let mut fields = BTreeMap::new();
    for field in text.split(',') {
        match field.split_once('=').map(|(key, value)| (key.trim(), value.trim())) {
            Some((key, value)) if T::KEYS.contains(&key) && !fields.contains_key(key) => {
                fields.insert(key, value);
            }
            _ => {
                return Err(ExperimentError::new(format!("{what} '{text}' is invalid"), T::EXAMPLE));
            }
        }
    }
    Ok(fields)
}

/// Highest link rate accepted: above that of any real link, but low enough that simulating one second does
/// not take an hour.
const FASTEST: Rate = Rate::from_bps(1_000_000_000_000);
/// Longest propagation delay accepted. A round trip to the Moon takes 2.6 s, and TCP gives up after a few
/// minutes at most.
const LONGEST_DELAY: Duration = Duration::from_secs(100);

/// Type: rate
/// Range: `1bit` to `1tbit`
impl Value for Rate {
    const EXAMPLE: &'static str = "write 340mbit or 1gbit";

    fn read(text: &str) -> Result<Self, ExperimentError> {
        let rate: Self = text.parse().map_err(|e| of_unit(&e, Self::EXAMPLE))?;
        if rate.is_zero() || rate > FASTEST {
            return Err(out_of_range("rate", text, "1bit to 1tbit"));
        }
        Ok(rate)
    }

    fn between(from: &Self, to: &Self, step: u64, last: u64) -> Option<String> {
        let units = [(1_000_000_000, "gbit"), (1_000_000, "mbit"), (1_000, "kbit"), (1, "bit")];
        Some(exact(lerp(from.as_bps(), to.as_bps(), step, last), &units))
    }

    fn number(&self) -> Option<Number> {
        Some(Number::rate(*self))
    }
}

/// Type: time
impl Value for Duration {
    const EXAMPLE: &'static str = "write 210ms or 20s";

    fn read(text: &str) -> Result<Self, ExperimentError> {
        text.parse().map_err(|e| of_unit(&e, Self::EXAMPLE))
    }

    fn between(from: &Self, to: &Self, step: u64, last: u64) -> Option<String> {
        let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")];
        Some(exact(lerp(from.as_nanos(), to.as_nanos(), step, last), &units))
    }

    fn number(&self) -> Option<Number> {
        Some(Number::time(*self))
    }
}

/// A propagation delay of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Delay(pub(super) Duration);

/// Type: time
/// Range: up to `100s`
impl Value for Delay {
    const EXAMPLE: &'static str = Duration::EXAMPLE;

    fn read(text: &str) -> Result<Self, ExperimentError> {
        let delay = Duration::read(text)?;
        if delay > LONGEST_DELAY {
            return Err(out_of_range("time", text, "up to 100s for a path"));
        }
        Ok(Self(delay))
    }

    fn between(from: &Self, to: &Self, step: u64, last: u64) -> Option<String> {
        Duration::between(&from.0, &to.0, step, last)
    }

    fn number(&self) -> Option<Number> {
        Some(Number::time(self.0))
    }
}

/// Random packet loss: its rate and its pattern.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Loss {
    pub(super) rate: Probability,
    pub(super) pattern: LossPattern,
}

impl Loss {
    pub(super) const NONE: Self = Self { rate: Probability::ZERO, pattern: LossPattern::Independent };

    /// Compares two loss rates up to rounding: 1.5 % and 15000 ppm are rounded to thresholds that differ in
    /// the last bits.
    fn is_same(self, other: Self) -> bool {
        let (a, b) = (self.rate.as_f64(), other.rate.as_f64());
        (a - b).abs() <= a.max(b) * 1e-9 && self.pattern == other.pattern
    }
}

/// Type: probability, `{ rate = "1%", burst = 5 }` or `{ rate = "1%", of = "super_packets" }`
/// Range: below 100 %; bursts of 1 to 10 000 packets on average
impl Value for Loss {
    const TABLE: Option<[&'static str; 2]> = Some(["burst", "of"]);
    const EXAMPLE: &'static str =
        "write 1.5% or 20ppm, { rate = \"1%\", burst = 5 } or { rate = \"1%\", of = \"super_packets\" }";

    /// Parses a loss such as `1.5%`, `1%:burst=5` or `1%:of=super_packets`.
    fn read(text: &str) -> Result<Self, ExperimentError> {
        let (rate, spread) = match text.split_once(':') {
            Some((rate, spread)) => (rate, spread.split_once('=')),
            None => (text, None),
        };
        let rate: Probability = rate.parse().map_err(|e| of_unit(&e, "write 1.5% or 20ppm"))?;
        if rate == Probability::ONE {
            return Err(ExperimentError::new(
                format!("loss '{text}' drops all packets"),
                "allowed: from 0% to less than 100%",
            ));
        }
        let in_range = |burst: &f64| (1.0..=10_000.0).contains(burst);
        let pattern = match spread {
            None if !text.contains(':') => LossPattern::Independent,
            Some(("burst", burst)) => match burst.parse().ok().filter(in_range) {
                Some(burst) => LossPattern::Bursts(burst),
                None => return Err(out_of_range("burst of loss", burst, "1 to 10000 packets")),
            },
            Some(("of", "super_packets")) => LossPattern::SuperPackets,
            _ => return Err(ExperimentError::new(format!("loss '{text}' is invalid"), Self::EXAMPLE)),
        };
        Ok(Self { rate, pattern })
    }

    fn between(from: &Self, to: &Self, step: u64, last: u64) -> Option<String> {
        // The interpolation uses millionths of a ppm, which are finer than any measurable loss.
        let millionths = |loss: &Self| (loss.rate.as_f64() * 1e12).round() as u64;
        Some(format!("{}ppm", decimal(lerp(millionths(from), millionths(to), step, last))))
    }

    fn number(&self) -> Option<Number> {
        (self.pattern == LossPattern::Independent).then(|| Number::probability(self.rate))
    }
}

/// A size in bytes, or a multiple of the bandwidth-delay product of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// A size in bytes.
    Bytes(Bytes),
    /// A multiple of the BDP, in millionths.
    Bdp(u64),
}

impl Amount {
    pub(super) const ONE_BDP: Self = Self::Bdp(1_000_000);

    /// Returns the size in bytes on a path with the given BDP.
    pub fn resolve(self, bdp: Bytes) -> Bytes {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Bdp(millionths) => bdp.mul_div(millionths, 1_000_000),
        }
    }
}

/// Type: amount
/// Range: `0bdp` to `1000bdp`
impl Value for Amount {
    const EXAMPLE: &'static str = "write 4MiB, 1040B or 1bdp";

    fn read(text: &str) -> Result<Self, ExperimentError> {
        if let Some(number) = text.trim().to_ascii_lowercase().strip_suffix("bdp") {
            let number = number.trim_end();
            let multiple: f64 = number.parse().map_err(|_| {
                ExperimentError::new(format!("'{number}' in front of bdp is not a number"), Self::EXAMPLE)
            })?;
            if !(0.0..=1000.0).contains(&multiple) {
                return Err(out_of_range("size", text, "0bdp to 1000bdp"));
            }
            return Ok(Self::Bdp((multiple * 1e6).round() as u64));
        }
        text.parse().map(Self::Bytes).map_err(|e| of_unit(&e, Self::EXAMPLE))
    }

    fn between(from: &Self, to: &Self, step: u64, last: u64) -> Option<String> {
        match (from, to) {
            (Self::Bytes(from), Self::Bytes(to)) => {
                let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")];
                Some(exact(lerp(from.get(), to.get(), step, last), &units))
            }
            (Self::Bdp(from), Self::Bdp(to)) => Some(format!("{}bdp", decimal(lerp(*from, *to, step, last)))),
            _ => None,
        }
    }

    fn number(&self) -> Option<Number> {
        match self {
            Self::Bytes(bytes) => Some(Number::bytes("bytes", *bytes)),
            Self::Bdp(millionths) => Some(Number::bdp(*millionths)),
        }
    }
}

impl FromStr for Amount {
    type Err = ExperimentError;

    fn from_str(text: &str) -> Result<Self, ExperimentError> {
        Self::read(text)
    }
}

/// A nonzero amount of data: a window, or the size of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Positive(pub(super) Amount);

/// Type: amount
/// Range: at least `1B`
impl Value for Positive {
    const EXAMPLE: &'static str = Amount::EXAMPLE;

    fn read(text: &str) -> Result<Self, ExperimentError> {
        match Amount::read(text)? {
            Amount::Bytes(Bytes::ZERO) | Amount::Bdp(0) => Err(out_of_range("size", text, "at least 1B")),
            amount => Ok(Self(amount)),
        }
    }

    fn between(from: &Self, to: &Self, step: u64, last: u64) -> Option<String> {
        Amount::between(&from.0, &to.0, step, last)
    }

    fn number(&self) -> Option<Number> {
        self.0.number()
    }
}

/// Size of a socket buffer: the autotuning limit, or a fixed size (`{ fixed = "4MiB" }`, `"fixed:4MiB"`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BufferSize {
    fixed: bool,
    size: Positive,
}

impl BufferSize {
    pub(super) const fn auto(max: Bytes) -> Self {
        Self { fixed: false, size: Positive(Amount::Bytes(max)) }
    }

    pub(super) fn resolve(self, bdp: Bytes) -> Buffer {
        let size = self.size.0.resolve(bdp);
        if self.fixed { Buffer::Fixed(size) } else { Buffer::Auto { max: size } }
    }
}

/// Type: amount, or `{ fixed = "4MiB" }`
/// Range: at least `1B`
impl Value for BufferSize {
    const EXAMPLE: &'static str = "write \"4MiB\" (limit of autotuning) or { fixed = \"4MiB\" }";
    const FIXED: bool = true;

    fn read(text: &str) -> Result<Self, ExperimentError> {
        let (fixed, size) = match text.strip_prefix("fixed:") {
            Some(size) => (true, size),
            None => (false, text),
        };
        Ok(Self { fixed, size: Positive::read(size)? })
    }

    fn between(from: &Self, to: &Self, step: u64, last: u64) -> Option<String> {
        let text = Positive::between(&from.size, &to.size, step, last)?;
        match (from.fixed, to.fixed) {
            (false, false) => Some(text),
            (true, true) => Some(format!("fixed:{text}")),
            _ => None,
        }
    }

    fn number(&self) -> Option<Number> {
        match (self.fixed, self.size.0) {
            (true, Amount::Bytes(bytes)) => Some(Number::bytes("fixed_bytes", bytes)),
            (true, Amount::Bdp(_)) => None,
            (false, size) => size.number(),
        }
    }
}

/// Type: `reno`, `bic`, `cubic`, `vegas`, `bbr1`, `bbr3`, `surge`, or one of [Linux alone](#congestion-controls-of-linux-alone)
impl Value for FlowAlgorithm {
    const EXAMPLE: &'static str = Algorithm::KNOWN;

    fn read(text: &str) -> Result<Self, ExperimentError> {
        text.parse()
            .map_err(|error: UnknownFlowAlgorithm| ExperimentError::new(error.to_string(), Self::known()))
    }
}

/// Type: congestion control, `NAME+iw` with the initial window of surge, or `NAME+PROFILE`
impl Value for Arm {
    const EXAMPLE: &'static str = "write bbr1, or bbr1+iw for a larger initial window";

    fn read(text: &str) -> Result<Self, ExperimentError> {
        text.parse().map_err(|error: UnknownArm| ExperimentError::new(error.to_string(), error.hint()))
    }
}

/// Type: `cubic`, `reno`, `bbr1`, `stream` or `web`
impl Value for Victim {
    const EXAMPLE: &'static str = Self::KNOWN;

    fn read(text: &str) -> Result<Self, ExperimentError> {
        text.parse().map_err(|error: UnknownVictim| ExperimentError::new(error.to_string(), Self::KNOWN))
    }
}

/// Type: text
impl Value for ProfileName {
    const EXAMPLE: &'static str = "write the name of a [profile.NAME]";

    fn read(text: &str) -> Result<Self, ExperimentError> {
        Ok(text.parse()?)
    }
}

/// Type: `fullpipe`, `kernel` or `kernel-to-fullpipe`
impl Value for Stack {
    const EXAMPLE: &'static str = Self::KNOWN;

    fn read(text: &str) -> Result<Self, ExperimentError> {
        let known = [Self::Fullpipe, Self::Kernel, Self::KernelToFullpipe];
        let named = known.into_iter().find(|stack| stack.name() == text);
        named.ok_or_else(|| ExperimentError::new(format!("unknown stack '{text}'"), Self::EXAMPLE))
    }
}

/// Type: `standard`, `hystart` or `hystart++`
impl Value for SlowStart {
    const EXAMPLE: &'static str = Self::KNOWN;

    fn read(text: &str) -> Result<Self, ExperimentError> {
        text.parse().map_err(|_| ExperimentError::new(format!("unknown slow start '{text}'"), Self::EXAMPLE))
    }
}

/// Behaviour of the applications at both ends of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct App(Workload);

impl App {
    pub(super) fn workload(self) -> Workload {
        self.0
    }
}

/// Shortest interval between two writes of an application. Real applications do not use finer timers. With a
/// shorter interval, simulating one second would take an hour.
const FINEST_APP_TIMER: Duration = Duration::from_micros(1);

/// Type: `"greedy"` or table
impl Value for App {
    const EXAMPLE: &'static str = "write { write = \"20mbit\" }, with chunk = \"64KiB\" for bursts; { read = \"8mbit\" }, \
         with rule = \"curl\"; { read_buffer = \"1KiB\", reads_per_second = 20 }; or { request = \"200B\" }";
    const KEYS: &'static [&'static str] =
        &["write", "chunk", "read", "rule", "read_buffer", "reads_per_second", "request"];

    /// Parses an application such as `greedy`, `write=20mbit` or
    /// `write=20mbit,chunk=64KiB,read=8mbit,rule=curl`.
    fn read(text: &str) -> Result<Self, ExperimentError> {
        if text == "greedy" {
            return Ok(Self(Workload::default()));
        }
        let fields = fields::<Self>("app", text)?;
        let rate = |key| fields.get(key).map(|text| Rate::read(text)).transpose();
        let size = |key| match fields.get(key).map(|text| (text, text.parse::<Bytes>())) {
            None => Ok(None),
            Some((text, Ok(Bytes::ZERO))) => Err(out_of_range(key, text, "at least 1B")),
            Some((_, Ok(size))) => Ok(Some(size)),
            Some((_, Err(error))) => Err(of_unit(&error, "write 64KiB")),
        };
        let needs = |key: &str, other: &str| {
            ExperimentError::new(format!("app has {key}, but not {other}"), Self::EXAMPLE)
        };
        let (write, chunk, read, buffer) =
            (rate("write")?, size("chunk")?, rate("read")?, size("read_buffer")?);
        let writing = match (write, chunk) {
            (None, None) => Writing::Greedy,
            (None, Some(_)) => return Err(needs("chunk", "write")),
            (Some(rate), None) => Writing::smooth(rate),
            (Some(rate), Some(chunk)) if rate.time_for(chunk) >= FINEST_APP_TIMER => {
                Writing::Paced { rate, chunk }
            }
            (Some(rate), Some(chunk)) => {
                return Err(ExperimentError::new(
                    format!("app writes {chunk} more often than once per {FINEST_APP_TIMER}"),
                    format!("write a chunk of at least {}", rate * FINEST_APP_TIMER + Bytes::new(1)),
                ));
            }
        };
        let times = match fields.get("reads_per_second") {
            Some(text) => Some(whole_number("reads_per_second", text, 1, 1_000_000)?),
            None => None,
        };
        let reading = match (read, fields.get("rule").copied(), buffer, times) {
            (None, None, None, None) => Reading::Greedy,
            (Some(rate), None | Some("smooth"), None, None) => Reading::smooth(rate),
            (Some(rate), Some("curl"), None, None) => Reading::CurlLimit { rate },
            (Some(_), Some(rule), None, None) => {
                return Err(ExperimentError::new(
                    format!("unknown app rule '{rule}'"),
                    "known: smooth, curl",
                ));
            }
            (None, Some(_), _, _) => return Err(needs("rule", "read")),
            (None, None, Some(buffer), Some(times)) => {
                Reading::Loop { buffer, every: Duration::from_secs(1) / times }
            }
            (None, None, Some(_), None) => return Err(needs("read_buffer", "reads_per_second")),
            (None, None, None, Some(_)) => return Err(needs("reads_per_second", "read_buffer")),
            (Some(_), ..) => {
                return Err(ExperimentError::new(
                    "app cannot combine read with read_buffer or reads_per_second",
                    Self::EXAMPLE,
                ));
            }
        };
        Ok(Self(Workload { writing, reading, request: size("request")? }))
    }
}

/// Type: text
impl Value for KernelVersion {
    const EXAMPLE: &'static str = "write the version as text: kernel = \"6.10\"";
    // TOML would read the number 6.10 as 6.1.
    const TEXT_ONLY: bool = true;

    fn read(text: &str) -> Result<Self, ExperimentError> {
        text.parse().map_err(|e: fullpipe_tcp::buffers::ParseKernelError| {
            ExperimentError::new(e.to_string(), Self::EXAMPLE)
        })
    }
}

/// Maximum packet size in bytes, IP header included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mtu(pub(super) u64);

/// Type: bytes
/// Range: 576 to 65 535
impl Value for Mtu {
    const EXAMPLE: &'static str = "write mtu = 1500";

    fn read(text: &str) -> Result<Self, ExperimentError> {
        // Every IPv4 host accepts packets of 576 bytes; the length field of the IP header has 16 bits.
        whole_number("mtu", text, 576, 65_535).map(Self)
    }

    fn between(from: &Self, to: &Self, step: u64, last: u64) -> Option<String> {
        Some(lerp(from.0, to.0, step, last).to_string())
    }

    fn number(&self) -> Option<Number> {
        Some(Number::count(self.0))
    }
}

/// Number of identical flows that a `[[flow]]` table defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Count(pub(super) u64);

/// Type: whole number
/// Range: 1 to 10 000
impl Value for Count {
    const EXAMPLE: &'static str = "write count = 4";

    fn read(text: &str) -> Result<Self, ExperimentError> {
        whole_number("count", text, 1, 10_000).map(Self)
    }

    fn between(from: &Self, to: &Self, step: u64, last: u64) -> Option<String> {
        Some(lerp(from.0, to.0, step, last).to_string())
    }

    fn number(&self) -> Option<Number> {
        Some(Number::count(self.0))
    }
}

/// Initial congestion window, in segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segments(pub(super) u32);

/// Type: segments
/// Range: 1 to 10 000
impl Value for Segments {
    const EXAMPLE: &'static str = "write initcwnd = 30";

    fn read(text: &str) -> Result<Self, ExperimentError> {
        whole_number("initcwnd", text, 1, 10_000).map(|segments| Self(segments as u32))
    }

    fn between(from: &Self, to: &Self, step: u64, last: u64) -> Option<String> {
        Some(lerp(from.0.into(), to.0.into(), step, last).to_string())
    }

    fn number(&self) -> Option<Number> {
        Some(Number::count(self.0.into()))
    }
}

/// Value of the sysctl `net.ipv4.tcp_adv_win_scale`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WinScale(pub(super) i8);

/// Type: whole number
/// Range: -31 to 31
impl Value for WinScale {
    const EXAMPLE: &'static str = "allowed: -31 to 31";

    fn read(text: &str) -> Result<Self, ExperimentError> {
        match text.parse::<i8>() {
            Ok(scale @ -31..=31) => Ok(Self(scale)),
            _ => Err(ExperimentError::new(format!("adv_win_scale '{text}' is out of range"), Self::EXAMPLE)),
        }
    }

    fn number(&self) -> Option<Number> {
        Some(Number::plain(self.0.into()))
    }
}

/// Share of the receive buffer's memory that is advertised as window, in 256ths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ratio(pub(super) u16);

/// Type: number
/// Range: above 0, up to 1
impl Value for Ratio {
    const EXAMPLE: &'static str = "allowed: above 0, up to 1; 0.625 was measured for 1448-byte segments";

    fn read(text: &str) -> Result<Self, ExperimentError> {
        match text.parse::<f64>().map(|ratio| (ratio * 256.0).round()) {
            Ok(parts) if (1.0..=256.0).contains(&parts) => Ok(Self(parts as u16)),
            _ => Err(ExperimentError::new(format!("window_ratio '{text}' is out of range"), Self::EXAMPLE)),
        }
    }

    fn between(from: &Self, to: &Self, step: u64, last: u64) -> Option<String> {
        Some(decimal(lerp(from.0.into(), to.0.into(), step, last) * 1_000_000 / 256))
    }

    fn number(&self) -> Option<Number> {
        Some(Number::plain(f64::from(self.0) / 256.0))
    }
}

/// Number of attempts or segments, with a range that depends on the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tries(pub(super) u32);

/// Type: whole number
impl Value for Tries {
    const EXAMPLE: &'static str = "write retries = 8";

    fn read(text: &str) -> Result<Self, ExperimentError> {
        whole_number("number", text, 0, 1_000).map(|tries| Self(tries as u32))
    }

    fn between(from: &Self, to: &Self, step: u64, last: u64) -> Option<String> {
        Some(lerp(from.0.into(), to.0.into(), step, last).to_string())
    }

    fn number(&self) -> Option<Number> {
        Some(Number::count(self.0.into()))
    }
}

/// Multiple of SRTT, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Factor(pub(super) u32);

/// Type: number
/// Range: 1 to 2
impl Value for Factor {
    const EXAMPLE: &'static str = "allowed: 1 to 2";

    fn read(text: &str) -> Result<Self, ExperimentError> {
        match text.parse::<f64>().map(|factor| (factor * 100.0).round()) {
            Ok(percent) if (100.0..=200.0).contains(&percent) => Ok(Self(percent as u32)),
            _ => Err(ExperimentError::new(format!("tlp_factor '{text}' is out of range"), Self::EXAMPLE)),
        }
    }

    fn between(from: &Self, to: &Self, step: u64, last: u64) -> Option<String> {
        Some(decimal(lerp(from.0.into(), to.0.into(), step, last) * 10_000))
    }

    fn number(&self) -> Option<Number> {
        Some(Number::plain(f64::from(self.0) / 100.0))
    }
}

/// Share of the minimum RTT, in units of 1/64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RttShare(pub(super) u32);

/// Type: number
/// Range: 0.015625 to 1, in steps of 1/64
impl Value for RttShare {
    const EXAMPLE: &'static str = "allowed: 0.015625 to 1";

    fn read(text: &str) -> Result<Self, ExperimentError> {
        let unit = f64::from(ReoWnd::UNIT);
        match text.parse::<f64>().map(|share| (share * unit).round()) {
            Ok(parts) if (1.0..=unit).contains(&parts) => Ok(Self(parts as u32)),
            _ => Err(ExperimentError::new(format!("reo_wnd '{text}' is out of range"), Self::EXAMPLE)),
        }
    }

    fn between(from: &Self, to: &Self, step: u64, last: u64) -> Option<String> {
        Some(decimal(lerp(from.0.into(), to.0.into(), step, last) * 1_000_000 / u64::from(ReoWnd::UNIT)))
    }

    fn number(&self) -> Option<Number> {
        Some(Number::plain(f64::from(self.0) / f64::from(ReoWnd::UNIT)))
    }
}

/// Type: `true` or `false`
impl Value for bool {
    const EXAMPLE: &'static str = "write true or false";

    fn read(text: &str) -> Result<Self, ExperimentError> {
        text.parse()
            .map_err(|_| ExperimentError::new(format!("'{text}' is neither true nor false"), Self::EXAMPLE))
    }

    fn number(&self) -> Option<Number> {
        Some(Number::flag(*self))
    }
}

/// Returns whether two strings denote the same value of the field `key`.
///
/// # Errors
/// Returns an error if the field does not exist, or if one of the strings is not a valid value of the field.
pub(super) fn same(key: &str, a: &str, b: &str) -> Result<bool, ExperimentError> {
    fn equal<T: Value>(a: &str, b: &str) -> Result<bool, ExperimentError> {
        Ok(T::read(a)? == T::read(b)?)
    }
    let field = key.rsplit('.').next().unwrap_or(key);
    match field {
        "rate" => equal::<LinkRate>(a, b),
        "max_pacing" => equal::<Rate>(a, b),
        "rtt" | "delay" | "access_rtt" => equal::<Delay>(a, b),
        "start" | "every" | "rx_merge" | "duration" => equal::<Duration>(a, b),
        "loss" => Ok(Loss::read(a)?.is_same(Loss::read(b)?)),
        "burst" => equal::<Amount>(a, b),
        "per_flow" => equal::<bool>(a, b),
        "queue" => equal::<Queue>(a, b),
        "duplicate" => equal::<Share>(a, b),
        "detour" => equal::<Detour>(a, b),
        "jitter" => equal::<JitterSpec>(a, b),
        "ack_thinning" => equal::<Thinning>(a, b),
        "aggregation" => equal::<Aggregation>(a, b),
        "window" | "bytes" | "notsent_lowat" => equal::<Positive>(a, b),
        "sndbuf" | "rcvbuf" => equal::<BufferSize>(a, b),
        "mtu" => equal::<Mtu>(a, b),
        "count" => equal::<Count>(a, b),
        "initcwnd" => equal::<Segments>(a, b),
        "cc" => equal::<FlowAlgorithm>(a, b),
        "slow_start" => equal::<SlowStart>(a, b),
        "stack" => equal::<Stack>(a, b),
        "profile" => equal::<ProfileName>(a, b),
        "app" => equal::<App>(a, b),
        "kernel" => equal::<KernelVersion>(a, b),
        "adv_win_scale" => equal::<WinScale>(a, b),
        "window_ratio" => equal::<Ratio>(a, b),
        "fair_queue"
        | "ecn"
        | "sack"
        | "slow_start_after_idle"
        | "reo_wnd_on_evidence"
        | "path_memory"
        | "second_copy" => equal::<bool>(a, b),
        "rto_min" | "rto_min_prompt" | "rto_max" | "tlp_floor" | "tlp_ack_delay" | "syn_ack_early" => {
            equal::<Duration>(a, b)
        }
        "rto_linear" | "loss_window" | "least_window" | "syn_retries" | "syn_ack_retries" | "retries"
        | "orphan_retries" | "tail_copies" => equal::<Tries>(a, b),
        "tlp_factor" => equal::<Factor>(a, b),
        "reo_wnd" => equal::<RttShare>(a, b),
        "point" => Ok(a == b),
        _ => Err(ExperimentError::new(
            format!("'{key}' is not a field of a point"),
            "use a field of path, host or flow, such as loss, forward.rate, sndbuf or cc; point selects a [[point]] by name",
        )),
    }
}
