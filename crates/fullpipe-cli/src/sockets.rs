//! `fullpipe diagnose --pid`, `--dst` and `--watch`: samples the sockets of running applications.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fullpipe::classify::SocketFacts;
use fullpipe::report::sockets;
use fullpipe::units::{Duration, Instant};
use fullpipe::watch::{self, COARSE, Selection, Watch};
use fullpipe::{HostFacts, HostSettings, Look, Memory, Observer, Sockets};

use crate::args::{DiagnoseArgs, Format};
use crate::diagnose::explained;
use crate::failure::Failure;
use crate::interrupt;
use crate::output;
use crate::tui::{self, Screen};
use fullpipe::host::{LOCAL, memory_left, settings};

/// Default sampling duration before the diagnosis.
const LENGTH: Duration = Duration::from_secs(10);
/// Minimum value of `--interval` with `--watch`, because each interval needs several samples.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of sockets in the live view.
const MOST_SHOWN: usize = 256;

pub(crate) fn diagnose(args: &DiagnoseArgs, look: Look) -> Result<ExitCode, Failure> {
    let which = &args.sockets;
    if args.point.is_some() || args.seed.is_some() {
        return Err(Failure::usage("--point and --seed apply to traces only", "remove them"));
    }
    if which.interval < SHORTEST_INTERVAL {
        return Err(Failure::usage("--interval is too short to take several samples", "pass at least 500ms"));
    }
    let watch = Watch::begin(&Selection { dst: which.dst.clone(), process: which.pid })?;
    // The kernel settings of this host apply to the watched sockets only if both are in the same network
    // namespace.
    let own = if watch.elsewhere() { None } else { Some(LOCAL) };
    let sysctl = args.sysctl.as_deref().or(own);
    let host = sysctl.map(settings).transpose()?.as_ref().map_or_else(SocketFacts::default, socket_facts);
    let host = SocketFacts { link: args.link, ..host };
    let looking = WatchSession { watch, until: Until(interrupt::noted(|| ())?) };
    if args.tui && !which.watch {
        return Err(Failure::usage("without FILE, --tui requires --watch", "add --watch"));
    }
    if which.watch && args.tui && tui::has_terminal() {
        return show(args, looking, host, look);
    }
    if which.watch { follow(args, looking, host) } else { one_shot(args, look, looking, host, sysctl) }
}

fn socket_facts(settings: &HostSettings) -> SocketFacts {
    SocketFacts { wmem: settings.tcp_wmem.map(|wmem| wmem[2]), ..SocketFacts::default() }
}

/// A watch on sockets, with the flag that ends it.
struct WatchSession {
    watch: Watch,
    until: Until,
}

/// Observer that lets the watch continue until a signal or the user sets the flag.
struct Until(Arc<AtomicBool>);

impl Observer for Until {
    fn goes_on(&self) -> bool {
        !self.0.load(Ordering::Relaxed)
    }

    fn note(&self, text: &str) {
        eprintln!("note: {text}");
    }
}

/// Samples the sockets for the given time, then diagnoses the connection with the highest send rate.
fn one_shot(
    args: &DiagnoseArgs,
    look: Look,
    mut looking: WatchSession,
    host: SocketFacts,
    sysctl: Option<&str>,
) -> Result<ExitCode, Failure> {
    let mut sockets = Sockets::new(host).keeping_rows();
    let length = args.sockets.length.unwrap_or(LENGTH);
    looking.watch.collect(&mut sockets, length, &looking.until)?;
    // From here on, Ctrl-C ends the process, because an unfinished ladder has nothing to print.
    looking.until.0.store(true, Ordering::Relaxed);
    let demand = args.demand.demand(memory_left)?;
    let memory = demand.map_or_else(|| memory(args), |demand| demand.memory);
    let reports = sockets.whole(demand.map(|demand| demand.rate), memory);
    let chosen = looking.watch.choose(&reports, args.flow, length)?;
    let name = format!("{} > {}", chosen.local, chosen.remote);
    let measurement = watch::measurement(&sockets, chosen).map_err(|error| error.about(&name))?;
    let hosts = HostFacts { rate_option: looking.watch.rate_option().cloned(), ..HostFacts::default() };
    explained(args, look, &name, &measurement, hosts, sysctl, Some(reports))
}

fn memory(args: &DiagnoseArgs) -> Memory {
    let available = || memory_left().map_or(Memory::Unknown, Memory::Available);
    args.demand.memory.map_or_else(available, Memory::Given)
}

/// Shows the live view of the sockets until a signal or the user ends it.
fn show(
    args: &DiagnoseArgs,
    mut looking: WatchSession,
    host: SocketFacts,
    look: Look,
) -> Result<ExitCode, Failure> {
    let mut sockets = Sockets::new(host);
    let mut screen = Screen::open(host, look)?;
    let stop = Arc::clone(&looking.until.0);
    let WatchSession { watch, until } = &mut looking;
    watch.sample(&mut sockets, COARSE, args.sockets.length, until, |at, sockets, _| {
        for sender in sockets.senders().take(MOST_SHOWN) {
            screen.push(sender.number.into(), sender.connection, sender.crosses_link, sender.row);
        }
        if !screen.show(at)? {
            stop.store(true, Ordering::Relaxed);
        }
        Ok::<_, Failure>(())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Prints one line per interval for each active socket, until a signal ends the watch.
fn follow(args: &DiagnoseArgs, mut looking: WatchSession, host: SocketFacts) -> Result<ExitCode, Failure> {
    let which = &args.sockets;
    let json = which.jsonl || args.output.format() == Format::Json;
    let demand = args.demand.demand(memory_left)?.map(|demand| demand.rate);
    let sockets = Sockets::new(host);
    let mut sockets = if json { sockets } else { sockets.without_words() };
    let (mut end, mut told) = (Instant::ZERO + which.interval, false);
    let WatchSession { watch, until } = &mut looking;
    let what = watch.what().to_owned();
    let mut quiet = false;
    let mut crowded = false;
    let every = COARSE.min(which.interval / 5);
    watch.sample(&mut sockets, every, which.length, until, |at, sockets, rarely| {
        if at < end {
            return Ok(());
        }
        if rarely > 0 && !crowded {
            eprintln!(
                "note: {rarely} active connections are sampled only once per second, because other \
                 connections carry more data"
            );
        }
        crowded = rarely > 0;
        end = at + which.interval;
        // The available memory is read again for each interval, because it changes.
        let memory = memory(args);
        let reports = sockets.interval(demand, memory);
        if reports.is_empty() && !quiet {
            eprintln!("note: {what}: none of the {} connections transfers data", sockets.len());
        }
        quiet = reports.is_empty();
        // All lines of an interval are written in one call, because there may be a thousand lines.
        if json {
            let lines = reports.iter().map(watch::line);
            return output::print(&lines.collect::<Result<String, _>>()?);
        }
        if !told && !reports.is_empty() {
            output::print(&sockets::heading(output::columns()))?;
            told = true;
        }
        output::print(&sockets::lines(&reports, memory, output::columns()))
    })?;
    Ok(ExitCode::SUCCESS)
}
