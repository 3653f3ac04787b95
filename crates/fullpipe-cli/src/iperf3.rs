//! `fullpipe iperf3`: an iperf3 client and server that also diagnose the transfer.

mod args;
#[cfg(target_os = "linux")]
mod client;
#[cfg(target_os = "linux")]
mod probe;
#[cfg(target_os = "linux")]
mod server;
mod server_args;
#[cfg(target_os = "linux")]
mod show;

use std::process::ExitCode;

use clap::error::{ContextKind, ErrorKind};
use fullpipe::Look;

pub(crate) use self::args::Iperf3Args;
use crate::args::DiagnoseArgs;
use crate::failure::{Failure, RUNTIME};
use crate::invocation;

/// Runs the iperf3 client or server. Every failure has exit code 1, as in iperf3.
pub(crate) fn iperf3(args: &Iperf3Args, look: Look) -> Result<ExitCode, Failure> {
    let done = if args.server { serve(args) } else { measure(args, look) };
    done.map_err(|failure| failure.exiting(RUNTIME))
}

/// Converts an error of the argument parser into a failure. For `fullpipe iperf3`, the failure has iperf3's
/// exit code, and its message names an unsupported iperf3 option.
pub(crate) fn refused(error: clap::Error) -> Failure {
    if invocation::arguments().first().is_none_or(|command| command != "iperf3") {
        return Failure::from(error);
    }
    let argument = error.get(ContextKind::InvalidArg).map(ToString::to_string);
    let known = argument.filter(|_| error.kind() == ErrorKind::UnknownArgument);
    let known = known.as_deref().and_then(args::unsupported);
    known.unwrap_or_else(|| Failure::from(error)).exiting(RUNTIME)
}

#[cfg(target_os = "linux")]
fn measure(args: &Iperf3Args, look: Look) -> Result<ExitCode, Failure> {
    client::measure(args, look)
}

#[cfg(not(target_os = "linux"))]
fn measure(_: &Iperf3Args, _: Look) -> Result<ExitCode, Failure> {
    Err(no_linux())
}

#[cfg(target_os = "linux")]
fn serve(args: &Iperf3Args) -> Result<ExitCode, Failure> {
    server::serve(args)
}

#[cfg(not(target_os = "linux"))]
fn serve(_: &Iperf3Args) -> Result<ExitCode, Failure> {
    Err(no_linux())
}

/// Runs `fullpipe diagnose HOST`: if the input names an iperf3 server, runs a test to that server and
/// diagnoses it.
#[cfg(target_os = "linux")]
pub(crate) fn diagnose(args: &DiagnoseArgs, look: Look) -> Option<Result<ExitCode, Failure>> {
    probe::diagnose(args, look)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn diagnose(_: &DiagnoseArgs, _: Look) -> Option<Result<ExitCode, Failure>> {
    None
}

#[cfg(not(target_os = "linux"))]
fn no_linux() -> Failure {
    Failure::new(
        "measuring to a server requires Linux",
        "run iperf3 on this host, and pass its log to fullpipe diagnose",
    )
}
