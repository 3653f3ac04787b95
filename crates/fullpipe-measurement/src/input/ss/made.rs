//! `ss` output for tests.

/// Column names.
pub(super) const HEADER: &str = "State Recv-Q Send-Q  Local Address:Port  Peer Address:PortProcess\n";

/// Returns a dump of one connection in the format of iproute2 6.1, `i` tenths of a second into a transfer at
/// 1 MB/s.
pub fn dump(i: u64) -> String {
    format!(
        "{HEADER}ESTAB 0      3874816     192.0.2.1:52296    198.51.100.7:443  users:((\"x\",pid=7,fd=4))\n\
         \t skmem:(r0,rb131072,t0,tb4194304,f1792,w1000000,o0,bl0,d0) ts sack cubic wscale:10,10 rto:252 \
         rtt:50.6/4.176 mss:1448 pmtu:1500 rcvmss:536 advmss:1448 cwnd:100 ssthresh:80 bytes_sent:1577472 \
         bytes_acked:{} segs_out:38 data_segs_out:36 send 22.9Mbps lastsnd:4 lastrcv:{} lastack:12 \
         pacing_rate 27.5Mbps delivery_rate 8Mbps delivered:{} busy:{}ms unacked:100 retrans:0/{} \
         rcv_space:65495 rcv_ssthresh:65495 notsent:300000 minrtt:50 snd_wnd:950272 some_day:7 new_flag\n",
        100_000 * i,
        300 + 100 * i,
        69 * i,
        300 + 100 * i,
        i / 10
    )
}

/// Returns `count` consecutive dumps.
pub fn dumps_of(count: u64) -> String {
    (1..=count).map(dump).collect()
}

/// Returns damaged texts: truncated at any position, or with one byte changed.
pub fn malformed() -> Vec<String> {
    let text = dumps_of(12);
    let mut texts = Vec::new();
    texts.extend((0..text.len()).step_by(7).filter_map(|end| text.get(..end)).map(str::to_owned));
    for ordinal in 0..1_000 {
        let random = fullpipe_units::draw(1, 1, ordinal);
        let mut changed = text.clone().into_bytes();
        let at = random as usize % changed.len();
        changed[at] = (random >> 56) as u8;
        texts.push(String::from_utf8_lossy(&changed).into_owned());
    }
    for odd in [
        "",
        HEADER,
        "ESTAB 0 0",
        "ESTAB 0 0 a b",
        "ESTAB 0 0 a:1 b:2\n\t mss:0 cwnd:0",
        "\t cwnd:1 rtt:1 rto:1",
    ] {
        texts.push(odd.into());
    }
    let huge = dump(5)
        .replace("cwnd:100", "cwnd:18446744073709551615")
        .replace("unacked:100", "unacked:18446744073709551615");
    texts.push(huge);
    texts
}
