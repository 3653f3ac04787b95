//! Tests of transfers between a kernel and the service over an emulated path with loss, reordering and
//! duplication.

use std::env;
use std::net::IpAddr;
use std::process::Command;
use std::thread;
use std::time::Duration;

use fullpipe::lab::experiment::Experiment;
use fullpipe::linux::Datapath;
use fullpipe::linux::namespace::Namespace;
use fullpipe::linux::wan::{End, RECEIVER, SENDER, Wan, WanConfig};
use fullpipe::units;

use super::host::Host;
use super::peers;
use super::scene::{Running, Scene, can_run, now, start};
use super::usage::{cpu, load};

/// A host and a client at the ends of an emulated path.
pub(super) struct FarHost {
    pub(super) host: Host,
    _sleeper: Running,
    _wan: Wan,
}

impl FarHost {
    /// Builds the path of an experiment from its section `[path]`. Its data direction leads to the client. Returns
    /// `None` if this process cannot run the service, so that the test is skipped.
    pub(super) fn new(name: &str, path: &str) -> Option<Self> {
        if !can_run() {
            return None;
        }
        let text = format!("name = \"path\"\nduration = \"1s\"\n[path]\n{path}\n[[flow]]\ncc = \"bbr1\"\n");
        let experiment = Experiment::from_toml(&text).expect("a path");
        let config = WanConfig {
            path: &experiment.points()[0].scenario.path,
            flows: &[],
            seed: 1,
            datapath: Datapath::Offload,
            lead: units::Duration::ZERO,
            logged: false,
            ends: [End::Kernel; 2],
        };
        let wan = Wan::new(&config).expect("allowed");
        let sleeper = Running(start(&wan.sender, Command::new("sleep").arg("3600")));
        let server = namespace_of(&sleeper);
        let other = Running(start(&wan.receiver, Command::new("sleep").arg("3600")));
        let addresses = [IpAddr::from(SENDER), IpAddr::from(RECEIVER)];
        let scene = Scene::between(name, namespace_of(&other), server, addresses);
        Some(Self { host: Host::of(scene), _sleeper: sleeper, _wan: wan })
    }
}

fn namespace_of(process: &Running) -> Namespace {
    Namespace::of_process(process.0.id()).expect("a namespace").expect("a process")
}

/// Transfers `len` bytes over `connections` connections in each direction, and checks each byte.
fn transfer(name: &str, rate: &str, len: u64, connections: u64) {
    let impairments =
        "loss = \"3%\"\nduplicate = \"1%\"\njitter = { up_to = \"5ms\", share = \"2%\", order = false }";
    let path = format!(
        "rate = \"{rate}\"\nrtt = \"20ms\"\nqueue = \"2bdp\"\n{impairments}\n[path.backward]\n{impairments}"
    );
    let Some(far) = FarHost::new(name, &path) else { return };
    let service = far.host.accelerate();
    let Host { scene, listen, .. } = &far.host;
    let each = len / connections;
    let connect = || peers::connect(&scene.client, *listen, Duration::from_secs(60)).expect("a connection");
    let (begun, busy) = (now(), cpu(service.worker));
    thread::scope(|scope| {
        for number in 0..connections {
            let (down, up) = (connect(), connect());
            scope.spawn(move || peers::download(down, each, Duration::ZERO).expect("a download"));
            // Uploads use the kernel's congestion control, which reduces its window at each loss.
            let part = (each / 100).max(10_000 + number);
            scope.spawn(move || peers::upload_and_end(up, part).expect("an upload"));
        }
    });
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{:.1} GB down in {seconds:.0} s: {:.0} Mbit/s of {rate}, every byte right; worker {:.0} % of a core; \
         load {}",
        len as f64 * 1e-9,
        len as f64 * 8e-6 / seconds,
        100.0 * (cpu(service.worker) - busy) / seconds,
        load()
    );
    let status = scene.status(&service.keeper).expect("a service");
    assert_eq!(status["starts"], 1, "{status}");
}

/// Every byte arrives over a path that loses, duplicates and reorders packets in both directions.
#[test]
fn every_byte_arrives_over_a_bad_path() {
    transfer("accelerate-bad-path", "100mbit", 4_000_000, 2);
}

/// Transfers 10 GB over the bad path; `FULLPIPE_GIGABYTES` sets another amount.
#[test]
#[ignore = "a long test: cargo test --release -p fullpipe-cli --test realtime ten_gigabytes -- --ignored --nocapture"]
fn ten_gigabytes_arrive_over_a_bad_path() {
    let gigabytes = env::var("FULLPIPE_GIGABYTES").map_or(10, |text| text.parse().expect("a number"));
    transfer("accelerate-ten-gigabytes", "1gbit", gigabytes * 1_000_000_000, 4);
}
