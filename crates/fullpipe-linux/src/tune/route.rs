//! What connections to one peer begin with: the metrics of its route.
//!
//! A route to the peer alone is changed; where packets to it take a network's route, one to the peer alone is added that
//! goes the same way, so that nobody else's connections change.

use std::fmt::Write;
use std::net::IpAddr;

use netlink_packet_core::{Emitable, Nla, Parseable};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType,
};
use serde::{Deserialize, Serialize};

use crate::error::{Doing, Error};
use crate::netlink::Netlink;

/// A route that was changed or added. Messages are kept as the kernel takes them, in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RouteStep {
    pub(super) destination: IpAddr,
    /// The route to the peer alone as it was; null where there was none.
    pub(super) former: Option<String>,
    /// The same for people.
    pub(super) former_text: Option<String>,
    /// The route as it is meant to be.
    ours: String,
    pub(super) ours_text: String,
}

/// What a route tells connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Metrics {
    pub(super) congctl: Option<String>,
    pub(super) initcwnd: Option<u32>,
}

/// The route to a peer.
pub(super) struct Found {
    message: RouteMessage,
    pub(super) device: String,
    destination: IpAddr,
}

impl Found {
    pub(super) fn to(netlink: &Netlink, destination: IpAddr) -> Result<Self, Error> {
        let mut message = netlink.route_to(destination)?;
        message.header.flags &= RouteFlags::Onlink;
        // What the kernel says of the route's past is no part of it.
        message.attributes.retain(|attribute| {
            !matches!(
                attribute,
                RouteAttribute::CacheInfo(_) | RouteAttribute::Uid(_) | RouteAttribute::Mark(_)
            )
        });
        if message.header.kind != RouteType::Unicast {
            let hint = "give the address of the other host";
            return Err(Error::settings(
                format!("{destination} is reached by no way that can be tuned"),
                hint,
            ));
        }
        let index = message.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Oif(index) => Some(*index),
            _ => None,
        });
        let devices = netlink.devices()?;
        let device = devices.into_iter().find(|(number, _)| Some(*number) == index);
        Ok(Self { message, device: device.map(|(_, name)| name).unwrap_or_default(), destination })
    }

    /// Whether it is for the peer alone.
    pub(super) fn is_exact(&self) -> bool {
        let all = if self.destination.is_ipv4() { 32 } else { 128 };
        self.message.header.destination_prefix_length == all
    }

    pub(super) fn metrics(&self) -> Metrics {
        let mut found = Metrics::default();
        for metric in metrics_of(&self.message) {
            match metric {
                RouteMetric::CcAlgo(name) => found.congctl = Some(name.clone()),
                RouteMetric::InitCwnd(segments) => found.initcwnd = Some(*segments),
                _ => {}
            }
        }
        found
    }

    /// As `ip route` has it.
    pub(super) fn text(&self) -> String {
        let to = self.message.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Destination(address) => Some(words_of(address)),
            _ => None,
        });
        let to = match to {
            Some(to) if self.is_exact() => to,
            Some(to) => format!("{to}/{}", self.message.header.destination_prefix_length),
            None => "default".into(),
        };
        [to, self.way(true), self.metric_words(|_| true)].join(" ").trim_end().into()
    }

    /// The way to the peer alone, less what is tuned, as `ip route` has it.
    pub(super) fn base(&self) -> String {
        let others =
            |metric: &RouteMetric| !matches!(metric, RouteMetric::CcAlgo(_) | RouteMetric::InitCwnd(_));
        [self.way(self.is_exact()), self.metric_words(others)].join(" ").trim_end().into()
    }

    /// The way of its packets; with what says whose route it is if so.
    fn way(&self, whole: bool) -> String {
        let mut text = String::new();
        for attribute in &self.message.attributes {
            let _ = match attribute {
                RouteAttribute::Gateway(address) => write!(text, "via {} ", words_of(address)),
                RouteAttribute::PrefSource(address) => write!(text, "src {} ", words_of(address)),
                RouteAttribute::Priority(metric) if whole => write!(text, "metric {metric} "),
                RouteAttribute::MultiPath(hops) => write!(text, "{} hops ", hops.len()),
                RouteAttribute::Oif(_) => write!(text, "dev {} ", self.device),
                _ => Ok(()),
            };
        }
        let header = &self.message.header;
        if whole && header.protocol != RouteProtocol::Boot {
            let _ = write!(text, "proto {} ", format!("{:?}", header.protocol).to_lowercase());
        }
        if whole && header.scope == RouteScope::Link && self.destination.is_ipv4() {
            text += "scope link ";
        }
        text.trim_end().into()
    }

    fn metric_words(&self, wanted: impl Fn(&RouteMetric) -> bool) -> String {
        let mut text = String::new();
        for metric in metrics_of(&self.message).into_iter().filter(|metric| wanted(metric)) {
            let _ = match metric {
                RouteMetric::CcAlgo(name) => write!(text, "congctl {name} "),
                RouteMetric::InitCwnd(segments) => write!(text, "initcwnd {segments} "),
                // Bit n stands for metric n; the kernel adds what a congestion control needs by itself.
                RouteMetric::Lock(_) | RouteMetric::Features(_) => Ok(()),
                other => {
                    let words = format!("{other:?}").replace(['(', ')'], " ");
                    write!(text, "{} ", words.trim().to_lowercase())
                }
            };
        }
        text.trim_end().into()
    }

    /// The step that gives connections to the peer these metrics; `None` if they have them.
    pub(super) fn step(&self, wanted: &Metrics) -> Option<RouteStep> {
        let mut metrics: Vec<RouteMetric> = metrics_of(&self.message).into_iter().cloned().collect();
        let now = self.metrics();
        if let Some(name) = &wanted.congctl {
            metrics.retain(|metric| !matches!(metric, RouteMetric::CcAlgo(_)));
            metrics.push(RouteMetric::CcAlgo(name.clone()));
        }
        if let Some(segments) = wanted.initcwnd {
            metrics.retain(|metric| !matches!(metric, RouteMetric::InitCwnd(_)));
            metrics.push(RouteMetric::InitCwnd(segments));
        }
        let has = |wanted: &Metrics| {
            (wanted.congctl.is_none() || wanted.congctl == now.congctl)
                && (wanted.initcwnd.is_none() || wanted.initcwnd == now.initcwnd)
        };
        if has(wanted) {
            return None;
        }
        let mut message = self.message.clone();
        message.attributes.retain(|attribute| !matches!(attribute, RouteAttribute::Metrics(_)));
        metrics.sort_by_key(RouteMetric::kind);
        message.attributes.push(RouteAttribute::Metrics(metrics));
        if !self.is_exact() {
            let (len, address) = match self.destination {
                IpAddr::V4(v4) => (32, RouteAddress::Inet(v4)),
                IpAddr::V6(v6) => (128, RouteAddress::Inet6(v6)),
            };
            message.header.destination_prefix_length = len;
            message.header.protocol = RouteProtocol::Static;
            message.attributes.retain(|attribute| {
                !matches!(attribute, RouteAttribute::Destination(_) | RouteAttribute::Priority(_))
            });
            message.attributes.insert(0, RouteAttribute::Destination(address));
        }
        let ours = Self { message, device: self.device.clone(), destination: self.destination };
        Some(RouteStep {
            destination: self.destination,
            former: self.is_exact().then(|| hex(&self.message)),
            former_text: self.is_exact().then(|| self.text()),
            ours: hex(&ours.message),
            ours_text: ours.text(),
        })
    }
}

impl RouteStep {
    pub(super) fn apply(&self, netlink: &Netlink) -> Result<(), Error> {
        netlink.put_route(unhex(&self.ours)?, self.former.is_some())
    }

    pub(super) fn restore(&self, netlink: &Netlink) -> Result<(), Error> {
        match &self.former {
            Some(former) => netlink.put_route(unhex(former)?, true),
            None => netlink.delete_route(unhex(&self.ours)?),
        }
    }

    /// The route to the peer alone as it is now, for people; `None` where there is none.
    pub(super) fn present(&self, netlink: &Netlink) -> Option<String> {
        let found = Found::to(netlink, self.destination).ok()?;
        found.is_exact().then(|| found.text())
    }
}

/// In the order of their numbers, as the kernel tells them.
fn metrics_of(message: &RouteMessage) -> Vec<&RouteMetric> {
    let mut metrics = Vec::new();
    for attribute in &message.attributes {
        if let RouteAttribute::Metrics(of_route) = attribute {
            metrics.extend(of_route);
        }
    }
    metrics.sort_by_key(|metric| metric.kind());
    metrics
}

fn words_of(address: &RouteAddress) -> String {
    match address {
        RouteAddress::Inet(v4) => v4.to_string(),
        RouteAddress::Inet6(v6) => v6.to_string(),
        other => format!("{other:?}"),
    }
}

fn hex(message: &RouteMessage) -> String {
    let mut bytes = vec![0; message.buffer_len()];
    message.emit(&mut bytes);
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Result<RouteMessage, Error> {
    let digits =
        |pair: &[u8]| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(digits).collect();
    let parsed = bytes.and_then(|bytes| RouteMessage::parse(&bytes[..]).ok());
    parsed.ok_or_else(|| std::io::Error::other("it is none")).doing("read the route that was kept")
}
