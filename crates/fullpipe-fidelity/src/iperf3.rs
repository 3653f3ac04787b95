//! Runs iperf3 tests across the path of a point: `fullpipe iperf3 -c` against iperf3's own server.
//!
//! ```text
//!   sender's namespace                       path of the point            receiver's namespace
//!   tcp_wmem, fullpipe iperf3 -c -J ─────────────────────────────────────► tcp_rmem, iperf3 -s
//! ```

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use fullpipe::Error;
use fullpipe::lab::experiment::Point;
use fullpipe::lab::scenario::Scenario;
use fullpipe::lab::workload::{Reading, Writing};
use fullpipe::linux::command::{self, Behind};
use fullpipe::linux::{Datapath, kernel_name};
use serde_json::Value;

/// Result of an iperf3 test.
pub(crate) struct TestRun {
    /// JSON document that the client printed.
    pub(crate) document: String,
    /// Whether the machine was too busy to keep the timing of the emulated path.
    pub(crate) disturbed: bool,
}

/// Runs one test across the path of `point`. The client gets the additional flags `more`, and its document is
/// stored in the folder `dir` during the test.
///
/// The function must be called after the process has acquired the privileges for an emulated path.
pub(crate) fn run(point: &Point, seed: u64, dir: &Path, more: &str) -> Result<TestRun, Error> {
    let scenario = &point.scenario;
    let path = dir.join("document.json");
    let fifo = dir.join("slow-reader");
    let behind = Behind { path: &scenario.path, seed, datapath: Datapath::Plain };
    let own = std::env::current_exe().map_err(|error| cannot("find", Path::new("this program"), &error))?;
    // The `fullpipe` command is in the same folder as this program.
    let own = own.with_file_name("fullpipe");
    if !own.exists() {
        let message = format!("{} does not exist", own.display());
        return Err(Error::new(message, "build it: cargo build --release -p fullpipe-cli"));
    }
    let command = client(scenario, &own, &path, more)?;
    let serve = server(scenario, &fifo);
    let ended = command::run(&behind, &["sh".into(), "-c".into(), OsString::from(command)], Some(&serve))?;
    if ended.status != 0 {
        let message = format!("'{}', seed {seed}: the client ended with {}", point.label, ended.status);
        return Err(Error::new(message, "see its message above; iperf3 must be installed"));
    }
    let document = fs::read_to_string(&path).map_err(|error| cannot("read", &path, &error))?;
    if !is_whole(scenario, &document) {
        let message = format!("'{}', seed {seed}: the test ended early", point.label);
        return Err(Error::new(message, "run the same command again to continue"));
    }
    // The files are no longer needed. It is not an error if one of the files does not exist.
    for file in [&path, &fifo] {
        let _ = fs::remove_file(file);
    }
    Ok(TestRun { document, disturbed: !ended.validity.is_valid() })
}

/// Minimum duration of a complete test, as a fraction of its planned duration.
const WHOLE: f64 = 0.9;

/// Returns whether a test lasted for its planned duration; otherwise, the log of an interrupted client would
/// be stored permanently. A test that transfers a fixed amount of data has no planned duration.
fn is_whole(scenario: &Scenario, document: &str) -> bool {
    let seconds = |document: &Value| document.pointer("/end/sum_sent/seconds")?.as_f64();
    let took = serde_json::from_str::<Value>(document).ok().as_ref().and_then(seconds);
    let by_time = scenario.flows.first().is_some_and(|flow| flow.bytes.is_none());
    took.is_some_and(|took| !by_time || took >= WHOLE * scenario.duration.as_secs_f64())
}

/// Returns the shell command that applies the settings of the sending host and runs the client there.
fn client(scenario: &Scenario, own: &Path, document: &Path, more: &str) -> Result<String, Error> {
    let [flow, others @ ..] = &scenario.flows[..] else {
        return Err(Error::new("a measured point has no flow", "add a [[flow]]"));
    };
    if others.iter().any(|other| other != flow) {
        return Err(Error::new("the flows of a measured point differ", "keep one [[flow]] with a count"));
    }
    let mut flags = vec![format!("-C {}", kernel_name(flow.cc)), more.to_owned()];
    if !others.is_empty() {
        flags.push(format!("-P {}", scenario.flows.len()));
    }
    match flow.bytes {
        Some(bytes) => flags.push(format!("-n {}", bytes.get())),
        None => flags.push(format!("-t {:.0}", scenario.duration.as_secs_f64())),
    }
    if let Writing::Paced { rate, .. } = flow.workload.writing {
        flags.push(format!("-b {}", rate.as_bps()));
    }
    if let Some(rate) = flow.max_pacing_rate {
        flags.push(format!("--fq-rate {}", rate.as_bps()));
    }
    Ok(format!(
        "echo '4096 16384 {}' > /proc/sys/net/ipv4/tcp_wmem && '{}' iperf3 -c $FULLPIPE_PEER -J {} > '{}'",
        scenario.host.sndbuf.limit().get(),
        own.display(),
        flags.join(" "),
        document.display()
    ))
}

/// Returns the shell command that applies the settings of the receiving host and runs the server there. A
/// slow application is modelled by a pipe into which iperf3 writes and which is read slowly.
fn server(scenario: &Scenario, fifo: &Path) -> String {
    let memory = scenario.host.rcvbuf.limit().get();
    let set = format!("echo '4096 {} {memory}' > /proc/sys/net/ipv4/tcp_rmem", memory.min(131_072));
    let reading = scenario.flows.first().map(|flow| flow.workload.reading);
    let Some(Reading::Paced { rate, .. }) = reading else {
        return format!("{set}; exec iperf3 -s > /dev/null");
    };
    /// Number of reads per second from the pipe of the slow application.
    const READS: u64 = 20;
    let fifo = fifo.display();
    format!(
        "{set}; rm -f '{fifo}'; mkfifo '{fifo}'; (exec 3<>'{fifo}'; while dd bs={} count=1 iflag=fullblock \
         of=/dev/null <&3 2>/dev/null; do sleep {}; done) & exec iperf3 -s -F '{fifo}' > /dev/null",
        rate.as_bytes_per_sec() / READS,
        1.0 / READS as f64
    )
}

pub(crate) fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Error {
    Error::new(format!("cannot {what} {}: {error}", path.display()), "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe::lab::experiment::Experiment;

    fn scenario(host: &str, flow: &str) -> Scenario {
        let text = format!(
            "name = 'x'\nduration = '6s'\n[path]\nrate = '50mbit'\nrtt = '40ms'\n[host]\n{host}\n[[flow]]\n{flow}"
        );
        Experiment::from_toml(&text).expect("valid").points()[0].scenario.clone()
    }

    fn client_of(scenario: &Scenario, more: &str) -> String {
        client(scenario, Path::new("/fullpipe"), Path::new("/d.json"), more).expect("identical flows")
    }

    /// Every field of a point becomes an iperf3 flag or a setting of one of the two hosts.
    #[test]
    fn a_situation_becomes_flags_and_settings() {
        let scenario = scenario(
            "sndbuf = '16MiB'\nrcvbuf = { fixed = '64KiB' }",
            "cc = 'bbr1'\nmax_pacing = '30mbit'\napp = { read = '8mbit', write = '20mbit' }",
        );
        assert_eq!(
            client_of(&scenario, "--link 50000000bit/s"),
            "echo '4096 16384 16777216' > /proc/sys/net/ipv4/tcp_wmem && '/fullpipe' iperf3 -c $FULLPIPE_PEER -J \
             -C bbr --link 50000000bit/s -t 6 -b 20000000 --fq-rate 30000000 > '/d.json'"
        );
        let server = server(&scenario, Path::new("/fifo"));
        assert!(server.starts_with("echo '4096 65536 65536' > /proc/sys/net/ipv4/tcp_rmem;"), "{server}");
        assert!(server.contains("dd bs=50000 ") && server.contains("sleep 0.05;"), "{server}");
        assert!(server.ends_with("exec iperf3 -s -F '/fifo' > /dev/null"), "{server}");
    }

    #[test]
    fn a_test_that_ended_early_is_no_log() {
        let of = |seconds: f64| format!("{{\"end\":{{\"sum_sent\":{{\"seconds\":{seconds}}}}}}}");
        let (timed, sized) = (scenario("", "cc = 'cubic'"), scenario("", "cc = 'cubic'\nbytes = '1MB'"));
        assert!(is_whole(&timed, &of(6.01)) && !is_whole(&timed, &of(3.2)));
        assert!(is_whole(&sized, &of(0.3)));
        for damaged in ["", "{\"end\":{}}", "{\"error\":\"interrupted\"}"] {
            assert!(!is_whole(&timed, damaged) && !is_whole(&sized, damaged), "{damaged}");
        }
    }

    #[test]
    fn several_flows_are_parallel_streams() {
        let four = client_of(&scenario("", "cc = 'cubic'\ncount = 4"), "--no-diagnosis");
        assert!(four.contains(" -J -C cubic --no-diagnosis -P 4 -t 6 > "), "{four}");
        let mixed = scenario("", "cc = 'cubic'\n[[flow]]\ncc = 'reno'");
        let error = client(&mixed, Path::new("/fullpipe"), Path::new("/d.json"), "").expect_err("refused");
        assert_eq!(error.message, "the flows of a measured point differ");
    }
}
