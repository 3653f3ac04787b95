//! Samples the TCP connections of running applications periodically.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use fullpipe_analysis::input;
use fullpipe_analysis::measurement::Format;
use fullpipe_analysis::sockets::Sample;
use fullpipe_analysis::{Measurement, RateOption, SocketReport, Sockets};
use fullpipe_lab::trace::ReceiverSample;
use fullpipe_linux::process::{command_line, parent};
use fullpipe_linux::sock_diag::{Peer, SocketState, Which};
use fullpipe_linux::watch::{self, Round};
use fullpipe_units::{Bytes, Duration, Instant, Rate};
use schemars::JsonSchema;
use serde::Serialize;

use crate::Error;
use crate::run::Observer;

/// Sampling interval for connections that are diagnosed afterwards.
pub const FINE: Duration = Duration::from_millis(50);
/// Sampling interval for a watch that may run for weeks.
pub const COARSE: Duration = Duration::from_millis(100);

/// Selection of the connections to watch; by default, all TCP connections of this host.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Remote ends of the connections, each as `HOST[:PORT]`; if empty, connections to all hosts are
    /// selected.
    pub dst: Vec<String>,
    /// ID of the process to which the connections belong; `None` for all processes.
    pub process: Option<u32>,
}

/// A watch that samples the selected connections.
pub struct Watch {
    watch: watch::Watch,
    what: String,
    rate_option: Option<RateOption>,
}

impl Watch {
    /// Creates a watch on the selected connections.
    ///
    /// # Errors
    /// Returns an error if a host name cannot be resolved, if the process does not exist, or if its sockets
    /// are not accessible.
    pub fn begin(selection: &Selection) -> Result<Self, Error> {
        let peers = selection.dst.iter().map(|host| peers(host)).collect::<Result<Vec<_>, _>>()?.concat();
        let watch = watch::Watch::begin(Which { peers, inodes: None }, selection.process)?;
        Ok(Self { watch, what: what(selection), rate_option: selection.process.and_then(rate_option) })
    }

    /// Returns the option with which the watched process limits its own rate.
    pub fn rate_option(&self) -> Option<&RateOption> {
        self.rate_option.as_ref()
    }

    /// Returns whether the watched process is in a different network namespace, in which case the sysctls of
    /// this host do not apply to it.
    pub fn elsewhere(&self) -> bool {
        self.watch.elsewhere()
    }

    /// Returns a description of the watched connections.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Samples the connections into `sockets` at intervals of `every`, until the time `until`, until
    /// `observer` stops the watch, or until `each` returns an error. After each round, calls `each` with the
    /// number of connections that are sampled less often.
    ///
    /// # Errors
    /// Returns an error if the kernel does not answer, or if `each` returns one.
    pub fn sample<E: From<Error>>(
        &mut self,
        sockets: &mut Sockets,
        every: Duration,
        until: Option<Duration>,
        observer: &impl Observer,
        mut each: impl FnMut(Instant, &mut Sockets, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut seen: Vec<SocketState> = Vec::new();
        let clock = *self.watch.clock();
        let begin = clock.now();
        let mut next = begin;
        let mut met = false;
        while observer.goes_on() {
            let round = match self.watch.round(&mut seen) {
                Ok(round) => round,
                // If the watched process has ended, sampling ends too.
                Err(error) if met => {
                    observer.note(&error.to_string());
                    break;
                }
                Err(error) => return Err(Error::from(error).into()),
            };
            met = true;
            // In a watch of limited duration, connections that have closed are kept for the diagnosis.
            take(sockets, round, &seen, until.is_none());
            each(round.at, sockets, self.watch.rarely())?;
            if until.is_some_and(|until| round.at.saturating_since(begin) >= until) {
                break;
            }
            // If a sample is late, the next one is due immediately, and missed samples are skipped.
            next = (next + every).max(clock.now());
            clock.sleep_until(next);
        }
        Ok(())
    }

    /// Samples the connections for `length`, at the interval that a diagnosis requires. Connections that
    /// close in the meantime are kept.
    ///
    /// # Errors
    /// Returns an error if the kernel does not answer.
    pub fn collect(
        &mut self,
        sockets: &mut Sockets,
        length: Duration,
        observer: &impl Observer,
    ) -> Result<(), Error> {
        self.sample(sockets, FINE, Some(length), observer, |_, _, _| Ok(()))
    }

    /// Chooses the connection to diagnose among those that were sampled for `length`: the connection with
    /// number `flow`, or the one with the highest send rate.
    ///
    /// # Errors
    /// Returns an error if the connection does not exist, or if no connection sends data.
    pub fn choose<'r>(
        &self,
        reports: &'r [SocketReport],
        flow: Option<u32>,
        length: Duration,
    ) -> Result<&'r SocketReport, Error> {
        let what = &self.what;
        if reports.is_empty() {
            let hint = "list the connections with ss -tnp; listening sockets are not connections";
            return Err(Error::new(format!("{what}: no TCP connection is open"), hint));
        }
        if let Some(number) = flow {
            let list: Vec<String> = reports.iter().take(4).map(|report| report.flow.to_string()).collect();
            let none = || {
                Error::new(
                    format!("there is no connection {number}"),
                    format!("the connections are {}", list.join(", ")),
                )
            };
            return reports.iter().find(|report| report.flow == number).ok_or_else(none);
        }
        let fastest = |rate: fn(&SocketReport) -> Rate| {
            reports.iter().max_by_key(|report| rate(report)).filter(|report| !rate(report).is_zero())
        };
        let sender = fastest(|report| report.achieved).filter(|report| report.achieved >= report.received);
        // The requests of a download do not count as a transfer in the sending direction.
        let receiver = fastest(|report| report.received);
        sender.or(receiver).ok_or_else(|| {
            let open = match reports.len() {
                1 => "the only connection".into(),
                open => format!("any of {open} connections"),
            };
            if let Some(stuck) =
                reports.iter().filter(|report| report.unread_bytes > 0).max_by_key(|r| r.unread_bytes)
            {
                let unread = Bytes::new(stuck.unread_bytes);
                return Error::new(
                    format!(
                        "{what}: no data was transferred in {length}, and {unread} of data from {} is unread",
                        stuck.remote
                    ),
                    "find out what the receiving application waits for, because it does not read",
                );
            }
            Error::new(
                format!("{what}: no data was transferred in {length} on {open}"),
                "sample during a transfer, or for longer with --for",
            )
        })
    }
}

/// Returns the measurement of the chosen connection, for a diagnosis.
///
/// # Errors
/// Returns an error if there are too few samples.
pub fn measurement(sockets: &Sockets, chosen: &SocketReport) -> Result<Measurement, Error> {
    let beside = sockets.beside(chosen.flow);
    if chosen.received > chosen.achieved {
        let samples = sockets.received(chosen.flow).unwrap_or_default().to_vec();
        let others = beside.iter().filter_map(|number| sockets.received(*number));
        return Ok(input::received::of_one_among(samples, others)?);
    }
    let rows = sockets.rows(chosen.flow).unwrap_or_default().to_vec();
    let notes = match &*chosen.congestion_control {
        cc if rows.iter().all(|row| row.sender.cc.is_none()) => {
            vec![format!("the sender's congestion control is {cc}, which the simulator does not have")]
        }
        _ => Vec::new(),
    };
    let others = beside.iter().filter_map(|number| sockets.rows(*number));
    Ok(input::trace::of_one_among(rows, others, Format::Sockets, notes, "sample again")?)
}

/// Returns the option with which a process limits its own rate. For scp, sftp and rsync, the connection
/// belongs to a child process with a different command line.
fn rate_option(process: u32) -> Option<RateOption> {
    let of = |process| RateOption::in_command_line(&command_line(process));
    of(process).or_else(|| of(parent(process)?))
}

/// Returns a description of the selected connections.
fn what(which: &Selection) -> String {
    let process = which.process.map(|pid| format!("process {pid}"));
    let peers = (!which.dst.is_empty()).then(|| format!("connections to {}", which.dst.join(", ")));
    match (process, peers) {
        (Some(process), Some(peers)) => format!("{peers} of {process}"),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => "this host".into(),
    }
}

/// Name and version of the format of the lines that [`line`] returns. New keys do not change the version;
/// keys are never changed or removed.
const SCHEMA: &str = "fullpipe.watch/1";

/// A line of `fullpipe diagnose --watch --json`: the report on one connection for one interval.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct Line<'a> {
    /// Name and version of the format of this line.
    #[schemars(extend("const" = SCHEMA))]
    schema: &'static str,
    /// Report on the connection for the interval.
    #[serde(flatten)]
    report: &'a SocketReport,
}

/// Serialises the report on a connection as one line of JSON.
///
/// # Errors
/// Returns an error if the report cannot be represented in JSON.
pub fn line(report: &SocketReport) -> Result<String, Error> {
    crate::json::line(&Line { schema: SCHEMA, report })
}

/// Adds the samples of a round. If `forget` is set, removes connections that have closed.
pub(crate) fn take(sockets: &mut Sockets, round: Round, seen: &[SocketState], forget: bool) {
    for socket in seen {
        sockets.take(round.at, &sample(socket));
    }
    if forget && round.all {
        sockets.keep(round.at);
    }
}

fn sample(seen: &SocketState) -> Sample<'_> {
    Sample {
        id: seen.id.cookie,
        local: seen.id.local,
        remote: seen.id.remote,
        cc: seen.cc.as_str(),
        sender: seen.sender,
        // The kernel measures the RTT of a receiver only after some round trips of data. Before that, the RTT
        // of the handshake is used.
        receiver: ReceiverSample { rtt: seen.receiver.rtt.or(seen.sender.srtt), ..seen.receiver },
        acked: seen.acked,
        queued: seen.queued,
    }
}

/// Resolves `HOST[:PORT]` to one peer for each IP address of the host.
pub(crate) fn peers(text: &str) -> Result<Vec<Peer>, Error> {
    let peer = |address: Option<IpAddr>, port| Peer { address, port };
    if let Ok(address) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(vec![peer(Some(address), None)]);
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(vec![peer(Some(address.ip()), Some(address.port()))]);
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, Some(port.parse::<u16>().map_err(|_| no_port(text))?)),
        None => (text, None),
    };
    if host.is_empty() || host == "*" {
        return Ok(vec![peer(None, port)]);
    }
    let resolved = (host, port.unwrap_or(0)).to_socket_addrs();
    let resolved = resolved.map_err(|e| {
        Error::new(
            format!("--dst {text}: {e}"),
            "write an address or a name, for example 192.0.2.7 or example.com:443",
        )
    })?;
    let mut addresses: Vec<IpAddr> = resolved.map(|address| address.ip()).collect();
    addresses.dedup();
    Ok(addresses.into_iter().map(|address| peer(Some(address), port)).collect())
}

fn no_port(text: &str) -> Error {
    Error::usage(
        format!("--dst {text}: the text after the colon is not a port"),
        "write an address or a name, for example 192.0.2.7, [2001:db8::7]:443, example.com:443 or :443",
    )
}
