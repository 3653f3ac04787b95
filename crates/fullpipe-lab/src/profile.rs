//! Profiles: named settings of a sender, such as `[profile.web]`, with a range for each key.
//!
//! ```text
//!   TOML table ─► Profile::read ─┬─ key and value in range ─► Profile ─► Config of the sending connection
//!                                └─ otherwise ─► error that names the key and its range, or the nearest key
//! ```
//!
//! A faster start takes capacity from other flows, so the permitted ranges are narrow. A profile with `lab =
//! true` has wider ranges, for comparisons in the simulator and in the emulator's namespaces. [`KEYS`]
//! contains only keys that have an effect.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use fullpipe_tcp::buffers::Buffer;
use fullpipe_tcp::cc::Launch;
use fullpipe_tcp::{Config, ProbeTimeout, ReoWnd, RtoRule, Tunables};
use fullpipe_units::{Bytes, Duration, ParseUnitError, Rate};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use toml::{Table, Value};

use crate::nearest::nearest_name;

/// Key that selects the wider ranges.
const LAB: &str = "lab";
/// Meaning of [`LAB`].
const LAB_MEANING: &str = "Whether the wider ranges apply, which are for simulated and emulated paths.";

/// Profiles by name.
pub type Profiles = BTreeMap<ProfileName, Profile>;

/// Settings of a sender under one name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// Window and pacing rate of the first flight.
    pub launch: Launch,
    /// Timers, loss detection and retries.
    pub tunables: Tunables,
    /// Limit of the autotuned send buffer.
    pub sndbuf: Bytes,
    /// Whether the wider ranges apply.
    pub lab: bool,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            launch: Launch::DEFAULT,
            tunables: Tunables {
                rto_prompt: Some(Duration::from_millis(100)),
                rto_max: Duration::from_secs(60),
                least_window: 4,
                probe_timeout: ProbeTimeout {
                    srtt_percent: 125,
                    floor: Some(Duration::from_millis(5)),
                    ack_delay: Duration::from_millis(40),
                },
                reo_wnd: ReoWnd { share: ReoWnd::UNIT / 16, on_evidence: true },
                syn_ack_early: Some(Duration::from_millis(250)),
                ..Tunables::LINUX
            },
            sndbuf: Bytes::from_mib(16),
            lab: false,
        }
    }
}

/// A key of a profile.
pub struct Key {
    /// Table and name of the key, such as `launch.window`.
    pub name: &'static str,
    /// Meaning of the key, in one sentence.
    pub meaning: &'static str,
    /// Default value, as a string.
    pub default: &'static str,
    /// Smallest and largest value, as strings.
    pub range: [&'static str; 2],
    /// Smallest and largest value with `lab = true`, as strings.
    pub lab: [&'static str; 2],
    /// Names under which TCPA has the same setting.
    pub tcpa: &'static [&'static str],
    quantity: Quantity,
    set: fn(&mut Profile, u64),
}

/// Kind of a value. Values are compared as integers: whole numbers, millionths, nanoseconds, bit/s, bytes, or 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantity {
    Whole,
    Ratio,
    Time,
    Rate,
    Size,
    Flag,
}

/// Keys of a profile, in the order of the documentation.
pub static KEYS: [Key; 16] = [
    Key {
        name: "launch.window",
        meaning: "Initial congestion window in segments. After a lost SYN or SYN-ACK, it is 10. Surge limits it to the segments \
                  that leave within half of the RTT.",
        default: "44",
        range: ["10", "64"],
        lab: ["10", "160"],
        tcpa: &["init_windows", "tcp_init_cwnd", "init_cwnd", "initcwnd"],
        quantity: Quantity::Whole,
        set: |profile, window| profile.launch.window = window as u32,
    },
    Key {
        name: "launch.rate",
        meaning: "Maximum pacing rate of the first flight, which takes at least a quarter of the RTT.",
        default: "20mbit",
        range: ["1mbit", "50mbit"],
        lab: ["1mbit", "200mbit"],
        tcpa: &["init_default_pace", "min_pacing"],
        quantity: Quantity::Rate,
        set: |profile, rate| profile.launch.rate = Rate::from_bps(rate),
    },
    Key {
        name: "control.least_window",
        meaning: "Minimum congestion window in segments, except after a timeout and during PRR.",
        default: "4",
        range: ["2", "10"],
        lab: ["2", "60"],
        tcpa: &["min_cwnd"],
        quantity: Quantity::Whole,
        set: |profile, window| profile.tunables.least_window = window as u32,
    },
    Key {
        name: "timeout.least",
        meaning: "Minimum of four times the RTT variation in the retransmission timeout.",
        default: "200ms",
        range: ["50ms", "1s"],
        lab: ["50ms", "1s"],
        tcpa: &["tcp_rto_min", "rto_min"],
        quantity: Quantity::Time,
        set: |profile, floor| {
            profile.tunables.rto = RtoRule::Slack { floor: Duration::from_nanos(floor) };
        },
    },
    Key {
        name: "timeout.prompt",
        meaning: "Value of timeout.least for a client that acknowledges promptly: after four ACKs of single segments within 50 ms, and until the first later ACK. It has no effect if timeout.least is lower.",
        default: "100ms",
        range: ["50ms", "1s"],
        lab: ["50ms", "1s"],
        tcpa: &[],
        quantity: Quantity::Time,
        set: |profile, floor| profile.tunables.rto_prompt = Some(Duration::from_nanos(floor)),
    },
    Key {
        name: "timeout.most",
        meaning: "Maximum retransmission timeout, including back-off.",
        default: "60s",
        range: ["10s", "120s"],
        lab: ["1s", "120s"],
        tcpa: &["tcp_rto_max", "rto_max"],
        quantity: Quantity::Time,
        set: |profile, most| profile.tunables.rto_max = Duration::from_nanos(most),
    },
    Key {
        name: "timeout.linear",
        meaning: "Number of consecutive timeouts before the retransmission timeout starts to double.",
        default: "0",
        range: ["0", "1"],
        lab: ["0", "2"],
        tcpa: &[],
        quantity: Quantity::Whole,
        set: |profile, linear| profile.tunables.rto_linear = linear as u32,
    },
    Key {
        name: "timeout.window",
        meaning: "Congestion window in segments after the first timeout.",
        default: "1",
        range: ["1", "10"],
        lab: ["1", "10"],
        tcpa: &["tcp_loss_init_cwnd", "loss_init_cwnd"],
        quantity: Quantity::Whole,
        set: |profile, window| profile.tunables.loss_window = window as u32,
    },
    Key {
        name: "loss.reordering",
        meaning: "Reordering window as a share of the minimum RTT, once reordering or a D-SACK was seen.",
        default: "0.0625",
        range: ["0.015625", "0.25"],
        lab: ["0.015625", "1"],
        tcpa: &["reo_ms", "reo_factor", "rto_factor"],
        quantity: Quantity::Ratio,
        set: |profile, share| {
            let units = (share * u64::from(ReoWnd::UNIT) + 500_000) / 1_000_000;
            profile.tunables.reo_wnd = ReoWnd { share: units as u32, on_evidence: true };
        },
    },
    Key {
        name: "probe.tail",
        meaning: "Timeout of the tail loss probe as a multiple of SRTT.",
        default: "1.25",
        range: ["1", "2"],
        lab: ["1", "2"],
        tcpa: &["tcpa_probe", "probe_interval"],
        quantity: Quantity::Ratio,
        set: |profile, factor| {
            profile.tunables.probe_timeout.srtt_percent = ((factor + 5_000) / 10_000) as u32;
        },
    },
    Key {
        name: "probe.floor",
        meaning: "Margin of the tail loss probe: its timeout is at least the sum of SRTT, four times the mean deviation of the RTT and this margin, but this minimum never exceeds 2 SRTT.",
        default: "5ms",
        range: ["1ms", "100ms"],
        lab: ["0ms", "200ms"],
        tcpa: &[],
        quantity: Quantity::Time,
        set: |profile, floor| {
            profile.tunables.probe_timeout.floor = Some(Duration::from_nanos(floor));
        },
    },
    Key {
        name: "probe.ack_delay",
        meaning: "Worst-case ACK delay of the peer, added to the probe timeout if only one segment is in flight.",
        default: "40ms",
        range: ["25ms", "200ms"],
        lab: ["5ms", "200ms"],
        tcpa: &[],
        quantity: Quantity::Time,
        set: |profile, delay| {
            profile.tunables.probe_timeout.ack_delay = Duration::from_nanos(delay);
        },
    },
    Key {
        name: "handshake.syn_ack",
        meaning: "Time after which an unanswered SYN-ACK is retransmitted early, once. If path memory knows the RTT of the client, the time is 1.5 times this RTT, from 100 ms to 1 s.",
        default: "250ms",
        range: ["200ms", "1s"],
        lab: ["100ms", "1s"],
        tcpa: &[],
        quantity: Quantity::Time,
        set: |profile, early| profile.tunables.syn_ack_early = Some(Duration::from_nanos(early)),
    },
    Key {
        name: "repair.second_copy",
        meaning: "Whether surge sends a copy of each retransmission while the congestion window does not limit the sender and at least 0.5 % of the data is lost at random.",
        default: "true",
        range: ["false", "true"],
        lab: ["false", "true"],
        tcpa: &[],
        quantity: Quantity::Flag,
        set: |profile, copies| profile.tunables.copies.second_copy = copies == 1,
    },
    Key {
        name: "repair.tail_copies",
        meaning: "Number of segments at the end of the data that surge sends twice if earlier connections have lost 1 % on the path.",
        default: "0",
        range: ["0", "2"],
        lab: ["0", "2"],
        tcpa: &[],
        quantity: Quantity::Whole,
        set: |profile, copies| profile.tunables.copies.tail_copies = copies as u32,
    },
    Key {
        name: "buffers.send",
        meaning: "Limit of the autotuned send buffer.",
        default: "16MiB",
        range: ["256KiB", "64MiB"],
        lab: ["64KiB", "1GiB"],
        tcpa: &["tcp_wmem", "wmem_max"],
        quantity: Quantity::Size,
        set: |profile, most| profile.sndbuf = Bytes::new(most),
    },
];

/// TCPA settings that a profile rejects, and the reasons.
static REFUSED: [(&[&str], &str); 8] = [
    (
        &["wnd_extend", "extend_wnd", "probe_exwnd", "ignore_rwnd", "sndwnd"],
        "firewalls and slow receivers drop data beyond the receive window (RFC 9293); fullpipe diagnose \
         shows whether the receive window is the limit",
    ),
    (
        &["file_thresh"],
        "a sender cannot know the size of a response in advance; launch.window applies to responses of any size",
    ),
    (
        &["retries", "retries1", "retries2", "tcp_retries1", "tcp_retries2"],
        "a connection gives up after 15 timeouts; 120 timeouts, at most 1 s apart, would retransmit into a path that is down",
    ),
    (&["tcp_fack"], "RACK detects losses, even with reordering; see loss.reordering"),
    (
        &["tcp_timestamps"],
        "timestamps are always on, because they show whether a retransmission was necessary",
    ),
    (
        &["tcp_mem", "total"],
        "the key memory of fullpipe accelerate limits the buffers of all connections together",
    ),
    (
        &["setpolicy", "access"],
        "a [[policy]] of fullpipe accelerate selects a profile by the client's address",
    ),
    (
        &["tcp_metrics_minrtt"],
        "path memory belongs to the host: remember in [paths] of fullpipe accelerate, path_memory in an experiment",
    ),
];

/// Built-in profiles, each as a name and a TOML text.
static BUILT_IN: [(&str, &str); 1] = [("tcpa", include_str!("profile/tcpa.toml"))];

impl Profile {
    /// Returns the built-in profile with this name. A profile of the same name in an experiment replaces it.
    pub fn built_in(name: ProfileName) -> Option<Self> {
        let (_, text) = BUILT_IN.iter().find(|(known, _)| *known == name.as_str())?;
        // A test parses all built-in profiles.
        Self::read(name, &text.parse().ok()?).ok()
    }

    /// Reads the table `[profile.NAME]`.
    ///
    /// # Errors
    /// Returns an error that names the key if a key is unknown or refused, or if its value is invalid or out
    /// of its range.
    pub fn read(name: ProfileName, table: &Table) -> Result<Self, ProfileError> {
        let lab = match table.get(LAB) {
            None => false,
            Some(Value::Boolean(lab)) => *lab,
            Some(_) => {
                let message = format!("[profile.{name}]: lab is neither true nor false");
                return Err(ProfileError::new(message, "write lab = true"));
            }
        };
        let mut profile = Self { lab, ..Self::default() };
        for (group, value) in table.iter().filter(|(group, _)| *group != LAB) {
            match value {
                Value::Table(keys) if !keys.is_empty() => {
                    for (key, value) in keys {
                        profile.set(name, &format!("{group}.{key}"), value)?;
                    }
                }
                _ => return Err(unknown(name, group)),
            }
        }
        Ok(profile)
    }

    fn set(&mut self, name: ProfileName, key: &str, value: &Value) -> Result<(), ProfileError> {
        let Some(key) = KEYS.iter().find(|known| known.name == key) else { return Err(unknown(name, key)) };
        let refused = |message: String, hint: &str| {
            ProfileError::new(format!("[profile.{name}]: {} {message}", key.name), hint)
        };
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            Value::Boolean(flag) => flag.to_string(),
            _ => return Err(refused("is not a single value".into(), &key.usage())),
        };
        let amount = key.quantity.parse(&text).map_err(|problem| {
            let hint = if problem.hint.is_empty() { key.usage() } else { problem.hint };
            refused(format!("'{text}' {}", problem.message), &hint)
        })?;
        let [range, lab] = [key.range, key.lab].map(|ends| ends.map(|end| key.quantity.bound(end)));
        let is_in = |[least, most]: [u64; 2]| (least..=most).contains(&amount);
        if !is_in(lab) {
            let hint = format!("allowed: {}", key.ranges());
            return Err(refused(format!("'{text}' is out of range"), &hint));
        }
        if !self.lab && !is_in(range) {
            let [least, most] = key.range;
            let hint = format!("allowed: {least} to {most}; lab = true is for simulated and emulated paths");
            return Err(refused(format!("'{text}' requires lab = true"), &hint));
        }
        (key.set)(self, amount);
        Ok(())
    }

    /// Returns `config` with the settings of this profile.
    #[must_use]
    pub fn applied(&self, config: Config) -> Config {
        let sndbuf = Buffer::Auto { max: self.sndbuf };
        Config { launch: Some(self.launch), tunables: self.tunables, sndbuf, ..config }
    }
}

/// Returns the error for a key that does not exist.
fn unknown(name: ProfileName, key: &str) -> ProfileError {
    let own = key.rsplit('.').next().unwrap_or(key);
    if let Some((_, reason)) = REFUSED.iter().find(|(names, _)| names.contains(&own)) {
        return ProfileError::new(format!("[profile.{name}]: the key '{key}' is refused"), *reason);
    }
    let message = format!("[profile.{name}]: unknown key '{key}'");
    let renamed = KEYS.iter().find(|known| known.tcpa.contains(&own)).map(|known| known.name);
    let names = || KEYS.iter().map(|known| known.name).chain([LAB]);
    match renamed.or_else(|| nearest_name(key, names())) {
        Some(nearest) => ProfileError::new(message, format!("did you mean {nearest}?")),
        None => ProfileError::new(message, format!("known: {}", names().collect::<Vec<_>>().join(", "))),
    }
}

impl Key {
    /// Returns the type of the value, as a string.
    pub const fn kind(&self) -> &'static str {
        match self.quantity {
            Quantity::Whole => "whole number",
            Quantity::Ratio => "number",
            Quantity::Time => "time",
            Quantity::Rate => "rate",
            Quantity::Size => "size",
            Quantity::Flag => "true or false",
        }
    }

    /// Returns the default in TOML notation.
    pub fn example(&self) -> Cow<'static, str> {
        match self.quantity {
            Quantity::Whole | Quantity::Ratio | Quantity::Flag => self.default.into(),
            Quantity::Time | Quantity::Rate | Quantity::Size => format!("\"{}\"", self.default).into(),
        }
    }

    /// Returns a hint that shows how to write the key.
    fn usage(&self) -> String {
        format!("write {} = {}", self.name, self.example())
    }

    /// Returns the normal range and the wider range, as a string.
    pub fn ranges(&self) -> String {
        let ([least, most], [lab_least, lab_most]) = (self.range, self.lab);
        if self.range == self.lab {
            format!("{least} to {most}")
        } else {
            format!("{least} to {most}; {lab_least} to {lab_most} with lab = true")
        }
    }

    fn schema(&self) -> Schema {
        let Self { meaning, default, .. } = self;
        let description = format!("{meaning} Default: {default}. Range: {}.", self.ranges());
        let [least, most] = self.lab;
        match self.quantity {
            Quantity::Whole => {
                let [least, most] = [least, most].map(|end| self.quantity.bound(end));
                json_schema!({
                    "description": description, "type": "integer", "minimum": least, "maximum": most
                })
            }
            Quantity::Ratio => {
                let [least, most] = [least, most].map(|end| self.quantity.bound(end) as f64 / 1e6);
                json_schema!({
                    "description": description, "type": "number", "minimum": least, "maximum": most
                })
            }
            Quantity::Flag => json_schema!({ "description": description, "type": "boolean" }),
            Quantity::Time | Quantity::Rate | Quantity::Size => {
                json_schema!({ "description": description, "type": "string" })
            }
        }
    }
}

impl Quantity {
    /// Parses a value. The error text continues a sentence that begins with the value.
    fn parse(self, text: &str) -> Result<u64, ProfileError> {
        let of_unit = |error: ParseUnitError| {
            let message = error.to_string();
            let problem = message.rsplit("' ").next().unwrap_or_default();
            ProfileError::new(problem, error.hint())
        };
        match self {
            Self::Whole => text.parse().map_err(|_| ProfileError::new("is not a whole number", "")),
            Self::Ratio => match text.parse::<f64>() {
                Ok(ratio) if (0.0..=1_000.0).contains(&ratio) => Ok((ratio * 1e6).round() as u64),
                _ => Err(ProfileError::new("is not a number", "")),
            },
            Self::Time => text.parse().map(Duration::as_nanos).map_err(of_unit),
            Self::Rate => text.parse().map(Rate::as_bps).map_err(of_unit),
            Self::Size => text.parse().map(Bytes::get).map_err(of_unit),
            Self::Flag => match text {
                "false" => Ok(0),
                "true" => Ok(1),
                _ => Err(ProfileError::new("is neither true nor false", "")),
            },
        }
    }

    /// Parses an end of a range in [`KEYS`]. A test parses all of them.
    fn bound(self, text: &str) -> u64 {
        self.parse(text).unwrap_or_default()
    }
}

impl JsonSchema for Profile {
    fn schema_name() -> Cow<'static, str> {
        "Profile".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut groups: BTreeMap<&str, BTreeMap<&str, Schema>> = BTreeMap::new();
        for key in &KEYS {
            if let Some((group, name)) = key.name.split_once('.') {
                groups.entry(group).or_default().insert(name, key.schema());
            }
        }
        let of_group = |keys: BTreeMap<&str, Schema>| json_schema!({ "type": "object", "properties": keys, "additionalProperties": false });
        let mut properties: BTreeMap<&str, Schema> =
            groups.into_iter().map(|(group, keys)| (group, of_group(keys))).collect();
        properties.insert(LAB, json_schema!({ "description": LAB_MEANING, "type": "boolean" }));
        json_schema!({
            "description": "Settings of a sender: a table [profile.NAME].",
            "type": "object",
            "properties": properties,
            "additionalProperties": false
        })
    }
}

/// Error for a name, key or value that a profile cannot have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileError {
    /// Error message; one line without a final period.
    pub message: String,
    /// Hint for the user: what to write instead; one line.
    pub hint: String,
}

impl ProfileError {
    fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ProfileError {}

/// Maximum length of the name of a profile, in octets.
const LONGEST_NAME: usize = 15;
/// Reserved name, because in the name of an arm it is the suffix for a larger initial window.
const RESERVED_NAME: &str = "iw";

/// Name of a profile: up to 15 lower-case letters, digits and hyphens, beginning with a letter. The octets
/// are stored inline, so that a name, and an arm with this name, is `Copy`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProfileName {
    octets: [u8; LONGEST_NAME],
    len: u8,
}

impl ProfileName {
    /// Returns the name as a string.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.octets[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl FromStr for ProfileName {
    type Err = ProfileError;

    fn from_str(text: &str) -> Result<Self, ProfileError> {
        let allowed = |octet: &u8| octet.is_ascii_lowercase() || octet.is_ascii_digit() || *octet == b'-';
        let valid = text.len() <= LONGEST_NAME
            && text.bytes().all(|octet| allowed(&octet))
            && text.starts_with(|first: char| first.is_ascii_lowercase());
        if !valid || text == RESERVED_NAME {
            return Err(ProfileError::new(
                format!("'{text}' cannot be the name of a profile"),
                "allowed: up to 15 lower-case letters, digits and hyphens, except iw",
            ));
        }
        let mut octets = [0; LONGEST_NAME];
        octets[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Self { octets, len: text.len() as u8 })
    }
}

impl fmt::Display for ProfileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for ProfileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests;
