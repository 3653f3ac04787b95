//! Finds the limit of a transfer from an iperf3 log and the RTT.
//!
//! Data in flight is rate x RTT. Its ratio to the congestion window, which a sender's log reports, separates
//! the two main families of limits:
//!
//! ```text
//!   in flight / Cwnd   > 0.8             the congestion window is the limit (loss, or slow growth)
//!                      < 0.7, rate flat  another limit: a window, a buffer, a rate cap, the application
//! ```
//!
//! Data in flight cannot exceed Cwnd, so a ratio above 1 comes from a wrong RTT or from the granularity of
//! iperf3's write blocks. A text log cannot show which of the other limits applies, because it contains
//! neither the receive window nor the send buffer. Candidates are ranked by how well the host settings
//! predict the rate, and each finding lists its open questions. A JSON log has the RTT and the receive window
//! in each report; `json_rules` contains the rules that use them. A UDP log contains no windows; `udp`
//! explains it.

mod assumption;
mod candidates;
mod facts;
mod findings;
mod holes;
mod json_rules;
mod loss;
mod rate_option;
mod received;
mod remarks;
mod series;
mod shared;
mod start;
mod traced;
mod udp;
mod undecided;

use fullpipe_measurement::classify::{Classification, Confidence, Finding, Limit};
use fullpipe_measurement::input::InputError;
use fullpipe_measurement::loss_estimate::LossEstimate;
use fullpipe_measurement::measurement::Protocol;
use fullpipe_measurement::measurement::sharing::fills;
use fullpipe_measurement::segment::{DEFAULT_MSS, HEADERS};
use fullpipe_measurement::thresholds::{
    link, queue, rate,
    window::{self, FREE_IN_LOG as FREE, FULL_IN_LOG as FULL},
};
use fullpipe_units::{Duration, Rate};

use assumption::{Assumption, sentences};
use received::ReceiverView;
use series::Series;

pub(crate) use udp::{path_loss, summary as udp_summary};

pub(crate) use facts::Facts;
pub use facts::{HostFacts, SettingsSource};
pub use findings::{
    BufferSource, Buffers, Exclusion, Findings, MeasuredFigures, RttSource, Sender, StandingQueue,
};
pub use rate_option::RateOption;
pub(crate) use shared::subject;
pub use undecided::{Candidate, Undecided};

/// Maximum plausible ratio of goodput to link rate; rounding in the log does not explain a higher ratio.
const MORE_THAN_THE_LINK: f64 = 1.05;
/// Ratio of data in flight to Cwnd that is too high to be explained by the granularity of write blocks.
const IMPOSSIBLE: f64 = 3.0;
/// Maximum plausible RTT: several times that of three geostationary hops. A longer RTT is probably in the
/// wrong unit.
const LONGEST_RTT: Duration = Duration::from_secs(10);
/// Minimum length of a ramp that is reported as a finding, as a share of the test.
const NOTABLE_RAMP: f64 = 0.05;
/// Minimum number of intervals after the ramp for a conclusion.
const FEWEST_STEADY: usize = 3;

/// Finds the limit of the transfer described by `facts`.
///
/// # Errors
/// Returns an error for an impossible RTT or rate, for a missing RTT where one is required, and for a
/// measurement without transferred data.
pub(crate) fn explain(facts: &Facts<'_>) -> Result<Findings, InputError> {
    let log = facts.transfer;
    let series = Series::of(log).ok_or_else(|| {
        InputError::new(
            "this log contains no data transfer",
            "repeat the measurement, and check the messages of iperf3",
        )
    })?;
    check_rates(facts)?;
    if log.protocol == Protocol::Udp {
        return Ok(udp::explain(facts, &series));
    }
    let (rtt, rtt_source) = round_trip(facts, &series)?;
    let ratio = series.inflight_per_cwnd(rtt);
    // If the RTT comes from the log, an inconsistent value is not an error, because the user cannot correct
    // it.
    if let Some(ratio) = ratio.filter(|ratio| *ratio > IMPOSSIBLE && series.mean_rtt().is_none()) {
        return Err(InputError::new(
            format!(
                "with an RTT of {rtt}, the data in flight would be {ratio:.1} times Cwnd, which is not possible"
            ),
            format!(
                "check --rtt: the RTT in this log is at most {}",
                series.rtt_by_cwnd().unwrap_or(Duration::ZERO)
            ),
        ));
    }
    let inflight = series.inflight(rtt);
    if rtt_source == RttSource::Given && series.mean_rtt().is_none() && inflight < DEFAULT_MSS {
        return Err(InputError::new(
            format!("with an RTT of {rtt}, less than one segment would be in flight at the measured rate"),
            match series.rtt_bound().filter(|bound| *bound > rtt) {
                Some(bound) => {
                    format!(
                        "check the unit of --rtt: the ramp at the start of the log fits an RTT of up to {bound}"
                    )
                }
                None => "check the unit of --rtt".into(),
            },
        ));
    }
    let measured = MeasuredFigures {
        mean: log.mean_rate(),
        steady: arrived(&series, facts),
        length: log.length(),
        ramp: series.ramp(),
        rtt,
        rtt_source,
        mean_rtt: series.mean_rtt(),
        inflight,
        cwnd: series.median_cwnd(),
        inflight_per_cwnd: ratio,
        snd_wnd: series.median_wnd(),
        inflight_per_wnd: series.inflight_per_wnd(rtt),
        mss: log.mss.unwrap_or(DEFAULT_MSS),
        streams: log.streams as u64,
        retransmits: log.sent.and_then(|s| s.retransmits).or_else(|| series.retransmits()),
    };
    let mut findings = match facts.measurement.packets() {
        _ if facts.is_of_full_link() => {
            let mut found = Explainer::new(facts, &series, measured, None).explain();
            if facts.is_traced() {
                found.notes.extend(facts.measurement.origin.notes.iter().cloned());
            }
            if facts.measurement.is_snapshot() {
                found.findings.iter_mut().for_each(traced::of_one_sample);
            }
            found
        }
        _ if facts.is_traced() => traced::explain(facts, &series, measured),
        Some(packets) => traced::explain_capture(facts, &series, measured, packets),
        None => Explainer::new(facts, &series, measured, None).explain(),
    };
    shared::consider_companions(facts, &mut findings);
    rate_option::name_option(facts, &mut findings);
    Ok(findings)
}

/// Returns the rate after the ramp. The intervals of a sender's log count the data that the application
/// wrote, including data that is still in the send buffers at the end. With several streams, the counted rate
/// may therefore exceed the link rate; the receiver's total then gives the rate. This total includes the
/// ramp, so it is only a lower bound: if most intervals fill the link and the total is near the link rate,
/// the link was full after the ramp.
fn arrived(series: &Series, facts: &Facts<'_>) -> Rate {
    let steady = series.steady();
    let mss = facts.transfer.mss.unwrap_or(DEFAULT_MSS).get();
    let most = facts.path.link.map(|link| link.mul_div(mss, mss + HEADERS));
    let Some(most) = most.filter(|most| steady > *most) else { return steady };
    let of_most = |rate: Rate| rate.as_bps() as f64 / most.as_bps() as f64;
    match facts.transfer.received {
        Some(received)
            if of_most(received.rate) < link::ROOM || of_most(series.typical()) < link::FULL_IN_LOG =>
        {
            received.rate.min(most)
        }
        _ => most,
    }
}

fn check_rates(facts: &Facts<'_>) -> Result<(), InputError> {
    for (option, rate) in [("--link", facts.path.link), ("--control", facts.hosts.control)] {
        if rate.is_some_and(Rate::is_zero) {
            return Err(InputError::new(format!("{option} is zero"), "write a rate such as 1gbit"));
        }
    }
    let mean = facts.transfer.mean_rate();
    match facts.path.link {
        Some(link) if mean.as_bps() as f64 > MORE_THAN_THE_LINK * link.as_bps() as f64 => {
            Err(InputError::new(
                format!("the mean rate in the log, {mean}, exceeds the link rate of {link}"),
                "check --link: gbit and mbit are bits, GB/s and MB/s are bytes",
            ))
        }
        _ => Ok(()),
    }
}

fn round_trip(facts: &Facts<'_>, series: &Series) -> Result<(Duration, RttSource), InputError> {
    const HINT: &str = "give the RTT that ping reports, for example --rtt 210ms";
    let own = facts.transfer.rtt;
    match (facts.path.rtt, own) {
        (Some(rtt), _) if rtt.is_zero() => Err(InputError::new("an RTT of zero is not possible", HINT)),
        (Some(rtt), _) if rtt > LONGEST_RTT => {
            Err(InputError::new(format!("an RTT of {rtt} is out of range: at most {LONGEST_RTT}"), HINT))
        }
        (Some(rtt), Some(own)) if rtt > own.max * 2 => Err(InputError::new(
            format!("an RTT of {rtt} contradicts the log, which has RTT samples of at most {}", own.max),
            "remove --rtt, because the log contains the RTT",
        )),
        (Some(rtt), _) => Ok((rtt, RttSource::Given)),
        (None, Some(own)) => Ok((own.min, RttSource::Log)),
        (None, None) => {
            series.rtt_bound().filter(|rtt| !rtt.is_zero()).map(|rtt| (rtt, RttSource::Bound)).ok_or_else(
                || InputError::new("the RTT is missing, and cannot be estimated from this log", HINT),
            )
        }
    }
}

/// State of an explanation under construction.
struct Explainer<'a> {
    facts: &'a Facts<'a>,
    series: &'a Series,
    measured: MeasuredFigures,
    /// Samples of the receiving sockets, if the sending sockets were not sampled.
    received: Option<ReceiverView>,
    loss: Option<LossEstimate>,
    sender: Sender,
    /// Whether the sender's dump is older than the log: it lists congestion controls, but not the one that
    /// the log shows.
    older_dump: bool,
    buffers: Buffers,
    cap: Option<Rate>,
    excluded: Vec<Exclusion>,
    assumptions: Vec<Assumption>,
    notes: Vec<String>,
}

impl<'a> Explainer<'a> {
    fn new(
        facts: &'a Facts<'a>,
        series: &'a Series,
        measured: MeasuredFigures,
        classified: Option<&Classification>,
    ) -> Self {
        let sender = series.sender(facts.transfer, &measured, facts.measurement.explained());
        let inferred_bbr = !matches!(sender, Sender::Assumed(_)) && sender.algorithm().is_rate_based();
        let older_dump =
            inferred_bbr && facts.sender().is_some_and(|(host, _)| host.lacks_congestion_control("bbr"));
        let buffers = candidates::buffers(facts, series, &measured, older_dump);
        let buffers =
            classified.map_or(buffers, |found| traced::buffers(buffers, &facts.measurement.rows(), found));
        let mut this = Self {
            facts,
            series,
            measured,
            received: ReceiverView::of(facts.measurement),
            loss: None,
            sender,
            older_dump,
            buffers,
            cap: None,
            excluded: Vec::new(),
            assumptions: Vec::new(),
            notes: Vec::new(),
        };
        this.cap = this.control_cap();
        this.loss = this.estimated_loss();
        this.state_assumptions();
        this.state_notes();
        this
    }

    fn explain(mut self) -> Findings {
        let mut findings = self.rank();
        self.admit_what_is_not_observable(&mut findings);
        self.add_what_is_not_seen(&mut findings);
        if self.series.steady_len() < FEWEST_STEADY || self.measured.rtt_source == RttSource::Bound {
            // A finding is never certain if it is based on a guessed RTT or on too few intervals.
            for finding in &mut findings {
                finding.confidence = finding.confidence.min(Confidence::High);
            }
        }
        let only_starts = findings.first().is_some_and(|first| first.limit == Limit::SlowStart);
        if self.series.steady_len() < FEWEST_STEADY && !only_starts {
            self.notes.push(
                "the findings are guesses, because the log has too few intervals after the ramp at its start"
                    .into(),
            );
            findings.iter_mut().for_each(|finding| finding.confidence = Confidence::Low);
        }
        let room = self.measured.inflight_per_cwnd.is_some_and(|ratio| ratio < FREE);
        Findings {
            undecided: Undecided::of_alternatives(&findings, room),
            findings,
            excluded: self.excluded,
            measured: self.measured,
            loss: self.loss,
            sender: self.sender,
            buffers: self.buffers,
            cap: self.cap,
            limits: Vec::new(),
            assumptions: sentences(&self.assumptions),
            notes: self.notes,
        }
    }

    fn rank(&mut self) -> Vec<Finding> {
        let mut findings = match (self.measured.inflight_per_cwnd, self.facts.path.link) {
            (_, Some(link)) if self.fills(link) => vec![self.link(link)],
            _ if self.keeps_to_order() => vec![self.ordered()],
            _ if self.busy_host().is_some() => vec![self.processor()],
            _ if self.round_trips_of_start().is_some() => {
                let round_trips = self.round_trips_of_start().unwrap_or_default();
                return vec![self.only_the_start(round_trips)];
            }
            _ if self.reader_is_behind() => vec![self.slow_reader()],
            (ratio, _) if self.queue().is_some() => self.standing_queue(ratio),
            (None, _) if self.window_is_full(0.0) => self.told_window(0.0),
            (None, _) => self.without_cwnd(),
            (Some(ratio), _) if self.window_is_full(ratio) => self.told_window(ratio),
            (Some(_), _) if self.series.still_growing() => return vec![self.growing()],
            (Some(ratio), _) if ratio > FULL || self.moves_with_cwnd(ratio) => self.cwnd_or_policer(ratio),
            (Some(ratio), _) if ratio < FREE => {
                self.exclude_cwnd(ratio);
                self.exclude_window();
                self.exclude_the_path();
                self.candidates()
            }
            (Some(ratio), _) => {
                let mut unclear = self.cwnd(ratio);
                unclear.confidence = Confidence::Low;
                unclear.could_not_tell.push(format!(
                    "whether the limit is Cwnd, or a window or buffer of about the same size, because a \
                     ratio of {ratio:.2} is between the thresholds of {FREE} and {FULL}"
                ));
                let mut all = vec![unclear];
                all.extend(self.candidates());
                all.iter_mut().for_each(|finding| finding.confidence = Confidence::Low);
                all
            }
        };
        if self.ramp_share() >= NOTABLE_RAMP {
            findings.push(self.ramp());
        }
        findings
    }

    /// Returns whether the steady rate is high enough to fill `link`.
    fn fills(&self, link: Rate) -> bool {
        fills(self.measured.steady, link, self.measured.mss)
    }

    /// Returns whether the rate varies in proportion to Cwnd. In a log with its own RTTs, such a relation
    /// proves little unless most of Cwnd is in flight.
    fn moves_with_cwnd(&self, ratio: f64) -> bool {
        self.series.follows_cwnd() && (self.measured.mean_rtt.is_none() || ratio >= FREE)
    }

    fn ramp_share(&self) -> f64 {
        let length = self.measured.length.as_secs_f64();
        if length > 0.0 { (self.measured.ramp.as_secs_f64() / length).min(1.0) } else { 0.0 }
    }

    /// Returns the share of the test after the ramp, for which the steady-state limit applied.
    fn steady_share(&self) -> f64 {
        1.0 - self.ramp_share()
    }

    fn link(&self, link: Rate) -> Finding {
        Finding {
            limit: Limit::Link,
            what: match self.measured.streams {
                1 => "the link is full".into(),
                streams => format!("the link is full: {streams} connections share it"),
            },
            share: self.steady_share(),
            confidence: Confidence::Certain,
            ceiling: Some(self.measured.steady),
            evidence: [format!(
                "the rate after the ramp, {}, is {:.0} % of the payload rate of the {link} link",
                self.measured.steady,
                100.0 * self.measured.steady.as_bps() as f64 / link.as_bps() as f64
                    * (1.0 + 52.0 / self.measured.mss.get() as f64)
            )]
            .into_iter()
            .chain(self.measured.mean_rtt.map(|mean| self.rtt_evidence(mean)))
            .collect(),
            could_not_tell: match self.measured.mean_rtt {
                Some(_) => Vec::new(),
                None => vec![format!("the length of the queue at the bottleneck, because {}", self.no_rtt())],
            },
            next_test: None,
        }
    }

    fn cwnd(&mut self, ratio: f64) -> Finding {
        let measured = self.measured;
        let events = self.loss.map_or(0, |loss| loss.events);
        let follows = self.series.follows_cwnd();
        let by_cwnd = self.series.rtt_by_cwnd().unwrap_or_default();
        let mut evidence = Vec::new();
        if measured.rtt_source != RttSource::Bound && ratio >= FREE {
            evidence.push(format!(
                "data in flight (rate x RTT) is {ratio:.2} times Cwnd, median after the ramp: {} of {} \
                 (cwnd is the limit above {FULL})",
                measured.inflight,
                measured.cwnd.unwrap_or_default()
            ));
        }
        if follows {
            evidence.push(format!("the rate rises and falls with Cwnd, as it does at an RTT of {by_cwnd}"));
        }
        if let Some(collapse) = self.series.collapse() {
            evidence.push(collapse.to_string());
        }
        let mut could_not_tell = Vec::new();
        if let Some(loss) = self.loss.filter(|loss| loss.events > 0) {
            evidence.push(loss.to_string());
            if !self.sender.algorithm().is_rate_based() && measured.streams == 1 {
                let model = fullpipe_measurement::throughput_models::loss_based_rate(
                    measured.rtt,
                    loss.rate.as_f64(),
                    measured.mss,
                );
                evidence.push(format!(
                    "the model of a loss-based sender predicts {model} at this loss and RTT; the measured rate is {}",
                    measured.mean
                ));
            }
            match measured.mean_rtt {
                Some(mean) => {
                    let short = mean.as_secs_f64() < queue::STANDS * measured.rtt.as_secs_f64();
                    let cause = if short {
                        "probably not caused by the overflow of a long queue"
                    } else {
                        "possibly caused by the overflow of a queue"
                    };
                    evidence.push(format!("{}: the losses were {cause}", self.rtt_evidence(mean)));
                }
                None => could_not_tell.push(format!(
                    "whether transmission errors or an overflowing queue cause the losses, because {}",
                    self.no_rtt()
                )),
            }
        }
        if measured.mean_rtt.is_none() && (ratio > window::SUSPICIOUS_IN_LOG || (follows && ratio < FREE)) {
            self.notes.push(format!(
                "rate and Cwnd vary together as they do at an RTT of {by_cwnd} instead of {}: either there \
                 is a standing queue, or the RTT is wrong (check --rtt)",
                measured.rtt
            ));
        }
        let confidence = match (measured.rtt_source, follows || self.window_has_room()) {
            _ if ratio > IMPOSSIBLE => Confidence::Low,
            (RttSource::Given | RttSource::Log, true)
                if (FULL..=window::SUSPICIOUS_IN_LOG).contains(&ratio) =>
            {
                Confidence::Certain
            }
            // Without an RTT, a ratio near one proves nothing, because the RTT bound was derived from it.
            (RttSource::Bound, false) => Confidence::Low,
            _ => Confidence::High,
        };
        Finding {
            limit: Limit::Cwnd,
            what: if events > 0 {
                "loss holds cwnd down".into()
            } else {
                "the congestion window grows too slowly".into()
            },
            share: self.steady_share(),
            confidence,
            ceiling: None,
            evidence,
            could_not_tell,
            next_test: (!self.sender.algorithm().is_rate_based())
                .then(|| "repeat with iperf3 -C bbr: a higher rate shows that loss held cwnd down".into()),
        }
    }

    fn growing(&self) -> Finding {
        Finding {
            limit: Limit::SlowStart,
            what: "the test ended while the congestion window was still growing".into(),
            share: 1.0,
            confidence: Confidence::High,
            ceiling: None,
            evidence: vec![
                "Cwnd grew by at least half in the second half of the test, without a loss".into(),
            ],
            could_not_tell: vec!["what would limit a longer transfer".into()],
            next_test: Some("measure for longer: iperf3 -t 60".into()),
        }
    }

    fn ramp(&self) -> Finding {
        Finding {
            limit: Limit::SlowStart,
            what: "slow start".into(),
            share: self.ramp_share(),
            confidence: Confidence::High,
            ceiling: None,
            evidence: vec![format!("the rate takes {} to level off", self.measured.ramp)],
            could_not_tell: Vec::new(),
            next_test: None,
        }
    }

    fn exclude_cwnd(&mut self, ratio: f64) {
        self.excluded.push(Exclusion {
            limit: Limit::Cwnd,
            confidence: Confidence::Certain,
            evidence: self.not_cwnd(ratio),
        });
    }

    /// Returns the sentence that rules out Cwnd. It is the first evidence of every candidate for a flow with
    /// room in its congestion window.
    fn not_cwnd(&self, ratio: f64) -> String {
        format!(
            "certainly not cwnd: data in flight, {}, is {ratio:.2} times the Cwnd of {}, median after the \
             ramp (below {FREE})",
            self.measured.inflight,
            self.measured.cwnd.unwrap_or_default()
        )
    }

    /// Returns the control measurement as a ceiling, or `None` if that measurement reaches the link rate or
    /// is slower than the log.
    fn control_cap(&mut self) -> Option<Rate> {
        let control = self.facts.hosts.control?;
        if (control.as_bps() as f64) < rate::CONTROL_TOO_LOW * self.measured.mean.as_bps() as f64 {
            self.notes.push(format!(
                "the control measurement is ignored: its rate of {control} is below the {} of this log, so it \
                 does not show a cap",
                self.measured.mean
            ));
            return None;
        }
        let reaches_line =
            |link: &Rate| control.as_bps() as f64 >= link::FULL_BY_CONTROL * link.as_bps() as f64;
        (!self.facts.path.link.is_some_and(|link| reaches_line(&link))).then_some(control)
    }
}

#[cfg(test)]
pub(crate) mod made;
#[cfg(test)]
mod tests;
