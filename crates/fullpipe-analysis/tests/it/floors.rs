//! Layers ("floors") of the modules in this crate, in the crate that reads measurements and in the lab: a module
//! may only use its own floor and lower ones.
//!
//! The test reads every path that begins with `crate`, `super` or `self`: in `use` statements, bodies, types,
//! macros, and attributes such as `serialize_with = "crate::json::bps"`. Comments and other strings are
//! skipped. `crate::Name` is rejected if `lib.rs` re-exports `Name`, because such a path hides the floor of
//! the item. There are no exceptions: an item used by two floors belongs on the lower one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::path::{Path, PathBuf};
use std::{fs, iter};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// Floors of a crate, lowest first, with their modules. `lib.rs` is above all of them.
type Floors = [(&'static str, &'static [&'static str])];

/// Crate whose floors are tested.
struct Tested {
    /// Directory of the crate, relative to this crate.
    folder: &'static str,
    floors: &'static Floors,
    /// Whether the rule also applies to unit tests. The lab's unit tests build their scenarios from the text
    /// of an experiment, which is on a higher floor than the tested modules.
    unit_tests: bool,
}

const CRATES: [Tested; 3] = [
    Tested { folder: "../fullpipe-measurement", floors: &MEASUREMENT, unit_tests: true },
    Tested { folder: ".", floors: &ANALYSIS, unit_tests: true },
    Tested { folder: "../fullpipe-lab", floors: &LAB, unit_tests: false },
];

const MEASUREMENT: [(&str, &[&str]); 2] = [
    // Measurements as values; formulas and constants that every module uses.
    (
        "input",
        &[
            "input",
            "json",
            "loss_estimate",
            "measurement",
            "path_facts",
            "segment",
            "throughput_models",
            "thresholds",
        ],
    ),
    // Limits of a recorded flow over time.
    ("classify", &["classify"]),
];

const ANALYSIS: [(&str, &[&str]); 6] = [
    // Limits of a running flow and of all sockets of a host, and what they mean for an application.
    ("live", &["demand", "latency", "live", "sockets"]),
    // Findings: the limits of a run, with their evidence.
    ("explain", &["explain", "tcp_vs_udp"]),
    // Possible changes, with their scope, cost and undo.
    ("remedy", &["remedy"]),
    // The simulated rate after each remedy.
    ("ladder", &["advice", "diagnosis", "flow_counts", "ladder", "offered_load", "whatif"]),
    // Tuning plan for a host.
    ("tune", &["tune"]),
    // Text reports and HTML pages.
    ("report", &["report"]),
];

const LAB: [(&str, &[&str]); 4] = [
    // Values of a run, and the behaviour of its applications.
    (
        "values",
        &[
            "bootstrap",
            "capture",
            "algorithm",
            "columns",
            "host",
            "nearest",
            "outcome",
            "pair",
            "stats",
            "trace",
            "validity",
            "workload",
        ],
    ),
    // One run with all of its values, and its event loop.
    ("sim", &["arm", "cost", "history", "profile", "scenario", "sim", "victim"]),
    // Experiment files, and the metrics for which they can state expectations.
    ("experiment", &["experiment", "metric"]),
    // Many runs, and their results.
    ("results", &["campaign", "check", "race", "results"]),
];

/// Path in a module's source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Mention {
    file: String,
    line: usize,
    /// Top-level module that contains the path; empty in `lib.rs`.
    by: String,
    /// Segment after the crate root: a top-level module if the path obeys the rule; empty for the root
    /// itself.
    of: String,
    path: String,
}

/// Returns the index and the name of a module's floor.
fn floor(floors: &Floors, module: &str) -> Option<(usize, &'static str)> {
    let number = floors.iter().position(|(_, modules)| modules.contains(&module))?;
    Some((number, floors[number].0))
}

/// Returns the reason why a path breaks the rule, or `None` if it obeys the rule.
fn objection(floors: &Floors, mention: &Mention) -> Option<String> {
    let Mention { file, line, by, of, path } = mention;
    let begin = format!("{file}:{line}: {path}:");
    // `lib.rs` may use everything.
    if by.is_empty() {
        return None;
    }
    let Some((own, own_name)) = floor(floors, by) else {
        return Some(format!("{begin} module {by} has no floor: give it one in floors.rs"));
    };
    match floor(floors, of) {
        Some((number, _)) if number <= own => None,
        Some((_, name)) => Some(format!(
            "{begin} {by} is on floor {own_name} and may not use {of}, which is on floor {name} above it: \
             move what both use to {own_name} or below"
        )),
        None => {
            Some(format!("{begin} '{of}' is no module of the crate: name the module that has it, not lib.rs"))
        }
    }
}

/// Returns the first dependency cycle between modules: one line per module, with the place where it uses the
/// next one.
fn circle(mentions: &[Mention]) -> Option<String> {
    let mut uses: BTreeMap<&str, BTreeMap<&str, &Mention>> = BTreeMap::new();
    for mention in mentions.iter().filter(|mention| !mention.by.is_empty() && mention.by != mention.of) {
        uses.entry(&mention.by).or_default().entry(&mention.of).or_insert(mention);
    }
    fn follow<'a>(
        at: &'a str,
        uses: &BTreeMap<&'a str, BTreeMap<&'a str, &'a Mention>>,
        way: &mut Vec<&'a Mention>,
        done: &mut BTreeSet<&'a str>,
    ) -> Option<String> {
        if let Some(begin) = way.iter().position(|mention| mention.by == at) {
            let steps =
                way[begin..].iter().map(|m| format!("{}:{}: {} uses {}", m.file, m.line, m.by, m.path));
            return Some(steps.collect::<Vec<_>>().join("\n"));
        }
        if !done.contains(at) {
            for (next, mention) in uses.get(at).into_iter().flatten() {
                way.push(mention);
                let found = follow(next, uses, way, done);
                way.pop();
                if found.is_some() {
                    return found;
                }
            }
            done.insert(at);
        }
        None
    }
    let mut done = BTreeSet::new();
    uses.keys().find_map(|module| follow(module, &uses, &mut Vec::new(), &mut done))
}

/// Reads the paths in one file.
struct Reader<'a> {
    file: &'a str,
    unit_tests: bool,
    /// Module at the current position in the file, from the root downwards.
    module: Vec<String>,
    mentions: Vec<Mention>,
}

impl Reader<'_> {
    /// Returns the paths in `source`, which is the content of `module`.
    fn mentions(file: &str, module: &[&str], source: &str) -> Vec<Mention> {
        Self::mentions_of(file, module, source, true)
    }

    /// Like `mentions`, but skips modules named `tests` unless `unit_tests` is set.
    fn mentions_of(file: &str, module: &[&str], source: &str, unit_tests: bool) -> Vec<Mention> {
        let module = module.iter().map(ToString::to_string).collect();
        let mut reader = Reader { file, unit_tests, module, mentions: Vec::new() };
        let tokens = source.parse().unwrap_or_else(|error| panic!("{file}: {error}"));
        reader.read(tokens, None);
        reader.mentions
    }

    /// Reads tokens; `line` is the line of the string that contains them, if they are from a string.
    fn read(&mut self, tokens: TokenStream, line: Option<usize>) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            let next = tokens.get(at + 1);
            at += 1;
            match (token, next) {
                (TokenTree::Ident(word), Some(TokenTree::Group(group)))
                    if word == "pub" && is_scope(group) =>
                {
                    at += 1;
                }
                (TokenTree::Ident(word), Some(TokenTree::Ident(name))) if word == "mod" => {
                    if let Some(TokenTree::Group(group)) = tokens.get(at + 1) {
                        self.module.push(name.to_string());
                        if self.unit_tests || name != "tests" {
                            self.read(group.stream(), line);
                        }
                        self.module.pop();
                        at += 1;
                    }
                    at += 1;
                }
                (TokenTree::Ident(word), Some(TokenTree::Punct(mark)))
                    if word == "include" && mark.as_char() == '!' =>
                {
                    self.refuse(token, line, "include!");
                }
                (TokenTree::Ident(word), _) if word == "crate" || word == "super" || word == "self" => {
                    at += self.path(Vec::new(), Some(self.module.clone()), &tokens[at - 1..], line) - 1;
                }
                (TokenTree::Punct(mark), _) if mark.as_char() == '#' => {
                    if next.is_some_and(|next| is_punct(next, '!')) {
                        at += 1;
                    }
                    if let Some(TokenTree::Group(group)) = tokens.get(at) {
                        self.attribute(group.stream());
                        at += 1;
                    }
                }
                (TokenTree::Group(group), _) => self.read(group.stream(), line),
                _ => {}
            }
        }
    }

    /// Reads an attribute including its strings, because serde uses paths in strings.
    fn attribute(&mut self, tokens: TokenStream) {
        let Some(first) = tokens.clone().into_iter().next() else { return };
        match first.to_string().as_str() {
            "doc" => {}
            "path" => self.refuse(&first, None, "#[path]"),
            _ => {
                self.strings(tokens.clone());
                self.read(tokens, None);
            }
        }
    }

    fn strings(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.strings(group.stream()),
                TokenTree::Literal(literal) => {
                    let (line, text) = (literal.span().start().line, literal.to_string());
                    let inside = text.find('"').zip(text.rfind('"')).and_then(|(a, z)| text.get(a + 1..z));
                    // Strings with prose contain no paths.
                    if let Some(Ok(tokens)) = inside.filter(|text| text.contains("::")).map(str::parse) {
                        self.read(tokens, Some(line));
                    }
                }
                _ => {}
            }
        }
    }

    /// Reads a path, or the group in braces that continues it. `written` contains the segments so far, and
    /// `base` the module they lead to; `base` is `None` after a segment that is not a keyword. Returns the
    /// number of tokens read.
    fn path(
        &mut self,
        written: Vec<String>,
        base: Option<Vec<String>>,
        tokens: &[TokenTree],
        line: Option<usize>,
    ) -> usize {
        let Some(first) = tokens.first() else { return 0 };
        let rest = || tokens.get(1).zip(tokens.get(2)).filter(|(a, b)| is_punct(a, ':') && is_punct(b, ':'));
        let place = line.unwrap_or_else(|| first.span().start().line);
        match first {
            TokenTree::Group(group) if !written.is_empty() => {
                let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
                for one in tokens.split(|token| is_punct(token, ',')) {
                    self.path(written.clone(), base.clone(), one, line);
                }
                return 1;
            }
            TokenTree::Ident(word) => {
                let name = word.to_string();
                let known = base.as_ref();
                let base = match (name.as_str(), base.clone()) {
                    ("crate", _) => Some(Vec::new()),
                    ("self", base) => base,
                    ("super", Some(mut base)) => {
                        base.pop();
                        Some(base)
                    }
                    _ => None,
                };
                let written: Vec<String> = written.into_iter().chain(iter::once(name)).collect();
                // The first name after the root determines the floor; the rest of the path is only read for
                // the message.
                if base.is_none() && known.is_some_and(Vec::is_empty) {
                    self.mention(place, word.to_string(), &written, &tokens[1..]);
                }
                if rest().is_some() {
                    return 3 + self.path(written, base, &tokens[3..], line);
                }
                // `self` alone is a value; a root without a further segment imports the whole crate.
                if base.is_some_and(|base| base.is_empty()) && written != ["self"] {
                    self.mention(place, String::new(), &written, &[]);
                }
                return 1;
            }
            TokenTree::Punct(mark) if mark.as_char() == '*' && base.as_ref().is_some_and(Vec::is_empty) => {
                self.mention(place, "*".into(), &[written, vec!["*".into()]].concat(), &[]);
            }
            _ => {}
        }
        1
    }

    fn mention(&mut self, line: usize, of: String, written: &[String], rest: &[TokenTree]) {
        let mut path = written.join("::");
        for more in rest.chunks(3) {
            let [a, b, TokenTree::Ident(name)] = more else { break };
            if !(is_punct(a, ':') && is_punct(b, ':')) {
                break;
            }
            let _ = write!(path, "::{name}");
        }
        let by = self.module.first().cloned().unwrap_or_default();
        self.mentions.push(Mention { file: self.file.into(), line, by, of, path });
    }

    /// Records a construct that includes a source file not read by this test.
    fn refuse(&mut self, token: &TokenTree, line: Option<usize>, what: &str) {
        let line = line.unwrap_or_else(|| token.span().start().line);
        self.mention(line, what.into(), &[what.into()], &[]);
    }
}

fn is_punct(token: &TokenTree, mark: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == mark)
}

/// Returns whether the group belongs to `pub(crate)`, `pub(super)` or `pub(in ...)`, which do not use a
/// module.
fn is_scope(group: &Group) -> bool {
    let words: Vec<String> = group.stream().into_iter().map(|token| token.to_string()).collect();
    let one = |word: &str| words.len() == 1 && words[0] == word;
    group.delimiter() == Delimiter::Parenthesis
        && (one("crate") || one("super") || one("self") || words.first().is_some_and(|word| word == "in"))
}

/// Returns every file in a directory and its subdirectories.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

impl Tested {
    fn source(&self) -> PathBuf {
        root().join(self.folder).join("src")
    }

    /// Returns all paths in the sources of the crate.
    fn mentions(&self) -> Vec<Mention> {
        let source = self.source();
        let mut mentions = Vec::new();
        for file in files(&source).iter().filter(|file| file.extension().is_some_and(|of| of == "rs")) {
            let below = file.strip_prefix(&source).expect("below");
            let name = Path::new("src").join(below).display().to_string();
            let below = below.with_extension("");
            let mut module: Vec<&str> = below.iter().map(|part| part.to_str().expect("UTF-8")).collect();
            if module == ["lib"] || module.last() == Some(&"mod") {
                module.pop();
            }
            if self.unit_tests || !module.contains(&"tests") {
                let text = fs::read_to_string(file).expect("text");
                mentions.extend(Reader::mentions_of(&name, &module, &text, self.unit_tests));
            }
        }
        mentions
    }
}

/// Prints each string on a separate line.
struct Lines(Vec<String>);

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|line| write!(f, "\n{line}"))
    }
}

#[test]
fn every_module_has_one_floor() {
    for tested in CRATES {
        let entry = fs::read_to_string(tested.source().join("lib.rs")).expect("text");
        let tokens: Vec<TokenTree> = entry.parse::<TokenStream>().expect("Rust").into_iter().collect();
        let named = |pair: &[TokenTree]| match pair {
            [TokenTree::Ident(word), TokenTree::Ident(name)] if word == "mod" => Some(name.to_string()),
            _ => None,
        };
        let mut modules: Vec<String> = tokens.windows(2).filter_map(named).collect();
        let mut listed: Vec<&str> =
            tested.floors.iter().flat_map(|(_, modules)| modules.iter().copied()).collect();
        modules.sort();
        listed.sort_unstable();
        assert_eq!(
            modules, listed,
            "left the modules of {}/src/lib.rs, right those of its floors",
            tested.folder
        );
    }
}

#[test]
fn no_module_uses_a_higher_floor() {
    for tested in CRATES {
        let mentions = tested.mentions();
        assert!(
            mentions.len() > 20,
            "{}: the sources were not read: {} paths",
            tested.folder,
            mentions.len()
        );
        let objections: Vec<String> =
            mentions.iter().filter_map(|mention| objection(tested.floors, mention)).collect();
        assert!(objections.is_empty(), "{}: {:?}\n", tested.folder, Lines(objections));
    }
}

#[test]
fn modules_of_one_floor_make_no_circle() {
    for tested in CRATES {
        let found = circle(&tested.mentions());
        assert!(found.is_none(), "{}: a circle:\n{}\n", tested.folder, found.unwrap_or_default());
    }
}

/// Expressions in templates are Rust code, too, but the other tests do not read templates, so they may name
/// no module.
#[test]
fn templates_name_no_module() {
    for file in files(&root().join("templates")) {
        let text = fs::read_to_string(&file).unwrap_or_default();
        assert!(!text.contains("crate::") && !text.contains("super::"), "{}", file.display());
    }
}

/// Returns the paths in a text within `module`, one per line.
fn paths(module: &[&str], text: &str) -> String {
    let mut found = String::new();
    for Mention { line, of, path, .. } in Reader::mentions("x.rs", module, text) {
        let _ = writeln!(found, "{line} {of}: {path}");
    }
    found
}

#[test]
fn paths_are_found_wherever_they_stand() {
    let text = r##"
use crate::{input::{self, Kind}, stats::LossEstimate as Loss, ladder};
use super::super::tune::{plan, inputs::PlanInputs};
fn body<'a>(of: crate::explain::Facts<'a>) -> Vec<crate::report::Rung> {
    let text = format!("{}", crate::throughput_models::rate(1));
    <crate::live::Live as Default>::default(); self.x(); 'a'
}
#[derive(Serialize)]
struct S {
    #[serde(rename = "crate", serialize_with = "crate::json::bps")]
    rate: u64,
}
mod inner {
    use super::own;
    use super::super::super::advice::Host;
    use {crate::offered_load::OfferedLoad, std::fmt};
}
macro_rules! m { () => { $crate::report::Held } }
"##;
    assert_eq!(
        paths(&["classify", "rules"], text),
        "2 input: crate::input\n2 stats: crate::stats::LossEstimate\n2 ladder: crate::ladder\n\
         3 tune: super::super::tune\n\
         4 explain: crate::explain::Facts\n4 report: crate::report::Rung\n\
         5 throughput_models: crate::throughput_models::rate\n6 live: crate::live::Live\n\
         10 json: crate::json::bps\n\
         15 advice: super::super::super::advice::Host\n16 offered_load: crate::offered_load::OfferedLoad\n\
         18 report: crate::report::Held\n"
    );
}

#[test]
fn comments_strings_and_own_paths_are_none() {
    let text = r##"
//! [`crate::report`]
/// See [`super::super::report`].
// crate::report::Rung
/* crate::report /* crate::report */ */
pub(crate) fn text(self) -> &'static str { self::own(); super::own(); "crate::report" }
pub(in crate::classify) struct S(pub(super) u8, pub(crate) u8);
const RAW: &str = r#"crate::report " crate::report"#;
#[doc = "crate::report"]
mod tests { use super::*; }
"##;
    assert_eq!(paths(&["classify", "rules"], text), "");
}

/// A new name for the root, a glob import of the root, or a source file from elsewhere would hide a floor, so
/// each of them is rejected.
#[test]
fn what_hides_a_floor_is_found() {
    let text = "use crate as all;\nuse crate::*;\nuse super::{self as root};\nextern crate self as me;\n\
                include!(\"x\");\n#[path = \"y.rs\"]\nmod y;\npub struct S(pub (crate::report::Rung));\nuse super::Limit;";
    assert_eq!(
        paths(&["stats"], text),
        "1 : crate\n2 *: crate::*\n3 : super::self\n4 : crate\n5 include!: include!\n6 #[path]: #[path]\n\
         8 report: crate::report::Rung\n9 Limit: super::Limit\n"
    );
}

#[test]
fn a_forbidden_use_is_named() {
    let text = "use crate::explain::Findings;\nuse crate::report::Rung;\nfn f() { crate::render_text() }";
    let mentions = Reader::mentions("src/ladder/walk.rs", &["ladder", "walk"], text);
    assert_eq!(
        mentions.iter().filter_map(|mention| objection(&ANALYSIS, mention)).collect::<Vec<_>>(),
        [
            "src/ladder/walk.rs:2: crate::report::Rung: ladder is on floor ladder and may not use report, which is on \
             floor report above it: move what both use to ladder or below",
            "src/ladder/walk.rs:3: crate::render_text: 'render_text' is no module of the crate: name the module that \
             has it, not lib.rs",
        ]
    );
    let new = Reader::mentions("src/new.rs", &["new"], "use crate::explain::Findings;");
    assert_eq!(
        new.iter().filter_map(|mention| objection(&ANALYSIS, mention)).collect::<Vec<_>>(),
        ["src/new.rs:1: crate::explain::Findings: module new has no floor: give it one in floors.rs"]
    );
}

#[test]
fn a_circle_within_a_floor_is_named() {
    let of = |module: &str, text: &str| Reader::mentions(&format!("src/{module}.rs"), &[module], text);
    let (live, sockets) =
        (of("live", "use crate::sockets::Sample;"), of("sockets", "\nuse crate::live::Live;"));
    assert_eq!(circle(&sockets), None);
    assert_eq!(
        circle(&[live, sockets].concat()).as_deref(),
        Some(
            "src/live.rs:1: live uses crate::sockets::Sample\nsrc/sockets.rs:2: sockets uses crate::live::Live"
        )
    );
}
