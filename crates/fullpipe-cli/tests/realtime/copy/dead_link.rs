//! A copy over a link that carries nothing for longer than the connections wait.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{Ends, MIB, content};
use crate::process::emulated::allowed;

/// The connections are lost after 30 s without an acknowledgement. When the link is back, the copy connects again, and
/// continues where the data was durable.
#[test]
#[ignore = "a minute: cargo test -p fullpipe-cli --features copy --test realtime -- --ignored --nocapture link_is_dead"]
fn a_copy_continues_after_its_link_is_dead_for_half_a_minute() {
    if !allowed() {
        return;
    }
    let ends = Ends::new("copy-dead-link");
    fs::write(ends.path("large"), content(9, 48 * MIB)).expect("written");
    let relay = ends.relay_on_path();
    let script = format!(
        "sleep 0.5
         {program} copy {source} relay://198.18.0.2/large --key {key} --peer {relay} --json --limit 40mbit & copy=$!
         sleep 5; ip route add blackhole 198.18.0.2/32; sleep 35; ip route del blackhole 198.18.0.2/32
         wait $copy",
        program = crate::PROGRAM,
        source = ends.path("large"),
        key = ends.path("client.key"),
        relay = ends.relay,
    );
    let output = Command::new(crate::PROGRAM)
        .args(["emu", "--rate", "100mbit", "--rtt", "20ms"])
        .args(["--serve", &relay, "--", "sh", "-c", &script])
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    println!("{report:#}\n{stderr}");
    assert!(report["wall_s"].as_f64() > Some(35.0), "{report}");
    assert_eq!(report["reconnects"], 1, "{report}");
    // Data that was durable before the interruption is not resent.
    assert!(report["sent_bytes"].as_u64() < Some(56 * MIB as u64), "{report}");
    assert!(
        fs::read(ends.path("in/large")).expect("placed") == fs::read(ends.path("large")).expect("a file")
    );
}
