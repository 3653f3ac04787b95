//! Findings: a limit with the evidence of all of its time, what could not be told, and why.

use fullpipe_lab::trace::{BbrInfo, Row};
use fullpipe_units::{Bytes, Duration, Instant, Rate};

use super::Judged;
use super::buffers::BufferState;
use super::rules::congestion_window_is_full;
use super::window::{Flow, Window, bps, median, over, stretch};
use crate::explain::{Confidence, Finding, Limit};

/// Rows further apart than this miss what happens between them.
const COARSE: Duration = Duration::from_millis(150);

/// One finding a limit, the longest first, from the time since `from`; each is made when it is asked for.
pub(super) fn findings(flow: &Flow<'_>, judged: &Judged<'_>, from: Instant) -> impl Iterator<Item = Finding> {
    let mut times: Vec<Time<'_>> = Vec::new();
    let judged = judged.rows.windows(2).zip(&judged.verdicts);
    for (pair, verdict) in judged.filter(|(pair, _)| pair[1].at > from) {
        let known = times.iter().position(|time| time.limit == verdict.limit);
        let index = known.unwrap_or_else(|| {
            times.push(Time::of(verdict.limit));
            times.len() - 1
        });
        times[index].add(&pair[0], &pair[1], verdict.confidence);
    }
    times.sort_by_key(|time| std::cmp::Reverse(time.length));
    let all: f64 = times.iter().map(|time| time.length.as_secs_f64()).sum();
    times.into_iter().map(move |time| time.finding(flow, all))
}

/// What the reader should know about the rows.
pub(super) fn notes(flow: &Flow<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    if flow.rows.len() < 2 {
        notes.push("nothing was sent in these rows".into());
    } else if let Some(apart) = coarse(flow) {
        notes.push(format!(
            "the rows are {apart} apart; ten a second and more tell what happens within a few round trips"
        ));
    }
    if flow.by_rate && flow.host.cc.is_none() && flow.rows.iter().all(|row| row.sender.cc.is_none()) {
        notes.push("the sender paces at a rate that it measures, as BBR does: its pacing tells".into());
    }
    notes
}

/// The usual distance of the rows, if it is too long.
fn coarse(flow: &Flow<'_>) -> Option<Duration> {
    let apart = flow.rows.windows(2).map(|pair| pair[1].at.saturating_since(pair[0].at).as_secs_f64());
    let usual = Duration::from_secs_f64(median(apart.collect()));
    (usual > COARSE).then_some(usual)
}

/// The time of one limit.
struct Time<'a> {
    limit: Limit,
    length: Duration,
    delivered: f64,
    rows: Vec<&'a Row>,
    /// Time by confidence, the least sure first.
    confidence: [Duration; 3],
}

impl<'a> Time<'a> {
    fn of(limit: Limit) -> Self {
        Self {
            limit,
            length: Duration::ZERO,
            delivered: 0.0,
            rows: Vec::new(),
            confidence: Default::default(),
        }
    }

    fn add(&mut self, before: &Row, row: &'a Row, confidence: Confidence) {
        let span = row.at.saturating_since(before.at);
        self.length += span;
        self.confidence[confidence as usize] += span;
        self.delivered += row.sender.delivered.saturating_sub(before.sender.delivered).get() as f64;
        self.rows.push(row);
    }

    fn finding(&self, flow: &Flow<'_>, all: f64) -> Finding {
        let (evidence, could_not_tell) = self.evidence(flow);
        Finding {
            limit: self.limit,
            what: self.what(flow).into(),
            share: if all > 0.0 { self.length.as_secs_f64() / all } else { 0.0 },
            confidence: self.confidence(flow),
            ceiling: self.ceiling(),
            evidence,
            could_not_tell,
            next_test: self.next_test(flow).map(Into::into),
        }
    }

    /// That of the most time.
    fn confidence(&self, flow: &Flow<'_>) -> Confidence {
        let [low, high, certain] = self.confidence;
        let usual = if certain >= low.max(high) {
            Confidence::Certain
        } else if high >= low {
            Confidence::High
        } else {
            Confidence::Low
        };
        if coarse(flow).is_some() { usual.min(Confidence::High) } else { usual }
    }

    fn what(&self, flow: &Flow<'_>) -> &'static str {
        match self.limit {
            Limit::App => "the sending application offers no more",
            Limit::ReceiverApp => "the receiving application reads no faster",
            Limit::Rwnd => "the receiver's window is full",
            Limit::Sndbuf => "the send buffer is full of data in flight",
            Limit::Cwnd if flow.by_rate => "the congestion control sends less than the path lets pass",
            Limit::Cwnd if flow.losses().episodes > 0 => "loss holds cwnd down",
            Limit::Cwnd => "the congestion window grows too slowly",
            Limit::SlowStart => "the start: the window still doubles",
            Limit::Pacing => "the socket may send no faster (SO_MAX_PACING_RATE)",
            Limit::Policer if self.queued() => "something delays this flow at a rate below the line's",
            Limit::Policer => "something lets this flow pass no faster, below the line's rate",
            Limit::Link => "the line is full",
        }
    }

    fn rate(&self) -> Rate {
        let seconds = self.length.as_secs_f64();
        Rate::from_bps(if seconds > 0.0 { (8.0 * self.delivered / seconds) as u64 } else { 0 })
    }

    /// What was delivered at a limit is what it allows; a window in growth allows nothing in particular.
    fn ceiling(&self) -> Option<Rate> {
        (!matches!(self.limit, Limit::Cwnd | Limit::SlowStart)).then(|| self.rate())
    }

    fn median(&self, value: impl Fn(&Row) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self.rows.iter().filter_map(|row| value(row)).collect();
        (!values.is_empty()).then(|| median(values))
    }

    fn bytes(&self, value: impl Fn(&Row) -> Bytes) -> Bytes {
        Bytes::new(self.median(|row| Some(value(row).get() as f64)).unwrap_or(0.0) as u64)
    }

    fn queued(&self) -> bool {
        self.median(stretch).is_some_and(|stretch| stretch >= super::rules::QUEUE)
    }

    /// What speaks for it, and what is left open.
    fn evidence(&self, flow: &Flow<'_>) -> (Vec<String>, Vec<String>) {
        let (mut evidence, mut open) = (Vec::new(), Vec::new());
        match self.limit {
            Limit::App => evidence.push(self.starved()),
            Limit::Sndbuf => self.sndbuf(flow, &mut evidence, &mut open),
            Limit::Rwnd | Limit::ReceiverApp => self.window(flow, &mut evidence, &mut open),
            Limit::Pacing => evidence.push(format!(
                "paced at {}, the most that the socket may; {} are delivered",
                rate(self.median(|row| bps(row.sender.pacing_rate))),
                self.rate()
            )),
            Limit::SlowStart => evidence.push(if flow.by_rate {
                "the sender paces at more than twice what is delivered, as BBR does in Startup".into()
            } else {
                "Cwnd is full and below the slow-start threshold".into()
            }),
            Limit::Link | Limit::Policer => self.path(flow, &mut evidence, &mut open),
            Limit::Cwnd => self.cwnd(flow, &mut evidence, &mut open),
        }
        if !matches!(self.limit, Limit::App | Limit::ReceiverApp) {
            evidence.extend(self.model());
        }
        (evidence, open)
    }

    /// What BBR believes of the path, where it says so: the rate that it paces at follows from that.
    fn model(&self) -> Option<String> {
        let median = |of: fn(&BbrInfo) -> Option<f64>| self.median(|row| of(&row.sender.bbr?));
        let bandwidth = rate(Some(median(|bbr| bps(Some(bbr.bw)))?));
        let min_rtt = median(|bbr| Some(bbr.min_rtt?.as_secs_f64()))?;
        let min_rtt = Duration::from_secs_f64((min_rtt * 1e4).round() / 1e4);
        let gain = median(|bbr| Some(f64::from(bbr.pacing_gain_percent) / 100.0))?;
        Some(format!(
            "BBR has measured {bandwidth} and {min_rtt} at least, and paces at {gain:.2} times that rate (medians)"
        ))
    }

    fn starved(&self) -> String {
        format!(
            "nothing waits to be sent, and in flight are {} of a Cwnd of {}",
            self.bytes(|row| row.sender.flight_size),
            self.bytes(|row| row.sender.cwnd)
        )
    }

    fn sndbuf(&self, flow: &Flow<'_>, evidence: &mut Vec<String>, open: &mut Vec<String>) {
        let size = self.bytes(|row| row.sender.sndbuf);
        evidence.push(format!(
            "the send buffer holds {} of {size}, all of it in flight, and its writer waits until a third is free",
            self.bytes(|row| row.sender.sndbuf_used)
        ));
        evidence.push(format!(
            "Cwnd {} and the receiver's window {} have room",
            self.bytes(|row| row.sender.cwnd),
            self.bytes(|row| row.sender.rwnd)
        ));
        let sizes = flow.rows.iter().map(|row| row.sender.sndbuf);
        let state = BufferState::of(sizes, flow.host.wmem);
        say(state.map(|state| state.words("send buffer", size, "tcp_wmem[2]", "SO_SNDBUF")), evidence, open);
    }

    fn window(&self, flow: &Flow<'_>, evidence: &mut Vec<String>, open: &mut Vec<String>) {
        evidence.push(format!(
            "in flight are {} of the receiver's window of {}, and {} wait to be sent",
            self.bytes(|row| row.sender.flight_size),
            self.bytes(|row| row.sender.rwnd),
            self.bytes(|row| row.sender.notsent)
        ));
        let Some(unread) = self.median(|row| row.receiver.map(|receiver| receiver.unread.get() as f64))
        else {
            let pattern = if self.limit == Limit::ReceiverApp {
                "it shrank, as a slow reader's does"
            } else {
                "it never shrank, as a buffer's does not"
            };
            open.push(format!(
                "whether the receiver's buffer is small or its application slow: its Recv-Q is not known; its \
                 window alone says that {pattern}"
            ));
            return;
        };
        let unread = Bytes::new(unread as u64);
        if self.limit == Limit::ReceiverApp {
            evidence.push(format!("at the receiver {unread} wait to be read (Recv-Q)"));
            return;
        }
        evidence.push(format!("the receiver's application keeps up: {unread} wait to be read (Recv-Q)"));
        let sizes = flow.rows.iter().filter_map(|row| row.receiver.map(|receiver| receiver.rcvbuf));
        let size = sizes.clone().next_back().unwrap_or_default();
        let state = BufferState::of(sizes, flow.host.rmem);
        say(
            state.map(|state| state.words("receive buffer", size, "tcp_rmem[2]", "SO_RCVBUF")),
            evidence,
            open,
        );
    }

    fn path(&self, flow: &Flow<'_>, evidence: &mut Vec<String>, open: &mut Vec<String>) {
        let mss = self.bytes(|row| row.sender.mss);
        let rate = self.rate();
        match flow.line_payload(mss) {
            Some(line) => evidence.push(format!(
                "{rate} are delivered, {:.0} % of what the line carries as payload",
                100.0 * rate.as_bps() as f64 / line.max(1.0)
            )),
            None => evidence.push(format!("{rate} are delivered, steadily")),
        }
        evidence.push(self.round_trip());
        if self.limit == Limit::Policer && flow.losses().at_fixed_rate() {
            evidence.push(self.ranks(flow));
        }
        if flow.host.line.is_none() {
            open.push(
                "whether it is the line itself or something that limits this flow alone: the line's rate is not \
                 known"
                    .into(),
            );
        }
    }

    fn round_trip(&self) -> String {
        let millis = |of: fn(&Row) -> Option<Duration>| {
            let median = self.median(|row| of(row).map(Duration::as_secs_f64));
            Duration::from_secs_f64((median.unwrap_or(0.0) * 1e4).round() / 1e4)
        };
        let (srtt, least) = (millis(|row| row.sender.srtt), millis(|row| row.sender.min_rtt));
        let queue = if self.queued() { "a queue stands" } else { "no queue stands" };
        format!("the round trip takes {srtt} against {least} at least: {queue}")
    }

    fn ranks(&self, flow: &Flow<'_>) -> String {
        format!(
            "{} losses came at windows that outrank {:.0} % of the data (by chance 50 %)",
            flow.losses().episodes,
            100.0 * flow.losses().rank
        )
    }

    fn cwnd(&self, flow: &Flow<'_>, evidence: &mut Vec<String>, open: &mut Vec<String>) {
        let full = Window { rows: flow.rows }.share(congestion_window_is_full);
        let ratio = self.median(|row| over(row.sender.inflight, row.sender.cwnd)).unwrap_or(0.0);
        let cwnd = self.bytes(|row| row.sender.cwnd);
        evidence.push(format!("in flight is {ratio:.2} of a Cwnd of {cwnd}, and more waits to be sent"));
        if flow.by_rate {
            let repeated = Window { rows: flow.rows }.repeated();
            evidence.push(format!("{:.1} % of the segments were sent again", 100.0 * repeated));
            if full < 0.5 && self.model().is_none() {
                open.push("what BBR measures: its own estimates are not in the rows".into());
            }
            return;
        }
        evidence.push(self.round_trip());
        if flow.losses().episodes > 3 {
            evidence.push(self.ranks(flow));
        } else if flow.losses().episodes > 0 {
            open.push(format!(
                "what causes the losses: {} tell nothing of whether they come at random",
                flow.losses().episodes
            ));
        }
    }

    fn next_test(&self, flow: &Flow<'_>) -> Option<&'static str> {
        match self.limit {
            Limit::Rwnd | Limit::ReceiverApp if self.rows.iter().all(|row| row.receiver.is_none()) => {
                Some("look at Recv-Q on the receiving host: ss -tn")
            }
            Limit::Policer | Limit::Link if flow.host.line.is_none() => Some(
                "give the line's rate with --link, or send a second flow beside: what limits each alone adds up",
            ),
            Limit::Policer => Some("send a second flow beside: what limits each alone adds up"),
            Limit::Cwnd if !flow.by_rate => {
                Some("repeat with BBR on the sender: a higher rate shows that loss held cwnd down")
            }
            _ => None,
        }
    }
}

fn say(told: Option<Result<String, String>>, evidence: &mut Vec<String>, open: &mut Vec<String>) {
    match told {
        Some(Ok(sentence)) => evidence.push(sentence),
        Some(Err(question)) => open.push(question),
        None => {}
    }
}

fn rate(bps: Option<f64>) -> Rate {
    Rate::from_bps(bps.unwrap_or(0.0) as u64)
}
