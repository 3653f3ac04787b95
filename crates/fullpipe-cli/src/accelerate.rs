//! `fullpipe accelerate`: puts fullpipe's TCP in front of a server on this host.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use fullpipe::accelerate::config::{ClientAddress, ConfigError, Inputs, Settings, Upstream};
use fullpipe::accelerate::keeper::{self, WorkerProgram};
use fullpipe::accelerate::preflight::{self, Permissions};
use fullpipe::accelerate::{status, worker};
use fullpipe::input::read;
use fullpipe::linux::Stop;

use crate::args::{
    AccelerateAction, AccelerateArgs, AccelerateStatusArgs, ClientAddressName, FirewallAction, Format,
};
use crate::failure::{EXPECTATION, Failure};
use crate::{interrupt, invocation, output};

pub(crate) fn accelerate(args: &AccelerateArgs) -> Result<ExitCode, Failure> {
    match &args.action {
        None => serve(args),
        Some(AccelerateAction::Status(args)) => show(args),
        Some(AccelerateAction::Worker) => {
            worker::work()?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn serve(args: &AccelerateArgs) -> Result<ExitCode, Failure> {
    let settings = settings(args)?;
    let permissions = Permissions {
        ignore_firewall: args.firewall == Some(FirewallAction::Ignore),
        no_fallback: args.no_fallback,
    };
    if args.check || args.dry_run {
        let report = preflight::examine(&settings, permissions)?;
        let text = if args.dry_run { commands(&report) } else { report.to_string() };
        output::print(&text)?;
        let objections = args.check && !report.objections.is_empty();
        return Ok(if objections { ExitCode::from(EXPECTATION) } else { ExitCode::SUCCESS });
    }
    require_program()?;
    let stop = Stop::new()?;
    let stopped = stop.clone();
    interrupt::at_signal(move || stopped.stop())?;
    // This link leads to the running program, even if the worker's user has no access to the
    // program's folder.
    let program = WorkerProgram { program: PathBuf::from("/proc/self/exe"), arguments: arguments() };
    // The service continues even if standard error is closed.
    let note = |line: &str| {
        let _ = writeln!(io::stderr(), "{line}");
    };
    keeper::run(&settings, permissions, &program, &note, &stop)?;
    Ok(ExitCode::SUCCESS)
}

/// Checks that the running program is `fullpipe` itself. The service starts the program a second time as another user, who
/// may not be permitted to read the files of a Python package.
fn require_program() -> Result<(), Failure> {
    if invocation::interpreter().is_none() {
        return Ok(());
    }
    Err(Failure::new(
        "accelerate requires the program fullpipe, but this is the Python package",
        "install the program: cargo install fullpipe-cli, or the .deb or the tarball of the release",
    ))
}

fn arguments() -> Vec<OsString> {
    ["accelerate", "worker"].map(OsString::from).to_vec()
}

/// Formats the nftables commands that a start runs, preceded by the objections as comments.
fn commands(report: &preflight::Report) -> String {
    let mut text: String = report.objections.iter().map(|objection| format!("# {objection}\n")).collect();
    text += &report.commands();
    text
}

/// Combines the command line with the configuration file.
fn settings(args: &AccelerateArgs) -> Result<Settings, Failure> {
    let given = Inputs {
        listen: args.listen,
        upstream: args.upstream.as_deref().map(str::parse::<Upstream>).transpose().map_err(usage)?,
        client_address: args.client_address.map(|name| match name {
            ClientAddressName::ProxyV2 => ClientAddress::ProxyV2,
            ClientAddressName::Transparent => ClientAddress::Transparent,
            ClientAddressName::Hidden => ClientAddress::Hidden,
        }),
        cc: args.cc,
        matching: args.matching.clone(),
        ..Inputs::default()
    };
    let file = match &args.config {
        None => Inputs::default(),
        Some(file) => from_file(file)?,
    };
    given.or(file).complete().map_err(usage)
}

fn from_file(file: &str) -> Result<Inputs, Failure> {
    let failed = |error: ConfigError| Failure::new(error.message, error.hint).about(file);
    Inputs::from_toml(&read(file)?).map_err(failed)
}

fn usage(error: ConfigError) -> Failure {
    Failure::usage(error.message, error.hint)
}

fn show(args: &AccelerateStatusArgs) -> Result<ExitCode, Failure> {
    let services = status::read()?;
    match args.output.format() {
        Format::Json => output::print(&output::json(&services)?)?,
        Format::Text if services.is_empty() => output::print("No service runs on this host.\n")?,
        Format::Text => {
            let text: String = services.iter().map(status::render).collect();
            output::print(&text)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
