use super::*;
use crate::input::iperf3;
use crate::measurement::Transfer;

const HEAD: &str = "Connecting to host h, port 5201\n[  5] local 10.0.0.1 port 41000 connected to 10.0.0.2 port 5201\n\
                    [ ID] Interval           Transfer     Bitrate         Retr  Cwnd\n";

fn log_of(lines: &str) -> Result<Measurement, InputError> {
    iperf3::parse(&format!("{HEAD}{lines}"))
}

/// Returns the parts in which two logs of one test agree.
fn said(log: Measurement) -> (Transfer, Origin, Hosts) {
    (log.transfer(), log.origin, log.hosts)
}

fn seconds_of(n: u32) -> String {
    (0..n)
        .map(|i| {
            format!(
                "[  5]   {i}.00-{}.00   sec  12.5 MBytes   105 Mbits/sec    0   2.00 MBytes       \n",
                i + 1
            )
        })
        .collect()
}

const TAIL: &str = "- - - - - - -\n[ ID] Interval           Transfer     Bitrate         Retr\n\
                    [  5]   0.00-3.00   sec  37.5 MBytes   105 Mbits/sec    0             sender\n\
                    [  5]   0.00-3.04   sec  36.0 MBytes  99.3 Mbits/sec                  receiver\n\niperf Done.\n";

/// Columns that `fullpipe iperf3` prints after the vertical bar are ignored.
#[test]
fn columns_behind_a_bar_are_passed_over() {
    let bar = "    |   50.4 ms   6.69 MBytes   48.3 Mbits/sec   2.09 MBytes  link";
    let lines: String = seconds_of(3).lines().map(|line| format!("{}{bar}\n", line.trim_end())).collect();
    assert_eq!(log_of(&(lines + TAIL)).map(said), log_of(&(seconds_of(3) + TAIL)).map(said));
}

#[test]
fn a_sender_log_is_read_with_units_of_1024_for_amounts_and_1000_for_rates() {
    let read = log_of(&(seconds_of(3) + TAIL)).unwrap();
    let log = read.transfer();
    assert_eq!(log.streams, 1);
    assert_eq!(log.intervals.len(), 3);
    let first = log.intervals[0];
    assert_eq!(first.bytes, Bytes::new(13_107_200));
    assert_eq!(first.rate, Rate::from_bps(105_000_000));
    assert_eq!(first.cwnd, Some(Bytes::from_mib(2)));
    assert_eq!(first.retransmits, Some(0));
    assert_eq!(first.length(), Duration::from_secs(1));
    assert_eq!(log.mean_rate(), Rate::from_bps(99_300_000));
    assert_eq!(log.length(), Duration::from_millis(3040));
    assert!(!read.origin.truncated);
}

/// A stream that has only a summary counts, too.
#[test]
fn more_streams_than_iperf3_opens_are_refused() {
    let summary = |id: usize| {
        format!("[{id:3}]   0.00-3.00   sec  37.5 MBytes   105 Mbits/sec    0             sender\n")
    };
    let of = |count: usize| log_of(&(seconds_of(3) + &(10..10 + count).map(summary).collect::<String>()));
    let error = of(MOST_STREAMS).expect_err("one too many, with the stream of the intervals");
    assert_eq!(error.message, "the log has more than 1024 streams");
    assert_ne!(of(MOST_STREAMS - 1).map_err(|error| error.message).err(), Some(error.message));
}

#[test]
fn windows_line_ends_time_stamps_and_a_byte_order_mark_do_not_matter() {
    let plain = said(log_of(&(seconds_of(3) + TAIL)).unwrap());
    let text = format!("{HEAD}{}{TAIL}", seconds_of(3));
    let foreign = format!("\u{feff}{}", text.replace('\n', "\r\n"));
    assert_eq!(said(iperf3::parse(&foreign).unwrap()), plain);
    let stamped: String = text.lines().map(|l| format!("Wed Oct 14 20:55:00 2020 {l}\n")).collect();
    assert_eq!(said(iperf3::parse(&stamped).unwrap()), plain);
}

#[test]
fn verbose_logs_tell_version_segment_size_and_congestion_control() {
    let text = format!(
        "iperf 3.12\nLinux h 6.1\nControl connection MSS 1448\n{HEAD}Starting Test: protocol: TCP, 1 streams, \
         131072 byte blocks\n{}{TAIL}snd_tcp_congestion cubic\nrcv_tcp_congestion reno\n",
        seconds_of(3)
    );
    let read = iperf3::parse(&text).unwrap();
    let log = read.transfer();
    assert_eq!(read.origin.version.as_deref(), Some("3.12"));
    assert_eq!(log.mss, Some(Bytes::new(1448)));
    assert_eq!(log.congestion_control.as_deref(), Some("cubic"));
}

#[test]
fn parallel_streams_are_added_and_their_windows_too() {
    let mut lines = String::new();
    for i in 0..2 {
        for id in [5, 7] {
            lines += &format!(
                "[{id:3}]   {i}.00-{}.00   sec  1.00 MBytes  8.39 Mbits/sec    1   100 KBytes\n",
                i + 1
            );
        }
        lines += &format!("[SUM]   {i}.00-{}.00   sec  2.00 MBytes  16.8 Mbits/sec    2\n- - - - -\n", i + 1);
    }
    lines += "[  5]   0.00-2.00   sec  2.00 MBytes  8.39 Mbits/sec    2  sender\n\
              [SUM]   0.00-2.00   sec  4.00 MBytes  16.8 Mbits/sec    4  sender\n\
              [SUM]   0.00-2.00   sec  3.90 MBytes  16.4 Mbits/sec       receiver\n";
    let read = log_of(&lines).unwrap();
    // Each stream is a flow with its own reports and sums.
    let ids: Vec<u32> = read.flows.iter().map(|flow| flow.id).collect();
    assert_eq!(ids, [5, 7]);
    assert_eq!(read.flows[0].intervals[1].cwnd, Some(Bytes::from_kib(100)));
    let sums = [0, 1].map(|nth: usize| read.flows[nth].summary.sent.map(|sent| sent.retransmits));
    assert_eq!(sums, [Some(Some(2)), None]);
    let log = read.transfer();
    assert_eq!((log.streams, log.intervals.len()), (2, 2));
    assert_eq!(log.intervals[1].cwnd, Some(Bytes::from_kib(200)));
    assert_eq!(log.intervals[1].retransmits, Some(2));
    assert_eq!(log.intervals[1].lossy_streams, 2);
    assert_eq!(log.sent.map(|s| (s.bytes, s.retransmits)), Some((Bytes::from_mib(4), Some(4))));
}

#[test]
fn a_receiver_log_has_neither_retransmissions_nor_windows() {
    let lines = "[  5]   0.00-1.00   sec  1.00 MBytes  8.39 Mbits/sec\n[  5]   1.00-2.00   sec  1.00 MBytes  8.39 Mbits/sec\n\
                 [  5]   0.00-2.00   sec  2.00 MBytes  8.39 Mbits/sec                  receiver\n";
    let log = log_of(lines).unwrap().transfer();
    assert!(log.intervals.iter().all(|i| i.retransmits.is_none() && i.cwnd.is_none()));
    assert!(log.sent.is_none() && log.received.is_some());
}

#[test]
fn warm_up_intervals_are_left_out() {
    let lines = "[  5]   0.00-1.00   sec  1.00 MBytes  8.39 Mbits/sec    0   100 KBytes       (omitted)\n\
                 [  5]   0.00-1.00   sec  1.00 MBytes  8.39 Mbits/sec    0   200 KBytes\n\
                 [  5]   0.00-1.00   sec  1.00 MBytes  8.39 Mbits/sec    0             sender\n";
    let log = log_of(lines).unwrap();
    assert_eq!((log.origin.omitted, log.transfer().intervals.len()), (1, 1));
}

#[test]
fn a_log_that_breaks_off_serves_from_five_intervals_on() {
    assert!(log_of(&(seconds_of(5) + "[  5]   5.00-6.00   sec  12.5 MBy")).unwrap().origin.truncated);
    let error = log_of(&seconds_of(4)).unwrap_err();
    assert_eq!(error.message, "the iperf3 log ends after 4 intervals");
    let late = log_of(&(seconds_of(6) + "iperf3: error - control socket has closed unexpectedly\n")).unwrap();
    assert_eq!(late.origin.error.as_deref(), Some("control socket has closed unexpectedly"));
}

#[test]
fn a_count_of_minus_one_printed_unsigned_is_no_count() {
    let lines = "[  5]   0.00-1.00   sec  1.00 MBytes  8.39 Mbits/sec  18446744073709551615   100 KBytes\n\
                 [  5]   0.00-1.00   sec  1.00 MBytes  8.39 Mbits/sec  -1  sender\n";
    let log = log_of(lines).unwrap().transfer();
    assert_eq!(log.intervals[0].retransmits, None);
    assert_eq!(log.sent.and_then(|s| s.retransmits), None);
}

#[test]
fn what_is_no_log_of_one_run_is_refused_with_a_reason() {
    let reason = |text: &str| iperf3::parse(text).unwrap_err().message;
    assert_eq!(reason(" \r\n"), "the input is empty");
    assert_eq!(
        reason("iperf3: error - unable to connect to server: Connection refused"),
        "the iperf3 run failed: unable to connect to server: Connection refused"
    );
    assert!(reason("{\"colour\":{}}").contains("this JSON is not from iperf3"));
    assert!(reason("net.ipv4.tcp_wmem = 1 2 3").contains("sysctl"));
    assert!(reason("Client connecting to h, TCP port 5001\nTCP window size: 85 KByte").contains("iperf 2"));
    assert!(reason("PING h (10.0.0.2): 56 data bytes").contains("output of ping"));
    assert!(reason("hello").contains("not an iperf3 log"));
    assert!(
        reason("[ ID] Interval           Transfer     Bitrate         Total Datagrams\n")
            .contains("no interval")
    );
    let runs = format!("{HEAD}{}{TAIL}{HEAD}{}{TAIL}", seconds_of(3), seconds_of(3));
    assert_eq!(reason(&runs), "the log contains 2 runs");
    assert!(reason(&format!("{0}{0}", seconds_of(5))).contains("are not consecutive"));
    assert!(
        reason("[  5][TX-C]   0.00-1.00   sec  1.00 MBytes  8.39 Mbits/sec    0   90 KBytes")
            .contains("ends after 1 interval")
    );
}

/// Arbitrary bytes result in a value or a one-line error with a hint.
#[test]
fn malformed_input_never_panics() {
    let lossy = String::from_utf8_lossy(b"\xff\xfe[  5]   0.00-1.00 sec \x00 \xc3\x28 MBytes").into_owned();
    let full = format!("{HEAD}{}{TAIL}", seconds_of(3));
    let row = |text: &str| format!("{HEAD}[  5] {text}\n");
    let mut cases = vec![
        lossy,
        "[".into(),
        "]".into(),
        "[]".into(),
        "[  5]".into(),
        "[é]  0.00-1.00   sec".into(),
        "é[é".into(),
        "[SUM][".into(),
        row("0.00-0.00 sec 1 MBytes 8 Mbits/sec 0 1 KBytes"),
        row("1.00-0.00 sec 1 MBytes 8 Mbits/sec 0 1 KBytes"),
        row("-1.00-0.00 sec 1 MBytes 8 Mbits/sec 0 1 KBytes"),
        row("0.00-1.00 sec -1 MBytes 8 Mbits/sec 0 1 KBytes"),
        row("0.00-1.00 sec 1 MBytes -8 Mbits/sec 0 1 KBytes"),
        row("0.00-1.00 sec nan MBytes inf Mbits/sec 0 1 KBytes"),
        row("nan-inf sec 1 MBytes 8 Mbits/sec 0 1 KBytes"),
        row("0.00-1e300 sec 1 MBytes 8 Mbits/sec 0 1 KBytes"),
        row("0.00-1.00 sec 1e300 TBytes 1e300 Tbits/sec 9223372036854775807 1e300 TBytes"),
        row(
            "0.00-1.00 sec 18446744073709551615 GBytes 18446744073709551615 Gbits/sec 18446744073709551615 1 KBytes",
        ),
        row("0.00-1.00 sec 1 QBytes 8 Mbits/sec"),
        row("0.00-1.00 sec 1 MBytes 8 Mbits"),
        row("0.00-1.00 sec 1 MBytes"),
        row("0.00-1.00"),
        row("99999999999999999999"),
        "iperf3: ".into(),
        "iperf3: error - ".into(),
        "iperf3: error - \u{1b}[31mred\u{7}".into(),
        "iperf 3.".into(),
        "\n".repeat(10_000),
        "[".repeat(10_000),
    ];
    // A log may end anywhere, and every line may occur twice.
    cases.extend((0..full.len()).map(|end| full[..end].to_owned()));
    cases.push(full.lines().map(|l| format!("{l}\n{l}\n")).collect());
    for text in cases {
        if let Err(error) = iperf3::parse(&text) {
            assert!(!error.message.contains(['\n', '\u{1b}']) && !error.hint.is_empty(), "{text:?}");
        }
    }
}
