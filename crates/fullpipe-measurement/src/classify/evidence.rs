//! Findings: each limit with its evidence and its open questions. The evidence comes from the time during
//! which the limit applied.

use fullpipe_lab::stats::upper_median;
use fullpipe_lab::trace::{BbrInfo, Row};
use fullpipe_units::{Bytes, Duration, Instant, Rate};

use super::buffers::BufferState;
use super::rules::{congestion_window_is_full, full_of_holes};
use super::tally::{self, Tally};
use super::window::{Flow, Window, bps, over, stretch};
use super::{Confidence, Finding, JudgedRows, Limit};
use crate::thresholds::time;

/// Row spacing above which an event between two rows may go unnoticed.
const COARSE: Duration = Duration::from_millis(150);
/// BBR's rate estimate, not its window, limits the flow if Cwnd is full in less than this share of
/// the rows.
const RARELY_FULL: f64 = 0.5;

/// Returns one finding per limit in the time since `from`, longest first. Each finding is built when the
/// iterator reaches it.
pub(super) fn findings(
    flow: &Flow<'_>,
    judged: &JudgedRows<'_>,
    from: Instant,
) -> impl Iterator<Item = Finding> {
    let mut tallies = tallies(judged, from);
    let all = Tally::longest_first(&mut tallies);
    tallies.into_iter().map(move |tally| Time { tally }.finding(flow, all))
}

/// Returns the limit and the confidence of the first finding.
pub(super) fn longest(
    flow: &Flow<'_>,
    judged: &JudgedRows<'_>,
    from: Instant,
) -> Option<(Limit, Confidence)> {
    let mut tallies = tallies(judged, from);
    Tally::longest_first(&mut tallies);
    tallies.first().map(|tally| (tally.limit, sure(flow, tally)))
}

fn tallies<'a>(judged: &JudgedRows<'a>, from: Instant) -> Vec<Tally<'a, Row>> {
    let mut tallies: Vec<Tally<'_, Row>> = Vec::new();
    let judged = judged.rows.windows(2).zip(&judged.verdicts);
    for (pair, verdict) in judged.filter(|(pair, _)| pair[1].at > from) {
        let (before, row) = (&pair[0], &pair[1]);
        let delivered = row.sender.delivered.saturating_sub(before.sender.delivered).get() as f64;
        let tally = Tally::among(&mut tallies, verdict.limit);
        tally.add(row.at.saturating_since(before.at), verdict.confidence, delivered);
        tally.rows.push(row);
    }
    tallies
}

/// Returns the confidence in a limit. If the rows are too far apart, no limit is certain.
fn sure(flow: &Flow<'_>, tally: &Tally<'_, Row>) -> Confidence {
    match tally.confidence() {
        Confidence::Certain if coarse(flow).is_some() => Confidence::High,
        confidence => confidence,
    }
}

/// Returns notes about the rows for the report.
pub(super) fn notes(flow: &Flow<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    if flow.rows.len() < 2 {
        notes.push("the sender sent nothing in these rows".into());
    } else if let Some(apart) = coarse(flow) {
        notes.push(format!(
            "the rows are {apart} apart, which is too far to show what happens within a few round trips; \
             sample at least ten times per second"
        ));
    }
    if flow.by_rate && flow.host.cc.is_none() && flow.rows.iter().all(|row| row.sender.cc.is_none()) {
        notes.push("the sender paces at a rate that it has measured, as BBR does".into());
    }
    notes
}

/// Returns the median row spacing if it exceeds [`COARSE`].
fn coarse(flow: &Flow<'_>) -> Option<Duration> {
    let apart = flow.rows.windows(2).map(|pair| pair[1].at.saturating_since(pair[0].at));
    let usual = upper_median(apart.collect::<Vec<Duration>>(), Ord::cmp)?;
    (usual > COARSE).then_some(usual)
}

/// Time during which one limit applied.
struct Time<'a> {
    tally: Tally<'a, Row>,
}

impl Time<'_> {
    fn finding(&self, flow: &Flow<'_>, all: f64) -> Finding {
        let (evidence, could_not_tell) = self.evidence(flow);
        Finding {
            limit: self.tally.limit,
            what: self.what(flow).into(),
            share: self.tally.share(all),
            confidence: sure(flow, &self.tally),
            ceiling: self.tally.ceiling(),
            evidence,
            could_not_tell,
            next_test: self.next_test(flow).map(Into::into),
        }
    }

    fn what(&self, flow: &Flow<'_>) -> &'static str {
        match self.tally.limit {
            Limit::Cwnd if flow.by_rate => {
                "the congestion control sends at a lower rate than the path can carry"
            }
            Limit::Rwnd if self.holes() > 0.0 => "data behind lost segments fills the receive window",
            _ => self.tally.what(|| flow.losses().episodes > 0, || self.queued()),
        }
    }

    fn median(&self, value: impl Fn(&Row) -> Option<f64>) -> Option<f64> {
        self.tally.median(value)
    }

    fn bytes(&self, value: impl Fn(&Row) -> Bytes) -> Bytes {
        Bytes::new(self.median(|row| Some(value(row).get() as f64)).unwrap_or(0.0) as u64)
    }

    /// Returns the share of the rows in which data behind lost segments fills the receive window, or zero if
    /// the share is too small to matter.
    fn holes(&self) -> f64 {
        let holes = self.tally.rows.iter().filter(|row| full_of_holes(row)).count();
        let share = holes as f64 / self.tally.rows.len().max(1) as f64;
        if share >= time::FOLLOWED { share } else { 0.0 }
    }

    fn queued(&self) -> bool {
        self.median(stretch).is_some_and(|stretch| stretch >= crate::thresholds::queue::STANDS)
    }

    /// Returns the evidence and the open questions.
    fn evidence(&self, flow: &Flow<'_>) -> (Vec<String>, Vec<String>) {
        let (mut evidence, mut open) = (Vec::new(), Vec::new());
        match self.tally.limit {
            Limit::App => evidence.push(self.starved()),
            Limit::Sndbuf => self.sndbuf(flow, &mut evidence, &mut open),
            Limit::Rwnd | Limit::ReceiverApp => self.window(flow, &mut evidence, &mut open),
            Limit::Pacing => evidence.push(format!(
                "the socket paces at its maximum rate of {}, and the receiver gets {}",
                rate(self.median(|row| bps(row.sender.pacing_rate))),
                self.tally.rate()
            )),
            Limit::SlowStart => evidence.push(if flow.by_rate {
                "the sender paces at more than twice the delivered rate, as BBR does in Startup".into()
            } else {
                "Cwnd is full and below the slow-start threshold".into()
            }),
            Limit::Link | Limit::Cap | Limit::Policer => self.path(flow, &mut evidence, &mut open),
            // Rows contain no data about the processor.
            Limit::Cpu | Limit::Unknown => {}
            Limit::Cwnd => self.cwnd(flow, &mut evidence, &mut open),
        }
        if !matches!(self.tally.limit, Limit::App | Limit::ReceiverApp) {
            evidence.extend(self.model());
        }
        (evidence, open)
    }

    /// Describes BBR's path estimates, which determine its pacing rate; `None` if the kernel does not report
    /// them.
    fn model(&self) -> Option<String> {
        let median = |of: fn(&BbrInfo) -> Option<f64>| self.median(|row| of(&row.sender.bbr?));
        let bandwidth = rate(Some(median(|bbr| bps(Some(bbr.bw)))?));
        let min_rtt = median(|bbr| Some(bbr.min_rtt?.as_secs_f64()))?;
        let min_rtt = tally::rounded(min_rtt);
        let gain = median(|bbr| Some(f64::from(bbr.pacing_gain_percent) / 100.0))?;
        Some(format!(
            "BBR has measured a bandwidth of {bandwidth} and a minimum RTT of {min_rtt}, and paces at {gain:.2} times the bandwidth (medians)"
        ))
    }

    fn starved(&self) -> String {
        format!(
            "the send queue is empty, and {} of a Cwnd of {} is in flight",
            self.bytes(|row| row.sender.flight_size),
            self.bytes(|row| row.sender.cwnd)
        )
    }

    fn sndbuf(&self, flow: &Flow<'_>, evidence: &mut Vec<String>, open: &mut Vec<String>) {
        let size = self.bytes(|row| row.sender.sndbuf);
        evidence.push(format!(
            "the send buffer of {size} contains {}, all of it in flight, and the application cannot write \
             until a third of the buffer is free",
            self.bytes(|row| row.sender.sndbuf_used)
        ));
        evidence.push(format!(
            "Cwnd ({}) and the receiver's window ({}) have room",
            self.bytes(|row| row.sender.cwnd),
            self.bytes(|row| row.sender.rwnd)
        ));
        let sizes = flow.rows.iter().map(|row| row.sender.sndbuf);
        let state = BufferState::of(sizes, flow.host.wmem);
        say(state.map(|state| state.words("send buffer", size, "tcp_wmem[2]", "SO_SNDBUF")), evidence, open);
    }

    fn window(&self, flow: &Flow<'_>, evidence: &mut Vec<String>, open: &mut Vec<String>) {
        if self.tally.limit == Limit::Rwnd && self.holes() > 0.0 {
            evidence.push(format!(
                "in {:.0} % of the rows, the window of {} is full although only {} is in flight (medians), \
                 because the rest waits at the receiver for lost segments",
                100.0 * self.holes(),
                self.bytes(|row| row.sender.rwnd),
                self.bytes(|row| row.sender.inflight)
            ));
            evidence.push(format!(
                "{:.1} % of the segments were retransmitted",
                100.0 * Window { rows: flow.rows }.repeated()
            ));
            return;
        }
        evidence.push(format!(
            "{} of the receiver's window of {} is in flight, and {} waits in the send queue",
            self.bytes(|row| row.sender.flight_size),
            self.bytes(|row| row.sender.rwnd),
            self.bytes(|row| row.sender.notsent)
        ));
        let Some(unread) = self.median(|row| row.receiver.map(|receiver| receiver.unread.get() as f64))
        else {
            evidence.extend(self.window_a_round_trip(flow));
            open.push(tally::whose_window(self.tally.limit, "not known"));
            return;
        };
        let unread = Bytes::new(unread as u64);
        if self.tally.limit == Limit::ReceiverApp {
            evidence.push(format!("{unread} of unread data waits at the receiver (Recv-Q)"));
            return;
        }
        evidence
            .push(format!("the receiving application keeps up: only {unread} of data is unread (Recv-Q)"));
        let sizes = flow.rows.iter().filter_map(|row| row.receiver.map(|receiver| receiver.rcvbuf));
        let size = sizes.clone().next_back().unwrap_or_default();
        let state = BufferState::of(sizes, flow.host.rmem);
        say(
            state.map(|state| state.words("receive buffer", size, "tcp_rmem[2]", "SO_RCVBUF")),
            evidence,
            open,
        );
    }

    /// Compares the delivered rate with one full receive window per round trip. The two are similar if the
    /// buffer is small; the delivered rate is far lower if the reader is slow.
    fn window_a_round_trip(&self, flow: &Flow<'_>) -> Option<String> {
        let most = Bytes::new(flow.largest_window(flow.rows.len().checked_sub(1)?) as u64);
        let least = self.tally.rows.iter().map(|row| row.sender.rwnd).min()?;
        let min_rtt = self.tally.rows.last()?.sender.min_rtt.filter(|rtt| !rtt.is_zero())?;
        let fell =
            if self.tally.limit == Limit::ReceiverApp { format!(" and fell to {least}") } else { "".into() };
        Some(format!(
            "the receive window was at most {most}{fell}; if the application read all data at once, a \
             window of this size would allow {} at the minimum RTT of {}, but the measured rate is {}",
            Rate::of(most, min_rtt),
            tally::rounded(min_rtt.as_secs_f64()),
            self.tally.rate()
        ))
    }

    fn path(&self, flow: &Flow<'_>, evidence: &mut Vec<String>, open: &mut Vec<String>) {
        let mss = self.bytes(|row| row.sender.mss);
        let rate = self.tally.rate();
        match flow.line_payload(mss) {
            Some(line) => evidence.push(format!(
                "the delivered rate of {rate} is {:.0} % of the link's payload rate",
                100.0 * rate.as_bps() as f64 / line.max(1.0)
            )),
            None => evidence.push(format!("the delivered rate is steady at {rate}")),
        }
        evidence.push(self.round_trip());
        match self.tally.limit {
            Limit::Policer => {
                if flow.losses().at_fixed_rate() {
                    evidence.push(self.ranks(flow));
                }
                evidence.extend(self.policer(flow));
            }
            Limit::Cap => open.push(tally::WHAT_ENFORCES_IT.into()),
            _ => {}
        }
        if flow.host.link.is_none() {
            open.push(tally::WHICH_LINE.into());
        }
    }

    fn round_trip(&self) -> String {
        let median = |of: fn(&Row) -> Option<Duration>| {
            tally::rounded(self.median(|row| of(row).map(Duration::as_secs_f64)).unwrap_or(0.0))
        };
        let (usual, least) = (median(|row| row.sender.srtt), median(|row| row.sender.min_rtt));
        tally::round_trip(usual, least, self.queued())
    }

    /// Describes losses that suggest a policer: they occur at one delivered rate and without a queue.
    fn policer(&self, flow: &Flow<'_>) -> Option<String> {
        let losses = flow.losses();
        losses.at_one_rate().then(|| {
            format!(
                "{} loss episodes occurred at a delivered rate within 5 % of {}, without a standing queue",
                losses.alike,
                rate(losses.rate)
            )
        })
    }

    fn ranks(&self, flow: &Flow<'_>) -> String {
        format!(
            "on average, the window at the {} losses is larger than it was for {:.0} % of the data (expected for \
             random loss: 50 %)",
            flow.losses().episodes,
            100.0 * flow.losses().rank
        )
    }

    fn cwnd(&self, flow: &Flow<'_>, evidence: &mut Vec<String>, open: &mut Vec<String>) {
        let full = Window { rows: flow.rows }.share(congestion_window_is_full);
        let ratio = self.median(|row| over(row.sender.inflight, row.sender.cwnd)).unwrap_or(0.0);
        let cwnd = self.bytes(|row| row.sender.cwnd);
        evidence.push(format!(
            "data in flight is {ratio:.2} times the Cwnd of {cwnd}, and more data waits \
                               in the send queue"
        ));
        if flow.by_rate {
            let repeated = Window { rows: flow.rows }.repeated();
            evidence.push(format!("{:.1} % of the segments were retransmitted", 100.0 * repeated));
            if full < RARELY_FULL && self.model().is_none() {
                open.push(
                    "the bandwidth and the RTT that BBR has estimated, because the rows do not \
                           contain them"
                        .into(),
                );
            }
            return;
        }
        evidence.push(self.round_trip());
        if flow.losses().episodes > 3 {
            evidence.push(self.ranks(flow));
        } else if flow.losses().episodes > 0 {
            open.push(tally::few_losses(flow.losses()));
        }
        if flow.losses().may_come_from_a_rate() {
            open.push(tally::WHICH_RATE.into());
        }
    }

    fn next_test(&self, flow: &Flow<'_>) -> Option<&'static str> {
        match self.tally.limit {
            Limit::Rwnd | Limit::ReceiverApp if self.tally.rows.iter().any(|row| row.receiver.is_some()) => {
                None
            }
            Limit::Cwnd if flow.by_rate => None,
            _ => self.tally.next_test(flow.host.link.is_some()),
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
