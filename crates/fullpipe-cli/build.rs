//! Tells the command from which commit and with which profile it was built, for `fullpipe --version`.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    let version = env!("CARGO_PKG_VERSION");
    let (commit, date) = source().unwrap_or_default();
    let long = if commit.is_empty() { version.to_owned() } else { format!("{version} ({commit} {date})") };
    println!("cargo::rustc-env=FULLPIPE_VERSION={long}");
    println!("cargo::rustc-env=FULLPIPE_COMMIT={commit}");
    println!("cargo::rustc-env=FULLPIPE_COMMIT_DATE={date}");
    println!("cargo::rustc-env=FULLPIPE_PROFILE={}", profile().unwrap_or_default());
    println!("cargo::rustc-env=FULLPIPE_TARGET={}", env::var("TARGET").unwrap_or_default());
    println!("cargo::rerun-if-env-changed=FULLPIPE_SOURCE");
    println!("cargo::rerun-if-changed=build.rs");
}

/// Returns the abbreviated commit of the source and its date. A package that is built without the repository
/// passes both in FULLPIPE_SOURCE, for example "0123456789 2026-01-31".
fn source() -> Option<(String, String)> {
    let said = match env::var("FULLPIPE_SOURCE") {
        Ok(said) => said,
        Err(_) => from_git()?,
    };
    let (commit, date) = said.trim().split_once(' ')?;
    Some((commit.to_owned(), date.to_owned()))
}

fn from_git() -> Option<String> {
    // A crate from a registry may be unpacked inside an unrelated repository.
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR").ok()?).join("../..");
    if !root.join(".ci").exists() {
        return None;
    }
    let git = |arguments: &[&str]| {
        let output = Command::new("git").current_dir(&root).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    // The log of HEAD changes with each commit and each checkout.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    println!("cargo::rerun-if-changed={}", root.join(log).display());
    git(&["log", "-1", "--abbrev=10", "--format=%h %cs"])
}

/// Returns the name of the build profile. Cargo itself passes only the profile that a profile inherits from,
/// so the name is read from the output folder: `target/PROFILE/build/fullpipe-cli-HASH/out`.
fn profile() -> Option<String> {
    let out = env::var("OUT_DIR").ok()?;
    let folder = Path::new(&out).ancestors().nth(3)?.file_name()?;
    Some(folder.to_str()?.to_owned())
}
