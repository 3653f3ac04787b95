//! Tests of the module boundaries inside the crate: an operation reserved to one folder does not compile in
//! another.
//!
//! Each test adds one module to `conn/` in a copy of the sources. If the module attempts a reserved
//! operation, the compiler must reject it. A module with only allowed operations compiles, so every error is
//! due to a boundary.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Source of a module with operations that are allowed everywhere: reading loss marks and creating
/// transmissions without data.
const ALLOWED: &str = "
use fullpipe_units::Instant;
use crate::recovery::scoreboard::Scoreboard;
use crate::tx::Transmit;
use crate::wire::Segment;

pub(super) fn look(board: &Scoreboard, segment: Segment, now: Instant) -> (u64, Transmit) {
    (board.lost_pending(), Transmit::without_data(segment, now))
}
";

/// Source of a module with forbidden operations. Each line that must fail to compile ends with its error
/// code.
const FORBIDDEN: &str = "
use fullpipe_units::Instant;
use crate::recovery::LossRecovery;
use crate::recovery::newreno::NewReno;
use crate::recovery::scoreboard::Scoreboard;
use crate::tx::{Departure, Transmit};
use crate::wire::Segment;

pub(super) fn mark(board: &mut Scoreboard, recovery: &mut LossRecovery) {
    board.mark_lost(0); // E0624
    NewReno::mark_on_timeout(&mut recovery.board, |_, _| {}); // E0624
    recovery.newreno.detect(&mut recovery.board, true, true, |_, _| {}); // E0624
}

pub(super) fn fill(segment: Segment, departure: Departure, now: Instant) {
    let mut empty = Transmit::without_data(segment.clone(), now);
    empty.segment.len = 1_448; // E0616
    empty.gso_size = 1_448; // E0616
    let _ = Transmit::of_data(departure, segment, 1_448); // E0624
}
";

/// Source of a module with another forbidden operation. The compiler reports this error only if there are no
/// errors of the kinds above.
const MADE_BY_HAND: &str = "
use fullpipe_units::Instant;
use crate::tx::Transmit;
use crate::wire::Segment;

pub(super) fn make(segment: Segment, depart_at: Instant) -> Transmit {
    Transmit { segment, gso_size: 1_448, depart_at, cut: Some(0) } // E0451
}
";

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("sources") {
        let path = entry.expect("an entry").path();
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::write(target, fs::read(&path).expect("a source file")).expect("a copy");
        }
    }
}

/// Type-checks the library at `root`. Returns the compiler errors as the compiler prints them, one per line.
fn check(name: &str, root: &Path, out: &Path, dependency: Option<&Path>) -> Vec<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut command = Command::new(rustc);
    command.args([
        "--edition=2024",
        "--crate-type=rlib",
        "--emit=metadata",
        "--error-format=short",
        "--cap-lints=allow",
    ]);
    command.arg(format!("--crate-name={name}")).arg("-o").arg(out).arg(root);
    if let Some(dependency) = dependency {
        command.arg("--extern").arg(format!("fullpipe_units={}", dependency.display()));
    }
    // Run in this directory, which selects the project's toolchain.
    let output = command.current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("a compiler");
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    let errors: Vec<String> =
        printed.lines().filter(|line| line.contains(": error")).map(str::to_owned).collect();
    assert_eq!(output.status.success(), errors.is_empty(), "{printed}");
    errors
}

/// Returns the line and the code of each compiler error in the module `source`, compiled as part of `conn/`.
fn errors_of(source: &str, name: &str) -> Vec<(usize, String)> {
    let crates = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let tree = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("walls-{name}"));
    copy(&crates.join("fullpipe-tcp/src"), &tree);
    fs::write(tree.join("conn/intruder.rs"), source).expect("a module");
    let conn = fs::read_to_string(tree.join("conn/mod.rs")).expect("a source file");
    fs::write(tree.join("conn/mod.rs"), conn + "\nmod intruder;\n").expect("a source file");
    let units = tree.join("libfullpipe_units.rmeta");
    let none = check("fullpipe_units", &crates.join("fullpipe-units/src/lib.rs"), &units, None);
    assert!(none.is_empty(), "{none:?}");
    let errors =
        check("fullpipe_tcp", &tree.join("lib.rs"), &tree.join("libfullpipe_tcp.rmeta"), Some(&units));
    let place = |error: &String| {
        let rest = error.split_once("intruder.rs:").unwrap_or_else(|| panic!("elsewhere: {error}")).1;
        let line = rest.split(':').next().and_then(|line| line.parse().ok()).expect("a line");
        let code = rest.split_once("error[").expect("a code").1.split(']').next().expect("a code");
        (line, code.to_owned())
    };
    let mut places: Vec<_> = errors.iter().filter(|error| !error.contains("aborting")).map(place).collect();
    places.sort();
    places.dedup();
    places
}

/// A module under `conn/` that contains only allowed operations compiles.
#[test]
fn what_is_allowed_compiles() {
    assert_eq!(errors_of(ALLOWED, "allowed"), []);
}

/// Only `recovery/` can mark data lost, and only `tx/` can create a transmission with data.
#[test]
fn what_is_forbidden_does_not_compile() {
    for (source, name) in [(FORBIDDEN, "forbidden"), (MADE_BY_HAND, "by-hand")] {
        let expected: Vec<(usize, String)> = source
            .lines()
            .enumerate()
            .filter_map(|(index, line)| Some((index + 1, line.split_once("// ")?.1.to_owned())))
            .collect();
        assert_eq!(errors_of(source, name), expected, "{name}");
    }
}
