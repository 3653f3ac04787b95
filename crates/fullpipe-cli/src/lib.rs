//! The `fullpipe` command: maps command-line arguments to library calls, and their results to text.
//!
//! The command is a library because two programs contain it: `fullpipe`, and the Python package, whose extension
//! calls [`run_in`].
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod accelerate;
#[cfg(not(target_os = "linux"))]
#[path = "accelerate_elsewhere.rs"]
mod accelerate;
mod args;
#[cfg(all(target_os = "linux", feature = "copy"))]
mod copy;
#[cfg(not(all(target_os = "linux", feature = "copy")))]
#[path = "copy_absent.rs"]
mod copy;
#[cfg(feature = "tables")]
mod dataset;
#[cfg(not(feature = "tables"))]
#[path = "dataset_absent.rs"]
mod dataset;
mod diagnose;
#[cfg(target_os = "linux")]
mod emu;
#[cfg(not(target_os = "linux"))]
#[path = "emu_elsewhere.rs"]
mod emu;
mod example;
#[cfg(target_os = "linux")]
mod exporter;
#[cfg(not(target_os = "linux"))]
#[path = "exporter_elsewhere.rs"]
mod exporter;
mod failure;
mod interrupt;
mod invocation;
mod iperf3;
mod manual;
mod output;
#[cfg(target_os = "linux")]
mod pair;
#[cfg(not(target_os = "linux"))]
#[path = "pair_elsewhere.rs"]
mod pair;
mod race;
mod run;
#[cfg(target_os = "linux")]
mod sockets;
#[cfg(not(target_os = "linux"))]
#[path = "sockets_elsewhere.rs"]
mod sockets;
mod suggestion;
mod tui;
#[cfg(target_os = "linux")]
mod tune;
mod version;
mod whatif;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::args::{Args, Command};
use crate::failure::Failure;

pub use crate::invocation::Interpreter;

/// Runs the command with `arguments`, which do not include the name of the program. The command prints its
/// results; if it fails, it prints an error message and a hint.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    started(arguments.into_iter().collect(), None)
}

/// Runs the command like [`run`] in a process of `interpreter`, and returns the exit code as a number.
pub fn run_in(interpreter: Interpreter, arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let code = started(arguments.into_iter().collect(), Some(interpreter));
    // `ExitCode` can be compared, but offers no conversion to a number.
    (0..=u8::MAX).find(|number| ExitCode::from(*number) == code).unwrap_or(failure::RUNTIME)
}

fn started(arguments: Vec<OsString>, interpreter: Option<Interpreter>) -> ExitCode {
    invocation::begin(&arguments, interpreter);
    if arguments.is_empty() {
        return done(output::print(args::FIRST_STEPS).map(|()| ExitCode::SUCCESS));
    }
    if version::asks_for_json(&arguments) {
        return done(version::print_json());
    }
    let args = match Args::try_parse_from(std::iter::once("fullpipe".into()).chain(arguments)) {
        Ok(args) => args,
        // Help and version are printed as output instead of errors.
        Err(error) if !is_refusal(error.kind()) => {
            // If standard output is closed, the error cannot be shown and is ignored.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(failure::USAGE));
        }
        Err(error) => return iperf3::refused(error).report(),
    };
    let look = output::look(args.color);
    done(match args.command {
        Command::Diagnose(args) => diagnose::diagnose(args, look),
        Command::Whatif(args) => whatif::whatif(&args, look),
        Command::Run(args) => run::run(&args),
        Command::Pair(args) => pair::pair(&args),
        Command::Dataset(args) => dataset::dataset(&args),
        Command::Race(args) => race::race(&args),
        Command::Emu(args) => emu::emu(&args),
        Command::Exporter(args) => exporter::exporter(&args),
        Command::Iperf3(args) => iperf3::iperf3(&args, look),
        #[cfg(target_os = "linux")]
        Command::Tune(args) => tune::tune(&args, look),
        #[cfg(not(target_os = "linux"))]
        Command::Tune(_) => Err(emu::no_kernel()),
        Command::Accelerate(args) => accelerate::accelerate(&args),
        Command::Copy(args) => copy::copy(&args, look),
        Command::Relay(args) => copy::relay(&args),
        Command::Completions(args) => manual::completions(&args),
        Command::Man(args) => manual::man(&args),
    })
}

/// Returns the exit code of a command; if the command failed, prints the failure first.
fn done(result: Result<ExitCode, Failure>) -> ExitCode {
    result.unwrap_or_else(|failure| failure.report())
}

fn is_refusal(kind: ErrorKind) -> bool {
    !matches!(
        kind,
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    )
}
