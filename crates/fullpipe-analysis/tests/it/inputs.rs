//! All kinds of iperf3 logs: the values read from them, and for any other input an error of one line with a
//! hint.

use std::fs;
use std::path::Path;

use crate::case::Case;
use fullpipe_analysis::classify::Confidence;
use fullpipe_analysis::explain::RttSource;
use fullpipe_analysis::input::trace::{Choice, parse as read_trace};
use fullpipe_analysis::input::{decode, iperf3, ss};
use fullpipe_analysis::measurement::{Direction, Hosts, Origin, Protocol, Role, Transfer};
use fullpipe_analysis::{HostFacts, HostSettings, InputError, Limit, Measurement, PathFacts, render_text};
use fullpipe_lab::trace;
use fullpipe_units::{Bytes, Duration, draw};

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/iperf3")
}

fn example(name: &str) -> String {
    fs::read_to_string(folder().join(name)).unwrap()
}

/// Returns the parts in which two logs of one test agree.
fn said(log: &Measurement) -> (Transfer, Option<Transfer>, Origin, Hosts) {
    (log.transfer(), log.opposite(), log.origin.clone(), log.hosts)
}

/// Returns a log on one line.
fn line(log: &Measurement) -> String {
    let other = log.opposite().map_or_else(String::new, |other| format!(" | {}", one_way(log, &other, 0)));
    one_way(log, &log.transfer(), log.origin.omitted) + &other
}

fn one_way(measurement: &Measurement, log: &Transfer, omitted: usize) -> String {
    let known = |known: bool, name: &'static str| if known { name } else { "-" };
    let first = log.intervals[0];
    let rtt = log.rtt.map_or_else(|| "-".into(), |rtt| format!("{}/{}/{}", rtt.min, rtt.mean, rtt.max));
    let datagrams = log.datagrams.map_or_else(String::new, |d| {
        format!(
            " lost {}/{} jitter {}",
            d.lost.map_or("?".into(), |lost| lost.to_string()),
            d.total,
            d.jitter.unwrap_or_default()
        )
    });
    format!(
        "{:?} {:?} {:?} x{} {}: {} of {} in {}{} [{} {} {} {}] rtt {rtt} {}{datagrams}",
        measurement.origin.format,
        log.protocol,
        log.role,
        log.streams,
        known(log.direction == Direction::Reverse, "reverse"),
        log.mean_rate(),
        log.offered.map_or_else(|| "all".into(), |offered| offered.to_string()),
        log.intervals.len(),
        if omitted > 0 { format!("-{omitted}") } else { String::new() },
        known(first.retransmits.is_some(), "retr"),
        known(first.cwnd.is_some(), "cwnd"),
        known(first.snd_wnd.is_some(), "wnd"),
        known(first.rtt.is_some(), "rtt"),
        log.congestion_control.as_deref().unwrap_or("-"),
    )
}

/// Values of each example: format, protocol, role, streams, mean and target rate, number of intervals without
/// warm-up, known values of the first interval, minimum/mean/maximum RTT, congestion control, datagrams |
/// opposite direction.
const READ: [(&str, &str); 28] = [
    (
        "bidir-parallel.txt",
        "Text Tcp Sender x2 -: 201 Mbit/s of all in 6 [retr cwnd - -] rtt - - | Text Tcp Receiver x2 reverse: 201 Mbit/s of all in 6 [- - - -] rtt - -",
    ),
    (
        "bidir.json",
        "Json Tcp Sender x1 -: 100 Mbit/s of 100 Mbit/s in 6 [retr cwnd wnd rtt] rtt 35us/146us/545us - | Json Tcp Receiver x1 reverse: 100 Mbit/s of 100 Mbit/s in 6 [- - - -] rtt - -",
    ),
    (
        "bidir.txt",
        "Text Tcp Sender x1 -: 99.7 Mbit/s of all in 6 [retr cwnd - -] rtt - - | Text Tcp Receiver x1 reverse: 100 Mbit/s of all in 6 [- - - -] rtt - -",
    ),
    ("made-3.0.json", "Json Tcp Sender x1 -: 200 Mbit/s of all in 6 [retr - - -] rtt - -"),
    (
        "made-3.20.json",
        "Json Tcp Sender x1 -: 200 Mbit/s of 200 Mbit/s in 6 [retr cwnd wnd rtt] rtt 119us/416us/1.77ms bbr",
    ),
    (
        "made-minus-one.json",
        "Json Tcp Sender x1 -: 200 Mbit/s of 200 Mbit/s in 6 [retr cwnd - rtt] rtt 119us/416us/1.77ms bbr",
    ),
    (
        "made-stream.jsonl",
        "JsonStream Tcp Sender x1 -: 200 Mbit/s of 200 Mbit/s in 6 [retr cwnd wnd rtt] rtt 119us/416us/1.77ms bbr",
    ),
    (
        "made-udp-3.1.txt",
        "Text Udp Sender x1 -: 19.9 Mbit/s of all in 3 [- - - -] rtt - - lost 9/918 jitter 12us",
    ),
    (
        "omit.json",
        "Json Tcp Sender x1 -: 200 Mbit/s of 200 Mbit/s in 6-2 [retr cwnd wnd rtt] rtt 89us/168us/525us bbr",
    ),
    ("parallel-reverse.txt", "Text Tcp Receiver x2 reverse: 201 Mbit/s of all in 6 [- - - -] rtt - -"),
    (
        "parallel.json",
        "Json Tcp Sender x2 -: 201 Mbit/s of 200 Mbit/s in 6 [retr cwnd wnd rtt] rtt 35us/65.5us/96us cubic",
    ),
    ("parallel.txt", "Text Tcp Sender x2 -: 201 Mbit/s of all in 6 [retr cwnd - -] rtt - -"),
    ("reverse.json", "Json Tcp Receiver x1 reverse: 200 Mbit/s of 200 Mbit/s in 6 [- - - -] rtt - cubic"),
    ("reverse.txt", "Text Tcp Receiver x1 reverse: 200 Mbit/s of all in 6 [- - - -] rtt - -"),
    ("server.json", "Json Tcp Receiver x1 -: 200 Mbit/s of 200 Mbit/s in 3 [- - - -] rtt - -"),
    (
        "tcp.json",
        "Json Tcp Sender x1 -: 200 Mbit/s of 200 Mbit/s in 6 [retr cwnd wnd rtt] rtt 119us/416us/1.77ms bbr",
    ),
    ("tcp.txt", "Text Tcp Sender x1 -: 200 Mbit/s of 200 Mbit/s in 6 [retr cwnd - -] rtt - cubic"),
    (
        "udp-bidir.json",
        "Json Udp Sender x1 -: 20 Mbit/s of 20 Mbit/s in 6 [- - - -] rtt - - lost 0/229 jitter 46.9us | Json Udp Receiver x1 reverse: 20 Mbit/s of 20 Mbit/s in 6 [- - - -] rtt - - lost 0/229 jitter 30.2us",
    ),
    (
        "udp-bidir.txt",
        "Text Udp Sender x1 -: 20 Mbit/s of all in 6 [- - - -] rtt - - lost 0/229 jitter 5us | Text Udp Receiver x1 reverse: 20 Mbit/s of all in 6 [- - - -] rtt - - lost 0/229 jitter 3us",
    ),
    (
        "udp-loss.json",
        "Json Udp Sender x1 -: 310 Mbit/s of 8 Gbit/s in 6 [- - - -] rtt - - lost 126492/209673 jitter 1.31ms",
    ),
    (
        "udp-loss.txt",
        "Text Udp Sender x1 -: 386 Mbit/s of all in 6 [- - - -] rtt - - lost 147328/251108 jitter 36us",
    ),
    (
        "udp-parallel.txt",
        "Text Udp Sender x2 -: 40 Mbit/s of all in 6 [- - - -] rtt - - lost 0/458 jitter 3us",
    ),
    (
        "udp-reverse.json",
        "Json Udp Receiver x1 reverse: 20.1 Mbit/s of 20 Mbit/s in 6 [- - - -] rtt - - lost 0/230 jitter 151us",
    ),
    (
        "udp-reverse.txt",
        "Text Udp Receiver x1 reverse: 20 Mbit/s of all in 6 [- - - -] rtt - - lost 0/229 jitter 10us",
    ),
    (
        "udp.json",
        "Json Udp Sender x1 -: 20 Mbit/s of 20 Mbit/s in 6 [- - - -] rtt - - lost 0/229 jitter 24.5us",
    ),
    ("udp.txt", "Text Udp Sender x1 -: 20 Mbit/s of all in 6 [- - - -] rtt - - lost 0/229 jitter 132us"),
    (
        "unlimited.json",
        "Json Tcp Sender x1 -: 33.4 Gbit/s of all in 6 [retr cwnd wnd rtt] rtt 44us/448us/930us cubic",
    ),
    (
        "window.json",
        "Json Tcp Sender x1 -: 16.3 Gbit/s of all in 6 [retr cwnd wnd rtt] rtt 20us/22us/25us cubic",
    ),
];

/// Logs of failed runs.
const FAILED: [&str; 2] = ["refused.json", "made-stream-failed.jsonl"];

#[test]
fn every_example_is_read() {
    let mut names: Vec<String> =
        fs::read_dir(folder()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name != "README.md");
    assert_eq!(names.len(), READ.len() + FAILED.len(), "an example without a test: {names:?}");
    for (name, expected) in READ {
        assert_eq!(line(&iperf3::parse(&example(name)).unwrap()), expected, "{name}");
    }
    for name in FAILED {
        let error = iperf3::parse(&example(name)).unwrap_err();
        assert_eq!(
            error.message, "the iperf3 run failed: unable to connect to server: Connection refused",
            "{name}"
        );
    }
}

#[test]
fn the_summaries_are_those_of_iperf3() {
    let read = iperf3::parse(&example("tcp.json")).unwrap();
    let log = read.transfer();
    assert_eq!(read.origin.version.as_deref(), Some("3.12"));
    assert_eq!(read.hosts.kernel.map(|kernel| kernel.to_string()).as_deref(), Some("6.18"));
    assert_eq!(log.mss, Some(Bytes::new(32_768)));
    assert_eq!(read.hosts.set_buffers, None, "sndbuf_actual is where autotuning begins");
    assert_eq!(log.sent.map(|sent| (sent.bytes, sent.retransmits)), Some((Bytes::new(75_104_256), Some(3))));
    assert_eq!(log.length(), Duration::from_secs_f64(3.000438));
    let rtt = log.rtt.unwrap();
    assert_eq!((rtt.min.as_micros(), rtt.mean.as_micros(), rtt.max.as_micros()), (119, 416, 1770));
    let set = iperf3::parse(&example("window.json")).unwrap().hosts.set_buffers.unwrap();
    assert_eq!((set.sndbuf, set.rcvbuf), (Bytes::from_kib(128), Bytes::from_kib(128)));
    // A server does not know how much the client sent.
    let server = iperf3::parse(&example("server.json")).unwrap().transfer();
    assert_eq!((server.role, server.sent), (Role::Receiver, None));
    // Versions differ in additional fields, not in the values of the common fields.
    let newer = iperf3::parse(&example("made-3.20.json")).unwrap();
    assert_eq!((newer.transfer(), newer.hosts), (log, read.hosts));
    let stream = iperf3::parse(&example("made-stream.jsonl")).unwrap();
    assert_eq!((stream.transfer(), stream.hosts), (newer.transfer(), newer.hosts));
}

#[test]
fn unknown_numbers_are_unknown_in_either_spelling() {
    let log = iperf3::parse(&example("made-minus-one.json")).unwrap().transfer();
    assert!(log.intervals.iter().all(|interval| interval.snd_wnd.is_none()));
    assert_eq!(log.intervals[2].retransmits, None);
    assert_eq!(log.sent.and_then(|sent| sent.retransmits), None);
}

/// The rate of a UDP test is the received rate, not the sent rate.
#[test]
fn loss_over_udp_is_counted_once() {
    for (name, lost, total, mbps) in [
        ("udp-loss.json", 126_492, 209_673, 310),
        ("udp-loss.txt", 147_328, 251_108, 386),
        ("made-udp-3.1.txt", 9, 918, 19),
    ] {
        let log = iperf3::parse(&example(name)).unwrap().transfer();
        let datagrams = log.datagrams.unwrap();
        assert_eq!((datagrams.lost, datagrams.total), (Some(lost), total), "{name}");
        assert_eq!(log.mean_rate().as_bps() / 1_000_000, mbps, "{name}");
        assert_eq!(log.proven_rate(), log.mean_rate());
    }
}

#[test]
fn every_example_is_explained_or_asks_for_the_rtt() {
    for (name, _) in READ {
        let case = Case::of(&iperf3::parse(&example(name)).unwrap());
        let log = case.measurement.transfer();
        let found = match case.explain() {
            Ok(found) => found,
            Err(error) => {
                assert!(log.rtt.is_none() && error.hint.contains("--rtt"), "{name}: {error}");
                continue;
            }
        };
        let first = &found.findings[0];
        match log.protocol {
            Protocol::Udp => {
                assert_eq!(found.measured.rtt_source, RttSource::Unknown, "{name}");
                assert!(
                    first.could_not_tell.iter().any(|open| open.contains("which UDP does not have")),
                    "{name}"
                );
            }
            // A sender's JSON needs no further option, and these runs reached their target rate (-b).
            Protocol::Tcp if log.rtt.is_some() => {
                assert_eq!(found.measured.rtt_source, RttSource::Log, "{name}");
                if log.offered.is_some() {
                    assert_eq!((first.limit, first.confidence), (Limit::App, Confidence::Certain), "{name}");
                }
            }
            Protocol::Tcp => assert_eq!(found.measured.rtt_source, RttSource::Bound, "{name}"),
        }
        let text = render_text(&case.explained().unwrap(), 80);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}

#[test]
fn terminals_and_shells_change_nothing() {
    for name in ["tcp.json", "made-stream.jsonl", "bidir.txt", "udp-loss.txt"] {
        let text = example(name);
        let parsed = |text: &str| said(&iperf3::parse(text).unwrap());
        let plain = parsed(&text);
        assert_eq!(parsed(&text.replace('\n', "\r\n")), plain, "{name}");
        assert_eq!(parsed(&format!("\u{feff}{text}")), plain, "{name}");
        assert_eq!(
            parsed(&format!("\u{1b}[32muser@host\u{1b}[0m:~$ iperf3 -c h\n{text}\nuser@host:~$ \n")),
            plain,
            "{name}"
        );
        let utf16: Vec<u8> =
            [0xff, 0xfe].into_iter().chain(text.encode_utf16().flat_map(u16::to_le_bytes)).collect();
        assert_eq!(parsed(&decode(utf16.clone())), plain, "{name}");
    }
}

#[test]
fn a_stream_of_events_that_breaks_off_serves() {
    let text = example("made-stream.jsonl");
    let until_end: String = text.lines().take(7).map(|line| format!("{line}\n")).collect();
    let log = iperf3::parse(&(until_end.clone() + "{\"event\":\"end\",\"da")).unwrap();
    assert!(log.origin.truncated && log.transfer().intervals.len() == 6);
    // Without a summary at the end, the RTT is taken from the reports.
    assert_eq!(log.transfer().rtt.map(|rtt| rtt.min.as_micros()), Some(119));
    let failed = until_end + "{\"event\":\"error\",\"data\":\"control socket has closed unexpectedly\"}\n";
    let log = iperf3::parse(&failed).unwrap();
    assert_eq!(log.origin.error.as_deref(), Some("control socket has closed unexpectedly"));
    // Output written with --json-stream-full-output.
    assert_eq!(
        said(&iperf3::parse(&(text.clone() + &example("made-3.20.json"))).unwrap()),
        said(&iperf3::parse(&text).unwrap())
    );
}

#[track_caller]
fn refused(text: &str) -> InputError {
    let error = iperf3::parse(text).expect_err(text);
    assert!(!error.message.is_empty() && !error.hint.is_empty(), "{text}");
    for line in [&error.message, &error.hint] {
        assert!(line.chars().all(|c| !c.is_control()) && line.chars().count() < 400, "{line:?}");
    }
    error
}

/// Replaces one value at a time in a valid document.
#[test]
fn malformed_json_is_one_line_and_a_hint() {
    let good = example("tcp.json");
    let with = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        good.replacen(from, to, 1)
    };
    let bytes = "\"bytes\": 12582912";
    let cases = [
        (good[..good.len() / 2].to_owned(), "truncated at line"),
        (good[..good.len() - 3].to_owned(), "truncated at line"),
        (format!("{good}{good}"), "several JSON documents"),
        (format!("{good}{}", &good[..300]), "several JSON documents"),
        (format!("[\n{good},\n{good}]"), "this JSON is not from iperf3"),
        ("{}".into(), "this JSON is not from iperf3"),
        ("{\"a\":[1,2,{\"b\":null}]}".into(), "this JSON is not from iperf3"),
        ("{\"start\":{}}".into(), "no interval"),
        ("{\"start\":1,\"intervals\":2}".into(), "a usable 'start'"),
        ("{\"start\":{},\"intervals\":{}}".into(), "a usable 'intervals'"),
        ("{\"start\":{},\"intervals\":[]}".into(), "no interval"),
        ("{\"start\":{},\"intervals\":[1,null,\"x\",[]]}".into(), "no interval"),
        ("{\"start\":{},\"intervals\":[{\"streams\":[]}]}".into(), "no interval"),
        ("{\"start\":{},\"intervals\":[{\"streams\":[7]}]}".into(), "a usable 'start' in interval 1"),
        ("{\"error\":{\"message\":{\"text\":\"nested\"}}}".into(), "the iperf3 run failed: {"),
        ("{\"error\":null,\"start\":{}}".into(), "no interval"),
        (format!("{{\"error\":\"{}\"}}", "long ".repeat(10_000)), "the iperf3 run failed: long"),
        ("{\"error\":\"two\\nlines\\u001b[31m\"}".into(), "two lines"),
        (with(bytes, "\"bytes\": \"many\""), "a usable 'bytes' in interval 1"),
        (with(bytes, "\"bytes\": null"), "a usable 'bytes' in interval 1"),
        (with(bytes, "\"bytes\": -1"), "a usable 'bytes' in interval 1"),
        (with(bytes, "\"bytes\": 18446744073709551615"), "a usable 'bytes' in interval 1"),
        (with(bytes, "\"bytes\": 1e300"), "a usable 'bytes' in interval 1"),
        (with(bytes, "\"bytes\": 1e400"), "damaged at line"),
        (with(bytes, "\"bytes\": NaN"), "damaged at line"),
        (with(bytes, "\"bytes\": -nan"), "damaged at line"),
        (with(bytes, "\"bytes\": []"), "a usable 'bytes' in interval 1"),
        (with("\"end\": 0.500095", "\"end\": 0"), "a usable 'end' in interval 1"),
        (with("\"end\": 0.500095", "\"end\": 1e18"), "a usable 'end' in interval 1"),
        (with("\"start\": 0.500095", "\"start\": -3"), "a usable 'start' in interval 2"),
        (with("\"start\": 0.500095", "\"start\": 0"), "are not consecutive"),
        (with("\"TCP\"", "\"SCTP\""), "SCTP"),
        (format!("{{\"start\":{}{}}}", "[".repeat(5000), "]".repeat(5000)), "a usable 'start'"),
        ("{\"event\":\"start\",\"data\":{}}\n{\"event\":\"end\",\"data\":{}}".into(), "no interval"),
        ("{\"event\":\"interval\",\"data\":7}\n".into(), "a usable 'start'"),
        ("{\"event\":\"start\",\"data\":{}}\n{broken\n{\"event\":\"end\",\"data\":{}}".into(), "damaged"),
        (example("made-stream.jsonl").repeat(2), "events of several runs"),
        (good.replace("{\n", "{\0\n"), "damaged at line"),
        (
            good.encode_utf16().flat_map(u16::to_le_bytes).map(char::from).collect(),
            "this JSON is not from iperf3",
        ),
        (example("tcp.txt").encode_utf16().flat_map(u16::to_be_bytes).map(char::from).collect(), "not text"),
    ];
    for (text, part) in cases {
        let error = refused(&text);
        assert!(error.message.contains(part), "'{part}' is not in '{error}'");
    }
}

#[test]
fn malformed_text_is_one_line_and_a_hint() {
    let (tcp, udp) = (example("tcp.txt"), example("udp-reverse.txt"));
    let elf: String = [0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0].map(char::from).iter().collect();
    let cases = [
        (format!("{tcp}{tcp}"), "contains 2 runs"),
        (format!("{tcp}{udp}"), "contains 2 runs"),
        (tcp.lines().take(12).map(|line| format!("{line}\n")).collect(), "ends after 1 interval"),
        (elf, "not text"),
        ("\0\0\0".into(), "not text"),
        ("\u{1b}[2J\u{1b}[H".into(), "empty"),
        ("hello".into(), "not an iperf3 log"),
        ("[ ID][Role] Interval           Transfer     Bitrate         Retr  Cwnd\n".into(), "no interval"),
        ("[  5][XX-C]   0.00-1.00   sec  1.00 MBytes  8.39 Mbits/sec\n".into(), "not an iperf3 log"),
        ("[  5][TX-C   0.00-1.00   sec  1.00 MBytes  8.39 Mbits/sec\n".into(), "not an iperf3 log"),
        (
            udp.replace("0.00-3.00", "0.00-nan").replace("2.00-2.50", "2.00-inf").replace("2.50-3.00", "x-y"),
            "ends after 4",
        ),
    ];
    for (text, part) in cases {
        let error = refused(&text);
        assert!(error.message.contains(part), "'{part}' is not in '{error}'");
    }
}

/// Reads, explains and renders a text, none of which may panic.
fn take(text: &str) {
    match iperf3::parse(text) {
        Ok(log) => {
            for rtt in [None, "100ms".parse().ok()] {
                if let Ok(diagnosis) = Case::of(&log).rtt(rtt).explained() {
                    render_text(&diagnosis, 80);
                }
            }
        }
        Err(error) => {
            assert!(!error.hint.is_empty() && !error.message.contains(['\n', '\u{1b}']), "{error}");
        }
    }
}

/// Tests every 23rd prefix, with an offset that depends on the example: testing all prefixes would take a
/// minute. The fuzz targets try more.
#[test]
fn beginnings_of_every_example_are_taken() {
    for (first, (name, _)) in (0..23).cycle().zip(READ) {
        let text = example(name);
        (first..text.len()).step_by(23).filter_map(|end| text.get(..end)).for_each(take);
    }
}

#[test]
fn random_changes_of_a_byte_are_taken() {
    for (file, (name, _)) in (0..).zip(READ) {
        let bytes = example(name).into_bytes();
        for ordinal in 0..100 {
            let random = draw(1, file, ordinal);
            let mut changed = bytes.clone();
            changed[random as usize % bytes.len()] = (random >> 56) as u8;
            take(&decode(changed.clone()));
        }
    }
}

/// Reads a real series of `ss` dumps, its prefixes, and copies with changed bytes; none of them may panic.
#[test]
fn ss_is_read_whole_and_broken() {
    let text = fs::read_to_string(folder().join("../ss/cubic-loss.txt")).unwrap();
    let found = |text: &str| {
        let trace = ss::parse(text, None)?;
        Case::of(&trace).link("100mbit".parse().ok()).explain()
    };
    let findings = found(&text).unwrap();
    assert_eq!(findings.findings[0].limit, Limit::Cwnd);
    assert!((4.0..7.0).contains(&findings.measured.length.as_secs_f64()), "{:?}", findings.measured);
    assert_eq!(findings.measured.rtt, "80ms".parse().unwrap());
    let take = |text: &str| {
        if let Err(error) = found(text) {
            assert!(!error.hint.is_empty() && !error.message.contains(['\n', '\u{1b}']), "{error}");
        }
    };
    (0..text.len()).step_by(997).filter_map(|end| text.get(..end)).for_each(take);
    for ordinal in 0..100 {
        let random = draw(2, 1, ordinal);
        let mut changed = text.clone().into_bytes();
        let at = random as usize % changed.len();
        changed[at] = (random >> 56) as u8;
        take(&decode(changed.clone()));
    }
}

/// Returns a trace with one row for each of `points` points.
fn sweep(points: u32) -> String {
    let columns: Vec<&str> =
        trace::COLUMNS.iter().filter(|column| !column.optional).map(|column| column.name).collect();
    let cell = |name: &&str| match *name {
        "app_limited" | "recovering" => "false",
        "cc" => "cubic",
        _ => "1",
    };
    let cells = columns.iter().map(cell).collect::<Vec<_>>().join(",");
    let rows = (0..points).map(|point| format!("rtt {point} ms,{cells}\n"));
    std::iter::once(format!("point,{}\n", columns.join(","))).chain(rows).collect()
}

/// A sweep may have as many points as rows. A search for each point in the list of all points once took a
/// minute for 200 000 points. For ten times the points, linear work is ten times as much, quadratic work a
/// hundred times.
#[test]
#[expect(clippy::disallowed_methods, reason = "the ratio of two durations measured in one run is the test")]
fn a_trace_with_many_points_costs_as_much_as_its_rows() {
    let cost = |points: u32| {
        let text = sweep(points);
        let once = || {
            let begin = std::time::Instant::now();
            let error = read_trace(&text, &Choice::default()).expect_err("one row is no measurement");
            assert!(error.message.contains("too few"), "{error}");
            begin.elapsed()
        };
        (0..3).map(|_| once()).min().unwrap()
    };
    let (few, many) = (cost(5_000), cost(50_000));
    assert!(many < few * 40, "{few:?} for 5000 points, {many:?} for 50 000");
}

/// Values near 2^64 are rejected. They were once printed as 18446744074 Gbit/s, and their sums overflowed.
#[test]
fn impossible_amounts_are_refused() {
    const UNKNOWN: [&str; 2] = ["1e19", "18446744073709551614"];
    let huge = ["9100000000000000000", "4611686018427387904", UNKNOWN[0], UNKNOWN[1]];
    let tcp = example("tcp.json");
    let udp = example("udp-loss.json");
    // Each entry contains the index of the first value of an interval; the last index is the index
    // of a sum.
    for (text, keys) in
        [(&tcp, [("bytes", 1), ("bits_per_second", 0)]), (&udp, [("packets", 0), ("bits_per_second", 0)])]
    {
        iperf3::parse(text).expect("it is a log");
        for (key, first) in keys {
            for huge in huge {
                for nth in [first, text.matches(&format!("\"{key}\":")).count() - 1] {
                    let damaged = with_value(text, key, nth, huge);
                    let Err(error) = iperf3::parse(&damaged) else {
                        // 2^63 and above is iperf3's notation of -1, an unknown count.
                        assert!(UNKNOWN.contains(&huge) && key != "bits_per_second", "{key} = {huge}, {nth}");
                        continue;
                    };
                    assert!(error.message.contains("lacks a usable") && !error.hint.is_empty(), "{error}");
                }
            }
        }
    }
    let line = "[  5]   0.00-1.00   sec  99999999999 GBytes  18446744073 Gbits/sec    0   42 KBytes\n";
    let error = iperf3::parse(&line.repeat(7)).expect_err("no network does that");
    assert!(!error.hint.is_empty(), "{error}");
}

/// Replaces the `nth` value of `key`.
fn with_value(text: &str, key: &str, nth: usize, value: &str) -> String {
    let key = format!("\"{key}\":");
    let at = text.match_indices(&key).nth(nth).expect("the key").0 + key.len();
    let end = at + text[at..].find([',', '}', '\n']).expect("an end");
    format!("{}{value}{}", &text[..at], &text[end..])
}

/// Some locales print a decimal comma in every number; such a log was once rejected as a log without
/// intervals.
#[test]
fn decimal_commas_are_read() {
    for (name, _) in READ.iter().filter(|(name, _)| name.ends_with(".txt")) {
        let text = example(name);
        let parsed = iperf3::parse(&text).unwrap();
        let comma = |line: &str| {
            let table = line.contains("its/sec") || line.contains("ytes/sec");
            if table { line.replace('.', ",") } else { line.to_owned() }
        };
        let commas: String = text.lines().map(|line| comma(line) + "\n").collect();
        assert_ne!(commas, text, "{name}");
        assert_eq!(said(&iperf3::parse(&commas).unwrap()), said(&parsed), "{name}");
    }
}

/// iperf3 for macOS and Windows prints neither Retr nor Cwnd; the log still comes from a sending
/// client.
#[test]
fn a_sender_without_cwnd_is_no_receiver() {
    let rows: String = (0..9)
        .map(|i| {
            format!("[  5]   {i}.00-{}.00   sec  12.5 MBytes   105 Mbits/sec                  \n", i + 1)
        })
        .collect();
    let head = "Connecting to host 192.0.2.1, port 5201\n";
    let role = |text: &str| iperf3::parse(text).unwrap().transfer().role;
    assert_eq!(role(&format!("{head}{rows}")), Role::Sender);
    assert_eq!(
        role(&format!("{head}Reverse mode, remote host 192.0.2.1 is sending\n{rows}")),
        Role::Receiver
    );
    assert_eq!(role(&format!("Accepted connection from 192.0.2.7, port 40000\n{rows}")), Role::Receiver);
    let both: String = rows
        .lines()
        .map(|line| {
            format!("{}\n{}\n", line.replace("[  5]", "[  5][TX-C]"), line.replace("[  5]", "[  7][RX-C]"))
        })
        .collect();
    let bidir = iperf3::parse(&format!("{head}{both}")).unwrap();
    assert_eq!((bidir.transfer().role, bidir.opposite().unwrap().role), (Role::Sender, Role::Receiver));
    let log = iperf3::parse(&format!("{head}{rows}")).unwrap();
    let found = Case::of(&log).rtt("50ms".parse().ok()).explain().unwrap();
    let first = &found.findings[0];
    assert!(first.could_not_tell[0].contains("this build of iperf3 prints no Cwnd"), "{first:?}");
    assert!(first.next_test.as_ref().is_some_and(|test| test.contains("tcpdump")), "{first:?}");
}

/// `tcp_adv_win_scale` has no effect since 6.6. An earlier version also applied it to the newer kernel of
/// this log, which halved the window.
#[test]
fn the_kernel_of_the_log_decides_about_the_window_scale() {
    let json = example("tcp.json");
    let dump = "net.ipv4.tcp_rmem = 4096 131072 6291456\nnet.ipv4.tcp_adv_win_scale = 1\n";
    let rule = |release: &str, dump: &str| {
        let info = json.find("\"system_info\"").expect("the host");
        let end = info + json[info..].find('\n').expect("a line");
        let text = format!(
            "{}\"system_info\": \"Linux host {release} #1 SMP x86_64\",{}",
            &json[..info],
            &json[end..]
        );
        let hosts = HostFacts { local: HostSettings::parse(dump).ok(), ..HostFacts::default() };
        let log = iperf3::parse(&text).unwrap();
        fullpipe_analysis::explain(&log, &PathFacts::default(), &hosts).unwrap().findings().buffers.rule
    };
    let newer = rule("6.18.0", "kernel.osrelease = 6.18.0\nnet.ipv4.tcp_rmem = 4096 131072 6291456\n");
    assert_eq!(rule("6.18.0", dump), newer);
    let older = rule("5.15.0", dump);
    assert_ne!(older, newer);
    // The dump names its own kernel.
    assert_eq!(rule("6.18.0", &format!("{dump}kernel.osrelease = 5.15.0\n")), older);
}
