//! Tests that compare `docs/evidence/conformance.md` with the tests and scripts that the page names.
//!
//! A row is `| labels | what | tests | status |`. Each label is one check, and a range (`A-29 to A-31`)
//! stands for all labels in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

struct Row {
    number: usize,
    labels: Vec<String>,
    tests: Vec<String>,
    status: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Parses the check labels in a table cell: `A-14, A-15`, `B3-1 to B3-22`, `DR-3 to DR-5, DR-7`.
fn labels(text: &str) -> Option<Vec<String>> {
    let number = |label: &str| {
        let (family, number) = label.rsplit_once('-')?;
        Some((family.to_owned(), number.parse::<u32>().ok()?))
    };
    let mut labels = Vec::new();
    for part in text.split(", ") {
        let (first, last) = part.split_once(" to ").unwrap_or((part, part));
        let ((family, first), (same, last)) = (number(first)?, number(last)?);
        if family != same || first > last {
            return None;
        }
        labels.extend((first..=last).map(|number| format!("{family}-{number}")));
    }
    Some(labels)
}

fn rows(text: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let Some(cells) = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |")) else { continue };
        let cells: Vec<&str> = cells.split(" | ").map(str::trim).collect();
        let number = index + 1;
        assert_eq!(cells.len(), 4, "line {number}: four cells: {line}");
        if cells[0] == "check" {
            continue;
        }
        rows.push(Row {
            number,
            labels: labels(cells[0]).unwrap_or_else(|| panic!("line {number}: no labels: {}", cells[0])),
            tests: cells[2].split('`').skip(1).step_by(2).map(Into::into).collect(),
            status: cells[3].into(),
        });
    }
    rows
}

fn sources(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.with_extension("").display().to_string();
            found.push((name, fs::read_to_string(&path).expect("text")));
        }
    }
}

/// Returns whether `name` (`file::function`) is an existing test. The path of a source file must end with
/// `file`, and that file must contain a test named `function`.
fn is_a_test(sources: &[(String, String)], name: &str) -> bool {
    let Some((file, function)) = name.split_once("::") else { return false };
    let (end, head) = (format!("/{file}"), format!("fn {function}("));
    sources.iter().filter(|(path, _)| path.ends_with(&end)).any(|(_, text)| {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let at = lines.iter().position(|line| line.starts_with(&head));
        at.is_some_and(|at| lines[..at].iter().rev().take(3).any(|line| *line == "#[test]"))
    })
}

/// Returns the labels in the `checks` line of a script, and whether the script has a `deviates` line.
fn claims(text: &str) -> (Vec<String>, bool) {
    let checks = text.lines().find_map(|line| line.strip_prefix("checks ")).unwrap_or("");
    let deviates = text.lines().any(|line| line.starts_with("deviates "));
    (checks.split_whitespace().map(Into::into).collect(), deviates)
}

/// Returns the errors found in `table`, the table of `docs/evidence/conformance.md`.
fn faults(table: &str, sources: &[(String, String)], scripts: &BTreeMap<String, String>) -> Vec<String> {
    let mut faults = Vec::new();
    let mut seen = BTreeSet::new();
    let rows = rows(table);
    for row in &rows {
        let mut fault = |why: String| faults.push(format!("line {}: {why}", row.number));
        let (word, reason) = row.status.split_once(": ").unwrap_or((&row.status, ""));
        match word {
            "met" if row.tests.is_empty() => fault("met, by no test".into()),
            "deviates" if row.tests.is_empty() || reason.is_empty() => {
                fault("a deviation has a test and a reason".into());
            }
            "open" if reason.is_empty() => fault("open, without a reason".into()),
            "met" | "deviates" | "open" => {}
            other => fault(format!("no status: {other}")),
        }
        for label in &row.labels {
            if !seen.insert(label.clone()) {
                fault(format!("{label} has two rows"));
            }
        }
        for test in &row.tests {
            let Some(script) = test.strip_prefix("script ") else {
                if !is_a_test(sources, test) {
                    fault(format!("no test {test}"));
                }
                continue;
            };
            match scripts.get(script).map(|text| claims(text)) {
                None => fault(format!("no script {script}")),
                Some((checks, _)) if !row.labels.iter().any(|label| checks.contains(label)) => {
                    fault(format!("script {script} does not say that it keeps {:?}", row.labels));
                }
                Some(_) => {}
            }
        }
    }
    for (name, text) in scripts {
        let (checks, deviates) = claims(text);
        for label in &checks {
            if !seen.contains(label) {
                faults.push(format!("script {name} keeps {label}, which has no row"));
            }
        }
        // A script with a `deviates` line must have a table row that states a deviation.
        let told = rows.iter().any(|row| {
            row.labels.iter().any(|label| checks.contains(label)) && !row.status.starts_with("met")
        });
        if deviates && !told {
            faults.push(format!("script {name} deviates, and no row of its checks does"));
        }
    }
    faults
}

fn scripts() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut scripts = BTreeMap::new();
    for part in fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        if part.is_dir() {
            for path in fs::read_dir(&part).expect("a folder").map(|entry| entry.expect("an entry").path()) {
                let name =
                    path.strip_prefix(&folder).expect("inside").with_extension("").display().to_string();
                scripts.insert(name, fs::read_to_string(&path).expect("text"));
            }
        }
    }
    scripts
}

fn table() -> String {
    fs::read_to_string(root().join("docs/evidence/conformance.md")).expect("the table")
}

fn all_sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    sources(&root().join("crates"), &mut found);
    found
}

#[test]
fn table_and_tests_agree() {
    let table = table();
    let faults = faults(&table, &all_sources(), &scripts());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let count = |word: &str| {
        let rows = rows(&table);
        let those = rows.iter().filter(|row| row.status.split(':').next() == Some(word));
        those.map(|row| row.labels.len()).sum::<usize>()
    };
    let (met, deviates, open) = (count("met"), count("deviates"), count("open"));
    let all = met + deviates + open;
    println!(
        "{all} checks: {met} met, {deviates} deviate, {open} open; {} % not open",
        (met + deviates) * 100 / all
    );
}

/// Each of these changes to the conformance table causes an error.
#[test]
fn drift_is_noticed() {
    /// Status of the row of PMTU-4. Its script has a `deviates` line.
    const DEVIATION: &str = "| deviates: off by default; smaller packets after three timeouts in a row, \
                             as in Linux; the MTU is never probed upwards |";
    let (table, sources, scripts) = (table(), all_sources(), scripts());
    // Select any open row of the table that has no test.
    let open = table.lines().find_map(|line| line.split_once(" |  | open: "));
    let open = format!("|  | open: {}", open.expect("not everything is met").1);
    for (from, to, why) in [
        (
            "conn/tests/loss::rk_2_three_sacks",
            "conn/tests/loss::rk_2_four_sacks",
            "no test conn/tests/loss::rk_2_four",
        ),
        ("conn/tests/loss::rk_2_three_sacks", "conn/tests/flow::rk_2_three_sacks", "no test conn/tests/flow"),
        ("script loss/rack-three", "script loss/rack-four", "no script loss/rack-four"),
        ("script loss/rack-three", "script loss/rack-quarter", "does not say that it keeps [\"RK-2\"]"),
        ("| RK-2 |", "| RK-1 |", "RK-1 has two rows"),
        ("| RK-2 |", "| RKX-2 |", "keeps RK-2, which has no row"),
        (DEVIATION, "| deviates |", "a reason"),
        (&open, "|  | open |", "open, without a reason"),
        (&open, "|  | met |", "met, by no test"),
        (&open, "|  | later |", "no status: later"),
        (DEVIATION, "| met |", "mtu/black-hole deviates, and no row"),
    ] {
        assert!(table.contains(from), "{from}");
        let found = faults(&table.replacen(from, to, 1), &sources, &scripts);
        assert!(found.iter().any(|fault| fault.contains(why)), "{to}: {found:?}");
    }
}
