//! Comparison of TCP and UDP on one path.
//!
//! A UDP test sends at a fixed rate, whether or not the data arrives. It shows the capacity of the path, but
//! not the effects specific to TCP: windows, buffers and the reaction to loss. The two results therefore
//! complement each other.

use fullpipe_measurement::thresholds::loss;
use fullpipe_units::{Duration, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Minimum ratio of the two rates that counts as a difference.
const APART: f64 = 1.1;

/// Results of a TCP test and a UDP test on one path.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TcpVsUdp {
    /// Rate of the payload received over TCP: key `tcp_bps`.
    #[serde(rename = "tcp_bps", with = "fullpipe_measurement::json::Bps")]
    pub tcp: Rate,
    /// Number of segments that TCP retransmitted; null if the sender did not report it: key
    /// `tcp_retransmits`.
    #[serde(rename = "tcp_retransmits")]
    pub retransmits: Option<u64>,
    /// Rate of the payload sent over UDP: key `udp_offered_bps`.
    #[serde(rename = "udp_offered_bps", with = "fullpipe_measurement::json::Bps")]
    pub offered: Rate,
    /// Rate of the payload received over UDP: key `udp_bps`.
    #[serde(rename = "udp_bps", with = "fullpipe_measurement::json::Bps")]
    pub udp: Rate,
    /// Share of lost datagrams, 0 to 1: key `udp_lost`.
    #[serde(rename = "udp_lost")]
    pub lost: f64,
    /// Jitter of the datagrams, in milliseconds: key `udp_jitter_ms`.
    #[serde(rename = "udp_jitter_ms", with = "fullpipe_measurement::json::Millis")]
    pub jitter: Duration,
}

impl TcpVsUdp {
    /// Returns a table with a header and one row per test.
    pub fn table(&self) -> String {
        let row = |cells: [&str; 5]| {
            let [name, sent, arrived, lost, more] = cells;
            format!("{name:<5} {sent:>14} {arrived:>14} {lost:>9}  {more}").trim_end().to_owned() + "\n"
        };
        let resent = match self.retransmits {
            Some(count) => format!("{count} segments retransmitted"),
            None => "not known: the sender is the other host".into(),
        };
        let lost = format!("{:.2} %", 100.0 * self.lost);
        let jitter = format!("jitter {:.3} ms", self.jitter.as_millis_f64());
        row(["", "offered", "arrived", "lost", ""])
            + &row(["TCP", "unlimited", &self.tcp.to_string(), "-", &resent])
            + &row(["UDP", &self.offered.to_string(), &self.udp.to_string(), &lost, &jitter])
    }

    /// Returns the conclusion from both tests: what limits TCP, and which questions remain open.
    pub fn verdict(&self) -> String {
        let (tcp, udp) = (self.tcp.as_bps() as f64, self.udp.as_bps() as f64);
        let lost = 100.0 * self.lost;
        if udp > APART * tcp {
            return format!(
                "UDP carries {:.1} times as much as TCP ({} and {}), so the path can carry more than TCP \
                 sends. The limit lies in TCP: a window, a buffer, or the reaction to loss.",
                udp / tcp.max(1.0),
                self.udp,
                self.tcp
            );
        }
        if tcp > APART * udp && self.lost > loss::CARRIED {
            return format!(
                "UDP lost {lost:.2} % of {} and carried less than TCP ({} and {}): bursts overflow a queue, \
                 or a device on the path gives UDP a lower priority.",
                self.offered, self.udp, self.tcp
            );
        }
        if self.lost > loss::CARRIED {
            return format!(
                "UDP lost {lost:.2} % at {}, which is about the capacity of the path, and TCP reaches that capacity.",
                self.offered
            );
        }
        format!(
            "UDP lost {lost:.2} % at {}, so the path carries at least the rate of TCP. The test does not \
             show whether the path carries more, or what limits TCP; repeat it with a higher UDP rate (-b).",
            self.offered
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tests(tcp: u64, offered: u64, udp: u64) -> TcpVsUdp {
        let mbit = |rate| Rate::from_bps(rate * 1_000_000);
        TcpVsUdp {
            tcp: mbit(tcp),
            retransmits: Some(3),
            offered: mbit(offered),
            udp: mbit(udp),
            lost: 1.0 - udp as f64 / offered as f64,
            jitter: Duration::from_micros(120),
        }
    }

    /// The case that a UDP test alone hides: the link has capacity, but TCP reaches less than a tenth of it.
    #[test]
    fn udp_that_carries_more_points_at_tcp_itself() {
        let verdict = tests(70, 900, 895).verdict();
        assert!(verdict.contains("12.8 times") && verdict.contains("The limit lies in TCP"), "{verdict}");
    }

    #[test]
    fn udp_at_the_rate_of_tcp_says_nothing_of_more() {
        let verdict = tests(70, 70, 70).verdict();
        assert!(verdict.contains("repeat it with a higher UDP rate (-b)"), "{verdict}");
        assert!(tests(95, 100, 94).verdict().contains("about the capacity of the path"));
        assert!(tests(95, 100, 40).verdict().contains("gives UDP a lower priority"));
    }

    #[test]
    fn the_table_has_both_rows() {
        let table = tests(70, 900, 895).table();
        let rows: Vec<&str> = table.lines().collect();
        assert!(rows[1].starts_with("TCP") && rows[1].ends_with("3 segments retransmitted"), "{table}");
        assert!(rows[2].starts_with("UDP") && rows[2].contains("0.56 %"), "{table}");
    }
}
