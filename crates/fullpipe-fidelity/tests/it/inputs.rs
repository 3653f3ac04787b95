//! Diagnoses every kind of input for the situations and some drawn variants, and compares the results with
//! the known limits. The published table has more variants.

use std::process::Command;

use crate::process::folder;

const SITUATIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/kernel-situations.toml");

/// At least 98 % of the decided answers are correct, every undecided answer lists the limit among its
/// candidates, and the inputs of a stored run are reused.
#[test]
fn decided_answers_are_right_and_others_contain_the_limit() {
    let dir = folder("inputs");
    let mut tables = Vec::new();
    for _ in 0..2 {
        let made = Command::new(crate::PROGRAM)
            .args(["--situations", "--inputs", SITUATIONS, "--variants", "3", "--check", "--out"])
            .arg(&dir)
            .output()
            .expect("the program");
        let table = String::from_utf8(made.stdout).expect("text");
        assert!(made.status.success(), "{table}\n{}", String::from_utf8_lossy(&made.stderr));
        tables.push(table);
    }
    assert!(tables[0].contains("| capture | 44 |") && tables[0] == tables[1], "{}", tables[0]);
    assert_eq!(std::fs::read_dir(&dir).expect("a folder").count(), 44);
}
