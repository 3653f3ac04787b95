//! Tests of transfers between a kernel and the service over an emulated path with loss, reordering and
//! duplication.

use std::env;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::thread;
use std::time::Duration;

use fullpipe::lab::experiment::Experiment;
use fullpipe::linux::Datapath;
use fullpipe::linux::namespace::Namespace;
use fullpipe::linux::wan::{End, RECEIVER, SENDER, Wan, WanConfig};
use fullpipe::units;

use super::peers::{self, Server};
use super::scene::{Running, Scene, can_run, now, start};
use super::usage::{cpu, load};

const PORT: u16 = 9_000;
const UPSTREAM: &str = "127.0.0.1:9001";

/// A scene whose two hosts are at the ends of an emulated path.
pub(super) struct FarScene {
    pub(super) scene: Scene,
    _sleeper: Running,
    _wan: Wan,
}

impl FarScene {
    /// Builds the path of an experiment from its section `[path]`. Its data direction leads to the client.
    pub(super) fn new(name: &str, path: &str) -> Self {
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
        Self { scene, _sleeper: sleeper, _wan: wan }
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
    let far = FarScene::new(name, &path);
    let scene = &far.scene;
    let listen = SocketAddr::new(scene.address(), PORT);
    let _servers = [Server::new(&scene.server, &listen.to_string()), Server::new(&scene.server, UPSTREAM)];
    let service = scene.accelerate(PORT, UPSTREAM, "hidden");
    let each = len / connections;
    let connect = || peers::connect(&scene.client, listen, Duration::from_secs(60)).expect("a connection");
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
    if can_run() {
        transfer("accelerate-bad-path", "100mbit", 4_000_000, 2);
    }
}

/// Transfers 10 GB over the bad path; `FULLPIPE_GIGABYTES` sets another amount.
#[test]
#[ignore = "a long test: cargo test --release -p fullpipe-cli --test realtime ten_gigabytes -- --ignored --nocapture"]
fn ten_gigabytes_arrive_over_a_bad_path() {
    let gigabytes = env::var("FULLPIPE_GIGABYTES").map_or(10, |text| text.parse().expect("a number"));
    if can_run() {
        transfer("accelerate-ten-gigabytes", "1gbit", gigabytes * 1_000_000_000, 4);
    }
}
