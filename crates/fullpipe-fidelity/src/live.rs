//! Classifies live measurements: runs `fullpipe iperf3 -c` against iperf3's own server, across the path of
//! each situation.
//!
//! ```text
//!   sender's namespace                       path of the point            receiver's namespace
//!   tcp_wmem, fullpipe iperf3 -c -J ─────────────────────────────────────► tcp_rmem, iperf3 -s
//!        └─► limit_seconds ─► the limit of most time ─► right or wrong
//! ```
//!
//! The receiver is not sampled. At the sender, a window that is small because of the receive buffer differs
//! from a window that is small because of a slow application only in its development over time. Runs in which
//! one of the two is mistaken for the other are counted separately.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use fullpipe::Limit;
use fullpipe::lab::experiment::{Experiment, Point};
use fullpipe::lab::scenario::Scenario;
use fullpipe::lab::workload::{Reading, Writing};
use fullpipe::linux::command::{self, Behind};
use fullpipe::linux::{Datapath, kernel_name, rights};
use fullpipe_fidelity::classifier_validation::{self, NamedLimit, Situation};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::args::FidelityArgs;
use crate::kernel::{keep, kept};
use crate::situations::expected;
use fullpipe::Error;

/// Required share of runs in which `fullpipe iperf3` reports the right limit.
const ASKED: f64 = 0.9;
/// Name of the file that stores the live measurements.
const KEPT: &str = "live.jsonl";

/// A live measurement as stored in the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct LiveRecord {
    point: String,
    seed: u64,
    named: Option<NamedLimit>,
    /// Whether the machine was too busy to keep the timing of the emulated path.
    disturbed: bool,
}

/// Returns the table of situations, and whether `fullpipe iperf3` reports the right limit often enough.
pub(crate) fn table(experiment: &Experiment, args: &FidelityArgs) -> Result<(String, bool), Error> {
    let points = experiment.points();
    let expected = points.iter().map(expected).collect::<Result<Vec<_>, _>>()?;
    fs::create_dir_all(&args.out).map_err(|error| cannot("create", &args.out, &error))?;
    rights::acquire()?;
    let mut made: Vec<LiveRecord> = kept(&args.out.join(KEPT))?;
    for &seed in &experiment.seeds() {
        for point in points {
            if made.iter().any(|run| run.point == point.label && run.seed == seed) {
                continue;
            }
            let run = measured(point, seed, &args.out)?;
            eprintln!("seed {seed}, {}: {}", run.point, said(run.named));
            keep(&args.out.join(KEPT), &run)?;
            made.push(run);
        }
    }
    let of = |point: &Point| {
        let runs =
            made.iter().filter(|run| run.point == point.label && experiment.seeds().contains(&run.seed));
        runs.cloned().collect::<Vec<_>>()
    };
    let runs: Vec<Vec<LiveRecord>> = points.iter().map(of).collect();
    let situation = |((point, &expected), runs): ((_, _), &Vec<LiveRecord>)| {
        let named = runs.iter().filter_map(|run| run.named).collect();
        Situation { point, expected, named }
    };
    let situations: Vec<_> = points.iter().zip(&expected).zip(&runs).map(situation).collect();
    let all: Vec<&LiveRecord> = runs.iter().flatten().collect();
    let right: usize = situations.iter().map(Situation::right).sum();
    let either = |of: &Situation<'_>| {
        let other = other_of_one_end(of.expected);
        of.named.iter().filter(|named| Some(named.limit) == other).count()
    };
    let unseen: usize = situations.iter().map(either).sum();
    let disturbed = all.iter().filter(|run| run.disturbed).count();
    let share = right as f64 / all.len().max(1) as f64;
    let holds = share >= ASKED && !all.is_empty();
    let taken = match unseen {
        0 => String::new(),
        _ => format!(
            " In {unseen} of the others the receiver's buffer and its application were taken for each other, which only the \
             receiving end knows."
        ),
    };
    let text = format!(
        "{} runs; `{}` makes this table.\n\n{}\nThe right limit is named in {right} of {} runs ({:.1} %). Asked is {:.0} %; \
         met: {}.{taken} During {disturbed} of the runs the machine was too busy for the path to keep its times; they are counted like \
         the others.\n",
        all.len(),
        crate::command("--situations --live ", args),
        classifier_validation::lines(&situations),
        all.len(),
        100.0 * share,
        100.0 * ASKED,
        if holds { "yes" } else { "no" },
    );
    Ok((text, holds))
}

/// Returns the limit that cannot be distinguished from `limit` if only the sender is sampled.
fn other_of_one_end(limit: Limit) -> Option<Limit> {
    match limit {
        Limit::Rwnd => Some(Limit::ReceiverApp),
        Limit::ReceiverApp => Some(Limit::Rwnd),
        _ => None,
    }
}

fn said(named: Option<NamedLimit>) -> String {
    named.map_or("nothing named".into(), |named| format!("{} {:.0} %", named.limit, 100.0 * named.share))
}

fn measured(point: &Point, seed: u64, dir: &Path) -> Result<LiveRecord, Error> {
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
    let command = client(scenario, &own, &path)?;
    let serve = server(scenario, &fifo);
    let ended = command::run(&behind, &["sh".into(), "-c".into(), OsString::from(command)], Some(&serve))?;
    if ended.status != 0 {
        let message = format!("'{}', seed {seed}: the client ended with {}", point.label, ended.status);
        return Err(Error::new(message, "see its message above; iperf3 must be installed"));
    }
    let text = fs::read_to_string(&path).map_err(|error| cannot("read", &path, &error))?;
    let document: Value = serde_json::from_str(&text)
        .map_err(|error| Error::new(format!("the client's document is not JSON: {error}"), ""))?;
    // The files are no longer needed. It is not an error if one of the files does not exist.
    for file in [&path, &fifo] {
        let _ = fs::remove_file(file);
    }
    let disturbed = !ended.validity.is_valid();
    Ok(LiveRecord { point: point.label.clone(), seed, named: named(&document), disturbed })
}

/// Returns the limit that lasted longest, according to the client's JSON document.
fn named(document: &Value) -> Option<NamedLimit> {
    let seconds = document.pointer("/end/fullpipe/limit_seconds")?.as_object()?;
    let all: f64 = seconds.values().filter_map(Value::as_f64).sum();
    let (name, most) = seconds
        .iter()
        .filter_map(|(name, time)| Some((name, time.as_f64()?)))
        .max_by(|a, b| a.1.total_cmp(&b.1))?;
    let limit = Limit::ALL.into_iter().find(|limit| limit.name() == name)?;
    Some(NamedLimit { limit, share: most / all })
}

/// Returns the shell command for the sending host, which applies the host's settings and runs the client.
fn client(scenario: &Scenario, own: &Path, document: &Path) -> Result<String, Error> {
    let [flow] = &scenario.flows[..] else {
        return Err(Error::new("a situation must have one flow", "remove count"));
    };
    let mut flags = vec![
        format!("-C {}", kernel_name(flow.cc)),
        format!("--link {}bit/s", scenario.path.forward.rate.as_bps()),
    ];
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

/// Returns the shell command for the receiving host, which applies the host's settings and runs the server. A
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

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Error {
    Error::new(format!("cannot {what} {}: {error}", path.display()), "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_limit_of_most_time_is_the_one_that_is_named() {
        let of = |seconds: Value| named(&json!({"end": {"fullpipe": {"limit_seconds": seconds}}}));
        let told = of(json!({"slow_start": 1.0, "rwnd": 3.0})).expect("named");
        assert!(told.limit == Limit::Rwnd && (told.share - 0.75).abs() < 1e-9, "{told:?}");
        assert_eq!((of(json!({})), named(&json!({"end": {}}))), (None, None));
    }

    /// Every field of a point becomes an iperf3 flag or a setting of one of the two hosts.
    #[test]
    fn a_situation_becomes_flags_and_settings() {
        let text = "name = 'x'\nduration = '6s'\n[path]\nrate = '50mbit'\nrtt = '40ms'\n\
                    [host]\nsndbuf = '16MiB'\nrcvbuf = { fixed = '64KiB' }\n\
                    [[flow]]\ncc = 'bbr1'\nmax_pacing = '30mbit'\napp = { read = '8mbit', write = '20mbit' }";
        let experiment = Experiment::from_toml(text).expect("valid");
        let scenario = &experiment.points()[0].scenario;
        let client = client(scenario, Path::new("/fullpipe"), Path::new("/d.json")).expect("one flow");
        assert_eq!(
            client,
            "echo '4096 16384 16777216' > /proc/sys/net/ipv4/tcp_wmem && '/fullpipe' iperf3 -c $FULLPIPE_PEER -J \
             -C bbr --link 50000000bit/s -t 6 -b 20000000 --fq-rate 30000000 > '/d.json'"
        );
        let server = server(scenario, Path::new("/fifo"));
        assert!(server.starts_with("echo '4096 65536 65536' > /proc/sys/net/ipv4/tcp_rmem;"), "{server}");
        assert!(server.contains("dd bs=50000 ") && server.contains("sleep 0.05;"), "{server}");
        assert!(server.ends_with("exec iperf3 -s -F '/fifo' > /dev/null"), "{server}");
    }
}
