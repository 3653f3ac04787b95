//! Prometheus metrics of this host's connections, and probes.
//!
//! ```text
//!   a thread: samples of each group, ten a second ──► Sockets, one a group ◄── /metrics: sums and gauges
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

/// Between two samples: what the rules of the classifier want.
const EVERY: Duration = Duration::from_millis(100);
/// The group of all connections.
const ALL: &str = "all";
/// Groups: each has some twenty series.
const MOST_GROUPS: usize = 100;

/// For people.
const PLAIN: &str = "text/plain; charset=utf-8";

/// Sockets that are summed up together.
struct SocketGroup {
    dst: String,
    sockets: Sockets,
    up: bool,
}

type Groups = Arc<Mutex<Vec<SocketGroup>>>;

/// What is exported, and where.
#[derive(Clone, Debug)]
pub struct Exporter {
    /// Where the pages are served.
    pub listen: SocketAddr,
    /// Groups of connections, each as `HOST[:PORT]`; without any, all connections are one group.
    pub dst: Vec<String>,
    /// Only connections of this process.
    pub process: Option<u32>,
    /// Rate of the bottleneck link.
    pub link: Option<Rate>,
}

/// Serves the pages for as long as the process runs.
///
/// # Errors
/// A group is not understood, the address is taken, or sockets cannot be read.
pub fn serve(exporter: &Exporter, observer: &impl Observer) -> Result<(), Error> {
    let mut dsts = exporter.dst.clone();
    if dsts.is_empty() {
        dsts.push(ALL.into());
    }
    if dsts.len() > MOST_GROUPS {
        return Err(Error::usage(format!("{} times --dst", dsts.len()), format!("at most {MOST_GROUPS}")));
    }
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
            "choose another address with --listen ADDRESS:PORT",
        )
    })?;
    let groups: Groups = Arc::new(Mutex::new(groups));
    let sampled = Arc::clone(&groups);
    thread::spawn(move || sample(&mut watches, &sampled));
    // With port 0 the kernel has chosen one.
    observer.note(&format!("http://{}/metrics", listener.local_addr().unwrap_or(exporter.listen)));
    let prober = Prober::default();
    http::serve(&listener, move |request| answer(request, &groups, &prober, host));
    Ok(())
}

/// Takes samples for as long as the process runs.
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
                // A process that ended has no sockets any more; a kernel that does not answer may do so again.
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
        // It takes seconds, and others have their metrics meanwhile.
        "/probe" if request.method == "GET" => probe(request, prober, host),
        _ if !reads => text(405, PLAIN, "GET or HEAD\n".into()),
        "/metrics" => text(200, metrics::CONTENT_TYPE, page(groups)),
        "/" => text(200, PLAIN, "fullpipe exporter: /metrics, /probe?target=HOST\n".into()),
        _ => text(404, PLAIN, "there are /metrics and /probe?target=HOST\n".into()),
    }
}

fn probe(request: &Request, prober: &Prober, host: SocketFacts) -> Answer {
    match prober.probe(&request.url, request.scrape_timeout.as_deref(), host) {
        Ok(probed) => text(200, metrics::CONTENT_TYPE, metrics::of_probe(&probed)),
        Err(ProbeRefusal::Bad(why)) => text(400, PLAIN, why),
        Err(ProbeRefusal::Busy) => {
            text(503, PLAIN, "another probe runs: two would measure each other\n".into())
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
