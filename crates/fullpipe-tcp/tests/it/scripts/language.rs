//! Parser of test scripts. `tests/scripts/README.md` describes the format.

use std::str::FromStr;

use fullpipe_tcp::buffers::{Buffer, WindowRule};
use fullpipe_tcp::cc::{Algorithm, Launch};
use fullpipe_tcp::wire::{Flags, IcmpError};
use fullpipe_tcp::{Config, IpVersion, KeepAlive, ReoWnd, RtoRule, Tunables};
use fullpipe_units::{Bytes, Duration, Rate};

/// A parsed test script.
#[derive(Debug)]
pub(crate) struct Script {
    /// Labels of the checks in `docs/evidence/conformance.md` that the script covers.
    pub(crate) checks: Vec<String>,
    pub(crate) setup: Setup,
    pub(crate) lines: Vec<Line>,
}

/// Setup of a test script: the conditions before time zero.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) config: Config,
    pub(crate) server: bool,
    /// Handshake that the script runner performs before time zero: its RTT and the peer's SYN.
    pub(crate) established: Option<(Duration, SegmentText)>,
    /// Whether the application reads all data as soon as it arrives.
    pub(crate) reader: bool,
    pub(crate) peer_isn: u32,
    /// Timestamp clock of the peer at time zero.
    pub(crate) peer_clock: u32,
}

/// Statement of a test script, with its line number and time.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) number: usize,
    pub(crate) time: Time,
    /// Time by which an outbound segment may leave earlier than the script states, because kernel timers are
    /// late.
    pub(crate) early: Duration,
    pub(crate) statement: Statement,
}

/// Time of a script statement.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Time {
    /// Time relative to time zero of the script.
    At(Duration),
    /// Time relative to the previous line of the script.
    After(Duration),
}

#[derive(Debug)]
pub(crate) enum Statement {
    Inbound(SegmentText),
    Outbound(SegmentText),
    Open,
    /// Number of bytes to write, and the number of bytes expected to be accepted.
    Write(u64, u64),
    /// Number of bytes to read; `None` reads all available bytes.
    Read(Option<u64>),
    Close,
    Detach,
    Abort,
    /// ICMP error, and the sequence number that its message quotes.
    Icmp(IcmpError, i64),
    /// Names of observable values, with their expected values.
    Expect(Vec<(String, String)>),
    Events(Vec<String>),
    Nothing,
}

impl Statement {
    /// Returns whether the statement only observes the connection.
    pub(crate) fn is_a_look(&self) -> bool {
        matches!(self, Self::Expect(_) | Self::Events(_))
    }
}

/// One segment, or several segments of equal length. Sequence numbers are relative: the SYN has number 0, and
/// the first octet has number 1.
#[derive(Clone, Debug, Default)]
pub(crate) struct SegmentText {
    pub(crate) flags: Flags,
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) count: u32,
    pub(crate) ack: Option<i64>,
    /// Last acknowledgement number of a series of ACKs, and the step between two of these ACKs.
    pub(crate) ack_series: Option<(i64, i64)>,
    pub(crate) win: Option<u16>,
    pub(crate) options: Option<OptionsText>,
}

/// Options of a segment, each `None` if absent; `order` lists the option names in order of appearance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OptionsText {
    pub(crate) order: Vec<&'static str>,
    pub(crate) mss: Option<u16>,
    pub(crate) window_scale: Option<u8>,
    pub(crate) sack_permitted: bool,
    pub(crate) timestamps: Option<(Option<i64>, Option<i64>)>,
    pub(crate) sack: Vec<(i64, i64)>,
}

type Parsed<T> = Result<T, String>;

pub(crate) fn parse(text: &str) -> Result<Script, (usize, String)> {
    let mut script = Script { checks: Vec::new(), setup: Setup::default(), lines: Vec::new() };
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let line = line.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        script.take(number, line).map_err(|why| (number, why))?;
    }
    if script.checks.is_empty() {
        return Err((1, "a script says what it checks".into()));
    }
    Ok(script)
}

impl Default for Setup {
    fn default() -> Self {
        let config = Config {
            cc: Algorithm::Reno,
            sndbuf: Buffer::Fixed(Bytes::from_mib(256)),
            window_rule: WindowRule::ScalingRatio(160),
            ..Config::default()
        };
        Self { config, server: false, established: None, reader: false, peer_isn: 7_000, peer_clock: 50_000 }
    }
}

impl Script {
    fn take(&mut self, number: usize, line: &str) -> Parsed<()> {
        let (head, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        if self.lines.is_empty() && self.setup.take(head, rest.trim())? {
            return Ok(());
        }
        if head == "checks" {
            self.checks = rest.split_whitespace().map(Into::into).collect();
            return Ok(());
        }
        if head == "deviates" {
            return if rest.is_empty() { Err("a deviation has a reason".into()) } else { Ok(()) };
        }
        let (time, early, statement) = match timed(head)? {
            Some((time, early)) => (time, early, rest.trim()),
            None => (Time::After(Duration::ZERO), Duration::ZERO, line),
        };
        let statement = statement_of(statement)?;
        if !early.is_zero() && !matches!(statement, Statement::Outbound(_)) {
            return Err("only what is sent can be early".into());
        }
        self.lines.push(Line { number, time, early, statement });
        Ok(())
    }
}

impl Setup {
    /// Keywords without a value. The parser rejects a value, because a script with an ignored value would not
    /// test what it states.
    const SWITCHES: [&str; 7] =
        ["fair-queue", "no-sack", "ipv6", "mtu-probing", "nodelay", "keep-alive", "reader"];

    /// Parses a setup line, and returns false if `key` is not a setup keyword.
    fn take(&mut self, key: &str, value: &str) -> Parsed<bool> {
        if Self::SWITCHES.contains(&key) && !value.is_empty() {
            return Err(format!("{key} takes no value, and here is '{value}'"));
        }
        let config = &mut self.config;
        match key {
            "side" => {
                self.server = match value {
                    "client" => false,
                    "server" => true,
                    other => return Err(format!("'{other}' is no side")),
                }
            }
            "mtu" => config.mtu = number(value)?,
            "cc" => {
                config.cc = *Algorithm::ALL
                    .iter()
                    .find(|algorithm| algorithm.name() == value)
                    .ok_or_else(|| format!("no congestion control '{value}'"))?;
            }
            "sndbuf" => config.sndbuf = buffer(value)?,
            "rcvbuf" => config.rcvbuf = buffer(value)?,
            "notsent-lowat" => config.notsent_lowat = Some(Bytes::new(number(value)?)),
            "window-clamp" => config.window_clamp = Some(Bytes::new(number(value)?)),
            "window-ratio" => config.window_rule = WindowRule::ScalingRatio(number(value)?),
            "fair-queue" => config.fair_queue = true,
            "no-sack" => config.sack = false,
            "profile" => {
                config.tunables = match value {
                    "linux" => Tunables::LINUX,
                    "rfc" => Tunables::RFC,
                    other => return Err(format!("no profile '{other}'")),
                }
            }
            "tunable" => tunable(&mut config.tunables, value)?,
            "launch" => {
                let (window, rate) = value.split_once(' ').ok_or("a launch is WINDOW RATE")?;
                let rate = Rate::from_str(rate).map_err(|why| why.to_string())?;
                config.launch = Some(Launch { window: number(window)?, rate });
            }
            "pace" => config.max_pacing_rate = Some(Rate::from_str(value).map_err(|why| why.to_string())?),
            "seed" => config.seed = number(value)?,
            "ipv6" => config.ip = IpVersion::V6,
            "mtu-probing" => config.mtu_probing = true,
            "nodelay" => config.nodelay = true,
            "keep-alive" => config.keep_alive = Some(KeepAlive::default()),
            "user-timeout" => config.user_timeout = Some(seconds(value)?),
            "reader" => self.reader = true,
            "peer-isn" => self.peer_isn = number(value)?,
            "peer-clock" => self.peer_clock = number(value)?,
            "established" => {
                let (rtt, rest) = value.split_once(char::is_whitespace).unwrap_or((value, ""));
                let rest = if rest.is_empty() {
                    "win 65160 <mss 1460,sackOK,TS,nop,wscale 10>"
                } else {
                    rest.trim()
                };
                self.established = Some((seconds(rtt)?, segment(&format!("S 0:0 {rest}"))?));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn number<T: FromStr>(text: &str) -> Parsed<T> {
    text.parse().map_err(|_| format!("'{text}' is not a number that fits here"))
}

fn buffer(text: &str) -> Parsed<Buffer> {
    match text.split_once(' ') {
        Some(("fixed", size)) => Ok(Buffer::Fixed(Bytes::new(number(size.trim())?))),
        Some(("auto", size)) => Ok(Buffer::Auto { max: Bytes::new(number(size.trim())?) }),
        _ => Err("a buffer is 'fixed BYTES' or 'auto BYTES'".into()),
    }
}

/// Parses a tunable such as `rto_min 0.05`, named by its key in experiment files. Times are in seconds.
fn tunable(tunables: &mut Tunables, text: &str) -> Parsed<()> {
    let (key, value) = text.split_once(' ').ok_or("a tunable is KEY VALUE")?;
    let parts = |unit: u32| Ok::<u32, String>((number::<f64>(value)? * f64::from(unit)).round() as u32);
    match key {
        "rto_min" => tunables.rto = RtoRule::Slack { floor: seconds(value)? },
        "rto_min_prompt" => tunables.rto_prompt = Some(seconds(value)?),
        "rto_max" => tunables.rto_max = seconds(value)?,
        "rto_linear" => tunables.rto_linear = number(value)?,
        "loss_window" => tunables.loss_window = number(value)?,
        "tlp_factor" => tunables.probe_timeout.srtt_percent = parts(100)?,
        "tlp_floor" => tunables.probe_timeout.floor = Some(seconds(value)?),
        "tlp_ack_delay" => tunables.probe_timeout.ack_delay = seconds(value)?,
        "reo_wnd" => tunables.reo_wnd.share = parts(ReoWnd::UNIT)?,
        "reo_wnd_on_evidence" => tunables.reo_wnd.on_evidence = number(value)?,
        "syn_ack_early" => tunables.syn_ack_early = Some(seconds(value)?),
        "second_copy" => tunables.copies.second_copy = number(value)?,
        "tail_copies" => tunables.copies.tail_copies = number(value)?,
        "syn_retries" => tunables.retries.syn = number(value)?,
        "syn_ack_retries" => tunables.retries.syn_ack = number(value)?,
        "retries" => tunables.retries.data = number(value)?,
        "orphan_retries" => tunables.retries.orphan = number(value)?,
        other => return Err(format!("no tunable '{other}'")),
    }
    tunables.check().map_err(|why| why.to_string())
}

/// Parses a number of seconds with up to nine decimals, without rounding.
pub(crate) fn seconds(text: &str) -> Parsed<Duration> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 9 {
        return Err(format!("'{text}' is no time in seconds"));
    }
    let nanos: u64 = number(&format!("{fraction:0<9}"))?;
    Ok(Duration::from_secs(number(whole)?) + Duration::from_nanos(nanos))
}

/// Parses a time such as `+0.1`, `0.1` or `+0.1~12ms`. Returns `None` if `text` is not a time.
fn timed(text: &str) -> Parsed<Option<(Time, Duration)>> {
    let (time, early) = text.split_once('~').unwrap_or((text, "0ms"));
    let early = early.strip_suffix("ms").ok_or("a tolerance is in ms")?;
    let early = Duration::from_millis(number(early)?);
    if let Some(after) = time.strip_prefix('+') {
        return Ok(Some((Time::After(seconds(after)?), early)));
    }
    Ok(match time.bytes().next() {
        Some(b'0'..=b'9') => Some((Time::At(seconds(time)?), early)),
        _ => None,
    })
}

fn statement_of(text: &str) -> Parsed<Statement> {
    let (verb, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let words: Vec<&str> = rest.split_whitespace().collect();
    Ok(match (verb, &words[..]) {
        ("<", _) => Statement::Inbound(segment(rest)?),
        (">", _) => Statement::Outbound(segment(rest)?),
        ("open", []) => Statement::Open,
        ("close", []) => Statement::Close,
        ("detach", []) => Statement::Detach,
        ("abort", []) => Statement::Abort,
        ("too-big", [mtu, "quotes", seq]) => Statement::Icmp(IcmpError::TooBig(number(mtu)?), number(seq)?),
        ("unreachable", ["quotes", seq]) => Statement::Icmp(IcmpError::Unreachable, number(seq)?),
        ("refused", ["quotes", seq]) => Statement::Icmp(IcmpError::Refused, number(seq)?),
        ("nothing", []) => Statement::Nothing,
        ("write", [len]) => Statement::Write(number(len)?, number(len)?),
        ("write", [len, "takes", taken]) => Statement::Write(number(len)?, number(taken)?),
        ("read", ["all"]) => Statement::Read(None),
        ("read", [len]) => Statement::Read(Some(number(len)?)),
        ("event", names) => Statement::Events(names.iter().map(|name| (*name).into()).collect()),
        ("expect", pairs) if !pairs.is_empty() && pairs.len().is_multiple_of(2) => {
            Statement::Expect(pairs.chunks(2).map(|pair| (pair[0].into(), pair[1].into())).collect())
        }
        _ => return Err(format!("'{text}' is not understood")),
    })
}

fn segment(text: &str) -> Parsed<SegmentText> {
    let (text, options) = match text.split_once('<') {
        Some((before, options)) => {
            (before, Some(options_of(options.strip_suffix('>').ok_or("options end with '>'")?)?))
        }
        None => (text, None),
    };
    let mut words = text.split_whitespace();
    let mut segment = SegmentText { count: 1, options, ..SegmentText::default() };
    for letter in words.next().ok_or("flags are missing")?.chars() {
        segment.flags = segment.flags.with(match letter {
            'S' => Flags::SYN,
            'F' => Flags::FIN,
            'R' => Flags::RST,
            'P' => Flags::PSH,
            '.' => Flags::ACK,
            other => return Err(format!("'{other}' is no flag")),
        });
    }
    let range = words.next().ok_or("a segment has START:END")?;
    (segment.start, segment.end) = pair(range)?;
    while let Some(word) = words.next() {
        if let Some(count) = word.strip_prefix('x') {
            segment.count = number(count)?;
            continue;
        }
        let value = words.next().ok_or_else(|| format!("'{word}' has no value"))?;
        match word {
            "win" => segment.win = Some(number(value)?),
            "ack" => match value.split_once("..") {
                None => segment.ack = Some(number(value)?),
                Some((first, last)) => {
                    let ("by", Some(step)) = (words.next().unwrap_or(""), words.next()) else {
                        return Err("a series is FIRST..LAST by STEP".into());
                    };
                    segment.ack = Some(number(first)?);
                    segment.ack_series = Some((number(last)?, number(step)?));
                }
            },
            other => return Err(format!("'{other}' is not understood")),
        }
    }
    let len = segment.end - segment.start;
    if len < 0 || segment.count == 0 || len % i64::from(segment.count) != 0 {
        return Err(format!("{range} cannot be cut into {} equal segments", segment.count));
    }
    Ok(segment)
}

fn pair(text: &str) -> Parsed<(i64, i64)> {
    let (start, end) = text.split_once(':').ok_or_else(|| format!("'{text}' is not START:END"))?;
    Ok((number(start)?, number(end)?))
}

fn options_of(text: &str) -> Parsed<OptionsText> {
    let mut options = OptionsText::default();
    for option in text.split(',').map(str::trim).filter(|option| !option.is_empty()) {
        let words: Vec<&str> = option.split_whitespace().collect();
        options.order.push(match words[..] {
            ["mss", value] => {
                options.mss = Some(number(value)?);
                "mss"
            }
            ["wscale", value] => {
                options.window_scale = Some(number(value)?);
                "wscale"
            }
            ["sackOK"] => {
                options.sack_permitted = true;
                "sackOK"
            }
            ["nop"] => "nop",
            ["TS"] => {
                options.timestamps = Some((None, None));
                "TS"
            }
            ["TS", "val", value] => {
                options.timestamps = Some((Some(number(value)?), None));
                "TS"
            }
            ["TS", "ecr", echo] => {
                options.timestamps = Some((None, Some(number(echo)?)));
                "TS"
            }
            ["TS", "val", value, "ecr", echo] => {
                options.timestamps = Some((Some(number(value)?), Some(number(echo)?)));
                "TS"
            }
            ["sack", ref blocks @ ..] if !blocks.is_empty() => {
                options.sack = blocks.iter().map(|block| pair(block)).collect::<Parsed<_>>()?;
                "sack"
            }
            _ => return Err(format!("option '{option}' is not understood")),
        });
    }
    Ok(options)
}

/// The parser rejects a setup line that it does not understand; otherwise, the script would not test what it
/// states.
#[test]
fn setup_lines_are_understood_or_refused() {
    let refused = |line: &str| parse(&format!("checks X\n{line}\n")).expect_err(line).1;
    for line in
        ["sndbuff fixed 4096", "fairqueue", "no_sack", "side servr", "cc cubik", "mtu", "profile unix"]
    {
        refused(line);
    }
    for line in ["launch 44", "launch 44 fast", "tunable retries", "tunable retrys 3", "tunable retries 120"]
    {
        refused(line);
    }
    for switch in Setup::SWITCHES {
        assert!(parse(&format!("checks X\n{switch}\n")).is_ok(), "{switch}");
        assert!(refused(&format!("{switch} off")).contains("takes no value"), "{switch}");
    }
}
