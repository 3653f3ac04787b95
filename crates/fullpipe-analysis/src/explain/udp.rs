//! Explains a UDP test: how much of the sent data arrived, and how evenly.
//!
//! UDP has no windows, acknowledgements or congestion control. A link that carries a given rate over UDP may
//! therefore carry only a tenth of this rate over TCP, and a UDP test without noticeable loss does not reveal
//! the cause. If the test left room on the link, however, its loss rate is the path's. Together with the RTT
//! and the link rate, the loss rate predicts the rate of TCP: the ladder is then built for a given path, not
//! for a measured transfer.

use fullpipe_measurement::loss_estimate::LossEstimate;
use fullpipe_measurement::measurement::{Datagrams, Transfer};
use fullpipe_measurement::segment::DEFAULT_MSS;
use fullpipe_measurement::thresholds::{link, loss};
use fullpipe_measurement::throughput_models::{loss_based_rate, loss_to_fill};
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Bytes, Duration, Probability, Rate};

use super::series::Series;
use super::{
    Confidence, Exclusion, Facts, Finding, Findings, Limit, MeasuredFigures, RttSource, Sender, candidates,
};

/// Upper bound of the 95 % confidence interval of the loss count, if no loss was observed.
/// Source: the Poisson distribution.
/// Unit: losses
const NONE_SEEN: f64 = 3.7;
/// Maximum size of a UDP datagram, with header, that fits into one IP packet of 1500 bytes; larger datagrams
/// are fragmented.
const FRAGMENT: u64 = 1480;
/// Length of IP and UDP headers, in bytes.
const UDP_HEADERS: u64 = 28;

/// Returns the share of *packets* that the path lost, if the test left room on the link: the loss rate that
/// TCP would see.
///
/// # Errors
/// Returns a clause with the reason why the loss is unknown.
pub(crate) fn path_loss(facts: &Facts<'_>) -> Result<LossEstimate, String> {
    let log = facts.transfer;
    let unheard = || "the log lacks the receiver's counts, so the loss of the path is not known".to_owned();
    let datagrams = log.datagrams.ok_or_else(unheard)?;
    let lost = datagrams.lost.ok_or_else(unheard)?;
    if datagrams.lost_share().is_some_and(|share| share > loss::MOST.as_f64()) {
        return Err(
            "more than half of the datagrams were lost, because the test exceeded the capacity of the path, \
             which TCP would not do"
                .into(),
        );
    }
    let (sent, size) = sent_as(log, datagrams);
    let packets = size.get().saturating_add(8).div_ceil(FRAGMENT).max(1);
    let with_headers = size.get().saturating_add(packets.saturating_mul(UDP_HEADERS));
    let on_the_link = sent.mul_div(with_headers, size.get().max(1));
    match facts.path.link {
        Some(link) if lost > 0 && on_the_link > link => Err(format!(
            "the test sent {on_the_link}, with headers, into a link of {link}, which TCP would not do; \
             repeat with -b below the rate of the link"
        )),
        // A datagram is lost if any one of the packets that carry it is lost.
        _ => Ok(LossEstimate::new(lost, datagrams.total.saturating_mul(packets))),
    }
}

/// Returns the sent rate and the datagram size.
fn sent_as(log: &Transfer, datagrams: Datagrams) -> (Rate, Bytes) {
    let arrived = datagrams.total.saturating_sub(datagrams.lost.unwrap_or(0)).max(1);
    match log.sent {
        Some(sent) => (sent.rate, sent.bytes.mul_div(1, datagrams.total.max(1))),
        // The log contains only the amount that arrived, so the missing datagrams are added to it.
        None => (log.mean_rate().mul_div(datagrams.total.max(1), arrived), log.bytes().mul_div(1, arrived)),
    }
}

/// Returns the congestion control that TCP would use: the sender's default if the engine implements it,
/// otherwise CUBIC.
fn congestion_control(facts: &Facts<'_>) -> Algorithm {
    let default = facts.sender().and_then(|(host, _)| host.congestion_control.as_deref()?.parse().ok());
    default.unwrap_or(Algorithm::Cubic)
}

/// Returns the sent rate, the datagram size and the datagram counts.
pub(crate) fn summary(log: &Transfer) -> (Rate, Bytes, Datagrams) {
    let datagrams = log.datagrams.unwrap_or_default();
    let (sent, size) = sent_as(log, datagrams);
    (sent, size, datagrams)
}

pub(super) fn explain(facts: &Facts<'_>, series: &Series) -> Findings {
    let log = facts.transfer;
    let measured = MeasuredFigures {
        mean: log.mean_rate(),
        steady: log.mean_rate(),
        length: log.length(),
        ramp: Duration::ZERO,
        rtt: facts.path.rtt.unwrap_or_default(),
        rtt_source: if facts.path.rtt.is_some() { RttSource::Given } else { RttSource::Unknown },
        mean_rtt: None,
        inflight: Bytes::ZERO,
        cwnd: None,
        inflight_per_cwnd: None,
        snd_wnd: None,
        inflight_per_wnd: None,
        mss: log.mss.unwrap_or(DEFAULT_MSS),
        streams: log.streams as u64,
        retransmits: None,
    };
    let datagrams = log.datagrams.unwrap_or_default();
    let mut notes = Vec::new();
    if let Some(opposite) = facts.measurement.opposite() {
        notes.push(format!("the other direction carried {} at the same time", opposite.mean_rate()));
    }
    if facts.measurement.origin.truncated {
        notes.push(format!("the log ends after {} intervals, without a summary", log.intervals.len()));
    }
    if let Some(error) = &facts.measurement.origin.error {
        notes.push(format!("iperf3 ended with an error: {error}"));
    }
    let buffers = candidates::buffers(facts, series, &measured, false);
    let sender = congestion_control(facts);
    let mut assumptions = Vec::new();
    if facts.path.rtt.is_some() && facts.path.link.is_some() {
        match path_loss(facts) {
            Ok(loss) => {
                assumptions.push(format!(
                    "TCP would have the same packet loss as this test: {} (95 %: {} to {})",
                    loss.rate, loss.low, loss.high
                ));
                assumptions.push(format!("TCP would use the congestion control {sender}"));
                assumptions.extend(buffers.assumed());
                assumptions.extend(facts.whose_dumps());
            }
            Err(why) => notes.push(format!("no ladder for TCP: {why}")),
        }
    } else {
        notes.push(
            "with --rtt and --link, the report also contains a ladder for TCP at this loss rate".into(),
        );
    }
    Findings {
        undecided: None,
        findings: findings(facts, &measured, datagrams),
        excluded: Vec::<Exclusion>::new(),
        buffers,
        measured,
        loss: LossEstimate::of_transfer(log),
        sender: Sender::Assumed(sender),
        cap: None,
        limits: Vec::new(),
        assumptions,
        notes,
    }
}

/// Returns a sentence with the rate that a closed-form model of a loss-based sender predicts for this loss
/// and RTT.
fn on_paper(facts: &Facts<'_>, measured: &MeasuredFigures) -> Option<String> {
    let (rtt, loss) = (facts.path.rtt?, path_loss(facts).ok()?);
    (!loss.rate.is_zero()).then(|| {
        let model = loss_based_rate(rtt, loss.rate.as_f64(), measured.mss);
        format!("the model of a loss-based TCP sender (CUBIC, Reno) predicts {model} at this loss and RTT")
    })
}

/// Returns the open question whether the loss rate is low enough for TCP, if the test was too short to
/// measure such a low rate.
fn too_coarse(facts: &Facts<'_>, measured: &MeasuredFigures) -> Option<String> {
    let (rtt, link, loss) = (facts.path.rtt?, facts.path.link?, path_loss(facts).ok()?);
    let fill = loss_to_fill(rtt, link, measured.mss);
    let enough = (NONE_SEEN / fill).ceil();
    (loss.low.as_f64() < fill && loss.high.as_f64() > fill).then(|| {
        format!(
            "whether the loss rate is below {}, at which a loss-based sender fills this link; a test without a \
             loss shows this only after {enough:.2e} packets, and this test sent only {:.2e}",
            Probability::from_f64(fill),
            loss.segments as f64
        )
    })
}

fn findings(facts: &Facts<'_>, measured: &MeasuredFigures, datagrams: Datagrams) -> Vec<Finding> {
    let log = facts.transfer;
    let (offered, size) = sent_as(log, datagrams);
    let of_order = log.offered.map_or_else(String::new, |order| format!(" (set to: {order})"));
    let mut evidence = Vec::new();
    if let (Some(lost), Some(share)) = (datagrams.lost, datagrams.lost_share()) {
        evidence.push(format!(
            "the test sent {offered}{of_order} in datagrams of {} bytes, and {} arrived",
            size.get(),
            measured.mean
        ));
        let loss = LossEstimate::new(lost, datagrams.total);
        evidence.push(format!(
            "{lost} of {} datagrams were lost: {} (95 %: {} to {})",
            datagrams.total, loss.rate, loss.low, loss.high
        ));
        if lost > 0 && share < loss::CARRIED {
            evidence.push(
                "this loss is small for UDP but large for TCP: a few losses in a million packets slow a \
                 loss-based sender on a long path"
                    .into(),
            );
        }
    }
    evidence.extend(on_paper(facts, measured));
    evidence.extend(datagrams.jitter.map(|jitter| format!("the jitter at the receiver is {jitter}")));
    evidence.extend(datagrams.out_of_order.map(|late| match late {
        0 => "no datagrams arrived out of order".to_owned(),
        1 => "1 datagram arrived out of order; TCP would treat a very late one as lost".to_owned(),
        _ => format!("{late} datagrams arrived out of order; TCP would treat very late ones as lost"),
    }));
    let mut could_not_tell = vec![
        "the effect of windows, socket buffers and congestion control, which UDP does not have; they limit \
         most slow TCP transfers, and a UDP test that fills the link hides them"
            .to_owned(),
        "the round-trip time, because UDP has no acknowledgements".to_owned(),
    ];
    could_not_tell.extend(too_coarse(facts, measured));
    let tcp = match facts.path.link {
        Some(_) => "repeat over TCP: iperf3 -c HOST -t 30 -J, without -u",
        None => "repeat over TCP: iperf3 -c HOST -t 30 -J, without -u; and give --link RATE",
    };
    let base = Finding {
        limit: Limit::App,
        what: String::new(),
        share: 1.0,
        confidence: Confidence::Low,
        ceiling: Some(measured.mean),
        evidence,
        could_not_tell,
        next_test: Some(tcp.into()),
    };
    match datagrams.lost_share() {
        None => vec![Finding {
            what: "this is a UDP test whose log lacks the receiver's counts".into(),
            ceiling: None,
            next_test: Some(format!("use the receiver's log, or let the test run to its end; then {tcp}")),
            ..base
        }],
        Some(share) if share < loss::CARRIED => vec![Finding {
            what: match datagrams.lost {
                Some(0) => "all datagrams of this UDP test arrived, which shows nothing about TCP".into(),
                _ => format!(
                    "{:.2} % of the datagrams of this UDP test arrived, which shows nothing about \
                              TCP",
                    100.0 * (1.0 - share)
                ),
            },
            confidence: Confidence::Certain,
            ..base
        }],
        Some(_) => lossy(facts, measured, base),
    }
}

/// Returns the findings for a test in which less arrived than was sent: the path or the receiving host drops
/// datagrams.
fn lossy(facts: &Facts<'_>, measured: &MeasuredFigures, base: Finding) -> Vec<Finding> {
    let arrived = measured.mean;
    let near_line = |link: Rate| arrived.as_bps() as f64 >= link::FULL_OVER_UDP * link.as_bps() as f64;
    let mut path = Finding {
        limit: Limit::Link,
        what: "the path drops part of a UDP stream".into(),
        confidence: if facts.path.link.is_some_and(near_line) { Confidence::High } else { Confidence::Low },
        ..base
    };
    path.could_not_tell.push(
        "whether a full link, a policer or transmission errors cause the losses; at a lower rate (-b), only \
         transmission errors remain"
            .into(),
    );
    let receiver = Finding {
        limit: Limit::ReceiverApp,
        what: "the receiving host drops datagrams that arrived".into(),
        confidence: Confidence::Low,
        could_not_tell: Vec::new(),
        next_test: Some(
            "run nstat -az UdpRcvbufErrors on the receiver before and after the test, then repeat with \
             iperf3 -w 4M"
                .into(),
        ),
        ..path.clone()
    };
    vec![path, receiver]
}
