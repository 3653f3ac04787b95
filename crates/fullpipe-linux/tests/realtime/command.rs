//! Tests of commands behind an emulated path, which require root.

use crate::rights;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use fullpipe_lab::scenario::PathSpec;
use fullpipe_linux::command::{Behind, run};
use fullpipe_linux::{Clock, Datapath, Kind};
use fullpipe_units::{Bytes, Duration, Instant, Probability, Rate};

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
    assert!(error.to_string().contains("ended before it listened on a port"), "{error}");
}

/// Runs the client or the server of [`a_server_at_the_far_end_is_reached_through_the_path`]: this test
/// program, started a second time.
#[test]
fn role() {
    let address = |name: &str| (std::env::var(name).expect("inside"), 8_000);
    match std::env::var("FULLPIPE_TEST_ROLE").as_deref() {
        Ok("server") => {
            let listener = TcpListener::bind(address("FULLPIPE_ADDR")).expect("its own address");
            let (mut client, _) = listener.accept().expect("a client");
            client.write_all(b"hello").expect("it listens");
        }
        Ok("client") => {
            let clock = Clock::starting_in(Duration::ZERO);
            let mut text = String::new();
            let mut server = TcpStream::connect(address("FULLPIPE_PEER")).expect("the peer's address");
            server.read_to_string(&mut text).expect("an answer");
            let took = clock.now().saturating_since(Instant::ZERO);
            assert_eq!(text, "hello");
            // The server starts to send once it has completed the handshake, after 1.5 round trips; the data
            // takes another half round trip.
            assert!(took >= Duration::from_millis(80), "{took}");
        }
        _ => {}
    }
}

/// Client and server know both addresses, and it takes at least two round trips until data from the server
/// reaches the client.
#[test]
fn a_server_at_the_far_end_is_reached_through_the_path() {
    let Some(_alone) = rights::alone() else { return };
    let program = std::env::current_exe().expect("this program");
    let role =
        |role: &str| format!("FULLPIPE_TEST_ROLE={role} exec '{}' --exact command::role", program.display());
    let path = path();
    let behind = Behind { path: &path, seed: 1, datapath: Datapath::Plain };
    let ended =
        run(&behind, &shell(&role("client")), Some(&role("server"))).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(ended.status, 0);
    let (forward, backward) = (ended.report.forward.counters, ended.report.backward.counters);
    assert!(forward.offered >= 3 && backward.delivered_data >= 1, "{forward:?} {backward:?}");
}
