//! Eleven situations, each designed to have one limit: from the socket state, the classifier finds the limits
//! that the simulator records, for at least 95 % of the time.
//!
//! Each situation is an experiment in `experiments/situations`, with more than one path, and with several
//! seeds where randomness matters. The exact limits are derived from the sender's own record and the state of
//! the path, neither of which is in the rows for the classifier.

use crate::situation::{Run, all, shares};
use fullpipe_analysis::classify::{Confidence, LimitPeriod, SocketFacts, agreement, classify, exact, share};
use fullpipe_analysis::{Limit, Live};
use fullpipe_lab::trace::{Row, TcpInfo};
use fullpipe_units::Duration;

/// Minimum mean agreement over the runs of a situation.
const AGREEMENT: f64 = 0.95;
/// Minimum agreement of a single run.
const LEAST: f64 = 0.94;
/// Minimum share of the exact time for which the limit of a situation must hold; the rest is the start and
/// pauses.
const DOMINANT: f64 = 0.75;

/// Minimum share of the seconds, and of the counted time, for which live classification agrees with
/// classification of the whole trace.
const LIVE: f64 = 0.85;
/// Interval at which a running flow is queried.
const SECOND: Duration = Duration::from_secs(1);

/// Returns the known facts about the hosts of a run.
fn host(run: &Run) -> SocketFacts {
    SocketFacts { link: Some(run.line()), ..SocketFacts::default() }
}

/// Returns the rows with only the columns that sockets report.
fn observed(rows: &[Row]) -> Vec<Row> {
    rows.iter().map(Row::observed).collect()
}

/// Asserts that `limit` is the limit in all runs of the situation whose label satisfies `picks`, and that the
/// classifier finds it: for `AGREEMENT` of the time on average, and for at least `LEAST` of the time in each
/// run.
#[track_caller]
fn is_recognised(situation: &str, picks: impl Fn(&str) -> bool, limit: Limit) {
    let mut told = Vec::new();
    let mut agreements = [Vec::new(), Vec::new()];
    for run in all(situation, picks) {
        let (label, host) = (&run.label, host(run));
        let truth = exact(run.rows()).expect("a simulated run has its truth");
        let named = share(&truth, limit);
        assert!(named >= DOMINANT, "{label}: {limit} is no more than {named:.2} of {}", shares(&truth));
        let every = observed(run.rows());
        // About ten rows per second, from a tool that does not read the congestion control.
        let nameless = |row: &Row| Row { sender: TcpInfo { cc: None, ..row.sender }, ..row.clone() };
        let fewer: Vec<Row> = every.iter().step_by(2).map(nameless).collect();
        told.push(format!("{label}, live: {}", live_agrees(label, &every, &host)));
        for ((rows, which), agreements) in
            [(every, "all rows"), (fewer, "every other row")].iter().zip(&mut agreements)
        {
            let found = classify(rows, &host).intervals;
            let agreed = agreement(&truth, &found).unwrap_or(0.0);
            agreements.push(agreed);
            told.push(format!(
                "{label}, {which}: {agreed:.3}; truth {}; found {}",
                shares(&truth),
                shares(&found)
            ));
        }
    }
    let told = told.join("\n");
    println!("{told}");
    for agreements in agreements {
        assert!(agreements.len() > 1, "one path is a point fit");
        let (least, sum) = agreements.iter().fold((1.0_f64, 0.0), |(least, sum), a| (least.min(*a), sum + a));
        // All runs of a situation have the same duration.
        let mean = sum / agreements.len() as f64;
        assert!(mean >= AGREEMENT && least >= LEAST, "{mean:.3}, and at least {least:.3}:\n{told}");
    }
}

/// Asserts that live classification agrees with classification of the whole trace for at least 85 %: in each
/// second while the flow is running, and in the time counted for each limit at the end. A policer is an
/// exception, because only several losses reveal it, and a running flow keeps only some of its older rows. In
/// this situation, the last second must name a policer or a cap. Returns the agreement in words.
#[track_caller]
fn live_agrees(label: &str, rows: &[Row], host: &SocketFacts) -> String {
    let whole = classify(rows, host).intervals;
    let mut live = Live::new(*host);
    let (mut asked, mut same, mut capped) = (0, 0, false);
    let mut from = rows[0].at;
    for row in rows {
        live.push(row);
        if row.at.saturating_since(from) < SECOND {
            continue;
        }
        let second = |interval: &LimitPeriod| {
            (interval.limit, interval.to.min(row.at).saturating_since(interval.from.max(from)))
        };
        let told = whole.iter().map(second).filter(|(_, time)| !time.is_zero());
        if let Some((limit, _)) = told.max_by_key(|(_, time)| *time) {
            let held = live.held_since(from).map(|held| held.limit);
            let last = held == Some(limit);
            capped = matches!(held, Some(Limit::Policer | Limit::Cap));
            asked += 1;
            same += u32::from(last);
        }
        from = row.at;
    }
    let counted = live.times();
    let all: f64 = whole.iter().map(|interval| interval.length().as_secs_f64()).sum();
    let alike = counted.iter().map(|(limit, time)| time.as_secs_f64().min(share(&whole, *limit) * all));
    let alike = alike.sum::<f64>() / all;
    let said = format!("{same} of {asked} seconds, {alike:.3} of the counted time");
    if label.contains("policer") {
        assert!(capped, "{label}: {said}");
    } else {
        assert!(f64::from(same) >= LIVE * f64::from(asked) && alike >= LIVE, "{label}: {said}");
    }
    said
}

fn any(_: &str) -> bool {
    true
}

#[test]
fn the_send_buffer() {
    is_recognised("sndbuf", any, Limit::Sndbuf);
}

#[test]
fn the_receivers_window() {
    is_recognised("rwnd", any, Limit::Rwnd);
}

#[test]
fn the_receiving_application() {
    is_recognised("receiver-app", any, Limit::ReceiverApp);
}

#[test]
fn the_sending_application() {
    is_recognised("app", any, Limit::App);
}

#[test]
fn loss_of_a_loss_based_sender() {
    is_recognised("loss-cubic", any, Limit::Cwnd);
}

/// A few percent of loss do not affect BBR: it fills the link.
#[test]
fn loss_that_bbr_bears() {
    is_recognised("loss-bbr", |label| !label.contains("loss=25%"), Limit::Link);
}

/// A loss of a quarter is too much: BBR's bandwidth estimate shrinks.
#[test]
fn loss_that_bbr_does_not_bear() {
    is_recognised("loss-bbr", |label| label.contains("loss=25%"), Limit::Cwnd);
}

#[test]
fn a_link_with_a_deep_queue() {
    is_recognised("link", any, Limit::Link);
}

#[test]
fn a_cap_on_pacing() {
    is_recognised("pacing", any, Limit::Pacing);
}

#[test]
fn slow_start_of_a_short_flow() {
    is_recognised("slow-start", any, Limit::SlowStart);
}

#[test]
fn a_policer_of_the_flow() {
    is_recognised("policer", any, Limit::Policer);
}

#[test]
fn a_shaper_of_the_flow() {
    is_recognised("shaper", any, Limit::Cap);
}

/// Without the receiver's Recv-Q, a small window and a slow reader differ only in the pattern of the window.
/// The finding has low confidence, says so, and names the test that would settle the question.
#[test]
fn one_end_alone_says_what_it_cannot_tell() {
    for (situation, limit) in [("rwnd", Limit::Rwnd), ("receiver-app", Limit::ReceiverApp)] {
        for run in all(situation, any) {
            let label = &run.label;
            let rows: Vec<Row> =
                observed(run.rows()).into_iter().map(|row| Row { receiver: None, ..row }).collect();
            let classification = classify(&rows, &host(run));
            let finding = &classification.findings[0];
            assert_eq!((finding.limit, finding.confidence), (limit, Confidence::Low), "{label}");
            assert!(finding.could_not_tell[0].contains("Recv-Q is not known"), "{label}: {finding:?}");
            assert!(finding.next_test.as_ref().is_some_and(|test| test.contains("ss -tn")), "{label}");
        }
    }
}

/// For a single flow, a shaper looks the same as a slow link. If the link rate is unknown, the finding leaves
/// open which of them it is.
#[test]
fn a_shaper_without_the_lines_rate_is_an_open_question() {
    for run in all("shaper", any) {
        let label = &run.label;
        let classification = classify(&observed(run.rows()), &SocketFacts { link: None, ..host(run) });
        let finding = &classification.findings[0];
        assert_eq!(finding.limit, Limit::Link, "{label}");
        assert_ne!(finding.confidence, Confidence::Certain, "{label}");
        assert!(
            finding.could_not_tell.iter().any(|open| open.contains("the rate of the link is not known")),
            "{label}"
        );
    }
}
