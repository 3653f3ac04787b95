//! Exports Prometheus metrics of this host's connections, and of probes to iperf3 servers.
//!
//! ```text
//!   a thread: samples of each group, ten a second ──► Sockets, one per group ◄── /metrics: sums and gauges
//!                                         an iperf3 server ◄── a short test ◄── /probe?target=HOST
//! ```

mod http;
mod metrics;
mod probe;

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use fullpipe_analysis::Sockets;
use fullpipe_analysis::classify::SocketFacts;
use fullpipe_linux::Clock;
use fullpipe_linux::sock_diag::Which;
use fullpipe_linux::watch::Watch;
use fullpipe_units::{Duration, Instant, Rate};

use self::http::{Answer, Request};
use self::probe::{ProbeRefusal, Prober};
use crate::Error;
use crate::run::Observer;
use crate::watch::{peers, take};

/// Interval between two samples of a socket, as required by the classifier.
const EVERY: Duration = Duration::from_millis(100);
/// Name of the group that contains all connections of the host.
const ALL: &str = "all";
/// Maximum number of groups. The number of groups is limited because each group has about twenty time series.
const MOST_GROUPS: usize = 100;

/// Content type of a response in plain text.
const PLAIN: &str = "text/plain; charset=utf-8";

/// Sockets whose values are summed as one group.
struct SocketGroup {
    dst: String,
    sockets: Sockets,
    up: bool,
}

type Groups = Arc<Mutex<Vec<SocketGroup>>>;

/// Settings of the Prometheus exporter.
#[derive(Clone, Debug)]
pub struct Exporter {
    /// IP address and port on which the exporter accepts HTTP requests.
    pub listen: SocketAddr,
    /// Groups of connections, each given by its remote end `HOST[:PORT]`. If there are none, all connections
    /// form one group.
    pub dst: Vec<String>,
    /// ID of the process whose connections are exported; `None` for all processes.
    pub process: Option<u32>,
    /// Rate of the bottleneck link; `None` if it is unknown.
    pub link: Option<Rate>,
    /// iperf3 servers to which HTTP clients may start probes.
    pub probes: Probes,
}

/// iperf3 servers to which HTTP clients of the exporter may start probes. A probe sends at full speed for up
/// to 5 s.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probes {
    /// Probes to any server are permitted. This setting is for clients on this host, which could send the
    /// data themselves anyway.
    Any,
    /// Probes are permitted only to these servers, each given as `HOST[:PORT]`; if empty, no probe is
    /// permitted.
    Only(Vec<String>),
}

/// Serves the metrics over HTTP until the process ends.
///
/// # Errors
/// Returns an error if a group is invalid, if the address is in use, or if the sockets cannot be sampled.
pub fn serve(exporter: &Exporter, observer: &impl Observer) -> Result<(), Error> {
    let mut dsts = exporter.dst.clone();
    if dsts.is_empty() {
        dsts.push(ALL.into());
    }
    if dsts.len() > MOST_GROUPS {
        return Err(Error::usage(
            format!("--dst is given {} times", dsts.len()),
            format!("pass at most {MOST_GROUPS}"),
        ));
    }
    let prober = Prober::new(&exporter.probes)?;
    let host = SocketFacts { link: exporter.link, ..SocketFacts::default() };
    let mut watches = Vec::new();
    let mut groups = Vec::new();
    for dst in dsts {
        let peers = if exporter.dst.is_empty() { Vec::new() } else { peers(&dst)? };
        watches.push(Watch::begin(Which { peers, inodes: None }, exporter.process)?);
        groups.push(SocketGroup { dst, sockets: Sockets::new(host), up: true });
    }
    let listener = TcpListener::bind(exporter.listen).map_err(|e| {
        Error::new(
            format!("cannot listen on {}: {e}", exporter.listen),
            "pass another address with --listen ADDRESS:PORT",
        )
    })?;
    let groups: Groups = Arc::new(Mutex::new(groups));
    let sampled = Arc::clone(&groups);
    thread::spawn(move || sample(&mut watches, &sampled));
    // If the port was 0, the kernel has chosen a port; this note shows it.
    observer.note(&format!("http://{}/metrics", listener.local_addr().unwrap_or(exporter.listen)));
    http::serve(&listener, move |request| answer(request, &groups, &prober, host));
    Ok(())
}

/// Reads the head of an HTTP request and the target of a probe in it; returns whether the head is complete
/// and valid. For the fuzz targets; not part of the interface.
#[doc(hidden)]
pub fn read_request(bytes: &[u8]) -> bool {
    let Ok(Some(request)) = http::parsed(bytes) else { return false };
    probe::read(&request.url, request.scrape_timeout.as_deref());
    true
}

/// Samples all groups until the process ends.
fn sample(watches: &mut [Watch], groups: &Groups) {
    let clock = Clock::starting_in(Duration::ZERO);
    let mut seen = Vec::new();
    let mut next = clock.now();
    loop {
        for (number, watch) in watches.iter_mut().enumerate() {
            let round = watch.round(&mut seen);
            let mut groups = groups.lock().unwrap_or_else(PoisonError::into_inner);
            let group = &mut groups[number];
            group.up = round.is_ok();
            match round {
                Ok(round) => take(&mut group.sockets, round, &seen, true),
                // If the watched process has ended, it has no sockets left. If the kernel did not answer, a
                // later attempt may succeed.
                Err(_) => group.sockets.keep(Instant::FAR_FUTURE),
            }
        }
        next = (next + EVERY).max(clock.now());
        clock.sleep_until(next);
    }
}

fn answer(request: &Request, groups: &Groups, prober: &Prober, host: SocketFacts) -> Answer {
    let path = request.url.split('?').next().unwrap_or_default();
    let reads = matches!(request.method.as_str(), "GET" | "HEAD");
    match path {
        // A probe takes several seconds; other threads serve other requests in the meantime.
        "/probe" if request.method == "GET" => probe(request, prober, host),
        _ if !reads => text(405, PLAIN, "GET or HEAD\n".into()),
        "/metrics" => text(200, metrics::CONTENT_TYPE, page(groups)),
        "/" => text(200, PLAIN, "fullpipe exporter: /metrics, /probe?target=HOST\n".into()),
        _ => text(404, PLAIN, "not found; use /metrics or /probe?target=HOST\n".into()),
    }
}

fn probe(request: &Request, prober: &Prober, host: SocketFacts) -> Answer {
    match prober.probe(&request.url, request.scrape_timeout.as_deref(), host) {
        Ok(probed) => text(200, metrics::CONTENT_TYPE, metrics::of_probe(&probed)),
        Err(ProbeRefusal::Bad(why)) => text(400, PLAIN, why),
        Err(ProbeRefusal::Forbidden) => text(
            403,
            PLAIN,
            "this exporter does not probe that server; permit the server with \
                              --probe-target\n"
                .into(),
        ),
        Err(ProbeRefusal::Busy) => {
            text(503, PLAIN, "another probe is running, and two probes would disturb each other\n".into())
        }
    }
}

fn page(groups: &Groups) -> String {
    let mut groups = groups.lock().unwrap_or_else(PoisonError::into_inner);
    let groups = groups.iter_mut().map(|group| metrics::Group {
        dst: group.dst.clone(),
        totals: group.sockets.totals(),
        present: group.sockets.present(),
        up: group.up,
    });
    metrics::page(&groups.collect::<Vec<_>>())
}

const fn text(status: u16, kind: &'static str, body: String) -> Answer {
    Answer { status, kind, body }
}
