//! The result of a copy, as a JSON document and as text.

use std::collections::BTreeMap;
use std::fmt;

use fullpipe_units::{Bytes, Duration, Rate};
use schemars::JsonSchema;
use serde::Serialize;

/// Result of a copy.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CopyReport {
    /// Name and version of the format of this JSON document.
    #[schemars(extend("const" = Self::SCHEMA))]
    pub schema: &'static str,
    /// Number of files and symbolic links that were copied or already existed unchanged at the target.
    pub files: u64,
    /// Number of files whose target already had the size and modification time of the source; with
    /// `--verify`, also its hash.
    pub same_files: u64,
    /// Number of sockets, devices and named pipes, which are not copied.
    pub skipped_files: u64,
    /// Total size of all files in bytes.
    pub bytes: u64,
    /// Payload that this copy sent, in bytes; holes are not sent.
    pub sent_bytes: u64,
    /// Payload that an interrupted copy had already sent, in bytes.
    pub resumed_bytes: u64,
    /// Duration of the copy in seconds.
    pub wall_s: f64,
    /// Time from the start until the first bytes of a file were passed to the kernel, in seconds; null if none
    /// were sent.
    pub first_byte_s: Option<f64>,
    /// Mean payload rate over the duration of the copy, in bit/s.
    pub goodput_bps: u64,
    /// BLAKE3 hash of the file, as `b3sum` prints it; null if the copy sent no file or several files.
    pub blake3: Option<String>,
    /// Results of the connections, in the order in which they were opened.
    pub connections: Vec<ConnectionReport>,
    /// Largest number of connections that were open at the same time.
    pub most_connections: u64,
    /// Memory that the copy needed on this host.
    pub memory: MemoryReport,
    /// Prediction with which the copy can be compared; null if the link rate was not given.
    pub forecast: Option<ForecastReport>,
    /// Limit that applied to the connections for the longest time; null if the limits were not observed.
    pub limit: Option<String>,
    /// Share of the time for which this limit applied, 0 to 1.
    pub limit_share: Option<f64>,
    /// Result of the pipe if the source was a pipe; null for files.
    pub pipe: Option<PipeReport>,
    /// Number of times that the copy lost the relay and continued.
    pub reconnects: u64,
    /// Changes that would make the copy faster; empty if none is known.
    pub advice: Vec<String>,
}

/// Memory that a copy needed on this host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct MemoryReport {
    /// Largest resident memory of the process, in bytes.
    pub rss_bytes: u64,
    /// Largest kernel memory that the sockets of the copy used, in bytes; null if it was not observed.
    pub kernel_bytes: Option<u64>,
    /// Size to which the buffers of the sockets were fixed because of `--memory`, in bytes; null if the kernel chose
    /// their size.
    pub fixed_buffer_bytes: Option<u64>,
    /// Number of connections to which the copy was reduced because of `--memory`; null if it was not reduced.
    pub held_to: Option<u32>,
}

/// Simulated result for the largest number of connections of the copy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ForecastReport {
    /// Number of connections in the simulation.
    pub connections: u64,
    /// Steady-state payload rate of all connections, in bit/s.
    pub steady_bps: u64,
    /// Payload rate of the copy, including its start, divided by `steady_bps`.
    pub ratio: f64,
}

/// Result of a pipe.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PipeReport {
    /// Name of the stream; null if the stream has no name.
    pub stream: Option<String>,
    /// Offset in bytes at which this copy started; an earlier copy had already sent the bytes before it.
    pub begin_bytes: u64,
    /// Offset in bytes up to which the producer may discard its data.
    pub accepted_bytes: u64,
    /// Largest amount of data that was kept at one time, in bytes.
    pub most_held_bytes: u64,
    /// Time for which the producer waited because the memory was full, in seconds.
    pub blocked_s: f64,
    /// Rate of the producer while it did not wait, in bit/s.
    pub offered_bps: u64,
    /// Rate at which the bytes of the pipe became durable, in bit/s.
    pub carried_bps: u64,
}

/// Result of one connection.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ConnectionReport {
    /// Payload that the connection sent, in bytes.
    pub bytes: u64,
    /// Mean payload rate over the duration of the copy, in bit/s.
    pub goodput_bps: u64,
    /// Last smoothed RTT in milliseconds; null if it was not observed.
    pub rtt_ms: Option<f64>,
    /// Number of retransmitted segments; null if it was not observed.
    pub retransmits: Option<u64>,
    /// Share of the time for which each limit applied, 0 to 1.
    pub limit: BTreeMap<String, f64>,
    /// Whether the connection was lost before the end of the copy.
    pub lost: bool,
    /// Number of times that the connection was opened anew, because it was far slower than the others.
    pub reopened: u32,
}

/// Returns a description of a limit in plain words.
fn words(limit: &str) -> &str {
    match limit {
        "app" => "reading the files",
        "receiver_app" => "the receiver, which writes data more slowly than it arrives",
        "rwnd" => "the receive window of each connection",
        "sndbuf" => "the send buffer of each connection",
        "cwnd" => "the congestion window of each connection",
        "slow_start" => "slow start, because the copy was too short for this path",
        "pacing" => "the rate limit of the copy",
        "cap" => "a rate cap of each connection",
        "policer" => "a policer, which drops packets above its rate",
        "cpu" => "the processor",
        "link" => "the link",
        other if other.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') => other,
        // A relay that sends may report any text, which a terminal must not interpret.
        _ => "a limit with an invalid name",
    }
}

/// Facts about a copy from which its advice follows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CopyFacts {
    /// Rate of the slowest link of the path, if it is known.
    pub(crate) link: Option<Rate>,
    /// RTT of the path, if it was observed.
    pub(crate) rtt: Option<Duration>,
    /// Mean payload rate of the copy.
    pub(crate) rate: Rate,
    /// Number of connections that were open at the same time.
    pub(crate) connections: u64,
}

impl CopyFacts {
    /// Returns the command that enlarges the buffers of a host, and the rate that it makes possible.
    fn tune(self, place: &str, role: &str) -> String {
        let Self { link, rtt, rate, connections } = self;
        let count = connections.max(1);
        let each = rate.mul_div(1, count);
        let link_argument = link.map_or("RATE".into(), argument);
        let rtt_argument =
            rtt.map_or("TIME".into(), |rtt| format!("{}ms", rtt.as_nanos().div_ceil(1_000_000)));
        let mut text = format!(
            "larger buffers on the {place} host: run sudo fullpipe tune --link {link_argument} --rtt \
             {rtt_argument} --flows {count}{role} --apply there"
        );
        match link {
            Some(link) if link.mul_div(1, count) > each => {
                let most = link.mul_div(1, count);
                text += &format!("; each connection can then carry up to {most} instead of {each}");
            }
            _ => {
                text += &format!(
                    "; each connection now carries {each}; with larger buffers, only its congestion window and \
                     the link limit it"
                );
            }
        }
        text
    }
}

/// Returns a rate as a command-line argument.
fn argument(rate: Rate) -> String {
    match rate.as_bps() {
        bps if bps.is_multiple_of(1_000_000) => format!("{}mbit", bps / 1_000_000),
        bps => format!("{}kbit", bps.div_ceil(1000)),
    }
}

/// Returns the change that removes a limit, if there is one.
pub(crate) fn advice(limit: &str, facts: CopyFacts) -> Option<String> {
    let or_more = "; or use more connections";
    match limit {
        "rwnd" => Some(facts.tune("receiving", " --role receiver")),
        "sndbuf" => Some(facts.tune("sending", "") + or_more),
        "cwnd" => Some(
            "BBR, if the path loses packets: --cc bbr, or fullpipe tune on the sending host; or use more \
             connections"
                .into(),
        ),
        "cap" | "policer" => Some("more connections, if the cap applies to each connection".into()),
        _ => None,
    }
}

impl CopyReport {
    /// Name and version of the document's format.
    pub const SCHEMA: &'static str = "fullpipe.copy/1";
}

impl fmt::Display for CopyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: u64, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
        write!(f, "copied {}", plural(self.files - self.same_files, "file"))?;
        if self.sent_bytes > 0 {
            write!(
                f,
                ", sent {} in {} over {}: {}",
                Bytes::new(self.sent_bytes),
                Duration::from_secs_f64(self.wall_s),
                plural(self.connections.len() as u64, "connection"),
                Rate::from_bps(self.goodput_bps)
            )?;
        }
        if self.resumed_bytes > 0 {
            write!(f, "; {} were already there", Bytes::new(self.resumed_bytes))?;
        }
        if self.same_files > 0 {
            write!(
                f,
                "; skipped {} with the same size and modification time",
                plural(self.same_files, "file")
            )?;
        }
        if let Some(pipe) = self.pipe.as_ref().filter(|pipe| pipe.blocked_s > 0.0) {
            write!(
                f,
                "; the producer wrote {} and waited for {}",
                Rate::from_bps(pipe.offered_bps),
                Duration::from_secs_f64(pipe.blocked_s)
            )?;
        }
        if self.reconnects > 0 {
            write!(f, "; reconnected {}", plural(self.reconnects, "time"))?;
        }
        match self.connections.iter().filter(|connection| connection.lost).count() {
            0 => {}
            lost => write!(f, "; lost {}", plural(lost as u64, "connection"))?,
        }
        match self.connections.iter().map(|connection| connection.reopened).sum::<u32>() {
            0 => {}
            count => write!(f, "; opened {} anew", plural(count.into(), "slow connection"))?,
        }
        if let Some(size) = self.memory.fixed_buffer_bytes {
            write!(
                f,
                "\nmemory: because of --memory, the buffer of each connection has a fixed size of {}, without autotuning",
                Bytes::new(size)
            )?;
        }
        if let Some(count) = self.memory.held_to {
            write!(
                f,
                "\nmemory: because of --memory, the copy used at most {}",
                plural(count.into(), "connection")
            )?;
        }
        if let (Some(limit), Some(share)) = (&self.limit, self.limit_share) {
            write!(f, "\nlimit: {}, for {:.0} % of the time", words(limit), share * 100.0)?;
        }
        if let Some(forecast) = &self.forecast {
            write!(
                f,
                "\nforecast: {} in steady state over {}; the copy, including slow start, reached {:.0} % of \
                 this rate",
                Rate::from_bps(forecast.steady_bps),
                plural(forecast.connections, "connection"),
                forecast.ratio * 100.0
            )?;
        }
        for advice in &self.advice {
            write!(f, "\nfaster with: {advice}")?;
        }
        f.write_str("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_states_what_was_sent_and_what_was_not() {
        let connection = ConnectionReport {
            bytes: 1 << 20,
            goodput_bps: 8 << 20,
            rtt_ms: None,
            retransmits: None,
            limit: BTreeMap::new(),
            lost: false,
            reopened: 0,
        };
        let mut report = CopyReport {
            schema: CopyReport::SCHEMA,
            files: 1,
            same_files: 0,
            skipped_files: 0,
            bytes: 1 << 20,
            sent_bytes: 1 << 20,
            resumed_bytes: 0,
            wall_s: 1.0,
            first_byte_s: Some(0.5),
            goodput_bps: 8 << 20,
            blake3: None,
            connections: vec![connection.clone()],
            most_connections: 1,
            memory: MemoryReport::default(),
            forecast: None,
            limit: None,
            limit_share: None,
            pipe: None,
            reconnects: 0,
            advice: Vec::new(),
        };
        assert_eq!(report.to_string(), "copied 1 file, sent 1 MiB in 1s over 1 connection: 8.39 Mbit/s\n");
        report.files = 5;
        report.same_files = 3;
        report.resumed_bytes = 64 << 20;
        report.connections.push(ConnectionReport { lost: true, ..connection.clone() });
        assert_eq!(
            report.to_string(),
            "copied 2 files, sent 1 MiB in 1s over 2 connections: 8.39 Mbit/s; 64 MiB were already there; \
             skipped 3 files with the same size and modification time; lost 1 connection\n"
        );
        report =
            CopyReport { same_files: 5, sent_bytes: 0, resumed_bytes: 0, connections: Vec::new(), ..report };
        assert_eq!(
            report.to_string(),
            "copied 0 files; skipped 5 files with the same size and modification time\n"
        );
        report.pipe = Some(PipeReport {
            stream: None,
            begin_bytes: 0,
            accepted_bytes: 5,
            most_held_bytes: 5,
            blocked_s: 0.25,
            offered_bps: 2_000_000,
            carried_bps: 1_000_000,
        });
        report.reconnects = 1;
        assert!(
            report
                .to_string()
                .ends_with("; the producer wrote 2 Mbit/s and waited for 250ms; reconnected 1 time\n"),
            "{report}"
        );
        (report.pipe, report.reconnects) = (None, 0);
        report.memory.fixed_buffer_bytes = Some(2 << 20);
        report.memory.held_to = Some(3);
        report.connections = vec![ConnectionReport { reopened: 2, ..connection }];
        assert!(
            report.to_string().ends_with(
                "; opened 2 slow connections anew\nmemory: because of --memory, the buffer of each connection has a \
                 fixed size of 2 MiB, without autotuning\nmemory: because of --memory, the copy used at most 3 connections\n"
            ),
            "{report}"
        );
        let facts = CopyFacts {
            link: Some(Rate::from_bps(500_000_000)),
            rtt: Some(Duration::from_micros(209_300)),
            rate: Rate::from_bps(80_000_000),
            connections: 4,
        };
        let advice = advice("rwnd", facts).into_iter().collect();
        report = CopyReport { limit: Some("rwnd".into()), limit_share: Some(0.83), advice, ..report };
        assert!(
            report.to_string().ends_with(
                "\nlimit: the receive window of each connection, for 83 % of the time\n\
                 faster with: larger buffers on the receiving host: run sudo fullpipe tune --link 500mbit --rtt \
                 210ms --flows 4 --role receiver --apply there; each connection can then carry up to 125 Mbit/s \
                 instead of 20 Mbit/s\n"
            ),
            "{report}"
        );
        let unknown = super::advice("sndbuf", CopyFacts { link: None, ..facts }).expect("advice");
        assert!(unknown.contains("tune --link RATE --rtt 210ms --flows 4 --apply there; each"), "{unknown}");
        assert_eq!(super::advice("link", facts), None);
        report = CopyReport { limit: Some("\x1b[2J\nerror: no".into()), advice: Vec::new(), ..report };
        assert!(
            report.to_string().ends_with("\nlimit: a limit with an invalid name, for 83 % of the time\n")
        );
    }
}
