//! The test parameters that a client requests.

use fullpipe_units::{Bytes, Duration, Rate};
use serde_json::{Map, Value};

use crate::json;
use crate::refusal::Refusal;

/// Transport protocol of the data connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Data is sent over TCP.
    #[default]
    Tcp,
    /// Data is sent over UDP.
    Udp,
}

/// Direction in which data is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The client sends, and the server receives.
    #[default]
    Forward,
    /// The server sends, and the client receives (`-R`).
    Reverse,
    /// Client and server send at the same time (`--bidir`).
    Bidirectional,
}

/// Maximum number of streams in each direction.
pub const STREAMS_MOST: u32 = 128;
/// Maximum duration of a test: one day.
pub const TIME_MOST: Duration = Duration::from_secs(86_400);
/// Maximum length of the omitted period at the start of a test.
pub const OMIT_MOST: Duration = Duration::from_secs(600);
/// Default block size of a TCP test.
pub const TCP_BLOCK: Bytes = Bytes::from_kib(128);
/// Maximum block size of a TCP test.
pub const TCP_BLOCK_MOST: Bytes = Bytes::from_mib(1);
/// Minimum datagram size: a header without 64-bit sequence numbers, and four bytes of payload.
pub const UDP_BLOCK_LEAST: Bytes = Bytes::new(16);
/// Maximum datagram size: the maximum length of an IPv4 packet minus the IP and UDP headers.
pub const UDP_BLOCK_MOST: Bytes = Bytes::new(65_507);
/// Default datagram size. A datagram of this size fits into an Ethernet frame with room for tunnel headers.
pub const UDP_BLOCK: Bytes = Bytes::new(1460);
/// Maximum size of `SO_SNDBUF` and `SO_RCVBUF` that a client may request.
pub const WINDOW_MOST: Bytes = Bytes::from_mib(512);
/// Largest MSS that a client may request, about that of a jumbo frame.
pub const MSS_MOST: Bytes = Bytes::from_kib(9);
/// Maximum number of blocks that may be sent in a burst (`burst`).
pub const BURST_MOST: u32 = 1_000;
/// Default rate of a UDP test.
pub const UDP_RATE: Rate = Rate::from_bps(1 << 20);

/// The parameters of an iperf3 test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Transport protocol of the data connections.
    pub protocol: Protocol,
    /// Direction in which data is sent.
    pub mode: Mode,
    /// Duration of the test in whole seconds (`-t`); zero if the test has no time limit or ends after an
    /// amount of data.
    pub time: Duration,
    /// Period at the start of the test that is omitted from the results (`-O`).
    pub omit: Duration,
    /// Number of bytes after which the test ends; zero for no limit (`-n`).
    pub num: Bytes,
    /// Number of blocks after which the test ends; zero for no limit (`-k`).
    pub blocks: u64,
    /// Number of streams in each direction, from 1 to 128 (`-P`).
    pub parallel: u32,
    /// Number of bytes in a write or a datagram (`-l`); `None` for the default.
    pub len: Option<Bytes>,
    /// Maximum segment size of the data connections (`-M`); `None` for the kernel's choice.
    pub mss: Option<Bytes>,
    /// Whether Nagle's algorithm is disabled (`-N`).
    pub nodelay: bool,
    /// Size of `SO_SNDBUF` and `SO_RCVBUF` (`-w`); `None` for autotuning.
    pub window: Option<Bytes>,
    /// Rate limit of each stream (`-b`), enforced by pauses of the sending application; `None` for no limit.
    pub rate: Option<Rate>,
    /// Value of `SO_MAX_PACING_RATE` for each stream (`--fq-rate`).
    pub fq_rate: Option<Rate>,
    /// Interval at which the sender checks its rate (`--pacing-timer`).
    pub pacing_timer: Option<Duration>,
    /// Number of blocks that the sender writes in a burst if the rate is limited.
    pub burst: Option<u32>,
    /// Type-of-service byte of the IP header (`-S`).
    pub tos: Option<u8>,
    /// IPv6 flow label of the data connections (`-L`).
    pub flow_label: Option<u32>,
    /// Title that precedes each line of text output (`-T`).
    pub title: Option<String>,
    /// Extra data that both sides copy into their JSON documents (`--extra-data`).
    pub extra_data: Option<String>,
    /// Congestion control of the data connections (`-C`).
    pub congestion: Option<String>,
    /// Whether the client requests the server's output together with the results.
    pub get_server_output: bool,
    /// Whether the sequence numbers of datagrams have 64 bits.
    pub udp_counters_64bit: bool,
    /// Whether the payload is a repeating pattern instead of random bytes.
    pub repeating_payload: bool,
    /// Whether the sender uses `sendfile` (`-Z`).
    pub zerocopy: bool,
    /// Whether the IP packets of datagrams must not be fragmented.
    pub dont_fragment: bool,
    /// Whether the client sent an `authtoken`; the token itself is not stored.
    pub authenticates: bool,
    /// Whether the client requests trace rows of the server's sending sockets together with the results (key
    /// `fullpipe_trace`, which iperf3's server ignores).
    pub wants_trace: bool,
    /// iperf3 version of the client.
    pub client_version: Option<String>,
}

impl Default for Params {
    /// Returns iperf3's default parameters: 10 seconds of TCP on one stream.
    fn default() -> Self {
        Self {
            protocol: Protocol::Tcp,
            mode: Mode::Forward,
            time: Duration::from_secs(10),
            omit: Duration::ZERO,
            num: Bytes::ZERO,
            blocks: 0,
            parallel: 1,
            len: None,
            mss: None,
            nodelay: false,
            window: None,
            rate: None,
            fq_rate: None,
            pacing_timer: None,
            burst: None,
            tos: None,
            flow_label: None,
            title: None,
            extra_data: None,
            congestion: None,
            get_server_output: false,
            udp_counters_64bit: false,
            repeating_payload: false,
            zerocopy: false,
            dont_fragment: false,
            authenticates: false,
            wants_trace: false,
            client_version: None,
        }
    }
}

impl Params {
    /// Returns the block size: the number of bytes in a write or a datagram.
    pub fn block(&self) -> Bytes {
        self.len.unwrap_or(match self.protocol {
            Protocol::Tcp => TCP_BLOCK,
            Protocol::Udp => UDP_BLOCK,
        })
    }

    /// Returns the total number of streams in all directions.
    pub fn streams(&self) -> u32 {
        if self.mode == Mode::Bidirectional { 2 * self.parallel } else { self.parallel }
    }

    /// Returns the parameters as JSON, in the form in which they are sent. Parameters that were not requested
    /// are omitted, as in iperf3.
    pub fn to_json(&self) -> Value {
        let mut of = Map::new();
        let mut put = |key: &str, value: Value| {
            of.insert(key.into(), value);
        };
        let protocol = match self.protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        };
        put(protocol, true.into());
        put("omit", whole_seconds(self.omit).into());
        put("time", whole_seconds(self.time).into());
        put("num", self.num.get().into());
        put("blockcount", self.blocks.into());
        put("parallel", self.parallel.into());
        let mode = match self.mode {
            Mode::Forward => None,
            Mode::Reverse => Some("reverse"),
            Mode::Bidirectional => Some("bidirectional"),
        };
        let flags =
            [(mode, true), (Some("nodelay"), self.nodelay), (Some("dont_fragment"), self.dont_fragment)];
        for (key, _) in flags.into_iter().filter(|&(_, set)| set) {
            key.into_iter().for_each(|key| put(key, true.into()));
        }
        // iperf3 sends the following options as numbers.
        let switches = [
            ("get_server_output", self.get_server_output),
            ("udp_counters_64bit", self.udp_counters_64bit),
            ("repeating_payload", self.repeating_payload),
            ("zerocopy", self.zerocopy),
            ("fullpipe_trace", self.wants_trace),
        ];
        for (key, _) in switches.into_iter().filter(|&(_, set)| set) {
            put(key, 1.into());
        }
        let numbers = [
            ("len", self.len.map(Bytes::get)),
            ("MSS", self.mss.map(Bytes::get)),
            ("window", self.window.map(Bytes::get)),
            ("bandwidth", self.rate.map(Rate::as_bps)),
            ("fqrate", self.fq_rate.map(Rate::as_bps)),
            ("pacing_timer", self.pacing_timer.map(Duration::as_micros)),
            ("burst", self.burst.map(u64::from)),
            ("TOS", self.tos.map(u64::from)),
            ("flowlabel", self.flow_label.map(u64::from)),
        ];
        for (key, value) in numbers {
            value.into_iter().for_each(|value| put(key, value.into()));
        }
        let texts = [
            ("title", &self.title),
            ("extra_data", &self.extra_data),
            ("congestion", &self.congestion),
            ("client_version", &self.client_version),
        ];
        for (key, value) in texts {
            value.iter().for_each(|value| put(key, value.as_str().into()));
        }
        Value::Object(of)
    }

    /// Parses the parameters that a client requests. A value of the wrong type is treated as absent, and
    /// unknown keys are ignored.
    ///
    /// If a value is out of range, if two values exclude each other, or if the protocol is not supported,
    /// returns the refusal that the server sends to the client.
    pub fn from_json(of: &Value) -> Result<Self, Refusal> {
        let count = |key| json::count(of, key).filter(|&count| count > 0);
        let bytes = |key| count(key).map(Bytes::new);
        let rate = |key| count(key).map(Rate::from_bps);
        // If the client requests no protocol, the test uses TCP, as in iperf3.
        let protocol = match (json::flag(of, "udp"), json::flag(of, "sctp")) {
            (true, _) => Protocol::Udp,
            (false, true) => return Err(Refusal::PROTOCOL),
            (false, false) => Protocol::Tcp,
        };
        let mode = match (json::flag(of, "reverse"), json::flag(of, "bidirectional")) {
            (true, true) => return Err(Refusal::REVERSE_AND_BIDIRECTIONAL),
            (true, false) => Mode::Reverse,
            (false, true) => Mode::Bidirectional,
            (false, false) => Mode::Forward,
        };
        let params = Self {
            protocol,
            mode,
            time: span(of, "time", TIME_MOST).ok_or(Refusal::DURATION)?,
            omit: span(of, "omit", OMIT_MOST).ok_or(Refusal::OMIT)?,
            num: bytes("num").unwrap_or_default(),
            blocks: count("blockcount").unwrap_or_default(),
            parallel: within(json::integer(of, "parallel"), 1, STREAMS_MOST.into())
                .ok_or(Refusal::STREAMS)?
                .map_or(1, |streams| streams as u32),
            len: bytes("len"),
            mss: bytes("MSS"),
            nodelay: json::switch(of, "nodelay"),
            window: bytes("window"),
            rate: rate("bandwidth"),
            fq_rate: rate("fqrate"),
            // iperf3 stores this value in 32 bits.
            pacing_timer: count("pacing_timer")
                .map(|micros| Duration::from_micros(micros.min(u32::MAX.into()))),
            burst: within(json::integer(of, "burst").filter(|&burst| burst != 0), 1, BURST_MOST.into())
                .ok_or(Refusal::BURST)?
                .map(|burst| burst as u32),
            tos: within(json::integer(of, "TOS").filter(|&tos| tos != 0), 1, u8::MAX.into())
                .ok_or(Refusal::TOS)?
                .map(|tos| tos as u8),
            // The flow label of an IPv6 header has 20 bits; zero means no label.
            flow_label: count("flowlabel").map(|label| label as u32 & 0x000f_ffff).filter(|label| *label > 0),
            title: json::text(of, "title"),
            extra_data: json::text(of, "extra_data"),
            congestion: json::text(of, "congestion"),
            get_server_output: json::switch(of, "get_server_output"),
            udp_counters_64bit: json::switch(of, "udp_counters_64bit"),
            repeating_payload: json::switch(of, "repeating_payload"),
            zerocopy: json::switch(of, "zerocopy"),
            dont_fragment: json::switch(of, "dont_fragment"),
            authenticates: json::text(of, "authtoken").is_some(),
            wants_trace: json::switch(of, "fullpipe_trace"),
            client_version: json::text(of, "client_version"),
        };
        params.check()
    }

    fn check(self) -> Result<Self, Refusal> {
        let (least, most, refusal) = match self.protocol {
            Protocol::Tcp => (Bytes::new(1), TCP_BLOCK_MOST, Refusal::BLOCK_SIZE),
            Protocol::Udp => (UDP_BLOCK_LEAST, UDP_BLOCK_MOST, Refusal::UDP_BLOCK_SIZE),
        };
        if !(least..=most).contains(&self.block()) {
            return Err(refusal);
        }
        if self.window.is_some_and(|window| window > WINDOW_MOST) {
            return Err(Refusal::BUFFER_SIZE);
        }
        if self.mss.is_some_and(|mss| mss > MSS_MOST) {
            return Err(Refusal::MSS);
        }
        Ok(self)
    }
}

fn whole_seconds(span: Duration) -> u64 {
    span.as_millis() / 1_000
}

/// Parses a number of whole seconds from zero to `most`; an absent value is treated as zero.
fn span(of: &Value, key: &str, most: Duration) -> Option<Duration> {
    let seconds = within(json::integer(of, key), 0, whole_seconds(most) as i64)?.unwrap_or(0);
    Some(Duration::from_secs(seconds.unsigned_abs()))
}

/// Checks whether an optional value is within a range; returns `None` if it is not.
fn within(value: Option<i64>, least: i64, most: i64) -> Option<Option<i64>> {
    match value {
        Some(value) if !(least..=most).contains(&value) => None,
        value => Some(value),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parameters_go_there_and_back() {
        let plain = Params { time: Duration::from_secs(3), wants_trace: true, ..Params::default() };
        assert_eq!(Params::from_json(&plain.to_json()), Ok(plain));
        let full = Params {
            protocol: Protocol::Udp,
            mode: Mode::Bidirectional,
            time: Duration::ZERO,
            omit: Duration::from_secs(2),
            num: Bytes::from_mib(5),
            blocks: 7,
            parallel: 128,
            len: Some(Bytes::new(1200)),
            mss: Some(Bytes::new(1300)),
            nodelay: true,
            window: Some(Bytes::from_mib(4)),
            rate: Some(Rate::from_bps(10_000_000)),
            fq_rate: Some(Rate::from_bps(20_000_000)),
            pacing_timer: Some(Duration::from_millis(1)),
            burst: Some(10),
            tos: Some(0x10),
            flow_label: Some(77),
            title: Some("t".into()),
            extra_data: Some("e".into()),
            congestion: Some("cubic".into()),
            get_server_output: true,
            udp_counters_64bit: true,
            repeating_payload: true,
            zerocopy: true,
            dont_fragment: true,
            authenticates: false,
            client_version: Some("3.12".into()),
            wants_trace: true,
        };
        assert_eq!(Params::from_json(&full.to_json()), Ok(full));
    }

    /// Values above the largest one that is stored are still equal after they have been written and read.
    #[test]
    fn large_values_survive_a_round_trip() {
        const MOST: u64 = i64::MAX as u64;
        for (value, kept) in [(1 << 20, None), ((1 << 20) + 5, Some(5)), (MOST, Some(0x000f_ffff))] {
            let params =
                Params::from_json(&json!({"flowlabel": value, "pacing_timer": MOST})).expect("valid");
            assert_eq!(params.flow_label, kept);
            assert_eq!(Params::from_json(&params.to_json()), Ok(params));
        }
    }

    /// The parameters that iperf3 3.12 sends for `-c HOST -P 2 -R -t 1` are accepted.
    #[test]
    fn the_parameters_of_iperf3_are_understood() {
        let sent = json!({"tcp": true, "omit": 0, "time": 1, "num": 0, "blockcount": 0, "parallel": 2, "reverse": true,
            "len": 131_072, "pacing_timer": 1000, "client_version": "3.12"});
        let params = Params::from_json(&sent).expect("valid");
        assert_eq!((params.protocol, params.mode, params.parallel), (Protocol::Tcp, Mode::Reverse, 2));
        assert_eq!((params.time, params.streams()), (Duration::from_secs(1), 2));
    }

    #[test]
    fn a_value_of_a_wrong_type_counts_as_absent() {
        let sent = json!({"tcp": "yes", "udp": 1, "reverse": 1, "time": "10", "num": [], "parallel": {"a": 1},
            "len": true, "MSS": null, "window": "4M", "TOS": [1], "title": 5, "congestion": false, "unknown": 3});
        let absent = Params { time: Duration::ZERO, ..Params::default() };
        assert_eq!(Params::from_json(&sent), Ok(absent.clone()));
        for sent in [json!(null), json!([]), json!("tcp"), json!(1), json!({})] {
            assert_eq!(Params::from_json(&sent), Ok(absent.clone()));
        }
    }

    #[test]
    fn values_out_of_range_are_refused_with_the_number_that_iperf3_has_for_it() {
        let most = u64::MAX;
        let cases = [
            (json!({"parallel": 129}), Refusal::STREAMS),
            (json!({"parallel": 0}), Refusal::STREAMS),
            (json!({"parallel": most}), Refusal::STREAMS),
            (json!({"time": 86_401}), Refusal::DURATION),
            (json!({"time": -1}), Refusal::DURATION),
            (json!({"omit": 601}), Refusal::OMIT),
            (json!({"len": (1 << 20) + 1}), Refusal::BLOCK_SIZE),
            (json!({"udp": true, "len": 15}), Refusal::UDP_BLOCK_SIZE),
            (json!({"udp": true, "len": 65_508}), Refusal::UDP_BLOCK_SIZE),
            (json!({"window": (512 << 20) + 1}), Refusal::BUFFER_SIZE),
            (json!({"MSS": 9_217}), Refusal::MSS),
            (json!({"burst": 1_001}), Refusal::BURST),
            (json!({"TOS": 256}), Refusal::TOS),
            (json!({"sctp": true}), Refusal::PROTOCOL),
            (json!({"reverse": true, "bidirectional": true}), Refusal::REVERSE_AND_BIDIRECTIONAL),
        ];
        for (sent, refusal) in cases {
            assert_eq!(Params::from_json(&sent), Err(refusal), "{sent}");
        }
    }
}
