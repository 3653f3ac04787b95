//! State of one socket in the live view, computed from the trace rows of its flow. The module `draw` draws
//! this state.

use std::collections::VecDeque;

use fullpipe::Limit;
use fullpipe::lab::trace::Row;
use fullpipe::live::{ConcurrentFlows, CurrentLimit, Live};
use fullpipe::units::{Bytes, Duration, Instant, Rate};

/// Maximum number of rates in the history: one for each column of a wide terminal.
const HISTORY: usize = 240;
/// Minimum averaging time of each rate in the history. With a shorter time, the history would show the bursts
/// within an RTT.
const STEP: Duration = Duration::from_millis(250);

/// A quantity that the live view shows relative to its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gauge {
    /// Data in flight relative to the congestion window.
    Cwnd,
    /// Unacknowledged data relative to the receive window.
    Rwnd,
    /// Memory that the send buffer uses, relative to the memory that it may use.
    Sndbuf,
    /// Pacing rate relative to the maximum pacing rate of the socket.
    Pacing,
    /// Delivery rate relative to the rate of the link, summed over the flows that share it.
    Link,
}

impl Gauge {
    /// Returns the gauge whose bar is full if `limit` is the limit; returns `None` if no gauge shows this
    /// limit.
    fn of(limit: Limit) -> Option<Self> {
        match limit {
            Limit::Cwnd | Limit::SlowStart => Some(Self::Cwnd),
            Limit::Rwnd | Limit::ReceiverApp => Some(Self::Rwnd),
            Limit::Sndbuf => Some(Self::Sndbuf),
            Limit::Pacing => Some(Self::Pacing),
            Limit::Link | Limit::Cap | Limit::Policer => Some(Self::Link),
            Limit::App | Limit::Cpu | Limit::Unknown => None,
        }
    }

    /// Returns the name of the gauge as it is displayed.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Cwnd => "cwnd",
            Self::Rwnd => "rwnd",
            Self::Sndbuf => "send buffer",
            Self::Pacing => "pacing",
            Self::Link => "link",
        }
    }
}

/// A bar of the live view, which shows one amount relative to another.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bar {
    pub(crate) gauge: Gauge,
    /// Ratio of the first amount to the second, from 0 to 1.
    pub(crate) share: f64,
    /// Both amounts of the bar as text.
    pub(crate) amounts: String,
    /// Whether the quantity that the bar shows is the limit of the transfer.
    pub(crate) lit: bool,
}

impl Bar {
    fn of_bytes(gauge: Gauge, part: Bytes, whole: Bytes) -> Option<Self> {
        let share = (!whole.is_zero()).then(|| part.get() as f64 / whole.get() as f64)?;
        Some(Self { gauge, share: share.min(1.0), amounts: format!("{part} of {whole}"), lit: false })
    }

    fn of_rates(gauge: Gauge, part: Rate, whole: Rate) -> Option<Self> {
        let share = (!whole.is_zero()).then(|| part.as_bps() as f64 / whole.as_bps() as f64)?;
        Some(Self { gauge, share: share.min(1.0), amounts: format!("{part} of {whole}"), lit: false })
    }
}

/// A watched socket in the live view.
pub(crate) struct SocketView {
    name: String,
    crosses_link: bool,
    live: Live,
    rates: VecDeque<Rate>,
    /// Time of the last rate in the history, and number of bytes that were delivered by then.
    since: Option<(Instant, Bytes)>,
}

impl SocketView {
    /// Creates the view of a socket; `crosses_link` is false if both ends are on this host.
    pub(crate) fn new(name: String, crosses_link: bool, live: Live) -> Self {
        Self { name, crosses_link, live, rates: VecDeque::new(), since: None }
    }

    /// Returns the flow of the socket if the flow may share a link with other flows.
    pub(crate) fn on_link(&self) -> Option<&Live> {
        self.crosses_link.then_some(&self.live)
    }

    pub(crate) fn push(&mut self, row: &Row) {
        self.live.push(row);
        let now = (row.at, row.sender.delivered);
        let (at, delivered) = *self.since.get_or_insert(now);
        let step = STEP.max(row.sender.srtt.unwrap_or_default());
        let time = row.at.saturating_since(at);
        if time >= step {
            self.rates.push_back(Rate::of(row.sender.delivered.saturating_sub(delivered), time));
            if self.rates.len() > HISTORY {
                self.rates.pop_front();
            }
            self.since = Some(now);
        }
    }

    /// Returns the current picture of the socket, given the flows that share the link; returns `None` before
    /// the first trace row.
    pub(crate) fn picture(&self, flows: &ConcurrentFlows) -> Option<Picture> {
        let row = self.live.last()?;
        let sender = &row.sender;
        let held = match self.on_link() {
            Some(live) => flows.limit_of(live, live.held()),
            None => self.live.held(),
        };
        let rate = self.rates.back().copied();
        let on_link = self.on_link().and_then(|live| flows.sum_with(live)).or(rate);
        let mut bars: Vec<Bar> = [
            Bar::of_bytes(Gauge::Cwnd, sender.inflight, sender.cwnd),
            Bar::of_bytes(Gauge::Rwnd, sender.flight_size, sender.rwnd),
            Bar::of_bytes(Gauge::Sndbuf, sender.sndbuf_used, sender.sndbuf),
            sender
                .pacing_rate
                .zip(sender.max_pacing_rate)
                .and_then(|(rate, most)| Bar::of_rates(Gauge::Pacing, rate, most)),
            on_link
                .zip(self.live.host().link)
                .and_then(|(rate, link)| Bar::of_rates(Gauge::Link, rate, link)),
        ]
        .into_iter()
        .flatten()
        .collect();
        let binding = held.as_ref().and_then(|held| Gauge::of(held.limit));
        bars.iter_mut().for_each(|bar| bar.lit = Some(bar.gauge) == binding);
        Some(Picture {
            name: self.name.clone(),
            at: row.at,
            rate,
            rates: self.rates.iter().copied().collect(),
            bars,
            srtt: sender.srtt,
            min_rtt: sender.min_rtt,
            notsent: sender.notsent,
            retransmits: sender.retransmits,
            held,
        })
    }
}

/// Values of a socket at one time, as the live view displays them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Picture {
    pub(crate) name: String,
    pub(crate) at: Instant,
    pub(crate) rate: Option<Rate>,
    pub(crate) rates: Vec<Rate>,
    pub(crate) bars: Vec<Bar>,
    pub(crate) srtt: Option<Duration>,
    pub(crate) min_rtt: Option<Duration>,
    pub(crate) notsent: Bytes,
    pub(crate) retransmits: u64,
    pub(crate) held: Option<CurrentLimit>,
}

impl Picture {
    /// Describes the current limit of the socket in words.
    pub(crate) fn limit(&self) -> String {
        match &self.held {
            None => "nothing is sent".into(),
            Some(held) => {
                let sure = held.confidence.words();
                format!("{}: {} ({sure})", held.limit, held.what)
            }
        }
    }

    pub(crate) fn round_trip(&self) -> String {
        let tenth = |time: Duration| Duration::from_secs_f64((time.as_secs_f64() * 1e4).round() / 1e4);
        match (self.srtt, self.min_rtt) {
            (Some(srtt), Some(least)) => format!("{} (least {})", tenth(srtt), tenth(least)),
            (Some(srtt), None) => tenth(srtt).to_string(),
            _ => "not known".into(),
        }
    }

    /// Formats the picture as one line, for output that is not a terminal.
    pub(crate) fn line(&self) -> String {
        let rate = self.rate.map_or("-".into(), |rate| rate.to_string());
        let bars: Vec<String> = self
            .bars
            .iter()
            .map(|bar| {
                let mark = if bar.lit { "*" } else { "" };
                format!("{mark}{} {:.0} %", bar.gauge.name(), 100.0 * bar.share)
            })
            .collect();
        format!(
            "{:>7.1} s  {}  {rate}  RTT {}  {}  retransmits {}  {}",
            self.at.as_secs_f64(),
            self.name,
            self.round_trip(),
            bars.join("  "),
            self.retransmits,
            self.limit()
        )
    }
}
