//! Facts for a plan, from a report of `fullpipe diagnose` or `fullpipe iperf3`.

use fullpipe_measurement::PathFacts;
use fullpipe_measurement::classify::Limit;
use fullpipe_measurement::input::InputError;
use fullpipe_measurement::measurement::Protocol;
use fullpipe_tcp::buffers::KernelVersion;
use fullpipe_units::{Bytes, Duration, Probability, Rate};
use serde::Deserialize;

use super::inputs::Role;
use crate::diagnosis::{self, Diagnosis, HostSummary, Iperf3Additions};
use crate::explain::RttSource;

/// Facts that a plan takes from a report of `fullpipe diagnose`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FromReport {
    /// Path: link rate, RTT, loss and number of parallel streams.
    pub path: PathFacts,
    /// Mean rate of the measured transfer.
    pub measured: Option<Rate>,
    /// Limit of the transfer as a noun phrase, if no host setting lifts it.
    pub out_of_reach: Option<String>,
    /// Role of the host that recorded the log; that host is assumed to be this host.
    pub role: Option<Role>,
    /// Buffers of the sender and of the receiver.
    pub buffers: [Option<Bytes>; 2],
    /// Kernel releases of the sender and of the receiver.
    pub kernels: [Option<KernelVersion>; 2],
    /// The sender's congestion control.
    pub congestion_control: Option<String>,
}

/// Limits that no host setting lifts.
const OUT_OF_REACH: [Limit; 6] =
    [Limit::App, Limit::ReceiverApp, Limit::Pacing, Limit::Cap, Limit::Policer, Limit::Cpu];

impl FromReport {
    /// Returns the facts in `diagnosis`. A parsed document may lack keys, so an empty or zero value counts as
    /// unknown.
    pub fn of(diagnosis: &Diagnosis) -> Self {
        let Diagnosis { input, path, hosts, findings, .. } = diagnosis;
        let rate = |rate: Rate| (!rate.is_zero()).then_some(rate);
        let known = |text: &String| (!text.is_empty()).then(|| text.clone());
        let udp = input.protocol == Protocol::Udp;
        let has_rtt = path.rtt_source != RttSource::Unknown && path.rtt_ms > 0.0;
        // No setting of the host has an effect on a buffer that the application fixes.
        let is_fixed = |limit: Limit| match limit {
            Limit::Rwnd => hosts.receiver.buffer_fixed,
            Limit::Sndbuf => hosts.sender.buffer_fixed,
            _ => false,
        };
        let out_of_reach = |limit: Limit| OUT_OF_REACH.contains(&limit) || is_fixed(limit);
        let first = findings.first().filter(|first| out_of_reach(first.limit));
        let ends = [&hosts.sender, &hosts.receiver];
        // The buffers in the diagnosis of a UDP test are assumptions about TCP.
        let buffer = |end: &HostSummary| {
            let size = Some(Bytes::new(end.buffer_bytes));
            size.filter(|size| !udp && !size.is_zero() && !end.buffer_fixed)
        };
        Self {
            path: PathFacts {
                link: path.link,
                rtt: has_rtt.then(|| Duration::from_secs_f64(path.rtt_ms / 1e3)),
                loss: path.loss.map(|loss| Probability::from_f64(loss.rate)),
                flows: Some(input.streams).filter(|streams| *streams > 0),
                queue: None,
                mss: None,
                cap: None,
            },
            measured: rate(path.mean),
            out_of_reach: first.and_then(|first| known(&first.what)),
            role: Some(if hosts.receiver.made_the_log { Role::Receiver } else { Role::Sender }),
            buffers: ends.map(buffer),
            kernels: ends.map(|end| end.kernel.as_ref()?.parse().ok()),
            congestion_control: known(&path.congestion_control).filter(|_| !udp),
        }
    }

    /// Parses the output of `fullpipe diagnose --json`, or the diagnosis in the output of `fullpipe iperf3
    /// -J` or `--json-stream`. For a bidirectional test, the client-to-server direction is used.
    ///
    /// # Errors
    /// Returns an error if the text is not such a document, or contains no diagnosis.
    pub fn parse(text: &str) -> Result<Self, InputError> {
        let refuse = |message: String| {
            let hint = "give the output of fullpipe diagnose ... --json, or of fullpipe iperf3 -c ... -J";
            InputError::new(message, hint)
        };
        let Envelope { schema, end, .. } = match serde_json::from_str(text) {
            Ok(envelope) => envelope,
            // JSON that is not an object cannot be a fullpipe document.
            Err(error) if error.is_data() && !text.trim_start().starts_with('{') => Envelope::default(),
            Err(error) if error.is_data() => {
                return Err(refuse(format!("this is not a fullpipe diagnose report: {error}")));
            }
            Err(error) => {
                let mut events = text.lines().filter_map(|line| serde_json::from_str::<Event>(line).ok());
                // This is a stream of events; the last one marks the end of the test.
                let end = events.rfind(|event| event.event == "end");
                let end = end.ok_or_else(|| refuse(format!("this is not JSON: {error}")))?.data;
                Envelope { end: Some(end), ..Envelope::default() }
            }
        };
        let (schema, diagnosis) = match end {
            None => (schema, None),
            Some(TestEnd { fullpipe: Some(Iperf3Additions { no_diagnosis: Some(why), .. }) }) => {
                let hint = "solve that problem and measure again, or give --link and --rtt to fullpipe tune";
                return Err(InputError::new(format!("the report has no diagnosis: {why}"), hint));
            }
            Some(TestEnd { fullpipe: Some(Iperf3Additions { diagnosis: Some(diagnosis), .. }) }) => {
                (diagnosis.schema.clone(), Some(*diagnosis))
            }
            Some(_) => {
                return Err(InputError::new(
                    "the test has no diagnosis",
                    "run: fullpipe diagnose FILE --json | fullpipe tune --from -",
                ));
            }
        };
        if schema != diagnosis::SCHEMA {
            return Err(refuse(format!("this is not a fullpipe diagnose report: its schema is '{schema}'")));
        }
        let diagnosis = diagnosis.map_or_else(|| serde_json::from_str(text), Ok);
        let diagnosis =
            diagnosis.map_err(|error| refuse(format!("this is not a fullpipe diagnose report: {error}")))?;
        Ok(Self::of(&diagnosis))
    }
}

/// Keys that identify documents with a diagnosis: the schema of a diagnosis, or the end of a test.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Envelope {
    schema: String,
    end: Option<TestEnd>,
}

/// Event of `fullpipe iperf3 --json-stream` that ends the test.
#[derive(Deserialize)]
struct Event {
    event: String,
    data: TestEnd,
}

/// The object `end` in a document of `fullpipe iperf3`. All other keys are iperf3's own.
#[derive(Default, Deserialize)]
#[serde(default)]
struct TestEnd {
    fullpipe: Option<Iperf3Additions>,
}
