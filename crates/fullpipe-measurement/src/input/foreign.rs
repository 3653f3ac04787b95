//! Recognises text of tools that measure something else, so that the error names the tool and a command whose
//! output can be read.

use super::InputError;

/// Number of lines that are searched for a typical one.
const WITHIN: usize = 400;

/// Tool whose text output is recognised but cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignTool {
    /// `tcpdump` without `-w`.
    Tcpdump,
    /// `tshark` without `-w`.
    Tshark,
    /// `ping`, of any system.
    Ping,
    /// `curl` with a progress meter or with `-v`.
    Curl,
    /// `wget`.
    Wget,
    /// `netperf`.
    Netperf,
    /// `nuttcp`.
    Nuttcp,
    /// `mtr --report`.
    Mtr,
    /// `traceroute`, `tracepath` and `tracert`.
    Traceroute,
    /// `nstat` and `netstat -s`.
    Nstat,
    /// `speedtest`.
    Speedtest,
}

impl ForeignTool {
    const ALL: [Self; 11] = [
        Self::Tcpdump,
        Self::Tshark,
        Self::Ping,
        Self::Curl,
        Self::Wget,
        Self::Netperf,
        Self::Nuttcp,
        Self::Mtr,
        Self::Traceroute,
        Self::Nstat,
        Self::Speedtest,
    ];

    /// Returns the tool that wrote `text`, according to the first typical line.
    pub(super) fn of(text: &str) -> Option<Self> {
        text.lines()
            .take(WITHIN)
            .map(str::trim)
            .find_map(|line| Self::ALL.into_iter().find(|tool| tool.is_typical(line)))
    }

    fn is_typical(self, line: &str) -> bool {
        let has = |parts: &[&str]| parts.iter().all(|part| line.contains(part));
        let begins = |beginnings: &[&str]| beginnings.iter().any(|beginning| line.starts_with(beginning));
        match self {
            Self::Tcpdump => {
                begins(&["tcpdump: "])
                    || (has(&[" > ", ": "]) && (has(&["Flags ["]) || has(&["IP ", "length "])))
            }
            Self::Tshark => {
                begins(&["Capturing on '"]) || has(&[" → ", " TCP "]) || has(&[" -> ", " TCP ", "Seq="])
            }
            Self::Ping => {
                has(&[" bytes from ", "time="])
                    || has(&["Reply from ", "TTL="])
                    || has(&["PING ", "data bytes"])
                    || has(&["PING ", "bytes of data"])
                    || has(&["Pinging ", " bytes of data"])
                    || has(&["min/avg/max", " = "])
            }
            Self::Curl => {
                has(&["% Total", "% Received"])
                    || has(&["Dload", "Upload"])
                    || begins(&["* Connected to ", "*   Trying ", "* Host ", "< HTTP/", "curl: ("])
                    || has(&["time_connect:"])
            }
            Self::Wget => begins(&["--20"]) && has(&["--  http"]) || begins(&["Saving to: "]),
            Self::Netperf => {
                has(&[" TEST", " from ", " port "]) && (has(&["STREAM"]) || has(&["MAERTS"]) || has(&["_RR"]))
                    || has(&["TCP STREAM TEST"])
                    || has(&["REQUEST/RESPONSE TEST"])
            }
            Self::Nuttcp => begins(&["nuttcp"]) || has(&[" MB /", " sec =", "bps"]),
            Self::Mtr => has(&["Loss%", "Snt", "Last", "Best"]) || has(&["My traceroute"]),
            Self::Traceroute => {
                begins(&["traceroute to ", "traceroute6 to ", "Tracing route to "])
                    || has(&["[LOCALHOST]", "pmtu "])
                    || has(&[" hops max"])
            }
            Self::Nstat => {
                begins(&["#kernel", "TcpRetransSegs", "TcpExtTCP"]) || has(&["segments retransmitted"])
            }
            Self::Speedtest => {
                has(&["Speedtest by Ookla"])
                    || has(&["Retrieving speedtest"])
                    || has(&["Testing download speed"])
            }
        }
    }

    /// Returns the error that names the tool, with the command whose output can be read instead.
    pub fn error(self) -> InputError {
        const CAPTURE: &str = "write the packets to a file with tcpdump -i any -s 128 -w FILE host HOST, \
                               then run fullpipe diagnose FILE";
        const RTT: &str = "also measure the rate with iperf3 -c HOST -t 30 -J > FILE, then run fullpipe \
                           diagnose FILE --rtt TIME with the smallest RTT of this output";
        const OWN: &str = "sample the connection during the transfer: fullpipe diagnose --dst HOST";
        const IPERF3: &str =
            "repeat the test with iperf3 -c HOST -t 30 -J > FILE, then run fullpipe diagnose FILE";
        let (message, hint) = match self {
            Self::Tcpdump => ("this is tcpdump's text, which lacks most of each packet", CAPTURE),
            Self::Tshark => (
                "this is tshark's text, which lacks most of each packet",
                "write the packets to a file with tshark -s 128 -w FILE host HOST, then run fullpipe diagnose FILE",
            ),
            Self::Ping => ("this is the output of ping, which shows an RTT but no transfer", RTT),
            Self::Curl => {
                ("this is the output of curl, which shows a rate but not the state of the connection", OWN)
            }
            Self::Wget => {
                ("this is the output of wget, which shows a rate but not the state of the connection", OWN)
            }
            Self::Netperf => {
                ("this is the output of netperf, which shows neither windows nor an RTT", IPERF3)
            }
            Self::Nuttcp => ("this is the output of nuttcp, which shows neither windows nor an RTT", IPERF3),
            Self::Mtr => ("this is the output of mtr, which shows RTTs but no transfer", RTT),
            Self::Traceroute => ("this is the output of traceroute, which shows RTTs but no transfer", RTT),
            Self::Nstat => {
                ("these are counters of the whole host (nstat, netstat -s), not of a connection", OWN)
            }
            Self::Speedtest => {
                ("this is the output of a speed test, which shows neither windows nor an RTT", IPERF3)
            }
        };
        InputError::new(message, hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::{Kind, iperf3};

    const OUTPUTS: [(ForeignTool, &str); 17] = [
        (
            ForeignTool::Tcpdump,
            "$ sudo tcpdump -ni eth0 port 443\ntcpdump: verbose output suppressed, use -v[v]... for full protocol decode\n",
        ),
        (
            ForeignTool::Tcpdump,
            "12:34:56.789012 IP 10.0.0.2.5201 > 10.0.0.1.43210: Flags [.], seq 1:1449, ack 1, win 509, length 1448\n",
        ),
        (
            ForeignTool::Tcpdump,
            "12:34:56.789012 eth0  Out IP6 fd00::1.443 > fd00::2.50000: Flags [S], seq 1, win 64800, length 0\n",
        ),
        (
            ForeignTool::Tshark,
            "    1   0.000000     10.0.0.1 → 10.0.0.2     TCP 74 5201 → 43210 [SYN] Seq=0 Win=64240\n",
        ),
        (
            ForeignTool::Ping,
            "PING 192.0.2.1 (192.0.2.1) 56(84) bytes of data.\n64 bytes from 192.0.2.1: icmp_seq=1 ttl=57 time=10.2 ms\n",
        ),
        (ForeignTool::Ping, "PING example.com (192.0.2.1): 56 data bytes\n"),
        (
            ForeignTool::Ping,
            "Pinging 192.0.2.1 with 32 bytes of data:\r\nReply from 192.0.2.1: bytes=32 time=10ms TTL=57\r\n",
        ),
        (ForeignTool::Ping, "rtt min/avg/max/mdev = 209.8/210.1/212.0/0.4 ms\n"),
        (
            ForeignTool::Curl,
            "  % Total    % Received % Xferd  Average Speed   Time    Time     Time  Current\n                                 Dload  Upload   Total   Spent    Left  Speed\n100  954M  100  954M    0     0  8123k      0  0:02:00  0:02:00 --:--:-- 8200k\n",
        ),
        (ForeignTool::Curl, "*   Trying 192.0.2.1:443...\n* Connected to example.com (192.0.2.1) port 443\n"),
        (ForeignTool::Wget, "--2026-11-22 10:00:00--  https://example.com/f\nSaving to: 'f'\n"),
        (
            ForeignTool::Netperf,
            "MIGRATED TCP STREAM TEST from 0.0.0.0 (0.0.0.0) port 0 AF_INET to 10.0.0.2 () port 0 AF_INET : demo\nRecv   Send    Send\n",
        ),
        (ForeignTool::Nuttcp, "  110.0625 MB /   1.00 sec =  923.2365 Mbps     0 retrans\n"),
        (ForeignTool::Nuttcp, "nuttcp-t: v8.1.4: socket\n"),
        (
            ForeignTool::Mtr,
            "Start: 2026-11-22T10:00:00+0000\nHOST: here      Loss%   Snt   Last   Avg  Best  Wrst StDev\n  1.|-- 192.0.2.1  0.0%    10    0.3   0.3   0.2   0.5   0.1\n",
        ),
        (
            ForeignTool::Traceroute,
            "traceroute to example.com (192.0.2.1), 30 hops max, 60 byte packets\n 1  gateway (10.0.0.1)  0.3 ms\n",
        ),
        (ForeignTool::Nstat, "#kernel\nTcpActiveOpens                  12                 0.0\n"),
    ];

    /// "Not an iperf3 log" leaves the user to guess what to measure instead.
    #[test]
    fn the_tool_is_named_with_a_command_to_type() {
        for (tool, text) in OUTPUTS {
            assert_eq!(Kind::of(text), Kind::Foreign(tool), "{text}");
            let error = iperf3::parse(text).expect_err("not a log");
            let name = format!("{tool:?}").to_lowercase();
            let named = tool == ForeignTool::Nstat || error.message.contains(&name);
            assert!(named && error.hint.contains("fullpipe diagnose"), "{error:?}");
        }
    }

    /// Logs that can be read are often surrounded by the output of other tools.
    #[test]
    fn a_log_between_other_output_is_a_log() {
        let log = "Connecting to host 192.0.2.1, port 5201\n[  5]   0.00-1.00   sec  1 MBytes  8 Mbits/sec  0  42 KBytes\n";
        for (_, text) in OUTPUTS {
            assert_eq!(Kind::of(&format!("{text}{log}{text}")), Kind::Iperf3Text, "{text}");
            assert_eq!(Kind::of(&format!("{text}net.ipv4.tcp_rmem = 1 2 3\n")), Kind::Sysctl, "{text}");
        }
        for text in ["hello\n", "a > b: c\n", "x = y\n", "100 MB / 3\n", "Saving\n"] {
            assert_eq!(Kind::of(text), Kind::Unknown, "{text}");
        }
    }
}
