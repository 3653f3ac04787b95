//! Captures whose clock was set while they recorded: the leap is removed from the times and reported, and all
//! other results are the same as without the leap.

use crate::tapped::{BothEnds, File, packets};
use fullpipe_lab::experiment::Experiment;
use fullpipe_lab::sim;
use fullpipe_lab::trace::NoTrace;
use fullpipe_units::{Duration, Instant};

/// Returns the captures of an experiment with one flow of six seconds.
fn flow(more: &str) -> BothEnds {
    let text =
        format!("name = 'x'\nduration = '6s'\n[path]\nrate = '50mbit'\nrtt = '60ms'\nqueue = '1bdp'\n{more}");
    let experiment = Experiment::from_toml(&text).expect("a valid experiment");
    let mut ends = BothEnds::default();
    sim::run_tapped(&experiment.points()[0].scenario, &mut NoTrace, &mut ends);
    ends
}

const HOUR: Duration = Duration::from_secs(3_600);

/// Returns a time at which a capture could have begun, and `millis` later.
fn at(millis: u64) -> Instant {
    Instant::ZERO + HOUR + Duration::from_millis(millis)
}

/// A clock that is set forward by an hour, back by a minute, or both in turn, changes no count, no rate and
/// no RTT.
#[test]
fn a_leap_of_the_clock_is_left_out() {
    let BothEnds { sender, receiver } = flow("loss = '0.2%'\n[[flow]]\ncc = 'cubic'\n");
    for file in [sender, receiver] {
        let begun = file.at_times(|time| time + HOUR);
        let whole = begun.read();
        let once = &packets(&whole).connection;
        let said = |file: &File, words: &str| {
            let read = file.read();
            let told = &packets(&read).connection;
            assert_eq!(told.counts, once.counts, "{words}");
            let rate = |measurement: &fullpipe_analysis::Measurement| {
                measurement.transfer().mean_rate().as_bps() as f64
            };
            let ratio = rate(&read) / rate(&whole);
            assert!((0.99..1.01).contains(&ratio), "{words}: {ratio}");
            let rtt = |of: Option<Duration>| of.expect("an RTT").as_millis_f64();
            assert!(
                (rtt(told.least_rtt) - rtt(once.least_rtt)).abs() < 1.0,
                "{words}: {:?} {:?}",
                told.least_rtt,
                once.least_rtt
            );
            let notes = read.origin.notes.join("\n");
            assert!(notes.contains(words), "{words}: {notes}");
        };
        said(&begun.at_times(|time| if time < at(2_000) { time } else { time + HOUR }), "set forward by 36");
        let minute = Duration::from_secs(60);
        said(
            &begun.at_times(|time| if time < at(2_000) { time } else { time.saturating_sub(minute) }),
            "set back by",
        );
        let twice = |time: Instant| if (at(2_000)..at(4_000)).contains(&time) { time + HOUR } else { time };
        said(&begun.at_times(twice), "and once more");
        assert!(!whole.origin.notes.iter().any(|note| note.contains("clock")), "{:?}", whole.origin.notes);
    }
}

/// A pause of the application is not mistaken for a leap, because timestamps advance during the
/// pause.
#[test]
fn a_pause_is_no_leap() {
    let BothEnds { sender, .. } = flow("[[flow]]\ncc = 'cubic'\napp = { write = '20mbit', chunk = '5MB' }\n");
    let capture = sender.read();
    assert!(!capture.origin.notes.iter().any(|note| note.contains("clock")), "{:?}", capture.origin.notes);
    assert!(packets(&capture).connection.length > Duration::from_secs(3));
}
