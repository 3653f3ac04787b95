//! `fullpipe diagnose`: a log, its limits, the ladder.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::process::ExitCode;

use fullpipe_analysis::input::capture::is_capture;
use fullpipe_analysis::input::trace::Choice;
use fullpipe_analysis::input::{decode, ss};
use fullpipe_analysis::report::html::render_diagnosis;
use fullpipe_analysis::tune::KEYS;
use fullpipe_analysis::{
    Capture, DiagnoseError, Facts, HostSettings, InputError, Iperf3Log, Kind, Look, SocketReport, Trace,
    render_text,
};
use fullpipe_units::Bytes;

use crate::args::{DiagnoseArgs, Format};
use crate::failure::Failure;
use crate::{iperf3, output, sockets, tui};

/// A log of a day's one-second intervals is a few megabytes; what is larger is something else.
const LARGEST_INPUT: u64 = 64 << 20;

/// Stands for this host's own settings.
pub(crate) const LOCAL: &str = "local";

pub(crate) fn diagnose(args: &DiagnoseArgs, look: Look) -> Result<ExitCode, Failure> {
    if args.sockets.asked() {
        return sockets::diagnose(args, look);
    }
    if let Some(done) = iperf3::diagnose(args, look) {
        return done;
    }
    let name = if args.file() == "-" { "standard input" } else { args.file() };
    let input = Input::read(args, name)?;
    explained(args, look, name, input.facts(), args.sysctl.as_deref(), None)
}

/// Explains `facts` with what is said on the command line, and prints it. `sysctl` says where the settings of the host are
/// that made the log, and `sockets` among which the explained one was found.
pub(crate) fn explained(
    args: &DiagnoseArgs,
    look: Look,
    name: &str,
    facts: Facts<'_>,
    sysctl: Option<&str>,
    sockets: Option<Vec<SocketReport>>,
) -> Result<ExitCode, Failure> {
    let own = sysctl.map(settings).transpose()?;
    let peer_sysctl = args.peer_sysctl.as_deref().map(settings).transpose()?;
    let facts = Facts {
        rtt: args.rtt,
        link: args.link,
        sysctl: own.as_ref(),
        peer_sysctl: peer_sysctl.as_ref(),
        kernel: args.kernel,
        control: match facts.control {
            Some(rate) => Some(rate),
            None => args.control_rate()?,
        },
        ..facts
    };
    if args.tui {
        return play(&facts, name, look);
    }
    let demand = args.demand.demand(|| {
        // The queue is where the application is: on the sender.
        let settings = if facts.made_by_sender() { sysctl } else { args.peer_sysctl.as_deref() };
        settings.filter(|source| *source == LOCAL).and_then(|_| memory_left())
    })?;
    let diagnosed = output::with_progress(|progress| fullpipe_analysis::diagnose(&facts, progress));
    let diagnosis = diagnosed.map_err(|e| match e {
        DiagnoseError::Input(e) => Failure::from(e).about(name),
        DiagnoseError::Defect(e) => Failure::from(e),
    })?;
    let diagnosis = match demand {
        Some(demand) => diagnosis.against(demand),
        None => diagnosis,
    };
    let diagnosis = match sockets {
        Some(sockets) => diagnosis.among(sockets),
        None => diagnosis,
    };
    if let Some(path) = &args.html {
        output::write_html(path, |made| render_diagnosis(&facts, &diagnosis, made))?;
    }
    match args.output.format() {
        Format::Json => output::print(&output::json(&diagnosis)?)?,
        Format::Text => output::print(&render_text(&diagnosis, look))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Plays a trace back.
fn play(facts: &Facts<'_>, name: &str, look: Look) -> Result<ExitCode, Failure> {
    let Some(trace) = facts.trace else {
        let message = format!("{name}: --tui plays a trace back, and this is none");
        return Err(Failure::new(
            message,
            "make one: fullpipe run EXPERIMENT --out DIR writes DIR/trace.csv",
        ));
    };
    tui::replay(trace.rows(), facts.hosts(), look)?;
    Ok(ExitCode::SUCCESS)
}

/// What there is to explain, told apart by its content.
enum Input {
    Log(Iperf3Log),
    Trace(Trace),
    Capture(Capture),
}

impl Input {
    fn read(args: &DiagnoseArgs, name: &str) -> Result<Self, Failure> {
        let about = |e: InputError| Failure::from(e).about(name);
        let mut source = open(args.file())?;
        let beginning = source.fill_buf().map_err(|e| unreadable(args.file(), &e))?;
        if is_capture(beginning) {
            if args.point.is_some() || args.seed.is_some() {
                let message = format!("{name}: --point and --seed choose in a trace, and this is a capture");
                return Err(Failure::new(message, "leave them out; --flow chooses a connection"));
            }
            let number = args.flow.map(|flow| flow as usize);
            return Capture::read(source, number).map(Self::Capture).map_err(about);
        }
        let text = whole(args.file(), source)?;
        let choice = Choice { point: args.point.as_deref(), seed: args.seed, flow: args.flow };
        match Kind::of(&text) {
            Kind::Trace => Trace::parse(&text, &choice).map(Self::Trace).map_err(about),
            Kind::Ss if args.point.is_some() || args.seed.is_some() => {
                let message =
                    format!("{name}: --point and --seed choose in a trace, and this is output of ss");
                Err(Failure::new(message, "leave them out; --flow chooses a connection"))
            }
            Kind::Ss => ss::parse(&text, args.flow).map(Self::Trace).map_err(about),
            _ if choice != Choice::default() => {
                let message =
                    format!("{name}: --point, --seed and --flow choose in a trace, and this is none");
                Err(Failure::new(message, "leave them out"))
            }
            _ => Iperf3Log::parse(&text).map(Self::Log).map_err(about),
        }
    }

    fn facts(&self) -> Facts<'_> {
        match self {
            Self::Log(log) => Facts::of(log),
            Self::Trace(trace) => Facts::of_trace(trace),
            Self::Capture(capture) => Facts::of_capture(capture),
        }
    }
}

/// `file`, or standard input for `-`.
fn open(file: &str) -> Result<Box<dyn BufRead>, Failure> {
    if file == "-" {
        return Ok(Box::new(io::stdin().lock()));
    }
    let opened = File::open(file).map_err(|e| unreadable(file, &e))?;
    Ok(Box::new(BufReader::new(opened)))
}

fn unreadable(file: &str, error: &io::Error) -> Failure {
    Failure::new(format!("cannot read {file}: {error}"), "give a file, or - to read standard input")
}

/// The text of `file`, or of standard input for `-`.
pub(crate) fn read(file: &str) -> Result<String, Failure> {
    whole(file, open(file)?)
}

fn whole(file: &str, source: impl Read) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    source.take(LARGEST_INPUT + 1).read_to_end(&mut bytes).map_err(|e| unreadable(file, &e))?;
    if bytes.len() as u64 > LARGEST_INPUT {
        return Err(Failure::new(
            format!("{file} is larger than 64 MiB"),
            "give the log of one test, not an archive",
        ));
    }
    Ok(decode(&bytes))
}

/// The settings in a dump, or those of this host for `local`.
pub(crate) fn settings(source: &str) -> Result<HostSettings, Failure> {
    let text = if source == LOCAL { local() } else { read(source)? };
    HostSettings::parse(&text).map_err(|e| Failure::from(e).about(source))
}

/// This host's settings as a dump. What cannot be read is left out, as it is in a container.
fn local() -> String {
    let line = |path: &&str| {
        let value = fs::read_to_string(Path::new("/proc/sys").join(path)).ok()?;
        Some(format!("{} = {}\n", path.replace('/', "."), value.trim()))
    };
    KEYS.iter().filter_map(line).collect()
}

/// What this host has left for applications, if it says so.
pub(crate) fn memory_left() -> Option<Bytes> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes::new(kibibytes.saturating_mul(1024)))
}
