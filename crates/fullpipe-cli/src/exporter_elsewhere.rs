//! Stub for systems without sock_diag: the command `exporter` returns an error.

use std::process::ExitCode;

use crate::args::ExporterArgs;
use crate::failure::Failure;

pub(crate) fn exporter(_: &ExporterArgs) -> Result<ExitCode, Failure> {
    Err(Failure::new(
        "the exporter requires Linux",
        "run the exporter on the Linux host that has the connections",
    ))
}
