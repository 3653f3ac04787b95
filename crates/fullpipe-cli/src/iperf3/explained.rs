//! The diagnosis of a test that this host has just made.

use std::net::IpAddr;

use fullpipe::input::InputError;
use fullpipe::{DiagnoseError, Diagnosis, Facts, HostSettings, Iperf3Log, Trace};
use fullpipe_iperf3::document::Document;
use fullpipe_units::{Duration, Rate};

use super::show::Show;
use crate::failure::Failure;
use crate::output;

/// What is known beside the test.
pub(super) struct Known<'a> {
    pub(super) link: Option<Rate>,
    pub(super) rtt: Option<Duration>,
    pub(super) idle_rtt: Option<Duration>,
    pub(super) own: Option<&'a HostSettings>,
    pub(super) peer: Option<&'a HostSettings>,
    pub(super) control: Option<Rate>,
}

/// What a sending end alone cannot know.
pub(super) const ONE_END: &str = "only the sending end is this host: whether a receive window is short of buffer or of a \
                                  reader, only the other host can tell";

/// Why there is no diagnosis, or what it is.
pub(super) type Explained = Result<Box<Diagnosis>, String>;

/// Explains the test that `show` has seen, whose document is whole.
///
/// # Errors
/// A defect of the simulator; that there is nothing to explain is an answer.
pub(super) fn explain(show: &Show, known: &Known<'_>) -> Result<Explained, Failure> {
    match explained(show, known) {
        Ok(diagnosis) => Ok(Ok(Box::new(diagnosis))),
        Err(DiagnoseError::Input(InputError { message, hint })) => {
            Ok(Err(if hint.is_empty() { message } else { format!("{message}; {hint}") }))
        }
        Err(DiagnoseError::Defect(defect)) => Err(defect.into()),
    }
}

fn explained(show: &Show, known: &Known<'_>) -> Result<Diagnosis, DiagnoseError> {
    let document = &show.document;
    if is_this_host(document) && known.link.is_none() {
        let message =
            "both ends are this host, and between them is no path on which a ladder could be climbed";
        return Err(DiagnoseError::Input(InputError::new(message, "give --link to have one all the same")));
    }
    let sending = document.start.asked.as_ref().map_or(0, |asked| match asked.test_start.reverse {
        0 => asked.test_start.num_streams,
        _ => 0,
    });
    let tcp = document.start.asked.as_ref().is_some_and(|asked| asked.test_start.protocol == "TCP");
    let mut remarks = Vec::new();
    let diagnosis = if sending == 1 && tcp {
        // One sending socket of ours: its samples say more than the reports.
        let trace = Trace::of(show.rows.clone()).map_err(DiagnoseError::Input)?;
        if show.rows_left_out > 0 {
            remarks.push(format!("the diagnosis is of the first {:.0} minutes", minutes(show)));
        }
        diagnosed(&Facts { ..Facts::of_trace(&trace) }, document, known)?
    } else {
        let text = serde_json::to_string(document).unwrap_or_default();
        let log = Iperf3Log::parse(&text).map_err(DiagnoseError::Input)?;
        // The handshakes saw the path before its queues filled, and where this end only receives nothing else does.
        let rtt = known.rtt.or(known.idle_rtt);
        diagnosed(&Facts { rtt, ..Facts::of(&log) }, document, known)?
    };
    let mut diagnosis = diagnosis;
    if tcp && sending == 0 {
        remarks.push(
            "only the receiving end is this host: the sender's window, buffer and losses are not seen from here. \
             Run fullpipe iperf3 on the other host without -R to see them"
                .into(),
        );
    } else if document.start.asked.as_ref().is_some_and(|asked| asked.test_start.bidir > 0) {
        remarks.push(
            "the diagnosis is of the direction from this host; the other one's sender is not seen from here"
                .into(),
        );
    } else if tcp {
        remarks.push(ONE_END.into());
    }
    diagnosis.notes.extend(remarks);
    Ok(diagnosis)
}

fn diagnosed(facts: &Facts<'_>, document: &Document, known: &Known<'_>) -> Result<Diagnosis, DiagnoseError> {
    let facts = Facts {
        link: known.link,
        rtt: facts.rtt.or(known.rtt),
        sysctl: known.own,
        peer_sysctl: known.peer,
        peer_is_unknown: !is_this_host(document),
        control: known.control,
        ..*facts
    };
    output::with_progress(|progress| fullpipe::diagnose(&facts, progress))
}

/// Whether the server runs on this host: both ends of the data connections have one address.
pub(super) fn is_this_host(document: &Document) -> bool {
    document.start.connected.first().is_some_and(|one| {
        let loopback = one.remote_host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
        loopback || one.local_host == one.remote_host
    })
}

fn minutes(show: &Show) -> f64 {
    let (first, last) = (show.rows.first(), show.rows.last());
    let span = first.zip(last).map(|(first, last)| last.at.saturating_since(first.at));
    span.map_or(0.0, |span| span.as_secs_f64() / 60.0)
}
