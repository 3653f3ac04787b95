//! The program `fullpipe-guest`: the init of the guests that a Python interpreter starts.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    fullpipe::linux::uml::run_if_guest();
    eprintln!("fullpipe-guest is the init of a User-Mode Linux guest, which fullpipe run --world uml starts");
    ExitCode::FAILURE
}
