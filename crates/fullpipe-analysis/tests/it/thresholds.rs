//! Generates `docs/reference/thresholds.md` from the sources and checks that it is current: every ratio on
//! which a rule is based, with its meaning and measurement.
//!
//! `SNAPSHOTS=overwrite cargo test -p fullpipe-analysis --test it thresholds::` writes the page.
//!
//! The page lists all constants in `thresholds.rs` of fullpipe-measurement, and constants of type `f64`,
//! `(f64, f64)` and `(u64, u64)` in other files. These are ratios, unless their comment contains `Unit:`.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use snapbox::assert::DEFAULT_ACTION_ENV;
use snapbox::data::DataFormat;
use snapbox::{Assert, Data};

/// File of the shared thresholds.
const SHARED: &str = "thresholds.rs";
/// Modules for drawing and printing, whose numbers do not affect a decision, and unit tests with their
/// helpers.
const LEFT_OUT: [&str; 4] = ["report/html", "tests.rs", "made.rs", "samples.rs"];

/// Constant that a rule uses.
#[derive(Debug, PartialEq)]
struct Threshold {
    file: String,
    /// Title of the module in the file, for a shared constant.
    group: String,
    name: String,
    value: String,
    unit: String,
    meaning: String,
    source: String,
}

/// Comment of an item, read from the attributes before it.
#[derive(Default)]
struct Comment {
    lines: Vec<String>,
    is_test: bool,
}

impl Comment {
    fn read(&mut self, attribute: &Group) {
        let tokens: Vec<TokenTree> = attribute.stream().into_iter().collect();
        match tokens.as_slice() {
            [TokenTree::Ident(word), _, TokenTree::Literal(text)] if word == "doc" => {
                let text = text.to_string();
                let text = text.trim_start_matches('r').trim_matches('#').trim_matches('"').trim();
                self.lines.push(text.replace("\\\"", "\"").replace("\\'", "'"));
            }
            [TokenTree::Ident(word), TokenTree::Group(of)] if word == "cfg" => {
                self.is_test |= of.stream().to_string() == "test";
            }
            _ => {}
        }
    }

    /// Returns the meaning, the source and the unit. Each part extends from its keyword to the next keyword.
    fn parts(&self) -> [String; 3] {
        let mut parts = [const { String::new() }; 3];
        let mut part = 0;
        for line in &self.lines {
            let line = if let Some(source) = line.strip_prefix("Source: ") {
                part = 1;
                source
            } else if let Some(unit) = line.strip_prefix("Unit: ") {
                part = 2;
                unit
            } else {
                line
            };
            parts[part] += if parts[part].is_empty() || line.is_empty() { "" } else { " " };
            parts[part] += line;
        }
        parts.map(|text| text.replace("[`", "`").replace("`]", "`").replace('|', "\\|"))
    }
}

/// Adds the thresholds in `tokens`, which come from `file` and the module `group`.
fn read(tokens: TokenStream, file: &str, group: &str, found: &mut Vec<Threshold>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut comment = Comment::default();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token {
            TokenTree::Punct(mark) if mark.as_char() == '#' => {
                if let Some(TokenTree::Group(attribute)) = tokens.get(at) {
                    comment.read(attribute);
                    at += 1;
                }
            }
            TokenTree::Ident(word) if word == "mod" && !comment.is_test => {
                if let (Some(TokenTree::Ident(_)), Some(TokenTree::Group(body))) =
                    (tokens.get(at), tokens.get(at + 1))
                {
                    let title = comment.parts()[0].trim_end_matches('.').to_owned();
                    read(body.stream(), file, &title, found);
                    at += 2;
                }
                comment = Comment::default();
            }
            TokenTree::Ident(word) if word == "const" => {
                let end =
                    tokens[at..].iter().position(|token| is(token, ';')).map_or(tokens.len(), |end| at + end);
                if let Some(threshold) = constant(&tokens[at..end], &comment, file, group) {
                    found.push(threshold);
                    at = end;
                }
                comment = Comment::default();
            }
            // `pub` and its scope may come between a comment and its item.
            TokenTree::Ident(word) if word == "pub" => {}
            TokenTree::Group(scope) if scope.delimiter() == Delimiter::Parenthesis => {
                read(scope.stream(), file, group, found);
            }
            TokenTree::Group(body) => {
                if !comment.is_test {
                    read(body.stream(), file, group, found);
                }
                comment = Comment::default();
            }
            TokenTree::Punct(mark) if mark.as_char() == ';' => comment = Comment::default(),
            _ => {}
        }
    }
}

fn is(token: &TokenTree, mark: char) -> bool {
    matches!(token, TokenTree::Punct(found) if found.as_char() == mark)
}

/// Reads `NAME: f64 = 0.5` as a threshold.
fn constant(tokens: &[TokenTree], comment: &Comment, file: &str, group: &str) -> Option<Threshold> {
    let [TokenTree::Ident(name), colon, rest @ ..] = tokens else { return None };
    let equals = rest.iter().position(|token| is(token, '=')).filter(|_| is(colon, ':'))?;
    let text = |tokens: &[TokenTree]| {
        let text = tokens.iter().cloned().collect::<TokenStream>().to_string();
        text.replace(" :: ", "::").replace(" (", "(").replace(" , ", ", ")
    };
    let (kind, value) = (text(&rest[..equals]), text(&rest[equals + 1..]));
    let is_ratio = ["f64", "(f64, f64)", "(u64, u64)"].contains(&kind.as_str());
    if !is_ratio && file != SHARED {
        return None;
    }
    let [meaning, source, unit] = comment.parts();
    Some(Threshold {
        file: file.into(),
        group: group.into(),
        name: name.to_string(),
        value: match value.trim_start_matches("Probability::from_ratio").trim_matches(['(', ')']) {
            pair if kind != "f64" && kind != "(f64, f64)" => pair.replace(", ", "/"),
            pair if kind == "(f64, f64)" => pair.replace(", ", " to "),
            value => value.to_owned(),
        },
        unit: if unit.is_empty() { "ratio".into() } else { unit },
        meaning,
        source,
    })
}

fn thresholds() -> Vec<Threshold> {
    let mut files = Vec::new();
    for of in ["fullpipe-measurement", "fullpipe-analysis"] {
        let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(of).join("src");
        let mut below = Vec::new();
        list(&src, &mut below);
        files
            .extend(below.into_iter().map(|file| (file.strip_prefix(&src).expect("below").to_owned(), file)));
    }
    files.sort();
    let mut found = Vec::new();
    for (name, file) in files {
        let name = name.to_str().expect("text").replace('\\', "/");
        if LEFT_OUT.iter().any(|part| name.contains(part)) {
            continue;
        }
        let text = fs::read_to_string(&file).expect("a source");
        read(text.parse().expect("Rust"), &name, "", &mut found);
    }
    found
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            list(&path, files);
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
}

fn page(thresholds: &[Threshold]) -> String {
    let mut text = String::from(
        "# Thresholds\n\n\
         This page lists every threshold that the explainer, the classifier, the ladder or a plan uses.\n\
         A test generates the page from the sources:\n\n    \
         SNAPSHOTS=overwrite cargo test -p fullpipe-analysis --test it thresholds::\n\n\
         Thresholds that two or more modules use are defined in `crates/fullpipe-measurement/src/thresholds.rs`,\n\
         grouped by physical effect. A threshold of a single rule is defined next to that rule. If the table\n\
         names no measurement for a threshold, its value was chosen.\n",
    );
    let (shared, own): (Vec<_>, Vec<_>) = thresholds.iter().partition(|threshold| threshold.file == SHARED);
    let mut section = |level: &str, titles: &dyn Fn(&Threshold) -> String, thresholds: &[&Threshold]| {
        let mut last = String::new();
        for threshold in thresholds {
            let Threshold { name, value, unit, meaning, source, .. } = threshold;
            let title = titles(threshold);
            if title != last {
                // Writing to a string does not fail.
                let _ = writeln!(
                    text,
                    "\n{level} {title}\n\n| name | value | unit | meaning | measurement |\n|---|---|---|---|---|"
                );
                last = title;
            }
            let source =
                if source.is_empty() { "chosen, not measured" } else { source.trim_end_matches('.') };
            let _ = writeln!(text, "| `{name}` | {value} | {unit} | {meaning} | {source} |");
        }
    };
    section("##", &|threshold| threshold.group.clone(), &shared);
    section("##", &|threshold| format!("Used only in `{}`", threshold.file), &own);
    text
}

#[test]
fn the_page_is_current() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/thresholds.md");
    let expected = Data::read_from(&file, Some(DataFormat::Text)).raw();
    Assert::new().action_env(DEFAULT_ACTION_ENV).eq(page(&thresholds()), expected);
}

#[test]
fn each_threshold_says_what_it_is() {
    for Threshold { file, name, meaning, source, group, .. } in thresholds() {
        assert!(!meaning.is_empty(), "{file}: {name} has no comment");
        let is_shared = file == SHARED;
        assert!(!is_shared || !source.is_empty(), "{file}: {name} does not say where its value comes from");
        assert!(
            !is_shared || !group.is_empty(),
            "{file}: the module of {name} does not say which effect it is"
        );
    }
}

#[test]
fn constants_are_found_where_they_stand() {
    let text = "/// A `|`.\n/// Source: of\n/// two lines.\npub(crate) const A: f64 = 0.5;\nconst COUNT: u64 = 3;\n\
                fn f() { /// Inner.\n/// Unit: segments\nconst B: (u64, u64) = (4, 5); }\n\
                #[cfg(test)] mod tests { const C: f64 = 1.0; }";
    let mut found = Vec::new();
    read(text.parse().expect("Rust"), "x.rs", "", &mut found);
    let found: Vec<_> = found
        .iter()
        .map(|t| [&t.name, &t.value, &t.unit, &t.meaning, &t.source].map(String::as_str))
        .collect();
    assert_eq!(
        found,
        [["A", "0.5", "ratio", "A `\\|`.", "of two lines."], ["B", "4/5", "segments", "Inner.", ""]]
    );
}
