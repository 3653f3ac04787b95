//! The columns of a trace row, defined in one table.
//!
//! The flat row, the cells of a CSV file, the reader's required columns and bounds, and `docs/TRACE.md` are
//! all generated from this table.
//!
//! ```text
//!   Row ──value──► Record ──serde──► a line of CSV ──serde──► Record ──within bounds──► Row
//! ```
//!
//! Values are in base units, and the column's name ends in the unit; a cell is empty where there is no value.
//! To add a column, add a line to the table; a test then fails until [`read`](super::read()) stores its value
//! in a row. A writer of another format takes names, units and types from [`COLUMNS`], and the values from
//! [`Record`].

use std::borrow::Cow;

use fullpipe_tcp::SendLimit;
use fullpipe_units::{Duration, Rate};
use serde::{Deserialize, Serialize};

use super::{Row, SenderTruth, Sink};

/// A word, which a writer borrows without allocating.
type Text = Cow<'static, str>;

/// Description of one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Name in the header line of a file.
    pub name: &'static str,
    /// Unit of the values; empty for numbers without a unit, words and flags.
    pub unit: &'static str,
    /// Type of the values.
    pub kind: Kind,
    /// Whether a row may lack the value. A trace that lacks a required column cannot be read.
    pub optional: bool,
    /// Meaning of the values, in one sentence.
    pub meaning: &'static str,
    /// Source of the values, such as `the sending socket`.
    pub source: &'static str,
}

/// Type of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An integer from 0 to 2^32 - 1.
    U32,
    /// An integer from 0 to 2^64 - 1.
    U64,
    /// A floating-point number.
    F64,
    /// `true` or `false`.
    Bool,
    /// A word.
    Text,
}

/// Maps a Rust type to its column type.
trait Cell {
    const KIND: Kind;
    const OPTIONAL: bool = false;
}

impl Cell for u32 {
    const KIND: Kind = Kind::U32;
}

impl Cell for u64 {
    const KIND: Kind = Kind::U64;
}

impl Cell for f64 {
    const KIND: Kind = Kind::F64;
}

impl Cell for bool {
    const KIND: Kind = Kind::Bool;
}

impl Cell for Text {
    const KIND: Kind = Kind::Text;
}

impl<T: Cell> Cell for Option<T> {
    const KIND: Kind = T::KIND;
    const OPTIONAL: bool = true;
}

/// Generates [`Record`], [`COLUMNS`], the conversion from a row and the bounds check from the table.
///
/// A column is written as its meaning in a doc comment, then `name: type, unit [<= bound], value;`. The value
/// expression uses the parts of the row that the pattern binds. Columns are grouped by source.
macro_rules! columns {
    ($row:pat => $(
        $source:literal {
            $( #[doc = $meaning:literal] $name:ident: $type:ty, $unit:literal $(<= $most:ident)?, $value:expr; )*
        }
    )*) => {
        /// A trace row in flat form: one field per column, in column order.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        pub struct Record { $($(
            #[doc = $meaning]
            pub $name: $type,
        )*)* }

        /// The columns of a trace, in the order in which they are written.
        pub const COLUMNS: &[Column] = &[ $($(
            Column {
                name: stringify!($name),
                unit: $unit,
                kind: <$type as Cell>::KIND,
                optional: <$type as Cell>::OPTIONAL,
                meaning: $meaning.trim_ascii(),
                source: $source,
            },
        )*)* ];

        impl From<&Row> for Record {
            fn from(row: &Row) -> Self {
                let $row = row;
                Self { $($( $name: $value, )*)* }
            }
        }

        impl Record {
            /// Returns the first column whose value exceeds its bound, with that value.
            pub(super) fn out_of_bounds(&self) -> Option<(&'static str, u64)> {
                $($($(
                    if let Some(value) = Option::<u64>::from(self.$name).filter(|value| *value > $most) {
                        return Some((stringify!($name), value));
                    }
                )?)*)*
                None
            }
        }
    };
}

/// Maximum segment size accepted, in bytes: the 64 KiB limit of an IP packet.
const LARGEST_SEGMENT: u64 = 65_535;
/// Maximum window or socket buffer accepted, in bytes: 1 TiB, so that sums and products do not overflow.
const LARGEST_BUFFER: u64 = 1 << 40;

columns! { Row { at, flow, sender, receiver, path, truth } =>
    "the run" {
        /// Number of the flow.
        flow: u32, "", *flow;
        /// Time since the start of the run.
        t_s: f64, "s", at.as_secs_f64();
    }
    "the sending socket" {
        /// Congestion control.
        cc: Option<Text>, "", sender.cc.map(|cc| cc.name().into());
        /// Payload of a full segment.
        mss_bytes: u64, "bytes" <= LARGEST_SEGMENT, sender.mss.get();
        /// Congestion window.
        cwnd_bytes: u64, "bytes" <= LARGEST_BUFFER, sender.cwnd.get();
        /// Slow-start threshold; empty before the first reduction.
        ssthresh_bytes: Option<u64>, "bytes", sender.ssthresh.map(|bytes| bytes.get());
        /// Bytes in flight, by the sender's estimate.
        inflight_bytes: u64, "bytes" <= LARGEST_BUFFER, sender.inflight.get();
        /// Bytes sent and not cumulatively acknowledged.
        flight_size_bytes: u64, "bytes" <= LARGEST_BUFFER, sender.flight_size.get();
        /// The receiver's advertised window.
        rwnd_bytes: u64, "bytes" <= LARGEST_BUFFER, sender.rwnd.get();
        /// Bytes written and not sent yet.
        notsent_bytes: u64, "bytes" <= LARGEST_BUFFER, sender.notsent.get();
        /// Memory that the send buffer may use.
        sndbuf_bytes: u64, "bytes" <= LARGEST_BUFFER, sender.sndbuf.get();
        /// Memory that the send buffer uses.
        sndbuf_used_bytes: u64, "bytes" <= LARGEST_BUFFER, sender.sndbuf_used.get();
        /// Pacing rate.
        pacing_bps: Option<u64>, "bit/s", bps(sender.pacing_rate);
        /// Upper bound of the pacing rate, if one was set.
        max_pacing_bps: Option<u64>, "bit/s", bps(sender.max_pacing_rate);
        /// Delivery rate.
        delivery_bps: Option<u64>, "bit/s", bps(sender.delivery_rate);
        /// Whether the delivery-rate sample was limited by the application.
        app_limited: bool, "", sender.app_limited;
        /// Smoothed RTT.
        srtt_ms: Option<f64>, "ms", millis(sender.srtt);
        /// Smallest RTT.
        min_rtt_ms: Option<f64>, "ms", millis(sender.min_rtt);
        /// Bytes delivered so far.
        delivered_bytes: u64, "bytes", sender.delivered.get();
        /// Segments retransmitted so far.
        retransmits: u64, "segments", sender.retransmits;
        /// Whether the sender is in fast recovery or in recovery after an RTO.
        recovering: bool, "", sender.recovering;
    }
    "the receiving socket" {
        /// Payload received in order so far.
        received_bytes: Option<u64>, "bytes", receiver.map(|it| it.received.get());
        /// Payload received and not read yet.
        unread_bytes: Option<u64>, "bytes", receiver.map(|it| it.unread.get());
        /// Memory that the receive buffer may use.
        rcvbuf_bytes: Option<u64>, "bytes" <= LARGEST_BUFFER, receiver.map(|it| it.rcvbuf.get());
    }
    "the path" {
        /// Bytes waiting in the path's queues.
        queue_bytes: Option<u64>, "bytes", path.map(|it| it.queue.get());
        /// Time for which the path's link has been transmitting so far.
        link_busy_s: Option<f64>, "s", path.map(|it| it.link_busy.as_secs_f64());
        /// Time for which the path's shaper has delayed packets so far.
        shaper_busy_s: Option<f64>, "s", path.map(|it| it.shaper_busy.as_secs_f64());
        /// Packets that a policer dropped so far.
        policed: Option<u64>, "packets", path.map(|it| it.policed);
        /// Packets that a queue dropped so far, because it was full or by its AQM.
        queue_drops: Option<u64>, "packets", path.map(|it| it.queue_drops);
        /// Packets lost at random so far.
        random_drops: Option<u64>, "packets", path.map(|it| it.random_drops);
    }
    "our own sender" {
        /// Bytes marked lost so far.
        lost_bytes: Option<u64>, "bytes", truth.as_ref().map(|it| it.lost.get());
        /// Limit that stops the sender now.
        send_limit: Option<Text>, "", truth.as_ref().map(|it| it.send_limit.name().into());
        /// Time for which the application has stopped the sender so far.
        limited_app_s: Option<f64>, "s", limited(truth, SendLimit::App);
        /// Time for which the send buffer has stopped the sender so far.
        limited_sndbuf_s: Option<f64>, "s", limited(truth, SendLimit::Sndbuf);
        /// Time for which the receiver's window has stopped the sender so far.
        limited_rwnd_s: Option<f64>, "s", limited(truth, SendLimit::Rwnd);
        /// Time for which the congestion window has stopped the sender so far.
        limited_cwnd_s: Option<f64>, "s", limited(truth, SendLimit::Cwnd);
        /// Time for which the slow-start window has stopped the sender so far.
        limited_slow_start_s: Option<f64>, "s", limited(truth, SendLimit::SlowStart);
        /// Time for which the pacer has stopped the sender so far.
        limited_pacing_s: Option<f64>, "s", limited(truth, SendLimit::Pacing);
        /// Time for which loss recovery has stopped the sender so far.
        limited_recovery_s: Option<f64>, "s", limited(truth, SendLimit::Recovery);
        /// Phase of the congestion control.
        phase: Option<Text>, "", truth.as_ref().map(|it| it.status.phase.into());
    }
    "a kernel's BBR" {
        /// Bottleneck bandwidth measured by BBR.
        bbr_bw_bps: Option<u64>, "bit/s", sender.bbr.map(|it| it.bw.as_bps());
        /// Smallest RTT of the last ten seconds, as measured by BBR.
        bbr_min_rtt_ms: Option<f64>, "ms", millis(sender.bbr.and_then(|it| it.min_rtt));
        /// Pacing rate divided by the bottleneck bandwidth.
        bbr_pacing_gain_percent: Option<u32>, "%", sender.bbr.map(|it| it.pacing_gain_percent);
        /// Congestion window divided by the product of bottleneck bandwidth and smallest RTT.
        bbr_cwnd_gain_percent: Option<u32>, "%", sender.bbr.map(|it| it.cwnd_gain_percent);
    }
}

fn millis(span: Option<Duration>) -> Option<f64> {
    span.map(Duration::as_millis_f64)
}

fn bps(rate: Option<Rate>) -> Option<u64> {
    rate.map(Rate::as_bps)
}

fn limited(truth: &Option<Box<SenderTruth>>, limit: SendLimit) -> Option<f64> {
    truth.as_ref().map(|truth| truth.limit_times[limit as usize].as_secs_f64())
}

/// Trace rows as comma-separated values under a header line.
#[derive(Debug)]
pub struct Csv(csv::Writer<Vec<u8>>);

impl Default for Csv {
    fn default() -> Self {
        Self(csv::Writer::from_writer(Vec::new()))
    }
}

impl Csv {
    /// Returns the text: the header line, then one line per row. Empty if there was no row.
    pub fn into_text(self) -> String {
        // Writing to memory cannot fail, and records contain only UTF-8.
        self.0.into_inner().ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
    }
}

impl Sink for Csv {
    fn row(&mut self, row: &Row) {
        let _ = self.0.serialize(Record::from(row));
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;
    use std::fs;

    use super::*;
    use crate::trace::is_header;

    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/TRACE.md");
    const BEGIN: &str = "<!-- begin of the columns -->\n";
    const END: &str = "<!-- end of the columns -->\n";

    /// Returns the column table of `docs/TRACE.md`.
    fn table() -> String {
        let mut table = String::new();
        for (number, column) in COLUMNS.iter().enumerate() {
            let Column { name, unit, kind, optional, meaning, source } = column;
            if number == 0 || COLUMNS[number - 1].source != *source {
                let _ = write!(
                    table,
                    "\n### From {source}\n\n| column | unit | type | meaning |\n|---|---|---|---|\n"
                );
            }
            let unit = if unit.is_empty() { "-" } else { unit };
            let kind = match kind {
                Kind::U32 => "u32",
                Kind::U64 => "u64",
                Kind::F64 => "f64",
                Kind::Bool => "bool",
                Kind::Text => "text",
            };
            let optional = if *optional { ", optional" } else { "" };
            let _ = writeln!(
                table,
                "| `{name}` | {unit} | {kind}{optional} | {} |",
                meaning.trim_end_matches('.')
            );
        }
        table + "\n"
    }

    #[test]
    fn the_page_has_the_columns() {
        let page = fs::read_to_string(PAGE).expect("docs/TRACE.md");
        let (before, rest) = page.split_once(BEGIN).expect("where the columns begin");
        let (_, after) = rest.split_once(END).expect("where they end");
        let current = format!("{before}{BEGIN}{}{END}{after}", table());
        if std::env::var_os("FULLPIPE_UPDATE_SNAPSHOTS").is_some() {
            fs::write(PAGE, &current).expect("docs/TRACE.md is written");
        } else {
            assert!(page == current, "docs/TRACE.md is not current; its head says how to write it");
        }
    }

    /// A column's name ends in its unit, so that the file can be read without documentation. Counts have no
    /// unit in their names.
    #[test]
    fn names_tell_the_unit() {
        for Column { name, unit, .. } in COLUMNS {
            let end = match *unit {
                "bytes" => "_bytes",
                "s" => "_s",
                "ms" => "_ms",
                "bit/s" => "_bps",
                "%" => "_percent",
                "" | "packets" | "segments" => continue,
                other => panic!("{name} is in {other}"),
            };
            assert!(name.ends_with(end), "{name} is in {unit}");
        }
        assert!(is_header(&COLUMNS.iter().map(|column| column.name).collect::<Vec<_>>().join(",")));
    }
}
