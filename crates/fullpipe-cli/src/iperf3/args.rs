//! Flags of `fullpipe iperf3`: iperf3's flags, and flags that fullpipe adds.

use std::net::IpAddr;

use clap::{ArgGroup, Args as ClapArgs};
use fullpipe::iperf3::unit::{RateFormat, parse_amount, parse_rate};
use fullpipe::iperf3::{Mode, PORT, Params, Protocol, params};
use fullpipe::units::{Bytes, Duration, Rate};

use super::server_args::ServerArgs;
use crate::failure::Failure;

const EXAMPLE: &str = "\
Examples:
  fullpipe iperf3 -c HOST --link 1gbit
  fullpipe iperf3 -c HOST -R -t 30 -P 4
  fullpipe iperf3 -c HOST --tcp-and-udp -b 100M
  fullpipe iperf3 -c HOST -J | fullpipe diagnose -

Flags and units are those of iperf3: K, M and G are powers of 1000 in rates and of 1024 in amounts.
The other end may run iperf3. The columns after the vertical bar show values of the local socket
and the limit in the interval.

Exit codes:
  0  done
  1  any error, as in iperf3";

/// Flags of the iperf3 client and server: address, output and diagnosis.
#[derive(Debug, ClapArgs)]
#[command(after_help = EXAMPLE, group(ArgGroup::new("side").required(true).args(["client", "server"])))]
pub(crate) struct Iperf3Args {
    /// Run a test against the iperf3 server on HOST
    #[arg(short = 'c', long, value_name = "HOST")]
    pub(crate) client: Option<String>,

    /// Run as a server
    #[arg(short, long)]
    pub(crate) server: bool,

    /// Port that the server listens on, and that the client connects to
    #[arg(short, long, value_name = "PORT", default_value_t = PORT)]
    pub(crate) port: u16,

    /// Local address to bind to
    #[arg(short = 'B', long, value_name = "ADDRESS")]
    pub(crate) bind: Option<IpAddr>,

    /// Unit of rates: k, m, g or t for bits, K, M, G or T for bytes
    #[arg(short, long, value_name = "LETTER", default_value = "a", value_parser = rate_format, hide_default_value = true)]
    pub(crate) format: RateFormat,

    /// Seconds between reports; 0 disables them
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub(crate) interval: Duration,

    /// Print one JSON document at the end
    #[arg(short = 'J', long)]
    pub(crate) json: bool,

    /// Print one JSON event per line while the test runs
    #[arg(long, conflicts_with = "json")]
    pub(crate) json_stream: bool,

    /// Print more details
    #[arg(short = 'V', long)]
    pub(crate) verbose: bool,

    #[command(flatten)]
    pub(crate) test: TestArgs,

    #[command(flatten)]
    pub(crate) explain: ExplainArgs,

    #[command(flatten)]
    pub(crate) serve: ServerArgs,
}

/// Flags that describe an iperf3 test; only for the client.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Client")]
pub(crate) struct TestArgs {
    /// Duration of the test in seconds
    #[arg(short, long, value_name = "SECONDS", default_value = "10", value_parser = whole_seconds, conflicts_with_all = ["server"])]
    time: Duration,

    /// Stop after this number of bytes in total, instead of after --time
    #[arg(short = 'n', long, value_name = "AMOUNT", value_parser = parse_amount, conflicts_with_all = ["time", "blockcount", "server"])]
    bytes: Option<Bytes>,

    /// Stop after this number of blocks in total, instead of after --time
    #[arg(short = 'k', long, value_name = "COUNT", value_parser = count, conflicts_with_all = ["time", "server"])]
    blockcount: Option<u64>,

    /// Use UDP instead of TCP
    #[arg(short, long, conflicts_with = "server")]
    udp: bool,

    /// Rate limit of each stream in bit/s; 0 for unlimited [default: unlimited for TCP, 1M for UDP]
    #[arg(short, long, visible_alias = "bandwidth", value_name = "RATE[/BURST]", value_parser = bitrate, conflicts_with = "server")]
    bitrate: Option<(Rate, Option<u32>)>,

    /// Pacing rate of each stream, enforced by the kernel (SO_MAX_PACING_RATE)
    #[arg(long, value_name = "RATE", value_parser = parse_rate, conflicts_with = "server")]
    fq_rate: Option<Rate>,

    /// Number of parallel streams
    #[arg(short = 'P', long, value_name = "COUNT", default_value_t = 1, conflicts_with = "server",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(params::STREAMS_MOST)))]
    parallel: u32,

    /// Reverse the direction: the server sends
    #[arg(short = 'R', long, conflicts_with = "server")]
    reverse: bool,

    /// Test both directions at the same time
    #[arg(long, conflicts_with_all = ["reverse", "server"])]
    bidir: bool,

    /// Omit the first N seconds from the result
    #[arg(short = 'O', long, value_name = "SECONDS", default_value = "0", value_parser = whole_seconds, conflicts_with = "server")]
    omit: Duration,

    /// Size of each write (TCP) or datagram (UDP) [default: 128K for TCP, one packet for UDP]
    #[arg(short, long, value_name = "SIZE", value_parser = parse_amount, conflicts_with = "server")]
    length: Option<Bytes>,

    /// Set a fixed socket buffer size on both ends
    #[arg(short, long, value_name = "SIZE", value_parser = parse_amount, conflicts_with = "server")]
    window: Option<Bytes>,

    /// Set the maximum segment size (MSS)
    #[arg(short = 'M', long, value_name = "BYTES", value_parser = parse_amount, conflicts_with = "server")]
    set_mss: Option<Bytes>,

    /// Disable Nagle's algorithm
    #[arg(short = 'N', long, conflicts_with = "server")]
    no_delay: bool,

    /// Set the congestion control algorithm
    #[arg(short = 'C', long, value_name = "NAME", conflicts_with = "server")]
    congestion: Option<String>,

    /// Set the type-of-service byte of the IP header
    #[arg(short = 'S', long, value_name = "BYTE", value_parser = tos, conflicts_with = "server")]
    tos: Option<u8>,

    /// Use IPv4 only
    #[arg(short = '4', long = "version4", conflicts_with = "version6")]
    pub(crate) version4: bool,

    /// Use IPv6 only
    #[arg(short = '6', long = "version6")]
    pub(crate) version6: bool,

    /// Connection timeout in milliseconds
    #[arg(long, value_name = "MS", value_parser = milliseconds, conflicts_with = "server")]
    pub(crate) connect_timeout: Option<Duration>,

    /// Also print the server's output
    #[arg(long, conflicts_with = "server")]
    get_server_output: bool,

    /// Use 64-bit sequence numbers in UDP datagrams
    #[arg(long = "udp-counters-64bit", conflicts_with = "server")]
    udp_counters_64bit: bool,

    /// Prefix each output line with TEXT
    #[arg(short = 'T', long, value_name = "TEXT", conflicts_with = "server")]
    title: Option<String>,

    /// Add TEXT to the JSON document
    #[arg(long, value_name = "TEXT", conflicts_with = "server")]
    extra_data: Option<String>,
}

/// Flags for the diagnosis of an iperf3 client's test.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Diagnosis")]
pub(crate) struct ExplainArgs {
    /// Rate of the link, for example 1gbit
    #[arg(long, value_name = "RATE", conflicts_with = "server")]
    pub(crate) link: Option<Rate>,

    /// Round-trip time of the idle path, for example 210ms [default: measured]
    #[arg(long, value_name = "TIME", conflicts_with = "server")]
    pub(crate) rtt: Option<Duration>,

    /// Kernel settings of the server's host: a file with sysctl -a output, or local for this host
    #[arg(long, value_name = "FILE|local", conflicts_with = "server")]
    pub(crate) peer_sysctl: Option<String>,

    /// Print only iperf3's output, without the diagnosis and the additional columns
    #[arg(long, conflicts_with = "server")]
    pub(crate) no_diagnosis: bool,

    /// Show a live view of rate, windows, buffers and the current limit; without a terminal, print lines
    #[arg(long, conflicts_with_all = ["server", "udp", "json", "json_stream", "tcp_and_udp"])]
    pub(crate) tui: bool,

    /// Test over TCP, then over UDP at the -b rate or at the rate that TCP reached, and compare the results
    #[arg(long, conflicts_with_all = ["udp", "server", "bidir", "json_stream", "bytes", "blockcount"])]
    pub(crate) tcp_and_udp: bool,
}

impl TestArgs {
    /// Returns the parameters of the test that these flags describe.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "the client is for Linux"))]
    pub(crate) fn params(&self) -> Result<Params, Failure> {
        let protocol = if self.udp { Protocol::Udp } else { Protocol::Tcp };
        let mode = match (self.reverse, self.bidir) {
            (true, _) => Mode::Reverse,
            (_, true) => Mode::Bidirectional,
            _ => Mode::Forward,
        };
        let default = self.udp.then_some(params::UDP_RATE);
        let (rate, burst) = match self.bitrate {
            Some((rate, burst)) => (Some(rate).filter(|rate| !rate.is_zero()), burst),
            None => (default, None),
        };
        let by_time = self.bytes.is_none() && self.blockcount.is_none();
        let asked = Params {
            protocol,
            mode,
            time: if by_time { self.time } else { Duration::ZERO },
            omit: self.omit,
            num: self.bytes.unwrap_or_default(),
            blocks: self.blockcount.unwrap_or_default(),
            parallel: self.parallel,
            len: self.length,
            mss: self.set_mss,
            nodelay: self.no_delay,
            window: self.window,
            rate,
            fq_rate: self.fq_rate,
            burst,
            tos: self.tos,
            title: self.title.clone(),
            extra_data: self.extra_data.clone(),
            congestion: self.congestion.clone(),
            get_server_output: self.get_server_output,
            udp_counters_64bit: self.udp_counters_64bit,
            client_version: Some(env!("CARGO_PKG_VERSION").into()),
            ..Params::default()
        };
        // The parameters are validated as a server would do it, so that an invalid parameter is reported
        // before the client connects.
        Params::from_json(&asked.to_json())
            .map_err(|refusal| Failure::new(refusal.to_string(), "see fullpipe iperf3 --help"))?;
        Ok(asked)
    }
}

fn rate_format(text: &str) -> Result<RateFormat, String> {
    text.parse()
}

fn whole_seconds(text: &str) -> Result<Duration, String> {
    let seconds: u64 = text.parse().map_err(|_| format!("'{text}' is not a whole number of seconds"))?;
    let most = params::TIME_MOST.as_millis() / 1_000;
    if seconds > most {
        Err(format!("{seconds} s is longer than a day"))
    } else {
        Ok(Duration::from_secs(seconds))
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("'{text}' is not a number of seconds"))?;
    if seconds == 0.0 || (0.1..=60.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(format!("the interval must be 0 or from 0.1 to 60 seconds, not {text}"))
    }
}

fn milliseconds(text: &str) -> Result<Duration, String> {
    let millis = text.parse().ok().filter(|&millis: &u64| (1..=600_000).contains(&millis));
    millis.map(Duration::from_millis).ok_or_else(|| format!("'{text}' is not a time from 1 to 600000 ms"))
}

fn count(text: &str) -> Result<u64, String> {
    parse_amount(text).map(Bytes::get).map_err(|_| format!("'{text}' is not a number of blocks"))
}

fn bitrate(text: &str) -> Result<(Rate, Option<u32>), String> {
    let Some((rate, burst)) = text.split_once('/') else { return Ok((parse_rate(text)?, None)) };
    let blocks = burst.parse().ok().filter(|blocks| (1..=params::BURST_MOST).contains(blocks));
    let blocks = blocks
        .ok_or_else(|| format!("a burst must be from 1 to {} blocks, not '{burst}'", params::BURST_MOST))?;
    Ok((parse_rate(rate)?, Some(blocks)))
}

fn tos(text: &str) -> Result<u8, String> {
    let value = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u8::from_str_radix(hex, 16),
        None if text.len() > 1 && text.starts_with('0') => u8::from_str_radix(text, 8),
        None => text.parse(),
    };
    value.map_err(|_| format!("'{text}' is not a byte; write it as 184, 0xb8 or 0270"))
}

/// iperf3 flags that fullpipe does not support, each with the reason.
const UNSUPPORTED: [(&str, &str, &str); 32] = [
    ("", "--sctp", "fullpipe measures TCP and UDP only"),
    ("-X", "--xbind", "this flag applies to SCTP only"),
    ("", "--nstreams", "this flag applies to SCTP only"),
    ("-m", "--mptcp", "fullpipe cannot separate the limits of subflows"),
    ("-Z", "--zerocopy", "zerocopy saves only CPU time, but fullpipe measures paths"),
    ("", "--skip-rx-copy", "remove this flag; fullpipe never copies received data"),
    ("-A", "--affinity", "use taskset"),
    ("-F", "--file", "data always comes from memory"),
    ("-L", "--flowlabel", "the kernel chooses the flow label"),
    ("", "--cport", "the kernel chooses the port; -B chooses the address"),
    ("", "--bind-dev", "use -B; the address selects the interface"),
    ("", "--dscp", "use -S with the code point times four"),
    ("-D", "--daemon", "use systemd or nohup"),
    ("-I", "--pidfile", "run fullpipe as a systemd service"),
    ("", "--logfile", "redirect the output"),
    ("", "--forceflush", "remove this flag; fullpipe flushes every line"),
    ("", "--timestamps", "use ts from moreutils, or -J, whose output includes times"),
    ("-d", "--debug", "use -V"),
    ("", "--rsa-private-key-path", "authentication is not supported"),
    ("", "--authorized-users-path", "authentication is not supported"),
    ("", "--username", "authentication is not supported"),
    ("", "--rsa-public-key-path", "authentication is not supported"),
    ("", "--pacing-timer", "fullpipe schedules each block separately"),
    ("", "--repeating-payload", "data is always random"),
    ("", "--dont-fragment", "the kernel discovers the path MTU"),
    ("", "--snd-timeout", "a stalled path is a valid result"),
    ("", "--rcv-timeout", "a stalled path is a valid result"),
    ("", "--cntl-ka", "the control connection carries data during the test"),
    ("", "--gsro", "datagrams are sent one by one"),
    ("", "--json-stream-full-output", "the events already contain the whole document"),
    ("", "--use-pkcs1-padding", "authentication is not supported"),
    ("", "--idle-timeout", "an idle server uses no resources"),
];

/// Returns an error if `argument` is an iperf3 flag that fullpipe does not support.
pub(crate) fn unsupported(argument: &str) -> Option<Failure> {
    let name = argument.split(['=', ' ']).next().unwrap_or(argument);
    let (short, long, why) = UNSUPPORTED.iter().find(|(short, long, _)| name == *short || name == *long)?;
    let both = if short.is_empty() { (*long).to_owned() } else { format!("{short} ({long})") };
    Some(Failure::new(format!("iperf3's {both} is not supported"), *why))
}
