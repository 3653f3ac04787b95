//! Runs the Python tests with the library that Cargo has built, in an interpreter that has pytest:
//! `FULLPIPE_PYTHON`, or python3 in `PATH`. Tests that need pyarrow, polars or mypy are skipped without them.

use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Python program that ends with status 0 if the interpreter is new enough and has pytest.
const PROBE: &str = "import sys, pytest; sys.exit(sys.version_info < (3, 11))";

#[test]
fn the_python_tests_pass() {
    let python = env::var_os("FULLPIPE_PYTHON").unwrap_or_else(|| "python3".into());
    let probe = Command::new(&python).args(["-c", PROBE]).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        assert!(env::var_os("FULLPIPE_PYTHON").is_none(), "no Python 3.11 with pytest: {}", python.display());
        // Write to stderr directly, because the test harness captures the output of macros.
        let _ = writeln!(std::io::stderr(), "skipped: no python3 of version 3.11 or newer that has pytest");
        return;
    }
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = package(&crate_folder.join("python/fullpipe"));
    let status = Command::new(&python)
        .args(["-P", "-m", "pytest", "-q", "--doctest-glob", "python.md", "-c"])
        .arg(crate_folder.join("pyproject.toml"))
        .args([crate_folder.join("tests/python"), folder.join("fullpipe")])
        .arg(crate_folder.join("../../docs/guides/python.md"))
        .env("PYTHONPATH", &folder)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(crate_folder.join("../.."))
        .status();
    assert!(status.is_ok_and(|status| status.success()), "the output of pytest says what failed");
}

/// Puts the sources, the library, and the files for guests into one folder as in the wheel, and returns its parent.
fn package(sources: &Path) -> PathBuf {
    let parent = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python");
    let folder = parent.join("fullpipe");
    let _ = fs::remove_dir_all(&parent);
    fs::create_dir_all(&folder).expect("a folder");
    for entry in fs::read_dir(sources).expect("the sources").map(|entry| entry.expect("an entry")) {
        if entry.path().is_file() {
            fs::copy(entry.path(), folder.join(entry.file_name())).expect("a copy");
        }
    }
    // The test program and the library are in the same folder.
    let test = env::current_exe().expect("a path");
    let name = format!("{}_fullpipe{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX);
    let library = test.with_file_name(name);
    // The extension looks for the other two files in its own folder, so it must not be a symbolic link to a file
    // elsewhere.
    let extension = folder.join("_fullpipe.abi3.so");
    if fs::hard_link(&library, &extension).is_err() {
        fs::copy(&library, &extension).expect("a copy");
    }
    let preloaded = test.with_file_name("libfullpipe_uml.so");
    for file in [Path::new(env!("CARGO_BIN_EXE_fullpipe-guest")), &preloaded] {
        let name = file.file_name().expect("a name");
        std::os::unix::fs::symlink(file, folder.join(name)).expect("a link");
    }
    parent
}
