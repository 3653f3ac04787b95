//! Route metrics that set initial parameters of the connections to one peer.
//!
//! If there is a host route to the peer, this route is changed. If packets to the peer take a network route,
//! a host route with the same next hop is added, so that connections to other hosts do not change. Multiple
//! next hops, nexthop objects, the table and all other metrics are kept.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};

use netlink_packet_core::{Emitable, Nla, Parseable};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric, RouteNextHopFlags,
    RouteProtocol, RouteScope, RouteType, RouteVia,
};
use serde::{Deserialize, Serialize};

use crate::error::{Doing, Error};
use crate::netlink::Netlink;

/// Journal entry of a changed or added route. The route messages are stored in the kernel's binary format, in
/// hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RouteStep {
    pub(super) destination: IpAddr,
    /// Former host route to the peer; null if it did not exist.
    pub(super) former: Option<String>,
    /// Former host route to the peer as text.
    pub(super) former_text: Option<String>,
    /// Host route to the peer that fullpipe sets.
    ours: String,
    pub(super) ours_text: String,
}

/// Route metrics that fullpipe tunes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Metrics {
    pub(super) congctl: Option<String>,
    pub(super) initcwnd: Option<u32>,
}

/// The route that packets to a peer take.
pub(super) struct PeerRoute {
    message: RouteMessage,
    pub(super) device: String,
    destination: IpAddr,
    /// Index and name of every network device.
    devices: Vec<(u32, String)>,
}

/// Metric that the kernel gives an IPv6 route without an explicit metric (`IP6_RT_PRIO_USER`).
const METRIC_V6: u32 = 1024;

impl PeerRoute {
    pub(super) fn to(netlink: &Netlink, destination: IpAddr) -> Result<Self, Error> {
        let mut message = netlink.route_to(destination)?;
        message.header.flags &= RouteFlags::Onlink;
        // The cache state of a route and the state of its links are not part of the route's definition.
        message.attributes.retain(|attribute| {
            !matches!(
                attribute,
                RouteAttribute::CacheInfo(_) | RouteAttribute::Uid(_) | RouteAttribute::Mark(_)
            )
        });
        for attribute in &mut message.attributes {
            if let RouteAttribute::MultiPath(hops) = attribute {
                hops.iter_mut()
                    .for_each(|hop| hop.flags &= RouteNextHopFlags::Onlink | RouteNextHopFlags::Pervasive);
            }
        }
        if message.header.kind != RouteType::Unicast {
            let hint = "pass the address of the other host";
            return Err(Error::settings(
                format!("the route to {destination} cannot be tuned, because it is not a unicast route"),
                hint,
            ));
        }
        let index = message.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Oif(index) => Some(*index),
            RouteAttribute::MultiPath(hops) => hops.first().map(|hop| hop.interface_index),
            _ => None,
        });
        // A nexthop object defines the whole next hop. The kernel also reports the contents of the
        // object, but rejects them in a request.
        if message.attributes.iter().any(|attribute| matches!(attribute, RouteAttribute::NhId(_))) {
            message.attributes.retain(|attribute| {
                !matches!(
                    attribute,
                    RouteAttribute::Oif(_)
                        | RouteAttribute::Gateway(_)
                        | RouteAttribute::Via(_)
                        | RouteAttribute::MultiPath(_)
                )
            });
        }
        let devices = netlink.devices()?;
        let device = index.map(|index| name_of(&devices, index)).unwrap_or_default();
        Ok(Self { message, device, destination, devices })
    }

    /// Returns whether this route is a host route to the peer.
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

    /// Formats the route in the style of `ip route`.
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
        words([to, self.way(true), self.metric_words(|_| true), self.hops()])
    }

    /// Formats the host route to the peer without congestion control and initial window, in the style of `ip
    /// route`.
    pub(super) fn base(&self) -> String {
        let others =
            |metric: &RouteMetric| !matches!(metric, RouteMetric::CcAlgo(_) | RouteMetric::InitCwnd(_));
        words([self.way(self.is_exact()), self.metric_words(others)])
    }

    /// Formats the next hops of a multipath route, which come after all other parts of the route.
    pub(super) fn hops(&self) -> String {
        let mut text = String::new();
        for attribute in &self.message.attributes {
            let RouteAttribute::MultiPath(hops) = attribute else { continue };
            for hop in hops {
                text += "nexthop ";
                for attribute in &hop.attributes {
                    if let Some(via) = via(attribute) {
                        let _ = write!(text, "{via} ");
                    }
                }
                let weight = u32::from(hop.hops) + 1;
                let _ = write!(text, "dev {} weight {weight} ", name_of(&self.devices, hop.interface_index));
                if hop.flags.contains(RouteNextHopFlags::Onlink) {
                    text += "onlink ";
                }
            }
        }
        text.trim_end().into()
    }

    /// Formats the next hop of the route. With `whole`, also formats metric, protocol and scope.
    fn way(&self, whole: bool) -> String {
        let mut text = String::new();
        // The attributes are printed in a fixed order, regardless of the order in which the kernel reports
        // them.
        let mut attributes: Vec<&RouteAttribute> = self.message.attributes.iter().collect();
        attributes.sort_by_key(|attribute| match attribute {
            RouteAttribute::NhId(_) => 0,
            RouteAttribute::Gateway(_) | RouteAttribute::Via(_) => 1,
            RouteAttribute::Oif(_) => 2,
            RouteAttribute::PrefSource(_) => 3,
            _ => 4,
        });
        for attribute in attributes {
            let _ = match attribute {
                RouteAttribute::Gateway(_) | RouteAttribute::Via(_) => {
                    via(attribute).map_or(Ok(()), |via| write!(text, "{via} "))
                }
                RouteAttribute::NhId(number) => write!(text, "nhid {number} "),
                RouteAttribute::PrefSource(address) => write!(text, "src {} ", words_of(address)),
                RouteAttribute::Priority(metric) if whole => write!(text, "metric {metric} "),
                RouteAttribute::Oif(_) => write!(text, "dev {} ", self.device),
                _ => Ok(()),
            };
        }
        let header = &self.message.header;
        let table = self.message.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Table(table) => Some(*table),
            _ => None,
        });
        let table = table.unwrap_or(header.table.into());
        if table != u32::from(RouteHeader::RT_TABLE_MAIN) {
            let _ = write!(text, "table {table} ");
        }
        if header.flags.contains(RouteFlags::Onlink) {
            text += "onlink ";
        }
        match header.protocol {
            RouteProtocol::Other(number) if whole => {
                let _ = write!(text, "proto {number} ");
            }
            known if whole && known != RouteProtocol::Boot => {
                let _ = write!(text, "proto {} ", format!("{known:?}").to_lowercase());
            }
            _ => {}
        }
        if whole && header.scope == RouteScope::Link && self.destination.is_ipv4() {
            text += "scope link ";
        }
        text.trim_end().into()
    }

    fn metric_words(&self, wanted: impl Fn(&RouteMetric) -> bool) -> String {
        let all = metrics_of(&self.message);
        let locked = all.iter().find_map(|metric| match metric {
            RouteMetric::Lock(bits) => Some(*bits),
            _ => None,
        });
        // In the `lock` bit mask, bit n locks metric n.
        let lock = |metric: &RouteMetric| {
            let bit = 1u32.checked_shl(metric.kind().into()).unwrap_or(0);
            if locked.unwrap_or(0) & bit == 0 { "" } else { "lock " }
        };
        let mut text = String::new();
        for metric in all.into_iter().filter(|metric| wanted(metric)) {
            let lock = lock(metric);
            let _ = match metric {
                RouteMetric::CcAlgo(name) => write!(text, "congctl {lock}{name} "),
                RouteMetric::InitCwnd(segments) => write!(text, "initcwnd {lock}{segments} "),
                // The kernel stores rtt in units of 1/8 ms, and rttvar in units of 1/4 ms.
                RouteMetric::Rtt(eighths) => write!(text, "rtt {lock}{}ms ", eighths / 8),
                RouteMetric::RttVar(quarters) => write!(text, "rttvar {lock}{}ms ", quarters / 4),
                // Setting the minimum RTO always locks it, so no `lock` is printed.
                RouteMetric::RtoMin(millis) => write!(text, "rto_min {millis}ms "),
                RouteMetric::FastopenNoCookie(on) => write!(text, "fastopen_no_cookie {on} "),
                // The kernel sets the other feature bits itself, for the congestion control algorithm.
                RouteMetric::Features(bits) if bits & FEATURE_ECN != 0 => write!(text, "features ecn "),
                RouteMetric::Lock(_) | RouteMetric::Features(_) => Ok(()),
                other => {
                    let words = format!("{other:?}").to_lowercase();
                    let (name, value) = words.split_once('(').unwrap_or((&words, ""));
                    write!(text, "{name} {lock}{} ", value.trim_end_matches(')'))
                }
            };
        }
        text.trim_end().into()
    }

    /// Returns the journal entry for setting the `wanted` metrics; returns `None` if the route already has
    /// them.
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
            if self.destination.is_ipv6() {
                message.attributes.push(RouteAttribute::Priority(METRIC_V6));
            }
        }
        let devices = self.devices.clone();
        let ours = Self { message, device: self.device.clone(), destination: self.destination, devices };
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

    /// Returns whether the stored routes can be parsed.
    pub(super) fn is_readable(&self) -> bool {
        unhex(&self.ours).is_ok() && self.former.as_ref().is_none_or(|former| unhex(former).is_ok())
    }

    pub(super) fn restore(&self, netlink: &Netlink) -> Result<(), Error> {
        match &self.former {
            Some(former) => netlink.put_route(unhex(former)?, true),
            None => netlink.delete_route(unhex(&self.ours)?),
        }
    }

    /// Returns the present host route to the peer as text; returns `None` if there is no host route.
    pub(super) fn present(&self, netlink: &Netlink) -> Option<String> {
        let found = PeerRoute::to(netlink, self.destination).ok()?;
        found.is_exact().then(|| found.text())
    }
}

/// Returns the metrics of a route, sorted by their numbers as in the kernel's reports.
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

/// Bit for ECN in the `features` metric of a route (`RTAX_FEATURE_ECN`).
const FEATURE_ECN: u32 = 1;

fn via(attribute: &RouteAttribute) -> Option<String> {
    match attribute {
        RouteAttribute::Gateway(address) => Some(format!("via {}", words_of(address))),
        RouteAttribute::Via(RouteVia::Inet(address)) => Some(format!("via inet {address}")),
        RouteAttribute::Via(RouteVia::Inet6(address)) => Some(format!("via inet6 {address}")),
        _ => None,
    }
}

fn name_of(devices: &[(u32, String)], index: u32) -> String {
    let found = devices.iter().find(|(number, _)| *number == index);
    found.map(|(_, name)| name.clone()).unwrap_or_default()
}

/// Joins the non-empty parts with spaces.
fn words<const N: usize>(parts: [String; N]) -> String {
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
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

/// Returns the route in a netlink message as text; empty if the message is of another type.
pub(crate) fn text_of(message: RouteNetlinkMessage) -> String {
    let RouteNetlinkMessage::NewRoute(message) = message else { return String::new() };
    let destination = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let route = PeerRoute { message, device: "eth0".into(), destination, devices: Vec::new() };
    let wanted = Metrics { congctl: Some("bbr".into()), initcwnd: Some(20) };
    let step = route.step(&wanted).map(|step| step.ours_text).unwrap_or_default();
    route.text() + &route.base() + &step
}

fn unhex(text: &str) -> Result<RouteMessage, Error> {
    let digits =
        |pair: &[u8]| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(digits).collect();
    let parsed = bytes.and_then(|bytes| RouteMessage::parse(&bytes[..]).ok());
    parsed
        .ok_or_else(|| std::io::Error::other("the stored text is not a route"))
        .doing("read the stored route")
}
