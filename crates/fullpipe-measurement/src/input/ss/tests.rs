use super::made::{HEADER, dump, dumps_of, malformed};
use super::*;
use crate::input::Kind;

#[test]
fn fields_are_taken_by_name() {
    let trace = parse(&dumps_of(30), None).expect("dumps");
    let row = &trace.rows()[0][0];
    let segments = |n: u64| Bytes::new(1_448 * n);
    assert_eq!(
        (row.sender.mss, row.sender.cwnd, row.sender.ssthresh),
        (segments(1), segments(100), Some(segments(80)))
    );
    assert_eq!((row.sender.flight_size, row.sender.inflight), (segments(100), segments(100)));
    assert_eq!(row.sender.rwnd, Bytes::new(950_272));
    assert_eq!((row.sender.notsent, row.sender.sndbuf), (Bytes::new(300_000), Bytes::new(4_194_304)));
    assert_eq!(row.sender.sndbuf_used, Bytes::new(1_000_000));
    assert_eq!(row.sender.srtt, Some(Duration::from_micros(50_600)));
    assert_eq!(row.sender.min_rtt, Some(Duration::from_millis(50)));
    assert_eq!(row.sender.delivery_rate, Some(Rate::from_bps(8_000_000)));
    assert_eq!((row.sender.cc, row.sender.pacing_rate), (Some(Algorithm::Cubic), None));
    assert_eq!(trace.rows()[0][29].sender.retransmits, 3);
    assert!(trace.origin.notes.is_empty(), "{:?}", trace.origin.notes);
}

/// BBR's own figures follow its name; if one of them is missing, all are ignored.
#[test]
fn the_model_of_bbr_is_read() {
    let with = |model: &str| {
        let text = dumps_of(30).replace(" cubic ", " bbr ").replace(" some_day:7", &format!(" {model}"));
        let trace = parse(&text, None).expect("dumps");
        trace.rows()[0][0].sender
    };
    let sender = with("bbr:(bw:9.5Mbps,mrtt:50.1,pacing_gain:2.88672,cwnd_gain:2.88672)");
    let told = BbrInfo {
        bw: Rate::from_bps(9_500_000),
        min_rtt: Some(Duration::from_micros(50_100)),
        pacing_gain_percent: 289,
        cwnd_gain_percent: 289,
    };
    assert_eq!((sender.cc, sender.bbr), (Some(Algorithm::Bbr1), Some(told)));
    for broken in ["", "bbr:(bw:0bps,mrtt:50)", "bbr:(", "bbr:(bw:x,pacing_gain:y,cwnd_gain:-1)"] {
        assert_eq!(with(broken).bbr, None, "{broken}");
    }
}

/// The kernel's millisecond counters determine the time of dumps that have none.
#[test]
fn time_is_told_by_counters() {
    let text = dumps_of(30);
    let trace = parse(&text, None).expect("dumps");
    assert_eq!(trace.rows()[0][29].at, Instant::ZERO + Duration::from_millis(2_900));
    assert_eq!(trace.origin.format, Format::Ss);
    // Printed times take precedence.
    let stamped: String = (1..=30).map(|i| format!("{}.5\n{}", 1_700_000_000 + i, dump(i))).collect();
    let trace = parse(&stamped, None).expect("dumps");
    assert_eq!(trace.rows()[0][29].at, Instant::ZERO + Duration::from_secs(29));
    let clock: String =
        (10..=39).map(|i| format!("2026-11-22T05:31:{i},250000000+00:00\n{}", dump(i))).collect();
    assert_eq!(parse(&clock, None).expect("dumps").rows()[0][29].at, Instant::ZERO + Duration::from_secs(29));
    // Without a header, a dump ends where a connection appears again.
    let bare = text.replace(HEADER, "").replace("ESTAB ", "");
    assert_eq!(parse(&bare, None).expect("dumps").rows()[0].len(), 30);
    let one_line = text.replace("\n\t", " ");
    assert_eq!(parse(&one_line, None).expect("dumps").rows()[0].len(), 30);
}

#[test]
fn one_of_several_connections_is_chosen() {
    let two: String = (1..=20)
        .map(|i| {
            let other = dump(i).replace(HEADER, "").replace("52296", "52297");
            dump(i)
                + &other
                    .replace(&format!("bytes_acked:{}", 100_000 * i), &format!("bytes_acked:{}", 1_000 * i))
        })
        .collect();
    let largest = parse(&two, None).expect("dumps");
    assert!(
        largest.origin.notes[0].contains("192.0.2.1:52296 > 198.51.100.7:443"),
        "{:?}",
        largest.origin.notes
    );
    assert!(parse(&two, Some(2)).expect("dumps").origin.notes[0].contains("52297"));
    let error = parse(&two, Some(3)).expect_err("two");
    assert_eq!(error.message, "ss shows no connection number 3");
    assert!(error.hint.contains("52297"));
    assert_eq!(
        parse(&two, Some(0)).expect_err("numbers begin at 1").message,
        "ss shows no connection number 0"
    );
}

/// A dump without a header ends where one of its connections appears again, however many there are.
#[test]
fn a_dump_of_many_connections_is_one_dump() {
    let of = |round: u64| {
        let one = |i: u64| {
            format!(
                "ESTAB 0 0 10.{}.{}.{}:1024 192.0.2.2:443\n\t cubic rto:204 rtt:9/1 mss:1448 cwnd:10 bytes_acked:{}\n",
                i >> 16,
                i >> 8 & 255,
                i & 255,
                1_000 * i * round
            )
        };
        (1..=20_000).map(one).collect::<String>()
    };
    let text: String = (1..=6).map(of).collect();
    let measurement = parse(&text, None).expect("dumps");
    assert_eq!(measurement.rows()[0].len(), 6, "a connection that appears again begins the next dump");
    let note = "ss shows 20000 connections; this is 10.0.78.32:1024 > 192.0.2.2:443";
    assert!(measurement.origin.notes[0].starts_with(note), "{:?}", measurement.origin.notes);
}

#[test]
fn rates_and_times_are_read_in_every_spelling() {
    let bps = |text: &str| Sample::rate(text).map(Rate::as_bps);
    assert_eq!(bps("92Mbps"), Some(92_000_000));
    assert_eq!(bps("93622857143bps"), Some(93_622_857_143));
    assert_eq!(bps("93.6Gbps"), Some(93_600_000_000));
    for odd in ["", "0bps", "Mbps", "9Xbps", "nanMbps", "1e400bps", "-5Mbps", "92M"] {
        assert_eq!(bps(odd), None, "{odd}");
    }
    assert_eq!(stamp("1700000000.25"), Some(1_700_000_000.25));
    assert_eq!(stamp("05:31:10.5"), Some(19_870.5));
    for odd in ["", "inf", "nan", "-1", "25:00:00", "hello", "1:2", "::"] {
        assert_eq!(stamp(odd), None, "{odd}");
    }
}

/// ss does not print a window of zero, and old versions print no window at all.
#[test]
fn what_a_dump_does_not_show_is_said() {
    let closed = format!("{}{}", dump(5), dump(6).replace(" snd_wnd:950272", "").replace("52296", "52297"));
    assert_eq!(parse(&closed, Some(2)).expect("a dump").rows()[0][0].sender.rwnd, Bytes::ZERO);
    let unknown = parse(&dump(5).replace(" snd_wnd:950272", ""), None).expect("a dump");
    assert!(
        unknown
            .origin
            .notes
            .iter()
            .any(|note| note.contains("the output does not show the receiver's window"))
    );
    let silent = dump(5).replace("delivery_rate 8Mbps", "");
    assert!(
        parse(&silent, None).expect_err("nothing to tell").message.contains("has not sent data recently")
    );
}

#[test]
fn malformed_input_never_panics() {
    let text = dumps_of(12);
    assert_eq!(Kind::of(&text), Kind::Ss);
    assert_eq!(Kind::of(&format!("$ while sleep 0.1; do ss -ti; done\n{text}")), Kind::Ss);
    for text in malformed() {
        if let Err(error) = parse(&text, None) {
            assert!(!error.hint.is_empty() && !error.message.contains('\n'), "{error}");
        }
    }
}
