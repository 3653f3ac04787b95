//! Tests of many small files, over loopback and over a long path.

use std::fs;

use fullpipe_relay::copy;

use crate::proxy::delaying;
use crate::{Fixture, Notes};

/// Number of files for the measurement of time.
const FILES: usize = 10_000;
/// Number of files for the measurement of memory.
const MANY: u64 = 1_000_000;
/// Size in bytes of each file for the measurement of time.
const SIZE: usize = 10 << 10;

/// The number of round trips does not grow with the number of files; if announcements were sent in 12 groups
/// of 128 files, each after the reply to the previous one, 1500 files would take 5 s at an RTT of 200 ms.
#[test]
fn small_files_need_few_round_trips() {
    let fixture = Fixture::new();
    for number in 0..1500 {
        fixture.source(&format!("dir/{number}"), 700);
    }
    let folder = fixture.folder.path().join("out/dir");
    let options = fixture.options(&folder, "dir", delaying(fixture.address, 100));
    let report = copy(&options, None, &Notes).expect("copied");
    assert_eq!((report.files, fixture.names().len()), (1500, 1500));
    assert!(report.wall_s < 5.0 * 0.2 + 2.0, "{report:?}");
    // One round trip for TLS and one for the announcement; the proxy accepts the TCP connection without
    // delay.
    assert!(report.first_byte_s.is_some_and(|time| time < 2.7 * 0.2), "{report:?}");
}

/// Prints the duration of a copy, and of a second copy of the same files.
#[test]
#[ignore = "a measurement: cargo test --release -p fullpipe-relay --test realtime -- --ignored --nocapture ten_thousand"]
fn ten_thousand_small_files() {
    let fixture = Fixture::new();
    for number in 0..FILES {
        fixture.source(&format!("dir/{number}"), SIZE);
    }
    let folder = fixture.folder.path().join("out/dir");
    for same in [0, FILES] {
        let report = fixture.copy(&folder, "dir").expect("copied");
        assert_eq!((report.files, report.same_files), (FILES as u64, same as u64));
        println!("{} files, {} skipped: {:.2} s", report.files, report.same_files, report.wall_s);
    }
    assert_eq!(fixture.names().len(), FILES);
}

/// Copies a folder of a million files, and prints the peak memory of both ends together.
#[test]
#[ignore = "half an hour: cargo test --release -p fullpipe-relay --test realtime -- --ignored --nocapture a_million"]
fn a_million_files_in_a_folder_need_little_memory() {
    let fixture = Fixture::new();
    let folder = fixture.folder.path().join("out/dir");
    fs::create_dir(&folder).expect("a folder");
    for number in 0..MANY {
        fs::write(folder.join(number.to_string()), "").expect("written");
    }
    let report = fixture.copy(&folder, "dir").expect("copied");
    assert_eq!(report.files, MANY);
    let status = fs::read_to_string("/proc/self/status").expect("readable");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the peak");
    let kib: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number");
    println!("{MANY} files in {:.0} s, at most {} MiB resident", report.wall_s, kib >> 10);
    assert!(kib >> 10 <= 96);
}
