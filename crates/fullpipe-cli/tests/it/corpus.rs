//! Runs the fuzz targets of readers and protocols with a stable toolchain: on the committed corpus, on the
//! examples, and on mutations of both.
//!
//! The targets in `fuzz/src` are compiled again as part of this test. `fuzz/README.md` explains how
//! `scripts/fuzz` runs them under libFuzzer, which searches for inputs by code coverage.

use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use fullpipe::units::draw;

#[cfg(all(target_os = "linux", feature = "copy"))]
#[path = "../../../../fuzz/src/copy.rs"]
#[allow(unreachable_pub, reason = "public in the crate of the targets")]
mod copy;
#[path = "../../../../fuzz/src/protocols.rs"]
#[allow(unreachable_pub, reason = "public in the crate of the targets")]
mod protocols;
#[path = "../../../../fuzz/src/readers.rs"]
#[allow(unreachable_pub, reason = "public in the crate of the targets")]
mod readers;

struct Target {
    name: &'static str,
    run: fn(&[u8]),
    /// Further inputs: a folder of the project, and a suffix that selects files in it by name.
    examples: &'static [(&'static str, &'static str)],
}

const TARGETS: &[Target] = &[
    target("capture", readers::input, &[]),
    target(
        "iperf3_text",
        readers::input,
        &[("examples/iperf3", ".txt"), ("examples/cross-border", "iperf3.txt")],
    ),
    target("iperf3_json", readers::input, &[("examples/iperf3", ".json")]),
    target("events", readers::input, &[("examples/iperf3", ".jsonl")]),
    target("ss", readers::input, &[("examples/ss", ".txt")]),
    target("trace", readers::input, &[]),
    target("sysctl", readers::sysctl, &[("examples/cross-border", "sysctl-before.txt")]),
    target("experiment", readers::experiment, &[("experiments", ".toml")]),
    target("iperf3_protocol", protocols::iperf3, &[]),
    target("http", protocols::http, &[]),
    target("netlink", protocols::netlink, &[]),
    target("journal", protocols::journal, &[]),
    #[cfg(all(target_os = "linux", feature = "copy"))]
    target("copy_frames", copy::frames, &[]),
];

const fn target(
    name: &'static str,
    run: fn(&[u8]),
    examples: &'static [(&'static str, &'static str)],
) -> Target {
    Target { name, run, examples }
}

/// Default number of mutations per target; `FULLPIPE_FUZZ_EXECUTIONS` overrides it.
const EXECUTIONS: u64 = 400;
/// Maximum length of an input to mutate; longer inputs are truncated.
const LONGEST: usize = 16 << 10;

/// Texts that often break readers of numbers, of structure and of text.
const TOKENS: [&[u8]; 24] = [
    b"0",
    b"-1",
    b"18446744073709551615",
    b"18446744073709551616",
    b"9223372036854775808",
    b"1e308",
    b"1e-320",
    b"NaN",
    b"inf",
    b"-nan",
    b"99999999999999999999999999",
    b"0.0000000001",
    b"\0",
    b"\xff\xfe",
    b"\r\n",
    b"\n\n",
    b"{",
    b"}",
    b"[[",
    b"\"",
    b":",
    b",",
    b"\xe2\x80\xae",
    b"%00",
];

fn inputs(target: &Target) -> Vec<(PathBuf, Vec<u8>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let corpus = root.join("fuzz/corpus").join(target.name);
    let examples = target.examples.iter().map(|(folder, end)| (root.join(folder), *end));
    let mut files: Vec<PathBuf> = Vec::new();
    // Some targets have no corpus, and use only examples.
    for (folder, end) in examples.chain(corpus.is_dir().then_some((corpus, ""))) {
        let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        let paths = entries.map(|entry| entry.expect("an entry").path());
        files.extend(paths.filter(|path| path.to_string_lossy().ends_with(end)));
    }
    files.sort();
    assert!(!files.is_empty(), "{} has no inputs", target.name);
    files.into_iter().map(|path| (path.clone(), fs::read(&path).expect("an input"))).collect()
}

fn passes(target: &Target, data: &[u8], what: &dyn std::fmt::Display) {
    if catch_unwind(|| (target.run)(data)).is_err() {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{}", target.name));
        fs::write(&file, data).expect("a copy of the input");
        panic!("{} fails on {what}; the input is {}", target.name, file.display());
    }
}

#[test]
fn the_corpora_and_the_examples_pass() {
    for target in TARGETS {
        for (path, data) in inputs(target) {
            passes(target, &data, &path.display());
        }
    }
}

/// Returns `input` with one to eight changes.
fn mutated(seed: u64, input: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = input[..input.len().min(LONGEST)].to_vec();
    let mut ordinal = 0;
    let mut any = |below: usize| {
        ordinal += 1;
        (draw(seed, 0x6675_7a7a, ordinal) % below.max(1) as u64) as usize
    };
    for _ in 0..=any(8) {
        let at = any(bytes.len() + 1);
        let length = any(64).min(bytes.len() - at);
        match any(8) {
            0 if at < bytes.len() => bytes[at] ^= 1 << any(8),
            1 if at < bytes.len() => bytes[at] = any(256) as u8,
            2 => drop(bytes.drain(at..at + length)),
            3 => {
                let piece = bytes[at..at + length].to_vec();
                bytes.splice(at..at, piece);
            }
            4 => bytes.truncate(at),
            5 => {
                let from = any(other.len());
                let piece = &other[from..(from + any(512)).min(other.len())];
                bytes.splice(at..at, piece.iter().copied());
            }
            6 => drop(bytes.splice(at..at, TOKENS[any(TOKENS.len())].iter().copied())),
            // Replace the first number at or after this position.
            _ => {
                let Some(start) = bytes[at..].iter().position(u8::is_ascii_digit) else { continue };
                let start = at + start;
                let digits = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                drop(bytes.splice(start..start + digits, TOKENS[any(12)].iter().copied()));
            }
        }
    }
    bytes
}

#[test]
fn mutations_of_them_pass() {
    let executions =
        std::env::var("FULLPIPE_FUZZ_EXECUTIONS").map_or(EXECUTIONS, |text| text.parse().expect("a number"));
    for target in TARGETS {
        let inputs = inputs(target);
        for seed in 0..executions {
            let number = seed as usize;
            let (path, input) = &inputs[number % inputs.len()];
            let (_, other) = &inputs[(number / inputs.len()) % inputs.len()];
            let data = mutated(seed, input, other);
            passes(target, &data, &format_args!("{} with seed {seed}", path.display()));
        }
    }
}
