//! Copies over an emulated path: the choice of the number of connections, and many small files.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{Ends, MIB, content};
use crate::process::emulated::{allowed, is_disturbed, undisturbed};

/// The receive window limits a connection to 16 Mbit/s, and the link has room for four connections. One connection would
/// take 20 s for the first file. The second copy starts with the number in the state file, and with some more, because
/// these fill the link earlier. The third copy announces
/// 4000 small files on its only connection, and the content of the first files does not wait behind all announcements,
/// which would take six round trips.
#[test]
fn a_copy_over_a_path_adds_connections_while_the_window_limits_each() {
    if !allowed() {
        return;
    }
    let ends = Ends::new("copy-emulated-path");
    let files = [("large", content(21, 40 * MIB)), ("small", content(22, 8 * MIB))];
    for (name, content) in &files {
        fs::write(ends.path(name), content).expect("written");
    }
    fs::create_dir(ends.path("many")).expect("a folder");
    for number in 0..4_000 {
        fs::write(ends.path(&format!("many/{number}")), number.to_string()).expect("written");
    }
    let relay = format!("echo 4096 131072 327680 >/proc/sys/net/ipv4/tcp_rmem; {}", ends.relay_on_path());
    let state = ends.path("state/fullpipe");
    let script = format!(
        r#"copy() {{
             {program} copy {folder}/$1 relay://198.18.0.2/$1 --connections $2 --key {key} --peer {relay} --json || exit
         }}
         sleep 0.5; copy large auto
         mkdir -p {state}; cat >{state}/copy-peers.json <<EOF
{{"schema": "fullpipe.copy-peers/1", "peers": [{{"address": "198.18.0.2 9581", "key": "{relay}", "at": $(date +%s),
  "connections": 4, "rtt_us": 100000, "rate_bps": 55000000}}]}}
EOF
         copy small auto; copy many 1"#,
        program = crate::PROGRAM,
        folder = ends.path(""),
        key = ends.path("client.key"),
        relay = ends.relay,
    );
    let run = || {
        for name in ["in/large", "in/small", "in/many", "state"] {
            // None of them exists before the first attempt.
            let _ = fs::remove_dir_all(ends.path(name)).or_else(|_| fs::remove_file(ends.path(name)));
        }
        let output = Command::new(crate::PROGRAM)
            .args(["emu", "--rate", "60mbit", "--rtt", "100ms", "--serve", &relay, "--", "sh", "-c", &script])
            .env("XDG_STATE_HOME", ends.path("state"))
            .stdin(Stdio::null())
            .output()
            .expect("it runs");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        let reports: Vec<Value> = serde_json::Deserializer::from_slice(&output.stdout)
            .into_iter()
            .collect::<Result<_, _>>()
            .expect("JSON");
        for (name, content) in &files {
            assert!(fs::read(ends.path("in").to_owned() + "/" + name).expect("placed") == *content);
        }
        assert_eq!(fs::read_dir(ends.path("in/many")).expect("a folder").count(), 4_000);
        assert!(stderr.contains(" connections; 4 reached 55 Mbit/s to this peer before"), "{stderr}");
        let is_disturbed = is_disturbed(&stderr);
        (reports, is_disturbed)
    };
    let holds = |reports: &Vec<Value>| {
        let [first, second, many] = &reports[..] else { panic!("three reports: {reports:?}") };
        let number =
            |report: &Value, name: &str| report[name].as_f64().unwrap_or_else(|| panic!("{name}: {report}"));
        // The first byte leaves three round trips after the command, and four connections fill the link.
        let is_first = |report| (0.29..0.6).contains(&number(report, "first_byte_s"));
        let has_searched =
            (4.0..=8.0).contains(&number(first, "most_connections")) && number(first, "wall_s") < 13.0;
        let has_resumed =
            (5.0..=8.0).contains(&number(second, "most_connections")) && number(second, "wall_s") < 3.0;
        [first, second, many].into_iter().all(is_first) && has_searched && has_resumed
    };
    let reports = undisturbed(run, holds);
    assert!(holds(&reports), "{reports:#?}");
}
