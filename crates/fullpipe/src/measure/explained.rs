//! The diagnosis of a test that this host has just made.
//!
//! ```text
//!   this host sends       rows of its sockets ────────────────────────────────────┐
//!   the server sends      rows of its sockets, if it is fullpipe's ─► both ends ──┤ of all streams together
//!                         else samples of the receiving sockets here ─────────────┤
//!   UDP                   the document ───────────────────────────────────────────┴─► diagnose
//! ```

use std::net::IpAddr;

use fullpipe_analysis::input::trace as rows;
use fullpipe_analysis::input::{InputError, iperf3, received};
use fullpipe_analysis::measurement::Format;
use fullpipe_analysis::{DiagnoseError, Diagnosis, HostFacts, HostSettings, Measurement, PathFacts};
use fullpipe_iperf3::document::Document;
use fullpipe_lab::trace::{self, Received as Sample, Row};
use fullpipe_units::{Duration, Instant};

use super::Recorder;
use crate::run::Observer;
use crate::{Error, diagnose};

/// What is known beside the test.
#[derive(Clone, Copy, Debug, Default)]
pub struct TestContext<'a> {
    /// What the user says of the path.
    pub path: PathFacts,
    /// RTT that was measured before the test.
    pub idle_rtt: Option<Duration>,
    /// Settings of this host.
    pub own: Option<&'a HostSettings>,
    /// Settings of the server's host.
    pub peer: Option<&'a HostSettings>,
    /// The sending server's rows, where it told them.
    pub server_trace: Option<&'a str>,
}

/// What a sending end alone cannot know.
pub(super) const ONE_END: &str = "only the sending end was seen: whether a receive window is short of buffer or of a \
                                  reader, only the receiving end can tell";
/// What a receiving end alone cannot know.
const RECEIVING_END: &str = "only the receiving end is this host: the sender's window, buffer and losses are not seen from here. Run \
                             fullpipe iperf3 on the other host, without -R or as the server, to see them";
const BOTH_ENDS: &str = "both ends were seen: the server, which sent, told its sockets' samples";
const TOO_FEW: &str = "measure for longer: -t 10";

/// Why there is no diagnosis, or what it is.
pub type Explained = Result<Box<Diagnosis>, String>;

/// The diagnoses of a test.
#[derive(Debug)]
pub struct Explanations {
    /// Of its main direction.
    pub main: Explained,
    /// Of the other one, in a test of both.
    pub reverse: Option<Explained>,
}

/// Explains the test that `recorder` has seen, whose document is whole.
///
/// # Errors
/// A defect of the simulator; that there is nothing to explain is an answer.
pub fn explain(
    recorder: &Recorder,
    known: &TestContext<'_>,
    observer: &impl Observer,
) -> Result<Explanations, Error> {
    let asked = recorder.document.start.asked.as_ref().map(|asked| &asked.test_start);
    let tcp = asked.is_some_and(|test| test.protocol == "TCP");
    let (reverse, both) = asked.map_or((false, false), |test| (test.reverse > 0, test.bidir > 0));
    if !tcp {
        return Ok(Explanations { main: answer(over_udp(recorder, known, observer))?, reverse: None });
    }
    let main = if reverse { received(recorder, known, observer) } else { sent(recorder, known, observer) };
    let reverse = if both { Some(answer(received(recorder, known, observer))?) } else { None };
    Ok(Explanations { main: answer(main)?, reverse })
}

fn answer(diagnosed: Result<Diagnosis, DiagnoseError>) -> Result<Explained, Error> {
    match diagnosed {
        Ok(diagnosis) => Ok(Ok(Box::new(diagnosis))),
        Err(DiagnoseError::Input(InputError { message, hint })) => {
            Ok(Err(if hint.is_empty() { message } else { format!("{message}; {hint}") }))
        }
        Err(DiagnoseError::Defect(defect)) => Err(defect.into()),
    }
}

/// What this host has sent over TCP.
fn sent(
    recorder: &Recorder,
    known: &TestContext<'_>,
    observer: &impl Observer,
) -> Result<Diagnosis, DiagnoseError> {
    let measurement = rows::of_streams(recorder.rows.streams(), Format::Trace, vec![ONE_END.into()], TOO_FEW);
    let measurement = measurement.map_err(DiagnoseError::Input)?;
    diagnosed((known.own, known.peer), &measurement, None, &recorder.document, known, observer)
}

/// What the server has sent over TCP.
fn received(
    recorder: &Recorder,
    known: &TestContext<'_>,
    observer: &impl Observer,
) -> Result<Diagnosis, DiagnoseError> {
    let own = recorder.received.streams();
    // What cannot be read is no reason to fail: this end has seen something itself.
    let told = known.server_trace.and_then(|text| trace::read(text).ok());
    let told: Vec<Row> = told.into_iter().flat_map(|recording| recording.rows).map(|row| row.row).collect();
    let of_both = rows::of_streams(both_ends(&told, &own), Format::Trace, vec![BOTH_ENDS.into()], TOO_FEW);
    if let Ok(measurement) = of_both {
        // The host on which such rows are made is the sender.
        let hosts = (known.peer, known.own);
        return diagnosed(hosts, &measurement, None, &recorder.document, known, observer);
    }
    let congestion = match &recorder.document.end {
        end if end.sum_received_bidir_reverse.is_some() => None,
        end => end.sender_tcp_congestion.as_deref(),
    };
    let samples = received::of_streams(&own, congestion).map_err(DiagnoseError::Input)?;
    let hosts = (known.own, known.peer);
    let mut diagnosis = diagnosed(hosts, &samples, known.idle_rtt, &recorder.document, known, observer)?;
    diagnosis.notes.push(RECEIVING_END.into());
    Ok(diagnosis)
}

/// The rows that the server told, by stream, with what the receiving sockets here told nearest to them in time. Both began with the data.
fn both_ends(told: &[Row], own: &[Vec<Sample>]) -> Vec<Vec<Row>> {
    let begun = |at: Option<Instant>| at.unwrap_or_default();
    let theirs = begun(told.iter().map(|row| row.at).min());
    let ours = begun(own.iter().filter_map(|samples| samples.first()).map(|sample| sample.at).min());
    let mut flows: Vec<u32> = told.iter().map(|row| row.flow).collect();
    flows.sort_unstable();
    flows.dedup();
    let of_flow = |flow: &u32| {
        let samples = own.iter().find(|samples| samples.first().is_some_and(|first| first.flow == *flow));
        let beside = |row: &Row| {
            let at = ours + row.at.saturating_since(theirs);
            let samples = samples?;
            let nth = samples.partition_point(|sample| sample.at < at).min(samples.len().checked_sub(1)?);
            Some(samples[nth].receiver)
        };
        let rows = told.iter().filter(|row| row.flow == *flow);
        rows.map(|row| Row { receiver: beside(row), ..row.clone() }).collect()
    };
    flows.iter().map(of_flow).collect()
}

fn over_udp(
    recorder: &Recorder,
    known: &TestContext<'_>,
    observer: &impl Observer,
) -> Result<Diagnosis, DiagnoseError> {
    let document = &recorder.document;
    if is_this_host(document) && known.path.link.is_none() {
        let message =
            "both ends are this host, and between them is no path on which a ladder could be climbed";
        return Err(DiagnoseError::Input(InputError::new(message, "add --link to simulate one anyway")));
    }
    let json = serde_json::to_value(document).unwrap_or_default();
    let log = iperf3::of_document(&json).map_err(DiagnoseError::Input)?;
    // Nothing else of a test over UDP sees the round trip but the handshake of its control connection.
    diagnosed((known.own, known.peer), &log, known.idle_rtt, document, known, observer)
}

/// `hosts` are the settings of the host that made the measurement, and those of the other; `idle_rtt` is what a measurement
/// without a round-trip time of its own is explained with, unless the user gave one.
fn diagnosed(
    (local, peer): (Option<&HostSettings>, Option<&HostSettings>),
    measurement: &Measurement,
    idle_rtt: Option<Duration>,
    document: &Document,
    known: &TestContext<'_>,
    observer: &impl Observer,
) -> Result<Diagnosis, DiagnoseError> {
    let here = is_this_host(document);
    let path = PathFacts { rtt: known.path.rtt.or(idle_rtt), ..known.path };
    let hosts = HostFacts {
        local: local.cloned(),
        peer: peer.cloned(),
        peer_is_unknown: !here,
        same_host: here && known.path.link.is_none(),
        ..HostFacts::default()
    };
    diagnose(measurement, &path, &hosts, observer)
}

/// Whether the server runs on this host: both ends of the data connections have one address.
pub fn is_this_host(document: &Document) -> bool {
    document.start.connected.first().is_some_and(|one| {
        let loopback = one.remote_host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
        loopback || one.local_host == one.remote_host
    })
}
