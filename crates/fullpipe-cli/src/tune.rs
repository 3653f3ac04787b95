//! `fullpipe tune`: plans, applies and reverts changes to the settings of a host.

mod state;
mod verify;

use std::net::{IpAddr, ToSocketAddrs};
use std::process::ExitCode;

use fullpipe::input::read;
use fullpipe::lab::host::Change;
use fullpipe::tune::{
    self, AppliedChanges, FromReport, Guard, Outcome, PlanInputs, PlanRequest, Role, Target, Verification,
    VerifyResult, local_host,
};
use fullpipe::units::Duration;
use fullpipe::{HostSettings, Look, PathFacts, render_plan, render_show};

use crate::args::{Format, PlaceArgs, PlanArgs, RoleName, ShowArgs, TuneAction, TuneArgs};
use crate::failure::Failure;
use crate::invocation::{self, Interpreter};
use crate::output::{self, Notes};

pub(crate) fn tune(args: &TuneArgs, look: Look) -> Result<ExitCode, Failure> {
    match &args.action {
        None => plan(&args.plan, look),
        Some(TuneAction::Plan(args)) => plan(args, look),
        Some(TuneAction::Confirm(args)) => state::confirm(args),
        Some(TuneAction::Rollback(args)) => state::rollback(args),
        Some(TuneAction::Status(args)) => state::status(args),
        Some(TuneAction::Show(args)) => show(args, look),
        Some(TuneAction::Guard(args)) => {
            if args.overdue {
                // A systemd unit runs this command and writes its standard error to the systemd journal.
                settled(&args.place)?;
                return Ok(ExitCode::SUCCESS);
            }
            let PlaceArgs { root, netns } = &args.place;
            tune::watch(&Target::inherited(root.as_deref(), netns.as_deref())?, args.number)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn place(args: &PlaceArgs) -> Result<Target, Failure> {
    Ok(Target::new(args.root.as_deref(), args.netns.as_deref())?)
}

/// Completes the unfinished work of an earlier `tune` command, and returns the target.
fn settled(args: &PlaceArgs) -> Result<Target, Failure> {
    let place = place(args)?;
    for line in tune::settle(&place)? {
        eprintln!("{line}");
    }
    Ok(place)
}

/// Address of the peer, and other addresses to which the peer's name resolves.
#[derive(Clone, Debug)]
struct To {
    address: IpAddr,
    others: Vec<IpAddr>,
}

impl To {
    fn find(host: &str) -> Result<Self, Failure> {
        if let Ok(address) = host.trim_start_matches('[').trim_end_matches(']').parse() {
            return Ok(Self { address, others: Vec::new() });
        }
        if host.contains('/') {
            let message = format!("{host} is a network, but a plan applies to a single host");
            return Err(Failure::usage(message, "pass the address of a host in that namespace"));
        }
        let hint = "pass the address of the host";
        let found = (host, 0)
            .to_socket_addrs()
            .map_err(|error| Failure::new(format!("cannot resolve {host}: {error}"), hint))?;
        let mut addresses: Vec<IpAddr> = Vec::new();
        for address in found.map(|found| found.ip()) {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        if addresses.is_empty() {
            return Err(Failure::new(format!("{host} has no address"), hint));
        }
        let address = addresses.remove(0);
        Ok(Self { address, others: addresses })
    }

    /// Returns a note if the peer's name resolves to several addresses, because each address has a separate
    /// route.
    fn note(&self) -> Option<String> {
        let others: Vec<String> = self.others.iter().map(ToString::to_string).collect();
        let (address, others) = (self.address, others.join(", "));
        (!others.is_empty()).then(|| {
            format!(
                "the name of the host also resolves to {others}, but changes to the route apply only to \
                     connections to {address}"
            )
        })
    }
}

fn show(args: &ShowArgs, look: Look) -> Result<ExitCode, Failure> {
    if args.rtt.iter().any(|rtt| rtt.is_zero()) {
        return Err(Failure::usage(
            "an RTT of zero is not possible",
            "pass the RTT of the path, for example --rtt 210ms",
        ));
    }
    let to = args.to.as_deref().map(To::find).transpose()?.map(|to| to.address);
    let place = settled(&args.place)?;
    let shown = tune::show(&local_host(&place, to)?, &args.rtt, args.loss);
    match args.output.format() {
        Format::Json => output::print(&output::json(&shown)?)?,
        Format::Text => output::print(&render_show(&shown, look))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn plan(args: &PlanArgs, look: Look) -> Result<ExitCode, Failure> {
    // The name is resolved in the caller's network namespace, not in the namespace that is being tuned.
    let to = args.to.as_deref().map(To::find).transpose()?;
    let inputs = plan_inputs(args, to.as_ref().map(|to| to.address))?;
    let place = settled(&args.place)?;
    let host = local_host(&place, inputs.to)?;
    let mut plan = output::with_progress(|observer| tune::plan(&host, &inputs, observer))?;
    plan.notes.extend(to.as_ref().and_then(To::note));
    let text = args.output.format() == Format::Text;
    if text {
        output::print(&render_plan(&plan, look))?;
    }
    let changes = plan.changes();
    let wanted = args.apply || args.verify;
    if !wanted || changes.is_empty() {
        if text {
            output::print(&closing(args, changes.len(), wanted))?;
        } else {
            output::print(&output::json(&Outcome { plan: &plan, applied: None, verified: None })?)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let doing =
        ApplyContext { place: &place, changes: &changes, guard: guard(&args.place)?, args, to: inputs.to };
    let (applied, verified) =
        if args.verify { doing.verify()? } else { (doing.apply(args.revert_after.0)?, None) };
    let code = verified.as_ref().map_or(ExitCode::SUCCESS, verify::code);
    if text {
        if let Some(applied) = &applied {
            output::print(&state::applied_text(applied, &args.place))?;
        }
        if let Some(verified) = &verified {
            output::print(&verify::text(verified))?;
            if !verify::is_gain(verified) {
                verify::offer(&doing, applied.as_ref())?;
            }
        }
    } else {
        output::print(&output::json(&Outcome { plan: &plan, applied, verified })?)?;
    }
    Ok(code)
}

/// Changes to make to this host, and the values that are needed to apply them.
struct ApplyContext<'a> {
    place: &'a Target,
    changes: &'a [Change],
    guard: Guard,
    args: &'a PlanArgs,
    /// IP address of the peer.
    to: Option<IpAddr>,
}

impl ApplyContext<'_> {
    fn apply(&self, revert_after: Option<Duration>) -> Result<Option<AppliedChanges>, Failure> {
        Ok(tune::apply(self.place, self.changes, revert_after, &self.guard)?)
    }

    fn verify(&self) -> Result<(Option<AppliedChanges>, Option<VerifyResult>), Failure> {
        let args = self.args;
        let to = self.to.ok_or_else(|| Failure::usage("--verify needs --to", "add --to HOST"))?;
        let how = Verification {
            to,
            port: args.port,
            rounds: args.rounds,
            time: args.time,
            // If this host is the receiver, the peer sends.
            reverse: args.role == Some(RoleName::Receiver),
            revert_after: args.revert_after.0,
        };
        Ok(tune::verify(self.place, self.changes, &self.guard, &how, &Notes)?)
    }
}

/// Returns a guard that runs this program to revert changes.
fn guard(place: &PlaceArgs) -> Result<Guard, Failure> {
    let (program, mut arguments) = match invocation::interpreter() {
        Some(Interpreter { program, arguments }) => (program.clone(), arguments.clone()),
        None => (
            std::env::current_exe().map_err(|error| {
                Failure::new(
                    format!("cannot determine the path of this program: {error}"),
                    "run fullpipe by its full path",
                )
            })?,
            Vec::new(),
        ),
    };
    arguments.extend(["tune".into(), "guard".into()]);
    if let Some(root) = &place.root {
        // The path must be absolute, because the guard runs in a different working directory.
        let root = std::path::absolute(root).unwrap_or_else(|_| root.clone());
        arguments.extend(["--root".into(), root.into()]);
    }
    if let Some(netns) = &place.netns {
        arguments.extend(["--netns".into(), netns.into()]);
    }
    Ok(Guard { program, arguments })
}

fn plan_inputs(args: &PlanArgs, to: Option<IpAddr>) -> Result<PlanInputs, Failure> {
    let report = args.from.as_ref().map(|file| {
        let name = if file == "-" { "standard input" } else { file };
        FromReport::parse(&read(file)?).map_err(|error| Failure::from(error).about(name))
    });
    let peer = args
        .peer_sysctl
        .as_ref()
        .map(|file| HostSettings::parse(&read(file)?).map_err(|error| Failure::from(error).about(file)));
    let request = PlanRequest {
        path: PathFacts {
            link: args.link,
            rtt: args.rtt,
            loss: args.loss,
            flows: args.flows,
            ..PathFacts::default()
        },
        role: args.role.map(|role| match role {
            RoleName::Sender => Role::Sender,
            RoleName::Receiver => Role::Receiver,
            RoleName::Both => Role::Both,
        }),
        to,
        with: args.with.clone(),
        peer: peer.transpose()?.unwrap_or_default(),
        report: report.transpose()?,
    };
    Ok(tune::plan_inputs(request)?)
}

fn closing(args: &PlanArgs, changes: usize, wanted: bool) -> String {
    if changes == 0 {
        return "\nThere is nothing to apply to this host.\n".into();
    }
    debug_assert!(!wanted);
    match args.revert_after.0 {
        Some(time) => {
            format!(
                "\nNothing was changed. To make these changes, add --apply; they are reverted after \
                     {time} unless confirmed.\n"
            )
        }
        None => "\nNothing was changed. To make these changes, add --apply.\n".into(),
    }
}
