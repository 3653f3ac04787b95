//! Captures in which each packet was captured several times, as by a mirror port or by `-i any` on a bridge:
//! the counts equal those of a capture that has each packet once, and retransmissions do not count as copies.

use crate::tapped::{BothEnds, packets};
use fullpipe_analysis::Measurement;
use fullpipe_lab::experiment::Experiment;
use fullpipe_lab::sim;
use fullpipe_lab::trace::NoTrace;
use fullpipe_units::Duration;

/// Returns the captures at both hosts of a flow that loses packets, and the number of its retransmissions.
fn flow(path: &str) -> (BothEnds, u64) {
    let text = format!("name = 'x'\n{path}\n[[flow]]\ncc = 'cubic'\n");
    let experiment = Experiment::from_toml(&text).expect("a valid experiment");
    let mut ends = BothEnds::default();
    let outcome = sim::run_tapped(&experiment.points()[0].scenario, &mut NoTrace, &mut ends);
    (ends, outcome.flows[0].retransmits)
}

/// A long path, and a fast link on which a retransmission follows within a millisecond.
const PATHS: [&str; 2] = [
    "duration = '4s'\n[path]\nrate = '50mbit'\nrtt = '60ms'\nloss = '0.5%'\nqueue = '1bdp'",
    "duration = '300ms'\n[path]\nrate = '1gbit'\nrtt = '300us'\nloss = '0.1%'\nqueue = '1MiB'",
];

fn remark(capture: &Measurement) -> Option<&String> {
    capture.origin.notes.iter().find(|note| note.contains("copies"))
}

/// At either end, with or without IP identifications, a file in which each packet was captured two to four
/// times gives the same counts as a file with each packet once, and a note reports the number of copies.
#[test]
fn packets_that_are_captured_several_times_count_once() {
    for path in PATHS {
        let (BothEnds { sender, receiver }, retransmits) = flow(path);
        assert!(retransmits > 10, "{retransmits}");
        for (end, file) in [("sender", sender), ("receiver", receiver)] {
            for (ids, file) in [("ids", file.identified()), ("no ids", file)] {
                let single = file.read();
                let once = &packets(&single).connection;
                assert_eq!((once.copies, remark(&single)), (0, None));
                for (times, micros) in [(2, 3), (3, 40), (4, 90), (2, 400)] {
                    let capture = file.repeated(times, Duration::from_micros(micros)).read();
                    let told = &packets(&capture).connection;
                    let what = format!("{path}: {end}, {ids}, {times} times, {micros} us");
                    assert_eq!(told.counts, once.counts, "{what}");
                    assert_eq!((told.length, told.least_rtt), (once.length, once.least_rtt), "{what}");
                    assert!(
                        told.copies > 0 && told.copies.is_multiple_of(times - 1),
                        "{what}: {}",
                        told.copies
                    );
                    let remark = remark(&capture).expect("a remark");
                    assert!(remark.contains(&format!("captured {times}.0 times")), "{what}: {remark}");
                }
            }
        }
    }
}

/// Without IP identifications, a retransmission within a millisecond on a fast link repeats all headers of
/// the original, including the timestamp. It still counts as a retransmission.
#[test]
fn retransmissions_on_a_fast_link_are_no_copies() {
    for path in PATHS {
        let (BothEnds { sender, .. }, retransmits) = flow(path);
        for file in [sender.identified(), sender] {
            assert_eq!(packets(&file.read()).connection.counts.retransmits, retransmits, "{path}");
        }
    }
}
