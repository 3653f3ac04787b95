//! `fullpipe diagnose`: reads a log, determines the limit of the transfer, and climbs the ladder of limits.

use std::process::ExitCode;

use fullpipe::host::{LOCAL, memory_left, settings};
use fullpipe::input::Input;
use fullpipe::input::trace::Choice;
use fullpipe::report::html::render_diagnosis;
use fullpipe::{
    Diagnosis, HostFacts, Look, Measurement, PathFacts, SocketReport, render_brief, render_findings,
    render_ladder,
};

use crate::args::{DiagnoseArgs, Format};
use crate::failure::Failure;
use crate::{example, iperf3, output, sockets, tui};

pub(crate) fn diagnose(args: DiagnoseArgs, look: Look) -> Result<ExitCode, Failure> {
    if let Some(example) = args.example {
        return example::diagnose(example, args, look);
    }
    if args.sockets.asked() {
        return sockets::diagnose(&args, look);
    }
    if let Some(done) = iperf3::diagnose(&args, look) {
        return done;
    }
    let choice = Choice { point: args.point.as_deref(), seed: args.seed, flow: args.flow };
    let input = Input::open(args.file(), &choice)?;
    explained(
        &args,
        look,
        &input.name,
        &input.measurement,
        HostFacts::default(),
        args.sysctl.as_deref(),
        None,
    )
}

/// Diagnoses `measurement` with the options of the command line, and prints the diagnosis. `sysctl` selects
/// the settings of the host that made the measurement. `hosts` contains further facts about both hosts.
/// `sockets` lists the connections from which the diagnosed one was chosen.
pub(crate) fn explained(
    args: &DiagnoseArgs,
    look: Look,
    name: &str,
    measurement: &Measurement,
    hosts: HostFacts,
    sysctl: Option<&str>,
    sockets: Option<Vec<SocketReport>>,
) -> Result<ExitCode, Failure> {
    let hosts = HostFacts {
        local: match sysctl {
            Some(source) => Some(settings(source)?),
            None => hosts.local,
        },
        peer: args.peer_sysctl.as_deref().map(settings).transpose()?,
        kernel: args.kernel,
        control: match hosts.control {
            Some(rate) => Some(rate),
            None => args.control_rate()?,
        },
        ..hosts
    };
    let path = PathFacts { rtt: args.rtt, link: args.link, ..PathFacts::default() };
    if args.tui {
        return play(measurement, &path, &hosts, name, look);
    }
    let prover = args.prove.prover()?;
    let demand = args.demand.demand(|| {
        // The application's data waits on the sending host, so the sender's settings apply.
        let settings = if measurement.made_by_sender() { sysctl } else { args.peer_sysctl.as_deref() };
        settings.filter(|source| *source == LOCAL).and_then(|_| memory_left())
    })?;
    let complete = |diagnosis: Diagnosis| {
        let diagnosis = match demand {
            Some(demand) => diagnosis.against(demand),
            None => diagnosis,
        };
        match sockets.clone() {
            Some(sockets) => diagnosis.among(sockets),
            None => diagnosis,
        }
    };
    let explanation =
        fullpipe::explain(measurement, &path, &hosts).map_err(|error| Failure::from(error).about(name))?;
    if let Some(path) = &args.html {
        output::check_html(path)?;
    }
    // The findings are printed first, because the simulation takes seconds.
    if args.output.format() == Format::Text && !args.brief {
        output::print(&render_findings(&complete(explanation.without_ladder()), look))?;
    }
    if args.no_ladder {
        if args.output.format() == Format::Json {
            output::print(&output::json(&complete(explanation.without_ladder()))?)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut diagnosis = complete(output::with_progress(|observer| explanation.climb(observer))?);
    output::prove(prover.as_ref(), &mut diagnosis.ladder)?;
    if let Some(path) = &args.html {
        output::write_html(path, |made| render_diagnosis(measurement, &diagnosis, made))?;
    }
    match args.output.format() {
        Format::Json => output::print(&output::json(&diagnosis)?)?,
        Format::Text if args.brief => output::print(&render_brief(&diagnosis, look))?,
        Format::Text => output::print(&render_ladder(&diagnosis, look))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Replays a trace in the live view.
fn play(
    measurement: &Measurement,
    path: &PathFacts,
    hosts: &HostFacts,
    name: &str,
    look: Look,
) -> Result<ExitCode, Failure> {
    let streams = measurement.rows();
    let Some(rows) = streams.first() else {
        let message = format!("{name}: --tui replays traces, and this file is not a trace");
        return Err(Failure::new(
            message,
            "create a trace with fullpipe run EXPERIMENT --out DIR, which writes DIR/trace.csv",
        ));
    };
    tui::replay(rows, &measurement.companion_rows(), hosts.of_sockets(measurement, path), look)?;
    Ok(ExitCode::SUCCESS)
}
