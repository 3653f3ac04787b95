//! Tests that run the fuzz targets with a stable toolchain, on the committed corpus and on random input.
//!
//! The targets in `fuzz/src` are also compiled as part of these tests. `fuzz/README.md` explains how to run
//! them under cargo-fuzz, which uses code coverage to search for inputs.

use std::fs;
use std::path::Path;

use fullpipe_units::draw;

#[path = "../../../../fuzz/src/operations.rs"]
#[allow(unreachable_pub, reason = "public in the crate of the targets")]
mod operations;
#[path = "../../../../fuzz/src/options.rs"]
#[allow(unreachable_pub, reason = "public in the crate of the targets")]
mod options;
#[path = "../../../../fuzz/src/wire.rs"]
#[allow(unreachable_pub, reason = "public in the crate of the targets")]
mod wire;

type Target = (&'static str, fn(&[u8]));
const TARGETS: [Target; 3] =
    [("wire", wire::run), ("options", options::run), ("operations", operations::run)];

/// Default number of random operation sequences. The environment variable `FULLPIPE_FUZZ_EXECUTIONS`
/// overrides it.
const EXECUTIONS: u64 = 1_000;

#[test]
fn the_corpus_passes() {
    for (name, target) in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
        let mut files: Vec<_> =
            fs::read_dir(&folder).expect("a corpus").map(|entry| entry.expect("one").path()).collect();
        files.sort();
        assert!(files.len() >= 5, "{name}: {} inputs", files.len());
        for path in files {
            let data = fs::read(&path).expect("an input");
            let result = std::panic::catch_unwind(|| target(&data));
            assert!(result.is_ok(), "{} fails", path.display());
        }
    }
}

/// Returns random octets for the `operations` fuzz target. The octets favour operations that move packets, so
/// that connections are established.
fn random(seed: u64) -> Vec<u8> {
    let any = |ordinal| draw(seed, 0x66757a7a, ordinal);
    let len = 8 + any(0) % 600;
    let mut bytes: Vec<u8> = (0..7).map(|i| (any(1) >> (8 * i)) as u8).collect();
    for i in 0..len {
        let bits = any(2 + i);
        let operation = if bits & 3 == 0 {
            (bits >> 8) as u8 & 15
        } else {
            [7, 8, 1, 3, 5, 8, 9, 10][(bits >> 8) as usize & 7]
        };
        let operation = if bits >> 56 == 0 { 0x71 + (bits >> 32) as u8 % 3 } else { operation };
        bytes.push(operation | (bits >> 16) as u8 & 0x80);
        bytes.push((bits >> 24) as u8);
    }
    bytes
}

#[test]
fn random_operations() {
    let executions =
        std::env::var("FULLPIPE_FUZZ_EXECUTIONS").map_or(EXECUTIONS, |text| text.parse().expect("a number"));
    for seed in 0..executions {
        let data = random(seed);
        let result = std::panic::catch_unwind(|| operations::run(&data));
        assert!(result.is_ok(), "seed {seed}");
    }
    println!("{executions} sequences of operations");
}
