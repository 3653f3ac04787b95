//! Explains a trace or a capture: combines the classifier's findings with the figures of a log.

use fullpipe_lab::trace::Row;
use fullpipe_measurement::classify::{
    Classification, agreement, classify, classify_capture, classify_streams, exact,
};
use fullpipe_measurement::measurement::packets::Packets;
use fullpipe_measurement::thresholds::time;
use fullpipe_tcp::buffers::WindowRule;
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Bytes, Rate};

use super::assumption::{Assumption, CongestionControlBasis, sentences};
use super::series::Series;
use super::undecided::{Observed, Undecided};
use super::{
    BufferSource, Buffers, Confidence, Explainer, Facts, Finding, Findings, Limit, MeasuredFigures, Sender,
};

/// Explains the flows of a trace.
pub(super) fn explain(facts: &Facts<'_>, series: &Series, measured: MeasuredFigures) -> Findings {
    let host = facts.hosts.of_sockets(facts.measurement, &facts.path);
    let streams = facts.measurement.rows();
    let mut classification = match streams.as_slice() {
        [rows] => classify(rows, &host),
        streams => classify_streams(streams, &host),
    };
    if facts.measurement.is_snapshot() {
        classification.findings.iter_mut().for_each(of_one_sample);
    }
    if facts.hosts.same_host {
        classification.findings.iter_mut().for_each(of_one_host);
    }
    let explainer = Explainer::new(facts, series, measured, Some(&classification));
    let Explainer { buffers, assumptions, mut notes, cap, .. } = explainer;
    notes.extend(facts.measurement.origin.notes.iter().cloned());
    notes.extend(classification.notes.iter().cloned());
    notes.extend(shared(&streams, classification.findings.first()));
    // A simulated trace also contains the exact limits, which show how far the socket state agrees with them.
    if let Some(agreed) = streams
        .first()
        .and_then(|rows| exact(rows))
        .and_then(|truth| agreement(&truth, &classification.intervals))
    {
        notes.push(format!(
            "the trace also contains the sender's internal state and the state of the path; the limit \
             derived from these agrees with this diagnosis for {:.0} % of the time",
            100.0 * agreed
        ));
    }
    findings(facts, measured, classification, Background { buffers, cap, assumptions, notes })
}

/// Explains the connection of a capture.
pub(super) fn explain_capture(
    facts: &Facts<'_>,
    series: &Series,
    measured: MeasuredFigures,
    packets: &Packets,
) -> Findings {
    let classification = classify_capture(packets, facts.path.link);
    let explainer = Explainer::new(facts, series, measured, None);
    let Explainer { buffers, mut assumptions, mut notes, cap, .. } = explainer;
    notes.extend(classification.notes.iter().cloned());
    if !classification.is_rate_based {
        // The assumption derived from the series applies only to logs without packets.
        assumptions.retain(|assumed| !matches!(assumed, Assumption::CongestionControl(..)));
        let of_packets = Assumption::CongestionControl(Algorithm::Cubic, CongestionControlBasis::Packets);
        assumptions.insert(0, of_packets);
    }
    findings(facts, measured, classification, Background { buffers, cap, assumptions, notes })
}

/// Facts for an explanation that the classification does not contain.
struct Background {
    buffers: Buffers,
    cap: Option<Rate>,
    assumptions: Vec<Assumption>,
    notes: Vec<String>,
}

fn findings(
    facts: &Facts<'_>,
    measured: MeasuredFigures,
    found: Classification,
    told: Background,
) -> Findings {
    let Background { buffers, cap, assumptions, notes } = told;
    let named = facts.transfer.congestion_control.as_deref().and_then(|name| name.parse().ok());
    let inferred = if found.is_rate_based { Algorithm::Bbr1 } else { Algorithm::Cubic };
    let first = found.findings.first();
    let policed = first
        .filter(|finding| matches!(finding.limit, Limit::Cap | Limit::Policer))
        .and_then(|finding| finding.ceiling);
    let observed = if facts.measurement.packets().is_some() { Observed::Packets } else { Observed::Socket };
    Findings {
        cap: cap.or(policed),
        undecided: Undecided::of_times(&found.findings, observed),
        findings: found.findings,
        excluded: Vec::new(),
        measured,
        loss: Some(found.loss),
        sender: named.map_or(Sender::Inferred(inferred), Sender::Named),
        buffers,
        limits: found.intervals,
        assumptions: sentences(&assumptions),
        notes,
    }
}

/// Lowers the confidence of a finding if both endpoints are on one host: the RTT is only microseconds, and
/// one host does the work of both endpoints.
fn of_one_host(finding: &mut Finding) {
    finding.confidence = Confidence::Low;
    finding.could_not_tell.insert(
        0,
        "whether the processor is busy with both ends, because round trips take microseconds, and samples \
         miss most of them"
            .into(),
    );
}

/// Lowers the confidence of a finding from a single sample, which shows neither how long a state lasted nor
/// its cause.
pub(super) fn of_one_sample(finding: &mut Finding) {
    let open = match finding.limit {
        Limit::App => "whether the application writes slowly, or was sampled between two writes",
        Limit::Rwnd | Limit::ReceiverApp => {
            "whether the window is constant, as with a small receive buffer, or shrinks, as with a slow application"
        }
        Limit::Sndbuf => "whether autotuning still grows the buffer",
        Limit::Cwnd | Limit::SlowStart => {
            "whether random loss or a policer limits the congestion window, or the window still grows"
        }
        Limit::Pacing => "whether the pacing limit was set by the application or changes",
        Limit::Cpu => "whether the processor is busy all the time",
        Limit::Cap | Limit::Policer | Limit::Link => "whether the rate is as steady as that of a full link",
        Limit::Unknown => "what limits the rate",
    };
    finding.confidence = Confidence::Low;
    finding.could_not_tell.insert(0, format!("{open}, because there is only one sample"));
    finding.next_test = Some("sample for several seconds: while sleep 0.1; do ss -tmi; done".into());
}

/// Describes how parallel streams share the limit: some limits apply to each stream, others to all streams
/// together.
fn shared(streams: &[&[Row]], first: Option<&Finding>) -> Option<String> {
    let finding = first?;
    let rate = |rows: &&[Row]| {
        let (first, last) = (rows.first()?, rows.last()?);
        let span = last.at.saturating_since(first.at);
        (!span.is_zero())
            .then(|| Rate::of(last.sender.delivered.saturating_sub(first.sender.delivered), span))
    };
    let rates: Vec<Rate> = streams.iter().filter_map(rate).collect();
    let (least, most) = (rates.iter().min()?, rates.iter().max()?);
    let of_each = match finding.limit {
        Limit::Rwnd | Limit::Sndbuf => {
            "each stream has its own window and buffer, so more streams reach a higher total rate"
        }
        Limit::Cwnd | Limit::SlowStart => {
            "each stream has its own congestion window, and a loss reduces only one of them"
        }
        Limit::Pacing => "the pacing limit applies to each stream",
        Limit::App | Limit::ReceiverApp => "one application serves all streams",
        Limit::Cpu => "the streams may share one processor",
        Limit::Cap | Limit::Policer | Limit::Link => {
            "the streams share this limit, so more streams would \
            gain nothing"
        }
        Limit::Unknown => "whether the streams share a limit is not observable here",
    };
    (streams.len() > 1)
        .then(|| format!("each of the {} streams carried {least} to {most}; {of_each}", streams.len()))
}

/// Returns the buffers, with sizes from the rows if these show more than `base`.
pub(super) fn buffers(base: Buffers, streams: &[&[Row]], classification: &Classification) -> Buffers {
    let held = |limit: Limit| {
        classification
            .findings
            .iter()
            .any(|finding| finding.limit == limit && finding.share >= time::SHOWS_A_BUFFER)
    };
    let rows = || streams.iter().copied().flatten();
    let largest = |of: fn(&Row) -> Option<Bytes>| rows().filter_map(of).max().unwrap_or_default();
    let sndbuf = largest(|row| Some(row.sender.sndbuf));
    let window = largest(|row| Some(row.sender.rwnd));
    let rcvbuf = largest(|row| row.receiver.map(|receiver| receiver.rcvbuf));
    let mut known = base;
    // A buffer that never grew to the limit of autotuning, although it limited the flow, was set by
    // a program.
    let constant = |of: fn(&Row) -> Option<Bytes>| {
        let mut sizes = rows().filter_map(of);
        let first = sizes.next();
        sizes.all(|size| Some(size) == first)
    };
    known.sndbuf_fixed = held(Limit::Sndbuf)
        && base.sndbuf_source == BufferSource::Dump
        && sndbuf < base.sndbuf
        && constant(|row| Some(row.sender.sndbuf));
    known.rcvbuf_fixed = held(Limit::Rwnd)
        && base.rcvbuf_source == BufferSource::Dump
        && !rcvbuf.is_zero()
        && rcvbuf < base.rcvbuf
        && constant(|row| row.receiver.map(|receiver| receiver.rcvbuf));
    if held(Limit::Sndbuf) || sndbuf > base.sndbuf {
        (known.sndbuf, known.sndbuf_source) = (sndbuf, BufferSource::Trace);
    }
    if held(Limit::Rwnd) && !rcvbuf.is_zero() && window <= rcvbuf {
        // If the window and the buffer have both reached their limits, their ratio is the scaling ratio of
        // the socket.
        let ratio = 256.0 * window.get() as f64 / rcvbuf.get() as f64;
        known.rule = WindowRule::ScalingRatio((ratio.round() as u16).clamp(1, 256));
    }
    let rcvbuf = if rcvbuf.is_zero() { known.rule.space(window) } else { rcvbuf };
    if held(Limit::Rwnd) || rcvbuf > base.rcvbuf {
        (known.rcvbuf, known.rcvbuf_source) = (rcvbuf, BufferSource::Trace);
    }
    known
}
