use super::*;

#[test]
fn redirected_utf16_is_decoded() {
    let text = "Connecting to host h\r\n";
    let encoded = |bom: [u8; 2], of: fn(u16) -> [u8; 2]| {
        bom.into_iter().chain(text.encode_utf16().flat_map(of)).collect::<Vec<u8>>()
    };
    assert_eq!(decode(encoded([0xff, 0xfe], u16::to_le_bytes)), text);
    assert_eq!(decode(encoded([0xfe, 0xff], u16::to_be_bytes)), text);
    assert_eq!(decode([0xff, 0xfe]), "");
    assert_eq!(decode([0xff, 0xfe, b'a']), "");
    assert_eq!(decode(b"a\xffb"), "a\u{fffd}b");
}

#[test]
fn terminal_escapes_are_taken_out() {
    assert_eq!(clean("\u{feff}a\u{1b}[1;31mb\u{1b}[0mc"), "abc");
    assert_eq!(clean("\u{1b}[\u{1b}[é\u{1b}"), "");
    assert_eq!(clean("\u{1b}[31"), "");
    assert!(matches!(clean("plain"), Cow::Borrowed(_)));
}

#[test]
fn kinds_are_told_by_content() {
    let kind = |text: &str| Kind::of(text);
    assert_eq!(kind(" \r\n"), Kind::Empty);
    assert_eq!(kind("{\n\t\"start\":\t{"), Kind::Iperf3Json);
    assert_eq!(kind("$ iperf3 -J -c h\n{\"title\":\"x\",\"start\":{}}"), Kind::Iperf3Json);
    assert_eq!(kind("{\"event\":\"start\",\"data\":{}}\n"), Kind::Iperf3JsonStream);
    assert_eq!(kind("{\"event\": \"start\""), Kind::Iperf3JsonStream);
    assert_eq!(kind("{\"colour\":1}"), Kind::Json);
    assert_eq!(kind("[\n{\"start\":1}]"), Kind::Json);
    assert_eq!(kind("[ ID] Interval           Transfer"), Kind::Iperf3Text);
    assert_eq!(kind("\u{1b}[32m[ ID] Interval           Transfer"), Kind::Iperf3Text);
    // Text quoted from the peer in a document is not a text log.
    let quoted = "{\"start\":{},\n\"server_output_text\":\"[  5] 0.00-1.00 sec 1 MBytes 8 Mbits/sec\"}";
    assert_eq!(kind(quoted), Kind::Iperf3Json);
    assert_eq!(
        kind("Client connecting to h, TCP port 5001\n[  3] 0.0-1.0 sec 1 MBytes 8 Mbits/sec"),
        Kind::Iperf2Text
    );
    assert_eq!(
        kind("$ head -1 trace.csv\npoint,seed,flow,t_s,mss_bytes,cwnd_bytes,delivered_bytes\n"),
        Kind::Trace
    );
    assert_eq!(kind("t_s,cwnd_bytes\n1,2\n"), Kind::Unknown);
    assert_eq!(kind("net.ipv4.tcp_rmem = 1 2 3"), Kind::Sysctl);
    assert_eq!(kind("\0\u{1}"), Kind::Unknown);
}
