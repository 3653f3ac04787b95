//! The published run with CUBIC on the cross-border link, and its whole ladder.
//!
//! Two pages and a snapshot show this diagnosis. Its simulation takes ten seconds of CPU time, so the command makes it only
//! once, as a document, and the renderers of the command make the other forms from it.

use std::sync::LazyLock;

use fullpipe::classify::Limit;
use fullpipe::ladder::Source;
use fullpipe::remedy::{Command, Host};
use fullpipe::units::Rate;
use fullpipe::{Diagnosis, Rung, render_brief, render_findings, render_ladder};

use crate::pages::output_of;
use crate::snapshots::is_as_in;

/// The command of the guide.
const COMMAND: &str = "fullpipe diagnose examples/cross-border/cubic.iperf3.txt --link 1gbit --rtt 210ms \
                       --sysctl examples/cross-border/sysctl-before.txt";
/// The command of the README. `assets` contains links to the same files.
const BRIEF_EXAMPLE: &str = "fullpipe diagnose --example --brief";
/// Width of a text that is not printed on a terminal.
const WIDTH: usize = 80;

static DIAGNOSIS: LazyLock<Diagnosis> =
    LazyLock::new(|| serde_json::from_str(&output_of(&format!("{COMMAND} --json"))).expect("a diagnosis"));

/// Returns the report of the diagnosis.
pub(crate) fn report() -> String {
    render_findings(&DIAGNOSIS, WIDTH) + &render_ladder(&DIAGNOSIS, WIDTH)
}

/// Returns the output of a command that shows this diagnosis; `None` for other commands.
pub(crate) fn output(command: &str) -> Option<String> {
    match command {
        COMMAND => Some(report()),
        BRIEF_EXAMPLE => Some(render_brief(&DIAGNOSIS, WIDTH)),
        _ => None,
    }
}

#[test]
fn the_report_is_the_snapshot() {
    is_as_in("diagnose-cubic.txt", &report());
}

fn mbps(rate: Rate) -> f64 {
    rate.as_mbps_f64()
}

/// The run is limited by loss; BBR alone is limited by a window; only both remedies together reach the link rate.
#[test]
fn cubic_climbs_past_loss_and_window_to_the_line() {
    let diagnosis = &*DIAGNOSIS;
    let first = &diagnosis.ladder[0];
    assert_eq!((first.limit, first.source), (Limit::Cwnd, Source::Measured));
    assert!((60.0..=80.0).contains(&mbps(first.rate)), "{}", first.rate);

    let rungs: Vec<&Rung> = diagnosis.ladder.iter().filter(|rung| rung.source == Source::Simulated).collect();
    let [better_cc, both] = rungs.as_slice() else { panic!("{rungs:#?}") };
    assert!(matches!(better_cc.limit, Limit::Rwnd | Limit::Sndbuf));
    assert!((95.0..=125.0).contains(&mbps(better_cc.lasting())), "{}", better_cc.lasting());
    // The rate in the log requires a loss of 49 ppm, near the upper bound of the interval for three events in
    // 180,000 segments.
    let fit = diagnosis.fit.as_ref().expect("a simulation");
    assert!(fit.met && (17e-6..50e-6).contains(&fit.loss), "{fit:?}");
    assert!(mbps(both.lasting()) >= 880.0, "{}", both.lasting());
    for rung in &rungs {
        let (low, high) = (rung.low.expect("a range"), rung.high.expect("a range"));
        assert!(low <= rung.lasting() && rung.lasting() <= high, "{low} {} {high}", rung.lasting());
    }
    let last = diagnosis.ladder.last().expect("a rung");
    assert_eq!((last.limit, last.source), (Limit::Link, Source::Given));
    assert!(diagnosis.ladder.is_sorted_by_key(Rung::lasting));

    // The ladder avoids the mistakes in the published advice: it changes both hosts, sizes buffers for a
    // usable window of 4 x BDP, and leaves core.*mem_max alone.
    let all: Vec<&Command> = rungs.iter().flat_map(|rung| rung.remedies.commands()).collect();
    let sets = |host: Host, value: &str| all.iter().any(|c| c.host == host && c.run.contains(value));
    assert!(sets(Host::Sender, "tcp_wmem=\"4096 16384 205942784\""), "{all:#?}");
    assert!(sets(Host::Receiver, "tcp_rmem=\"4096 87380 140017664\""), "{all:#?}");
    assert!(all.iter().all(|c| !c.run.contains("mem_max")), "{all:#?}");

    let text = report();
    assert!(text.starts_with("7 % of the link: loss holds cwnd down.\n"), "{text}");
    assert!(text.contains("\nLift that, and a 3 MiB receive window stops you near "), "{text}");
    // Larger buffers alone, which the published advice recommends, change nothing, and a note says so. The author of the
    // log used ten sockets. They appear as a note, which reports how much they take from another flow.
    for beginning in [
        "buffers for 4 x BDP on both hosts (",
        "10 connections instead of these remedies would",
        "10 connections leave ",
    ] {
        assert!(diagnosis.notes.iter().any(|note| note.starts_with(beginning)), "{:#?}", diagnosis.notes);
    }
}
