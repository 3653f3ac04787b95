//! Reads the pages for users: their blocks of commands, and the outputs below the commands.
//!
//! A block fenced `console` contains commands, each after `$ `, and the output of the last command; `[...]`
//! replaces omitted lines. A word after `console` determines how the tests run the block:
//!
//! | fence | where its commands run |
//! |---|---|
//! | `console` | in the root of the project |
//! | `console network` | behind an emulated path, with HOST at its other end |
//! | `console network upload` | likewise, while a program on this host sends to HOST |
//! | `console network download` | likewise, while a program on HOST sends to this host |
//! | `console no-run` | nowhere; `tests/it/pages.rs` lists the reason for each |

use std::fs;
use std::path::{Path, PathBuf};

/// A line that replaces any number of lines of an output.
pub(crate) const OMITTED: &str = "[...]";

/// Part of a page.
pub(crate) enum Part<'t> {
    /// A line outside fenced blocks.
    Line(&'t str),
    /// The info string and the lines of a fenced block.
    Block(&'t str, Vec<&'t str>),
}

/// A transfer that runs during the commands of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traffic {
    None,
    Upload,
    Download,
}

/// How the tests run the commands of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The tests run the commands in the root of the project.
    Project,
    /// The tests run the commands behind an emulated path.
    Network(Traffic),
    /// The tests do not run the commands.
    NoRun,
}

/// A command that a page shows, with the output below it.
pub(crate) struct Example {
    pub(crate) command: String,
    pub(crate) shown: Vec<String>,
}

/// Fenced block with commands.
pub(crate) struct Block {
    pub(crate) mode: Mode,
    pub(crate) examples: Vec<Example>,
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the pages that are checked, relative to the root of the project.
pub(crate) fn pages() -> Vec<PathBuf> {
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

pub(crate) fn read(page: impl AsRef<Path>) -> String {
    fs::read_to_string(root().join(page)).expect("a page")
}

pub(crate) fn parts(text: &str) -> Vec<Part<'_>> {
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

/// Returns the blocks of commands in a page, in order.
pub(crate) fn blocks(page: &Path) -> Vec<Block> {
    let text = read(page);
    let mut blocks = Vec::new();
    for part in parts(&text) {
        let Part::Block(info, lines) = part else { continue };
        let Some(mode) = info.strip_prefix("console") else { continue };
        let mode = match mode.trim() {
            "" => Mode::Project,
            "network" => Mode::Network(Traffic::None),
            "network upload" => Mode::Network(Traffic::Upload),
            "network download" => Mode::Network(Traffic::Download),
            "no-run" => Mode::NoRun,
            other => panic!("{}: a console block cannot be '{other}'", page.display()),
        };
        let mut examples: Vec<Example> = Vec::new();
        for line in lines {
            if let Some(command) = line.strip_prefix("$ ") {
                examples.push(Example { command: command.into(), shown: Vec::new() });
                continue;
            }
            let Some(example) = examples.last_mut() else {
                panic!("{}: a console block begins with a command, not with '{line}'", page.display());
            };
            if let Some(open) = example.command.strip_suffix('\\') {
                example.command = format!("{open}{}", line.trim_start());
            } else {
                example.shown.push(line.into());
            }
        }
        blocks.push(Block { mode, examples });
    }
    blocks
}

/// Returns whether the items (lines or words) that a page shows match those of an output. The item `[...]`
/// matches any number of items; `same` compares an item of the page with an item of the output.
pub(crate) fn agree(shown: &[&str], output: &[&str], same: impl Fn(&str, &str) -> bool) -> bool {
    let begins = |part: &[&str], left: &[&str]| {
        part.len() <= left.len() && part.iter().zip(left).all(|(&shown, &printed)| same(shown, printed))
    };
    let parts: Vec<&[&str]> = shown.split(|item| *item == OMITTED).collect();
    let Some((first, rest)) = parts.split_first() else { return false };
    if !begins(first, output) {
        return false;
    }
    let mut left = &output[first.len()..];
    let Some((last, middle)) = rest.split_last() else { return left.is_empty() };
    for part in middle {
        let Some(at) = (0..=left.len()).find(|at| begins(part, &left[*at..])) else { return false };
        left = &left[at + part.len()..];
    }
    last.len() <= left.len() && begins(last, &left[left.len() - last.len()..])
}
