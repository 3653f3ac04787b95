//! `/probe?target=HOST`: runs a short test to an iperf3 server and completes it within the scrape timeout.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use fullpipe_analysis::Live;
use fullpipe_analysis::classify::SocketFacts;
use fullpipe_iperf3::Params;
use fullpipe_iperf3::document::{Interval, Start};
use fullpipe_lab::trace::Row;
use fullpipe_linux::iperf3::ServerAddress;
use fullpipe_linux::iperf3::client::{self, Client, TestResult, Watch};
use fullpipe_linux::{Clock, Stop};
use fullpipe_units::{Bytes, Duration};

use super::Probes;
use crate::Error;

/// Scrape timeout that is assumed if Prometheus does not send one.
const SCRAPE: Duration = Duration::from_secs(10);
/// Part of the scrape timeout that is reserved for connecting, exchanging results and sending the
/// response.
const RESERVE: Duration = Duration::from_secs(3);
/// Maximum and minimum duration of a test, independent of the scrape timeout.
const LONGEST: Duration = Duration::from_secs(5);
const SHORTEST: Duration = Duration::from_secs(1);

/// Result of a probe: a short test to an iperf3 server.
#[derive(Default)]
pub(super) struct ProbeResult {
    /// Whether the test ran to its end.
    pub(super) success: bool,
    /// Total duration of the probe, including connecting and exchanging results.
    pub(super) took: Duration,
    pub(super) sent: Bytes,
    pub(super) sent_in: f64,
    pub(super) received: Bytes,
    pub(super) received_in: f64,
    pub(super) retransmits: u64,
    /// Time for which each limit stopped the sender, and the minimum RTT.
    pub(super) live: Live,
}

/// Reason why the exporter refused a probe.
pub(super) enum ProbeRefusal {
    /// The target address is invalid; the value is the error message for the HTTP client.
    Bad(String),
    /// The settings of the exporter do not permit a probe to this target.
    Forbidden,
    /// Another probe is running; two concurrent probes would disturb each other.
    Busy,
}

/// Runs one probe at a time and refuses others.
#[derive(Clone, Default)]
pub(super) struct Prober {
    busy: Arc<AtomicBool>,
    /// Servers to which probes are permitted; `None` for any server.
    only: Option<Vec<ServerAddress>>,
}

impl Prober {
    /// Creates a prober that permits probes to the servers in `probes`.
    pub(super) fn new(probes: &Probes) -> Result<Self, Error> {
        let named = |target: &String| {
            ServerAddress::named(target).map_err(|why| {
                Error::usage(format!("--probe-target {target}: {why}"), "pass HOST or HOST:PORT")
            })
        };
        let only = match probes {
            Probes::Any => None,
            Probes::Only(targets) => Some(targets.iter().map(named).collect::<Result<_, _>>()?),
        };
        Ok(Self { only, ..Self::default() })
    }

    /// Returns whether the settings permit a probe to this server. Host names are compared as written,
    /// without resolving them.
    fn permits(&self, place: &ServerAddress) -> bool {
        let same =
            |other: &ServerAddress| other.port == place.port && other.host.eq_ignore_ascii_case(&place.host);
        self.only.as_ref().is_none_or(|only| only.iter().any(same))
    }

    /// Runs a test to the `target` in the URL, within the scrape timeout that the HTTP header `header` gives.
    pub(super) fn probe(
        &self,
        url: &str,
        header: Option<&str>,
        host: SocketFacts,
    ) -> Result<ProbeResult, ProbeRefusal> {
        let place = place(url)?;
        if !self.permits(&place) {
            return Err(ProbeRefusal::Forbidden);
        }
        let _busy = Busy::begin(&self.busy).ok_or(ProbeRefusal::Busy)?;
        Ok(run(place, scrape(header), host))
    }
}

/// Marks that a probe is running; dropping this value clears the flag, even after a panic.
struct Busy<'a>(&'a AtomicBool);

impl<'a> Busy<'a> {
    /// Sets the flag of a running probe; returns `None` if a probe is already running.
    fn begin(busy: &'a AtomicBool) -> Option<Self> {
        (!busy.swap(true, Ordering::AcqRel)).then_some(Self(busy))
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Parses the header `X-Prometheus-Scrape-Timeout-Seconds`; returns the default if it is missing or invalid.
fn scrape(header: Option<&str>) -> Duration {
    let seconds = header.and_then(|value| value.trim().parse::<f64>().ok());
    let sane = seconds.filter(|seconds| seconds.is_finite() && *seconds > 0.0 && *seconds < 3_600.0);
    sane.map_or(SCRAPE, Duration::from_secs_f64)
}

/// Returns the duration of a test that fits into the scrape timeout, as a number of whole seconds.
fn length(scrape: Duration) -> Duration {
    let room = scrape.saturating_sub(RESERVE).clamp(SHORTEST, LONGEST);
    Duration::from_secs(room.as_millis() / 1_000)
}

/// Parses the percent-encoded query parameter `target=HOST`, `target=HOST:PORT` or `target=[ADDRESS]:PORT`.
fn place(url: &str) -> Result<ServerAddress, ProbeRefusal> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let target = query.split('&').find_map(|pair| pair.strip_prefix("target=")).unwrap_or_default();
    let target = unescaped(target);
    let bad = |why| ProbeRefusal::Bad(format!("{why}: write /probe?target=HOST or HOST:PORT\n"));
    let place = ServerAddress::named(&target).map_err(bad)?;
    Ok(ServerAddress { connect_timeout: Some(RESERVE / 2), ..place })
}

/// Reads the target in `url` and the scrape timeout in `header`.
pub(super) fn read(url: &str, header: Option<&str>) {
    let duration = length(scrape(header));
    assert!((SHORTEST..=LONGEST).contains(&duration));
    if let Ok(place) = place(url) {
        // The host name appears in error messages and is passed to the resolver.
        assert!(!place.host.is_empty() && !place.host.contains(char::is_control));
    }
}

fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        let hex = after.get(..2).and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        match (byte, hex) {
            (b'%', Some(value)) => {
                bytes.push(value);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Collects the socket samples of a test.
struct Following(Live);

impl Watch for Following {
    fn start(&mut self, _: &Start) {}

    fn row(&mut self, _: i32, row: &Row, _: bool) {
        self.0.push(row);
    }

    fn interval(&mut self, _: Interval) {}
}

fn run(place: ServerAddress, scrape: Duration, host: SocketFacts) -> ProbeResult {
    let clock = Clock::starting_in(Duration::ZERO);
    let begin = clock.now();
    let params = Params { time: length(scrape), ..Params::default() };
    let client = Client { place, params, interval: Duration::ZERO, length: None };
    let mut following = Following(Live::new(host));
    let mut probed = ProbeResult::default();
    let Ok(stop) = Stop::new() else { return probed };
    let over = Arc::new(AtomicBool::new(false));
    let finished = thread::scope(|scope| {
        let (word, end) = (stop.clone(), Arc::clone(&over));
        // The test is stopped before the scrape timeout, even if the server does not answer.
        scope.spawn(move || {
            let deadline = begin + scrape.saturating_sub(RESERVE / 6);
            while !end.load(Ordering::Acquire) {
                if clock.now() >= deadline {
                    return word.stop();
                }
                clock.sleep_until((clock.now() + RESERVE / 60).min(deadline));
            }
        });
        let finished = client::run(&client, &mut following, &stop);
        over.store(true, Ordering::Release);
        finished
    });
    if let Ok(TestResult { end, interrupted, .. }) = finished {
        probed.success = !interrupted;
        if let Some(sum) = &end.sum_sent {
            (probed.sent, probed.sent_in) = (sum.amount.bytes, sum.amount.length().as_secs_f64());
            probed.retransmits = sum.retransmits.unwrap_or(0);
        }
        if let Some(sum) = &end.sum_received {
            (probed.received, probed.received_in) = (sum.amount.bytes, sum.amount.length().as_secs_f64());
        }
    }
    probed.live = following.0;
    probed.took = clock.now().saturating_since(begin);
    probed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_fits_its_scrape() {
        let seconds = |header| length(scrape(header)).as_secs_f64();
        assert_eq!((seconds(None), seconds(Some("30")), seconds(Some("5.9"))), (5.0, 5.0, 2.0));
        assert_eq!((seconds(Some("1")), seconds(Some("nan")), seconds(Some("-3"))), (1.0, 5.0, 5.0));
    }

    /// A probe that panics clears the flag of a running probe, so that the next probe can run.
    #[test]
    fn one_probe_runs_at_a_time() {
        let busy = AtomicBool::new(false);
        let first = Busy::begin(&busy).expect("none runs");
        assert!(Busy::begin(&busy).is_none());
        drop(first);
        let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _busy = Busy::begin(&busy);
            panic!("a defect");
        }));
        assert!(panics.is_err() && Busy::begin(&busy).is_some());
    }

    #[test]
    fn only_permitted_servers_are_probed() {
        let permits = |probes: &Probes, target: &str| {
            let place = ServerAddress::named(target).expect("a target");
            Prober::new(probes).unwrap_or_else(|error| panic!("{error}")).permits(&place)
        };
        assert!(permits(&Probes::Any, "192.0.2.7:80"));
        let only = Probes::Only(vec!["Speed.example.com".into(), "[2001:db8::7]:443".into()]);
        for target in ["speed.example.com", "speed.example.com:5201", "[2001:db8::7]:443"] {
            assert!(permits(&only, target), "{target}");
        }
        for target in ["speed.example.com:22", "example.com", "2001:db8::7"] {
            assert!(!permits(&only, target), "{target}");
        }
        assert!(!permits(&Probes::Only(Vec::new()), "speed.example.com"));
        assert!(Prober::new(&Probes::Only(vec!["a:x".into()])).is_err());
    }

    #[test]
    fn a_target_is_a_host_and_perhaps_a_port() {
        let of = |query: &str| match place(&format!("/probe?{query}")) {
            Ok(place) => format!("{} {}", place.host, place.port),
            Err(ProbeRefusal::Bad(why)) => why,
            Err(ProbeRefusal::Forbidden | ProbeRefusal::Busy) => "refused".into(),
        };
        assert_eq!(of("target=example.com"), "example.com 5201");
        assert_eq!(of("x=1&target=192.0.2.7:80"), "192.0.2.7 80");
        assert_eq!(of("target=%5B2001:db8::7%5D:443"), "2001:db8::7 443");
        assert_eq!(of("target=2001:db8::7"), "2001:db8::7 5201");
        for bad in ["", "target=", "target=h:x", "target=%5Bx", "target=a%0Ab", "target=a%20b"] {
            assert!(of(bad).ends_with("write /probe?target=HOST or HOST:PORT\n"), "{bad}: {}", of(bad));
        }
        assert_eq!(unescaped("a%2"), "a%2");
    }
}
