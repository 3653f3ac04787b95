//! Tests of captures as input of a diagnosis. The simulator writes the captures together with the true
//! values. The diagnosis must count each segment once and in the right category, and it must use the
//! information that only a capture contains.

use std::fs;

use crate::process::{folder, fullpipe, refusal};
use serde_json::Value;

/// Runs an experiment with one flow, and returns its first run and the diagnosis of that run's capture.
fn diagnosed(test: &str, experiment: &str) -> (Value, Value) {
    let folder = folder(test);
    let [file, capture] = ["it.toml", "it.pcapng"].map(|name| folder.join(name).display().to_string());
    fs::write(&file, experiment).expect("an experiment file");
    let (code, run, stderr) = fullpipe(&["run", &file, "--json", "--pcapng", &capture]);
    assert_eq!(code, 0, "{stderr}");
    let (code, diagnosis, stderr) = fullpipe(&["diagnose", &capture, "--link", "100mbit", "--json"]);
    assert_eq!(code, 0, "{stderr}");
    let document = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    (document(&run)["runs"][0]["flows"][0].take(), document(&diagnosis))
}

#[test]
fn losses_are_counted_once() {
    let (flow, diagnosis) = diagnosed(
        "capture-losses",
        "name = 'it'\nduration = '6s'\n[path]\nrate = '100mbit'\nrtt = '60ms'\nloss = '1%'\nqueue = '1bdp'\n\
         [[flow]]\ncc = 'bbr1'\n",
    );
    assert_eq!(diagnosis["input"]["kind"], "capture");
    let connection = &diagnosis["capture"]["connections"][0];
    let counts = &connection["counts"];
    assert!(flow["retransmits"].as_u64().expect("a count") > 100, "{flow}");
    assert_eq!(counts["retransmits"], flow["retransmits"], "{counts}");
    assert_eq!(counts["out_of_order"], 0, "{counts}");
    assert_eq!(counts["missed_bytes"], 0, "{counts}");
    assert_eq!((&connection["side"], &connection["handshake"]), (&"sender".into(), &true.into()));
    let rtt = connection["least_rtt_ms"].as_f64().expect("a time");
    assert!((60.0..60.5).contains(&rtt), "{rtt}");
    // The rate in the diagnosis and the goodput of the run are both payload rates. Data that is acknowledged
    // by the end had arrived half a round trip earlier.
    let (seen, true_rate) = (diagnosis["path"]["mean_bps"].as_f64(), flow["goodput_bps"].as_f64());
    let ratio = seen.expect("a rate") / true_rate.expect("a rate");
    assert!((0.97..1.01).contains(&ratio), "{ratio}");
}

#[test]
fn a_full_window_is_seen() {
    let (flow, diagnosis) = diagnosed(
        "capture-window",
        "name = 'it'\nduration = '6s'\n[path]\nrate = '100mbit'\nrtt = '60ms'\nqueue = '1bdp'\n\
         [host]\nrcvbuf = { fixed = '512KiB' }\n[[flow]]\ncc = 'cubic'\n",
    );
    assert_eq!(flow["retransmits"], 0);
    let connection = &diagnosis["capture"]["connections"][0];
    assert_eq!(connection["most_in_flight_bytes"], connection["last_window_bytes"], "{connection}");
    assert_eq!(diagnosis["findings"][0]["limit"], "rwnd", "{}", diagnosis["findings"]);
}

#[test]
fn what_cannot_be_read_is_said_in_a_line() {
    let folder = folder("capture-refused");
    let file = folder.join("it.pcap").display().to_string();
    // The inputs are a pcap header with an unexpected link type, a header without packets, and a truncated
    // header.
    let header = |link: u8| {
        let mut header = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0];
        header.extend([0; 8]);
        header.extend([0, 0, 4, 0, link, 0, 0, 0]);
        header
    };
    for (bytes, message) in [
        (header(105), "link type 105"),
        (header(1), "no TCP connection with data"),
        (header(1)[..10].to_vec(), "ends within its header"),
    ] {
        fs::write(&file, bytes).expect("a file");
        let (refused, _) = refusal(1, fullpipe(&["diagnose", &file]));
        assert!(refused.contains(message), "{refused}");
    }
}
