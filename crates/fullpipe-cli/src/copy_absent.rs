//! Stub for builds without the feature `copy`, and for systems other than Linux: the commands `copy` and
//! `relay` return an error.

use std::process::ExitCode;

use fullpipe::Look;

use crate::args::{CopyArgs, RelayArgs};
use crate::failure::Failure;

pub(crate) fn copy(_: &CopyArgs, _: Look) -> Result<ExitCode, Failure> {
    Err(absent("copy"))
}

pub(crate) fn relay(_: &RelayArgs) -> Result<ExitCode, Failure> {
    Err(absent("relay"))
}

fn absent(command: &str) -> Failure {
    if cfg!(target_os = "linux") {
        Failure::new(
            format!("this program was built without {command}"),
            "build it with cargo install fullpipe-cli --features copy",
        )
    } else {
        Failure::new(format!("{command} requires Linux"), "run it on a Linux host")
    }
}
