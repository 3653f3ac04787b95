//! The results that client and server exchange after a test.

use fullpipe_units::{Bytes, Duration};
use serde_json::{Map, Value, json};

use crate::json;
use crate::params::STREAMS_MOST;
use crate::{Refusal, WireError};

/// Results of one side (client or server) of a test.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Results {
    /// CPU utilisation of this side (client or server) during the test.
    pub cpu: Cpu,
    /// Whether this side reports the retransmissions of its senders; `None` if this side does not send.
    pub sender_has_retransmits: Option<bool>,
    /// Congestion control that the sockets of this side use.
    pub congestion_used: Option<String>,
    /// Results of each stream, as counted by this side.
    pub streams: Vec<StreamResult>,
    /// Output of the server, if the client requested it.
    pub server_output: Option<ServerOutput>,
    /// Trace rows of this side's sending sockets, if the client requested them (key `fullpipe_trace`).
    pub trace: Option<String>,
}

/// CPU utilisation in percent of one CPU core.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cpu {
    /// CPU time in user mode and in kernel mode.
    pub total: f64,
    /// CPU time in user mode.
    pub user: f64,
    /// CPU time in kernel mode.
    pub system: f64,
}

/// Output that the server has printed about a test.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerOutput {
    /// Server output as text.
    Text(String),
    /// Server output as a JSON document (`-J`).
    Json(Value),
}

/// Results of one stream, as counted by one side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamResult {
    /// Number that identifies the stream in a test.
    pub id: u32,
    /// Number of bytes sent or received, excluding the omitted period.
    pub bytes: Bytes,
    /// Number of segments retransmitted; `None` for a receiver, or if the operating system does not report
    /// it.
    pub retransmits: Option<u64>,
    /// Jitter of the received datagrams (RFC 1889).
    pub jitter: Duration,
    /// Number of lost datagrams, including those in the omitted period.
    pub errors: u64,
    /// Number of datagrams sent, or the highest sequence number received, including the omitted period.
    pub packets: u64,
    /// Datagram counts of the omitted period; `None` for iperf3 versions before 3.14, which do not report
    /// them.
    pub omitted: Option<OmittedCounts>,
    /// Start time of the stream's data transfer, relative to the start of the test.
    pub start: Duration,
    /// End time of the stream's data transfer, relative to the start of the test.
    pub end: Duration,
}

/// Datagram counts of the omitted period of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OmittedCounts {
    /// Number of datagrams lost in the omitted period.
    pub errors: u64,
    /// Number of datagrams sent in the omitted period, or the highest sequence number received in it.
    pub packets: u64,
}

/// Largest count that is written to JSON. iperf3 would read larger values as -1.
const COUNT_MOST: u64 = i64::MAX as u64;

impl Results {
    /// Returns the results as JSON, in the form in which they are sent.
    pub fn to_json(&self) -> Value {
        let mut of = Map::new();
        of.insert("cpu_util_total".into(), self.cpu.total.into());
        of.insert("cpu_util_user".into(), self.cpu.user.into());
        of.insert("cpu_util_system".into(), self.cpu.system.into());
        let known = self.sender_has_retransmits.map_or(-1, i64::from);
        of.insert("sender_has_retransmits".into(), known.into());
        if let Some(name) = &self.congestion_used {
            of.insert("congestion_used".into(), name.as_str().into());
        }
        of.insert("streams".into(), self.streams.iter().map(StreamResult::to_json).collect());
        match &self.server_output {
            Some(ServerOutput::Text(text)) => of.insert("server_output_text".into(), text.as_str().into()),
            Some(ServerOutput::Json(document)) => of.insert("server_output_json".into(), document.clone()),
            None => None,
        };
        if let Some(trace) = &self.trace {
            of.insert("fullpipe_trace".into(), trace.as_str().into());
        }
        Value::Object(of)
    }

    /// Parses the results of the other side.
    ///
    /// # Errors
    /// Returns an error if a value that every iperf3 version sends is missing, or if there are more streams
    /// than a test can have.
    pub fn from_json(of: &Value) -> Result<Self, WireError> {
        let missing = |key: &str| WireError::new(format!("the results have no valid '{key}'"));
        let cpu = |key| json::real(of, key).ok_or_else(|| missing(key));
        let streams = of.get("streams").and_then(Value::as_array).ok_or_else(|| missing("streams"))?;
        if streams.len() > 2 * STREAMS_MOST as usize {
            return Err(WireError::new(format!("the results list {} streams", streams.len())));
        }
        let server_output = match of.get("server_output_json") {
            Some(document) => Some(ServerOutput::Json(document.clone())),
            None => json::text(of, "server_output_text").map(ServerOutput::Text),
        };
        Ok(Self {
            cpu: Cpu {
                total: cpu("cpu_util_total")?,
                user: cpu("cpu_util_user")?,
                system: cpu("cpu_util_system")?,
            },
            sender_has_retransmits: match json::integer(of, "sender_has_retransmits") {
                Some(0) => Some(false),
                Some(1) => Some(true),
                _ => None,
            },
            congestion_used: json::text(of, "congestion_used"),
            streams: streams
                .iter()
                .map(|of| StreamResult::from_json(of).ok_or_else(|| missing("streams")))
                .collect::<Result<_, _>>()?,
            server_output,
            trace: json::text(of, "fullpipe_trace"),
        })
    }

    /// Returns the results of the streams `ids`, in the order of `ids`.
    ///
    /// # Errors
    /// Returns an error if the results of one of these streams are missing.
    pub fn of_streams(&self, ids: impl IntoIterator<Item = u32>) -> Result<Vec<&StreamResult>, Refusal> {
        let of = |id| self.streams.iter().find(|stream| stream.id == id).ok_or(Refusal::STREAM_ID);
        ids.into_iter().map(of).collect()
    }
}

impl StreamResult {
    fn to_json(&self) -> Value {
        let count = |count: u64| count.min(COUNT_MOST);
        let mut of = json!({
            "id": self.id,
            "bytes": count(self.bytes.get()),
            "retransmits": self.retransmits.map_or(json!(-1), |retransmits| count(retransmits).into()),
            "jitter": self.jitter.as_secs_f64(),
            "errors": count(self.errors),
            "packets": count(self.packets),
            "start_time": self.start.as_secs_f64(),
            "end_time": self.end.as_secs_f64(),
        });
        if let (Some(omitted), Some(of)) = (self.omitted, of.as_object_mut()) {
            of.insert("omitted_errors".into(), count(omitted.errors).into());
            of.insert("omitted_packets".into(), count(omitted.packets).into());
        }
        of
    }

    fn from_json(of: &Value) -> Option<Self> {
        // Duplicate datagrams can make the reported loss negative; a negative loss is treated as zero.
        let errors = |key| json::integer(of, key).map(|errors| errors.max(0).unsigned_abs());
        let omitted = (errors("omitted_errors"), json::count(of, "omitted_packets"));
        Some(Self {
            id: json::count(of, "id").and_then(|id| u32::try_from(id).ok())?,
            bytes: Bytes::new(json::count(of, "bytes")?),
            retransmits: json::count(of, "retransmits"),
            jitter: json::seconds(of, "jitter").unwrap_or_default(),
            errors: errors("errors").unwrap_or_default(),
            packets: json::count(of, "packets").unwrap_or_default(),
            omitted: match omitted {
                (Some(errors), Some(packets)) => Some(OmittedCounts { errors, packets }),
                _ => None,
            },
            start: json::seconds(of, "start_time").unwrap_or_default(),
            end: json::seconds(of, "end_time").unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results() -> Results {
        let stream = StreamResult {
            id: 1,
            bytes: Bytes::new(1_000),
            retransmits: Some(4),
            jitter: Duration::from_micros(25),
            errors: 3,
            packets: 90,
            omitted: Some(OmittedCounts { errors: 1, packets: 10 }),
            start: Duration::ZERO,
            end: Duration::from_secs(1),
        };
        let receiver = StreamResult { id: 3, retransmits: None, omitted: None, ..stream.clone() };
        Results {
            cpu: Cpu { total: 3.5, user: 1.0, system: 2.5 },
            sender_has_retransmits: Some(true),
            congestion_used: Some("cubic".into()),
            streams: vec![stream, receiver],
            server_output: Some(ServerOutput::Text("a line\n".into())),
            trace: Some("time_ns,flow\n".into()),
        }
    }

    #[test]
    fn results_go_there_and_back() {
        let there = results();
        assert_eq!(Results::from_json(&there.to_json()).as_ref(), Ok(&there));
        let json = Results { server_output: Some(ServerOutput::Json(json!({"start": {}}))), ..there };
        assert_eq!(Results::from_json(&json.to_json()), Ok(json));
    }

    /// The results that a receiver with Debian's iperf3 3.12 sends are accepted.
    #[test]
    fn the_minus_one_of_iperf3_is_no_count() {
        let sent = r#"{"cpu_util_total":0.7,"cpu_util_user":0.1,"cpu_util_system":0.6,
            "sender_has_retransmits":18446744073709551615,"streams":[{"id":1,"bytes":131072,
            "retransmits":18446744073709551615,"jitter":0,"errors":0,"packets":0,"start_time":0,"end_time":1.04}]}"#;
        let results = Results::from_json(&serde_json::from_str(sent).expect("JSON")).expect("results");
        assert_eq!(results.sender_has_retransmits, None);
        assert_eq!(results.streams[0].retransmits, None);
        assert_eq!(results.streams[0].end, Duration::from_millis(1_040));
    }

    #[test]
    fn streams_are_found_by_their_numbers() {
        let results = results();
        let of = results.of_streams([3, 1]).expect("both");
        assert_eq!((of[0].id, of[1].id), (3, 1));
        assert_eq!(results.of_streams([1, 4]), Err(Refusal::STREAM_ID));
    }

    #[test]
    fn hostile_results_are_refused() {
        let mut of = results().to_json();
        assert!(Results::from_json(&json!([])).is_err() && Results::from_json(&json!({})).is_err());
        of["streams"] = json!("none");
        assert!(Results::from_json(&of).is_err());
        of["streams"] = json!([{"id": "1", "bytes": 5}]);
        assert!(Results::from_json(&of).is_err());
        of["streams"] = json!([{"id": 1, "bytes": -5}]);
        assert!(Results::from_json(&of).is_err());
        of["streams"] = vec![json!({"id": 1, "bytes": 5}); 257].into();
        assert_eq!(
            Results::from_json(&of).expect_err("too many").to_string(),
            "the results list 257 streams"
        );
        of["streams"] = json!([{"id": 1, "bytes": 5, "jitter": -1.0, "errors": -2, "start_time": 1e300}]);
        let stream = &Results::from_json(&of).expect("odd, but readable").streams[0];
        assert_eq!((stream.jitter, stream.errors, stream.start), (Duration::ZERO, 0, Duration::MAX));
    }

    #[test]
    fn no_count_is_written_that_others_read_as_minus_one() {
        let stream = StreamResult { errors: u64::MAX, packets: u64::MAX, ..StreamResult::default() };
        assert_eq!(stream.to_json()["errors"], json!(i64::MAX));
    }
}
