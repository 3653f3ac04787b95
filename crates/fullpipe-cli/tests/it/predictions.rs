//! Generates `docs/evidence/predictions.md`, which compares fullpipe's predictions with results of the kernel
//! TCP stack, and tests whether the file is current.
//!
//! `SNAPSHOTS=overwrite cargo test -p fullpipe-cli --test it predictions::` regenerates the file. The
//! kernel results come from one measurement; they are stored in [`CALCULATED`] and as `kernel = ` in the
//! experiments. A prediction that misses its kernel result stays in the table, and needs an entry that
//! explains the known cause.

use std::fmt::Write;
use std::path::Path;

use crate::pages::output_of;
use crate::process::{example, fullpipe};
use crate::snapshots::is_current;
use serde_json::Value;

/// Maximum relative distance between a prediction and the range of the kernel results for the prediction to
/// count as correct.
const NEAR: f64 = 0.10;

/// Result of the kernel TCP stack: the range over its runs, and their mean if this is not the middle of the
/// range.
#[derive(Clone, Copy)]
struct Kernel {
    low: f64,
    high: f64,
    mean: f64,
}

const fn range(low: f64, high: f64) -> Kernel {
    Kernel { low, high, mean: (low + high) / 2.0 }
}

const WEAK: [&str; 4] = ["--link", "340mbit", "--rtt", "140ms"];
pub(crate) const OCEAN: [&str; 4] = ["--link", "1gbit", "--rtt", "210ms"];

/// Inputs of `fullpipe whatif`, with the steady-state goodput of Linux in Mbit/s.
const CALCULATED: [([&str; 4], &str, &str, &str, Kernel); 13] = [
    (WEAK, "0%", "64MiB", "reno", range(328.1, 328.2)),
    (WEAK, "0%", "64MiB", "cubic", range(328.2, 328.2)),
    (WEAK, "0%", "64MiB", "bbr", range(312.8, 312.9)),
    (WEAK, "1.5%", "64MiB", "reno", range(0.67, 0.74)),
    (WEAK, "1.5%", "64MiB", "cubic", range(0.64, 0.82)),
    (WEAK, "1.5%", "64MiB", "bbr", range(305.0, 308.5)),
    (WEAK, "3%", "64MiB", "reno", range(0.50, 0.52)),
    (WEAK, "3%", "64MiB", "cubic", range(0.45, 0.51)),
    (WEAK, "3%", "64MiB", "bbr", range(301.7, 307.1)),
    (OCEAN, "20ppm", "4MiB", "cubic", Kernel { low: 44.1, high: 84.9, mean: 62.7 }),
    (OCEAN, "20ppm", "64MiB", "cubic", Kernel { low: 43.6, high: 81.1, mean: 57.5 }),
    (OCEAN, "20ppm", "4MiB", "bbr", range(94.0, 105.0)),
    (OCEAN, "20ppm", "64MiB", "bbr", Kernel { low: 550.0, high: 980.0, mean: 830.0 }),
];

/// Known causes of wrong predictions, by the name of the row.
const CAUSES: [(&str, &str); 0] = [];

/// A row of the table that compares predictions with kernel results.
struct Row {
    name: String,
    kernel: Kernel,
    predicted: f64,
    unit: String,
}

impl Row {
    fn ratio(&self) -> f64 {
        self.predicted / self.kernel.mean
    }

    fn misses(&self) -> bool {
        self.predicted < (1.0 - NEAR) * self.kernel.low || self.predicted > (1.0 + NEAR) * self.kernel.high
    }

    fn cause(&self) -> Option<&'static str> {
        CAUSES.iter().find(|(name, _)| *name == self.name).map(|(_, cause)| *cause)
    }
}

/// Formats a value with three digits, as in the kernel results.
fn figure(value: f64) -> String {
    match value {
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

fn document(arguments: &[&str]) -> Value {
    let (code, stdout, stderr) = fullpipe(&[arguments, &["--json"]].concat());
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    serde_json::from_str(&stdout).expect("JSON")
}

/// Returns the result of `fullpipe whatif` for Linux 6.18. All tests share the results, so each is computed
/// only once.
pub(crate) fn whatif(path: &[&str; 4], loss: &str, buffers: &str, cc: &str) -> Value {
    let path = path.join(" ");
    let question = format!("{path} --loss {loss} --buffers {buffers} --kernel 6.18 --cc {cc}");
    serde_json::from_str(&output_of(&format!("fullpipe whatif {question} --json"))).expect("JSON")
}

fn calculated() -> Vec<Row> {
    let row = |(path, loss, buffers, cc, kernel): &([&str; 4], &str, &str, &str, Kernel)| {
        let answer = whatif(path, loss, buffers, cc);
        Row {
            name: format!("{} {}, {loss} lost, {buffers}, {cc}", path[1], path[3]),
            kernel: *kernel,
            predicted: answer["ladder"][0]["steady_bps"].as_f64().expect("a rate") / 1e6,
            unit: "Mbit/s".into(),
        }
    };
    CALCULATED.iter().map(row).collect()
}

/// Returns a row for each expectation of an experiment that has a kernel result, for example `136-147
/// Mbit/s`, `0.836 Mbit/s` or `226-246 ms`.
fn simulated(experiment: &str) -> Vec<Row> {
    let report = document(&["run", &example(&format!("../experiments/{experiment}.toml"))]);
    let expect = report["expect"].as_array().expect("expectations");
    let row = |expect: &Value| {
        let (numbers, unit) = expect["kernel"].as_str()?.split_once(' ')?;
        let (low, high) = numbers.split_once('-').unwrap_or((numbers, numbers));
        let scale = if unit == "Mbit/s" { 1e6 } else { 1.0 };
        let what = if unit == "ms" { ", mean RTT" } else { "" };
        Some(Row {
            name: format!("{}{what}", expect["point"].as_str()?),
            kernel: range(low.parse().ok()?, high.parse().ok()?),
            predicted: expect["value"].as_f64()? / scale,
            unit: unit.into(),
        })
    };
    expect
        .iter()
        .map(|expect| row(expect).unwrap_or_else(|| panic!("no kernel's figure in {expect:#}")))
        .collect()
}

fn table(page: &mut String, rows: &[Row]) {
    *page += "| | Linux 6.18 | fullpipe | ratio | |\n|---|---|---|---|---|\n";
    for row in rows {
        let Kernel { low, high, .. } = row.kernel;
        let (low, high) = (figure(low), figure(high));
        let kernel = if low == high { low } else { format!("{low}-{high}") };
        let verdict = if row.misses() { "**miss**" } else { "" };
        let _ = writeln!(
            page,
            "| {} | {kernel} {} | {} | {:.2} | {verdict} |",
            row.name,
            row.unit,
            figure(row.predicted),
            row.ratio()
        );
    }
}

fn page() -> String {
    let calculated = calculated();
    let (limits, windows) = (simulated("predictions"), simulated("tiny-window"));
    let all: Vec<&Row> = calculated.iter().chain(&limits).chain(&windows).collect();
    let mean = all.iter().map(|row| (row.ratio() - 1.0).abs()).sum::<f64>() / all.len() as f64;
    let worst =
        all.iter().max_by(|a, b| a.ratio().ln().abs().total_cmp(&b.ratio().ln().abs())).expect("rows");
    let misses: Vec<&&Row> = all.iter().filter(|row| row.misses()).collect();

    let mut page = format!(
        "# Predictions compared with a kernel\n\n\
         Of {} predictions, {} are more than 10 % outside the kernel's range. The mean deviation from the\n\
         kernel's mean is {:.0} %; the worst ratio is {:.2} ({}).\n\n\
         The kernel's results were measured once, with iperf3 3.12 on Linux 6.18 across a user-space\n\
         emulator with the same parameters ([method](README.md#how-the-numbers-are-made)). Each range\n\
         contains only one or two runs, so it is narrower than the range of further runs would be. A ratio\n\
         is the prediction divided by the mean of the kernel's results. No parameter was fitted to these\n\
         rows.\n\n\
         The measured host's default congestion control was BBR. A socket that was opened with BBR stays\n\
         paced under `iperf3 -C cubic`, and the rate with a small send buffer depends on pacing. The\n\
         experiment with single limits therefore sets `fair_queue`\n\
         ([decision 0011](../decisions/0011-a-packet-buffer-is-begun-once.md)).\n\n\
         A test generates this page, and fails if a figure changes:\n\n    \
         SNAPSHOTS=overwrite cargo test -p fullpipe-cli --test it predictions::\n\n\
         ## The calculator\n\n\
         The prediction is the steady-state rate of the first rung of\n\
         `fullpipe whatif --link ... --rtt ... --loss ... --buffers ... --kernel 6.18 --cc ...`. The kernel's\n\
         result is the rate over the second half of a run of 20 s (340 Mbit/s) or 30 s (1 Gbit/s). The\n\
         exceptions are the two rows of CUBIC at 1 Gbit/s: the flow loses a packet every 10 s, so that 30 s\n\
         mostly show its start (73 to 105 Mbit/s). Their results are from four runs of 100 s with a kernel in\n\
         virtual time (Debian's Linux 6.1.176): `fullpipe run experiments/slow-decay.toml --world uml`.\n\n",
        all.len(),
        misses.len(),
        100.0 * mean,
        worst.ratio(),
        worst.name
    );
    table(&mut page, &calculated);
    page += "\n## Each limit alone\n\n\
             `fullpipe run experiments/predictions.toml`: the second half of runs of 30 s without loss.\n\n";
    table(&mut page, &limits);
    page += "\n## A window smaller than a segment\n\n\
             `fullpipe run experiments/tiny-window.toml`: a window of 1040 bytes.\n\n";
    table(&mut page, &windows);
    page += "\n## The misses and their known causes\n\n";
    if misses.is_empty() {
        page += "None.\n";
    }
    for row in misses {
        let cause = row.cause().unwrap_or_else(|| panic!("a miss without a known cause: {}", row.name));
        let _ = writeln!(page, "- {} ({:.2}): {cause}", row.name, row.ratio());
    }
    page += "\n## Not predicted\n\n\
             Short downloads (64 KB to 64 MB with curl), and windows or send buffers that are limited on only\n\
             one host, were measured too. No experiment predicts them yet.\n";
    for (name, _) in CAUSES {
        assert!(all.iter().any(|row| row.name == name && row.misses()), "{name} is no miss");
    }
    page
}

#[test]
fn the_page_of_predictions_is_current() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/evidence/predictions.md");
    is_current(&file, &page());
}
