//! Tests of `fullpipe accelerate` in two namespaces, which a veth pair connects: one contains curl, the other
//! nginx and fullpipe. nginx listens on the public address, as the kernel's server, and with the PROXY
//! protocol on a loopback address, as the accelerated server. Its responses show which of the two TCP stacks
//! handled a request.
//!
//! Without root, /dev/net/tun, nft, nginx or curl, these tests are skipped with a message. With
//! `FULLPIPE_REQUIRE_NETNS=1` and `FULLPIPE_REQUIRE_NFT=1`, the tests fail instead of being skipped if root
//! cannot create namespaces or nft is missing.

mod bad_path;
mod cost;
mod endurance;
mod failures;
mod flood;
mod forged;
mod host;
mod path_mtu;
mod peers;
mod refusals;
mod rules;
mod scene;
mod speed;
mod tools;
mod unix_socket;
mod usage;
mod work;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use fullpipe::linux::namespace::Namespace;
use fullpipe::units::draw;

use crate::PROGRAM;
use scene::{Scene, can_run, inside, start, wait_for};

const FILE: u64 = 8 << 20;
const UPSTREAM: &str = "127.0.0.1:8080";
/// Port of the accelerated server without the PROXY protocol, on the loopback address.
const PLAIN_PORT: u16 = 8_081;

fn has_web() -> bool {
    let missing = [("nginx", "-v"), ("curl", "-V")]
        .iter()
        .find(|(program, version)| Command::new(program).arg(version).output().is_err());
    if let Some((program, _)) = missing {
        eprintln!("skipped: there is no {program}");
    }
    missing.is_none()
}

impl Scene {
    /// Returns the server's address as written in URLs.
    fn host(&self) -> String {
        if self.v6 { format!("[{}]", self.address()) } else { self.address().to_string() }
    }

    /// Returns the address of the server without the PROXY protocol.
    fn loopback(&self) -> String {
        format!("{}:{PLAIN_PORT}", if self.v6 { "[::1]" } else { "127.0.0.1" })
    }

    fn start_nginx(&mut self) {
        let bytes: Vec<u8> = (0..FILE).map(|i| draw(2, 0, i) as u8).collect();
        fs::write(self.folder.join("file"), bytes).expect("room");
        let (at, host, local) = (self.folder.display(), self.host(), self.loopback());
        let settings = format!(
            "daemon off; master_process off; user root; pid {at}/pid; error_log {at}/errors;\nevents {{}}\n\
             http {{ access_log off; sendfile on; client_body_temp_path {at}; proxy_temp_path {at};\n\
             fastcgi_temp_path {at}; uwsgi_temp_path {at}; scgi_temp_path {at}; root {at};\n\
             server {{ listen {host}:80; location = /who {{ return 200 \"kernel $remote_addr\"; }} }}\n\
             server {{ listen {UPSTREAM} proxy_protocol; set_real_ip_from 127.0.0.0/8;\n\
             real_ip_header proxy_protocol; location = /who {{ return 200 \"fullpipe $remote_addr\"; }} }}\n\
             server {{ listen {local}; location = /who {{ return 200 \"plain $remote_addr\"; }} }} }}\n"
        );
        fs::write(self.folder.join("settings"), settings).expect("room");
        let mut nginx = Command::new("nginx");
        nginx.arg("-p").arg(&self.folder).arg("-c").arg(self.folder.join("settings"));
        let nginx = start(&self.server, nginx.stderr(Stdio::null()));
        self.keep(nginx);
        wait_for("nginx starts", || self.folder.join("pid").exists().then_some(()));
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.host())
    }

    /// Asks the server which TCP stack handles the request, and which client address it sees.
    fn who(&self) -> String {
        self.who_with(&[])
    }

    /// Asks the server like [`Self::who`], with additional arguments for curl.
    fn who_with(&self, arguments: &[&str]) -> String {
        let url = self.url("who");
        let said = inside(&self.client, "curl", &[&["-sS", "--max-time", "20", &url], arguments].concat());
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        String::from_utf8(said.stdout).expect("UTF-8")
    }

    /// Starts a download of the file `name` with a rate limit of `rate` bytes per second.
    fn download(&self, name: &str, rate: &str) -> (Child, PathBuf) {
        let to = self.folder.join(name);
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "60", "--limit-rate", rate, "-o"]).arg(&to).arg(self.url("file"));
        (start(&self.client, &mut curl), to)
    }

    fn is_whole(&self, path: &Path) -> bool {
        fs::read(path).expect("a file") == fs::read(self.folder.join("file")).expect("a file")
    }
}

/// The kernel handles requests before the start and after the end of the service, and the service handles
/// them in between; the server learns the client's address. Every byte arrives in downloads that begin before
/// the start, in downloads over fullpipe's TCP, and in many concurrent downloads, over IPv4 and IPv6. After
/// the end, the host is as it was before the start.
#[test]
fn connections_are_carried_byte_for_byte() {
    if !can_run() || !has_web() {
        return;
    }
    for v6 in [false, true] {
        let mut scene = Scene::new(if v6 { "accelerate-6" } else { "accelerate-4" }, v6);
        scene.start_nginx();
        let client = scene.client_address();
        assert_eq!(scene.who(), format!("kernel {client}"));
        let before = scene.settings();
        let (mut early, early_file) = scene.download("early", "4M");
        wait_for("the download begins", || early_file.exists().then_some(()));
        let mut service = scene.accelerate(80, UPSTREAM, "proxy-v2");
        assert_eq!(scene.who(), format!("fullpipe {client}"));
        is_confined(service.worker, "0000000000000000");
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
        assert_ne!(scene.settings(), before);
        service.keeper.signal("-TERM");
        assert!(service.keeper.0.wait().expect("it ends").success());
        assert_eq!(scene.who(), format!("kernel {client}"));
        assert_eq!(scene.settings(), before);
    }
}

/// Returns a field of `/proc/PID/status` for a process.
fn field_of(process: u64, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{process}/status")).expect("a process");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.expect("a field").trim().to_owned()
}

/// Asserts that the worker is confined: it has only the given capabilities, cannot get new ones, and its system calls
/// are filtered.
fn is_confined(worker: u64, capabilities: &str) {
    for name in ["CapInh", "CapAmb"] {
        assert_eq!(field_of(worker, name), "0000000000000000", "{name}");
    }
    for name in ["CapEff", "CapPrm"] {
        assert_eq!(field_of(worker, name), capabilities, "{name}");
    }
    // 2 is the mode in which a filter decides (SECCOMP_MODE_FILTER).
    assert_eq!((field_of(worker, "NoNewPrivs"), field_of(worker, "Seccomp")), ("1".into(), "2".into()));
    assert!(!field_of(worker, "Uid").split('\t').any(|user| user == "0"));
}

/// In transparent mode, an unmodified server sees the client's address, even if the client's port cannot be
/// used. If another program removes the policy rule, the service adds it again. After `kill -9`, the next
/// start removes everything that was left behind.
#[test]
fn a_server_sees_the_address_of_its_client() {
    if !can_run() || !has_web() {
        return;
    }
    for v6 in [false, true] {
        let name = if v6 { "accelerate-transparent-6" } else { "accelerate-transparent-4" };
        let mut scene = Scene::new(name, v6);
        scene.start_nginx();
        let seen = format!("plain {}", scene.client_address());
        let before = scene.settings();
        let mut service = scene.accelerate(80, &scene.loopback(), "transparent");
        assert_eq!(scene.who(), seen);
        // The unprivileged worker cannot bind to this port.
        assert_eq!(scene.who_with(&["--local-port", "80"]), seen);
        let (mut download, file) = scene.download("ours", "10G");
        assert!(download.wait().expect("it ends").success());
        assert!(scene.is_whole(&file));
        // Bit 13 is CAP_NET_RAW.
        is_confined(service.worker, "0000000000002000");
        let version = if v6 { "-6" } else { "-4" };
        assert!(inside(&scene.server, "ip", &[version, "rule", "delete", "pref", "1"]).status.success());
        wait_for("the rule returns", || (scene.who() == seen).then_some(()));

        let processes = [service.keeper.0.id().into(), service.worker];
        scene::signal("-STOP", &processes);
        scene::signal("-KILL", &processes);
        let _ = service.keeper.0.wait();
        assert!(scene.settings().contains("ipproto tcp sport 8081"), "the kernel keeps the rule");
        let mut service = scene.accelerate(80, &scene.loopback(), "transparent");
        assert_eq!(scene.who(), seen);
        service.keeper.signal("-TERM");
        assert!(service.keeper.0.wait().expect("it ends").success());
        assert_eq!(scene.settings(), before);
    }
}

/// Returns the commands of the first shell block in the guide.
fn commands_of_the_guide() -> Vec<String> {
    let guide = include_str!("../../../../docs/guides/accelerate.md");
    let (_, block) = guide.split_once("```sh\n").expect("a block");
    let (block, _) = block.split_once("```").expect("an end");
    let block = block.replace("\\\n", "");
    block.lines().map(|line| line.strip_prefix("sudo ").unwrap_or(line).to_owned()).collect()
}

/// On a host with the addresses of the guide, the guide's commands work as written.
#[test]
fn the_guide_works() {
    if !can_run() || !has_web() {
        return;
    }
    let mut scene = Scene::new("accelerate-guide", false);
    scene.start_nginx();
    let folder = Path::new(PROGRAM).parent().expect("a folder").display();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    let shell = |command: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec {command}")]).env("PATH", &path);
        shell
    };
    let run = |namespace: &Namespace, command: &str| {
        let said = namespace.run(|| Ok(shell(command).output().expect("it starts"))).expect("a namespace");
        assert!(said.status.success(), "{command}: {}", String::from_utf8_lossy(&said.stderr));
        String::from_utf8(said.stdout).expect("UTF-8")
    };
    let commands = commands_of_the_guide();
    let [reload, check, serve, request, status] = &commands[..] else { panic!("{commands:?}") };
    assert_eq!(reload, "nginx -s reload");
    assert!(run(&scene.server, check).ends_with("Nothing prevents a start.\n"));
    let _service = scene.start_service(&mut shell(serve));
    run(&scene.client, request);
    // The status is at most one second old.
    wait_for("the connection is counted", || {
        let status = run(&scene.server, status);
        let has_rates = status.contains("new connections per second; loop at most");
        (status.contains("steering     steady") && status.contains(" 1 accepted") && has_rates).then_some(())
    });
}

/// `--check` requires no privileges, changes nothing, and lists the objections.
#[test]
fn a_check_names_the_objections() {
    if !can_run() || !has_web() {
        return;
    }
    let mut scene = Scene::new("accelerate-check", false);
    scene.start_nginx();
    let before = scene.settings();
    let check = |listen: &str| {
        let mut arguments = vec!["accelerate", "--listen", listen, "--upstream", UPSTREAM];
        arguments.extend(["--client-address", "hidden", "--check"]);
        let said = inside(&scene.server, PROGRAM, &arguments);
        (said.status.code(), String::from_utf8(said.stdout).expect("UTF-8"))
    };
    let (code, text) = check("203.0.113.5:80");
    assert_eq!((code, text.contains("Nothing prevents a start.")), (Some(0), true), "{text}");
    let (code, text) = check("203.0.113.6:80");
    assert_eq!(code, Some(5), "{text}");
    assert!(text.contains("203.0.113.6 is not an address of this host"), "{text}");
    let (code, text) = check("203.0.113.5:81");
    assert_eq!(code, Some(5), "{text}");
    assert!(text.contains("no server listens on 203.0.113.5:81"), "{text}");
    // The changes are a policy rule, which makes the kernel forward packets; a firewall that forbids
    // forwarding; and rules that drop packets of some clients, at the hook `input` and at the device.
    for (change, expected_code, expected) in [
        (
            "ip rule add from 203.0.113.99 lookup main pref 100",
            0,
            "there is a policy rule with priority 100, so the kernel routes the worker's packets",
        ),
        (
            "nft add table ip g; add chain ip g f { type filter hook forward priority 0; policy drop; }",
            5,
            "which the kernel has to route: chain g f policy drop",
        ),
        (
            "nft add table ip f; add chain ip f i { type filter hook input priority 0; }; \
             add rule ip f i ip saddr 198.51.100.7 drop",
            5,
            "new connections would bypass this firewall rule, which drops their packets",
        ),
        (
            "nft add table netdev d; add chain netdev d c { type filter hook ingress device eth0 priority 10; }; \
             add rule netdev d c ip saddr 198.51.100.9 drop",
            5,
            "which drops their packets: netdev d c handle",
        ),
    ] {
        let (program, arguments) = change.split_once(' ').expect("a command");
        let words: Vec<&str> =
            if program == "nft" { vec![arguments] } else { arguments.split(' ').collect() };
        assert!(inside(&scene.server, program, &words).status.success(), "{change}");
        let (code, text) = check("203.0.113.5:80");
        assert_eq!(code, Some(expected_code), "{text}");
        assert!(text.contains(expected), "{text}");
    }
    // Without privileges, the check lists what only root can examine.
    let mut arguments = vec!["--reuid", "65534", "--clear-groups", PROGRAM, "accelerate", "--listen"];
    arguments.extend(["203.0.113.5:80", "--upstream", UPSTREAM, "--client-address", "hidden", "--check"]);
    let said = inside(&scene.server, "setpriv", &arguments);
    let text = String::from_utf8(said.stdout).expect("UTF-8");
    assert!(text.contains("TUN device fp0"), "{text}{}", String::from_utf8_lossy(&said.stderr));
    assert!(text.contains("Not examined, because this requires root:"), "{text}");
    for undo in [
        "nft delete table netdev d",
        "nft delete table ip f",
        "nft delete table ip g",
        "ip rule delete pref 100",
    ] {
        let words: Vec<&str> = undo.split(' ').collect();
        assert!(inside(&scene.server, words[0], &words[1..]).status.success(), "{undo}");
    }
    assert_eq!(scene.settings(), before);
}
