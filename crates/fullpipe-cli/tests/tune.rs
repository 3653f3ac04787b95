//! `fullpipe tune` as a person meets it: on a folder that looks like a host, and with exit codes that say what happened.
#![cfg(target_os = "linux")]

mod process;

use std::fs;
use std::path::{Path, PathBuf};

use process::{becomes, folder, fullpipe, fullpipe_reading, refusal};
use serde_json::Value;

/// A host of kernel 6.1 whose send buffer is too small for 20 Mbit/s at 100 ms.
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
    assert!(text.contains("tcp_wmem: 4096 16384 262144 -> 4096 16384 503808"), "{text}");
    assert!(
        text.ends_with("Nothing was changed. With --apply it is, for 120s unless confirmed.\n"),
        "{text}"
    );
    assert_eq!(wmem(&root), before);
    assert!(!root.join("var").exists() && !root.join("etc").exists(), "nothing is written for a plan");

    let text = done(tune(&root, &["plan"], &[&PATH[..], &["--apply"]].concat()));
    assert!(
        text.contains(
            "Applied, and read back:\n  net.ipv4.tcp_wmem = 4096 16384 503808 (was 4096 16384 262144)"
        ),
        "{text}"
    );
    assert_eq!(wmem(&root), "4096 16384 503808");
    let owned = root.join("etc/sysctl.d/90-fullpipe.conf");
    let file = fs::read_to_string(&owned).unwrap();
    assert!(file.contains("\n# net.ipv4.tcp_wmem = 4096 16384 503808\n"), "not for the next boot: {file}");
    let status = done(tune(&root, &["status"], &[]));
    assert!(status.starts_with("On trial: taken back in 1"), "{status}");
    let again = tune(&root, &[], &[&PATH[..], &["--with", "notsent_lowat", "--apply"]].concat());
    assert!(again.2.contains("error: other changes are still on trial\nhint: "), "{}", again.2);

    done(tune(&root, &["confirm"], &[]));
    assert!(fs::read_to_string(&owned).unwrap().contains("\nnet.ipv4.tcp_wmem = 4096 16384 503808\n"));
    let later = root.join("etc/sysctl.d/95-site.conf");
    fs::write(&later, "net.ipv4.tcp_wmem = 4096 16384 4194304\n").unwrap();
    let status = json(&done(tune(&root, &["status"], &["--json"])));
    assert_eq!(status["states"][0]["phase"], "confirmed");
    assert_eq!(status["overrides"][0]["file"], later.to_str().unwrap());

    let text = done(tune(&root, &["rollback"], &[]));
    assert!(text.starts_with("Restored:\n"), "{text}");
    assert_eq!(wmem(&root), before);
    assert!(!owned.exists());
    assert_eq!(done(tune(&root, &["rollback"], &[])), "There is nothing to take back.\n");
    assert_eq!(done(tune(&root, &["status"], &[])), "Nothing is changed by fullpipe.\n");
}

/// The process that takes it back is this program itself, long after the command has ended.
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

/// The path, the loss and the other host's part come from the report.
#[test]
fn a_report_of_diagnose_is_an_input() {
    let root = host("tune-report");
    let report = r#"{"schema": "fullpipe.diagnose/1", "input": {"protocol": "tcp", "streams": 1},
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
    let (error, _) = refusal(2, tune(&root, &[], &[&PATH[..], &["--to", "203.0.113.7"]].concat()));
    assert_eq!(error, "--root has no routes");
    let (error, hint) = refusal(1, tune(&root, &["confirm"], &[]));
    assert_eq!(
        (error.as_str(), hint.as_str()),
        ("nothing is on trial", "fullpipe tune status shows what there is")
    );
    let (error, _) = refusal(1, fullpipe(&["tune", "status", "--netns", "no-such-namespace"]));
    assert!(error.contains("no-such-namespace"), "{error}");
    let (error, _) = refusal(1, fullpipe_reading(b"{}", &["tune", "--from", "-"]));
    assert!(error.contains("no report of diagnose"), "{error}");
    let (_, hint) = refusal(2, tune(&root, &[], &[&PATH[..], &["--with", "everything"]].concat()));
    assert!(!hint.is_empty());
}

/// Without authority the plan is printed all the same, and nothing is begun.
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
    let said = std::process::Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(host.join("fullpipe"))
        .args(["tune", "--root", host.to_str().unwrap(), "--apply"])
        .args(PATH)
        .output()
        .unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    fs::remove_dir_all(&visible).unwrap();
    assert_eq!(said.status.code(), Some(4), "{stdout}{stderr}");
    assert!(stdout.contains("sysctl -w net.ipv4.tcp_wmem=\"4096 16384 503808\""), "{stdout}");
    assert!(
        stderr.contains("error: this process may not set") && stderr.contains("hint: run it as root"),
        "{stderr}"
    );
}

#[test]
fn show_says_what_each_setting_limits() {
    let root = host("tune-show");
    let text = done(tune(&root, &["show"], &["--rtt", "100ms", "--loss", "0.1%"]));
    assert!(text.starts_with("Kernel 6.1, new connections use cubic\n"), "{text}");
    assert!(text.contains("20.6 Mbit/s  to send: tcp_wmem[2] per RTT"), "{text}");
    let document = json(&done(tune(&root, &["show"], &["--json"])));
    assert_eq!(document["schema"], "fullpipe.tune.show/1");
    assert_eq!(document["limits"].as_array().map(Vec::len), Some(3));
}
