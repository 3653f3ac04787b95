//! Formats sums over groups of sockets as Prometheus metrics (OpenMetrics 1.0).
//!
//! Each `--dst` option has one set of time series. If each connection had its own time series, their number
//! would be unbounded, because each connection has a new port.

use std::sync::atomic::AtomicU64;

use fullpipe_analysis::Limit;
use fullpipe_analysis::sockets::{Present, Totals};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::probe::ProbeResult;

/// HTTP content type of the metrics page.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Labels = Vec<(&'static str, String)>;
type Seconds = Gauge<f64, AtomicU64>;

/// A group of sockets, and the sums over these sockets.
pub(super) struct Group {
    /// Value of the `--dst` option that selects the group.
    pub(super) dst: String,
    pub(super) totals: Totals,
    pub(super) present: Present,
    /// Whether the sockets of the group could be sampled in the last round.
    pub(super) up: bool,
}

/// Formats the metrics page, which contains the sums of all groups.
pub(super) fn page(groups: &[Group]) -> String {
    let limits = Family::<Labels, Counter<f64, AtomicU64>>::default();
    let [sent, received, retransmits] = [(); 3].map(|()| Family::<Labels, Counter>::default());
    let [connections, unsent, unread, up] = [(); 4].map(|()| Family::<Labels, Gauge>::default());
    let [rtt, min_rtt] = [(); 2].map(|()| Family::<Labels, Seconds>::default());
    for Group { dst, totals, present, up: is_up } in groups {
        let labels: Labels = vec![("dst", dst.clone())];
        for limit in Limit::ALL {
            // The page includes every limit from the start. If a time series appeared only after its first
            // second, `rate()` would miss that second.
            let time = totals.limits.get(&limit).copied().unwrap_or_default();
            let labels = vec![("dst", dst.clone()), ("limit", limit.name().to_owned())];
            limits.get_or_create(&labels).inc_by(time.as_secs_f64());
        }
        sent.get_or_create(&labels).inc_by(totals.sent.get());
        received.get_or_create(&labels).inc_by(totals.received.get());
        retransmits.get_or_create(&labels).inc_by(totals.retransmits);
        let whole = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        connections.get_or_create(&labels).set(whole(present.connections));
        unsent.get_or_create(&labels).set(whole(present.unsent.get()));
        unread.get_or_create(&labels).set(whole(present.unread.get()));
        up.get_or_create(&labels).set(i64::from(*is_up));
        for (family, value) in [(&rtt, present.rtt), (&min_rtt, present.min_rtt)] {
            if let Some(value) = value {
                family.get_or_create(&labels).set(value.as_secs_f64());
            }
        }
    }
    let mut registry = Registry::with_prefix("fullpipe");
    registry.register("limit_seconds", "Total time for which each limit stopped the senders", limits);
    registry.register("sent_bytes", "Payload bytes that the peers have acknowledged", sent);
    registry.register("received_bytes", "Payload bytes received", received);
    registry.register("retransmits", "Number of retransmitted segments", retransmits);
    registry.register("connections", "Number of open connections", connections);
    registry.register("unsent_bytes", "Bytes written to sockets but not yet sent", unsent);
    registry.register("unread_bytes", "Bytes received but not yet read by the application", unread);
    registry.register("rtt_seconds", "Smoothed RTT, mean over the connections", rtt);
    registry.register("min_rtt_seconds", "Minimum RTT over the connections", min_rtt);
    registry.register("sockets_up", "Whether the last query of the sockets succeeded", up);
    text_of(&registry)
}

/// Formats the metrics page of a probe. The names that start with `iperf3_` are those of iperf3_exporter, so
/// that existing dashboards work.
pub(super) fn of_probe(probed: &ProbeResult) -> String {
    let mut registry = Registry::default();
    let mut gauge = |name: &str, help: &str, value: f64| {
        let gauge = Seconds::default();
        gauge.set(value);
        registry.register(name, help, gauge);
    };
    gauge("iperf3_up", "Whether the test completed", f64::from(u8::from(probed.success)));
    gauge("iperf3_sent_bytes", "Payload bytes sent", probed.sent.get() as f64);
    gauge("iperf3_sent_seconds", "Duration of sending", probed.sent_in);
    gauge("iperf3_received_bytes", "Payload bytes received", probed.received.get() as f64);
    gauge("iperf3_received_seconds", "Duration of receiving", probed.received_in);
    gauge("iperf3_retransmits", "Number of retransmitted segments", probed.retransmits as f64);
    gauge("fullpipe_probe_duration_seconds", "Duration of the probe", probed.took.as_secs_f64());
    let min_rtt = probed.live.last().and_then(|row| row.sender.min_rtt);
    if let Some(min_rtt) = min_rtt {
        gauge("fullpipe_probe_min_rtt_seconds", "Minimum RTT during the test", min_rtt.as_secs_f64());
    }
    let limits = Family::<Labels, Seconds>::default();
    let times = probed.live.times();
    for limit in Limit::ALL {
        let time = times.get(&limit).copied().unwrap_or_default();
        limits.get_or_create(&vec![("limit", limit.name().to_owned())]).set(time.as_secs_f64());
    }
    registry.register("fullpipe_probe_limit_seconds", "Time for which each limit stopped the sender", limits);
    text_of(&registry)
}

fn text_of(registry: &Registry) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = encode(&mut text, registry);
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fullpipe_units::{Bytes, Duration};

    use super::*;

    /// Checks a metrics page against OpenMetrics 1.0, line by line: each metric family is announced once and
    /// its time series are contiguous, names and labels contain valid characters, counters end in `_total`,
    /// no time series occurs twice, and the page ends with `# EOF`.
    pub(crate) fn is_strict(page: &str) -> BTreeMap<String, f64> {
        let mut series = BTreeMap::new();
        let (mut types, mut current) = (BTreeMap::new(), String::new());
        let body = page.strip_suffix("# EOF\n").expect("an end");
        assert!(!body.contains("# EOF") && page.ends_with('\n'));
        let is_name = |name: &str| {
            name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        for line in body.lines() {
            if let Some(rest) = line.strip_prefix("# ") {
                let mut words = rest.splitn(3, ' ');
                let (what, name, about) = (words.next(), words.next().expect("a name"), words.next());
                assert!(is_name(name) && about.is_some_and(|about| !about.is_empty()), "{line}");
                match what {
                    Some("HELP") => {
                        assert!(!types.contains_key(name), "announced twice: {line}");
                        current = name.to_owned();
                        types.insert(current.clone(), String::new());
                    }
                    Some("TYPE") => {
                        let kind = about.expect("a type");
                        assert!(["counter", "gauge"].contains(&kind), "{line}");
                        current = name.to_owned();
                        types.insert(current.clone(), kind.to_owned());
                    }
                    _ => panic!("{line}"),
                }
                continue;
            }
            let (id, value) = line.rsplit_once(' ').expect("a value");
            let (name, labels) = id.split_once('{').unwrap_or((id, "}"));
            let suffix = if types[&current] == "counter" { "_total" } else { "" };
            assert_eq!(name, format!("{current}{suffix}"), "a family stands together: {line}");
            let labels = labels.strip_suffix('}').expect("an end of the labels");
            for label in labels.split("\",").map(|l| l.trim_end_matches('"')).filter(|l| !l.is_empty()) {
                let (name, value) = label.split_once("=\"").expect("a quoted value");
                assert!(is_name(name) && !value.contains(['\n', '"']), "{line}");
            }
            let value: f64 = value.parse().expect("a number");
            assert!(value.is_finite() && value >= 0.0, "{line}");
            assert!(series.insert(id.to_owned(), value).is_none(), "twice: {line}");
        }
        series
    }

    #[test]
    fn the_page_is_what_prometheus_reads() {
        let group = |dst: &str, sent| Group {
            dst: dst.into(),
            totals: Totals {
                sent: Bytes::new(sent),
                limits: BTreeMap::from([(Limit::Rwnd, Duration::from_millis(1_500))]),
                ..Totals::default()
            },
            present: Present { connections: 2, rtt: Some(Duration::from_millis(210)), ..Present::default() },
            up: true,
        };
        let series = is_strict(&page(&[group("192.0.2.7:443", 5), group("all", 7)]));
        let of = |id: &str| series.get(id).copied();
        assert_eq!(of("fullpipe_limit_seconds_total{dst=\"all\",limit=\"rwnd\"}"), Some(1.5));
        assert_eq!(of("fullpipe_limit_seconds_total{dst=\"all\",limit=\"cwnd\"}"), Some(0.0));
        assert_eq!(of("fullpipe_sent_bytes_total{dst=\"192.0.2.7:443\"}"), Some(5.0));
        assert_eq!(of("fullpipe_rtt_seconds{dst=\"all\"}"), Some(0.21));
        assert_eq!(of("fullpipe_connections{dst=\"all\"}"), Some(2.0));
        // Each group has a time series per limit and eight others, excluding the minimum RTT.
        assert_eq!(series.len(), 2 * (Limit::ALL.len() + 8), "{series:#?}");
        is_strict(&page(&[]));
        let probe = is_strict(&of_probe(&ProbeResult {
            success: true,
            sent: Bytes::new(5),
            ..ProbeResult::default()
        }));
        assert_eq!((probe["iperf3_up"], probe["iperf3_sent_bytes"]), (1.0, 5.0));
        assert_eq!(probe["fullpipe_probe_limit_seconds{limit=\"cwnd\"}"], 0.0);
    }
}
