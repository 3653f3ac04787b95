//! Tests of the commands in README and the guides that need a network: each page with blocks fenced `console
//! network` gets an emulated path, behind which its commands run in the order of the page.
//!
//! The displayed outputs are compared word by word, because the width of a number can change the line breaks.
//! Rates and percentages may differ by a fifth, and other numbers by a factor of three; all other words must
//! be equal. Names such as HOST stand for the peer, and long durations are shortened.

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crate::process::emulated::{allowed, is_disturbed, undisturbed};
use crate::process::pages::{Block, Mode, Traffic, agree, blocks, pages};
use crate::process::{folder, fullpipe, has};

/// Words in the pages that the reader must replace, with the replacements that the tests use. The shell
/// variable contains the process ID of the program that transfers data.
const NAMES: [(&str, &str); 5] = [
    ("HOST", "198.18.0.2"),
    ("SERVER", "198.18.0.2"),
    ("YOUR_ADDRESS", "198.18.0.2"),
    ("203.0.113.7", "198.18.0.2"),
    ("4242", "$TRAFFIC"),
];
/// Durations and counts that would only make the tests longer, and their replacements.
const SHORTENED: [(&str, &str); 6] = [
    ("-t 30", "-t 1"),
    ("-c 20 ", "-c 2 "),
    ("-c 100000 ", "-c 1000 "),
    ("--for 30s", "--for 2s"),
    ("--for 60s", "--for 2s"),
    ("$(seq 300)", "$(seq 20)"),
];
/// The path of the examples: a slow link with a deep queue.
const PATH: [&str; 7] = ["emu", "--rate", "20mbit", "--rtt", "40ms", "--queue", "400KiB"];
/// Settings for which the plans in the pages were made, independent of the machine's defaults. The default
/// congestion control of a namespace must be permitted for every process, so CUBIC is set on the route
/// instead.
const SETTINGS: &str =
    "sysctl -qw net.ipv4.tcp_wmem='4096 16384 4194304' net.ipv4.tcp_rmem='4096 131072 33554432'
DEV=$(ip -o route get 198.18.0.2 | sed 's/.* dev \\([^ ]*\\) .*/\\1/')
ip route add 198.18.0.2/32 dev \"$DEV\" congctl cubic
";
/// Servers on the peer; the second one uses the port of a web server, because a guide downloads from it.
const SERVERS: &str = "iperf3 -s >/dev/null & exec iperf3 -s -p 443 >/dev/null";

/// Shell command that ends the transfer of a block. The server accepts the next test only after it has
/// noticed that the transfer has ended.
const STOP: &str = "kill $TRAFFIC; wait $TRAFFIC 2>/dev/null; sleep 0.5\n";

/// A command of a page, prepared for the emulated path, with the words of its displayed output.
struct Step {
    command: String,
    shown: Vec<String>,
    /// Number of the block in the page.
    block: usize,
    traffic: Traffic,
}

/// Result of a step: exit code, standard output and standard error.
type StepOutput = (String, String, String);

fn is_installed(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", "command -v \"$0\"", program]).output();
    found.is_ok_and(|found| found.status.success())
}

fn replaced(text: &str, replacements: &[(&str, &str)]) -> String {
    replacements.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// Returns the commands of the blocks that need a network. If a program is not installed, its command and the
/// rest of its block are left out.
fn steps(blocks: Vec<Block>) -> Vec<Step> {
    let mut steps = Vec::new();
    for (number, block) in blocks.into_iter().enumerate() {
        let Mode::Network(traffic) = block.mode else { continue };
        for example in block.examples {
            let program = example.command.split_whitespace().find(|word| *word != "sudo").unwrap_or_default();
            if program != "fullpipe" && !is_installed(program) {
                eprintln!("skipped: '{}' and what follows it: there is no {program}", example.command);
                break;
            }
            let shown = replaced(&example.shown.join("\n"), &NAMES);
            steps.push(Step {
                command: replaced(&replaced(&example.command, &NAMES), &SHORTENED),
                shown: words(&shown),
                block: number,
                traffic,
            });
        }
    }
    steps
}

/// Writes two programs to `folder`: a replacement for `sudo`, because the commands already run as root, and
/// one for `fullpipe`, so that `tune` changes only the namespace and keeps its state below `folder`.
fn write_programs(folder: &Path) {
    let program = crate::PROGRAM;
    let state = folder.join("state").display().to_string();
    let tune = format!("exec '{program}' \"$@\" --netns /proc/self/ns/net --root '{state}'");
    for (name, body) in [
        ("sudo", "exec \"$@\"".to_owned()),
        ("fullpipe", format!("if [ \"$1\" = tune ]; then {tune}; fi\nexec '{program}' \"$@\"")),
    ] {
        let file = folder.join(name);
        fs::write(&file, format!("#!/bin/sh\n{body}\n")).expect("a program");
        fs::set_permissions(&file, Permissions::from_mode(0o755)).expect("its mode");
    }
    fs::create_dir_all(folder.join("state")).expect("a folder");
}

/// Returns a script that runs `steps` in `folder/work`, and writes each result to files in `folder`.
fn script(steps: &[Step], folder: &Path) -> String {
    let at = folder.display();
    let mut script = format!(
        "export PATH='{at}':$PATH NO_COLOR= COLUMNS=\ncd '{at}/work' || exit 1\nsleep 0.5\n{SETTINGS}"
    );
    let mut running: Option<usize> = None;
    for (number, Step { command, block, traffic, .. }) in steps.iter().enumerate() {
        if running.is_some_and(|of| of != *block) {
            script.push_str(STOP);
            running = None;
        }
        let transfer = match traffic {
            Traffic::None => None,
            Traffic::Upload => Some("iperf3 -c 198.18.0.2 -t 60 -C cubic"),
            Traffic::Download => Some("iperf3 -c 198.18.0.2 -p 443 -t 60 -C cubic -R"),
        };
        if let (Some(transfer), None) = (transfer, running) {
            let _ = writeln!(script, "{transfer} >/dev/null 2>&1 & TRAFFIC=$!; sleep 0.3");
            running = Some(*block);
        }
        let _ = writeln!(script, "(\n{command}\n) >'{at}/{number}.out' 2>'{at}/{number}.err' </dev/null");
        let _ = writeln!(script, "echo $? >'{at}/{number}.code'");
    }
    if running.is_some() {
        script.push_str(STOP);
    }
    script
}

/// Runs `steps` behind an emulated path. Returns their results, and whether the machine was too busy for them.
fn run(steps: &[Step], name: &str) -> (Vec<StepOutput>, bool) {
    let folder = folder(name);
    write_programs(&folder);
    fs::create_dir_all(folder.join("work")).expect("a folder");
    let script = script(steps, &folder);
    let (code, stdout, stderr) =
        fullpipe(&[&PATH[..], &["--serve", SERVERS, "--", "sh", "-c", &script]].concat());
    assert_eq!(code, 0, "{stdout}{stderr}");
    let read = |file: String| fs::read_to_string(folder.join(file)).unwrap_or_default();
    let results = (0..steps.len()).map(|number| {
        let code = read(format!("{number}.code")).trim().to_owned();
        (code, read(format!("{number}.out")), read(format!("{number}.err")))
    });
    (results.collect(), is_disturbed(&stderr))
}

/// Returns a description of each step that failed or whose output differs from the displayed one.
fn objections(steps: &[Step], results: &[StepOutput]) -> Vec<String> {
    let mut found = Vec::new();
    for (step, (code, stdout, stderr)) in steps.iter().zip(results) {
        let printed = words(stdout);
        let [shown, printed] =
            [&step.shown, &printed].map(|words| words.iter().map(String::as_str).collect::<Vec<_>>());
        if code != "0" {
            found.push(format!("'{}' exits with {code}:\n{stdout}{stderr}", step.command));
        } else if !shown.is_empty() && !agree(&shown, &printed, is_close) {
            found.push(format!("'{}' now prints:\n{stdout}{stderr}", step.command));
        }
    }
    found
}

/// A number with a unit within a word, such as `(40.3ms,`.
#[derive(Debug, PartialEq)]
struct Quantity<'w> {
    before: &'w str,
    value: f64,
    unit: &'w str,
    after: &'w str,
}

impl<'w> Quantity<'w> {
    fn parse(word: &'w str) -> Option<Self> {
        let digits = word.find(|c: char| c.is_ascii_digit())?;
        let (before, rest) = word.split_at(digits);
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        // A full stop after the number ends a sentence.
        let number = rest[..end].trim_end_matches('.');
        let rest = &rest[number.len()..];
        let end = rest.find(|c: char| !c.is_ascii_alphabetic() && !"/%".contains(c)).unwrap_or(rest.len());
        let (unit, after) = rest.split_at(end);
        let plain = |text: &str| !text.contains(char::is_alphanumeric);
        let value = number.parse().ok()?;
        (plain(before) && plain(after)).then_some(Self { before, value, unit, after })
    }

    /// Returns the dimension of the unit, and the number of base units in it.
    fn scale(&self) -> (&'w str, f64) {
        match self.unit {
            "ns" => ("s", 1e-9),
            "us" => ("s", 1e-6),
            "ms" => ("s", 1e-3),
            "KiB" => ("B", 1024.0),
            "MiB" => ("B", 1024.0 * 1024.0),
            "GiB" => ("B", 1024.0 * 1024.0 * 1024.0),
            "kbit/s" => ("bit/s", 1e3),
            "Mbit/s" => ("bit/s", 1e6),
            "Gbit/s" => ("bit/s", 1e9),
            unit => (unit, 1.0),
        }
    }

    fn is_close(&self, other: &Self) -> bool {
        let ((dimension, one), (others, another)) = (self.scale(), other.scale());
        let tolerance = if ["bit/s", "%"].contains(&dimension) { 1.2 } else { 3.0 };
        let (value, other_value) = (self.value * one, other.value * another);
        (self.before, dimension, self.after) == (other.before, others, other.after)
            && value <= tolerance * other_value
            && other_value <= tolerance * value
    }
}

/// Returns the words of a text. A number and its unit form one word.
fn words(text: &str) -> Vec<String> {
    const UNITS: [&str; 8] = ["%", "B", "KiB", "MiB", "GiB", "kbit/s", "Mbit/s", "Gbit/s"];
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let unit = word.trim_end_matches(|c: char| c.is_ascii_punctuation() && c != '%');
        let follows_number = words.last().is_some_and(|last| {
            Quantity::parse(last)
                .is_some_and(|quantity| quantity.unit.is_empty() && quantity.after.is_empty())
        });
        match words.last_mut() {
            Some(last) if follows_number && UNITS.contains(&unit) => last.push_str(word),
            _ => words.push(word.into()),
        }
    }
    words
}

/// Returns a word without the port that the kernel chose for a connection.
fn without_ephemeral_port(word: &str) -> &str {
    match word.rsplit_once(':') {
        Some((address, port)) if port.parse().is_ok_and(|port: u16| port >= 32768) => address,
        _ => word,
    }
}

/// Returns whether a word of the output equals the displayed word, except for parts that depend on the clock
/// and the kernel.
fn is_close(shown: &str, printed: &str) -> bool {
    match (Quantity::parse(shown), Quantity::parse(printed)) {
        (Some(shown), Some(printed)) => shown.is_close(&printed),
        _ => without_ephemeral_port(shown) == without_ephemeral_port(printed),
    }
}

/// The pages whose blocks may need a network. The Chinese README has the same blocks as the English one.
fn pages_with_a_network() -> Vec<PathBuf> {
    let is_chosen = |page: &PathBuf| page == Path::new("README.md") || page.starts_with("docs/guides");
    pages().into_iter().filter(is_chosen).collect()
}

#[test]
fn commands_that_need_a_network_print_what_the_pages_show() {
    if !allowed() || !has("iperf3") {
        return;
    }
    if !is_installed("ip") {
        eprintln!("skipped: there is no ip to set the congestion control of a route");
        return;
    }
    let failed: Vec<String> = thread::scope(|scope| {
        let check = |page: PathBuf| -> Vec<String> {
            let steps = steps(blocks(&page));
            if steps.is_empty() {
                return Vec::new();
            }
            let name = format!("pages-{}", page.file_stem().expect("a name").display());
            let results =
                undisturbed(|| run(&steps, &name), |results| objections(&steps, results).is_empty());
            objections(&steps, &results).iter().map(|found| format!("{}: {found}", page.display())).collect()
        };
        let sessions: Vec<_> =
            pages_with_a_network().into_iter().map(|page| scope.spawn(move || check(page))).collect();
        sessions.into_iter().flat_map(|session| session.join().expect("it ends")).collect()
    });
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Only README and the guides may have blocks that need a network, because no test would run such blocks in
/// other pages.
#[test]
fn only_readme_and_the_guides_need_a_network() {
    let chosen = pages_with_a_network();
    let needs = |page: &PathBuf| blocks(page).iter().any(|block| matches!(block.mode, Mode::Network(_)));
    let others: Vec<PathBuf> = pages()
        .into_iter()
        .filter(|page| page != Path::new("README.zh-CN.md") && !chosen.contains(page) && needs(page))
        .collect();
    assert!(others.is_empty(), "{others:?}");
    assert!(chosen.iter().any(needs), "no page has a block that needs a network");
}

#[test]
fn numbers_of_an_output_may_differ_as_far_as_the_clock_explains() {
    for (shown, printed) in [
        ("18 Mbit/s of 20 Mbit/s over 3.97s,", "18.6 Mbit/s of 20 Mbit/s over 4.02s,"),
        ("a queue of 98.9ms (224 KiB) stands:", "a queue of 104ms (0.3 MiB) stands:"),
        ("90 % of the link.", "93 % of the link."),
        ("1 198.18.0.1:44740 > 198.18.0.2:5201", "2 198.18.0.1:57190 > 198.18.0.2:5201"),
        ("a [...] 40.3ms.", "a b c 39.9ms."),
    ] {
        let [shown, printed] = [shown, printed].map(words);
        let [shown, printed] = [&shown, &printed].map(|w| w.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(agree(&shown, &printed, is_close), "{shown:?} {printed:?}");
    }
    for (shown, printed) in [
        ("18 Mbit/s", "14 Mbit/s"),
        ("40.3ms", "130ms"),
        ("40.3ms", "40.3s"),
        ("90 % of the link:", "60 % of the link:"),
        ("grade C", "grade D"),
        ("198.18.0.2:5201", "198.18.0.2:5202"),
        ("0 lost", "4 lost"),
    ] {
        let [shown, printed] = [shown, printed].map(words);
        let [shown, printed] = [&shown, &printed].map(|w| w.iter().map(String::as_str).collect::<Vec<_>>());
        let same = shown.len() == printed.len() && shown.iter().zip(&printed).all(|(a, b)| is_close(a, b));
        assert!(!same, "{shown:?} {printed:?}");
    }
}
