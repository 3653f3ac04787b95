//! Tests of captures that tcpdump makes on both hosts of the emulator, compared with the emulator's own drop
//! counters. The tests cover truncated packets (`-s`), both link types of a host without Ethernet, and
//! packets longer than the MTU. A lost segment must be counted once at either end.
//!
//! Without tcpdump, or without the privileges for creating namespaces, these tests are skipped with a
//! message. With `FULLPIPE_REQUIRE_NETNS=1` and `FULLPIPE_REQUIRE_TCPDUMP=1`, the tests fail instead of being
//! skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

use crate::process::emulated::allowed;
use crate::process::{folder, fullpipe, has};
use serde_json::Value;

/// Number of bytes to send; the transfer takes a few seconds at the path's rate, and loses hundreds of segments.
const LOAD: usize = 12_000_000;
const PORT: u16 = 8_000;
/// Payload of a full segment: an MTU of 1500 bytes without the headers and the timestamps option.
const PAYLOAD: u32 = 1_448;

/// Runs the client or the server program on one of the two hosts: this test program, started a second time.
#[test]
fn role() {
    let address = |name: &str| (std::env::var(name).expect("inside"), PORT);
    match std::env::var("FULLPIPE_TEST_ROLE").as_deref() {
        Ok("server") => {
            let listener = TcpListener::bind(address("FULLPIPE_ADDR")).expect("its own address");
            let (mut client, _) = listener.accept().expect("a client");
            let mut bytes = vec![0; 1 << 16];
            while client.read(&mut bytes).expect("data") > 0 {}
        }
        Ok("client") => {
            let mut server = TcpStream::connect(address("FULLPIPE_PEER")).expect("the peer's address");
            let bytes = vec![0; 1 << 16];
            let mut left = LOAD;
            while left > 0 {
                let more = left.min(bytes.len());
                server.write_all(&bytes[..more]).expect("a reader");
                left -= more;
            }
            server.shutdown(std::net::Shutdown::Write).expect("a connection");
            // The server closes the connection once it has received all data.
            assert_eq!(server.read(&mut [0]).expect("its end"), 0);
        }
        _ => {}
    }
}

/// Builds a shell command that captures packets on `device` while this program plays `role`. The capture
/// continues until the server's FIN, which follows all data. After that, the command waits for the `other`
/// capture, because the server ends together with the client's command.
fn captured(role: &str, device: &str, file: &Path, other: &Path) -> String {
    let program = std::env::current_exe().expect("this program");
    let (file, other, program) = (file.display(), other.display(), program.display());
    format!(
        "until_done() {{ for _ in $(seq 600); do \"$@\" && return; sleep 0.1; done; }}; \
         ended() {{ tcpdump -nr '{file}' 'src port {PORT} and tcp[tcpflags] & tcp-fin != 0' 2>/dev/null | grep -q .; }}; \
         echo bbr >/proc/sys/net/ipv4/tcp_congestion_control; \
         tcpdump -i {device} -s 128 --immediate-mode -U -B 16384 -Z root -w '{file}' tcp port {PORT} 2>/dev/null & watch=$!; \
         until_done [ -s '{file}' ]; \
         FULLPIPE_TEST_ROLE={role} '{program}' --exact tcpdump::role >/dev/null; played=$?; \
         until_done ended; sleep 0.3; kill -INT $watch; wait $watch; : >'{file}.whole'; until_done [ -e '{other}.whole' ]; exit $played"
    )
}

/// Returns all numbers in the line that the emulator prints.
fn numbers(line: &str) -> Vec<u64> {
    line.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
}

/// Returns the diagnosis of the single connection in the capture of one host.
fn connection(file: &Path) -> Value {
    let (code, stdout, stderr) =
        fullpipe(&["diagnose", &file.display().to_string(), "--link", "50mbit", "--no-ladder", "--json"]);
    assert_eq!(code, 0, "{stderr}");
    serde_json::from_str::<Value>(&stdout).expect("JSON")["capture"]["connections"][0].take()
}

/// Returns the packets of a capture as tcpdump prints them, one per line, with absolute sequence numbers.
fn printed(file: &Path) -> String {
    let told = Command::new("tcpdump").args(["-nnS", "-r"]).arg(file).output().expect("it starts");
    String::from_utf8_lossy(&told.stdout).into_owned()
}

/// Returns whether sequence number `a` is ahead of `b`. Sequence numbers wrap around: one number is ahead of another if
/// it is less than half the number range away.
fn is_ahead(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

/// Returns the first and the last sequence number of each data segment in a capture. A packet that the kernel has not
/// segmented yet counts as the segments that it contains.
fn segments(file: &Path) -> Vec<(u32, u32)> {
    let text = printed(file);
    // tcpdump prints "seq 17:1465" for data, and a single number for a SYN or FIN without data.
    let ranges = text.split("seq ").skip(1).filter_map(|rest| rest.split(',').next()?.split_once(':'));
    let number = |text: &str| text.parse::<u32>().expect("a number");
    let cut = |(from, to): (u32, u32)| {
        let starts = (0..to.wrapping_sub(from)).step_by(PAYLOAD as usize);
        starts.map(move |offset| {
            let start = from.wrapping_add(offset);
            (start, start.wrapping_add(PAYLOAD.min(to.wrapping_sub(start))))
        })
    };
    ranges.map(|(from, to)| (number(from), number(to))).flat_map(cut).collect()
}

/// Returns the number of retransmitted segments that arrived after later segments. At the receiver alone, a
/// retransmission cannot be recognised if it arrives in order because no later data arrived before it (the
/// last segments before a pause).
fn late(sender: &Path, receiver: &Path) -> u64 {
    let mut times = BTreeMap::<u32, u64>::new();
    for (from, _) in segments(sender) {
        *times.entry(from).or_default() += 1;
    }
    let arrived = segments(receiver);
    let mut seen = BTreeSet::new();
    let mut top = arrived[0].0;
    let mut count = 0;
    for (from, to) in arrived {
        count += u64::from(seen.insert(from) && is_ahead(top, from) && times[&from] > 1);
        top = if is_ahead(to, top) { to } else { top };
    }
    count
}

/// Returns the number of duplicate ACKs in a capture (RFC 5681 section 2): the server's segments without data, SYN and
/// FIN that repeat the highest acknowledgment number and the window of its previous segment, while data above this
/// number was captured.
fn duplicate_acks(file: &Path) -> u64 {
    let after = |line: &str, name: &str| -> Option<u32> {
        let number = line.split_once(name)?.1;
        number.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    let (mut top, mut highest, mut window) = (None, None, None);
    let mut count = 0;
    for line in printed(file).lines() {
        if !line.contains(&format!(".{PORT} > ")) {
            let data = line.split_once("seq ").and_then(|(_, rest)| rest.split_once(',')?.0.split_once(':'));
            if let Some(to) = data.map(|(_, to)| to.parse::<u32>().expect("a number")) {
                top = Some(top.map_or(to, |top| if is_ahead(to, top) { to } else { top }));
            }
            continue;
        }
        let (ack, win) = (after(line, " ack ").expect("an ACK"), after(line, " win "));
        let bare = line.ends_with("length 0") && line.contains("Flags [.]");
        let outstanding = top.is_some_and(|top| is_ahead(top, ack));
        count += u64::from(bare && highest == Some(ack) && window == win && outstanding);
        highest = Some(highest.map_or(ack, |highest| if is_ahead(ack, highest) { ack } else { highest }));
        window = win;
    }
    count
}

/// Asserts that the count `seen` differs from the true number of drops by at most 1 % or two packets.
#[track_caller]
fn agree(what: &str, seen: u64, true_count: u64) {
    println!("{what}: {seen} seen, {true_count} are true");
    assert!(seen.abs_diff(true_count) <= (true_count / 100).max(2), "{what}: {seen} and not {true_count}");
}

fn counts_agree(test: &str, device: &str, datapath: &str) {
    if !has("tcpdump") || !allowed() {
        return;
    }
    let folder = folder(test);
    let [sender, receiver] = ["sender.pcap", "receiver.pcap"].map(|name| folder.join(name));
    let serve = captured("server", device, &receiver, &sender);
    let command = captured("client", device, &sender, &receiver);
    let path = ["emu", "--rate", "50mbit", "--rtt", "20ms", "--loss", "3%", "--datapath", datapath];
    let (code, _, stderr) = fullpipe(&[&path[..], &["--serve", &serve, "--", "sh", "-c", &command]].concat());
    assert_eq!(code, 0, "{stderr}");
    let line = stderr.lines().find(|line| line.starts_with("path: ")).expect("the emulator's line");
    let [_, lost, full, ..] = numbers(line)[..] else { panic!("{line}") };
    let drops = lost + full;
    assert!(drops > 150, "{line}");

    let files = [sender, receiver];
    let [sender, receiver] = [&files[0], &files[1]].map(|file| connection(file));
    assert_eq!((&sender["side"], &receiver["side"]), (&"sender".into(), &"receiver".into()), "{line}");
    let count = |of: &Value, name: &str| of["counts"][name].as_u64().expect("a count");
    // The path does not reorder packets, even if a busy machine delays them.
    let swapped = count(&receiver, "out_of_order");
    assert_eq!(swapped, 0, "{receiver}");
    for end in [&sender, &receiver] {
        assert_eq!(count(end, "missed_bytes"), 0, "{end}");
    }
    assert_eq!(count(&sender, "out_of_order"), 0, "{sender}");
    // One extra segment repairs each loss. An unnecessary retransmission, such as some tail loss probes, repairs no
    // loss.
    let again = count(&sender, "retransmits") - count(&sender, "needless");
    agree("retransmitted, at the sender", again, drops);
    let (sent, arrived) = (count(&sender, "data_segments"), count(&receiver, "data_segments"));
    agree("lost between the two", sent - arrived, drops);
    // A segment that is lost twice arrives late only once, and the number of such segments depends on the
    // load of the machine. The exact number is computed from the two captures.
    let arrived_late = count(&receiver, "retransmits");
    agree("late, at the receiver", arrived_late, late(&files[0], &files[1]));
    assert!(arrived_late <= drops, "{arrived_late} of {drops}");
    // The number of ACKs depends on how many segments the receiver gets at once, and thus on the load of the machine.
    let [left, came] = [&files[1], &files[0]].map(|file| duplicate_acks(file));
    println!("duplicate ACKs: {left} left the receiver, {came} reached the sender");
    assert_eq!(count(&receiver, "duplicate_acks"), left, "{receiver}");
    assert_eq!(count(&sender, "duplicate_acks"), came, "{sender}");
    assert!(came > 0 && came <= left, "{came} of {left}");
    let super_segments = datapath == "offload";
    assert_eq!(sender["super_segments"], super_segments, "{sender}");
}

/// Tests captures on a single device, in which packets start with the IP header.
#[test]
fn captures_of_a_device_agree_with_the_drops() {
    counts_agree("tcpdump-device", "fullpipe0", "plain");
}

/// Tests captures on all devices ("any"), in which packets contain many segments.
#[test]
fn captures_of_super_segments_agree_with_the_drops() {
    counts_agree("tcpdump-any", "any", "offload");
}
