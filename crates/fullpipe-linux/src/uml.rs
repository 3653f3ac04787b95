//! Runs a scenario on an unmodified Linux kernel in virtual time, without privileges.
//!
//! User-Mode Linux is the Linux kernel as an ordinary program. It asks libc for the time, for its timer, for
//! sleep and for random numbers, and a preloaded library (`fullpipe-uml`) answers:
//!
//! ```text
//!   this process ──order──► guest: kernel's TCP at both ends, vec0 and vec1 (two more for further hosts)
//!                             │ frames, clock, timer            ▲
//!                             ▼                                 │
//!                           preloaded library: Machine, the simulator's path
//!   this process ◄──trace rows of the guest's init, samples of the path──┘
//! ```
//!
//! While the guest's kernel runs, its clock stands still; when the kernel sleeps, the clock jumps to the next
//! event. Runs are therefore repeatable bit for bit, and do not depend on the load of the machine.
//!
//! | module | concept |
//! |---|---|
//! | [`kernel`] | finds the kernel, its modules and the library |
//! | `launch` | starts a guest and waits for it |
//! | `guest` | the guest's init |
//! | `machine`, `link`, `control` | what the preloaded library does |
//! | `xstate` | the size of the processor state of the guest's processes |
//! | `exchange`, `codec` | documents between the three |
//! | `capture` | packets from the library to a capture |

mod capture;
mod codec;
mod control;
mod exchange;
mod guest;
pub mod kernel;
mod launch;
mod link;
mod machine;
#[cfg(target_arch = "x86_64")]
mod xstate;

use std::path::PathBuf;

use fullpipe_lab::algorithm::FlowAlgorithm;
use fullpipe_lab::capture::{Capture, CapturedPacket};
use fullpipe_lab::experiment::Point;
use fullpipe_lab::outcome::Outcome;
use fullpipe_lab::pair::PacketRecord;
use fullpipe_lab::scenario::{LossPattern, Scenario, Stack};
use fullpipe_lab::trace::Sink;
use fullpipe_tcp::Tunables;
use fullpipe_tcp::buffers::{DrsRule, KernelVersion, WindowRule};
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::Duration;

use crate::error::Error;
use crate::flows::kernel_name;
use crate::outcome::{Totals, outcome};

pub use guest::run_if_guest;
pub use kernel::Kernel;
pub use machine::{Due, Machine};
#[cfg(target_arch = "x86_64")]
pub use xstate::ProcessorState;

use exchange::Order;

/// Real time that a guest may take, in addition to `LIMIT_PER_SECOND` for each second of the scenario.
const LIMIT: Duration = Duration::from_secs(120);
const LIMIT_PER_SECOND: u64 = 60;

/// Options of runs on a guest.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Path of a User-Mode Linux kernel; `None` for the one in `PATH`.
    pub kernel: Option<PathBuf>,
    /// Folder with the modules of the kernel; `None` for the folder in which the kernel's package installs
    /// them.
    pub modules: Option<PathBuf>,
    /// Whether to record every packet that enters the path.
    pub logged: bool,
    /// Real time after which a run is killed; `None` for two minutes plus one minute per second of the
    /// scenario.
    pub limit: Option<Duration>,
}

/// Result of a run on a guest.
#[derive(Clone, Debug)]
pub struct UmlRun {
    /// Outcome in the same form as that of a simulated run. The kernel does not report which limit stops a
    /// sender, so the shares of time per limit are zero.
    pub outcome: Outcome,
    /// Release and timer frequency of the guest's kernel, such as `Linux 6.1.176, HZ=100`.
    pub kernel: String,
    /// The first million packets in the order in which they entered the path; empty unless
    /// [`Options::logged`] is set.
    pub packets: Vec<PacketRecord>,
}

/// Runs `scenario` on a guest with `kernel`, and passes all trace rows to `sink` after the run.
///
/// The calling program is the guest's init if it has called [`run_if_guest`] at the start of `main`; otherwise
/// the init is the program `fullpipe-guest`. Concurrent runs do not disturb each other.
///
/// # Errors
/// Returns an error if the guest cannot be started, if it fails or hangs, or if `sink` ends the run.
pub fn run(
    kernel: &Kernel,
    scenario: &Scenario,
    options: &Options,
    sink: &mut dyn Sink,
) -> Result<UmlRun, Error> {
    captured(kernel, scenario, options, sink, None::<&mut Discarded>)
}

/// Like [`run`], but also passes the packets at the sending host to `capture` after the run.
///
/// # Errors
/// Returns the errors of [`run`], and an error if the packets cannot be stored in the folder of the run.
pub fn run_captured(
    kernel: &Kernel,
    scenario: &Scenario,
    options: &Options,
    sink: &mut dyn Sink,
    capture: &mut impl Capture,
) -> Result<UmlRun, Error> {
    captured(kernel, scenario, options, sink, Some(capture))
}

/// Capture type of a run without a capture. The type has no values.
enum Discarded {}

impl Capture for Discarded {
    fn packet(&mut self, _: &CapturedPacket<'_>) {}
}

fn captured(
    kernel: &Kernel,
    scenario: &Scenario,
    options: &Options,
    sink: &mut dyn Sink,
    capture: Option<&mut impl Capture>,
) -> Result<UmlRun, Error> {
    let limit = options.limit.unwrap_or_else(|| LIMIT + scenario.duration.mul_div(LIMIT_PER_SECOND, 1));
    let order = Order { scenario: scenario.clone(), logged: options.logged, captured: capture.is_some() };
    let launch::Reports { guest, path } = launch::launch(kernel, &order, limit, &|| sink.goes_on(), capture)?;
    let totals = Totals { forward: path.forward, backward: path.backward };
    let outcome = outcome(scenario, guest.rows, &guest.ends, &path.samples, totals, sink);
    let kernel = format!("Linux {}, HZ={}", guest.release, guest.hz);
    Ok(UmlRun { outcome, kernel, packets: path.packets })
}

/// Returns `scenario` with the receive-window rules of the guest's kernel, for a simulation of the guest's
/// run.
#[must_use]
pub fn simulated(kernel: &Kernel, scenario: &Scenario) -> Scenario {
    let mut scenario = scenario.clone();
    if let Ok(version) = kernel.release.parse() {
        scenario.host.kernel = version;
        scenario.host.window_rule = WindowRule::of(version, None);
        scenario.host.drs_rule = DrsRule::of(version);
    }
    scenario
}

/// Checks whether a guest with `kernel` supports the settings of `point`, and returns a note for each setting
/// whose effect on the guest differs from that in the simulator.
///
/// # Errors
/// Returns an error of [`Kind::Settings`](crate::Kind::Settings) if `point` requires a setting that the kernel
/// does not support.
pub fn check(kernel: &Kernel, point: &Point) -> Result<Vec<String>, Error> {
    const SIM: &str = "or use the simulator: --world sim";
    let refuse_hinting =
        |what: String, hint: String| Err(Error::settings(format!("point '{}' {what}", point.label), hint));
    let refuse = |what: String, remedy: &str| refuse_hinting(what, format!("{remedy}, {SIM}"));
    let Scenario { host, flows, path, .. } = &point.scenario;
    let running: Option<KernelVersion> = kernel.release.parse().ok();
    let wanted = point.parameters.get("kernel").and_then(|text| text.parse::<KernelVersion>().ok());
    if let (Some(wanted), Some(running)) = (wanted, running)
        && wanted != running
    {
        return refuse(
            format!("requires kernel {wanted}, but the guest has kernel {running}"),
            "remove the setting kernel",
        );
    }
    for flow in flows {
        if flow.stack.is_some_and(|stack| stack != Stack::Kernel) {
            return refuse(
                "uses fullpipe's TCP, which a guest does not have".into(),
                "remove stack from [[flow]]",
            );
        }
        if flow.profile.is_some() {
            return refuse(
                "has a profile, which the kernel's TCP does not support".into(),
                "remove the profile",
            );
        }
        let ours = matches!(flow.cc, FlowAlgorithm::Fullpipe(Algorithm::Bbr3 | Algorithm::Surge));
        let name = kernel_name(flow.cc);
        if ours || !kernel.may_have(name) {
            let what =
                format!("requires the congestion control '{name}', which the guest's kernel does not have");
            const OTHER: &str = "choose another congestion control";
            return match flow.cc {
                FlowAlgorithm::Fullpipe(_) => refuse(what, OTHER),
                FlowAlgorithm::Linux(_) => {
                    refuse_hinting(what, format!("{OTHER}, or another kernel: --kernel FILE"))
                }
            };
        }
    }
    if host.path_memory {
        return refuse(
            "has path_memory, which the kernel's TCP does not support".into(),
            "remove path_memory",
        );
    }
    if host.tunables != Tunables::LINUX {
        return refuse("has tunables, which the kernel's TCP does not support".into(), "remove tunables");
    }
    if [&path.forward, &path.backward].iter().any(|way| way.loss_pattern == LossPattern::SuperPackets) {
        return refuse(
            "drops whole super-packets, which the guest's devices do not have".into(),
            "remove unit = \"super-packet\"",
        );
    }
    if let Some(flow) =
        flows.iter().find(|flow| flow.slow_start.is_some() && flow.slow_start != flow.cc.slow_start())
    {
        return refuse(
            format!("has a slow_start that the kernel's {} does not support", flow.cc),
            "remove slow_start",
        );
    }
    let pairs = launch::devices(&point.scenario) / 2;
    if pairs > launch::MOST_PAIRS {
        return refuse(
            format!(
                "has hosts at {pairs} distances, but a guest has at most {} pairs of hosts",
                launch::MOST_PAIRS
            ),
            "use fewer values of access_rtt",
        );
    }
    let mut notes = Vec::new();
    for key in ["window_ratio", "adv_win_scale"] {
        if point.parameters.contains_key(key) {
            notes.push(format!("{key} applies only to the simulator; the guest's kernel uses its own rule"));
        }
    }
    if !host.rx_merge.is_zero() {
        notes.push("rx_merge applies only to the simulator; the guest's devices do not merge packets".into());
    }
    if host.fair_queue {
        notes.push("fair_queue has no effect, because TCP paces by itself, as it does with fq".into());
    }
    Ok(notes)
}
