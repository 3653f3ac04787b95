//! What fullpipe adds to the documents and events of iperf3.

use std::collections::BTreeMap;

use fullpipe_analysis::{Diagnosis, Latency, SideBySide};
use fullpipe_iperf3::document::{Document, Event};
use serde::Serialize;
use serde_json::Value;

use super::{Explained, Explanations, Recorder};
use crate::Error;

/// What fullpipe adds to the end of a document.
#[derive(Serialize)]
struct Added<'a> {
    latency: Latency,
    limit_seconds: BTreeMap<&'static str, f64>,
    diagnosis: Option<&'a Diagnosis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    no_diagnosis: Option<&'a str>,
    /// Of the direction from the server, in a test of both.
    #[serde(skip_serializing_if = "Option::is_none")]
    diagnosis_reverse: Option<&'a Diagnosis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    no_diagnosis_reverse: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp_and_udp: Option<SideBySide>,
    /// The document of the test over UDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    udp: Option<&'a Document>,
}

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
    fn diagnosis(of: Option<&Explained>) -> Option<&Diagnosis> {
        of.and_then(|explained| explained.as_deref().ok())
    }
    fn none(of: Option<&Explained>) -> Option<&str> {
        of.and_then(|explained| explained.as_ref().err()).map(String::as_str)
    }
    let added = Added {
        latency,
        limit_seconds: recorder.limit_seconds(),
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
