//! Values that fullpipe adds to iperf3's documents and events.

use fullpipe_analysis::diagnosis::Iperf3Additions;
use fullpipe_analysis::{Diagnosis, Latency, TcpVsUdp};
use fullpipe_iperf3::document::{Document, Event};
use serde::Serialize;
use serde_json::Value;

use super::{ExplainResult, Explanations, Recorder};
use crate::Error;

/// Returns the values that fullpipe adds at the end of a document. The values include those of the UDP test,
/// if there was one.
///
/// # Errors
/// Returns an error if the values cannot be represented in JSON.
pub fn ending(
    recorder: &Recorder,
    latency: Latency,
    explained: Option<&Explanations>,
    udp: Option<&(Document, TcpVsUdp)>,
) -> Result<Value, Error> {
    let main = explained.map(|explained| &explained.main);
    let reverse = explained.and_then(|explained| explained.reverse.as_ref());
    fn diagnosis(of: Option<&ExplainResult>) -> Option<Box<Diagnosis>> {
        of.and_then(|explained| explained.clone().ok())
    }
    fn none(of: Option<&ExplainResult>) -> Option<String> {
        of.and_then(|explained| explained.clone().err())
    }
    let limit_seconds = recorder.limit_seconds().into_iter();
    let added = Iperf3Additions {
        latency,
        limit_seconds: limit_seconds.map(|(limit, seconds)| (limit.to_owned(), seconds)).collect(),
        diagnosis: diagnosis(main),
        no_diagnosis: none(main),
        diagnosis_reverse: diagnosis(reverse),
        no_diagnosis_reverse: none(reverse),
        tcp_and_udp: udp.map(|(_, tcp_vs_udp)| *tcp_vs_udp),
        udp: udp.map(|(document, _)| document),
    };
    serde_json::to_value(added).map_err(|e| Error::new(format!("cannot write JSON: {e}"), ""))
}

/// Formats an event of the server as one line of JSON. The line includes the number of the test, because
/// several tests may run concurrently.
/// # Errors
/// Returns an error if the event cannot be represented in JSON.
pub fn numbered_event(test: u64, event: &str, data: &impl Serialize) -> Result<String, Error> {
    #[derive(Serialize)]
    struct NumberedEvent<'a, T> {
        #[serde(flatten)]
        event: Event<'a, T>,
        fullpipe: Number,
    }
    #[derive(Serialize)]
    struct Number {
        test: u64,
    }
    crate::json::line(&NumberedEvent { event: Event { event, data }, fullpipe: Number { test } })
}
