//! `fullpipe whatif`: climbs the ladder of limits of a path that the command-line options describe.

use std::process::ExitCode;

use fullpipe::prove::Prover;
use fullpipe::{Look, PathFacts, Question, render_whatif};

use crate::args::{Format, WhatifArgs};
use crate::failure::Failure;
use crate::output;

pub(crate) fn whatif(args: &WhatifArgs, look: Look) -> Result<ExitCode, Failure> {
    let prover = args.prove.prover()?;
    let question = Question {
        path: PathFacts {
            link: Some(args.link),
            rtt: Some(args.rtt),
            loss: Some(args.loss),
            flows: args.flows,
            mss: args.mss,
            queue: args.queue,
            cap: args.cap,
        },
        sndbuf: args.sndbuf.or(args.buffers),
        rcvbuf: args.rcvbuf.or(args.buffers),
        kernel: args.kernel.or(prover.as_ref().and_then(Prover::version)),
        cc: args.cc,
    };
    let demand = args.demand.demand(|| None)?;
    let answer = output::with_progress(|observer| fullpipe::whatif(&question, observer));
    let mut answer = answer.map_err(fullpipe::Error::from)?;
    output::prove(prover.as_ref(), &mut answer.ladder)?;
    let answer = match demand {
        Some(demand) => answer.against(demand),
        None => answer,
    };
    match args.output.format() {
        Format::Json => output::print(&output::json(&answer)?)?,
        Format::Text => output::print(&render_whatif(&answer, look))?,
    }
    Ok(ExitCode::SUCCESS)
}
