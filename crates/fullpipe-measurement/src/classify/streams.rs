//! Classifies the parallel streams of one transfer together.
//!
//! ```text
//!   rows of each stream ──► rules ──► app, sndbuf, rwnd, pacing, slow_start: limits of the stream
//!            │                 └────► cwnd, cap, policer, link: limits of the shared path ─┐
//!            ▼ added                                                                       ▼
//!   rows of the sum ──► rules of the path ──────────────────────────────────────► the verdict of each stream
//! ```
//!
//! Each stream has its own windows and buffers, so it is classified from its own rows. The link is shared:
//! one of ten streams sees its tenth of the link as a fixed rate, like that of a policer, and this rate
//! varies with the other streams. The rules of the path are therefore applied to the sum of the streams. The
//! time of each limit is summed over the streams.

use fullpipe_lab::trace::{Row, TcpInfo};
use fullpipe_units::{Bytes, Duration, Instant, Rate};

use super::rules::by_path;
use super::spans::{self, Verdict};
use super::window::Flow;
use super::{
    Basis, Classification, Confidence, Finding, JudgedRows, Limit, Past, SocketFacts, evidence, losses,
};
use crate::loss_estimate::LossEstimate;

/// Classifies the limits of streams that were sampled at the same times, as one transfer.
pub fn classify_streams(streams: &[&[Row]], host: &SocketFacts) -> Classification {
    let (past, sum) = (Past::default(), added(streams));
    let whole = Flow::after(&past, spans::lifetime(&sum), host);
    let path: Vec<(Limit, Confidence)> = (0..whole.rows.len()).map(|at| by_path(&whole, at)).collect();
    let flows: Vec<Flow<'_>> =
        streams.iter().map(|rows| Flow::after(&past, spans::lifetime(rows), host)).collect();
    let judged: Vec<JudgedRows<'_>> = flows
        .iter()
        .map(|flow| {
            let mut judged = JudgedRows::of(flow, Instant::ZERO, Instant::FAR_FUTURE);
            for (row, verdict) in judged.rows.iter().skip(1).zip(&mut judged.verdicts) {
                let at = whole.rows.partition_point(|of_sum| of_sum.at < row.at);
                *verdict = on_shared_path(*verdict, path.get(at).copied());
            }
            judged
        })
        .collect();
    let (verdicts, of_each) = (most_common(&whole, &judged), flows.iter().zip(&judged));
    let findings: Vec<Vec<Finding>> =
        of_each.map(|(flow, judged)| evidence::findings(flow, judged, Instant::ZERO).collect()).collect();
    let together = JudgedRows { rows: whole.rows, verdicts };
    let of_sum: Vec<Finding> = evidence::findings(&whole, &together, Instant::ZERO).collect();
    let findings = merged(&findings, &judged, &of_sum);
    let first = findings.first().map(|finding| finding.limit);
    let losses = flows.iter().map(|flow| losses::of_path(flow, first));
    let loss = losses.reduce(LossEstimate::together).unwrap_or_else(|| LossEstimate::new(0, 0));
    Classification {
        intervals: spans::merged(together.rows, &together.verdicts, Basis::Inferred),
        findings,
        is_rate_based: flows.iter().any(|flow| flow.by_rate),
        loss,
        notes: flows.first().map(evidence::notes).unwrap_or_default(),
    }
}

/// Corrects the limit of one stream that shares the link with unsampled streams: a fixed rate then more
/// likely comes from the shared link than from a policer.
pub const fn of_one_of_several(limit: Limit, confidence: Confidence) -> (Limit, Confidence) {
    match limit {
        Limit::Cap | Limit::Policer => (Limit::Link, Confidence::Low),
        _ => (limit, confidence),
    }
}

/// Replaces a stream's congestion-control limit with the limit of the shared path.
fn on_shared_path(own: Verdict, path: Option<(Limit, Confidence)>) -> Verdict {
    let (limit, confidence) = match (own.limit, path) {
        (Limit::Cwnd | Limit::Cap | Limit::Policer | Limit::Link, Some((Limit::Cwnd, _)) | None) => {
            of_one_of_several(own.limit, own.confidence)
        }
        (Limit::Cwnd | Limit::Cap | Limit::Policer | Limit::Link, Some(shared)) => shared,
        _ => (own.limit, own.confidence),
    };
    Verdict { limit, confidence }
}

/// Returns, for each row of the sum, the most common limit of the streams, with the lowest confidence among
/// those streams.
fn most_common(whole: &Flow<'_>, judged: &[JudgedRows<'_>]) -> Vec<Verdict> {
    let at = |row: &Row| {
        let mut counted: Vec<(usize, Verdict)> = Vec::new();
        for judged in judged {
            let next = judged.rows.partition_point(|own| own.at < row.at);
            let Some(verdict) = next.checked_sub(1).and_then(|nth| judged.verdicts.get(nth)) else {
                continue;
            };
            match counted.iter_mut().find(|(_, known)| known.limit == verdict.limit) {
                Some((count, known)) => {
                    (*count, known.confidence) = (*count + 1, known.confidence.min(verdict.confidence));
                }
                None => counted.push((1, *verdict)),
            }
        }
        counted.into_iter().max_by_key(|(count, _)| *count).map(|(_, verdict)| verdict)
    };
    let none = Verdict { limit: Limit::App, confidence: Confidence::Low };
    whole.rows.iter().skip(1).map(|row| at(row).unwrap_or(none)).collect()
}

/// Returns one finding per limit, longest first. The text of a finding comes from the stream to which the
/// limit applied longest or, for a limit of the shared path, from the sum of the streams.
fn merged(of_each: &[Vec<Finding>], judged: &[JudgedRows<'_>], of_sum: &[Finding]) -> Vec<Finding> {
    let lives: Vec<f64> = judged.iter().map(|judged| life(judged).as_secs_f64()).collect();
    let all: f64 = lives.iter().sum();
    let mut merged = Vec::new();
    for limit in Limit::ALL {
        let with = of_each.iter().zip(&lives).enumerate().filter_map(|(nth, (findings, life))| {
            findings.iter().find(|finding| finding.limit == limit).map(|finding| (nth, finding, *life))
        });
        let with: Vec<(usize, &Finding, f64)> = with.collect();
        let time = |&(_, finding, life): &(usize, &Finding, f64)| finding.share * life;
        let Some(&(nth, longest, _)) = with.iter().max_by(|a, b| time(a).total_cmp(&time(b))) else {
            continue;
        };
        let shared = matches!(limit, Limit::Link | Limit::Cap | Limit::Policer);
        let sum = of_sum.iter().find(|finding| finding.limit == limit).filter(|_| shared);
        let shares = with.iter().map(|(_, finding, _)| finding.share);
        let (least, most) = (shares.clone().fold(1.0, f64::min), shares.fold(0.0, f64::max));
        let mut finding = sum.unwrap_or(longest).clone();
        finding.share = if all > 0.0 { with.iter().map(time).sum::<f64>() / all } else { 0.0 };
        if sum.is_none() {
            // Ceilings are summed only if every stream has one.
            let ceilings = with.iter().filter_map(|(_, finding, _)| finding.ceiling).map(Rate::as_bps);
            finding.ceiling =
                (ceilings.clone().count() == of_each.len()).then(|| Rate::from_bps(ceilings.sum()));
            finding.evidence.iter_mut().for_each(|line| *line = format!("stream {}: {line}", nth + 1));
        }
        let held = format!(
            "this limit applied to {} of {} streams, for {:.0} to {:.0} % of their time",
            with.len(),
            of_each.len(),
            100.0 * least,
            100.0 * most
        );
        finding.evidence.insert(0, held);
        merged.push(finding);
    }
    merged.sort_by(|a, b| b.share.total_cmp(&a.share));
    merged
}

fn life(judged: &JudgedRows<'_>) -> Duration {
    let ends = judged.rows.first().zip(judged.rows.last());
    ends.map_or(Duration::ZERO, |(first, last)| last.at.saturating_since(first.at))
}

/// Adds the streams up to one sender: amounts are summed, and the smoothed RTT is a mean weighted by data in
/// flight.
fn added(streams: &[&[Row]]) -> Vec<Row> {
    let Some(longest) = streams.iter().max_by_key(|rows| rows.len()) else { return Vec::new() };
    let mut next = vec![0usize; streams.len()];
    let at = |row: &Row| {
        let mut same: Vec<&TcpInfo> = Vec::with_capacity(streams.len());
        for (rows, next) in streams.iter().zip(&mut next) {
            while rows.get(*next + 1).is_some_and(|later| later.at <= row.at) {
                *next += 1;
            }
            same.extend(rows.get(*next).map(|row| &row.sender));
        }
        Row {
            at: row.at,
            flow: row.flow,
            sender: sum(&same, &row.sender),
            receiver: None,
            path: None,
            truth: None,
        }
    };
    longest.iter().map(at).collect()
}

fn sum(all: &[&TcpInfo], like: &TcpInfo) -> TcpInfo {
    let bytes = |of: fn(&TcpInfo) -> Bytes| all.iter().fold(Bytes::ZERO, |sum, one| sum + of(one));
    let rate = |of: fn(&TcpInfo) -> Option<Rate>| {
        all.iter().filter_map(|one| of(one)).map(Rate::as_bps).reduce(u64::saturating_add).map(Rate::from_bps)
    };
    let (mut weight, mut round_trips) = (0.0, 0.0);
    for (one, srtt) in all.iter().filter_map(|one| Some((one, one.srtt?))) {
        let flight = one.flight_size.get().max(1) as f64;
        (weight, round_trips) = (weight + flight, round_trips + flight * srtt.as_secs_f64());
    }
    TcpInfo {
        cwnd: bytes(|one| one.cwnd),
        ssthresh: None,
        inflight: bytes(|one| one.inflight),
        flight_size: bytes(|one| one.flight_size),
        rwnd: bytes(|one| one.rwnd),
        pacing_rate: rate(|one| one.pacing_rate),
        max_pacing_rate: None,
        delivery_rate: rate(|one| one.delivery_rate),
        app_limited: all.iter().all(|one| one.app_limited),
        srtt: (weight > 0.0).then(|| Duration::from_secs_f64(round_trips / weight)),
        min_rtt: all.iter().filter_map(|one| one.min_rtt).min(),
        delivered: bytes(|one| one.delivered),
        retransmits: all.iter().fold(0, |sum, one| sum.saturating_add(one.retransmits)),
        dsack_dups: all.iter().fold(0, |sum, one| sum.saturating_add(one.dsack_dups)),
        recovering: all.iter().any(|one| one.recovering),
        notsent: bytes(|one| one.notsent),
        sndbuf: bytes(|one| one.sndbuf),
        sndbuf_used: bytes(|one| one.sndbuf_used),
        bbr: None,
        ..*like
    }
}
