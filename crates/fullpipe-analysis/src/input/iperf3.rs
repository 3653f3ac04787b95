//! One run of iperf3, however it was written down: text, `-J`, `--json-stream`.

use fullpipe_tcp::buffers::KernelVersion;
use fullpipe_units::{Bytes, Duration, Instant, Rate};

use super::{InputError, Kind, clean, iperf3_json, iperf3_text};

/// Fewer intervals than this without a summary are not a measurement.
pub const FEWEST_INTERVALS: usize = 5;

/// One iperf3 run in one direction: the data that this log explains, and what is known of its way.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Iperf3Log {
    /// How it was written down.
    pub format: Format,
    /// The version; text logs print it only if verbose.
    pub version: Option<String>,
    /// Kernel of the host that wrote the log, if it says so.
    pub kernel: Option<KernelVersion>,
    /// What carried the data.
    pub protocol: Protocol,
    /// What the end that wrote the log did.
    pub role: Role,
    /// The data went from server to client (`-R`).
    pub reverse: bool,
    /// Parallel streams, at least 1.
    pub streams: usize,
    /// Congestion control of the sender; text logs print it only if verbose.
    pub congestion_control: Option<String>,
    /// Segment size in bytes; text logs print it only if verbose.
    pub mss: Option<Bytes>,
    /// Socket buffers that were set with `-w`; `None` where they grow by themselves.
    pub set_buffers: Option<SocketBuffers>,
    /// What iperf3 was told to send at most (`-b`), all streams together; `None` without such an order.
    pub offered: Option<Rate>,
    /// Smoothed round-trip times as the sender's kernel told them, over the whole test.
    pub rtt: Option<RttRange>,
    /// The reports in order of time, all streams added; warm-up intervals (`-O`) left out.
    pub intervals: Vec<Interval>,
    /// The sender's summary.
    pub sent: Option<Summary>,
    /// The receiver's summary: what arrived.
    pub received: Option<Summary>,
    /// Datagrams of the whole test; `None` over TCP.
    pub datagrams: Option<Datagrams>,
    /// The other direction of a `--bidir` test.
    pub opposite: Option<Box<Self>>,
    /// The log breaks off before its summary.
    pub truncated: bool,
    /// The error that iperf3 reported, of a run that failed late enough to be of use.
    pub error: Option<String>,
    /// Warm-up intervals that were left out.
    pub omitted: usize,
}

/// How a log was written down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Lines for people.
    #[default]
    Text,
    /// One document (`-J`).
    Json,
    /// One event a line (`--json-stream`).
    JsonStream,
    /// Rows of a trace, summed up in intervals.
    Trace,
    /// Packets of a capture, summed up in intervals.
    Capture,
    /// Samples of a socket of this host, summed up in intervals.
    Sockets,
    /// The output of `ss -ti`, summed up in intervals.
    Ss,
}

impl Format {
    /// The name in reports and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "iperf3_text",
            Self::Json => "iperf3_json",
            Self::JsonStream => "iperf3_json_stream",
            Self::Trace => "trace",
            Self::Capture => "capture",
            Self::Sockets => "sockets",
            Self::Ss => "ss",
        }
    }
}

/// What carried the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP (`-u`).
    Udp,
}

/// What the end that wrote a log did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// It sent: over TCP its log knows retransmissions and the congestion window.
    #[default]
    Sender,
    /// It received.
    Receiver,
    /// Both at once (`--bidir`); the log's main direction is the one in which it sent.
    Both,
}

/// Socket buffers that a program set, in bytes of memory as the kernel answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketBuffers {
    /// `SO_SNDBUF`.
    pub sndbuf: Bytes,
    /// `SO_RCVBUF`.
    pub rcvbuf: Bytes,
}

/// Smoothed round-trip times, sampled at the end of each interval. The least of them is what iperf3 calls
/// `min_rtt`; the kernel's own minimum may be lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RttRange {
    /// The least sample.
    pub min: Duration,
    /// The mean.
    pub mean: Duration,
    /// The largest.
    pub max: Duration,
}

/// Datagrams of a UDP test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Datagrams {
    /// Datagrams sent.
    pub total: u64,
    /// Those that did not arrive; `None` where only the sender spoke.
    pub lost: Option<u64>,
    /// Variation of the spacing on arrival (RFC 1889), smoothed; `None` where only the sender spoke.
    pub jitter: Option<Duration>,
    /// Datagrams that arrived after a later one; `None` where only the sender spoke. Text logs name them only
    /// if there are any.
    pub out_of_order: Option<u64>,
}

/// One report of iperf3, usually over a second, all streams added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Where it begins, counted from the start of the test.
    pub start: Instant,
    /// Where it ends, after `start`.
    pub end: Instant,
    /// Payload written (sender) or read (receiver).
    pub bytes: Bytes,
    /// The rate as printed.
    pub rate: Rate,
    /// Segments sent again; `None` in a receiver's log.
    pub retransmits: Option<u64>,
    /// Streams that sent something again; one stream counts once.
    pub lossy_streams: u64,
    /// Congestion window at the end of the interval; `None` in a receiver's log.
    pub cwnd: Option<Bytes>,
    /// The receiver's window as the sender knows it at the end of the interval: JSON of iperf3 3.11 and
    /// newer, on kernel 5.4 and newer.
    pub snd_wnd: Option<Bytes>,
    /// Smoothed RTT at the end of the interval: JSON only. Of several streams the mean weighted by their
    /// rates, so that rate x RTT is what all of them have in flight.
    pub rtt: Option<Duration>,
    /// Datagrams; `None` over TCP.
    pub datagrams: Option<Datagrams>,
}

impl Interval {
    /// Its length, above zero.
    pub fn length(&self) -> Duration {
        self.end.saturating_since(self.start)
    }

    /// The reports of two streams as one.
    pub(super) fn added(self, other: Self) -> Self {
        let (a, b) = (self, other);
        let windows = |x: Option<Bytes>, y: Option<Bytes>| x.zip(y).map(|(x, y)| x + y);
        Self {
            start: a.start.min(b.start),
            end: a.end.max(b.end),
            bytes: a.bytes + b.bytes,
            rate: Rate::from_bps(a.rate.as_bps().saturating_add(b.rate.as_bps())),
            retransmits: a.retransmits.zip(b.retransmits).map(|(x, y)| x.saturating_add(y)),
            lossy_streams: a.lossy_streams + b.lossy_streams,
            cwnd: windows(a.cwnd, b.cwnd),
            snd_wnd: windows(a.snd_wnd, b.snd_wnd),
            rtt: a.rtt.zip(b.rtt).map(|(x, y)| weighted((a.rate, x), (b.rate, y))),
            datagrams: a.datagrams.zip(b.datagrams).map(|(x, y)| x.added(y)),
        }
    }
}

fn weighted(a: (Rate, Duration), b: (Rate, Duration)) -> Duration {
    let (x, y) = (a.0.as_bps() as f64, b.0.as_bps() as f64);
    if x + y <= 0.0 {
        return a.1.max(b.1);
    }
    Duration::from_secs_f64((x * a.1.as_secs_f64() + y * b.1.as_secs_f64()) / (x + y))
}

impl Datagrams {
    /// Lost over sent.
    pub fn lost_share(&self) -> Option<f64> {
        let total = self.total.max(1) as f64;
        self.lost.map(|lost| (lost as f64 / total).min(1.0))
    }

    /// What the sender alone can say.
    pub(super) const fn unheard(self) -> Self {
        Self { total: self.total, lost: None, jitter: None, out_of_order: None }
    }

    /// Two streams as one: jitter is of the worse.
    pub(super) fn added(self, other: Self) -> Self {
        Self {
            total: self.total.saturating_add(other.total),
            lost: self.lost.zip(other.lost).map(|(x, y)| x.saturating_add(y)),
            jitter: self.jitter.max(other.jitter),
            out_of_order: match (self.out_of_order, other.out_of_order) {
                (Some(x), Some(y)) => Some(x.saturating_add(y)),
                (one, other) => one.or(other),
            },
        }
    }
}

/// One side's summary of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Length of the test.
    pub length: Duration,
    /// Payload in total.
    pub bytes: Bytes,
    /// The mean rate as printed.
    pub rate: Rate,
    /// Segments sent again; `None` on the receiver's side.
    pub retransmits: Option<u64>,
}

impl Summary {
    /// `None` for nothing: older servers print a sender's summary of zero, for they do not know it.
    pub(super) fn of(total: &Interval) -> Option<Self> {
        let Interval { bytes, rate, retransmits, .. } = *total;
        (!bytes.is_zero()).then(|| Self { length: total.length(), bytes, rate, retransmits })
    }
}

impl Iperf3Log {
    /// Reads a log of any format, told apart by its content.
    ///
    /// # Errors
    /// Whatever is no log of one run, with a hint: nothing at all, several runs, a failed run, a log of fewer
    /// than [`FEWEST_INTERVALS`] intervals without summary, another tool's output.
    pub fn parse(text: &str) -> Result<Self, InputError> {
        let text = &*clean(text);
        let (message, hint) = match Kind::of(text) {
            Kind::Iperf3Text => return iperf3_text::parse(text),
            Kind::Iperf3Json => return iperf3_json::parse(text),
            Kind::Iperf3JsonStream => return iperf3_json::parse_stream(text),
            Kind::Empty => ("the input is empty", "give what iperf3 -c HOST -t 30 (or with -J) printed"),
            Kind::Json => {
                ("this is JSON, but not of iperf3", "give what iperf3 -c HOST -t 30 -J printed, unedited")
            }
            Kind::Iperf2Text => (
                "this is a log of iperf 2, which shows no congestion window",
                "repeat the measurement with iperf3",
            ),
            Kind::Trace => ("this is a trace, not a log", "read it with Trace::parse"),
            Kind::Ss => ("this is the output of ss, not a log", "read it with input::ss::parse"),
            Kind::Sysctl => {
                ("this is a sysctl dump, not a log", "give it with --sysctl FILE beside an iperf3 log")
            }
            Kind::Unknown if text.contains('\0') => {
                ("this is not text", "give what iperf3 -c HOST -t 30 (or with -J) printed, not a capture")
            }
            Kind::Unknown => (
                "this is not an iperf3 log",
                "give what iperf3 -c HOST -t 30 (or with -J) printed on the sending host",
            ),
        };
        Err(InputError::new(message, hint))
    }

    /// Length of the test: the summary's, or what the intervals cover.
    pub fn length(&self) -> Duration {
        let summary = self.received.or(self.sent).map(|s| s.length).filter(|length| !length.is_zero());
        summary.unwrap_or_else(|| self.intervals.iter().fold(Duration::ZERO, |sum, i| sum + i.length()))
    }

    /// The mean goodput: what the receiver counted if the log says so, for the sender's figure includes
    /// what never left its socket buffer.
    pub fn mean_rate(&self) -> Rate {
        match self.received.or(self.sent) {
            Some(summary) => summary.rate,
            None => Rate::of(self.bytes(), self.length()),
        }
    }

    /// Payload in total.
    pub fn bytes(&self) -> Bytes {
        match self.received.or(self.sent) {
            Some(summary) => summary.bytes,
            None => self.intervals.iter().fold(Bytes::ZERO, |sum, i| sum + i.bytes),
        }
    }

    /// The highest rate that surely passed the path: of TCP the best interval; of UDP the mean of what
    /// arrived, for what a UDP sender writes proves nothing.
    pub fn proven_rate(&self) -> Rate {
        let best = self.intervals.iter().map(|interval| interval.rate).max();
        match self.protocol {
            Protocol::Tcp => best.unwrap_or_else(|| self.mean_rate()),
            Protocol::Udp => self.mean_rate(),
        }
    }

    /// The last step of every reader: derives what the reports imply, and refuses what is too little.
    pub(super) fn finished(mut self) -> Result<Self, InputError> {
        self.truncated = self.sent.is_none() && self.received.is_none();
        if self.rtt.is_none() {
            self.rtt = self.sampled_rtt();
        }
        let usable =
            self.intervals.len() >= FEWEST_INTERVALS || (!self.truncated && !self.intervals.is_empty());
        match (&self.error, usable) {
            (Some(message), false) => Err(InputError::new(
                format!("the iperf3 run failed: {message}"),
                "repeat the measurement; nothing was transferred in this one",
            )),
            (None, false) => Err(InputError::new(
                match self.intervals.len() {
                    0 if self.omitted > 0 => "the iperf3 log holds warm-up intervals (-O) only".into(),
                    0 => "the iperf3 log holds no interval".into(),
                    1 => "the iperf3 log breaks off after 1 interval".into(),
                    n => format!("the iperf3 log breaks off after {n} intervals"),
                },
                "give a complete log of iperf3 -c HOST -t 30 with reports every second",
            )),
            (_, true) => Ok(self),
        }
    }

    fn sampled_rtt(&self) -> Option<RttRange> {
        let samples: Vec<Duration> =
            self.intervals.iter().filter_map(|i| i.rtt).filter(|rtt| !rtt.is_zero()).collect();
        let sum = samples.iter().fold(Duration::ZERO, |sum, rtt| sum + *rtt);
        Some(RttRange {
            min: *samples.iter().min()?,
            mean: sum / samples.len() as u64,
            max: *samples.iter().max()?,
        })
    }
}

/// Both directions of a test as one log: the one that this end sent, the other attached.
pub(super) fn joined(sending: Option<Iperf3Log>, receiving: Option<Iperf3Log>) -> Option<Iperf3Log> {
    match (sending, receiving) {
        (Some(mut sending), Some(mut receiving)) => {
            (sending.role, receiving.role) = (Role::Both, Role::Both);
            receiving.reverse = !sending.reverse;
            sending.opposite = Some(Box::new(receiving));
            Some(sending)
        }
        (one, other) => one.or(other),
    }
}

pub(super) fn several_runs(message: &str) -> InputError {
    InputError::new(message, "give one run alone, from its first line to its last")
}

/// Refuses reports that step back in time, which is where another run begins.
pub(super) fn check_order(intervals: &[Interval]) -> Result<(), InputError> {
    if intervals.is_sorted_by(|a, b| a.start < b.start) {
        Ok(())
    } else {
        Err(several_runs("the intervals of the log do not follow each other"))
    }
}

/// The longest test that iperf3 can be asked for is a day; ten years leaves room.
const LONGEST_SECONDS: f64 = 3.2e8;

/// A point in time within a test; `None` for what cannot be.
pub(super) fn instant(seconds: f64) -> Option<Instant> {
    let plausible = seconds.is_finite() && (0.0..=LONGEST_SECONDS).contains(&seconds);
    plausible.then(|| Instant::from_nanos((seconds * 1e9).round() as u64))
}

/// A segment size; `None` for what cannot be.
pub(super) fn plausible_mss(mss: u64) -> Option<Bytes> {
    (64..=65_535).contains(&mss).then_some(Bytes::new(mss))
}
