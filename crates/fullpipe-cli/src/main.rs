//! The program `fullpipe`; the library of this package contains the command.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    // In a guest of `run --world uml`, this program is init.
    #[cfg(target_os = "linux")]
    fullpipe::linux::uml::run_if_guest();
    fullpipe_cli::run(std::env::args_os().skip(1))
}
