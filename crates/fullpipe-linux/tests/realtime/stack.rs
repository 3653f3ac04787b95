//! Tests of fullpipe's TCP stack with the kernel's, as root. The tests check every byte: the other stack must
//! accept the engine's segments, and all payload must arrive at the correct offset.

use crate::peers;
use crate::rights;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use crate::exchange::{Done, Exchange, Opens};
use crate::peers::iperf3::Server;
use crate::peers::web::{Fetch, Web};
use fullpipe_lab::capture::{RECEIVER, SENDER};
use fullpipe_lab::experiment::Experiment;
use fullpipe_lab::scenario::Scenario;
use fullpipe_lab::trace::{NoTrace, Row};
use fullpipe_linux::emu::{Options, check, run};
use fullpipe_linux::namespace::Namespace;
use fullpipe_linux::stack_loop::Port;
use fullpipe_linux::wan::{self, End, Wan, WanConfig, WanReport};
use fullpipe_linux::{Clock, Datapath, Tun, TunConfig};
use fullpipe_tcp::Config;
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Bytes, Duration, Instant};

/// Returns the address of the kernel and the address of fullpipe's stack on a device.
fn neighbours(v6: bool) -> [IpAddr; 2] {
    let v6_of = |host| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, host]);
    if v6 { [v6_of(1), v6_of(2)] } else { [SENDER.into(), RECEIVER.into()] }
}

/// Bytes cross a TUN device in both directions: either side connects, with plain segments and with
/// super-packets, over IPv4 and IPv6.
#[test]
fn bytes_cross_a_device() {
    let Some(_alone) = rights::alone() else { return };
    for (datapath, opens, v6) in [
        (Datapath::Plain, Opens::Ours, false),
        (Datapath::Plain, Opens::Kernel, false),
        (Datapath::Offload, Opens::Ours, false),
        (Datapath::Offload, Opens::Kernel, false),
        (Datapath::Plain, Opens::Kernel, true),
        (Datapath::Offload, Opens::Ours, true),
    ] {
        let [kernel, ours] = neighbours(v6);
        let namespace = Namespace::new().expect("allowed");
        let port = wan::device(&namespace, kernel, datapath, 1_500).expect("allowed");
        let exchange = Exchange {
            opens,
            ours: SocketAddr::from((ours, 40_000)),
            kernel: SocketAddr::from((kernel, 5_201)),
            bytes: [3 << 20, 3 << 20],
            cc: Algorithm::Cubic,
            kernel_cc: None,
            buffers: Bytes::from_mib(4),
            mtu: 1_500,
        };
        let done = exchange.run(&port, &namespace, Clock::starting_in(Duration::ZERO));
        // With IPv6, the kernel also sends router solicitations and group reports, which are not TCP packets.
        assert!(v6 || done.refused == 0, "{datapath:?}: a checksum was wrong");
        assert_eq!(done.report.write_errors, 0);
        eprintln!("{datapath:?}, {opens:?} connects: {done:?}");
    }
}

/// The loop runs on a device with a given name, address and prefix, which is created without the lab, as a
/// service on a host would create it.
#[test]
fn the_loop_runs_on_a_device_of_a_host() {
    let Some(_alone) = rights::alone() else { return };
    let (kernel, ours) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 200]));
    for (datapath, opens) in [(Datapath::Plain, Opens::Kernel), (Datapath::Offload, Opens::Ours)] {
        // The test uses a separate namespace instead of the host's, so that it leaves nothing behind.
        let host = Namespace::new().expect("allowed");
        let config =
            TunConfig { name: "edge0", datapath, mtu: 1_400, queue: 1_000, address: kernel, prefix_len: 24 };
        let port = Port::from(host.run(|| Tun::new(&config)).unwrap_or_else(|error| panic!("{error}")));
        let exchange = Exchange {
            opens,
            ours: SocketAddr::from((ours, 443)),
            kernel: SocketAddr::from((kernel, 5_201)),
            bytes: [1 << 20, 1 << 20],
            cc: Algorithm::Bbr1,
            kernel_cc: None,
            buffers: Bytes::from_mib(4),
            mtu: 1_400,
        };
        let done = exchange.run(&port, &host, Clock::starting_in(Duration::ZERO));
        assert_eq!(done.report.write_errors, 0, "{datapath:?}");
    }
}

/// A device name that the kernel does not accept is reported as an error.
#[test]
fn a_device_without_a_name_is_refused() {
    for name in ["", "sixteen-bytes-16"] {
        let address = IpAddr::from([192, 0, 2, 1]);
        let datapath = Datapath::Plain;
        let config = TunConfig { name, datapath, mtu: 1_400, queue: 1_000, address, prefix_len: 24 };
        let error = Tun::new(&config).expect_err("no name");
        assert_eq!(error.hint, "choose a name of 1 to 15 bytes");
    }
}

/// Test with a third-party client: `curl` fetches files over several connections, and every byte is checked.
#[test]
fn curl_takes_files() {
    let Some(_alone) = rights::alone() else { return };
    if !installed("curl") {
        return;
    }
    let [kernel, ours] = neighbours(false);
    let namespace = Namespace::new().expect("allowed");
    let port = wan::device(&namespace, kernel, Datapath::Offload, 1_500).expect("allowed");
    let local = SocketAddr::from((ours, 80));
    let fetched = peers::beside(&port, local, Some(Config::default()), Web::new(local), |_| {
        let url = format!("http://{ours}/[1-8]");
        let folder = Folder::new("curl");
        let output = folder.0.join("#1");
        let status = namespace.run(|| {
            let mut curl = Command::new("curl");
            curl.args(["-sS", "--http1.0", "--max-time", "120", "-Z", "--parallel-immediate", "-o"])
                .arg(&output)
                .arg(&url);
            Ok(curl.status().expect("it starts"))
        });
        assert!(status.expect("a namespace").success());
        (1..=8).map(|n| std::fs::read(folder.0.join(n.to_string())).expect("taken")).collect::<Vec<_>>()
    });
    for file in fetched {
        assert!(file == peers::web::file(), "{} bytes", file.len());
    }
}

/// Returns whether a program is installed; if it is not, prints that its test is skipped.
fn installed(program: &str) -> bool {
    let there = Command::new(program).arg("--help").output().is_ok();
    if !there {
        eprintln!("skipped: there is no {program}");
    }
    there
}

/// Repeats `look` until it returns a value, for at most one minute, and returns that value.
#[expect(clippy::disallowed_methods, reason = "a program is waited for")]
fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let seen = look();
        if seen.is_some() || std::time::Instant::now() > until {
            return seen;
        }
        thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// A folder for one test, which is removed when this value is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("fullpipe-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Test with a third-party server: `nginx` sends files over several connections, two files on each, with
/// sendfile and lingering close.
#[test]
fn nginx_sends_files() {
    let Some(_alone) = rights::alone() else { return };
    if !installed("nginx") {
        return;
    }
    let [kernel, ours] = neighbours(false);
    let namespace = Namespace::new().expect("allowed");
    let port = wan::device(&namespace, kernel, Datapath::Offload, 1_500).expect("allowed");
    let folder = Folder::new("nginx");
    std::fs::write(folder.0.join("file"), peers::web::file()).expect("room");
    let at = folder.0.display();
    let settings = format!(
        "daemon off; master_process off; pid {at}/pid; error_log {at}/errors;\nevents {{}}\n\
         http {{ access_log off; sendfile on; tcp_nopush on; client_body_temp_path {at}; proxy_temp_path {at};\n\
         fastcgi_temp_path {at}; uwsgi_temp_path {at}; scgi_temp_path {at};\n\
         server {{ listen {kernel}:80; root {at}; }} }}\n"
    );
    std::fs::write(folder.0.join("settings"), settings).expect("room");
    let mut nginx = namespace
        .run(|| {
            let mut nginx = Command::new("nginx");
            nginx.arg("-p").arg(&folder.0).arg("-c").arg(folder.0.join("settings"));
            Ok(nginx.stderr(Stdio::null()).spawn().expect("it starts"))
        })
        .expect("a namespace");
    // nginx has started to listen once its PID file exists.
    wait_for(|| folder.0.join("pid").exists().then_some(())).expect("it starts");
    let local = SocketAddr::from((ours, 40_000));
    let client = Fetch::new(local, SocketAddr::from((kernel, 80)), 6);
    let answers = peers::beside(&port, local, None, client, |client| {
        wait_for(|| {
            let mut client = client.lock().expect("no panic");
            client.is_done().then(|| (!client.failed).then(|| std::mem::take(&mut client.answers)))
        })
    });
    let _ = nginx.kill();
    let _ = nginx.wait();
    let answers = answers.flatten().expect("answers in time, and no connection that was reset");
    assert_eq!(answers.len(), 6);
    let file = peers::web::file();
    for answer in answers {
        let mut rest = &answer[..];
        for _ in 0..2 {
            let head = rest.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
            assert!(rest.starts_with(b"HTTP/1.1 200 OK"));
            assert!(rest[head..].starts_with(&file), "the file is another");
            rest = &rest[head + file.len()..];
        }
        assert!(rest.is_empty(), "{} bytes more", rest.len());
    }
}

/// Test with a third-party tool: `iperf3` sends, receives and does both, over one connection and over four.
/// Client and server count the same number of bytes.
#[test]
fn iperf3_measures() {
    let Some(_alone) = rights::alone() else { return };
    if !installed("iperf3") {
        return;
    }
    for (datapath, flags) in [
        (Datapath::Offload, &["-P", "4"][..]),
        (Datapath::Offload, &["-R"]),
        (Datapath::Plain, &["--bidir"]),
        (Datapath::Plain, &["-R", "-P", "4", "-n", "20M"]),
    ] {
        let [kernel, ours] = neighbours(false);
        let namespace = Namespace::new().expect("allowed");
        let port = wan::device(&namespace, kernel, datapath, 1_500).expect("allowed");
        let local = SocketAddr::from((ours, 5_201));
        let config = Config { nodelay: true, ..Config::default() };
        let (document, (came, wrote), done) =
            peers::beside(&port, local, Some(config), Server::new(local), |server| {
                let output = namespace.run(|| {
                    let mut iperf3 = Command::new("timeout");
                    iperf3.args(["120", "iperf3", "-J", "-c", &ours.to_string()]);
                    if !flags.contains(&"-n") {
                        iperf3.args(["-t", "1"]);
                    }
                    Ok(iperf3.args(flags).output().expect("it starts"))
                });
                let document = output.expect("a namespace").stdout;
                let server = server.lock().expect("no panic");
                (document, server.carried(), server.is_done())
            });
        let document: serde_json::Value = serde_json::from_slice(&document).expect("JSON");
        assert_eq!(document.get("error"), None, "{flags:?}");
        assert!(done, "{flags:?}");
        let bytes = |sum: &str| document["end"][sum]["bytes"].as_u64().unwrap_or(0);
        let (sent, received) = match flags {
            ["-R", ..] => (0, bytes("sum_received")),
            ["--bidir"] => (bytes("sum_sent"), bytes("sum_received_bidir_reverse")),
            _ => (bytes("sum_sent"), 0),
        };
        eprintln!("{datapath:?} {flags:?}: {came} bytes came of {sent}, {received} arrived of {wrote}");
        // Data that is in buffers or in flight when the client ends a test is never read. On a busy machine,
        // this may be more data than was read before.
        assert!(came <= sent, "{flags:?}: {came} of {sent}");
        assert!(received <= wrote, "{flags:?}: {received} of {wrote}");
        let asked = if flags.contains(&"-n") { 20 << 20 } else { 1_000_000 };
        assert!(came + received >= asked, "{flags:?}: {came} and {received}");
    }
}

/// Runs an exchange across an emulated path, with fullpipe's TCP stack at one end and the kernel's at the
/// other.
fn across(path: &str, datapath: Datapath, ours: usize, exchange: Exchange) -> (Done, WanReport) {
    let text = format!("name = 'x'\nduration = '1s'\n[path]\n{path}\n[[flow]]\ncc = 'cubic'\n");
    let experiment = Experiment::from_toml(&text).unwrap_or_else(|error| panic!("{error}"));
    let mut ends = [End::Kernel; 2];
    ends[ours] = End::Ours;
    let path = &experiment.points()[0].scenario.path;
    let config = WanConfig { path, flows: &[], seed: 7, datapath, lead: Duration::ZERO, logged: false, ends };
    let wan = Wan::new(&config).expect("allowed");
    let namespace = if ours == 0 { &wan.receiver } else { &wan.sender };
    let done = exchange.run(wan.port(ours).expect("asked for"), namespace, wan.clock);
    (done, wan.finish().unwrap_or_else(|error| panic!("{error}")))
}

const HOSTILE: &str = "rate = '200mbit'\nrtt = '10ms'\nqueue = '500KiB'\nloss = '3%'\nduplicate = '2%'\n\
                       jitter = { up_to = '3ms', share = '10%', order = false }\n\
                       backward = { loss = '3%', duplicate = '2%', jitter = { up_to = '3ms', share = '10%', order = false } }";

/// On a path with 3 % loss, reordering and duplication in both directions, every byte arrives once and in
/// order. The test also checks that all of these impairments occur.
#[test]
fn bytes_cross_a_hostile_path() {
    let Some(_alone) = rights::alone() else { return };
    for (ours, datapath, opens, cc) in [
        (0, Datapath::Plain, Opens::Ours, Algorithm::Bbr1),
        (1, Datapath::Offload, Opens::Kernel, Algorithm::Cubic),
    ] {
        let addresses = [SENDER, RECEIVER];
        let exchange = Exchange {
            opens,
            ours: SocketAddr::from((addresses[ours], 5_201)),
            kernel: SocketAddr::from((addresses[1 - ours], 5_202)),
            bytes: [4 << 20, 1 << 20],
            cc,
            kernel_cc: None,
            buffers: Bytes::from_mib(4),
            mtu: 1_500,
        };
        let (done, report) = across(HOSTILE, datapath, ours, exchange);
        eprintln!("{datapath:?}, {opens:?} connects: {done:?}");
        for counters in [report.forward.counters, report.backward.counters] {
            eprintln!("{counters:?}");
            assert!(
                counters.random_drops > 10 && counters.duplicated > 10 && counters.reordered > 10,
                "{counters:?}"
            );
        }
        assert_eq!((done.refused, report.tun_drops), (0, 0));
        assert!(done.stats.retransmits > 20, "{done:?}");
    }
}

/// With `stack` in an experiment, outcome and trace rows have the same form as for kernel flows. If
/// fullpipe's end sends, outcome and trace rows also include the limits of the sender.
#[test]
fn an_experiment_has_our_tcp_at_either_end() {
    let Some(_alone) = rights::alone() else { return };
    for (stack, datapath) in [
        ("fullpipe", Datapath::Plain),
        ("fullpipe", Datapath::Offload),
        ("kernel-to-fullpipe", Datapath::Plain),
        ("kernel-to-fullpipe", Datapath::Offload),
    ] {
        let text = format!(
            "name = 'x'\nduration = '2s'\n[path]\nrate = '100mbit'\nrtt = '10ms'\nloss = '1%'\nqueue = '60KiB'\n\
             [[flow]]\ncc = 'cubic'\nbytes = '300kB'\ncount = 2\nstack = '{stack}'\n[[sample]]\nevery = '50ms'\n"
        );
        let experiment = Experiment::from_toml(&text).expect("valid");
        let scenario = Scenario { seed: 7, ..experiment.points()[0].scenario.clone() };
        let mut rows: Vec<Row> = Vec::new();
        let options = Options { datapath, logged: false };
        let ran = run(&scenario, options, &mut rows).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(rows.len(), 2 * 40, "{stack}, {datapath:?}");
        for flow in &ran.outcome.flows {
            assert_eq!(flow.bytes.get(), 300_000, "{stack}, {datapath:?}");
            let finished = flow.finished.expect("it fits");
            assert!(finished.as_secs_f64() > 0.034, "no faster than the line: {finished}");
        }
        for last in &rows[rows.len() - 2..] {
            assert_eq!(last.received().map(|bytes| bytes.get()), Some(300_000));
            assert_eq!((last.sender.mss.get(), last.sender.notsent.get()), (1_448, 0));
            assert_eq!(last.truth.is_some(), stack == "fullpipe");
            let spent = last
                .truth
                .as_ref()
                .map(|truth| truth.limit_times.iter().map(|t| t.as_secs_f64()).sum::<f64>());
            assert!(spent.is_none_or(|spent| spent > 1.7), "{spent:?}");
        }
        let resent = ran.validity.retransmits.expect("our sockets");
        assert!(ran.validity.drops > 0 && resent >= ran.validity.drops, "{:?}", ran.validity);
        assert_eq!(ran.validity.tun_drops, 0);
    }
}

/// All flows of a run share the two ends of one path, so flows with different stacks are an error.
#[test]
fn a_run_has_one_stack() {
    let text = "name = 'x'\nduration = '1s'\n[path]\nrate = '100mbit'\nrtt = '10ms'\n\
                [[flow]]\ncc = 'cubic'\nstack = 'fullpipe'\n[[flow]]\ncc = 'cubic'\n";
    let experiment = Experiment::from_toml(text).expect("valid");
    let error = check(&experiment.points()[0], Datapath::Plain).expect_err("two stacks");
    assert!(
        error
            .message
            .ends_with("the flows of a run use different stacks, but each end of the path has only one")
    );
}

/// Long run of two exchanges with a total of `FULLPIPE_STACK_BYTES` (10 GB by default). In each exchange,
/// half of the bytes flow in each direction at the same time. In the first exchange fullpipe's stack is at
/// the sender's end of the path and connects; in the second it is at the receiver's end, and the kernel
/// connects. `docs/evidence/stack.md` contains the result.
#[test]
#[ignore = "takes minutes: cargo test --release -p fullpipe-linux --test realtime stack:: -- --ignored --nocapture"]
fn ten_gigabytes_cross_a_hostile_path() {
    let Some(_alone) = rights::alone() else { return };
    let total =
        std::env::var("FULLPIPE_STACK_BYTES").map_or(10_000_000_000, |text| text.parse().expect("a number"));
    let path =
        HOSTILE.replace("200mbit", "400mbit").replace("10ms'\nqueue", "4ms'\nqueue").replace("3ms", "1ms");
    for (ours, datapath, opens) in [(0, Datapath::Plain, Opens::Ours), (1, Datapath::Offload, Opens::Kernel)]
    {
        let addresses = [SENDER, RECEIVER];
        let exchange = Exchange {
            opens,
            ours: SocketAddr::from((addresses[ours], 5_201)),
            kernel: SocketAddr::from((addresses[1 - ours], 5_202)),
            bytes: [total / 4, total / 4],
            cc: Algorithm::Bbr1,
            // At 3 % loss, a loss-based congestion control would take an hour.
            kernel_cc: Some("bbr"),
            buffers: Bytes::from_mib(16),
            mtu: 1_500,
        };
        let begun = Clock::starting_in(Duration::ZERO);
        let (done, report) = across(&path, datapath, ours, exchange);
        let took = begun.now().saturating_since(Instant::ZERO);
        eprintln!(
            "{datapath:?}, {opens:?} connects: {:?} bytes each way in {took}: {done:?}",
            exchange.bytes
        );
        eprintln!("there {:?}\nback {:?}", report.forward.counters, report.backward.counters);
        assert_eq!((done.refused, report.tun_drops), (0, 0));
    }
}

/// `experiments/stack.toml`: with each congestion control, the goodput on fullpipe's TCP stack equals that on
/// the kernel's within 10 %. The comparison uses the mean over the seeds for which both runs kept their
/// timing. `docs/evidence/stack.md` contains the result.
#[test]
#[ignore = "takes minutes, and a machine that has nothing else to do"]
fn goodput_is_that_of_the_kernels_tcp() {
    let Some(_alone) = rights::alone() else { return };
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/stack.toml");
    let experiment = Experiment::from_toml(&std::fs::read_to_string(file).expect("a file")).expect("valid");
    let repeat = std::env::var("FULLPIPE_STACK_REPEAT").ok().map(|text| text.parse().expect("a number"));
    let experiment = repeat.map_or(experiment.clone(), |repeat| experiment.with_repeat(repeat));
    let goodput = |label: &str, seed| {
        let point = experiment.points().iter().find(|point| point.label == label).expect("its pair");
        let scenario = Scenario { seed, ..point.scenario.clone() };
        let options = Options { datapath: Datapath::Offload, logged: false };
        let ran = run(&scenario, options, &mut NoTrace).unwrap_or_else(|error| panic!("{error}"));
        let flow = &ran.outcome.flows[0];
        eprintln!(
            "{label}, seed {seed}: {}, {} retransmitted, {:?}",
            flow.goodput,
            flow.retransmits,
            ran.validity.problems()
        );
        ran.validity.is_valid().then_some(flow.goodput.as_bps() as f64)
    };
    let mut misses = Vec::new();
    let ours = experiment.points().iter().filter(|point| point.label.contains("stack=fullpipe"));
    for label in ours.map(|point| &point.label) {
        let kernels = label.replace("stack=fullpipe", "stack=kernel");
        let mut sums = [0.0; 2];
        let mut pairs = 0;
        for seed in experiment.seeds() {
            if let (Some(theirs), Some(ours)) = (goodput(&kernels, seed), goodput(label, seed)) {
                sums = [sums[0] + theirs, sums[1] + ours];
                pairs += 1;
            }
        }
        let ratio = sums[1] / sums[0];
        let mean = |sum: f64| sum / f64::from(pairs) / 1e6;
        eprintln!(
            "{label}: {:.1} Mbit/s, kernel {:.1}, {pairs} pairs: {ratio:.3}",
            mean(sums[1]),
            mean(sums[0])
        );
        if !(0.9..=1.1).contains(&ratio) {
            misses.push(format!("{label}: {ratio:.3}"));
        }
    }
    assert!(misses.is_empty(), "{misses:?}");
}
