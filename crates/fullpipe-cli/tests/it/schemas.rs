//! Tests of the schemas of fullpipe's JSON documents: the files in `docs/schema` are current, and the output
//! of the command conforms to them.
//!
//! `SNAPSHOTS=overwrite cargo test -p fullpipe-cli --features copy,tables --test it schemas::` regenerates the schemas.

use std::fs;
use std::path::{Path, PathBuf};

use fullpipe::json::schema;
use serde_json::Value;

use crate::process::{example, fullpipe};
use crate::snapshots::is_current;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema")
}

/// Returns the schemas of profiles, and of all JSON documents and JSON lines that the command prints, except
/// those of iperf3.
fn schemas() -> Vec<(&'static str, String)> {
    let mut schemas = vec![
        ("diagnose", schema::<fullpipe::Diagnosis>()),
        ("whatif", schema::<fullpipe::WhatIf>()),
        ("flow-counts", schema::<fullpipe::FlowCounts>()),
        ("run", schema::<fullpipe::lab::results::Report>()),
        ("run-line", schema::<fullpipe::lab::results::Run>()),
        ("race", schema::<fullpipe::race::RaceReport>()),
        ("harm", schema::<fullpipe::race::HarmReport>()),
        ("profile", schema::<fullpipe::lab::profile::Profile>()),
        ("iperf3-added", schema::<fullpipe::diagnosis::Iperf3Additions<Value>>()),
    ];
    #[cfg(target_os = "linux")]
    schemas.extend([
        ("watch-line", schema::<fullpipe::watch::Line<'_>>()),
        ("tune", schema::<fullpipe::tune::Outcome<'_>>()),
        ("tune-show", schema::<fullpipe::tune::Show>()),
        ("tune-status", schema::<fullpipe::tune::StatusReport>()),
        ("tune-confirm", schema::<fullpipe::tune::Confirmation>()),
    ]);
    #[cfg(all(target_os = "linux", feature = "copy"))]
    schemas.push(("copy", schema::<fullpipe::relay::CopyReport>()));
    #[cfg(feature = "tables")]
    schemas.push(("dataset", schema::<fullpipe::dataset::Manifest>()));
    schemas.into_iter().map(|(name, text)| (name, text.expect("serialisable"))).collect()
}

#[test]
fn schemas_in_docs_are_current() {
    let schemas = schemas();
    for (name, text) in &schemas {
        is_current(&folder().join(format!("{name}.json")), text);
    }
    let entries = fs::read_dir(folder()).expect("a folder").map(|entry| entry.expect("an entry").path());
    for file in entries.filter(|file| file.extension().is_some_and(|end| end == "json")) {
        let known = schemas.iter().any(|(name, _)| file.file_stem().is_some_and(|stem| stem == *name));
        let is_complete = cfg!(all(target_os = "linux", feature = "copy", feature = "tables"));
        assert!(known || !is_complete, "{} is the schema of nothing", file.display());
    }
}

/// Returns each violation of `schema` by `value`, with its location; returns an empty list if `value`
/// conforms. Only the keywords that occur in fullpipe's schemas are supported. Any other keyword is reported,
/// so that none is ignored.
fn objections(place: &str, value: &Value, schema: &Value, root: &Value) -> Vec<String> {
    let Some(schema) = schema.as_object() else {
        return if *schema == Value::Bool(true) { Vec::new() } else { vec![format!("{place}: not allowed")] };
    };
    let is = |name: &Value| match name.as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_u64() || value.is_i64(),
        Some("number") => value.is_number(),
        Some("string") => value.is_string(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => false,
    };
    let fits = |of: &Value| objections(place, value, of, root).is_empty();
    let mut found = Vec::new();
    for (keyword, wanted) in schema {
        let holds = match keyword.as_str() {
            "$schema" | "$defs" | "title" | "description" | "default" | "format" => true,
            "type" => wanted.as_array().map_or_else(|| is(wanted), |names| names.iter().any(is)),
            "const" => value == wanted,
            "enum" => wanted.as_array().is_some_and(|values| values.contains(value)),
            "minimum" => value.as_f64().is_none_or(|number| Some(number) >= wanted.as_f64()),
            "maximum" => value.as_f64().is_none_or(|number| Some(number) <= wanted.as_f64()),
            "minItems" => value.as_array().is_none_or(|items| items.len() as u64 >= wanted.as_u64().unwrap()),
            "maxItems" => value.as_array().is_none_or(|items| items.len() as u64 <= wanted.as_u64().unwrap()),
            "anyOf" => wanted.as_array().is_some_and(|all| all.iter().any(fits)),
            "oneOf" => wanted.as_array().is_some_and(|all| all.iter().filter(|one| fits(one)).count() == 1),
            "required" => value.as_object().is_none_or(|keys| {
                wanted
                    .as_array()
                    .is_some_and(|all| all.iter().all(|key| keys.contains_key(key.as_str().unwrap())))
            }),
            "$ref" => {
                let path =
                    wanted.as_str().and_then(|path| path.strip_prefix('#')).expect("a path in this schema");
                found.extend(objections(place, value, root.pointer(path).expect("a definition"), root));
                true
            }
            "items" => {
                for (number, item) in value.as_array().into_iter().flatten().enumerate() {
                    found.extend(objections(&format!("{place}[{number}]"), item, wanted, root));
                }
                true
            }
            "properties" => {
                // A key that the schema does not contain is a violation, and so is a missing required key.
                let open = schema.contains_key("additionalProperties");
                for (key, value) in value.as_object().into_iter().flatten() {
                    match wanted.get(key) {
                        Some(of) => found.extend(objections(&format!("{place}.{key}"), value, of, root)),
                        None if open => {}
                        None => found.push(format!("{place}.{key}: not in the schema")),
                    }
                }
                true
            }
            "additionalProperties" => {
                let known = schema.get("properties");
                for (key, value) in value.as_object().into_iter().flatten() {
                    if known.is_none_or(|known| known.get(key).is_none()) {
                        found.extend(objections(&format!("{place}.{key}"), value, wanted, root));
                    }
                }
                true
            }
            other => panic!("{place}: the keyword {other} is not known here"),
        };
        if !holds {
            found.push(format!("{place}: {keyword} is {wanted}, and this is {value}"));
        }
    }
    found
}

#[track_caller]
fn keeps(name: &str, document: &Value) {
    let schemas = schemas();
    let (_, text) = schemas.iter().find(|(of, _)| *of == name).expect("a schema");
    let schema: Value = serde_json::from_str(text).expect("JSON");
    assert_eq!(objections(name, document, &schema, &schema), [""; 0]);
}

#[track_caller]
fn printed(arguments: &[&str]) -> Value {
    let (code, stdout, stderr) = fullpipe(arguments);
    assert_eq!(code, 0, "{stderr}");
    serde_json::from_str(&stdout).expect("JSON")
}

/// Asserts that a document that diagnose prints conforms to its schema, and that parsing the document
/// restores the original value.
#[track_caller]
fn diagnosed(arguments: &[&str]) {
    let document = printed(&[&["diagnose"], arguments, &["--json"]].concat());
    keeps("diagnose", &document);
    let diagnosis: fullpipe::Diagnosis = serde_json::from_value(document.clone()).expect("a diagnosis");
    assert_eq!(serde_json::to_value(&diagnosis).expect("JSON"), document);
}

#[test]
fn diagnoses_keep_their_schema_and_parse() {
    let log = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/snapshots/small.iperf3.txt");
    diagnosed(&[log, "--link", "20mbit", "--rtt", "100ms", "--offered", "15mbit"]);
    diagnosed(&[&example("iperf3/made-udp-3.1.txt"), "--link", "30mbit", "--rtt", "100ms"]);
    diagnosed(&[&example("iperf3/udp-reverse.txt"), "--link", "20mbit", "--rtt", "20ms"]);
    diagnosed(&[&example("ss/cubic-loss.txt"), "--link", "100mbit"]);
}

#[test]
fn runs_keep_their_schema() {
    let out = crate::process::folder("schemas");
    let experiment = out.join("small.toml");
    let text = "name = 'small'\nduration = '4s'\n[path]\nrate = '20mbit'\nrtt = '50ms'\nloss = '0.1%'\n\
                [[flow]]\ncc = 'cubic'\n[[expect]]\nmetric = 'utilisation'\nmin = 0.1\n";
    fs::write(&experiment, text).expect("an experiment");
    let (experiment, out_text) = (experiment.to_str().expect("text"), out.to_str().expect("text"));
    let arguments = ["run", experiment, "--out", out_text, "--pcapng", &format!("{out_text}/small.pcapng")];
    keeps("run", &printed(&[&arguments[..], &["--json"]].concat()));
    for line in fs::read_to_string(out.join("results.jsonl")).expect("lines").lines() {
        keeps("run-line", &serde_json::from_str(line).expect("JSON"));
    }
    // The input may also be a capture or a trace; the resulting documents have parts that the document of a
    // log does not have.
    diagnosed(&[&format!("{out_text}/small.pcapng"), "--link", "20mbit"]);
    diagnosed(&[&format!("{out_text}/trace.csv"), "--link", "20mbit"]);
}

#[test]
fn races_keep_their_schema() {
    let file = crate::process::folder("schemas-race").join("small.toml");
    let text = "name = 'small'\nduration = '60s'\n[path]\nrate = '20mbit'\nrtt = '20ms'\nloss = ['0%', '1%']\n\
                [[flow]]\ncc = 'bbr1'\nbytes = '60kB'\napp = { request = '200B' }\n\
                [[ratio]]\narm = 'bbr3'\nagainst = 'bbr1'\nmin = 0.5\n";
    fs::write(&file, text).expect("an experiment");
    let arguments = ["race", "--paths", file.to_str().expect("text"), "--arms", "bbr1,bbr3", "--pairs", "3"];
    let document = printed(&[&arguments[..], &["--json"]].concat());
    keeps("race", &document);
    let report: fullpipe::race::RaceReport = serde_json::from_value(document.clone()).expect("a report");
    assert_eq!(serde_json::to_value(&report).expect("JSON"), document);
}

#[test]
fn answers_of_whatif_keep_their_schema() {
    let path = ["whatif", "--link", "20mbit", "--rtt", "100ms", "--loss", "0.1%", "--json"];
    keeps("whatif", &printed(&[&path[..], &["--offered", "15mbit"]].concat()));
    keeps("flow-counts", &printed(&[&path[..], &["--flows", "1..2"]].concat()));
}

#[cfg(target_os = "linux")]
#[test]
fn documents_of_tune_keep_their_schemas() {
    let root = crate::process::folder("schemas-root");
    for (file, text) in [
        ("proc/sys/kernel/osrelease", "6.1.0\n"),
        ("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
        ("proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t262144\n"),
        ("proc/sys/net/ipv4/tcp_congestion_control", "cubic\n"),
    ] {
        let file = root.join(file);
        fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        fs::write(file, text).expect("a file");
    }
    let root = ["--root", root.to_str().expect("text"), "--json"];
    let path = ["--link", "20mbit", "--rtt", "100ms", "--loss", "0.1%"];
    keeps("tune", &printed(&[&["tune"], &path[..], &root].concat()));
    keeps("tune-show", &printed(&[&["tune", "show", "--rtt", "100ms"], &root[..]].concat()));
    let applied = printed(&[&["tune", "plan", "--apply"], &path[..], &root].concat());
    keeps("tune", &applied);
    keeps("tune-status", &printed(&[&["tune", "status"], &root[..]].concat()));
    keeps("tune-confirm", &printed(&[&["tune", "confirm"], &root[..]].concat()));
}
