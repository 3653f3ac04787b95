//! Tests of `fullpipe whatif` as users and scripts run it.

use crate::predictions::{self, OCEAN};
use crate::process::{fullpipe, refusal};
use serde_json::Value;

/// Options that describe a path on which a second can be simulated quickly.
const SMALL: [&str; 6] = ["whatif", "--link", "20mbit", "--rtt", "100ms", "--loss=0.1%"];

fn answer(arguments: &[&str]) -> Value {
    let (code, stdout, stderr) = fullpipe(&[arguments, &["--format", "json"]].concat());
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    serde_json::from_str(&stdout).expect("JSON")
}

#[track_caller]
fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Compares predictions with Linux on a path of 1 Gbit/s with an RTT of 210 ms and 20 ppm packet loss. The bounds
/// are 10 % beyond both ends of the range of the kernel's results: the steady state of CUBIC in the runs of
/// `experiments/slow-decay.toml`, and for BBR the bounds of `experiments/cross-border.toml`.
#[test]
fn the_prediction_is_what_the_kernel_does() {
    let cells = [
        ("cubic", "4MiB", "44-85", 39.7, 93.4),
        ("cubic", "64MiB", "44-81", 39.2, 89.2),
        ("bbr", "4MiB", "94-105", 85.0, 116.0),
        ("bbr", "64MiB", "550-980", 700.0, 960.0),
    ];
    println!("{:6} {:>6} {:>10} {:>10}  Mbit/s", "cc", "buffers", "kernel", "predicted");
    for (cc, buffers, kernel, least, most) in cells {
        let document = predictions::whatif(&OCEAN, "20ppm", buffers, cc);
        let predicted = number(&document["ladder"][0]["steady_bps"]) / 1e6;
        println!("{cc:6} {buffers:>6} {kernel:>10} {predicted:>10.1}");
        assert!((least..=most).contains(&predicted), "{cc}, {buffers}: {predicted} Mbit/s");
        // From any starting point, both remedies together come close to the link rate.
        let ladder = document["ladder"].as_array().expect("a ladder");
        let before_the_line = number(&ladder[ladder.len() - 2]["steady_bps"]) / 1e6;
        assert!(before_the_line >= 700.0, "{cc}, {buffers}: {before_the_line} Mbit/s");
    }
}

#[test]
fn the_document_has_its_figures() {
    let document = answer(&[&SMALL[..], &["--buffers", "256KiB", "--kernel", "5.15"]].concat());
    assert_eq!(document["schema"], "fullpipe.whatif/1");
    assert_eq!(document["path"]["link_bps"], 20_000_000);
    assert_eq!(document["path"]["congestion_control"], "cubic");
    assert_eq!(document["bdp_bytes"], 250_000);
    let figures = &document["figures"];
    assert_eq!(figures["window_bytes"], 131_072, "half of it, as tcp_adv_win_scale is 1 by default");
    assert_eq!(number(&figures["window_bps"]), 131_072.0 * 8.0 / 0.1);
    assert!((1.9e7..2e7).contains(&number(&figures["line_bps"])), "{figures:#}");
    assert!((1e6..1e7).contains(&number(&figures["loss_bps"])), "{figures:#}");
    let rmem = document["plan"]["rmem_bytes"].as_u64().expect("a size");
    assert!(rmem > 500_000 && rmem.is_multiple_of(4096), "half of {rmem} holds a BDP, in whole pages");
    assert_eq!(document["plan"]["commands"].as_array().map(Vec::len), Some(2));
    let ladder = document["ladder"].as_array().expect("a ladder");
    let (first, last) = (&ladder[0], &ladder[ladder.len() - 1]);
    assert_eq!((&first["source"], &first["remedy"]), (&"simulated".into(), &Value::Null));
    assert_eq!((&last["source"], &last["limit"]), (&"given".into(), &"link".into()));
    let rates: Vec<f64> =
        ladder[1..ladder.len() - 1].iter().map(|rung| number(&rung["steady_bps"])).collect();
    assert!(!rates.is_empty() && rates.is_sorted(), "{rates:?}");
    assert!(document["assumptions"].to_string().contains("3 seeds"), "{:#}", document["assumptions"]);
    assert_eq!(answer(&SMALL), answer(&SMALL), "the same question has the same answer");
}

/// Each option about the path and the hosts changes the result, and is named where its default is assumed.
#[test]
fn every_option_counts_and_every_default_is_stated() {
    let path = ["whatif", "--link", "20mbit", "--rtt", "40ms"];
    let default = answer(&path);
    let assumed = default["assumptions"].to_string();
    for option in ["--flows", "--mss", "--queue", "--cap", "--buffers", "--kernel"] {
        assert!(assumed.contains(&format!("{option} overrides this")), "{option}: {assumed}");
    }
    let queues = assumed.matches("queue of 1 BDP").count() + assumed.matches("capacity of 1 BDP").count();
    assert_eq!(queues, 1, "the queue is stated once: {assumed}");
    let given = |more: &[&str]| answer(&[&path[..], more].concat());
    let rate = |document: &Value| number(&document["ladder"][0]["steady_bps"]);
    let small = given(&["--sndbuf", "64KiB", "--rcvbuf", "6MiB"]);
    assert_eq!(small["path"]["sndbuf_bytes"], 65_536);
    assert!(rate(&small) < 0.8 * rate(&default), "{small:#}");
    assert_eq!(small["ladder"][0]["limit"], "sndbuf", "{small:#}");
    let small = given(&["--rcvbuf", "64KiB"]);
    assert_eq!(
        (&small["ladder"][0]["limit"], &small["path"]["rcvbuf_bytes"]),
        (&"rwnd".into(), &65_536.into())
    );
    assert!(small["assumptions"].to_string().contains("--sndbuf overrides this"), "{small:#}");
    let two = given(&["--rcvbuf", "64KiB", "--flows", "2"]);
    assert!((1.9..2.1).contains(&(rate(&two) / rate(&small))), "two windows carry twice as much");
    // Several connections avoid a cap of each flow, which gives an additional rung.
    let capped = given(&["--cap", "4mbit"]);
    let ladder = capped["ladder"].as_array().expect("a ladder");
    assert_eq!((&ladder[0]["limit"], &ladder[1]["remedy"]), (&"cap".into(), &"10 connections".into()));
    assert!(capped["notes"].to_string().contains("one CUBIC flow with the same RTT"), "{capped:#}");
    assert_eq!(capped["path"]["cap_bps"], 4_000_000);
    // A cap of each flow changes neither the link rate nor the amount of data that fills the link.
    assert_eq!((&capped["bdp_bytes"], &default["bdp_bytes"]), (&100_000.into(), &100_000.into()));
    assert_eq!(capped["figures"]["line_bps"], default["figures"]["line_bps"]);
    assert!(capped["assumptions"].to_string().contains("queue of 1 BDP of the cap"), "{capped:#}");
    let (_, text, _) = fullpipe(&[&path[..], &["--cap", "4mbit"]].concat());
    assert!(text.contains("97.7 KiB  must be in flight to fill the link"), "{text}");
    assert!(text.contains("19.5 KiB  must be in flight on each flow to reach its cap"), "{text}");
    let short = given(&["--mss", "500B"]);
    assert!(number(&short["figures"]["line_bps"]) < number(&default["figures"]["line_bps"]), "more headers");
    // In a deep buffer, CUBIC causes a standing queue, which increases the RTT; an AQM removes this queue
    // without reducing the rate.
    let deep = given(&["--queue", "1MiB"]);
    let rungs = deep["ladder"].as_array().expect("a ladder");
    let p95 = |rung: &Value| number(&rung["rtt"]["p95_ms"]);
    assert!(p95(&rungs[0]) > 300.0 && p95(&rungs[1]) < 80.0, "{rungs:#?}");
    assert_eq!(rungs[1]["remedy"], "a managed queue at the bottleneck");
    assert_eq!(number(&rungs[0]["rtt"]["idle_ms"]), 40.0);
    assert!(rungs[1]["commands"][0]["run"].to_string().contains("cake"), "{rungs:#?}");
}

/// If the link is already full, there is no advice.
#[test]
fn a_full_line_needs_no_remedy() {
    let document = answer(&["whatif", "--link", "20mbit", "--rtt", "10ms"]);
    let ladder = document["ladder"].as_array().expect("a ladder");
    let limits: Vec<_> = ladder.iter().map(|rung| rung["limit"].as_str().expect("a limit")).collect();
    assert_eq!(limits, ["link", "link"], "{ladder:#?}");
    assert_eq!(document["plan"]["commands"], Value::Array(Vec::new()));
    assert_eq!(document["figures"]["loss_bps"], Value::Null);
}

/// Windows and buffers apply to each flow separately. Twelve flows fill the link with buffers that would be
/// too small for a single flow.
#[test]
fn several_flows_have_windows_of_their_own() {
    let twelve = ["whatif", "--link", "100mbit", "--rtt", "50ms", "--loss", "0.1%", "--buffers", "1MiB"];
    let twelve = [&twelve[..], &["--flows", "12"]].concat();
    let document = answer(&twelve);
    assert_eq!(document["ladder"][0]["limit"], "link", "{document:#}");
    assert_eq!(document["plan"]["commands"], Value::Array(Vec::new()));
    let (_, text, _) = fullpipe(&twelve);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for expected in [
        "12 flows, each with a 640 KiB receive window per RTT",
        "12 flows, each with a 1 MiB send buffer per RTT",
        "12 loss-based senders (CUBIC, Reno) at a loss of 0.1 %",
        "is the highest loss rate at which such senders can fill the link",
    ] {
        assert!(words.contains(expected), "{expected}: {text}");
    }
    assert!(!text.contains("Buffers that fill the link"), "{text}");
}

/// On a terminal the output is coloured, but colour adds no information to the text.
#[test]
fn colour_comes_when_asked_and_changes_no_word() {
    let said = |more: &[&str]| fullpipe(&[&SMALL[..], more].concat()).1;
    let plain = said(&[]);
    assert!(!plain.contains('\u{1b}'), "{plain}");
    assert_eq!(said(&["--color", "never"]), plain);
    let colourful = said(&["--color", "always"]);
    let codes = ["1", "32", "36", "0"].map(|code| format!("\u{1b}[{code}m"));
    assert!(codes.iter().all(|code| colourful.contains(code)), "{colourful}");
    let stripped = codes.iter().fold(colourful, |text, code| text.replace(code, ""));
    assert_eq!(stripped, plain);
    let to_copy = |line: &&str| line.starts_with("    [") || line.starts_with("      undo: ");
    assert!(plain.lines().filter(|line| !to_copy(line)).all(|line| line.chars().count() <= 80), "{plain}");
}

/// If the link is too fast to be simulated in reasonable time, the calculated values are still printed.
#[test]
fn too_fast_a_line_is_answered_on_paper() {
    let (code, stdout, stderr) = fullpipe(&["whatif", "--link", "400gbit", "--rtt", "100ms"]);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    assert!(stdout.contains("not simulated") && !stdout.contains("\nLadder"), "{stdout}");
    let (_, slower, _) = fullpipe(&["whatif", "--link", "15gbit", "--rtt", "300ms"]);
    let says = |text: &str| text.contains("does not model the hosts");
    assert!(says(&stdout) && !says(&slower), "{stdout}\n{slower}");
    assert!(stdout.contains("\nBuffers that fill the link"), "{stdout}");
}

#[test]
fn what_cannot_be_gets_one_line_and_a_hint() {
    let cases: [(i32, &[&str], &str); 15] = [
        (1, &["--link", "1gbit", "--rtt", "0ms"], "an RTT of 0ns is out of range: 10us to 10s"),
        (1, &["--link", "1gbit", "--rtt", "1min"], "an RTT of 60s is out of range"),
        (1, &["--link", "1bit", "--rtt", "1ms"], "--link"),
        (1, &["--link", "1gbit", "--rtt", "1ms", "--loss", "90%"], "a loss rate of 90 % is too high for TCP"),
        (
            1,
            &["--link", "1gbit", "--rtt", "1ms", "--buffers", "100B"],
            "no kernel supports socket buffers below 4 KiB",
        ),
        (1, &["--link", "1gbit", "--rtt", "1ms", "--sndbuf", "100B"], "socket buffers below 4 KiB"),
        (1, &["--link", "1gbit", "--rtt", "1ms", "--rcvbuf", "3GiB"], "socket buffers of 2 GiB or more"),
        (1, &["--link", "1gbit", "--rtt", "1ms", "--flows", "0"], "0 flows are out of range"),
        (1, &["--link", "1gbit", "--rtt", "1ms", "--mss", "10B"], "segments of 10 B are out of range"),
        (1, &["--link", "1gbit", "--rtt", "1ms", "--queue", "100B"], "a queue of 100 B is out of range"),
        (1, &["--link", "1gbit", "--rtt", "1ms", "--cap", "2gbit"], "a cap of 2 Gbit/s is out of range"),
        (2, &["--link", "1gbit", "--rtt", "1ms", "--buffers", "4M"], "size '4M' has an ambiguous unit"),
        (2, &["--link", "1gbit", "--rtt", "1ms", "--loss", "120%"], "0% to 100%"),
        (2, &["--link", "1gbit", "--rtt", "1ms", "--cc", "warp"], "--cc <NAME>: "),
        (2, &["--link", "1gbit"], "required arguments were not provided: --rtt <TIME>"),
    ];
    for (code, arguments, part) in cases {
        let (error, hint) = refusal(code, fullpipe(&[&["whatif"], arguments].concat()));
        assert!(error.contains(part) || hint.contains(part), "{error}: {hint}");
    }
}
