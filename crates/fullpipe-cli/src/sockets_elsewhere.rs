//! Stub for systems without sock_diag: sampling sockets returns an error.

use std::process::ExitCode;

use fullpipe::Look;

use crate::args::DiagnoseArgs;
use crate::failure::Failure;

pub(crate) fn diagnose(_: &DiagnoseArgs, _: Look) -> Result<ExitCode, Failure> {
    Err(Failure::new("sampling sockets requires Linux", "pass the log of a test, or a capture"))
}
