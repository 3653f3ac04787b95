//! `fullpipe pair`: runs one point in two worlds, and prints the first packet that differs, together with
//! the state of both senders.

use std::fmt::Write as _;
use std::process::ExitCode;

use fullpipe::lab::experiment::{Experiment, Point};
use fullpipe::lab::pair::{PacketRecord, Parting};
use fullpipe::lab::trace::Row;
use fullpipe::pair::{Pair, PairOptions, PairWorld, PairedRun};
use fullpipe::units::{Bytes, Duration};

use crate::args::{PairArgs, RunWorld};
use crate::failure::Failure;
use crate::output;

/// Widths of the labels and of the other columns of a table, in characters.
const LABEL: usize = 14;
const COLUMN: usize = 30;

pub(crate) fn pair(args: &PairArgs) -> Result<ExitCode, Failure> {
    if args.every.is_zero() {
        return Err(Failure::usage("--every must be above zero", "use --every 10ms"));
    }
    let options = PairOptions {
        worlds: worlds(&args.world)?,
        kernel: args.kernel.clone(),
        modules: args.modules.clone(),
        tolerance: args.tolerance,
        sample_every: Some(args.every),
    };
    let experiment = fullpipe::run::read(&args.file)?;
    let point = point(&experiment, args.point.as_deref())?;
    let seed = args.seed.unwrap_or_else(|| experiment.seeds().first().copied().unwrap_or(1));
    let pair = fullpipe::pair::pair(point, seed, &options)?;
    output::print(&text(&point.label, seed, &pair, args))?;
    Ok(ExitCode::SUCCESS)
}

fn worlds(given: &[RunWorld]) -> Result<[PairWorld; 2], Failure> {
    let virtual_time = |world: &RunWorld| match world {
        RunWorld::Sim => Ok(PairWorld::Sim),
        RunWorld::Uml => Ok(PairWorld::Uml),
        RunWorld::Emu => Err(Failure::usage(
            "packet times in an emu run differ from run to run",
            "add --world sim --world uml",
        )),
    };
    match given {
        [] => Ok([PairWorld::Sim, PairWorld::Uml]),
        [one, other] => Ok([virtual_time(one)?, virtual_time(other)?]),
        _ => Err(Failure::usage("pair compares two worlds", "add --world sim --world uml")),
    }
}

fn point<'e>(experiment: &'e Experiment, label: Option<&str>) -> Result<&'e Point, Failure> {
    let points = experiment.points();
    let Some(label) = label else {
        return points.first().ok_or_else(|| Failure::new("the experiment has no point", "add a [[flow]]"));
    };
    let named = |point: &&Point| {
        point.label == label || point.parameters.get("point").is_some_and(|name| name == label)
    };
    points.iter().find(named).ok_or_else(|| {
        let known: Vec<&str> = points.iter().take(6).map(|point| &*point.label).collect();
        let more = if points.len() > known.len() { ", ..." } else { "" };
        Failure::usage(
            format!("the experiment has no point '{label}'"),
            format!("known: {}{more}", known.join("; ")),
        )
    })
}

fn text(label: &str, seed: u64, pair: &Pair, args: &PairArgs) -> String {
    let mut out = String::new();
    let label = if label.is_empty() { "the only point" } else { label };
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{label}, seed {seed}\n");
    line(&mut out, "", pair.runs.each_ref().map(|run| run.world.clone()));
    let sum = |value: fn(&fullpipe::lab::outcome::FlowOutcome) -> u64| {
        pair.runs.each_ref().map(|run| run.outcome.flows.iter().map(value).sum::<u64>())
    };
    line(
        &mut out,
        "goodput",
        sum(|flow| flow.goodput.as_bps()).map(|bps| format!("{:.2} Mbit/s", bps as f64 / 1e6)),
    );
    line(&mut out, "bytes read", sum(|flow| flow.bytes.get()).map(|bytes| bytes.to_string()));
    line(&mut out, "retransmits", sum(|flow| flow.retransmits).map(|count| count.to_string()));
    line(&mut out, "queue drops", pair.runs.each_ref().map(|run| run.outcome.path.queue_drops.to_string()));
    line(&mut out, "random drops", pair.runs.each_ref().map(|run| run.outcome.path.random_drops.to_string()));
    let Some(parting) = &pair.parting else {
        let packets = pair.runs[0].packets.len();
        let _ =
            writeln!(out, "\nThe runs do not differ: {packets} packets are equal within {}.", args.tolerance);
        return out;
    };
    let _ = writeln!(out, "\n{}\n", sentence(parting));
    packets(&mut out, pair, parting, args.packets);
    states(&mut out, pair, parting);
    out
}

/// Describes the first packet that differs, in one sentence.
fn sentence(parting: &Parting) -> String {
    let packet = parting.either();
    let kind = match (packet.outbound, packet.len) {
        (true, _) => "data packet",
        (false, 0) => "acknowledgement",
        (false, _) => "data packet of the receiver",
    };
    let how = match (parting.left, parting.right) {
        (Some(_), Some(_)) if parting.is_timing() => "has a different time",
        (Some(_), Some(_)) => "has different content",
        _ => "is in only one of the runs",
    };
    let at = packet.at.as_secs_f64();
    format!("The runs differ from {at:.6} s on: {kind} {} of flow {} {how}.", parting.number, packet.flow)
}

fn line(out: &mut String, label: &str, values: [String; 2]) {
    let text = format!("{label:LABEL$}  {:COLUMN$}  {}", values[0], values[1]);
    let _ = writeln!(out, "{}", text.trim_end());
}

/// Prints packets of the same kind, flow and direction before and after the first packet that differs.
fn packets(out: &mut String, pair: &Pair, parting: &Parting, context: usize) {
    let differing = parting.either();
    let same_kind = |packet: &&PacketRecord| {
        (packet.flow, packet.outbound) == (differing.flow, differing.outbound)
            && (packet.len > 0) == (differing.len > 0)
            && (!packet.outbound || packet.len > 0)
    };
    let sequences = pair.runs.each_ref().map(|run| run.packets.iter().filter(same_kind).collect::<Vec<_>>());
    let index = parting.number - 1;
    let last = sequences[0].len().max(sequences[1].len());
    line(out, "packet", pair.runs.each_ref().map(|run| run.world.clone()));
    for number in index.saturating_sub(context)..(index + context + 1).min(last) {
        let mark = if number == index { "*" } else { " " };
        let shown =
            |packets: &[&PacketRecord]| packets.get(number).map_or_else(|| "-".into(), |packet| show(packet));
        let [left, right] = &sequences;
        line(out, &format!("{mark} {}", number + 1), [shown(left), shown(right)]);
    }
}

fn show(packet: &PacketRecord) -> String {
    let at = packet.at.as_secs_f64();
    let lost = match packet.verdict {
        fullpipe::lab::capture::Verdict::Accepted => "",
        _ => " dropped",
    };
    match packet.len {
        0 => format!("{at:.6} s ack {}{lost}", packet.ack),
        len => format!("{at:.6} s {}+{len}{lost}", packet.seq),
    }
}

/// Prints the state of both senders in the last trace rows before the first packet that differs, and in the
/// first rows after it.
fn states(out: &mut String, pair: &Pair, parting: &Parting) {
    let flow = parting.either().flow;
    let around = pair.runs.each_ref().map(|run: &PairedRun| run.around(flow, parting.at()));
    let state = |out: &mut String, name: &str, value: &dyn Fn(&Row) -> String| {
        let shown = around.map(|[before, after]| {
            let one = |row: Option<&Row>| row.map_or_else(|| "-".into(), value);
            format!("{} -> {}", one(before), one(after))
        });
        line(out, name, shown);
    };
    let bytes = |bytes: Bytes| bytes.get().to_string();
    let millis = |time: Option<Duration>| {
        time.map_or_else(|| "-".into(), |time| format!("{:.3} ms", time.as_millis_f64()))
    };
    let _ = writeln!(out);
    line(out, "state", pair.runs.each_ref().map(|run| run.world.clone()));
    state(out, "time", &|row| format!("{:.3} s", row.at.as_secs_f64()));
    state(out, "cwnd", &|row| bytes(row.sender.cwnd));
    state(out, "ssthresh", &|row| row.sender.ssthresh.map_or_else(|| "-".into(), bytes));
    state(out, "in flight", &|row| bytes(row.sender.inflight));
    state(out, "rwnd", &|row| bytes(row.sender.rwnd));
    state(out, "SRTT", &|row| millis(row.sender.srtt));
    state(out, "retransmits", &|row| row.sender.retransmits.to_string());
    state(out, "recovering", &|row| if row.sender.recovering { "yes" } else { "no" }.into());
    state(out, "phase", &|row| row.truth.as_ref().map_or("-", |truth| truth.status.phase).into());
    state(out, "received", &|row| {
        row.receiver.map_or_else(|| "-".into(), |receiver| bytes(receiver.received))
    });
}
