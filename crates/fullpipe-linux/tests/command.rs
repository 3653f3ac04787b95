//! Commands behind a path, as root.
#![cfg(target_os = "linux")]

mod rights;

use std::ffi::OsString;

use fullpipe_lab::scenario::PathSpec;
use fullpipe_linux::command::{Behind, run};
use fullpipe_linux::{Datapath, Kind};
use fullpipe_units::{Bytes, Duration, Probability, Rate};

fn path() -> PathSpec {
    let rate: Rate = "10mbit".parse().expect("a rate");
    PathSpec::symmetric(rate, Duration::from_millis(40), Probability::ZERO, Bytes::from_mib(1))
}

fn shell(script: &str) -> Vec<OsString> {
    ["sh", "-c", script].map(OsString::from).into()
}

fn status(script: &str) -> u8 {
    let path = path();
    let behind = Behind { path: &path, seed: 1, datapath: Datapath::Plain };
    run(&behind, &shell(script), None).unwrap_or_else(|e| panic!("{e}")).status
}

#[test]
fn the_commands_exit_status_is_returned() {
    let Some(_alone) = rights::alone() else { return };
    assert_eq!(status("exit 0"), 0);
    assert_eq!(status("exit 37"), 37);
    assert_eq!(status("kill -TERM $$"), 128 + 15);
    let path = path();
    let behind = Behind { path: &path, seed: 1, datapath: Datapath::Plain };
    let error = run(&behind, &["no-such-command".into()], None).expect_err("there is none");
    assert_eq!(error.kind, Kind::NoCommand, "{error}");
    let error = run(&behind, &shell("exit 0"), Some("exit 3")).expect_err("no server");
    assert!(error.to_string().contains("ended before it listened"), "{error}");
}

/// Both ends know their addresses, and what one serves the other gets, in no less than two round trips.
#[test]
fn a_server_at_the_far_end_is_reached_through_the_path() {
    let Some(_alone) = rights::alone() else { return };
    let server = "python3 -m http.server --bind $FULLPIPE_ADDR 8000 --directory /proc/sys/kernel";
    let client = "import os, time, urllib.request as u\n\
                  start = time.monotonic()\n\
                  text = u.urlopen('http://' + os.environ['FULLPIPE_PEER'] + ':8000/ostype').read()\n\
                  took = time.monotonic() - start\n\
                  assert took > 0.08, took";
    let path = path();
    let behind = Behind { path: &path, seed: 1, datapath: Datapath::Plain };
    let command = ["python3", "-c", client].map(OsString::from);
    let ended = run(&behind, &command, Some(server)).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(ended.status, 0);
    let (forward, backward) = (ended.report.forward.counters, ended.report.backward.counters);
    assert!(forward.offered >= 5 && backward.delivered_data >= 1, "{forward:?} {backward:?}");
}
