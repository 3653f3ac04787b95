//! Tests of the pages that people read: link targets exist, commands and options exist, the displayed outputs
//! equal those of the commands, and the Chinese README has the structure of the English one.
//!
//! `tests/process/pages.rs` describes the blocks of commands. The tests in this file run the blocks that need
//! no network, and `tests/realtime/pages.rs` runs the others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};
use std::{env, fs, iter};

use fullpipe::lab::experiment::Experiment;
use fullpipe::lab::metric::Metric;

use crate::cross_border;
use crate::process::fullpipe;
use crate::process::pages::{Example, Mode, Part, agree, blocks, pages, parts, read, root};

/// First commands of blocks fenced `console no-run`, with the reason why no test runs the block.
const NOT_RUN: [(&str, &str); 10] = [
    ("cargo test --workspace", "compiles and tests everything, for minutes"),
    (
        "fullpipe tune --link 1gbit --rtt 210ms --loss 20ppm --to 203.0.113.7           # the plan",
        "simulates a gigabit link for a quarter of a minute; the guide on a change has the same commands",
    ),
    (
        "fullpipe diagnose upload.txt --link 1gbit --rtt 210ms --json | fullpipe tune --from - --to HOST",
        "simulates a gigabit link twice, for half a minute",
    ),
    (
        "sudo fullpipe tune --link 1gbit --rtt 210ms --loss 20ppm --to 203.0.113.7 --verify",
        "measures for two minutes",
    ),
    ("iperf3 -c 203.0.113.7 -t 30 -J >before.json", "measures for a minute, on a path with a gigabit"),
    (
        "fullpipe diagnose upload.txt --link 1gbit --rtt 210ms --sysctl sysctl.txt --json >path.json",
        "needs both hosts, and simulates a gigabit link three times",
    ),
    ("cargo run --release -- run mine.toml --html mine.html --out mine", "needs the reader's algorithm"),
    ("sudo target/release/fullpipe run mine.toml --world emu", "needs the reader's algorithm"),
    (
        "fullpipe iperf3 -s --max-tests 8 --server-max-duration 60 --server-bitrate-limit 1G",
        "serves until it is interrupted",
    ),
    (
        "fullpipe run experiments/weak-network.toml --check",
        "takes as long as all other blocks together; .ci/run runs this experiment",
    ),
];
/// Maximum number of blocks that have such a reason.
const MOST_NOT_RUN: usize = 10;

/// Returns the targets of the links in a page. Code is skipped.
fn links(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for part in parts(text) {
        match part {
            Part::Line(line) if !line.starts_with("    ") => lines.push(line),
            Part::Line(_) | Part::Block(..) => lines.push(""),
        }
    }
    let mut links = Vec::new();
    for paragraph in lines.split(|line| line.trim().is_empty()) {
        let paragraph = paragraph.join("\n");
        let prose: String = paragraph.split('`').step_by(2).collect();
        let targets = prose.split("](").skip(1).map(|rest| rest.split(')').next().unwrap_or_default());
        links.extend(targets.map(str::to_owned));
    }
    links
}

/// Returns the names by which links may refer to the headings of a page, as GitHub forms them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for part in parts(text) {
        let Part::Line(line) = part else { continue };
        let title = line.trim_start_matches('#');
        if line.len() == title.len() || !title.starts_with(' ') {
            continue;
        }
        let name = anchor(title);
        let mut numbered = name.clone();
        let mut number = 0;
        while !anchors.insert(numbered) {
            number += 1;
            numbered = format!("{name}-{number}");
        }
    }
    anchors
}

fn anchor(title: &str) -> String {
    let kept = title.trim().chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).flat_map(char::to_lowercase).collect()
}

/// Returns the commands in those blocks of a page whose mode satisfies `wanted`.
fn examples(page: &Path, wanted: impl Fn(Mode) -> bool) -> Vec<Example> {
    blocks(page).into_iter().filter(|block| wanted(block.mode)).flat_map(|block| block.examples).collect()
}

/// Returns `command` with the installed program in place of the one that cargo builds.
fn installed(command: &str) -> String {
    command.replace("cargo run --release -q -- ", "fullpipe ").replace("cargo run --release -- ", "fullpipe ")
}

/// The pages call `cargo run` in a clone. The call works only if Cargo finds exactly one program, and is quick
/// only if no other crate of the workspace turns on further features.
#[test]
fn cargo_run_in_a_clone_starts_the_command() {
    let cargo = env::var_os("CARGO").expect("cargo runs this test");
    let asked = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1", "--locked", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo metadata");
    let document: serde_json::Value = serde_json::from_slice(&asked.stdout).expect("a document");
    let of = |value: &serde_json::Value, key: &str| value[key].as_array().expect("a list").clone();
    let members = of(&document, "workspace_default_members");
    let packages = of(&document, "packages");
    let mut programs = Vec::new();
    for package in packages.iter().filter(|package| members.contains(&package["id"])) {
        let targets = of(package, "targets");
        let of_package = targets.iter().filter(|target| target["kind"] == serde_json::json!(["bin"]));
        programs.extend(of_package.map(|target| format!("{} {}", package["name"], target["name"])));
    }
    assert_eq!(members.len(), 1, "{members:?}");
    assert_eq!(programs, [r#""fullpipe-cli" "fullpipe""#]);
}

/// Returns the arguments of each fullpipe command in a shell command, including commands in quotation marks.
fn calls(command: &str) -> Vec<Vec<String>> {
    let mut calls = Vec::new();
    for piece in installed(command).split(['|', ';', '&', '\'', '"']) {
        let mut words = piece.split_whitespace().skip_while(|word| *word == "sudo");
        if words.next() == Some("fullpipe") {
            calls.push(words.take_while(|word| *word != "--").map(str::to_owned).collect());
        }
    }
    calls
}

/// Returns the arguments that print the help of the subcommand in `call`.
fn help_of(call: &[String]) -> Vec<&str> {
    let words: Vec<&str> = call.iter().map(String::as_str).collect();
    if words.first() == Some(&"help") {
        return words;
    }
    let depth = match words.as_slice() {
        ["tune", "plan" | "confirm" | "rollback" | "status" | "show", ..]
        | ["relay", "serve" | "key", ..]
        | ["dataset", "show" | "check", ..] => 2,
        [first, ..] if !first.starts_with('-') => 1,
        _ => 0,
    };
    words[..depth].iter().copied().chain(iter::once("--help")).collect()
}

/// Runs a shell command in the root of the project, and returns its standard output. Each command is run only
/// once, because several tests read the same answers, which take seconds.
pub(crate) fn output_of(command: &str) -> Arc<str> {
    static OUTPUTS: Mutex<BTreeMap<String, Arc<OnceLock<Arc<str>>>>> = Mutex::new(BTreeMap::new());
    let output = Arc::clone(OUTPUTS.lock().expect("no test panics here").entry(command.into()).or_default());
    Arc::clone(output.get_or_init(|| run(command).into()))
}

/// Runs a shell command in the root of the project, and returns its standard output.
fn run(command: &str) -> String {
    let program = Path::new(crate::PROGRAM).parent().expect("a folder").to_path_buf();
    let before = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths(iter::once(program).chain(env::split_paths(&before))).expect("folders");
    let output = Command::new("sh")
        .args(["-c", command])
        .current_dir(root())
        .env("PATH", path)
        .envs([("NO_COLOR", ""), ("COLUMNS", "")])
        .output()
        .expect("a shell");
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn is_equal(shown: &str, printed: &str) -> bool {
    shown == printed
}

/// Returns the headings, blocks and rows of a page in order, without the parts that a translation changes.
fn form(text: &str) -> Vec<String> {
    let mut form = Vec::new();
    for part in parts(text) {
        match part {
            Part::Block(info, lines) => form.push(format!("```{info}\n{}", lines.join("\n"))),
            Part::Line(line) if line.starts_with('#') => {
                form.push(line.chars().take_while(|c| *c == '#').collect());
            }
            Part::Line(line) if line.starts_with('|') => {
                form.push(format!("a row with {} bars", line.replace("\\|", "").matches('|').count()));
            }
            Part::Line(_) => {}
        }
    }
    form
}

#[test]
fn links_lead_somewhere() {
    let mut broken = Vec::new();
    let mut count = 0;
    for page in pages() {
        for link in links(&read(&page)) {
            if link.contains("://") {
                continue;
            }
            count += 1;
            let (path, heading) = match link.split_once('#') {
                Some((path, heading)) => (path, Some(heading)),
                None => (link.as_str(), None),
            };
            let folder = page.parent().unwrap_or(Path::new(""));
            let target = root().join(if path.is_empty() { page.clone() } else { folder.join(path) });
            let has = |heading: &str| {
                fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(heading))
            };
            if !target.exists() || !heading.is_none_or(has) {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
    assert!(count > 100, "only {count} links were found");
}

#[test]
fn links_and_headings_are_read_as_on_github() {
    let page = "# One `two`-three, 4\n\n[a](b.md), `[c](d)` and [`e`\nf](g.md#h)\n\n    [i](j)\n\n```text\n\
                [k](l)\n```\n# One `two`-three, 4\n";
    assert_eq!(links(page), ["b.md", "g.md#h"]);
    assert_eq!(Vec::from_iter(anchors(page)), ["one-two-three-4", "one-two-three-4-1"]);
}

#[test]
fn commands_and_options_exist() {
    let mut helps: BTreeMap<Vec<String>, BTreeSet<String>> = BTreeMap::new();
    let mut count = 0;
    for page in pages() {
        for Example { command, .. } in examples(&page, |_| true) {
            for call in calls(&command) {
                let arguments = help_of(&call);
                let key = arguments.iter().map(|word| String::from(*word)).collect();
                let known = helps.entry(key).or_insert_with(|| {
                    let (code, help, stderr) = fullpipe(&arguments);
                    assert_eq!(code, 0, "{}: {command}: {stderr}", page.display());
                    let words = help.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
                    words.map(str::to_owned).collect()
                });
                for word in call.iter().filter(|word| word.starts_with('-') && word.len() > 1) {
                    let option = word.split('=').next().unwrap_or_default();
                    assert!(known.contains(option), "{}: {command}: no option {option}", page.display());
                    count += 1;
                }
            }
        }
    }
    assert!(count > 50, "only {count} options were found");
}

#[test]
fn outputs_are_those_of_the_commands() {
    let mut count = 0;
    for page in pages() {
        for Example { command, shown } in examples(&page, |mode| mode == Mode::Project) {
            count += 1;
            let command = installed(&command);
            let output = cross_border::output(&command).map_or_else(|| output_of(&command), Arc::from);
            let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
            let lines: Vec<&str> = output.lines().collect();
            let agrees = shown.is_empty() || agree(&shown, &lines, is_equal);
            assert!(agrees, "{}: {command} now prints:\n{output}", page.display());
        }
    }
    assert!(count > 0, "no page shows an output");
}

/// Every block that no test runs needs a reason, because its commands may have stopped working.
#[test]
fn blocks_that_are_not_run_have_a_reason() {
    let mut used: BTreeSet<&str> = BTreeSet::new();
    for page in pages() {
        for block in blocks(&page).iter().filter(|block| block.mode == Mode::NoRun) {
            let first = &block.examples.first().expect("a command").command;
            let reason = NOT_RUN.iter().find(|(command, _)| command == first);
            let Some((command, _)) = reason else {
                panic!("{}: run '{first}' in a test, or add the reason to NOT_RUN", page.display());
            };
            used.insert(command);
        }
    }
    let unused: Vec<&str> =
        NOT_RUN.iter().map(|(command, _)| *command).filter(|command| !used.contains(command)).collect();
    assert!(unused.is_empty(), "no page has these blocks: {unused:?}");
    assert!(used.len() <= MOST_NOT_RUN, "{} blocks are not run", used.len());
}

#[test]
fn an_output_may_be_shortened_but_not_changed() {
    let output = ["a", "b", "c", "d", "e"];
    for shown in [&output[..], &["a", "[...]"], &["[...]", "c", "d", "[...]"], &["a", "[...]", "d", "e"]] {
        assert!(agree(shown, &output, is_equal), "{shown:?}");
    }
    for shown in [&["a"][..], &["b", "[...]"], &["[...]", "d"], &["a", "[...]", "d", "c", "[...]"]] {
        assert!(!agree(shown, &output, is_equal), "{shown:?}");
    }
}

/// The errors for an unknown key and an unknown metric list the keys and metrics that exist.
#[test]
fn the_page_on_experiments_has_every_key() {
    let page = read("docs/reference/experiment-file.md");
    for (table, heading) in [
        ("", ""),
        ("[path]", "\n## [path]\n"),
        ("[path.forward]", "\n## [path]\n"),
        ("[path.policer]", "\n## [path]\n"),
        ("[host]", "\n## [host]\n"),
        ("[host.tunables]", "\n## [host]\n"),
        ("[[flow]]", "\n## [[flow]]\n"),
        ("[[point]]", "\n## [[point]]\n"),
        ("[[sample]]", "\n## [[sample]]\n"),
        ("[[expect]]", "\n## [[expect]]\n"),
        ("[[ratio]]", "\n## [[ratio]]\n"),
    ] {
        let (_, rest) = page.split_once(heading).expect(heading);
        let section = if heading.is_empty() { rest } else { rest.split("\n## ").next().unwrap_or_default() };
        let error = Experiment::from_toml(&format!("{table}\nzzz = 1\n")).expect_err("an unknown key");
        let keys = error.hint.strip_prefix("allowed here: ").expect("a list of keys");
        for key in keys.split(", ") {
            let named = section.contains(&format!("`{key}`")) || section.contains(&format!("[{key}]"));
            assert!(named, "the section {heading:?} does not name {key}");
        }
    }
    let error = "zzz".parse::<Metric>().expect_err("an unknown metric");
    for metric in error.hint.strip_prefix("known: ").expect("a list of metrics").split(", ") {
        assert!(page.contains(&format!("`{metric}`")), "the page does not name the metric {metric}");
    }
}

/// A page that quotes how many cells agree with a kernel quotes the table of that comparison.
#[test]
fn the_number_of_cells_that_agree_is_that_of_the_table() {
    const AGREE: &str = " cells agree";
    // "36 of 40", the words before "cells agree".
    let count = |text: &str| {
        let words: Vec<&str> = text.rsplitn(4, ' ').take(3).collect();
        (words[2].parse::<u32>().expect("a number"), words[0].parse::<u32>().expect("a number"))
    };
    let of_table = |page: &str| {
        let text = read(page);
        let total = text.lines().find_map(|line| line.strip_suffix(&format!("{AGREE}."))).expect(page);
        count(total)
    };
    let (guests, host) = (of_table("docs/evidence/guests.md"), of_table("docs/evidence/fidelity.md"));
    let mut quotes = 0;
    for page in ["docs/evidence/README.md", "docs/evidence/fidelity.md"] {
        for line in read(page).lines().filter(|line| line.starts_with('|')) {
            let Some((before, after)) = line.split_once(AGREE) else { continue };
            let expected = if after.contains("guests.md") { guests } else { host };
            assert_eq!(count(before), expected, "{page}: {line}");
            quotes += 1;
        }
    }
    assert_eq!(quotes, 4, "both pages quote both comparisons");
}

#[test]
fn the_chinese_readme_has_the_form_of_the_english_one() {
    let (english, chinese) = (form(&read("README.md")), form(&read("README.zh-CN.md")));
    for (english, chinese) in english.iter().zip(&chinese) {
        assert_eq!(english, chinese);
    }
    assert_eq!(english.len(), chinese.len());
}

#[test]
fn the_readme_is_short() {
    let text = read("README.md");
    assert!(text.lines().count() <= 150, "README.md has {} lines", text.lines().count());
    for part in parts(&text) {
        let Part::Line(line) = part else { continue };
        assert!(line.starts_with('|') || line.chars().count() <= 100, "{line}");
    }
}
