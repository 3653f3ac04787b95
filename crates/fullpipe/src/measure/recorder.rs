//! Records the data of a running test from which the test is diagnosed at the end.

use std::collections::BTreeMap;

use fullpipe_analysis::classify::{SocketFacts, of_one_of_several};
use fullpipe_analysis::live::Live;
use fullpipe_analysis::{HostSettings, Latency};
use fullpipe_iperf3::document::{Document, Interval, SocketReading, Start};
use fullpipe_lab::trace::{ReceiverSample, Row};
use fullpipe_linux::iperf3::client::Watch;
use fullpipe_units::{Duration, Instant, Rate};

use super::samples::Samples;

/// Maximum number of samples that are stored for the diagnosis of a test. One hour of one stream at twenty
/// samples per second takes less than 50 MB.
pub const ROWS: usize = 72_000;

/// Records the document of a test and the samples of the test's sockets.
#[derive(Debug)]
pub struct Recorder {
    /// Document of the test, as far as it is complete.
    pub document: Document,
    /// Samples of the sending sockets, excluding the warm-up.
    pub rows: Samples<Row>,
    /// Samples of the receiving sockets, excluding the warm-up.
    pub received: Samples<ReceiverSample>,
    flows: BTreeMap<i32, Live>,
    host: SocketFacts,
    adds_limits: bool,
    loaded: LoadedRtt,
    last_report: Instant,
    last_row: Instant,
}

/// Statistics of the smoothed RTT while data was flowing.
#[derive(Debug, Default)]
struct LoadedRtt {
    sum: f64,
    samples: u64,
    longest: Duration,
}

impl Recorder {
    /// Creates a recorder that stores at most `most` samples. If `adds_limits` is set, each interval report
    /// states the limit of its streams. `settings` are the kernel settings of this host.
    pub fn new(adds_limits: bool, most: usize, link: Option<Rate>, settings: Option<&HostSettings>) -> Self {
        let wmem = settings.and_then(|settings| settings.tcp_wmem).map(|wmem| wmem[2]);
        Self {
            document: Document::default(),
            rows: Samples::new(most),
            received: Samples::new(most),
            flows: BTreeMap::new(),
            host: SocketFacts { link, wmem, ..SocketFacts::default() },
            adds_limits,
            loaded: LoadedRtt::default(),
            last_report: Instant::ZERO,
            last_row: Instant::ZERO,
        }
    }

    /// Returns the RTT before the test (`idle`) together with the RTT during the test.
    pub fn latency(&self, idle: Option<Duration>) -> Latency {
        let LoadedRtt { sum, samples, longest } = self.loaded;
        let mean = (samples > 0).then(|| Duration::from_secs_f64(sum / samples as f64));
        Latency { idle, loaded: mean, longest: mean.map(|_| longest), samples }
    }

    /// Returns the number of seconds for which each limit stopped the sender, by the name of the limit, as
    /// the mean over all streams.
    pub fn limit_seconds(&self) -> BTreeMap<&'static str, f64> {
        let mut seconds = BTreeMap::new();
        for times in self.flows.values().map(Live::times) {
            for (limit, time) in times {
                *seconds.entry(limit.name()).or_insert(0.0) += time.as_secs_f64() / self.flows.len() as f64;
            }
        }
        seconds
    }

    fn told(&self, socket: i32) -> Option<SocketReading> {
        let live = self.flows.get(&socket)?;
        let last = live.last()?.sender;
        let mut held = live.held_since(self.last_report);
        if let Some(held) = held.as_mut().filter(|_| self.flows.len() > 1) {
            (held.limit, held.confidence) = of_one_of_several(held.limit, held.confidence);
        }
        Some(SocketReading {
            min_rtt: last.min_rtt,
            srtt: last.srtt,
            rwnd: last.rwnd,
            inflight: last.inflight,
            delivery_rate: last.delivery_rate,
            notsent: last.notsent,
            sndbuf: last.sndbuf,
            sndbuf_used: last.sndbuf_used,
            limit: held.as_ref().map(|held| held.limit.name().into()),
            confidence: held.map(|held| format!("{:?}", held.confidence).to_lowercase()),
        })
    }
}

impl Watch for Recorder {
    fn start(&mut self, start: &Start) {
        self.document.start = start.clone();
    }

    fn row(&mut self, socket: i32, row: &Row, omitted: bool) {
        let host = self.host;
        self.flows.entry(socket).or_insert_with(|| Live::new(host)).push(row);
        self.last_row = row.at;
        if omitted {
            return;
        }
        if let Some(srtt) = row.sender.srtt.filter(|_| !row.sender.delivered.is_zero()) {
            self.loaded.sum += srtt.as_secs_f64();
            self.loaded.samples += 1;
            self.loaded.longest = self.loaded.longest.max(srtt);
        }
        self.rows.push(socket, row);
    }

    fn received(&mut self, socket: i32, sample: &ReceiverSample, omitted: bool) {
        if !omitted {
            self.received.push(socket, sample);
        }
    }

    fn interval(&mut self, mut interval: Interval) {
        if self.adds_limits {
            for stream in interval.streams.iter_mut().filter(|stream| stream.tcp.is_some()) {
                stream.fullpipe = self.told(stream.socket);
            }
        }
        self.last_report = self.last_row;
        self.document.intervals.push(interval);
    }
}
