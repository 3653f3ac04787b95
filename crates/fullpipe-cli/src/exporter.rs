//! `fullpipe exporter`: exports metrics of this host's TCP connections to Prometheus.

use std::process::ExitCode;

use fullpipe::exporter::{Exporter, serve};

use crate::args::ExporterArgs;
use crate::failure::Failure;
use crate::output::Notes;

pub(crate) fn exporter(args: &ExporterArgs) -> Result<ExitCode, Failure> {
    let exporter =
        Exporter { listen: args.listen, dst: args.dst.clone(), process: args.pid, link: args.link };
    serve(&exporter, &Notes)?;
    Ok(ExitCode::SUCCESS)
}
