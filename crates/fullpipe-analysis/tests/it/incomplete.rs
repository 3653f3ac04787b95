//! Incomplete captures: the report says what they do not show, instead of guessing.
//!
//! Packets are removed from captures of the simulator: at the beginning, in one direction, for a second in
//! the middle, or one in fifty.

use crate::tapped::{BothEnds, File, packets};
use fullpipe_analysis::classify::{Confidence, Finding, classify_capture};
use fullpipe_analysis::input::capture;
use fullpipe_analysis::measurement::packets::Side;
use fullpipe_analysis::{Limit, Measurement};
use fullpipe_lab::experiment::Experiment;
use fullpipe_lab::sim;
use fullpipe_lab::trace::NoTrace;
use fullpipe_units::draw;

/// Returns the captures of an eight-second flow at 50 Mbit/s and 60 ms, from both hosts.
fn flow(more: &str) -> BothEnds {
    let text =
        format!("name = 'x'\nduration = '8s'\n[path]\nrate = '50mbit'\nrtt = '60ms'\nqueue = '1bdp'\n{more}");
    let experiment = Experiment::from_toml(&text).expect("a valid experiment");
    let mut ends = BothEnds::default();
    sim::run_tapped(&experiment.points()[0].scenario, &mut NoTrace, &mut ends);
    ends
}

/// Flow limited by the receive window: 160 KiB per round trip.
const WINDOW: &str = "[host]\nrcvbuf = { fixed = '256KiB' }\n[[flow]]\ncc = 'cubic'\n";
/// Flow limited by loss.
const LOSS: &str = "loss = '0.5%'\n[[flow]]\ncc = 'cubic'\n";

fn said(capture: &Measurement, words: &str) -> bool {
    capture.origin.notes.iter().any(|note| note.contains(words))
}

/// Returns the findings with an unknown link rate, longest first.
fn findings(capture: &Measurement) -> Vec<Finding> {
    classify_capture(packets(capture), None).findings
}

/// Without the handshake the window scale is unknown. For a flow limited by the receive window, the report
/// does not claim that the window has room, does not count data in flight at the start of the capture as a
/// gap, and does not treat the flow as starting.
#[test]
fn a_capture_that_begins_in_the_middle() {
    for (more, limits) in [(WINDOW, [Limit::Sndbuf, Limit::Cwnd]), (LOSS, [Limit::Cwnd; 2])] {
        let BothEnds { sender, receiver } = flow(more);
        for (file, side) in [(sender, Side::Sender), (receiver, Side::Receiver)] {
            let whole = file.read();
            let capture = file.without(|_, at, _| at.as_secs_f64() < 3.0).read();
            let connection = &packets(&capture).connection;
            assert_eq!((connection.side, connection.handshake), (side, false));
            assert!(
                said(&capture, "because the handshake, which contains the window scale, is missing"),
                "{:?}",
                capture.origin.notes
            );
            assert_eq!((connection.last_window, connection.counts.missed_bytes), (None, 0));
            // Timestamps give the RTT at any point on the path.
            let rtt = |capture: &Measurement| {
                packets(capture).connection.least_rtt.expect("timestamps tell it").as_millis_f64()
            };
            assert!((rtt(&capture) / rtt(&whole) - 1.0).abs() < 0.02, "{} of {}", rtt(&capture), rtt(&whole));
            let found = findings(&capture);
            assert!(limits.contains(&found[0].limit), "{found:?}");
            assert!(found[0].share > 0.9, "{found:?}");
            assert!(
                found[0].could_not_tell.iter().any(|open| open.contains("receiver's window is full")),
                "{found:?}"
            );
            let all: Vec<&String> = found.iter().flat_map(|finding| &finding.evidence).collect();
            assert!(
                all.iter().all(|evidence| !evidence.contains("the receiver's window has room")),
                "{all:?}"
            );
            let sure = found
                .iter()
                .any(|f| f.limit != Limit::Cwnd && f.confidence != Confidence::Low && f.share > 0.02);
            assert!(!sure, "{found:?}");
            if more == WINDOW {
                assert_eq!(found[0].confidence, Confidence::Low, "{found:?}");
            }
        }
    }
}

/// A segment below the usual size does not count as short: the largest segment seen is the full size.
#[test]
fn the_size_of_a_segment_without_the_handshake() {
    let BothEnds { sender, .. } =
        flow("mtu = 1240\n[host]\nrcvbuf = { fixed = '256KiB' }\n[[flow]]\ncc = 'cubic'\n");
    let whole = packets(&sender.read()).connection.mss;
    let capture = sender.without(|_, at, _| at.as_secs_f64() < 3.0).read();
    assert!(whole.get() < 1_240, "{whole}");
    assert_eq!(packets(&capture).connection.mss, whole);
    assert_ne!(findings(&capture)[0].limit, Limit::App, "{:?}", findings(&capture));
}

/// Data without ACKs has a rate and a retransmission count; everything else is unknown. A capture with only
/// the ACKs cannot be explained, and the error says so.
#[test]
fn a_capture_of_one_direction() {
    let BothEnds { sender, receiver } = flow(LOSS);
    for file in [sender, receiver] {
        let whole = file.read();
        let capture = file.without(|_, _, of_sender| !of_sender).read();
        let (connection, before) = (&packets(&capture).connection, &packets(&whole).connection);
        assert!(said(&capture, "the capture contains only one direction"), "{:?}", capture.origin.notes);
        assert_eq!((connection.side, connection.acknowledged), (Side::Unknown, false));
        assert_eq!(
            (connection.most_in_flight, connection.least_rtt, connection.last_window),
            (None, None, None)
        );
        assert_eq!(connection.counts.retransmits, before.counts.retransmits);
        assert_eq!(findings(&capture), []);
        let rate = |capture: &Measurement| capture.transfer().sent.expect("a sum").rate.as_bps() as f64;
        let ratio = rate(&capture) / rate(&whole);
        assert!((0.97..1.03).contains(&ratio), "{ratio}");
        let acks = file.without(|_, _, of_sender| of_sender);
        let refused = capture::read(&acks.0[..], None).expect_err("nothing to explain");
        assert!(refused.message.contains("the ACKs of a transfer but not its data"), "{}", refused.message);
    }
}

/// One packet in fifty was not captured. None of them counts as lost on the path, a note says how much is
/// missing, and the limit is that of the complete capture.
#[test]
fn packets_that_were_not_captured() {
    for more in [WINDOW, LOSS] {
        let BothEnds { sender, receiver } = flow(more);
        for file in [sender, receiver] {
            let whole = file.read();
            let mut gone = 0;
            let capture = file
                .without(|number, _, of_sender| {
                    let misses = draw(1, 2, number).is_multiple_of(50);
                    gone += u64::from(misses && of_sender);
                    misses
                })
                .read();
            let (counts, before) = (packets(&capture).connection.counts, packets(&whole).connection.counts);
            assert!(said(&capture, "the capturing tool dropped packets"), "{:?}", capture.origin.notes);
            assert_eq!(before.missed_bytes, 0);
            let missed = counts.missed_bytes as f64 / (gone * 1_448) as f64;
            assert!((0.9..=1.0).contains(&missed), "{missed} of {gone} packets");
            assert!(counts.retransmits <= before.retransmits, "{counts:?}");
            assert!(counts.retransmits + 2 >= before.retransmits, "{counts:?}");
            let (found, truth) = (findings(&capture), findings(&whole));
            assert_eq!(found[0].limit, truth[0].limit, "{found:?}");
            assert!((found[0].share - truth[0].share).abs() < 0.02, "{found:?}");
        }
    }
}

/// Nothing was captured for one second. The classifier concludes neither that the sender was idle, nor that
/// all data of that second was in flight at once.
#[test]
fn a_second_without_captured_packets() {
    for more in [WINDOW, LOSS] {
        let BothEnds { sender, receiver } = flow(more);
        for file in [sender, receiver] {
            let whole = file.read();
            let capture = file.without(|_, at, _| (3.0..4.0).contains(&at.as_secs_f64())).read();
            assert!(
                said(&capture, "although data was transferred; the limit during that time is not known"),
                "{:?}",
                capture.origin.notes
            );
            let (found, truth) = (findings(&capture), findings(&whole));
            assert_eq!(found[0].limit, truth[0].limit, "{found:?}");
            assert!((found[0].share - truth[0].share).abs() < 0.02, "{found:?}");
            let app: f64 = found.iter().filter(|f| f.limit == Limit::App).map(|f| f.share).sum();
            assert!(app < 0.02, "{found:?}");
            let most = |capture: &Measurement| {
                packets(capture).connection.most_in_flight.expect("ACKs").get() as f64
            };
            if more == WINDOW {
                assert!(most(&capture) <= 1.02 * most(&whole), "{} of {}", most(&capture), most(&whole));
            }
        }
    }
}

/// In a file that is truncated because it was copied during the capture, the data before the end counts as
/// usual, and the result is marked as truncated.
#[test]
fn a_file_that_breaks_off() {
    let BothEnds { sender, .. } = flow(LOSS);
    let half = sender.without(|_, at, _| at.as_secs_f64() >= 4.0);
    let cut = File([&half.0[..], &sender.0[half.0.len()..half.0.len() + 30]].concat());
    assert!(!half.read().origin.truncated);
    assert!(cut.read().origin.truncated);
    assert_eq!(packets(&cut.read()).connection, packets(&half.read()).connection);
}
