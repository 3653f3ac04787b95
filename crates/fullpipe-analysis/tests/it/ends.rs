//! Transfers with several streams, and transfers received by this host: the diagnosis finds the same limit as
//! for one sending stream, or reports what one endpoint cannot observe.

use crate::case::Case;
use fullpipe_analysis::classify::Confidence;
use fullpipe_analysis::input::{received, trace as rows};
use fullpipe_analysis::measurement::Format;
use fullpipe_analysis::{Findings, HostFacts, Limit, Measurement, RateOption};
use fullpipe_lab::experiment::Experiment;
use fullpipe_lab::sim;
use fullpipe_lab::trace::{self, Row};
use fullpipe_units::{Duration, Rate};

const LINE: Rate = Rate::from_bps(100_000_000);
/// Link rate that no buffer in these tests can fill.
const FAST: Rate = Rate::from_bps(1_000_000_000);

/// Returns the rows of each flow of a simulated six-second test at 100 Mbit/s and 40 ms.
fn streams(count: usize, what: &str) -> Vec<Vec<Row>> {
    streams_over(LINE, count, what)
}

fn streams_over(line: Rate, count: usize, what: &str) -> Vec<Vec<Row>> {
    let text = format!(
        "name = 'ends'\nduration = '6s'\n[path]\nrate = '{}bit'\nrtt = '40ms'\nqueue = '1bdp'\n{what}\n\
         [[sample]]\nevery = '50ms'\n",
        line.as_bps()
    );
    let text = text.replace("COUNT", &count.to_string());
    let experiment = Experiment::from_toml(&text).expect("a valid experiment");
    let mut rows = Vec::new();
    sim::run_traced(&experiment.points()[0].scenario, &mut rows);
    let of = |flow: u32| rows.iter().filter(|row| row.flow == flow).map(Row::observed).collect();
    (0..count as u32).map(of).collect()
}

fn sending(streams: Vec<Vec<Row>>, link: Option<Rate>) -> Findings {
    Case::of(&at_the_sender(streams)).link(link).explain().expect("explained")
}

fn at_the_sender(streams: Vec<Vec<Row>>) -> Measurement {
    // Leave out the state of the other endpoint, which an endpoint does not know.
    let alone = |rows: Vec<Row>| rows.into_iter().map(|row| Row { receiver: None, ..row }).collect();
    let streams = streams.into_iter().map(alone).collect();
    rows::of_streams(streams, Format::Trace, Vec::new(), "").expect("a measurement")
}

/// Explains the samples of the receiving sockets.
fn receiving(streams: &[Vec<Row>], link: Option<Rate>, congestion: Option<&str>) -> Findings {
    let rtt = Some(Duration::from_millis(40));
    Case::of(&at_the_receiver(streams, congestion)).link(link).rtt(rtt).explain().expect("explained")
}

/// Returns the samples of the receiving sockets; each retransmitted segment counts as a gap in the received
/// data.
fn at_the_receiver(streams: &[Vec<Row>], congestion: Option<&str>) -> Measurement {
    let sample = |row: &Row| {
        let receiver = row.receiver.expect("it is watched");
        trace::ReceiverSample {
            at: row.at,
            flow: row.flow,
            receiver,
            window: row.sender.rwnd,
            rtt: row.sender.srtt,
            out_of_order: row.sender.retransmits,
            mss: row.sender.mss,
        }
    };
    let samples: Vec<Vec<_>> = streams.iter().map(|rows| rows.iter().map(sample).collect()).collect();
    received::of_streams(&samples, congestion).expect("a measurement")
}

fn first(findings: &Findings) -> (Limit, Confidence) {
    (findings.findings[0].limit, findings.findings[0].confidence)
}

const RWND: &str = "[host]\nrcvbuf = { fixed = '128KiB' }\n[[flow]]\ncc = 'cubic'\ncount = COUNT";
const SNDBUF: &str = "[host]\nsndbuf = { fixed = '64KiB' }\n[[flow]]\ncc = 'cubic'\ncount = COUNT";
const APP: &str = "[[flow]]\ncc = 'cubic'\ncount = COUNT\napp = { write = '5mbit' }";
const SLOW_READER: &str = "[[flow]]\ncc = 'cubic'\ncount = COUNT\napp = { read = '5mbit' }";
const CUBIC: &str = "[[flow]]\ncc = 'cubic'\ncount = COUNT";
const BBR: &str = "[[flow]]\ncc = 'bbr1'\ncount = COUNT";

/// Several streams have the same limit as one stream if each of them has that limit.
#[test]
fn streams_are_held_by_what_each_has() {
    for (what, limit) in [(RWND, Limit::Rwnd), (SNDBUF, Limit::Sndbuf), (APP, Limit::App)] {
        let [one, four] = [1, 4].map(|count| sending(streams_over(FAST, count, what), Some(FAST)));
        assert_eq!((first(&one).0, first(&four).0), (limit, limit), "{what}");
        assert_eq!((one.measured.streams, four.measured.streams), (1, 4));
        let ratio = four.measured.steady.as_bps() as f64 / one.measured.steady.as_bps() as f64;
        assert!((3.5..4.3).contains(&ratio), "{ratio:.2} times one stream: {what}");
        let told = &four.findings[0].evidence[0];
        assert!(told.starts_with("this limit applied to 4 of 4 streams, for "), "{told}");
        assert!(
            four.notes.iter().any(|note| note.starts_with("each of the 4 streams carried ")),
            "{:?}",
            four.notes
        );
    }
}

/// One of four streams sees the link as a fixed rate; if the streams are judged together, they fill the link,
/// whether or not the link rate is known.
#[test]
fn streams_share_a_line() {
    for what in [CUBIC, BBR] {
        for link in [Some(LINE), None] {
            let found = sending(streams(4, what), link);
            assert_eq!(first(&found).0, Limit::Link, "{link:?}, {what}: {:#?}", found.findings);
            assert_eq!(first(&found).1 == Confidence::Certain, link.is_some());
            assert!(found.findings[0].share > 0.7, "{}", found.findings[0].share);
        }
    }
}

/// From the receiver, the diagnosis finds the same limits as from the sender if they are observable there,
/// and judges better whether the receiving application keeps up.
#[test]
fn a_receiving_end_names_the_same_limit() {
    for count in [1, 3] {
        let rwnd = streams(count, RWND);
        assert_eq!(first(&receiving(&rwnd, Some(LINE), None)), (Limit::Rwnd, Confidence::Certain));
        assert_eq!(first(&sending(rwnd, Some(LINE))).0, Limit::Rwnd);
        let slow = receiving(&streams(count, SLOW_READER), Some(LINE), None);
        assert_eq!(first(&slow), (Limit::ReceiverApp, Confidence::Certain));
        let full = receiving(&streams(count, CUBIC), Some(LINE), Some("cubic"));
        assert_eq!(first(&full).0, Limit::Link);
    }
    let lossy = streams(1, "loss = '1%'\n[[flow]]\ncc = 'cubic'\ncount = COUNT");
    assert_eq!(first(&receiving(&lossy, Some(LINE), Some("cubic"))), (Limit::Cwnd, Confidence::High));
    assert_eq!(first(&sending(lossy, Some(LINE))).0, Limit::Cwnd);
}

/// The receiver cannot observe the sender's buffer and application, and the report says so.
#[test]
fn what_a_receiving_end_cannot_know_is_said() {
    for what in [SNDBUF, APP] {
        let found = receiving(&streams_over(FAST, 1, what), Some(FAST), Some("cubic"));
        let finding = &found.findings[0];
        assert_eq!(finding.confidence, Confidence::Low, "{finding:#?}");
        assert!(finding.could_not_tell[0].contains("neither Cwnd nor the send buffer"), "{finding:#?}");
        assert!(found.findings.iter().all(|finding| finding.limit != Limit::Rwnd), "its own window has room");
    }
}

/// Input that cannot be explained is rejected with one line: streams without data, and too few samples.
#[test]
fn too_little_is_no_measurement() {
    let nothing = rows::of_streams(vec![Vec::new(); 3], Format::Trace, Vec::new(), "").expect_err("nothing");
    assert!(nothing.message.contains("for a measurement"), "{nothing}");
    assert!(received::of_streams(&[], None).is_err());
    // If one of two streams delivers nothing, the other stream is explained, and a note reports the stream
    // without data.
    let mut two = streams(2, RWND);
    two[1].truncate(2);
    let trace = rows::of_streams(two, Format::Trace, Vec::new(), "").expect("one of them");
    assert_eq!((trace.rows().len(), trace.transfer().streams), (1, 1));
    assert!(trace.origin.notes[0].starts_with("1 of 2 streams"), "{:?}", trace.origin.notes);
}

fn rows_of(samples: Vec<Row>) -> Measurement {
    rows::of_rows(samples, Format::Trace, Vec::new(), "").expect("a measurement")
}

/// The ladder for a link of many gigabits per second is simulated over fewer round trips, so that it takes
/// acceptable time, and an assumption says so. Between two endpoints on one host there is no ladder.
#[test]
fn a_fast_path_has_its_ladder_in_time() {
    let rows = streams(1, RWND);
    // The same transfer on a path with a hundredth of the RTT and a hundred times the rate.
    let short = |row: Row| {
        let mut row = row;
        let shorter = |rtt: Duration| rtt / 100;
        (row.sender.srtt, row.sender.min_rtt) =
            (row.sender.srtt.map(shorter), row.sender.min_rtt.map(shorter));
        row.sender.delivered = row.sender.delivered.mul_div(100, 1);
        row
    };
    let rows: Vec<Row> = rows[0].iter().cloned().map(short).collect();
    let trace = rows_of(rows);
    let link = Some(Rate::from_bps(10_000_000_000));
    let diagnosis = Case::of(&trace).link(link).diagnose().expect("diagnosed");
    assert!(diagnosis.ladder.len() > 2, "{:#?}", diagnosis.ladder);
    let said = diagnosis.assumptions.iter().find(|line| line.starts_with("simulated over "));
    // Ten seconds, the usual minimum, would require hundreds of millions of packets over all runs.
    assert!(said.is_some_and(|line| line.contains("ms instead of the log's")), "{said:?}");
    let one = HostFacts { same_host: true, ..HostFacts::default() };
    let here = Case::of(&trace).hosts(one).diagnose().expect("diagnosed");
    assert!(
        here.ladder.is_empty()
            && here
                .notes
                .iter()
                .any(|note| note.starts_with("fullpipe simulates no ladder, because both ends"))
    );
    assert!(here.findings.iter().all(|finding| finding.confidence == Confidence::Low));
    // The ladder for a link that is too fast to simulate has only its first and its last rung.
    let link = Some(Rate::from_bps(400_000_000_000));
    let slow = rows_of(streams(1, RWND).remove(0));
    let rtt = Some(Duration::from_millis(40));
    let fast = Case::of(&slow).link(link).rtt(rtt).diagnose().expect("diagnosed");
    assert_eq!(fast.ladder.len(), 2, "{:#?}", fast.ladder);
    assert!(
        fast.notes
            .iter()
            .any(|note| note.starts_with("not simulated, because runs of one connection at 400 Gbit/s take")),
        "{:?}",
        fast.notes
    );
}

fn with_option(line: &str) -> HostFacts {
    let arguments: Vec<String> = line.split(' ').map(String::from).collect();
    let rate_option = RateOption::in_command_line(&arguments);
    assert!(rate_option.is_some(), "{line}");
    HostFacts { rate_option, ..HostFacts::default() }
}

/// If the application limits its rate by an option, the finding and the first remedy name that option.
#[test]
fn an_application_with_a_rate_option_is_told_to_leave_it_out() {
    let upload = at_the_sender(streams(1, APP));
    let case = Case::of(&upload).link(Some(LINE));
    let limited = case.clone().hosts(with_option("curl -T f --limit-rate 625k http://h/"));
    let diagnosis = limited.diagnose().expect("diagnosed");
    let finding = &diagnosis.findings[0];
    assert_eq!(finding.limit, Limit::App);
    assert_eq!(finding.evidence[0], "curl runs with --limit-rate 625k, which limits its own rate");
    let remedy = diagnosis.ladder[1].remedies.commands().next().expect("a command");
    assert_eq!(remedy.run, "run curl without --limit-rate 625k");
    assert_eq!(finding.next_test.as_ref(), Some(&remedy.run));
    // Without the option, the report does not know why the application limits its rate.
    let unknown = case.diagnose().expect("diagnosed");
    assert!(unknown.ladder.iter().all(|rung| rung.remedies.0.is_empty()), "{:#?}", unknown.ladder);

    let rtt = Some(Duration::from_millis(40));
    let download = at_the_receiver(&streams(1, SLOW_READER), None);
    let case = Case::of(&download).link(Some(LINE)).rtt(rtt).hosts(with_option("wget --limit-rate=625k h"));
    let found = case.explain().expect("explained");
    assert_eq!(first(&found), (Limit::ReceiverApp, Confidence::Certain));
    assert_eq!(found.findings[0].next_test.as_deref(), Some("run wget without --limit-rate 625k"));
}

/// An option explains only a limit of the application.
#[test]
fn a_rate_option_explains_no_other_limit() {
    let case = Case::of(&at_the_sender(streams(1, RWND))).link(Some(LINE));
    let found = case.explain().expect("explained");
    let limited = case.hosts(with_option("scp -l 800000 f h:")).explain().expect("explained");
    assert_eq!(first(&found).0, Limit::Rwnd);
    assert_eq!(limited.findings[0], found.findings[0]);
}
