//! Test scene: a client and a server in two namespaces that a veth pair connects, and the service in front of
//! the server.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, thread};

use fullpipe::linux::namespace::Namespace;
use serde_json::Value;

use crate::PROGRAM;
use crate::process::{folder, has};

/// Maximum time for which a test waits for an event.
const PATIENCE: Duration = Duration::from_secs(30);

/// A child process that is killed when the test ends.
pub(super) struct Running(pub(super) Child);

impl Running {
    pub(super) fn signal(&self, name: &str) {
        signal(name, &[self.0.id().into()]);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a signal to several processes at once.
pub(super) fn signal(name: &str, processes: &[u64]) {
    let processes = processes.iter().map(ToString::to_string);
    let sent = Command::new("kill").arg(name).args(processes).status();
    assert!(sent.expect("it starts").success());
}

/// Returns whether this process can run the service. With `FULLPIPE_REQUIRE_NETNS=1` and
/// `FULLPIPE_REQUIRE_NFT=1`, the test fails instead of being skipped.
pub(super) fn can_run() -> bool {
    let tun = fs::File::options().read(true).write(true).open("/dev/net/tun").is_ok();
    // A user namespace is not sufficient, because the worker runs as another user.
    let root = fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if !tun || !root || Namespace::new().is_err() {
        let required = std::env::var_os("FULLPIPE_REQUIRE_NETNS").is_some_and(|value| value == "1");
        assert!(
            !required || !root,
            "FULLPIPE_REQUIRE_NETNS=1, and namespaces or TUN devices are not allowed"
        );
        eprintln!("skipped: this process may not make namespaces and TUN devices, or is not root");
        return false;
    }
    has("nft")
}

#[expect(clippy::disallowed_methods, reason = "events of other processes are timed")]
pub(super) fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "events of other processes are timed")]
pub(super) fn sleep(duration: Duration) {
    thread::sleep(duration);
}

/// Calls `look` repeatedly until it returns a value.
pub(super) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(now() < until, "{what}");
        sleep(Duration::from_millis(10));
    }
}

pub(super) fn inside(namespace: &Namespace, program: &str, arguments: &[&str]) -> Output {
    let run = || Ok(Command::new(program).args(arguments).output().expect("it starts"));
    namespace.run(run).expect("a namespace")
}

pub(super) fn start(namespace: &Namespace, command: &mut Command) -> Child {
    namespace.run(|| Ok(command.spawn().expect("it starts"))).expect("a namespace")
}

pub(super) fn ip(namespace: &Namespace, arguments: &str) {
    let said = inside(namespace, "ip", &arguments.split(' ').collect::<Vec<_>>());
    assert!(said.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&said.stderr));
}

/// Client and server, with the processes that run in their namespaces.
pub(super) struct Scene {
    pub(super) client: Namespace,
    pub(super) server: Namespace,
    pub(super) folder: PathBuf,
    pub(super) v6: bool,
    /// Address of the server's host, and address of the client.
    addresses: [IpAddr; 2],
    /// A process in the client's namespace, through whose process ID the namespace can be entered.
    sleeper: Running,
    running: Vec<Running>,
}

/// The running service and its messages so far.
pub(super) struct Service {
    pub(super) keeper: Running,
    pub(super) worker: u64,
    notes: Arc<Mutex<Vec<String>>>,
}

impl Service {
    /// Returns the messages of the service so far.
    pub(super) fn notes(&self) -> Vec<String> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // The service removes its files when it ends in an orderly way.
        let _ = Command::new("kill").args(["-TERM", &self.keeper.0.id().to_string()]).output();
        let _ = self.keeper.0.wait();
    }
}

impl Scene {
    pub(super) fn new(name: &str, v6: bool) -> Self {
        let (client, server) = (Namespace::new().expect("allowed"), Namespace::new().expect("allowed"));
        ip(&server, "link set lo up");
        ip(&client, "link set lo up");
        let addresses = if v6 { ["2001:db8::5", "2001:db8::7"] } else { ["203.0.113.5", "203.0.113.7"] };
        let addresses = addresses.map(|text| text.parse().expect("an address"));
        let scene = Self::between(name, client, server, addresses);
        scene.connect();
        scene
    }

    /// Returns a scene in namespaces that are already connected. The first address is the address of the
    /// server's host.
    pub(super) fn between(name: &str, client: Namespace, server: Namespace, addresses: [IpAddr; 2]) -> Self {
        let sleeper = Running(start(&client, Command::new("sleep").arg("3600")));
        let v6 = addresses[0].is_ipv6();
        Self { client, server, folder: folder(name), v6, addresses, sleeper, running: Vec::new() }
    }

    /// Creates the devices between client and server.
    pub(super) fn connect(&self) {
        ip(&self.server, "link add eth0 type veth peer name eth1");
        ip(&self.server, &format!("link set eth1 netns {}", self.sleeper.0.id()));
        // Without this setting, a link-local address would appear during the test, once duplicate address
        // detection has finished.
        ip(&self.server, "link set eth0 addrgenmode none");
        ip(&self.client, "link set eth1 addrgenmode none");
        let len = if self.v6 { "64 nodad" } else { "24" };
        ip(&self.server, &format!("address add {}/{len} dev eth0", self.address()));
        ip(&self.client, &format!("address add {}/{len} dev eth1", self.client_address()));
        ip(&self.server, "link set eth0 up");
        ip(&self.client, "link set eth1 up");
    }

    /// Deletes the devices between client and server.
    pub(super) fn disconnect(&self) {
        ip(&self.server, "link delete eth0");
    }

    pub(super) fn address(&self) -> IpAddr {
        self.addresses[0]
    }

    pub(super) fn client_address(&self) -> IpAddr {
        self.addresses[1]
    }

    /// Keeps a process running until the end of the test.
    pub(super) fn keep(&mut self, child: Child) {
        self.running.push(Running(child));
    }

    /// Starts the service with a configuration file; `top` contains the settings above the section
    /// `[[listen]]`, and `section` the settings in it after the addresses.
    pub(super) fn accelerate_with(&self, top: &str, port: u16, upstream: &str, section: &str) -> Service {
        let settings = self.folder.join("settings.toml");
        let listen = SocketAddr::new(self.address(), port);
        let text =
            format!("{top}\n[[listen]]\naddress = \"{listen}\"\nupstream = \"{upstream}\"\n{section}\n");
        fs::write(&settings, text).expect("room");
        let mut command = Command::new(PROGRAM);
        self.start_service(command.args(["accelerate", "--config"]).arg(&settings))
    }

    /// Starts the service for `port` in front of `upstream`, and waits until it steers connections.
    pub(super) fn accelerate(&self, port: u16, upstream: &str, client_address: &str) -> Service {
        let mut command = Command::new(PROGRAM);
        let listen = SocketAddr::new(self.address(), port).to_string();
        command.args(["accelerate", "--listen", &listen, "--upstream", upstream]);
        self.start_service(command.args(["--client-address", client_address]))
    }

    /// Starts the service with `command`, and waits until it steers connections.
    pub(super) fn start_service(&self, command: &mut Command) -> Service {
        let mut child = start(&self.server, command.stdin(Stdio::null()).stderr(Stdio::piped()));
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let keeper = Running(child);
        let mut said = Vec::new();
        while let Some(line) = lines.next() {
            let line = line.expect("UTF-8");
            let steers = line.contains("are accelerated");
            said.push(line);
            if steers {
                let notes = Arc::new(Mutex::new(said));
                let shared = Arc::clone(&notes);
                thread::spawn(move || {
                    for line in lines.map_while(Result::ok) {
                        shared.lock().unwrap_or_else(PoisonError::into_inner).push(line);
                    }
                });
                let worker = self.worker(&keeper, 0);
                return Service { keeper, worker, notes };
            }
        }
        panic!("it has ended: {said:?}");
    }

    /// Waits until connections are steered to a worker other than `before`, and returns the process ID of
    /// this worker.
    pub(super) fn worker(&self, keeper: &Running, before: u64) -> u64 {
        wait_for("a worker", || {
            let service = self.status(keeper)?;
            let worker = service["worker"].as_u64().filter(|worker| *worker != before)?;
            (service["phase"] == "steady" && service["steered"] == true).then_some(worker)
        })
    }

    /// Returns the status that `fullpipe accelerate status` reports for a service.
    pub(super) fn status(&self, keeper: &Running) -> Option<Value> {
        let said = inside(&self.server, PROGRAM, &["accelerate", "status", "--json"]).stdout;
        let services: Value = serde_json::from_slice(&said).expect("JSON");
        services.as_array()?.iter().find(|service| service["keeper"] == keeper.0.id()).cloned()
    }

    /// Returns all settings of the server's host that the service might change, as text.
    pub(super) fn settings(&self) -> String {
        let commands = [
            "nft list ruleset",
            "ip rule",
            "ip -6 rule",
            "ip route show table all",
            "ip -6 route show table all",
            "ip neighbour show nud permanent",
            "ip link",
            "grep -rs --exclude=nf_conntrack_count . /proc/sys/net",
        ];
        let said = commands.map(|command| {
            let words: Vec<&str> = command.split(' ').collect();
            let said = inside(&self.server, words[0], &words[1..]);
            String::from_utf8(said.stdout).expect("UTF-8")
        });
        said.join("\n")
    }
}
