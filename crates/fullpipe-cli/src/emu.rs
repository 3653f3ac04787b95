//! `fullpipe emu`: runs a command behind an emulated path.

use std::process::ExitCode;

use fullpipe::lab::scenario::PathSpec;
use fullpipe::linux::command::{self, Behind, CommandResult};
use fullpipe::linux::rights;

use crate::args::EmuArgs;
use crate::failure::Failure;

pub(crate) fn emu(args: &EmuArgs) -> Result<ExitCode, Failure> {
    if args.rtt.is_zero() {
        return Err(Failure::new(
            "--rtt must not be zero",
            "pass a value from 1us to 100s, for example --rtt 50ms",
        ));
    }
    rights::acquire()?;
    let queue = args.queue.resolve(args.rate * args.rtt);
    let path = PathSpec::symmetric(args.rate, args.rtt, args.loss, queue);
    let behind =
        Behind { path: &path, seed: args.seed, datapath: fullpipe::Datapath::from(args.datapath).into() };
    let CommandResult { status, report, validity } =
        command::run(&behind, &args.command, args.serve.as_deref())?;
    let (forward, backward) = (report.forward.counters, report.backward.counters);
    let (late, stalls) = (validity.lateness, validity.stalls);
    eprintln!(
        "path: {} packets to the peer ({} lost, {} dropped by the full queue), {} back; delay of writes p50 \
         {}, p99 {}, p99.9 {}, max {}; hosts: wake-up delay p99 {}, max {}, response delay p99 {}, max {}",
        forward.offered,
        forward.random_drops,
        forward.queue_drops,
        backward.offered,
        late.p50,
        late.p99,
        late.p999,
        late.max,
        stalls.woken.p99,
        stalls.woken.max,
        stalls.answered.p99,
        stalls.answered.max
    );
    for problem in validity.problems() {
        eprintln!("not valid: {problem}");
    }
    Ok(ExitCode::from(status))
}
