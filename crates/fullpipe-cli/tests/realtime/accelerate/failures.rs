//! Tests of processes that are killed or stopped, of a server that ends, and of devices that change.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use rustix::process::{Pid, Signal, kill_process};

use super::host::{Host, PORT, UPSTREAM};
use super::path_mtu::behind_router;
use super::peers::{self, Server};
use super::scene::{Scene, can_run, inside, ip, now, signal, sleep, wait_for};

/// Numbers of connections during a failure.
#[derive(Clone, Copy)]
struct LoadSize {
    idle: usize,
    downloads: usize,
    uploads: usize,
}

/// Pause of a download after each read, which leaves CPU time to the other processes even with many
/// downloads.
const DOWNLOAD_PAUSE: Duration = Duration::from_millis(20);
/// Memory budget of a test, in bytes.
const BUDGET: u64 = 4 << 20;
/// Maximum time that a client waits for a connection or a byte.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum time until a client learns that its connection is lost.
const AT_ONCE: Duration = Duration::from_secs(1);

impl Host {
    /// Opens `count` connections, all of which the service must handle. On a busy machine, the worker may be
    /// silent for a second, in which case the kernel handles new connections.
    fn connections(&self, count: usize) -> Vec<TcpStream> {
        wait_for("the worker gets all connections", || {
            let before = self.fallback.seen.accepted.load(Relaxed);
            let connect = |_| peers::connect(&self.scene.client, self.listen, AT_ONCE).ok();
            let streams: Option<Vec<TcpStream>> = (0..count).map(connect).collect();
            sleep(Duration::from_millis(50));
            streams.filter(|_| self.fallback.seen.accepted.load(Relaxed) == before)
        })
    }

    /// Opens idle connections, downloads and uploads as `size` specifies.
    fn load(&self, size: LoadSize) -> Load {
        let mut streams = self.connections(size.idle + size.downloads + size.uploads);
        let idle = streams.drain(..size.idle).map(|mut stream| {
            stream.write_all(b"e").expect("room");
            assert_eq!(peers::exchange(&mut stream).expect("an echo"), 7);
            thread::spawn(move || stream.read(&mut [0]).expect_err("a reset").kind())
        });
        let mut receivers: Vec<_> = idle.collect();
        let download = |stream| thread::spawn(move || peers::download_for_ever(stream, DOWNLOAD_PAUSE));
        receivers.extend(streams.drain(..size.downloads).map(download));
        let upload = |stream| thread::spawn(move || peers::upload(stream));
        let begun = || self.server.seen.begun.load(Relaxed);
        let before = begun();
        let load = Load { receivers, uploads: streams.into_iter().map(upload).collect() };
        wait_for("the uploads arrive", || (begun() == before + size.uploads as u64).then_some(()));
        load
    }

    /// Asserts that none of `count` uploads ended in an orderly way from the server's point of view.
    fn no_upload_looks_whole(&self, count: usize) {
        let ends = wait_for("the ends of the uploads", || {
            let ends = self.server.seen.uploads();
            (ends.len() == count).then_some(ends)
        });
        for (bytes, end) in ends {
            assert_eq!(end, Some(ErrorKind::ConnectionReset), "after {bytes} bytes");
        }
    }

    /// Waits until the kernel has removed the table together with its owner, which takes a few milliseconds.
    fn no_table_is_left(&self) {
        let tables = || inside(&self.scene.server, "nft", &["list", "tables"]).stdout;
        wait_for("no table", || tables().is_empty().then_some(()));
    }

    fn nft(&self, keeper: u64) -> u64 {
        let said = inside(&self.scene.server, "pgrep", &["-P", &keeper.to_string(), "-x", "nft"]).stdout;
        String::from_utf8(said).expect("UTF-8").trim().parse().expect("one process")
    }
}

/// Connections that are open when something fails.
struct Load {
    /// Threads of idle connections and downloads.
    receivers: Vec<JoinHandle<ErrorKind>>,
    uploads: Vec<JoinHandle<ErrorKind>>,
}

impl Load {
    fn is_over(&self) -> bool {
        self.receivers.iter().chain(&self.uploads).all(JoinHandle::is_finished)
    }

    /// Waits until all clients have seen a reset; returns whether this happened within `longest`.
    fn meets_resets_within(self, longest: Duration) -> bool {
        let begun = now();
        wait_for("resets", || self.is_over().then_some(()));
        let lasted = begun.elapsed();
        for client in self.receivers {
            assert_eq!(client.join().expect("no panic"), ErrorKind::ConnectionReset);
        }
        for client in self.uploads {
            let error = client.join().expect("no panic");
            assert!(matches!(error, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error:?}");
        }
        println!("all clients met a reset within {lasted:?}");
        lasted <= longest
    }
}

/// During uploads and idle connections, the test kills the worker, nft, the keeper, and both worker and
/// keeper. The next connection succeeds with its first SYN, the clients see a reset within a second, and no
/// upload looks complete to the server. If worker and keeper are both killed, idle clients see the reset at
/// the next start.
#[test]
fn killed_processes_cost_only_their_connections() {
    kill_during("accelerate-killed", false, LoadSize { idle: 20, downloads: 5, uploads: 5 });
}

#[test]
fn killed_processes_cost_only_their_connections_over_ipv6() {
    kill_during("accelerate-killed-6", true, LoadSize { idle: 5, downloads: 2, uploads: 2 });
}

/// Kills the same processes while a busy server has many connections.
#[test]
#[ignore = "a long test: cargo test --release -p fullpipe-cli --test realtime kills_during_many -- --ignored --nocapture"]
fn kills_during_many_transfers() {
    kill_during("accelerate-killed-many", false, LoadSize { idle: 20, downloads: 100, uploads: 20 });
}

fn kill_during(name: &str, v6: bool, size: LoadSize) {
    let Some(host) = Host::new(name, v6) else { return };
    let before = host.scene.settings();
    let mut service = host.accelerate();
    let mut uploads = 0;
    for killed in ["worker", "nft"] {
        assert!(host.is_ours(), "before the death of {killed}");
        let load = host.load(size);
        let keeper = service.keeper.0.id().into();
        let process = if killed == "worker" { service.worker } else { host.nft(keeper) };
        signal("-KILL", &[process]);
        if killed == "nft" {
            host.no_table_is_left();
        }
        // Both results are correct, because the kernel handles new connections until another worker has
        // started.
        host.is_ours();
        assert!(load.meets_resets_within(AT_ONCE), "clients of a killed {killed}");
        uploads += size.uploads;
        host.no_upload_looks_whole(uploads);
        service.worker = host.scene.worker(&service.keeper, service.worker);
    }
    assert!(host.is_ours());
    let load = host.load(size);
    service.keeper.signal("-KILL");
    assert!(load.meets_resets_within(AT_ONCE), "clients of a killed keeper");
    uploads += size.uploads;
    host.no_upload_looks_whole(uploads);
    let _ = service.keeper.0.wait();
    host.no_table_is_left();
    assert!(!host.is_ours());
    wait_for("the device disappears", || (host.scene.settings() == before).then_some(()));

    let mut service = host.accelerate();
    assert!(host.is_ours());
    let load = host.load(size);
    // Stopped processes cannot react to each other's death.
    let both = [service.keeper.0.id().into(), service.worker];
    signal("-STOP", &both);
    signal("-KILL", &both);
    let _ = service.keeper.0.wait();
    host.no_table_is_left();
    assert!(!host.is_ours());
    uploads += size.uploads;
    host.no_upload_looks_whole(uploads);
    assert!(!load.is_over(), "idle clients cannot know");
    let service = host.accelerate();
    assert!(load.meets_resets_within(AT_ONCE), "at the next start");
    assert!(host.is_ours());
    drop(service);
}

/// A connection that the kernel accepts between the death of the worker and its restart stays with the kernel, and
/// every byte of its download arrives.
#[test]
fn a_connection_begun_before_a_restart_stays_with_the_kernel() {
    let Some(host) = Host::new("accelerate-between", false) else { return };
    let mut service = host.accelerate();
    let kernels = || host.fallback.seen.accepted.load(Relaxed);
    let mut stream = wait_for("a connection of the kernel", || {
        assert!(host.is_ours());
        let before = kernels();
        signal("-KILL", &[service.worker]);
        let stream = peers::connect(&host.scene.client, host.listen, AT_ONCE).expect("a connection");
        let mut stream = peers::converse(stream).expect("room");
        peers::request(&mut stream, 100_000).expect("the first bytes");
        let begun = kernels() == before + 1;
        service.worker = host.scene.worker(&service.keeper, service.worker);
        begun.then_some(stream)
    });
    assert!(host.is_ours());
    for _ in 0..20 {
        peers::request(&mut stream, 1_000_000).expect("the download continues");
        sleep(Duration::from_millis(20));
    }
    assert_eq!(host.scene.status(&service.keeper).expect("a service")["kernels"], 1);
}

/// A worker that is stopped for 3 s loses no connections. In the meantime, the kernel handles new
/// connections.
#[test]
fn a_stopped_worker_keeps_its_connections() {
    let Some(host) = Host::new("accelerate-stopped", false) else { return };
    let service = host.accelerate();
    let mut ours = host.echo();
    let begun = now();
    signal("-STOP", &[service.worker]);
    wait_for("the steering is set aside", || {
        (host.scene.status(&service.keeper)?["phase"] == "aside").then_some(())
    });
    assert!(!host.is_ours());
    let mut kernels = host.echo();
    sleep(Duration::from_secs(3).saturating_sub(begun.elapsed()));
    signal("-CONT", &[service.worker]);
    assert_eq!(peers::exchange(&mut ours).expect("the connection lives"), 7);
    wait_for("new connections are ours", || host.is_ours().then_some(()));
    assert_eq!(peers::exchange(&mut kernels).expect("the kernel's connection lives"), 7);
    // A pause of the whole machine also stops the keeper, so it does not count against the worker.
    let before = service.notes().len();
    let both = [service.keeper.0.id().into(), service.worker];
    signal("-STOP", &both);
    sleep(Duration::from_millis(1_500));
    signal("-CONT", &both);
    sleep(Duration::from_millis(200));
    assert_eq!(peers::exchange(&mut ours).expect("the connection lives"), 7);
    let notes = service.notes().split_off(before);
    assert!(!notes.iter().any(|note| note.contains("does not respond")), "{notes:?}");
    assert_eq!(host.scene.status(&service.keeper).expect("a service")["starts"], 1);
}

/// A worker that is silent for 5 s counts as dead. The keeper replaces it, its clients are reset, and no upload looks
/// complete to the server.
#[test]
fn a_worker_that_stays_silent_is_replaced() {
    let Some(host) = Host::new("accelerate-silent", false) else { return };
    let mut service = host.accelerate();
    let load = host.load(LoadSize { idle: 5, downloads: 0, uploads: 2 });
    signal("-STOP", &[service.worker]);
    let stopped = now();
    service.worker = host.scene.worker(&service.keeper, service.worker);
    assert!(stopped.elapsed() >= Duration::from_millis(4_500), "{:?}", stopped.elapsed());
    assert!(load.meets_resets_within(AT_ONCE), "clients of a silent worker");
    host.no_upload_looks_whole(2);
    assert!(host.is_ours());
}

/// The worker inherits no end of the pipe to nft. If it dies five times within a minute, the service ends. The kernel then
/// handles all connections, and the host is as it was before the start.
#[test]
fn a_worker_that_keeps_dying_ends_the_service() {
    let Some(host) = Host::new("accelerate-dying", false) else { return };
    let before = host.scene.settings();
    let mut service = host.accelerate();
    // Otherwise, nft and its table would outlive the keeper.
    let input =
        fs::read_link(format!("/proc/{}/fd/0", host.nft(service.keeper.0.id().into()))).expect("a pipe");
    let files = fs::read_dir(format!("/proc/{}/fd", service.worker)).expect("a process");
    let mut links = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    assert!(!links.any(|link| link == input), "the worker holds no end of the pipe to nft");
    for death in 1..=5 {
        signal("-KILL", &[service.worker]);
        if death < 5 {
            service.worker = host.scene.worker(&service.keeper, service.worker);
        }
    }
    assert_eq!(service.keeper.0.wait().expect("it ends").code(), Some(1));
    assert!(!host.is_ours());
    let why = "the worker has ended 5 times within a minute";
    wait_for("a reason", || service.notes().iter().any(|line| line.contains(why)).then_some(()));
    wait_for("the host is as before", || (host.scene.settings() == before).then_some(()));
}

/// Two services of one host do not affect each other, even if one of them is killed and started again.
#[test]
fn two_services_are_independent() {
    const OTHER: (u16, &str) = (9_002, "127.0.0.1:9003");
    let Some(host) = Host::new("accelerate-two", false) else { return };
    let scene = &host.scene;
    let other = SocketAddr::new(scene.address(), OTHER.0);
    let [fallback, _server] =
        [&other.to_string()[..], OTHER.1].map(|address| Server::new(&scene.server, address));
    let kernels = || [&host.fallback, &fallback].map(|server| server.seen.accepted.load(Relaxed));
    let before = scene.settings();
    let mut one = scene.accelerate(PORT, UPSTREAM, "transparent");
    let mut two = scene.accelerate(OTHER.0, OTHER.1, "transparent");
    let [mut first, mut second] = [host.listen, other].map(|listen| peers::echo(&scene.client, listen));
    let both = [one.keeper.0.id().into(), one.worker];
    signal("-STOP", &both);
    signal("-KILL", &both);
    let _ = one.keeper.0.wait();
    assert_eq!(peers::exchange(&mut second).expect("the connection lives"), 7);
    one = scene.accelerate(PORT, UPSTREAM, "transparent");
    assert_eq!(first.read(&mut [0]).expect_err("a reset").kind(), ErrorKind::ConnectionReset);
    let [mut first, _] = [host.listen, other].map(|listen| peers::echo(&scene.client, listen));
    assert_eq!(peers::exchange(&mut second).expect("the connection lives"), 7);
    assert_eq!(kernels(), [0, 0], "all connections were accelerated");
    two.keeper.signal("-TERM");
    assert!(two.keeper.0.wait().expect("it ends").success());
    assert_eq!(peers::exchange(&mut first).expect("the connection lives"), 7);
    one.keeper.signal("-TERM");
    assert!(one.keeper.0.wait().expect("it ends").success());
    assert_eq!(scene.settings(), before);
}

/// Returns the listener of a server that the test runs itself.
fn listener(scene: &Scene) -> TcpListener {
    let bind = || Ok(TcpListener::bind(UPSTREAM).expect("a free port"));
    scene.server.run(bind).expect("a namespace")
}

/// The worker is killed at the moment at which the server accepts a connection. The client, which only receives, sees a
/// reset.
#[test]
fn the_client_of_a_new_connection_is_reset() {
    if !can_run() {
        return;
    }
    let scene = Scene::new("accelerate-newest", false);
    let listen = SocketAddr::new(scene.address(), PORT);
    let _fallback = Server::new(&scene.server, &listen.to_string());
    let listener = listener(&scene);
    let mut service = scene.accelerate(PORT, UPSTREAM, "transparent");
    let worker = Arc::new(AtomicU64::new(service.worker));
    let (victim, client) = (Arc::clone(&worker), scene.client_address());
    thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming() {
            let stream = stream.expect("a connection");
            // Health checks come from a loopback address.
            if stream.peer_addr().is_ok_and(|peer| peer.ip() == client) {
                let worker = Pid::from_raw(victim.load(Relaxed) as i32).expect("a process");
                kill_process(worker, Signal::KILL).expect("it runs");
                open.push(stream);
            }
        }
    });
    for _ in 0..3 {
        let mut stream = peers::connect(&scene.client, listen, AT_ONCE).expect("a connection");
        let begun = now();
        assert_eq!(stream.read(&mut [0]).expect_err("a reset").kind(), ErrorKind::ConnectionReset);
        assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
        service.worker = scene.worker(&service.keeper, service.worker);
        worker.store(service.worker, Relaxed);
    }
}

/// If the server ends, clients are refused within a second; if it returns, clients are served within a
/// second.
#[test]
fn a_server_may_end_and_return() {
    let Some(mut host) = Host::new("accelerate-server", false) else { return };
    let _service = host.accelerate();
    assert!(host.is_ours());
    let refused = |host: &Host| {
        let connected = peers::connect(&host.scene.client, host.listen, AT_ONCE);
        // The service learns from the first connection that the server is down, so this connection is
        // accepted and reset at once.
        let met = connected.and_then(|mut stream| stream.read(&mut [0]));
        met.expect_err("a refusal").kind()
    };
    host.server.close();
    let begun = now();
    wait_for("a refusal", || (refused(&host) == ErrorKind::ConnectionRefused).then_some(()));
    assert!(begun.elapsed() < AT_ONCE, "refused after {:?}", begun.elapsed());
    host.server = Server::new(&host.scene.server, UPSTREAM);
    let begun = now();
    wait_for("a connection", || {
        let mut stream = peers::connect(&host.scene.client, host.listen, AT_ONCE).ok()?;
        stream.write_all(b"e7").ok()?;
        stream.read(&mut [0]).ok().filter(|len| *len == 1)
    });
    assert!(begun.elapsed() < AT_ONCE, "served after {:?}", begun.elapsed());
}

/// Bytes that the server sent before it reset the connection are delivered for at most 5 s. A client that does not read
/// is then reset, even if it has no room for all of them.
#[test]
fn the_last_bytes_are_delivered_for_5s() {
    if !can_run() {
        return;
    }
    let scene = Scene::new("accelerate-last-bytes", false);
    let listen = SocketAddr::new(scene.address(), PORT);
    let _fallback = Server::new(&scene.server, &listen.to_string());
    let listener = listener(&scene);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            stream.set_write_timeout(Some(Duration::from_millis(300))).expect("a socket");
            // The client has no room for all bytes, and a health check has already ended its connection.
            let _ = stream.write_all(&[7; 1 << 20]);
            set_socket_linger(&stream, Some(Duration::ZERO)).expect("a socket");
        }
    });
    let _service = scene.accelerate(PORT, UPSTREAM, "hidden");
    let mut stream = peers::connect(&scene.client, listen, PATIENCE).expect("a connection");
    let begun = now();
    let error = wait_for("a reset", || stream.take_error().expect("a socket"));
    let lasted = begun.elapsed();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert!((4.9..6.5).contains(&lasted.as_secs_f64()), "{lasted:?}");
    let mut received = Vec::new();
    let _ = stream.read_to_end(&mut received);
    assert!(received.len() > 10_000 && received.iter().all(|byte| *byte == 7), "{}", received.len());
}

/// The steering survives a reload of the firewall, and follows the replacement of a device and a change of
/// the gateway. No connection is lost in the process.
#[test]
fn the_steering_follows_the_host() {
    let Some(host) = Host::new("accelerate-host", false) else { return };
    let service = host.accelerate();
    let mut ours = host.echo();
    assert!(inside(&host.scene.server, "nft", &["flush ruleset"]).status.success());
    assert_eq!(peers::exchange(&mut ours).expect("the connection lives"), 7);
    assert!(host.is_ours());
    host.scene.disconnect();
    host.scene.connect();
    sleep(Duration::from_millis(500));
    assert!(host.is_ours());
    assert_eq!(peers::exchange(&mut ours).expect("the connection lives"), 7);
    for gateway in [7, 8] {
        ip(&host.scene.server, &format!("route replace default via 203.0.113.{gateway}"));
        let changed = now();
        wait_for("the gateway is used", || {
            let said = inside(&host.scene.server, "nft", &["list", "ruleset"]).stdout;
            let rule = format!("fwd ip to 203.0.113.{gateway} device");
            String::from_utf8_lossy(&said).contains(&rule).then_some(())
        });
        assert!(changed.elapsed() < AT_ONCE, "after {:?}", changed.elapsed());
    }
    assert!(host.is_ours());
    assert_eq!(peers::exchange(&mut ours).expect("the connection lives"), 7);
    drop(service);
}

/// The kernel handles connections above the SYN rate, and keeps them after they have expired from the set
/// into which their SYNs were put.
#[test]
fn connections_beyond_the_rate_are_the_kernels() {
    let Some(host) = Host::new("accelerate-rate", false) else { return };
    let service = host.accelerate_with("syn_rate = 5", "");
    let mut streams: Vec<TcpStream> = (0..30).map(|_| host.echo()).collect();
    let (ours, kernels) = wait_for("every connection is counted", || {
        let status = host.scene.status(&service.keeper)?;
        let (ours, kernels) = (status["report"]["connections"].as_u64()?, status["kernels"].as_u64()?);
        (ours + kernels == 30).then_some((ours, kernels))
    });
    assert!(ours >= 5 && kernels >= 5, "{ours} and {kernels}");
    sleep(Duration::from_millis(4_500));
    for stream in &mut streams {
        assert_eq!(peers::exchange(stream).expect("the connection lives"), 7);
    }
}

/// If a firewall drops packets unknown to connection tracking, the kernel cannot reset the clients of a dead
/// worker, so the keeper resets them.
#[test]
fn a_firewall_that_drops_unknown_packets_keeps_no_reset_back() {
    let Some(host) = Host::new("accelerate-invalid", false) else { return };
    let rules = "add table ip f; add chain ip f i { type filter hook input priority 0; }; \
                 add rule ip f i ct state invalid drop";
    assert!(inside(&host.scene.server, "nft", &[rules]).status.success());
    // With the default setting, connection tracking accepts packets in the middle of a connection as a new
    // connection.
    let strict = || {
        fs::write("/proc/sys/net/netfilter/nf_conntrack_tcp_loose", "0").expect("a setting");
        Ok(())
    };
    host.scene.server.run(strict).expect("a namespace");
    let service = host.accelerate();
    assert!(host.is_ours());
    let load = host.load(LoadSize { idle: 20, downloads: 0, uploads: 5 });
    signal("-KILL", &[service.worker]);
    assert!(load.meets_resets_within(AT_ONCE), "clients of a killed worker");
}

/// Clients behind a router that translates addresses and drops packets unknown to its connection tracking are reset as
/// well: a probe has the numbers of its connection, so it passes the router.
#[test]
fn clients_behind_address_translation_are_reset() {
    let Some(host) = Host::new("accelerate-nat", false) else { return };
    let (far, _sleeper) = behind_router(&host.scene, 1_500);
    let rules = "add table ip n; add chain ip n p { type nat hook postrouting priority 100; }; \
                 add rule ip n p oifname eth1 masquerade; \
                 add chain ip n f { type filter hook forward priority 0; }; add rule ip n f ct state invalid drop";
    assert!(inside(&host.scene.client, "nft", &[rules]).status.success());
    let strict = || {
        fs::write("/proc/sys/net/netfilter/nf_conntrack_tcp_loose", "0").expect("a setting");
        Ok(())
    };
    host.scene.client.run(strict).expect("a namespace");
    let service = host.accelerate();
    let streams: Vec<TcpStream> = (0..10).map(|_| peers::echo(&far, host.listen)).collect();
    signal("-KILL", &[service.worker]);
    let killed = now();
    for mut stream in streams {
        assert_eq!(stream.read_exact(&mut [0]).expect_err("a reset").kind(), ErrorKind::ConnectionReset);
    }
    assert!(killed.elapsed() < AT_ONCE, "{:?}", killed.elapsed());
}

/// On a host with policy routing, the kernel routes the packets of the service, even if the routing changes
/// in the meantime and if reverse path filtering is enabled. After the end of the service, all settings have
/// their previous values.
#[test]
fn policy_routing_is_followed() {
    for v6 in [false, true] {
        let name = if v6 { "accelerate-routed-6" } else { "accelerate-routed-4" };
        let Some(host) = Host::new(name, v6) else { return };
        let (scene, listen) = (&host.scene, host.listen);
        let (far, _sleeper) = behind_router(scene, 1_500);
        let version = if v6 { "-6" } else { "-4" };
        let (gateway, address) = (scene.client_address(), scene.address());
        let network = if v6 { "2001:db8:1::/64" } else { "198.51.100.0/24" };
        let route = || {
            ip(&scene.server, &format!("{version} route add {network} via {gateway} table 42"));
            ip(&scene.server, &format!("{version} rule add from {address} lookup 42 pref 100"));
        };
        let strict = || {
            fs::write("/proc/sys/net/ipv4/conf/all/rp_filter", "1").expect("a setting");
            Ok(())
        };
        scene.server.run(strict).expect("a namespace");
        if v6 {
            route();
        }
        let before = scene.settings();
        let mut service = host.accelerate();
        let mut near = host.echo();
        if !v6 {
            route();
        }
        let mut connected =
            wait_for("a connection over the new route", || peers::connect(&far, listen, AT_ONCE).ok());
        connected.write_all(b"w").expect("room");
        let mut seen = String::new();
        connected.read_to_string(&mut seen).expect("an address");
        assert!(seen.starts_with("127."), "{seen}");
        assert_eq!(peers::exchange(&mut near).expect("the connection lives"), 7);
        service.keeper.signal("-TERM");
        assert!(service.keeper.0.wait().expect("it ends").success());
        if !v6 {
            ip(&scene.server, "rule delete pref 100");
            ip(&scene.server, "route flush table 42");
        }
        assert_eq!(scene.settings(), before);
    }
}

/// Connections that use the whole link stay below the device speed, so the queue of the device drops no packets. The
/// service reads the speed from the shaper of the device, and follows a change of it.
#[test]
fn connections_stay_below_the_speed_of_the_device() {
    let Some(host) = Host::new("accelerate-speed-limit", false) else { return };
    let tc = |arguments: &str| {
        let done = inside(&host.scene.server, "tc", &arguments.split(' ').collect::<Vec<_>>());
        assert!(done.status.success(), "tc {arguments}");
    };
    tc("qdisc add dev eth0 root tbf rate 40mbit burst 20kb limit 200kb");
    let service = host.accelerate_with("", "cc = \"cubic\"");
    let begun = now();
    let downloads = (0..5).map(|_| {
        let mut stream = peers::connect(&host.scene.client, host.listen, AT_ONCE).expect("a connection");
        thread::spawn(move || {
            stream.write_all(b"d").expect("room");
            let mut bytes = vec![0; 1 << 21];
            stream.read_exact(&mut bytes).expect("a download");
        })
    });
    for download in downloads.collect::<Vec<_>>() {
        download.join().expect("no panic");
    }
    // Five times 2 MiB take 2.1 s at this speed.
    let seconds = begun.elapsed().as_secs_f64();
    let rate = 5.0 * f64::from(1 << 21) * 8e-6 / seconds;
    assert!((30.0..40.0).contains(&rate), "{rate} Mbit/s");
    sleep(Duration::from_millis(1_100));
    let status = host.scene.status(&service.keeper).expect("a service");
    assert_eq!((&status["drops"]["queues"], &status["drops"]["unread"]), (&0.into(), &0.into()), "{status}");
    assert_eq!(status["limit"], 39_200_000);
    tc("qdisc change dev eth0 root tbf rate 20mbit burst 20kb limit 200kb");
    wait_for("the new limit", || (host.scene.status(&service.keeper)?["limit"] == 19_600_000).then_some(()));
}

/// At the maximum number of connections, the kernel handles new ones until others have ended.
#[test]
fn connections_beyond_the_limit_are_the_kernels() {
    let Some(host) = Host::new("accelerate-limit", false) else { return };
    let service = host.accelerate_with("connections = 10", "");
    let mut streams: Vec<TcpStream> = (0..9).map(|_| host.echo()).collect();
    let phase = |phase: &str| {
        wait_for(phase, || (host.scene.status(&service.keeper)?["phase"] == phase).then_some(()));
    };
    phase("aside");
    let mut kernels = host.echo();
    assert!(!host.is_ours());
    for stream in &mut streams {
        assert_eq!(peers::exchange(stream).expect("the connection lives"), 7);
    }
    drop(streams);
    phase("steady");
    wait_for("new connections are ours", || host.is_ours().then_some(()));
    assert_eq!(peers::exchange(&mut kernels).expect("the kernel's connection lives"), 7);
}

/// When the memory budget is used up, the kernel handles new connections, and connections with little data continue.
/// The total never exceeds the budget, and all memory is returned.
#[test]
fn the_memory_of_all_connections_is_limited() {
    let Some(host) = Host::new("accelerate-memory", false) else { return };
    let service = host.accelerate_with("memory = \"4MiB\"", "");
    let held = || {
        let held = host.scene.status(&service.keeper)?["report"]["held"].as_u64()?;
        assert!(held <= BUDGET, "{held} bytes");
        Some(held)
    };
    let phase = |phase: &str| {
        wait_for(phase, || {
            held()?;
            (host.scene.status(&service.keeper)?["phase"] == phase).then_some(())
        });
    };
    let mut small = host.echo();
    // These clients do not read.
    let large: Vec<TcpStream> = (0..60)
        .map(|_| {
            let mut stream = peers::connect(&host.scene.client, host.listen, PATIENCE).expect("a connection");
            stream.write_all(b"d").expect("room");
            stream
        })
        .collect();
    phase("aside");
    assert!(!host.is_ours());
    assert_eq!(peers::exchange(&mut small).expect("the connection lives"), 7);
    drop(large);
    phase("steady");
    wait_for("new connections are ours", || host.is_ours().then_some(()));
    assert_eq!(peers::exchange(&mut small).expect("the connection lives"), 7);
    wait_for("all memory is returned", || (held()? == 0).then_some(()));
}

/// On a host with IPsec policies, the kernel routes the packets of the service, so the policies apply to them, even if
/// they are added or removed while the service runs.
#[test]
fn ipsec_policies_apply_to_the_packets_of_the_service() {
    let Some(host) = Host::new("accelerate-ipsec", false) else { return };
    let service = host.accelerate();
    let mut stream = host.echo();
    let policy = "xfrm policy add dir out src 203.0.113.5 dst 203.0.113.7 action block";
    if !inside(&host.scene.server, "ip", &policy.split(' ').collect::<Vec<_>>()).status.success() {
        eprintln!("skipped: this kernel has no IPsec policies");
        return;
    }
    let is_routed = || {
        let tables = inside(&host.scene.server, "nft", &["list", "tables"]).stdout;
        String::from_utf8(tables).expect("UTF-8").contains("table ip fullpipe_fp0")
    };
    wait_for("the kernel routes", || is_routed().then_some(()));
    stream.set_read_timeout(Some(Duration::from_millis(500))).expect("a socket");
    peers::exchange(&mut stream).expect_err("the policy blocks the reply");
    ip(&host.scene.server, "xfrm policy flush");
    wait_for("the packets are forwarded directly", || (!is_routed()).then_some(()));
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream.read_exact(&mut [0]).expect("the reply is retransmitted");
    assert!(host.is_ours());
    assert_eq!(host.scene.status(&service.keeper).expect("a service")["starts"], 1);
}
