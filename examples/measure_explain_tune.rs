//! Measures to an iperf3 server, explains the limit of the transfer, and plans changes to this
//! host.
//!
//!     cargo run --release -p fullpipe --example measure_explain_tune -- HOST 1gbit

use fullpipe::measure::{Probe, server};
use fullpipe::tune::{PlanRequest, Target, local_host, plan, plan_inputs};
use fullpipe::{Error, Look, PathFacts, explain, render_plan, render_text};

fn main() -> Result<(), Error> {
    let usage = || {
        Error::usage("the arguments are a server and the rate of the link", "measure_explain_tune HOST 1gbit")
    };
    let mut arguments = std::env::args().skip(1);
    let target = server(&arguments.next().ok_or_else(usage)?).ok_or_else(usage)?;
    let link = arguments.next().and_then(|rate| rate.parse().ok()).ok_or_else(usage)?;

    let probe = Probe::measure(&target, None, &fullpipe::linux::Stop::new()?, &())?;
    let path = PathFacts { link: Some(link), ..PathFacts::default() };
    let diagnosis = explain(probe.measurement(), &path, &probe.hosts())?.climb(&())?;
    print!("{}", render_text(&diagnosis, Look { width: 80, colour: false }));

    let host = local_host(&Target::new(None, None)?, None)?;
    let plan = plan(&host, &plan_inputs(PlanRequest { path, ..PlanRequest::of(&diagnosis) })?, &())?;
    print!("{}", render_plan(&plan, Look { width: 80, colour: false }));
    Ok(())
}
