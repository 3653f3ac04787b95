//! Parallel connections of one input: if they together fill the link, the link is the limit of all of them,
//! regardless of the tool that recorded them. Otherwise each connection is judged alone.

use std::fmt::Write;

use crate::case::Case;
use crate::tapped::BothEnds;
use fullpipe_analysis::classify::Confidence;
use fullpipe_analysis::input::{iperf3, received, ss, trace as rows};
use fullpipe_analysis::measurement::Format;
use fullpipe_analysis::{Diagnosis, Limit, Measurement, render_text};
use fullpipe_lab::experiment::Experiment;
use fullpipe_lab::sim;
use fullpipe_lab::trace::{Csv, ReceiverSample, Row, Sink};
use fullpipe_units::{Duration, Rate};

const LINK: Rate = Rate::from_bps(77_000_000);
const RTT: Duration = Duration::from_millis(40);

/// Simulated connections, with a capture at the sending host.
struct Connections {
    rows: Vec<Vec<Row>>,
    ends: BothEnds,
}

/// Returns connections on a path of 40 ms, sampled like sockets.
fn connections(count: u32, link: Rate, more: &str) -> Connections {
    let text = format!(
        "name = 'parallel'\nduration = '8s'\n[path]\nrate = '{}bit'\nrtt = '40ms'\nqueue = '1bdp'\n{more}\n\
         [[sample]]\nevery = '50ms'\n",
        link.as_bps()
    );
    let experiment = Experiment::from_toml(&text).expect("a valid experiment");
    let (mut all, mut ends) = (Vec::new(), BothEnds::default());
    sim::run_tapped(&experiment.points()[0].scenario, &mut all, &mut ends);
    let of = |flow: u32| {
        all.iter()
            .filter(|row: &&Row| row.flow == flow)
            .map(|row| Row { receiver: row.receiver, ..row.observed() })
            .collect()
    };
    Connections { rows: (0..count).map(of).collect(), ends }
}

impl Connections {
    /// Returns every way in which these connections can be recorded, with its name.
    fn recorded(&self) -> [(&'static str, Measurement); 4] {
        [
            ("sockets", self.sockets()),
            ("ss", ss::parse(&self.dumps(), None).expect("dumps")),
            ("capture", self.ends.sender.read()),
            ("text", iperf3::parse(&self.log()).expect("a log")),
        ]
    }

    fn sockets(&self) -> Measurement {
        let alone: Vec<Vec<Row>> = self
            .rows
            .iter()
            .map(|rows| rows.iter().map(|row| Row { receiver: None, ..row.clone() }).collect())
            .collect();
        let others = alone[1..].iter().map(Vec::as_slice);
        rows::of_one_among(alone[0].clone(), others, Format::Sockets, Vec::new(), "").expect("a measurement")
    }

    fn receiving(&self) -> Measurement {
        let sample = |row: &Row| ReceiverSample {
            at: row.at,
            flow: row.flow,
            receiver: row.receiver.expect("it is watched"),
            window: row.sender.rwnd,
            rtt: row.sender.srtt,
            out_of_order: row.sender.retransmits,
            mss: row.sender.mss,
        };
        let samples: Vec<Vec<ReceiverSample>> =
            self.rows.iter().map(|rows| rows.iter().map(sample).collect()).collect();
        let others = samples[1..].iter().map(Vec::as_slice);
        received::of_one_among(samples[0].clone(), others).expect("a measurement")
    }

    /// Returns dumps of `ss -tmi`, twenty per second.
    fn dumps(&self) -> String {
        let mut text = String::new();
        for nth in 0..self.rows[0].len() {
            let _ = writeln!(text, "{:.3}", 1_000.0 + self.rows[0][nth].at.as_secs_f64());
            text += "State Recv-Q Send-Q  Local Address:Port  Peer Address:PortProcess\n";
            for (flow, rows) in self.rows.iter().enumerate() {
                let Some(row) = rows.get(nth) else { continue };
                let sender = &row.sender;
                let mss = sender.mss.get().max(1);
                let millis = |time: Option<Duration>| time.map_or(0.0, Duration::as_millis_f64);
                let _ = writeln!(
                    text,
                    "ESTAB 0 {} 192.0.2.1:{} 198.51.100.7:5201\n\t skmem:(r0,rb131072,t0,tb{},f0,w{},o0,bl0,d0) cubic rto:252 \
                     rtt:{:.3}/1 mss:{mss} cwnd:{} ssthresh:{} bytes_acked:{} unacked:{} retrans:0/{} delivered:{} notsent:{} \
                     minrtt:{:.3} snd_wnd:{}",
                    (sender.notsent + sender.flight_size).get(),
                    40_000 + flow,
                    sender.sndbuf.get(),
                    sender.sndbuf_used.get(),
                    millis(sender.srtt),
                    sender.cwnd.get() / mss,
                    sender.ssthresh.map_or(0, |ssthresh| ssthresh.get() / mss),
                    sender.delivered.get(),
                    sender.flight_size.get().div_ceil(mss),
                    sender.retransmits,
                    sender.delivered.get() / mss,
                    sender.notsent.get(),
                    millis(sender.min_rtt),
                    sender.rwnd.get()
                );
            }
        }
        text
    }

    /// Returns the log of iperf3 with these connections as parallel streams.
    fn log(&self) -> String {
        let mut text =
            String::from("Connecting to host h, port 5201\n[ ID] Interval Transfer Bitrate Retr Cwnd\n");
        let (mut sums, seconds) = (vec![0u64; self.rows.len()], 8);
        for second in 0..seconds {
            for (flow, rows) in self.rows.iter().enumerate() {
                let by = |second: u64| {
                    let until = rows.partition_point(|row| row.at.as_secs_f64() <= second as f64 + 0.001);
                    &rows[until.saturating_sub(1)].sender
                };
                let (from, to) = (by(second), by(second + 1));
                let bytes = to.delivered.saturating_sub(from.delivered).get();
                sums[flow] += bytes;
                let _ = writeln!(
                    text,
                    "[{:3}] {second}.00-{}.00 sec {:.3} MBytes {:.3} Mbits/sec {} {:.1} KBytes",
                    5 + 2 * flow,
                    second + 1,
                    bytes as f64 / 1_048_576.0,
                    bytes as f64 * 8e-6,
                    to.retransmits - from.retransmits,
                    to.cwnd.get() as f64 / 1_024.0
                );
            }
        }
        for (flow, bytes) in sums.iter().enumerate() {
            for end in ["0 sender", "receiver"] {
                let _ = writeln!(
                    text,
                    "[{:3}] 0.00-{seconds}.00 sec {:.3} MBytes {:.3} Mbits/sec {end}",
                    5 + 2 * flow,
                    *bytes as f64 / 1_048_576.0,
                    *bytes as f64 * 8e-6 / seconds as f64
                );
            }
        }
        text
    }
}

fn explained(name: &str, measurement: &Measurement, link: Option<Rate>) -> Diagnosis {
    // A text log contains no RTT.
    let rtt = (name == "text").then_some(RTT);
    Case::of(measurement).link(link).rtt(rtt).explained().unwrap_or_else(|e| panic!("{name}: {e:?}"))
}

const CUBIC: &str = "[[flow]]\ncc = 'cubic'\ncount = 3";
const BBR: &str = "[[flow]]\ncc = 'bbr1'\ncount = 3";

/// Three connections fill a link of a given rate, each with a third of the rate: for each kind of input, the
/// report is certain that the link is full, and its figures are sums over the connections.
#[test]
fn connections_that_fill_the_link_together_are_told_so() {
    for what in [CUBIC, BBR] {
        let three = connections(3, LINK, what);
        for (name, measurement) in three.recorded() {
            let told = explained(name, &measurement, Some(LINK));
            let first = &told.findings[0];
            assert_eq!(
                (first.limit, first.confidence),
                (Limit::Link, Confidence::Certain),
                "{name}: {first:#?}"
            );
            assert_eq!(first.what, "the link is full: 3 connections share it", "{name}");
            assert_eq!(told.input.streams, 3, "{name}");
            let share = told.path.mean.as_bps() as f64 / LINK.as_bps() as f64;
            assert!((0.88..1.0).contains(&share), "{name}: {share}");
        }
    }
}

/// The receiving host names the full link as well.
#[test]
fn a_receiver_names_the_link_that_connections_share() {
    let told = explained("receiver", &connections(3, LINK, CUBIC).receiving(), Some(LINK));
    assert_eq!((told.findings[0].limit, told.input.streams), (Limit::Link, 3), "{:#?}", told.findings);
}

/// If the link rate is unknown, a third of it looks like a policer's rate. With two other connections in the
/// same input, no finding names a policer, and the path is known to carry at least the sum of the three.
#[test]
fn a_share_of_an_unknown_link_is_no_policer() {
    for what in [CUBIC, BBR] {
        let three = connections(3, LINK, what);
        for (name, measurement) in three.recorded() {
            let told = explained(name, &measurement, None);
            let policer = told.findings.iter().find(|finding| finding.limit == Limit::Policer);
            assert!(policer.is_none_or(|finding| finding.share < 0.1), "{name}: {policer:#?}");
            assert!(measurement.proven_rate().as_bps() > 70_000_000, "{name}: {}", measurement.proven_rate());
            if name != "text" {
                let said =
                    told.notes.iter().any(|note| note.starts_with("3 connections ran at the same time"));
                assert!(said, "{name}: {:?}", told.notes);
            }
        }
    }
}

/// Connections that a small window limits are judged alone, although there are three of them.
#[test]
fn connections_with_room_on_the_link_are_judged_alone() {
    let fast = Rate::from_bps(1_000_000_000);
    let small = "[host]\nrcvbuf = { fixed = '128KiB' }\n[[flow]]\ncc = 'cubic'\ncount = 3";
    let three = connections(3, fast, small);
    for (name, measurement) in three.recorded().into_iter().filter(|(name, _)| *name != "text") {
        let told = explained(name, &measurement, Some(fast));
        assert_eq!(
            (told.findings[0].limit, told.input.streams),
            (Limit::Rwnd, 1),
            "{name}: {:#?}",
            told.findings
        );
    }
}

/// A connection that ran before or after another one does not share the link with it.
#[test]
fn connections_one_after_another_are_not_summed() {
    let apart = "[[flow]]\ncc = 'cubic'\nbytes = '8MB'\n[[flow]]\ncc = 'cubic'\nbytes = '8MB'\nstart = '5s'";
    let two = connections(2, LINK, apart);
    for (name, measurement) in [("sockets", two.sockets()), ("capture", two.ends.sender.read())] {
        assert!(measurement.together().is_none(), "{name}: {:?}", measurement.together());
    }
}

/// Senders of several streams write more than the link carries while their buffers fill. The reported rate is
/// the rate at which the data arrived.
#[test]
fn a_rate_above_that_of_the_link_is_the_receivers() {
    let mut text =
        String::from("Connecting to host h, port 5201\n[ ID] Interval Transfer Bitrate Retr Cwnd\n");
    for second in 0..10 {
        for stream in [5, 7] {
            let next = second + 1;
            let _ = writeln!(
                text,
                "[{stream:3}] {second}.00-{next}.00 sec 11.68 MBytes 98.0 Mbits/sec 0 900 KBytes"
            );
        }
    }
    for stream in [5, 7] {
        let _ = writeln!(text, "[{stream:3}] 0.00-10.00 sec 116.8 MBytes 98.0 Mbits/sec 0 sender");
        let _ = writeln!(text, "[{stream:3}] 0.00-10.00 sec 115.0 MBytes 96.5 Mbits/sec receiver");
    }
    let measurement = iperf3::parse(&text).expect("a log");
    let told = explained("text", &measurement, Some(Rate::from_bps(200_000_000)));
    assert_eq!(told.findings[0].limit, Limit::Link);
    let steady = told.path.steady.as_bps() as f64 / 1e6;
    assert!((192.5..193.2).contains(&steady), "{steady}");
}

/// A link of unknown rate is not a rung: the measurement gives only a lower bound of its rate.
#[test]
fn an_unknown_link_is_not_what_comes_next() {
    let small = "[host]\nrcvbuf = { fixed = '128KiB' }\n[[flow]]\ncc = 'cubic'\ncount = 1";
    let one = connections(1, LINK, small);
    let diagnosis = Case::of(&one.sockets()).diagnose().expect("a diagnosis");
    assert_eq!(diagnosis.findings[0].limit, Limit::Rwnd);
    let text = render_text(&diagnosis, 200);
    let headline = text.lines().next().unwrap_or_default();
    assert!(headline.contains("a link of unknown rate") && !headline.contains("stops you"), "{headline}");
}

/// A receiver observes a slow reader and a full window, but not the limit of the sender. The verdict says so,
/// and names the host on which to measure.
#[test]
fn a_receiver_says_what_it_observes() {
    let fast = Rate::from_bps(1_000_000_000);
    let told = |more: &str| {
        let flow = format!("{more}\n");
        explained("receiver", &connections(1, fast, &flow).receiving(), Some(fast)).findings
    };
    let slow = told("[[flow]]\ncc = 'cubic'\napp = { read = '5mbit' }");
    assert_eq!((slow[0].limit, slow[0].confidence), (Limit::ReceiverApp, Confidence::Certain));
    let small = told("[host]\nrcvbuf = { fixed = '128KiB' }\n[[flow]]\ncc = 'cubic'");
    assert_eq!(small[0].limit, Limit::Rwnd, "{small:#?}");
    let paced = told("[[flow]]\ncc = 'cubic'\napp = { write = '5mbit' }");
    let first = &paced[0];
    assert_eq!(
        (first.limit, first.what.as_str(), first.confidence),
        (Limit::Unknown, "not observable from the receiver: capture at the sender", Confidence::Low)
    );
    assert!(first.next_test.as_deref().is_some_and(|test| test.contains("on the sender")), "{first:#?}");
    assert!(paced.iter().all(|finding| !finding.what.contains("several flows")), "{paced:#?}");
}

/// A trace keeps the rows of every flow that shares the link with the chosen one, because the live view
/// replays them together.
#[test]
fn a_trace_keeps_the_rows_of_all_flows() {
    let three = connections(3, LINK, "[[flow]]\ncc = 'cubic'\ncount = 3");
    let mut trace = Csv::default();
    three.rows.iter().flatten().for_each(|row| trace.row(row));
    let second = rows::Choice { flow: Some(2), ..rows::Choice::default() };
    let measurement = rows::parse(&trace.into_text(), &second).expect("a trace");
    let flow = |rows: &[Row]| (rows[0].flow, rows.len());
    let companions: Vec<(u32, usize)> = measurement.companion_rows().into_iter().map(flow).collect();
    assert_eq!(companions, [(0, three.rows[0].len()), (2, three.rows[2].len())]);
    assert_eq!(measurement.rows().into_iter().map(flow).collect::<Vec<_>>(), [(1, three.rows[1].len())]);
}
