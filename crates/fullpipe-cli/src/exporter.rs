//! `fullpipe exporter`: exports metrics of this host's TCP connections to Prometheus.

use std::process::ExitCode;

use fullpipe::exporter::{Exporter, Probes, serve};

use crate::args::ExporterArgs;
use crate::failure::Failure;
use crate::output::Notes;

pub(crate) fn exporter(args: &ExporterArgs) -> Result<ExitCode, Failure> {
    let probes = match (args.no_probe, &args.probe_target[..]) {
        (true, _) => Probes::Only(Vec::new()),
        // A client on another host must not be able to make this host send data at full speed to any server.
        (_, []) if args.listen.ip().is_loopback() => Probes::Any,
        (_, targets) => Probes::Only(targets.to_vec()),
    };
    let (dst, process, link) = (args.dst.clone(), args.pid, args.link);
    let exporter = Exporter { listen: args.listen, dst, process, link, probes };
    serve(&exporter, &Notes)?;
    Ok(ExitCode::SUCCESS)
}
