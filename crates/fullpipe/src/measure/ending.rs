//! What fullpipe adds to the documents and events of iperf3.

use fullpipe_analysis::diagnosis::Added;
use fullpipe_analysis::{Diagnosis, Latency, SideBySide};
use fullpipe_iperf3::document::{Document, Event};
use serde::Serialize;
use serde_json::Value;

use super::{Explained, Explanations, Recorder};
use crate::Error;

/// What fullpipe adds to the end of a document; with the test over UDP, if there was one.
///
/// # Errors
/// It cannot be written as JSON.
pub fn ending(
    recorder: &Recorder,
    latency: Latency,
    explained: Option<&Explanations>,
    udp: Option<&(Document, SideBySide)>,
) -> Result<Value, Error> {
    let main = explained.map(|explained| &explained.main);
    let reverse = explained.and_then(|explained| explained.reverse.as_ref());
    fn diagnosis(of: Option<&Explained>) -> Option<Box<Diagnosis>> {
        of.and_then(|explained| explained.clone().ok())
    }
    fn none(of: Option<&Explained>) -> Option<String> {
        of.and_then(|explained| explained.clone().err())
    }
    let limit_seconds = recorder.limit_seconds().into_iter();
    let added = Added {
        latency,
        limit_seconds: limit_seconds.map(|(limit, seconds)| (limit.to_owned(), seconds)).collect(),
        diagnosis: diagnosis(main),
        no_diagnosis: none(main),
        diagnosis_reverse: diagnosis(reverse),
        no_diagnosis_reverse: none(reverse),
        tcp_and_udp: udp.map(|(_, side_by_side)| *side_by_side),
        udp: udp.map(|(document, _)| document),
    };
    serde_json::to_value(added).map_err(|e| Error::new(format!("cannot write JSON: {e}"), ""))
}

/// An event of a server, as a line: several tests may run, so it says of which it is.
///
/// # Errors
/// It cannot be written as JSON.
pub fn numbered_event(test: u64, event: &str, data: &impl Serialize) -> Result<String, Error> {
    #[derive(Serialize)]
    struct Numbered<'a, T> {
        #[serde(flatten)]
        event: Event<'a, T>,
        fullpipe: Number,
    }
    #[derive(Serialize)]
    struct Number {
        test: u64,
    }
    crate::json::line(&Numbered { event: Event { event, data }, fullpipe: Number { test } })
}
