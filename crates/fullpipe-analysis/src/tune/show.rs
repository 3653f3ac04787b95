//! What a kernel offers and uses, and what each of it limits on a path.

use fullpipe_lab::host::{Device, Route};
use fullpipe_tcp::buffers::{self, WindowRule};
use fullpipe_units::{Bytes, Duration, Probability, Rate};
use schemars::JsonSchema;
use serde::Serialize;

use crate::remedy::LocalHost;
use crate::segment::DEFAULT_MSS;
use crate::throughput_models::loss_based_rate;
use crate::whatif::ASSUMED_KERNEL;

/// Version of the JSON document; keys are added under the same number, never changed or removed.
pub const SHOW_SCHEMA: &str = "fullpipe.tune.show/1";

/// What a host offers and uses.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Show {
    /// Name and version of the document.
    #[schemars(extend("const" = SHOW_SCHEMA))]
    pub schema: &'static str,
    /// Its kernel.
    pub kernel: Option<String>,
    /// Its memory.
    pub memory_bytes: Option<u64>,
    /// The congestion control of new connections.
    pub congestion_control: Option<String>,
    /// Those that are loaded.
    pub available: Vec<String>,
    /// Those that a process without privileges may choose.
    pub allowed: Vec<String>,
    /// Those that are modules and not loaded.
    pub loadable: Vec<String>,
    /// The queueing discipline of devices that come up; null in a container.
    pub default_qdisc: Option<String>,
    /// The devices there are.
    pub devices: Vec<Device>,
    /// The route to a peer, where one was asked for.
    pub route: Option<Route>,
    /// How receive memory becomes window, in words.
    pub window_rule: String,
    /// Every setting that bears on it, as it was read.
    pub settings: std::collections::BTreeMap<String, String>,
    /// What each limits, for each round-trip time that was asked for.
    pub limits: Vec<Limits>,
}

/// What settings of this host let pass at a round-trip time, each alone.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Limits {
    /// The round-trip time in milliseconds.
    pub rtt_ms: f64,
    /// As a receiver, by `tcp_rmem[2]`: key `receive_bps`.
    #[serde(rename = "receive_bps", with = "crate::json::OptionalBps")]
    pub receive: Option<Rate>,
    /// As a sender, by `tcp_wmem[2]`: key `send_bps`.
    #[serde(rename = "send_bps", with = "crate::json::OptionalBps")]
    pub send: Option<Rate>,
    /// As a receiver that sets `SO_RCVBUF`, by `net.core.rmem_max`: key `set_receive_bps`.
    #[serde(rename = "set_receive_bps", with = "crate::json::OptionalBps")]
    pub set_receive: Option<Rate>,
    /// As a sender that sets `SO_SNDBUF`, by `net.core.wmem_max`: key `set_send_bps`.
    #[serde(rename = "set_send_bps", with = "crate::json::OptionalBps")]
    pub set_send: Option<Rate>,
    /// As a sender whose congestion control goes by loss, at the loss that was asked for; null otherwise: key
    /// `loss_bps`.
    #[serde(rename = "loss_bps", with = "crate::json::OptionalBps")]
    pub loss: Option<Rate>,
}

/// The kernel doubles what a socket asks for, as it counts its own overhead too (socket(7)).
const DOUBLED: u64 = 2;

/// What `host` offers and uses, and what each limits at each of `rtts`, with `loss` where it is not zero.
pub fn show(host: &LocalHost, rtts: &[Duration], loss: Probability) -> Show {
    let settings = &host.settings;
    let kernel = settings.kernel.unwrap_or(ASSUMED_KERNEL);
    let rule = WindowRule::of(kernel, settings.adv_win_scale);
    let by_loss = host
        .congestion_control()
        .and_then(|name| name.parse::<fullpipe_tcp::cc::Algorithm>().ok())
        .is_none_or(|cc| !cc.is_rate_based());
    let limits = |&rtt: &Duration| {
        let per_round_trip = |bytes: Bytes| Rate::of(bytes, rtt);
        let set = |most: Bytes| most.mul_div(DOUBLED, 1);
        Limits {
            rtt_ms: rtt.as_millis_f64(),
            receive: settings.tcp_rmem.map(|rmem| per_round_trip(rule.window(rmem[2]))),
            send: settings.tcp_wmem.map(|wmem| per_round_trip(buffers::sendable(wmem[2]))),
            set_receive: settings.core_rmem_max.map(|most| per_round_trip(rule.window(set(most)))),
            set_send: settings.core_wmem_max.map(|most| per_round_trip(buffers::sendable(set(most)))),
            loss: (by_loss && !loss.is_zero()).then(|| loss_based_rate(rtt, loss.as_f64(), DEFAULT_MSS)),
        }
    };
    Show {
        schema: SHOW_SCHEMA,
        kernel: settings.kernel.map(|kernel| kernel.to_string()),
        memory_bytes: host.facts.memory.map(Bytes::get),
        congestion_control: host.congestion_control().map(str::to_owned),
        available: settings.available_congestion_control.clone(),
        allowed: settings.allowed_congestion_control.clone(),
        loadable: host.facts.loadable.clone(),
        default_qdisc: settings.default_qdisc.clone(),
        devices: host.facts.devices.clone(),
        route: host.facts.route.clone(),
        window_rule: rule.to_string(),
        settings: host.facts.settings.clone(),
        limits: rtts.iter().map(limits).collect(),
    }
}
