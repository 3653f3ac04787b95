//! What a UDP test can say: how much arrived of what was sent, and how evenly. No more than that.
//!
//! UDP has no windows, no acknowledgements and no congestion control, so a line that carries any rate of
//! UDP may still carry a tenth of it over TCP. A clean UDP test is how such a fault goes unseen for years.

use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Bytes, Duration, Rate};

use super::series::Series;
use super::{Confidence, Excluded, Facts, Finding, Findings, Limit, Measured, RttSource, Sender, candidates};
use crate::input::iperf3::Datagrams;
use crate::stats::{DEFAULT_MSS, LossEstimate};

/// Less lost than this is no limit of a test at its present rate, though TCP may starve on it.
const CLEAN: f64 = 0.01;

pub(super) fn explain(facts: &Facts<'_>, series: &Series) -> Findings {
    let log = facts.log;
    let measured = Measured {
        mean: log.mean_rate(),
        steady: log.mean_rate(),
        length: log.length(),
        ramp: Duration::ZERO,
        rtt: facts.rtt.unwrap_or_default(),
        rtt_source: if facts.rtt.is_some() { RttSource::Given } else { RttSource::Unknown },
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
    if let Some(opposite) = &log.opposite {
        notes.push(format!("the other direction carried {} at the same time", opposite.mean_rate()));
    }
    if log.truncated {
        notes.push(format!("the log breaks off after {} intervals; it has no summary", log.intervals.len()));
    }
    if let Some(error) = &log.error {
        notes.push(format!("iperf3 ended with an error: {error}"));
    }
    Findings {
        findings: findings(facts, &measured, datagrams),
        excluded: Vec::<Excluded>::new(),
        buffers: candidates::buffers(facts, series, &measured, false),
        measured,
        loss: LossEstimate::of_log(log),
        sender: Sender::Assumed(Algorithm::Cubic),
        cap: None,
        assumptions: Vec::new(),
        notes,
    }
}

fn findings(facts: &Facts<'_>, measured: &Measured, datagrams: Datagrams) -> Vec<Finding> {
    let log = facts.log;
    let offered = log.sent.map_or(measured.mean, |sent| sent.rate);
    let of_order = log.offered.map_or_else(String::new, |order| format!(" (told to: {order})"));
    let mut evidence = Vec::new();
    if let (Some(lost), Some(share)) = (datagrams.lost, datagrams.lost_share()) {
        evidence.push(format!("sent {offered}{of_order}, arrived {}", measured.mean));
        let loss = LossEstimate::new(lost, datagrams.total);
        evidence.push(format!(
            "{lost} of {} datagrams were lost: {} (95 %: {} to {})",
            datagrams.total, loss.rate, loss.low, loss.high
        ));
        if lost > 0 && share < CLEAN {
            evidence.push(
                "little for UDP and much for TCP: a loss-based sender on a long path is held down by a few losses in a million"
                    .into(),
            );
        }
    }
    evidence.extend(datagrams.jitter.map(|jitter| format!("the jitter on arrival is {jitter}")));
    let could_not_tell = vec![
        "windows, socket buffers and congestion control: UDP has none of them, and they are what holds most slow TCP transfers; \
         a UDP test that fills the line hides them"
            .to_owned(),
        "the round-trip time: UDP has no acknowledgements".to_owned(),
    ];
    let tcp = match facts.link {
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
            what: "a UDP test, and what arrived is not in the log".into(),
            ceiling: None,
            next_test: Some(format!("take the receiver's log, or let the test end; then {tcp}")),
            ..base
        }],
        Some(share) if share < CLEAN => vec![Finding {
            what: match datagrams.lost {
                Some(0) => "a UDP test: all arrived, which says nothing of TCP".into(),
                _ => format!("a UDP test: {:.2} % arrived, which says nothing of TCP", 100.0 * (1.0 - share)),
            },
            confidence: Confidence::Certain,
            ..base
        }],
        Some(_) => lossy(facts, measured, base),
    }
}

/// More was sent than arrived: something on the way is full, or the receiver.
fn lossy(facts: &Facts<'_>, measured: &Measured, base: Finding) -> Vec<Finding> {
    let arrived = measured.mean;
    let near_line = |link: Rate| arrived.as_bps() as f64 >= 0.9 * link.as_bps() as f64;
    let mut path = Finding {
        limit: Limit::Link,
        what: "the path drops part of a UDP stream".into(),
        confidence: if facts.link.is_some_and(near_line) { Confidence::High } else { Confidence::Low },
        ..base
    };
    path.could_not_tell.push(
        "whether the line is full, a policer cuts, or errors strike: a lower rate (-b) tells, for errors stay and the others go"
            .into(),
    );
    let receiver = Finding {
        limit: Limit::ReceiverApp,
        what: "the receiving host drops datagrams that arrived".into(),
        confidence: Confidence::Low,
        could_not_tell: Vec::new(),
        next_test: Some(
            "on the receiver, before and after: nstat -az UdpRcvbufErrors; then iperf3 -w 4M".into(),
        ),
        ..path.clone()
    };
    vec![path, receiver]
}
