//! Tests of captures that runs write. The captures are read with the library that wrote them, and with
//! tshark, which is independent of this project. A capture must show the run as it happened, including each
//! retransmission.
//!
//! Tests that need tshark, or privileges for the emulator, are skipped with a message if these are missing.
//! With `FULLPIPE_REQUIRE_TSHARK=1` and `FULLPIPE_REQUIRE_NETNS=1`, these tests fail instead of being
//! skipped.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{folder, fullpipe, has, refusal};
use pcap_file::DataLink;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use serde_json::Value;

/// Experiment with random loss, a queue that overflows, and two flows. The experiment has two points; the
/// packets of the first point are captured.
const LOSSY: &str = "name = 'lossy'\nduration = '3s'\n[path]\nrate = '20mbit'\nrtt = '40ms'\nloss = '1%'\nqueue = '1bdp'\n\
                     [[flow]]\ncc = ['bbr1', 'reno']\ncount = 2\n";

/// Returns the folder of the test, the path of the experiment file and the path of the capture.
fn experiment(test: &str) -> (PathBuf, String, String) {
    let folder = folder(test);
    let [file, capture] = ["lossy.toml", "lossy.pcapng"].map(|name| folder.join(name));
    fs::write(&file, LOSSY).expect("an experiment file");
    let text = |path: PathBuf| path.to_str().expect("UTF-8").to_owned();
    (folder, text(file), text(capture))
}

/// Runs the experiment with a capture, and returns the first run in the JSON document.
fn captured(file: &str, capture: &str, more: &[&str]) -> Value {
    let arguments = [&["run", file, "--repeat", "2", "--json", "--pcapng", capture], more].concat();
    let (code, stdout, stderr) = fullpipe(&arguments);
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains(" packets of run 'cc=bbr1' with seed 1\n"), "{stderr}");
    serde_json::from_str::<Value>(&stdout).expect("JSON")["runs"][0].take()
}

pub(crate) fn retransmits(run: &Value) -> u64 {
    let flows = run["flows"].as_array().expect("flows");
    flows.iter().map(|flow| flow["retransmits"].as_u64().expect("a number")).sum()
}

/// Counts of the packets in a capture file.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Summary {
    pub(crate) outbound: u64,
    pub(crate) inbound: u64,
    /// Number of data segments that contain no new data: they end no later than earlier data of their flow.
    pub(crate) resent: u64,
    /// Numbers of new data segments with and without the PSH flag.
    pushed: [u64; 2],
    pub(crate) comments: BTreeMap<String, u64>,
}

fn be32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

pub(crate) fn summary(capture: &str) -> Summary {
    let mut reader = PcapNgReader::new(File::open(capture).expect("a capture")).expect("pcapng");
    let mut summary = Summary::default();
    let mut sent = BTreeMap::<[u8; 2], u32>::new();
    let mut last = std::time::Duration::ZERO;
    while let Some(block) = reader.next_block() {
        let packet = match block.expect("a block") {
            Block::InterfaceDescription(interface) => {
                assert_eq!((interface.linktype, interface.snaplen), (DataLink::RAW, 96));
                assert!(interface.options.contains(&InterfaceDescriptionOption::IfTsResol(9)));
                continue;
            }
            Block::EnhancedPacket(packet) => packet,
            other => panic!("{other:?}"),
        };
        assert!(packet.timestamp >= last && packet.timestamp.as_secs() < 3, "{packet:?}");
        last = packet.timestamp;
        let (ip, tcp) = packet.data.split_at(20);
        assert_eq!(u32::from(u16::from_be_bytes([ip[2], ip[3]])), packet.original_len);
        let outbound = packet.options.contains(&EnhancedPacketOption::Flags(2));
        let ends: [u8; 2] = if outbound { [1, 2] } else { [2, 1] };
        assert_eq!([ip[15], ip[19]], ends, "addresses and direction");
        for option in &packet.options {
            if let EnhancedPacketOption::Comment(comment) = option {
                assert!(outbound);
                *summary.comments.entry(comment.clone().into_owned()).or_default() += 1;
            }
        }
        if !outbound {
            summary.inbound += 1;
            continue;
        }
        summary.outbound += 1;
        let payload = packet.original_len - 20 - u32::from(tcp[12] >> 4) * 4;
        let end = be32(&tcp[4..]).wrapping_add(payload);
        let newest = sent.entry([tcp[0], tcp[1]]).or_insert(end.wrapping_sub(payload));
        if payload > 0 {
            // TCP sequence numbers are compared modulo 2^32.
            let advances = end.wrapping_sub(*newest) as i32 > 0;
            summary.resent += u64::from(!advances);
            summary.pushed[usize::from(tcp[13] & 0x08 == 0)] += u64::from(advances);
            *newest = if advances { end } else { *newest };
        }
    }
    assert_eq!(sent.len(), 2, "flows");
    summary
}

#[test]
fn a_simulated_run_is_in_its_capture_packet_by_packet() {
    let (folder, file, capture) = experiment("pcapng-sim");
    let run = captured(&file, &capture, &[]);
    let read = summary(&capture);
    let path = |name: &str| run["path"][name].as_u64().expect("a number");
    let (lost, full) = (path("random_drops"), path("queue_drops"));
    assert!(lost > 20 && full > 20, "{lost} lost, {full} dropped by the full queue");
    let comments = [
        ("dropped by the path: random loss".to_owned(), lost),
        ("dropped by the path: queue full".to_owned(), full),
    ];
    assert_eq!(read.comments, BTreeMap::from(comments));
    assert_eq!(read.resent, retransmits(&run));
    // PSH is set on a segment that completes half of the receiver's window, and on a segment at which the
    // queued data ends.
    let [with, without] = read.pushed;
    assert!(with > 10 && without > 20 * with, "{:?}", read.pushed);
    // A packet that was sent was either delivered or dropped, or it was still in the network at the end of
    // the run. At most one full queue plus one round trip's worth of packets was still in the network.
    let gone = read.outbound - path("delivered") - lost - full;
    assert!(gone < 200, "{gone} of {}", read.outbound);
    assert!(read.inbound > 1_000, "{}", read.inbound);

    // Repeating the run gives an identical file, and no other file remains in the folder.
    let again = folder.join("again.pcapng");
    captured(&file, again.to_str().expect("UTF-8"), &[]);
    assert!(fs::read(&capture).expect("a file") == fs::read(&again).expect("a file"));
    assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 3);
}

#[test]
fn a_capture_that_cannot_be_written_is_refused_before_anything_runs() {
    let (folder, file, _) = experiment("pcapng-refused");
    let inside_a_file = format!("{file}/x.pcapng");
    for place in [inside_a_file.as_str(), folder.to_str().expect("UTF-8"), ".."] {
        let (error, hint) = refusal(1, fullpipe(&["run", &file, "--pcapng", place]));
        assert!(error.starts_with(&format!("cannot write {place}: ")), "{error}");
        assert_eq!(hint, "pass a writable path to --pcapng");
    }
    assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 1);
}

/// Writing a capture must not replace a device with a regular file.
#[cfg(unix)]
#[test]
fn only_files_are_replaced() {
    use std::os::unix::net::UnixListener;
    let (folder, file, _) = experiment("pcapng-no-file");
    let socket = folder.join("s");
    let Ok(_bound) = UnixListener::bind(&socket) else {
        return eprintln!("skipped: the path is too long for a socket");
    };
    let place = socket.to_str().expect("UTF-8");
    let (error, _) = refusal(1, fullpipe(&["run", &file, "--pcapng", place]));
    assert_eq!(error, format!("cannot write {place}: not a regular file"));
}

/// Returns for each tshark filter the number of frames in a capture that match it, with checksum verification
/// enabled. tshark counts all of them in one pass, because it takes longer to start than to read the capture.
fn frames<const N: usize>(capture: &str, filters: [&str; N]) -> [u64; N] {
    let output = Command::new("tshark")
        .args(["-n", "-q", "-r", capture, "-z", &format!("io,stat,0,{}", filters.join(","))])
        .args(["-o", "ip.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE"])
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // The only interval is the whole capture: `| 0.0 <> 3.0 | 12 | 4800 | 0 | 0 |`, with the frames and the
    // bytes of each filter.
    let table = String::from_utf8_lossy(&output.stdout);
    let row = table.lines().find(|line| line.contains("<>")).unwrap_or_else(|| panic!("no counts: {table}"));
    let counts: Vec<u64> =
        row.split('|').skip(2).step_by(2).filter_map(|cell| cell.trim().parse().ok()).collect();
    counts.try_into().unwrap_or_else(|_| panic!("{N} counts expected: {table}"))
}

/// Asserts that tshark's analysis of a capture agrees with the run; `resent` is the number of retransmissions
/// that the sending sockets counted. Returns the number of frames that match `filter`.
fn tshark_agrees(capture: &str, resent: u64, filter: &str) -> u64 {
    assert!(Path::new(capture).exists());
    // tshark classifies a retransmission as reordered ("out of order") if it follows newer data
    // within the RTT of the handshake and no duplicate ACKs precede it. At the sender nothing is
    // reordered, so both classes are retransmissions.
    let sent_again = "tcp.analysis.retransmission || tcp.analysis.fast_retransmission \
                      || tcp.analysis.spurious_retransmission || tcp.analysis.out_of_order";
    let [malformed, foreign, gaps, syns, found, of_receiver, others] = frames(
        capture,
        [
            "_ws.malformed || _ws.expert.severity == error",
            "!tcp || ip.checksum.status == 0",
            "tcp.analysis.lost_segment || tcp.analysis.ack_lost_segment",
            "tcp.options.sack_perm && tcp.options.wscale && tcp.options.mss",
            sent_again,
            &format!("({sent_again}) && ip.src != 198.18.0.1"),
            filter,
        ],
    );
    assert_eq!(malformed, 0);
    assert_eq!(foreign, 0, "every packet is IPv4 and TCP");
    // tshark reports a lost segment, or an ACK of a segment that it has not seen, if a capture has gaps.
    assert_eq!(gaps, 0);
    assert_eq!(syns, 4);
    assert!(resent > 40, "{resent}");
    assert_eq!(found, resent);
    assert_eq!(of_receiver, 0);
    others
}

#[test]
fn tshark_finds_a_simulated_runs_retransmissions() {
    if !has("tshark") {
        return;
    }
    let (_, file, capture) = experiment("pcapng-sim-tshark");
    let run = captured(&file, &capture, &[]);
    let wrong = tshark_agrees(&capture, retransmits(&run), "tcp.checksum.status == 0");
    assert_eq!(wrong, 0, "every checksum is right");
}

/// Captures contain the packets of the kernel TCP stack, both in the plain datapath and split from
/// super-packets. The capture continues until the path has drained, so it is compared with the socket
/// counters at that time.
#[cfg(target_os = "linux")]
#[test]
fn tshark_finds_a_kernels_retransmissions() {
    if !has("tshark") {
        return;
    }
    let (code, _, stderr) = fullpipe(&["emu", "--rate", "10mbit", "--rtt", "20ms", "--", "true"]);
    if code != 0 {
        let required = std::env::var_os("FULLPIPE_REQUIRE_NETNS").is_some_and(|value| value == "1");
        assert!(code == 4 && !required, "{stderr}");
        return eprintln!("skipped: {stderr}");
    }
    for datapath in ["plain", "offload"] {
        let (_, file, capture) = experiment(&format!("pcapng-emu-{datapath}"));
        let one = ["--repeat", "1"];
        fs::write(&file, LOSSY.replace("['bbr1', 'reno']", "['bbr1']")).expect("an experiment file");
        let emu = ["run", &file, "--world", "emu", "--datapath", datapath, "--json", "--pcapng", &capture];
        let (code, stdout, stderr) = fullpipe(&[&emu[..], &one].concat());
        assert_eq!(code, 0, "{stderr}");
        let document: Value = serde_json::from_str(&stdout).expect("JSON");
        let validity = &document["runs"][0]["validity"];
        let [resent, drops] = ["retransmits", "drops"].map(|key| validity[key].as_u64().expect("a number"));
        assert_eq!(tshark_agrees(&capture, resent, "frame.comment && tcp.len > 0"), drops);
    }
}
