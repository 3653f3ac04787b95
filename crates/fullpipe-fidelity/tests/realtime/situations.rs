//! Tests the classifier on samples of kernel sockets: eleven situations on an emulated path. If the process
//! is not permitted to create namespaces and TUN devices, the test is skipped with a message. With
//! `FULLPIPE_REQUIRE_NETNS=1`, the test fails instead of being skipped.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use crate::process::emulated::{DISTURBED, undisturbed};
use fullpipe::lab::experiment::{Experiment, Point};
use fullpipe::lab::scenario::Scenario;
use fullpipe::lab::trace::Row;
use fullpipe::linux::emu::{Options, run};
use fullpipe_fidelity::classifier_validation::{NamedLimit, expected, is_right, named};

const SITUATIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/kernel-situations.toml");

#[test]
fn the_classifier_names_the_limit_of_kernel_flows() {
    let Some(_alone) = crate::alone() else { return };
    let text = std::fs::read_to_string(SITUATIONS).expect("the situations");
    let experiment = Experiment::from_toml(&text).expect("a valid experiment");
    // Two situations run at a time, because an emulated path needs little CPU time.
    let next = AtomicUsize::new(0);
    let missed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(point) = experiment.points().get(next.fetch_add(1, Relaxed)) {
                    if let Some(miss) = miss(point) {
                        missed.lock().expect("whole").push(miss);
                    }
                }
            });
        }
    });
    let missed = missed.into_inner().expect("whole");
    assert_eq!(experiment.points().len(), 11);
    assert!(missed.is_empty(), "\n{}", missed.join("\n"));
}

/// Runs a situation on the kernel; if the classifier reports the wrong limit, returns a description of that
/// limit.
fn miss(point: &Point) -> Option<String> {
    let scenario = Scenario { seed: 1, ..point.scenario.clone() };
    let measure = || {
        let mut rows: Vec<Row> = Vec::new();
        let ran =
            run(&scenario, Options::default(), &mut rows).unwrap_or_else(|e| panic!("{}: {e}", point.label));
        let named = named(&rows, &scenario).expect("something is classified");
        println!("{}: {} {:.2}", point.label, named.limit, named.share);
        (named, ran.validity.stalls.woken.p99 > DISTURBED || !ran.validity.is_valid())
    };
    let right = |named: &NamedLimit| expected(point).is_some_and(|expected| is_right(expected, named.limit));
    let named = undisturbed(measure, right);
    (!right(&named)).then(|| format!("{}: {} for {:.2} of the time", point.label, named.limit, named.share))
}
