//! Hashes the sources that determine the result of a run, so that stored results name the program that made them.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Crates whose code determines the result of a simulated or emulated run.
const CRATES: [&str; 6] = [
    "fullpipe-units",
    "fullpipe-tcp",
    "fullpipe-path",
    "fullpipe-lab",
    "fullpipe-linux",
    "fullpipe-accelerate",
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let hash = sources().map_or_else(String::new, |hash| format!("{hash:016x}"));
    println!("cargo::rustc-env=FULLPIPE_SOURCES={hash}");
}

/// Returns the hash of the sources; `None` outside the repository. A crate from a registry does not change without its
/// version, so it needs no hash.
fn sources() -> Option<u64> {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR").ok()?).join("../..");
    if !root.join(".ci").exists() {
        return None;
    }
    let mut files = Vec::new();
    for name in CRATES {
        let dir = root.join("crates").join(name).join("src");
        println!("cargo::rerun-if-changed={}", dir.display());
        collect(&dir, &mut files).ok()?;
    }
    files.sort();
    let mut hash = 0xcbf2_9ce4_8422_2325;
    for file in files {
        let name = file.strip_prefix(&root).ok()?.to_string_lossy().into_owned();
        hash = fnv(hash, name.as_bytes());
        hash = fnv(hash, &fs::read(&file).ok()?);
    }
    Some(hash)
}

/// Adds all files in `dir` and the folders below it.
fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// 64-bit FNV-1a.
fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}
