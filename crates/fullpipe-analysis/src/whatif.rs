//! The ladder without a log: rates that a transfer reaches on a link with a given rate, RTT and loss.
//!
//! There are two answers. Each closed-form model covers one limit by itself. The simulated ladder covers all
//! limits together, in the order in which they take effect:
//!
//! ```text
//!   window / RTT           rate that a buffer allows          The lowest of these is the present limit.
//!   1.054 (RTT/p)^(3/4)    window of CUBIC under loss   ───►  Only the ladder shows the next limit and
//!   1.22 / sqrt(p)         window of Reno under loss          the gain of a single remedy.
//! ```

use fullpipe_lab::campaign::{JobWatch, RunPanicked};
use fullpipe_measurement::PathFacts;
use fullpipe_measurement::classify::Limit;
use fullpipe_measurement::input::InputError;
use fullpipe_measurement::segment::DEFAULT_MSS;
use fullpipe_measurement::throughput_models::{loss_based_rate, loss_to_fill};
use fullpipe_tcp::buffers::{DEFAULT_WMEM, KernelVersion, WindowRule, default_rmem};
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Bytes, Rate};
use schemars::JsonSchema;
use serde::Serialize;

use crate::advice::{self, Command};
use crate::demand::Demand;
use crate::ladder::{
    self, Climb, DiagnoseError, Effort, Hosts, Ladder, Model, PathModel, Rung, climb_states, effort, lengths,
};
use crate::offered_load::OfferedLoad;
use crate::remedy::LARGER_BUFFERS;

/// Version of the JSON document. Within a version, keys are only added, never changed or removed.
pub const SCHEMA: &str = "fullpipe.whatif/1";

/// Path and hosts of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// The path. Its link rate and RTT are required. The defaults for other values are no loss, one flow,
    /// segments of 1448 bytes, a queue of one BDP, and no cap below the link rate.
    pub path: PathFacts,
    /// `tcp_wmem[2]` of the sender; `None` means the kernel default.
    pub sndbuf: Option<Bytes>,
    /// `tcp_rmem[2]` of the receiver; `None` means the kernel default.
    pub rcvbuf: Option<Bytes>,
    /// Kernel release of both hosts; `None` means [`ASSUMED_KERNEL`].
    pub kernel: Option<KernelVersion>,
    /// Congestion control of the sender.
    pub cc: Algorithm,
}

/// Answer of `whatif`, in the form of its JSON document.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct WhatIf {
    /// Name and version of the document.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// The question, with all defaults filled in.
    pub path: Inputs,
    /// Bandwidth-delay product: the number of bytes in flight that fills the link.
    pub bdp_bytes: u64,
    /// Rates and sizes from closed-form models.
    pub figures: Figures,
    /// Sizes of the socket buffers with which the transfer fills the link.
    pub plan: Plan,
    /// Rungs of the ladder, from the present state of the hosts to the link.
    pub ladder: Vec<Rung>,
    /// Growth of the application's queue on each rung, for a given offered rate; null unless requested.
    pub offered: Option<OfferedLoad>,
    /// Assumptions behind the answer.
    pub assumptions: Vec<String>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// The question, with all defaults filled in.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Inputs {
    /// Link rate: key `link_bps`.
    #[serde(rename = "link_bps", with = "fullpipe_measurement::json::Bps")]
    pub link: Rate,
    /// Round-trip time in milliseconds.
    pub rtt_ms: f64,
    /// Packet loss probability, 0 to 1.
    pub loss: f64,
    /// Kernel release of both hosts.
    pub kernel: String,
    /// Congestion control of the sender.
    pub congestion_control: &'static str,
    /// `tcp_wmem[2]` of the sender.
    pub sndbuf_bytes: u64,
    /// `tcp_rmem[2]` of the receiver.
    pub rcvbuf_bytes: u64,
    /// Number of parallel flows.
    pub flows: u64,
    /// Payload length of a full-sized segment.
    pub mss_bytes: u64,
    /// Capacity of the queue at the bottleneck.
    pub queue_bytes: u64,
    /// Maximum rate of one flow, below the link rate; null without a cap: key `cap_bps`.
    #[serde(rename = "cap_bps", with = "fullpipe_measurement::json::OptionalBps")]
    pub cap: Option<Rate>,
}

/// Rate that each limit allows by itself, from closed-form models.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Figures {
    /// Payload rate of the link: key `line_bps`.
    #[serde(rename = "line_bps", with = "fullpipe_measurement::json::Bps")]
    pub line: Rate,
    /// Window that the receive buffer allows.
    pub window_bytes: u64,
    /// Rule that converts receive memory to a window, in words.
    pub window_rule: String,
    /// Rate of one such window per round trip: key `window_bps`.
    #[serde(rename = "window_bps", with = "fullpipe_measurement::json::Bps")]
    pub window: Rate,
    /// Rate that the send buffer allows if the payload that fits into it is sent once per round trip: key
    /// `sndbuf_bps`.
    #[serde(rename = "sndbuf_bps", with = "fullpipe_measurement::json::Bps")]
    pub sndbuf: Rate,
    /// Rate of a loss-based sender, the larger of the CUBIC and Reno models; null without loss: key
    /// `loss_bps`.
    #[serde(rename = "loss_bps", with = "fullpipe_measurement::json::OptionalBps")]
    pub loss: Option<Rate>,
    /// Maximum packet loss rate at which a loss-based sender still fills the link.
    pub loss_to_fill: f64,
}

/// Sizes of the socket buffers with which the transfer fills the link.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Plan {
    /// `tcp_wmem[2]` of the sender.
    pub wmem_bytes: u64,
    /// `tcp_rmem[2]` of the receiver.
    pub rmem_bytes: u64,
    /// Commands that set both values; empty if the present buffers are large enough.
    pub commands: Vec<Command>,
}

/// Kernel release that is assumed if none is given: a long-term release that many servers run.
pub const ASSUMED_KERNEL: KernelVersion = KernelVersion::new(6, 8);

const LEAST_BUFFER: Bytes = Bytes::new(4096);
/// Maximum buffer size: the kernel stores sizes in an `int`.
const LARGEST_BUFFER: Bytes = Bytes::new(i32::MAX as u64);

/// Answers a question. `watch` is called from any thread as simulated runs finish.
///
/// # Errors
/// Returns an error for an implausible or incomplete path, for abandoned runs, or for a defect of the simulator.
pub fn whatif(question: &Question, watch: impl JobWatch) -> Result<WhatIf, DiagnoseError> {
    let path = check(question).map_err(DiagnoseError::Input)?;
    ladder::complete(&watch, |watch| answer(question, path, watch))
}

/// Checks a question and returns its path.
pub(crate) fn check(question: &Question) -> Result<PathModel, InputError> {
    let path = PathModel::of_figures(&question.path)?;
    let refuse = |message: &str| {
        let hint = "give the buffer size, for example --buffers 4MiB, or --sndbuf 4MiB --rcvbuf 6MiB";
        Err(InputError::new(message, hint))
    };
    let given = || question.sndbuf.into_iter().chain(question.rcvbuf);
    if given().any(|size| size < LEAST_BUFFER) {
        return refuse("no kernel supports socket buffers below 4 KiB");
    }
    if given().any(|size| size > LARGEST_BUFFER) {
        return refuse("no kernel supports socket buffers of 2 GiB or more");
    }
    Ok(path)
}

/// Returns the model of a question that has been checked.
pub(crate) fn model(question: &Question, path: PathModel, effort: Effort) -> Model<'static> {
    let kernel = question.kernel.unwrap_or(ASSUMED_KERNEL);
    let hosts = Hosts {
        cc: question.cc,
        flows: question.path.flows.unwrap_or(1),
        kernel: Some(kernel),
        sndbuf: question.sndbuf.unwrap_or(DEFAULT_WMEM),
        rcvbuf: question.rcvbuf.unwrap_or(default_rmem(kernel)),
        fixed: (None, None),
        limited: false,
        rate_option: None,
        this: None,
        rule: WindowRule::of(kernel, None).with_segments(path.mss.get(), DEFAULT_MSS.get()),
        sender: None,
        sender_buffers: None,
        receiver_buffers: None,
        room: (Bytes::MAX, Bytes::MAX),
    };
    Model::new(path, hosts, effort)
}

/// Returns the question, with all defaults filled in.
pub(crate) fn inputs(question: &Question, model: &Model<'_>) -> Inputs {
    let (path, hosts) = (&model.path, &model.hosts);
    Inputs {
        link: path.at_least,
        rtt_ms: path.rtt.as_millis_f64(),
        loss: path.loss.as_f64(),
        kernel: question.kernel.unwrap_or(ASSUMED_KERNEL).to_string(),
        congestion_control: hosts.cc.name(),
        sndbuf_bytes: hosts.sndbuf.get(),
        rcvbuf_bytes: hosts.rcvbuf.get(),
        flows: hosts.flows,
        mss_bytes: path.mss.get(),
        queue_bytes: path.queue.unwrap_or(model.bdp()).get(),
        cap: question.path.cap,
    }
}

/// Returns the assumptions that replace missing values of a question.
pub(crate) fn assumptions(question: &Question) -> Vec<String> {
    let kernel = question.kernel.unwrap_or(ASSUMED_KERNEL);
    let (sndbuf, rcvbuf) =
        (question.sndbuf.unwrap_or(DEFAULT_WMEM), question.rcvbuf.unwrap_or(default_rmem(kernel)));
    let mut assumptions = Vec::new();
    if question.kernel.is_none() {
        assumptions.push(format!("kernel {kernel} on both hosts; --kernel overrides this"));
    }
    match (question.sndbuf, question.rcvbuf) {
        (Some(_), Some(_)) => {}
        (None, None) => assumptions.push(format!(
            "the kernel's default buffers, {sndbuf} to send and {rcvbuf} to receive; --buffers overrides this"
        )),
        (None, Some(_)) => {
            assumptions.push(format!("the kernel's default send buffer, {sndbuf}; --sndbuf overrides this"));
        }
        (Some(_), None) => assumptions
            .push(format!("the kernel's default receive buffer, {rcvbuf}; --rcvbuf overrides this")),
    }
    let open = [
        ("one flow; --flows", question.path.flows.is_none()),
        ("no rate cap per flow below the rate of the link; --cap", question.path.cap.is_none()),
    ];
    let open = open.into_iter().filter(|(_, assumed)| *assumed);
    assumptions.extend(open.map(|(what, _)| format!("{what} overrides this")));
    if question.path.mss.is_none() {
        assumptions.push(format!("segments of {} bytes; --mss overrides this", DEFAULT_MSS.get()));
    }
    assumptions
}

fn answer(question: &Question, path: PathModel, watch: &dyn JobWatch) -> Result<WhatIf, RunPanicked> {
    let PathModel { rtt, loss, mss, .. } = path;
    let flows = question.path.flows.unwrap_or(1);
    let model = model(question, path, effort(rtt, loss));
    let mut assumptions = assumptions(question);
    // The buffer sizes depend only on the BDP, so an answer without a ladder contains them, too.
    let present = model.present();
    let mut larger = present.with(LARGER_BUFFERS);
    let mut notes: Vec<String> = model.hosts_are_not_modelled().into_iter().collect();
    let ladder = if let Some(why) = model.too_fast() {
        notes.push(why);
        Vec::new()
    } else {
        let Climb { ladder, reached, .. } = climb_states(&model, None, watch)?;
        let Ladder { rungs, notes: others, .. } = ladder;
        assumptions.extend(ladder::assumptions(&model, Some("--queue")));
        assumptions.push(lengths(&[model], "ranges show the variation between the seeds"));
        notes.extend(others);
        // If the ladder raised a buffer, the ladder also chose the size.
        if model.buffers(reached) != model.buffers(present) {
            larger = present.without(LARGER_BUFFERS, reached);
        } else if rungs.first().is_some_and(|first| first.limit == Limit::Link) {
            // Several flows fill the link with buffers that would be too small for one flow.
            larger = present;
        }
        rungs
    };
    let (send, receive) = model.buffers(larger);
    notes.push(advice::memory_note(send.max(receive), None));
    let ((window, send), (wmem, rmem)) = (model.ceilings(present), model.buffers(larger));
    Ok(WhatIf {
        schema: SCHEMA,
        path: inputs(question, &model),
        bdp_bytes: model.link_bdp().get(),
        figures: Figures {
            line: model.link_payload(),
            window_bytes: model.window(model.present()).get(),
            window_rule: model.hosts.rule.to_string(),
            window,
            sndbuf: send,
            loss: (!loss.is_zero()).then(|| loss_based_rate(rtt, loss.as_f64(), mss).mul_div(flows, 1)),
            loss_to_fill: loss_to_fill(rtt, model.link_payload().mul_div(1, flows.max(1)), mss),
        },
        plan: Plan {
            wmem_bytes: wmem.get(),
            rmem_bytes: rmem.get(),
            commands: if (wmem, rmem) == model.buffers(present) {
                Vec::new()
            } else {
                advice::commands(&model.case(), present, larger)
            },
        },
        ladder,
        offered: None,
        assumptions,
        notes,
    })
}

impl WhatIf {
    /// Adds the growth of the queue on each rung, for an application that offers `demand`.
    pub fn against(mut self, demand: Demand) -> Self {
        self.offered = Some(OfferedLoad::of(demand, &self.ladder, true));
        self
    }
}

#[cfg(test)]
mod tests {
    use fullpipe_units::Duration;

    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// Both models reproduce published figures, and each function is the inverse of the other.
    #[test]
    fn the_models_of_loss_are_those_of_the_books() {
        let ppm20 = loss_based_rate(ms(210), 20e-6, DEFAULT_MSS);
        assert!((59.0..61.0).contains(&ppm20.as_mbps_f64()), "{ppm20}");
        let weak = loss_based_rate(ms(140), 0.015, DEFAULT_MSS);
        assert!((0.8..0.85).contains(&weak.as_mbps_f64()), "{weak}");
        let fill = loss_to_fill(ms(210), Rate::from_bps(1_000_000_000), DEFAULT_MSS);
        assert!((0.45e-6..0.49e-6).contains(&fill), "{fill}");
        for loss in [1e-7, 1e-4, 0.03] {
            let back = loss_to_fill(ms(50), loss_based_rate(ms(50), loss, DEFAULT_MSS), DEFAULT_MSS);
            assert!((back / loss - 1.0).abs() < 1e-3, "{loss}: {back}");
        }
    }
}
