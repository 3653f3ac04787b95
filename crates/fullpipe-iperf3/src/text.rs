//! The report of a test as text lines in iperf3's columns.
//!
//! ```text
//! [ ID] Interval           Transfer     Bitrate         Retr  Cwnd        |      RTT  ...
//! [  5]   0.00-1.00   sec  12.0 MBytes   101 Mbits/sec    0   1.22 MBytes |  210.3 ms ...
//! - - - - - - - - - - - - - - - - - - - - - - - - -
//! [  5]   0.00-10.00  sec   120 MBytes   101 Mbits/sec    0             sender
//! ```
//!
//! Fullpipe's additional values follow a vertical bar, so that parsers of iperf3's columns still work.

use fullpipe_units::Duration;

use crate::document::{
    Amount, Datagrams, End, EndStream, Interval, SocketReading, Start, StreamInterval, Sum, SumInterval,
    TestSettings,
};
use crate::params::{Mode, Params, Protocol};
use crate::unit::{self, RateFormat};

const SEPARATOR: &str = "- - - - - - - - - - - - - - - - - - - - - - - - -\n";

/// The side of a test that prints the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The lines are printed by the client.
    Client,
    /// The lines are printed by the server.
    Server,
}

/// Formatter for the text output of a test.
#[derive(Clone, Debug)]
pub struct Text {
    side: Side,
    protocol: Protocol,
    mode: Mode,
    rates: RateFormat,
    verbose: bool,
    /// Prefix of each line: the title (`-T`), or a tag that identifies the test in the output of a server.
    tag: String,
    /// Whether the header with the column names has been printed.
    headed: bool,
}

impl Text {
    /// Creates a formatter for the lines that `side` prints about a test with `params`.
    pub fn new(side: Side, params: &Params, rates: RateFormat, verbose: bool) -> Self {
        let tag = params.title.as_ref().map_or_else(String::new, |title| format!("{title}:  "));
        Self { side, protocol: params.protocol, mode: params.mode, rates, verbose, tag, headed: false }
    }

    /// Sets `tag` as the prefix of each printed line.
    #[must_use]
    pub fn tagged(self, tag: impl Into<String>) -> Self {
        Self { tag: tag.into(), ..self }
    }

    /// Returns the lines that are printed before the data transfer starts.
    pub fn start(&self, start: &Start) -> String {
        let mut lines = String::new();
        if self.verbose {
            lines += &format!("{}\n{}\n", start.version, start.system_info);
            if let Some(mss) = start.tcp_mss_default {
                lines += &format!("Control connection MSS {}\n", mss.get());
            }
            lines += &start.timestamp.as_ref().map_or_else(String::new, |at| format!("Time: {}\n", at.time));
        }
        if let Some(server) = &start.connecting_to {
            lines += &format!("Connecting to host {}, port {}\n", server.host, server.port);
        }
        if let Some(client) = &start.accepted_connection {
            lines += &format!("Accepted connection from {}, port {}\n", client.host, client.port);
        }
        if self.mode == Mode::Reverse && self.side == Side::Client {
            let host = start.connecting_to.as_ref().map_or("", |server| &server.host);
            lines += &format!("Reverse mode, remote host {host} is sending\n");
        }
        if self.verbose {
            lines +=
                &start.cookie.as_ref().map_or_else(String::new, |cookie| format!("      Cookie: {cookie}\n"));
            for (mss, whose) in [(start.tcp_mss, ""), (start.tcp_mss_default, " (default)")] {
                lines +=
                    &mss.map_or_else(String::new, |mss| format!("      TCP MSS: {}{whose}\n", mss.get()));
            }
            let target =
                start.asked.as_ref().map(|asked| asked.target_bitrate).filter(|rate| !rate.is_zero());
            lines +=
                &target.map_or_else(String::new, |rate| format!("      Target Bitrate: {}\n", rate.as_bps()));
        }
        for connected in &start.connected {
            lines += &format!(
                "[{:3}] local {} port {} connected to {} port {}\n",
                connected.socket,
                connected.local_host,
                connected.local_port,
                connected.remote_host,
                connected.remote_port
            );
        }
        if let Some(asked) = start.asked.as_ref().filter(|_| self.verbose) {
            lines += &starting(asked);
        }
        self.with_tag(&lines)
    }

    /// Returns the lines of an interval report. The header with the column names precedes the first report.
    pub fn interval(&mut self, interval: &Interval) -> String {
        let mut lines = String::new();
        if !self.headed {
            self.headed = true;
            lines += &self.header(interval);
        }
        let told = interval.streams.iter().any(|stream| stream.fullpipe.is_some());
        let several = interval.streams.len() > if self.mode == Mode::Bidirectional { 2 } else { 1 };
        for sender in [true, false] {
            let mut any = false;
            for stream in interval.streams.iter().filter(|stream| stream.sender == sender) {
                lines += &self.stream_line(stream, told);
                any = true;
            }
            let sum = [&interval.sum, &interval.sum_bidir_reverse].into_iter().flatten();
            if let Some(sum) = sum.into_iter().find(|sum| sum.sender == sender).filter(|_| any && several) {
                lines += &self.sum_line(sum);
            }
        }
        if several {
            lines += SEPARATOR;
        }
        self.with_tag(&lines)
    }

    /// Returns the lines of the totals at the end of a test.
    pub fn end(&self, end: &End, several_reports: bool) -> String {
        let mut lines = String::new();
        if several_reports && !self.ends_separated(end) {
            lines += SEPARATOR;
        }
        if self.verbose {
            lines += "Test Complete. Summary Results:\n";
        }
        let columns = match self.protocol {
            Protocol::Tcp => "Interval           Transfer     Bitrate         Retr",
            Protocol::Udp => "Interval           Transfer     Bitrate         Jitter    Lost/Total Datagrams",
        };
        lines += &format!("{} {columns}\n", self.id_column());
        let bidirectional = self.mode == Mode::Bidirectional;
        let main = self.side == Side::Client;
        for (sender, sums) in [
            (main, [&end.sum_sent, &end.sum_received]),
            (!main, [&end.sum_sent_bidir_reverse, &end.sum_received_bidir_reverse]),
        ] {
            let of = || end.streams.iter().filter(move |one| !bidirectional || is_sender(one) == sender);
            if sums.iter().all(|sum| sum.is_none()) {
                continue;
            }
            for stream in of() {
                lines += &self.end_lines(stream);
            }
            if of().count() > 1 {
                for (sum, whose) in sums.into_iter().zip(["sender", "receiver"]) {
                    lines += &sum.as_ref().map_or_else(String::new, |sum| self.end_sum(sum, whose));
                }
            }
        }
        if let Some(cpu) = end.cpu_utilization_percent.filter(|_| self.verbose) {
            let sends = if end.streams.first().is_some_and(is_sender) {
                ["sender", "receiver"]
            } else {
                ["receiver", "sender"]
            };
            lines += &format!(
                "CPU Utilization: local/{} {:.1}% ({:.1}%u/{:.1}%s), remote/{} {:.1}% ({:.1}%u/{:.1}%s)\n",
                sends[0],
                cpu.host_total,
                cpu.host_user,
                cpu.host_system,
                sends[1],
                cpu.remote_total,
                cpu.remote_user,
                cpu.remote_system
            );
        }
        if self.verbose && self.protocol == Protocol::Tcp {
            for (whose, name) in [("snd", &end.sender_tcp_congestion), ("rcv", &end.receiver_tcp_congestion)]
            {
                lines += &name
                    .as_ref()
                    .map_or_else(String::new, |name| format!("{whose}_tcp_congestion {name}\n"));
            }
        }
        self.with_tag(&lines)
    }

    fn with_tag(&self, lines: &str) -> String {
        if self.tag.is_empty() {
            return lines.to_owned();
        }
        lines.split_inclusive('\n').flat_map(|line| [self.tag.as_str(), line]).collect()
    }

    /// Returns whether the last interval report ended with a separator, as the report of several streams
    /// does.
    fn ends_separated(&self, end: &End) -> bool {
        end.streams.len() > if self.mode == Mode::Bidirectional { 2 } else { 1 }
    }

    fn id_column(&self) -> &'static str {
        if self.mode == Mode::Bidirectional { "[ ID][Role]" } else { "[ ID]" }
    }

    /// Returns the column with the role of this host in a bidirectional test.
    fn role(&self, sender: bool) -> &'static str {
        match (self.mode, sender, self.side) {
            (Mode::Forward | Mode::Reverse, ..) => "",
            (_, true, Side::Client) => "[TX-C]",
            (_, false, Side::Client) => "[RX-C]",
            (_, true, Side::Server) => "[TX-S]",
            (_, false, Side::Server) => "[RX-S]",
        }
    }

    fn header(&self, interval: &Interval) -> String {
        let sends = interval.streams.iter().any(|stream| stream.sender);
        let receives = interval.streams.iter().any(|stream| !stream.sender);
        let more = match (self.protocol, sends, receives) {
            (Protocol::Tcp, true, _) => "         Retr  Cwnd",
            (Protocol::Tcp, false, _) => "",
            (Protocol::Udp, _, true) => "         Jitter    Lost/Total Datagrams",
            (Protocol::Udp, _, false) => "         Total Datagrams",
        };
        let columns = format!("{} Interval           Transfer     Bitrate{more}", self.id_column());
        let told = interval.streams.iter().any(|stream| stream.fullpipe.is_some());
        let ours = if told { TOLD_HEADER } else { "" };
        let width = self.id_column().len() + WIDTH;
        if told { format!("{columns:width$}{ours}\n") } else { format!("{columns}\n") }
    }

    fn front(&self, id: &str, sender: bool, amount: &Amount) -> String {
        format!(
            "[{id:>3}]{} {:6.2}-{:<6.2} sec  {}  {}",
            self.role(sender),
            amount.start.as_secs_f64(),
            amount.end.as_secs_f64(),
            unit::amount(amount.bytes),
            unit::rate(amount.rate(), self.rates)
        )
    }

    fn stream_line(&self, stream: &StreamInterval, told: bool) -> String {
        let front = self.front(&stream.socket.to_string(), stream.sender, &stream.amount);
        let omitted = if stream.omitted { "(omitted)" } else { "" };
        let tail = match (stream.tcp, &stream.udp) {
            (Some(tcp), _) => {
                format!("  {:3}   {}       {omitted}", tcp.retransmits, unit::amount(tcp.snd_cwnd))
            }
            (None, Some(udp)) => format!("{}  {omitted}", self.datagrams(udp)),
            (None, None) => format!("                  {omitted}"),
        };
        match &stream.fullpipe {
            Some(of) if told => self.before_bar(&(front + &tail)) + &told_columns(of, self.rates),
            _ => format!("{front}{tail}\n"),
        }
    }

    /// Pads iperf3's columns up to the vertical bar. The padding replaces the spaces that iperf3 prints at
    /// the end of its lines.
    fn before_bar(&self, line: &str) -> String {
        let width = self.id_column().len() + WIDTH;
        format!("{:width$}", line.trim_end())
    }

    fn sum_line(&self, sum: &SumInterval) -> String {
        let front = self.front("SUM", sum.sender, &sum.amount);
        let omitted = if sum.omitted { "(omitted)" } else { "" };
        let tail = match (sum.retransmits, &sum.udp) {
            (Some(retransmits), _) => format!("  {retransmits:3}             {omitted}"),
            (None, Some(udp)) => format!("{}  {omitted}", self.datagrams(udp)),
            (None, None) => format!("                  {omitted}"),
        };
        match &sum.fullpipe {
            // The socket values of several streams cannot be added up.
            Some(of) => self.before_bar(&(front + &tail)) + &columns("", "", "", "", of.limit.as_deref()),
            None => format!("{front}{tail}\n"),
        }
    }

    fn datagrams(&self, udp: &Datagrams) -> String {
        match udp.heard {
            Some(heard) => format!(
                "  {:5.3} ms  {}/{} ({}%)",
                heard.jitter.as_millis_f64(),
                heard.lost,
                udp.packets,
                unit::percent(udp.lost_percent().unwrap_or(0.0))
            ),
            // In a bidirectional test, the sender's datagram count is aligned with the receiver's count.
            None if self.mode == Mode::Bidirectional => format!("            {}", udp.packets),
            None => format!("  {}", udp.packets),
        }
    }

    fn end_lines(&self, stream: &EndStream) -> String {
        let sender = is_sender(stream);
        let line = |socket: i32, amount: &Amount, tail: String| {
            format!("{}{tail}\n", self.front(&socket.to_string(), sender, amount))
        };
        match stream {
            EndStream::Tcp { sender, receiver } => {
                let sent = sender
                    .as_ref()
                    .map(|of| line(of.socket, &of.amount, retransmits(of.retransmits, "sender")));
                let received =
                    receiver.as_ref().map(|of| line(of.socket, &of.amount, retransmits(None, "receiver")));
                sent.unwrap_or_default() + &received.unwrap_or_default()
            }
            EndStream::Udp { udp } => {
                // A sender cannot observe losses, so its line shows no loss and no jitter.
                let unheard = Datagrams::received(udp.datagrams.packets, Default::default());
                let sent = line(udp.socket, &udp.amount, self.datagrams(&unheard) + "  sender");
                let received = udp.received.as_ref();
                let received = received
                    .map(|amount| line(udp.socket, amount, self.datagrams(&udp.datagrams) + "  receiver"));
                sent + &received.unwrap_or_default()
            }
        }
    }

    fn end_sum(&self, sum: &Sum, whose: &str) -> String {
        // Over UDP, the flag depends on the direction of the test instead of on whether this host sends.
        let sender = match self.protocol {
            Protocol::Tcp => sum.sender,
            Protocol::Udp => self.mode != Mode::Reverse,
        };
        let front = self.front("SUM", sender, &sum.amount);
        let tail = match &sum.udp {
            Some(udp) => format!("{}  {whose}", self.datagrams(udp)),
            None => retransmits(sum.retransmits, whose),
        };
        format!("{front}{tail}\n")
    }
}

fn starting(asked: &TestSettings) -> String {
    let test = &asked.test_start;
    let length = match (test.bytes.get(), test.blocks) {
        (0, 0) => format!("{} second test", test.duration.as_millis() / 1_000),
        (0, blocks) => format!("{blocks} blocks to send"),
        (bytes, _) => format!("{bytes} bytes to send"),
    };
    format!(
        "Starting Test: protocol: {}, {} streams, {} byte blocks, omitting {} seconds, {length}, tos {}\n",
        test.protocol,
        test.num_streams,
        test.blksize.get(),
        test.omit.as_millis() / 1_000,
        test.tos
    )
}

fn is_sender(stream: &EndStream) -> bool {
    match stream {
        EndStream::Tcp { sender, receiver } => {
            sender.as_ref().map(|of| of.sender).or(receiver.as_ref().map(|of| of.sender)).unwrap_or(false)
        }
        EndStream::Udp { udp } => udp.sender,
    }
}

fn retransmits(count: Option<u64>, whose: &str) -> String {
    match count {
        Some(count) => format!("  {count:3}             {whose}"),
        None => format!("                  {whose}"),
    }
}

/// Width, in characters, of iperf3's columns after the first one, up to the vertical bar.
const WIDTH: usize = 70;

const TOLD_HEADER: &str = "|       RTT          Rwnd      Delivered         Unsent  Limit";

fn told_columns(told: &SocketReading, rates: RateFormat) -> String {
    let rtt = told.srtt.map_or_else(|| "-".into(), millis);
    let delivered = told.delivery_rate.map_or_else(|| "-".into(), |rate| unit::rate(rate, rates));
    let (rwnd, unsent) = (unit::amount(told.rwnd), unit::amount(told.notsent));
    columns(&rtt, &rwnd, &delivered, &unsent, told.limit.as_deref())
}

fn columns(rtt: &str, rwnd: &str, delivered: &str, unsent: &str, limit: Option<&str>) -> String {
    format!("| {rtt:>9}  {rwnd:>12}  {delivered:>15}  {unsent:>12}  {}\n", limit.unwrap_or("-"))
}

fn millis(span: Duration) -> String {
    let millis = span.as_millis_f64();
    if millis < 10.0 { format!("{millis:.2} ms") } else { format!("{millis:.1} ms") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{EndReceiver, EndSender, EndUdp, Heard, SumReading, TcpInterval};
    use fullpipe_units::{Bytes, Instant};

    fn second(bytes: u64) -> Amount {
        let end = Instant::ZERO + Duration::from_secs(1);
        Amount { start: Instant::ZERO, end, bytes: Bytes::new(bytes) }
    }

    fn stream(amount: Amount, sender: bool) -> StreamInterval {
        StreamInterval { socket: 5, amount, tcp: None, udp: None, omitted: false, sender, fullpipe: None }
    }

    fn tcp(retransmits: u64, cwnd: Bytes) -> Option<TcpInterval> {
        Some(TcpInterval { retransmits, snd_cwnd: cwnd, ..TcpInterval::default() })
    }

    fn text(params: &Params) -> Text {
        Text { headed: true, ..Text::new(Side::Client, params, RateFormat::Adaptive, false) }
    }

    /// Formatted lines are identical to those of iperf3 3.12, including trailing spaces.
    #[test]
    fn lines_are_those_of_iperf3() {
        let both = Params { mode: Mode::Bidirectional, ..Params::default() };
        let sending = StreamInterval { tcp: tcp(4, Bytes::from_mib(2)), ..stream(second(584 << 20), true) };
        let lines = text(&both).interval(&Interval::of(vec![sending]));
        let line = "[  5][TX-C]   0.00-1.00   sec   584 MBytes  4.90 Gbits/sec    4   2.00 MBytes       \n";
        assert_eq!(lines, line);
        let lines = text(&Params::default()).interval(&Interval::of(vec![stream(second(584 << 20), false)]));
        assert_eq!(lines, "[  5]   0.00-1.00   sec   584 MBytes  4.90 Gbits/sec                  \n");

        let udp = Params { protocol: Protocol::Udp, ..Params::default() };
        let sent = StreamInterval { udp: Some(Datagrams::sent(39)), ..stream(second(39 << 15), true) };
        let lines = text(&udp).interval(&Interval::of(vec![sent]));
        assert_eq!(lines, "[  5]   0.00-1.00   sec  1.22 MBytes  10.2 Mbits/sec  39  \n");
        let heard = Heard { jitter: Duration::from_micros(7), lost: 3 };
        let heard = Some(Datagrams::received(39, heard));
        let lines = text(&udp)
            .interval(&Interval::of(vec![StreamInterval { udp: heard, ..stream(second(39 << 15), false) }]));
        assert_eq!(lines, "[  5]   0.00-1.00   sec  1.22 MBytes  10.2 Mbits/sec  0.007 ms  3/39 (7.7%)  \n");
    }

    #[test]
    fn several_streams_have_a_sum() {
        let one = StreamInterval { tcp: tcp(2, Bytes::from_mib(1)), ..stream(second(1 << 20), true) };
        let lines = text(&Params::default()).interval(&Interval::of(vec![one.clone(), one]));
        let sum = "[SUM]   0.00-1.00   sec  2.00 MBytes  16.8 Mbits/sec    4             \n";
        assert!(lines.contains(sum) && lines.ends_with("- - - - -\n"), "{lines}");
    }

    #[test]
    fn sums_have_a_line_for_each_end() {
        let sender = EndSender {
            socket: 5,
            amount: second(1 << 20),
            retransmits: Some(101),
            extremes: None,
            sender: true,
        };
        let receiver = EndReceiver { socket: 5, amount: second(1 << 19), sender: true };
        let sum =
            |bytes, retransmits| Some(Sum { amount: second(bytes), retransmits, udp: None, sender: true });
        let end = End {
            streams: vec![EndStream::Tcp { sender: Some(sender), receiver: Some(receiver) }],
            sum_sent: sum(1 << 20, Some(101)),
            sum_received: sum(1 << 19, None),
            ..End::default()
        };
        let lines = text(&Params::default()).end(&end, true);
        assert!(lines.starts_with(SEPARATOR), "{lines}");
        let sent = "[  5]   0.00-1.00   sec  1.00 MBytes  8.39 Mbits/sec  101             sender\n";
        let received = "[  5]   0.00-1.00   sec   512 KBytes  4.19 Mbits/sec                  receiver\n";
        assert!(lines.ends_with(&format!("Retr\n{sent}{received}")), "{lines}");

        let datagrams = Datagrams::received(39, Heard::default());
        let udp = EndUdp {
            socket: 5,
            amount: second(39 << 15),
            datagrams,
            received: Some(second(39 << 15)),
            sender: true,
        };
        let sum =
            Some(Sum { amount: second(39 << 15), retransmits: None, udp: Some(datagrams), sender: true });
        let end = End { streams: vec![EndStream::Udp { udp }], sum_sent: sum, ..End::default() };
        let params = Params { protocol: Protocol::Udp, ..Params::default() };
        let lines = text(&params).end(&end, true);
        let sent = "[  5]   0.00-1.00   sec  1.22 MBytes  10.2 Mbits/sec  0.000 ms  0/39 (0%)  sender\n";
        assert!(lines.contains(sent), "{lines}");
    }

    /// The values that fullpipe adds never appear among iperf3's columns.
    #[test]
    fn what_is_told_stands_behind_a_bar() {
        let told = SocketReading {
            srtt: Some(Duration::from_millis(210)),
            limit: Some("rwnd".into()),
            ..SocketReading::default()
        };
        let plain = StreamInterval { tcp: tcp(0, Bytes::from_mib(2)), ..stream(second(1 << 20), true) };
        let more = StreamInterval { fullpipe: Some(told), ..plain.clone() };
        let (plain, more) = (Interval::of(vec![plain]), Interval::of(vec![more]));
        let (plain, more) =
            (text(&Params::default()).interval(&plain), text(&Params::default()).interval(&more));
        let (columns, rest) = more.split_once('|').expect("a bar");
        assert_eq!(columns.trim_end(), plain.trim_end());
        assert!(rest.contains("210.0 ms") && rest.ends_with("rwnd\n"), "{rest}");
    }

    /// The sum's limit is in the same column as the streams' limits.
    #[test]
    fn the_sum_has_a_limit() {
        let told = SocketReading { limit: Some("link".into()), ..SocketReading::default() };
        let one = StreamInterval {
            tcp: tcp(2, Bytes::from_mib(1)),
            fullpipe: Some(told),
            ..stream(second(1 << 20), true)
        };
        let mut interval = Interval::of(vec![one.clone(), one]);
        let sum = interval.sum.as_mut().expect("a sum");
        sum.fullpipe = Some(SumReading { limit: Some("link".into()), confidence: Some("certain".into()) });
        let lines = text(&Params::default()).interval(&interval);
        let limits: Vec<Option<usize>> = lines.lines().take(3).map(|line| line.find("link")).collect();
        assert!(limits[0].is_some() && limits.iter().all(|at| *at == limits[0]), "{lines}");
        assert!(lines.contains("\n[SUM]   0.00-1.00   sec  2.00 MBytes  16.8 Mbits/sec    4 "), "{lines}");
        let json = serde_json::to_value(&interval).expect("JSON");
        assert_eq!(json["sum"]["fullpipe"]["limit"], "link");
        assert_eq!(json["sum"]["fullpipe"]["confidence"], "certain");
    }
}
