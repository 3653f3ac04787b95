//! The flags of `fullpipe iperf3`: iperf3's own, and what fullpipe adds.

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

Flags are iperf3's, and so are their units: K, M and G are powers of 1000 in rates and of 1024 in
amounts. The other end may be iperf3. Behind the bar of a line stand what this end's socket tells,
and the limit that held.

Exit codes:
  0  done
  1  anything else, as of iperf3";

/// What is measured, and how it is shown.
#[derive(Debug, ClapArgs)]
#[command(after_help = EXAMPLE, group(ArgGroup::new("side").required(true).args(["client", "server"])))]
pub(crate) struct Iperf3Args {
    /// Measure to the iperf3 server on HOST
    #[arg(short = 'c', long, value_name = "HOST")]
    pub(crate) client: Option<String>,

    /// Be a server
    #[arg(short, long)]
    pub(crate) server: bool,

    /// Port of the server
    #[arg(short, long, value_name = "PORT", default_value_t = PORT)]
    pub(crate) port: u16,

    /// Address of this end
    #[arg(short = 'B', long, value_name = "ADDRESS")]
    pub(crate) bind: Option<IpAddr>,

    /// Rates in k, m, g or t bits, or K, M, G or T bytes
    #[arg(short, long, value_name = "LETTER", default_value = "a", value_parser = rate_format, hide_default_value = true)]
    pub(crate) format: RateFormat,

    /// Seconds between two reports; 0 for none
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub(crate) interval: Duration,

    /// Print one JSON document at the end
    #[arg(short = 'J', long)]
    pub(crate) json: bool,

    /// Print an event of JSON a line, as the test goes
    #[arg(long, conflicts_with = "json")]
    pub(crate) json_stream: bool,

    /// Print more
    #[arg(short = 'V', long)]
    pub(crate) verbose: bool,

    #[command(flatten)]
    pub(crate) test: TestArgs,

    #[command(flatten)]
    pub(crate) explain: ExplainArgs,

    #[command(flatten)]
    pub(crate) serve: ServerArgs,
}

/// What a client asks for.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Client")]
pub(crate) struct TestArgs {
    /// Seconds of the test
    #[arg(short, long, value_name = "SECONDS", default_value = "10", value_parser = whole_seconds, conflicts_with_all = ["server"])]
    time: Duration,

    /// Bytes to send instead, all streams together
    #[arg(short = 'n', long, value_name = "AMOUNT", value_parser = parse_amount, conflicts_with_all = ["time", "blockcount", "server"])]
    bytes: Option<Bytes>,

    /// Blocks to send instead, all streams together
    #[arg(short = 'k', long, value_name = "COUNT", value_parser = count, conflicts_with_all = ["time", "server"])]
    blockcount: Option<u64>,

    /// Datagrams instead of TCP
    #[arg(short, long, conflicts_with = "server")]
    udp: bool,

    /// Rate of each stream, bit/s; 0 for no limit [default: no limit, over UDP 1M]
    #[arg(short, long, visible_alias = "bandwidth", value_name = "RATE[/BURST]", value_parser = bitrate, conflicts_with = "server")]
    bitrate: Option<(Rate, Option<u32>)>,

    /// Rate of each stream that the kernel paces at (SO_MAX_PACING_RATE)
    #[arg(long, value_name = "RATE", value_parser = parse_rate, conflicts_with = "server")]
    fq_rate: Option<Rate>,

    /// Streams at once
    #[arg(short = 'P', long, value_name = "COUNT", default_value_t = 1, conflicts_with = "server",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(params::STREAMS_MOST)))]
    parallel: u32,

    /// The server sends
    #[arg(short = 'R', long, conflicts_with = "server")]
    reverse: bool,

    /// Both send at once
    #[arg(long, conflicts_with_all = ["reverse", "server"])]
    bidir: bool,

    /// First seconds that do not count
    #[arg(short = 'O', long, value_name = "SECONDS", default_value = "0", value_parser = whole_seconds, conflicts_with = "server")]
    omit: Duration,

    /// Bytes of a write or datagram [default: 128K, over UDP what fits a packet]
    #[arg(short, long, value_name = "SIZE", value_parser = parse_amount, conflicts_with = "server")]
    length: Option<Bytes>,

    /// Socket buffers of a fixed size, at both ends
    #[arg(short, long, value_name = "SIZE", value_parser = parse_amount, conflicts_with = "server")]
    window: Option<Bytes>,

    /// Segment size
    #[arg(short = 'M', long, value_name = "BYTES", value_parser = parse_amount, conflicts_with = "server")]
    set_mss: Option<Bytes>,

    /// Without Nagle's algorithm
    #[arg(short = 'N', long, conflicts_with = "server")]
    no_delay: bool,

    /// Congestion control
    #[arg(short = 'C', long, value_name = "NAME", conflicts_with = "server")]
    congestion: Option<String>,

    /// Type of service, the byte of the IP header
    #[arg(short = 'S', long, value_name = "BYTE", value_parser = tos, conflicts_with = "server")]
    tos: Option<u8>,

    /// IPv4 only
    #[arg(short = '4', long = "version4", conflicts_with = "version6")]
    pub(crate) version4: bool,

    /// IPv6 only
    #[arg(short = '6', long = "version6")]
    pub(crate) version6: bool,

    /// Milliseconds that a connection may take to be made
    #[arg(long, value_name = "MS", value_parser = milliseconds, conflicts_with = "server")]
    pub(crate) connect_timeout: Option<Duration>,

    /// Also print what the server printed
    #[arg(long, conflicts_with = "server")]
    get_server_output: bool,

    /// Number datagrams with 64 bits
    #[arg(long = "udp-counters-64bit", conflicts_with = "server")]
    udp_counters_64bit: bool,

    /// Begin each line with TEXT
    #[arg(short = 'T', long, value_name = "TEXT", conflicts_with = "server")]
    title: Option<String>,

    /// For the document
    #[arg(long, value_name = "TEXT", conflicts_with = "server")]
    extra_data: Option<String>,
}

/// What the client says of the path.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Diagnosis")]
pub(crate) struct ExplainArgs {
    /// Rate of the line, as 1gbit
    #[arg(long, value_name = "RATE", conflicts_with = "server")]
    pub(crate) link: Option<Rate>,

    /// Round-trip time of the idle path, as 210ms; measured when left out
    #[arg(long, value_name = "TIME", conflicts_with = "server")]
    pub(crate) rtt: Option<Duration>,

    /// Kernel settings of the server's host: a file with the output of sysctl -a, or local if it is this one
    #[arg(long, value_name = "FILE|local", conflicts_with = "server")]
    pub(crate) peer_sysctl: Option<String>,

    /// Leave out the diagnosis and the columns behind the bar: what is left is iperf3's
    #[arg(long, conflicts_with = "server")]
    pub(crate) no_diagnosis: bool,

    /// Show rate, windows and buffers and what holds the test as bars while it runs; lines without a terminal
    #[arg(long, conflicts_with_all = ["server", "udp", "json", "json_stream", "tcp_and_udp"])]
    pub(crate) tui: bool,

    /// Measure over TCP, then over UDP at -b or at the rate that TCP reached, and compare
    #[arg(long, conflicts_with_all = ["udp", "server", "bidir", "json_stream", "bytes", "blockcount"])]
    pub(crate) tcp_and_udp: bool,
}

impl TestArgs {
    /// The parameters of the test.
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
        // What a server would refuse is said before it is asked.
        Params::from_json(&asked.to_json())
            .map_err(|refusal| Failure::new(refusal.to_string(), "see fullpipe iperf3 --help"))?;
        Ok(asked)
    }
}

fn rate_format(text: &str) -> Result<RateFormat, String> {
    text.parse()
}

fn whole_seconds(text: &str) -> Result<Duration, String> {
    let seconds: u64 = text.parse().map_err(|_| format!("'{text}' is no number of whole seconds"))?;
    let most = params::TIME_MOST.as_millis() / 1_000;
    if seconds > most {
        Err(format!("{seconds} s are more than a day"))
    } else {
        Ok(Duration::from_secs(seconds))
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("'{text}' is no number of seconds"))?;
    if seconds == 0.0 || (0.1..=60.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(format!("reports come each 0.1 to 60 seconds, or not at all (0), and not each {text}"))
    }
}

fn milliseconds(text: &str) -> Result<Duration, String> {
    let millis = text.parse().ok().filter(|&millis: &u64| (1..=600_000).contains(&millis));
    millis.map(Duration::from_millis).ok_or_else(|| format!("'{text}' is no time from 1 to 600000 ms"))
}

fn count(text: &str) -> Result<u64, String> {
    parse_amount(text).map(Bytes::get).map_err(|_| format!("'{text}' is no number of blocks"))
}

fn bitrate(text: &str) -> Result<(Rate, Option<u32>), String> {
    let Some((rate, burst)) = text.split_once('/') else { return Ok((parse_rate(text)?, None)) };
    let blocks = burst.parse().ok().filter(|blocks| (1..=params::BURST_MOST).contains(blocks));
    let blocks =
        blocks.ok_or_else(|| format!("a burst is 1 to {} blocks, not '{burst}'", params::BURST_MOST))?;
    Ok((parse_rate(rate)?, Some(blocks)))
}

fn tos(text: &str) -> Result<u8, String> {
    let value = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u8::from_str_radix(hex, 16),
        None if text.len() > 1 && text.starts_with('0') => u8::from_str_radix(text, 8),
        None => text.parse(),
    };
    value.map_err(|_| format!("'{text}' is no byte: as 184, 0xb8 or 0270"))
}

/// Flags of iperf3 that are not here, and why.
const UNSUPPORTED: [(&str, &str, &str); 32] = [
    ("", "--sctp", "only TCP and UDP are measured"),
    ("-X", "--xbind", "it belongs to SCTP"),
    ("", "--nstreams", "it belongs to SCTP"),
    ("-m", "--mptcp", "its subflows have limits of their own that nothing here tells apart"),
    ("-Z", "--zerocopy", "it saves the processor's time, and paths are measured here"),
    ("", "--skip-rx-copy", "what arrives is never copied here: leave it out"),
    ("-A", "--affinity", "taskset does it"),
    ("-F", "--file", "what is sent comes from memory"),
    ("-L", "--flowlabel", "the label is the kernel's"),
    ("", "--cport", "the kernel chooses the port; -B chooses the address"),
    ("", "--bind-dev", "-B chooses the address, and with it the way out"),
    ("", "--dscp", "-S takes the whole byte: four times the code point"),
    ("-D", "--daemon", "systemd or nohup do it"),
    ("-I", "--pidfile", "systemd does it"),
    ("", "--logfile", "redirect the output"),
    ("", "--forceflush", "every line is written at once: leave it out"),
    ("", "--timestamps", "ts of moreutils does it, and -J has times"),
    ("-d", "--debug", "-V prints more"),
    ("", "--rsa-private-key-path", "there is no authentication"),
    ("", "--authorized-users-path", "there is no authentication"),
    ("", "--username", "there is no authentication"),
    ("", "--rsa-public-key-path", "there is no authentication"),
    ("", "--pacing-timer", "each block has its own time here"),
    ("", "--repeating-payload", "data is random"),
    ("", "--dont-fragment", "the kernel finds the size that fits"),
    ("", "--snd-timeout", "a stalled path is a result"),
    ("", "--rcv-timeout", "a stalled path is a result"),
    ("", "--cntl-ka", "the control connection speaks while data flows"),
    ("", "--gsro", "datagrams leave one by one"),
    ("", "--json-stream-full-output", "events hold all that the document does"),
    ("", "--use-pkcs1-padding", "there is no authentication"),
    ("", "--idle-timeout", "an idle server costs nothing"),
];

/// What to say of `argument`, if it is a flag of iperf3 that is not here.
pub(crate) fn unsupported(argument: &str) -> Option<Failure> {
    let name = argument.split(['=', ' ']).next().unwrap_or(argument);
    let (short, long, why) = UNSUPPORTED.iter().find(|(short, long, _)| name == *short || name == *long)?;
    let both = if short.is_empty() { (*long).to_owned() } else { format!("{short} ({long})") };
    Some(Failure::new(format!("iperf3's {both} is not supported"), *why))
}
