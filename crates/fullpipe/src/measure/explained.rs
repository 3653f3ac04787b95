//! Diagnoses an iperf3 test that this host has just run.
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
use fullpipe_lab::trace::{self, ReceiverSample as Sample, Row};
use fullpipe_units::{Duration, Instant};

use super::Recorder;
use crate::run::Observer;
use crate::{Error, diagnose};

/// Facts about path and hosts that complement the results of a test.
#[derive(Clone, Copy, Debug, Default)]
pub struct TestContext<'a> {
    /// Facts about the path that the user has given.
    pub path: PathFacts,
    /// RTT of the idle path, measured before the test.
    pub idle_rtt: Option<Duration>,
    /// Kernel settings of this host; `None` if they are unknown.
    pub own: Option<&'a HostSettings>,
    /// Kernel settings of the server's host; `None` if they are unknown.
    pub peer: Option<&'a HostSettings>,
    /// Trace rows that the server sampled while it was sending, if the server is fullpipe's.
    pub server_trace: Option<&'a str>,
}

/// Note on a test in which only the sending host was sampled.
pub(super) const ONE_END: &str = "fullpipe sampled only the sending host, which does not show whether a \
                                  small buffer or a slow application limits a receive window";
/// Note on a test in which only the receiving host was sampled.
const RECEIVING_END: &str = "fullpipe sampled only the receiving host, which does not show the sender's \
                             window, buffer and losses. To sample the sender, run fullpipe iperf3 on the \
                             other host, without -R or as the server";
const BOTH_ENDS: &str = "fullpipe sampled both hosts: the server, which was the sender, reported samples of \
                         its sockets";
const TOO_FEW: &str = "measure for longer: -t 10";

/// A diagnosis, or the reason why no diagnosis is possible.
pub type ExplainResult = Result<Box<Diagnosis>, String>;

/// Diagnoses of a test, one per direction.
#[derive(Debug)]
pub struct Explanations {
    /// Diagnosis of the test's main direction.
    pub main: ExplainResult,
    /// Diagnosis of the reverse direction; `None` unless the test was bidirectional.
    pub reverse: Option<ExplainResult>,
}

/// Diagnoses a completed test from the data in its `recorder`.
///
/// # Errors
/// Returns an error if the simulator has a defect. It is not an error if a test cannot be diagnosed, or if the
/// observer abandons the ladder.
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

fn answer(diagnosed: Result<Diagnosis, DiagnoseError>) -> Result<ExplainResult, Error> {
    match diagnosed {
        Ok(diagnosis) => Ok(Ok(Box::new(diagnosis))),
        Err(DiagnoseError::Input(InputError { message, hint })) => {
            Ok(Err(if hint.is_empty() { message } else { format!("{message}; {hint}") }))
        }
        Err(DiagnoseError::Abandoned) => Ok(Err("interrupted: the ladder is not complete".into())),
        Err(DiagnoseError::Defect(defect)) => Err(defect.into()),
    }
}

/// Diagnoses a TCP transfer in which this host was the sender.
fn sent(
    recorder: &Recorder,
    known: &TestContext<'_>,
    observer: &impl Observer,
) -> Result<Diagnosis, DiagnoseError> {
    let measurement = rows::of_streams(recorder.rows.streams(), Format::Trace, vec![ONE_END.into()], TOO_FEW);
    let measurement = measurement.map_err(DiagnoseError::Input)?;
    diagnosed((known.own, known.peer), &measurement, None, &recorder.document, known, observer)
}

/// Diagnoses a TCP transfer in which the server was the sender.
fn received(
    recorder: &Recorder,
    known: &TestContext<'_>,
    observer: &impl Observer,
) -> Result<Diagnosis, DiagnoseError> {
    let own = recorder.received.streams();
    // A trace that cannot be parsed is not an error, because this host has also sampled its sockets.
    let told = known.server_trace.and_then(|text| trace::read(text).ok());
    let told: Vec<Row> = told.into_iter().flat_map(|recording| recording.rows).map(|row| row.row).collect();
    let of_both = rows::of_streams(both_ends(&told, &own), Format::Trace, vec![BOTH_ENDS.into()], TOO_FEW);
    if let Ok(measurement) = of_both {
        // In this direction, the server's host is the sender, and its rows are the measurement.
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

/// Combines the server's rows of each stream with those samples of the receiver that are nearest in time. In
/// the rows and in the samples, time zero is the time of the first data.
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
        let message = "both ends are on this host, so there is no path to simulate";
        return Err(DiagnoseError::Input(InputError::new(message, "add --link to simulate a path anyway")));
    }
    let log = iperf3::of_document(document).map_err(DiagnoseError::Input)?;
    // In a UDP test, only the handshake of the control connection yields an RTT.
    diagnosed((known.own, known.peer), &log, known.idle_rtt, document, known, observer)
}

/// Diagnoses a measurement. `hosts` contains the settings of the host that made the measurement, followed by
/// those of the other host. `idle_rtt` is used if neither the user nor the measurement gives an RTT.
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

/// Returns whether the server runs on this host, which is the case if both ends of the data connections have
/// the same address.
pub fn is_this_host(document: &Document) -> bool {
    document.start.connected.first().is_some_and(|one| {
        let loopback = one.remote_host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
        loopback || one.local_host == one.remote_host
    })
}
