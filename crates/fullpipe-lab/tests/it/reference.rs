//! Writes the tables of `docs/reference/experiment-file.md` from the fields of the experiment file and their
//! comments, and checks that the tables are current and that the stated defaults are true.
//!
//! `SNAPSHOTS=overwrite cargo test -p fullpipe-lab --test it reference::` writes the tables.
//! `src/experiment/file.rs` describes the form of the comments.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use fullpipe_lab::experiment::Experiment;
use snapbox::assert::DEFAULT_ACTION_ENV;
use snapbox::data::DataFormat;
use snapbox::{Assert, Data};

/// Types of the tables of an experiment file, in the order of the page.
const TABLES: [&str; 12] = [
    "ExperimentFile",
    "PathFile",
    "DirectionFile",
    "LimiterFile",
    "HostFile",
    "TunablesFile",
    "FlowFile",
    "PointFile",
    "SampleFile",
    "ExpectFile",
    "RatioFile",
    "HarmFile",
];
/// Types that wrap the type of a value.
const WRAPPERS: [&str; 5] = ["Option<", "Sweep<", "Single<", "Vec<", "Spanned<"];

/// The parts of a field's comment.
#[derive(Clone, Debug, Default, PartialEq)]
struct Comment {
    meaning: String,
    kind: String,
    range: String,
    default: String,
}

impl Comment {
    /// Reads the lines of a comment. Each part extends from its keyword to the next keyword.
    fn parse(lines: &[&str]) -> Self {
        let mut comment = Self::default();
        let mut part = &mut comment.meaning;
        for line in lines {
            let text = if let Some(text) = line.strip_prefix("Type: ") {
                part = &mut comment.kind;
                text
            } else if let Some(text) = line.strip_prefix("Range: ") {
                part = &mut comment.range;
                text
            } else if let Some(text) = line.strip_prefix("Default: ") {
                part = &mut comment.default;
                text
            } else {
                line
            };
            if !part.is_empty() {
                part.push(' ');
            }
            part.push_str(text);
        }
        comment
    }
}

/// Key of a table of an experiment file.
#[derive(Debug, PartialEq)]
struct Key {
    name: String,
    comment: Comment,
}

impl Key {
    fn row(&self) -> String {
        let Self { name, comment: Comment { meaning, kind, range, default } } = self;
        format!("| `{name}` | {kind} | {default} | {range} | {meaning} |\n")
    }

    /// Returns the default as TOML if the page states it as a value.
    fn default_value(&self) -> Option<&str> {
        let stated = self.comment.default.split(';').next()?;
        stated.strip_prefix('`')?.strip_suffix('`').filter(|value| !value.contains('`'))
    }
}

fn source(file: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/experiment");
    fs::read_to_string(folder.join(file)).expect("a source")
}

/// Returns the comments above the implementations of `Value`, by the name of the type.
fn types() -> BTreeMap<String, Comment> {
    let mut types = BTreeMap::new();
    for file in ["value.rs", "impairments.rs", "queue.rs"] {
        let text = source(file);
        let mut lines = Vec::new();
        for line in text.lines() {
            if let Some(text) = line.strip_prefix("/// ") {
                lines.push(text);
                continue;
            }
            if let Some(name) = line.strip_prefix("impl Value for ").and_then(|rest| rest.strip_suffix(" {"))
            {
                types.insert(name.to_owned(), Comment::parse(&lines));
            }
            lines.clear();
        }
    }
    types
}

/// Returns the keys of the type `table` in `source`. The type is a struct, or a table of the macro
/// `swept_table`, whose fields may continue in a block `own`.
fn keys(source: &str, table: &str, types: &BTreeMap<String, Comment>) -> Vec<Key> {
    let opening = format!("{table} {{");
    let is_opening = |line: &&str| {
        let line = line.trim_start();
        line == opening || line.strip_prefix("pub(super) struct ").is_some_and(|rest| rest == opening)
    };
    let mut lines =
        source.lines().skip_while(|line| !is_opening(line)).skip(1).map(str::trim_start).peekable();
    let mut keys = Vec::new();
    let mut comment = Vec::new();
    let mut renamed = None;
    while let Some(line) = lines.next() {
        if let Some(text) = line.strip_prefix("/// ") {
            comment.push(text);
        } else if line.starts_with("#[") {
            renamed = line.split_once("rename = \"").and_then(|(_, rest)| rest.split('"').next());
        } else if let Some((name, of)) = line.strip_suffix(',').and_then(|line| line.split_once(": ")) {
            let mut own = Comment::parse(&comment);
            if let Some(of) = types.get(value_type(of)) {
                own.kind = if own.kind.is_empty() { of.kind.clone() } else { own.kind };
                own.range = if own.range.is_empty() { of.range.clone() } else { own.range };
            }
            let name = renamed.unwrap_or(name.trim_start_matches("pub(super) "));
            keys.push(Key { name: name.into(), comment: own });
            (comment, renamed) = (Vec::new(), None);
        } else if line == "}" && lines.peek() != Some(&"own {") {
            break;
        }
    }
    keys
}

/// Returns the type of a value without the types that wrap it.
fn value_type(of: &str) -> &str {
    let inner = WRAPPERS.iter().find_map(|wrapper| of.strip_prefix(wrapper)?.strip_suffix('>'));
    inner.map_or(of, value_type)
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/experiment-file.md")
}

/// Returns `page` with the rows of `table` between the marks of that table.
fn with_rows(page: &str, table: &str, keys: &[Key]) -> String {
    let [begin, end] = ["begin", "end"].map(|mark| format!("<!-- {mark} of {table} -->"));
    let (before, rest) = page.split_once(&begin).expect("the begin of a table");
    let (_, after) = rest.split_once(&end).expect("the end of a table");
    let head = "| key | type | default | range | meaning |\n|---|---|---|---|---|\n";
    let rows: String = keys.iter().map(Key::row).collect();
    format!("{before}{begin}\n{head}{rows}{end}{after}")
}

#[test]
fn the_page_is_current() {
    let kept = fs::read_to_string(page()).expect("a page");
    let (source, types) = (source("file.rs"), types());
    let current = TABLES
        .iter()
        .fold(kept.clone(), |page, table| with_rows(&page, table, &keys(&source, table, &types)));
    let kept = Data::read_from(&page(), Some(DataFormat::Text)).raw();
    Assert::new().action_env(DEFAULT_ACTION_ENV).eq(current, kept);
}

#[test]
fn every_key_has_a_type_a_default_and_a_meaning() {
    let (source, types) = (source("file.rs"), types());
    for table in TABLES {
        let keys = keys(&source, table, &types);
        assert!(!keys.is_empty(), "{table} has no keys");
        for Key { name, comment } in keys {
            let Comment { meaning, kind, default, .. } = comment;
            assert!(
                ![meaning, kind].iter().any(String::is_empty),
                "{table}: {name} has no meaning or no type"
            );
            assert!(!default.is_empty(), "{table}: {name} has no default");
        }
    }
}

/// Lines of a small experiment, by the type of the table to which they belong.
const SMALL: [(&str, &str); 7] = [
    ("ExperimentFile", "name = 'x'\nduration = '20s'\n"),
    ("PathFile", "[path]\nrate = '10mbit'\nrtt = '40ms'\n"),
    ("DirectionFile", "[path.backward]\n"),
    ("LimiterFile", "[path.shaper]\nrate = '5mbit'\n"),
    ("HostFile", "[host]\n"),
    ("TunablesFile", "[host.tunables]\n"),
    ("FlowFile", "[[flow]]\ncc = 'cubic'\n"),
];

/// Returns the small experiment, with an additional line in `table`.
fn small(table: &str, line: &str) -> Experiment {
    let lines = SMALL.map(|(of, lines)| if of == table { format!("{lines}{line}\n") } else { lines.into() });
    let text = lines.concat();
    Experiment::from_toml(&text).unwrap_or_else(|error| panic!("{table}: {line}: {error}"))
}

#[test]
fn a_default_that_is_written_out_changes_nothing() {
    let (source, types) = (source("file.rs"), types());
    let plain = small("", "");
    let mut count = 0;
    for (table, _) in SMALL {
        for key in keys(&source, table, &types) {
            let Some(value) = key.default_value() else { continue };
            let line = format!("{} = {value}", key.name);
            let written = small(table, &line);
            let [plain, written] = [&plain, &written].map(|experiment| {
                (
                    experiment.points().iter().map(|point| &point.scenario).collect::<Vec<_>>(),
                    experiment.seeds(),
                )
            });
            assert!(plain == written, "{line} is not the default");
            count += 1;
        }
    }
    assert!(count > 15, "only {count} defaults are written out");
}

#[test]
fn fields_and_their_comments_are_found() {
    let source = "swept_table! {\n    Odd {\n        /// One,\n        /// and more.\n        /// Default: `2`; else 3\n        \
                  one: Known,\n    }\n    own {\n        /// Two.\n        /// Type: table\n        two: Other,\n    }\n}\n\
                  pub(super) struct Even {\n    /// Three.\n    #[serde(rename = \"where\")]\n    pub(super) three: \
                  Option<Sweep<Known>>,\n}\n";
    let known = Comment { kind: "text".into(), range: "any".into(), ..Comment::default() };
    let types = BTreeMap::from([("Known".to_owned(), known)]);
    let rows = |table: &str| keys(source, table, &types).iter().map(Key::row).collect::<String>();
    assert_eq!(
        rows("Odd"),
        "| `one` | text | `2`; else 3 | any | One, and more. |\n| `two` | table |  |  | Two. |\n"
    );
    assert_eq!(rows("Even"), "| `where` | text |  | any | Three. |\n");
    assert_eq!(keys(source, "Odd", &types)[0].default_value(), Some("2"));
}
