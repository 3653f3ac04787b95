//! `fullpipe diagnose HOST`: runs a test to an iperf3 server and diagnoses it.

use std::process::ExitCode;

use fullpipe::Look;
use fullpipe::host::LOCAL;
use fullpipe::linux::iperf3::ServerAddress;
use fullpipe::measure::{Control as To, Probe, server};

use super::client::stop_on_signal;
use crate::args::{Control, DiagnoseArgs};
use crate::diagnose::explained;
use crate::failure::Failure;
use crate::output::Notes;

/// If the input in `args` names an iperf3 server, runs a test to that server and diagnoses it.
pub(crate) fn diagnose(args: &DiagnoseArgs, look: Look) -> Option<Result<ExitCode, Failure>> {
    server(args.file()).map(|place| measured(args, look, &place))
}

fn measured(args: &DiagnoseArgs, look: Look, place: &ServerAddress) -> Result<ExitCode, Failure> {
    if args.point.is_some() || args.seed.is_some() || args.flow.is_some() {
        let message =
            format!("--point, --seed and --flow apply only to files, but {} is a server", args.file());
        return Err(Failure::usage(message, "remove them"));
    }
    let control = args.control.as_ref().map(|control| match control {
        Control::Rate(rate) => To::Rate(*rate),
        Control::Host(host) => To::Host(host.clone()),
    });
    let stop = stop_on_signal()?;
    let probe = Probe::measure(place, control.as_ref(), &stop, &Notes)?;
    let sysctl = args.sysctl.as_deref().or(Some(LOCAL));
    explained(args, look, args.file(), probe.measurement(), probe.hosts(), sysctl, None)
}
