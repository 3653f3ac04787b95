//! Builds the plan: the remedies of the ladder as items for this host and the other host.

use fullpipe_lab::campaign::{JobWatch, RunPanicked};
use fullpipe_lab::host::Change;
use fullpipe_tcp::buffers::{DEFAULT_WMEM, WindowRule, default_rmem};
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Bytes, Duration, Rate};
use schemars::JsonSchema;
use serde::Serialize;

use super::apps;
use super::inputs::{PlanInputs, Role};
use super::item::{Item, What};
use super::items::{Items, items};
use crate::ladder::{
    Climb, DiagnoseError, Hosts, Model, PathModel, Rung, SimulatedState, assumptions, climb_states, complete,
    effort, lengths,
};
use crate::remedy::{End, Host, HostCase, LocalHost, PAGE, State, Trials, Unsent, catalogue};
use crate::whatif::ASSUMED_KERNEL;

/// Version of the JSON document. Within a version, keys are only added, never changed or removed.
pub const SCHEMA: &str = "fullpipe.tune/1";

/// Tuning plan for one host and its path.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Plan {
    /// Name and version of the document.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// Link rate: key `link_bps`.
    #[serde(rename = "link_bps", with = "fullpipe_measurement::json::Bps")]
    pub link: Rate,
    /// Round-trip time in milliseconds.
    pub rtt_ms: f64,
    /// Packet loss probability, 0 to 1.
    pub loss: f64,
    /// Number of concurrent flows.
    pub flows: u64,
    /// Bandwidth-delay product: the number of bytes in flight that fills the link.
    pub bdp_bytes: u64,
    /// Role of this host, in words.
    pub role: String,
    /// Address of the peer, if the plan applies only to connections to it.
    pub to: Option<String>,
    /// Kernel release of this host.
    pub kernel: Option<String>,
    /// Total memory of this host, in bytes.
    pub memory_bytes: Option<u64>,
    /// Steady-state rate with the hosts in their present state; null if it was not simulated: key
    /// `present_bps`.
    #[serde(rename = "present_bps", with = "fullpipe_measurement::json::OptionalBps")]
    pub present: Option<Rate>,
    /// Steady-state rate with the whole plan applied on both hosts: key `planned_bps`.
    #[serde(rename = "planned_bps", with = "fullpipe_measurement::json::OptionalBps")]
    pub planned: Option<Rate>,
    /// Mean rate in the report that the plan is based on: key `measured_bps`.
    #[serde(rename = "measured_bps", with = "fullpipe_measurement::json::OptionalBps")]
    pub measured: Option<Rate>,
    /// Planned changes.
    pub items: Vec<Item>,
    /// Settings that are left unchanged.
    pub left: Vec<SkippedItem>,
    /// Rungs of the ladder, from the present state of the hosts to the link.
    pub ladder: Vec<Rung>,
    /// Assumptions behind the plan.
    pub assumptions: Vec<String>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// A setting that is left unchanged, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SkippedItem {
    /// Name of the setting.
    pub what: What,
    /// Reason for leaving the setting unchanged.
    pub why: String,
}

impl Plan {
    /// Returns the items that `--apply` changes on this host.
    pub fn applied(&self) -> impl Iterator<Item = &Item> {
        self.items.iter().filter(|item| item.applied().is_some())
    }

    /// Returns the changes that `--apply` makes to this host, in the order of the items.
    pub fn changes(&self) -> Vec<Change> {
        self.applied().filter_map(|item| item.applied()?.change.clone()).collect()
    }
}

/// Divisor of the host's memory. The quotient is available for the buffers of the planned flows, the rest for
/// applications.
const MEMORY_SHARE: u64 = 4;

/// Builds the plan. `watch` is called from any thread as simulated runs finish.
///
/// # Errors
/// Returns an error for an implausible or incomplete path, for abandoned runs, or for a defect of the
/// simulator.
pub fn plan(host: &LocalHost, inputs: &PlanInputs, watch: impl JobWatch) -> Result<Plan, DiagnoseError> {
    let kernel = host.settings.kernel.or(inputs.peer.kernel).unwrap_or(ASSUMED_KERNEL);
    let mut assumptions = Vec::new();
    let cc = algorithm(host, inputs, &mut assumptions);
    let path = PathModel::of_figures(&inputs.path).map_err(DiagnoseError::Input)?;
    let PathModel { at_least: link, rtt, loss, .. } = path;
    let (flows, role) = (inputs.path.flows.unwrap_or(1), inputs.role);

    let here = |end| role.is(end);
    let receiving = if here(Host::Receiver) { Some(kernel) } else { inputs.peer.kernel };
    let receiver_kernel = receiving.unwrap_or(kernel);
    let scale = host.settings.adv_win_scale.filter(|_| here(Host::Receiver));
    let rule = WindowRule::of(receiver_kernel, scale);
    let mut end = |which: Host, of_host: Option<[Bytes; 3]>, default: Bytes| {
        let own = here(which).then_some(of_host).flatten().map(|triple| triple[2]);
        let buffer = own.or(inputs.peer.buffer.filter(|_| !here(which))).unwrap_or_else(|| {
            let whose = if here(which) { "this host" } else { "the other host" };
            assumptions
                .push(format!("the maximum buffer of the {which}, {whose}, is {default}, the default"));
            default
        });
        End { buffer, room: if here(which) { room(host, role, flows) } else { Bytes::MAX } }
    };
    let sender = end(Host::Sender, host.settings.tcp_wmem, DEFAULT_WMEM);
    let receiver = end(Host::Receiver, host.settings.tcp_rmem, default_rmem(receiver_kernel));

    let hosts = Hosts {
        cc,
        flows,
        kernel: Some(kernel),
        sndbuf: sender.buffer,
        rcvbuf: receiver.buffer,
        fixed: (None, None),
        limited: false,
        rate_option: None,
        this: match role {
            Role::Sender => Some(Host::Sender),
            Role::Receiver => Some(Host::Receiver),
            Role::Both => None,
        },
        rule,
        sender: here(Host::Sender).then_some(&host.settings),
        sender_buffers: here(Host::Sender).then_some(&host.settings),
        receiver_buffers: here(Host::Receiver).then_some(&host.settings),
        room: (sender.room, receiver.room),
    };
    let model = Model::new(path, hosts, effort(rtt, loss));
    let mut forecast = Forecast::of(&model, inputs, watch)?;
    assumptions.append(&mut forecast.assumptions);

    let host_case = HostCase {
        case: model.case(),
        local: host,
        ends: [here(Host::Sender), here(Host::Receiver)],
        flows,
        kernel,
        sender,
        receiver,
        present: model.present(),
        reached: forecast.reached,
        with: &inputs.with,
        trials: &SimulatedTrials { model: &model, forecast: &forecast },
    };
    let Items { items, left, notes } = items(&host_case, inputs).map_err(DiagnoseError::Defect)?;
    let present = forecast.rate(model.present());
    let planned = forecast.rate(forecast.reached).or(present);
    Ok(Plan {
        schema: SCHEMA,
        link,
        rtt_ms: rtt.as_millis_f64(),
        loss: loss.as_f64(),
        flows,
        bdp_bytes: model.bdp().get(),
        role: role.to_string(),
        to: inputs.to.map(|to| to.to_string()),
        kernel: host.settings.kernel.map(|kernel| kernel.to_string()),
        memory_bytes: host.facts.memory.map(Bytes::get),
        present,
        planned,
        measured: inputs.report.measured,
        items,
        left,
        ladder: forecast.ladder,
        assumptions,
        notes: notes.into_iter().chain(forecast.notes).collect(),
    })
}

/// Returns the sender's congestion control. If it is unknown or not in the simulator, CUBIC, the kernel
/// default, replaces it, and a sentence about this is added to `assumptions`.
fn algorithm(host: &LocalHost, inputs: &PlanInputs, assumptions: &mut Vec<String>) -> Algorithm {
    let own = inputs.role.is(Host::Sender).then(|| host.congestion_control()).flatten();
    let Some(name) = own.or(inputs.peer.congestion_control.as_deref()) else {
        assumptions.push("the sender's congestion control is cubic, the default".into());
        return Algorithm::Cubic;
    };
    name.parse().unwrap_or_else(|_| {
        assumptions.push(format!("the simulator does not have {name}, so cubic is simulated instead"));
        Algorithm::Cubic
    })
}

/// Returns the maximum size of one buffer of one flow on this host. Two values bound it: a share of the
/// host's memory, and the total memory of all TCP sockets at which buffers stop growing (`tcp_mem[1]`).
fn room(host: &LocalHost, role: Role, flows: u64) -> Bytes {
    let share = host.facts.memory.map(|memory| memory.get() / MEMORY_SHARE);
    let pressure = host.settings.tcp_mem_pages.map(|[_, pressure, _]| pressure.saturating_mul(PAGE));
    let buffers = flows.max(1).saturating_mul(if role == Role::Both { 2 } else { 1 });
    let most = share.into_iter().chain(pressure).min();
    most.map_or(Bytes::MAX, |most| Bytes::new(most / buffers / PAGE * PAGE))
}

/// Simulated rates and the ladder of a plan; there are no rates if the path is too fast to simulate.
struct Forecast {
    ladder: Vec<Rung>,
    simulated: Vec<SimulatedState>,
    /// Target state of the plan.
    reached: State,
    assumptions: Vec<String>,
    notes: Vec<String>,
}

impl Forecast {
    fn of(model: &Model<'_>, inputs: &PlanInputs, watch: impl JobWatch) -> Result<Self, DiagnoseError> {
        if let Some(why) = model.too_fast() {
            return Ok(Self::by_rule(model, vec![why]));
        }
        let (ladder, reached, simulated) = complete(&watch, |watch| {
            let mut climbed = climb_states(model, None, watch)?;
            climbed.simulate_gains()?;
            let simulated = climbed.simulated();
            let Climb { ladder, reached, .. } = climbed;
            Ok((ladder, reached, simulated))
        })?;
        if ladder.rungs.is_empty() {
            return Ok(Self::by_rule(model, ladder.notes));
        }
        let mut assumptions = assumptions(model, None);
        assumptions.push(lengths(&[*model], "ranges show the variation between the seeds"));
        // The rungs of a plan have no commands, because its items contain them.
        let without = |rung: Rung| Rung { remedies: rung.remedies.without_commands(), ..rung };
        let rungs = ladder.rungs.into_iter().map(without).collect();
        let reached = if inputs.report.out_of_reach.is_some() { model.present() } else { reached };
        Ok(Self { ladder: rungs, simulated, reached, assumptions, notes: ladder.notes })
    }

    /// Returns the target state without a simulation, from the rules of the remedies.
    fn by_rule(model: &Model<'_>, notes: Vec<String>) -> Self {
        let needed = catalogue::of_ladder().filter(|remedy| remedy.is_needed_by_rule(&model.case()));
        let changes =
            needed.map(|remedy| remedy.change).filter(|change| model.can_make(model.present(), *change));
        Self {
            ladder: Vec::new(),
            simulated: Vec::new(),
            reached: changes.fold(model.present(), State::with),
            assumptions: Vec::new(),
            notes,
        }
    }

    /// Returns the steady-state rate in `state`, if it was simulated.
    fn rate(&self, state: State) -> Option<Rate> {
        self.simulated.iter().find(|one| one.state == state).map(|one| one.steady)
    }
}

/// Trials for the remedies, simulated on the planned path.
struct SimulatedTrials<'a> {
    model: &'a Model<'a>,
    forecast: &'a Forecast,
}

impl Trials for SimulatedTrials<'_> {
    fn rate(&self, state: State) -> Option<Rate> {
        self.forecast.rate(state)
    }

    fn buffers(&self, state: State) -> (Bytes, Bytes) {
        self.model.buffers(state)
    }

    fn ceilings(&self, state: State) -> (Rate, Rate) {
        self.model.ceilings(state)
    }

    fn short_transfer(&self, state: State, bytes: Bytes) -> Option<Duration> {
        apps::short_transfer(self.model, state, bytes)
    }

    fn burst_after_pause(&self, state: State, burst: Bytes) -> Option<Duration> {
        apps::burst_after_pause(self.model, state, burst)
    }

    fn takes_long(&self, rate: Rate) -> bool {
        apps::takes_long(self.model, rate)
    }

    fn unsent(&self, states: &[State]) -> Result<Vec<Option<Unsent>>, RunPanicked> {
        apps::unsent(self.model, states)
    }
}
