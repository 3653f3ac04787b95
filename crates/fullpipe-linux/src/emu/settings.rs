//! Checks whether this kernel supports the settings of an experiment.

use fullpipe_lab::experiment::Point;
use fullpipe_lab::scenario::{FlowSpec, LossPattern, Scenario, Stack};
use fullpipe_tcp::Tunables;
use fullpipe_tcp::buffers::KernelVersion;
use fullpipe_tcp::cc::Algorithm;
use rustix::system::uname;

use crate::error::Error;
use crate::namespace::Namespace;
use crate::wan::End;
use crate::{Datapath, flows};

/// Smallest `TCP_WINDOW_CLAMP` in bytes that the kernel applies: half the memory of its smallest skb.
const LEAST_WINDOW: u64 = 1_152;

/// Returns the TCP stack at each end of the path. All flows of a run must use the same stack at the same end.
pub(super) fn ends(scenario: &Scenario) -> Result<[End; 2], Error> {
    let of = |stack| match stack {
        None | Some(Stack::Kernel) => [End::Kernel; 2],
        Some(Stack::Fullpipe) => [End::Ours, End::Kernel],
        Some(Stack::KernelToFullpipe) => [End::Kernel, End::Ours],
    };
    let mut ends = scenario.flows.iter().map(|flow| of(flow.stack));
    let first = ends.next().unwrap_or_default();
    if ends.any(|other| other != first) {
        return Err(Error::settings(
            "the flows of a run use different stacks, but each end of the path has only one",
            "set the same stack for all [[flow]] of a point; a list of stacks makes one point per stack",
        ));
    }
    let requests = scenario.flows.iter().any(|flow| flow.workload.request.is_some());
    if requests && first[1] == End::Ours {
        return Err(Error::settings(
            "a flow has a request, which the emulator supports only if the kernel's TCP receives",
            "remove stack from the [[flow]], or use the simulator: --world sim",
        ));
    }
    Ok(first)
}

/// Returns the numbers of the flows whose sender is fullpipe's TCP, which a relay may be.
pub(super) fn relayed(scenario: &Scenario) -> Vec<usize> {
    let is_relayed = |(_, flow): &(usize, &FlowSpec)| flow.stack == Some(Stack::Fullpipe);
    scenario.flows.iter().enumerate().filter(is_relayed).map(|(number, _)| number).collect()
}

/// Returns whether the kernel receives all flows of `scenario`.
pub(super) fn kernel_receives(scenario: &Scenario) -> bool {
    scenario.flows.iter().all(|flow| flow.stack != Some(Stack::KernelToFullpipe))
}

/// Checks whether this kernel has the congestion control `cc`, as it is visible in the network namespaces of
/// a run.
///
/// # Errors
/// Returns an error of [`Kind::Settings`](crate::Kind::Settings) if the kernel lacks this congestion control,
/// or an error if the process lacks the privileges.
pub fn check_congestion_control(cc: Algorithm) -> Result<(), Error> {
    Namespace::new()?.run(|| flows::check_congestion_control(cc.into()))
}

/// Returns a note for each setting of `point` whose effect on a real kernel differs from that in the
/// simulator.
///
/// # Errors
/// Returns an error of [`Kind::Settings`](crate::Kind::Settings) if `point` requires a setting that this
/// kernel does not support.
pub fn check(point: &Point, datapath: Datapath) -> Result<Vec<String>, Error> {
    let running: Option<KernelVersion> = uname().release().to_str().ok().and_then(|text| text.parse().ok());
    let wanted = point.parameters.get("kernel").and_then(|text| text.parse::<KernelVersion>().ok());
    if let (Some(wanted), Some(running)) = (wanted, running)
        && wanted != running
    {
        return Err(Error::settings(
            format!("point '{}' requires kernel {wanted}, but this host runs {running}", point.label),
            "remove the setting kernel, or use the simulator: --world sim",
        ));
    }
    let ends = ends(&point.scenario)
        .map_err(|error| Error { message: format!("point '{}': {}", point.label, error.message), ..error })?;
    let has_profile = point.scenario.flows.iter().any(|flow| flow.profile.is_some());
    if ends[0] == End::Kernel && (has_profile || point.scenario.host.tunables != Tunables::LINUX) {
        let what = if has_profile { "a profile" } else { "tunables" };
        return Err(Error::settings(
            format!("point '{}' has {what}, which the kernel's TCP does not support", point.label),
            "set stack = \"fullpipe\" in [[flow]], or use the simulator: --world sim",
        ));
    }
    let only_linux = point.scenario.flows.iter().find(|flow| flow.cc.of_fullpipe().is_none());
    if let Some(flow) = only_linux.filter(|_| ends[0] == End::Ours) {
        return Err(Error::settings(
            format!(
                "point '{}': fullpipe's TCP does not have the congestion control '{}'",
                point.label, flow.cc
            ),
            "remove stack from the [[flow]], so that the kernel sends",
        ));
    }
    if point.scenario.host.path_memory {
        return Err(Error::settings(
            format!("point '{}' has path_memory, which only the simulator supports", point.label),
            "remove path_memory, or use the simulator: --world sim",
        ));
    }
    let path = &point.scenario.path;
    let whole = [&path.forward, &path.backward].iter().any(|d| d.loss_pattern == LossPattern::SuperPackets);
    if whole && datapath == Datapath::Plain {
        return Err(Error::settings(
            format!(
                "point '{}' drops whole super-packets, which the plain datapath does not have",
                point.label
            ),
            "run the experiment with --datapath offload",
        ));
    }
    let mut notes = Vec::new();
    for key in ["window_ratio", "adv_win_scale"] {
        if point.parameters.contains_key(key) {
            notes.push(format!("{key} applies only to the simulator; this kernel measures the ratio itself"));
        }
    }
    if !point.scenario.host.rx_merge.is_zero() {
        notes.push(match datapath {
            Datapath::Plain => {
                "rx_merge applies only to the simulator; the plain datapath does not merge packets".into()
            }
            Datapath::Offload => {
                "rx_merge applies only to the simulator; the offload datapath merges packets that are due \
                 within 50 us"
                    .into()
            }
        });
    }
    if point.scenario.host.fair_queue && ends[0] == End::Kernel {
        notes.push("fair_queue has no effect, because TCP paces by itself, as it does with fq".into());
    }
    if let Some(window) = point.scenario.host.window_clamp.filter(|window| window.get() < LEAST_WINDOW) {
        notes.push(format!("window {window} is too small; the kernel uses {LEAST_WINDOW} bytes"));
    }
    Ok(notes)
}

#[cfg(test)]
mod tests {
    use fullpipe_lab::experiment::Experiment;

    use super::*;

    #[test]
    fn a_request_requires_a_kernel_socket_that_receives() {
        let checked = |stack: &str| {
            let text = format!(
                "name = 'x'\nduration = '1s'\n[path]\nrate = '1mbit'\nrtt = '10ms'\n\
                 [[flow]]\ncc = 'cubic'\nbytes = '1kB'\napp = {{ request = '200B' }}\n{stack}"
            );
            let experiment = Experiment::from_toml(&text).expect("valid");
            check(&experiment.points()[0], Datapath::Plain)
        };
        for stack in ["", "stack = 'kernel'", "stack = 'fullpipe'"] {
            assert!(checked(stack).is_ok(), "{stack}");
        }
        let error = checked("stack = 'kernel-to-fullpipe'").expect_err("fullpipe's TCP receives");
        assert!(error.message.starts_with("point 'cc=cubic': a flow has a request, "), "{error}");
        assert!(error.hint.contains("remove stack"), "{}", error.hint);
    }
}
