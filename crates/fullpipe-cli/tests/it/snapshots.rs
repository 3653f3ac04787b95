//! Tests that compare the output of the command, word for word, with the files in `snapshots/`.
//!
//! `SNAPSHOTS=overwrite cargo test -p fullpipe-cli --test it snapshots::` regenerates the
//! files; a reviewer then checks the differences.

use std::path::Path;

use crate::process::{example, fullpipe};
use serde_json::Value;
use snapbox::assert::DEFAULT_ACTION_ENV;
use snapbox::data::DataFormat;
use snapbox::{Assert, Data};

#[track_caller]
fn matches(name: &str, arguments: &[&str]) {
    let (code, stdout, stderr) = fullpipe(arguments);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    is_as_in(name, &stdout.replace(env!("CARGO_PKG_VERSION"), "VERSION"));
}

/// Compares a JSON document with its snapshot. Values that differ between machines and versions are
/// omitted: times, trace digests, work counters, and digits that depend on the rounding of a
/// mathematics library.
#[track_caller]
fn matches_json(name: &str, arguments: &[&str]) {
    let (code, stdout, stderr) = fullpipe(&[arguments, &["--json"]].concat());
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    let mut document = serde_json::from_str(&stdout).expect("JSON");
    steady(&mut document);
    is_as_in(name, &(serde_json::to_string_pretty(&document).expect("JSON") + "\n"));
}

fn steady(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(steady),
        Value::Object(object) => {
            for (key, value) in object {
                match key.as_str() {
                    "digest" | "wall_s" | "work" => *value = "of this run".into(),
                    _ => steady(value),
                }
            }
        }
        Value::Number(number) if number.is_f64() => {
            let rounded = number.as_f64().map(|number| format!("{number:.6e}"));
            *value = rounded.and_then(|text| text.parse::<f64>().ok()).into();
        }
        _ => {}
    }
}

#[track_caller]
pub(crate) fn is_as_in(name: &str, output: &str) {
    is_current(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(name), output);
}

/// Asserts that `file` contains `text`, and prints the differences otherwise. `SNAPSHOTS=overwrite` writes
/// `text` to `file` instead.
#[track_caller]
pub(crate) fn is_current(file: &Path, text: &str) {
    // `raw` is needed because help texts contain `[..]` and `...`, which snapbox would read as wildcards.
    let expected = Data::read_from(file, Some(DataFormat::Text)).raw();
    Assert::new().action_env(DEFAULT_ACTION_ENV).eq(text, expected);
}

#[test]
fn help() {
    matches("help.txt", &["--help"]);
    matches("help-diagnose.txt", &["diagnose", "--help"]);
    matches("help-whatif.txt", &["whatif", "--help"]);
    matches("help-run.txt", &["run", "--help"]);
    matches("help-dataset.txt", &["dataset", "--help"]);
    matches("help-race.txt", &["race", "--help"]);
    matches("help-pair.txt", &["pair", "--help"]);
    matches("help-emu.txt", &["emu", "--help"]);
    matches("help-iperf3.txt", &["iperf3", "--help"]);
    matches("help-exporter.txt", &["exporter", "--help"]);
    matches("help-tune.txt", &["tune", "--help"]);
    matches("help-copy.txt", &["copy", "--help"]);
    matches("help-relay.txt", &["relay", "--help"]);
    matches("help-relay-serve.txt", &["relay", "serve", "--help"]);
    matches("help-completions.txt", &["completions", "--help"]);
    matches("help-man.txt", &["man", "--help"]);
    matches("first-steps.txt", &[]);
}

/// If the tests are built from the repository, the version contains the commit and its date.
#[test]
fn version() {
    let (code, stdout, _) = fullpipe(&["--version"]);
    let first = concat!("fullpipe ", env!("CARGO_PKG_VERSION"));
    assert!(code == 0 && stdout.starts_with(first), "{stdout}");
    let (code, stdout, _) = fullpipe(&["--version", "--json"]);
    let document: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!((code, &document["version"]), (0, &Value::from(env!("CARGO_PKG_VERSION"))));
    assert_eq!(document["profile"], "debug", "the folder of the tests");
    let features = document["features"].as_array().expect("a list");
    let linux = cfg!(target_os = "linux");
    for (name, there) in [
        ("accelerate", linux),
        ("copy", linux && cfg!(feature = "copy")),
        ("html", true),
        ("tables", cfg!(feature = "tables")),
    ] {
        assert_eq!(features.contains(&name.into()), there, "{name}: {features:?}");
    }
    if Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.git").exists() {
        let commit = document["commit"].as_str().expect("a commit");
        assert!(commit.len() >= 10 && commit.chars().all(|digit| digit.is_ascii_hexdigit()), "{commit}");
        let date = document["commit_date"].as_str().expect("a date");
        assert_eq!(date.split('-').map(str::len).collect::<Vec<_>>(), [4, 2, 2], "{date}");
    }
}

/// The built-in example comes with facts about its path. On a link of 1 Gbit/s, which is the default of the
/// example, the simulation of the ladder would take longer.
#[test]
fn example_within_the_program() {
    let (code, output, stderr) = fullpipe(&["diagnose", "--example", "--link", "80mbit"]);
    assert_eq!((code, stderr.as_str()), (0, ""), "{output}");
    for fact in [
        "69.3 Mbit/s of 80 Mbit/s over 30s, RTT 210ms, one stream",
        "\n  - receiver: tcp_rmem[2] 4 MiB (from the sysctl dump)",
        "\n  fullpipe diagnose LOG --link 1gbit --rtt 210ms --sysctl SYSCTL\n",
    ] {
        assert!(output.contains(fact), "{fact} is not in\n{output}");
    }
    assert!(output.ends_with("Other examples: cubic-tuned, bbr\n"), "{output}");
}

/// A slow link is used, because the test would take longer on a gigabit link without covering more.
#[test]
fn diagnose_offered() {
    let log = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/snapshots/small.iperf3.txt");
    let path = ["diagnose", log, "--link", "20mbit", "--rtt", "100ms"];
    let arguments = [&path[..], &["--offered", "15mbit", "--memory", "64MiB"]].concat();
    matches("diagnose-offered.txt", &arguments);
    matches_json("diagnose-offered.json", &arguments);
}

#[test]
fn diagnose_udp() {
    let arguments = ["diagnose", &example("iperf3/made-udp-3.1.txt"), "--link", "30mbit", "--rtt", "100ms"];
    matches("diagnose-udp.txt", &arguments);
    matches_json("diagnose-udp.json", &arguments);
}

#[test]
fn whatif() {
    let arguments =
        ["whatif", "--link", "50mbit", "--rtt", "210ms", "--loss", "400ppm", "--buffers", "256KiB"];
    matches("whatif.txt", &arguments);
    let small = ["whatif", "--link", "20mbit", "--rtt", "100ms", "--loss", "0.1%", "--offered", "15mbit"];
    matches_json("whatif.json", &small);
}

#[test]
fn run() {
    let experiment = example("../experiments/tiny-window.toml");
    matches("run.txt", &["run", &experiment]);
    matches_json("run.json", &["run", &experiment]);
}
