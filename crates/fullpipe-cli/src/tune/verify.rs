//! `--verify`: whether the gain came, measured in turns so that a path that changes by the hour tells nothing wrong.
//!
//! ```text
//!   round 1: before, apply, after, take back     round 2: the same     ...     last round: before, apply, after
//! ```

use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::net::IpAddr;
use std::process::ExitCode;

use fullpipe::iperf3::document::{Interval, Start};
use fullpipe::iperf3::{Mode, Params};
use fullpipe::lab::trace::Row;
use fullpipe::linux::Stop;
use fullpipe::linux::iperf3::client::{self, Client, Watch};
use fullpipe::linux::iperf3::{Family, Place as Server};
use fullpipe::linux::tune::{self as host, Applied};
use fullpipe::tune::{Verdict, judge};
use fullpipe::units::{Duration, Rate};
use serde::Serialize;

use super::Doing;
use super::state::{options, taken_back_text};
use crate::args::RoleName;
use crate::failure::{EXPECTATION, Failure};
use crate::output;

/// What the measurements say.
#[derive(Serialize)]
pub(super) struct Verified {
    verdict: Verdict,
    before_bps: Vec<u64>,
    after_bps: Vec<u64>,
}

impl Verified {
    pub(super) fn code(&self) -> ExitCode {
        match self.verdict {
            Verdict::Gain => ExitCode::SUCCESS,
            _ => ExitCode::from(EXPECTATION),
        }
    }

    pub(super) fn is_gain(&self) -> bool {
        self.verdict == Verdict::Gain
    }

    pub(super) fn text(&self) -> String {
        let list = |rates: &[u64]| {
            rates.iter().map(|rate| Rate::from_bps(*rate).to_string()).collect::<Vec<_>>().join(", ")
        };
        let mut text = format!("\nVerified: {}\n", self.verdict);
        let _ = writeln!(text, "  before: {}", list(&self.before_bps));
        let _ = writeln!(text, "  after:  {}", list(&self.after_bps));
        text
    }
}

/// Without a gain there is no reason to keep what was applied. Somebody at a terminal is asked whether to take it back now; else, and without
/// an answer, it ends as every trial does.
pub(super) fn offer(doing: &Doing<'_>, applied: Option<&Applied>) -> Result<(), Failure> {
    let options = options(&doing.args.place);
    let left = applied.and_then(|applied| applied.revert_after);
    let by_itself = left.map(|left| format!("; by itself that happens in {left}")).unwrap_or_default();
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return output::print(&format!(
            "Without a gain there is no reason to keep it. To take it back now: fullpipe tune rollback{options}{by_itself}.\n"
        ));
    }
    eprint!("Without a gain there is no reason to keep it. Take it back now{by_itself}? [y/N] ");
    let mut answer = String::new();
    // No answer is none.
    let _ = io::stdin().read_line(&mut answer);
    if !matches!(answer.trim(), "y" | "Y" | "yes") {
        return output::print(&format!("Left on trial{by_itself}. Now: fullpipe tune rollback{options}\n"));
    }
    match host::rollback(doing.place, false, &mut |_| ())? {
        Some(taken_back) => output::print(&taken_back_text(&taken_back)),
        None => output::print("It was taken back already.\n"),
    }
}

/// Measures in turns; what is applied in the end stays for `--revert-after`.
pub(super) fn verify(doing: &Doing<'_>) -> Result<(Option<Applied>, Option<Verified>), Failure> {
    let args = doing.args;
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for round in 1..=args.rounds {
        let last = round == args.rounds;
        before.push(measured(doing, &format!("before, {round} of {}", args.rounds))?);
        // A measurement may take longer than the time for which somebody wants to try; that begins afterwards.
        let long_enough = args.time * 2 + Duration::from_secs(60);
        let trial = args.revert_after.0.map(|time| time + args.time).unwrap_or(long_enough).max(long_enough);
        let applied = doing.apply(Some(trial))?;
        let Some(applied) = applied else { return Ok((None, None)) };
        let rate = measured(doing, &format!("after, {round} of {}", args.rounds));
        let rate = rate.inspect_err(|_| {
            // The trial ends by itself where this fails too.
            let _ = host::rollback(doing.place, false, &mut |_| ());
        })?;
        after.push(rate);
        if !last {
            host::rollback(doing.place, false, &mut |_| ())?;
            continue;
        }
        let verdict = judge(&before, &after);
        let bps = |rates: &[Rate]| rates.iter().map(|rate| rate.as_bps()).collect();
        let verified = Verified { verdict, before_bps: bps(&before), after_bps: bps(&after) };
        if args.revert_after.0.is_none() && verdict == Verdict::Gain {
            host::confirm(doing.place, &mut |_| ())?;
            return Ok((Some(Applied { revert_after: None, ..applied }), Some(verified)));
        }
        // Of the trial the time of the measurement is gone.
        let left = host::status(doing.place)?.states.pop().and_then(|state| state.left);
        return Ok((Some(Applied { revert_after: left, ..applied }), Some(verified)));
    }
    Ok((None, None))
}

fn measured(doing: &Doing<'_>, what: &str) -> Result<Rate, Failure> {
    let args = doing.args;
    let Some(to) = doing.to else { return Err(Failure::usage("--verify needs --to", "give --to HOST")) };
    eprint!("measuring {what}: ");
    // Who receives has the other end send.
    let reverse = args.role == Some(RoleName::Receiver);
    let rate = measure(to, args.port, args.time, reverse).inspect_err(|_| eprintln!())?;
    eprintln!("{rate}");
    Ok(rate)
}

/// One transfer over a connection of its own; what arrived counts.
fn measure(to: IpAddr, port: u16, time: Duration, reverse: bool) -> Result<Rate, Failure> {
    let mode = if reverse { Mode::Reverse } else { Mode::Forward };
    let place = Server {
        host: to.to_string(),
        port,
        family: Family::Any,
        bind: None,
        connect_timeout: Some(PATIENCE),
    };
    // A plan foretells the rate that lasts: the start is left out.
    let params = Params { time, mode, omit: time / START, ..Params::default() };
    let client = Client { place, params, interval: Duration::ZERO, length: None };
    let end = client::run(&client, &mut Quiet, &Stop::new()?)?.end;
    let told = end.sum_received.is_some() || end.sum_sent.is_some();
    told.then(|| end.arrived())
        .ok_or_else(|| Failure::new("the server has not told what arrived", "is it an iperf3 -s?"))
}

/// So much of the time of a measurement goes before it.
const START: u64 = 4;
/// How long the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A test of which only the end matters.
struct Quiet;

impl Watch for Quiet {
    fn start(&mut self, _: &Start) {}
    fn row(&mut self, _: i32, _: &Row, _: bool) {}
    fn interval(&mut self, _: Interval) {}
}
