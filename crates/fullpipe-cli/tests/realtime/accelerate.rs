//! Tests of `fullpipe accelerate` in two namespaces: curl in one, nginx and fullpipe in the other, a veth
//! pair between them. nginx listens twice: on the public address, as the kernel's server, and on a loopback
//! address with the PROXY protocol, as the accelerated server. Its answers name the way that a request took.

use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use fullpipe::linux::namespace::Namespace;
use fullpipe::units::draw;

use crate::PROGRAM;
use crate::process::folder;

/// Longest time for which a test waits for an event.
const PATIENCE: Duration = Duration::from_secs(60);
const FILE: u64 = 20 << 20;

/// Programs that the tests need.
const PROGRAMS: [(&str, &str); 4] = [("nft", "--version"), ("nginx", "-v"), ("curl", "-V"), ("ip", "-V")];

/// A child process that is killed when the test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Client and server, and the processes that belong to them.
struct Scene {
    client: Namespace,
    server: Namespace,
    folder: PathBuf,
    /// Address of the server in URLs.
    host: String,
    address: IpAddr,
    running: Vec<Running>,
}

fn can_run() -> bool {
    let tun = fs::File::options().read(true).write(true).open("/dev/net/tun").is_ok();
    // A user namespace does not suffice: the worker runs as another user.
    let root = fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if !tun || !root || Namespace::new().is_err() {
        eprintln!("skipped: this process may not make namespaces and TUN devices, or is not root");
        return false;
    }
    let missing =
        PROGRAMS.iter().find(|(program, version)| Command::new(program).arg(version).output().is_err());
    if let Some((program, _)) = missing {
        eprintln!("skipped: there is no {program}");
    }
    missing.is_none()
}

fn ip(namespace: &Namespace, arguments: &str) {
    let status = inside(namespace, "ip", &arguments.split(' ').collect::<Vec<_>>()).status;
    assert!(status.success(), "ip {arguments}");
}

fn inside(namespace: &Namespace, program: &str, arguments: &[&str]) -> Output {
    let run = || Ok(Command::new(program).args(arguments).output().expect("it starts"));
    namespace.run(run).expect("a namespace")
}

fn start(namespace: &Namespace, command: &mut Command) -> Child {
    namespace.run(|| Ok(command.spawn().expect("it starts"))).expect("a namespace")
}

#[expect(clippy::disallowed_methods, reason = "programs are waited for")]
fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

impl Scene {
    fn new(name: &str, v6: bool) -> Self {
        let (client, server) = (Namespace::new().expect("allowed"), Namespace::new().expect("allowed"));
        let folder = folder(name);
        // A process keeps the client's namespace reachable by a number.
        let sleeper = Running(start(&client, Command::new("sleep").arg("600")));
        let pid = sleeper.0.id();
        ip(&server, "link set lo up");
        ip(&client, "link set lo up");
        ip(&server, "link add eth0 type veth peer name eth1");
        ip(&server, &format!("link set eth1 netns {pid}"));
        let [near, far] = if v6 { ["2001:db8::5", "2001:db8::7"] } else { ["203.0.113.5", "203.0.113.7"] };
        let len = if v6 { "64 nodad" } else { "24" };
        ip(&server, &format!("address add {near}/{len} dev eth0"));
        ip(&client, &format!("address add {far}/{len} dev eth1"));
        ip(&server, "link set eth0 up");
        ip(&client, "link set eth1 up");
        let host = if v6 { format!("[{near}]") } else { near.to_owned() };
        let address = near.parse().expect("an address");
        let mut scene = Self { client, server, folder, host, address, running: vec![sleeper] };
        scene.start_nginx();
        scene
    }

    fn start_nginx(&mut self) {
        let bytes: Vec<u8> = (0..FILE).map(|i| draw(2, 0, i) as u8).collect();
        fs::write(self.folder.join("file"), bytes).expect("room");
        let (at, host) = (self.folder.display(), &self.host);
        let settings = format!(
            "daemon off; master_process off; user root; pid {at}/pid; error_log {at}/errors;\nevents {{}}\n\
             http {{ access_log off; sendfile on; client_body_temp_path {at}; proxy_temp_path {at};\n\
             fastcgi_temp_path {at}; uwsgi_temp_path {at}; scgi_temp_path {at}; root {at};\n\
             server {{ listen {host}:80; location = /who {{ return 200 \"kernel $remote_addr\"; }} }}\n\
             server {{ listen 127.0.0.1:8080 proxy_protocol; set_real_ip_from 127.0.0.0/8;\n\
             real_ip_header proxy_protocol; location = /who {{ return 200 \"fullpipe $remote_addr\"; }} }} }}\n"
        );
        fs::write(self.folder.join("settings"), settings).expect("room");
        let mut nginx = Command::new("nginx");
        nginx.arg("-p").arg(&self.folder).arg("-c").arg(self.folder.join("settings"));
        self.running.push(Running(start(&self.server, nginx.stderr(Stdio::null()))));
        wait_for("nginx starts", || self.folder.join("pid").exists().then_some(()));
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.host)
    }

    /// Asks the server which way a request takes.
    fn way(&self) -> String {
        let said = inside(&self.client, "curl", &["-sS", "--max-time", "20", &self.url("who")]);
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        String::from_utf8(said.stdout).expect("UTF-8")
    }

    fn arguments(&self) -> Vec<String> {
        let words =
            ["accelerate", "--listen", "", "--upstream", "127.0.0.1:8080", "--client-address", "proxy-v2"];
        let mut arguments: Vec<String> = words.map(str::to_owned).to_vec();
        arguments[2] = format!("{}:80", self.host);
        arguments
    }

    /// Starts fullpipe, and waits until it steers.
    fn accelerate(&self) -> Running {
        let mut command = Command::new(PROGRAM);
        command.args(self.arguments()).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = start(&self.server, &mut command);
        let lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let running = Running(child);
        let mut said = Vec::new();
        for line in lines {
            let line = line.expect("UTF-8");
            if line.contains("are accelerated") {
                return running;
            }
            said.push(line);
        }
        panic!("it has ended: {said:?}");
    }

    /// Starts a download of the file, at most at `rate` bytes per second.
    fn download(&self, name: &str, rate: &str) -> (Child, PathBuf) {
        let to = self.folder.join(name);
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "60", "--limit-rate", rate, "-o"]).arg(&to).arg(self.url("file"));
        (start(&self.client, &mut curl), to)
    }

    fn is_whole(&self, path: &Path) -> bool {
        fs::read(path).expect("a file") == fs::read(self.folder.join("file")).expect("a file")
    }

    fn tables(&self) -> String {
        let said = inside(&self.server, "nft", &["list", "tables"]);
        String::from_utf8(said.stdout).expect("UTF-8")
    }
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status();
    assert!(sent.expect("it starts").success());
}

/// A request takes the kernel's way before the start and after the end, and ours in between; the server
/// learns the client's address. Downloads that begin before the start, on our TCP, and many at once arrive
/// byte for byte, over IPv4 and IPv6.
#[test]
fn connections_are_carried_byte_for_byte() {
    if !can_run() {
        return;
    }
    for v6 in [false, true] {
        let scene = Scene::new(if v6 { "accelerate-6" } else { "accelerate-4" }, v6);
        let client = if v6 { "2001:db8::7" } else { "203.0.113.7" };
        assert_eq!(scene.way(), format!("kernel {client}"));
        let (mut early, early_file) = scene.download("early", "5M");
        wait_for("the download begins", || early_file.exists().then_some(()));
        let mut running = scene.accelerate();
        assert_eq!(scene.way(), format!("fullpipe {client}"));
        let (mut ours, our_file) = scene.download("ours", "10G");
        assert!(ours.wait().expect("it ends").success());
        assert!(scene.is_whole(&our_file), "on our TCP");
        let many: Vec<_> = (0..10).map(|i| scene.download(&format!("many-{i}"), "10G")).collect();
        for (mut child, file) in many {
            assert!(child.wait().expect("it ends").success());
            assert!(scene.is_whole(&file), "{}", file.display());
        }
        assert!(early.wait().expect("it ends").success());
        assert!(scene.is_whole(&early_file), "begun before the start");
        signal(&running.0, "-TERM");
        assert!(running.0.wait().expect("it ends").success());
        assert_eq!(scene.way(), format!("kernel {client}"));
        assert_eq!(scene.tables(), "");
    }
}

/// If the keeper is killed, the table disappears with it, and the next SYN reaches the kernel's listener.
#[test]
fn a_killed_keeper_leaves_nothing() {
    if !can_run() {
        return;
    }
    let scene = Scene::new("accelerate-killed", false);
    let mut running = scene.accelerate();
    assert!(scene.way().starts_with("fullpipe "));
    signal(&running.0, "-KILL");
    let _ = running.0.wait();
    wait_for("the table disappears", || scene.tables().is_empty().then_some(()));
    assert!(scene.way().starts_with("kernel "));
    // A new start serves again.
    let running = scene.accelerate();
    assert!(scene.way().starts_with("fullpipe "));
    drop(running);
}

/// Waits for the end of a child process; returns `None` if it still runs after `longest`.
#[expect(clippy::disallowed_methods, reason = "a program is waited for")]
fn ends_within(child: &mut Child, longest: Duration) -> Option<ExitStatus> {
    let until = Instant::now() + longest;
    while Instant::now() < until {
        if let Some(status) = child.try_wait().expect("a child") {
            return Some(status);
        }
        thread::sleep(Duration::from_millis(10));
    }
    None
}

/// If the worker is killed, new connections reach the kernel until another worker serves them. A client in
/// the middle of a download is reset, although it sends nothing by itself.
#[test]
fn a_killed_worker_is_replaced() {
    if !can_run() {
        return;
    }
    let scene = Scene::new("accelerate-worker", false);
    let running = scene.accelerate();
    let worker = || {
        let said = inside(&scene.server, PROGRAM, &["accelerate", "status", "--json"]).stdout;
        let services: serde_json::Value = serde_json::from_slice(&said).expect("JSON");
        let own = |service: &&serde_json::Value| service["keeper"] == running.0.id();
        let service = services.as_array().and_then(|services| services.iter().find(own)).expect("a service");
        assert_eq!(service["listen"], "203.0.113.5:80");
        service["worker"].as_u64()
    };
    let first = worker().expect("a worker");
    let (mut download, file) = scene.download("lost", "5M");
    wait_for("the download begins", || file.exists().then_some(()));
    let killed = Command::new("kill").args(["-KILL", &first.to_string()]).status().expect("it starts");
    assert!(killed.success());
    // What the client has received already lasts for at most 4 s; without a reset, curl would wait for 60 s.
    let ended = ends_within(&mut download, Duration::from_secs(20)).expect("a reset");
    assert!(!ended.success());
    // Every request is answered, by one of the two.
    wait_for("another worker", || {
        let way = scene.way();
        let replaced = worker().is_some_and(|worker| worker != first);
        (replaced && way.starts_with("fullpipe ")).then_some(())
    });
}

/// `--check` requires no privileges and changes nothing; it names what stands in the way.
#[test]
fn a_check_names_the_objections() {
    if !can_run() {
        return;
    }
    let scene = Scene::new("accelerate-check", false);
    assert!(scene.address.is_ipv4());
    let check = |listen: &str| {
        let upstream = "127.0.0.1:8080";
        let arguments = [
            "accelerate",
            "--listen",
            listen,
            "--upstream",
            upstream,
            "--client-address",
            "hidden",
            "--check",
        ];
        let said = inside(&scene.server, PROGRAM, &arguments);
        (said.status.code(), String::from_utf8(said.stdout).expect("UTF-8"))
    };
    let (code, text) = check("203.0.113.5:80");
    assert_eq!((code, text.contains("Nothing stands in the way.")), (Some(0), true), "{text}");
    let (code, text) = check("203.0.113.6:80");
    assert_eq!(code, Some(5), "{text}");
    assert!(text.contains("203.0.113.6 is not an address of this host"), "{text}");
    let (code, text) = check("203.0.113.5:81");
    assert_eq!(code, Some(5), "{text}");
    assert!(text.contains("no server listens on 203.0.113.5:81"), "{text}");
    assert_eq!(scene.tables(), "");
}
