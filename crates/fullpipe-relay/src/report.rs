//! The result of a copy, as a JSON document and as text.

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
    /// Number of files and symbolic links that were copied or found to be the same.
    pub files: u64,
    /// Number of files that had the size and the modification time of their source already; with `--verify`,
    /// those that also had its hash.
    pub same_files: u64,
    /// Number of sockets, devices and named pipes, which are not copied.
    pub skipped_files: u64,
    /// Size of all files in bytes.
    pub bytes: u64,
    /// Payload that was sent, in bytes; holes are not sent.
    pub sent_bytes: u64,
    /// Payload that an interrupted copy had sent, in bytes.
    pub resumed_bytes: u64,
    /// Duration of the copy in seconds.
    pub wall_s: f64,
    /// Time from the start to the first block that was passed to the kernel, in seconds; null if none was
    /// sent.
    pub first_byte_s: Option<f64>,
    /// Payload that was sent per second, in bit/s.
    pub goodput_bps: u64,
    /// BLAKE3 hash of the file, as `b3sum` prints it; null if several files were copied, or none was sent.
    pub blake3: Option<String>,
    /// Each connection, in the order in which they were opened.
    pub connections: Vec<ConnectionReport>,
    /// Largest number of connections that were open at the same time.
    pub most_connections: u64,
}

/// Result of a connection.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ConnectionReport {
    /// Payload that was sent, in bytes.
    pub bytes: u64,
    /// Payload that was sent per second of the copy, in bit/s.
    pub goodput_bps: u64,
    /// The connection was lost before the end of the copy.
    pub lost: bool,
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
            write!(f, "; {} were there already", Bytes::new(self.resumed_bytes))?;
        }
        if self.same_files > 0 {
            write!(f, "; skipped {} of the same size and time", plural(self.same_files, "file"))?;
        }
        match self.connections.iter().filter(|connection| connection.lost).count() {
            0 => {}
            lost => write!(f, "; lost {}", plural(lost as u64, "connection"))?,
        }
        f.write_str("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_states_what_was_sent_and_what_was_not() {
        let connection = ConnectionReport { bytes: 1 << 20, goodput_bps: 8 << 20, lost: false };
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
        };
        assert_eq!(report.to_string(), "copied 1 file, sent 1 MiB in 1s over 1 connection: 8.39 Mbit/s\n");
        report.files = 5;
        report.same_files = 3;
        report.resumed_bytes = 64 << 20;
        report.connections.push(ConnectionReport { lost: true, ..connection });
        assert_eq!(
            report.to_string(),
            "copied 2 files, sent 1 MiB in 1s over 2 connections: 8.39 Mbit/s; 64 MiB were there already; \
             skipped 3 files of the same size and time; lost 1 connection\n"
        );
        report =
            CopyReport { same_files: 5, sent_bytes: 0, resumed_bytes: 0, connections: Vec::new(), ..report };
        assert_eq!(report.to_string(), "copied 0 files; skipped 5 files of the same size and time\n");
    }
}
