//! Settings of a kernel, and the rates that they allow on a path.

use fullpipe_lab::host::{Device, Route};
use fullpipe_measurement::segment::DEFAULT_MSS;
use fullpipe_measurement::throughput_models::loss_based_rate;
use fullpipe_tcp::buffers::{self, WindowRule};
use fullpipe_units::{Bytes, Duration, Probability, Rate};
use schemars::JsonSchema;
use serde::Serialize;

use crate::remedy::LocalHost;
use crate::whatif::ASSUMED_KERNEL;

/// Version of the JSON document. Within a version, keys are only added, never changed or removed.
pub const SHOW_SCHEMA: &str = "fullpipe.tune.show/1";

/// Settings and devices of a host, with the rates that they allow.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Show {
    /// Name and version of the document.
    #[schemars(extend("const" = SHOW_SCHEMA))]
    pub schema: &'static str,
    /// Kernel release of the host.
    pub kernel: Option<String>,
    /// Total memory of the host, in bytes.
    pub memory_bytes: Option<u64>,
    /// Congestion control for new connections.
    pub congestion_control: Option<String>,
    /// Available congestion controls: built in, or loaded as modules.
    pub available: Vec<String>,
    /// Congestion controls that unprivileged processes may select.
    pub allowed: Vec<String>,
    /// Congestion controls built as modules, loaded or not.
    pub loadable: Vec<String>,
    /// Default queueing discipline of new devices; null in a container.
    pub default_qdisc: Option<String>,
    /// Network devices of the host.
    pub devices: Vec<Device>,
    /// Route to the peer, if a peer was given.
    pub route: Option<Route>,
    /// Rule that converts receive memory to a window, in words.
    pub window_rule: String,
    /// All settings related to TCP, as read.
    pub settings: std::collections::BTreeMap<String, String>,
    /// Rates that the settings allow, with one entry per requested RTT.
    pub limits: Vec<Limits>,
}

/// Rate that each setting of this host allows by itself at one RTT.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Limits {
    /// Round-trip time in milliseconds.
    pub rtt_ms: f64,
    /// Receive rate that `tcp_rmem[2]` allows: key `receive_bps`.
    #[serde(rename = "receive_bps", with = "fullpipe_measurement::json::OptionalBps")]
    pub receive: Option<Rate>,
    /// Send rate that `tcp_wmem[2]` allows: key `send_bps`.
    #[serde(rename = "send_bps", with = "fullpipe_measurement::json::OptionalBps")]
    pub send: Option<Rate>,
    /// Receive rate that `net.core.rmem_max` allows for a socket with `SO_RCVBUF`: key `set_receive_bps`.
    #[serde(rename = "set_receive_bps", with = "fullpipe_measurement::json::OptionalBps")]
    pub set_receive: Option<Rate>,
    /// Send rate that `net.core.wmem_max` allows for a socket with `SO_SNDBUF`: key `set_send_bps`.
    #[serde(rename = "set_send_bps", with = "fullpipe_measurement::json::OptionalBps")]
    pub set_send: Option<Rate>,
    /// Rate of a loss-based sender at the given loss; null without loss or for a rate-based sender: key
    /// `loss_bps`.
    #[serde(rename = "loss_bps", with = "fullpipe_measurement::json::OptionalBps")]
    pub loss: Option<Rate>,
}

/// Factor by which the kernel enlarges a requested socket buffer to cover its own overhead (socket(7)).
const DOUBLED: u64 = 2;

/// Returns the settings of `host` and the rates that they allow at each RTT in `rtts`, taking `loss` into
/// account unless it is zero.
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
