//! Where there is no Linux there is no sock_diag.

use std::process::ExitCode;

use fullpipe::Look;

use crate::args::DiagnoseArgs;
use crate::failure::Failure;

pub(crate) fn diagnose(_: &DiagnoseArgs, _: Look) -> Result<ExitCode, Failure> {
    Err(Failure::new("sampling sockets needs Linux", "give the log of a test, or a capture"))
}
