//! `fullpipe copy` and `fullpipe relay`: copy files over several TLS connections.

mod progress;

use std::env;
use std::fs;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use fullpipe::classify::SocketFacts;
use fullpipe::copy_forecast::{PathToPeer, forecast};
use fullpipe::relay::{
    AllowList, Connections, CopyObserver, CopyOptions, End, Fingerprint, Identity, Pipe, PipeOptions,
    RateLimit, Reached, Sampler, ServeObserver, ServeOptions, Sources, open_progress,
};
use fullpipe::units::{Bytes, Probability, Rate};
use fullpipe::{Look, render_flow_counts};

use self::progress::CopyProgress;
use crate::args::{CopyArgs, Format, RelayAction, RelayArgs, RelayServeArgs};
use crate::failure::{Failure, INTERRUPTED};
use crate::{interrupt, output};

/// Default limit on the piped data that is kept until it is durable at the relay.
const PIPE_MEMORY: Bytes = Bytes::from_mib(64);

pub(crate) fn copy(args: &CopyArgs, look: Look) -> Result<ExitCode, Failure> {
    let target = End::parse(&args.target).map_err(fullpipe::Error::from)?;
    let sources = sources(args)?;
    let is_ssh = |end: &End| matches!(end, End::Ssh { .. });
    let is_over_ssh = match &sources {
        Sources::Remote(ends) => ends.iter().any(is_ssh),
        Sources::Files(_) | Sources::Pipe(_) => is_ssh(&target),
    };
    let identity = match is_over_ssh {
        true if args.peer.is_some() || args.key.is_some() => {
            return Err(Failure::usage(
                "--peer and --key apply only to relay://, but this copy uses ssh",
                "remove these options: copies over ssh make their own keys",
            ));
        }
        true => Identity::temporary().map_err(fullpipe::Error::from)?,
        false => identity(args.key.as_deref())?,
    };
    let is_pipe = matches!(sources, Sources::Pipe(_));
    let options = CopyOptions {
        sources,
        target,
        connections: args.connections.parse().map_err(fullpipe::Error::from)?,
        identity,
        peer: args.peer.as_deref().map(fingerprint).transpose()?,
        verify: args.verify,
        limit: args.limit.map(RateLimit::new).transpose().map_err(fullpipe::Error::from)?,
        memory: args.memory.filter(|_| !is_pipe),
        cc: args.cc.clone(),
        pacer: Some(Arc::new(fullpipe::KernelPacer)),
        link: args.link,
        peers: default_file("XDG_STATE_HOME", ".local/state", "copy-peers.json"),
        retry: args.retry,
    };
    let path = args.link.map(|link| LinkToPeer { link, loss: args.loss.unwrap_or(Probability::ZERO) });
    if let Some(path) = path.filter(|_| args.plan) {
        return plan(&options, path, args.output.format(), look);
    }
    let path = path.map(|path| (path, options.connections));
    let shown = CopyProgress::new(args.progress_fd.map(descriptor).transpose()?, path);
    let (clear, hint) = (shown.clearing(), continuing(&options.sources));
    interrupt::at_signal(move || {
        clear();
        eprintln!("interrupted; data that is durable at the target is kept\nhint: {hint}");
        std::process::exit(INTERRUPTED.into());
    })?;
    // Without a sampler, the copy uses the minimum number of connections.
    let sampler = fullpipe::OwnSockets::begin(SocketFacts { link: args.link, ..SocketFacts::default() })
        .map(|own| Box::new(own) as Box<dyn Sampler>);
    let sampler =
        sampler.map_err(|error| shown.note(&format!("cannot sample the connections: {error}"))).ok();
    let report = fullpipe::relay::copy(&options, sampler, &shown);
    shown.clear();
    let mut report = report.map_err(fullpipe::Error::from)?;
    report.forecast = shown.forecast(&report);
    let text = match args.output.format() {
        Format::Json => output::json(&report)?,
        Format::Text => report.to_string(),
    };
    match options.target {
        // Standard output contains the file, so the report goes to standard error.
        End::Pipe => eprint!("{text}"),
        _ => output::print(&text)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the hint about how an interrupted copy of `sources` is continued.
fn continuing(sources: &Sources) -> String {
    let command = output::command_line();
    match sources {
        Sources::Files(_) | Sources::Remote(_) => format!("to continue the copy, run {command}"),
        Sources::Pipe(pipe) if pipe.is_named() => format!(
            "to continue the stream, run {command}; its first progress line is the offset at which the producer has \
             to resume"
        ),
        Sources::Pipe(_) => format!(
            "to copy the pipe from the beginning, run {command}; only a stream with a name (--stream) can continue"
        ),
    }
}

/// Facts about the path that the user has given.
#[derive(Clone, Copy)]
struct LinkToPeer {
    link: Rate,
    loss: Probability,
}

impl LinkToPeer {
    fn with(self, reached: Reached) -> PathToPeer {
        PathToPeer { link: self.link, loss: self.loss, reached }
    }
}

/// Prints the predicted rate for each number of connections.
fn plan(options: &CopyOptions, path: LinkToPeer, format: Format, look: Look) -> Result<ExitCode, Failure> {
    let path = path.with(fullpipe::relay::probe(options).map_err(fullpipe::Error::from)?);
    let counts = output::with_bar("simulating {bar:30} {pos}/{len} runs", |observer| {
        forecast(&path, numbers(options.connections), observer)
    })?;
    match format {
        Format::Json => output::print(&output::json(&counts)?)?,
        Format::Text => output::print(&render_flow_counts(&counts, "connections", look))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the numbers of connections for which the rate is predicted: those of the range that the
/// user has chosen, or those of the default range.
fn numbers(connections: Connections) -> Connections {
    let (least, most) = connections.range();
    if least == most { Connections::AUTO } else { connections }
}

/// Opens the file descriptor `number`, on which the copy reports the accepted offset to the
/// producer of a pipe.
fn descriptor(number: u32) -> Result<File, Failure> {
    open_progress(number).map_err(|error| {
        Failure::usage(
            format!("cannot write to the file descriptor {number}: {error}"),
            format!("redirect the descriptor, for example {number}>progress"),
        )
    })
}

/// Returns the sources of the copy.
fn sources(args: &CopyArgs) -> Result<Sources, Failure> {
    match args.sources.as_slice() {
        [only] if only == "-" => {
            let input = io::stdin().as_fd().try_clone_to_owned();
            let input =
                input.map_err(|error| Failure::new(format!("cannot read standard input: {error}"), ""))?;
            let memory = args.memory.unwrap_or(PIPE_MEMORY);
            let (stream, spool) = (args.stream.clone(), args.spool.clone());
            let pipe = Pipe::new(input.into(), PipeOptions { memory, stream, spool });
            Ok(Sources::Pipe(pipe.map_err(fullpipe::Error::from)?))
        }
        _ if args.stream.is_some() || args.progress_fd.is_some() => Err(Failure::usage(
            "--stream, --spool and --progress-fd apply only to standard input, but the sources are files",
            "remove these options; to continue an interrupted copy of files, run the same command again",
        )),
        files => {
            let ends = files.iter().map(|source| End::parse(source)).collect::<Result<Vec<_>, _>>();
            of_ends(ends.map_err(fullpipe::Error::from)?)
        }
    }
}

/// Returns sources that are either all on this host or all on one other host.
fn of_ends(ends: Vec<End>) -> Result<Sources, Failure> {
    if ends.contains(&End::Pipe) {
        let hint = "copy the other files with a separate command";
        return Err(Failure::usage("standard input cannot be copied together with files", hint));
    }
    let local = |end: &End| match end {
        End::Local(path) => Some(path.clone()),
        End::Pipe | End::Relay { .. } | End::Ssh { .. } => None,
    };
    let paths: Vec<PathBuf> = ends.iter().filter_map(local).collect();
    match paths.len() {
        0 => Ok(Sources::Remote(ends)),
        count if count == ends.len() => Ok(Sources::Files(paths)),
        _ => Err(Failure::usage(
            "some of the sources are on this host, and others are on another host",
            "copy the sources with two commands",
        )),
    }
}

pub(crate) fn relay(args: &RelayArgs) -> Result<ExitCode, Failure> {
    match &args.action {
        RelayAction::Serve(args) => serve(args),
        RelayAction::Once => {
            let served = fullpipe::relay::serve_once(
                io::stdin(),
                io::stdout(),
                Some(Arc::new(fullpipe::HostKernel)),
                Arc::new(Silent),
            );
            served.map_err(fullpipe::Error::from)?;
            Ok(ExitCode::SUCCESS)
        }
        RelayAction::Key(args) => {
            output::print(&format!("{}\n", identity(args.key.as_deref())?.fingerprint()))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn serve(args: &RelayServeArgs) -> Result<ExitCode, Failure> {
    let mut allow = AllowList::default();
    for client in &args.allow {
        if client.starts_with("sha256:") {
            allow.add(fingerprint(client)?);
            continue;
        }
        let text = fs::read_to_string(client).map_err(|error| {
            let hint = "pass a fingerprint, which begins with sha256:, or a file with fingerprints";
            Failure::new(format!("cannot read {client}: {error}"), hint)
        })?;
        allow.add_file(&text).map_err(|error| Failure::from(fullpipe::Error::from(error)).about(client))?;
    }
    let identity = identity(args.key.as_deref())?;
    let options = ServeOptions {
        listen: args.listen,
        root: args.root.clone(),
        identity,
        allow,
        kernel: Some(Arc::new(fullpipe::HostKernel)),
    };
    let report = Arc::new(ServeReport { fingerprint: options.identity.fingerprint() });
    fullpipe::relay::serve(&options, report).map_err(fullpipe::Error::from)?;
    Ok(ExitCode::SUCCESS)
}

fn fingerprint(text: &str) -> Result<Fingerprint, Failure> {
    Ok(text.parse::<Fingerprint>().map_err(fullpipe::Error::from)?)
}

/// Reads the key of this host, or creates a key if there is none.
fn identity(file: Option<&Path>) -> Result<Identity, Failure> {
    let path = match file {
        Some(file) => file.to_path_buf(),
        None => default_file("XDG_CONFIG_HOME", ".config", "relay.key").ok_or_else(|| {
            Failure::new("the folder of the key is not known, because HOME is not set", "pass --key FILE")
        })?,
    };
    Ok(Identity::load_or_create(&path).map_err(fullpipe::Error::from)?)
}

/// Returns the path of a file of this user, in the folder that `variable` names or in `folder` below the home folder (XDG
/// Base Directory Specification).
fn default_file(variable: &str, folder: &str, name: &str) -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let parent = set(variable).or_else(|| Some(set("HOME")?.join(folder)))?;
    Some(parent.join("fullpipe").join(name))
}

/// Prints the events of a relay on standard error.
struct ServeReport {
    fingerprint: Fingerprint,
}

impl ServeObserver for ServeReport {
    fn listening(&self, address: SocketAddr) {
        eprintln!("listening on {address}; clients need --peer {}", self.fingerprint);
    }

    fn report(&self, text: &str) {
        eprintln!("{}", one_line(text));
    }
}

/// An observer for the relay of one copy; it prints nothing, because the client already prints the
/// progress.
struct Silent;

impl ServeObserver for Silent {
    fn listening(&self, _: SocketAddr) {}

    fn report(&self, _: &str) {}
}

/// Replaces control characters with spaces, because file names and messages from a peer may
/// contain them.
fn one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}
