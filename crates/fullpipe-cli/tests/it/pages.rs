//! Tests of the pages that people read: links lead somewhere, commands and options exist, the outputs shown
//! are those of the commands, and the Chinese README has the form of the English one.
//!
//! A block fenced `console` contains commands, each after `$ `, and the output of the last one; `[...]`
//! stands for lines that are left out. The tests run these commands in the root of the project. A block
//! fenced `console no-run` needs another host, privileges or several minutes: only its options are checked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, iter};

use fullpipe::lab::experiment::Experiment;
use fullpipe::lab::metric::Metric;

use crate::process::fullpipe;

/// Part of a page.
enum Part<'t> {
    /// A line outside fenced blocks.
    Line(&'t str),
    /// The info string and the lines of a fenced block.
    Block(&'t str, Vec<&'t str>),
}

/// Command that a page shows, with the output below it.
struct Example {
    command: String,
    shown: Vec<String>,
    runs: bool,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the pages that are checked, relative to the root of the project.
fn pages() -> Vec<PathBuf> {
    let mut pages =
        Vec::from(["README.md", "README.zh-CN.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(PathBuf::from));
    add_pages(Path::new("docs"), &mut pages);
    pages.sort();
    pages
}

fn add_pages(folder: &Path, pages: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(root().join(folder)).expect("a folder") {
        let entry = entry.expect("an entry");
        let path = folder.join(entry.file_name());
        if entry.path().is_dir() {
            add_pages(&path, pages);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
}

fn read(page: impl AsRef<Path>) -> String {
    fs::read_to_string(root().join(page)).expect("a page")
}

fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut block: Option<(&str, Vec<&str>)> = None;
    for line in text.lines() {
        let fence = line.trim_start().strip_prefix("```");
        match (block.take(), fence) {
            (None, None) => parts.push(Part::Line(line)),
            (None, Some(info)) => block = Some((info.trim(), Vec::new())),
            (Some((info, lines)), Some(_)) => parts.push(Part::Block(info, lines)),
            (Some((info, mut lines)), None) => {
                lines.push(line);
                block = Some((info, lines));
            }
        }
    }
    assert!(block.is_none(), "a fenced block has no end");
    parts
}

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

fn examples(page: &Path) -> Vec<Example> {
    let text = read(page);
    let mut examples = Vec::new();
    for part in parts(&text) {
        let Part::Block(info, lines) = part else { continue };
        let Some(mode) = info.strip_prefix("console") else { continue };
        let runs = match mode.trim() {
            "" => true,
            "no-run" => false,
            other => panic!("{}: a console block is either run or 'no-run', not '{other}'", page.display()),
        };
        let mut block: Vec<Example> = Vec::new();
        for line in lines {
            if let Some(command) = line.strip_prefix("$ ") {
                block.push(Example { command: command.into(), shown: Vec::new(), runs });
                continue;
            }
            let Some(example) = block.last_mut() else {
                panic!("{}: a console block begins with a command, not with '{line}'", page.display());
            };
            if let Some(open) = example.command.strip_suffix('\\') {
                example.command = format!("{open}{}", line.trim_start());
            } else {
                example.shown.push(line.into());
            }
        }
        examples.extend(block);
    }
    examples
}

/// Returns `command` with the installed program in place of the one that cargo builds.
fn installed(command: &str) -> String {
    command.replace("cargo run --release -q -- ", "fullpipe ").replace("cargo run --release -- ", "fullpipe ")
}

/// Returns the arguments of each call of fullpipe in a line of shell, including the calls in quotation marks.
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
        ["tune", "plan" | "confirm" | "rollback" | "status" | "show", ..] => 2,
        [first, ..] if !first.starts_with('-') => 1,
        _ => 0,
    };
    words[..depth].iter().copied().chain(iter::once("--help")).collect()
}

/// Runs a line of shell in the root of the project, and returns its standard output.
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

/// Returns whether the lines of a page are those of an output. `[...]` stands for any number of lines.
fn agree(shown: &[&str], output: &[&str]) -> bool {
    let parts: Vec<&[&str]> = shown.split(|line| *line == "[...]").collect();
    let Some((first, rest)) = parts.split_first() else { return false };
    let Some(mut left) = output.strip_prefix(*first) else { return false };
    let Some((last, middle)) = rest.split_last() else { return left.is_empty() };
    for part in middle {
        let Some(at) = left.windows(part.len().max(1)).position(|lines| lines == *part) else { return false };
        left = &left[at + part.len()..];
    }
    left.ends_with(last)
}

/// Returns the headings, blocks and rows of a page in order, without what a translation changes.
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
        for Example { command, .. } in examples(&page) {
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
    let mut outputs: BTreeMap<String, String> = BTreeMap::new();
    for page in pages() {
        for Example { command, shown, .. } in examples(&page).into_iter().filter(|example| example.runs) {
            let output = outputs.entry(installed(&command)).or_insert_with_key(|command| run(command));
            let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
            let lines: Vec<&str> = output.lines().collect();
            let agrees = shown.is_empty() || agree(&shown, &lines);
            assert!(agrees, "{}: {command} now prints:\n{output}", page.display());
        }
    }
    assert!(!outputs.is_empty(), "no page shows an output");
}

#[test]
fn an_output_may_be_shortened_but_not_changed() {
    let output = ["a", "b", "c", "d", "e"];
    for shown in [&output[..], &["a", "[...]"], &["[...]", "c", "d", "[...]"], &["a", "[...]", "d", "e"]] {
        assert!(agree(shown, &output), "{shown:?}");
    }
    for shown in [&["a"][..], &["b", "[...]"], &["[...]", "d"], &["a", "[...]", "d", "c", "[...]"]] {
        assert!(!agree(shown, &output), "{shown:?}");
    }
}

/// The errors for an unknown key and an unknown metric list those that exist.
#[test]
fn the_page_on_experiments_has_every_key() {
    let page = read("docs/reference/experiment-file.md");
    for (table, heading) in [
        ("", ""),
        ("[path]", "\n## [path]\n"),
        ("[path.forward]", "\n## [path]\n"),
        ("[path.policer]", "\n## [path]\n"),
        ("[host]", "\n## [host]\n"),
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
