//! Tests of `fullpipe race` as users and scripts run it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::process::{becomes, folder, fullpipe, refusal, signal};

/// An experiment with two cells: a download without loss, and one with loss.
const CELLS: &str = "\
name = 'small'
duration = '60s'
[path]
rate = '20mbit'
rtt = '50ms'
loss = ['0%', '1%']
[[flow]]
cc = 'bbr1'
bytes = '60kB'
app = { request = '200B' }
";

fn cells(test: &str, text: &str) -> PathBuf {
    let file = folder(test).join("small.toml");
    fs::write(&file, text).expect("an experiment file");
    file
}

/// Returns the arguments of a race between two arms over the cells in `file`.
fn arguments<'a>(file: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    let race = ["race", "--paths", file.to_str().expect("UTF-8"), "--arms", "bbr1,bbr1+iw"];
    [&race[..], more].concat()
}

/// Checks that standard error contains only the size of the race, and the estimated time if runs are missing.
fn assert_cost(stderr: &str) {
    let timed = stderr.contains("; takes about ") || stderr.trim_end().ends_with(", all of which are stored");
    assert!(stderr.contains(" cell") && timed, "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

fn document(arguments: &[&str]) -> Value {
    let (code, stdout, stderr) = fullpipe(&[arguments, &["--json"]].concat());
    assert_eq!(code, 0, "{stderr}");
    assert_cost(&stderr);
    serde_json::from_str(&stdout).expect("JSON")
}

#[test]
fn a_race_prints_a_table_per_arm_with_a_line_per_cell() {
    let file = cells("race-table", CELLS);
    let arms = ["race", "--paths", file.to_str().expect("UTF-8"), "--arms", "cubic, bbr1,bbr1+iw"];
    let (code, stdout, stderr) = fullpipe(&[&arms[..], &["--pairs", "6"]].concat());
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.starts_with("2 cells, 12 pairs; takes about "), "{stderr}");
    let lines: Vec<&str> = stdout.lines().collect();
    assert!(lines.iter().all(|line| line.chars().count() <= 100), "{stdout}");
    assert!(lines[0].starts_with("race small, world sim"), "{stdout}");
    for arm in ["cubic", "bbr1+iw"] {
        let title = format!("{arm} compared with bbr1; ratio: time of bbr1 / time of {arm}");
        assert_eq!(lines.iter().filter(|line| **line == title).count(), 1, "{stdout}");
    }
    assert_eq!(lines.iter().filter(|line| line.starts_with("0%  ")).count(), 2, "{stdout}");
    assert_eq!(lines.iter().filter(|line| line.starts_with("1%  ")).count(), 2, "{stdout}");
    assert_eq!(fullpipe(&[&arms[..], &["--pairs", "6"]].concat()).1, stdout, "the same race again");
}

#[test]
fn json_has_times_floors_and_intervals() {
    let file = cells("race-json", CELLS);
    let report = document(&arguments(&file, &["--pairs", "6"]));
    assert_eq!((&report["schema"], &report["world"]), (&"fullpipe.race/1".into(), &"sim".into()));
    assert_eq!((&report["race"], &report["against"]), (&"small".into(), &"bbr1".into()));
    for (cell, interval) in [(0, "range"), (1, "confidence95")] {
        let cell = &report["cells"][cell];
        let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{cell:#}"));
        let [bbr1, iw] = &cell["arms"].as_array().expect("arms")[..] else { panic!("{cell:#}") };
        assert_eq!((&bbr1["arm"], &bbr1["ratio"]), (&"bbr1".into(), &Value::Null), "{cell:#}");
        let ratio = &iw["ratio"];
        assert_eq!((&ratio["interval"], &ratio["pairs"]), (&interval.into(), &6.into()), "{cell:#}");
        let [low, value, high] = ["low", "ratio", "high"].map(|key| number(&ratio[key]));
        assert!(low <= value && value <= high && value > 1.0, "{cell:#}");
        for arm in [bbr1, iw] {
            let [min, median, p95, max] =
                ["min_s", "median_s", "p95_s", "max_s"].map(|key| number(&arm["from_syn"][key]));
            assert!(min <= median && median <= p95 && p95 <= max, "{cell:#}");
            assert!(
                min >= number(&cell["link_floor_s"]) && min >= number(&cell["window_floor_s"]),
                "{cell:#}"
            );
            let handshake = number(&arm["from_syn"]["min_s"]) - number(&arm["from_request"]["min_s"]);
            assert!(handshake > 0.049, "{cell:#}");
            assert!(number(&arm["sent_per_needed"]) >= 1.0, "{cell:#}");
        }
    }
}

/// A race continues with the pairs that are missing in its folder, even if the last line of the file is
/// incomplete.
#[test]
fn a_race_continues_where_it_stopped() {
    let file = cells("race-out", CELLS);
    let out = file.with_file_name("out");
    let dir = out.to_str().expect("UTF-8");
    let pairs = || fs::read_to_string(out.join("race.jsonl")).expect("pairs");
    document(&arguments(&file, &["--pairs", "2", "--out", dir]));
    assert_eq!(pairs().lines().count(), 4, "two pairs in each cell");
    fs::write(out.join("race.jsonl"), pairs() + "{\"cell\": \"loss").expect("a part of a line");
    let continued = document(&arguments(&file, &["--pairs", "5", "--out", dir]));
    assert_eq!(pairs().lines().count(), 10, "{}", pairs());
    assert_eq!(continued, document(&arguments(&file, &["--pairs", "5"])), "as if made at once");
    let stored: Value = fs::read_to_string(out.join("race.json")).expect("results").parse().expect("JSON");
    assert_eq!(stored, continued);

    // The same race does not run again: it reports a time that this test has changed in the file.
    let mut first: Value = pairs().lines().next().expect("a pair").parse().expect("JSON");
    first["runs"]["bbr1"]["from_syn_ns"] = 9_000_000_000_u64.into();
    let rest: Vec<String> = pairs().lines().skip(1).map(str::to_owned).collect();
    fs::write(out.join("race.jsonl"), format!("{first}\n{}\n", rest.join("\n"))).expect("pairs");
    let again = document(&arguments(&file, &["--pairs", "5", "--out", dir]));
    let changed = (0..2).filter(|cell| again["cells"][*cell]["arms"][0]["from_syn"]["max_s"] == 9.0).count();
    assert_eq!((changed, pairs().lines().count()), (1, 10), "{again:#}");

    // The race does not use pairs that another version of the program made, or an unknown one, and says so.
    let foreign = pairs();
    for (from, to, count) in
        [("\"program\":\"", "\"program\":\"0.0.9+", 10), ("\"program\":", "\"made_by\":", 10)]
    {
        fs::write(out.join("race.jsonl"), foreign.replace(from, to)).expect("pairs");
        let (code, stdout, stderr) = fullpipe(&arguments(&file, &["--pairs", "5", "--out", dir, "--json"]));
        assert_eq!((code, serde_json::from_str::<Value>(&stdout).expect("JSON")), (0, continued.clone()));
        let note = format!("note: another version of fullpipe made {count} results in ");
        assert!(
            stderr.starts_with(&note) && stderr.contains("\n2 cells, 10 pairs; takes about "),
            "{stderr}"
        );
        assert_eq!(pairs().lines().count(), 20, "{}", pairs());
    }
    fs::write(out.join("race.jsonl"), foreign).expect("pairs");

    // A different arm or a different path requires new runs.
    let other = cells("race-other", &CELLS.replace("50ms", "40ms"));
    document(&arguments(&other, &["--pairs", "5", "--out", dir]));
    assert_eq!(pairs().lines().count(), 20, "{}", pairs());

    fs::write(out.join("race.jsonl"), "no pair\n").expect("a file");
    let (error, hint) = refusal(1, fullpipe(&arguments(&file, &["--pairs", "2", "--out", dir])));
    assert!(error.contains("race.jsonl: line 1: ") && hint.contains("--out"), "{error}: {hint}");
}

/// A race that measures harm continues with the runs that are missing in its folder, and stored runs are equal
/// to new ones.
#[test]
fn a_race_for_harm_continues_where_it_stopped() {
    let text =
        "name = 'small'\nduration = '4s'\n[path]\nrate = '5mbit'\nrtt = '20ms'\n[[flow]]\ncc = 'bbr1'\n";
    let file = cells("race-harm-out", text);
    let out = file.with_file_name("out");
    let runs = || fs::read_to_string(out.join("harm.jsonl")).expect("runs");
    let harm = |more: &[&str]| {
        let options = ["--harm", "--paths", file.to_str().expect("UTF-8"), "--victims", "cubic,web"];
        document(&[&["race", "--arms", "bbr1,surge"], &options[..], more].concat())
    };
    let stored = |pairs| harm(&["--pairs", pairs, "--out", out.to_str().expect("UTF-8")]);
    stored("2");
    assert_eq!(runs().lines().count(), 4, "two seeds for each victim");
    fs::write(out.join("harm.jsonl"), runs() + "{\"cell\": \"sm").expect("a part of a line");
    let continued = stored("3");
    assert_eq!(runs().lines().count(), 6, "{}", runs());
    assert_eq!(continued, harm(&["--pairs", "3"]), "as if made at once");
    let written: Value = fs::read_to_string(out.join("harm.json")).expect("results").parse().expect("JSON");
    assert_eq!(written, continued);

    let foreign = runs().replace("\"program\":\"", "\"program\":\"0.0.9+");
    fs::write(out.join("harm.jsonl"), foreign).expect("runs");
    let options = ["--harm", "--paths", file.to_str().expect("UTF-8"), "--victims", "cubic,web"];
    let again = [&["race", "--arms", "bbr1,surge"], &options[..], &["--pairs", "3", "--out"]].concat();
    let (_, _, stderr) = fullpipe(&[&again[..], &[out.to_str().expect("UTF-8")]].concat());
    assert!(stderr.starts_with("note: another version of fullpipe made 6 results in "), "{stderr}");
    assert_eq!(runs().lines().count(), 12, "{}", runs());
}

/// After Ctrl-C, the command prints the results of the finished runs, and the next command makes the others.
#[cfg(unix)]
#[test]
fn an_interrupted_race_keeps_its_runs() {
    let big = CELLS.replace("20mbit", "100mbit").replace("'60kB'", "'20MB'");
    for options in [&["--arms", "bbr1,surge"][..], &["--arms", "bbr1,surge", "--harm", "--victims", "cubic"]]
    {
        let harm = options.len() > 2;
        let long = CELLS.replace("bytes = '60kB'\napp = { request = '200B' }\n", "");
        let text = if harm { &long } else { &big };
        let file = cells("race-interrupted", text);
        let out = file.with_file_name("out");
        let [file, dir] = [&file, &out].map(|path| path.to_str().expect("UTF-8"));
        let common =
            [&["race", "--paths", file, "--pairs", "500", "--out", dir, "--json"][..], options].concat();
        let child = Command::new(crate::PROGRAM)
            .args(&common)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let stored = out.join(if harm { "harm.jsonl" } else { "race.jsonl" });
        let has_run = || fs::read_to_string(&stored).is_ok_and(|text| text.contains('\n'));
        assert!(becomes(has_run), "no run");
        signal(&child, "INT");
        let Output { status, stdout, stderr } = child.wait_with_output().expect("it ends");
        let stderr = String::from_utf8(stderr).expect("UTF-8");
        assert_eq!(status.code(), Some(130), "{stderr}");
        let last = "interrupted: some runs are missing; the same command makes only the missing runs\n";
        assert!(
            stderr.contains("interrupted: finishing the current runs") && stderr.ends_with(last),
            "{stderr}"
        );
        let report: Value = serde_json::from_slice(&stdout).expect("JSON");
        assert_eq!(report["interrupted"], true);
        assert!(fs::read_to_string(&stored).expect("runs").ends_with('\n'), "whole lines");
    }
}

#[test]
fn a_race_writes_a_page() {
    let file = cells("race-html", CELLS);
    let page = file.with_file_name("race.html");
    let html = ["--pairs", "2", "--html", page.to_str().expect("UTF-8")];
    let (code, _, stderr) = fullpipe(&arguments(&file, &html));
    assert_eq!(code, 0, "{stderr}");
    assert_cost(&stderr);
    let text = fs::read_to_string(&page).expect("a page");
    assert!(text.contains("<h3>bbr1+iw compared with bbr1</h3>") && text.contains(r#"id="races""#));
    // If a page cannot be written, the command fails before the race.
    let folder = file.parent().and_then(Path::to_str).expect("UTF-8");
    let (error, _) = refusal(1, fullpipe(&arguments(&file, &["--pairs", "2", "--html", folder])));
    assert!(error.starts_with("cannot write "), "{error}");
}

#[test]
fn bounds_count_only_when_asked() {
    let ratio = |min: f64| {
        format!("[[ratio]]\nwhere = {{ loss = '0%' }}\narm = 'bbr1+iw'\nagainst = 'bbr1'\nmin = {min}\n")
    };
    let met = cells("race-met", &format!("{CELLS}{}", ratio(1.01)));
    let (code, stdout, _) = fullpipe(&arguments(&met, &["--pairs", "2", "--check"]));
    assert!(code == 0 && stdout.ends_with("1 of 1 bounds met\n"), "{stdout}");
    let missed = cells("race-missed", &format!("{CELLS}{}{}", ratio(1.01), ratio(50.0)));
    let (code, stdout, _) = fullpipe(&arguments(&missed, &["--pairs", "2"]));
    assert!(code == 0 && stdout.contains("\nFAIL  0%  bbr1+iw: lower end "), "{stdout}");
    assert_eq!(fullpipe(&arguments(&missed, &["--pairs", "2", "--check"])).0, 5);

    let (error, hint) =
        refusal(1, fullpipe(&arguments(&cells("race-unbounded", CELLS), &["--pairs", "2", "--check"])));
    assert!(error.starts_with("--check requires a [[ratio]]") && hint.contains("--check"), "{error}: {hint}");
}

#[test]
fn what_cannot_race_gets_one_line_and_a_hint() {
    let known = "known: reno, bic, cubic, vegas, bbr1, bbr3, surge; NAME+iw has the initial window of \
                 surge, 44 segments without a profile, NAME+PROFILE has the settings of a profile, and tcpa is short for bbr1+tcpa";
    let cases: [(&[&str], i32, &str, String); 10] = [
        (&["--arms", "bbr1,cubik"], 2, "unknown arm 'cubik'", format!("did you mean cubic? {known}")),
        (&["--arms", "bbr1,BBR3+iw"], 2, "unknown arm 'BBR3+iw'", format!("did you mean bbr3+iw? {known}")),
        (&["--arms", "bbr1,wireguard"], 2, "unknown arm 'wireguard'", known.into()),
        (&["--arms", ""], 2, "unknown arm ''", known.into()),
        (
            &["--arms", "bbr1,bbr"],
            2,
            "the arm bbr1 is listed twice",
            "list each arm once; bbr is another name of bbr1".into(),
        ),
        (
            &["--arms", "bbr1,bbr1+web"],
            1,
            "there is no profile 'web'",
            "add a table [profile.web] to the experiment, or to the file of --profiles".into(),
        ),
        (&["--arms", "bbr3"], 2, "a race needs at least two arms", "add an arm, such as bbr1".into()),
        (
            &["--against", "reno"],
            2,
            "the arm reno is not in the race",
            "compare with one of the arms: cubic, bbr1, bbr1+iw, surge".into(),
        ),
        (
            &["--world", "emu", "--against", "bbr3"],
            2,
            "the arm bbr3 is not in the race",
            "compare with one of the arms: cubic, bbr1, bbr1+iw, surge".into(),
        ),
        (
            &["--harm", "--full", "--world", "emu"],
            2,
            "the emulator would take days for the 525 cells of --harm --full",
            "remove --full, or choose cells with --paths".into(),
        ),
    ];
    for (arguments, code, message, expected) in cases {
        let (error, hint) = refusal(code, fullpipe(&[&["race"], arguments].concat()));
        assert_eq!((error.as_str(), hint), (message, expected), "{arguments:?}");
    }
    let (error, hint) = refusal(2, fullpipe(&["race", "--harm", "--victims", "cubic,web,cubic"]));
    assert_eq!(
        (error.as_str(), hint.as_str()),
        ("the victim cubic is listed twice", "list each victim once")
    );
    let (error, hint) = refusal(2, fullpipe(&["race", "--pairs", "1"]));
    assert!(error.contains("--pairs <N>") && !hint.is_empty(), "{error}: {hint}");
    let (error, _) = refusal(2, fullpipe(&["race", "--full", "--paths", "x.toml"]));
    assert!(error.contains("--full") && error.contains("--paths"), "{error}");
    let (error, hint) = refusal(1, fullpipe(&["race", "--paths", "no-such-file.toml"]));
    assert!(
        error.starts_with("cannot read no-such-file.toml: ") && hint.contains("--paths"),
        "{error}: {hint}"
    );

    for (from, to, problem) in [
        ("app = { request = '200B' }\n", "", "has a flow without a request"),
        ("bytes = '60kB'\n", "", "has a flow without a size"),
        (
            "[[flow]]\n",
            "[[flow]]\ncount = 2\n",
            "has flows that are not equal downloads, one after the other",
        ),
        ("rtt = '50ms'", "rtt = '50m'", "line 5, column 7: time '50m' has an unknown unit"),
        ("", "", "a race needs at least two pairs, but the experiment has only one seed"),
    ] {
        let file = cells("race-refused", &CELLS.replace(from, to));
        let (error, hint) = refusal(1, fullpipe(&arguments(&file, &[])));
        assert!(error.contains("small.toml: ") && error.ends_with(problem), "{error}: {hint}");
    }
}
