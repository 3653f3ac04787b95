//! `fullpipe whatif`: climbs the ladder of limits of a path given by command-line options, or simulates
//! several numbers of flows on this path.

use std::process::ExitCode;

use fullpipe::prove::Prover;
use fullpipe::{FlowRange, Look, PathFacts, Question, render_flow_counts, render_whatif};

use crate::args::{Flows, Format, WhatifArgs};
use crate::failure::Failure;
use crate::output;

pub(crate) fn whatif(args: &WhatifArgs, look: Look) -> Result<ExitCode, Failure> {
    let prover = args.prove.prover()?;
    let (flows, range) = match &args.flows {
        Some(Flows::Number(number)) => (Some(*number), None),
        Some(Flows::Range(range)) => (None, Some(range)),
        None => (None, None),
    };
    let question = Question {
        path: PathFacts {
            link: Some(args.link),
            rtt: Some(args.rtt),
            loss: Some(args.loss),
            flows,
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
    if let Some(range) = range {
        if demand.is_some() || prover.is_some() {
            return Err(Failure::usage(
                "--offered and --prove require a ladder for one number of flows, but --flows is a range",
                "pass one number to --flows, or remove --offered and --prove",
            ));
        }
        return count(&question, range, args.output.format(), look);
    }
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

/// Simulates each number of flows in `range`.
fn count(question: &Question, range: &FlowRange, format: Format, look: Look) -> Result<ExitCode, Failure> {
    let counts = output::with_bar("simulating {bar:30} {pos}/{len} runs", |observer| {
        fullpipe::flow_counts(question, range, observer)
    });
    let counts = counts.map_err(fullpipe::Error::from)?;
    match format {
        Format::Json => output::print(&output::json(&counts)?)?,
        Format::Text => output::print(&render_flow_counts(&counts, "flows", look))?,
    }
    Ok(ExitCode::SUCCESS)
}
