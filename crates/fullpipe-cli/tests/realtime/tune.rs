//! Tests of `fullpipe tune` as users run it, on a folder that imitates a host, and tests of the exit codes.

use crate::process;
use std::fs;
use std::path::{Path, PathBuf};

use crate::process::{becomes, folder, fullpipe, fullpipe_reading, refusal};
use serde_json::Value;

/// Creates a folder that imitates a host with kernel 6.1, whose send buffer is too small for 20 Mbit/s at an
/// RTT of 100 ms.
fn host(test: &str) -> PathBuf {
    let root = folder(test);
    let file = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    file("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n");
    file("proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t262144\n");
    file("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n");
    file("proc/sys/net/ipv4/tcp_congestion_control", "cubic\n");
    file("proc/sys/net/ipv4/tcp_available_congestion_control", "reno cubic bbr\n");
    file("proc/sys/net/ipv4/tcp_notsent_lowat", "4294967295\n");
    file("proc/meminfo", "MemTotal:        4194304 kB\n");
    root
}

const PATH: [&str; 4] = ["--link", "20mbit", "--rtt", "100ms"];

fn tune(root: &Path, action: &[&str], more: &[&str]) -> (i32, String, String) {
    let root = ["--root", root.to_str().unwrap()];
    fullpipe(&[&["tune"], action, &root[..], more].concat())
}

fn done(said: (i32, String, String)) -> String {
    assert_eq!((said.0, said.2.as_str()), (0, ""), "{}", said.1);
    said.1
}

fn wmem(root: &Path) -> String {
    fs::read_to_string(root.join("proc/sys/net/ipv4/tcp_wmem")).unwrap()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_plan_changes_nothing_and_a_trial_is_kept_or_taken_back() {
    let root = host("tune-trial");
    let before = wmem(&root);
    let text = done(tune(&root, &[], &PATH));
    assert!(text.contains("tcp_wmem: 4096 16384 262144 -> 4096 16384 516096"), "{text}");
    assert!(
        text.ends_with(
            "Nothing was changed. To make these changes, add --apply; they are reverted after \
                        120s unless confirmed.\n"
        ),
        "{text}"
    );
    assert_eq!(wmem(&root), before);
    assert!(!root.join("var").exists() && !root.join("etc").exists(), "nothing is written for a plan");

    let text = done(tune(&root, &["plan"], &[&PATH[..], &["--apply"]].concat()));
    assert!(
        text.contains(
            "Applied and verified by reading back:\n  net.ipv4.tcp_wmem = 4096 16384 516096 (was 4096 16384 262144)"
        ),
        "{text}"
    );
    assert_eq!(wmem(&root), "4096 16384 516096");
    let owned = root.join("etc/sysctl.d/90-fullpipe.conf");
    let file = fs::read_to_string(&owned).unwrap();
    assert!(file.contains("\n# net.ipv4.tcp_wmem = 4096 16384 516096\n"), "not for the next boot: {file}");
    let status = done(tune(&root, &["status"], &[]));
    assert!(status.starts_with("On trial: reverted in 1"), "{status}");
    let again = tune(&root, &[], &["--link", "80mbit", "--rtt", "100ms", "--apply"]);
    assert!(again.2.contains("error: other changes are still on trial\nhint: "), "{}", again.2);

    done(tune(&root, &["confirm"], &[]));
    assert!(fs::read_to_string(&owned).unwrap().contains("\nnet.ipv4.tcp_wmem = 4096 16384 516096\n"));
    let later = root.join("etc/sysctl.d/95-site.conf");
    fs::write(&later, "net.ipv4.tcp_wmem = 4096 16384 4194304\n").unwrap();
    let status = json(&done(tune(&root, &["status"], &["--json"])));
    assert_eq!(status["states"][0]["phase"], "confirmed");
    assert_eq!(status["overrides"][0]["file"], later.to_str().unwrap());

    let text = done(tune(&root, &["rollback"], &[]));
    assert!(text.starts_with("Restored:\n"), "{text}");
    assert_eq!(wmem(&root), before);
    assert!(!owned.exists());
    assert_eq!(done(tune(&root, &["rollback"], &[])), "There are no changes to revert.\n");
    assert_eq!(done(tune(&root, &["status"], &[])), "There are no changes by fullpipe.\n");
}

/// The guard is a process of the same program; it reverts the changes long after the command has ended.
#[test]
fn unconfirmed_changes_are_taken_back_by_themselves() {
    let root = host("tune-deadline");
    let before = wmem(&root);
    let arguments = [&PATH[..], &["--apply", "--revert-after", "300ms", "--json"]].concat();
    let document = json(&done(tune(&root, &[], &arguments)));
    assert_eq!(document["schema"], "fullpipe.tune/1");
    assert_eq!(document["applied"]["settings"][0]["key"], "net.ipv4.tcp_wmem");
    assert!(becomes(|| wmem(&root) == before), "{}", wmem(&root));
    assert!(becomes(|| !root.join("etc/sysctl.d/90-fullpipe.conf").exists()));
}

/// A diagnosis report supplies the path, the loss probability and the settings of the other host.
#[test]
fn a_report_of_diagnose_is_an_input() {
    let root = host("tune-report");
    let report = r#"{"schema": "fullpipe.diagnose/2", "input": {"protocol": "tcp", "streams": 1},
        "path": {"link_bps": 20000000, "rtt_ms": 100.0, "rtt_source": "given", "mean_bps": 3000000,
                 "congestion_control": "cubic", "loss": {"rate": 0.001}},
        "hosts": {"sender": {"made_the_log": true}, "receiver": {"made_the_log": false}}, "findings": []}"#;
    let root = root.to_str().unwrap();
    let said = fullpipe_reading(report.as_bytes(), &["tune", "--from", "-", "--root", root, "--json"]);
    let document = json(&done(said));
    let items: Vec<&str> =
        document["items"].as_array().unwrap().iter().filter_map(|i| i["what"].as_str()).collect();
    assert!(items.contains(&"congestion_control") && items.contains(&"tcp_wmem"), "{items:?}");
    assert_eq!(document["measured_bps"], 3_000_000);
}

#[test]
fn what_cannot_be_is_refused_with_a_hint() {
    let root = host("tune-refused");
    let (error, hint) = refusal(2, tune(&root, &[], &["--link", "1gbit"]));
    assert!(error.contains("round-trip time") && hint.contains("--rtt 210ms"), "{error} {hint}");
    for to in ["203.0.113.7", "2001:db8::7", "[2001:db8::7]", "localhost"] {
        let (error, _) = refusal(2, tune(&root, &[], &[&PATH[..], &["--to", to]].concat()));
        assert_eq!(error, "--to requires routes, which the folder of --root does not have", "{to} is a host");
    }
    let (error, _) = refusal(2, tune(&root, &[], &[&PATH[..], &["--to", "203.0.113.0/24"]].concat()));
    assert!(error.contains("a network"), "{error}");
    let (error, hint) =
        refusal(1, tune(&root, &[], &[&PATH[..], &["--to", "no-such-host.invalid"]].concat()));
    assert!(error.contains("no-such-host.invalid") && hint.contains("address"), "{error} {hint}");
    let (error, hint) = refusal(1, tune(&root, &["confirm"], &[]));
    assert_eq!(
        (error.as_str(), hint.as_str()),
        ("no changes are on trial", "fullpipe tune status shows the applied changes")
    );
    let (error, _) = refusal(1, fullpipe(&["tune", "status", "--netns", "no-such-namespace"]));
    assert!(error.contains("no-such-namespace"), "{error}");
    let (error, _) = refusal(1, fullpipe_reading(b"{}", &["tune", "--from", "-"]));
    assert!(error.contains("not a fullpipe diagnose report"), "{error}");
    let without = br#"{"start": {}, "intervals": [], "end": {"sum_sent": {}}}"#;
    let (error, hint) = refusal(1, fullpipe_reading(without, &["tune", "--from", "-"]));
    assert!(error.contains("no diagnosis") && hint.contains("fullpipe diagnose FILE"), "{error} {hint}");
    let why = br#"{"end": {"fullpipe": {"no_diagnosis": "nothing was sent"}}}"#;
    let (error, _) = refusal(1, fullpipe_reading(why, &["tune", "--from", "-"]));
    assert!(error.contains("nothing was sent"), "{error}");
    let (_, hint) = refusal(2, tune(&root, &[], &[&PATH[..], &["--with", "everything"]].concat()));
    assert!(!hint.is_empty());
}

/// Without the privileges, the plan is still printed, and no guard process is started.
#[test]
fn without_authority_it_prints_the_commands_and_exits_with_4() {
    let root = host("tune-rights");
    let nobody = std::process::Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "true"])
        .status();
    if !nobody.is_ok_and(|status| status.success()) {
        eprintln!("skipped: this process cannot become nobody");
        return;
    }
    let program = root.join("fullpipe");
    fs::copy(env!("CARGO_BIN_EXE_fullpipe"), &program).unwrap();
    let visible = std::env::temp_dir().join(format!("fullpipe-rights-{}", std::process::id()));
    fs::create_dir_all(&visible).unwrap();
    let copied = std::process::Command::new("cp").args(["-r"]).arg(&root).arg(visible.join("host")).status();
    assert!(copied.unwrap().success());
    let host = visible.join("host");
    let as_nobody = |arguments: &[&str]| {
        std::process::Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(host.join("fullpipe"))
            .args(["tune", arguments[0], "--root", host.to_str().unwrap()])
            .args(&arguments[1..])
            .output()
            .unwrap()
    };
    let said = as_nobody(&[&["plan", "--apply"], &PATH[..]].concat());
    // Only root can read the journal that root has written, but a plan does not require the journal.
    done(tune(&host, &[], &[&PATH[..], &["--apply", "--revert-after", "never"]].concat()));
    let (status, plan) = (as_nobody(&["status"]), as_nobody(&[&["plan"], &PATH[..]].concat()));
    let (stdout, stderr) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    fs::remove_dir_all(&visible).unwrap();
    assert_eq!(said.status.code(), Some(4), "{stdout}{stderr}");
    assert!(stdout.contains("sysctl -w net.ipv4.tcp_wmem=\"4096 16384 516096\""), "{stdout}");
    assert!(
        stderr.contains("error: no permission to set") && stderr.contains("hint: run fullpipe tune as root"),
        "{stderr}"
    );
    let stderr = String::from_utf8_lossy(&status.stderr);
    assert_eq!((status.status.code(), status.stdout.len()), (Some(4), 0), "{stderr}");
    assert!(
        stderr.contains("error: no permission to read") && stderr.contains("hint: run fullpipe tune as root")
    );
    let stderr = String::from_utf8_lossy(&plan.stderr);
    assert!(plan.status.success() && stderr.is_empty(), "{stderr}");
}

#[test]
fn show_says_what_each_setting_limits() {
    let root = host("tune-show");
    let text = done(tune(&root, &["show"], &["--rtt", "100ms", "--loss", "0.1%"]));
    assert!(text.starts_with("Kernel 6.1, new connections use cubic\n"), "{text}");
    assert!(text.contains("20.6 Mbit/s  sending: tcp_wmem[2] per RTT"), "{text}");
    let document = json(&done(tune(&root, &["show"], &["--json"])));
    assert_eq!(document["schema"], "fullpipe.tune.show/1");
    assert_eq!(document["limits"].as_array().map(Vec::len), Some(3));
}

/// A damaged journal makes no command fail. All readable changes are reverted, lost values are listed, and
/// the damaged file is kept.
#[test]
fn a_damaged_journal_is_reverted_as_far_as_it_is_readable() {
    let root = host("tune-damaged");
    let before = wmem(&root);
    let apply = [&PATH[..], &["--apply", "--revert-after", "never"]].concat();
    done(tune(&root, &[], &apply));
    let journal = root.join("var/lib/fullpipe/0001.json");
    let kept = root.join("var/lib/fullpipe/0001.json.damaged");
    let whole = fs::read_to_string(&journal).unwrap();
    assert_ne!(wmem(&root), before);

    // The end of the journal is missing, but the setting is intact.
    let cut = whole.find("\"routes\"").unwrap();
    fs::write(&journal, &whole[..cut]).unwrap();
    let text = done(tune(&root, &["status"], &[]));
    assert!(text.contains("The journal of these changes is damaged (EOF while parsing"), "{text}");
    assert!(text.contains("fullpipe tune rollback --root "), "{text}");
    let document = json(&done(tune(&root, &["status"], &["--json"])));
    assert!(document["states"][0]["damage"].is_string(), "{document}");
    let (error, hint) = refusal(1, tune(&root, &["confirm"], &[]));
    assert!(error.contains("damaged") && hint.contains("fullpipe tune rollback"), "{error} {hint}");
    let text = done(tune(&root, &["rollback"], &[]));
    assert_eq!(wmem(&root), before);
    assert!(text.contains(&format!("a copy of the damaged journal is in {}", kept.display())), "{text}");
    assert_eq!(fs::read_to_string(&kept).unwrap(), whole[..cut]);
    assert!(!journal.exists() && !root.join("etc/sysctl.d/90-fullpipe.conf").exists());
    assert_eq!(done(tune(&root, &["rollback"], &[])), "There are no changes to revert.\n");

    // The former value is not readable; its key is taken from the settings file.
    done(tune(&root, &[], &apply));
    let tuned = wmem(&root);
    let damaged = whole.replace("\"former\": \"", "\"former\": \u{1}");
    fs::write(&journal, &damaged).unwrap();
    let text = done(tune(&root, &["rollback"], &[]));
    let lost = format!(
        "net.ipv4.tcp_wmem: not restored, because its former value is lost; it stays {}",
        tuned.trim()
    );
    assert!(text.contains(&lost) && text.contains("0001.json.damaged.2"), "{text}");
    assert!(
        !journal.exists() && !root.join("etc/sysctl.d/90-fullpipe.conf").exists(),
        "a reboot restores it"
    );

    // No part of the journal is readable, but a new trial is still possible.
    fs::write(root.join("proc/sys/net/ipv4/tcp_wmem"), &before).unwrap();
    fs::write(&journal, [0xff, 0, b'{']).unwrap();
    done(tune(&root, &[], &[&PATH[..], &["--apply"]].concat()));
    done(tune(&root, &["rollback"], &["--all"]));
    assert_eq!(wmem(&root), before);
}

/// A symbolic link below --root could lead to the files of this host, so fullpipe does not follow it.
#[test]
fn a_link_below_the_root_is_refused() {
    for link in ["var", "var/lib", "var/lib/fullpipe", "etc/sysctl.d"] {
        let (root, elsewhere) = (host("tune-link"), folder("tune-link-elsewhere"));
        let path = root.join(link);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        for action in [&["status"][..], &["rollback"], &["plan"]] {
            let more: &[&str] =
                if action == ["plan"] { &["--link", "20mbit", "--rtt", "100ms", "--apply"] } else { &[] };
            let (error, hint) = refusal(1, tune(&root, action, more));
            assert_eq!(error, format!("{} is a symbolic link", path.display()));
            assert!(hint.starts_with("replace the link with a folder"), "{hint}");
        }
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    }
}

/// `status` lists programs and files that set the same keys. Only those files are listed that would take
/// precedence over fullpipe's file at the next boot.
#[test]
fn status_names_whoever_else_sets_it() {
    let root = host("tune-others");
    let file = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    done(tune(&root, &[], &[&PATH[..], &["--apply", "--revert-after", "never"]].concat()));
    let quiet = done(tune(&root, &["status"], &[]));
    assert!(!quiet.contains("Overridden") && !quiet.contains("Beside"), "{quiet}");

    file("etc/sysctl.d/10-early.conf", "net.ipv4.tcp_wmem = 4096 16384 1\n");
    file("etc/sysctl.d/92-same.conf", "net.ipv4.tcp_wmem = 4096\t16384\t516096\n");
    file("run/sysctl.d/95-run.conf", "net.ipv4.tcp_wmem = 4096 16384 2\n");
    // A file in /etc hides a file of the same name in other folders, and so does a link to /dev/null.
    file("usr/lib/sysctl.d/95-run.conf", "net.ipv4.tcp_wmem = 4096 16384 3\n");
    file("usr/lib/sysctl.d/96-vendor.conf", "-net/ipv4/tcp_wmem = 4096 16384 4\n");
    file("usr/lib/sysctl.d/97-masked.conf", "net.ipv4.tcp_wmem = 4096 16384 5\n");
    std::os::unix::fs::symlink("/dev/null", root.join("etc/sysctl.d/97-masked.conf")).unwrap();
    // A link to /dev/null hides the file of the same name in other folders.
    file("usr/lib/sysctl.d/98-masked.conf", "net.ipv4.tcp_wmem = 4096 16384 7\n");
    std::os::unix::fs::symlink("/dev/null", root.join("etc/sysctl.d/98-masked.conf")).unwrap();
    file("etc/sysctl.conf", "net.ipv4.tcp_wmem = 4096 16384 6\n");
    std::os::unix::fs::symlink("../sysctl.conf", root.join("etc/sysctl.d/99-sysctl.conf")).unwrap();
    file("proc/4242/comm", "tuned\n");
    file("proc/4243/comm", "bpftune\n");
    file("proc/4244/comm", "bash\n");
    file("etc/tuned/active_profile", "network-throughput\n");
    file("etc/cloud/cloud.cfg.d/50-site.cfg", "runcmd:\n  - sysctl -w net.ipv4.tcp_wmem='1 2 3'\n");
    let document = json(&done(tune(&root, &["status"], &["--json"])));
    let winners: Vec<(&str, &str)> = document["overrides"]
        .as_array()
        .unwrap()
        .iter()
        .map(|o| {
            let path = o["file"].as_str().unwrap().strip_prefix(root.to_str().unwrap()).unwrap();
            (path, o["value"].as_str().unwrap().rsplit(' ').next().unwrap())
        })
        .collect();
    let expected = [
        ("/run/sysctl.d/95-run.conf", "2"),
        ("/usr/lib/sysctl.d/96-vendor.conf", "4"),
        ("/etc/sysctl.d/99-sysctl.conf", "6"),
    ];
    assert_eq!(winners, expected);
    let managers: Vec<&str> =
        document["managers"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    for name in
        ["tuned, which is running", "bpftune, which is running", "profile network-throughput", "cloud-init"]
    {
        assert!(managers.iter().any(|manager| manager.contains(name)), "{name}: {managers:?}");
    }
    assert_eq!(managers.len(), 4, "{managers:?}");
    let text = done(tune(&root, &["status"], &[]));
    assert!(
        text.contains("Overridden at the next boot: ") && text.contains("Also managed by: bpftune"),
        "{text}"
    );
}

/// On a host with systemd, a timer reverts unconfirmed changes even if every process of the session
/// was killed.
#[test]
fn a_timer_of_systemd_takes_it_back_when_all_else_is_killed() {
    let root = host("tune-systemd");
    let before = wmem(&root);
    fs::create_dir_all(root.join("run/systemd/system")).unwrap();
    let (bin, asked) = (root.join("bin"), root.join("asked"));
    fs::create_dir_all(&bin).unwrap();
    let fake = bin.join("systemd-run");
    fs::write(&fake, format!("#!/bin/sh\nprintf '%s\\n' \"$@\" > {}\n", asked.display())).unwrap();
    fs::set_permissions(&fake, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let apply = |revert_after: &str| {
        let said = std::process::Command::new(env!("CARGO_BIN_EXE_fullpipe"))
            .args([
                "tune",
                "--root",
                root.to_str().unwrap(),
                "--apply",
                "--json",
                "--revert-after",
                revert_after,
            ])
            .args(PATH)
            .env("PATH", &path)
            .output()
            .unwrap();
        json(&String::from_utf8(said.stdout).unwrap())
    };
    // The trial lasts long enough to kill the guard before the trial ends, even on a busy machine.
    let document = apply("5s");
    let arguments = fs::read_to_string(&asked).unwrap();
    let arguments: Vec<&str> = arguments.lines().collect();
    let timer = document["applied"]["timer"].as_str().unwrap().strip_suffix(".timer").unwrap();
    assert!(arguments.contains(&timer) && arguments.contains(&"--on-active=6s"), "{arguments:?}");
    kill_guard(&root);
    assert_ne!(wmem(&root), before);
    // The test runs the command that systemd would start.
    let end = arguments.iter().position(|argument| *argument == "--").unwrap();
    let run = || {
        let status = std::process::Command::new(arguments[end + 1]).args(&arguments[end + 2..]).status();
        assert!(status.unwrap().success());
        wmem(&root) == before
    };
    assert!(becomes(run), "{}", wmem(&root));
    assert!(!root.join("etc/sysctl.d/90-fullpipe.conf").exists());

    // If the timer fires late and finds a different trial, it leaves that trial alone.
    apply("3600s");
    assert!(!run());
    done(tune(&root, &["rollback"], &[]));
    // If systemd is missing or refuses, only the guard reverts the changes.
    fs::write(&fake, "#!/bin/sh\nexit 1\n").unwrap();
    assert_eq!(apply("3600s")["applied"]["timer"], Value::Null);
    done(tune(&root, &["rollback"], &[]));
}

/// A process that holds the lock of the state until this value is dropped.
struct Held(std::process::Child);

impl Held {
    fn hold(root: &Path) -> Self {
        let lock = root.join("var/lib/fullpipe/lock");
        let flock = || std::process::Command::new("flock");
        let held = Self(flock().arg("-F").arg(&lock).args(["sleep", "600"]).spawn().unwrap());
        let free = || flock().arg("-n").arg(&lock).arg("true").status().unwrap().success();
        assert!(becomes(|| !free()), "it is held");
        held
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the output of `fullpipe tune`, which must end within one minute, six times the time for which it
/// waits for the lock.
fn within_a_limit(arguments: &[&str], root: &Path) -> (i32, String, String) {
    let child = std::process::Command::new(env!("CARGO_BIN_EXE_fullpipe"))
        .args(["tune", arguments[0], "--root", root.to_str().unwrap()])
        .args(&arguments[1..])
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let child = std::cell::RefCell::new(child);
    let ended = becomes(|| child.borrow_mut().try_wait().unwrap().is_some());
    let mut child = child.into_inner();
    if !ended {
        child.kill().unwrap();
    }
    let said = child.wait_with_output().unwrap();
    assert!(ended, "fullpipe tune {} still waits for the lock after a minute", arguments[0]);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (said.status.code().unwrap(), text(said.stdout), text(said.stderr))
}

/// `fullpipe tune` waits for the lock for 10 s. The error then names the process that holds it.
#[test]
fn a_rollback_that_cannot_have_the_lock_says_who_holds_it() {
    if !process::has("flock") {
        return;
    }
    let root = host("tune-held");
    let before = wmem(&root);
    done(tune(&root, &[], &[&PATH[..], &["--apply", "--revert-after", "3600s"]].concat()));
    let held = Held::hold(&root);
    let (error, hint) = refusal(1, within_a_limit(&["rollback"], &root));
    let lock = root.join("var/lib/fullpipe/lock");
    let pid = held.pid();
    assert_eq!(
        error,
        format!("process {pid} (sleep) holds the lock {}; fullpipe waited 10s for it", lock.display())
    );
    assert_eq!(
        hint,
        format!("wait until that process ends, or end it with kill {pid}, then run the command again")
    );
    drop(held);
    done(tune(&root, &["rollback"], &[]));
    assert_eq!(wmem(&root), before);
}

/// An overdue trial is reverted even while another process holds the lock, either by the guard or by the
/// command that the systemd timer runs.
#[test]
fn an_overdue_trial_ends_although_the_lock_is_held() {
    if !process::has("flock") {
        return;
    }
    for by_timer in [false, true] {
        let root = host(if by_timer { "tune-held-timer" } else { "tune-held-guard" });
        let before = wmem(&root);
        done(tune(&root, &[], &[&PATH[..], &["--apply", "--revert-after", "1s"]].concat()));
        if by_timer {
            kill_guard(&root);
        }
        let held = Held::hold(&root);
        let said = std::cell::RefCell::new(String::new());
        let back = || {
            if by_timer {
                *said.borrow_mut() += &within_a_limit(&["guard", "--overdue", "1"], &root).2;
            }
            wmem(&root) == before
        };
        assert!(becomes(back), "{}", wmem(&root));
        let named = format!("process {} (sleep) held the lock", held.pid());
        assert_eq!(said.borrow().contains(&named), by_timer, "{}", said.borrow());
    }
}

/// Whatever the umask, no other user can open the lock or read the journal. Other users cannot write to the
/// system folders that fullpipe creates.
#[test]
fn the_state_is_closed_to_others_whatever_the_umask() {
    use std::os::unix::fs::PermissionsExt;
    for umask in ["0", "077"] {
        let root = host(&format!("tune-umask-{umask}"));
        let mode = |path: &str| fs::metadata(root.join(path)).unwrap().permissions().mode() & 0o7777;
        let command = format!(
            "umask {umask}; exec {} tune --root {} --apply --revert-after never {}",
            env!("CARGO_BIN_EXE_fullpipe"),
            root.display(),
            PATH.join(" ")
        );
        let said = std::process::Command::new("sh").args(["-c", &command]).output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        let modes = ["", "/lock", "/0001.json"].map(|name| mode(&format!("var/lib/fullpipe{name}")));
        assert_eq!(modes.map(|mode| format!("{mode:o}")), ["700", "600", "600"], "umask {umask}");
        for folder in ["var", "var/lib", "etc/sysctl.d"] {
            assert_eq!(mode(folder) & 0o022, 0, "{folder}: {:o}", mode(folder));
        }
        if umask == "0" {
            assert_eq!(mode("etc/sysctl.d/90-fullpipe.conf"), 0o644);
        }
        // The list contains the file modes that earlier versions of fullpipe set.
        for (name, mode) in [("", 0o755), ("/lock", 0o644), ("/0001.json", 0o644)] {
            let path = root.join(format!("var/lib/fullpipe{name}"));
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let again = ["--link", "80mbit", "--rtt", "100ms", "--apply", "--revert-after", "never"];
        done(tune(&root, &[], &again));
        let modes = ["", "/lock", "/0001.json"].map(|name| mode(&format!("var/lib/fullpipe{name}")));
        assert_eq!(modes.map(|mode| format!("{mode:o}")), ["700", "600", "600"], "after an upgrade");
    }
}

/// Kills the guard, as may happen at the end of a session.
fn kill_guard(root: &Path) {
    let root = root.to_str().unwrap();
    let guard = fs::read_dir("/proc").unwrap().flatten().find(|process| {
        let line = fs::read_to_string(process.path().join("cmdline")).unwrap_or_default();
        line.split('\0').any(|word| word == "guard") && line.split('\0').any(|word| word == root)
    });
    let number = guard.expect("it watches").file_name().into_string().unwrap();
    let killed = std::process::Command::new("sh").args(["-c", &format!("kill -KILL {number}")]).status();
    assert!(killed.unwrap().success());
}

/// Larger buffers have no effect on a path whose link is slow. The exit code is then 5, and the command for
/// rolling back is printed; on a terminal, the user is asked.
#[test]
fn without_a_gain_the_way_back_is_offered() {
    if !process::emulated::allowed() {
        return;
    }
    for at_terminal in [false, true] {
        if at_terminal && std::process::Command::new("script").arg("--version").output().is_err() {
            eprintln!("skipped: there is no script to make a terminal");
            continue;
        }
        let root = folder(if at_terminal { "tune-verify-terminal" } else { "tune-verify" });
        let tune = format!(
            "{} tune --link 200mbit --rtt 210ms --to $FULLPIPE_PEER --netns /proc/self/ns/net --root {} --verify --rounds 1 \
             --time 4s",
            env!("CARGO_BIN_EXE_fullpipe"),
            root.display()
        );
        let wmem = "cat /proc/sys/net/ipv4/tcp_wmem";
        let tune = if at_terminal { format!("echo y | script -qec '{tune}' /dev/null") } else { tune };
        let command = format!(
            "sysctl -qw net.ipv4.tcp_wmem='4096 16384 4194304'; {wmem}; {tune}; echo code $?; {wmem};              {} tune rollback --netns /proc/self/ns/net --root {}; {wmem}",
            env!("CARGO_BIN_EXE_fullpipe"),
            root.display()
        );
        let serve = format!("{} iperf3 -s", env!("CARGO_BIN_EXE_fullpipe"));
        let path = ["emu", "--rate", "4mbit", "--rtt", "20ms", "--serve", &serve, "--", "sh", "-c", &command];
        let (mut code, mut said, mut error) = fullpipe(&path);
        // A gain of 5 % counts. On a busy machine, one of two measurements may be that much slower by chance,
        // but not in every attempt.
        for _ in 0..4 {
            if !said.contains("Verified: the rate increased") {
                break;
            }
            (code, said, error) = fullpipe(&path);
        }
        assert_eq!(code, 0, "{said}{error}");
        assert!(said.contains("Verified: no gain") && said.contains("code 5"), "{said}{error}");
        let settings: Vec<&str> = said.lines().filter(|line| line.starts_with("4096	")).collect();
        assert_eq!((settings.len(), settings[0]), (3, settings[2]), "{said}");
        if at_terminal {
            assert!(said.contains("Revert them now") && said.contains("Restored:"), "{said}");
            assert_eq!(settings[0], settings[1], "{said}");
        } else {
            assert!(said.contains("To revert them now: fullpipe tune rollback --root"), "{said}");
            assert!(said.contains("(otherwise, they are reverted in "), "{said}");
            assert_ne!(settings[0], settings[1], "{said}");
        }
    }
}

/// The output of `fullpipe iperf3` is also a valid report for a plan: as a document or as events, with
/// several streams, and with a UDP test.
#[test]
fn a_test_of_iperf3_is_an_input() {
    let root = host("tune-iperf3");
    let free = process::port();
    let port = free.to_string();
    let _server = Server(
        std::process::Command::new(env!("CARGO_BIN_EXE_fullpipe"))
            .args(["iperf3", "-s", "-p", &port])
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap(),
    );
    assert!(becomes(|| std::net::TcpStream::connect(("127.0.0.1", free)).is_ok()));
    for flags in [&["-J", "-P", "2"][..], &["--json-stream"], &["-J", "--tcp-and-udp"]] {
        // With --tcp-and-udp, -b does not limit the TCP test. On a busy machine a flow catches up after a
        // pause, so the link has room for more than the mean rate.
        let slow = ["-t", "2", "-b", "5M", "--fq-rate", "8M", "--link", "100mbit"];
        let client = ["iperf3", "-c", "127.0.0.1", "-p", &port];
        let (code, report, error) = fullpipe(&[&client[..], &slow, flags].concat());
        assert_eq!(code, 0, "{error}");
        let root = root.to_str().unwrap();
        // The RTT of the loopback device is not plausible for a plan, so the test passes a different RTT.
        let arguments = ["tune", "--from", "-", "--rtt", "100ms", "--root", root, "--json"];
        let document = json(&done(fullpipe_reading(report.as_bytes(), &arguments)));
        assert_eq!(document["link_bps"], 100_000_000, "{flags:?}");
        assert_eq!(document["flows"], if flags.contains(&"-P") { 2 } else { 1 }, "{flags:?}");
        assert!(document["measured_bps"].is_u64(), "{flags:?}");
    }
}

/// An iperf3 server, which ends when this value is dropped.
struct Server(std::process::Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
