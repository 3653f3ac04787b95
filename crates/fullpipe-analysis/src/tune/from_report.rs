//! Facts for a plan from a report of `fullpipe diagnose` or `fullpipe iperf3`.

use fullpipe_tcp::buffers::KernelVersion;
use fullpipe_units::{Bytes, Duration, Probability, Rate};
use serde::Deserialize;

use super::inputs::Role;
use crate::classify::Limit;
use crate::diagnosis::{self, Diagnosis, HostSummary, Iperf3Additions};
use crate::explain::RttSource;
use crate::input::InputError;
use crate::measurement::Protocol;
use crate::path_facts::PathFacts;

/// What a report of `fullpipe diagnose` says of the path.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FromReport {
    /// The path: link, RTT, loss and parallel streams.
    pub path: PathFacts,
    /// The measured rate.
    pub measured: Option<Rate>,
    /// What holds it where no setting of a host lifts that, as a noun.
    pub out_of_reach: Option<String>,
    /// This host's part, if the measurement was made here.
    pub role: Option<Role>,
    /// The buffer of each host: sender, receiver.
    pub buffers: [Option<Bytes>; 2],
    /// The kernel of each host: sender, receiver.
    pub kernels: [Option<KernelVersion>; 2],
    /// The sender's congestion control.
    pub congestion_control: Option<String>,
}

/// What no setting of a host lifts.
const OUT_OF_REACH: [Limit; 4] = [Limit::App, Limit::ReceiverApp, Limit::Pacing, Limit::Policer];

impl FromReport {
    /// What `diagnosis` says. A document that was read may lack keys: what is empty or zero there is not known.
    pub fn of(diagnosis: &Diagnosis) -> Self {
        let Diagnosis { input, path, hosts, findings, .. } = diagnosis;
        let rate = |rate: Rate| (!rate.is_zero()).then_some(rate);
        let known = |text: &String| (!text.is_empty()).then(|| text.clone());
        let udp = input.protocol == Protocol::Udp;
        let has_rtt = path.rtt_source != RttSource::Unknown && path.rtt_ms > 0.0;
        let first = findings.first().filter(|first| OUT_OF_REACH.contains(&first.limit));
        let ends = [&hosts.sender, &hosts.receiver];
        // Those of a UDP test are what TCP is taken to have.
        let buffer =
            |end: &HostSummary| Some(Bytes::new(end.buffer_bytes)).filter(|size| !udp && !size.is_zero());
        Self {
            path: PathFacts {
                link: path.link,
                rtt: has_rtt.then(|| Duration::from_secs_f64(path.rtt_ms / 1e3)),
                loss: path.loss.map(|loss| Probability::from_f64(loss.rate)),
                flows: Some(input.streams).filter(|streams| *streams > 0),
                queue: None,
            },
            measured: rate(path.mean),
            out_of_reach: first.and_then(|first| known(&first.what)),
            role: Some(if hosts.receiver.made_the_log { Role::Receiver } else { Role::Sender }),
            buffers: ends.map(buffer),
            kernels: ends.map(|end| end.kernel.as_ref()?.parse().ok()),
            congestion_control: known(&path.congestion_control).filter(|_| !udp),
        }
    }

    /// Reads a document of `fullpipe diagnose --json`, or the diagnosis in one of `fullpipe iperf3 -J` or `--json-stream`; of a test in both
    /// directions that of the one from the client.
    ///
    /// # Errors
    /// It is none, or has no diagnosis.
    pub fn parse(text: &str) -> Result<Self, InputError> {
        let refuse = |message: String| {
            let hint = "give the output of fullpipe diagnose ... --json, or of fullpipe iperf3 -c ... -J";
            InputError::new(message, hint)
        };
        let Envelope { schema, end, .. } = match serde_json::from_str(text) {
            Ok(envelope) => envelope,
            // JSON, but no object, so none of our documents.
            Err(error) if error.is_data() && !text.trim_start().starts_with('{') => Envelope::default(),
            Err(error) if error.is_data() => {
                return Err(refuse(format!("this is not a report of diagnose: {error}")));
            }
            Err(error) => {
                let mut events = text.lines().filter_map(|line| serde_json::from_str::<Event>(line).ok());
                // Events, of which the last is the end.
                let end = events.rfind(|event| event.event == "end");
                let end = end.ok_or_else(|| refuse(format!("this is not JSON: {error}")))?.data;
                Envelope { end: Some(end), ..Envelope::default() }
            }
        };
        let (schema, diagnosis) = match end {
            None => (schema, None),
            Some(TestEnd { fullpipe: Some(Iperf3Additions { no_diagnosis: Some(why), .. }) }) => {
                let hint = "measure again as it says, or give --link and --rtt to fullpipe tune instead";
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
            return Err(refuse(format!("this is not a report of diagnose: its schema is '{schema}'")));
        }
        let diagnosis = diagnosis.map_or_else(|| serde_json::from_str(text), Ok);
        let diagnosis =
            diagnosis.map_err(|error| refuse(format!("this is not a report of diagnose: {error}")))?;
        Ok(Self::of(&diagnosis))
    }
}

/// What tells the documents apart that have a diagnosis: its own schema, or the end of a test.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Envelope {
    schema: String,
    end: Option<TestEnd>,
}

/// An event of `fullpipe iperf3 --json-stream`, where it is the end of a test.
#[derive(Deserialize)]
struct Event {
    event: String,
    data: TestEnd,
}

/// The end of a document of `fullpipe iperf3`. All but one key is iperf3's.
#[derive(Default, Deserialize)]
#[serde(default)]
struct TestEnd {
    fullpipe: Option<Iperf3Additions>,
}
