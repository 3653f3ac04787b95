//! `fullpipe diagnose --pid`, `--dst` and `--watch`: the sockets of running applications.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fullpipe_analysis::classify::HostFacts;
use fullpipe_analysis::input::iperf3::Format as LogFormat;
use fullpipe_analysis::report::sockets;
use fullpipe_analysis::sockets::Sample;
use fullpipe_analysis::{Facts, HostSettings, Look, Memory, SocketReport, Sockets, Trace};
use fullpipe_linux::sock_diag::{Peer, Seen, Which};
use fullpipe_linux::watch::{Round, Watch};
use fullpipe_units::{Duration, Instant};
use serde::Serialize;

use crate::args::{DiagnoseArgs, Format, SocketArgs};
use crate::diagnose::{LOCAL, explained, memory_left, settings};
use crate::failure::Failure;
use crate::interrupt;
use crate::output;
use crate::tui::{self, Screen};

/// How long sockets are looked at that are then diagnosed.
const LENGTH: Duration = Duration::from_secs(10);
/// Between two samples: of a diagnosis, and of a watch that may go on for weeks.
const FINE: Duration = Duration::from_millis(50);
const COARSE: Duration = Duration::from_millis(100);
/// An interval has several samples.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(500);
/// Sockets that the live view follows: nobody leafs through more.
const MOST_SHOWN: usize = 256;
/// Version of the lines of `--jsonl`; keys are added under the same number, never changed or removed.
const SCHEMA: &str = "fullpipe.watch/1";

pub(crate) fn diagnose(args: &DiagnoseArgs, look: Look) -> Result<ExitCode, Failure> {
    let which = &args.sockets;
    if args.point.is_some() || args.seed.is_some() {
        return Err(Failure::usage("--point and --seed choose in a trace", "leave them out"));
    }
    if which.interval < SHORTEST_INTERVAL {
        return Err(Failure::usage("an interval has several samples", "allowed: 500ms and more"));
    }
    let peers = which.dst.iter().map(|host| peers(host)).collect::<Result<Vec<_>, _>>()?.concat();
    let watch = Watch::begin(Which { peers, inodes: None }, which.pid)?;
    // Settings belong to a network namespace.
    let own = if watch.elsewhere() { None } else { Some(LOCAL) };
    let sysctl = args.sysctl.as_deref().or(own);
    let host = sysctl.map(settings).transpose()?.as_ref().map_or_else(HostFacts::default, host_facts);
    let host = HostFacts { line: args.link, ..host };
    let looking = Looking { watch, stop: interrupt::noted(|| ())?, what: what(which) };
    if args.tui && !which.watch {
        return Err(Failure::usage("--tui shows what goes on", "give --watch too"));
    }
    if which.watch && args.tui && tui::has_terminal() {
        return show(args, looking, host, look);
    }
    if which.watch { follow(args, looking, host) } else { one_shot(args, look, looking, host, sysctl) }
}

fn host_facts(settings: &HostSettings) -> HostFacts {
    HostFacts { wmem: settings.tcp_wmem.map(|wmem| wmem[2]), ..HostFacts::default() }
}

/// What is looked at, in words.
fn what(which: &SocketArgs) -> String {
    let process = which.pid.map(|pid| format!("process {pid}"));
    let peers = (!which.dst.is_empty()).then(|| format!("connections to {}", which.dst.join(", ")));
    match (process, peers) {
        (Some(process), Some(peers)) => format!("{peers} of {process}"),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => "this host".into(),
    }
}

/// A watch that somebody may end.
struct Looking {
    watch: Watch,
    stop: Arc<AtomicBool>,
    what: String,
}

impl Looking {
    /// Takes samples until it is over, or `each` says so after a round; it is told too of how many samples are rare.
    fn sample(
        &mut self,
        sockets: &mut Sockets,
        every: Duration,
        until: Option<Duration>,
        mut each: impl FnMut(Instant, &mut Sockets, usize) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut seen: Vec<Seen> = Vec::new();
        let clock = *self.watch.clock();
        let begin = clock.now();
        let mut next = begin;
        let mut met = false;
        while !self.stop.load(Ordering::Relaxed) {
            let round = match self.watch.round(&mut seen) {
                Ok(round) => round,
                // What was looked at has ended meanwhile, which ends the looking.
                Err(error) if met => {
                    eprintln!("note: {error}");
                    break;
                }
                Err(error) => return Err(error.into()),
            };
            met = true;
            // A diagnosis has those too that have ended meanwhile.
            take(sockets, round, &seen, until.is_none());
            each(round.at, sockets, self.watch.rarely())?;
            if until.is_some_and(|until| round.at.saturating_since(begin) >= until) {
                break;
            }
            // Who is late goes on from there: samples at once would tell nothing.
            next = (next + every).max(clock.now());
            clock.sleep_until(next);
        }
        Ok(())
    }
}

/// Takes the samples of a round; with `forget` without those that are gone.
pub(crate) fn take(sockets: &mut Sockets, round: Round, seen: &[Seen], forget: bool) {
    for socket in seen {
        sockets.take(round.at, &sample(socket));
    }
    if forget && round.all {
        sockets.keep(round.at);
    }
}

fn sample(seen: &Seen) -> Sample<'_> {
    Sample {
        id: seen.id.cookie,
        local: seen.id.local,
        remote: seen.id.remote,
        cc: seen.cc.as_str(),
        sender: seen.sender,
        receiver: seen.receiver,
        acked: seen.acked,
        queued: seen.queued,
    }
}

/// Looks for a while, then explains the largest sender.
fn one_shot(
    args: &DiagnoseArgs,
    look: Look,
    mut looking: Looking,
    host: HostFacts,
    sysctl: Option<&str>,
) -> Result<ExitCode, Failure> {
    let mut sockets = Sockets::new(host).keeping_rows();
    let length = args.sockets.length.unwrap_or(LENGTH);
    looking.sample(&mut sockets, FINE, Some(length), |_, _, _| Ok(()))?;
    let demand = args.demand.demand(memory_left)?;
    let memory = demand.map_or_else(|| memory(args), |demand| demand.memory);
    let reports = sockets.whole(demand.map(|demand| demand.rate), memory);
    let chosen = chosen(args, &looking.what, length, &reports)?;
    let rows = sockets.rows(chosen.flow).unwrap_or_default().to_vec();
    let name = format!("{} > {}", chosen.local, chosen.remote);
    let notes = match &*chosen.congestion_control {
        cc if rows.iter().all(|row| row.sender.cc.is_none()) => {
            vec![format!(
                "the sender's congestion control is {cc}, which is none of those that are simulated"
            )]
        }
        _ => Vec::new(),
    };
    let trace = Trace::of_rows(rows, LogFormat::Sockets, notes, "sample again")
        .map_err(|e| Failure::from(e).about(&name))?;
    explained(args, look, &name, Facts::of_trace(&trace), sysctl, Some(reports))
}

/// The socket to explain: the one asked for, or the largest sender.
fn chosen<'r>(
    args: &DiagnoseArgs,
    what: &str,
    length: Duration,
    reports: &'r [SocketReport],
) -> Result<&'r SocketReport, Failure> {
    if reports.is_empty() {
        let hint = "ss -tnp shows the connections that there are; a listening socket is none";
        return Err(Failure::new(format!("{what}: no TCP connection is open"), hint));
    }
    if let Some(number) = args.flow {
        let list: Vec<String> = reports.iter().take(4).map(|report| report.flow.to_string()).collect();
        let none = || {
            Failure::new(format!("there is no connection {number}"), format!("there are {}", list.join(", ")))
        };
        return reports.iter().find(|report| report.flow == number).ok_or_else(none);
    }
    let sender =
        reports.iter().max_by_key(|report| report.achieved).filter(|report| !report.achieved.is_zero());
    if let Some(sender) = sender {
        return Ok(sender);
    }
    let open = reports.len();
    match reports.iter().find(|report| !report.received.is_zero()) {
        Some(receiver) => {
            let unread = match receiver.unread_bytes {
                0 => "its application reads all that comes".to_owned(),
                unread => {
                    format!("{} wait to be read by its application", fullpipe_units::Bytes::new(unread))
                }
            };
            Err(Failure::new(
                format!("{what} only receives: {} from {}, and {unread}", receiver.received, receiver.remote),
                "the limit of a download shows at its sender: run this there, or give a capture",
            ))
        }
        None => Err(Failure::new(
            format!("{what}: nothing moved in {length} on {open} connections"),
            "look while a transfer runs, or longer with --for",
        )),
    }
}

fn memory(args: &DiagnoseArgs) -> Memory {
    let available = || memory_left().map_or(Memory::Unknown, Memory::Available);
    args.demand.memory.map_or_else(available, Memory::Given)
}

/// A line of `--jsonl`.
#[derive(Serialize)]
struct Line<'a> {
    schema: &'static str,
    #[serde(flatten)]
    report: &'a SocketReport,
}

/// Goes on, as the live view.
fn show(args: &DiagnoseArgs, mut looking: Looking, host: HostFacts, look: Look) -> Result<ExitCode, Failure> {
    let mut sockets = Sockets::new(host);
    let mut screen = Screen::open(host, look)?;
    let stop = Arc::clone(&looking.stop);
    looking.sample(&mut sockets, COARSE, args.sockets.length, |at, sockets, _| {
        for (number, name, row) in sockets.senders().take(MOST_SHOWN) {
            screen.push(number.into(), name, row);
        }
        if !screen.show(at)? {
            stop.store(true, Ordering::Relaxed);
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Goes on, a line an interval and socket that moved.
fn follow(args: &DiagnoseArgs, mut looking: Looking, host: HostFacts) -> Result<ExitCode, Failure> {
    let which = &args.sockets;
    let json = which.jsonl || args.output.format() == Format::Json;
    let demand = args.demand.demand(memory_left)?.map(|demand| demand.rate);
    let sockets = Sockets::new(host);
    let mut sockets = if json { sockets } else { sockets.without_words() };
    let (mut end, mut told) = (Instant::ZERO + which.interval, false);
    let what = looking.what.clone();
    let mut quiet = false;
    let mut crowded = false;
    let every = COARSE.min(which.interval / 5);
    looking.sample(&mut sockets, every, which.length, |at, sockets, rarely| {
        if at < end {
            return Ok(());
        }
        if rarely > 0 && !crowded {
            eprintln!(
                "note: more connections move than are looked at each time: those that move most are, {rarely} others once a second"
            );
        }
        crowded = rarely > 0;
        end = at + which.interval;
        // What is left changes while it is taken.
        let memory = memory(args);
        let reports = sockets.interval(demand, memory);
        if reports.is_empty() && !quiet {
            eprintln!("note: {what}: {} connections, and nothing moves", sockets.len());
        }
        quiet = reports.is_empty();
        // A thousand lines are written at once.
        if json {
            let lines = reports.iter().map(|report| output::json_line(&Line { schema: SCHEMA, report }));
            return output::print(&lines.collect::<Result<String, _>>()?);
        }
        if !told && !reports.is_empty() {
            output::print(&sockets::heading())?;
            told = true;
        }
        output::print(&sockets::lines(&reports, memory))
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Whoever is meant by `HOST[:PORT]`, at each of its addresses.
pub(crate) fn peers(text: &str) -> Result<Vec<Peer>, Failure> {
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
        Failure::new(
            format!("--dst {text}: {e}"),
            "write an address or a name, as 192.0.2.7 or example.com:443",
        )
    })?;
    let mut addresses: Vec<IpAddr> = resolved.map(|address| address.ip()).collect();
    addresses.dedup();
    Ok(addresses.into_iter().map(|address| peer(Some(address), port)).collect())
}

fn no_port(text: &str) -> Failure {
    Failure::usage(
        format!("--dst {text}: what stands behind the colon is no port"),
        "write an address or a name, as 192.0.2.7, [2001:db8::7]:443, example.com:443 or :443",
    )
}
