//! Metrics of a run that an experiment can compare with expected bounds.
//!
//! If a run has several flows, its metrics treat them as one transfer. Goodput and retransmits are sums over
//! the flows. RTT and the shares of `send_limit` are means over the flows. `rtt_p95_ms`, the times of
//! responses, and the peak and burst on the wire are maxima over the flows.

use std::fmt;
use std::str::FromStr;

use fullpipe_tcp::SendLimit;
use fullpipe_units::{Duration, Rate};

use crate::outcome::{FlowOutcome, Outcome, PathOutcome, WireOutcome};
use crate::scenario::PathSpec;
use crate::stats::{mean, median};

/// Input of the metrics: values of one run, from its [`Outcome`] or from a stored result document.
#[derive(Clone, Debug, PartialEq)]
pub struct RunFigures {
    /// Values of each flow, in the order of the scenario.
    pub flows: Vec<FlowFigures>,
    /// Packet counts of the data direction of the path.
    pub path: PathOutcome,
}

/// Values of one flow, with the same meaning as in [`FlowOutcome`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowFigures {
    /// Goodput of the flow over its lifetime.
    pub goodput: Rate,
    /// Goodput of the flow over the second half of its lifetime.
    pub goodput_second_half: Rate,
    /// Number of segments that the flow retransmitted.
    pub retransmits: u64,
    /// Mean RTT in milliseconds; `None` if no data was acknowledged.
    pub rtt_mean_ms: Option<f64>,
    /// 95th percentile of the RTT in milliseconds; `None` if no data was acknowledged.
    pub rtt_p95_ms: Option<f64>,
    /// Time from the first SYN to the last byte of the response in milliseconds; `None` if the flow has no
    /// request, or if the response is incomplete.
    pub from_syn_ms: Option<f64>,
    /// Time from the request to the last byte of the response in milliseconds; `None` as for `from_syn_ms`.
    pub from_request_ms: Option<f64>,
    /// Share of the flow's lifetime during which each limit stopped the sender, from 0 to 1.
    pub shares: [(SendLimit, f64); SendLimit::ALL.len()],
    /// Arrival rate of payload over the flow's lifetime.
    pub wire: WireOutcome,
    /// Arrival rate of payload over the second half of the flow's lifetime.
    pub wire_second_half: WireOutcome,
}

impl From<&Outcome> for RunFigures {
    fn from(outcome: &Outcome) -> Self {
        Self { flows: outcome.flows.iter().map(FlowFigures::from).collect(), path: outcome.path }
    }
}

impl From<&FlowOutcome> for FlowFigures {
    fn from(flow: &FlowOutcome) -> Self {
        Self {
            goodput: flow.goodput,
            goodput_second_half: flow.goodput_second_half,
            retransmits: flow.retransmits,
            rtt_mean_ms: flow.rtt.map(|rtt| rtt.mean.as_millis_f64()),
            rtt_p95_ms: flow.rtt.map(|rtt| rtt.p95.as_millis_f64()),
            from_syn_ms: flow.response.map(|response| response.from_syn.as_millis_f64()),
            from_request_ms: flow.response.map(|response| response.from_request.as_millis_f64()),
            shares: SendLimit::ALL.map(|limit| (limit, flow.share(limit))),
            wire: flow.wire,
            wire_second_half: flow.wire_second_half,
        }
    }
}

impl FlowFigures {
    fn share(&self, limit: SendLimit) -> f64 {
        self.shares.iter().find(|(of, _)| *of == limit).map_or(0.0, |(_, share)| *share)
    }
}

/// Header bytes of a TCP data packet: IPv4 20, TCP 20, timestamp option 12.
pub const HEADERS: u64 = 52;

/// A metric of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Goodput: payload divided by the flow's lifetime, in bit/s.
    Goodput,
    /// Goodput over the second half of the flow's lifetime, in bit/s.
    GoodputSecondHalf,
    /// Utilisation: goodput divided by the payload capacity of the forward link, rate x (mtu - 52) / mtu.
    Utilisation,
    /// Utilisation over the second half of the flow's lifetime.
    UtilisationSecondHalf,
    /// Number of segments retransmitted.
    Retransmits,
    /// Number of retransmitted segments divided by the number of all data segments sent.
    RetransmitShare,
    /// Jain's index of the goodputs of the flows, from 1 / flows to 1; 1 means equal goodputs.
    Fairness,
    /// Goodput of the first flow divided by the sum of the goodputs of all flows, from 0 to 1.
    FirstShare,
    /// Like `FirstShare`, but with the goodputs over the second half of the flows' lifetimes.
    FirstShareSecondHalf,
    /// Mean RTT, in milliseconds.
    RttMean,
    /// 95th percentile of the RTT, in milliseconds.
    RttP95,
    /// Time from the first SYN of a flow with a request to the last byte of the response, in milliseconds.
    TimeFromSyn,
    /// Time from the request to the last byte of the response, in milliseconds.
    TimeFromRequest,
    /// Number of packets that were dropped because the queue was full.
    QueueDrops,
    /// Number of packets lost at random.
    RandomDrops,
    /// Number of packets that a policer dropped.
    Policed,
    /// Number of packets that the AQM dropped.
    AqmDrops,
    /// Number of packets that the AQM marked (ECN CE).
    Marked,
    /// Number of duplicate packets that the path created.
    Duplicated,
    /// Number of packets that left the path after a later packet of the same flow.
    Reordered,
    /// Number of pure ACKs that ACK decimation removed.
    AcksThinned,
    /// Peak arrival rate: the highest rate of arriving payload over one sampling period (`[[sample]]`, 100 ms
    /// by default), in bit/s.
    WirePeak,
    /// Peak arrival rate over the second half of the flow's lifetime, in bit/s. The second half excludes the
    /// initial filling of buffers.
    WirePeakSecondHalf,
    /// Burstiness: peak arrival rate divided by mean arrival rate; 1 means that the arrival rate is constant.
    WireBurst,
    /// Burstiness over the second half of the flow's lifetime.
    WireBurstSecondHalf,
    /// Share of the flow's lifetime during which this limit stopped the sender, from 0 to 1.
    Share(SendLimit),
}

/// Error for a string that is not a valid metric, bound or aggregation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricError {
    /// Error message; one line without a final period.
    pub message: String,
    /// Hint for the user: what to write instead; one line.
    pub hint: String,
}

impl MetricError {
    fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }
}

impl fmt::Display for MetricError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for MetricError {}

/// Unit in which a metric is expressed.
enum Unit {
    Rate,
    Millis,
    Share,
    Ratio,
    Count,
}

impl Metric {
    /// All metrics except the shares of time per limit.
    pub const PLAIN: [Self; 25] = [
        Self::Goodput,
        Self::GoodputSecondHalf,
        Self::Utilisation,
        Self::UtilisationSecondHalf,
        Self::Retransmits,
        Self::RetransmitShare,
        Self::Fairness,
        Self::FirstShare,
        Self::FirstShareSecondHalf,
        Self::RttMean,
        Self::RttP95,
        Self::TimeFromSyn,
        Self::TimeFromRequest,
        Self::QueueDrops,
        Self::RandomDrops,
        Self::Policed,
        Self::AqmDrops,
        Self::Marked,
        Self::Duplicated,
        Self::Reordered,
        Self::AcksThinned,
        Self::WirePeak,
        Self::WirePeakSecondHalf,
        Self::WireBurst,
        Self::WireBurstSecondHalf,
    ];

    fn unit(self) -> Unit {
        match self {
            Self::Goodput | Self::GoodputSecondHalf | Self::WirePeak | Self::WirePeakSecondHalf => Unit::Rate,
            Self::WireBurst | Self::WireBurstSecondHalf | Self::Fairness => Unit::Ratio,
            Self::Utilisation
            | Self::UtilisationSecondHalf
            | Self::RetransmitShare
            | Self::FirstShare
            | Self::FirstShareSecondHalf
            | Self::Share(_) => Unit::Share,
            Self::Retransmits
            | Self::QueueDrops
            | Self::RandomDrops
            | Self::Policed
            | Self::AqmDrops
            | Self::Marked
            | Self::Duplicated
            | Self::Reordered
            | Self::AcksThinned => Unit::Count,
            Self::RttMean | Self::RttP95 | Self::TimeFromSyn | Self::TimeFromRequest => Unit::Millis,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Goodput => "goodput_bps",
            Self::GoodputSecondHalf => "goodput_second_half_bps",
            Self::Utilisation => "utilisation",
            Self::UtilisationSecondHalf => "utilisation_second_half",
            Self::Retransmits => "retransmits",
            Self::RetransmitShare => "retransmit_share",
            Self::Fairness => "fairness",
            Self::FirstShare => "first_share",
            Self::FirstShareSecondHalf => "first_share_second_half",
            Self::RttMean => "rtt_mean_ms",
            Self::RttP95 => "rtt_p95_ms",
            Self::TimeFromSyn => "time_from_syn_ms",
            Self::TimeFromRequest => "time_from_request_ms",
            Self::QueueDrops => "queue_drops",
            Self::RandomDrops => "random_drops",
            Self::Policed => "policed",
            Self::AqmDrops => "aqm_drops",
            Self::Marked => "marked",
            Self::Duplicated => "duplicated",
            Self::Reordered => "reordered",
            Self::AcksThinned => "acks_thinned",
            Self::WirePeak => "wire_peak_bps",
            Self::WirePeakSecondHalf => "wire_peak_second_half_bps",
            Self::WireBurst => "wire_burst",
            Self::WireBurstSecondHalf => "wire_burst_second_half",
            Self::Share(limit) => limit.name(),
        }
    }

    /// Parses a bound: a plain number in the metric's own unit, or a string with a unit (`"95mbit"`,
    /// `"145ms"`, `"90%"`).
    ///
    /// # Errors
    /// Returns an error if the string is not a valid bound for this metric.
    pub fn read_bound(self, text: &str) -> Result<f64, MetricError> {
        if let Ok(number) = text.parse::<f64>() {
            return if number.is_finite() && number >= 0.0 {
                Ok(number)
            } else {
                Err(MetricError::new(
                    format!("bound '{text}' of {self} is out of range"),
                    "allowed: zero or more",
                ))
            };
        }
        let refused = |problem: String, hint: &str| {
            Err(MetricError::new(format!("bound of {self}: {problem}"), hint.to_owned()))
        };
        match self.unit() {
            Unit::Rate => match text.parse::<Rate>() {
                Ok(rate) => Ok(rate.as_bps() as f64),
                Err(e) if e.hint().is_empty() => refused(e.to_string(), "write 95mbit, or bit/s as a number"),
                Err(e) => refused(e.to_string(), e.hint()),
            },
            Unit::Millis => match text.parse::<Duration>() {
                Ok(time) => Ok(time.as_millis_f64()),
                Err(e) if e.hint().is_empty() => refused(e.to_string(), "write 145ms, or ms as a number"),
                Err(e) => refused(e.to_string(), e.hint()),
            },
            Unit::Share => match text.strip_suffix('%').and_then(|n| n.trim().parse::<f64>().ok()) {
                Some(percent) if percent.is_finite() && percent >= 0.0 => Ok(percent / 100.0),
                _ => refused(format!("'{text}' is not a share"), "write 0.9 or 90%"),
            },
            Unit::Ratio | Unit::Count => refused(format!("'{text}' is not a number"), "write a plain number"),
        }
    }

    /// Formats `value` for display, without the unit; rates are in Mbit/s.
    pub fn number(self, value: f64) -> String {
        match self.unit() {
            Unit::Rate => match value / 1e6 {
                mbit if mbit >= 100.0 => format!("{mbit:.0}"),
                mbit if mbit >= 10.0 => format!("{mbit:.1}"),
                mbit => format!("{mbit:.2}"),
            },
            Unit::Millis => format!("{value:.1}"),
            Unit::Share => format!("{value:.4}"),
            Unit::Ratio => format!("{value:.2}"),
            Unit::Count => format!("{value:.0}"),
        }
    }

    /// Formats `value` with the unit of the metric.
    pub fn display(self, value: f64) -> String {
        let unit = match self.unit() {
            Unit::Rate => " Mbit/s",
            Unit::Millis => " ms",
            Unit::Share | Unit::Ratio | Unit::Count => "",
        };
        self.number(value) + unit
    }

    /// Computes this metric for one run across `path`. RTT metrics are `None` if no data was acknowledged. Burstiness,
    /// fairness and the share of the first flow are `None` if no data arrived. Response times are `None` unless every
    /// flow has completed its response.
    pub fn of(self, run: &RunFigures, path: &PathSpec) -> Option<f64> {
        let flows = &run.flows;
        let sum = |figure: fn(&FlowFigures) -> u64| flows.iter().map(figure).sum::<u64>() as f64;
        let goodput = || sum(|flow| flow.goodput.as_bps());
        let second_half = || sum(|flow| flow.goodput_second_half.as_bps());
        let most = || path.forward.rate.mul_div(path.mtu - HEADERS, path.mtu).as_bps() as f64;
        let peak = |wire: fn(&FlowFigures) -> WireOutcome| {
            flows.iter().map(|flow| wire(flow).peak.as_bps() as f64).reduce(f64::max)
        };
        let burst = |wire: fn(&FlowFigures) -> WireOutcome| {
            flows.iter().filter_map(|flow| wire(flow).burst()).reduce(f64::max)
        };
        let last = |time: fn(&FlowFigures) -> Option<f64>| {
            flows.iter().map(time).try_fold(0.0_f64, |last, time| Some(last.max(time?)))
        };
        Some(match self {
            Self::Goodput => goodput(),
            Self::GoodputSecondHalf => second_half(),
            Self::Utilisation => goodput() / most(),
            Self::UtilisationSecondHalf => second_half() / most(),
            Self::Retransmits => sum(|flow| flow.retransmits),
            Self::RetransmitShare => sum(|flow| flow.retransmits) / run.path.sent().max(1) as f64,
            Self::Fairness => fairness(flows)?,
            Self::FirstShare => first_share(flows, |flow| flow.goodput)?,
            Self::FirstShareSecondHalf => first_share(flows, |flow| flow.goodput_second_half)?,
            Self::QueueDrops => run.path.queue_drops as f64,
            Self::RandomDrops => run.path.random_drops as f64,
            Self::Policed => run.path.policed as f64,
            Self::AqmDrops => run.path.aqm_drops as f64,
            Self::Marked => run.path.marked as f64,
            Self::Duplicated => run.path.duplicated as f64,
            Self::Reordered => run.path.reordered as f64,
            Self::AcksThinned => run.path.acks_thinned as f64,
            Self::RttMean => mean(flows.iter().filter_map(|flow| flow.rtt_mean_ms))?,
            Self::RttP95 => flows.iter().filter_map(|flow| flow.rtt_p95_ms).reduce(f64::max)?,
            Self::TimeFromSyn => last(|flow| flow.from_syn_ms)?,
            Self::TimeFromRequest => last(|flow| flow.from_request_ms)?,
            Self::WirePeak => peak(|flow| flow.wire)?,
            Self::WirePeakSecondHalf => peak(|flow| flow.wire_second_half)?,
            Self::WireBurst => burst(|flow| flow.wire)?,
            Self::WireBurstSecondHalf => burst(|flow| flow.wire_second_half)?,
            Self::Share(limit) => mean(flows.iter().map(|flow| flow.share(limit)))?,
        })
    }
}

/// Returns Jain's index of the goodputs of `flows`; `None` if no flow has delivered data.
fn fairness(flows: &[FlowFigures]) -> Option<f64> {
    let rates = flows.iter().map(|flow| flow.goodput.as_bps() as f64);
    let (sum, squares) = rates.fold((0.0, 0.0), |(sum, squares), rate| (sum + rate, squares + rate * rate));
    (squares > 0.0).then(|| sum * sum / (flows.len() as f64 * squares))
}

/// Returns the share of the first of `flows` in the sum of a rate; `None` if the sum is zero.
fn first_share(flows: &[FlowFigures], rate: fn(&FlowFigures) -> Rate) -> Option<f64> {
    let sum: u64 = flows.iter().map(|flow| rate(flow).as_bps()).sum();
    let first = flows.first().filter(|_| sum > 0)?;
    Some(rate(first).as_bps() as f64 / sum as f64)
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share(limit) => f.pad(&format!("share.{limit}")),
            plain => f.pad(plain.name()),
        }
    }
}

impl FromStr for Metric {
    type Err = MetricError;

    fn from_str(text: &str) -> Result<Self, MetricError> {
        let shares = SendLimit::ALL.into_iter().map(Self::Share);
        let known: Vec<Self> = Self::PLAIN.into_iter().chain(shares).collect();
        known.iter().copied().find(|metric| metric.to_string() == text).ok_or_else(|| {
            let names: Vec<_> = known.iter().map(Self::to_string).collect();
            MetricError::new(format!("unknown metric '{text}'"), format!("known: {}", names.join(", ")))
        })
    }
}

/// Aggregation of the values of a point's repeated runs into one value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Over {
    /// Mean of the values of all repeated runs.
    #[default]
    Mean,
    /// Median of the values of all repeated runs; for an even number of runs, the mean of the middle two.
    Median,
    /// Minimum of the values of all repeated runs.
    Min,
    /// Maximum of the values of all repeated runs.
    Max,
}

impl FromStr for Over {
    type Err = MetricError;

    fn from_str(text: &str) -> Result<Self, MetricError> {
        match text {
            "mean" => Ok(Self::Mean),
            "median" => Ok(Self::Median),
            "min" => Ok(Self::Min),
            "max" => Ok(Self::Max),
            _ => Err(MetricError::new(
                format!("unknown aggregation '{text}'"),
                "known: mean, median, min, max",
            )),
        }
    }
}

impl Over {
    /// Aggregates the values of all repeated runs; returns `None` if any run has no value.
    pub fn of(self, values: &[Option<f64>]) -> Option<f64> {
        let values: Vec<f64> = values.iter().copied().collect::<Option<_>>()?;
        match self {
            Self::Mean => mean(values),
            Self::Median => median(values),
            Self::Min => values.into_iter().reduce(f64::min),
            Self::Max => values.into_iter().reduce(f64::max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_take_the_units_of_their_metric() {
        let read = |metric: Metric, text: &str| metric.read_bound(text).map_err(|e| e.to_string());
        assert_eq!(read(Metric::Goodput, "95mbit"), Ok(95e6));
        assert_eq!(read(Metric::Goodput, "95000000"), Ok(95e6));
        assert_eq!(read(Metric::RttP95, "0.145s"), Ok(145.0));
        assert_eq!(read(Metric::Utilisation, "90 %"), Ok(0.9));
        assert_eq!(read(Metric::Share(SendLimit::App), "0.25"), Ok(0.25));
        let refused = [
            (Metric::RttMean, "95mbit", "bound of rtt_mean_ms: time '95mbit' has an unknown unit"),
            (Metric::Utilisation, "95mbit", "bound of utilisation: '95mbit' is not a share"),
            (Metric::QueueDrops, "5%", "bound of queue_drops: '5%' is not a number"),
            (Metric::Goodput, "-1", "bound '-1' of goodput_bps is out of range"),
            (Metric::Goodput, "nan", "bound 'nan' of goodput_bps is out of range"),
        ];
        for (metric, text, message) in refused {
            assert_eq!(read(metric, text), Err(message.into()));
        }
    }

    #[test]
    fn figures_are_short_enough_to_compare() {
        let words = [
            Metric::Goodput.display(359_511_771.0),
            Metric::Goodput.display(12_345_678.0),
            Metric::GoodputSecondHalf.number(584_321.0),
            Metric::RttMean.display(140.04),
            Metric::Utilisation.display(0.8865),
            Metric::Retransmits.display(31.4),
        ];
        assert_eq!(words, ["360 Mbit/s", "12.3 Mbit/s", "0.58", "140.0 ms", "0.8865", "31"]);
    }

    #[test]
    fn repeats_become_one_figure() {
        let of = |over: &str, values: &[f64]| {
            let values: Vec<_> = values.iter().copied().map(Some).collect();
            over.parse::<Over>().expect("known").of(&values)
        };
        let values = [8.0, 1.0, 3.0, 4.0];
        let all = ["mean", "median", "min", "max"].map(|over| of(over, &values));
        assert_eq!(all, [Some(4.0), Some(3.5), Some(1.0), Some(8.0)]);
        assert_eq!((of("median", &values[..3]), of("median", &[])), (Some(3.0), None));
    }
}
