//! What the command prints, word by word, beside the files in `snapshots/`.
//!
//! `FULLPIPE_UPDATE_SNAPSHOTS=1 cargo test -p fullpipe-cli --test snapshots` writes them anew; the difference
//! is then for a reviewer to read.

mod process;

use std::fs;
use std::path::Path;

use process::{example, fullpipe};

#[track_caller]
fn matches(name: &str, arguments: &[&str]) {
    let (code, stdout, stderr) = fullpipe(arguments);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    let said = stdout.replace(env!("CARGO_PKG_VERSION"), "VERSION");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(name);
    if std::env::var_os("FULLPIPE_UPDATE_SNAPSHOTS").is_some() {
        return fs::write(&file, said).expect("a snapshot");
    }
    let expected = fs::read_to_string(&file).unwrap_or_default();
    let first = said.lines().zip(expected.lines()).position(|(said, expected)| said != expected);
    let line = first.unwrap_or_else(|| said.lines().count().min(expected.lines().count())) + 1;
    assert!(said == expected, "{name} differs from line {line} on; it now says:\n{said}");
}

#[test]
fn help() {
    matches("help.txt", &["--help"]);
    matches("help-diagnose.txt", &["diagnose", "--help"]);
    matches("help-whatif.txt", &["whatif", "--help"]);
    matches("help-run.txt", &["run", "--help"]);
    matches("help-emu.txt", &["emu", "--help"]);
    matches("help-completions.txt", &["completions", "--help"]);
    matches("help-man.txt", &["man", "--help"]);
    matches("version.txt", &["--version"]);
}

#[test]
fn diagnose() {
    let (log, sysctl) = (example("cross-border/cubic.iperf3.txt"), example("cross-border/sysctl-before.txt"));
    matches(
        "diagnose-cubic.txt",
        &["diagnose", &log, "--link", "1gbit", "--rtt", "210ms", "--sysctl", &sysctl],
    );
}

#[test]
fn whatif() {
    matches(
        "whatif.txt",
        &["whatif", "--link", "1gbit", "--rtt", "210ms", "--loss", "20ppm", "--buffers", "4MiB"],
    );
}
