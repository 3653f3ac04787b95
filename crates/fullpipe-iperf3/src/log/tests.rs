use fullpipe_units::{Bytes, Duration, Instant, Rate};

use super::*;
use crate::document::{
    Amount, Datagrams, End, EndReceiver, EndSender, EndUdp, Endpoint, Event, Extremes, Heard, Interval,
    StreamInterval, Sum, TcpInterval, TestSettings, TestStart,
};
use crate::params::Params;

fn amount(from: u64, to: u64) -> Amount {
    let at = |secs| Instant::ZERO + Duration::from_secs(secs);
    Amount { start: at(from), end: at(to), bytes: Bytes::new(1_000_000 * (to - from) + 7) }
}

fn tcp() -> Document {
    let tcp = TcpInterval {
        retransmits: 3,
        snd_cwnd: Bytes::new(14480),
        snd_wnd: Bytes::ZERO,
        rtt: Duration::from_micros(210_345),
        reorder: 3,
        ..TcpInterval::default()
    };
    let report = |second, sender: bool| StreamInterval {
        socket: 5,
        amount: amount(second, second + 1),
        tcp: sender.then_some(tcp),
        udp: None,
        omitted: second == 0,
        sender,
        fullpipe: None,
    };
    let extremes =
        Extremes { cwnd: Bytes::new(1 << 20), min_rtt: Duration::from_micros(9), ..Extremes::default() };
    let sender = EndSender {
        socket: 5,
        amount: amount(0, 2),
        retransmits: Some(6),
        extremes: Some(extremes),
        sender: true,
    };
    let receiver = EndReceiver { socket: 5, amount: amount(0, 2), sender: true };
    let sum = |retransmits| Some(Sum { amount: amount(0, 2), retransmits, udp: None, sender: true });
    let mut document = started();
    document.intervals = (0..2).map(|at| Interval::of(vec![report(at, true), report(at, false)])).collect();
    document.end = End {
        streams: vec![EndStream::Tcp { sender: Some(sender), receiver: Some(receiver) }],
        sum_sent: sum(Some(6)),
        sum_received: sum(None),
        sender_tcp_congestion: Some("cubic".into()),
        receiver_tcp_congestion: Some("bbr".into()),
        ..End::default()
    };
    document
}

fn udp() -> Document {
    let heard = Heard { jitter: Duration::from_micros(250), lost: 4 };
    let datagrams = Datagrams::received(100, heard).of_which_late(2);
    let report = StreamInterval {
        socket: 7,
        amount: amount(0, 1),
        tcp: None,
        udp: Some(datagrams),
        omitted: false,
        sender: false,
        fullpipe: None,
    };
    let total = EndUdp { socket: 7, amount: amount(0, 1), datagrams, received: None, sender: true };
    let mut document = started();
    document.intervals = vec![Interval::of(vec![report])];
    document.end = End {
        streams: vec![EndStream::Udp { udp: total }],
        sum: Some(Sum { amount: amount(0, 1), retransmits: None, udp: Some(datagrams), sender: true }),
        ..End::default()
    };
    document.error = Some("interrupted".into());
    document
}

fn started() -> Document {
    let settings = TestSettings {
        target_bitrate: Rate::from_bps(1_000_000),
        fq_rate: Rate::ZERO,
        sock_bufsize: Bytes::new(131_072),
        sndbuf_actual: Bytes::new(262_144),
        rcvbuf_actual: Bytes::new(262_144),
        test_start: TestStart { reverse: 1, ..TestStart::of(&Params::default(), Duration::from_secs(1)) },
    };
    let mut document = Document::default();
    document.start.version = "iperf 3.16".into();
    document.start.system_info = "Linux host 6.18.0".into();
    document.start.tcp_mss_default = Some(Bytes::new(1448));
    document.start.accepted_connection = Some(Endpoint { host: "192.0.2.1".into(), port: 5201 });
    document.start.asked = Some(settings);
    document
}

fn same(a: &Log<Vec<LogInterval>>, b: &Log<Vec<LogInterval>>) {
    assert_eq!((&a.start, &a.end, &a.error), (&b.start, &b.end, &b.error));
    let streams = |log: &Log<Vec<LogInterval>>| -> Vec<Vec<Report>> {
        log.intervals.iter().flatten().map(|interval| interval.streams.0.clone()).collect()
    };
    assert_eq!(streams(a), streams(b));
}

/// If a key were written under one name and read under another, its value would silently be lost.
#[test]
fn documents_are_read_as_they_are_written() {
    for document in [tcp(), udp()] {
        let direct = Log::from(&document);
        for text in [serde_json::to_string(&document), serde_json::to_string_pretty(&document)] {
            same(&serde_json::from_str(&text.expect("JSON")).expect("a log"), &direct);
        }
    }
}

/// Events have the same content as the document of their test.
#[test]
fn events_are_read_as_they_are_written() {
    fn line<T: serde::Serialize>(event: &str, data: &T) -> LogEvent {
        LogEvent::read(&serde_json::to_string(&Event { event, data }).expect("JSON")).expect("an event")
    }
    let document = tcp();
    let mut log = Log::<Vec<LogInterval>>::default();
    let LogEvent::Start(start) = line("start", &document.start) else { panic!("no start") };
    log.start = Some(*start);
    for interval in &document.intervals {
        let LogEvent::Interval(interval) = line("interval", interval) else { panic!("no interval") };
        log.intervals.get_or_insert_default().push(interval);
    }
    let LogEvent::End(end) = line("end", &document.end) else { panic!("no end") };
    log.end = *end;
    same(&log, &Log::from(&document));
    assert!(matches!(line("error", &"lost"), LogEvent::Error(Some(why)) if why == "lost"));
    assert!(matches!(line("server_output_text", &"[ ID]"), LogEvent::Other));
    let swapped =
        LogEvent::read("{\"data\":{\"version\":\"iperf 3.17\"},\"event\":\"start\"}").expect("an event");
    assert!(matches!(swapped, LogEvent::Start(start) if start.version.as_deref() == Some("iperf 3.17")));
}

/// An empty stream takes three bytes of text, but hundreds of bytes of memory if it is kept.
#[test]
fn empty_streams_are_bounded() {
    let many = vec!["{}"; MOST_STREAMS + 1].join(",");
    for text in [
        format!("{{\"intervals\":[{{\"streams\":[{many}]}}]}}"),
        format!("{{\"end\":{{\"streams\":[{many}]}}}}"),
    ] {
        let error = serde_json::from_str::<Log<Vec<LogInterval>>>(&text).expect_err("too many streams");
        assert!(error.to_string().contains(TOO_MANY_STREAMS), "{error}");
    }
}
